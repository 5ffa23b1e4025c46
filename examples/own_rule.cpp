// SPDX-License-Identifier: MIT
//
// An acceptance rule of your own, and the proof that it is lossless.
//
// A rule is a function object. It sees one request's drafted tokens, their q and the target's p, and names its draws by
// keys. The enumerator walks every outcome of every draw on a small vocabulary. So the law of the emitted text comes
// out exactly and is compared with that of plain decoding. A second rule leaves out half of the first; the enumerator
// says by how much it is wrong.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <map>
#include <vector>

#include <sureleap/sureleap.hpp>
#include <sureleap/testing/enumerator.hpp>

using namespace sureleap;

// What p wants more of than q proposes: the law of the correction behind a rejected draft.
template <class P, class Q>
struct positive_part {
    P const& p;
    Q const& q;

    [[nodiscard]] std::size_t size() const { return p.size(); }
    [[nodiscard]] double operator[](token_id v) const { return std::max(p.probability(v) - q.probability(v), 0.0); }
    [[nodiscard]] double total() const {
        double sum = 0.0;
        for (std::size_t v = 0; v < size(); ++v) sum += (*this)[static_cast<token_id>(v)];
        return sum;
    }
};

// Token rejection as a textbook has it. Its type declares what it promises (the target's distribution, if the schedule
// does not look ahead), what it reads of q, and how its drafts are drawn. The decoder refuses parts that do not go
// together.
class plain_rejection {
public:
    static constexpr fidelity guarantee = fidelity::distribution;
    static constexpr q_access access = q_access::row;
    using draft_rule = categorical_draft;

    template <class Verification, class Rng>
    [[nodiscard]] decision operator()(Verification& v, Rng& rng) const {
        for (std::size_t k = 0; k < v.length(); ++k) {
            auto const& p = v.target(k);
            auto const& q = v.draft(k);
            if (!p.valid()) return {};  // a NaN row: the request's verdict says so
            token_id const x = v.token(k);
            if (rng.bernoulli(v.key(k, purpose::accept), p.probability(x), q.probability(x))) continue;
            return {true, k, rng.categorical(v.key(k, purpose::residual), positive_part{p, q})};
        }
        auto const& p = v.target(v.length());
        if (!p.valid()) return {};
        return {true, v.length(), rng.categorical(v.key(v.length(), purpose::bonus), p)};
    }
};

// The natural mistake: the correction is drawn from p itself. It looks right, and tokens that the draft likes come too
// often.
class hasty_rejection : public plain_rejection {
public:
    template <class Verification, class Rng>
    [[nodiscard]] decision operator()(Verification& v, Rng& rng) const {
        decision made = plain_rejection::operator()(v, rng);
        std::size_t const k = made.row;
        if (made.valid && k < v.length()) made.next = rng.categorical(v.key(k, purpose::bonus), v.target(k));
        return made;
    }
};

// ---- the proof -------------------------------------------------------------------------------------------------

using text = std::vector<token_id>;
using law = std::map<text, double>;

constexpr std::size_t tokens = 3;
constexpr std::size_t length = 4;

// Logits behind a token, of a target and of a draft that is somewhat like it.
double target_logit(token_id last, std::size_t v) {
    return std::sin(2.0 * last + 3.0 * static_cast<double>(v));
}
double draft_logit(token_id last, std::size_t v) {
    return std::cos(1.0 * last + 2.0 * static_cast<double>(v));
}

law plain_decoding() {
    law all{{{0}, 1.0}};
    for (std::size_t n = 0; n < length; ++n) {
        law longer;
        for (auto const& [before, probability] : all) {
            double sum = 0.0;
            for (std::size_t v = 0; v < tokens; ++v) sum += std::exp(target_logit(before.back(), v));
            for (std::size_t v = 0; v < tokens; ++v) {
                text after = before;
                after.push_back(static_cast<token_id>(v));
                longer[after] = probability * std::exp(target_logit(before.back(), v)) / sum;
            }
        }
        all = std::move(longer);
    }
    return all;
}

template <class Rule>
law speculative_decoding(Rule rule, std::size_t& paths) {
    auto target = model_of<double>(tokens, [](auto context, auto logits) {
        for (std::size_t v = 0; v < tokens; ++v) logits[v] = target_logit(context.back(), v);
    });
    auto draft = model_of<double>(tokens, [](auto context, auto logits) {
        for (std::size_t v = 0; v < tokens; ++v) logits[v] = draft_logit(context.back(), v);
    });
    law all;
    enumerator walk{enumerator::noise::keyed};  // a draw that is used twice gives the same outcome, as in production
    walk.for_each_path([&] {
        autoregressive drafter{draft, {.block_size = 2, .vocabulary = tokens}};
        decoder dec{target, drafter, fixed_schedule{}, rule, {}, no_logits_hook{}, walk.handle()};
        request_id const id = dec.submit(text{0}, {.seed = 1, .max_new_tokens = length});
        while (dec.step()) {
        }
        text seen{0};
        for (token_id const x : dec.generated(id)) seen.push_back(x);
        all[seen] += walk.weight();
    });
    paths = walk.paths();
    return all;
}

template <class Rule>
double check(char const* name, Rule rule) {
    std::size_t paths = 0;
    law const wanted = plain_decoding();
    law found = speculative_decoding(rule, paths);
    double distance = 0.0;
    for (auto const& [t, probability] : wanted) distance += 0.5 * std::abs(probability - found[t]);
    std::printf("%s: %zu paths, total variation %.1e from plain decoding over %zu texts\n", name, paths, distance,
                wanted.size());
    return distance;
}

int main() {
    bool const exact = check("plain_rejection", plain_rejection{}) < 1e-12;
    bool const caught = check("hasty_rejection", hasty_rejection{}) > 1e-3;
    std::printf("%s\n", exact && caught ? "the first is lossless, the second is not" : "this is not what it should be");
    return exact && caught ? 0 : 1;
}

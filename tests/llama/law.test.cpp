// SPDX-License-Identifier: MIT
//
// The law of what comes out of llama.cpp, by a chi-square test of 10^5 tokens against its own sampler: the first token
// behind a prompt, and the first one behind a prefix of drafts that was verified. Seeds are fixed, so the test says the
// same each time. A rule with a bug goes through the same test and fails. Twenty seconds, since every token is one that
// llama.cpp computed; a tenth of them elsewhere.
#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <sureleap/ext/llama.hpp>
#include <sureleap/sureleap.hpp>

#include "llama/support/plain_text.hpp"
#include "llama/support/tiny_models.hpp"

using namespace sureleap;
using namespace support;

namespace {

constexpr std::size_t wanted = SURELEAP_TEST_QUICK ? 10000 : 100000;
constexpr std::size_t places = 16;

/// Drafts the two tokens that the target likes best.
class two_tokens {
public:
    using value_type = float;
    struct forward_type {};
    static constexpr bool is_deterministic = true;
    static constexpr bool is_parallel = true;
    static constexpr bool has_confidence = false;
    static constexpr bool plans_at_anchor = false;

    two_tokens(std::size_t prompt_size, std::array<token_id, 2> tokens, std::size_t vocabulary)
        : prompt_size_(prompt_size), tokens_(tokens), vocabulary_(vocabulary) {}
    [[nodiscard]] std::size_t block_size() const noexcept { return 2; }
    [[nodiscard]] std::size_t vocabulary() const noexcept { return 0; }
    [[nodiscard]] std::size_t target_vocabulary() const noexcept { return vocabulary_; }
    [[nodiscard]] forward_type forward(std::span<request_view const>) const noexcept { return {}; }
    template <class DraftRule, class Rng>
    void draw(forward_type, DraftRule, draft_block<float>& block, Rng&) const noexcept {
        for (std::size_t r = 0; r < block.requests().size(); ++r) {
            auto const& request = block.requests()[r];
            std::size_t const cap = request.draft_cap(2);
            if (request.position + 1 != prompt_size_) continue;
            for (std::size_t k = 0; k < cap; ++k) block.append_found(r, tokens_[k], vocabulary_);
        }
    }

private:
    std::size_t prompt_size_;
    std::array<token_id, 2> tokens_;
    std::size_t vocabulary_;
};

/// Token rejection with a residual that is not one: after a rejection it draws from p as it was.
struct without_residual {
    using draft_rule = categorical_draft;
    static constexpr fidelity guarantee = fidelity::distribution;
    static constexpr q_access access = q_access::row;

    template <class Verification, class Rng>
    [[nodiscard]] decision operator()(Verification& v, Rng& rng) const {
        std::size_t k = 0;
        for (; k < v.length(); ++k) {
            auto const& p = v.target(k);
            if (!rng.bernoulli(v.key(k, purpose::accept), p.probability(v.token(k)), 1.0)) {
                return {true, k, rng.categorical(v.key(k, purpose::residual), p)};
            }
        }
        return {true, k, rng.categorical(v.key(k, purpose::bonus), v.target(k))};
    }
};

/// Of two samples of the same law: the statistic of pooled cells with at least 10 expected, in standard deviations.
[[nodiscard]] double deviation(std::span<std::uint64_t const> a, std::span<std::uint64_t const> b) {
    double total_a = 0.0, total_b = 0.0;
    for (std::size_t v = 0; v < a.size(); ++v) {
        total_a += static_cast<double>(a[v]);
        total_b += static_cast<double>(b[v]);
    }
    double chi = 0.0, cells = -1.0, rest_a = 0.0, rest_b = 0.0;
    auto const add = [&](double x, double y) {
        double const both = x + y;
        if (both == 0.0) return;
        double const expected = both * total_a / (total_a + total_b);
        chi += (x - expected) * (x - expected) / expected;
        chi += (y - (both - expected)) * (y - (both - expected)) / (both - expected);
        cells += 1.0;
    };
    for (std::size_t v = 0; v < a.size(); ++v) {
        auto const x = static_cast<double>(a[v]), y = static_cast<double>(b[v]);
        if (x + y >= 20.0) {
            add(x, y);
        } else {
            rest_a += x;
            rest_b += y;
        }
    }
    add(rest_a, rest_b);
    return (chi - cells) / std::sqrt(2.0 * cells);
}

struct counts {
    std::vector<std::uint64_t> first;   // of all texts
    std::vector<std::uint64_t> behind;  // the third token, of those that begin with the two drafts
    std::uint64_t behind_total = 0;
};

template <class Rule>
[[nodiscard]] counts tokens_under(Rule rule, tiny_model const& model, std::span<token_id const> prompt,
                                  std::array<token_id, 2> drafts) {
    std::size_t const vocabulary = tokens_of(model);
    tiny_context const context = make_context(model);
    two_tokens drafter{prompt.size(), drafts, vocabulary};
    llama_target target{context.get(), drafter, {.max_requests = places}};
    decoder dec{target, drafter, fixed_schedule{}, rule, {.max_requests = places}};
    counts result{std::vector<std::uint64_t>(vocabulary), std::vector<std::uint64_t>(vocabulary), 0};
    std::uint64_t seed = 0;
    while (result.behind_total < wanted) {
        std::array<request_id, places> ids;
        for (auto& id : ids) id = dec.submit(prompt, {.seed = ++seed, .max_new_tokens = 3});
        while (dec.step()) {
        }
        for (auto const id : ids) {
            auto const text = dec.generated(id);
            REQUIRE(text.size() == 3);
            ++result.first[static_cast<std::size_t>(text[0])];
            if (text[0] != drafts[0] || text[1] != drafts[1]) continue;
            ++result.behind[static_cast<std::size_t>(text[2])];
            ++result.behind_total;
        }
    }
    return result;
}

/// So many draws of llama.cpp's own sampler from its own row.
[[nodiscard]] std::vector<std::uint64_t> draws_of_llama(tiny_model const& model, std::span<token_id const> tokens,
                                                        std::uint64_t count) {
    tiny_context const context = make_context(model);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        REQUIRE(token_batch().add(tokens[i], static_cast<llama_pos>(i)).decode(context) == 0);
    }
    llama_sampler* const chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
    llama_sampler_chain_add(chain, llama_sampler_init_dist(17));
    std::vector<std::uint64_t> result(tokens_of(model));
    for (std::uint64_t i = 0; i < count; ++i) {
        ++result[static_cast<std::size_t>(llama_sampler_sample(chain, context.get(), 0))];
    }
    llama_sampler_free(chain);
    return result;
}

}  // namespace

TEST_CASE("tokens behind a prompt and behind a verified prefix have the law of llama.cpp's own sampling") {
    tiny_model const model = make_tiny(tiny_arch::llama, 11, {.sharpness = 5.0F});
    auto const prompt = repeating_prompt(2, 9, 5);
    one_by_one row_of(model);
    std::vector<float> row(tokens_of(model));
    std::vector<token_id> text = prompt;
    std::array<token_id, 2> drafts{};
    for (auto& x : drafts) {
        row_of(text, row);
        x = static_cast<token_id>(std::max_element(row.begin(), row.end()) - row.begin());
        text.push_back(x);
    }

    auto const ours = tokens_under(token_rejection<>{}, model, prompt, drafts);
    std::uint64_t total = 0;
    for (auto const n : ours.first) total += n;
    auto const llama_first = draws_of_llama(model, prompt, total);
    auto const llama_behind = draws_of_llama(model, text, ours.behind_total);
    CHECK(total > ours.behind_total);
    CHECK(std::abs(deviation(ours.first, llama_first)) < 4.5);
    CHECK(std::abs(deviation(ours.behind, llama_behind)) < 4.5);

    auto const wrong = tokens_under(without_residual{}, model, prompt, drafts);
    std::uint64_t wrong_total = 0;
    for (auto const n : wrong.first) wrong_total += n;
    CHECK(deviation(wrong.first, draws_of_llama(model, prompt, wrong_total)) > 100.0);
}

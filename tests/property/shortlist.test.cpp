// SPDX-License-Identifier: MIT
//
// Whatever a list leaves out, the law is the target's: whole rounds with drafters that draw from lists, walked path by
// path under every rule, and the rules on rows of several blocks, by counting.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sureleap/head/int8.hpp>

#include "support/dice.hpp"
#include "support/exactness.hpp"
#include "support/small_heads.hpp"

using namespace exactness;

namespace {

/// Every scene under a rule; a drafter that lists `best` tokens by base logits and, if asked, one successor. Races are
/// walked over three tokens at most.
template <class Rule>
void check_lists(std::string const& name, Rule const& rule, std::size_t most_tokens = 5) {
    request_settings const cool{.temperature = 0.6};
    request_settings const truncated{.top_k = 2, .draft = transform{.temperature = 1.4, .top_k = 1}};
    request_settings const draft_top_2{.temperature = 0.8, .draft = transform{.top_k = 2}};
    request_settings const greedy_draft{.draft = transform{.temperature = 0.0}};
    struct trial {
        world where;
        scene what;
        std::size_t best;
        bool with_successors;
    };
    std::vector<trial> const all{
        {{61, 3, 2}, {{{{0}, {}}}, 3, 1}, 1, false},
        {{62, 3, 2}, {{{{1}, {}}}, 3, 1}, 1, true},
        {{63, 3, 2}, {{{{2}, cool}}, 3, 1}, 2, false},
        {{64, 4, 2}, {{{{0}, {}}}, 2, 1}, 2, true},
        {{65, 3, 2}, {{{{1}, truncated}}, 3, 1}, 2, true},
        {{66, 4, 2}, {{{{3}, draft_top_2}}, 2, 1}, 3, true},
        {{67, 3, 2}, {{{{0}, greedy_draft}}, 3, 1}, 2, true},
        {{68, 2, 2}, {{{{0}, {}}, {{1}, cool}}, 2, 0}, 1, true},
        {{69, 3, 2}, {{{{0}, {}}, {{2}, draft_top_2, 1}}, 2, 0}, 1, true},
        {{70, 3, 3}, {{{{1}, {}}}, 3, 1}, 1, true},
        {{71, 3, 3}, {{{{2}, draft_top_2}}, 4, 0}, 2, false},
        {{72, 5, 2}, {{{{4}, cool}}, 2, 1}, 3, true},
        {{73, 2, 2}, {{{{0}, {}}, {{1}, {}}, {{1}, cool, 1}}, 2, 0}, 1, true},
    };
    for (trial const& t : all) {
        if (t.where.vocabulary > most_tokens) continue;
        head_weights const parts{t.where.seed, t.where.vocabulary};
        auto const check = [&](std::string const& head_name, auto const& head) {
            matrix_view<token_id> successors{};
            if (t.with_successors) successors = parts.successors_view();
            shortlist_head const listed{head, t.best, successors};
            auto const make = [&] { return semi_with(t.where, listed); };
            std::string const label = name + ", " + head_name + ", list of " + std::to_string(t.best) +
                                      (t.with_successors ? " and a successor" : "");
            check_exact(label + ", fixed", enumerator::noise::keyed, t.where, t.what, make, fixed_schedule{}, rule);
            check_exact(label + ", fixed", enumerator::noise::fresh, t.where, t.what, make, fixed_schedule{}, rule);
            check_exact(label + ", top-K", enumerator::noise::keyed, t.where, t.what, make,
                        lagged_top_k<1>(jagged_capacity{}, 0.7), rule);
            check_exact(label + ", planned", enumerator::noise::keyed, t.where, t.what, make,
                        planned_schedule{jagged_capacity{}}, rule);
        };
        check("markov", parts.markov());
        check("rnn", parts.rnn());
    }
}

}  // namespace

TEST_CASE("drafts on a shortlist are exact: token rejection", "[exact]") {
    check_lists("rejection", token_rejection<>{});
    check_lists("rejection of argmax", token_rejection<argmax_draft>{});
}

TEST_CASE("drafts on a shortlist are exact: block verification", "[exact]") {
    check_lists("block", block_verification<>{});
    check_lists("block of argmax", block_verification<argmax_draft>{});
}

TEST_CASE("drafts on a shortlist are exact: keyed coupling", "[exact]") {
    check_lists("coupling", keyed_coupling{}, 3);
}

TEST_CASE("drafts on a shortlist are exact: target match", "[exact]") {
    check_lists("match", target_match<>{});
}

namespace {

/// A target of 3000 tokens that says the same at every position, and drafts on 40 of them that know it badly: rows of
/// three blocks, lists of a part of one.
struct large_world {
    static constexpr std::size_t vocabulary = 3000, gamma = 3, rank = 4, best = 30, successors = 10, requests = 8;
    std::vector<float> target, base, w1, w2;
    double head_size;

    large_world(support::dice& roll, double size) : head_size(size) {
        for (std::size_t v = 0; v < vocabulary; ++v) {
            double const favourite = v % 100 == 37 ? 6.0 : 0.0;  // in every block
            target.push_back(static_cast<float>(favourite + 1.5 * roll.bell()));
        }
        for (std::size_t i = 0; i < requests * gamma; ++i) {
            for (std::size_t v = 0; v < vocabulary; ++v) {
                base.push_back(i == 0 ? target[v] + static_cast<float>(roll.bell()) : base[v]);
            }
        }
        for (std::size_t i = 0; i < vocabulary * rank; ++i) w1.push_back(static_cast<float>(size * roll.bell()));
        for (std::size_t i = 0; i < vocabulary * rank; ++i) w2.push_back(static_cast<float>(roll.bell()));
    }
    [[nodiscard]] matrix_view<float> w1_view() const { return {w1.data(), vocabulary, rank}; }
    [[nodiscard]] matrix_view<float> w2_view() const { return {w2.data(), vocabulary, rank}; }

    template <class Head>
    [[nodiscard]] auto drafter(Head const& head, matrix_view<token_id> table) const {
        auto backbone = [this](std::span<request_view const> views) {
            return block_forward<float>{{}, {{base.data(), views.size() * gamma, vocabulary}, {}}};
        };
        return semi_autoregressive{std::move(backbone), shortlist_head{head, best, table},
                                   drafter_options{.block_size = gamma, .vocabulary = vocabulary}};
    }
    [[nodiscard]] auto target_model() const {
        return model_of<float>(vocabulary, [this](std::span<token_id const>, std::span<float> logits) {
            std::copy(target.begin(), target.end(), logits.begin());
        });
    }
};

struct played {
    std::vector<std::vector<token_id>> outputs;
    std::size_t rounds = 0, accepted_first = 0;  ///< of those that the limit on new tokens did not shorten
};

template <class Drafter, class Rule>
played play_large(large_world const& w, Drafter drafter, Rule const& rule, std::size_t most,
                  std::optional<std::size_t> drafts = {}) {
    auto target = w.target_model();
    decoder dec{target, std::move(drafter), fixed_schedule{}, rule, decoder_options{.max_requests = w.requests}};
    std::vector<request_id> ids;
    token_id const prompt[] = {5};
    for (std::size_t i = 0; i < w.requests; ++i) {
        request_settings settings{.temperature = 1.0, .seed = 900 + i, .max_new_tokens = most};
        if (drafts) settings.max_draft_tokens = *drafts;
        ids.push_back(dec.submit(prompt, settings));
    }
    played result;
    result.outputs.resize(w.requests);
    while (dec.step()) {
        for (request_event const& e : dec.events()) {
            auto& out =
                result.outputs[static_cast<std::size_t>(std::find(ids.begin(), ids.end(), e.request) - ids.begin())];
            if (out.size() + w.gamma + 1 <= most) {
                ++result.rounds;
                if (e.tokens.size() > 1) ++result.accepted_first;
            }
            out.insert(out.end(), e.tokens.begin(), e.tokens.end());
        }
    }
    return result;
}

/// How many standard deviations a sum of squares of as many parts exceeds what it is on average.
double excess(std::vector<double> const& counts, std::vector<double> const& expected) {
    double sum = 0.0;
    for (std::size_t i = 0; i < counts.size(); ++i)
        sum += (counts[i] - expected[i]) * (counts[i] - expected[i]) / expected[i];
    auto const freedom = static_cast<double>(counts.size() - 1);
    return (sum - freedom) / std::sqrt(2.0 * freedom);
}

}  // namespace

TEST_CASE("drafts on a shortlist of a large vocabulary: tokens are the target's, accepted as often as laws overlap",
          "[exact]") {
    support::dice roll(801);
    INFO("seed " << roll.seed());
    constexpr std::size_t most = 1500;
    for (double const head_size : {0.0, 0.7}) {
        large_world const w(roll, head_size);
        distribution<float> const p{{w.target, {}}, {}, {}};
        int8_matrix const eight{w.w2_view()};
        markov_head const head{w.w1_view(), eight.view()};
        successor_table const table{markov_head{w.w1_view(), w.w2_view()}, w.successors};
        auto const drafter = [&] { return w.drafter(head, table.view()); };

        // The favourites one by one, the rest by where it lies.
        std::vector<std::size_t> bin(w.vocabulary);
        for (std::size_t v = 0; v < w.vocabulary; ++v) bin[v] = v % 100 == 37 ? 10 + v / 100 : v / 300;
        std::vector<double> mass(40, 0.0);
        for (std::size_t v = 0; v < w.vocabulary; ++v) mass[bin[v]] += p.probability(static_cast<token_id>(v));
        auto const coarse = [&](token_id v) { return bin[static_cast<std::size_t>(v)] % 4; };
        std::vector<double> coarse_mass(4, 0.0);
        for (std::size_t b = 0; b < mass.size(); ++b) coarse_mass[b % 4] += mass[b];

        auto const check = [&](std::string const& name, auto const& rule) {
            INFO(name << ", head of size " << head_size);
            played const seen = play_large(w, drafter(), rule, most);
            std::vector<double> counts(mass.size(), 0.0), pairs(16, 0.0), expected, expected_pairs;
            double n = 0.0, n_pairs = 0.0;
            for (auto const& out : seen.outputs) {
                REQUIRE(out.size() == most);
                for (std::size_t i = 0; i < out.size(); ++i) {
                    counts[bin[static_cast<std::size_t>(out[i])]] += 1.0;
                    n += 1.0;
                    if (i == 0) continue;
                    pairs[4 * coarse(out[i - 1]) + coarse(out[i])] += 1.0;
                    n_pairs += 1.0;
                }
            }
            for (double const m : mass) expected.push_back(n * m);
            for (std::size_t i = 0; i < 16; ++i)
                expected_pairs.push_back(n_pairs * coarse_mass[i / 4] * coarse_mass[i % 4]);
            REQUIRE(*std::min_element(expected.begin(), expected.end()) > 10.0);
            CHECK(excess(counts, expected) < 5.0);
            CHECK(excess(pairs, expected_pairs) < 5.0);
            CHECK(seen.accepted_first > 0);
            CHECK(seen.accepted_first < seen.rounds);
            return seen;
        };
        played const rejected = check("rejection", token_rejection<>{});
        check("block", block_verification<>{});
        played const coupled = check("coupling", keyed_coupling{});

        // The noise decides what is said, whoever drafts.
        CHECK(play_large(w, drafter(), keyed_coupling{}, most, 0).outputs == coupled.outputs);

        if (head_size > 0.0) continue;
        // Without a bias q is the softmax of the 30 best base logits and the successors of a head that raises none.
        std::vector<token_id> list(w.vocabulary);
        for (std::size_t v = 0; v < list.size(); ++v) list[v] = static_cast<token_id>(v);
        auto const base = [&](token_id v) { return w.base[static_cast<std::size_t>(v)]; };
        std::sort(list.begin(), list.end(),
                  [&](token_id a, token_id b) { return base(a) > base(b) || (base(a) == base(b) && a < b); });
        list.resize(w.best);
        for (token_id v = 0; v < static_cast<token_id>(w.successors); ++v) list.push_back(v);
        std::sort(list.begin(), list.end());
        list.erase(std::unique(list.begin(), list.end()), list.end());
        double total = 0.0, both = 0.0;
        for (token_id const v : list) total += std::exp(static_cast<double>(base(v)));
        for (token_id const v : list) {
            both += std::min(p.probability(v), std::exp(static_cast<double>(base(v))) / total);
        }
        auto const n = static_cast<double>(rejected.rounds);
        INFO("accepted " << rejected.accepted_first << " of " << rejected.rounds << ", overlap " << both);
        CHECK(std::fabs(static_cast<double>(rejected.accepted_first) - n * both) <
              5.0 * std::sqrt(n * both * (1.0 - both)));
    }
}

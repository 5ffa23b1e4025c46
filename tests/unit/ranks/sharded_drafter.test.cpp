// SPDX-License-Identifier: MIT
//
// Drafts of ranks that have slices of the head: tokens, probabilities and confidences are the same bits for any number
// of ranks. Where the largest logit or a race decides they are those of a drafter with all columns. That the law is q's
// is tests/property/exact_every_slice.test.cpp.
//
// Meant for the thread sanitizer too.
#include <sureleap/drafter/parallel.hpp>
#include <sureleap/head/int8.hpp>
#include <sureleap/head/shortlist.hpp>
#include <sureleap/ranks/sharded_drafter.hpp>
#include <sureleap/ranks/thread_ranks.hpp>
#include <sureleap/schedule/simple.hpp>
#include <sureleap/sureleap.hpp>
#include <sureleap/verify/any.hpp>

#include "support/common.hpp"
#include "support/executors.hpp"
#include "support/on_ranks.hpp"
#include "support/sliced_calls.hpp"
#include "support/sliced_world.hpp"

using namespace sureleap;
using namespace support;

namespace {

any_rule const rules[]{token_rejection<>{}, block_verification<>{}, target_match<>{}, keyed_coupling{}, greedy_match{}};

/// What a round drafted.
struct drafted {
    std::vector<std::vector<token_id>> tokens;
    std::vector<double> probabilities;
    std::vector<fixed_probability> survivals;
    std::vector<status> outcomes;

    [[nodiscard]] bool operator==(drafted const&) const = default;
};
/// Requests of one round, some of them at temperature 0, with stop tokens, short, or masked.
struct some_requests {
    std::vector<request_settings> settings;
    std::vector<request_view> views;
    std::vector<token_id> stops{5, 6, 7};

    some_requests(dice& roll, std::size_t vocabulary, std::size_t count, any_rule const& rule) : settings(count) {
        for (std::size_t r = 0; r < count; ++r) {
            settings[r].temperature = roll.chance(0.2) ? 0.0 : roll.between(0.5, 1.5);
            if (roll.chance(0.2)) settings[r].temperature = 0.01;
            if (traits_of(rule).greedy_only) settings[r].temperature = 0.0;
            if (roll.chance(0.3)) settings[r].stop_tokens = stops;
            if (roll.chance(0.3)) settings[r].min_new_tokens = 256;
            views.push_back({.id = r,
                             .slot = r,
                             .anchor = static_cast<token_id>(roll.below(vocabulary)),
                             .position = roll.below(100),
                             .seed = roll.bits(),
                             .remaining = roll.chance(0.2) ? 2u : 256u,
                             .settings = &settings[r]});
        }
    }
};

template <class Drafter>
drafted draft(Drafter& drafter, any_rule const& rule, some_requests const& of, executor_ref executor = {}) {
    using real = typename Drafter::value_type;
    threshold_schedule schedule{0.0};
    philox_randomness rng;
    round_memory<float, real> memory{
        drafter, schedule, rule, {.max_requests = of.views.size(), .executor = executor, .constrained = true}};
    drafted all;
    for (int attempts = 0; attempts < 2; ++attempts) {  // the second finds what the first left in the memory
        if (!begin_round(schedule, of.views, memory)) return all;
        draw(drafter, drafter.forward(memory.requests()), rule, rng, memory);
    }
    auto const& block = memory.block();
    auto const table = block.table();
    for (std::size_t r = 0; r < of.views.size(); ++r) {
        all.tokens.emplace_back(block.tokens(r).begin(), block.tokens(r).end());
        all.outcomes.push_back(block.draft_outcome(r));
        for (std::size_t k = 0; k < block.size(r); ++k) {
            all.probabilities.push_back(table.token_probabilities[r * block.block_size() + k]);
            all.survivals.push_back(table.survivals.survival[r * block.block_size() + k]);
        }
    }
    return all;
}

/// parts(own) makes the drafter of a rank that has these tokens; what all ranks draft, which must be the same.
template <class Parts>
drafted draft_on(vocabulary_slices const& slices, any_rule const& rule, some_requests const& of, Parts const& parts) {
    std::vector<drafted> all(slices.ranks());
    thread_ranks threads{slices.ranks(), {.seconds = 30.0}};
    on_ranks(slices.ranks(), [&](std::size_t rank) {
        auto ranks = threads.of(rank);
        test_executor workers(task_order::at_once, rank % 2 + 1);
        sharded_drafter drafter{parts(slices.tokens(rank)), ranks, slices};
        all[rank] = draft(drafter, rule, of, workers);
    });
    std::size_t differing = 0;
    for (drafted const& other : all) differing += other == all[0] ? 0u : 1u;
    CHECK(differing == 0);
    return all[0];
}

/// The same for any slices, and where it has to be as a whole drafter drafts.
template <class Parts>
void check_drafts(std::uint64_t seed, std::size_t vocabulary, Parts const& parts, bool is_estimate,
                  std::size_t& compared) {
    dice roll(seed);
    INFO("seed " << seed);
    any_rule const& rule = rules[seed % std::size(rules)];
    some_requests const of(roll, vocabulary, 1 + roll.below(4), rule);
    drawn_by const how = traits_of(rule).draft_rule;
    auto const alone = draft_on(vocabulary_slices::even(vocabulary, 1, 8), rule, of, parts);
    for (std::size_t const P : {2u, 3u, 4u, 8u}) {
        INFO("ranks " << P);
        auto const slices =
            roll.chance(0.5) ? vocabulary_slices::even(vocabulary, P, 8) : uneven_slices(roll, vocabulary, P, 8);
        CHECK((draft_on(slices, rule, of, parts) == alone));
    }
    auto whole_parts = parts(vocabulary_view{});
    auto const whole = draft(whole_parts, rule, of);
    REQUIRE(whole.tokens.size() == alone.tokens.size());
    std::size_t place = 0, place_of_whole = 0;
    for (std::size_t r = 0; r < whole.tokens.size(); ++r) {
        INFO("request " << r);
        if (how != drawn_by::categorical || of.settings[r].temperature == 0.0) {
            CHECK(alone.tokens[r] == whole.tokens[r]);
            CHECK(alone.outcomes[r] == whole.outcomes[r]);
            for (std::size_t k = 0; k < std::min(alone.tokens[r].size(), whole.tokens[r].size()); ++k) {
                CHECK(std::abs(alone.probabilities[place + k] - whole.probabilities[place_of_whole + k]) < 1e-4);
                double const by = static_cast<double>(alone.survivals[place + k]) -
                                  static_cast<double>(whole.survivals[place_of_whole + k]);
                CHECK(std::abs(by) <= (is_estimate ? 1e-4 * static_cast<double>(certain) : 0.0));
                ++compared;
            }
        }
        place += alone.tokens[r].size();
        place_of_whole += whole.tokens[r].size();
    }
}

}  // namespace

TEST_CASE("sharded drafts: the same on any ranks, by all rules and heads", "[ranks]") {
    std::size_t compared = 0;
    constexpr std::size_t gamma = 4;
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
        std::size_t const V = seed % 3 == 0 ? 300 : 61;
        drafter_options const shape{.block_size = gamma, .vocabulary = V, .hidden_size = 3};
        auto const options = [&](vocabulary_view own) {
            drafter_options of_rank = shape;
            of_rank.slice = own;
            return of_rank;
        };
        auto const all = [V](vocabulary_view own) { return own ? own : vocabulary_view::slice(0, V, V); };
        sliced_world<float> const w(seed, V, gamma);
        sliced_world<bf16> const narrow(seed, V, gamma);
        sliced_world<double> const wide(seed, V, gamma);
        if (seed % 4 == 0) {
            check_drafts(
                seed, V,
                [&](vocabulary_view own) {
                    return semi_autoregressive{sliced_backbone<float>{&w, all(own)}, w.markov(all(own)),
                                               hidden_confidence{}, options(own)};
                },
                false, compared);
        } else if (seed % 4 == 1) {
            check_drafts(
                seed, V,
                [&](vocabulary_view own) {
                    return semi_autoregressive{sliced_backbone<bf16>{&narrow, all(own)}, narrow.gated(all(own)),
                                               top1_confidence{}, options(own)};
                },
                true, compared);
        } else if (seed % 4 == 2) {
            check_drafts(
                seed, V,
                [&](vocabulary_view own) {
                    return semi_autoregressive{sliced_backbone<double>{&wide, all(own)}, wide.rnn(all(own)),
                                               hidden_confidence{}, options(own)};
                },
                false, compared);
        } else {
            check_drafts(
                seed, V,
                [&](vocabulary_view own) {
                    return parallel{sliced_backbone<float>{&w, all(own), true}, top1_confidence{}, options(own)};
                },
                true, compared);
        }
    }
    CHECK(compared > 100);
}

TEST_CASE("sharded drafts: eight bits, shortlists and lists of some tokens", "[ranks]") {
    constexpr std::size_t V = 61, block = 3;
    std::size_t compared = 0;
    for (std::uint64_t seed = 0; seed < 30; ++seed) {
        sliced_world<float> const w(seed, V, block);
        auto const options = [](vocabulary_view own) {
            return drafter_options{.block_size = block, .vocabulary = V, .hidden_size = 3, .slice = own};
        };
        auto const all = [](vocabulary_view own) { return own ? own : vocabulary_view::slice(0, V, V); };
        if (seed % 3 == 0) {
            check_drafts(
                seed, V,
                [&](vocabulary_view own) {
                    static thread_local std::optional<int8_matrix> rows;
                    rows.emplace(w.own_w2(all(own)));
                    return semi_autoregressive{sliced_backbone<float>{&w, all(own)},
                                               markov_head{w.w1_view(), rows->view()}, hidden_confidence{},
                                               options(own)};
                },
                false, compared);
            continue;
        }
        if (seed % 3 == 1) {  // a list of all tokens is none
            dice roll(seed);
            some_requests const of(roll, V, 3, rules[seed % 5]);
            auto const slices = uneven_slices(roll, V, 3, 8);
            auto const head = [&](vocabulary_view own) { return w.gated(own); };
            auto const of_all = draft_on(slices, rules[seed % 5], of, [&](vocabulary_view own) {
                return semi_autoregressive{sliced_backbone<float>{&w, own}, head(own), hidden_confidence{},
                                           options(own)};
            });
            auto const listed = draft_on(slices, rules[seed % 5], of, [&](vocabulary_view own) {
                return semi_autoregressive{sliced_backbone<float>{&w, own}, shortlist_head{head(own), V},
                                           hidden_confidence{}, options(own)};
            });
            CHECK((listed == of_all));
            compared += listed.probabilities.size();
            continue;
        }
        std::vector<token_id> list;
        for (std::size_t v = 0; v < V; ++v) {
            if ((v * 7 + seed) % 3 == 0) list.push_back(static_cast<token_id>(v));
        }
        vocabulary_map const map(list, V);
        check_drafts(
            seed, V,
            [&](vocabulary_view own) {
                auto const first = std::ranges::lower_bound(list, own ? own.to_target(0) : 0);
                auto const last = std::ranges::lower_bound(
                    list, own ? own.to_target(static_cast<token_id>(own.draft_size())) : static_cast<token_id>(V));
                vocabulary_view some = vocabulary_view::slice(0, 0, V);
                if (first != last) some = {std::span<token_id const>(first, last), V};
                drafter_options how = options(some);
                if (!own) {
                    how.slice = {};
                    how.map = &map;
                    how.vocabulary = list.size();
                }
                return parallel{sliced_backbone<float>{&w, some}, top1_confidence{}, how};
            },
            true, compared);
    }
    CHECK(compared > 60);
}

TEST_CASE("sharded drafts: a token that a constraint leaves alone, and others that it bars", "[ranks]") {
    constexpr std::size_t V = 61, block = 4;
    sliced_world<float> const w(4, V, block);
    std::vector<std::uint32_t> one(mask_words(V)), some(mask_words(V));
    one[1] = 1u << 9;       // token 41
    some[0] = 0x000f0f00u;  // of few slices
    auto const constraint = [&](request_view const&, std::span<token_id const> before) noexcept {
        return token_mask{std::span<std::uint32_t const>(before.size() % 2 == 1 ? one : some)};
    };
    for (any_rule const& rule : rules) {
        dice roll(7);
        some_requests of(roll, V, 3, rule);
        for (auto& settings : of.settings) {
            settings = {.temperature = 0.9, .max_new_tokens = 1000, .constraint = constraint};
            if (traits_of(rule).greedy_only) settings.temperature = 0.0;
        }
        for (auto& view : of.views) view.remaining = 900;
        std::optional<drafted> alone;
        for (std::size_t const P : {1u, 2u, 5u}) {
            auto const now = draft_on(vocabulary_slices::even(V, P, 8), rule, of, [&](vocabulary_view own) {
                return parallel{sliced_backbone<float>{&w, own}, top1_confidence{},
                                drafter_options{.block_size = block, .vocabulary = V, .hidden_size = 3, .slice = own}};
            });
            if (!alone) alone = now;
            CHECK((now == *alone));
        }
        for (auto const& tokens : alone->tokens) {
            REQUIRE(tokens.size() == block);
            for (std::size_t k = 0; k < block; ++k) {
                CHECK(token_mask{std::span<std::uint32_t const>(k % 2 == 1 ? one : some)}.allows(tokens[k]));
            }
        }
    }
}

TEMPLATE_TEST_CASE("sharded drafts: shares of a part's tokens are their weights", "[ranks]", float, double, bf16) {
    using real = compute_t<TestType>;
    constexpr std::size_t V = 200, draws = 1 << 15;
    dice roll(21);
    std::vector<token_id> list;
    for (std::size_t v = 0; v < V; v += 1 + v % 3) list.push_back(static_cast<token_id>(v));
    vocabulary_part const part{50, 120, 0};
    for (vocabulary_view const over : {vocabulary_view::slice(10, 180, V), vocabulary_view(list, V)}) {
        auto logits = random_values<TestType>(roll, over.draft_size(), 2.0);
        logits[logits.size() / 2] = TestType(-std::numeric_limits<real>::infinity());
        detail::slice_row<TestType> row{logits, over, real(1.25), native_kernels<row_kernels>().get<TestType>()};
        auto const sum = row.sum(part, true);
        row.shift_by(sum.top);
        // What was said is rounded.
        for (double const mass : {sum.sum, sum.sum * (1.0 + 0x1p-24), sum.sum * (1.0 - 0x1p-24)}) {
            std::vector<std::size_t> counts(V);
            for (std::size_t i = 0; i < draws; ++i) {
                double const u = (static_cast<double>(i) + 0.5) / static_cast<double>(draws);
                ++counts[static_cast<std::size_t>(row.find(part, u, mass))];
            }
            double worst = 0.0;
            for (std::size_t v = 0; v < V; ++v) {
                bool const is_here = v >= part.first && v < part.first + part.count;
                double const weight =
                    is_here ? detail::weight_beside(row.logit(static_cast<token_id>(v)), sum.top, real(1.25)) : 0.0;
                double const expected = weight / sum.sum * static_cast<double>(draws);
                worst = std::max(worst, std::abs(static_cast<double>(counts[v]) - expected));
            }
            CHECK(worst < 1.5);
        }
        // Beyond all weights: the last of them, and not behind.
        CHECK(row.logit(row.find(part, 1.0 - 0x1p-53, sum.sum)) > -std::numeric_limits<real>::infinity());
        CHECK(row.find(part, 0.0, sum.sum) >= 50);
    }
}

// SPDX-License-Identifier: MIT
//
// The law of what ranks draft and emit whose head and target both lie in slices (sharded_drafter, sharded_rows), by
// enumeration. The drafts have the law of q, jointly; what is emitted, continued by p, has the law of p. The ranks take
// turns, so that all of them ask one source of randomness. Fifteen seconds.
#include <sureleap/drafter/parallel.hpp>
#include <sureleap/head/shortlist.hpp>
#include <sureleap/ranks/sharded_drafter.hpp>
#include <sureleap/ranks/sharded_rows.hpp>
#include <sureleap/schedule/simple.hpp>
#include <sureleap/sureleap.hpp>
#include <sureleap/testing/enumerator.hpp>

#include "support/common.hpp"
#include "support/placed_logits.hpp"
#include "support/sliced_world.hpp"
#include "support/turn_ranks.hpp"

using namespace sureleap;
using namespace support;

namespace {

constexpr std::size_t most_drafts = 2;
constexpr double temperature = 0.8;
using text = std::vector<token_id>;
using texts = std::vector<text>;
using law_of_texts = std::map<texts, double>;

std::vector<double> softmax(std::vector<double> row) {
    double sum = 0.0;
    for (double& l : row) sum += l = std::exp(l / temperature);
    for (double& l : row) l /= sum;
    return row;
}

/// Request r has anchor r and position 3 + r.
struct world {
    sliced_world<double> models;
    std::size_t requests;
    std::size_t drafts = most_drafts;  // of a request

    world(std::size_t vocabulary, std::size_t count, std::size_t most)
        : models(11, vocabulary, most_drafts), requests(count), drafts(most) {}
    std::size_t vocabulary() const { return models.vocabulary; }
    std::vector<double> target_logits(std::size_t r, text const& prefix) const {
        std::vector<double> row;
        for (std::size_t v = 0; v < vocabulary(); ++v) row.push_back(logit(20 + r, prefix, v));
        return row;
    }
    std::vector<double> p(std::size_t r, text const& prefix) const { return softmax(target_logits(r, prefix)); }
    /// Of a Markov head, or of none.
    std::vector<double> q(std::size_t r, text const& prefix, bool has_head) const {
        std::vector<double> row;
        auto const anchor = static_cast<token_id>(r);
        auto const previous = static_cast<std::size_t>(prefix.empty() ? anchor : prefix.back());
        for (std::size_t v = 0; v < vocabulary(); ++v) {
            row.push_back(models.base(anchor, 3 + r, prefix.size(), v));
            for (std::size_t i = 0; has_head && i < models.rank; ++i) {
                row.back() += models.w2[v * models.rank + i] * models.w1[previous * models.rank + i];
            }
        }
        return softmax(row);
    }
};
struct some_confidence {
    [[nodiscard]] double operator()(std::span<double const>, token_id previous, std::size_t k) const {
        return (static_cast<std::size_t>(previous) + k) % 3 == 0 ? 0.3 : 0.8;
    }
};

void continue_plainly(world const& w, std::size_t r, texts all, double weight, law_of_texts& law) {
    if (r == w.requests) {
        law[all] += weight;
        return;
    }
    if (all[r].size() > w.drafts) return continue_plainly(w, r + 1, all, weight, law);
    auto const p = w.p(r, all[r]);
    for (std::size_t v = 0; v < w.vocabulary(); ++v) {
        texts more = all;
        more[r].push_back(static_cast<token_id>(v));
        continue_plainly(w, r, more, weight * p[v], law);
    }
}

struct laws {
    law_of_texts drafted;
    law_of_texts emitted;
    std::size_t differing = 0;
    std::size_t failed = 0;
};
/// parts(own) makes the drafter of a rank.
template <class Rule, class Parts>
laws laws_of(world const& w, Rule const& rule, double threshold, vocabulary_slices const& slices, Parts const& parts) {
    std::size_t const R = w.requests, V = w.vocabulary(), P = slices.ranks();
    laws all;
    enumerator walk{enumerator::noise::keyed};
    turn_ranks turns{P};
    walk.for_each_path([&] {
        std::vector<texts> drafted(P), emitted(P);
        turns.run([&](turn_ranks::rank_type own) {
            request_settings const settings{.temperature = temperature, .max_draft_tokens = w.drafts};
            std::vector<request_view> requests;
            for (std::size_t r = 0; r < R; ++r) {
                requests.push_back({.id = r,
                                    .slot = r,
                                    .anchor = static_cast<token_id>(r),
                                    .position = 3 + r,
                                    .seed = r,
                                    .remaining = 99,
                                    .settings = &settings});
            }
            sharded_drafter drafter{parts(slices.tokens(own.rank())), own, slices};
            row_shards<double, turn_ranks::rank_type> shards{
                own, slices, {.max_requests = R, .block_size = most_drafts}};
            threshold_schedule schedule{threshold};
            auto rng = walk.handle();
            round_memory<double, double> memory{drafter, schedule, rule, {.max_requests = R}};
            if (begin_round(schedule, requests, memory)) {
                draw(drafter, drafter.forward(memory.requests()), rule, rng, memory);
            }
            std::vector<double> rows;
            std::size_t const first = slices.first(own.rank());
            std::size_t count = 0;
            verify_batch const& batch = admit(schedule, memory);
            for (std::size_t r = 0; r < R; ++r) {
                auto const tokens = memory.block().tokens(r);
                drafted[own.rank()].emplace_back(tokens.begin(), tokens.end());
                for (std::size_t n = 0; n <= batch.length(r); ++n, ++count) {
                    auto const row =
                        w.target_logits(r, {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(n)});
                    rows.insert(rows.end(), row.begin(), row.end());
                }
            }
            logits_rows<double> const own_rows{.values = {rows.data() + first, count, slices.size(own.rank()), V}};
            accept(rule, shards.of(own_rows), no_logits_hook{}, rng, memory);
            for (verdict const& v : end_round(schedule, memory).verdicts) {
                emitted[own.rank()].emplace_back(v.emitted.begin(), v.emitted.end());
                all.failed += v.outcome == status::ok && v.draft_outcome == status::ok ? 0u : 1u;
            }
        });
        for (std::size_t i = 0; i < P; ++i) {
            all.differing += drafted[i] == drafted[0] && emitted[i] == emitted[0] ? 0u : 1u;
        }
        all.drafted[drafted[0]] += walk.weight();
        continue_plainly(w, 0, emitted[0], walk.weight(), all.emitted);
    });
    return all;
}

/// of(r, prefix) is a row of probabilities.
template <class Of>
double worst_error(law_of_texts const& law, Of const& of) {
    double worst = 0.0, sum = 0.0;
    for (auto const& [all, probability] : law) {
        double expected = 1.0;
        for (std::size_t r = 0; r < all.size(); ++r) {
            text prefix;
            for (token_id const x : all[r]) {
                expected *= of(r, prefix)[static_cast<std::size_t>(x)];
                prefix.push_back(x);
            }
        }
        worst = std::max(worst, std::abs(probability - expected));
        sum += probability;
    }
    return std::max(worst, std::abs(sum - 1.0));
}
/// `known_q`: 1 of a Markov head, 0 of no head, -1 of another.
template <class Rule, class Parts>
void check(world const& w, Rule const& rule, double threshold, vocabulary_slices const& slices, Parts const& parts,
           int known_q) {
    INFO("ranks " << slices.ranks() << ", parts " << slices.parts().size() << ", requests " << w.requests);
    auto const all = laws_of(w, rule, threshold, slices, parts);
    CHECK(all.differing == 0);
    CHECK(all.failed == 0);
    CHECK(worst_error(all.emitted, [&](std::size_t r, text const& t) { return w.p(r, t); }) < 1e-12);
    if (known_q < 0 || threshold > 0.0 || Rule::draft_rule::is_deterministic) return;
    CHECK(worst_error(all.drafted, [&](std::size_t r, text const& t) { return w.q(r, t, known_q == 1); }) < 1e-12);
    CHECK(all.drafted.begin()->first[0].size() == w.drafts);
}

drafter_options options(world const& w, vocabulary_view own) {
    return {.block_size = most_drafts, .vocabulary = w.vocabulary(), .hidden_size = 3, .slice = own};
}
/// As many ranks, whose slices begin at multiples of a part; the first of three has none.
vocabulary_slices slices_of(std::size_t vocabulary, std::size_t ranks, std::size_t part) {
    if (ranks < 3) return vocabulary_slices::even(vocabulary, ranks, part);
    return vocabulary_slices{std::vector<std::size_t>{0, part, vocabulary}, part};
}

}  // namespace

TEMPLATE_TEST_CASE("sharded drafts: the joint law is q's, and what is emitted is p's", "[exact]", token_rejection<>,
                   block_verification<>, target_match<categorical_draft>, target_match<>) {
    for (std::size_t const P : {1u, 2u, 3u}) {
        for (std::size_t const part : {1u, 2u}) {
            world const w(3, 1, most_drafts);
            auto const parts = [&](vocabulary_view own) {
                return semi_autoregressive{sliced_backbone<double>{&w.models, own}, w.models.markov(own),
                                           some_confidence{}, options(w, own)};
            };
            check(w, TestType{}, 0.0, slices_of(3, P, part), parts, 1);
            if (part == 2) check(w, TestType{}, 0.5, slices_of(3, P, part), parts, 1);
            world const joint(3, 2, 1);
            auto const of_two = [&](vocabulary_view own) {
                return semi_autoregressive{sliced_backbone<double>{&joint.models, own}, joint.models.markov(own),
                                           some_confidence{}, options(joint, own)};
            };
            check(joint, TestType{}, 0.0, slices_of(3, P, part), of_two, 1);
        }
    }
    world const both(3, 2, most_drafts);
    auto const parts = [&](vocabulary_view own) {
        return semi_autoregressive{sliced_backbone<double>{&both.models, own}, both.models.markov(own),
                                   some_confidence{}, options(both, own)};
    };
    check(both, TestType{}, 0.5, slices_of(3, 2, 2), parts, 1);
}

TEST_CASE("sharded drafts: every head, and shortlists by slice", "[exact]") {
    world const w(4, 1, most_drafts);
    auto const slices = vocabulary_slices::even(4, 2, 2);
    auto const with = [&](auto const& head_of, int known_q) {
        check(
            w, token_rejection<>{}, 0.0, slices,
            [&](vocabulary_view own) {
                return semi_autoregressive{sliced_backbone<double>{&w.models, own}, head_of(own), some_confidence{},
                                           options(w, own)};
            },
            known_q);
    };
    with([&](vocabulary_view) { return no_head<double>{}; }, 0);
    with([&](vocabulary_view own) { return w.models.gated(own); }, -1);
    with([&](vocabulary_view own) { return w.models.rnn(own); }, -1);
    with([&](vocabulary_view own) { return shortlist_head{w.models.markov(own), 1}; }, -1);
    // Rank 0 drafts token 1 alone, or none.
    token_id const one[]{1}, two[]{2, 3};
    auto const drafts_of = [&](vocabulary_view of_rank_0) {
        return [&w, of_rank_0, &two](vocabulary_view own) {
            vocabulary_view const list = own.to_target(0) == 0 ? of_rank_0 : vocabulary_view(two, 4);
            return parallel{sliced_backbone<double>{&w.models, list}, some_confidence{}, options(w, list)};
        };
    };
    check(w, block_verification<>{}, 0.0, slices, drafts_of(vocabulary_view(one, 4)), -1);
    check(w, block_verification<>{}, 0.0, slices, drafts_of(vocabulary_view::slice(0, 0, 4)), -1);
    check(w, recursive_rejection<>{}, 0.0, slices, drafts_of(vocabulary_view::slice(0, 0, 4)), -1);
}

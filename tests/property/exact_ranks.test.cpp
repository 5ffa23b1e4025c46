// SPDX-License-Identifier: MIT
//
// The law of what ranks with slices of the vocabulary emit, by enumeration, jointly over two requests: drafts come with
// the probabilities of q, what was emitted is continued by p up to gamma + 1 tokens, and then the joint law is p's. The
// ranks take turns, so that all of them ask one source of randomness. Twenty seconds: each path is walked by all ranks,
// and replayed for each exchange.
#include <sureleap/ranks/sharded_rows.hpp>
#include <sureleap/testing/enumerator.hpp>
#include <sureleap/verifier.hpp>
#include <sureleap/verify/any.hpp>

#include "support/common.hpp"
#include "support/placed_logits.hpp"
#include "support/sliced_calls.hpp"
#include "support/turn_ranks.hpp"

using namespace sureleap;
using support::logit;
using support::turn_ranks;

namespace {

constexpr std::size_t V = 3;
using text = std::vector<token_id>;
using texts = std::vector<text>;
using law_of_texts = std::map<texts, double>;

std::vector<double> logits(std::uint64_t seed, text const& prefix) {
    std::vector<double> row(V);
    for (std::size_t v = 0; v < V; ++v) row[v] = logit(seed, prefix, v);
    return row;
}
constexpr double temperature = 0.8;
std::vector<double> softmax(std::vector<double> row) {
    double sum = 0.0;
    for (double& l : row) sum += l = std::exp(l / temperature);
    for (double& l : row) l /= sum;
    return row;
}

/// The shape of all requests' drafts: 0 for the anchor, else 1 + the index of the token before.
struct shape {
    std::vector<std::int32_t> parents;
    bool trees = false;

    std::size_t size() const { return parents.size(); }
    /// The tokens before node n of a request.
    text before(text const& tokens, std::size_t n) const {
        text path;
        for (; n != 0; n = static_cast<std::size_t>(parents[n - 1])) path.push_back(tokens[n - 1]);
        std::ranges::reverse(path);
        return path;
    }
};
struct world {
    shape drafts;
    std::size_t requests = 1;
    int top_k = 0;  // 0, or 2 of three tokens
    double top_p = 1.0;

    std::uint64_t seed_of(std::size_t r) const { return 1 + 10 * r; }
    std::vector<double> p(std::size_t r, text const& prefix) const {
        auto row = softmax(logits(seed_of(r), prefix));
        if (top_k == 2) *std::ranges::min_element(row) = 0.0;
        double left = 0.0;
        for (double const x : row) left += x;
        double const wanted = top_p * left;
        auto order = row;
        std::ranges::sort(order, std::greater<>{});
        double kept = 0.0;
        std::size_t count = 0;
        while (count < V && kept < wanted) kept += order[count++];
        for (double& x : row) x = x >= order[count - 1] ? x / kept : 0.0;
        return row;
    }
    std::vector<double> q(std::size_t r, text const& prefix) const { return softmax(logits(seed_of(r) + 5, prefix)); }
};

/// All drafts of a request with their probabilities: siblings are drawn without replacement.
void each_draft(world const& w, std::size_t r, text tokens, double weight, auto const& visit) {
    std::size_t const i = tokens.size();
    if (i == w.drafts.size()) return visit(tokens, weight);
    auto const n = static_cast<std::size_t>(w.drafts.parents[i]);
    auto law = w.q(r, w.drafts.before(tokens, n));
    double left = 1.0;
    for (std::size_t k = 0; k < i; ++k) {
        if (static_cast<std::size_t>(w.drafts.parents[k]) != n) continue;
        left -= law[static_cast<std::size_t>(tokens[k])];
        law[static_cast<std::size_t>(tokens[k])] = 0.0;
    }
    for (std::size_t v = 0; v < V; ++v) {
        if (law[v] == 0.0) continue;
        text more = tokens;
        more.push_back(static_cast<token_id>(v));
        each_draft(w, r, more, weight * law[v] / left, visit);
    }
}
void continue_plainly(world const& w, std::size_t r, texts all, std::size_t length, double weight, law_of_texts& law) {
    if (r == w.requests) {
        law[all] += weight;
        return;
    }
    if (all[r].size() >= length) return continue_plainly(w, r + 1, all, length, weight, law);
    auto const p = w.p(r, all[r]);
    for (std::size_t v = 0; v < V; ++v) {
        if (p[v] == 0.0) continue;
        texts more = all;
        more[r].push_back(static_cast<token_id>(v));
        continue_plainly(w, r, more, length, weight * p[v], law);
    }
}

/// The joint law of all texts, if every rank emits the same ones.
template <class Rule>
law_of_texts law_of(world const& w, Rule const& rule, vocabulary_slices const& slices) {
    std::size_t const gamma = w.drafts.size();
    std::size_t const R = w.requests;
    law_of_texts law;
    std::size_t differing = 0;
    auto const judge = [&](std::vector<text> const& drafts, double weight) {
        std::vector<double> p, q;
        std::vector<std::int32_t> tokens, parents;
        std::vector<std::int64_t> seeds, positions(R, 3);
        std::vector<double> const temperatures(R, temperature), top_ps(R, w.top_p);
        std::vector<std::int32_t> const top_ks(R, w.top_k);
        for (std::size_t r = 0; r < R; ++r) {
            for (std::size_t n = 0; n <= gamma; ++n) {
                for (double const l : logits(w.seed_of(r), w.drafts.before(drafts[r], n))) p.push_back(l);
            }
            for (std::size_t k = 0; k < gamma; ++k) {
                auto const n = static_cast<std::size_t>(w.drafts.parents[k]);
                for (double const l : logits(w.seed_of(r) + 5, w.drafts.before(drafts[r], n))) q.push_back(l);
            }
            tokens.insert(tokens.end(), drafts[r].begin(), drafts[r].end());
            parents.insert(parents.end(), w.drafts.parents.begin(), w.drafts.parents.end());
            seeds.push_back(static_cast<std::int64_t>(r));
        }
        enumerator walk{enumerator::noise::keyed};
        turn_ranks turns{slices.ranks()};
        walk.for_each_path([&] {
            std::vector<texts> emitted(slices.ranks());
            turns.run([&](turn_ranks::rank_type own) {
                std::size_t const first = slices.first(own.rank());
                verifier<double, Rule, no_logits_hook, double, enumerator::source> verify{
                    rule,
                    {.drafts = {.block_size = gamma,
                                .vocabulary = V,
                                .trees = w.drafts.trees,
                                .slice = vocabulary_view::slice(first, slices.size(own.rank()), V)},
                     .max_requests = R},
                    walk.handle()};
                row_shards<double, turn_ranks::rank_type> shards{own, slices, {.max_requests = R, .block_size = gamma}};
                engine_arrays<double, double> call{
                    .requests = R,
                    .target = {p.data() + first, R * (gamma + 1), slices.size(own.rank()), V},
                    .drafts = tokens.data(),
                    .draft_stride = gamma,
                    .q = {.rows = q.data() + first, .slot_stride = gamma * V, .row_stride = V},
                    .positions = positions.data(),
                    .settings = {.temperature = temperatures.data(),
                                 .top_k = top_ks.data(),
                                 .top_p = top_ps.data(),
                                 .seeds = seeds.data()}};
                if (w.drafts.trees) call.parents = parents.data();
                for (verdict const& v : verify(call, shards)) {
                    emitted[own.rank()].emplace_back(v.emitted.begin(), v.emitted.end());
                }
            });
            for (texts const& other : emitted) differing += other == emitted[0] ? 0u : 1u;
            std::size_t longest = 0;
            for (std::size_t k = 0; k < gamma; ++k) {
                longest = std::max(longest, w.drafts.before(drafts[0], k + 1).size());
            }
            continue_plainly(w, 0, emitted[0], longest + 1, weight * walk.weight(), law);
        });
    };
    each_draft(w, 0, {}, 1.0, [&](text const& first, double weight) {
        if (R == 1) return judge({first}, weight);
        each_draft(w, 1, {}, 1.0, [&](text const& second, double other) { judge({first, second}, weight * other); });
    });
    CHECK(differing == 0);
    return law;
}
double worst_error(world const& w, law_of_texts const& law) {
    double worst = 0.0;
    double sum = 0.0;
    for (auto const& [all, probability] : law) {
        double expected = 1.0;
        for (std::size_t r = 0; r < all.size(); ++r) {
            text prefix;
            for (token_id const x : all[r]) {
                expected *= w.p(r, prefix)[static_cast<std::size_t>(x)];
                prefix.push_back(x);
            }
        }
        worst = std::max(worst, std::abs(probability - expected));
        sum += probability;
    }
    return std::max(worst, std::abs(sum - 1.0));
}

shape const chain{{0, 1}};
shape const single{{0}};
shape const tree{{0, 0, 1}, true};
shape const two_children{{0, 0}, true};

}  // namespace

TEMPLATE_TEST_CASE("ranks: the joint law of two requests is the target's", "[exact]", token_rejection<>,
                   block_verification<>, target_match<>) {
    for (std::size_t const P : {1u, 2u, 3u}) {
        INFO("ranks " << P);
        world const w{chain, 1};
        CHECK(worst_error(w, law_of(w, TestType{}, vocabulary_slices::even(V, P, 1))) < 1e-12);
        world const joint{single, 2};
        CHECK(worst_error(joint, law_of(joint, TestType{}, vocabulary_slices::even(V, P, 1))) < 1e-12);
    }
    for (world const& w : {world{chain, 1, 2}, world{chain, 1, 0, 0.8}, world{single, 2, 2, 0.7}}) {
        INFO("top_k " << w.top_k << ", top_p " << w.top_p);
        CHECK(worst_error(w, law_of(w, TestType{}, vocabulary_slices::even(V, 2, 1))) < 1e-12);
    }
    world const both{chain, 2};
    CHECK(worst_error(both, law_of(both, TestType{}, vocabulary_slices::even(V, 2, 1))) < 1e-12);
}

TEMPLATE_TEST_CASE("ranks: the law of trees is the target's", "[exact]", recursive_rejection<>,
                   traversal_verification<>, target_match<>) {
    for (std::size_t const P : {1u, 2u, 3u}) {
        INFO("ranks " << P);
        world const w{P == 2 ? tree : two_children, 1};
        CHECK(worst_error(w, law_of(w, TestType{}, vocabulary_slices::even(V, P, 1))) < 1e-12);
    }
    world const joint{two_children, 2};
    if (std::is_same_v<TestType, recursive_rejection<>>) {
        CHECK(worst_error(joint, law_of(joint, TestType{}, vocabulary_slices::even(V, 2, 1))) < 1e-12);
    }
}

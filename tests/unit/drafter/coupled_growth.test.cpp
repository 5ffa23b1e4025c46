// SPDX-License-Identifier: MIT
//
// Coupled children are the first arrivals of one race: each is the winner of E_v / w_v over all tokens but its elder
// siblings, token by token with the exponentials of the noise. Of short and long lists, of vocabularies in any order,
// and of full rows; with equal weights and without weight. Two seconds.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include <sureleap/drafter/grow.hpp>
#include <sureleap/sampling/distribution.hpp>
#include <sureleap/sampling/random.hpp>
#include <sureleap/sampling/vocabulary_map.hpp>
#include <sureleap/verify/draft_tree.hpp>

#include "support/catch.hpp"
#include "support/dice.hpp"

using namespace sureleap;
using support::dice;

namespace {

constexpr std::size_t children = 5;

struct fixed_law {
    distribution<float> const& q;
    [[nodiscard]] distribution<float> law(draft_tree const&, node_id) const { return q; }
    [[nodiscard]] double acceptance(draft_tree const&, node_id, std::size_t) const { return 0.5; }
};

/// Random logits, some of them equal and some of no weight.
[[nodiscard]] std::vector<float> random_logits(dice& roll, std::size_t count) {
    std::vector<float> row(count);
    for (float& l : row) {
        l = static_cast<float>(3.0 * roll.bell());
        if (roll.chance(0.3)) l = static_cast<float>(roll.below(4));
        if (roll.chance(0.1)) l = -std::numeric_limits<float>::infinity();
    }
    row[roll.below(count)] = 5.0F;
    return row;
}

/// Some of the tokens, ascending.
[[nodiscard]] std::vector<token_id> random_tokens(dice& roll, std::size_t count, std::size_t vocabulary) {
    std::vector<token_id> some;
    while (some.size() < count) {
        auto const v = static_cast<token_id>(roll.below(vocabulary));
        auto const at = std::lower_bound(some.begin(), some.end(), v);
        if (at == some.end() || *at != v) some.insert(at, v);
    }
    return some;
}

[[nodiscard]] token_id first_arrival(draw_key const& key, distribution<float> const& q,
                                     std::span<token_id const> tokens, std::span<token_id const> elders) {
    double best = std::numeric_limits<double>::infinity();
    token_id winner = no_token;
    for (token_id const v : tokens) {
        auto const weight = static_cast<double>(q[v]);
        if (!(weight > 0.0) || std::find(elders.begin(), elders.end(), v) != elders.end()) continue;
        double const arrival = exponential(key, static_cast<std::size_t>(v)) / weight;
        if (arrival < best) {
            best = arrival;
            winner = v;
        }
    }
    return winner;
}

enum class over { a_short_list, a_long_list, a_map, a_tiny_list, all };

}  // namespace

TEST_CASE("coupled children are the winners of races rerun without the elder ones") {
    dice roll{71};
    INFO("seed " << roll.seed());
    request_settings const settings{};
    std::vector<std::byte> bytes(1 << 16);
    workspace ws{bytes};
    draft_tree tree(ws, children);
    tree_growth<float> growth(ws, children);
    philox_randomness rng;
    for (auto const what : {over::a_short_list, over::a_long_list, over::a_map, over::a_tiny_list, over::all}) {
        for (int trial = 0; trial < 60; ++trial) {
            std::size_t const vocabulary = what == over::all || what == over::a_map ? 3000 : 80'000;
            std::size_t const count = what == over::a_short_list  ? 1 + roll.below(78)
                                      : what == over::a_tiny_list ? 2
                                      : what == over::all         ? vocabulary
                                                                  : 700;
            auto tokens = random_tokens(roll, count, vocabulary);
            auto const row = random_logits(roll, count);
            std::optional<vocabulary_map> map;
            if (what == over::a_map) {
                for (std::size_t i = count; i > 1; --i) std::swap(tokens[i - 1], tokens[roll.below(i)]);
                map.emplace(tokens, vocabulary);
            }
            vocabulary_view view;
            if (what == over::a_map) view = vocabulary_view(&*map);
            if (what != over::a_map && what != over::all) view = vocabulary_view(tokens, vocabulary);
            std::vector<double> sums(row_blocks(count));
            distribution<float> const q{{row, {}}, transform{}, {}, view, native_kernels<row_kernels>(), sums};
            for (std::uint64_t round = 0; round < 8; ++round) {
                request_view const request{
                    .position = 100 * round, .seed = roll.bits(), .remaining = 100, .settings = &settings};
                fixed_law source{q};
                growth(tree, request, {.nodes = children, .depth = 1, .children = children}, source, rng,
                       coupled_draft{});
                draw_key const noise = noise_key(request, 0);
                std::vector<token_id> elders;
                for (std::size_t j = 1; j <= children; ++j) {
                    token_id const expected = first_arrival(noise, q, tokens, elders);
                    if (expected == no_token) {
                        CHECK(tree.size() == j);
                        break;
                    }
                    if (j >= tree.size() || tree.token(static_cast<node_id>(j)) != expected) {
                        FAIL("trial " << trial << " of " << static_cast<int>(what) << ", child " << j << " of "
                                      << tree.size() - 1 << ", expected token " << expected);
                    }
                    elders.push_back(expected);
                }
            }
        }
    }
}

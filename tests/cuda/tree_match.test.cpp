// SPDX-License-Identifier: MIT
//
// Matching rules along trees on the device against the host's.

#include <sureleap/cuda/round/accept.cuh>
#include <sureleap/cuda/tree/flatten.cuh>
#include <sureleap/verify/coupled.hpp>
#include <sureleap/verify/match.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "cuda/support/device_array.hpp"
#include "cuda/support/rows.hpp"
#include "cuda/support/seeds.hpp"
#include "cuda/support/tree_scene.hpp"
#include "cuda/support/tree_verdicts.hpp"
#include "support/catch.hpp"
#include "support/dice.hpp"

using namespace sureleap;
namespace device = sureleap::cuda;  // CUDA has a namespace cuda of its own
using support::dice;

namespace {

/// What the target chooses behind a row at some depth: the rule's decision about an anchor without children.
template <class Rule, class T>
[[nodiscard]] token_id choice_of(request_view request, std::size_t depth, std::vector<T> const& row) {
    request.position += depth;
    tree_scene::host_tree alone(1);
    alone.tree.begin(request.anchor);
    philox_randomness rng;
    return tree_scene::decide_on_host<T>(Rule{}, rng, request, alone.tree, row, row.size()).next;
}

/// Trees in which the target's choice is often a child, and not always the first. Returns rows of logits, tree by tree.
template <class Rule, class T>
[[nodiscard]] std::vector<std::vector<T>> grow_likely(dice& roll, tree_scene::scene& made, bool bad_rows) {
    std::size_t const vocabulary = made.shape.vocabulary;
    std::vector<std::vector<T>> rows(made.host.size());
    for (std::size_t r = 0; r < made.host.size(); ++r) {
        draft_tree& tree = made.host[r].tree;
        auto const kind = tree_scene::tree_shapes[roll.below(std::size(tree_scene::tree_shapes))];
        std::size_t const most =
            kind == tree_scene::tree_shape::full ? made.shape.nodes : roll.below(made.shape.nodes + 1);
        auto const shape = support::row_shapes[roll.below(std::size(support::row_shapes))];
        std::vector<token_id> choices;
        auto const add_row = [&](std::size_t depth) {
            auto row = support::random_row<T>(roll, vocabulary, shape);
            if (bad_rows && roll.chance(0.1)) row[roll.below(vocabulary)] = T(std::numeric_limits<float>::quiet_NaN());
            choices.push_back(choice_of<Rule>(made.views[r], depth, row));
            rows[r].insert(rows[r].end(), row.begin(), row.end());
        };
        add_row(0);
        for (;;) {
            node_id const parent = tree_scene::next_parent(roll, tree, kind, most, made.shape.block_size);
            if (parent == no_node) break;
            token_id const chosen = choices[static_cast<std::size_t>(parent)];
            bool const likely = chosen != no_token && roll.chance(kind == tree_scene::tree_shape::chain ? 0.9 : 0.5);
            tree.append(parent, likely ? chosen : static_cast<token_id>(roll.below(vocabulary)));
            add_row(tree.depth(static_cast<node_id>(tree.size() - 1)));
        }
    }
    return rows;
}

/// A round of random trees on both sides.
template <class Rule, class T>
void match_twice(dice& roll, tree_scene::sizes const& shape, tree_scene::tree_tally& sum) {
    tree_scene::scene made(roll, shape);
    std::vector<token_id> stops;
    tree_scene::choose_settings(roll, made, stops, requires { Rule::greedy_only; });
    auto const rows = grow_likely<Rule, T>(roll, made, roll.chance(0.2));
    tree_scene::judge_twice<T>(
        roll, made, rows, support::rounding, sum,
        [&](device::logits_rows<T> const& on_device, device::verify_memory const& memory, cudaStream_t stream) {
            return device::accept<Rule>(on_device, device::one_hot_draft_rows{}, made.trees.columns, memory,
                                        made.round.columns, stream);
        },
        [&](std::size_t r, auto& rng) {
            return tree_scene::decide_on_host<T>(Rule{}, rng, made.views[r], made.host[r].tree, rows[r],
                                                 shape.vocabulary);
        });
}

template <class Rule, class T>
void match_many(std::uint64_t seed, std::size_t rounds, tree_scene::tree_tally& sum) {
    constexpr std::size_t sizes[] = {2, 5, 37, 300, 1025, 4099};
    tree_scene::judge_random_rounds(seed, rounds_of(rounds), {sizes}, [&](dice& roll, tree_scene::sizes const& shape) {
        match_twice<Rule, T>(roll, shape, sum);
    });
}

}  // namespace

TEMPLATE_TEST_CASE("Trees: matching rules give the host's paths and tokens", "[cuda]", greedy_match, target_match<>,
                   target_match<categorical_draft>, keyed_coupling) {
    tree_scene::tree_tally sum;
    match_many<TestType, float>(41, 40, sum);
    match_many<TestType, bf16>(42, 40, sum);
    match_many<TestType, half>(43, 20, sum);
    INFO(sum.requests << " requests, " << sum.accepted << " accepted, " << sum.younger << " not first children, "
                      << sum.stopped << " stopped, " << sum.refused << " refused, " << sum.differing << " differ");
    CHECK(2 * sum.accepted > sum.requests);
    CHECK(sum.younger > sum.requests / 20);
    CHECK(sum.refused > 0);
    CHECK(sum.stopped > 0);
    CHECK(sum.differing * 200 <= sum.requests);
}

TEST_CASE("Trees: of equal siblings the elder is accepted, and trees that are none emit nothing") {
    dice roll(8);
    tree_scene::sizes const shape{.most = 2, .present = 2, .nodes = 70, .block_size = 3, .vocabulary = 100};
    tree_scene::scene made(roll, shape);
    std::vector<float> row(100, 0.0f);
    row[42] = 9.0f;
    for (std::size_t r = 0; r < 2; ++r) {
        made.settings[r].temperature = 0.0;
        draft_tree& tree = made.host[r].tree;
        for (token_id x = 0; x < 40; ++x) tree.append(anchor_node, x);
        tree.append(anchor_node, 42);  // behind the first 32 nodes
        tree.append(anchor_node, 42);
        tree.append(42, 42);  // of the younger one
        tree.append(41, 7);
    }
    made.upload();
    std::vector<std::int32_t> parents = support::download(made.trees.columns.parents, 2 * 71);
    parents[71 + 3] = 3;
    support::upload(made.trees.columns.parents, parents);
    std::vector<float> all;
    for (std::size_t i = 0; i < made.rows(); ++i) all.insert(all.end(), row.begin(), row.end());
    device_array<float> const rows(all);
    support::carved<device::verify_memory> const memory(
        [&](device::workspace& ws) { return device::carve_tree_verification(ws, made.limits, 70); });
    device::device_round const& round = made.round.columns;
    require_cuda(device::flatten_trees(round, made.trees.columns, nullptr));
    device::logits_rows<float> const on_device{rows.data(), static_cast<std::uint32_t>(made.rows()), 100, nullptr,
                                               nullptr};
    require_cuda(device::accept<greedy_match>(on_device, device::one_hot_draft_rows{}, made.trees.columns,
                                              memory.columns, round, nullptr));
    CHECK(support::download(round.verdicts.statuses, 2) == std::vector<status>{status::ok, status::invalid_tree});
    CHECK(support::download(round.verdicts.accepted, 2) == std::vector<std::uint32_t>{1, 0});
    CHECK(support::download(round.verdicts.emitted, 2) == std::vector<std::uint32_t>{2, 0});
    CHECK(support::download(made.trees.columns.paths, 1) == std::vector<std::int32_t>{41});
    CHECK(support::download(round.verdicts.tokens, 2) == std::vector<token_id>{42, 42});

    auto const refused = [](cudaError_t error) { return error == cudaErrorInvalidValue; };
    CHECK(refused(
        device::accept<greedy_match>(on_device, device::one_hot_draft_rows{}, {}, memory.columns, round, nullptr)));
    CHECK(refused(
        device::accept<greedy_match>(on_device, device::one_hot_draft_rows{}, made.trees.columns, {}, round, nullptr)));
    CHECK(refused(device::accept<greedy_match>(device::logits_rows<float>{}, device::one_hot_draft_rows{},
                                               made.trees.columns, memory.columns, round, nullptr)));
    support::carved<device::verify_memory> const other(
        [&](device::workspace& ws) { return device::carve_tree_verification(ws, made.limits, 69); });
    CHECK(refused(device::accept<greedy_match>(on_device, device::one_hot_draft_rows{}, made.trees.columns,
                                               other.columns, round, nullptr)));
}

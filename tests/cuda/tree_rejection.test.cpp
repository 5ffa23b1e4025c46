// SPDX-License-Identifier: MIT
//
// Recursive rejection along trees on the device against the host's.

#include <sureleap/cuda/round/accept.cuh>
#include <sureleap/cuda/tree/flatten.cuh>
#include <sureleap/cuda/verify/draft_rows.cuh>
#include <sureleap/verify/recursive.hpp>
#include <sureleap/verify/remaining.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "cuda/support/device_array.hpp"
#include "cuda/support/rows.hpp"
#include "cuda/support/tree_scene.hpp"
#include "cuda/support/tree_verdicts.hpp"
#include "cuda/support/verify_round.hpp"
#include "support/catch.hpp"
#include "support/dice.hpp"

using namespace sureleap;
namespace device = sureleap::cuda;  // CUDA has a namespace cuda of its own
using support::dice;

namespace {

/// Trees whose children were drawn from distributions near the target's, or chosen, and those distributions.
template <class T>
struct drawn_trees {
    std::vector<std::vector<T>> rows;                         ///< of p, tree by tree
    std::vector<std::vector<std::vector<float>>> draft_rows;  ///< of q, node by node
    std::vector<std::vector<distribution<float>>> distributions;
    std::vector<device::distribution> device_distributions;  ///< [R, N + 1]

    template <class DraftRule>
    drawn_trees(dice& roll, tree_scene::scene& made, bool bad_rows, DraftRule)
        : rows(made.host.size()),
          draft_rows(made.host.size()),
          distributions(made.host.size()),
          device_distributions(made.host.size() * (made.shape.nodes + 1)) {
        std::size_t const vocabulary = made.shape.vocabulary;
        for (std::size_t r = 0; r < made.host.size(); ++r) {
            draft_tree& tree = made.host[r].tree;
            request_settings& settings = made.settings[r];
            if (roll.chance(0.5)) settings.draft = support::random_transform(roll, vocabulary);
            auto const kind = tree_scene::tree_shapes[roll.below(std::size(tree_scene::tree_shapes))];
            std::size_t const most =
                kind == tree_scene::tree_shape::full ? made.shape.nodes : roll.below(made.shape.nodes + 1);
            auto const shape = support::row_shapes[roll.below(std::size(support::row_shapes))];
            double const distances[] = {0.0, 0.5, 1.5, 3.0};
            double const distance = distances[roll.below(4)];
            std::vector<token_id> order(vocabulary);
            auto const add_row = [&] {
                auto row = support::random_row<T>(roll, vocabulary, shape);
                std::vector<float> near;
                for (T const& l : row) {
                    double const moved = distance > 0.0 ? distance * roll.bell() : 0.0;
                    near.push_back(static_cast<float>(static_cast<double>(load(l)) + moved));
                }
                // The eldest child has all of q but one in 10^17 or so, and of p what others have.
                if (roll.chance(0.2)) near[roll.below(vocabulary)] += 40.0f;
                if (bad_rows && roll.chance(0.1)) {
                    row[roll.below(vocabulary)] = T(std::numeric_limits<float>::quiet_NaN());
                }
                rows[r].insert(rows[r].end(), row.begin(), row.end());
                draft_rows[r].push_back(near);
                std::vector<float> const& kept = draft_rows[r].back();
                transform const how = settings.draft_transform();
                distributions[r].push_back({logits_row<float>{kept, {}}, how, order, {}, scalar_kernels<row_kernels>});
                device_distributions[r * (made.shape.nodes + 1) + distributions[r].size() - 1] =
                    support::distribution_of(distributions[r].back(), kept, how);
            };
            add_row();
            for (std::size_t failed = 0; failed < 8;) {
                node_id const parent = tree_scene::next_parent(roll, tree, kind, most, made.shape.block_size);
                if (parent == no_node) break;
                std::vector<token_id> elders;
                for (node_id c = tree.first_child(parent); c != no_node; c = tree.next_sibling(c)) {
                    elders.push_back(tree.token(c));
                }
                token_id x = static_cast<token_id>(roll.below(vocabulary));
                auto const& q = distributions[r][static_cast<std::size_t>(parent)];
                undrawn const left{q, elders};
                if (left.total() > 0.0) {
                    x = inverse_cdf(left, roll.real());
                } else if (!DraftRule::is_deterministic) {
                    ++failed;  // every token that q has is there
                    continue;
                }
                tree.append(parent, x);
                add_row();
            }
        }
    }
};

/// A round of random trees on both sides.
template <class DraftRule, class T>
void reject_twice(dice& roll, tree_scene::sizes const& shape, tree_scene::tree_tally& sum) {
    tree_scene::scene made(roll, shape);
    std::vector<token_id> stops;
    tree_scene::choose_settings(roll, made, stops, false);
    drawn_trees<T> const drawn(roll, made, roll.chance(0.15), DraftRule{});
    support::upload(made.trees.columns.distributions, drawn.device_distributions);
    // Rows of q, where dense_draft_rows looks for them.
    std::size_t const width = shape.nodes + 1;
    std::vector<float> q(shape.most * width * shape.vocabulary, std::numeric_limits<float>::quiet_NaN());
    for (std::size_t r = 0; r < shape.present; ++r) {
        for (std::size_t n = 0; n < drawn.draft_rows[r].size(); ++n) {
            std::copy(drawn.draft_rows[r][n].begin(), drawn.draft_rows[r][n].end(),
                      q.begin() + static_cast<std::ptrdiff_t>((r * width + n) * shape.vocabulary));
        }
    }
    device_array<float> const q_memory(q);
    device::dense_draft_rows<float> const q_rows{q_memory.data(), shape.vocabulary, static_cast<std::uint32_t>(width),
                                                 static_cast<std::uint32_t>(shape.vocabulary), nullptr};
    // What siblings left may be little, and rounding is as large as of the whole.
    constexpr double tolerance = 1e-4;
    tree_scene::judge_twice<T>(
        roll, made, drawn.rows, tolerance, sum,
        [&](device::logits_rows<T> const& rows, device::verify_memory const& memory, cudaStream_t stream) {
            device::tree_columns const& trees = made.trees.columns;
            if constexpr (DraftRule::is_deterministic) {
                return device::accept<recursive_rejection<DraftRule>>(rows, device::one_hot_draft_rows{}, trees, memory,
                                                                      made.round.columns, stream);
            } else {
                return device::accept<recursive_rejection<DraftRule>>(rows, q_rows, trees, memory, made.round.columns,
                                                                      stream);
            }
        },
        [&](std::size_t r, auto& rng) {
            return tree_scene::decide_on_host<T, float>(recursive_rejection<DraftRule>{}, rng, made.views[r],
                                                        made.host[r].tree, drawn.rows[r], shape.vocabulary,
                                                        drawn.distributions[r]);
        });
}

template <class DraftRule, class T>
void reject_many(std::uint64_t seed, std::size_t rounds, tree_scene::tree_tally& sum) {
    constexpr std::size_t sizes[] = {2, 5, 37, 300, 1025, 2500};
    tree_scene::judge_random_rounds(
        seed, rounds, {sizes, 0.7, 16, 60},
        [&](dice& roll, tree_scene::sizes const& shape) { reject_twice<DraftRule, T>(roll, shape, sum); });
}

}  // namespace

TEMPLATE_TEST_CASE("Trees: recursive rejection gives the host's paths and tokens", "[cuda]", categorical_draft,
                   argmax_draft) {
    tree_scene::tree_tally sum;
    reject_many<TestType, float>(51, 60, sum);
    reject_many<TestType, bf16>(52, 60, sum);
    reject_many<TestType, half>(53, 30, sum);
    INFO(sum.requests << " requests, " << sum.accepted << " accepted, " << sum.younger << " not first children, "
                      << sum.stopped << " stopped, " << sum.refused << " refused, " << sum.differing << " differ");
    CHECK(2 * sum.accepted > sum.requests);
    CHECK(sum.younger > sum.requests / 40);
    CHECK(sum.refused > 0);
    CHECK(sum.stopped > 0);
    CHECK(sum.differing * 200 <= sum.requests);
}

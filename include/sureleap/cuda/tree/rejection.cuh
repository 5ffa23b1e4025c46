// SPDX-License-Identifier: MIT
//
// Recursive rejection along trees: the device's recursive_rejection<DraftRule> (verify/recursive.hpp), with the host's
// tokens up to rounding. In: the batch of flatten_trees, the target's rows for it, and q of the nodes. Out:
// round.verdicts, and the accepted nodes in trees.paths.
//
//     reject_trees<categorical_draft>(rows, q, trees, memory, round, stream);
//     reject_trees<argmax_draft>(rows, one_hot_draft_rows{}, trees, memory, round, stream);
//
// The children of a node are judged in the order of their draws, from the anchor on. Child x is kept with probability
// min(1, p_j(x) / q_j(x)). The host's verify/remaining.hpp says what p_j and q_j are: what rejected elder siblings left
// of p and q. Neither is a row here either: a number is computed from p, q and a record for each rejected child.
//
// Rows of the target are weighed by all warps (verify/weigh.cuh). Then a block of threads judges a request. A rejection
// takes it a pass over the vocabulary, V / 1024 steps of a block; an acceptance looks at one token. Distributions are
// made of the rows of the accepted path alone, its end included.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/guarantee.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/distribution.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/sampling/draw.cuh>
#include <sureleap/cuda/sampling/row.cuh>
#include <sureleap/cuda/tree/columns.cuh>
#include <sureleap/cuda/tree/memory.cuh>
#include <sureleap/cuda/verify/memory.cuh>
#include <sureleap/cuda/verify/rules.cuh>
#include <sureleap/cuda/verify/target_draws.cuh>
#include <sureleap/cuda/verify/target_rows.cuh>
#include <sureleap/cuda/verify/verify.cuh>
#include <sureleap/cuda/verify/work.cuh>
#include <sureleap/sampling/draw_key.hpp>
#include <sureleap/sampling/random.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// Trees whose q is read. DraftRows is that of verify/draft_rows.cuh; it is asked for the distribution of node n as for
/// position n of a block. Rows of draft logits in memory are dense_draft_rows of block_size N + 1.
template <class DraftRows>
struct sampled_tree_drafts : tree_drafts {
    DraftRows q;
};

namespace detail {

/// A rejected child, and what its distribution lost (the host's rejected_child, whose scale is 1).
struct rejected_node {
    token_id token;
    double undrawn;  ///< the part of q that its elder siblings had left
    double left;     ///< mass of max(p_j - q_j, 0); 0: nothing but rounding, and p_j stays as it was
};

struct tree_rejection_shared {
    verification_shared verification;
    distribution p;
    rejected_node rejected[tree_columns::most_nodes];
};

/// One request whose tree is judged. All members are BLOCK collectives with the same results in all threads, unless
/// they say otherwise.
template <class DraftRule, class T, class DraftRows>
class tree_rejection : public target_draws<T, sampled_tree_drafts<DraftRows>> {
    using base = target_draws<T, sampled_tree_drafts<DraftRows>>;

public:
    using base::blocks;
    using base::drafts;
    using base::key;
    using base::request;
    using base::row;
    using base::target;
    using base::vocabulary;

    __device__ tree_rejection(verify_task<T, sampled_tree_drafts<DraftRows>> const& task, tree_rejection_shared& s,
                              request_work const& work, std::uint32_t r)
        : base(task, s.verification, r), s_(s), work_(work) {}

    __device__ void judge() {
        tree_columns const& trees = drafts().trees;
        std::uint32_t n = 0;
        for (std::uint32_t accepted = 0;; ++accepted) {
            if (!arrive(n)) return base::refuse();
            std::int32_t child = trees.first_children[trees.cell(request(), n)];
            while (child != no_node && !keeps(static_cast<std::uint32_t>(child))) {
                reject(base::token(static_cast<std::uint32_t>(child) - 1));
                child = trees.next_siblings[trees.cell(request(), static_cast<std::uint32_t>(child))];
            }
            if (child == no_node) return base::emit(accepted, draw_left());
            n = static_cast<std::uint32_t>(child);
            if (threadIdx.x == 0) drafts().follow(request(), accepted, n);  // arrive() has a barrier
        }
    }

private:
    using base::chosen_by_first_warp;
    using base::left;
    using base::scratch;

    /// Makes the distribution of node n, all of whose children are still to be judged; false if its row has none.
    [[nodiscard]] __device__ bool arrive(std::uint32_t n) {
        if (work_.what == work_kind::taken) {
            distribution p = base::take_distribution(n);
            if (p.valid()) p = base::sum_taken(n, p);
            if (threadIdx.x == 0) target(n).p = base::unless_ended(n, p);
        } else if (!work_.cut && warp_index() == 0) {
            distribution const p = distribution_of(*this, n, work_);
            if (lane_index() == 0) target(n).p = base::unless_ended(n, p);
        }
        __syncthreads();
        n_ = n;
        p_ = target(n).p;
        rejected_ = 0;
        undrawn_ = 1.0;
        return p_.valid();
    }
    /// The draft distribution of the node's children.
    [[nodiscard]] __device__ distribution const& q() const {
        return drafts().trees.distributions[drafts().trees.cell(request(), n_)];
    }
    /// Any WARP: q(x).
    [[nodiscard]] __device__ double drafted_probability([[maybe_unused]] token_id x) const {
        if constexpr (DraftRule::is_deterministic) {
            return 0.0;  // children were chosen
        } else {
            if (q().is_one_hot()) return x == q().mode ? 1.0 : 0.0;
            return static_cast<double>(drafts().q.weight(request(), n_, q(), x)) / q().total;
        }
    }
    /// The test of the next child.
    [[nodiscard]] __device__ bool keeps(std::uint32_t child) const {
        token_id const x = base::token(child - 1);
        double const drafted = drafted_probability(x);
        double const drawn = DraftRule::is_deterministic ? 1.0 : drafted / undrawn_;
        double const p = left_of(x, probability_of(p_, row(n_), x), drafted, rejected_, true);
        return accepts(uniform(key(child, purpose::accept)), p, drawn);
    }
    /// One thread: what the first `count` rejected children left of p(v) = weight; without the last one's division
    /// unless `divides`. `drafted`: q(v).
    [[nodiscard]] __device__ double left_of(token_id v, double weight, double drafted, std::uint32_t count,
                                            bool divides) const {
        for (std::uint32_t j = 0; j < count; ++j) {
            rejected_node const& child = s_.rejected[j];
            // An elder child's token has q_j = 0 besides. Nothing is left of its p_j either, so that makes no
            // difference.
            double drawn = drafted / child.undrawn;
            if constexpr (DraftRule::is_deterministic) drawn = v == child.token ? 1.0 : 0.0;
            bool const last = j + 1 == count && !divides;
            if (!last && !(child.left > 0.0)) continue;
            weight = weight > drawn ? weight - drawn : 0.0;
            if (!last) weight /= child.left;
        }
        return weight;
    }
    /// The next child, x, is rejected: a record of it, the mass that it leaves of p, and the part of q.
    __device__ void reject(token_id x) {
        if (threadIdx.x == 0) s_.rejected[rejected_] = {x, undrawn_, 0.0};
        __syncthreads();
        ++rejected_;
        double const mass = weigh_all_left();
        if (threadIdx.x == 0) s_.rejected[rejected_ - 1].left = mass;
        __syncthreads();
    }
    /// q's weights of a block of tokens, for all to read.
    __device__ void weigh_draft([[maybe_unused]] std::uint32_t b) {
        if constexpr (!DraftRule::is_deterministic) {
            if (q().is_one_hot()) {
                for (std::uint32_t i = threadIdx.x; i < block_tokens; i += verification_threads) {
                    scratch().drafted[i] = b * block_tokens + i == static_cast<std::uint32_t>(q().mode) ? 1.0f : 0.0f;
                }
            } else {
                drafts().q.weights(request(), n_, q(), b, scratch().drafted);
            }
            __syncthreads();
        }
    }
    /// One thread: what is left of token i of the block whose drafted weights are there.
    [[nodiscard]] __device__ double left_in_block(std::uint32_t b, std::uint32_t i) const {
        std::uint32_t const v = b * block_tokens + i;
        if (v >= vocabulary()) return 0.0;
        auto const x = static_cast<token_id>(v);
        double drafted = 0.0;
        if constexpr (!DraftRule::is_deterministic) {
            drafted = static_cast<double>(scratch().drafted[i]) / q().total;
        }
        return left_of(x, probability_of(p_, row(n_), x), drafted, rejected_, false);
    }
    /// One thread: q's part of token i of that block, unless a rejected child has it. Added up, and not taken from 1:
    /// the rounding of the whole may be larger than what is left.
    [[nodiscard]] __device__ double undrawn_in_block([[maybe_unused]] std::uint32_t b,
                                                     [[maybe_unused]] std::uint32_t i) const {
        if constexpr (DraftRule::is_deterministic) {
            return 0.0;  // children were chosen
        } else {
            for (std::uint32_t j = 0; j < rejected_; ++j) {
                if (b * block_tokens + i == static_cast<std::uint32_t>(s_.rejected[j].token)) return 0.0;
            }
            return static_cast<double>(scratch().drafted[i]) / q().total;
        }
    }
    /// Masses of all blocks, made cumulative, in units of the distribution before the last division; returns the mass
    /// of all. What the rejected children left of q is added up in the same pass.
    [[nodiscard]] __device__ double weigh_all_left() {
        double undrawn = 0.0;
        for (std::uint32_t b = 0; b < blocks(); ++b) {
            weigh_draft(b);
            base::weigh_left(b, [&](std::uint32_t i) {
                undrawn += undrawn_in_block(b, i);
                return left_in_block(b, i);
            });
        }
        if constexpr (!DraftRule::is_deterministic) undrawn_ = base::sum_of_threads(undrawn);
        return base::total_mass();
    }
    /// The token behind the path: of p, or of what the children left of it, whose masses the last rejection made. No
    /// mass left means that rejection rounded into existence: then p itself is the distribution, as in
    /// verification::draw_left.
    [[nodiscard]] __device__ token_id draw_left() {
        if (rejected_ == 0) return base::draw(n_, key(n_, purpose::bonus));
        draw_key const name = key(n_, purpose::residual);
        double const mass = s_.rejected[rejected_ - 1].left;
        double const threshold = uniform(name) * mass;
        std::uint32_t const b = find_block(left(), blocks(), threshold);
        if (b == no_place) return base::draw(n_, name);
        double const before = b == 0 ? 0.0 : left()[b - 1];
        weigh_draft(b);
        token_id const y = chosen_by_first_warp([&] {
            std::uint32_t const place = find_place<4>(0, before, threshold, [&](unsigned i, unsigned e) {
                return left_in_block(b, (i * warp_size + lane_index()) * 4 + e);
            });
            return place == no_place ? no_token : static_cast<token_id>(b * block_tokens + place);
        });
        return y == no_token ? base::draw(n_, name) : y;
    }

    tree_rejection_shared& s_;
    request_work work_;
    std::uint32_t n_ = 0;
    distribution p_{};
    std::uint32_t rejected_ = 0;
    double undrawn_ = 1.0;
};

/// Blocks judge requests, one each.
template <class DraftRule, class T, class DraftRows>
__global__ void __launch_bounds__(verification_threads, verification_residency)
    reject_trees_kernel(verify_task<T, sampled_tree_drafts<DraftRows>> const __grid_constant__ task) {
    auto& s = shared_memory<tree_rejection_shared>();
    std::uint32_t const requests = *task.round.requests.count;
    for (std::uint32_t r = blockIdx.x; r < requests; r += gridDim.x) {
        request_work const work = request_work::of<judging_rule>(task, r);
        tree_rejection<DraftRule, T, DraftRows> request(task, s, work, r);
        if (work.what == work_kind::nothing) {
            request.refuse_undrafted();
        } else {
            request.judge();
        }
        __syncthreads();
    }
}

}  // namespace detail

/// Judges the trees of a round: makes round.verdicts and trees.paths from trees.batch, the target's rows for it, and q.
/// Every request whose tree is sound gets a verdict. Where a row of the accepted path has no distribution, its end
/// included, the status is invalid_target. `trees` and `memory` are carved for the limits of `round`, and a tree is no
/// deeper than the request's draft_cap.
///
/// categorical_draft: children were drawn from trees.distributions without replacement, and `q` gives the weights of
/// these distributions. argmax_draft: they were chosen, and nothing is read of q. Exact in distribution under the
/// host's conditions (docs/trees.md).
///
/// Reads all rows of the batch, at the speed of memory, and V logits of p and q again for each rejected child; three
/// launches.
template <class DraftRule, class T, class DraftRows>
[[nodiscard]] cudaError_t reject_trees(logits_rows<T> const& rows, DraftRows const& q, tree_columns const& trees,
                                       verify_memory const& memory, device_round const& round,
                                       cudaStream_t stream) noexcept {
    static_assert(!DraftRule::noise_returns,
                  "reject_trees: coupled_draft meets its noise again in a later round, which biases rules that sample; "
                  "use match_trees<keyed_coupling>, or draw with categorical_draft");
    if (!detail::fits_trees(rows, trees, memory, round)) return cudaErrorInvalidValue;
    unsigned processors = 0;
    cudaError_t error = count_multiprocessors(processors);
    if (error != cudaSuccess) return error;
    verify_task<T, sampled_tree_drafts<DraftRows>> const task{
        rows, {{trees, round.limits.block_size}, q}, memory, detail::with_trees(round, trees)};
    error = detail::launch_weighing<judging_rule>(task, processors, stream);
    if (error != cudaSuccess) return error;
    return launch(detail::reject_trees_kernel<DraftRule, T, DraftRows>, processors * detail::verification_residency,
                  verification_threads, sizeof(detail::tree_rejection_shared), stream, task);
}

}  // namespace cuda
SURELEAP_END_NAMESPACE

// SPDX-License-Identifier: MIT
//
// The acceptance rules along trees. In: the choices of the target behind all rows (matching rules), or the weights of
// its rows and q of the nodes (recursive rejection). Out: the verdict of a request, and its accepted nodes in
// trees.paths. Verdicts are those of a chain whose drafts are the accepted path, so `advance` moves requests on as
// ever.
//
// Matching: what the target chooses behind a row is a function of the row and of the noise of its position, which all
// nodes of a depth share. So a row of a tree is a row of a chain but for the name of its noise. A warp walks the tree
// from its anchor, to the first child that has the chosen token. The last choice that no child has is the correction or
// bonus.
//
// Recursive rejection: the children of a node are judged in the order of their draws, from the anchor on. Child x is
// kept with probability min(1, p_j(x) / q_j(x)). The host's verify/remaining.hpp says what p_j and q_j are: what
// rejected elder siblings left of p and q. Neither is a row: a number is computed from p, q and a record for each
// rejected child. A rejection takes a block of threads a pass over the vocabulary, V / 1024 steps; an acceptance looks
// at one token. Distributions are made of the rows of the accepted path alone, its end included.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/distribution.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/sampling/draw.cuh>
#include <sureleap/cuda/tree/columns.cuh>
#include <sureleap/cuda/tree/memory.cuh>
#include <sureleap/cuda/verify/memory.cuh>
#include <sureleap/cuda/verify/residual.cuh>
#include <sureleap/cuda/verify/rules.cuh>
#include <sureleap/cuda/verify/target_draws.cuh>
#include <sureleap/cuda/verify/target_rows.cuh>
#include <sureleap/cuda/verify/verification.cuh>
#include <sureleap/cuda/verify/work.cuh>
#include <sureleap/sampling/draw_key.hpp>
#include <sureleap/sampling/random.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {
namespace detail {

// ---- matching ----------------------------------------------------------------------------------------------------

/// A matching rule of verify/rules.cuh along a tree.
template <class Rule>
struct matching_along_tree : Rule {
    template <class C>
    [[nodiscard]] static __device__ request_fate fate_at(C const&, std::uint32_t) {
        return request_fate::open;  // a row does not know whether the path comes to it
    }
    /// At the number of accepted tokens.
    template <class C>
    [[nodiscard]] static __device__ request_standing judge(C const& c) {
        auto const& drafts = c.task.drafts;
        std::uint32_t n = 0;
        for (std::uint32_t accepted = 0;; ++accepted) {
            token_id const y = c.target(n).choice;
            if (y == no_token) return {request_fate::refused, accepted};
            n = drafts.child(c.r, c.length + 1, n, y);
            if (n == 0) return {request_fate::decided, accepted};
            if (lane_index() == 0) drafts.follow(c.r, accepted, n);
        }
    }
    template <class C>
    static __device__ void settle(C const& c, std::uint32_t accepted) {
        emit(c, accepted, c.target(c.accepted_row(accepted)).choice);
    }
};

// ---- recursive rejection -----------------------------------------------------------------------------------------

/// A rejected child, and what its distribution lost (the host's rejected_child, whose scale is 1).
struct rejected_node {
    token_id token;
    double undrawn;  ///< the part of q that its elder siblings had left
    double left;     ///< mass of max(p_j - q_j, 0); 0: nothing but rounding, and p_j stays as it was
};

struct tree_rejection_shared {
    rejected_node rejected[tree_columns::most_nodes];
};

/// The node whose children are judged, the same in all threads. With a deterministic rule children were chosen, and
/// nothing is read of q. The functions below are BLOCK collectives with the same results in all threads, unless they
/// say otherwise.
template <class DraftRule, class Rows, class DraftRows>
struct judged_node {
    verification<Rows, tree_drafts<DraftRows>> const& c;
    rejected_node* rejected;  ///< children, in shared memory
    std::uint32_t n = 0;
    distribution p{};
    std::uint32_t count = 0;  ///< of rejected children
    double undrawn = 1.0;     ///< the part of q that they left
};

/// Goes to node n, all of whose children are still to be judged, and makes its distribution; false if its row has none.
template <class DraftRule, class Rows, class DraftRows>
[[nodiscard]] __device__ bool arrive(judged_node<DraftRule, Rows, DraftRows>& at, std::uint32_t n,
                                     request_work const& work) {
    auto const& c = at.c;
    if (work.what == work_kind::taken) {
        distribution p = take_distribution(c, n);
        if (p.valid()) p = sum_taken(c, n, p);
        if (threadIdx.x == 0) c.target(n).p = unless_ended(c, n, p);
    } else if (!work.cut && warp_index() == 0) {
        distribution const p = distribution_of(c, n, work);
        if (lane_index() == 0) c.target(n).p = unless_ended(c, n, p);
    }
    __syncthreads();
    at.n = n;
    at.p = c.target(n).p;
    at.count = 0;
    at.undrawn = 1.0;
    return at.p.valid();
}

/// One thread: what the first `count` rejected children left of p(v) = weight; without the last one's division unless
/// `divides`. `drafted`: q(v).
template <class DraftRule, class Rows, class DraftRows>
[[nodiscard]] __device__ double left_of(judged_node<DraftRule, Rows, DraftRows> const& at, token_id v, double drafted,
                                        bool divides) {
    double weight = probability_of(at.p, at.c.row(at.n), v);
    for (std::uint32_t j = 0; j < at.count; ++j) {
        rejected_node const& child = at.rejected[j];
        // An elder child's token has q_j = 0 besides. Nothing is left of its p_j either, so that makes no difference.
        double drawn = drafted / child.undrawn;
        if constexpr (DraftRule::is_deterministic) drawn = v == child.token ? 1.0 : 0.0;
        bool const last = j + 1 == at.count && !divides;
        if (!last && !(child.left > 0.0)) continue;
        weight = weight > drawn ? weight - drawn : 0.0;
        if (!last) weight /= child.left;
    }
    return weight;
}

/// The test of the next child.
template <class DraftRule, class Rows, class DraftRows>
[[nodiscard]] __device__ bool keeps(judged_node<DraftRule, Rows, DraftRows> const& at, std::uint32_t child) {
    token_id const x = at.c.token(child - 1);
    if (!at.c.knows(x)) return false;
    double drafted = 0.0;
    double drawn = 1.0;
    if constexpr (!DraftRule::is_deterministic) {
        drafted = drafted_probability(at.c, at.n, x);
        drawn = drafted / at.undrawn;
    }
    return accepts(draw_number(at.c.key(child, purpose::accept)), left_of(at, x, drafted, true), drawn);
}

/// One thread: what is left of token i of block b, whose drafted weights are there.
template <class DraftRule, class Rows, class DraftRows>
[[nodiscard]] __device__ double left_in_block(judged_node<DraftRule, Rows, DraftRows> const& at, std::uint32_t b,
                                              std::uint32_t i) {
    std::uint32_t const v = b * block_tokens + i;
    if (v >= at.c.vocabulary()) return 0.0;
    double drafted = 0.0;
    if constexpr (!DraftRule::is_deterministic)
        drafted = static_cast<double>(at.c.shared->drafted[i]) / at.c.q(at.n).total;
    return left_of(at, static_cast<token_id>(v), drafted, false);
}

/// One thread: q's part of token i of that block, unless a rejected child has it. Added up, and not taken from 1: the
/// rounding of the whole may be larger than what is left.
template <class DraftRule, class Rows, class DraftRows>
[[nodiscard]] __device__ double undrawn_in_block(judged_node<DraftRule, Rows, DraftRows> const& at, std::uint32_t b,
                                                 std::uint32_t i) {
    for (std::uint32_t j = 0; j < at.count; ++j) {
        if (b * block_tokens + i == static_cast<std::uint32_t>(at.rejected[j].token)) return 0.0;
    }
    return static_cast<double>(at.c.shared->drafted[i]) / at.c.q(at.n).total;
}

/// The next child, x, is rejected: a record of it, the mass that it leaves of p in units of the distribution before the
/// last division, and the part of q, which is added up in the same pass.
template <class DraftRule, class Rows, class DraftRows>
__device__ void reject(judged_node<DraftRule, Rows, DraftRows>& at, token_id x) {
    auto const& c = at.c;
    if (threadIdx.x == 0) at.rejected[at.count] = {x, at.undrawn, 0.0};
    __syncthreads();
    ++at.count;
    [[maybe_unused]] double undrawn = 0.0;
    for (std::uint32_t b = 0; b < c.blocks(); ++b) {
        if constexpr (!DraftRule::is_deterministic) weigh_draft(c, at.n, b);
        weigh_left(c, b, [&](std::uint32_t i) {
            if constexpr (!DraftRule::is_deterministic) undrawn += undrawn_in_block(at, b, i);
            return left_in_block(at, b, i);
        });
    }
    if constexpr (!DraftRule::is_deterministic) at.undrawn = sum_of_threads(*c.shared, undrawn);
    double const mass = total_left(c);
    if (threadIdx.x == 0) at.rejected[at.count - 1].left = mass;
    __syncthreads();
}

/// The token behind the path: of p, or of what the children left of it, whose masses the last rejection made.
template <class DraftRule, class Rows, class DraftRows>
[[nodiscard]] __device__ token_id draw_behind(judged_node<DraftRule, Rows, DraftRows> const& at) {
    if (at.count == 0) return draw_target(at.c, at.n, at.c.key(at.n, purpose::bonus));
    draw_key const name = at.c.key(at.n, purpose::residual);
    double const threshold = draw_number(name) * at.rejected[at.count - 1].left;
    return draw_left<!DraftRule::is_deterministic>(
        at.c, at.n, threshold, name, [&](std::uint32_t b, std::uint32_t i) { return left_in_block(at, b, i); });
}

/// recursive_rejection<DraftRule> as a rule of verify/rules.cuh.
template <class DraftRule>
struct recursive_along_tree : judging_rule {
    static constexpr bool walks = true;
    using shared_type = tree_rejection_shared;

    /// Judges the tree of a request. What truncated distributions are is known by now (cut_row).
    template <class Rows, class DraftRows>
    static __device__ void walk(verification<Rows, tree_drafts<DraftRows>> const& c, tree_rejection_shared& s,
                                request_work const& work) {
        tree_columns const& trees = c.task.drafts.trees;
        judged_node<DraftRule, Rows, DraftRows> at{c, s.rejected};
        std::uint32_t n = 0;
        for (std::uint32_t accepted = 0;; ++accepted) {
            if (!arrive(at, n, work)) return refuse(c);
            std::int32_t child = trees.first_children[trees.cell(c.r, n)];
            while (child != no_node && !keeps(at, static_cast<std::uint32_t>(child))) {
                reject(at, c.token(static_cast<std::uint32_t>(child) - 1));
                child = trees.next_siblings[trees.cell(c.r, static_cast<std::uint32_t>(child))];
            }
            if (child == no_node) return emit(c, accepted, draw_behind(at));
            n = static_cast<std::uint32_t>(child);
            if (threadIdx.x == 0) c.task.drafts.follow(c.r, accepted, n);  // arrive() has a barrier
        }
    }
};

}  // namespace detail
}  // namespace cuda
SURELEAP_END_NAMESPACE

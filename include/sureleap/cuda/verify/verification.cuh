// SPDX-License-Identifier: MIT
//
// What an acceptance rule sees of one request on the device: `verification`, a view of the arrays of a round, and the
// functions that write the verdict. The functions that draw from rows (target_draws.cuh), that make corrections
// (residual.cuh) and that judge (rules.cuh) take the view as their first argument.
//
// Positions k count from the anchor: row k of the target is the distribution of the token behind k drafted ones. Where
// drafts are trees k is the number of a node instead, and DraftRows says how nodes follow each other (tree/memory.cuh).
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/distribution.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/sampling/draw.cuh>
#include <sureleap/cuda/sampling/gumbel_max.cuh>
#include <sureleap/cuda/sampling/row.cuh>
#include <sureleap/cuda/verify/draft_rows.cuh>
#include <sureleap/cuda/verify/memory.cuh>
#include <sureleap/sampling/draw_key.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// All that the kernels of a verification are told.
template <class Rows, class DraftRows>
struct verify_task {
    Rows rows;  ///< logits_rows, or rows that are edited as they are read
    DraftRows drafts;
    verify_memory memory;
    device_round round;

    /// Requests and rows of the round; no more than there is memory for, whatever the engine wrote.
    [[nodiscard]] __device__ std::uint32_t requests() const {
        std::uint32_t const count = *round.requests.count;
        return count < memory.limits.requests ? count : memory.limits.requests;
    }
    [[nodiscard]] __device__ std::uint32_t batch_rows() const {
        std::int32_t const count = round.batch.offsets[round.limits.requests];
        std::uint32_t const most = memory.limits.requests * (memory.limits.block_size + 1);
        std::uint32_t const room = rows.rows < most ? rows.rows : most;
        return count < 0 ? 0 : static_cast<std::uint32_t>(count) < room ? static_cast<std::uint32_t>(count) : room;
    }
    /// Rows of q that are weighed with them.
    [[nodiscard]] __device__ std::uint32_t draft_rows() const {
        if constexpr (weighed_draft_rows<DraftRows>) {
            if (drafts.weighs()) return requests() * memory.limits.block_size;
        }
        return 0;
    }
};

/// Shared memory of a block of threads that judges.
struct verification_shared {
    float drafted[block_tokens];  ///< weights of q
    double sums[verification_warps];
    double total;
    token_id outcomes[verification_warps];
    token_id chosen;
};

/// Request r of a round. Any thread may ask.
template <class Rows, class DraftRows>
struct verification {
    static constexpr bool is_tree = requires(DraftRows const& drafts) { drafts.on_path(0u, 0u); };

    verify_task<Rows, DraftRows> const& task;
    std::uint32_t r;
    std::uint32_t length;         ///< l: x_1 .. x_l were drafted
    verification_shared* shared;  ///< null where a warp works alone

    __device__ verification(verify_task<Rows, DraftRows> const& of, std::uint32_t request,
                            verification_shared* own = nullptr)
        : task(of), r(request), length(of.round.batch.lengths[request]), shared(own) {}

    // ---- drafts -----------------------------------------------------------------------------------------------------

    /// x_{k + 1}.
    [[nodiscard]] __device__ token_id token(std::uint32_t k) const {
        return task.round.batch.tokens[first_row() + k + 1];
    }
    /// The same, or no_token behind the block or where the vocabulary has no such token; of a tree what the first child
    /// has.
    [[nodiscard]] __device__ token_id token_or_none(std::uint32_t k) const {
        token_id x = no_token;
        if constexpr (is_tree) {
            std::int32_t const child = task.drafts.first_child(r, k);
            if (child >= 0) x = token(static_cast<std::uint32_t>(child) - 1);
        } else {
            if (k < length) x = token(k);
        }
        return knows(x) ? x : no_token;
    }
    [[nodiscard]] __device__ bool knows(token_id x) const {
        return x >= 0 && static_cast<std::uint32_t>(x) < vocabulary();
    }
    /// What x_{k + 1}, or the first child of node k, was drawn from.
    [[nodiscard]] __device__ distribution const& q(std::uint32_t k) const {
        if constexpr (is_tree) {
            return task.drafts.trees.distributions[task.drafts.trees.cell(r, k)];
        } else {
            return task.round.drafts.distributions[draft(k)];
        }
    }
    /// q(x_{k + 1}) of a chain, as recorded.
    [[nodiscard]] __device__ double drafted_with(std::uint32_t k) const {
        return task.round.drafts.token_probabilities[draft(k)];
    }
    /// The row behind j accepted tokens.
    [[nodiscard]] __device__ std::uint32_t accepted_row(std::uint32_t j) const {
        if constexpr (is_tree) {
            return task.drafts.on_path(r, j);
        } else {
            return j;
        }
    }

    // ---- rows of the target -----------------------------------------------------------------------------------------

    [[nodiscard]] __device__ std::uint32_t first_row() const {
        return static_cast<std::uint32_t>(task.round.batch.offsets[r]);
    }
    [[nodiscard]] __device__ typename Rows::row_type row(std::uint32_t k) const {
        return task.rows.row(first_row() + k, task.round, r, k);
    }
    [[nodiscard]] __device__ std::uint32_t vocabulary() const { return task.memory.limits.vocabulary; }
    [[nodiscard]] __device__ std::uint32_t blocks() const { return task.memory.blocks(); }
    [[nodiscard]] __device__ transform const& target_transform() const { return task.round.requests.targets[r]; }
    /// A producer's normaliser is all that is needed of the request's rows.
    [[nodiscard]] __device__ bool is_taken() const {
        return task.rows.are_normalised(target_transform(), first_row(), first_row() + length);
    }

    // ---- memory -----------------------------------------------------------------------------------------------------

    /// Of a row that is complete.
    [[nodiscard]] __device__ target_row& target(std::uint32_t k) const {
        return task.memory.targets[task.memory.row(r, k)];
    }
    [[nodiscard]] __device__ double* upto(std::uint32_t k) const { return task.memory.upto + block_index(k); }
    [[nodiscard]] __device__ block_weight* weights(std::uint32_t k) const {
        return task.memory.weights + block_index(k);
    }
    [[nodiscard]] __device__ gumbel_winner* winners(std::uint32_t k) const {
        return task.memory.winners + block_index(k);
    }
    /// [blocks()] masses of what a rule left of p.
    [[nodiscard]] __device__ double* left() const { return task.memory.left + static_cast<std::size_t>(r) * blocks(); }
    /// p_1 .. p_l of block verification.
    [[nodiscard]] __device__ double* joint() const { return task.memory.joint + draft(0); }

    // ---- names of draws ---------------------------------------------------------------------------------------------

    [[nodiscard]] __device__ draw_key key(std::uint32_t k, purpose use) const {
        return block_key(task.round.requests, r, k, use);
    }
    /// Of the token behind row k, by its position alone: rows of a tree that are as deep share it.
    [[nodiscard]] __device__ draw_key noise(std::uint32_t k) const {
        std::uint32_t behind = k;
        if constexpr (is_tree) behind = task.drafts.depth(r, k);
        return noise_key(task.round.requests, r, behind);
    }

private:
    [[nodiscard]] __device__ std::size_t draft(std::uint32_t k) const {
        return static_cast<std::size_t>(r) * task.memory.limits.block_size + k;
    }
    [[nodiscard]] __device__ std::size_t block_index(std::uint32_t k) const {
        return static_cast<std::size_t>(task.memory.row(r, k)) * blocks();
    }
};

// ---- verdicts -------------------------------------------------------------------------------------------------------

namespace detail {

/// One thread: the request has its verdict.
template <class Rows, class DraftRows>
__device__ void conclude(verification<Rows, DraftRows> const& c) {
    atomicSub(&c.task.memory.counters->undecided, 1u);
}

template <class Rows, class DraftRows>
__device__ void end_without_tokens(verification<Rows, DraftRows> const& c, status why) {
    if (threadIdx.x != 0) return;
    conclude(c);
    verdict_columns const& out = c.task.round.verdicts;
    out.statuses[c.r] = why;
    out.accepted[c.r] = 0;
    out.emitted[c.r] = 0;
    out.stopped[c.r] = 0;
}

/// WARP collective: log p of x behind row k. At temperature 0 of the row at temperature 1.
template <class Rows, class DraftRows>
[[nodiscard]] __device__ __noinline__ double log_probability(verification<Rows, DraftRows> const& c, std::uint32_t k,
                                                             token_id x) {
    distribution const& p = c.target(k).p;
    if (x == no_token) return -static_cast<double>(infinity);
    if (!p.is_one_hot()) return log_probability_of(p, c.row(k), x);
    distribution level{};
    level.shift = load(c.row(k)[p.mode]);
    level.scale = 1.0f;
    level.kind = distribution_kind::dense;
#pragma unroll 1
    for (std::uint32_t b = 0; b < c.blocks(); ++b) level.total += sum_block(c.row(k), c.vocabulary(), b, level);
    return log_probability_of(level, c.row(k), p.mode);
}

/// One thread of those that call: there is nothing to judge. Drafts that failed or that nobody wants say so; a batch
/// that does not fit is none.
template <class Rows, class DraftRows>
__device__ void refuse_undrafted(verification<Rows, DraftRows> const& c) {
    status const drafted = c.task.round.drafts.statuses[c.r];
    bool const ended = c.task.round.requests.remaining[c.r] == 0;
    bool const fails = drafted != status::ok && !is_draft_failure(drafted);
    end_without_tokens(c, fails ? drafted : ended ? status::ok : status::invalid_target);
}

}  // namespace detail

/// One thread of those that call: a row holds no distribution, and nothing is emitted.
template <class Rows, class DraftRows>
__device__ void refuse(verification<Rows, DraftRows> const& c) {
    detail::end_without_tokens(c, status::invalid_target);
}

/// BLOCK collective: emits the accepted tokens and `last`, or up to the first stop token of these; nothing if `last` is
/// none. What is behind the end of the text counts as not accepted.
template <class Rows, class DraftRows>
__device__ __noinline__ void emit(verification<Rows, DraftRows> const& c, std::uint32_t accepted, token_id last) {
    if (last == no_token) return refuse(c);
    if (warp_index() != 0) return;
    verdict_columns const& verdicts = c.task.round.verdicts;
    bool const emits = lane_index() <= accepted;
    token_id x = last;
    if (lane_index() < accepted) x = c.token(c.accepted_row(lane_index() + 1) - 1);
    if (!emits) x = no_token;
    unsigned const stopping = __ballot_sync(all_lanes, c.task.round.stops_at(c.r, x));
    std::uint32_t const count =
        stopping != 0 ? static_cast<std::uint32_t>(__ffs(static_cast<int>(stopping))) : accepted + 1;
    std::uint32_t const at = c.r * (c.task.round.limits.block_size + 1) + lane_index();
    if (lane_index() < count) verdicts.tokens[at] = x;
    for (std::uint32_t j = 0; verdicts.log_probabilities != nullptr && j < count; ++j) {
        token_id const y = __shfl_sync(all_lanes, x, static_cast<int>(j));
        double const log_p = detail::log_probability(c, c.accepted_row(j), y);
        if (lane_index() == j) verdicts.log_probabilities[at] = log_p;
    }
    if (lane_index() == 0) {
        verdicts.statuses[c.r] = status::ok;
        verdicts.accepted[c.r] = accepted < count ? accepted : count;
        verdicts.emitted[c.r] = count;
        verdicts.stopped[c.r] = stopping != 0 ? 1 : 0;
        detail::conclude(c);
    }
}

}  // namespace cuda
SURELEAP_END_NAMESPACE

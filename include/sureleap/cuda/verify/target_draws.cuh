// SPDX-License-Identifier: MIT
//
// Sums of target rows, and draws by them. In: rows that are complete, with the sums of a pass, or with a producer's
// normaliser and block sums. Out: cumulative sums by blocks of 1,024 tokens, totals, tokens.
//
// A row with a normaliser has a distribution without a pass. Its sums are made when it is drawn from, in O(V / 1024). A
// row whose block sums are missing or wrong takes a pass for it. With sums, a draw looks at one block of the row.
//
// All functions are BLOCK collectives, results are the same in all threads, and c.shared is free again when they
// return, unless they say otherwise.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/distribution.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/sampling/draw.cuh>
#include <sureleap/cuda/sampling/row.cuh>
#include <sureleap/cuda/verify/memory.cuh>
#include <sureleap/cuda/verify/verification.cuh>
#include <sureleap/sampling/draw_key.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {
namespace detail {

// ---- sums --------------------------------------------------------------------------------------------------------

/// Makes the sums of all blocks of a row cumulative; returns their total.
template <class = void>
[[nodiscard]] __device__ __noinline__ double add_up(verification_shared& s, double* sums, std::uint32_t blocks) {
    if (warp_index() == 0) {
        double const total = sum_in_order(blocks, sums);
        if (lane_index() == 0) s.total = total;
    }
    __syncthreads();
    double const total = s.total;
    __syncthreads();  // no mutant: there is a barrier before the next total as well
    return total;
}

/// The cumulative sums of p by a pass over row k, or over those of its blocks in which a token is kept if their largest
/// logits are known; returns the total.
template <class Rows, class DraftRows>
[[nodiscard]] __device__ __noinline__ double sum_blocks(verification<Rows, DraftRows> const& c, std::uint32_t k,
                                                        distribution const& p, block_weight const* weights) {
    double* const sums = c.upto(k);
#pragma unroll 1
    for (std::uint32_t b = warp_index(); b < c.blocks(); b += verification_warps) {
        bool const may_weigh = weights == nullptr || weights[b].largest >= p.least_logit;
        double const sum = may_weigh ? sum_block(c.row(k), c.vocabulary(), b, p) : 0.0;
        if (lane_index() == 0) sums[b] = sum;
    }
    __syncthreads();
    return add_up(*c.shared, sums, c.blocks());
}

/// Any thread: the distribution that a producer's normaliser makes of row k. exp(l - log_normaliser) is p itself.
template <class Rows, class DraftRows>
[[nodiscard]] __device__ distribution take_distribution(verification<Rows, DraftRows> const& c, std::uint32_t k) {
    distribution p{};
    p.shift = c.task.rows.log_normalisers[c.first_row() + k];
    p.scale = 1.0f;
    p.total = 1.0;
    p.kind = p.shift > -infinity && p.shift < infinity ? distribution_kind::dense : distribution_kind::invalid;
    return p;
}

/// A distribution that was taken, with the cumulative sums that draws look at and with its total, which is their sum:
/// what a normaliser is off by is no token's. Block sums that do not add up to 1 are not used. No distribution if there
/// is no sum. Nothing else has the sums: a row that is not drawn from needs none.
template <class Rows, class DraftRows>
[[nodiscard]] __device__ __noinline__ distribution sum_taken(verification<Rows, DraftRows> const& c, std::uint32_t k,
                                                             distribution p) {
    double total = 0.0;
    if (c.task.rows.block_sums != nullptr) {
        float const* const sums = c.task.rows.block_sums + static_cast<std::size_t>(c.first_row() + k) * c.blocks();
        for (std::uint32_t b = threadIdx.x; b < c.blocks(); b += verification_threads) {
            c.upto(k)[b] = static_cast<double>(sums[b]);
        }
        __syncthreads();
        total = add_up(*c.shared, c.upto(k), c.blocks());
    }
    if (!(fabs(total - 1.0) <= normaliser_tolerance)) total = sum_blocks(c, k, p, nullptr);
    p.total = total;
    if (!(total > 0.0 && total < static_cast<double>(infinity))) p.kind = distribution_kind::invalid;
    return p;
}

/// Makes the sums of a distribution that was taken, before the first draw from it.
template <class Rows, class DraftRows>
__device__ __noinline__ void prepare_draw(verification<Rows, DraftRows> const& c, std::uint32_t k) {
    if (!c.is_taken() || !c.target(k).p.valid() || c.target(k).p.is_one_hot()) return;
    distribution const p = sum_taken(c, k, c.target(k).p);  // with a barrier: all have read what is replaced
    if (threadIdx.x == 0) c.target(k).p = p;
    __syncthreads();
}

// ---- draws -------------------------------------------------------------------------------------------------------

/// The token that the first warp finds, in all threads.
template <class Find>
[[nodiscard]] __device__ token_id chosen_by_first_warp(verification_shared& s, Find const& find) {
    if (warp_index() == 0) {
        token_id const y = find();
        if (lane_index() == 0) s.chosen = y;
    }
    __syncthreads();
    token_id const y = s.chosen;
    __syncthreads();  // no mutant: two choices in a row take a draw that rounding left with nothing
    return y;
}

/// WARP collective: a token of p, the distribution of row k, by the draw of that name; its sums must be there.
template <class Rows, class DraftRows>
[[nodiscard]] __device__ __noinline__ token_id draw_by_warp(verification<Rows, DraftRows> const& c, std::uint32_t k,
                                                            distribution const& p, draw_key const& name) {
    // What rounding block sums and a normaliser is of them: distribution's given_room.
    bool const given = c.task.rows.block_sums != nullptr && c.is_taken();
    double const room = given ? block_room + (4.0 + 2.0 * fabs(static_cast<double>(p.shift))) * 0x1p-24 : block_room;
    return draw_token(c.row(k), c.vocabulary(), p, c.upto(k), draw_number(name), room);
}

}  // namespace detail

/// A token of the target behind row k, by the draw of that name.
template <class Rows, class DraftRows>
[[nodiscard]] __device__ __noinline__ token_id draw_target(verification<Rows, DraftRows> const& c, std::uint32_t k,
                                                           draw_key const& name) {
    detail::prepare_draw(c, k);
    return detail::chosen_by_first_warp(*c.shared, [&] { return detail::draw_by_warp(c, k, c.target(k).p, name); });
}

}  // namespace cuda
SURELEAP_END_NAMESPACE

// SPDX-License-Identifier: MIT
//
// Distributions of the target's rows as draws need them, and draws from them. In: rows that are complete, with the sums
// of a pass, or with a producer's normaliser and block sums. Out: cumulative sums by blocks of 1,024 tokens, totals,
// tokens.
//
// A row with a normaliser has a distribution without a pass. Its sums are made when it is drawn from, in O(V / 1024). A
// row whose block sums are missing or wrong takes a pass for it. With sums, a draw looks at one block of the row.
//
// All functions are BLOCK collectives, results are the same in all threads, and shared scratch is free again when they
// return, unless they say otherwise.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/distribution.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/sampling/draw.cuh>
#include <sureleap/cuda/sampling/row.cuh>
#include <sureleap/cuda/verify/judged_request.cuh>
#include <sureleap/cuda/verify/memory.cuh>
#include <sureleap/sampling/draw_key.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// Scratch of a block of threads that judges.
struct verification_shared {
    float drafted[block_tokens];  ///< weights of q
    double sums[verification_warps];
    double total;
    token_id outcomes[verification_warps];
    token_id chosen;
};

/// A request and its draws from p.
template <class T, class DraftRows>
class target_draws : public judged_request<T, DraftRows> {
    using base = judged_request<T, DraftRows>;

public:
    using base::blocks;
    using base::draw_by_warp;
    using base::first_row;
    using base::is_taken;
    using base::row;
    using base::take_distribution;
    using base::target;
    using base::upto;
    using base::vocabulary;

    __device__ target_draws(verify_task<T, DraftRows> const& task, verification_shared& s, std::uint32_t r)
        : base(task, r), s_(s) {}

    // ---- sums --------------------------------------------------------------------------------------------------

    /// BLOCK collective: a distribution that was taken, with the cumulative sums that draws look at and with its total,
    /// which is their sum: what a normaliser is off by is no token's. Block sums that do not add up to 1 are not used.
    /// No distribution if there is no sum. Nothing else has the sums: a row that is not drawn from needs none.
    [[nodiscard]] __device__ distribution sum_taken(std::uint32_t k, distribution p) {
        double total = 0.0;
        if (rows().block_sums != nullptr) {
            float const* const sums = rows().block_sums + static_cast<std::size_t>(first_row() + k) * blocks();
            if (warp_index() == 0) {
                double const sum =
                    sum_in_order(blocks(), upto(k), [&](std::uint32_t b) { return static_cast<double>(sums[b]); });
                if (lane_index() == 0) s_.total = sum;
            }
            __syncthreads();
            total = s_.total;
            __syncthreads();
        }
        if (!(fabs(total - 1.0) <= normaliser_tolerance)) {
            total = sum_blocks(k, p, [](std::uint32_t) { return true; });
        }
        p.total = total;
        if (!(total > 0.0 && total < static_cast<double>(infinity))) p.kind = distribution_kind::invalid;
        return p;
    }
    /// The cumulative sums of a distribution by a pass over the row, but for blocks that may_weigh(b) says have no
    /// weight; returns the total.
    template <class MayWeigh>
    [[nodiscard]] __device__ double sum_blocks(std::uint32_t k, distribution const& p, MayWeigh const& may_weigh) {
        double* const sums = upto(k);
        for (std::uint32_t b = warp_index(); b < blocks(); b += verification_warps) {
            double const sum = may_weigh(b) ? sum_block(row(k), vocabulary(), b, p) : 0.0;
            if (lane_index() == 0) sums[b] = sum;
        }
        __syncthreads();
        return add_up(sums);
    }
    /// The mass of block b of what a rule left of p, stored: the sum of left_of(i) over its tokens i, one thread each.
    template <class Left>
    __device__ void weigh_left(std::uint32_t b, Left const& left_of) {
        double sum = 0.0;
        for (std::uint32_t i = threadIdx.x; i < block_tokens; i += verification_threads) sum += left_of(i);
        sum = warp_sum(sum);
        if (lane_index() == 0) s_.sums[warp_index()] = sum;
        __syncthreads();
        if (threadIdx.x == 0) {
            double mass = 0.0;
            for (double const part : s_.sums) mass += part;
            left()[b] = mass;
        }
        __syncthreads();
    }
    /// The sum of the threads' numbers.
    [[nodiscard]] __device__ double sum_of_threads(double own) {
        own = warp_sum(own);
        if (lane_index() == 0) s_.sums[warp_index()] = own;
        __syncthreads();
        double sum = 0.0;
        for (double const part : s_.sums) sum += part;
        __syncthreads();
        return sum;
    }
    /// The mass of all blocks, when they are stored; makes them cumulative.
    [[nodiscard]] __device__ double total_mass() { return add_up(left()); }

    // ---- draws -------------------------------------------------------------------------------------------------

    /// A token of distribution p of row k, by the draw of that name.
    [[nodiscard]] __device__ token_id draw(std::uint32_t k, draw_key const& name) {
        prepare_draw(k);
        return chosen_by_first_warp([&] { return draw_by_warp(k, target(k).p, name); });
    }

protected:
    using base::rows;

    /// Makes the sums of a distribution that was taken, before the first draw from it.
    __device__ void prepare_draw(std::uint32_t k) {
        if (!is_taken() || !target(k).p.valid() || target(k).p.is_one_hot()) return;
        distribution const p =
            sum_taken(k, target(k).p);  // with a barrier: all have read the distribution that is replaced
        if (threadIdx.x == 0) target(k).p = p;
        __syncthreads();
    }
    /// The token that the first warp finds, in all threads.
    template <class Find>
    [[nodiscard]] __device__ token_id chosen_by_first_warp(Find const& find) {
        if (warp_index() == 0) {
            token_id const y = find();
            if (lane_index() == 0) s_.chosen = y;
        }
        __syncthreads();
        token_id const y = s_.chosen;
        __syncthreads();  // no mutant: two choices in a row take a draw that rounding left with nothing
        return y;
    }
    [[nodiscard]] __device__ verification_shared& scratch() const { return s_; }
    /// [blocks()] masses of what a rule left of p.
    [[nodiscard]] __device__ double* left() const {
        return base::memory().left + static_cast<std::size_t>(base::request()) * blocks();
    }

private:
    /// Makes the sums of all blocks cumulative; returns their total.
    [[nodiscard]] __device__ double add_up(double* sums) {
        if (warp_index() == 0) {
            double const total = sum_in_order(blocks(), sums, [&](std::uint32_t b) { return sums[b]; });
            if (lane_index() == 0) s_.total = total;
        }
        __syncthreads();
        double const total = s_.total;
        __syncthreads();  // no mutant: there is a barrier before the next total as well
        return total;
    }

    verification_shared& s_;
};

}  // namespace cuda
SURELEAP_END_NAMESPACE

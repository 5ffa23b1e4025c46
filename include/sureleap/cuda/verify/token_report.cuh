// SPDX-License-Identifier: MIT
//
// What an engine may want to know of an emitted token beside the token: its log p, its rank, and the likeliest tokens
// in its place (the host's round/log_probabilities.hpp).
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/distribution.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/sampling/draw.cuh>
#include <sureleap/cuda/sampling/row.cuh>
#include <sureleap/cuda/sampling/truncate.cuh>
#include <sureleap/cuda/verify/target_rows.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// The most likely tokens that can be asked for: a lane has one.
inline constexpr std::uint32_t most_likeliest = warp_size;

struct token_report_shared {
    truncate_shared truncation;
    distribution law;
    std::uint32_t rank;
    std::uint32_t listed;
    token_id tokens[most_likeliest];
    float logits[most_likeliest];
};

namespace detail {

/// BLOCK collective: the law of a row at temperature 1, whatever the request's settings are.
template <class Row>
[[nodiscard]] __device__ distribution level_law(Row row, std::uint32_t size, block_weight* weights, double* upto,
                                                token_report_shared& s) {
    for (std::uint32_t b = warp_index(); b < count_blocks(size); b += blockDim.x / warp_size) {
        lanes_of<Row> logits;
        read_block(row, size, b, logits);
        block_weight const weight = weigh_block(logits, rate_of(1.0f));
        if (lane_index() == 0) weights[b] = weight;
    }
    __syncthreads();
    if (warp_index() == 0) {
        distribution const made = distribution_of(row, size, weights, upto, false, 1.0f);
        if (lane_index() == 0) s.law = made;
    }
    __syncthreads();
    return s.law;
}

/// BLOCK collective: f(token, logit) of every token of the blocks that are wanted, by one thread each.
template <class Row, class Wants, class F>
__device__ void for_each_token(Row row, std::uint32_t size, Wants const& wants, F const& f) {
    using lanes = lanes_of<Row>;
    for (std::uint32_t b = warp_index(); b < count_blocks(size); b += blockDim.x / warp_size) {
        if (!wants(b)) continue;
        lanes logits;
        read_block(row, size, b, logits);
#pragma unroll 1
        for (unsigned i = 0; i < lanes::vectors; ++i) {
#pragma unroll
            for (unsigned e = 0; e < lanes::together; ++e) {
                std::uint32_t const v = b * block_tokens + lanes::place(i, e);
                if (v < size) f(static_cast<token_id>(v), logits(i, e));
            }
        }
    }
}

/// BLOCK collective: how many tokens are at least as likely as x, in all threads. One pass over the row.
template <class Row>
[[nodiscard]] __device__ std::uint32_t rank_of(Row row, std::uint32_t size, distribution const& p, token_id x,
                                               token_report_shared& s) {
    if (threadIdx.x == 0) s.rank = 0;
    __syncthreads();
    float const own = p.weight(load(row[x]), x);
    std::uint32_t count = 0;
    for_each_token(
        row, size, [](std::uint32_t) { return true; },
        [&](token_id v, float logit) {
            if (p.weight(logit, v) >= own) ++count;
        });
    count = __reduce_add_sync(all_lanes, count);
    if (lane_index() == 0) atomicAdd(&s.rank, count);
    __syncthreads();
    return s.rank;
}

/// BLOCK collective: the n likeliest tokens of p into s, the likeliest first, the lower id first of equals; no_token
/// behind its last one. `weights` are those of the row's blocks.
template <class Row>
__device__ void find_likeliest(Row row, std::uint32_t size, distribution const& p, block_weight const* weights,
                               std::uint32_t n, token_report_shared& s) {
    if (!p.valid()) {
        if (threadIdx.x < n) s.tokens[threadIdx.x] = no_token;
        __syncthreads();
        return;
    }
    cutoff last{};
    if (n < size) {
        transform few{};
        few.top_k = static_cast<int>(n);
        last = truncate(row, size, few, row_statistics{p.shift, p.total, weights}, s.truncation);
    }
    if (threadIdx.x == 0) s.listed = 0;
    __syncthreads();
    auto const may_have = [&](std::uint32_t b) { return weights[b].largest >= last.logit; };
    for_each_token(row, size, may_have, [&](token_id v, float logit) {
        bool const kept = logit > last.logit || (logit == last.logit && v <= last.id);
        if (!kept || !(p.weight(logit, v) > 0.0f)) return;
        std::uint32_t const at = atomicAdd(&s.listed, 1u);
        if (at >= most_likeliest) return;  // never: n were kept
        s.tokens[at] = v;
        s.logits[at] = logit;
    });
    __syncthreads();
    if (warp_index() != 0) return;
    std::uint32_t const listed = s.listed < n ? s.listed : n;
    bool const mine = lane_index() < listed;
    token_id const token = mine ? s.tokens[lane_index()] : no_token;
    float const logit = mine ? s.logits[lane_index()] : 0.0f;
    std::uint32_t place = 0;
    for (std::uint32_t j = 0; j < listed; ++j) {
        token_id const other = __shfl_sync(all_lanes, token, static_cast<int>(j));
        float const its = __shfl_sync(all_lanes, logit, static_cast<int>(j));
        place += its > logit || (its == logit && other < token) ? 1 : 0;
    }
    if (!mine && lane_index() < n) s.tokens[lane_index()] = no_token;
    __syncwarp();
    if (mine) {
        s.tokens[place] = token;
        s.logits[place] = logit;
    }
    __syncwarp();
}

}  // namespace detail
}  // namespace cuda
SURELEAP_END_NAMESPACE

// SPDX-License-Identifier: MIT
//
// The inverse CDF of a row on the device (quantile.hpp): a number in [0, 1) in, a token out. The cumulative sums of the
// blocks give the block. Then a warp evaluates all weights of that block at once and searches them. The sums of blocks
// are added up in an order in which no sum falls below the one before. In a tree order the sum up to an empty block may
// differ from the one before by a rounding. Then some numbers would lead to a token of weight zero.
//
// The sum of a block and the sum of its weights differ by rounding. So a block is searched with some room behind its
// weights, and each of them can be reached. A number that falls into that room is spread over the row by weight. If the
// last token of the block got it, the rounding would make that token too probable, whatever its weight.
#pragma once

#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/distribution.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/sampling/row.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// No place in a block, no block in a row.
inline constexpr std::uint32_t no_place = 0xffffffffu;

/// WARP collective: upto[b] = the sum of of(0) .. of(b); returns the last one. of(b) is evaluated once, by one lane,
/// and may read upto[b]. Lanes sum consecutive terms, and their sums are added up one after the other. So no sum is
/// less than the one before, and it is equal where a term is 0.
template <class Of>
__device__ double sum_in_order(std::uint32_t count, double* upto, Of const& of) {
    std::uint32_t const share = (count + warp_size - 1) / warp_size;
    std::uint32_t const first = lane_index() * share;
    std::uint32_t const end = first + share < count ? first + share : count;
    double mine = 0.0;
    for (std::uint32_t b = first; b < end; ++b) upto[b] = mine += of(b);
    double before = 0.0;
    double total = 0.0;
#pragma unroll
    for (unsigned lane = 0; lane < warp_size; ++lane) {
        if (lane == lane_index()) before = total;
        total += __shfl_sync(all_lanes, mine, static_cast<int>(lane));
    }
    for (std::uint32_t b = first; b < end; ++b) upto[b] = before + upto[b];
    __syncwarp();  // whoever draws next looks at those of other lanes
    return total;
}

/// WARP collective: the first of `count` cumulative sums that exceeds `threshold`, the last one with a weight of its
/// own if none does; no_place if all are 0. As many steps as `count` has digits of base 32.
[[nodiscard]] __device__ inline std::uint32_t find_block(double const* upto, std::uint32_t count, double threshold) {
    double const total = upto[count - 1];
    if (!(total > 0.0)) return no_place;
    bool const past_end = !(total > threshold);
    std::uint32_t first = 0;
    while (count > 1) {
        std::uint32_t const step = (count + warp_size - 1) / warp_size;
        std::uint32_t const reach = (lane_index() + 1) * step;
        double const sum = upto[first + (reach < count ? reach : count) - 1];
        bool const enough = past_end ? sum >= total : sum > threshold;
        std::uint32_t const skipped =
            (static_cast<std::uint32_t>(__ffs(static_cast<int>(__ballot_sync(all_lanes, enough)))) - 1) * step;
        first += skipped;
        count = count - skipped < step ? count - skipped : step;
    }
    return first;
}

/// WARP collective: the first place of a block, from part `i` on, at which before + the weights from there exceed
/// `threshold`, never one of weight zero; the last one with weight if rounding runs past the end, no_place if there is
/// none. weight(i, e) is that of place (32 i + lane) together + e, as row_lanes has it; a part is 32 together places.
template <unsigned together, class Weight>
[[nodiscard]] __device__ std::uint32_t find_place(unsigned i, double before, double threshold, Weight const& weight) {
    std::uint32_t found = no_place;
#pragma unroll 1
    for (; i < block_tokens / warp_size / together; ++i) {
        double weights[together];
        double mine = 0.0;
#pragma unroll
        for (unsigned e = 0; e < together; ++e) mine += weights[e] = weight(i, e);
        double upto = mine;
#pragma unroll
        for (unsigned distance = 1; distance < warp_size; distance *= 2) {
            double const other = __shfl_up_sync(all_lanes, upto, distance);
            if (lane_index() >= distance) upto += other;
        }
        double cumulative = __shfl_up_sync(all_lanes, upto, 1);
        cumulative = before + (lane_index() == 0 ? 0.0 : cumulative);
        unsigned const heavy = __ballot_sync(all_lanes, mine > 0.0);
        unsigned const reached = __ballot_sync(all_lanes, mine > 0.0 && before + upto > threshold);
        before += __shfl_sync(all_lanes, upto, warp_size - 1);
        if (heavy == 0) continue;
        int const lane = reached != 0 ? __ffs(static_cast<int>(reached)) - 1 : 31 - __clz(static_cast<int>(heavy));
        unsigned at = 0;
        bool past = false;
#pragma unroll
        for (unsigned e = 0; e < together; ++e) {
            if (past || !(weights[e] > 0.0)) continue;
            at = e;
            cumulative += weights[e];
            past = cumulative > threshold;
        }
        found = __shfl_sync(all_lanes, (i * warp_size + lane_index()) * together + at, lane);
        if (reached != 0) return found;
    }
    return found;
}

// ---- distributions --------------------------------------------------------------------------------------------------

/// The weight of a token under p, the distribution of a target row. (distribution::weight is that of dense ones.)
template <class Row>
[[nodiscard]] __device__ __forceinline__ float weight_of(distribution const& p, Row row, token_id v) {
    return p.is_one_hot() ? (v == p.mode ? 1.0f : 0.0f) : p.weight(load(row[v]), v);
}
template <class Row>
[[nodiscard]] __device__ __forceinline__ double probability_of(distribution const& p, Row row, token_id v) {
    return static_cast<double>(weight_of(p, row, v)) / p.total;
}
/// log p(v) without underflow, as distribution::log_probability.
template <class Row>
[[nodiscard]] __device__ inline double log_probability_of(distribution const& p, Row row, token_id v) {
    double const none = -static_cast<double>(infinity);
    if (p.is_one_hot()) return v == p.mode ? 0.0 : none;
    float const logit = load(row[v]);
    if (!p.keeps(logit, v)) return none;
    auto const weight = static_cast<double>(p.weight(logit, v));
    if (weight > 1e-30) return log(weight / p.total);
    return static_cast<double>((logit - p.shift) * p.scale) - log(p.total);
}

/// WARP collective: the sum of a block's weights.
template <class Row>
[[nodiscard]] __device__ __noinline__ double sum_block(Row row, std::uint32_t size, std::uint32_t block,
                                                       distribution const& p) {
    lanes_of<Row> logits;
    read_block(row, size, block, logits);
    double sum = 0.0;
#pragma unroll 1  // a pass through cold code takes longer than the arithmetic
    for (unsigned i = 0; i < lanes_of<Row>::vectors; ++i) {
#pragma unroll
        for (unsigned e = 0; e < lanes_of<Row>::together; ++e) {
            auto const v = static_cast<token_id>(block * block_tokens + lanes_of<Row>::place(i, e));
            sum += static_cast<double>(p.weight(logits(i, e), v));
        }
    }
    return warp_sum(sum);
}

/// The share by which the sum of a block may be below that of its weights, with every weight still in reach. It is the
/// host's value, since it moves numbers from token to token. Sums of exponents far below the block's largest are off by
/// more, up to 1e-6. By that much the last tokens of a block may be drawn too rarely.
inline constexpr double block_room = sum_rounding<float>;

/// WARP collective: the token that the part `share` < 1 of the sum of all weights stands for, by two passes; no_token
/// if there is no sum.
template <class Row>
[[nodiscard]] __device__ __noinline__ token_id draw_share(Row row, std::uint32_t size, distribution const& p,
                                                          double share) {
    std::uint32_t const blocks = count_blocks(size);
    double total = 0.0;
    for (std::uint32_t b = 0; b < blocks; ++b) total += sum_block(row, size, b, p);
    if (!(total > 0.0 && total < static_cast<double>(infinity))) return no_token;
    double const threshold = share * total;
    std::uint32_t block = no_place;
    double before = 0.0;
    double upto = 0.0;
    for (std::uint32_t b = 0; b < blocks && !(upto > threshold); ++b) {
        double const sum = sum_block(row, size, b, p);
        if (!(sum > 0.0)) continue;
        block = b;
        before = upto;
        upto += sum;
    }
    std::uint32_t const first = block * block_tokens;
    std::uint32_t const place = find_place<lanes_of<Row>::together>(0, before, threshold, [&](unsigned i, unsigned e) {
        std::uint32_t const v = first + lanes_of<Row>::place(i, e);
        return v < size ? static_cast<double>(p.weight(load(row[v]), static_cast<token_id>(v))) : 0.0;
    });
    return place == no_place ? no_token : static_cast<token_id>(first + place);
}

/// WARP collective: the token that `u` stands for under p, whose blocks' cumulative sums are `upto` (not read of a
/// one-hot distribution). no_token if no token has weight, as of sums that a producer gave and that do not hold.
/// `room`: of a block's sum, for what it may lack of its weights.
///
/// All of the block is asked for at once, and summed by parts; the part that matters is then in the cache.
template <class Row>
[[nodiscard]] __device__ __noinline__ token_id draw_token(Row row, std::uint32_t size, distribution const& p,
                                                          double const* upto, double u, double room = block_room) {
    using lanes = lanes_of<Row>;
    if (p.is_one_hot()) return p.mode;
    double const threshold = u * p.total;
    std::uint32_t const block = find_block(upto, count_blocks(size), threshold);
    if (block == no_place) return no_token;
    std::uint32_t const first = block * block_tokens;
    double const before_block = block == 0 ? 0.0 : upto[block - 1];
    double const within = (threshold - before_block) * (1.0 + room);
    double before = 0.0;
    unsigned part = 0;
    double before_part = before;
    bool found = false;
    {
        lanes logits;
        read_block(row, size, block, logits);
#pragma unroll 1  // as in sum_block
        for (unsigned i = 0; i < lanes::vectors; ++i) {
            double sum = 0.0;
#pragma unroll
            for (unsigned e = 0; e < lanes::together; ++e) {
                sum += static_cast<double>(p.weight(logits(i, e), static_cast<token_id>(first + lanes::place(i, e))));
            }
            sum = warp_sum(sum);
            if (found || !(sum > 0.0)) continue;
            part = i;
            before_part = before;
            before += sum;
            found = before > within;
        }
    }
    if (!found) {
        double const claimed = (upto[block] - before_block) * (1.0 + room);
        double const share = (within - before) / (claimed - before);
        return draw_share(row, size, p, share < 1.0 ? fmax(share, 0.0) : 1.0 - 0x1p-53);
    }
    std::uint32_t const place = find_place<lanes::together>(part, before_part, within, [&](unsigned i, unsigned e) {
        std::uint32_t const v = first + lanes::place(i, e);
        return v < size ? static_cast<double>(p.weight(load(row[v]), static_cast<token_id>(v))) : 0.0;
    });
    return place == no_place ? no_token : static_cast<token_id>(first + place);
}

/// WARP collective: the first token of the block whose logit is `largest`.
template <class Row>
[[nodiscard]] __device__ __noinline__ token_id find_largest(Row row, std::uint32_t size, std::uint32_t block,
                                                            float largest) {
    lanes_of<Row> logits;
    read_block(row, size, block, logits);
    std::uint32_t place = no_place;
#pragma unroll
    for (unsigned i = 0; i < lanes_of<Row>::vectors; ++i) {
#pragma unroll
        for (unsigned e = 0; e < lanes_of<Row>::together; ++e) {
            if (logits(i, e) == largest && place == no_place) place = lanes_of<Row>::place(i, e);
        }
    }
    return static_cast<token_id>(block * block_tokens + __reduce_min_sync(all_lanes, place));
}

}  // namespace cuda
SURELEAP_END_NAMESPACE

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
#include <sureleap/cuda/core/cold.cuh>
#include <sureleap/cuda/core/distribution.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/warp.cuh>
#include <sureleap/cuda/sampling/row.cuh>
#include <sureleap/sampling/draw_key.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// No place in a block, no block in a row.
inline constexpr std::uint32_t no_place = 0xffffffffu;

/// Terms of a lane in sum_in_order.
[[nodiscard]] __device__ __forceinline__ std::uint32_t sum_share(std::uint32_t count) {
    return (count + warp_size - 1) / warp_size;
}
/// WARP collective: each of `count` terms >= 0 becomes the sum of those up to it; returns the last one. Every lane has
/// consecutive terms, of which it reads and writes only its own before the sums are there: term b is that of lane
/// b / sum_share(count). No sum is less than the one before, and it is equal where a term is 0: sums of lanes are added
/// up as a tree, and what that rounds differently is cut off.
template <class = void>
[[nodiscard]] __device__ __noinline__ double sum_in_order(std::uint32_t count, double* terms) {
    std::uint32_t const share = sum_share(count);
    std::uint32_t const first = lane_index() * share;
    std::uint32_t const end = first + share < count ? first + share : count;
    double mine = 0.0;
#pragma unroll 1
    for (std::uint32_t b = first; b < end; ++b) terms[b] = mine += terms[b];
    double upto = sum_out_of_line(mine);
    double const plain = __shfl_sync(all_lanes, upto, warp_size - 1);  // NaN if a term is
    if (mine == 0.0) upto = 0.0;
#pragma unroll 1
    for (unsigned distance = 1; distance < warp_size; distance *= 2) {
        double const other = __shfl_up_sync(all_lanes, upto, distance);
        if (lane_index() >= distance && other > upto) upto = other;
    }
    double const earlier = __shfl_up_sync(all_lanes, upto, 1);
    double const before = lane_index() == 0 ? 0.0 : earlier;
#pragma unroll 1
    for (std::uint32_t b = first; b < end; ++b) {
        double const sum = before + terms[b];
        terms[b] = terms[b] < mine && sum < upto ? sum : upto;
    }
    __syncwarp();  // whoever draws next looks at those of other lanes
    double const total = __shfl_sync(all_lanes, upto, warp_size - 1);
    return plain == plain ? total : plain;
}

/// uniform(key): a long computation, of which one copy is enough.
template <class = void>
[[nodiscard]] __device__ __noinline__ double draw_number(draw_key const& key) {
    return uniform(key);
}

/// WARP collective: the first of `count` cumulative sums that exceeds `threshold`, the last one with a weight of its
/// own if none does; no_place if all are 0. As many steps as `count` has digits of base 32.
[[nodiscard]] __device__ inline std::uint32_t find_block(double const* upto, std::uint32_t count, double threshold) {
    double const total = upto[count - 1];
    if (!(total > 0.0)) return no_place;
    bool const past_end = !(total > threshold);
    std::uint32_t first = 0;
#pragma unroll 1
    while (count > 1) {
        std::uint32_t const step = (count + warp_size - 1) / warp_size;
        std::uint32_t const reach = (lane_index() + 1) * step;
        double const sum = upto[first + (reach < count ? reach : count) - 1];
        bool const enough = past_end ? sum >= total : sum > threshold;
        std::uint32_t const skipped = static_cast<std::uint32_t>(first_lane(enough)) * step;
        first += skipped;
        count = count - skipped < step ? count - skipped : step;
    }
    return first;
}

/// A search for the first place of a block at which its weights, added up, exceed a threshold; never one of weight
/// zero. Part by part, each of which is a few places of every lane.
struct place_search {
    double threshold;
    double before = 0.0;             ///< the weights so far
    std::uint32_t found = no_place;  ///< the last place with weight so far
    bool reached = false;            ///< that is the one
};
/// WARP collective: searches the part of `together` places a lane, of these weights, that begins at `first`.
template <class = void>
__device__ __noinline__ void search_part(place_search& s, std::uint32_t first, double const* weights,
                                         unsigned together) {
    double mine = 0.0;
#pragma unroll 1
    for (unsigned e = 0; e < together; ++e) mine += weights[e];
    double upto = sum_out_of_line(mine);
    double cumulative = __shfl_up_sync(all_lanes, upto, 1);
    cumulative = s.before + (lane_index() == 0 ? 0.0 : cumulative);
    unsigned const heavy = __ballot_sync(all_lanes, mine > 0.0);
    unsigned const reached = __ballot_sync(all_lanes, mine > 0.0 && s.before + upto > s.threshold);
    s.before += __shfl_sync(all_lanes, upto, warp_size - 1);
    if (heavy == 0) return;
    int const lane = reached != 0 ? __ffs(static_cast<int>(reached)) - 1 : 31 - __clz(static_cast<int>(heavy));
    unsigned at = 0;
#pragma unroll 1
    for (unsigned e = 0; e < together; ++e) {
        if (!(weights[e] > 0.0)) continue;
        at = e;
        cumulative += weights[e];
        if (cumulative > s.threshold) break;
    }
    s.found = first + __shfl_sync(all_lanes, lane_index() * together + at, lane);
    s.reached = reached != 0;
}
/// WARP collective: searches all parts of a block. weight(i, e) is that of place (32 i + lane) together + e, as
/// row_lanes has it; a part is 32 together places.
template <unsigned together, class Weight>
__device__ __forceinline__ void search_parts(place_search& s, Weight const& weight) {
    double weights[together];
#pragma unroll 1
    for (unsigned i = 0; i < block_tokens / warp_size / together && !s.reached; ++i) {
#pragma unroll 1
        for (unsigned e = 0; e < together; ++e) weights[e] = weight(i, e);
        search_part(s, i * warp_size * together, weights, together);
    }
}

// ---- distributions --------------------------------------------------------------------------------------------------

/// The weight of a token under p, the distribution of a target row. (distribution::weight is that of dense ones.)
template <class Row>
[[nodiscard]] __device__ __forceinline__ float weight_of(distribution const& p, Row row, token_id v) {
    return p.is_one_hot() ? (v == p.mode ? 1.0f : 0.0f) : p.weight(load(row[v]), v);
}
template <class Row>
[[nodiscard]] __device__ __forceinline__ double probability_of(distribution const& p, Row row, token_id v) {
    return quotient(static_cast<double>(weight_of(p, row, v)), p.total);
}
/// log p(v) without underflow, as distribution::log_probability.
template <class Row>
[[nodiscard]] __device__ __noinline__ double log_probability_of(distribution const& p, Row row, token_id v) {
    double const none = -static_cast<double>(infinity);
    if (p.is_one_hot()) return v == p.mode ? 0.0 : none;
    float const logit = load(row[v]);
    if (!p.keeps(logit, v)) return none;
    auto const weight = static_cast<double>(p.weight(logit, v));
    bool const plain = weight > 1e-30;
    double const of_weight = plain ? 0.0 : static_cast<double>((logit - p.shift) * p.scale);
    return of_weight + log(quotient(plain ? weight : 1.0, p.total));
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
#pragma unroll 2
        for (unsigned e = 0; e < lanes_of<Row>::together; ++e) {
            auto const v = static_cast<token_id>(block * block_tokens + lanes_of<Row>::place(i, e));
            sum += static_cast<double>(p.weight(logits(i, e), v));
        }
    }
    return total_of_lanes(sum);
}

/// The share by which the sum of a block may be below that of its weights, with every weight still in reach. It is the
/// host's value, since it moves numbers from token to token. Sums of exponents far below the block's largest are off by
/// more, up to 1e-6. By that much the last tokens of a block may be drawn too rarely.
inline constexpr double block_room = sum_rounding<float>;

/// WARP collective: searches block `block` of a row by the weights of p. All of it is asked for at once.
template <class Row>
__device__ __noinline__ void search_block(place_search& s, Row row, std::uint32_t size, std::uint32_t block,
                                          distribution const& p) {
    using lanes = lanes_of<Row>;
    lanes logits;
    read_block(row, size, block, logits);
    search_parts<lanes::together>(s, [&](unsigned i, unsigned e) {
        auto const v = static_cast<token_id>(block * block_tokens + lanes::place(i, e));
        return static_cast<double>(p.weight(logits(i, e), v));
    });
}

/// WARP collective: the token that the part `share` < 1 of the sum of all weights stands for, by two passes; no_token
/// if there is no sum.
template <class Row>
[[nodiscard]] __device__ __noinline__ token_id draw_share(Row row, std::uint32_t size, distribution const& p,
                                                          double share) {
    std::uint32_t const blocks = count_blocks(size);
    double total = 0.0;
    double threshold = static_cast<double>(infinity);
    std::uint32_t block = no_place;
    double before = 0.0;
#pragma unroll 1
    for (unsigned pass = 0; pass < 2; ++pass) {
        double upto = 0.0;
#pragma unroll 1
        for (std::uint32_t b = 0; b < blocks && !(upto > threshold); ++b) {
            double const sum = sum_block(row, size, b, p);
            if (!(sum > 0.0)) continue;
            block = b;
            before = upto;
            upto += sum;
        }
        if (pass == 0) total = upto;
        threshold = share * total;
        if (!(total > 0.0 && total < static_cast<double>(infinity))) return no_token;
    }
    place_search s{threshold, before};
    search_block(s, row, size, block, p);
    return s.found == no_place ? no_token : static_cast<token_id>(block * block_tokens + s.found);
}

/// WARP collective: the token that `u` stands for under p, whose blocks' cumulative sums are `upto` (not read of a
/// one-hot distribution). no_token if no token has weight, as of sums that a producer gave and that do not hold.
/// `room`: of a block's sum, for what it may lack of its weights.
template <class Row>
[[nodiscard]] __device__ __noinline__ token_id draw_token(Row row, std::uint32_t size, distribution const& p,
                                                          double const* upto, double u, double room = block_room) {
    if (p.is_one_hot()) return p.mode;
    double const threshold = u * p.total;
    std::uint32_t const block = find_block(upto, count_blocks(size), threshold);
    if (block == no_place) return no_token;
    double const before = block == 0 ? 0.0 : upto[block - 1];
    place_search s{(threshold - before) * (1.0 + room)};
    search_block(s, row, size, block, p);
    if (!s.reached) {
        double const claimed = (upto[block] - before) * (1.0 + room);
        double const share = quotient(s.threshold - s.before, claimed - s.before);
        return draw_share(row, size, p, share < 1.0 ? fmax(share, 0.0) : 1.0 - 0x1p-53);
    }
    return static_cast<token_id>(block * block_tokens + s.found);
}

/// WARP collective: the first token of the block whose logit is `largest`.
template <class Row>
[[nodiscard]] __device__ __noinline__ token_id find_largest(Row row, std::uint32_t size, std::uint32_t block,
                                                            float largest) {
    lanes_of<Row> logits;
    read_block(row, size, block, logits);
    std::uint32_t place = no_place;
#pragma unroll 1
    for (unsigned i = 0; i < lanes_of<Row>::vectors; ++i) {
#pragma unroll 1
        for (unsigned e = 0; e < lanes_of<Row>::together; ++e) {
            if (logits(i, e) == largest && place == no_place) place = lanes_of<Row>::place(i, e);
        }
    }
    return static_cast<token_id>(block * block_tokens + __reduce_min_sync(all_lanes, place));
}

}  // namespace cuda
SURELEAP_END_NAMESPACE

// SPDX-License-Identifier: MIT
//
// What a target row that is complete is to its rule. In: the weights of its blocks (weigh.cuh), or the normaliser that
// came with the row. Out, in memory.targets: its law, the probability of the drafted token, and the token that the
// target itself chooses, if the rule wants it first.
//
// A law takes O(V / 1024) and no look at the row. If it is truncated, there is also the search for the last token kept
// (sampling/truncate.cuh), and a sum over the blocks that keep tokens.
#pragma once

#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/distribution.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/sampling/draw.cuh>
#include <sureleap/cuda/sampling/gumbel_max_row.cuh>
#include <sureleap/cuda/sampling/row.cuh>
#include <sureleap/cuda/sampling/truncate.cuh>
#include <sureleap/cuda/verify/memory.cuh>
#include <sureleap/cuda/verify/verification.cuh>
#include <sureleap/cuda/verify/weigh.cuh>
#include <sureleap/cuda/verify/work.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {
namespace detail {

/// What a block keeps in shared memory while it weighs rows and judges.
struct verify_shared {
    verification_shared verification;
    union {
        truncate_shared truncation;
        gumbel_shared gumbel;
    };
    law p;
    request_state state;
    work_item item;
    std::uint32_t completes;
};

/// A float rounds this normaliser by more than 4e-6, which the probability of a judged draft would be off by.
[[nodiscard]] __device__ __forceinline__ bool is_rounded_far(float log_normaliser) {
    return fabsf(log_normaliser) > 64.0f;
}

/// WARP collective: the law of a row from the weights of its blocks, without truncation, and its cumulative sums.
template <class T, class DraftRows>
[[nodiscard]] __device__ law law_of(verification<T, DraftRows> const& c, std::uint32_t k, row_reading const& how) {
    block_weight const* const weights = c.weights(k);
    std::uint32_t const blocks = c.blocks();
    float largest = -infinity;
    bool bad = false;
    for (std::uint32_t b = lane_index(); b < blocks; b += warp_size) {
        block_weight const weight = weights[b];
        bad |= !(weight.sum < infinity);  // NaN as well
        largest = fmaxf(largest, weight.largest);
    }
    largest = warp_max(largest);
    law p{};
    if (__any_sync(all_lanes, bad) || !(largest > -infinity)) return p;
    if (how.greedy) {
        std::uint32_t first = no_place;
        for (std::uint32_t b = lane_index(); b < blocks && first == no_place; b += warp_size) {
            if (weights[b].largest == largest) first = b;
        }
        first = __reduce_min_sync(all_lanes, first);
        return law::one_hot(find_largest(c.row(k), c.vocabulary(), first, largest));
    }
    p.shift = largest;
    p.scale = how.scale;
    p.kind = law_kind::dense;
    float const rate = rate_of(how.scale);
    double const top = static_cast<double>(largest) * static_cast<double>(rate);  // exactly that of the shift
    p.total = sum_in_order(blocks, c.upto(k), [&](std::uint32_t b) {
        block_weight const weight = weights[b];
        // Blocks whose largest weight is 0 as a float have none that could be drawn.
        if (!(weight.sum > 0.0f) || !(p.weight(weight.largest, 0) > 0.0f)) return 0.0;
        return static_cast<double>(weight.sum) * exp2(reference_of(weight.largest, rate) - top);
    });
    return p;
}

/// BLOCK collective: the law of a complete row, and what its rule wants to know, into the targets.
template <class Rule, class T, class DraftRows>
__device__ void make_target(verify_task<T, DraftRows> const& task, verify_shared& s, std::uint32_t r, std::uint32_t k) {
    verification<T, DraftRows> c{task, s.verification, r, 0};
    row_reading const how = row_reading::of<Rule>(task, r);
    law p{};
    if (how.weighed) {
        if (warp_index() == 0) {
            law const whole = law_of(c, k, how);
            if (lane_index() == 0) s.p = whole;
        }
        __syncthreads();
        p = s.p;
    } else if (c.is_taken()) {
        p = c.take_law(k);
        if (p.valid() && is_rounded_far(p.shift)) p = c.sum_taken(k, p);
    }
    if (how.cut && p.valid()) {
        row_statistics const statistics{p.shift, p.total, c.weights(k)};
        cutoff const least = truncate(c.row(k), c.vocabulary(), c.target_transform(), statistics, s.truncation);
        p.least_logit = least.logit;
        p.least_id = least.id;
        block_weight const* const weights = c.weights(k);
        p.total = c.sum_blocks(k, p, [&](std::uint32_t b) { return weights[b].largest >= least.logit; });
    }
    gumbel_winner won{};
    if constexpr (Rule::by_gumbel_max) {
        if (how.cut && p.valid()) {
            won = gumbel_max_row(c.row(k), c.vocabulary(), p, c.noise(k), c.token_or_none(k), s.gumbel);
        }
    }
    if (warp_index() != 0) return;
    token_id choice = no_token;
    if constexpr (Rule::by_gumbel_max) {
        if (how.by_gumbel_max) won = first_of(c.winners(k), count_tiles<Rule, T>(c.blocks()) * verification_warps);
        choice = p.is_one_hot() ? p.mode : won.invalid != 0 ? no_token : won.token;
        if (c.is_taken() && !p.valid()) choice = no_token;
    } else if constexpr (Rule::greedy) {
        choice = p.valid() ? p.mode : no_token;
    } else if constexpr (Rule::chooses) {
        if (p.valid()) choice = c.draw_by_warp(k, p, c.noise(k));
    }
    if (lane_index() == 0) c.store(k, p, choice);
}

}  // namespace detail
}  // namespace cuda
SURELEAP_END_NAMESPACE

// SPDX-License-Identifier: MIT
//
// The pass over target rows, a tile at a time. In: a tile of a row of logits. Out: the weight of each block of 1,024
// tokens. For Gumbel-max draws also, or instead, the winner among the tokens of each warp. The rule and the request's
// transform decide which.
//
// A tile is read once, at the speed of memory. Nothing here needs the row's largest logit, so tiles do not wait for
// each other.
#pragma once

#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/distribution.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/storage.cuh>
#include <sureleap/cuda/sampling/gumbel_max.cuh>
#include <sureleap/cuda/sampling/row.cuh>
#include <sureleap/cuda/verify/memory.cuh>
#include <sureleap/cuda/verify/verification.cuh>
#include <sureleap/cuda/verify/work.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {
namespace detail {

[[nodiscard]] __device__ __forceinline__ float scale_of(transform const& how, bool greedy) {
    return greedy ? 1.0f : static_cast<float>(1.0 / how.temperature);
}

/// What a row is read for.
struct row_reading {
    bool greedy;         // its largest logit decides
    bool cut;            // it is truncated
    bool by_gumbel_max;  // its winner decides
    bool weighed;        // sums are needed, or the largest logit
    float scale;

    template <class Rule, class T, class DraftRows>
    [[nodiscard]] static __device__ row_reading of(verify_task<T, DraftRows> const& task, std::uint32_t r) {
        transform const& how = task.round.requests.targets[r];
        row_reading result{};
        result.greedy = Rule::greedy || how.greedy();
        result.cut = !result.greedy && how.truncates();
        result.by_gumbel_max = Rule::by_gumbel_max && !result.greedy && !result.cut;
        bool const needs_law = !result.by_gumbel_max || task.round.verdicts.log_probabilities != nullptr;
        result.weighed = needs_law && !(result.by_gumbel_max && task.rows.are_normalised(how));
        result.scale = scale_of(how, result.greedy);
        return result;
    }
};

/// A warp's part of a tile.
template <class Rule, class T, class DraftRows>
__device__ __noinline__ void weigh_tile(verify_task<T, DraftRows> const& task, verification_shared& s,
                                        work_item const& item) {
    verification<T, DraftRows> const c{task, s, item.request, 0};
    std::uint32_t const k = item.position;
    row_reading const how = row_reading::of<Rule>(task, item.request);
    T const* const row = c.row(k);
    std::uint32_t const size = c.vocabulary();
    std::uint32_t const part = item.tile * verification_warps + warp_index();
    std::uint32_t const begin = part * warp_blocks<Rule, T>;
    std::uint32_t const end = begin + warp_blocks<Rule, T> < c.blocks() ? begin + warp_blocks<Rule, T> : c.blocks();
    float const rate = rate_of(how.scale);
    if (how.weighed && begin < end) {
        // The next block is on its way while this one is weighed, as it is stored: widened, two would not fit the registers.
        row_lanes<T> logits;
        row_lanes<T> next;
        read_block(row, size, begin, next);
#pragma unroll 1
        for (std::uint32_t b = begin; b < end; ++b) {
            logits = next;
            if (warp_blocks<Rule, T> > 1 && b + 1 < end) read_block(row, size, b + 1, next);
            block_weight const weight = weigh_block(logits, rate);
            if (lane_index() == 0) c.weights(k)[b] = weight;
        }
    }
    if constexpr (Rule::by_gumbel_max) {
        if (!how.by_gumbel_max) return;
        law all{};
        all.scale = how.scale;
        warp_gumbel_max mine{c.noise(k), all};
        token_id const likely = c.token_or_none(k);  // so that there is a time to beat
        if (likely != no_token) mine.expect(likely, load(row[likely]));
        for (std::uint32_t b = begin; b < end; ++b) {
            mine.prepare_block(row, size, b);
            row_lanes<T> logits;
            read_block(row, size, b, logits);
            mine.visit_block(row, b, logits);
        }
        gumbel_winner const result = mine.winner();
        if (lane_index() == 0) c.winners(k)[part] = result;
    }
}

}  // namespace detail
}  // namespace cuda
SURELEAP_END_NAMESPACE

// SPDX-License-Identifier: MIT
//
// The pass over target rows. In: logits. Out: the weight of each block of 1,024 tokens. For Gumbel-max draws also, or
// instead, the winner among the tokens of a segment. The rule and the request's transform decide which.
//
// All blocks of all rows of a batch stand in one line, and each warp has an equal share of it. So warps differ by one
// block, and a request is looked up once or twice a warp. The part of a share that lies in one row is a segment.
//
// A row is read once, at the speed of memory. Nothing here needs its largest logit, so warps do not wait for each
// other. The next block is on its way while one is weighed.
#pragma once

#include <cstdint>
#include <type_traits>

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

/// Blocks of threads on a multiprocessor that read rows. A warp has 2 KiB of two-byte logits in flight, or 4 KiB of
/// floats. That makes 48 or 64 KiB, of which some 36 would do. Edits and races need more registers.
template <class Rule, class Rows>
inline constexpr unsigned weighing_residency =
    sizeof(typename Rows::value_type) == 4 || !std::is_pointer_v<typename Rows::row_type> || Rule::by_gumbel_max ? 2
                                                                                                                 : 3;
inline constexpr unsigned weighing_threads = 256;

/// Blocks begin .. end - 1 of a row.
template <class Row>
struct row_segment {
    Row row;
    std::uint32_t size;
    std::uint32_t begin;
    std::uint32_t end;

    /// WARP collective: f(block, its logits) for all of them. Two places in registers take turns, so that nothing is
    /// copied from one to the other.
    template <class F>
    __device__ __forceinline__ void for_each_block(F const& f) const {
        lanes_of<Row> even;
        lanes_of<Row> odd;
        std::uint32_t b = begin;
        std::uint32_t const whole = end_of_whole_blocks();
        if (b < whole) read_whole_block(row, b, even);
#pragma unroll 1
        while (b < whole) {
            if (b + 1 < whole) read_whole_block(row, b + 1, odd);
            f(b, even);
            if (++b == whole) break;
            if (b + 1 < whole) read_whole_block(row, b + 1, even);
            f(b, odd);
            ++b;
        }
#pragma unroll 1
        for (; b < end; ++b) {
            read_block(row, size, b, even);
            f(b, even);
        }
    }

private:
    [[nodiscard]] __device__ __forceinline__ std::uint32_t end_of_whole_blocks() const {
        if (!is_aligned(row)) return begin;
        std::uint32_t const whole = size / block_tokens;
        return end < whole ? end : whole;
    }
};

/// WARP collective: the weights of the blocks of a segment.
template <class Row>
__device__ __forceinline__ void weigh_segment(row_segment<Row> const& segment, float scale, block_weight* weights) {
    float const rate = rate_of(scale);
    segment.for_each_block([&](std::uint32_t b, lanes_of<Row> const& logits) {
        block_weight const weight = weigh_block(logits, rate);
        if (lane_index() == 0) weights[b] = weight;
    });
}

/// WARP collective: who comes first among the tokens of a segment of row k.
template <class Rows, class DraftRows>
__device__ __noinline__ void race_segment(verification<Rows, DraftRows> const& c, std::uint32_t k,
                                          row_segment<typename Rows::row_type> const& segment, float scale) {
    distribution all{};
    all.scale = scale;
    warp_gumbel_max mine{c.noise(k), all};
    token_id const likely = c.token_or_none(k);  // so that there is a time to beat
    if (likely != no_token) mine.expect(likely, load(segment.row[likely]));
#pragma unroll 1
    for (std::uint32_t b = segment.begin; b < segment.end; ++b) {
        lanes_of<typename Rows::row_type> logits;
        read_block(segment.row, segment.size, b, logits);  // on its way while noise is made
        mine.prepare_block(segment.row, segment.size, b);
        mine.visit_block(segment.row, b, logits);
    }
    gumbel_winner const won = mine.winner();
    gumbel_winner* const winners = c.winners(k);
    for (std::uint32_t b = segment.begin + lane_index(); b < segment.end; b += warp_size) {
        winners[b] = b == segment.begin ? won : gumbel_winner{};
    }
}

/// BLOCK collective of one block: makes ready what those that judge count by.
template <class Rule, class Rows, class DraftRows>
__device__ void prepare_judging(verify_task<Rows, DraftRows> const& task, std::uint32_t requests) {
    auto& cut_requests = shared_memory<std::uint32_t>();
    verify_memory const& memory = task.memory;
    if (threadIdx.x == 0) cut_requests = 0;
    __syncthreads();
    for (std::uint32_t r = threadIdx.x; r < requests; r += blockDim.x) {
        memory.cut_rows[r] = 0;
        memory.settled_at[r] = memory.limits.block_size;
        memory.next_block[r] = memory.blocks();
        if (request_work::of<Rule>(task, r).waits_for_cuts()) memory.cut_requests[atomicAdd(&cut_requests, 1u)] = r;
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
    verify_counters counters{};
    counters.cut_requests = cut_requests;
    counters.undecided = requests;
    *memory.counters = counters;
}

/// Every warp weighs its share of the blocks of all rows, or lets their tokens race.
template <class Rule, class Rows, class DraftRows>
__global__ void __launch_bounds__(weighing_threads, weighing_residency<Rule, Rows>)
    weigh_rows(verify_task<Rows, DraftRows> const __grid_constant__ task) {
    admit_next_kernel();
    verify_memory const& memory = task.memory;
    batch_columns const& batch = task.round.batch;
    std::uint32_t const requests = task.requests();
    if (blockIdx.x == 0) prepare_judging<Rule>(task, requests);
    std::uint32_t const blocks = memory.blocks();
    std::uint64_t const warps = static_cast<std::uint64_t>(gridDim.x) * (weighing_threads / warp_size);
    std::uint64_t const own = static_cast<std::uint64_t>(blockIdx.x) * (weighing_threads / warp_size) + warp_index();
    std::uint64_t const all = static_cast<std::uint64_t>(task.batch_rows()) * blocks;
    auto const end = static_cast<std::uint32_t>(all * (own + 1) / warps);
    auto at = static_cast<std::uint32_t>(all * own / warps);
    while (at < end) {
        std::uint32_t const i = at / blocks;
        std::uint32_t const begin = at - i * blocks;
        std::uint32_t const count = end - at < blocks - begin ? end - at : blocks - begin;
        at += count;
        std::uint32_t const r = batch.markers[i];
        if (r >= requests) continue;
        std::uint32_t const k = i - static_cast<std::uint32_t>(batch.offsets[r]);
        request_work const work = request_work::of<Rule>(task, r);
        if (work.what != work_kind::rows || k > work.length) continue;
        verification<Rows, DraftRows> const c{task, r};
        row_segment<typename Rows::row_type> const segment{c.row(k), c.vocabulary(), begin, begin + count};
        if (work.weighed) weigh_segment(segment, work.scale, c.weights(k));
        if constexpr (Rule::by_gumbel_max) {
            if (work.by_gumbel_max) race_segment(c, k, segment, work.scale);
        }
    }
}

}  // namespace detail
}  // namespace cuda
SURELEAP_END_NAMESPACE

// SPDX-License-Identifier: MIT
//
// The pass over target rows. In: logits. Out: the weight of each block of 1,024 tokens. For Gumbel-max draws also, or
// instead, the winner among the tokens of a segment. The rule and the request's transform decide which. Rows of q whose
// distributions nobody recorded are weighed with them.
//
// All blocks of all rows of a batch stand in one line, and each warp has an equal share of it. So warps differ by one
// block, and a request is looked up once or twice a warp. The part of a share that lies in one row is a segment.
//
// A row is read once, at the speed of memory. Nothing here needs its largest logit, so warps do not wait for each
// other. The next block is on its way while one is weighed.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

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
template <class Rule, class Row>
inline constexpr unsigned weighing_residency =
    !std::is_pointer_v<Row> || sizeof(std::remove_pointer_t<Row>) == 4 || Rule::by_gumbel_max ? 2 : 3;
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

/// WARP collective: who comes first among the tokens of a segment of row i of the target's.
template <class Rows, class DraftRows>
__device__ __noinline__ void race_segment(verify_task<Rows, DraftRows> const& task, std::uint32_t i,
                                          row_segment<typename Rows::row_type> const& segment, float scale) {
    std::uint32_t const r = task.round.batch.markers[i];
    verification<Rows, DraftRows> const c{task, r};
    std::uint32_t const k = i - c.first_row();
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

/// What a warp does with a segment: weighs it, or lets its tokens race.
template <class Row>
struct segment_work {
    row_segment<Row> segment{};
    float scale = 0.0f;
    block_weight* weights = nullptr;  ///< null: it is not weighed
    bool races = false;
};

template <class DraftRows>
using draft_row_type = decltype(std::declval<DraftRows const&>().row(0u, 0u));

/// The rule reads rows of q, and they are stored as those of the target are: one loop weighs both.
template <class Rule, class Rows, class DraftRows>
inline constexpr bool weighs_alike = false;
template <class Rule, class Rows, weighed_draft_rows DraftRows>
inline constexpr bool weighs_alike<Rule, Rows, DraftRows> =
    Rule::corrects && std::is_same_v<draft_row_type<DraftRows>, typename Rows::row_type>;
/// It reads them, and they are stored otherwise.
template <class Rule, class Rows, class DraftRows>
inline constexpr bool weighs_apart =
    Rule::corrects && weighed_draft_rows<DraftRows> && !weighs_alike<Rule, Rows, DraftRows>;

/// Any warp: what is to be done with blocks begin .. end - 1 of row i of the target's.
template <class Rule, class Rows, class DraftRows>
[[nodiscard]] __device__ __forceinline__ segment_work<typename Rows::row_type> work_on_target(
    verify_task<Rows, DraftRows> const& task, std::uint32_t i, std::uint32_t begin, std::uint32_t end) {
    batch_columns const& batch = task.round.batch;
    std::uint32_t const r = batch.markers[i];
    if (r >= task.requests()) return {};
    std::uint32_t const k = i - static_cast<std::uint32_t>(batch.offsets[r]);
    request_work const work = request_work::of<Rule>(task, r);
    if (work.what != work_kind::rows || k > work.length) return {};
    verification<Rows, DraftRows> const c{task, r};
    row_segment<typename Rows::row_type> const segment{c.row(k), c.vocabulary(), begin, end};
    return {segment, work.scale, work.weighed ? c.weights(k) : nullptr, work.by_gumbel_max};
}

/// Any warp: the same of row i of q's, position i % gamma of request i / gamma.
template <class Rows, class DraftRows>
[[nodiscard]] __device__ __forceinline__ auto work_on_draft(verify_task<Rows, DraftRows> const& task, std::uint32_t i,
                                                            std::uint32_t begin, std::uint32_t end) {
    using row_type = draft_row_type<DraftRows>;
    std::uint32_t const r = i / task.memory.limits.block_size;
    std::uint32_t const k = i - r * task.memory.limits.block_size;
    if (k >= task.round.drafts.sizes[r] || !task.drafts.weighs(r)) return segment_work<row_type>{};
    std::size_t const at = static_cast<std::size_t>(i) * task.memory.blocks();
    return segment_work<row_type>{{task.drafts.row(r, k), task.memory.limits.vocabulary, begin, end},
                                  draft_scale(task.round, r),
                                  task.drafts.draft_weights + at,
                                  false};
}

template <class Row>
__device__ __forceinline__ void weigh(segment_work<Row> const& work) {
    if (work.weights != nullptr) weigh_segment(work.segment, work.scale, work.weights);
}

/// Any warp: f(row i, begin, end) for the segments of its share of the blocks of so many rows.
template <class F>
__device__ __forceinline__ void for_each_segment(std::uint32_t rows, std::uint32_t blocks, F const& f) {
    std::uint64_t const warps = static_cast<std::uint64_t>(gridDim.x) * (weighing_threads / warp_size);
    std::uint64_t const own = static_cast<std::uint64_t>(blockIdx.x) * (weighing_threads / warp_size) + warp_index();
    std::uint64_t const all = static_cast<std::uint64_t>(rows) * blocks;
    auto const end = static_cast<std::uint32_t>(all * (own + 1) / warps);
    auto at = static_cast<std::uint32_t>(all * own / warps);
    while (at < end) {
        std::uint32_t const i = at / blocks;
        std::uint32_t const begin = at - i * blocks;
        std::uint32_t const count = end - at < blocks - begin ? end - at : blocks - begin;
        at += count;
        f(i, begin, begin + count);
    }
}

/// Every warp weighs its share of the blocks of all rows, or lets their tokens race.
template <class Rule, class Rows, class DraftRows>
__global__ void __launch_bounds__(weighing_threads, weighing_residency<Rule, typename Rows::row_type>)
    weigh_rows(verify_task<Rows, DraftRows> const __grid_constant__ task) {
    admit_next_kernel();
    if (blockIdx.x == 0) prepare_judging<Rule>(task, task.requests());
    std::uint32_t const targets = task.batch_rows();
    std::uint32_t const blocks = task.memory.blocks();
    if constexpr (weighs_alike<Rule, Rows, DraftRows>) {
        for_each_segment(targets + task.draft_rows(), blocks,
                         [&](std::uint32_t i, std::uint32_t begin, std::uint32_t end) {
                             weigh(i < targets ? work_on_target<Rule>(task, i, begin, end)
                                               : work_on_draft(task, i - targets, begin, end));
                         });
    } else {
        for_each_segment(targets, blocks, [&](std::uint32_t i, std::uint32_t begin, std::uint32_t end) {
            auto const work = work_on_target<Rule>(task, i, begin, end);
            weigh(work);
            if constexpr (Rule::by_gumbel_max) {
                if (work.races) race_segment(task, i, work.segment, work.scale);
            }
        });
    }
}

/// Every warp weighs its share of the blocks of q's rows, where they are not stored as the target's: two loops in one
/// kernel would not stay in registers.
template <class Rule, class Rows, class DraftRows>
__global__ void __launch_bounds__(weighing_threads, weighing_residency<Rule, draft_row_type<DraftRows>>)
    weigh_draft_rows(verify_task<Rows, DraftRows> const __grid_constant__ task) {
    for_each_segment(
        task.draft_rows(), task.memory.blocks(),
        [&](std::uint32_t i, std::uint32_t begin, std::uint32_t end) { weigh(work_on_draft(task, i, begin, end)); });
}

}  // namespace detail
}  // namespace cuda
SURELEAP_END_NAMESPACE

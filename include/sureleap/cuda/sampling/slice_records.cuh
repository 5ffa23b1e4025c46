// SPDX-License-Identifier: MIT
//
// What a rank tells others of the rows of which it has a slice, made on the device (sampling/slice_records.hpp). A rank
// whose logits are on a GPU and one that has them on the host say the same: equal largest logits and winners, and sums
// that differ by the rounding of exponentials, as those of two tables of the host do. Of 256 rows and a slice of 19,000
// tokens 18 KiB leave the device, and not 10 MB.
//
// A block of threads reads each row once. A warp has whole parts, so a part is put together in registers. A race reads
// the row once more, and mostly from the cache.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/distribution.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/storage.cuh>
#include <sureleap/cuda/core/warp.cuh>
#include <sureleap/cuda/sampling/gumbel_max.cuh>
#include <sureleap/cuda/sampling/row.cuh>
#include <sureleap/sampling/draw_key.hpp>
#include <sureleap/sampling/slice_records.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// Rows of a slice, and where their records go: all of it on the device.
template <class T>
struct slice_task {
    logits_rows<T> logits{};            ///< of the slice's tokens
    std::uint32_t first = 0;            ///< the first of them, a multiple of 1,024
    std::uint32_t size = 0;             ///< how many, may be 0
    std::uint32_t part_size = 4096;     ///< that of vocabulary_slices, a multiple of 1,024
    float const* scales = nullptr;      ///< [rows] 1 / temperature, or 1 at temperature 0
    token_id const* drafted = nullptr;  ///< [rows] the token behind the row or no_token; null: of none
    draw_key const* noise = nullptr;    ///< [rows] of their races; null: nobody races
    slice_part* parts = nullptr;        ///< [rows, count_parts()]
    slice_best* best = nullptr;         ///< [rows]
    slice_drafted* numbers = nullptr;   ///< [rows] of what was drafted
    slice_winner* winners = nullptr;    ///< [rows]

    /// vocabulary_slices::parts_of(rank).size()
    [[nodiscard]] SURELEAP_HOST_DEVICE std::uint32_t count_parts() const noexcept {
        return size == 0 ? 0 : (first % part_size + size + part_size - 1) / part_size;
    }
};

namespace detail {

inline constexpr unsigned slice_threads = 256;

struct slice_shared {
    float tops[slice_threads / warp_size];
    std::uint32_t blocks[slice_threads / warp_size];
    gumbel_winner winners[slice_threads / warp_size];
};

/// A sum that blocks are added to, each relative to its own largest logit.
struct part_weight {
    float top = -infinity;
    float sum = 0.0f;  ///< NaN if a logit is NaN or +inf

    __device__ void add(block_weight const& block, float rate) {
        if (block.sum == 0.0f) return;  // masked tokens alone
        bool const above = block.largest > top;
        float const other = above ? top : block.largest;
        if (above) top = block.largest;
        float const factor = quick_exp2(static_cast<float>(reference_of(other, rate) - reference_of(top, rate)));
        sum = above ? sum * factor + block.sum : sum + block.sum * factor;
    }
};
/// 2^reference over 2^(top rate): what weights relative to the rounded reference are off by, which others do not know.
[[nodiscard]] __device__ __forceinline__ double unit_of(float top, float rate) {
    if (is_far(top * rate)) return 1.0;  // then differences come first
    return exp2(reference_of(top, rate) - static_cast<double>(top) * static_cast<double>(rate));
}
/// The weight of a logit as it is in the sum of its part.
[[nodiscard]] __device__ __forceinline__ float weight_beside(float logit, float top, float rate) {
    float const reference = top * rate;
    float const exponent = is_far(reference) ? (logit - top) * rate : fmaf(logit, rate, -reference);
    return static_cast<float>(static_cast<double>(quick_exp2(exponent)) * unit_of(top, rate));
}

/// A slice whose tokens have the names of the whole vocabulary.
template <class T>
struct sliced_row {
    using lanes_type = row_lanes<T>;
    T const* logits;
    std::uint32_t first;
    std::uint32_t size;

    [[nodiscard]] __device__ bool has(std::uint32_t v) const { return v - first < size; }
    template <class Token>
    [[nodiscard]] __device__ float operator[](Token token) const {
        auto const v = static_cast<std::uint32_t>(token);
        return has(v) ? load(logits[v - first]) : -infinity;
    }
};

/// WARP collective: f(block of the slice, its logits) for the blocks of part i.
template <class T, class F>
__device__ __forceinline__ void for_each_block_of_part(slice_task<T> const& task, T const* row, std::uint32_t i,
                                                       F const& f) {
    std::uint32_t const in_part = task.part_size / block_tokens;
    std::uint32_t const before = task.first % task.part_size / block_tokens;  // of the first part, in another slice
    std::uint32_t const begin = i == 0 ? 0 : i * in_part - before;
    std::uint32_t const all = count_blocks(task.size);
    std::uint32_t const end = (i + 1) * in_part - before;
#pragma unroll 1
    for (std::uint32_t b = begin; b < end && b < all; ++b) {
        row_lanes<T> logits;
        read_block(row, task.size, b, logits);
        f(b, logits);
    }
}

/// BLOCK collective: the sums of the row's parts. In shared memory each warp's largest logit and its block, NaN if a
/// logit is none.
template <class T>
__device__ void record_parts(slice_task<T> const& task, std::uint32_t n, slice_shared& shared) {
    float const rate = rate_of(task.scales[n]);
    std::uint32_t const parts = task.count_parts();
    float largest = -infinity;
    std::uint32_t place = 0;
    bool is_law = true;
    for (std::uint32_t i = warp_index(); i < parts; i += slice_threads / warp_size) {
        part_weight part{};
        for_each_block_of_part(task, task.logits.row(n), i, [&](std::uint32_t b, row_lanes<T> const& logits) {
            block_weight const block = weigh_block(logits, rate);
            part.add(block, rate);
            if (block.largest > largest) place = b;
            largest = fmaxf(largest, block.largest);
        });
        bool const is_number = part.sum == part.sum;
        is_law = is_law && is_number;
        if (lane_index() != 0) continue;
        slice_part& out = task.parts[static_cast<std::size_t>(n) * parts + i];
        out.top = is_number ? part.top : nanf("");
        out.sum = is_number && part.sum > 0.0f
                      ? static_cast<float>(static_cast<double>(part.sum) * unit_of(part.top, rate))
                      : 0.0f;
    }
    if (lane_index() == 0) {
        shared.tops[warp_index()] = is_law ? largest : nanf("");
        shared.blocks[warp_index()] = place;
    }
}

/// WARP collective, once all parts are recorded.
template <class T>
__device__ void record_best(slice_task<T> const& task, std::uint32_t n, slice_shared const& shared) {
    constexpr unsigned warps = slice_threads / warp_size;
    bool const is_mine = lane_index() < warps;
    float top = is_mine ? shared.tops[lane_index()] : -infinity;
    std::uint32_t block = is_mine ? shared.blocks[lane_index()] : 0;
    bool const is_law = __any_sync(all_lanes, top != top) == 0;
    first_largest_of_lanes(top, block);
    slice_best best{};
    if (!is_law) {
        best.top = nanf("");
    } else if (top > -infinity) {
        row_lanes<T> logits;
        read_block(task.logits.row(n), task.size, block, logits);
        std::uint32_t place = block_tokens;
#pragma unroll
        for (unsigned i = 0; i < row_lanes<T>::vectors; ++i) {
#pragma unroll
            for (unsigned e = 0; e < row_lanes<T>::together; ++e) {
                std::uint32_t const here = row_lanes<T>::place(i, e);
                if (logits(i, e) == top && here < place) place = here;
            }
        }
        place = reduce_over_lanes(place, [](std::uint32_t a, std::uint32_t b) { return b < a ? b : a; });
        best.top = top;
        best.token = static_cast<token_id>(task.first + block * block_tokens + place);
    }
    if (lane_index() == 0) task.best[n] = best;
}

/// One thread, once all parts are recorded.
template <class T>
__device__ void record_drafted(slice_task<T> const& task, std::uint32_t n) {
    sliced_row<T> const row{task.logits.row(n), task.first, task.size};
    auto const v = static_cast<std::uint32_t>(task.drafted[n]);
    slice_drafted number{};
    if (task.drafted[n] != no_token && row.has(v)) {
        number.logit = row[v];
        std::uint32_t const i = v / task.part_size - task.first / task.part_size;
        float const top = task.parts[static_cast<std::size_t>(n) * task.count_parts() + i].top;
        if (fabsf(top) < infinity) number.weight = weight_beside(number.logit, top, rate_of(task.scales[n]));
    }
    task.numbers[n] = number;
}

/// BLOCK collective: the winner of the row's race.
template <class T>
__device__ void record_winner(slice_task<T> const& task, std::uint32_t n, slice_shared& shared) {
    sliced_row<T> const row{task.logits.row(n), task.first, task.size};
    distribution all{};
    all.scale = task.scales[n];
    warp_gumbel_max mine{task.noise[n], all};
    if (task.drafted != nullptr && task.drafted[n] != no_token && row.has(static_cast<std::uint32_t>(task.drafted[n])))
        mine.expect(task.drafted[n], row[task.drafted[n]]);  // likely, so that there is a time to beat
    std::uint32_t const before = task.first / block_tokens;
    for (std::uint32_t i = warp_index(); i < task.count_parts(); i += slice_threads / warp_size) {
        for_each_block_of_part(task, row.logits, i, [&](std::uint32_t b, row_lanes<T> const& logits) {
            mine.prepare_block(row, task.first + task.size, before + b);
            mine.visit_block(row, before + b, logits);
        });
    }
    gumbel_winner const own = mine.winner();
    if (lane_index() == 0) shared.winners[warp_index()] = own;
    __syncthreads();
    if (warp_index() != 0) return;
    gumbel_winner const first = first_of(shared.winners, slice_threads / warp_size);
    if (lane_index() != 0) return;
    slice_winner won{};
    won.log_time = first.invalid != 0 ? nan("") : first.log_time;
    won.token = first.invalid != 0 ? no_token : first.token;
    task.winners[n] = won;
}

template <class T>
__global__ void __launch_bounds__(slice_threads) record_slices(slice_task<T> const __grid_constant__ task) {
    auto& shared = shared_memory<slice_shared>();
    std::uint32_t const n = blockIdx.x;
    record_parts(task, n, shared);
    __syncthreads();
    if (warp_index() == 0) record_best(task, n, shared);
    if (threadIdx.x == slice_threads - 1 && task.drafted != nullptr) record_drafted(task, n);
    if (task.noise != nullptr) record_winner(task, n, shared);
}

}  // namespace detail

/// Writes the records of all rows; of their winners and drafted tokens where those are asked for. One pass over the
/// slice, two with races.
template <class T>
[[nodiscard]] cudaError_t record_slices(slice_task<T> const& task, cudaStream_t stream) noexcept {
    bool const is_cut_well = task.part_size > 0 && task.part_size % block_tokens == 0 && task.first % block_tokens == 0;
    bool const has_rows = task.size == 0 || (task.logits.data != nullptr && task.logits.stride >= task.size);
    bool const has_room = task.scales != nullptr && task.best != nullptr && (task.parts != nullptr || task.size == 0) &&
                          (task.drafted == nullptr || task.numbers != nullptr) &&
                          (task.noise == nullptr || task.winners != nullptr);
    if (!is_cut_well || !has_rows || !has_room) return cudaErrorInvalidValue;
    if (task.logits.rows == 0) return cudaSuccess;
    return launch(detail::record_slices<T>, task.logits.rows, detail::slice_threads, sizeof(detail::slice_shared),
                  stream, task);
}

}  // namespace cuda
SURELEAP_END_NAMESPACE

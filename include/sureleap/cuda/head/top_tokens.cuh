// SPDX-License-Identifier: MIT
//
// The best tokens of rows of logits, by (logit descending, id ascending), as lists of ascending ids. A shortlist is
// made of them before its chain begins. One launch serves all requests and positions, with one block a row.
//
// A row is mostly read once. A sample of it gives a logit that the best ones will exceed. The pass collects what is
// above that in shared memory, where the choice is made by digits of the logits (radix selection). That fails if the
// sample misled or if too many tokens are wanted. Then the same selection is made on the row itself, in four passes and
// one that writes. Both give the same list. Rejected: sorting, which does far more than is asked; a threshold from the
// round before, which would make lists depend on the past.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/linear.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/storage.cuh>
#include <sureleap/cuda/core/warp.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// Lists of rows: those of row i are tokens[i * capacity ..], counts[i] of them.
struct token_lists {
    token_id* tokens = nullptr;       ///< [R gamma, capacity], ascending
    std::uint32_t* counts = nullptr;  ///< [R gamma]
    std::uint32_t capacity = 0;

    [[nodiscard]] static token_lists take(workspace& ws, device_limits const& limits, std::uint32_t capacity) noexcept {
        std::size_t const rows = std::size_t{limits.requests} * limits.block_size;
        return {ws.take<token_id>(rows * capacity), ws.take<std::uint32_t>(rows), capacity};
    }
};

namespace detail {

/// Where to look for the best tokens of a row; a function of sizes alone.
struct best_tokens_plan {
    static constexpr std::uint32_t capacity = 4096;  ///< candidates that fit shared memory
    static constexpr std::uint32_t sampled = 128;    ///< one of so many logits is sampled
    static constexpr std::uint32_t most_samples = 2048;
    static constexpr std::uint32_t line = 16;  ///< samples that are neighbours, which cost one look at memory

    std::uint32_t samples = 0;  ///< a multiple of line; 0: the row fits as it is, or there is no fast way
    std::uint32_t rank = 0;     ///< the sample that so many others exceed is the threshold
    bool collects = false;      ///< there is a fast way

    static best_tokens_plan of(std::uint32_t best, std::uint32_t vocabulary) noexcept {
        if (vocabulary <= capacity) return {0, 0, true};
        std::uint32_t samples = vocabulary / sampled < most_samples ? vocabulary / sampled : most_samples;
        samples = samples / line * line;
        // So many samples are among the best on average; a little more are asked for, since too few cost passes.
        double const expected = static_cast<double>(best) * samples / vocabulary;
        double const rank = std::floor(expected + 3.0 * std::sqrt(expected) + 2.0);
        double const candidates = (rank + 1.0 + 3.0 * std::sqrt(rank + 1.0)) * vocabulary / samples;
        if (!(rank < samples) || !(candidates <= capacity)) return {};
        return {samples, static_cast<std::uint32_t>(rank), true};
    }
};

/// Logits as integers in the same order. 0 is that of NaN alone; zeros are one number.
[[nodiscard]] __device__ __forceinline__ std::uint32_t order_key(float logit) {
    if (!(logit == logit)) return 0;
    std::uint32_t const bits = __float_as_uint(logit + 0.0f);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
/// The logit of a key or, of keys that no logit has, -inf.
[[nodiscard]] __device__ __forceinline__ float logit_of(std::uint32_t key) {
    float const logit = __uint_as_float(key & 0x80000000u ? key ^ 0x80000000u : ~key);
    return logit == logit ? logit : -infinity;
}

inline constexpr unsigned best_tokens_threads = 512;

struct best_tokens_shared {
    std::uint32_t keys[best_tokens_plan::capacity];  ///< of candidates; of samples before
    std::uint32_t ids[best_tokens_plan::capacity];
    std::uint32_t kept[best_tokens_plan::capacity];
    std::uint32_t histogram[256];
    std::uint32_t warp_counts[best_tokens_threads / warp_size];
    std::uint32_t count;
    std::uint32_t digit;
    std::uint32_t before;
};

/// visit(id, logit) for every logit of a row, divided among the threads of the block, in no order. Rows may begin
/// anywhere; all but a few logits at their ends are read 16 bytes at a time, 64 a thread before the first is used.
template <class T, class Visit>
__device__ __forceinline__ void for_each_logit(T const* row, std::uint32_t size, Visit const& visit) {
    constexpr unsigned depth = 8 / sizeof(T);
    std::uintptr_t const misaligned = reinterpret_cast<std::uintptr_t>(row) % sizeof(uint4);
    auto head = static_cast<std::uint32_t>(misaligned == 0 ? 0 : (sizeof(uint4) - misaligned) / sizeof(T));
    if (head > size) head = size;
    std::uint32_t const end = head + (size - head) / load_width * load_width;
    std::uint32_t const step = blockDim.x * load_width;
    for (std::uint32_t first = head + threadIdx.x * load_width; first < end; first += depth * step) {
        wide_load<T> some[depth];
#pragma unroll
        for (unsigned d = 0; d < depth; ++d) {
            if (first + d * step < end) some[d].read(row + first + d * step);
        }
#pragma unroll
        for (unsigned d = 0; d < depth; ++d) {
            if (first + d * step >= end) break;
            float logits[load_width];
            some[d].widen(logits);
#pragma unroll
            for (unsigned e = 0; e < load_width; ++e) visit(first + d * step + e, logits[e]);
        }
    }
    for (std::uint32_t v = threadIdx.x; v < head; v += blockDim.x) visit(v, widen(row[v]));
    for (std::uint32_t v = end + threadIdx.x; v < size; v += blockDim.x) visit(v, widen(row[v]));
}

/// A key, and how many are larger.
struct ranked_key {
    std::uint32_t key;
    std::uint32_t larger;
};

/// The key that `rank` others precede in descending order, with only its first `digits` bytes (the rest 0).
/// for_each(visit) visits all keys, more than `rank` of them, divided among the threads. BLOCK collective, with
/// barriers before and behind.
template <class ForEach>
__device__ ranked_key nth_largest(ForEach const& for_each, std::uint32_t rank, unsigned digits, best_tokens_shared& s) {
    ranked_key found{0, 0};
    std::uint32_t known = 0;  // mask of the digits that are
    for (unsigned d = 0; d < digits; ++d) {
        unsigned const shift = 24 - 8 * d;
        for (unsigned i = threadIdx.x; i < 256; i += blockDim.x) s.histogram[i] = 0;
        __syncthreads();
        for_each([&](std::uint32_t key) {
            if ((key & known) == found.key) atomicAdd(&s.histogram[(key >> shift) & 255u], 1u);
        });
        __syncthreads();
        if (warp_index() == 0) {  // lane l has digits 255 - 8 l, and the seven below
            std::uint32_t const top = 255 - 8 * lane_index();
            std::uint32_t here = 0;
            for (unsigned i = 0; i < 8; ++i) here += s.histogram[top - i];
            std::uint32_t const upto = sum_up_to_lane(here);
            std::uint32_t before = upto - here;
            if (before <= rank && rank < upto) {
                std::uint32_t digit = top;
                while (before + s.histogram[digit] <= rank) before += s.histogram[digit--];
                s.digit = digit;
                s.before = before;
            }
        }
        __syncthreads();
        found.key |= s.digit << shift;
        found.larger += s.before;
        rank -= s.before;
        known |= 255u << shift;
    }
    return found;
}

/// Sorts by a bitonic network, in memory for the next power of two. BLOCK collective, with barriers before and behind.
__device__ inline void sort_ascending(std::uint32_t* values, std::uint32_t count) {
    std::uint32_t size = 1;
    while (size < count) size *= 2;
    for (std::uint32_t i = count + threadIdx.x; i < size; i += blockDim.x) values[i] = 0xffffffffu;
    for (std::uint32_t run = 2; run <= size; run *= 2) {
        for (std::uint32_t apart = run / 2; apart > 0; apart /= 2) {
            __syncthreads();
            for (std::uint32_t pair = threadIdx.x; pair < size / 2; pair += blockDim.x) {
                std::uint32_t const low = 2 * pair - (pair & (apart - 1));
                std::uint32_t const a = values[low];
                std::uint32_t const b = values[low + apart];
                if ((a > b) == ((low & run) == 0)) {
                    values[low] = b;
                    values[low + apart] = a;
                }
            }
        }
    }
    __syncthreads();
}

/// How many threads of the block before this one say yes, and those that were counted before; counts them all. BLOCK
/// collective with two barriers.
__device__ __forceinline__ std::uint32_t count_before(bool yes, std::uint32_t* warp_counts, std::uint32_t& counted) {
    unsigned const votes = __ballot_sync(all_lanes, yes);
    __syncthreads();
    if (lane_index() == 0) warp_counts[warp_index()] = static_cast<std::uint32_t>(__popc(votes));
    __syncthreads();
    std::uint32_t before = counted + static_cast<std::uint32_t>(__popc(votes & ((1u << lane_index()) - 1)));
    for (unsigned w = 0; w < blockDim.x / warp_size; ++w) {
        if (w < warp_index()) before += warp_counts[w];
        counted += warp_counts[w];
    }
    return before;
}

/// The fast way: false if it came to nothing, and then nothing is written.
template <class T>
__device__ bool collect_best(T const* row, std::uint32_t size, std::uint32_t best, best_tokens_plan const& plan,
                             token_id* out, std::uint32_t& count, best_tokens_shared& s) {
    float threshold = -infinity;
    if (plan.samples > 0) {
        std::uint32_t const apart = size / (plan.samples / plan.line);
        for (std::uint32_t i = threadIdx.x; i < plan.samples; i += blockDim.x) {
            s.keys[i] = order_key(widen(row[i / plan.line * apart + i % plan.line]));
        }
        auto const samples = [&](auto const& visit) {
            for (std::uint32_t i = threadIdx.x; i < plan.samples; i += blockDim.x) visit(s.keys[i]);
        };
        threshold = logit_of(nth_largest(samples, plan.rank, 2, s).key);  // two digits are near enough
    }
    if (threadIdx.x == 0) s.count = 0;
    __syncthreads();
    for_each_logit(row, size, [&](std::uint32_t id, float logit) {
        if (!(logit >= threshold)) return;
        std::uint32_t const i = atomicAdd(&s.count, 1u);
        if (i >= plan.capacity) return;
        s.keys[i] = order_key(logit);
        s.ids[i] = id;
    });
    __syncthreads();
    std::uint32_t const candidates = s.count;
    if (candidates > plan.capacity || (candidates < best && threshold > -infinity)) return false;

    // The last one that stays, and how many of its equals do: those of the lowest ids.
    ranked_key last{0, candidates};
    count = candidates;
    if (candidates > best) {
        auto const keys = [&](auto const& visit) {
            for (std::uint32_t i = threadIdx.x; i < candidates; i += blockDim.x) visit(s.keys[i]);
        };
        last = nth_largest(keys, best - 1, 4, s);
        count = best;
    }
    auto const keep = [&](auto const& which) {
        for (std::uint32_t i = threadIdx.x; i < candidates; i += blockDim.x) {
            if (which(s.keys[i])) s.kept[atomicAdd(&s.count, 1u)] = s.ids[i];
        }
        __syncthreads();
    };
    __syncthreads();
    if (threadIdx.x == 0) s.count = 0;
    __syncthreads();
    keep([&](std::uint32_t key) { return key == last.key; });
    if (s.count > count - last.larger) sort_ascending(s.kept, s.count);
    __syncthreads();
    if (threadIdx.x == 0) s.count = count - last.larger;
    __syncthreads();
    keep([&](std::uint32_t key) { return key > last.key; });
    sort_ascending(s.kept, count);
    for (std::uint32_t i = threadIdx.x; i < count; i += blockDim.x) out[i] = static_cast<token_id>(s.kept[i]);
    return true;
}

/// The other way, which always works.
template <class T>
__device__ void select_best(T const* row, std::uint32_t size, std::uint32_t best, token_id* out, std::uint32_t& count,
                            best_tokens_shared& s) {
    ranked_key last{0, 0};  // of NaN: every number stays
    if (size > best) {
        auto const keys = [&](auto const& visit) {
            for_each_logit(row, size, [&](std::uint32_t, float logit) { visit(order_key(logit)); });
        };
        last = nth_largest(keys, best - 1, 4, s);
    }
    std::uint32_t const ties = last.key == 0 ? 0 : best - last.larger;
    std::uint32_t larger = 0;
    std::uint32_t equal = 0;
    for (std::uint32_t first = 0; first < size; first += blockDim.x) {
        std::uint32_t const v = first + threadIdx.x;
        std::uint32_t const key = v < size ? order_key(widen(row[v])) : 0;
        std::uint32_t const larger_before = count_before(key > last.key, s.warp_counts, larger);
        std::uint32_t const equal_before = count_before(key == last.key, s.warp_counts, equal);
        std::uint32_t const place = larger_before + (equal_before < ties ? equal_before : ties);
        if (key > last.key || (key == last.key && equal_before < ties)) out[place] = static_cast<token_id>(v);
    }
    count = larger + (equal < ties ? equal : ties);
}

template <class T>
__global__ void __launch_bounds__(best_tokens_threads)
    best_tokens_kernel(T const* logits, std::size_t stride, std::uint32_t vocabulary, std::uint32_t best,
                       best_tokens_plan plan, device_round round, token_lists lists) {
    std::uint32_t const r = blockIdx.x / round.limits.block_size;
    std::uint32_t const k = blockIdx.x % round.limits.block_size;
    if (r >= *round.requests.count || k >= round.requests.draft_cap(r, round.limits.block_size)) return;
    auto& s = shared_memory<best_tokens_shared>();
    T const* const row = logits + blockIdx.x * stride;
    token_id* const out = lists.tokens + std::size_t{blockIdx.x} * lists.capacity;
    std::uint32_t count = 0;
    if (!plan.collects || !collect_best(row, vocabulary, best, plan, out, count, s)) {
        select_best(row, vocabulary, best, out, count, s);
    }
    if (threadIdx.x == 0) lists.counts[blockIdx.x] = count;
}

}  // namespace detail

/// Writes the `best` tokens of every row of `logits` [R * gamma, V] that a request may draft from into `lists`. Their
/// capacity is at least min(best, V). NaN is never among them; -inf is where there is nothing better. T: float, bf16 or
/// half, in rows of any alignment.
template <class T>
[[nodiscard]] cudaError_t best_tokens(matrix_view<T> const& logits, std::uint32_t best, device_round const& round,
                                      token_lists const& lists, cudaStream_t stream) noexcept {
    static_assert(is_device_storage_v<T>, "best_tokens: logits must be float, sureleap::bf16 or sureleap::half");
    if (!round.ready() || logits.data == nullptr || logits.cols == 0 || logits.cols > 0x7fffffffu ||
        logits.stride < logits.cols || best == 0 || lists.tokens == nullptr || lists.counts == nullptr) {
        return cudaErrorInvalidValue;
    }
    auto const vocabulary = static_cast<std::uint32_t>(logits.cols);
    std::uint32_t const most = best < vocabulary ? best : vocabulary;
    std::uint32_t const rows = round.limits.requests * round.limits.block_size;
    if (lists.capacity < most || logits.rows < rows) return cudaErrorInvalidValue;
    return launch(detail::best_tokens_kernel<T>, dim3(rows), dim3(detail::best_tokens_threads),
                  sizeof(detail::best_tokens_shared), stream, logits.data, logits.stride, vocabulary, most,
                  detail::best_tokens_plan::of(most, vocabulary), round, lists);
}

}  // namespace cuda
SURELEAP_END_NAMESPACE

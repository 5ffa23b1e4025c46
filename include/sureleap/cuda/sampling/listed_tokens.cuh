// SPDX-License-Identifier: MIT
//
// Lists and histograms of the tokens between two keys of a row (ordered_row.cuh), by a block of threads. In: a range
// of keys. Out: its tokens sorted, if they are 1,024 at most, or their number and mass in 1,024 bins of the range; and
// where a sum of either reaches a target.
//
// Each takes one visit of the range. The sort is a bitonic network, O(log^2 n) steps for n tokens.
#pragma once

#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/sampling/ordered_row.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {
namespace detail {

/// What a search counts.
enum class token_measure : unsigned { count, mass };

/// Where a sum reaches a target.
struct reached_sum {
    unsigned index;             ///< of the first that reaches the target, or how many there are
    unsigned long long before;  ///< the sum of those before it
};

/// A WARP collective: where `before` + of(0) + of(1) ... reaches the target.
template <class Of>
[[nodiscard]] __device__ reached_sum reach(unsigned count, unsigned long long before, double target, Of const& of) {
    for (unsigned first = 0; first < count; first += warp_size) {
        unsigned const i = first + lane_index();
        unsigned long long const mine = i < count ? of(i) : 0;
        unsigned long long upto = before + mine;
#pragma unroll 1
        for (unsigned distance = 1; distance < warp_size; distance *= 2) {
            unsigned long long const other = __shfl_up_sync(all_lanes, upto, distance);
            if (lane_index() >= distance) upto += other - before;
        }
        unsigned const there = __ballot_sync(all_lanes, i < count && static_cast<double>(upto) >= target);
        if (there != 0) {
            int const lane = __ffs(static_cast<int>(there)) - 1;
            return {first + static_cast<unsigned>(lane), __shfl_sync(all_lanes, upto - mine, lane)};
        }
        before = __shfl_sync(all_lanes, upto, warp_size - 1);
    }
    return {count, before};
}

/// The list of a row and its histogram, one after the other in the same memory. All members are BLOCK collectives
/// unless they are marked otherwise. The row is told to each: an object that pointed to its neighbour could not stay in
/// registers.
template <class Row>
class listed_tokens {
public:
    using key_type = unsigned long long;

    explicit __device__ listed_tokens(truncate_shared& s) : s_(s) {}

    /// Lists the tokens in [begin, stop), sorted; returns how many there are, and if that is more than fit, there is no
    /// list.
    [[nodiscard]] __device__ unsigned list(ordered_row<Row> const& row, key_type begin, key_type stop) {
        __syncthreads();  // no mutant: between two lists something has a barrier, by chance
        if (threadIdx.x == 0) s_.listed = 0;
        __syncthreads();
        row.visit(begin, stop, [this](key_type key, float) {
            unsigned const place = atomicAdd(&s_.listed, 1u);
            if (place < truncate_shared::capacity) s_.keys[place] = key;
        });
        __syncthreads();
        unsigned const count = s_.listed;
        if (count <= truncate_shared::capacity) sort(count);
        return count;
    }
    /// Bins of 2^shift keys from `begin` on.
    __device__ void count_bins(ordered_row<Row> const& row, token_measure what, key_type begin, key_type stop,
                               unsigned shift) {
        __syncthreads();
#pragma unroll 1
        for (unsigned i = threadIdx.x; i < truncate_shared::capacity; i += blockDim.x) {
            s_.counts[i] = 0;
            s_.masses[i] = 0;
        }
        __syncthreads();
        row.visit(begin, stop, [&](key_type key, float logit) {
            auto const bin = static_cast<unsigned>((key - begin) >> shift);
            atomicAdd(&s_.counts[bin], 1u);
            if (what == token_measure::mass) {
                atomicAdd(&s_.masses[bin], static_cast<key_type>(row.weight(logit) * row.unit()));
            }
        });
        __syncthreads();
    }

    // ---- of any thread, when they are made ---------------------------------------------------------------------

    [[nodiscard]] __device__ key_type key(unsigned i) const { return s_.keys[i]; }
    [[nodiscard]] __device__ unsigned tokens_of_bin(unsigned i) const { return s_.counts[i]; }
    [[nodiscard]] __device__ key_type of_bin(token_measure what, unsigned i) const {
        return what == token_measure::count ? key_type{s_.counts[i]} : s_.masses[i];
    }

private:
    /// A bitonic network over the next power of two.
    __device__ void sort(unsigned count) {
        unsigned padded = 2;
        while (padded < count) padded *= 2;
#pragma unroll 1
        for (unsigned i = count + threadIdx.x; i < padded; i += blockDim.x) s_.keys[i] = ~key_type{0};
        for (unsigned run = 2; run <= padded; run *= 2) {
            for (unsigned distance = run / 2; distance > 0; distance /= 2) {
                __syncthreads();
#pragma unroll 1
                for (unsigned pair = threadIdx.x; pair < padded / 2; pair += blockDim.x) {
                    unsigned const low = pair / distance * 2 * distance + pair % distance;
                    key_type const a = s_.keys[low];
                    key_type const b = s_.keys[low + distance];
                    if ((a > b) != ((low & run) != 0)) {
                        s_.keys[low] = b;
                        s_.keys[low + distance] = a;
                    }
                }
            }
        }
        __syncthreads();
    }

    truncate_shared& s_;
};

}  // namespace detail
}  // namespace cuda
SURELEAP_END_NAMESPACE

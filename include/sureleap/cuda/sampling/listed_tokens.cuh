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
    [[nodiscard]] __device__ __noinline__ unsigned list(ordered_row<Row> const& row, key_type begin, key_type stop) {
        __syncthreads();  // no mutant: between two lists something has a barrier, by chance
        if (threadIdx.x == 0) {
            s_.listed = 0;
            s_.last = 0;
        }
        __syncthreads();
        visit(row, {holding::list, token_measure::count, begin, stop, 0});
        __syncthreads();
        unsigned const count = s_.listed;
        if (count <= truncate_shared::capacity) sort(count);
        return count;
    }
    /// Numbers or masses of the tokens in [begin, stop) by bins of the range; returns the logarithm of a bin's size.
    __device__ __noinline__ unsigned count_bins(ordered_row<Row> const& row, token_measure what, key_type begin,
                                                key_type stop) {
        unsigned shift = 0;
#pragma unroll 1
        while ((stop - 1 - begin) >> shift >= truncate_shared::capacity) ++shift;
        __syncthreads();
#pragma unroll 1
        for (unsigned i = threadIdx.x; i < truncate_shared::capacity; i += blockDim.x) {
            s_.counts[i] = 0;
            s_.masses[i] = 0;
        }
        __syncthreads();
        visit(row, {holding::bins, what, begin, stop, shift});
        __syncthreads();
        return shift;
    }

    // ---- of any warp, when they are made -----------------------------------------------------------------------

    /// Where `before` and the measures of the first `count` listed tokens reach the target.
    [[nodiscard]] __device__ reached_sum reach_in_list(ordered_row<Row> const& row, token_measure what, unsigned count,
                                                       key_type before, double target) const {
        return reach(row, holding::list, what, count, before, target);
    }
    /// The same of the bins.
    [[nodiscard]] __device__ reached_sum reach_in_bins(ordered_row<Row> const& row, token_measure what, key_type before,
                                                       double target) const {
        return reach(row, holding::bins, what, truncate_shared::capacity, before, target);
    }

    // ---- of any thread, when they are made ---------------------------------------------------------------------

    [[nodiscard]] __device__ key_type key(unsigned i) const { return s_.keys[i]; }
    /// The last of the tokens in the range of the list, even if there is no list.
    [[nodiscard]] __device__ key_type last() const { return s_.last; }
    [[nodiscard]] __device__ unsigned tokens_of_bin(unsigned i) const { return s_.counts[i]; }
    [[nodiscard]] __device__ key_type of_bin(token_measure what, unsigned i) const {
        return what == token_measure::count ? key_type{s_.counts[i]} : s_.masses[i];
    }

private:
    /// What the memory is used as.
    enum class holding : unsigned { list, bins };
    struct visit_task {
        holding as;
        token_measure what;
        key_type begin;
        key_type stop;
        unsigned shift;
    };

    /// One copy of a visit is large enough.
    __device__ __noinline__ void visit(ordered_row<Row> const& row, visit_task const& task) {
        row.visit(task.begin, task.stop, [&](key_type key, float logit) {
            if (task.as == holding::list) {
                unsigned const place = atomicAdd(&s_.listed, 1u);
                if (place < truncate_shared::capacity) s_.keys[place] = key;
                atomicMax(&s_.last, key);
                return;
            }
            auto const bin = static_cast<unsigned>((key - task.begin) >> task.shift);
            atomicAdd(&s_.counts[bin], 1u);
            if (task.what == token_measure::mass) atomicAdd(&s_.masses[bin], row.mass_at(logit));
        });
    }

    [[nodiscard]] __device__ __noinline__ reached_sum reach(ordered_row<Row> const& row, holding as, token_measure what,
                                                            unsigned count, key_type before, double target) const {
#pragma unroll 1
        for (unsigned first = 0; first < count; first += warp_size) {
            unsigned const i = first + lane_index();
            key_type mine = 0;
            if (i < count && as == holding::bins) mine = of_bin(what, i);
            if (i < count && as == holding::list) {
                mine = what == token_measure::count ? 1 : row.mass_at(row.order().logit(key(i)));
            }
            key_type upto = before + mine;
#pragma unroll 1
            for (unsigned distance = 1; distance < warp_size; distance *= 2) {
                key_type const other = __shfl_up_sync(all_lanes, upto, distance);
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

    /// A bitonic network over the next power of two.
    __device__ void sort(unsigned count) {
        unsigned padded = 2;
#pragma unroll 1
        while (padded < count) padded *= 2;
#pragma unroll 1
        for (unsigned i = count + threadIdx.x; i < padded; i += blockDim.x) s_.keys[i] = ~key_type{0};
#pragma unroll 1
        for (unsigned run = 2; run <= padded; run *= 2) {
#pragma unroll 1
            for (unsigned distance = run / 2; distance > 0; distance /= 2) {
                __syncthreads();
#pragma unroll 1
                for (unsigned pair = threadIdx.x; pair < padded / 2; pair += blockDim.x) {
                    unsigned const low = 2 * pair - (pair & (distance - 1));
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

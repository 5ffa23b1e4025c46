// SPDX-License-Identifier: MIT
//
// Candidates in the order of admission (schedule/survival.hpp: survival descending, position ascending, request
// ascending), by one block of threads.
//
// What a schedule decides depends on survivals alone: candidates that tie have the same one. So survivals are sorted
// without the places they come from. A schedule ends at the candidate of rank n with a survival of a. Lengths follow
// from (n, a) in one pass (lengths.cuh).
//
// All prefixes are looked at together: each thread sums its own 8 candidates, a scan tells it what comes before. A
// table with more candidates than a block can sort is refused (device_limits::sortable).
//
// Rejected: larger tables, by classes of survivals of which only those are sorted where a schedule may stop. Each
// schedule would need a proof that it goes through all of a class, which was twice the code.
#pragma once

#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/block_scan.cuh>
#include <sureleap/cuda/core/block_sort.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/cost/capacity.cuh>
#include <sureleap/cuda/schedule/candidates.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// Where a schedule ended: it took `count` candidates, all with keys below `last_key` and as many of those with that
/// one as are missing to `count`.
struct admission_end {
    std::uint32_t count = 0;
    std::uint32_t last_key = 0;
};

/// Candidates in order: the next 8 of each thread. All members are BLOCK collectives.
class sorted_candidates {
public:
    __device__ sorted_candidates(candidate_table const& table, admission_shared& s) : table_(table), s_(s) {
        table.load_keys(key_);
        sort_over_block(key_, table.places(), s.sort);
    }

    /// visit(n, theta) for the prefix before this thread's candidates, if it has any, and for those with each of them,
    /// in order; n candidates each.
    template <class Visit>
    __device__ void for_own_prefixes(double const* steps_per_second, Visit const& visit) const {
        std::uint32_t const first = keys_each * threadIdx.x;
        std::uint32_t const size = table_.candidates();
        std::uint64_t mine = 0;
#pragma unroll
        for (unsigned e = 0; e < keys_each; ++e) mine += first + e < size ? certain - key_[e] : 0;
        device_step step = table_.without_drafts();
        step.accepts += sum_over_block(mine, s_.block).before;
        step.batch_tokens += first;
        if (first >= size) return;
        visit(first, step.throughput(steps_per_second));
#pragma unroll
        for (unsigned e = 0; e < keys_each; ++e) {
            if (first + e >= size) return;
            step.accepts += certain - key_[e];
            ++step.batch_tokens;
            visit(first + e + 1, step.throughput(steps_per_second));
        }
    }

    /// Where a schedule ends that takes the first `count`.
    [[nodiscard]] __device__ admission_end end_behind(std::uint32_t count) const {
        if (count == 0) return {};
#pragma unroll
        for (unsigned e = 0; e < keys_each; ++e) {
            if (keys_each * threadIdx.x + e + 1 == count) s_.last_key = key_[e];
        }
        __syncthreads();
        return {count, s_.last_key};
    }

private:
    candidate_table const& table_;
    admission_shared& s_;
    std::uint32_t key_[keys_each];
};

}  // namespace cuda
SURELEAP_END_NAMESPACE

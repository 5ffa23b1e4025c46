// SPDX-License-Identifier: MIT
//
// A table of survivals as one block of threads reads it: each thread has 8 neighbouring places, 16 bytes a load.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/block_scan.cuh>
#include <sureleap/cuda/core/block_sort.cuh>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/survivals.cuh>
#include <sureleap/cuda/cost/capacity.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

static_assert(device_limits::most_candidates == most_keys);

/// Shared memory of a walk and of the lengths after it.
struct admission_shared {
    struct admitted_places {
        std::uint32_t of_request[device_limits::most_requests];
        std::uint32_t ties_at[device_limits::longest_block];  // by position
    };

    block_shared block;
    std::uint32_t last_key;
    union {  // one after the other
        sort_shared sort;
        admitted_places admitted;
    };
};

/// Threads for the places of the largest table.
[[nodiscard]] inline unsigned admission_threads(device_limits const& limits) noexcept {
    unsigned threads = 4 * warp_size;
    while (threads * keys_each < limits.requests * limits.block_size) threads *= 2;
    return threads;
}

/// A count and a sum in one word: sums of both by one scan. A round has at most 2^13 candidates, and weights of at most
/// 2^13 times 2^24.
struct tally {
    static constexpr unsigned shift = 44;

    std::uint64_t word = 0;

    [[nodiscard]] static __device__ tally of(std::uint32_t count, std::uint64_t sum) {
        return {(std::uint64_t{count} << shift) + sum};
    }
    [[nodiscard]] __device__ std::uint32_t count() const { return static_cast<std::uint32_t>(word >> shift); }
    [[nodiscard]] __device__ std::uint64_t sum() const { return word & ((std::uint64_t{1} << shift) - 1); }
};

/// A table as a block of admission_threads(limits) threads reads it.
class candidate_table {
public:
    /// BLOCK collective.
    __device__ candidate_table(device_round const& round, survival_columns const& columns, block_shared& s)
        : columns_(columns),
          block_size_(round.limits.block_size),
          requests_(*round.requests.count < round.limits.requests ? *round.requests.count : round.limits.requests) {
        tally mine{};
        for (std::uint32_t r = threadIdx.x; r < requests_; r += blockDim.x) {
            std::uint32_t const size = columns.sizes[r] < block_size_ ? columns.sizes[r] : block_size_;
            mine.word += tally::of(size, round.requests.weights[r]).word;
        }
        tally const all{sum_over_block(mine.word, s).total};
        candidates_ = all.count();
        weight_ = all.sum() > 0 ? all.sum() : std::uint64_t{requests_} * certain;
    }

    [[nodiscard]] __device__ std::uint32_t requests() const { return requests_; }
    /// In use, of places() that there are.
    [[nodiscard]] __device__ std::uint32_t candidates() const { return candidates_; }
    [[nodiscard]] __device__ std::uint32_t places() const { return requests_ * block_size_; }
    /// The first prefix: anchors alone.
    [[nodiscard]] __device__ device_step without_drafts() const { return {weight_, requests_}; }

    /// visit(e, r, k): the e-th place of this thread is that of position k of request r, which may not exist.
    template <class Visit>
    __device__ void for_own_places(Visit const& visit) const {
        std::uint32_t r = keys_each * threadIdx.x / block_size_;
        std::uint32_t k = keys_each * threadIdx.x % block_size_;
#pragma unroll
        for (unsigned e = 0; e < keys_each; ++e) {
            visit(e, r, k);
            if (++k < block_size_) continue;
            k = 0;
            ++r;
        }
    }

    /// The keys of this thread's places, what they lack to certainty: they ascend as survivals fall. no_key where none
    /// is used.
    __device__ void load_keys(std::uint32_t (&key)[keys_each]) const {
        std::uint32_t const first = keys_each * threadIdx.x;
        fixed_probability survival[keys_each] = {};
        if (first + keys_each <= places()) {
#pragma unroll
            for (unsigned v = 0; v < keys_each / 4; ++v) {
                uint4 const four = __ldg(reinterpret_cast<uint4 const*>(columns_.survival + first) + v);
                survival[4 * v] = four.x;
                survival[4 * v + 1] = four.y;
                survival[4 * v + 2] = four.z;
                survival[4 * v + 3] = four.w;
            }
        } else {
#pragma unroll
            for (unsigned e = 0; e < keys_each; ++e) {
                if (first + e < places()) survival[e] = __ldg(columns_.survival + first + e);
            }
        }
        for_own_places([&](unsigned e, std::uint32_t r, std::uint32_t k) {
            bool const used = r < requests_ && k < columns_.sizes[r];
            // A survival above certainty, which no table has, is taken for certainty.
            key[e] = !used ? no_key : survival[e] < certain ? certain - survival[e] : 0;
        });
    }

private:
    survival_columns columns_;
    std::uint32_t block_size_;
    std::uint32_t requests_;
    std::uint32_t candidates_;
    std::uint64_t weight_;
};

}  // namespace cuda
SURELEAP_END_NAMESPACE

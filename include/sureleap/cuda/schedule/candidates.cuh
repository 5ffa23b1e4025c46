// SPDX-License-Identifier: MIT
//
// A table of survivals as one block of threads reads it, many times, 16 bytes a load. Sizes of rows and other data that
// every pass needs are in shared memory.
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
#include <sureleap/cuda/core/workspace.cuh>
#include <sureleap/cuda/cost/capacity.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// What a table is, as all threads of the block need it now and then: in shared memory, because registers are short.
struct table_statistics {
    fixed_probability const* survival;
    std::uint32_t block_size;
    std::uint32_t reciprocal;  // of block_size
    std::uint32_t requests;
    std::uint32_t candidates;
    std::uint64_t weight;
};

/// Shared memory of a walk and of the lengths after it.
struct admission_shared {
    static constexpr std::uint32_t classes = 2048;
    struct class_counts {
        std::uint32_t counts[classes];
        std::uint32_t rests[classes];  // sums of what keys have beyond the first of their class
    };

    block_shared block;
    table_statistics table;
    std::uint64_t prefixes[classes + 1];  // tallies of all classes before
    std::uint8_t sizes[device_limits::most_requests];
    std::uint32_t found;
    std::uint32_t collected;
    union {  // one after the other
        sort_shared sort;
        std::uint32_t keys[most_keys];
        class_counts classed;
        std::uint32_t admitted[device_limits::most_requests];
    };
};

/// A number of candidates and the sum of what goes with them in one word: sums of both by one scan. At most 8,192 x 31
/// candidates of at most 2^24 each, which is below 2^18 and 2^42.
struct tally {
    static constexpr unsigned shift = 44;

    std::uint64_t word = 0;

    [[nodiscard]] static __device__ tally of(std::uint32_t count, std::uint64_t sum) {
        return {(std::uint64_t{count} << shift) + sum};
    }
    [[nodiscard]] __device__ std::uint32_t count() const { return static_cast<std::uint32_t>(word >> shift); }
    [[nodiscard]] __device__ std::uint64_t sum() const { return word & ((std::uint64_t{1} << shift) - 1); }
};

/// A table as a block of threads reads it.
class candidate_table {
public:
    /// BLOCK collective.
    __device__ candidate_table(device_round const& round, survival_columns const& columns, admission_shared& s)
        : s_(s) {
        std::uint32_t const gamma = round.limits.block_size;
        std::uint32_t const requests =
            *round.requests.count < round.limits.requests ? *round.requests.count : round.limits.requests;
        std::uint64_t mine = 0;
        for (std::uint32_t r = threadIdx.x; r < requests; r += blockDim.x) {
            std::uint32_t const size = columns.sizes[r] < gamma ? columns.sizes[r] : gamma;
            s.sizes[r] = static_cast<std::uint8_t>(size);
            mine += tally::of(size, round.requests.weights[r]).word;
        }
        tally const all{sum_over_block(mine, s.block).total};
        if (threadIdx.x == 0) {
            s.table = {columns.survival, gamma,       (1u << reciprocal_shift) / gamma + 1,
                       requests,         all.count(), all.sum() > 0 ? all.sum() : std::uint64_t{requests} * certain};
        }
        __syncthreads();
    }

    [[nodiscard]] __device__ std::uint32_t requests() const { return s_.table.requests; }
    /// In use, of places() that there are.
    [[nodiscard]] __device__ std::uint32_t candidates() const { return s_.table.candidates; }
    [[nodiscard]] __device__ std::uint32_t places() const { return s_.table.requests * s_.table.block_size; }
    /// The first prefix: anchors alone.
    [[nodiscard]] __device__ device_step without_drafts() const { return after(tally{}); }
    [[nodiscard]] __device__ device_step after(tally const& taken) const {
        return {s_.table.weight + taken.sum(), s_.table.requests + taken.count()};
    }

    /// visit(used, request, survival) for every place, in any order. WARP collectives may be called in `visit`: all
    /// lanes are there, some with places that are not used.
    template <class Visit>
    __device__ void for_each_place(Visit const& visit) const {
        constexpr unsigned ahead = 4;  // loads on their way at once
        table_statistics const table = s_.table;
        std::uint32_t const end = table.requests * table.block_size;
        std::uint32_t const vectors = end / 4;
        for (std::uint32_t first = 0; first < vectors; first += ahead * blockDim.x) {
            uint4 loaded[ahead];
#pragma unroll
            for (unsigned j = 0; j < ahead; ++j) {
                std::uint32_t const i = first + j * blockDim.x + threadIdx.x;
                loaded[j] = i < vectors ? load_vector(table, i) : uint4{};
            }
#pragma unroll
            for (unsigned j = 0; j < ahead; ++j) {
                if (first + j * blockDim.x >= vectors) break;
                std::uint32_t const i = first + j * blockDim.x + threadIdx.x;
                bool const there = i < vectors;
                visit_place(table, there, 4 * i, loaded[j].x, visit);
                visit_place(table, there, 4 * i + 1, loaded[j].y, visit);
                visit_place(table, there, 4 * i + 2, loaded[j].z, visit);
                visit_place(table, there, 4 * i + 3, loaded[j].w, visit);
            }
        }
        std::uint32_t const last = 4 * vectors + threadIdx.x;
        bool const there = last < end;
        visit_place(table, there, last, there ? __ldg(table.survival + last) : 0, visit);
    }

    /// The keys of this thread's places, what they lack to certainty; no_key where none is used.
    __device__ void load_keys(std::uint32_t (&key)[keys_each]) const {
        table_statistics const table = s_.table;
        std::uint32_t const end = table.requests * table.block_size;
        std::uint32_t const first = keys_each * threadIdx.x;
        std::uint32_t survival[keys_each] = {};
        if (first + keys_each <= end) {
            uint4 const low = load_vector(table, first / 4);
            uint4 const high = load_vector(table, first / 4 + 1);
            survival[0] = low.x;
            survival[1] = low.y;
            survival[2] = low.z;
            survival[3] = low.w;
            survival[4] = high.x;
            survival[5] = high.y;
            survival[6] = high.z;
            survival[7] = high.w;
        } else {
#pragma unroll
            for (unsigned e = 0; e < keys_each; ++e) {
                if (first + e < end) survival[e] = __ldg(table.survival + first + e);
            }
        }
#pragma unroll
        for (unsigned e = 0; e < keys_each; ++e) {
            visit_place(table, first + e < end, first + e, survival[e],
                        [&](bool used, std::uint32_t, fixed_probability a) { key[e] = used ? key_of(a) : no_key; });
        }
    }

    /// Keys ascend as survivals fall. A survival above certainty, which no table has, is taken for certainty.
    [[nodiscard]] static __device__ std::uint32_t key_of(fixed_probability survival) {
        return survival < certain ? certain - survival : 0;
    }

private:
    static constexpr unsigned reciprocal_shift = 31;

    [[nodiscard]] static __device__ uint4 load_vector(table_statistics const& table, std::uint32_t i) {
        return __ldg(reinterpret_cast<uint4 const*>(table.survival) + i);
    }
    template <class Visit>
    __device__ void visit_place(table_statistics const& table, bool there, std::uint32_t place,
                                fixed_probability survival, Visit const& visit) const {
        // place / block_size, exact for places below 2^18 and block sizes below 2^13
        auto const r = static_cast<std::uint32_t>((std::uint64_t{place} * table.reciprocal) >> reciprocal_shift);
        visit(there && place - r * table.block_size < s_.sizes[there ? r : 0], r, survival);
    }

    admission_shared const& s_;
};

}  // namespace cuda
SURELEAP_END_NAMESPACE

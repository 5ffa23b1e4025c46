// SPDX-License-Identifier: MIT
//
// The tile of a product on tensor cores (product_tensor.cuh). In: the number of its requests, and the types of weights
// and base logits. Out: how a block of threads divides it among its warps, and the layout of shared memory.
//
// Of 128 requests a warp owns 32 x 32 tokens. Eight warps of 64 x 32 read fewer bytes of shared memory, 384 KiB for 512, but
// are too few to hide its latency: 64 us for 59 on an H200.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/head/product_step.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {
namespace detail {

/// How a block of threads divides `requests` x 128 tokens among its warps.
template <std::uint32_t requests>
struct product_tile {
    static constexpr std::uint32_t threads = requests >= 128 ? 512 : 256;
    static constexpr std::uint32_t warps = threads / warp_size;
    static constexpr std::uint32_t warps_down = requests >= 128 ? 4 : requests >= 64 ? 2 : 1;  // over requests
    static constexpr std::uint32_t warps_across = warps / warps_down;                          // over tokens
    static constexpr std::uint32_t rows = requests / warps_down;                               // of a warp
    static constexpr std::uint32_t columns = group_size / warps_across;
    static constexpr std::uint32_t row_tiles = rows / 16;
    static constexpr std::uint32_t column_tiles = columns / 8;
    static_assert(rows % 16 == 0 && columns % 16 == 0);

    static constexpr std::uint32_t stages = 5;
    static constexpr std::uint32_t chunk_bytes = 128;  // of a row
    static constexpr std::uint32_t stage_bytes = group_size * chunk_bytes;
    static constexpr std::uint32_t rows_at_once = threads / 8;  // that a copy of 16 bytes a thread covers

    struct shared {
        unsigned char ring[stages][stage_bytes];
        group_statistics parts[warps_across][requests];
        float* rows[requests];
        float factors[requests];
        std::uint32_t ids[requests];
        // and then the codes: chunks of [requests, 128 bytes]
        [[nodiscard]] __device__ unsigned char* codes(std::uint32_t chunk) {
            return reinterpret_cast<unsigned char*>(this + 1) + chunk * (requests * chunk_bytes);
        }
    };
    static_assert(sizeof(shared) % 16 == 0);

    [[nodiscard]] static SURELEAP_HOST_DEVICE constexpr std::uint32_t chunks_of_rank(std::uint32_t rank) {
        return (rank + 63) / 64;
    }
    [[nodiscard]] static constexpr std::size_t shared_bytes(std::uint32_t rank, std::uint32_t terms) {
        return sizeof(shared) + std::size_t{terms} * chunks_of_rank(rank) * requests * chunk_bytes;
    }
    /// Bytes 16 unit .. of a row of a chunk. Rows are 128 bytes apart, so eight of them would meet in the same banks: units
    /// change places by the row.
    [[nodiscard]] static __device__ __forceinline__ std::uint32_t place(std::uint32_t row, std::uint32_t unit) {
        return row * chunk_bytes + ((unit ^ (row & 7)) * 16);
    }
};

/// How rows of weights W and base logits U are cut into chunks.
template <class W, class U, std::uint32_t requests>
struct product_chunks {
    using tile = product_tile<requests>;
    static constexpr std::uint32_t base_numbers = tile::chunk_bytes / sizeof(U);
    static constexpr std::uint32_t base_chunks = group_size / base_numbers;
    static constexpr std::uint32_t code_numbers = tile::chunk_bytes / sizeof(W);  // 64
    static constexpr std::uint32_t steps = code_numbers / 16;
};

}  // namespace detail
}  // namespace cuda
SURELEAP_END_NAMESPACE

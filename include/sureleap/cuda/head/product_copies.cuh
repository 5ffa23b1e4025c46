// SPDX-License-Identifier: MIT
//
// Copies of a product on tensor cores (product_tensor.cuh): codes, rows of W2 and base logits from device memory into
// shared memory. In: the step, the ids of the tile's requests. Out: chunks of 128 rows x 128 bytes, at the places that
// ldmatrix reads without bank conflicts.
//
// Eight threads copy a row of a chunk, 16 bytes each, asynchronously. Who calls commits the copies and waits for them.
#pragma once

#include <cuda_pipeline.h>

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/storage.cuh>
#include <sureleap/cuda/head/product_step.cuh>
#include <sureleap/cuda/head/product_tile.cuh>
#include <sureleap/cuda/head/recomputed_rows.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {
namespace detail {

/// Of one tile of requests, for all groups of tokens.
template <class W, class U, std::uint32_t requests, std::uint32_t terms>
class product_copies {
    using tile = product_tile<requests>;
    using shared = typename tile::shared;
    using chunks = product_chunks<W, U, requests>;
    static constexpr std::uint32_t base_rounds = (requests + tile::rows_at_once - 1) / tile::rows_at_once;
    static constexpr std::uint32_t weight_rounds = group_size / tile::rows_at_once;
    static_assert(tile::rows_at_once % 8 == 0);

public:
    /// BLOCK collective: begins to copy the codes of the first `count` requests of s.ids.
    __device__ product_copies(product_step<W, U> const& step, shared& s, std::uint32_t count)
        : step_(step),
          code_chunks_(tile::chunks_of_rank(step.codes.rank)),
          place_(tile::place(copy_row(), copy_unit())) {
        load_codes(s, count);
#pragma unroll
        for (std::uint32_t i = 0; i < base_rounds; ++i) {
            std::uint32_t const row = copy_row() + i * tile::rows_at_once;
            base_[i] = row < count ? step.base_row(s.ids[row]) : nullptr;
        }
        by_vectors_ =
            reinterpret_cast<std::uintptr_t>(step.base.data) % 16 == 0 && step.base.stride * sizeof(U) % 16 == 0;
    }

    /// Chunks of a group: those of W2's rows, then those of the base logits.
    [[nodiscard]] __device__ std::uint32_t code_chunks() const { return code_chunks_; }
    [[nodiscard]] __device__ std::uint32_t count() const { return code_chunks_ + chunks::base_chunks; }

    /// BLOCK collective: begins to copy a chunk of a group into a stage of the ring.
    __device__ __forceinline__ void load(std::uint32_t group, std::uint32_t chunk, unsigned char* stage) {
        if (chunk < code_chunks_) {
            load_weights(group, chunk, stage);
        } else {
            load_base(group, chunk - code_chunks_, stage);
        }
    }

private:
    [[nodiscard]] static __device__ __forceinline__ std::uint32_t copy_row() { return threadIdx.x / 8; }
    [[nodiscard]] static __device__ __forceinline__ std::uint32_t copy_unit() { return threadIdx.x % 8; }

    static __device__ __forceinline__ void zero(unsigned char* to) {
        *reinterpret_cast<uint4*>(to) = uint4{0, 0, 0, 0};
    }

    // Rows that no request has are never looked at; components behind the rank are multiplied, so they must be 0.
    __device__ void load_codes(shared& s, std::uint32_t count) {
        std::uint32_t const rank = step_.codes.rank;
        for (std::uint32_t chunk = 0; chunk < terms * code_chunks_; ++chunk) {
            std::uint32_t const term = chunk / code_chunks_;
            std::uint32_t const at = (chunk % code_chunks_) * chunks::code_numbers + copy_unit() * vector_size<W>;
            for (std::uint32_t row = copy_row(); row < requests; row += tile::rows_at_once) {
                unsigned char* const to = s.codes(chunk) + tile::place(row, copy_unit());
                if (row < count && at < rank) {
                    __pipeline_memcpy_async(to, step_.codes.row(s.ids[row], step_.k) + term * rank + at, 16);
                } else {
                    zero(to);
                }
            }
        }
    }
    // Rows behind the vocabulary only make logits that summarise() does not look at. Rows of a thread are a multiple of
    // eight apart, so the units that `place` exchanges are the same in all of them.
    __device__ __forceinline__ void load_weights(std::uint32_t group, std::uint32_t chunk, unsigned char* stage) {
        std::uint32_t const at = chunk * chunks::code_numbers + copy_unit() * vector_size<W>;
        unsigned char* const to = stage + place_;
        if (at >= step_.codes.rank) {
#pragma unroll
            for (std::uint32_t i = 0; i < weight_rounds; ++i) zero(to + i * tile::rows_at_once * tile::chunk_bytes);
            return;
        }
        std::uint32_t const token = group * group_size + copy_row();
        W const* from = step_.w2.data + static_cast<std::size_t>(token) * step_.w2.stride + at;
        bool const whole = (group + 1) * group_size <= step_.vocabulary();
#pragma unroll
        for (std::uint32_t i = 0; i < weight_rounds; ++i) {
            if (whole || token + i * tile::rows_at_once < step_.vocabulary()) {
                __pipeline_memcpy_async(to + i * tile::rows_at_once * tile::chunk_bytes, from, 16);
            }
            from += tile::rows_at_once * step_.w2.stride;
        }
    }
    __device__ __forceinline__ void load_base(std::uint32_t group, std::uint32_t chunk, unsigned char* stage) {
        std::uint32_t const at = group * group_size + chunk * chunks::base_numbers + copy_unit() * vector_size<U>;
        bool const whole = by_vectors_ && at + vector_size<U> <= step_.vocabulary();
#pragma unroll
        for (std::uint32_t i = 0; i < base_rounds; ++i) {
            if (base_[i] == nullptr) continue;
            unsigned char* const to = stage + place_ + i * tile::rows_at_once * tile::chunk_bytes;
            if (whole) {
                __pipeline_memcpy_async(to, base_[i] + at, 16);
            } else {
                for (std::uint32_t j = 0; j < vector_size<U> && at + j < step_.vocabulary(); ++j) {
                    reinterpret_cast<U*>(to)[j] = base_[i][at + j];
                }
            }
        }
    }

    product_step<W, U> const& step_;
    std::uint32_t code_chunks_;
    std::uint32_t place_;  // of this thread's first copy in a chunk
    U const* base_[base_rounds];
    bool by_vectors_;
};

}  // namespace detail
}  // namespace cuda
SURELEAP_END_NAMESPACE

// SPDX-License-Identifier: MIT
//
// The product of a step (product_step.cuh): `multiply` launches it, on tensor cores where the weights and the device
// allow it. The kernel copies operands into shared memory, and product_tile.cuh computes with them.
//
// A block owns the tile [up to 128 requests, 128 tokens] of a group. The codes stay in shared memory for the whole
// launch. Everything else is read once, in chunks of 128 rows x 128 bytes through a ring of stages: the chunks of W2's
// 128 rows, then those of the requests' base logits, then those of the next group. A producer of four warps fills every
// stage that is empty. Two consumers of eight warps take alternate groups, so that one multiplies while the other makes
// statistics. Barriers in shared memory say which stage is full and which is empty; no warp waits for more than it
// needs.
//
// For r = 256, V = 151,936, 128 requests, bf16, per group, in cycles (1,187 groups, 9 a multiprocessor):
//     copies        64 KiB of W2, 32 KiB of U, at 4.5 TB/s: 5,050 (26 us in all, 117 MB)
//     mma           8 warps x 16 steps x 16 = 2,048, of 2,048 multiply-adds each: 4,100 at 1,024 a cycle
//     shared        ldmatrix.x4, 8 warps x 16 steps x 6 = 768 of 512 bytes: 3,072 at 128 bytes a cycle; 768 of copies
//                   that arrive, 256 of base logits
//     issue         a warp 170 for each chunk of W2, 300 for base logits, 580 for statistics (counted on sm_90), two
//                   warps a scheduler; the producer's 650: 3,800
// All of them overlap, so copies are the longest. These are counts. Sixteen warps in lockstep with copies of their own
// took 59 us on an H200, 12,900 cycles a group; this has not met a device. Codes of two terms double the mma and two
// thirds of the ldmatrix.
//
// By wgmma (by_wgmma) both operands come from shared memory, and mma takes 2,050 cycles, shared memory 2,600, issue
// 3,300.
//
// Rejected: cp.async.bulk, which would save most of the producer's slots. It does not change places within a row, as
// reading without bank conflicts wants; the form for tensors does, and needs a map that the driver makes.
//
// Where there are more requests than fit a tile, blocks divide into teams, one for each tile of requests. Teams walk
// over the groups side by side, so W2 comes from memory once, and from the second-level cache for the others.
#pragma once

#include <cuda_pipeline.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/barrier.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/storage.cuh>
#include <sureleap/cuda/head/product_step.cuh>
#include <sureleap/cuda/head/product_tile.cuh>
#include <sureleap/cuda/head/recomputed_rows.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {
namespace detail {

/// Where a chunk lies in the ring, and how many chunks lay there before.
struct ring_place {
    std::uint32_t stage = 0;
    std::uint32_t turn = 0;

    __device__ __forceinline__ void advance(std::uint32_t chunks, std::uint32_t stages) {
        for (stage += chunks; stage >= stages; stage -= stages) ++turn;
    }
};

/// The producer's copies of one tile of requests: codes, rows of W2 and base logits from device memory into shared
/// memory, at the places that ldmatrix reads without bank conflicts. Eight threads copy a row of a chunk, 16 bytes
/// each, asynchronously.
template <class W, class U, std::uint32_t requests, std::uint32_t terms, class Instruction>
class product_copies {
    using tile = product_tile<requests, Instruction>;
    using shared = typename tile::shared;
    using chunks = product_chunks<W, U>;
    static constexpr std::uint32_t rows_at_once = tile::producers * warp_size / 8;
    static constexpr std::uint32_t base_rounds = (requests + rows_at_once - 1) / rows_at_once;
    static constexpr std::uint32_t weight_rounds = group_size / rows_at_once;
    static_assert(rows_at_once % 8 == 0);

public:
    __device__ product_copies(product_step<W, U> const& step, shared& s, std::uint32_t count)
        : step_(step),
          s_(s),
          count_(count),
          code_chunks_(tile::chunks_of_rank(step.codes.rank)),
          place_(swizzled(copy_row(), copy_unit())) {
#pragma unroll
        for (std::uint32_t i = 0; i < base_rounds; ++i) {
            std::uint32_t const row = copy_row() + i * rows_at_once;
            base_[i] = row < count ? step.base_row(s.ids[row]) : nullptr;
        }
        by_vectors_ =
            reinterpret_cast<std::uintptr_t>(step.base.data) % 16 == 0 && step.base.stride * sizeof(U) % 16 == 0;
    }

    /// Begins to copy the codes.
    // Rows that no request has are never looked at; components behind the rank are multiplied, so they must be 0.
    __device__ void load_codes() {
        std::uint32_t const rank = step_.codes.rank;
        for (std::uint32_t chunk = 0; chunk < terms * code_chunks_; ++chunk) {
            std::uint32_t const term = chunk / code_chunks_;
            std::uint32_t const at = (chunk % code_chunks_) * chunks::code_numbers + copy_unit() * vector_size<W>;
            for (std::uint32_t row = copy_row(); row < requests; row += rows_at_once) {
                unsigned char* const to = s_.codes(chunk) + swizzled(row, copy_unit());
                if (row < count_ && at < rank) {
                    __pipeline_memcpy_async(to, step_.codes.row(s_.ids[row], step_.k) + term * rank + at, 16);
                } else {
                    zero(to);
                }
            }
        }
    }
    /// Begins to copy a chunk of a group into a stage of the ring.
    __device__ __forceinline__ void load(std::uint32_t group, std::uint32_t chunk, unsigned char* stage) {
        if (chunk < code_chunks_) {
            load_weights(group, chunk, stage + place_);
        } else {
            load_base(group, chunk - code_chunks_, stage + place_);
        }
    }

private:
    static constexpr std::uint32_t round_bytes = rows_at_once * tile::chunk_bytes;

    [[nodiscard]] static __device__ __forceinline__ std::uint32_t copy_row() {
        return threadIdx.x % (tile::producers * warp_size) / 8;
    }
    [[nodiscard]] static __device__ __forceinline__ std::uint32_t copy_unit() { return threadIdx.x % 8; }

    static __device__ __forceinline__ void zero(unsigned char* to) {
        *reinterpret_cast<uint4*>(to) = uint4{0, 0, 0, 0};
    }

    // Rows behind the vocabulary only make logits that summarise() does not look at. Rows of a thread are a multiple of
    // eight apart, so the units that `swizzled` exchanges are the same in all of them.
    __device__ __forceinline__ void load_weights(std::uint32_t group, std::uint32_t chunk, unsigned char* to) {
        std::uint32_t const at = chunk * chunks::code_numbers + copy_unit() * vector_size<W>;
        if (at >= step_.codes.rank) {
#pragma unroll
            for (std::uint32_t i = 0; i < weight_rounds; ++i) zero(to + i * round_bytes);
            return;
        }
        std::uint32_t const token = group * group_size + copy_row();
        W const* from = step_.w2.data + static_cast<std::size_t>(token) * step_.w2.stride + at;
        bool const whole = (group + 1) * group_size <= step_.vocabulary();
#pragma unroll
        for (std::uint32_t i = 0; i < weight_rounds; ++i) {
            if (whole || token + i * rows_at_once < step_.vocabulary()) {
                __pipeline_memcpy_async(to + i * round_bytes, from, 16);
            }
            from += rows_at_once * step_.w2.stride;
        }
    }
    __device__ __forceinline__ void load_base(std::uint32_t group, std::uint32_t chunk, unsigned char* to) {
        std::uint32_t const at = group * group_size + chunk * chunks::base_numbers + copy_unit() * vector_size<U>;
        bool const whole = by_vectors_ && at + vector_size<U> <= step_.vocabulary();
#pragma unroll
        for (std::uint32_t i = 0; i < base_rounds; ++i) {
            if (base_[i] == nullptr) continue;
            if (whole) {
                __pipeline_memcpy_async(to + i * round_bytes, base_[i] + at, 16);
            } else {
#pragma unroll 1
                for (std::uint32_t j = 0; j < vector_size<U> && at + j < step_.vocabulary(); ++j) {
                    reinterpret_cast<U*>(to + i * round_bytes)[j] = base_[i][at + j];
                }
            }
        }
    }

    product_step<W, U> const& step_;
    shared& s_;
    std::uint32_t count_;
    std::uint32_t code_chunks_;
    std::uint32_t place_;  // of this thread's first copy in a chunk
    U const* base_[base_rounds];
    bool by_vectors_;
};

/// One block's walk over groups of tokens first, first + by ..., for `count` requests from the step's list.
template <class W, class U, std::uint32_t requests, std::uint32_t terms, class Instruction>
class product_walk {
    using tile = product_tile<requests, Instruction>;
    using shared = typename tile::shared;
    static constexpr std::uint32_t base_chunks = product_chunks<W, U>::base_chunks;

public:
    __device__ product_walk(product_step<W, U> const& step, std::uint32_t stages, std::uint32_t count,
                            std::uint32_t first, std::uint32_t by)
        : step_(step),
          s_(shared_memory<shared>()),
          count_(count),
          code_chunks_(tile::chunks_of_rank(step.codes.rank)),
          ring_(s_.codes(terms * code_chunks_)),
          stages_(stages),
          first_(first),
          by_(by),
          end_(groups_of(step.vocabulary())) {}

    /// BLOCK collective, for requests begin ... of the list.
    __device__ void run(std::uint32_t begin) {
        bool const has_rows = prepare(begin);
        std::uint32_t const consumer = warp_index() / tile::warps;
        if (consumer == tile::consumers) {
            produce();
        } else {
            consume(consumer, has_rows);
        }
    }

private:
    /// The barriers, and what everyone will ask of the requests. True if one of them asks for its row.
    [[nodiscard]] __device__ bool prepare(std::uint32_t begin) {
        if (threadIdx.x == 0) {
            for (std::uint32_t i = 0; i < stages_; ++i) {
                s_.full[i].init(tile::producers);
                s_.empty[i].init(tile::warps);
            }
            for (auto& consumer : s_.of) consumer.summed.init(tile::warps);
        }
        bool has_rows = false;
        for (std::uint32_t i = threadIdx.x; i < count_; i += tile::threads) {
            std::uint32_t const r = step_.list.ids[begin + i];
            s_.ids[i] = r;
            s_.factors[i] = step_.scale(r) * log2_e;
            s_.rows[i] = step_.row(r);
            has_rows = has_rows || s_.rows[i] != nullptr;
        }
        return __syncthreads_or(has_rows) != 0;
    }

    // The codes arrive with the first chunk, so they are there for whoever has waited for any chunk.
    __device__ void produce() {
        product_copies<W, U, requests, terms, Instruction> copies(step_, s_, count_);
        ring_place place;
        if (first_ < end_) copies.load_codes();
        for (std::uint32_t group = first_; group < end_; group += by_) {
            for (std::uint32_t chunk = 0; chunk < chunks(); ++chunk) {
                if (place.turn > 0) s_.empty[place.stage].wait(place.turn - 1);
                copies.load(group, chunk, stage(place));
                s_.full[place.stage].arrive_with_copies();
                place.advance(1, stages_);
            }
        }
    }

    __device__ void consume(std::uint32_t consumer, bool has_rows) {
        product_logits<W, U, requests, terms, Instruction> logits(step_, s_, count_, has_rows);
        ring_place place;
        place.advance(consumer * chunks(), stages_);
        auto const take_chunk = [&](auto const& use) {
            s_.full[place.stage].wait(place.turn);
            use(stage(place));
            s_.empty[place.stage].arrive();
            place.advance(1, stages_);
        };
        std::uint32_t turn = 0;
        for (std::uint32_t group = first_ + consumer * by_; group < end_; group += tile::consumers * by_) {
            logits.clear();
            for (std::uint32_t chunk = 0; chunk < code_chunks_; ++chunk) {
                take_chunk([&](unsigned char const* weights) { logits.multiply(weights, chunk); });
            }
            for (std::uint32_t chunk = 0; chunk < base_chunks; ++chunk) {
                take_chunk([&](unsigned char const* base) { logits.add_base(base, chunk); });
            }
            logits.summarise(group, turn++);
            place.advance((tile::consumers - 1) * chunks(), stages_);  // the other consumer's
        }
    }

    /// Of a group: those of W2's rows, then those of the base logits.
    [[nodiscard]] __device__ __forceinline__ std::uint32_t chunks() const { return code_chunks_ + base_chunks; }
    [[nodiscard]] __device__ __forceinline__ unsigned char* stage(ring_place const& place) const {
        return ring_ + place.stage * tile::stage_bytes;
    }

    product_step<W, U> const& step_;
    shared& s_;
    std::uint32_t count_;
    std::uint32_t code_chunks_;
    unsigned char* ring_;
    std::uint32_t stages_;
    std::uint32_t first_, by_, end_;
};

/// Teams of blocks take tiles of requests; the blocks of a team walk over the groups side by side. There are as many
/// blocks as tiles, or more.
template <class W, class U, std::uint32_t requests, std::uint32_t terms, class Instruction>
__global__ void __launch_bounds__(product_tile<requests, Instruction>::threads, 1)
    multiply_on_tensor_cores(product_step<W, U> step, std::uint32_t stages) {
    std::uint32_t const drafting = *step.list.count;
    std::uint32_t const teams = (drafting + requests - 1) / requests;
    if (teams == 0) return;
    std::uint32_t const size = (drafting + teams - 1) / teams;  // all tiles alike
    std::uint32_t const team = blockIdx.x % teams;
    std::uint32_t const members = (gridDim.x - team + teams - 1) / teams;
    std::uint32_t const begin = team * size;
    std::uint32_t const count = begin + size < drafting ? size : drafting - begin;
    product_walk<W, U, requests, terms, Instruction>(step, stages, count, blockIdx.x / teams, members).run(begin);
}

/// Stages of the ring that fit so much shared memory; fewer than product_tile::least_stages: the tile does not suit.
template <std::uint32_t requests, class Instruction = by_mma>
[[nodiscard]] std::uint32_t stages_of(std::uint32_t rank, std::uint32_t terms, std::size_t room) {
    using tile = product_tile<requests, Instruction>;
    std::size_t const rest = tile::shared_bytes(rank, terms, 0);
    if (rest > room) return 0;
    return static_cast<std::uint32_t>(std::min<std::size_t>((room - rest) / tile::stage_bytes, tile::most_stages));
}

/// Launches it for tiles of `requests`.
template <std::uint32_t requests, std::uint32_t terms, class Instruction = by_mma, class W, class U>
[[nodiscard]] cudaError_t launch_tile(product_step<W, U> const& step, unsigned multiprocessors, cudaStream_t stream) {
    using tile = product_tile<requests, Instruction>;
    std::size_t room = 0;
    cudaError_t const error = find_shared_memory(room);
    if (error != cudaSuccess) return error;
    // Where there is no room for one, the launch says so.
    std::uint32_t const stages = std::max(1u, stages_of<requests, Instruction>(step.codes.rank, terms, room));
    auto const tiles = static_cast<unsigned>((step.base.rows / step.codes.block_size + requests - 1) / requests);
    return launch(multiply_on_tensor_cores<W, U, requests, terms, Instruction>, dim3(std::max(multiprocessors, tiles)),
                  dim3(tile::threads), tile::shared_bytes(step.codes.rank, terms, stages), stream, step, stages);
}

}  // namespace detail

/// The statistics of a step into step.statistics, for the requests of its list. `terms` is the codes' number of terms,
/// and `most` the length that the list may have. O(V r R), reads W2 and the base logits once. Instruction: by_mma, or
/// by_wgmma, which multiplies for more than 64 requests where the code is compiled for sm_90a, and has not met a
/// device.
template <std::uint32_t terms, class Instruction = by_mma, class W, class U>
[[nodiscard]] cudaError_t multiply(product_step<W, U> const& step, std::uint32_t most, cudaStream_t stream) {
    if constexpr (std::is_same_v<W, float>) {
        return detail::launch_plain(step, stream);
    } else {
        unsigned multiprocessors = 0;
        std::size_t room = 0;
        cudaError_t error = count_multiprocessors(multiprocessors);
        if (error == cudaSuccess) error = find_shared_memory(room);
        if (error != cudaSuccess) return error;
        auto const suits = [&](auto requests) {
            return most > requests / 2 && detail::stages_of<requests>(step.codes.rank, terms, room) >=
                                              detail::product_tile<requests>::least_stages;
        };
        if (suits(std::integral_constant<std::uint32_t, 128>{})) {
            return detail::launch_tile<128, terms, Instruction>(step, multiprocessors, stream);
        }
        if (suits(std::integral_constant<std::uint32_t, 64>{})) {
            return detail::launch_tile<64, terms>(step, multiprocessors, stream);
        }
        if (suits(std::integral_constant<std::uint32_t, 32>{})) {
            return detail::launch_tile<32, terms>(step, multiprocessors, stream);
        }
        return detail::launch_tile<16, terms>(step, multiprocessors, stream);
    }
}

}  // namespace cuda
SURELEAP_END_NAMESPACE

// SPDX-License-Identifier: MIT
//
// A row of logits as tokens in order (logit descending, id ascending), for a search by a block of threads. In: a row
// that has a distribution, and what is known of it already. Out: a key of each token that sorts as tokens do, its
// weight, and visits of the tokens between two keys.
//
// The largest logits of 256 parts of the row are kept. They let a visit skip the parts that have nothing to show. At
// least k tokens reach the k-th largest of them, and hardly more, because most parts have one or none of the best. To
// find them takes one pass over the row, or none if the caller knows the blocks' maxima.
//
// Masses are integers: weights, which are at most 1, in units of 2^-44 or so. A sum of integers does not depend on
// their order. So threads may add as they come, and a histogram agrees with a list to the last bit.
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/warp.cuh>
#include <sureleap/cuda/sampling/row.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// What the caller may know of a row already; it saves passes.
struct row_statistics {
    float top = 0.0f;    ///< its largest logit; this one is a must
    double total = 0.0;  ///< the sum of exp((logit - top) / temperature) over the row within 2^-20, or 0
    block_weight const* blocks = nullptr;  ///< of its blocks of 1,024, of which only `largest` is read, or null
};

/// Scratch of one search, 22 KiB.
struct truncate_shared {
    static constexpr unsigned capacity = 1024;  ///< of the list; also bins of a histogram
    static constexpr unsigned parts = 256;      ///< of the row: part i has blocks i, i + 256 ...

    unsigned long long keys[capacity];
    unsigned long long masses[capacity];
    unsigned counts[capacity];
    float largest[parts];
    unsigned long long last;
    unsigned listed;
    float bound;
};

namespace detail {

/// The tokens of a row as keys that are sorted as the tokens are. Logits that are equal have equal keys but for the id:
/// -0 counts as 0.
class token_order {
public:
    // An assignment, because the host's half of nvcc reads initialisers and does not know __clz.
    explicit __device__ token_order(std::uint32_t size) {
        id_bits_ = size > 1 ? 32 - static_cast<unsigned>(__clz(static_cast<int>(size - 1))) : 0;
    }

    [[nodiscard]] __device__ unsigned id_bits() const { return id_bits_; }
    [[nodiscard]] __device__ unsigned long long key(float logit, std::uint32_t id) const {
        auto const bits = sureleap::detail::bits_as<std::uint32_t>(logit + 0.0f);
        std::uint32_t const descending = (bits & 0x80000000u) != 0 ? bits : ~bits & 0x7fffffffu;
        return static_cast<unsigned long long>(descending) << id_bits_ | id;
    }
    [[nodiscard]] __device__ float logit(unsigned long long key) const {
        auto const descending = static_cast<std::uint32_t>(key >> id_bits_);
        return sureleap::detail::bits_as<float>((descending & 0x80000000u) != 0 ? descending
                                                                                : ~descending & 0x7fffffffu);
    }
    [[nodiscard]] __device__ std::uint32_t id(unsigned long long key) const {
        return static_cast<std::uint32_t>(key & ((1ull << id_bits_) - 1));
    }

private:
    unsigned id_bits_ = 0;
};

/// One row. All members are BLOCK collectives unless they are marked otherwise.
template <class Row>
class ordered_row {
public:
    using key_type = unsigned long long;

    __device__ ordered_row(Row row, std::uint32_t size, float scale, row_statistics const& statistics,
                           truncate_shared& s)
        : row_(row),
          size_(size),
          scale_(scale),
          statistics_(statistics),
          s_(s),
          order_(size),
          unit_(static_cast<float>(1ull << (62 - order_.id_bits()))),
          parts_(count_blocks(size) < truncate_shared::parts ? count_blocks(size) : truncate_shared::parts) {
        find_largest();
    }

    // ---- of any thread -----------------------------------------------------------------------------------------

    [[nodiscard]] __device__ std::uint32_t size() const { return size_; }
    [[nodiscard]] __device__ float scale() const { return scale_; }
    [[nodiscard]] __device__ row_statistics const& statistics() const { return statistics_; }
    [[nodiscard]] __device__ token_order const& order() const { return order_; }
    /// How many parts there are.
    [[nodiscard]] __device__ unsigned parts() const { return parts_; }
    /// Of a weight of 1.
    [[nodiscard]] __device__ float unit() const { return unit_; }
    /// The keys of all tokens with a logit lie in [first_key(), end_key()).
    [[nodiscard]] __device__ key_type first_key() const { return order_.key(statistics_.top, 0); }
    [[nodiscard]] __device__ key_type end_key() const { return order_.key(-FLT_MAX, size_ - 1) + 1; }

    [[nodiscard]] __device__ float weight(float logit) const { return expf((logit - statistics_.top) * scale_); }
    [[nodiscard]] __device__ key_type mass_at(float logit) const {
        return static_cast<key_type>(weight(logit) * unit_);
    }

    // ---- of a block --------------------------------------------------------------------------------------------

    /// The nth largest of the parts' largest logits: as many tokens are at least as large.
    [[nodiscard]] __device__ float nth_largest(std::uint32_t n) {
        if (n > parts_) return -infinity;
#pragma unroll 1
        for (unsigned i = threadIdx.x; i < parts_; i += blockDim.x) {
            float const mine = s_.largest[i];
            unsigned larger = 0;
#pragma unroll 2
            for (unsigned j = 0; j < parts_; ++j) {
                larger += s_.largest[j] > mine || (s_.largest[j] == mine && j < i) ? 1u : 0u;
            }
            if (larger == n - 1) s_.bound = mine;
        }
        __syncthreads();
        return s_.bound;
    }
    /// f(key, logit) of every token in [begin, stop), by one thread each.
    template <class F>
    __device__ void visit(key_type begin, key_type stop, F const& f) const {
        float const low = order_.logit(stop - 1);
        std::uint32_t const blocks = count_blocks(size_);
        for (std::uint32_t b = warp_index(); b < blocks; b += blockDim.x / warp_size) {
            if (!(s_.largest[b % truncate_shared::parts] >= low)) continue;
            constexpr unsigned together = lanes_of<Row>::together;
            std::uint32_t some = reaching(b, low);
            // f is long, and few tokens come to it: it has one copy, which loads them again.
#pragma unroll 1
            for (; some != 0; some &= some - 1) {
                auto const j = static_cast<unsigned>(__ffs(static_cast<int>(some))) - 1;
                std::uint32_t const v = b * block_tokens + lanes_of<Row>::place(j / together, j % together);
                if (v >= size_) continue;
                float const logit = load(row_[v]);
                if (!(logit >= low)) continue;  // -inf too: `low` is a number
                key_type const key = order_.key(logit, v);
                if (key >= begin && key < stop) f(key, logit);
            }
        }
    }

private:
    /// WARP collective: which of the lane's tokens of a block may have a logit of at least `low`, as bits.
    [[nodiscard]] __device__ __noinline__ std::uint32_t reaching(std::uint32_t block, float low) const {
        lanes_of<Row> logits;
        read_block(row_, size_, block, logits);
        std::uint32_t some = logits.others();
#pragma unroll
        for (unsigned i = 0; i < lanes_of<Row>::vectors; ++i) {
#pragma unroll
            for (unsigned e = 0; e < lanes_of<Row>::together; ++e) {
                some |= logits.plain(i, e) >= low ? 1u << (i * lanes_of<Row>::together + e) : 0u;
            }
        }
        return some;
    }
    /// The largest logits of the parts: of the blocks' maxima where they are known, else by a pass over the row.
    __device__ void find_largest() {
        std::uint32_t const blocks = count_blocks(size_);
        unsigned const warps = blockDim.x / warp_size;
#pragma unroll 1
        for (unsigned i = threadIdx.x; i < parts_; i += blockDim.x) {
            float largest = -infinity;
            if (statistics_.blocks != nullptr) {
#pragma unroll 1
                for (std::uint32_t b = i; b < blocks; b += truncate_shared::parts) {
                    largest = fmaxf(largest, statistics_.blocks[b].largest);
                }
            }
            s_.largest[i] = largest;
        }
        __syncthreads();
        if (statistics_.blocks != nullptr) return;
        // Every part is one warp's.
        for (std::uint32_t b = warp_index(); b < blocks; b += warps) {
            lanes_of<Row> logits;
            read_block(row_, size_, b, logits);
            float largest = logits.largest();
            logits.for_others([&](float logit) { largest = fmaxf(largest, logit); });
            largest = largest_of_lanes(largest);
            float& of_part = s_.largest[b % truncate_shared::parts];
            if (lane_index() == 0) of_part = fmaxf(of_part, largest);
        }
        __syncthreads();
    }

    Row row_;
    std::uint32_t size_;
    float scale_;
    row_statistics statistics_;
    truncate_shared& s_;
    token_order order_;
    float unit_;  ///< of masses
    unsigned parts_;
};

}  // namespace detail
}  // namespace cuda
SURELEAP_END_NAMESPACE

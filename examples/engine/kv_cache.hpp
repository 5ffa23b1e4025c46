// SPDX-License-Identifier: MIT
//
// Keys and values of every sequence that is served.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <sureleap/core/error.hpp>

namespace engine {

/// Where a row of a batch stands in its sequence.
struct batch_row {
    std::uint32_t slot = 0;      ///< which sequence
    std::uint32_t position = 0;  ///< of its token: the angle of its key and query, and where key and value go
    std::uint32_t keys = 0;      ///< it attends to keys 0 .. keys-1 of its slot
};

/// Of every slot and layer, `capacity` keys and values a head, those of one head side by side.
///
/// The cache has no length. Each row of a batch says how many keys it sees. What a rejected draft left behind lies
/// beyond those and is overwritten when the sequence gets there. So rolling back takes no work. A length kept here
/// would repeat the positions of the batch and might disagree with them.
template <class Real>
class kv_cache {
public:
    kv_cache(std::size_t slots, std::size_t layers, std::size_t heads, std::size_t head_dim, std::size_t capacity)
        : layers_(layers), heads_(heads), head_dim_(head_dim), capacity_(capacity) {
        std::size_t const head = capacity * head_dim;
        constexpr std::size_t most = static_cast<std::size_t>(-1) / sizeof(Real);
        if (head == 0 || slots * layers * heads == 0 || head > most / 2 / (slots * layers * heads)) {
            sureleap::fail_with("kv_cache: ", slots, " slots x ", layers, " layers x ", heads, " heads x ", capacity,
                                " positions x ", head_dim, ", expected sizes >= 1 that fit memory");
        }
        // Left uninitialised, so that positions nobody reached cost address space and no memory.
        data_ = std::make_unique_for_overwrite<Real[]>(2 * slots * layers * heads * head);
    }

    [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
    /// [capacity, head_dim]
    [[nodiscard]] Real* keys(std::size_t slot, std::size_t layer, std::size_t head) const noexcept {
        return data_.get() + (2 * ((slot * layers_ + layer) * heads_ + head)) * capacity_ * head_dim_;
    }
    [[nodiscard]] Real* values(std::size_t slot, std::size_t layer, std::size_t head) const noexcept {
        return keys(slot, layer, head) + capacity_ * head_dim_;
    }

private:
    std::size_t layers_;
    std::size_t heads_;
    std::size_t head_dim_;
    std::size_t capacity_;
    std::unique_ptr<Real[]> data_;
};

}  // namespace engine

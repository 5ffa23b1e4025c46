// SPDX-License-Identifier: MIT
//
// Memory of a round. A workspace hands out typed, aligned arrays from one caller-owned buffer and never allocates.
// Built without a buffer it only counts, so the code that carves a round is the code that computes its size:
//
//     workspace sizer;                       // count only
//     carve_round(sizer, shape);
//     std::vector<std::byte> memory(sizer.used());
//     workspace ws{memory};
//     auto round = carve_round(ws, shape);
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <type_traits>

#include <sureleap/core/config.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Arrays of one size, one behind the other. A view.
template <class T>
struct carved_rows {
    std::span<T> all{};
    std::size_t size = 0;

    [[nodiscard]] std::span<T> operator[](std::size_t row) const noexcept { return all.subspan(row * size, size); }
};

class workspace {
public:
    static constexpr std::size_t alignment = 64;  ///< of every array: a cache line, and any SIMD register

    /// Counts only: take() returns empty spans of the right count and used() tells the bytes a buffer needs.
    workspace() = default;
    /// Carves from `buffer`, which must hold as many bytes as the counting run reported.
    explicit workspace(std::span<std::byte> buffer) noexcept : buffer_(buffer), counting_(false) {}

    /// The next `count` objects of type T, value-initialised. Precondition: they fit.
    template <class T>
    [[nodiscard]] std::span<T> take(std::size_t count) noexcept {
        static_assert(std::is_trivially_destructible_v<T>,
                      "workspace: nothing is ever destroyed; keep types with a destructor outside the workspace");
        std::size_t const bytes = (count * sizeof(T) + alignment - 1) / alignment * alignment;
        std::size_t const offset = used_;
        used_ += bytes;
        if (counting_) return {};
        auto const misaligned = reinterpret_cast<std::uintptr_t>(buffer_.data()) % alignment;
        std::size_t const start = offset + (misaligned ? alignment - misaligned : 0);
        SURELEAP_EXPECTS(start + count * sizeof(T) <= buffer_.size());
        T* const first = reinterpret_cast<T*>(buffer_.data() + start);
        for (std::size_t i = 0; i < count; ++i) ::new (static_cast<void*>(first + i)) T();
        return {first, count};
    }

    template <class T>
    [[nodiscard]] carved_rows<T> take(std::size_t rows, std::size_t size) noexcept {
        return {take<T>(rows * size), size};
    }

    /// Bytes a buffer must have for everything taken so far, whatever the buffer's own alignment.
    [[nodiscard]] std::size_t used() const noexcept { return used_ + alignment; }
    [[nodiscard]] bool counting() const noexcept { return counting_; }

private:
    std::span<std::byte> buffer_{};
    std::size_t used_ = 0;
    bool counting_ = true;
};

SURELEAP_END_NAMESPACE

// SPDX-License-Identifier: MIT
//
// Weights of 4, 5 and 8 bits as the kernels read them.
//
// A block is 32 inputs of 16 outputs. They lie together, because then one decoding of a block serves all rows of a
// pass, and because a vector register takes 4 inputs of 16 outputs as they lie. A file has the same numbers output by
// output, so a matrix is repacked once, when it is loaded. Nothing is rounded by that: the numbers of Q4_0, Q4_1, Q5_0,
// Q5_1 and Q8_0 are kept as they are, their scales included.
//
//     q4   step * scale + minimum        320 bytes a block, 5 bits a weight; steps are 0 .. 15
//     q5   step * scale + minimum        384 bytes a block, 6 bits a weight; steps are 0 .. 31
//     q8   value * scale                 544 bytes a block, 8.5 bits a weight
//
// A product with them rounds its activations as well, to 8 bits in blocks of 32 inputs (kernels_quantised.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>

#include "huge_pages.hpp"
#include "kernels.hpp"

namespace engine {

inline constexpr std::size_t block_outputs = 16;
inline constexpr std::size_t block_inputs = 32;

/// Byte 64 v + 4 r + i has input 4 v + i of output r in its low half and input 16 + 4 v + i in its high half.
struct q4_block {
    std::uint8_t nibbles[256];
    std::uint16_t scales[block_outputs];  ///< F16
    std::uint16_t minima[block_outputs];  ///< F16
};
static_assert(sizeof(q4_block) == 320);

/// Nibbles as above; bit v of byte 4 r + i is the fifth bit of input 4 v + i of output r.
struct q5_block {
    std::uint8_t nibbles[256];
    std::uint8_t fifths[64];
    std::uint16_t scales[block_outputs];  ///< F16
    std::uint16_t minima[block_outputs];  ///< F16
};
static_assert(sizeof(q5_block) == 384);

/// Byte 64 v + 4 r + i is input 4 v + i of output r.
struct q8_block {
    std::int8_t values[512];
    std::uint16_t scales[block_outputs];  ///< F16
};
static_assert(sizeof(q8_block) == 544);

/// One output's share of a block, as files have it; of q4 and q5 in steps.
struct stepped_run {
    std::uint16_t scale;    ///< F16
    std::uint16_t minimum;  ///< F16
    std::uint8_t steps[block_inputs];
};
struct q8_run {
    std::uint16_t scale;  ///< F16
    std::int8_t values[block_inputs];
};

/// Memory of a packed matrix; row by row it is filled, then `view` is what products take. Rows of a last block that
/// does not fill up are zeros. Memory of rows that are not set is not touched.
class packed_matrix {
public:
    /// type is q4, q5 or q8, cols a multiple of block_inputs. `memory` must outlive the matrix. Throws sureleap::error.
    packed_matrix(storage type, std::size_t rows, std::size_t cols, std::pmr::memory_resource& memory = huge_pages());

    /// Of q4 or q5.
    void set(std::size_t row, std::size_t block, stepped_run const& run) noexcept;
    /// Of q8.
    void set(std::size_t row, std::size_t block, q8_run const& run) noexcept;
    /// A row of finite numbers. In 8 bits: scale = largest magnitude / 127 in every block. In 4 and 5: 16 and 32 steps
    /// from a block's least number to its largest.
    void quantise(std::size_t row, std::span<float const> values) noexcept;

    [[nodiscard]] weight view() const noexcept;

private:
    template <class Block>
    [[nodiscard]] Block& at(std::size_t row, std::size_t block) noexcept;

    storage type_;
    std::size_t rows_;
    std::size_t cols_;
    struct release {
        std::pmr::memory_resource* memory;
        std::size_t size;
        void operator()(std::byte* bytes) const noexcept;
    };
    std::unique_ptr<std::byte[], release> bytes_;  // on a cache line
};

/// Some rows of a packed or plain matrix, in the order of `rows`, as a matrix of their own.
class gathered_rows {
public:
    gathered_rows() = default;
    /// With the same numbers. Every row is below w.rows.
    gathered_rows(weight const& w, std::span<std::int32_t const> rows);
    /// Rounded to 4 bits. Columns come in blocks of 32.
    [[nodiscard]] static gathered_rows in_4_bits(weight const& w, std::span<std::int32_t const> rows);
    [[nodiscard]] weight view() const noexcept { return view_; }

private:
    std::shared_ptr<void const> memory_;
    weight view_;
};

/// out[c] = w[row, c] of a packed matrix.
template <class Real>
void unpack_row(weight const& w, std::size_t row, Real* out);

}  // namespace engine

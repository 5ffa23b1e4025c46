// SPDX-License-Identifier: MIT
//
// The blocks that GGUF tensors are stored in, as numbers.
//
//   std::vector<float> row(cols);
//   gguf::dequantise(t.type, t.bytes.data() + i * cols / block_of(t.type).elements * block_of(t.type).bytes, cols,
//                    row.data());
//
// What a block means is written down nowhere but in ggml's code (ggml-common.h, ggml-quants.c):
//
//   F32, F16, BF16   1 element: the number
//   Q4_0, Q5_0       32 elements: f16 d, [u32 fifth bits,] 16 bytes of nibbles; d * (q - 8), d * (q - 16)
//   Q4_1, Q5_1       32 elements: f16 d, f16 m, [u32 fifth bits,] 16 bytes of nibbles; d * q + m
//   Q8_0             32 elements: f16 d, 32 signed bytes; d * q
//   Q4_K, Q5_K       256 elements: f16 d, f16 dmin, 8 pairs of 6-bit scale and minimum, [fifth bits,] nibbles;
//                    d * scale * q - dmin * minimum, with a pair for each 32 elements
//   Q6_K             256 elements: low nibbles, upper 2 bits, 16 signed scales, f16 d; d * scale * (q - 32), with a
//                    scale for each 16 elements
//
// Of 32 elements in 16 bytes, the low nibbles are the first 16 elements and the high nibbles the last 16. Plain
// portable code: it is for loading, not for products.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "file.hpp"

namespace engine::gguf {

/// The values of whole blocks, in order, as float; they are read unaligned. A type that is not in the list above is an
/// error, and so is a number of elements that ends inside a block.
void dequantise(tensor_type type, std::byte const* blocks, std::size_t elements, float* out);

/// Elements in a stepped_block or a block8.
inline constexpr std::size_t small_block = 32;

/// value[i] = scale * steps[i] + minimum, with steps of 4 or 5 bits in the order of the elements.
struct stepped_block {
    float scale;
    float minimum;
    std::uint8_t steps[small_block];
};
/// A block of Q4_0 or Q5_0 (whose minimum is -8 or -16 scales), Q4_1 or Q5_1; false for another type.
[[nodiscard]] bool unpack_steps(tensor_type type, std::byte const* block, stepped_block& out) noexcept;

/// A block of Q4_K or Q5_K as its eight small blocks, whose minima are negative; false for another type.
[[nodiscard]] bool unpack_steps(tensor_type type, std::byte const* block, std::span<stepped_block, 8> out) noexcept;

/// value[i] = scale * values[i].
struct block8 {
    float scale;
    std::int8_t values[small_block];
};
/// A block of Q8_0.
void unpack8(std::byte const* block, block8& out) noexcept;

}  // namespace engine::gguf

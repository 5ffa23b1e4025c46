// SPDX-License-Identifier: MIT
//
// The arithmetic of the engine: products with stored weights, attention over a cache, and the small functions between
// them.
//
// What every kernel promises: an output number is a function of its own inputs alone. One thread sums each output in
// one order. So it does not depend on the other rows of the batch, the tiling of rows or the number of threads. Exact
// speculative decoding needs that. A row verified among seven others then has the logits it would have had alone. So
// greedy and keyed decoding give exactly the tokens of plain decoding. Libraries of matrix products (Eigen among them)
// choose their order of summation by shape, so they are not used here.
//
// Real is float or double. The kernels are compiled once for each instruction set (kernels_table.hpp), and the best
// that the machine has is taken at run time. Two instruction sets may differ in rounding, as one has a fused
// multiply-add and another has not; two batches on one machine may not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "attention_query.hpp"
#include "thread_pool.hpp"

namespace engine {

/// How a weight lies in memory: number by number, or packed in blocks (quantised.hpp).
enum class storage : std::uint8_t { f64, f32, f16, bf16, q4, q5, q8 };

[[nodiscard]] constexpr bool is_packed(storage s) noexcept {
    return s >= storage::q4;
}
/// Of a number; of a block of 16 x 32, where they are packed.
[[nodiscard]] constexpr std::size_t bytes_of(storage s) noexcept {
    switch (s) {
        case storage::f64: return 8;
        case storage::f32: return 4;
        case storage::q4: return 320;
        case storage::q5: return 384;
        case storage::q8: return 544;
        default: return 2;
    }
}

/// What products with bf16 weights do with activations. In full they stay as they are. With bf16 they are rounded to it
/// as well, for which some processors have instructions that do twice as many products; sums keep their precision. It
/// is a choice for a whole model: plain and speculative decoding must compute the same. Other weights know no
/// difference.
enum class arithmetic : std::uint8_t { full, bf16 };

/// A matrix [rows, cols], cols >= 1, row-major without gaps or packed, that somebody else owns, mostly a mapped file:
/// it is read where it lies and never converted as a whole. For a linear layer rows are outputs, as in the files.
struct weight {
    void const* data = nullptr;
    storage type = storage::f32;
    std::size_t rows = 0;
    std::size_t cols = 0;
    arithmetic products = arithmetic::full;

    [[nodiscard]] std::size_t bytes() const noexcept { return offset(is_packed(type) ? (rows + 15) / 16 * 16 : rows); }
    /// Bytes before a row. Of a packed matrix only rows that are multiples of 16 have such a place.
    [[nodiscard]] std::size_t offset(std::size_t row) const noexcept {
        return is_packed(type) ? row / 16 * (cols / 32) * bytes_of(type) : row * cols * bytes_of(type);
    }
    [[nodiscard]] bool empty() const noexcept { return data == nullptr; }
    /// So many of its rows. Of a packed matrix `first` is a multiple of 16.
    [[nodiscard]] weight part(std::size_t first, std::size_t count) const noexcept {
        return {static_cast<char const*>(data) + offset(first), type, count, cols, products};
    }
};

/// y[i, j] = sum_c x[i, c] w[j, c] for i < n: y [n, w.rows], x [n, w.cols], both without gaps and not overlapping.
/// Reads w once for as many rows of x as fit a tile. So a small batch costs little more than one row.
template <class Real>
void matmul(thread_pool& pool, Real const* x, std::size_t n, weight const& w, Real* y);

/// y += the same: the residual stream of a transformer, without a pass of its own.
template <class Real>
void matmul_add(thread_pool& pool, Real const* x, std::size_t n, weight const& w, Real* y);

/// One of several products with the same x.
template <class Real>
struct product {
    weight const& w;
    Real* y;
};

/// The same as one matmul after the other, but the threads meet once. Matrices have the same cols.
template <class Real>
void matmul(thread_pool& pool, Real const* x, std::size_t n, std::initializer_list<product<Real>> products);

/// out[c] = w[row, c]: an embedding, or a norm's scale.
template <class Real>
void load_row(weight const& w, std::size_t row, Real* out);

/// out = x / sqrt(mean(x^2) + epsilon) * scale over `size` numbers. out may be x.
template <class Real>
void rms_norm(Real const* x, Real const* scale, std::size_t size, double epsilon, Real* out);

/// Rotates the pairs (i, i + size/2) of x by the angle whose cosine and sine are cos[i], sin[i], i < size/2.
template <class Real>
void rotate(Real* x, Real const* cos, Real const* sin, std::size_t size);

/// gate[i] = silu(gate[i]) * up[i].
template <class Real>
void silu_mul(Real* gate, Real const* up, std::size_t size);

/// Attention of queries to a chunk of keys and values that they share: heads of a group and rows of a block. With
/// join_attended it is out = softmax(scale * K query) V. Each has the bits that it has alone. A query reads only the
/// values that it sees; scores of keys that it does not see are computed and left out.
template <class Real>
void attend(std::span<attention_query<Real> const> queries, Real const* chunk, std::size_t size, Real scale);

/// out [size] from what `count` >= 1 chunks left of a head, [count, attended_size(size)], in the order of the chunks.
template <class Real>
void join_attended(Real const* chunks, std::size_t count, std::size_t size, Real* out);

/// y = silu(x gate^T) * (x up^T), the first half of an MLP: y [n, gate.rows], gate and up of one shape.
template <class Real>
void gated_matmul(thread_pool& pool, Real const* x, std::size_t n, weight const& gate, weight const& up, Real* y);

/// Bytes per second at which the pool reads memory: the floor of a matrix-vector product over weights that fit no
/// cache. Best of `repeats` passes over `bytes` at `data`.
[[nodiscard]] double read_bandwidth(thread_pool& pool, void const* data, std::size_t bytes, int repeats);

/// Name of the instruction set that products with packed weights use: "avx512_vnni", "avx_vnni", "avx2", "portable".
[[nodiscard]] char const* packed_instruction_set();

/// Name of the instruction set in use, "avx512", "avx2" or "portable": the best that the machine runs, or the one that
/// the environment variable ENGINE_ISA names. If that one cannot run here, this throws sureleap::error, and so does the
/// first kernel called: a test of one instruction set must not pass on another.
[[nodiscard]] char const* instruction_set();

}  // namespace engine

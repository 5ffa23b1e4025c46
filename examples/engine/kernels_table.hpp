// SPDX-License-Identifier: MIT
//
// What one instruction set provides: plain functions on pointers, gathered in a table. kernels_<name>.cpp is compiled
// with the flags of its instruction set and defines one table; kernels.cpp chooses among them at run time.
//
// Those files must not instantiate an inline function that others share: the linker keeps one copy of it, and if that
// is the AVX-512 copy, a machine without AVX-512 dies in harmless code. Hence no std::span, no std::vector, no std::min
// in this interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention_query.hpp"

namespace engine {

/// Packed rows are padded to a multiple of this.
inline constexpr std::size_t pack_unit = 32;

/// Products with one kind of weights.
template <class Real>
struct product_functions {
    /// Copies one row of x [n, cols] to its place in out, which has n rows of cols rounded up to a multiple of
    /// pack_unit. Rows of a tile lie together there, so a tile reads one stream. In x they are often a power of two
    /// apart and would evict each other from the cache.
    void (*pack)(Real const* x, std::size_t n, std::size_t cols, std::size_t row, Real* out);
    /// y[i * stride + j] (+)= dot(x row i, w row j) for i < n, j < rows; w [rows, cols], x [n, cols] as `pack` left it.
    void (*multiply)(Real const* x, std::size_t n, void const* w, std::size_t rows, std::size_t cols, Real* y,
                     std::size_t stride, bool add);
};

/// Kinds of weights that are not packed: a storage in full arithmetic, or bf16 in its own.
inline constexpr std::size_t bf16_products = 4;

template <class Real>
struct kernel_table {
    using load_function = void (*)(void const* row, std::size_t cols, Real* out);

    product_functions<Real> products[5];  // by storage; the last is bf16_products
    load_function load_row[4];            // by storage
    /// Rows of w that are multiplied with n rows of x at a time: `rows` is best a multiple of it.
    std::size_t (*tile_rows)(std::size_t n);
    void (*rms_norm)(Real const* x, Real const* scale, std::size_t size, double epsilon, Real* out);
    void (*rotate)(Real* x, Real const* cos, Real const* sin, std::size_t size);
    void (*silu_mul)(Real* gate, Real const* up, std::size_t size);
    void (*attend)(attention_query<Real> const* queries, std::size_t count, Real const* chunk, std::size_t size,
                   Real scale);
    void (*join_attended)(Real const* chunks, std::size_t count, std::size_t size, Real* out);
};

/// Products with packed weights.
template <class Real>
struct quantised_table {
    product_functions<Real> q4;
    product_functions<Real> q5;
    product_functions<Real> q8;
};

struct quantised_set {
    char const* name;
    quantised_table<float> for_float;
    quantised_table<double> for_double;
};

struct kernel_set {
    char const* name;
    kernel_table<float> for_float;
    kernel_table<double> for_double;
    std::uint64_t (*read)(void const* data, std::size_t bytes);  // touches every byte; the result keeps it honest
};

// Constant data: reading a table runs no code of its file.
#if defined(__x86_64__)
extern kernel_set const avx512_bf16_kernels;
extern kernel_set const avx512_kernels;
extern kernel_set const avx2_kernels;
#endif
extern kernel_set const portable_kernels;

#if defined(__x86_64__)
extern quantised_set const avx512_vnni_quantised;
extern quantised_set const avx512_quantised;
extern quantised_set const avx_vnni_quantised;
extern quantised_set const avx2_quantised;
#elif defined(__aarch64__)
extern quantised_set const neon_dot_quantised;
#endif
extern quantised_set const portable_quantised;

/// The set of that name, or null if this machine cannot run it.
[[nodiscard]] kernel_set const* find_kernels(char const* name) noexcept;

/// The set that the value of ENGINE_ISA names; null or empty: the best. Throws if this machine cannot run it.
[[nodiscard]] kernel_set const& choose_kernels(char const* wanted);

/// Makes all later calls use `set`, with the best products for packed weights that go with it; for tests, which try
/// every set in one process. Not while a kernel runs.
void use_kernels(kernel_set const& set) noexcept;

/// Those for packed weights that this machine runs, best first; and the same for them alone.
[[nodiscard]] std::vector<quantised_set const*> available_quantised();
void use_quantised(quantised_set const& set) noexcept;

}  // namespace engine

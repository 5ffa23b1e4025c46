// SPDX-License-Identifier: MIT
//
// Products of float matrices through BF16, for processors that multiply it: with AVX512_BF16 twice as many
// multiplications as in float, with AMX-BF16 up to sixteen times. Both factors are rounded to BF16, 8 bits of a number;
// sums keep float. That is what large models are trained with. It is a choice (use_bf16_products), as results differ
// from those of float in the third digit.
#pragma once

#include <atomic>
#include <cstddef>

#include "gemm_amx.hpp"
#include "gemm_panels.hpp"
#include "gemm_vector.hpp"

namespace train {

/// Whether this program was compiled for a processor with such products.
inline constexpr bool has_bf16_products = TRAIN_BF16_PRODUCTS != 0;

namespace detail {

inline std::atomic<bool>& bf16_products() noexcept {
    static std::atomic<bool> chosen{false};
    return chosen;
}

}  // namespace detail

/// For all float products of the program from here on; without has_bf16_products nothing changes.
inline void use_bf16_products(bool chosen) noexcept {
    detail::bf16_products() = chosen && has_bf16_products;
}

#if TRAIN_BF16_PRODUCTS
namespace detail {

/// y [m, n] = left right^T, or y += that, over sums of `depth`.
inline void multiply_bf16(factor const& left, factor const& right, std::size_t m, std::size_t n, std::size_t depth,
                          float* y, std::size_t stride, bool add) {
#if TRAIN_AMX_PRODUCTS
    if (may_use_amx()) return multiply_panels<amx_tiles>(left, right, m, n, depth, y, stride, add);
#endif
    multiply_panels<vector_tiles>(left, right, m, n, depth, y, stride, add);
}

}  // namespace detail
#endif

}  // namespace train

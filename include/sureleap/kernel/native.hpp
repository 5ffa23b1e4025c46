// SPDX-License-Identifier: MIT
//
// The best passes over rows (row.hpp) that the machine runs, found out when the program runs: nobody has to compile for
// it.
#pragma once

#include <span>

#include <sureleap/config.hpp>
#include <sureleap/kernel/row.hpp>
#include <sureleap/kernel/runnable.hpp>

#if defined(__x86_64__) && defined(__GNUC__)
#include <sureleap/kernel/avx2.hpp>
#include <sureleap/kernel/avx512.hpp>
#endif
#include <sureleap/kernel/neon.hpp>

SURELEAP_BEGIN_NAMESPACE
inline namespace SURELEAP_MARCH_TAG {

/// Best first, the reference last; a view of static memory. Everything in it runs here.
[[nodiscard]] inline std::span<row_kernels const* const> available_row_kernels() noexcept {
    static detail::runnable<row_kernels> const found{
#if defined(__x86_64__) && defined(__GNUC__)
        {&avx512_row_kernels, detail::runs_avx512()},
        {&avx2_row_kernels, detail::runs_avx2()},
#elif defined(__aarch64__) && defined(__ARM_NEON) && defined(__GNUC__)
        {&neon_row_kernels, true},
#endif
        {&scalar_row_kernels, true},
    };
    return found.all();
}

/// The best of them.
[[nodiscard]] inline row_kernels const& native_row_kernels() noexcept {
    return *available_row_kernels().front();
}

}  // namespace SURELEAP_MARCH_TAG
SURELEAP_END_NAMESPACE

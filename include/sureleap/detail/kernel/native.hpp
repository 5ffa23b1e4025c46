// SPDX-License-Identifier: MIT
//
// The table of the fastest passes over rows (row.hpp) that the machine runs, chosen at run time.
#pragma once

#include <span>

#include <sureleap/core/config.hpp>
#include <sureleap/detail/kernel/cpu.hpp>
#include <sureleap/detail/kernel/row.hpp>

#if defined(__x86_64__) && defined(__GNUC__)
#include <sureleap/detail/kernel/avx2.hpp>
#include <sureleap/detail/kernel/avx512.hpp>
#endif
#include <sureleap/detail/kernel/neon.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Best first, the reference last; a view of static memory. Everything in it runs here.
[[nodiscard]] inline std::span<row_kernels const* const> available_row_kernels() noexcept {
    static kernel_list<row_kernels> const found{
#if defined(__x86_64__) && defined(__GNUC__)
        {&avx512_row_kernels, cpu().avx512},
        {&avx2_row_kernels, cpu().avx2},
#elif defined(__aarch64__) && defined(__ARM_NEON) && defined(__GNUC__)
        {&neon_row_kernels, true},
#endif
        {&scalar_row_kernels, true},
    };
    return found.tables();
}

/// The best of them.
[[nodiscard]] inline row_kernels const& native_row_kernels() noexcept {
    return *available_row_kernels().front();
}

SURELEAP_END_NAMESPACE

// SPDX-License-Identifier: MIT
//
// The table of the fastest functions of head.hpp that the machine runs, chosen at run time.
#pragma once

#include <span>

#include <sureleap/core/config.hpp>
#include <sureleap/detail/kernel/cpu.hpp>
#include <sureleap/detail/kernel/head.hpp>

#if defined(__x86_64__) && defined(__GNUC__)
#include <sureleap/detail/kernel/head_avx2.hpp>
#include <sureleap/detail/kernel/head_avx512.hpp>
#endif
#include <sureleap/detail/kernel/head_neon.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Best first, the reference last; a view of static memory. Everything in it runs here.
[[nodiscard]] inline std::span<head_kernels const* const> available_head_kernels() noexcept {
    static kernel_list<head_kernels> const found{
#if defined(__x86_64__) && defined(__GNUC__)
        {&avx512_head_kernels, cpu().avx512},
        {&avx2_head_kernels, cpu().avx2},
#elif defined(__aarch64__) && defined(__ARM_NEON) && defined(__GNUC__)
        {&neon_head_kernels, true},
#endif
        {&scalar_head_kernels, true},
    };
    return found.tables();
}

/// The best of them.
[[nodiscard]] inline head_kernels const& native_head_kernels() noexcept {
    return *available_head_kernels().front();
}

SURELEAP_END_NAMESPACE

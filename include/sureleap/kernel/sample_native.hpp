// SPDX-License-Identifier: MIT
//
// The best passes over calibration samples (sample.hpp) that the machine runs, found out when the program
// runs.
#pragma once

#include <span>

#include <sureleap/config.hpp>
#include <sureleap/kernel/cpu.hpp>
#include <sureleap/kernel/sample.hpp>

#if defined(__x86_64__) && defined(__GNUC__)
#include <sureleap/kernel/sample_avx2.hpp>
#include <sureleap/kernel/sample_avx512.hpp>
#endif
#include <sureleap/kernel/sample_neon.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Best first, the reference last; a view of static memory. Everything in it runs here.
[[nodiscard]] inline std::span<sample_kernels const* const> available_sample_kernels() noexcept {
    static kernel_list<sample_kernels> const found{
#if defined(__x86_64__) && defined(__GNUC__)
        {&avx512_sample_kernels, cpu().avx512},
        {&avx2_sample_kernels, cpu().avx2},
#elif defined(__aarch64__) && defined(__ARM_NEON) && defined(__GNUC__)
        {&neon_sample_kernels, true},
#endif
        {&scalar_sample_kernels, true},
    };
    return found.tables();
}

/// The best of them.
[[nodiscard]] inline sample_kernels const& native_sample_kernels() noexcept {
    return *available_sample_kernels().front();
}

SURELEAP_END_NAMESPACE

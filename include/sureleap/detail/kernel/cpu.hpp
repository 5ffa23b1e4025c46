// SPDX-License-Identifier: MIT
//
// Which instructions the machine has. This is found at run time, so one binary serves all machines. Instructions whose
// registers the operating system does not save count as missing.
#pragma once

#include <sureleap/core/config.hpp>

SURELEAP_BEGIN_NAMESPACE

/// The sets of instructions that vector code of the library is compiled for, by attributes of its functions.
struct cpu_features {
    bool avx2 = false;    ///< AVX2, FMA, F16C, BMI, POPCNT
    bool avx512 = false;  ///< those and AVX-512 F, BW, DQ, VL
    bool neon = false;    ///< of AArch64, where it is part of the architecture
};

namespace detail {
/// What cpu() may find. Tests that run over another table than the best take something away
/// (tests/support/kernels.cpp), before anything asks.
inline constinit cpu_features allowed_features{true, true, true};
}  // namespace detail

/// Of this machine. O(1), asks the processor once.
[[nodiscard]] inline cpu_features const& cpu() noexcept {
    static cpu_features const found = []() noexcept {
        cpu_features const& allowed = detail::allowed_features;
        cpu_features f;
#if defined(__x86_64__) && defined(__GNUC__)
        f.avx2 = allowed.avx2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                 __builtin_cpu_supports("bmi") &&
                 __builtin_cpu_supports("popcnt");  // F16C is older than all but POPCNT
        f.avx512 = allowed.avx512 && f.avx2 && __builtin_cpu_supports("avx512f") &&
                   __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                   __builtin_cpu_supports("avx512vl");
#elif defined(__aarch64__) && defined(__ARM_NEON)
        f.neon = allowed.neon;
#endif
        return f;
    }();
    return found;
}

SURELEAP_END_NAMESPACE

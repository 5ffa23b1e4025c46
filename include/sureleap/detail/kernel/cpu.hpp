// SPDX-License-Identifier: MIT
//
// Which instructions the machine has. This is found at run time, so one binary serves all machines. Instructions whose
// registers the operating system does not save count as missing.
#pragma once

#include <sureleap/core/config.hpp>

SURELEAP_BEGIN_NAMESPACE

/// The sets of instructions that vector code of the library is compiled for, by attributes of its functions. On AArch64 there is
/// nothing to ask: NEON is part of the architecture.
struct cpu_features {
    bool avx2 = false;    ///< AVX2, FMA, F16C, BMI, POPCNT
    bool avx512 = false;  ///< those and AVX-512 F, BW, DQ, VL
};

/// Of this machine. O(1), asks the processor once.
[[nodiscard]] inline cpu_features const& cpu() noexcept {
    static cpu_features const found = []() noexcept {
        cpu_features f;
#if defined(__x86_64__) && defined(__GNUC__)
        f.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
                 __builtin_cpu_supports("popcnt");  // F16C is older than all but POPCNT
        f.avx512 = f.avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#endif
        return f;
    }();
    return found;
}

SURELEAP_END_NAMESPACE

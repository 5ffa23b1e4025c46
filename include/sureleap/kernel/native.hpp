// SPDX-License-Identifier: MIT
//
// The best passes over rows (row.hpp) that the machine runs, found out when the program runs: nobody has to compile for
// it. Only what the system saves registers for counts, which is part of the compiler's answer.
#pragma once

#include <cstddef>
#include <span>

#include <sureleap/config.hpp>
#include <sureleap/kernel/row.hpp>

#if defined(__x86_64__) && defined(__GNUC__)
#include <sureleap/kernel/avx2.hpp>
#include <sureleap/kernel/avx512.hpp>
#endif
#include <sureleap/kernel/neon.hpp>

SURELEAP_BEGIN_NAMESPACE
inline namespace SURELEAP_MARCH_TAG {

/// Best first, the reference last; a view of static memory. Everything in it runs here.
[[nodiscard]] inline std::span<row_kernels const* const> available_row_kernels() noexcept {
    struct list {
        row_kernels const* all[3];
        std::size_t size = 0;
        list() noexcept {
#if defined(__x86_64__) && defined(__GNUC__)
            bool const v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");  // F16C is older than both
            bool const v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
            if (v4) all[size++] = &avx512_row_kernels;
            if (v3) all[size++] = &avx2_row_kernels;
#elif defined(__aarch64__) && defined(__ARM_NEON) && defined(__GNUC__)
            all[size++] = &neon_row_kernels;
#endif
            all[size++] = &scalar_row_kernels;
        }
    };
    static list const found;
    return {found.all, found.size};
}

/// The best of them.
[[nodiscard]] inline row_kernels const& native_row_kernels() noexcept {
    return *available_row_kernels().front();
}

}  // namespace SURELEAP_MARCH_TAG
SURELEAP_END_NAMESPACE

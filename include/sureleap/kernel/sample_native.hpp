// SPDX-License-Identifier: MIT
//
// The best passes over calibration samples (sample.hpp) that the machine runs, found out when the program runs, as
// native.hpp does for rows.
#pragma once

#include <cstddef>
#include <span>

#include <sureleap/config.hpp>
#include <sureleap/kernel/sample.hpp>

#if defined(__x86_64__) && defined(__GNUC__)
#include <sureleap/kernel/sample_avx2.hpp>
#include <sureleap/kernel/sample_avx512.hpp>
#endif

SURELEAP_BEGIN_NAMESPACE
inline namespace SURELEAP_MARCH_TAG {

/// Best first, the reference last; a view of static memory. Everything in it runs here.
[[nodiscard]] inline std::span<sample_kernels const* const> available_sample_kernels() noexcept {
    struct list {
        sample_kernels const* all[3];
        std::size_t size = 0;
        list() noexcept {
#if defined(__x86_64__) && defined(__GNUC__)
            bool const v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
            bool const v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
            if (v4) all[size++] = &avx512_sample_kernels;
            if (v3) all[size++] = &avx2_sample_kernels;
#endif
            all[size++] = &scalar_sample_kernels;
        }
    };
    static list const found;
    return {found.all, found.size};
}

/// The best of them.
[[nodiscard]] inline sample_kernels const& native_sample_kernels() noexcept {
    return *available_sample_kernels().front();
}

}  // namespace SURELEAP_MARCH_TAG
SURELEAP_END_NAMESPACE

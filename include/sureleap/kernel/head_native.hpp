// SPDX-License-Identifier: MIT
//
// The best functions of head.hpp that the machine runs, found out when the program runs; as native.hpp.
#pragma once

#include <cstddef>
#include <span>

#include <sureleap/config.hpp>
#include <sureleap/kernel/head.hpp>

#if defined(__x86_64__) && defined(__GNUC__)
#include <sureleap/kernel/head_avx2.hpp>
#include <sureleap/kernel/head_avx512.hpp>
#endif

SURELEAP_BEGIN_NAMESPACE
inline namespace SURELEAP_MARCH_TAG {

/// Best first, the reference last; a view of static memory. Everything in it runs here.
[[nodiscard]] inline std::span<head_kernels const* const> available_head_kernels() noexcept {
    struct list {
        head_kernels const* all[3];
        std::size_t size = 0;
        list() noexcept {
#if defined(__x86_64__) && defined(__GNUC__)
            bool const v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");  // F16C is older than both
            bool const v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
            if (v4) all[size++] = &avx512_head_kernels;
            if (v3) all[size++] = &avx2_head_kernels;
#endif
            all[size++] = &scalar_head_kernels;
        }
    };
    static list const found;
    return {found.all, found.size};
}

/// The best of them.
[[nodiscard]] inline head_kernels const& native_head_kernels() noexcept {
    return *available_head_kernels().front();
}

}  // namespace SURELEAP_MARCH_TAG
SURELEAP_END_NAMESPACE

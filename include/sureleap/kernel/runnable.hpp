// SPDX-License-Identifier: MIT
//
// Which of several tables of functions the machine runs: what native.hpp, head_native.hpp, sample_native.hpp and
// survivals_native.hpp ask. On x86 that is found out when the program runs, and only what the system saves registers
// for counts, which is part of the compiler's answer; elsewhere the compiler knows.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>

#include <sureleap/config.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace detail {
inline namespace SURELEAP_MARCH_TAG {

#if defined(__x86_64__) && defined(__GNUC__)
/// F16C is older than both.
[[nodiscard]] inline bool runs_avx2() noexcept {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
[[nodiscard]] inline bool runs_avx512() noexcept {
    return runs_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

/// Tables that run, best first: the others are left out.
template <class Table>
class runnable {
public:
    struct candidate {
        Table const* table;
        bool runs;
    };
    runnable(std::initializer_list<candidate> all) noexcept {
        for (candidate const& c : all) {
            if (c.runs) tables_[size_++] = c.table;
        }
    }
    [[nodiscard]] std::span<Table const* const> all() const noexcept { return {tables_, size_}; }

private:
    Table const* tables_[4] = {};
    std::size_t size_ = 0;
};

}  // namespace SURELEAP_MARCH_TAG
}  // namespace detail
SURELEAP_END_NAMESPACE

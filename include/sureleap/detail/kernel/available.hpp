// SPDX-License-Identifier: MIT
//
// All vector code, and what is found of it on the machine. native.hpp declares what is defined here.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <type_traits>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/detail/kernel/avx2.hpp>
#include <sureleap/detail/kernel/avx512.hpp>
#include <sureleap/detail/kernel/cpu.hpp>
#include <sureleap/detail/kernel/neon.hpp>
#include <sureleap/detail/kernel/rows.hpp>
#include <sureleap/detail/kernel/tables.hpp>

SURELEAP_BEGIN_NAMESPACE

namespace detail {

/// The tables of one kind that there are and that run here, best first.
template <class Table>
class kernel_list {
public:
    struct candidate {
        Table const* table;
        bool runs;
    };

    /// Best first; the last is the reference, which runs everywhere.
    kernel_list(std::initializer_list<candidate> candidates) noexcept {
        SURELEAP_EXPECTS(candidates.size() <= tables_.size());
        for (candidate const& c : candidates) {
            if (c.runs && c.table->name != nullptr) tables_[size_++] = c.table;
        }
    }
    [[nodiscard]] std::span<Table const* const> tables() const noexcept { return {tables_.data(), size_}; }

private:
    std::array<Table const*, 4> tables_{};
    std::size_t size_ = 0;
};

}  // namespace detail

template <class Table>
[[nodiscard]] std::span<Table const* const> available_kernels() noexcept {
    static detail::kernel_list<Table> const found{
#if defined(__x86_64__) && defined(__GNUC__)
        {&avx512_kernels<Table>, cpu().avx512},
        {&avx2_kernels<Table>, cpu().avx2},
#elif defined(__aarch64__) && defined(__ARM_NEON) && defined(__GNUC__)
        {&neon_kernels<Table>, cpu().neon},
#endif
        {&scalar_kernels<Table>, true},
    };
    return found.tables();
}

template <class T>
row_functions<T> const& row_kernels::get() const noexcept {
    if (row_functions<T> const* const owned = own<T>(); owned != nullptr) return *owned;
    if constexpr (!std::is_same_v<T, double>) {
#if defined(__x86_64__) && defined(__GNUC__)
        if (instructions == instruction_set::avx512) return detail::avx512::for_rows::rows<T>::table;
        if (instructions == instruction_set::avx2) return detail::avx2::for_rows::rows<T>::table;
#elif defined(__aarch64__) && defined(__ARM_NEON) && defined(__GNUC__)
        if (instructions == instruction_set::neon) return detail::neon::rows<T>::table;
#endif
    }
    return detail::scalar_rows<T>::table;
}

SURELEAP_END_NAMESPACE

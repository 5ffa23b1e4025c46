// SPDX-License-Identifier: MIT
//
// The tables of functions (tables.hpp) that the machine runs, and the fastest of them, chosen at run time.
//
// Vector code is compiled into whatever unit asks for it. A program of many units, or one that is compiled often,
// defines SURELEAP_COMPILED to 1 and compiles it once: with the CMake target sureleap::compiled, or by adding
// sureleap/compiled/all.cpp to its sources.
#pragma once

#include <span>

#include <sureleap/core/config.hpp>
#include <sureleap/detail/kernel/heads.hpp>
#include <sureleap/detail/kernel/philox.hpp>
#include <sureleap/detail/kernel/rows.hpp>
#include <sureleap/detail/kernel/survivals.hpp>
#include <sureleap/detail/kernel/tables.hpp>

#if !SURELEAP_COMPILED
#include <sureleap/detail/kernel/available.hpp>
#endif

SURELEAP_BEGIN_NAMESPACE

/// Best first, the reference last; a view of static memory. Everything in it runs here.
template <class Table>
[[nodiscard]] std::span<Table const* const> available_kernels() noexcept;

/// The best of them.
template <class Table>
[[nodiscard]] Table const& native_kernels() noexcept {
    return *available_kernels<Table>().front();
}

#if SURELEAP_COMPILED
extern template std::span<row_kernels const* const> available_kernels<row_kernels>() noexcept;
extern template std::span<head_kernels const* const> available_kernels<head_kernels>() noexcept;
extern template std::span<survival_kernels const* const> available_kernels<survival_kernels>() noexcept;
extern template std::span<philox_kernels const* const> available_kernels<philox_kernels>() noexcept;
extern template row_functions<float> const& row_kernels::get<float>() const noexcept;
extern template row_functions<double> const& row_kernels::get<double>() const noexcept;
extern template row_functions<bf16> const& row_kernels::get<bf16>() const noexcept;
extern template row_functions<half> const& row_kernels::get<half>() const noexcept;
#endif

SURELEAP_END_NAMESPACE

// SPDX-License-Identifier: MIT
//
// Passes over rows, for programs that define SURELEAP_COMPILED (detail/kernel/native.hpp).
#include <sureleap/detail/kernel/available.hpp>
#include <sureleap/detail/kernel/native.hpp>

SURELEAP_BEGIN_NAMESPACE

template std::span<row_kernels const* const> available_kernels<row_kernels>() noexcept;
template row_functions<float> const& row_kernels::get<float>() const noexcept;
template row_functions<double> const& row_kernels::get<double>() const noexcept;
template row_functions<bf16> const& row_kernels::get<bf16>() const noexcept;
template row_functions<half> const& row_kernels::get<half>() const noexcept;

SURELEAP_END_NAMESPACE

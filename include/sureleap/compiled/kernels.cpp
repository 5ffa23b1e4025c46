// SPDX-License-Identifier: MIT
//
// All kernels but the passes over rows, for programs that define SURELEAP_COMPILED (detail/kernel/native.hpp).
#include <sureleap/detail/kernel/available.hpp>
#include <sureleap/detail/kernel/native.hpp>

SURELEAP_BEGIN_NAMESPACE

template std::span<head_kernels const* const> available_kernels<head_kernels>() noexcept;
template std::span<survival_kernels const* const> available_kernels<survival_kernels>() noexcept;
template std::span<philox_kernels const* const> available_kernels<philox_kernels>() noexcept;

SURELEAP_END_NAMESPACE

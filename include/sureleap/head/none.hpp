// SPDX-License-Identifier: MIT
//
// The sequential head of a parallel drafter: no transition bias at all, q_k is the softmax of U_k alone.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>

SURELEAP_BEGIN_NAMESPACE

/// B_k = 0. A head and not a null pointer, so that a drafter has one path for both kinds; it compiles to nothing.
template <std::floating_point Real = float>
class no_head {
public:
    using value_type = Real;

    [[nodiscard]] std::size_t rank() const noexcept { return 0; }
    /// 0: any vocabulary.
    [[nodiscard]] std::size_t vocabulary() const noexcept { return 0; }
    [[nodiscard]] std::size_t previous_vocabulary() const noexcept { return 0; }
    [[nodiscard]] std::size_t hidden_size() const noexcept { return 0; }
    [[nodiscard]] std::size_t state_size() const noexcept { return 0; }

    void reset(std::span<Real>) const noexcept {}
    void add_bias(std::span<Real>, std::span<Real const>, token_id, std::span<Real>) const noexcept {}
    void embed(token_id, std::span<Real>) const noexcept {}
};

SURELEAP_END_NAMESPACE

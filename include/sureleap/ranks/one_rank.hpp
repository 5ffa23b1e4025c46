// SPDX-License-Identifier: MIT
//
// An engine that is alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Models communicator.
struct one_rank {
    [[nodiscard]] static constexpr std::size_t rank() noexcept { return 0; }
    [[nodiscard]] static constexpr std::size_t size() noexcept { return 1; }
    [[nodiscard]] static bool gather(std::span<std::byte const> own, std::span<std::byte> all) noexcept {
        if (own.size() != all.size()) return false;
        std::copy(own.begin(), own.end(), all.begin());
        return true;
    }
};

SURELEAP_END_NAMESPACE

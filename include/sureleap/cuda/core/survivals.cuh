// SPDX-License-Identifier: MIT
//
// Tables of survivals in device memory: what schedules and searches for a budget read.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/workspace.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// A table of survivals for the requests of a round: that of its drafts, or one from before the block. Rows fall, as
/// extend_survival makes them.
struct survival_columns {
    std::uint32_t* sizes = nullptr;         ///< [R] entries in use, at most gamma
    fixed_probability* survival = nullptr;  ///< [R, gamma], at most certain; aligned to 16 bytes

    [[nodiscard]] bool ready() const noexcept {
        return sizes != nullptr && survival != nullptr && reinterpret_cast<std::uintptr_t>(survival) % 16 == 0;
    }
};

/// Of a table from before the block: past rounds (history.cuh), or confidences at the anchor (confidence/head.cuh).
[[nodiscard]] inline survival_columns carve_survivals(workspace& ws, device_limits const& limits) noexcept {
    std::size_t const requests = limits.requests;
    return {ws.take<std::uint32_t>(requests), ws.take<fixed_probability>(requests * limits.block_size)};
}

/// This round's live table.
[[nodiscard]] SURELEAP_HOST_DEVICE inline survival_columns live_table(device_round const& round) noexcept {
    return {round.drafts.sizes, round.drafts.survival};
}

}  // namespace cuda
SURELEAP_END_NAMESPACE

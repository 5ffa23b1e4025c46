// SPDX-License-Identifier: MIT
//
// What a step costs, for schedules on the device: steps per second at every batch that can occur, one array. A curve is
// code of the user's. The array holds its answers to the last bit, so device and host decide by the same doubles. It
// has 128 KB at most, and is read along the order of admission.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/workspace.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// SPS(B) in device memory.
struct capacity_table {
    double* steps_per_second = nullptr;  ///< [size], by batch tokens; the entry of 0 is never read
    std::uint32_t size = 0;              ///< at least batch_sizes(limits)

    [[nodiscard]] static constexpr std::uint32_t batch_sizes(device_limits const& limits) noexcept {
        return limits.requests * (1 + limits.block_size) + 1;
    }
    [[nodiscard]] bool fits(device_limits const& limits) const noexcept {
        return steps_per_second != nullptr && size >= batch_sizes(limits);
    }
};

/// For all the batches that rounds of these limits can have. Nothing is taken, and the table fits nothing, if no
/// schedule that reads it could be run (device_limits::sortable).
[[nodiscard]] inline capacity_table carve_capacity(workspace& ws, device_limits const& limits) noexcept {
    if (!limits.sortable()) return {};
    std::uint32_t const size = capacity_table::batch_sizes(limits);
    return {ws.take<double>(size), size};
}

/// On the host, for the engine to copy into capacity_table: at set-up, or whenever the curve changes. The curve of a
/// cost model is `curve_of(model, load)`, of a load that is known before the block is drafted.
template <capacity_curve Capacity>
void tabulate(Capacity const& curve, std::span<double> steps_per_second) noexcept {
    for (std::size_t b = 0; b < steps_per_second.size(); ++b) {
        steps_per_second[b] = static_cast<double>(curve.steps_per_second(std::max<std::size_t>(b, 1)));
    }
}

/// What a batch is expected to yield: expected_step, over an array.
struct device_step {
    std::uint64_t accepts = 0;       ///< 2^-24, anchors included
    std::uint32_t batch_tokens = 0;  ///< anchors included

    /// Theta, rounded as expected_step::throughput rounds it.
    [[nodiscard]] __device__ double throughput(double const* steps_per_second) const {
        return (static_cast<double>(accepts) * 0x1p-24) * __ldg(steps_per_second + batch_tokens);
    }
};

}  // namespace cuda
SURELEAP_END_NAMESPACE

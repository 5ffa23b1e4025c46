// SPDX-License-Identifier: MIT
//
// The floor under plain decoding: a step reads all weights of the target, and cannot take less than reading them.
//
// How fast memory is read depends on how much is read. A small model stays in a cache, a large one does not. A single
// weight matrix may lie in a faster cache than the whole model, or be too small to occupy all threads. So the rate is
// that of a buffer as large as the weights. It is not measured on the weights themselves, which are many pieces with
// other work in between. A step is compared with the floor to see what that work costs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "kernels.hpp"
#include "thread_pool.hpp"

namespace engine {

struct read_floor {
    std::size_t bytes = 0;        ///< that were read
    double bytes_per_second = 0;  ///< 0: not measured
};

/// For weights of that many bytes, at least one. Far beyond all caches size no longer matters, and a model that fills
/// the memory leaves no room for a buffer beside it; so the buffer ends at a gigabyte.
[[nodiscard]] inline read_floor measure_read_floor(thread_pool& pool, std::size_t weight_bytes) {
    constexpr std::size_t gigabyte = std::size_t{1} << 30;
    // Written, so that it is memory and not a promise of some.
    std::vector<std::byte> const buffer(std::min(weight_bytes, gigabyte), std::byte{1});
    auto const passes = static_cast<int>(std::clamp<std::size_t>(8 * gigabyte / buffer.size(), 1, 50));
    return {buffer.size(), read_bandwidth(pool, buffer.data(), buffer.size(), passes)};
}

}  // namespace engine

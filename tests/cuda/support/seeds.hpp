// SPDX-License-Identifier: MIT
//
// Many orders of the threads: for_each_order(20, [&] { launch and compare; }); A failure names the seed. On a GPU the
// order is the hardware's, and once is enough.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "support/catch.hpp"

#if !defined(SURELEAP_CUDA_EMULATED)
namespace emulator {
/// A GPU orders its threads as it likes.
inline void seed(std::uint64_t) {}
}  // namespace emulator
#endif

/// Of so many random rounds those that are run: a quarter in builds that look for errors of memory, which are many
/// times slower and need no long search.
[[nodiscard]] constexpr std::size_t rounds_of(std::size_t all) noexcept {
    return SURELEAP_TEST_QUICK ? (all + 3) / 4 : all;
}

template <class F>
void for_each_order([[maybe_unused]] std::uint64_t orders, F f) {
#if defined(SURELEAP_CUDA_EMULATED)
    for (std::uint64_t seed = 1; seed <= orders; ++seed) {
        INFO("emulator::seed(" << seed << ")");
        emulator::seed(seed);
        f();
    }
#else
    f();
#endif
}

// SPDX-License-Identifier: MIT
//
// What a launch is made of while it runs: blocks of warps of threads, and what each of them waits for.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <source_location>
#include <vector>

#include "fiber.hpp"
#include "order.hpp"
#include "vector_types.hpp"

namespace emulator {

using where = std::source_location;

namespace detail {

/// What fresh memory holds, in 16-bit units: a NaN as half, bf16, float and double, and as an integer far out of range
/// of any index.
inline constexpr std::uint16_t poison = 0x7ff5;

inline void fill_with_poison(void* memory, std::size_t bytes) {
    auto* out = static_cast<unsigned char*>(memory);
    std::uint16_t const pattern = poison;
    for (std::size_t i = 0; i < bytes; ++i) out[i] = reinterpret_cast<unsigned char const*>(&pattern)[i % 2];
}

/// An operation that the lanes of a mask do together. The last to arrive does it for all.
struct collective {
    char const* name;
    void (*complete)(std::uint32_t mask, void* const* arguments);
    bool orders_memory = false;
};

/// f(lane) for every lane of a mask.
template <class F>
void for_each_lane(std::uint32_t mask, F f) {
    for (; mask != 0; mask &= mask - 1) f(static_cast<unsigned>(std::countr_zero(mask)));
}

/// Lanes that wait for the rest of a mask.
struct gathering {
    collective const* operation;
    std::uint32_t mask;
    std::uint32_t arrived;
    where place;
    std::array<void*, 32> arguments;
};

struct thread;

struct warp {
    std::uint32_t present = 0, runnable = 0, asleep = 0, at_barrier = 0, returned = 0;
    std::vector<gathering> gatherings;
    std::array<thread*, 32> lanes{};
};

enum class barrier_kind { plain, or_, and_, count };

struct block {
    uint3 index{};
    unsigned size = 0, waiting = 0, returned = 0;
    std::vector<warp> warps;
    // the barrier that threads wait in, and the outcome of the last
    barrier_kind kind{};
    where place;
    unsigned yes = 0;
    int outcome = 0;
    // dynamic shared memory between its guards
    std::unique_ptr<std::byte, decltype(&std::free)> memory{nullptr, &std::free};
    std::byte* shared = nullptr;
};

/// An asynchronous copy that has not arrived.
struct copy {
    std::byte* to;
    std::byte const* from;
    std::size_t bytes, zeros;
    std::size_t group;
};

struct thread {
    explicit thread(void (*entry)(), std::size_t number) : context{entry, number} {}
    fiber context;
    block* home = nullptr;
    warp* group = nullptr;
    unsigned lane = 0;
    uint3 index{};
    std::vector<copy> copies;
    std::size_t committed = 0;
    fence_order fences;
};

struct launch_shape {
    void const* kernel;
    dim3 grid, block;
    std::size_t shared_bytes;
};

}  // namespace detail
}  // namespace emulator

// SPDX-License-Identifier: MIT
//
// Asynchronous copies from global to shared memory. On the hardware the bytes arrive at any time up to the wait that
// covers them; here at that wait and not before, and until then the target is poisoned.
#pragma once

#include "cuda_runtime.h"

inline void __pipeline_memcpy_async(void* to, void const* from, std::size_t bytes, std::size_t zeros = 0) {
    auto& m = emulator::detail::machine::the();
    auto& self = m.running("__pipeline_memcpy_async");
    auto const aligned = [&](void const* address) { return reinterpret_cast<std::uintptr_t>(address) % bytes == 0; };
    if ((bytes != 4 && bytes != 8 && bytes != 16) || zeros > bytes) {
        m.report("__pipeline_memcpy_async: " + std::to_string(bytes) + " bytes, " + std::to_string(zeros) +
                 " of them zeros: neither 4, 8 nor 16, or more zeros than bytes");
        m.leave();
    }
    if (!aligned(to) || !aligned(from)) {
        m.report("__pipeline_memcpy_async: source or target is not aligned to " + std::to_string(bytes) + " bytes");
        m.leave();
    }
    auto* const target = static_cast<std::byte*>(to);
    if (target < m.shared_memory() || target + bytes > m.shared_memory() + m.shared_bytes()) {
        m.report("__pipeline_memcpy_async: the target is not in the block's shared memory");
        m.leave();
    }
    self.copies.push_back({target, static_cast<std::byte const*>(from), bytes, zeros, self.committed});
    emulator::detail::fill_with_poison(to, bytes);
}

/// The thread's copies since the last commit become a group.
inline void __pipeline_commit() {
    ++emulator::detail::machine::the().running("__pipeline_commit").committed;
}

/// Waits until all groups of the thread but the latest `newest` have arrived. Others see the bytes after a barrier.
inline void __pipeline_wait_prior(std::size_t newest) {
    auto& self = emulator::detail::machine::the().running("__pipeline_wait_prior");
    std::size_t const arrived = self.committed > newest ? self.committed - newest : 0;
    std::erase_if(self.copies, [&](emulator::detail::copy const& each) {
        if (each.group >= arrived) return false;
        std::memcpy(each.to, each.from, each.bytes - each.zeros);
        std::memset(each.to + (each.bytes - each.zeros), 0, each.zeros);
        return true;
    });
}

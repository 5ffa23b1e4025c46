// SPDX-License-Identifier: MIT
//
// Memory for what a pass reads from end to end: weights, keys and values.
#pragma once

#include <memory_resource>

namespace engine {

/// Memory in pages of 2 MiB, where the system has such for who asks (Linux: madvise). With pages of 4 KiB a pass waits
/// for their addresses. What is asked for is rounded up to whole pages, so small things belong together in a buffer
/// over it. Pages that nobody touched cost address space and no memory.
[[nodiscard]] std::pmr::memory_resource& huge_pages() noexcept;

}  // namespace engine

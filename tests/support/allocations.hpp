// SPDX-License-Identifier: MIT
//
// Counts what a test program allocates and releases, by replacing every form of the global operator new and delete. For
// one source file of a program: replacements cannot be inline.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::size_t> allocations{0};
std::atomic<std::size_t> releases{0};

void* counted(std::size_t size, std::size_t alignment) noexcept {
    allocations.fetch_add(1, std::memory_order_relaxed);
    std::size_t const least = size == 0 ? 1 : size;
    if (alignment <= alignof(std::max_align_t)) return std::malloc(least);
    return std::aligned_alloc(alignment, (least + alignment - 1) / alignment * alignment);
}

/// Running out of memory ends a test program; throwing is all the standard allows, and it would not compile without
/// exceptions.
void* demanded(std::size_t size, std::size_t alignment) noexcept {
    void* const memory = counted(size, alignment);
    if (memory == nullptr) std::abort();
    return memory;
}

void released(void* memory) noexcept {
    if (memory != nullptr) releases.fetch_add(1, std::memory_order_relaxed);
    std::free(memory);
}

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t size) {
    return demanded(size, 0);
}
[[gnu::noinline]] void* operator new[](std::size_t size) {
    return demanded(size, 0);
}
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t a) {
    return demanded(size, std::size_t(a));
}
[[gnu::noinline]] void* operator new[](std::size_t size, std::align_val_t a) {
    return demanded(size, std::size_t(a));
}
[[gnu::noinline]] void* operator new(std::size_t size, std::nothrow_t const&) noexcept {
    return counted(size, 0);
}
[[gnu::noinline]] void* operator new[](std::size_t size, std::nothrow_t const&) noexcept {
    return counted(size, 0);
}
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t a, std::nothrow_t const&) noexcept {
    return counted(size, std::size_t(a));
}
[[gnu::noinline]] void* operator new[](std::size_t size, std::align_val_t a, std::nothrow_t const&) noexcept {
    return counted(size, std::size_t(a));
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
    released(p);
}
[[gnu::noinline]] void operator delete[](void* p) noexcept {
    released(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept {
    released(p);
}
[[gnu::noinline]] void operator delete[](void* p, std::size_t) noexcept {
    released(p);
}
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept {
    released(p);
}
[[gnu::noinline]] void operator delete[](void* p, std::align_val_t) noexcept {
    released(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
    released(p);
}
[[gnu::noinline]] void operator delete[](void* p, std::size_t, std::align_val_t) noexcept {
    released(p);
}
[[gnu::noinline]] void operator delete(void* p, std::nothrow_t const&) noexcept {
    released(p);
}
[[gnu::noinline]] void operator delete[](void* p, std::nothrow_t const&) noexcept {
    released(p);
}
[[gnu::noinline]] void operator delete(void* p, std::align_val_t, std::nothrow_t const&) noexcept {
    released(p);
}
[[gnu::noinline]] void operator delete[](void* p, std::align_val_t, std::nothrow_t const&) noexcept {
    released(p);
}

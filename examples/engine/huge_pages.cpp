// SPDX-License-Identifier: MIT
#include "huge_pages.hpp"

#include <cstddef>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace engine {
namespace {

constexpr std::size_t huge_page = std::size_t{2} << 20;

class huge_page_resource final : public std::pmr::memory_resource {
    [[nodiscard]] static std::size_t whole(std::size_t bytes) noexcept {
        return (bytes + huge_page - 1) / huge_page * huge_page;
    }
    void* do_allocate(std::size_t bytes, std::size_t) override {
        void* const memory = ::operator new(whole(bytes), std::align_val_t{huge_page});
#if defined(__linux__)
        // Where it is refused pages are small, and all else is as it was.
        static_cast<void>(::madvise(memory, whole(bytes), MADV_HUGEPAGE));
#endif
        return memory;
    }
    void do_deallocate(void* memory, std::size_t, std::size_t) override {
        ::operator delete(memory, std::align_val_t{huge_page});
    }
    [[nodiscard]] bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override {
        return this == &other;
    }
};

}  // namespace

std::pmr::memory_resource& huge_pages() noexcept {
    static huge_page_resource all;
    return all;
}

}  // namespace engine

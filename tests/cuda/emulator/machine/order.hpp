// SPDX-License-Identifier: MIT
//
// What ThreadSanitizer is told. To it, every fiber is a thread. So it finds unordered accesses of a kernel in one run,
// whatever the seed, and names both lines. For that it has to know what orders them. These do: the start and the end of
// a launch, __syncthreads, __syncwarp, and fences on both sides of an atomic that one thread wrote and another one read
// (fence_order). These do not: shuffles, votes, an atomic or a fence alone. The emulator's own bookkeeping is not
// observed. In other builds all of this is nothing.
#pragma once

#include <array>
#include <cstddef>
#include <unordered_map>

#include "fiber.hpp"

#if defined(EMULATOR_TSAN)
extern "C" {
void AnnotateIgnoreReadsBegin(char const* file, int line);
void AnnotateIgnoreReadsEnd(char const* file, int line);
void AnnotateIgnoreWritesBegin(char const* file, int line);
void AnnotateIgnoreWritesEnd(char const* file, int line);
}
#endif

namespace emulator::detail {

/// What happened before release(x) comes before what happens after a later acquire(x).
inline void release([[maybe_unused]] void* object) {
#if defined(EMULATOR_TSAN)
    __tsan_release(object);
#endif
}
inline void acquire([[maybe_unused]] void* object) {
#if defined(EMULATOR_TSAN)
    __tsan_acquire(object);
#endif
}

/// While one lives, accesses of the fiber that made it are not observed.
class unobserved {
public:
    unobserved() { begin(); }
    unobserved(unobserved const&) = delete;
    unobserved& operator=(unobserved const&) = delete;
    ~unobserved() { end(); }

    static void begin() {
#if defined(EMULATOR_TSAN)
        AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
        AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
#endif
    }
    static void end() {
#if defined(EMULATOR_TSAN)
        AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
        AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
#endif
    }
};

/// What the fences and atomics of one thread order, as the memory model has it. A fence followed by an atomic publishes
/// what came before the fence. It is published to a thread that reads that atomic's value, or one derived from it, by
/// an atomic of its own followed by a fence.
///
/// Rejected: a clock that all fences share, which is simpler and orders any two of them. The next fence would then hide
/// a missing one, since it mostly comes before another thread looks. ThreadSanitizer's own atomics cannot be used
/// either: they publish what a thread did up to the atomic, not up to the fence.
class fence_order {
public:
    /// A launch begins: all of the last one came before.
    void start_launch() { found_.clear(); }

    void fence() {
        for (auto const& [who, number] : found_) {
            std::size_t& known = known_[who];
            if (number <= known) continue;
            acquire(who->clock(number));
            known = number;
        }
        found_.clear();
        release(clock(++fences_));
    }

    /// What the value at an address was made of: the last fence of each thread that took part.
    using publication = std::unordered_map<fence_order*, std::size_t>;

    void atomic(publication& there) {
        for (auto const& [who, number] : there) {
            std::size_t& found = found_[who];
            if (number > found) found = number;
        }
        if (fences_ > 0) there[this] = fences_;
    }

private:
    /// What ThreadSanitizer knows the fence of that number by. An old one's is used again, and then stands for more
    /// than it should; threads make few fences between an atomic and the moment that it is found.
    char* clock(std::size_t number) { return &clocks_[number % clocks_.size()]; }

    std::array<char, 64> clocks_{};
    std::size_t fences_ = 0;
    publication found_;  // since the last fence
    publication known_;
};

}  // namespace emulator::detail

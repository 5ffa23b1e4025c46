// SPDX-License-Identifier: MIT
//
// What ThreadSanitizer is told. To it, every fiber is a thread, so it finds unordered accesses of a kernel in one run, and names
// both lines, whatever the seed; as long as it knows what orders them. That is: the start and the end of a launch,
// __syncthreads, __syncwarp, and two fences where one comes after the other. It is not: shuffles, votes, atomics.
// The emulator's own bookkeeping is not observed. In other builds all of this is nothing.
#pragma once

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

}  // namespace emulator::detail

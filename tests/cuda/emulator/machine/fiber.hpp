// SPDX-License-Identifier: MIT
//
// Fibers: stacks that one host thread switches between. Every CUDA thread of the emulator is one.
//
// The switch is our own and not Boost.Context's. A thread of a launch that failed stays suspended for good, in the
// middle of functions that may be noexcept. But boost::context::fiber ends a suspended fiber by an exception that
// unwinds it. Our switch goes straight from lane to lane without an owner handed around, costs some 20 instructions,
// and asks for no package. Processors that it does not know use <ucontext.h>, which costs a system call a switch.
//
// AddressSanitizer and ThreadSanitizer are told of every switch. Stacks are mapped lazily, each behind a page that
// faults, so an overflow crashes instead of running into the neighbour.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#define EMULATOR_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMULATOR_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define EMULATOR_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define EMULATOR_TSAN 1
#endif
#endif

#if defined(EMULATOR_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(EMULATOR_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <ucontext.h>
#endif

#if defined(__x86_64__)
// Saves what a called function must preserve on the running stack, stores its top in *rdi, continues on the stack rsi.
asm(R"(
    .pushsection .text.sureleap_emulator_switch, "axG", @progbits, sureleap_emulator_switch, comdat
    .weak sureleap_emulator_switch
    .type sureleap_emulator_switch, @function
sureleap_emulator_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size sureleap_emulator_switch, . - sureleap_emulator_switch
    .popsection
)");
extern "C" void sureleap_emulator_switch(void** from, void* to);
#elif defined(__aarch64__)
asm(R"(
    .pushsection .text.sureleap_emulator_switch, "axG", @progbits, sureleap_emulator_switch, comdat
    .weak sureleap_emulator_switch
    .type sureleap_emulator_switch, @function
sureleap_emulator_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
    .size sureleap_emulator_switch, . - sureleap_emulator_switch
    .popsection
)");
extern "C" void sureleap_emulator_switch(void** from, void* to);
#endif

#if defined(EMULATOR_ASAN)
// What instrumented functions ask to learn whether their frames live on a second stack, to find uses after they
// returned.
extern "C" int __asan_option_detect_stack_use_after_return;
#endif

namespace emulator::detail {

#if defined(EMULATOR_ASAN)
inline constexpr std::size_t stack_bytes = 256 * 1024;  // frames grow by red zones
#else
inline constexpr std::size_t stack_bytes = 128 * 1024;
#endif
inline constexpr std::size_t page_bytes = 4096;

/// While it lives, frames are on the stacks that they seem to be on: a second stack for each of thousands of fibers
/// takes gigabytes. Only while fibers run, since the host's frames need it: without it clang 19 aligns instrumented
/// frames to 32 bytes, and vectors of 64 that are passed on the stack fault.
class plain_frames {
public:
#if defined(EMULATOR_ASAN)
    plain_frames() : before_{std::exchange(__asan_option_detect_stack_use_after_return, 0)} {}
    ~plain_frames() { __asan_option_detect_stack_use_after_return = before_; }

private:
    int before_;
#else
    plain_frames() {}
    ~plain_frames() {}
#endif

public:
    plain_frames(plain_frames const&) = delete;
    plain_frames& operator=(plain_frames const&) = delete;
};

/// A stack of its own and the place where it was left. Default constructed, it stands for the stack of the host thread.
class fiber {
public:
    fiber() {
#if defined(EMULATOR_TSAN)
        tsan_ = __tsan_get_current_fiber();
#endif
    }

    /// Suspended at the start of `entry`, which never returns. `number` sets stacks off against each other, or the top
    /// of each would fall on the same cache lines.
    fiber(void (*entry)(), std::size_t number) : entry_{entry}, offset_{number % 61 * 64} {
        void* const pages = mmap(nullptr, page_bytes + stack_bytes, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (pages == MAP_FAILED || mprotect(pages, page_bytes, PROT_NONE) != 0) {
            std::perror("emulator: no memory for the stack of a CUDA thread");
            std::abort();
        }
        bottom_ = static_cast<std::byte*>(pages) + page_bytes;
        size_ = stack_bytes;
        start_anew();
    }

    fiber(fiber const&) = delete;
    fiber& operator=(fiber const&) = delete;
    ~fiber() {
        if (entry_ != nullptr) {
            forget_frames();
            munmap(bottom_ - page_bytes, page_bytes + size_);
        }
    }

    /// Forgets whatever was running on the stack, without unwinding it.
    void start_anew() {
        forget_frames();
#if defined(EMULATOR_TSAN)
        tsan_ = __tsan_create_fiber(0);  // never destroyed: it is left with accesses unobserved, which is an error
#endif
        std::byte* const top = bottom_ + size_ - offset_;
#if defined(__x86_64__)
        void* frame[8] = {};  // six registers, the address to return to, and the caller that there is not
        frame[6] = reinterpret_cast<void*>(entry_);
        std::memcpy(top - sizeof frame, frame, sizeof frame);
        saved_ = top - sizeof frame;
#elif defined(__aarch64__)
        void* frame[20] = {};
        frame[11] = reinterpret_cast<void*>(entry_);
        std::memcpy(top - sizeof frame, frame, sizeof frame);
        saved_ = top - sizeof frame;
#else
        getcontext(&context_);
        context_.uc_stack.ss_sp = bottom_;
        context_.uc_stack.ss_size = size_ - offset_;
        context_.uc_link = nullptr;
        makecontext(&context_, entry_, 0);
#endif
    }

    /// Leaves this fiber, which must be the running one, and continues `to`. Returns when somebody continues this one.
    void switch_to(fiber& to) {
#if defined(EMULATOR_ASAN)
        previous() = this;
        __sanitizer_start_switch_fiber(&fake_stack_, to.bottom_, to.size_);
#endif
#if defined(EMULATOR_TSAN)
        __tsan_switch_to_fiber(to.tsan_, __tsan_switch_to_fiber_no_sync);
#endif
#if defined(__x86_64__) || defined(__aarch64__)
        sureleap_emulator_switch(&saved_, to.saved_);
#else
        swapcontext(&context_, &to.context_);
#endif
        arrived();
    }

    /// To be called first by `entry`.
    void arrived() {
#if defined(EMULATOR_ASAN)
        // The extent of the host thread's stack is known only from having left it.
        void const* bottom = nullptr;
        std::size_t size = 0;
        __sanitizer_finish_switch_fiber(fake_stack_, &bottom, &size);
        if (previous()->entry_ == nullptr) {
            previous()->bottom_ = static_cast<std::byte*>(const_cast<void*>(bottom));
            previous()->size_ = size;
        }
#endif
    }

private:
    /// Red zones of the suspended functions, which nobody takes away as they never return.
    void forget_frames() {
#if defined(EMULATOR_ASAN)
#if defined(__x86_64__) || defined(__aarch64__)
        auto* const lowest = saved_ == nullptr ? bottom_ + size_ : static_cast<std::byte*>(saved_);
#else
        auto* const lowest = bottom_;
#endif
        __asan_unpoison_memory_region(lowest, static_cast<std::size_t>(bottom_ + size_ - lowest));
        fake_stack_ = nullptr;
#endif
    }

#if defined(EMULATOR_ASAN)
    static fiber*& previous() {
        static fiber* left = nullptr;
        return left;
    }
    void* fake_stack_ = nullptr;
#endif
#if defined(EMULATOR_TSAN)
    void* tsan_ = nullptr;
#endif
#if defined(__x86_64__) || defined(__aarch64__)
    void* saved_ = nullptr;
#else
    ucontext_t context_{};
#endif
    void (*entry_)() = nullptr;
    std::byte* bottom_ = nullptr;
    std::size_t size_ = 0;
    std::size_t offset_ = 0;
};

}  // namespace emulator::detail

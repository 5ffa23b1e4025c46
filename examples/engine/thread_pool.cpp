// SPDX-License-Identifier: MIT
//
// How a loop is divided. Every thread has a share of the indices; `left` counts those of the share that are not taken.
// Taking one is a compare-and-swap from r to r - 1 with r > 0. A thread that succeeds holds an index of the loop that
// is running now. That loop cannot end before the index is done, so its function may be read without a lock. So a
// worker that slept through loop N and wakes in loop N + 1 helps with N + 1; it cannot combine an index of one with the
// function of the other. Rejected: every worker signing off every loop, which makes each loop as long as the slowest
// wake-up; one counter for all, whose cache line would move between cores for every index. Rows of a product would also
// change their core with every loop.
//
// A loop has ended when all that is left is 0 and no worker is between "may take an index" and "is done" (busy_). A
// worker counts itself busy before its first take, so whoever sees 0 everywhere also sees those who took.
#include "thread_pool.hpp"

#include <chrono>

namespace engine {

namespace {

void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

/// Waits until `value` differs from `old`: first spinning, as the next loop of a forward pass is microseconds away,
/// then asleep. Long enough for what the caller does alone between two passes, sampling above all: to wake a thread
/// costs it ten microseconds and more. No longer, because a spinning thread on a loaded machine takes the core of the
/// one it waits for.
void wait_for_change(std::atomic<std::uint32_t> const& value, std::uint32_t old) noexcept {
    using clock = std::chrono::steady_clock;
    auto const deadline = clock::now() + std::chrono::microseconds(150);
    do {
        for (int i = 0; i < 16; ++i) {
            if (value.load(std::memory_order_acquire) != old) return;
            pause();
        }
    } while (clock::now() < deadline);
    value.wait(old, std::memory_order_acquire);
}

}  // namespace

thread_pool::thread_pool(std::size_t threads) {
    if (threads == 0) threads = std::thread::hardware_concurrency();
    if (threads == 0) threads = 1;  // where it is not known
    shares_ = std::vector<share>(threads);
    try {
        for (std::size_t i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
    } catch (...) {  // the system has no more threads: those that run must end before the members they use
        stop();
        throw;
    }
}

thread_pool::~thread_pool() {
    stop();
}

void thread_pool::stop() noexcept {
    stop_.store(true, std::memory_order_relaxed);
    loop_.fetch_add(1, std::memory_order_release);
    loop_.notify_all();
    for (std::thread& worker : workers_) worker.join();
}

void thread_pool::run_erased(std::size_t count, task call, void const* f) {
    if (workers_.empty() || count <= 1) {
        for (std::size_t i = 0; i < count; ++i) call(f, i);
        return;
    }
    call_ = call;
    f_ = f;
    count_ = count;
    for (std::size_t t = 0; t < shares_.size(); ++t) {
        shares_[t].left.store(share_begin(t + 1) - share_begin(t), std::memory_order_release);
    }
    loop_.fetch_add(1, std::memory_order_release);
    loop_.notify_all();
    serve(0);
    while (std::uint32_t const busy = busy_.load(std::memory_order_acquire)) wait_for_change(busy_, busy);
}

/// Takes and does indices until none is left, its own first.
void thread_pool::serve(std::size_t self) noexcept {
    for (std::size_t i = 0; i < shares_.size(); ++i) {
        std::size_t const t = (self + i) % shares_.size();
        std::atomic<std::size_t>& untaken = shares_[t].left;
        std::size_t left = untaken.load(std::memory_order_acquire);
        while (left != 0) {
            if (untaken.compare_exchange_weak(left, left - 1, std::memory_order_acq_rel, std::memory_order_acquire)) {
                call_(f_, share_begin(t + 1) - left);  // ascending
                left = untaken.load(std::memory_order_acquire);
            }
        }
    }
}

void thread_pool::work(std::size_t self) noexcept {
    for (;;) {
        std::uint32_t const seen = loop_.load(std::memory_order_acquire);
        if (stop_.load(std::memory_order_relaxed)) return;
        busy_.fetch_add(1, std::memory_order_acq_rel);
        serve(self);
        if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) busy_.notify_one();
        wait_for_change(loop_, seen);
    }
}

}  // namespace engine

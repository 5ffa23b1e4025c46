// SPDX-License-Identifier: MIT
//
// A pool that splits one loop at a time over a fixed set of threads. A forward pass is a few hundred short loops, one
// after another, so what counts is how fast a loop starts and ends: workers spin for a moment before they sleep, and
// the caller never waits for a worker that took no index.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace engine {

/// Not thread-safe: one loop at a time, started by one thread. No allocation after construction.
class thread_pool {
public:
    /// `threads` counts the caller, who works too. 0: one per core of the machine.
    explicit thread_pool(std::size_t threads = 0);
    ~thread_pool();
    thread_pool(thread_pool const&) = delete;
    thread_pool& operator=(thread_pool const&) = delete;

    [[nodiscard]] std::size_t threads() const noexcept { return workers_.size() + 1; }

    /// Calls f(i) for every i in [0, count), in any order, on any thread; returns when all are done. f must not throw
    /// and must not use the pool. Indices are handed out one by one, so make them worth a few microseconds each.
    template <class F>
    void run(std::size_t count, F const& f) {
        static_assert(std::is_invocable_v<F const&, std::size_t>, "thread_pool: f must be callable as f(index)");
        run_erased(count, [](void const* g, std::size_t i) { (*static_cast<F const*>(g))(i); }, &f);
    }

private:
    using task = void (*)(void const*, std::size_t);

    void run_erased(std::size_t count, task call, void const* f);
    void work() noexcept;
    void serve() noexcept;
    void stop() noexcept;

    std::vector<std::thread> workers_;
    // The loop being run; written while no index is left, read only by who holds an index.
    task call_ = nullptr;
    void const* f_ = nullptr;
    std::size_t count_ = 0;
    // On cache lines of their own: the first is fought over, the others are polled.
    alignas(64) std::atomic<std::size_t> left_{0};    // indices nobody has taken yet
    alignas(64) std::atomic<std::uint32_t> busy_{0};  // workers that may hold an index
    alignas(64) std::atomic<std::uint32_t> loop_{0};  // a change wakes the workers; 32 bits, as a futex has
    std::atomic<bool> stop_{false};
};

}  // namespace engine

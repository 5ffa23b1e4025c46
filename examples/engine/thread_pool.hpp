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
    /// With run, what makes the pool a sureleap::executor.
    [[nodiscard]] std::size_t width() const noexcept { return threads(); }

    /// Calls f(i) for every i in [0, count), in any order, on any thread; returns when all are done. f must not throw
    /// and must not use the pool. Every thread has a share of neighbouring indices, the same in every loop of `count`,
    /// and helps the others when it is through: what it wrote last time is likely to lie in its own cache.
    template <class F>
    void run(std::size_t count, F const& f) noexcept {
        static_assert(std::is_invocable_v<F const&, std::size_t>, "thread_pool: f must be callable as f(index)");
        run_erased(count, [](void const* g, std::size_t i) { (*static_cast<F const*>(g))(i); }, &f);
    }

private:
    using task = void (*)(void const*, std::size_t);
    struct alignas(64) share {  // on a cache line of its own: its owner mostly has it to itself
        std::atomic<std::size_t> left{0};
    };

    void run_erased(std::size_t count, task call, void const* f);
    void work(std::size_t self) noexcept;
    void serve(std::size_t self) noexcept;
    [[nodiscard]] std::size_t share_begin(std::size_t t) const noexcept { return t * count_ / shares_.size(); }
    void stop() noexcept;

    std::vector<std::thread> workers_;
    // The loop being run; written while no index is left, read only by who holds an index.
    task call_ = nullptr;
    void const* f_ = nullptr;
    std::size_t count_ = 0;
    std::vector<share> shares_;  // by thread, the caller first: indices of it that nobody has taken yet
    // On cache lines of their own, as they are polled.
    alignas(64) std::atomic<std::uint32_t> busy_{0};  // workers that may hold an index
    alignas(64) std::atomic<std::uint32_t> loop_{0};  // a change wakes the workers; 32 bits, as a futex has
    std::atomic<bool> stop_{false};
};

}  // namespace engine

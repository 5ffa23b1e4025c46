// SPDX-License-Identifier: MIT
//
// Threads that an engine lends to the library. The library makes none: an engine has a pool, and a second one would
// compete with it for the cores. To divide a round's passes over rows among threads, lend the pool as an executor:
//
//     struct lent_pool {
//         my_pool& pool;
//         void run(std::size_t tasks, sureleap::task_ref task) noexcept { pool.parallel_for(tasks, task); }
//         std::size_t width() const { return pool.threads(); }
//     };
//     lent_pool lent{pool};
//     round_memory<float, float> memory{drafter, rule, {.max_requests = 32, .executor = lent}};
//
// Results are the same bits whatever is lent. Requests and rows of a product are divided among threads. One thread
// computes each of them as if it were alone and writes it to a place of its own. Draws are functions of their keys. So
// nothing has to be locked and no order matters.
//
// An executor runs numbered tasks and need not know which thread runs one. The library starts as many tasks as it has
// scratch for, and tasks claim the work from a counter: one that starts late, or after the others, finds nothing left.
// Rejected: thread indices, which not every pool has. A task for every request: the pool would have to keep two of them
// from the same scratch. A template parameter in every part that touches a row, for a call a stage.
#pragma once

#include <algorithm>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <exception>
#include <type_traits>
#include <utility>

#include <sureleap/core/config.hpp>
#include <sureleap/core/function_ref.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Runs piece i of some work.
using task_ref = function_ref<void(std::size_t)>;

/// Runs tasks on somebody's threads.
///
/// - run(tasks, task): calls task(0) .. task(tasks - 1), each exactly once, and returns when all have ended. What tasks
///   wrote is there for the caller then, and what the caller wrote before is there for them.
/// - width(): how many of them it runs at once, at least 1; constant. Scratch is carved for so many, and a run has no
///   more tasks. 1 is an executor too: nothing is divided then.
/// - grain(), optional: how many numbers (logits, weights) a task shall pass over at least; constant. default_grain
///   where there is none.
///
/// Promise: run does not throw, and says so. Tasks do not throw either. Runs begin in the thread that calls a stage,
/// one at a time and never inside a task, so a pool need not nest; engines in different threads that share one begin
/// runs concurrently. Not promised: any order, any thread, that tasks overlap at all. Tasks never wait for each other.
template <class E>
concept executor = requires(E& e, E const& c, std::size_t tasks, task_ref task) {
    { e.run(tasks, task) } noexcept;
    { c.width() } -> std::convertible_to<std::size_t>;
};

/// A task of so many numbers takes some 50 microseconds. To wake a thread that sleeps was seen to take 15 to 50, so
/// less is not worth it. A pool whose threads spin can do with less.
inline constexpr std::size_t default_grain = std::size_t{1} << 19;

/// A view of an executor, which must outlive it. By default none: everything runs in the calling thread. Models
/// executor.
class executor_ref {
public:
    executor_ref() = default;
    template <class E>
        requires(!std::is_same_v<std::remove_const_t<E>, executor_ref>)
    executor_ref(E& lent) noexcept {  // NOLINT: an executor is lent where one is asked for
        static_assert(
            executor<E>,
            "sureleap: this is no sureleap::executor; give it run(std::size_t tasks, sureleap::task_ref task) "
            "noexcept, which calls task(0) .. task(tasks - 1) and returns when all have ended, and width() const, how "
            "many it runs at once (executor.hpp)");
        if constexpr (executor<E>) {
            run_ = {lent, [](E& e, std::size_t tasks, task_ref task) noexcept { e.run(tasks, task); }};
            width_ = static_cast<std::size_t>(std::as_const(lent).width());
            if constexpr (requires { std::as_const(lent).grain(); }) {
                grain_ = std::max(static_cast<std::size_t>(std::as_const(lent).grain()), std::size_t{1});
            }
        }
    }

    void run(std::size_t tasks, task_ref task) const noexcept {
        if (run_) return run_(tasks, task);
        for (std::size_t i = 0; i < tasks; ++i) task(i);
    }
    [[nodiscard]] std::size_t width() const noexcept { return width_; }
    [[nodiscard]] std::size_t grain() const noexcept { return grain_; }
    /// How many tasks to make of work that passes over `numbers`, at least 1.
    [[nodiscard]] std::size_t worth(std::size_t numbers) const noexcept {
        return std::clamp(numbers / grain_, std::size_t{1}, std::max(width_, std::size_t{1}));
    }

private:
    function_ref<void(std::size_t, task_ref)> run_{};
    std::size_t width_ = 1;
    std::size_t grain_ = default_grain;
};

namespace detail {

/// What a task threw, of several that run at once: kept until all have ended, since a pool's threads cannot pass it on.
class first_failure {
public:
#if SURELEAP_EXCEPTIONS
    /// f(), or what it throws is kept, if it is the first. False: it threw.
    template <class F>
    [[nodiscard]] bool guard(F const& f) noexcept {
        try {
            f();
            return true;
        } catch (...) {
            if (!taken_.test_and_set()) what_ = std::current_exception();
            return false;
        }
    }
    /// When all tasks have ended.
    void rethrow() const {
        if (what_) std::rethrow_exception(what_);
    }

private:
    std::atomic_flag taken_{};
    std::exception_ptr what_{};
#else
    template <class F>
    [[nodiscard]] bool guard(F const& f) noexcept {
        f();
        return true;
    }
    void rethrow() const noexcept {}
#endif
};

/// f(worker, item) for every item below `items`, by at most `workers` tasks. No two calls of one worker overlap, so it
/// may have scratch. If f throws, no further item is begun. The first exception comes out when the items that were
/// begun have ended.
template <class F>
void share_out(executor_ref const& executor, std::size_t workers, std::size_t items, F const& f) {
    workers = std::min(workers, items);
    if (workers <= 1) {
        for (std::size_t i = 0; i < items; ++i) f(std::size_t{0}, i);
        return;
    }
    std::atomic<std::size_t> next{0};
    first_failure failure;
    auto const claim_items = [&](std::size_t worker) noexcept {
        for (std::size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < items;) {
            if (!failure.guard([&] { f(worker, i); })) next.store(items, std::memory_order_relaxed);
        }
    };
    executor.run(workers, claim_items);
    failure.rethrow();
}

}  // namespace detail

SURELEAP_END_NAMESPACE

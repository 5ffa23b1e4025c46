// SPDX-License-Identifier: MIT
//
// Executors that do what one is allowed to do: run tasks in any order, one after another or all at once. All check what
// the library owes them: no more tasks than their width, no run inside a run.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <vector>

#include <sureleap/core/executor.hpp>

#include "support/dice.hpp"

namespace support {

enum class task_order { ascending, descending, shuffled, at_once };

[[nodiscard]] inline char const* name_of(task_order o) {
    switch (o) {
        case task_order::ascending: return "ascending";
        case task_order::descending: return "descending";
        case task_order::shuffled: return "shuffled";
        default: return "at once";
    }
}

/// `at_once` runs every task on a thread of its own, and begins none before all threads are there. Allocates nothing in
/// the other orders. With a grain of 1 all work is divided, however little it is.
class test_executor {
public:
    test_executor(task_order order, std::size_t width, std::size_t grain = 1)
        : order_(order), width_(width), grain_(grain), sequence_(width), roll_(9) {}

    void run(std::size_t tasks, sureleap::task_ref task) noexcept {
        demand(tasks <= width_, "more tasks than the executor is wide");
        demand(!running_.exchange(true), "a run inside a run");
        ++runs_;
        most_tasks_ = std::max(most_tasks_, tasks);
        if (order_ == task_order::at_once) {
            on_threads(tasks, task);
        } else {
            one_by_one(tasks, task);
        }
        running_ = false;
    }
    [[nodiscard]] std::size_t width() const noexcept { return width_; }
    [[nodiscard]] std::size_t grain() const noexcept { return grain_; }

    [[nodiscard]] std::size_t runs() const noexcept { return runs_; }
    [[nodiscard]] std::size_t most_tasks() const noexcept { return most_tasks_; }

private:
    static void demand(bool holds, char const* what) {
        if (holds) return;
        std::fprintf(stderr, "test_executor: %s\n", what);
        std::abort();
    }
    void one_by_one(std::size_t tasks, sureleap::task_ref task) {
        auto const end = sequence_.begin() + static_cast<std::ptrdiff_t>(tasks);
        std::iota(sequence_.begin(), end, std::size_t{0});
        if (order_ == task_order::descending) std::reverse(sequence_.begin(), end);
        if (order_ == task_order::shuffled) {
            for (std::size_t i = tasks; i > 1; --i) std::swap(sequence_[i - 1], sequence_[roll_.below(i)]);
        }
        std::for_each(sequence_.begin(), end, task);
    }
    static void on_threads(std::size_t tasks, sureleap::task_ref task) {
        std::atomic<std::size_t> arrived{0};
        std::vector<std::thread> threads;
        for (std::size_t i = 0; i < tasks; ++i) {
            threads.emplace_back([&, i] {
                ++arrived;
                while (arrived < tasks) std::this_thread::yield();
                task(i);
            });
        }
        for (std::thread& t : threads) t.join();
    }

    task_order order_;
    std::size_t width_;
    std::size_t grain_;
    std::vector<std::size_t> sequence_;
    dice roll_;
    std::atomic<bool> running_{false};
    std::size_t runs_ = 0;
    std::size_t most_tasks_ = 0;
};

}  // namespace support

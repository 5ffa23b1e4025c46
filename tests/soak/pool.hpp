// SPDX-License-Identifier: MIT
//
// Threads to lend: the simplest pool there is, whose locks a thread sanitizer understands. A grain of 1 lets the
// library divide all that it can, however little it is.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <sureleap/core/executor.hpp>

namespace soak {

/// Models sureleap::executor. The calling thread works too.
class pool {
public:
    explicit pool(std::size_t width) {
        for (std::size_t i = 1; i < width; ++i) threads_.emplace_back([this] { serve(); });
    }
    ~pool() {
        {
            std::lock_guard const lock{mutex_};
            stopping_ = true;
        }
        wake_.notify_all();
        for (std::thread& t : threads_) t.join();
    }
    pool(pool const&) = delete;
    pool& operator=(pool const&) = delete;

    void run(std::size_t tasks, sureleap::task_ref task) noexcept {
        std::unique_lock lock{mutex_};
        task_ = task;
        next_ = 0;
        end_ = unfinished_ = tasks;
        wake_.notify_all();
        work(lock);
        done_.wait(lock, [&] { return unfinished_ == 0; });
    }
    [[nodiscard]] std::size_t width() const noexcept { return threads_.size() + 1; }
    [[nodiscard]] static std::size_t grain() noexcept { return 1; }

private:
    void work(std::unique_lock<std::mutex>& lock) {
        while (next_ < end_) {
            std::size_t const i = next_++;
            sureleap::task_ref const task = *task_;
            lock.unlock();
            task(i);
            lock.lock();
            if (--unfinished_ == 0) done_.notify_all();
        }
    }
    void serve() {
        std::unique_lock lock{mutex_};
        while (!stopping_) {
            work(lock);
            wake_.wait(lock, [&] { return stopping_ || next_ < end_; });
        }
    }

    std::mutex mutex_;
    std::condition_variable wake_;
    std::condition_variable done_;
    std::optional<sureleap::task_ref> task_;
    std::size_t next_ = 0;
    std::size_t end_ = 0;
    std::size_t unfinished_ = 0;
    bool stopping_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace soak

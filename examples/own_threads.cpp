// SPDX-License-Identifier: MIT
//
// Threads of your own. The library makes none; an engine has a pool, and lends it as an executor. A round then divides
// its passes over rows of logits among the pool's threads, and gives the same tokens.
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <functional>
#include <latch>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include <sureleap/sureleap.hpp>

using namespace sureleap;

// A pool as most engines have one: threads that take jobs from a queue.
class thread_pool {
public:
    explicit thread_pool(std::size_t threads) {
        for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
    }
    ~thread_pool() {
        submit(nullptr);
        for (std::thread& t : threads_) t.join();
    }
    void submit(std::function<void()> job) {
        {
            std::lock_guard const lock(mutex_);
            jobs_.push_back(std::move(job));
        }
        changed_.notify_one();
    }
    [[nodiscard]] std::size_t size() const { return threads_.size(); }

private:
    void work() {
        for (;;) {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [this] { return !jobs_.empty(); });
            if (jobs_.front() == nullptr) return changed_.notify_one();  // the end, for the next thread as well
            auto const job = std::move(jobs_.front());
            jobs_.pop_front();
            lock.unlock();
            job();
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> jobs_;
    std::vector<std::thread> threads_;
};

// The pool as an executor. The caller, who has to wait anyway, runs a task as well.
class lent_pool {
public:
    explicit lent_pool(thread_pool& pool) : pool_(pool) {}

    void run(std::size_t tasks, task_ref task) noexcept {
        std::latch ended(static_cast<std::ptrdiff_t>(tasks));
        for (std::size_t i = 1; i < tasks; ++i) {
            pool_.submit([&ended, task, i] {
                task(i);
                ended.count_down();
            });
        }
        task(0);
        ended.arrive_and_wait();
    }
    [[nodiscard]] std::size_t width() const { return pool_.size() + 1; }
    [[nodiscard]] std::size_t grain() const { return 1 << 12; }  // a toy's; the default suits most machines

private:
    thread_pool& pool_;
};
static_assert(executor<lent_pool>);

// What eight requests get, one after another.
std::vector<token_id> serve(executor_ref threads) {
    constexpr std::size_t V = 5000;
    auto const model = [](float taste) {
        return model_of<float>(V, [taste](std::span<token_id const> context, std::span<float> logits) {
            auto const last = static_cast<std::size_t>(context.back());
            for (std::size_t v = 0; v < V; ++v) {
                logits[v] = static_cast<float>((7 * last + 31 * v) % 97) * 0.15f + static_cast<float>(v % 2) * taste;
            }
        });
    };
    auto draft = model(0.5f);
    auto target = model(1.0f);
    autoregressive drafter{draft, {.block_size = 4, .vocabulary = V}};
    decoder dec{target, drafter, fixed_schedule{}, token_rejection{}, {.max_requests = 8, .executor = threads}};
    for (std::uint64_t i = 0; i < 8; ++i) {
        dec.submit(std::vector<token_id>{static_cast<token_id>(i)}, {.seed = i, .max_new_tokens = 30});
    }
    std::vector<token_id> all;
    while (dec.step()) {
        for (request_event const& event : dec.events()) {
            all.insert(all.end(), event.tokens.begin(), event.tokens.end());
        }
    }
    return all;
}

int main() {
    thread_pool pool{2};
    lent_pool lent{pool};
    bool const equal = serve(lent) == serve({});
    std::printf("alone and on %zu threads: %s tokens\n", lent.width(), equal ? "the same" : "DIFFERENT");
    return equal ? 0 : 1;
}

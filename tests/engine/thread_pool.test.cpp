// SPDX-License-Identifier: MIT
//
// The pool: every index exactly once, whatever the workers are doing when a loop begins. Meant to run under the thread
// sanitizer as well. It sees a loop that ends before its indices are done even if the counts come out right.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include "engine/thread_pool.hpp"
#include "support/catch.hpp"

namespace {

using engine::thread_pool;

TEST_CASE("the pool has the threads asked for, the caller among them", "[thread_pool]") {
    CHECK(thread_pool(1).threads() == 1);
    CHECK(thread_pool(3).threads() == 3);
    CHECK(thread_pool().threads() ==
          (std::thread::hardware_concurrency() == 0 ? 1 : std::thread::hardware_concurrency()));
}

TEST_CASE("every index is called exactly once", "[thread_pool]") {
    for (std::size_t const threads : {std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{8}}) {
        thread_pool pool(threads);
        for (std::size_t const count :
             {std::size_t{0}, std::size_t{1}, std::size_t{2}, std::size_t{7}, std::size_t{100'000}}) {
            std::vector<std::atomic<int>> calls(count + 1);
            pool.run(count, [&](std::size_t i) { calls[i].fetch_add(1, std::memory_order_relaxed); });
            std::size_t wrong = 0;
            for (std::size_t i = 0; i < count; ++i) wrong += std::size_t{calls[i].load() != 1};
            INFO(threads << " threads, " << count << " indices");
            CHECK(wrong == 0);
            CHECK(calls[count].load() == 0);
        }
    }
}

TEST_CASE("what a loop wrote is there when it returns", "[thread_pool]") {
    // Plain memory, no atomics: a caller that returned before the last index was done would read an old value.
    thread_pool pool(3);
    std::vector<std::size_t> values(64);
    std::size_t wrong = 0;
    for (std::size_t loop = 1; loop <= 20'000; ++loop) {
        pool.run(values.size(), [&](std::size_t i) { values[i] = loop * i; });
        for (std::size_t i = 0; i < values.size(); ++i) wrong += std::size_t{values[i] != loop * i};
    }
    CHECK(wrong == 0);
}

TEST_CASE("a short loop takes no index of the next one, nor its function", "[thread_pool]") {
    // Loops of every small length with a function each: a worker that is late for one loop is early for the next.
    thread_pool pool(4);
    std::vector<std::size_t> mine(8);
    std::size_t wrong = 0;
    for (std::size_t loop = 0; loop < 20'000; ++loop) {
        std::size_t const count = loop % 8;
        mine.assign(8, 0);
        if (loop % 2 == 0) {
            pool.run(count, [&](std::size_t i) { mine[i] += 1; });
        } else {
            pool.run(count, [&, step = loop](std::size_t i) { mine[i] += step; });
        }
        std::size_t const expected = loop % 2 == 0 ? 1 : loop;
        for (std::size_t i = 0; i < 8; ++i) wrong += std::size_t{mine[i] != (i < count ? expected : 0)};
    }
    CHECK(wrong == 0);
}

TEST_CASE("workers that have gone to sleep wake for the next loop", "[thread_pool]") {
    thread_pool pool(3);
    std::atomic<int> done{0};
    for (int loop = 0; loop < 20; ++loop) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        // As many indices as threads, each waiting for the others: needs every worker awake.
        std::atomic<int> arrived{0};
        pool.run(3, [&](std::size_t) {
            arrived.fetch_add(1);
            while (arrived.load() < 3) std::this_thread::yield();
            done.fetch_add(1);
        });
    }
    CHECK(done.load() == 60);
}

TEST_CASE("pools do not disturb each other and may end idle, spinning or unused", "[thread_pool]") {
    std::vector<std::unique_ptr<thread_pool>> pools;
    for (std::size_t threads = 1; threads <= 4; ++threads) pools.push_back(std::make_unique<thread_pool>(threads));
    std::atomic<std::size_t> sum{0};
    std::vector<std::thread> callers;
    for (auto const& pool : pools) {
        callers.emplace_back([&] {
            for (int loop = 0; loop < 500; ++loop) pool->run(10, [&](std::size_t i) { sum.fetch_add(i); });
        });
    }
    for (std::thread& caller : callers) caller.join();
    CHECK(sum.load() == 4 * 500 * 45);
    for (int i = 0; i < 200; ++i) thread_pool unused(3);
}

TEST_CASE("a pool may be used by another thread, one after the other", "[thread_pool]") {
    thread_pool pool(2);
    std::size_t sum = 0;
    std::vector<std::size_t> values(100);
    auto const loop = [&] { pool.run(values.size(), [&](std::size_t i) { values[i] += i; }); };
    loop();
    std::thread(loop).join();
    for (std::size_t const v : values) sum += v;
    CHECK(sum == 2 * 4950);
}

}  // namespace

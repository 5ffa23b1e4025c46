// SPDX-License-Identifier: MIT
//
// Threads of the engine, lent to the rounds. Tokens are the same bits on any number of them. What is lent is a
// view, as a clock or a callback is.
#include <cstddef>
#include <cstdio>
#include <thread>
#include <vector>

#include <sureleap/sureleap.hpp>

using namespace sureleap;

// A thread for each task. An engine would hand the tasks to its pool.
class fresh_threads {
public:
    void run(std::size_t tasks, task_ref task) noexcept {
        std::vector<std::thread> threads;
        for (std::size_t i = 0; i < tasks; ++i) threads.emplace_back([task, i] { task(i); });
        for (std::thread& t : threads) t.join();
    }
    [[nodiscard]] std::size_t width() const { return 3; }
    [[nodiscard]] std::size_t grain() const { return 256; }  // numbers a task passes over; a toy's
};
static_assert(executor<fresh_threads>);

std::vector<token_id> serve(executor_ref threads) {
    constexpr std::size_t V = 200;
    auto const model = [](std::size_t taste) {
        return model_of<float>(V, [taste](auto context, auto logits) {
            auto const x = static_cast<std::size_t>(context.back());
            for (std::size_t v = 0; v < V; ++v) logits[v] = 0.1f * static_cast<float>((7 * x + taste * v) % 97);
        });
    };
    autoregressive drafter{model(31), {.block_size = 3, .vocabulary = V}};
    decoder dec{model(31), drafter, fixed_schedule{}, token_rejection{}, {.max_requests = 4, .executor = threads}};
    for (token_id x = 0; x < 4; ++x) dec.submit(std::vector<token_id>{x}, {.seed = 1, .max_new_tokens = 8});
    std::vector<token_id> all;
    while (dec.step()) {
        for (request_event const& event : dec.events()) all.insert(all.end(), event.tokens.begin(), event.tokens.end());
    }
    return all;
}

int main() {
    fresh_threads lent;
    std::printf("three threads give %s tokens\n", serve(lent) == serve({}) ? "the same" : "other");

    // What every lent part is made of: a view of a callable that outlives it.
    auto const doubled = [](int x) noexcept { return 2 * x; };
    function_ref<int(int)> const view = doubled;
    std::printf("%d, and by default there is none: %s\n", view(21), function_ref<int(int)>{} ? "no" : "yes");
}

// Prints:
// three threads give the same tokens
// 42, and by default there is none: yes

// SPDX-License-Identifier: MIT
//
// A pool is no executor as long as nobody says how wide it is.
// expect-error: sureleap: this is no sureleap::executor; give it run.std::size_t tasks, sureleap::task_ref task. noexcept, which
// expect-error: returns when all have ended, and width.. const, how many it runs at once
#include "parts.hpp"

using namespace parts;

struct pool {
    void run(std::size_t tasks, task_ref task) noexcept {
        for (std::size_t i = 0; i < tasks; ++i) task(i);
    }
#ifndef SURELEAP_EXPECT_FAILURE
    std::size_t width() const { return 1; }
#endif
};

int main() {
    pool lent;
    round_limits const limits{.max_requests = 2, .executor = lent};
    return static_cast<int>(limits.max_requests);
}

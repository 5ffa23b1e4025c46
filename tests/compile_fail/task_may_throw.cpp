// SPDX-License-Identifier: MIT
//
// An exception has nowhere to go from somebody else's thread.
// expect-error: task_ref: a task is called as task.std::size_t., must not throw and says so: noexcept
#include <cstddef>

#include <sureleap/core/executor.hpp>

int main() {
    sureleap::executor_ref const here;
    std::size_t sum = 0;
#ifdef SURELEAP_EXPECT_FAILURE
    here.run(3, [&](std::size_t i) { sum += i; });
#else
    here.run(3, [&](std::size_t i) noexcept { sum += i; });
#endif
    return static_cast<int>(sum);
}

// SPDX-License-Identifier: MIT
//
// An exception has nowhere to go from somebody else's thread.
// expect-error: function_ref: what is lent must be callable with the arguments of the signature, give its result and not
#include <cstddef>

#include <sureleap/core/executor.hpp>

int main() {
    sureleap::executor_ref const here;
    std::size_t sum = 0;
#ifdef SURELEAP_EXPECT_FAILURE
    auto const task = [&](std::size_t i) { sum += i; };
#else
    auto const task = [&](std::size_t i) noexcept { sum += i; };
#endif
    here.run(3, task);
    return static_cast<int>(sum);
}

// SPDX-License-Identifier: MIT
//
// Which kernels a test runs over. By default the best that the machine has; with the environment variable
// SURELEAP_TEST_KERNELS those of the name in it (avx512, avx2, neon, scalar), and available_kernels has no better ones.
// A test of kernels that the machine lacks ends with 77, which ctest takes for "skipped". Linked to every Catch2 test.
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include <sureleap/detail/kernel/cpu.hpp>
#include <sureleap/detail/kernel/native.hpp>

namespace {

constexpr char const* variable = "SURELEAP_TEST_KERNELS";

[[noreturn]] void leave(int status, std::string_view wanted, char const* why) {
    std::fprintf(stderr, "%s is \"%.*s\": %s\n", variable, static_cast<int>(wanted.size()), wanted.data(), why);
    std::_Exit(status);
}

/// Before main, since the processor is asked only once.
[[maybe_unused]] bool const chosen = [] {
    char const* const value = std::getenv(variable);
    if (value == nullptr) return false;
    std::string_view const wanted{value};
    bool const is_avx512 = wanted == "avx512", is_avx2 = wanted == "avx2", is_neon = wanted == "neon";
    if (!is_avx512 && !is_avx2 && !is_neon && wanted != "scalar") {
        leave(2, wanted, "expected avx512, avx2, neon or scalar");
    }
    sureleap::detail::allowed_features = {.avx2 = is_avx512 || is_avx2, .avx512 = is_avx512, .neon = is_neon};
    auto const tables = sureleap::available_kernels<sureleap::row_kernels>();
    if (tables.front()->name == wanted) return true;
    for (auto const* const table : tables) {
        if (table->name == wanted)
            leave(2, wanted, "the processor was asked before, expected nobody to ask ahead of main");
    }
    leave(77, wanted, "this machine does not run them");
}();

}  // namespace

// SPDX-License-Identifier: MIT
//
// A calibration allocates nothing once it stands: asking, learning, tenants that come and go, drifts, under a global operator
// new that counts.
#include "support/catch.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include <sureleap/schedule/fixed.hpp>
#include <sureleap/serving/online_calibration.hpp>

#include "support/traffic.hpp"

namespace {
std::atomic<std::size_t> allocations{0};
}  // namespace

// The forms that the others end in.
[[gnu::noinline]] void* operator new(std::size_t size, std::nothrow_t const&) noexcept {
    allocations.fetch_add(1, std::memory_order_relaxed);
    return std::malloc(size == 0 ? 1 : size);
}
[[gnu::noinline]] void* operator new(std::size_t size) {
    void* const memory = operator new(size, std::nothrow);
    if (memory == nullptr) std::abort();
    return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
    std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
    std::free(memory);
}

using namespace sureleap;

TEST_CASE("online calibration: nothing is allocated after construction") {
    constexpr std::size_t requests = 16;
    online_calibration calibration(
        4,
        {.maps = {.terms = online_terms::history, .prior = {{}, {}, {}, {}}}, .max_requests = requests, .tenants = 8});
    support::traffic traffic(requests, 4, fixed_schedule{}, 3);
    std::size_t allocated = 0;
    std::size_t drifts = 0;
    double sum = 0.0;
    for (std::size_t i = 0; i < 300; ++i) {
        support::domain const truth{.offset = i < 150 ? 1.0 : -1.0};
        for (std::size_t r = 0; r < requests; ++r) traffic.settings(r).tenant = static_cast<std::uint32_t>(r + i / 50);
        auto const round = traffic.round(calibration, [&](std::size_t) { return truth; });
        std::size_t const before = allocations;
        calibration.observe(round);
        drifts += calibration.drifts().size();
        for (request_view const& r : round.requests) sum += calibration(r, 3, 0.5);
        allocated += allocations - before;
    }
    CHECK(allocated == 0);
    CHECK(drifts > 0);
    CHECK(sum > 0.0);
    CHECK(allocations > 0);  // the count counts
}

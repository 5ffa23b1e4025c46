// SPDX-License-Identifier: MIT
//
// A calibration allocates nothing once it stands: asking, learning, tenants that come and go, drifts, under a global
// operator new that counts.
#include "support/catch.hpp"

#include <cstddef>
#include <cstdint>

#include <sureleap/schedule/simple.hpp>
#include <sureleap/serving/online_calibration.hpp>

#include "support/allocations.hpp"
#include "support/traffic.hpp"

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

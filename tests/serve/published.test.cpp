// SPDX-License-Identifier: MIT
//
// The worlds of the published figures, with the schedules, still give what docs/serving_measured.md says of them.
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include <serve/policies.hpp>
#include <serve/simulation.hpp>
#include <serve/worlds.hpp>

#include "support/catch.hpp"

namespace {

using namespace serve;

struct documented {
    char const* policy;
    std::size_t requests;
    double tokens_per_second, budget;
};

/// Within 1 % of throughput and 0.05 tokens of budget: four standard deviations between seeds, or more.
void check(std::string const& file, std::vector<documented> const& lines) {
    world const w = read_world(std::string(SURELEAP_TESTS_DIR "/../examples/serve/worlds/") + file);
    REQUIRE(w.mtp1.has_value());
    drawn_texts const texts(w.domains, {{0, w.weights}}, w.block_size.value(), 1);
    scenario const where{texts, w.cost, w.cost};
    for (documented const& line : lines) {
        run_settings const settings{.request_rounds = 100'000};
        outcome const o = run(make_policy(line.policy), where, closed_workload{.concurrency = line.requests}, settings);
        CAPTURE(file, line.policy, line.requests, o.sums.tokens_per_second(), o.sums.budget());
        CHECK(std::abs(o.sums.tokens_per_second() / line.tokens_per_second - 1) < 0.01);
        CHECK(std::abs(o.sums.budget() - line.budget) < 0.05);
    }
}

}  // namespace

TEST_CASE("V4-Flash does what is documented") {
    check("v4_flash.json", {{"lagged", 25, 4007, 4.78}, {"planned", 25, 4012, 5.02}, {"lagged", 100, 11639, 4.07}});
}

TEST_CASE("V4-Pro does what is documented") {
    check("v4_pro.json", {{"lagged", 10, 1083, 5.23}, {"planned", 10, 1085, 5.41}, {"lagged", 100, 4528, 4.00}});
}

// SPDX-License-Identifier: MIT
#include "cost_world.hpp"

#include <algorithm>
#include <cmath>

#include <sureleap/core/error.hpp>

#include "keyed.hpp"

namespace serve {
namespace {

using sureleap::fail_with;

void check_line(std::string const& world, char const* what, polyline const& line) {
    if (line.at.empty() || line.at.size() != line.seconds.size()) {
        fail_with("world ", world, ": ", what, " has ", line.at.size(), " places and ", line.seconds.size(),
                  " times, expected equally many and at least one");
    }
    for (std::size_t i = 0; i < line.at.size(); ++i) {
        if (!(line.at[i] >= 0) || (i > 0 && line.at[i] <= line.at[i - 1])) {
            fail_with("world ", world, ": ", what, " point ", i, " is at ", line.at[i], ", expected ascending numbers");
        }
        if (!std::isfinite(line.seconds[i])) {
            fail_with("world ", world, ": ", what, " point ", i, " takes ", line.seconds[i], " s, expected a number");
        }
    }
}

}  // namespace

double polyline::operator()(double x) const noexcept {
    if (at.size() == 1 || x <= at.front()) return seconds.front();
    auto const above = std::upper_bound(at.begin(), at.end() - 1, x) - at.begin();
    auto const i = static_cast<std::size_t>(above);  // the last segment goes on
    double const slope = (seconds[i] - seconds[i - 1]) / (at[i] - at[i - 1]);
    return std::fma(slope, x - at[i - 1], seconds[i - 1]);
}

void cost_world::check() const {
    check_line(name, "requests", requests);
    check_line(name, "batch_tokens", batch_tokens);
    if (pad_batch_to == 0) fail_with("world ", name, ": pad_batch_to is 0, expected at least 1");
    double const least = *std::min_element(requests.seconds.begin(), requests.seconds.end()) +
                         *std::min_element(batch_tokens.seconds.begin(), batch_tokens.seconds.end());
    if (!(least > 0)) fail_with("world ", name, ": a step could take ", least, " s, expected more than 0");
    for (double const x : {draft_seconds, draft_per_request, draft_per_token, context_per_token, noise}) {
        if (!(x >= 0 && std::isfinite(x))) {
            fail_with("world ", name, ": a cost or the noise is ", x, ", expected a number that is not negative");
        }
    }
    for (polyline const* line : {&requests, &batch_tokens}) {
        if (line->at.size() > 1 && line->seconds.back() < line->seconds[line->seconds.size() - 2]) {
            fail_with("world ", name, ": the last slope falls, so that a large step would take less than no time");
        }
    }
}

double cost_world::step_seconds(sureleap::step_load const& load) const noexcept {
    auto const tokens = static_cast<double>(padded(load.batch_tokens));
    double const target = requests(static_cast<double>(load.requests)) + batch_tokens(tokens) +
                          context_per_token * static_cast<double>(load.context_tokens);
    return (target + drafting(load)) * error(static_cast<double>(load.batch_tokens));
}

double cost_world::drafting(sureleap::step_load const& load) const noexcept {
    if (load.drafting == 0) return 0;
    return draft_seconds + draft_per_request * static_cast<double>(load.drafting) +
           draft_per_token * static_cast<double>(load.draft_tokens);
}

std::size_t cost_world::padded(std::size_t tokens) const noexcept {
    return (tokens + pad_batch_to - 1) / pad_batch_to * pad_batch_to;
}

double cost_world::error(double tokens) const noexcept {
    if (noise == 0) return 1;
    double const at = tokens / 32;
    auto const i = static_cast<std::uint64_t>(at);
    double const left = normals()(mixed(noise_seed, i), 0);
    double const right = normals()(mixed(noise_seed, i + 1), 0);
    return std::exp(noise * (left + (at - static_cast<double>(i)) * (right - left)));
}

cost_world made_up_world(std::size_t stair) {
    cost_world world;
    world.name = stair == 1 ? "smooth" : "stairs:" + std::to_string(stair);
    world.source = "made up: 20 ms and as much again for every 400 tokens";
    world.batch_tokens = {{0, 400}, {0.020, 0.040}};
    world.pad_batch_to = stair;
    world.draft_seconds = 0.001;
    world.check();
    return world;
}

}  // namespace serve

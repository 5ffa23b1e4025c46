// SPDX-License-Identifier: MIT
//
// Random cost models of every kind.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include <sureleap/cost/additive.hpp>
#include <sureleap/cost/capacity.hpp>
#include <sureleap/cost/cell.hpp>
#include <sureleap/cost/padded.hpp>
#include <sureleap/cost/views.hpp>
#include <sureleap/serving/refined_cost.hpp>

#include "support/catch.hpp"
#include "support/dice.hpp"

namespace support {

/// What a round of so many requests may look like before its batch is decided.
[[nodiscard]] inline sureleap::step_load random_load(dice& roll, std::size_t requests, std::size_t gamma) {
    std::size_t const drafting = roll.below(requests + 1);
    return {.requests = requests,
            .batch_tokens = requests,
            .drafting = drafting,
            .draft_tokens = drafting * (1 + roll.below(gamma)),
            .context_tokens = roll.below(5000 * requests),
            .unread_tokens = drafting * roll.below(300),
            .replays = roll.below(requests + 1)};
}

[[nodiscard]] inline sureleap::additive_cost random_prices(dice& roll) {
    auto const price = [&](double scale) { return roll.chance(0.2) ? 0.0 : scale * roll.real(); };
    return sureleap::additive_cost({.fixed = 1.0 + price(50.0),
                                    .request = price(0.5),
                                    .batch_token = price(roll.chance(0.5) ? 0.1 : 3.0),
                                    .context_token = price(1e-3),
                                    .draft_fixed = price(20.0),
                                    .drafting_request = price(0.3),
                                    .draft_token = price(0.3),
                                    .unread_token = price(0.1),
                                    .replay = price(5.0)});
}

[[nodiscard]] inline std::vector<std::size_t> random_sizes(dice& roll, std::size_t most) {
    std::vector<std::size_t> sizes;
    std::size_t const step = 1 + roll.below(8);
    for (std::size_t s = 1 + roll.below(6); s < most; s += step + roll.below(1 + s)) sizes.push_back(s);
    if (sizes.empty()) sizes.push_back(1);
    return sizes;
}

/// Measurements that wobble about a model by up to `wobble`, on a few rows around `requests`.
template <class Model>
[[nodiscard]] std::vector<sureleap::cost_sample> random_cells(dice& roll, Model const& model, std::size_t requests,
                                                              double wobble) {
    std::vector<sureleap::cost_sample> cells;
    std::size_t const count = roll.below(30);
    for (std::size_t i = 0; i < count; ++i) {
        std::size_t const r = 1 + roll.below(2 * requests);
        sureleap::step_load const load{.requests = r, .batch_tokens = r + roll.below(8 * r + 1)};
        cells.push_back({load, model.step_seconds(load) * (1.0 + wobble * (roll.real() - 0.5))});
    }
    return cells;
}

/// Calls f(name, cost) with one model of every kind.
template <class F>
void with_costs(dice& roll, std::size_t requests, F&& f) {
    using namespace sureleap;
    additive_cost const model = random_prices(roll);
    double const wobble = roll.chance(0.3) ? 1e-12 : roll.real();
    f("additive", model);
    f("padded", padded_cost{model, random_sizes(roll, 6 * requests)});
    f("padded requests", padded_cost{model, random_sizes(roll, 9 * requests), random_sizes(roll, 2 * requests)});
    cell_cost const cells{model, random_cells(roll, model, requests, wobble)};
    f("cells", cells);
    f("padded cells", padded_cost{cells, random_sizes(roll, 6 * requests)});
    padded_cost const stairs{model, random_sizes(roll, 6 * requests)};
    f("cells over stairs", cell_cost{stairs, random_cells(roll, stairs, requests, wobble)});
    f("wild cells", cell_cost{model, random_cells(roll, model, requests, 1.9)});
    std::vector<capacity_point> points;
    for (std::size_t b = 1 + roll.below(4); b < 12 * requests; b += 1 + roll.below(requests + 3)) {
        points.push_back({b, 1.0 + 0.01 * static_cast<double>(b) + wobble * roll.real()});
    }
    if (points.empty()) points.push_back({1, 1.0});
    auto const table = of_batch(capacity_table<>(points), {.fixed = 0.3, .request = 0.01, .token = 0.002});
    f("table", table);
    f("cells over a table", cell_cost{table, random_cells(roll, table, requests, wobble)});
    f("closed form", of_batch(analytic_capacity(1.0 + roll.real(), 100.0 * roll.real())));

    auto const refine = [&](auto base) {
        refined_cost cost{std::move(base), {.memory = 4.0, .prior = 0.5, .clip = 0.9}};
        std::size_t const rounds = roll.below(60);
        for (std::size_t i = 0; i < rounds; ++i) {
            std::size_t const r = 1 + roll.below(2 * requests);
            step_load const load{.requests = r, .batch_tokens = r + roll.below(8 * r + 1)};
            cost.observe(load, cost.model().step_seconds(load) * std::exp(roll.between(-1.5, 2.5)));
        }
        return cost;
    };
    auto const refined = refine(model);
    f("refined", refined);
    f("refined, lent", cost_ref{refined});
    f("refined stairs", refine(stairs));
    f("refined table", refine(table));
    f("refined cells", refine(cells));
}

}  // namespace support

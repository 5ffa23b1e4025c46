// SPDX-License-Identifier: MIT
//
// A profile to keep: prices, cells and graph sizes, and what they were measured on and when. A table of another
// machine, another model or an old driver makes a schedule verify what does not pay, and no error shows it. So a table
// is loaded with conditions, and a refusal says which one it does not meet.
//
// ext/cost_json.hpp saves and loads them; schedule/any.hpp shows what to do without one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/cost/additive.hpp>
#include <sureleap/cost/cell.hpp>
#include <sureleap/cost/padded.hpp>
#include <sureleap/cost/sample.hpp>

SURELEAP_BEGIN_NAMESPACE

/// What decides how long a step takes, by name: device, driver, engine version, model, dtype, tensor-parallel size,
/// graph sizes. Which names is the engine's choice; they are compared as text.
using cost_fingerprint = std::map<std::string, std::string>;

/// Prices, around them measured cells, around these the padding: each as far as it is there.
using profiled_cost = padded_cost<cell_cost<additive_cost>>;

/// An aggregate, as it is saved.
struct cost_table {
    cost_prices prices{};
    std::vector<cost_sample> cells{};          ///< override the prices where they are; may be empty
    std::vector<std::size_t> token_sizes{};    ///< of captured graphs; empty: batches are not padded
    std::vector<std::size_t> request_sizes{};  ///< likewise
    cost_fingerprint measured_on{};
    std::int64_t measured_at = 0;  ///< seconds since the Unix epoch

    /// Error as of its parts.
    [[nodiscard]] profiled_cost model() const {
        return profiled_cost(cell_cost<additive_cost>(additive_cost(prices), cells), token_sizes, request_sizes);
    }
};

/// Seconds since the Unix epoch, by the system's clock.
[[nodiscard]] inline std::int64_t unix_now() {
    return static_cast<std::int64_t>(std::time(nullptr));
}

/// What a table must be to be used.
struct cost_demands {
    cost_fingerprint machine{};                                       ///< of the engine that asks
    std::int64_t max_age = std::numeric_limits<std::int64_t>::max();  ///< seconds
    std::int64_t now = unix_now();
};

/// Why a table cannot be used, in one sentence that starts with `source`; empty if it can.
///
/// Fingerprints must be equal. A name that only one side knows is a difference too: a table that does not say which
/// driver it was measured under may be of any. A table from more than five minutes in the future was measured or is
/// read under a wrong clock, so its age is unknown.
[[nodiscard]] inline std::string why_refused(cost_table const& table, cost_demands const& demands,
                                             std::string const& source = "cost table") {
    auto const foreign = [&](std::string const& name, std::string const& there, std::string const& here) {
        return source + ": foreign: '" + name + "' is " + there + " in the table and " + here + " on this machine";
    };
    for (auto const& [name, value] : demands.machine) {
        auto const found = table.measured_on.find(name);
        if (found == table.measured_on.end()) return foreign(name, "missing", "'" + value + "'");
        if (found->second != value) return foreign(name, "'" + found->second + "'", "'" + value + "'");
    }
    for (auto const& [name, value] : table.measured_on) {
        if (demands.machine.find(name) == demands.machine.end()) return foreign(name, "'" + value + "'", "missing");
    }
    // Written so that no difference overflows; both times are after 1970.
    if (table.measured_at > demands.now && table.measured_at - demands.now > 300) {
        return source + ": measured " + std::to_string(table.measured_at - demands.now) +
               " seconds after now: one of the two clocks is wrong";
    }
    if (table.measured_at < demands.now && demands.now - table.measured_at > demands.max_age) {
        return source + ": stale: measured " + std::to_string(demands.now - table.measured_at) +
               " seconds ago, expected at most " + std::to_string(demands.max_age);
    }
    return {};
}

SURELEAP_END_NAMESPACE

// SPDX-License-Identifier: MIT
//
// Step times of a machine at one number of requests, for pricing rounds that were decoded on another.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include <sureleap/core/types.hpp>
#include <sureleap/cost/additive.hpp>
#include <sureleap/cost/capacity.hpp>

namespace serve {

/// Seconds of a step of so many requests, by the rows that the target has in it.
struct step_costs {
    std::string name;
    std::size_t requests = 1;
    std::size_t most_rows = 1;  ///< of a request: what was measured goes no further
    sureleap::batch_cost<sureleap::capacity_table<>> cost;

    [[nodiscard]] double seconds(sureleap::step_load const& load) const { return cost.step_seconds(load); }
    /// Of a step without drafts.
    [[nodiscard]] double plain_seconds() const { return seconds({.requests = requests, .batch_tokens = requests}); }
};

/// `text` is one of
///
///     FILE#NAME    the member NAME of a JSON file: {"rows": [...], "seconds": [...]}, or "passes" instead of seconds. Rows
///                  begin with those of a step without drafts, so the first number is that of the requests
///     WORLD@R      a world with R requests: h20 or mi350x, made of `figures`; smooth, stairs:N or a file
///
/// Drafting takes what the world says, or else `draft_share` of a step without drafts. Throws with the file, the field
/// and the value for what is neither.
[[nodiscard]] step_costs read_step_costs(std::string const& text, std::filesystem::path const& figures,
                                         double draft_share);

}  // namespace serve

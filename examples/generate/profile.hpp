// SPDX-License-Identifier: MIT
//
// What a decoding step costs on this machine, with these models: the target's pass by its number of batch tokens, and
// drafting.
#pragma once

#include <cstddef>
#include <vector>

#include <engine/parts.hpp>
#include <engine/thread_pool.hpp>

#include "loading.hpp"
#include "options.hpp"
#include "status_line.hpp"

namespace generate {

/// Of the target's pass by its batch tokens.
struct pass_times {
    std::vector<std::size_t> batch_tokens;  ///< ascending, from 1 to the most that these models verify at once
    std::vector<double> seconds;            ///< medians
};

/// Times the target's pass alone, up to whole blocks of all requests. Call it before anything is decoded.
[[nodiscard]] pass_times measure_passes(models& loaded, options const& chosen, engine::thread_pool& pool,
                                        status_line& status);

/// Times whole rounds: drafting, the pass and acceptance under these settings. Call it before anything is decoded.
/// `passes` are those of the same target: drafters that are compared should be priced by the same ones, since a pass
/// measured twice differs by more than drafters do.
[[nodiscard]] engine::measured_cost measure_cost(models& loaded, options const& chosen, engine::thread_pool& pool,
                                                 status_line& status, pass_times const& passes);

}  // namespace generate

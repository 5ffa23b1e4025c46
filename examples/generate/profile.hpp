// SPDX-License-Identifier: MIT
//
// What a decoding step costs on this machine, with these models, by its number of batch tokens.
#pragma once

#include <engine/parts.hpp>
#include <engine/thread_pool.hpp>

#include "loading.hpp"
#include "options.hpp"
#include "status_line.hpp"

namespace generate {

/// Times steps of every size that can occur. Call it before anything is decoded.
[[nodiscard]] engine::capacity measure_capacity(models& loaded, options const& chosen, engine::thread_pool& pool,
                                                status_line& status);

}  // namespace generate

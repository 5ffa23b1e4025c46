// SPDX-License-Identifier: MIT
//
// The file of --trace; trace_page.hpp has what is in it.
#pragma once

#include "decoding.hpp"
#include "loading.hpp"
#include "options.hpp"
#include "prompt.hpp"

namespace generate {

/// Of the first copy.
void write_trace(options const& chosen, models const& loaded, prompt const& asked, decoding const& run);

}  // namespace generate

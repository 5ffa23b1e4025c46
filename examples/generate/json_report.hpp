// SPDX-License-Identifier: MIT
//
// The findings for other programs.
#pragma once

#include "display.hpp"

namespace generate {

/// Writes chosen.json. Throws if that fails.
void write_json(options const& chosen, models const& loaded, std::vector<token_id> const& prompt,
                findings const& found);

}  // namespace generate

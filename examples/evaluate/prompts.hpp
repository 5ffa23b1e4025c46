// SPDX-License-Identifier: MIT
//
// The texts that are continued, by domain.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <sureleap/core/types.hpp>

#include "options.hpp"
#include "table.hpp"

namespace evaluate {

struct domain {
    std::string name;
    std::vector<std::string> files{};
    std::size_t available = 0;  ///< prompts in them, of which the first --texts are used
    std::vector<std::vector<token_id>> prompts{};
    std::size_t cut = 0;  ///< prompts that lost their beginning
};

struct prompt_set {
    std::vector<domain> domains;
    std::size_t context = 0;  ///< positions that prompt and output need, at most
};

/// Every prompt leaves room for `output` tokens in a context of at most `most` positions: where it is too long, its
/// beginning goes, since a model continues the end.
[[nodiscard]] prompt_set read_prompts(options const& chosen, std::size_t vocabulary, std::size_t most,
                                      std::size_t output);

[[nodiscard]] table describe(prompt_set const& prompts);

}  // namespace evaluate

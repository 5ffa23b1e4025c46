// SPDX-License-Identifier: MIT
//
// That all ranks were started to do the same. What differs would be found within a round, by an error that cannot say
// what it was.
#pragma once

#include <cstdint>

#include <engine/ranks.hpp>

#include "loading.hpp"
#include "options.hpp"
#include "prompt.hpp"

namespace generate {

/// Throws on every rank unless they have the same models, prompt, flags that matter, and instruction set.
void expect_agreement(engine::any_ranks& ranks, options const& chosen, prompt const& asked, models const& loaded);

/// Of a model's files: their sizes, and one cache line of each 64 KiB.
[[nodiscard]] std::uint64_t fingerprint_of(mapped_files const& files);

}  // namespace generate

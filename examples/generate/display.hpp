// SPDX-License-Identifier: MIT
//
// What the program shows, on stdout and in 100 columns.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include <engine/parts.hpp>
#include <engine/read_floor.hpp>
#include <terminal.hpp>

#include "decoding.hpp"
#include "loading.hpp"
#include "options.hpp"

namespace generate {

/// Everything that a run found out.
struct findings {
    std::size_t prompt_tokens = 0;
    std::size_t threads = 0;  ///< of a rank
    std::size_t ranks = 1;
    std::optional<engine::measured_cost> cost{};  ///< if the schedule goes by one
    std::optional<decoding> speculative{};
    std::optional<decoding> plain{};
    engine::read_floor floor{};  ///< of plain decoding

    /// Both runs are there and must be equal (is_reproducible).
    bool comparable = false;
    bool may_part = false;  ///< rows of the target depend on the batch
    /// How much faster speculation was, if both runs are there.
    [[nodiscard]] std::optional<double> ratio() const {
        if (!speculative || !plain) return std::nullopt;
        return speculative->tokens_per_second() / plain->tokens_per_second();
    }
    [[nodiscard]] std::optional<difference> parting() const {
        return comparable ? first_difference(*speculative, *plain) : std::nullopt;
    }
};

using terminal::print_heading;

/// "temperature 0.2, top-p 0.9"
[[nodiscard]] std::string in_words(sureleap::request_settings const& settings);

/// At once.
void show(std::string const& text);

/// Models and settings.
void print_setup(options const& chosen, models const& loaded, findings const& found);

/// One table: speed, acceptance, the library's share, and the comparison with plain decoding. Verbose: more before it.
void print_findings(options const& chosen, models const& loaded, findings const& found);

}  // namespace generate

// SPDX-License-Identifier: MIT
//
// Schedules by name.
#pragma once

#include <functional>
#include <string>

#include <engine/parts.hpp>

namespace generate {

/// fixed[:N], threshold:C, greedy, top-k or planned. The last three go by a capacity curve: `measure` is called for
/// them, and for no other, because a profile takes its time.
[[nodiscard]] engine::any_schedule make_schedule(std::string const& name,
                                                 std::function<engine::capacity()> const& measure);

/// A curve that only says that there is one: for checks before time is spent on a real one.
[[nodiscard]] engine::capacity unmeasured();

}  // namespace generate

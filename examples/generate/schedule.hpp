// SPDX-License-Identifier: MIT
//
// Schedules by name.
#pragma once

#include <functional>
#include <string>

#include <engine/parts.hpp>

namespace generate {

/// auto, fixed[:N], threshold:C, survival:C, greedy, top-k or planned. `measure` is called for those that go by costs,
/// and for no other, because a profile takes its time.
///
/// auto decides before every round how far to draft, or not at all (never_lose). What is verified of it is planned at
/// the anchor, where the drafter can be asked there; goes by confidences as they come, where it has such; or else is
/// all.
[[nodiscard]] sureleap::any_schedule make_schedule(std::string const& name, engine::any_drafter<float> const& drafter,
                                                   std::function<engine::learned_cost()> const& measure);

/// The error of a name that is none.
void check_schedule_name(std::string const& name);

/// A cost that only says that there is one: for checks before time is spent on a real one.
[[nodiscard]] engine::learned_cost unmeasured();

}  // namespace generate

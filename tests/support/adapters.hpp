// SPDX-License-Identifier: MIT
//
// Every adapter of the library, alone and in others: the one list that tests of all of them go through. A new adapter
// is held to what the others promise when it stands here.
#pragma once

#include <cstddef>

#include <sureleap/schedule/agreed.hpp>
#include <sureleap/schedule/any.hpp>
#include <sureleap/schedule/greedy.hpp>
#include <sureleap/schedule/hysteresis.hpp>
#include <sureleap/schedule/planned.hpp>
#include <sureleap/schedule/simple.hpp>
#include <sureleap/schedule/top_k.hpp>
#include <sureleap/serving/never_lose.hpp>
#include <sureleap/serving/speed_targets.hpp>

namespace adapters {

using namespace sureleap;

/// Ranks that say the same; their clock stands still.
struct as_said {
    [[nodiscard]] std::size_t operator()(std::size_t batch) const noexcept { return batch; }
    [[nodiscard]] double seconds(double) const noexcept { return 1.0; }
};

/// Settings under which a few rounds are enough for something to happen.
inline never_lose_options const careful{.prior = 0.6, .probing = 0.3};
inline speed_target_options const targets{.window = 2.0, .step = 2.0, .most = 3.0, .patience = 1};
inline hysteresis_options const reluctant{.margin = 0.3};

/// Calls visit(name, schedule). Cost: a cost_model, copied into each.
template <class Cost, class Visit>
void for_each_adapter(Cost const& cost, Visit&& visit) {
    auto const lagged = lagged_top_k<1>(cost, 0.7);
    visit("never lose, planned", never_lose{planned_schedule{cost}, careful});
    visit("never lose, lagged", never_lose{lagged, careful});
    visit("never lose, greedy", never_lose{greedy_schedule{cost}, careful});
    visit("never lose, fixed", never_lose{fixed_schedule{}, cost, careful});
    visit("hysteresis, planned", hysteresis{planned_schedule{cost}, reluctant});
    visit("hysteresis, lagged", hysteresis{lagged, reluctant});
    visit("targets, greedy", speed_targets{greedy_schedule{cost}, targets});
    visit("targets, planned", speed_targets{planned_schedule{cost}, targets});
    visit("agreed, planned", agreed{planned_schedule{cost}, as_said{}});

    // In each other.
    auto const both = never_lose{speed_targets{planned_schedule{cost}, targets}, careful};
    visit("all of them",
          agreed{never_lose{speed_targets{hysteresis{top_k_schedule{cost, 0.7}}, targets}, careful}, as_said{}});
    visit("hysteresis of targets of never lose",
          hysteresis{speed_targets{never_lose{planned_schedule{cost}, careful}, targets}, reluctant});
    visit("never lose of targets", never_lose{speed_targets{greedy_schedule{cost}, targets}, cost, careful});
    visit("agreed, never lose", agreed{both, as_said{}});
    // Behind a type of its own.
    visit("any, never lose", any_schedule{both});
    visit("any, agreed", any_schedule{agreed{both, as_said{}}});
}

}  // namespace adapters

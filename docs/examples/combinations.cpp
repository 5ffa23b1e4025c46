// SPDX-License-Identifier: MIT
//
// Which parts keep the target's law together: asked of types, which the compiler refuses, and of parts that are
// chosen when the program runs, which throw.
#include <cstddef>
#include <cstdio>

#include <sureleap/sureleap.hpp>

using namespace sureleap;

auto make_drafter() {
    auto model = model_of<float>(4, [](auto, auto logits) {
        for (std::size_t v = 0; v < logits.size(); ++v) logits[v] = static_cast<float>(v);
    });
    return autoregressive{model, top1_confidence{}, {.block_size = 3, .vocabulary = 4}};
}
using drafter_type = decltype(make_drafter());
using hindsight = retrospective_schedule<analytic_capacity>;

// A schedule that looks ahead needs a rule that does not mind.
static_assert(!is_lossless_round_v<token_rejection<>, hindsight, drafter_type>);
static_assert(is_lossless_round_v<keyed_coupling, hindsight, drafter_type>);
// The same of what they declare, with any drafter.
static_assert(!is_lossless_v<fidelity::distribution, causality::anticipating, false>);
static_assert(is_lossless_v<fidelity::distribution, causality::anticipating, true>);  // drafts that are no draws

int main() {
    drafter_traits const drafts = traits_of<drafter_type>();
    schedule_traits const schedule = traits_of<hindsight>();
    rule_traits const rule = traits_of<token_rejection<>>();
    std::printf("the schedule looks ahead: %s\n", schedule.sees == causality::anticipating ? "yes" : "no");
    misfit const found = misfit_of(drafts, schedule, rule);
    std::printf("misfit: %s\n", found == misfit::looks_ahead ? "looks_ahead" : to_string(found));
    std::printf("misfit, if the law need not be kept: %s\n",
                misfit_of(drafts, schedule, rule, true) == misfit::none ? "none" : "one");

    // Parts that a flag chose. A decoder makes the same check.
    auto const drafter = make_drafter();
    any_schedule const chosen = hindsight{analytic_capacity{8000.0, 64.0}};
    check_round(drafter, chosen, any_rule{keyed_coupling{}});
    try {
        check_round(drafter, chosen, any_rule{token_rejection{}});
    } catch (error const& refused) {
        std::printf("refused: %.60s...\n", refused.what());
    }
    any_schedule kept = chosen;
    round_memory<float, float> const memory{
        drafter, kept, any_rule{token_rejection{}}, allow_lossy, {.max_requests = 2}};
    std::printf("allowed for %zu requests\n", memory.sizes().max_requests);
}

// Prints:
// the schedule looks ahead: yes
// misfit: looks_ahead
// misfit, if the law need not be kept: none
// refused: sureleap: this schedule looks ahead (it sees drafted tokens ...
// allowed for 2 requests

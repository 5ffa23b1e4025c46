// SPDX-License-Identifier: MIT
//
// The law of every drafter, with every head, through rules that read q, that choose their drafts and that reuse noise. A class
// of the library that drafts, or that adds a bias, and is not in the list fails the test exactness_list. A minute to compile,
// a second to run.
#include <string>
#include <type_traits>

#include <sureleap/tree/match.hpp>
#include <sureleap/tree/rejection.hpp>
#include <sureleap/tree/traversal.hpp>

#include "support/every_drafter.hpp"
#include "support/exactness.hpp"

using namespace exactness;
using namespace every_drafter;

namespace {

/// Two requests, of which one joins later. Their prompts repeat themselves, so that lookup finds something.
world const tiny{12, 2, 2};
scene const two_requests{{{{0, 1, 0}}, {{1, 1}, {}, 1}}, 2, 1};

struct by_confidence : threshold_schedule {
    by_confidence() : threshold_schedule(0.6) {}
};

/// The law under a schedule that stops by confidences and, where the drafter answers at the anchor, under one that plans.
template <class Make, class Rule>
void check_law(std::string const& name, Make const& make, Rule const& rule) {
    using drafter_type = std::invoke_result_t<Make const&>;
    auto const check = [&](auto const& schedule) {
        check_exact(name, enumerator::noise::keyed, tiny, two_requests, make, schedule, rule);
    };
    check(std::conditional_t<drafter_type::has_confidence, by_confidence, fixed_schedule>{});
    bool constexpr samples = Rule::guarantee == fidelity::distribution;
    if constexpr (samples && plans_at_anchor_v<drafter_type> && !drafts_deterministically_v<drafter_type, Rule>) {
        check(planned_schedule{cliff_capacity{}});
    }
}

}  // namespace

TEST_CASE("every drafter of chains, and every head: exact", "[exact][long]") {
    auto const check = [](std::string const& name, lends, bool, auto const& make) {
        check_law(name + ", token_rejection", make, token_rejection<>{});
        check_law(name + ", token_rejection<argmax_draft>", make, token_rejection<argmax_draft>{});
        check_law(name + ", keyed_coupling", make, keyed_coupling{});
    };
    for_each_drafter(tiny, check);
    for_each_other_head(tiny, check);
}

TEST_CASE("every drafter of trees: exact", "[exact][long]") {
    for_each_tree_drafter(tiny, [](std::string const& name, lends, bool, auto const& make) {
        check_law(name + ", recursive_rejection", make, recursive_rejection<>{});
        check_law(name + ", traversal_verification<argmax_draft>", make, traversal_verification<argmax_draft>{});
        check_law(name + ", along_tree<keyed_coupling>", make, along_tree<keyed_coupling>{});
    });
}

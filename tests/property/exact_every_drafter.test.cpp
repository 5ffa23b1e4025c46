// SPDX-License-Identifier: MIT
//
// The law of every drafter, with every head, through rules that read q, that choose their drafts and that reuse noise:
// in rounds that succeed, and in rounds that fail at each stage and are run again. A class of the library that drafts,
// or that adds a bias, and is not in the list fails the test exactness_list. A minute to compile, seconds to run.
#include <array>
#include <string>
#include <type_traits>

#include <sureleap/verify/match.hpp>
#include <sureleap/verify/recursive.hpp>
#include <sureleap/verify/traversal.hpp>

#include "support/every_drafter.hpp"
#include "support/failing_rounds.hpp"

using namespace failing_rounds;
using namespace every_drafter;

namespace {

/// Token 0 is forced at two of four positions.
constexpr std::array<std::uint32_t, 2> masks{0b11, 0b01};
auto const alternating = [](request_view const& request, std::span<token_id const> drafted) noexcept {
    bool const forced = (request.context.size() + drafted.size()) % 4 < 2;
    return token_mask{std::span(masks).subspan(forced ? 1 : 0, 1)};
};

/// One request, which a guest may join, and two, of which one may leave; texts that end at a token behind which the
/// target has no law. Prompts repeat themselves, so that lookup finds something.
request_settings const ending{.stop_tokens = stop_at_one};
request_settings const constrained{.min_new_tokens = 1, .stop_tokens = stop_at_one, .constraint = alternating};
std::array<scene, 5> const scenes{{{{{{0, 1, 0}}}, 3, 1},
                                   {{{{0, 1, 0}}, {{1, 1}}}, 2, 1},
                                   {{{{0, 1, 0, 0}, ending}}, 3, 1},
                                   {{{{0, 1, 0}, ending}, {{1, 0}, ending}}, 2, 1},
                                   {{{{0, 0, 0}, constrained}}, 3, 1}}};

struct by_confidence : threshold_schedule {
    by_confidence() : threshold_schedule(0.6) {}
};

/// A drafter under a schedule that stops by confidences and, where it answers at the anchor, under one that plans.
class every_law {
public:
    template <class Make, class Rule>
    void check(std::string const& name, Make const& make, Rule const& rule) {
        using drafter_type = std::invoke_result_t<Make const&>;
        under(std::conditional_t<drafter_type::has_confidence, by_confidence, fixed_schedule>{}, name, make, rule);
        bool constexpr samples = Rule::guarantee == fidelity::distribution;
        if constexpr (samples && traits_of<drafter_type>().plans_at_anchor && !drafter_type::is_deterministic &&
                      !Rule::draft_rule::is_deterministic) {
            under(planned_schedule{cliff_capacity{}}, name, make, rule);
        }
    }
    void check_tally() const { struck_.check(); }
    [[nodiscard]] world const& where() const { return world_; }

private:
    template <class Schedule, class Make, class Rule>
    void under(Schedule const& schedule, std::string const& name, Make const& make, Rule const& rule) {
        check_round<std::invoke_result_t<Make const&>, Schedule, Rule>();
        for (scene const& s : scenes) {
            world_.stop = s.requests[0].settings.stop_tokens.empty() ? no_token : stop_at_one[0];
            check_in_trouble(name, world_, s, luck_, make, schedule, rule, struck_);
        }
    }

    bad_luck luck_;
    world world_ = in_trouble({12, 2, 2}, luck_);
    strikes struck_;
};

}  // namespace

TEST_CASE("every drafter of chains, and every head: exact", "[exact][long]") {
    every_law law;
    auto const check = [&](std::string const& name, lends, bool, auto const& make) {
        law.check(name + ", token_rejection", make, token_rejection<>{});
        law.check(name + ", token_rejection<argmax_draft>", make, token_rejection<argmax_draft>{});
        law.check(name + ", keyed_coupling", make, keyed_coupling{});
    };
    for_each_drafter(law.where(), check);
    for_each_other_head(law.where(), check);
    law.check_tally();
}

TEST_CASE("every drafter of trees: exact", "[exact][long]") {
    every_law law;
    for_each_tree_drafter(law.where(), [&](std::string const& name, lends, bool, auto const& make) {
        law.check(name + ", recursive_rejection", make, recursive_rejection<>{});
        law.check(name + ", traversal_verification<argmax_draft>", make, traversal_verification<argmax_draft>{});
        law.check(name + ", keyed_coupling", make, keyed_coupling{});
    });
    law.check_tally();
}

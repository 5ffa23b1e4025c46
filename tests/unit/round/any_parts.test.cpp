// SPDX-License-Identifier: MIT
//
// Rounds of parts that are chosen at run time: the tokens of the parts that are held, and the refusals of the compiler.
#include "support/catch.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <sureleap/decoder.hpp>
#include <sureleap/drafter/lookup.hpp>
#include <sureleap/drafter/tree_drafter.hpp>
#include <sureleap/schedule/any.hpp>
#include <sureleap/schedule/greedy.hpp>
#include <sureleap/schedule/planned.hpp>
#include <sureleap/schedule/simple.hpp>
#include <sureleap/schedule/top_k.hpp>
#include <sureleap/verify/any.hpp>

#include "support/error_text.hpp"
#include "support/small_world.hpp"

using namespace small_world;
using support::error_text;

namespace {

world const w{12, 3, 3};

struct cost {
    [[nodiscard]] double step_seconds(step_load const& load) const noexcept {
        return 1.0 + 0.65 * static_cast<double>(load.batch_tokens / 2);
    }
};

struct tree_target : decltype(target_of(w)) {
    static constexpr bool scores_trees = true;
    tree_target() : decltype(target_of(w))(target_of(w)) {}
};
[[nodiscard]] auto trees_of() {
    auto chains = semi_of(w);
    return tree_drafter<decltype(chains)>{std::move(chains), {.nodes = 5, .children = 2}};
}
struct ranked_trees : decltype(trees_of()) {
    static constexpr bool grows_by_tokens = true;
    ranked_trees() : decltype(trees_of())(trees_of()) {}
};

/// All tokens of five requests, and how many were accepted.
template <class Target, class Drafter, class Schedule, class Rule>
[[nodiscard]] std::pair<std::vector<token_id>, std::uint64_t> streams(Target target, Drafter drafter, Schedule schedule,
                                                                      Rule const& rule, std::uint64_t seed) {
    decoder dec{target, std::move(drafter), std::move(schedule), rule, {.max_requests = 3, .seed = seed}};
    double const temperature = traits_of(rule).greedy_only ? 0.0 : 1.0;
    std::vector<token_id> out;
    for (token_id prompt = 0; prompt < 5; ++prompt) {
        dec.submit(std::vector<token_id>{prompt % 3}, {.temperature = temperature, .max_new_tokens = 20});
    }
    while (dec.step()) {
        for (request_event const& e : dec.events()) out.insert(out.end(), e.tokens.begin(), e.tokens.end());
    }
    return {out, dec.report().accepted()};
}

/// visit(rule): those that judge chains, those that judge trees.
template <class Visit>
void for_each_chain_rule(Visit&& visit) {
    visit(token_rejection<>{});
    visit(token_rejection<argmax_draft>{});
    visit(block_verification<>{});
    visit(block_verification<argmax_draft>{});
}
template <class Visit>
void for_each_tree_rule(Visit&& visit) {
    visit(target_match<>{});
    visit(target_match<categorical_draft>{});
    visit(target_match<coupled_draft>{});
    visit(greedy_match{});
    visit(keyed_coupling{});
    visit(recursive_rejection<>{});
    visit(recursive_rejection<argmax_draft>{});
    visit(traversal_verification<>{});
    visit(traversal_verification<argmax_draft>{});
}
template <class Visit>
void for_each_schedule(Visit&& visit) {
    visit(fixed_schedule{});
    visit(threshold_schedule{0.6});
    visit(greedy_schedule{cost{}});
    visit(lagged_top_k<1>(cost{}, 0.7));
    visit(top_k_schedule{cost{}, 0.7});
    visit(planned_schedule{cost{}});
}

}  // namespace

TEST_CASE("any parts: a decoder of them emits the tokens of the parts that they hold") {
    std::size_t accepted = 0;
    auto const same = [&](auto const& target, auto const& drafter, auto const& rule) {
        for_each_schedule([&](auto const& schedule) {
            for (std::uint64_t seed = 1; seed <= 3; ++seed) {
                auto const expected = streams(target, drafter, schedule, rule, seed);
                CHECK(streams(target, drafter, any_schedule{schedule}, any_rule{rule}, seed) == expected);
                CHECK(streams(target, drafter, any_schedule{schedule}, rule, seed) == expected);
                accepted += expected.second;
            }
        });
    };
    for_each_chain_rule([&](auto const& rule) { same(target_of(w), semi_of(w), rule); });
    for_each_tree_rule([&](auto const& rule) {
        same(target_of(w), semi_of(w), rule);
        same(tree_target{}, trees_of(), rule);
    });
    CHECK(accepted > 1000);
}

TEST_CASE("any rule: says what the rule says, and which rule does the same for trees") {
    auto const says = [](auto const& rule, auto const& of_trees) {
        any_rule const any = rule;
        rule_traits const own = traits_of(rule);
        CHECK(any.traits().guarantee == own.guarantee);
        CHECK(any.traits().access == own.access);
        CHECK(any.traits().draft_rule == own.draft_rule);
        CHECK(any.traits().judges_trees == own.judges_trees);
        CHECK(any.traits().greedy_only == own.greedy_only);
        CHECK(any.held_type() == detail::tag_of(rule));
        CHECK(any.for_trees().held_type() == detail::tag_of(of_trees));
    };
    says(token_rejection<>{}, recursive_rejection<>{});
    says(token_rejection<argmax_draft>{}, recursive_rejection<argmax_draft>{});
    says(block_verification<>{}, traversal_verification<>{});
    says(block_verification<argmax_draft>{}, traversal_verification<argmax_draft>{});
    for_each_tree_rule([&](auto const& rule) { says(rule, rule); });
}

// ---- what is refused -------------------------------------------------------------------------------------------

namespace {

/// What a decoder of such parts says when it is made.
template <class Target, class Drafter>
[[nodiscard]] std::string refusal(Target target, Drafter drafter, any_schedule const& schedule, any_rule const& rule) {
    return error_text([&] { decoder dec{target, drafter, schedule, rule}; });
}
template <class Target, class Drafter>
[[nodiscard]] std::string lossy_refusal(Target target, Drafter drafter, any_schedule const& schedule,
                                        any_rule const& rule) {
    return error_text([&] { decoder dec{target, drafter, schedule, rule, allow_lossy}; });
}

struct lossy_rule : token_rejection<> {
    static constexpr fidelity guarantee = fidelity::lossy;
};
struct own_draft {
    [[maybe_unused]] static constexpr bool is_deterministic = false;
    [[maybe_unused]] static constexpr bool noise_returns = false;
};

}  // namespace

TEST_CASE("any parts: an illegal combination is refused at construction in the compiler's words") {
    auto const said = [](misfit m) { return std::string(to_string(m)); };
    auto target = target_of(w);
    any_schedule const live = greedy_schedule{cost{}};
    any_schedule const ahead = retrospective_schedule{cost{}};
    any_schedule const planned = planned_schedule{cost{}};
    any_schedule const lagged = top_k_schedule{cost{}};
    any_schedule const fixed = fixed_schedule{};
    lookup const found({.block_size = 3, .target_vocabulary = 3});
    auto chains = semi_of(w);
    auto const one_by_one = autoregressive_of(w);

    for (any_rule const rule : {any_rule(token_rejection<>{}), any_rule(block_verification<>{})}) {
        CHECK(refusal(target, chains, ahead, rule) == said(misfit::looks_ahead));
        CHECK(lossy_refusal(target, chains, ahead, rule).empty());
        CHECK(refusal(target, chains, live, rule).empty());
        CHECK(refusal(tree_target{}, trees_of(), live, rule) == said(misfit::judges_chains));
        CHECK(lossy_refusal(tree_target{}, trees_of(), live, rule) == said(misfit::judges_chains));
        CHECK(refusal(tree_target{}, trees_of(), live, rule.for_trees()).empty());
        CHECK(refusal(tree_target{}, ranked_trees{}, live, rule.for_trees()) == said(misfit::grows_by_tokens));
        CHECK(lossy_refusal(tree_target{}, ranked_trees{}, live, rule.for_trees()).empty());
    }
    for (any_rule const rule :
         {any_rule(token_rejection<coupled_draft>{}), any_rule(block_verification<coupled_draft>{})}) {
        CHECK(refusal(target, chains, fixed, rule) == said(misfit::noise_returns));
        CHECK(refusal(target, found, fixed, rule).empty());  // nothing is drawn
        CHECK(lossy_refusal(target, chains, fixed, rule).empty());
    }
    for (any_rule const rule :
         {any_rule(target_match<>{}), any_rule(keyed_coupling{}), any_rule(token_rejection<argmax_draft>{})}) {
        CHECK(refusal(target, chains, ahead, rule).empty());
        for (any_schedule const& schedule : {live, ahead, planned, lagged}) {
            CHECK(refusal(target, found, schedule, rule) == said(misfit::no_confidence));
            CHECK(lossy_refusal(target, found, schedule, rule) == said(misfit::no_confidence));
        }
        CHECK(refusal(target, found, fixed, rule).empty());
        CHECK(refusal(target, one_by_one, planned, rule) == said(misfit::no_anchor));
        CHECK(refusal(target, one_by_one, lagged, rule).empty());
        CHECK(refusal(target, chains, planned, rule).empty());
    }
    // Where one of the parts alone is chosen at run time.
    CHECK(error_text([&] { decoder dec{target, chains, live, lossy_rule{}}; }) == said(misfit::lossy_rule));
    CHECK(error_text([&] { decoder dec{target, chains, live, lossy_rule{}, allow_lossy}; }).empty());
    CHECK(error_text([&] { decoder dec{target, chains, ahead, token_rejection<>{}}; }) == said(misfit::looks_ahead));
    any_rule const sampling = token_rejection<>{};
    CHECK(error_text([&] { decoder dec{target, chains, retrospective_schedule{cost{}}, sampling}; }) ==
          said(misfit::looks_ahead));
}

TEST_CASE("misfits: each has a text of its own, and none has none") {
    drafter_traits const sure{.has_confidence = true, .plans_at_anchor = true};
    CHECK(misfit_of(sure, {}, {.draft_rule = drawn_by_v<own_draft>}) == misfit::unknown_draft_rule);
    CHECK(std::string(to_string(misfit::none)).empty());
    std::array const all{misfit::unknown_draft_rule, misfit::judges_chains, misfit::lossy_rule,
                         misfit::grows_by_tokens,    misfit::noise_returns, misfit::looks_ahead,
                         misfit::no_confidence,      misfit::no_anchor};
    for (misfit const a : all) {
        CHECK(std::string(to_string(a)).starts_with("sureleap: "));
        for (misfit const b : all) CHECK((std::string(to_string(a)) == to_string(b)) == (a == b));
    }
}

TEST_CASE("any parts: stages refuse parts that hold others than the round_memory was made with") {
    auto drafter = semi_of(w);
    any_schedule schedule = fixed_schedule{};
    any_rule rule = token_rejection<>{};
    round_memory<double, double> memory{drafter, schedule, rule, {.max_requests = 1}};
    request_settings const settings{};
    request_view const request{.id = 1, .anchor = 0, .remaining = 9, .settings = &settings};
    schedule = threshold_schedule{0.5};
    CHECK(support::says(error_text([&] { (void)begin_round(schedule, {&request, 1}, memory); }),
                        "made with a schedule of another type"));
    schedule = fixed_schedule{1};
    REQUIRE(begin_round(schedule, {&request, 1}, memory));
    philox_randomness rng;
    rule = block_verification<>{};
    auto const forward = drafter.forward(memory.requests());
    CHECK(support::says(error_text([&] { draw(drafter, forward, rule, rng, memory); }),
                        "made for another acceptance rule"));
    rule = token_rejection<>{};
    plan(schedule, memory);  // which plans nothing
    draw(drafter, forward, rule, rng, memory);
    CHECK(admit(schedule, memory).rows() == 2);
}

// SPDX-License-Identifier: MIT
//
// any_schedule does what the schedule does that it holds, over random tables; and is a value.
#include <sureleap/schedule/any.hpp>

#include "support/catch.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <sureleap/round/record.hpp>
#include <sureleap/round/stages.hpp>

#include "support/adapters.hpp"
#include "support/dice.hpp"
#include "support/survival_tables.hpp"

using namespace sureleap;

namespace {

struct stairs {
    [[nodiscard]] double step_seconds(step_load const& load) const noexcept {
        return 1.0 + 0.4 * static_cast<double>(load.batch_tokens / 3) + 0.05 * static_cast<double>(load.draft_tokens);
    }
};

/// A schedule of one's own: it decides live, and what it may be asked besides is counted.
struct talkative : threshold_schedule {
    explicit talkative(int* calls) : threshold_schedule(0.5), observed(calls) {}
    int* observed;
    round_sizes told{};
    void set_up(round_sizes const& sizes) { told = sizes; }
    [[nodiscard]] round_sizes sizes() const { return told; }
    void limit_drafts(std::span<request_view> requests) const {
        for (request_view& r : requests) r.draft_limit = 2;
    }
    [[nodiscard]] fixed_probability draft_floor() const { return 7; }
    void observe(round_record const&) const noexcept { ++*observed; }
};

/// visit(name, schedule): all of the library, alone and in adapters, and one's own.
template <class Visit>
void for_each_schedule(Visit&& visit) {
    visit("fixed", fixed_schedule{});
    visit("fixed, 2", fixed_schedule{2});
    visit("threshold", threshold_schedule{0.6});
    visit("survival threshold", survival_threshold_schedule{0.4});
    visit("greedy", greedy_schedule{stairs{}});
    visit("top-K, lag 1", lagged_top_k<1>(stairs{}, 0.3));
    visit("top-K, lag 2", top_k_schedule{stairs{}, 0.4});
    visit("planned", planned_schedule{stairs{}});
    visit("retrospective", retrospective_schedule{stairs{}});
    static int calls = 0;
    visit("own", talkative{&calls});
    adapters::for_each_adapter(stairs{}, [&]<class Schedule>(std::string const& name, Schedule const& s) {
        if constexpr (!std::is_same_v<Schedule, any_schedule>) visit(name, s);
    });
}

template <class Schedule>
[[nodiscard]] std::vector<std::uint32_t> admitted(Schedule const& s, support::owned_table const& table,
                                                  verify_budget const& budget) {
    support::admission_memory memory(table.sizes.size());
    auto const lengths = admit(s, draft_table{table.view(), {}, {}}, budget, memory.view());
    return {lengths.begin(), lengths.end()};
}
template <class Schedule>
[[nodiscard]] std::size_t planned_budget(Schedule const& s, support::owned_table const& table) {
    support::admission_memory memory(table.sizes.size());
    return s.budget(detail::planning_access::make<typename Schedule::origin>(table.view(), memory.view()));
}

[[nodiscard]] bool says_the_same(schedule_traits const& a, schedule_traits const& b) {
    return a.sees == b.sees && a.needs_confidence == b.needs_confidence && a.plans == b.plans && a.lag == b.lag &&
           a.is_sized == b.is_sized;
}

}  // namespace

TEST_CASE("any schedule: says, limits, plans and admits as the schedule that it holds") {
    support::dice roll(51);
    INFO("seed " << roll.seed());
    std::size_t schedules = 0, planners = 0, cut = 0;
    for_each_schedule([&]<class Schedule>(std::string const& name, Schedule const& given) {
        INFO(name);
        ++schedules;
        Schedule itself = given;
        any_schedule any = given;
        CHECK(says_the_same(traits_of(any), traits_of(itself)));
        CHECK(any.prior() == detail::prior_of(itself));
        any.set_up({20, 6});
        if constexpr (sized_part<Schedule>) {
            itself.set_up({20, 6});
            CHECK(any.sizes() == itself.sizes());
        }
        request_settings const settings{};
        for (int trial = 0; trial < 40; ++trial) {
            std::size_t const requests = 1 + roll.below(20);
            auto const table = support::random_table(roll, requests, 1 + roll.below(6), 5);
            std::vector<request_view> views;
            for (std::size_t r = 0; r < requests; ++r) {
                views.push_back({.id = r + 1, .slot = r, .remaining = 9, .settings = &settings});
            }
            auto others = views;
            if constexpr (draft_limiter<Schedule>) itself.limit_drafts(views);
            any.limit_drafts(others);
            for (std::size_t r = 0; r < requests; ++r) {
                CHECK(others[r].draft_limit == views[r].draft_limit);
                CHECK(others[r].model_limit == views[r].model_limit);
                CHECK(others[r].weight == views[r].weight);
            }
            fixed_probability floor = 0;
            if constexpr (draft_stopper<Schedule>) floor = itself.draft_floor();
            CHECK(any.draft_floor() == floor);
            verify_budget budget{};
            if constexpr (planner<Schedule>) {
                budget = planned_budget(itself, table);
                CHECK(planned_budget(any, table) == budget);
                ++planners;
            }
            auto const lengths = admitted(itself, table, budget);
            CHECK(admitted(any, table, budget) == lengths);
            for (std::size_t r = 0; r < requests; ++r) cut += lengths[r] < table.sizes[r] ? 1u : 0u;
        }
    });
    CHECK(schedules > 20);
    CHECK(planners > 300);
    CHECK(cut > 3000);
}

TEST_CASE("any schedule: passes on what comes before and after a round") {
    int calls = 0;
    any_schedule any = talkative{&calls};
    any.set_up({3, 4});
    CHECK(any.sizes() == round_sizes{3, 4});
    any.observe({});
    CHECK(calls == 1);
    CHECK(any.get_if<talkative>()->told == round_sizes{3, 4});
}

TEST_CASE("any schedule: copies are independent values, of whatever they are given") {
    int calls = 0;
    any_schedule const first = talkative{&calls};
    any_schedule second = first;
    second.set_up({5, 6});
    CHECK(second.sizes() == round_sizes{5, 6});
    CHECK(first.sizes() == round_sizes{});
    CHECK(second.held_type() == first.held_type());

    second = fixed_schedule{3};
    CHECK(second.held_type() != first.held_type());
    REQUIRE(second.get_if<fixed_schedule>() != nullptr);
    CHECK(second.get_if<fixed_schedule>()->length() == 3);
    CHECK(second.get_if<talkative>() == nullptr);
    CHECK_FALSE(second.traits().needs_confidence);

    any_schedule third = std::move(second);
    CHECK(third.get_if<fixed_schedule>() != nullptr);
    second = third;
    CHECK(second.get_if<fixed_schedule>() != nullptr);
    third = first;
    CHECK(third.get_if<talkative>() != nullptr);
    CHECK(third.get_if<any_schedule>() == nullptr);
}

// SPDX-License-Identifier: MIT
//
// The sizes of an engine's rounds stand in one place: max_requests in the limits, gamma in the drafter. Whatever keeps
// something for each slot or position is told them at set-up, through any number of wrappers; what was made for less,
// by itself, is refused at set-up or at the first record, in release builds too. Meant for the address sanitizer as
// well.
#include "support/catch.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <sureleap/confidence/calibration.hpp>
#include <sureleap/core/workspace.hpp>
#include <sureleap/decoder.hpp>
#include <sureleap/fit/confidence_metrics.hpp>
#include <sureleap/round/report.hpp>
#include <sureleap/round/stages.hpp>
#include <sureleap/schedule/planning.hpp>
#include <sureleap/serving/drift.hpp>
#include <sureleap/serving/metrics.hpp>
#include <sureleap/serving/online_calibration.hpp>
#include <sureleap/serving/online_maps.hpp>
#include <sureleap/verify/rejection.hpp>

#include "support/adapters.hpp"
#include "support/error_text.hpp"
#include "support/small_world.hpp"

using namespace small_world;
using support::error_text;
using support::says;

namespace {

constexpr std::size_t places = 64;
world const w{12, 3, 3};

struct cost {
    [[nodiscard]] double step_seconds(step_load const& load) const noexcept {
        return 1.0 + 0.02 * static_cast<double>(load.batch_tokens) + 0.002 * static_cast<double>(load.draft_tokens);
    }
};
using planned = planned_schedule<cost>;

static_assert(!sized_part<planned>);
static_assert(!sized_part<hysteresis<planned>>);
static_assert(!sized_part<agreed<hysteresis<planned>, adapters::as_said>>);
static_assert(sized_part<never_lose<planned, cost>> && sized_part<speed_targets<planned, cost>>);
static_assert(sized_part<hysteresis<speed_targets<planned, cost>>>);
static_assert(sized_part<agreed<hysteresis<never_lose<planned, cost>>, adapters::as_said>>);

/// Fills every place twice, with requests that ask for speeds and differ in what they are worth.
template <class Decoder>
void fill(Decoder& dec) {
    std::vector<token_id> const prompt{1};
    for (int life = 0; life < 2; ++life) {
        for (std::size_t r = 0; r < places; ++r) {
            (void)dec.submit(prompt, {.seed = r,
                                      .max_new_tokens = 12,
                                      .priority = r % 3 == 0 ? 0.4 : 1.0,
                                      .tokens_per_second = r % 4 == 0 ? 0.9 : 0.0});
        }
        while (dec.step()) {
        }
    }
}

template <class Schedule>
void check_sizes(Schedule const& schedule, round_sizes const& expected) {
    if constexpr (sized_part<Schedule>) CHECK(schedule.sizes() == expected);
}

/// A view of the slot's request.
request_view request_in(std::size_t slot) {
    static request_settings const settings{};
    return {.id = slot + 1, .slot = slot, .remaining = 10, .settings = &settings};
}

/// The record of a round of one request whose block has so many positions, all of them accepted.
struct one_request {
    explicit one_request(std::size_t slot, std::size_t block)
        : views{request_in(slot)},
          tokens(block + 1),
          verdicts{{.id = slot + 1,
                    .slot = slot,
                    .drafted = block,
                    .verified = block,
                    .accepted = block,
                    .emitted = tokens}},
          sizes{static_cast<std::uint32_t>(block)},
          certainly(block, certain) {}

    [[nodiscard]] round_record record() const {
        return {views, verdicts, {certainly.size(), sizes, certainly, certainly}, {}, {1, 1 + certainly.size(), 1}};
    }
    std::vector<request_view> views;
    std::vector<token_id> tokens;
    std::vector<verdict> verdicts;
    std::vector<std::uint32_t> sizes;
    std::vector<fixed_probability> certainly;
};

}  // namespace

// ---- schedules ------------------------------------------------------------------------------------------------------

TEST_CASE("adapters in a decoder of 64 requests know all 64, in any order") {
    auto target = target_of(w);
    adapters::for_each_adapter(cost{}, [&](std::string const& name, auto const& schedule) {
        INFO(name);
        decoder dec{target, semi_of(w), schedule, token_rejection<>{}, {.max_requests = places, .seed = 1}};
        check_sizes(dec.schedule(), {places, w.block_size});
        fill(dec);
        CHECK(dec.report().emitted() == 2 * places * 12);
    });
}

TEST_CASE("sizes are told once: by the decoder, to all that are wrapped") {
    auto target = target_of(w);
    agreed const schedule{never_lose{hysteresis{speed_targets{planned{cost{}}}}}, adapters::as_said{}};
    using schedule_type = std::remove_const_t<decltype(schedule)>;
    decoder dec{target, semi_of(w), any_schedule{schedule}, token_rejection<>{}, {.max_requests = places, .seed = 1}};
    auto const& outer = dec.schedule().get_if<schedule_type>()->schedule();
    CHECK(dec.schedule().sizes() == round_sizes{places, w.block_size});
    CHECK(outer.sizes() == round_sizes{places, w.block_size});
    CHECK(outer.trust().size() == w.block_size);
    CHECK(outer.schedule().schedule().sizes() == round_sizes{places, w.block_size});
    fill(dec);
    std::size_t asked = 0;  // a quarter of the last 64, in whichever places
    for (std::size_t slot = 0; slot < places; ++slot) {
        asked += outer.schedule().schedule().report(slot).target == 0.9 ? 1u : 0u;
    }
    CHECK(asked == places / 4);
    CHECK(outer.schedule().schedule().report(places).target == 0.0);  // of nobody
    CHECK(outer.schedule().schedule().report(static_cast<std::size_t>(-1)).speed == 0.0);
}

TEST_CASE("a schedule that is moved to rounds of other sizes makes room for them") {
    auto target = target_of(w);
    world const longer{12, 3, 5};
    adapters::for_each_adapter(cost{}, [&](std::string const& name, auto const& schedule) {
        INFO(name);
        decoder small{target, semi_of(w), schedule, token_rejection<>{}, {.max_requests = 2, .seed = 1}};
        (void)small.submit(std::vector<token_id>{1}, {.max_new_tokens = 40});
        while (small.step()) {
        }
        decoder wide{target, semi_of(w), small.schedule(), token_rejection<>{}, {.max_requests = places, .seed = 1}};
        check_sizes(wide.schedule(), {places, w.block_size});
        fill(wide);
        decoder deep{
            target, semi_of(longer), wide.schedule(), token_rejection<>{}, {.max_requests = places, .seed = 1}};
        check_sizes(deep.schedule(), {places, longer.block_size});
        fill(deep);
        decoder back{target, semi_of(w), deep.schedule(), token_rejection<>{}, {.max_requests = places, .seed = 1}};
        check_sizes(back.schedule(), {places, w.block_size});
        fill(back);
    });
}

TEST_CASE("the same sizes again change nothing, more slots forget requests, another gamma everything") {
    auto target = target_of(w);
    never_lose<speed_targets<planned, cost>, cost> schedule{speed_targets{planned{cost{}}}, cost{}};
    decoder dec{target, semi_of(w), schedule, token_rejection<>{}, {.max_requests = places, .seed = 1}};
    fill(dec);
    schedule = dec.schedule();
    std::vector<double> const learned(schedule.trust().begin(), schedule.trust().end());
    CHECK(learned != std::vector<double>(w.block_size, 1.0));

    schedule.set_up({places, w.block_size});
    CHECK(std::vector<double>(schedule.trust().begin(), schedule.trust().end()) == learned);
    CHECK(schedule.schedule().report(0).target == 0.9);

    schedule.set_up({places + 1, w.block_size});
    CHECK(std::vector<double>(schedule.trust().begin(), schedule.trust().end()) == learned);
    CHECK(schedule.schedule().report(0).target == 0.0);

    schedule.set_up({places + 1, w.block_size + 2});
    CHECK(std::vector<double>(schedule.trust().begin(), schedule.trust().end()) ==
          std::vector<double>(w.block_size + 2, 1.0));
    CHECK(schedule.choice().limit == 0);
}

TEST_CASE("used before it was set up, or for a slot beyond it, a sized part says so") {
    std::vector<request_view> fits{request_in(0), request_in(3)};
    std::vector<request_view> outside{request_in(0), request_in(4)};
    adapters::for_each_adapter(cost{}, [&](std::string const& name, auto schedule) {
        if constexpr (sized_part<decltype(schedule)>) {
            INFO(name);
            CHECK(schedule.sizes() == round_sizes{});
            std::string const early = error_text([&] { schedule.limit_drafts(fits); });
            CHECK(says(early, {"used before set_up", "set_up({max_requests, block_size})"}));
            if constexpr (round_observer<decltype(schedule)>) schedule.observe(one_request(0, 3).record());  // ignored

            schedule.set_up({4, 3});
            CHECK(error_text([&] { schedule.limit_drafts(fits); }).empty());
            std::string const beyond = error_text([&] { schedule.limit_drafts(outside); });
            CHECK(says(beyond, {"request 1 has slot 4", "max_requests = 4"}));
            if constexpr (round_observer<decltype(schedule)>) {
                schedule.observe(one_request(3, 3).record());
                schedule.observe(one_request(4, 3).record());     // a slot beyond,
                schedule.observe(one_request(1000, 3).record());  // and far beyond: nothing is learned of it
                schedule.observe(one_request(0, 2).record());     // blocks of another size
                schedule.observe(one_request(0, 40).record());
            }
            CHECK(error_text([&] { schedule.limit_drafts(fits); }).empty());

            CHECK(says(error_text([&] { schedule.set_up({0, 3}); }), "max_requests = 0"));
            CHECK(says(error_text([&] { schedule.set_up({4, 0}); }), "block_size of 0"));
            CHECK(schedule.sizes() == round_sizes{4, 3});
        }
    });
}

TEST_CASE("a history refuses rounds that it was not made for") {
    std::vector<std::byte> buffer(4096);
    workspace ws{buffer};
    auto memory = planning_memory::carve(ws, 4, 3);
    std::vector<request_view> const fits{request_in(0), request_in(1)};
    std::vector<request_view> const outside{request_in(0), request_in(2)};
    one_request const round(0, 3);
    one_request const beyond(2, 3);
    auto const push = [](survival_history& history, one_request const& r) {
        return error_text([&] { history.push(r.views, r.record().survivals); });
    };
    auto const lagged = [&](survival_history const& history, std::vector<request_view> const& views) {
        return error_text([&] { (void)history.lagged<1>(views, memory); });
    };

    survival_history few(2, 3, 1, 0.5);
    CHECK(lagged(few, fits).empty());
    CHECK(push(few, round).empty());
    CHECK(says(lagged(few, outside), {"request 1 has slot 2", "max_requests = 2"}));
    CHECK(says(push(few, beyond), {"request 0 has slot 2", "max_requests = 2"}));
    few.join(2);

    for (std::size_t const block : {std::size_t{2}, std::size_t{4}}) {
        survival_history other(4, block, 1, 0.5);
        CHECK(says(lagged(other, fits), {"block_size of 3", "survival_history"}));
        CHECK(says(push(other, round), {"block_size of 3", "survival_history"}));
    }
    survival_history none;
    CHECK(says(lagged(none, fits), {"survival_history", "expected"}));
    CHECK(says(push(none, round), {"survival_history", "expected"}));
}

// ---- calibrations ---------------------------------------------------------------------------------------------------

TEST_CASE("a calibration of fewer positions than the drafter's is refused at set-up") {
    auto target = target_of(w);
    auto const text = [&](auto const& calibration, std::size_t requests = 4) {
        std::string const by_decoder = error_text([&] {
            decoder dec{target, semi_of(w), planned{cost{}}, token_rejection<>{},
                        decoder_options{.max_requests = requests, .seed = 1, .calibration = calibration}};
        });
        std::string const by_memory = error_text([&] {
            fixed_schedule all;
            round_memory<double, double> memory{
                semi_of(w), all, token_rejection<>{}, {.max_requests = requests, .calibration = calibration}};
        });
        CHECK(by_memory == by_decoder);
        return by_decoder;
    };
    auto const names_both = {"has 2 positions", "block_size = 3"};
    CHECK(says(text(sequential_temperature_scaling({1.0, 2.0})), names_both));
    CHECK(says(text(sequential_platt_scaling({{1.0, 0.5}, {2.0, 0.1}})), names_both));
    CHECK(says(text(online_calibration{2}), names_both));
    CHECK(says(text(online_maps{2}), names_both));

    CHECK(text(sequential_temperature_scaling({1.0, 2.0, 1.0})).empty());
    CHECK(text(sequential_temperature_scaling({1.0, 2.0, 1.0, 1.0})).empty());  // of a longer block
    CHECK(text(online_calibration{3}).empty());
    auto const any = [](std::size_t, double c) noexcept { return c; };
    CHECK(text(any).empty());
    CHECK(calibration_ref{any}.positions() == static_cast<std::size_t>(-1));
    CHECK(calibration_ref{}.positions() == static_cast<std::size_t>(-1));

    // Histories of requests are kept by slot.
    online_calibration const few{3, {.maps = {.terms = online_terms::history}, .max_requests = 4}};
    CHECK(text(few, 4).empty());
    CHECK(says(text(few, 5), {"has 4 slots", "max_requests = 5"}));
    CHECK(text(online_calibration{3, {.max_requests = 1}}, 5).empty());  // its maps rely on no history
}

// ---- what counts ----------------------------------------------------------------------------------------------------

TEST_CASE("what learns from records or counts them refuses blocks that are longer than its own") {
    one_request const round(0, 3);
    auto const both = {"a block of 3 positions", "block_size = 2"};

    serving_metrics metrics{2};
    CHECK(says(error_text([&] { metrics.observe(round.record()); }), both));
    CHECK(says(error_text([&] { metrics.observe(round.record(), cost{}); }), both));
    CHECK(metrics.read().rounds == 0);  // and nothing of it is counted
    metrics.observe(one_request(0, 2).record());
    metrics.observe(one_request(0, 1).record());
    CHECK(metrics.read().accepted == 3);

    online_calibration calibration{2, {.tenants = 8}};
    CHECK(says(error_text([&] { calibration.observe(round.record()); }), both));
    CHECK(says(error_text([&] { calibration.learn(round.views[0], 3, 3, [](std::size_t) { return 0.5; }); }), both));
    calibration.observe(one_request(0, 2).record());
    CHECK(calibration.rounds() == 1);
    CHECK(calibration.shared().observations(0) > 0.0);
    CHECK(calibration.shared().observations(0) < 1.5);  // of the one round that was its own

    online_maps maps{2};
    std::vector<double> const raw(3, 0.5);
    CHECK(says(error_text([&] { maps.observe_round(raw, 3, 3); }), both));
    CHECK(maps.observations(0) == 0.0);
    CHECK(says(error_text([&] { maps.observe(2, {}, true); }), {"position 2", "block_size = 2"}));

    drift_monitor drift{2};
    for (std::size_t const k : {std::size_t{2}, static_cast<std::size_t>(-1)}) {
        CHECK(says(error_text([&] { drift.observe(k, 0.0, true); }), {"drift_monitor: position", "block_size = 2"}));
    }

    calibration_recorder recorder{2};
    std::vector<std::uint8_t> const labels(3, 1);
    CHECK(says(error_text([&] { recorder.observe(raw, labels, 3); }), both));
    CHECK(says(error_text([&] { recorder.observe_survivals(raw, labels, 3); }), both));
    CHECK(says(error_text([&] { recorder.add(static_cast<std::size_t>(-1), 0.5, true); }), "block_size = 2"));
    CHECK(recorder.mean().count == 0);

    // A report counts what it has room for by position, and all of it in total.
    round_report report{2};
    report.record(round.verdicts);
    CHECK(report.accepted() == 3);
    CHECK(report.reached(1) == 1);
    CHECK(report.reached(2) == 0);
    CHECK(report.survival(2) == 0.0);
    CHECK(report.conditional_acceptance(static_cast<std::size_t>(-1)) == 0.0);
}

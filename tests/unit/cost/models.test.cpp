// SPDX-License-Identifier: MIT
//
// Cost models by exact values: sums of prices, padding, measured cells, curves with a draft; and every unusable input
// by its text.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <sureleap/concepts.hpp>
#include <sureleap/cost/additive.hpp>
#include <sureleap/cost/capacity.hpp>
#include <sureleap/cost/cell.hpp>
#include <sureleap/cost/padded.hpp>
#include <sureleap/cost/views.hpp>

#include "support/cost_checks.hpp"
#include "support/dice.hpp"
#include "support/error_text.hpp"

using namespace sureleap;
using support::error_text;
using support::says;

namespace {

static_assert(cost_model<additive_cost> && cost_model<padded_cost<additive_cost>> &&
              cost_model<cell_cost<additive_cost>>);
static_assert(cost_model<padded_cost<cell_cost<additive_cost>>> && cost_model<batch_cost<analytic_capacity>>);
static_assert(cost_model<cost_ref<additive_cost>>);
static_assert(!capacity_curve<additive_cost> && step_cost<additive_cost>);
// A reference to what is about to end is refused.
static_assert(!std::is_constructible_v<cost_ref<additive_cost>, additive_cost>);
static_assert(std::is_constructible_v<cost_ref<additive_cost>, additive_cost const&>);
// Near misses of cost_model.
struct of_tokens {
    [[maybe_unused, nodiscard]] double step_seconds(std::size_t) const { return 1.0; }
};
struct not_const {
    [[maybe_unused, nodiscard]] double step_seconds(step_load const&) { return 1.0; }
};
static_assert(!cost_model<of_tokens> && !cost_model<not_const>);

step_load load_of(std::size_t requests, std::size_t batch_tokens, std::size_t drafting = 0,
                  std::size_t draft_tokens = 0, std::uint64_t context = 0) {
    return {requests, batch_tokens, drafting, draft_tokens, context};
}

}  // namespace

TEST_CASE("additive cost: the sum of its parts") {
    additive_cost const cost({.fixed = 64.0,
                              .request = 1.0,
                              .batch_token = 0.5,
                              .context_token = 0.125,
                              .draft_fixed = 16.0,
                              .drafting_request = 2.0,
                              .draft_token = 0.25,
                              .unread_token = 0.125,
                              .replay = 32.0});
    CHECK(cost.step_seconds(load_of(4, 4)) == 64.0 + 4.0 + 2.0);
    CHECK(cost.step_seconds(load_of(4, 10, 0, 0, 800)) == 64.0 + 4.0 + 5.0 + 100.0);
    CHECK(cost.step_seconds(load_of(4, 10, 3, 12, 800)) == 64.0 + 4.0 + 5.0 + 100.0 + 16.0 + 6.0 + 3.0);
    CHECK(cost.step_seconds(load_of(4, 10, 3, 12)) - cost.step_seconds(load_of(4, 9, 3, 12)) == 0.5);
    step_load behind = load_of(4, 10, 3, 12, 800);
    behind.unread_tokens = 40;
    behind.replays = 2;
    CHECK(cost.step_seconds(behind) == cost.step_seconds(load_of(4, 10, 3, 12, 800)) + 5.0 + 64.0);
    behind.drafting = behind.draft_tokens = 0;  // who drafts nothing reads nothing
    CHECK(cost.step_seconds(behind) == cost.step_seconds(load_of(4, 10, 0, 0, 800)) + 64.0);
    CHECK(cost.step_seconds(load_of(0, 0)) == cost.step_seconds(load_of(1, 1)));  // no step is empty
    CHECK(std::isfinite(additive_cost({1e9, 1e9, 1e9, 1e9, 1e9, 1e9, 1e9, 1e9, 1e9})
                            .step_seconds({SIZE_MAX, SIZE_MAX, SIZE_MAX, SIZE_MAX, UINT64_MAX, UINT64_MAX, SIZE_MAX})));
}

TEST_CASE("additive cost: unusable prices are refused by name") {
    double const nan = std::numeric_limits<double>::quiet_NaN();
    double const inf = std::numeric_limits<double>::infinity();
    auto const text = [](cost_prices const& p) { return error_text([&] { additive_cost{p}; }); };
    CHECK(says(text({.fixed = -1.0}), "additive_cost: fixed is -1 seconds, expected a number in [0, 1e9]"));
    CHECK(says(text({.fixed = 1.0, .draft_token = nan}), "draft_token is "));
    CHECK(says(text({.fixed = 1.0, .context_token = inf}), "context_token is inf"));
    CHECK(says(text({.fixed = 1.0, .replay = -2.0}), "replay is -2"));
    CHECK(says(text({}), "expected at least one of them to be positive: no step is free"));
    CHECK(says(text({.draft_fixed = 1.0}), "fixed, request and batch_token are 0, 0 and 0 seconds"));
    CHECK(text({.batch_token = 1e-6}).empty());
}

TEST_CASE("padded cost: stairs") {
    additive_cost const model({.fixed = 10.0, .request = 1.0, .batch_token = 0.5, .context_token = 0.25});
    padded_cost const cost{model, {4, 8, 32}};
    auto const at = [&](std::size_t b) { return cost.step_seconds(load_of(2, b, 0, 0, 8)); };
    CHECK(at(2) == 10.0 + 2.0 + 2.0 + 2.0);
    CHECK(at(3) == at(2));
    CHECK(at(4) == at(2));
    CHECK(at(5) == at(4) + 2.0);
    CHECK(at(8) == at(5));
    CHECK(at(9) == at(4) + 14.0);
    CHECK(at(32) == at(9));
    // Two graphs, one full and one of 4: each is launched, requests and contexts are paid once.
    CHECK(at(33) == 2 * 10.0 + 2.0 + 2.0 + 16.0 + 2.0);
    CHECK(at(36) == at(33));
    CHECK(at(37) == at(36) + 2.0);
    CHECK(at(64) == 2 * 10.0 + 2.0 + 2.0 + 32.0);
    CHECK(at(65) == 3 * 10.0 + 3.0 + 2.0 + 32.0 + 2.0);  // one request is in two of them
}

TEST_CASE("padded cost: requests are padded too, and bring their tokens") {
    additive_cost const model({.fixed = 10.0, .request = 1.0, .batch_token = 0.5});
    padded_cost const cost{model, {8, 16}, {2, 6}};
    auto const at = [&](std::size_t r, std::size_t b) { return cost.step_seconds(load_of(r, b)); };
    CHECK(at(1, 1) == 10.0 + 2.0 + 4.0);
    CHECK(at(3, 3) == 10.0 + 6.0 + 4.0);
    CHECK(at(6, 9) == 10.0 + 6.0 + 8.0);
    CHECK(at(7, 7) == 10.0 + 12.0 + 8.0);  // 12 requests, hence 12 tokens, hence 16
    padded_cost const tokens_as_they_are{model, {}, {4}};
    CHECK(tokens_as_they_are.step_seconds(load_of(3, 3)) == 10.0 + 4.0 + 2.0);
    CHECK(tokens_as_they_are.step_seconds(load_of(3, 7)) == 10.0 + 4.0 + 3.5);
    padded_cost const plain{model, {}};
    CHECK(plain.step_seconds(load_of(3, 7)) == model.step_seconds(load_of(3, 7)));
}

TEST_CASE("padded cost: drafting is paid once, however many graphs run") {
    additive_cost const model({.fixed = 10.0, .draft_fixed = 3.0, .draft_token = 0.5});
    padded_cost const cost{model, {4}};
    CHECK(cost.step_seconds(load_of(4, 12, 4, 8)) == 3 * 10.0 + 3.0 + 4.0);
}

TEST_CASE("padded cost: unusable sizes are refused by index") {
    additive_cost const model({.fixed = 1.0});
    CHECK(says(error_text([&] { padded_cost(model, {4, 4}); }), "token_sizes at index 1: got 4 after 4"));
    CHECK(says(error_text([&] { padded_cost(model, {4, 2}); }), "token_sizes at index 1: got 2 after 4"));
    CHECK(says(error_text([&] { padded_cost(model, {}, {0}); }), "request_sizes at index 0: got 0"));
}

TEST_CASE("cost models: sizes that overflow when they are added are refused") {
    additive_cost const model({.fixed = 1.0});
    std::size_t const most = std::size_t{1} << 62;
    CHECK(says(error_text([&] { padded_cost(model, {4, most + 1}); }),
               "token_sizes at index 1: got 4611686018427387905, expected at most 2^62 = 4611686018427387904"));
    CHECK(says(error_text([&] { padded_cost(model, {}, {SIZE_MAX}); }), "request_sizes at index 0: got"));
    padded_cost const widest{model, {most}, {most}};
    CHECK(widest.step_seconds(load_of(1, 8)) == 1.0);
    CHECK(widest.step_seconds(load_of(most, most)) == 1.0);
    auto const cells = [&](step_load const& load) { return error_text([&] { cell_cost(model, {{load, 1.0}}); }); };
    CHECK(says(cells(load_of(1, SIZE_MAX)),
               "cell_cost: sample 0: batch_tokens is 18446744073709551615, expected at most"));
    CHECK(says(cells(load_of(most + 1, most + 1)), "cell_cost: sample 0: requests is 4611686018427387905"));
    CHECK(says(cells(load_of(1, 1, 1, SIZE_MAX)), "draft_tokens is 18446744073709551615"));
    CHECK(says(cells(load_of(1, 1, 0, 0, UINT64_MAX)), "context_tokens is 18446744073709551615"));
    CHECK(says(cells({1, 1, 1, 1, 0, UINT64_MAX}), "unread_tokens is 18446744073709551615"));
    CHECK(says(cells({2, 2, 0, 0, 0, 0, 3}), "replays is 3 of 2 requests"));
    CHECK(cells(load_of(1, most, 1, most, most)).empty());
}

TEST_CASE("cell cost: a model whose times are none is refused with the sample") {
    struct broken {
        double value;
        [[nodiscard]] double step_seconds(step_load const&) const noexcept { return value; }
    };
    auto const text = [](double value) {
        return error_text([&] { cell_cost(broken{value}, {{load_of(1, 1), 1.0}, {load_of(2, 2), 1.0}}); });
    };
    CHECK(says(text(0.0), "cell_cost: sample 0: the model says 0 seconds, expected a finite number of at least 1e-15"));
    CHECK(says(text(std::numeric_limits<double>::quiet_NaN()), "the model says"));
    CHECK(says(text(1e-320), "the model says 9.9998"));
    CHECK(text(1e-15).empty());
}

TEST_CASE("cell cost: measurements override, the model goes on") {
    additive_cost const model({.fixed = 8.0, .batch_token = 1.0, .context_token = 0.5, .draft_fixed = 2.0});
    cell_cost const cost{model,
                         {{load_of(4, 32), 60.0},  // 20 more than modelled
                          {load_of(4, 4), 16.0},   // 4 more
                          {load_of(8, 16), 24.0},  // as modelled
                          {load_of(8, 8), 16.0}}};
    CHECK(cost.cells() == 4);
    CHECK(cost.step_seconds(load_of(4, 4)) == 16.0);
    CHECK(cost.step_seconds(load_of(4, 32)) == 60.0);
    CHECK(cost.step_seconds(load_of(4, 18)) == 8.0 + 18.0 + 12.0);  // halfway
    CHECK(cost.step_seconds(load_of(4, 40)) == 8.0 + 40.0 + 20.0);  // the last difference stays
    CHECK(cost.step_seconds(load_of(2, 2)) == 8.0 + 2.0 + 4.0);     // and so does the first, of the first row
    CHECK(cost.step_seconds(load_of(2, 18)) == 8.0 + 18.0 + 12.0);
    CHECK(cost.step_seconds(load_of(8, 12)) == model.step_seconds(load_of(8, 12)));
    CHECK(cost.step_seconds(load_of(100, 500)) == model.step_seconds(load_of(100, 500)));
    CHECK(cost.step_seconds(load_of(6, 32)) == 8.0 + 32.0 + 10.0);  // between the rows
    CHECK(cost.step_seconds(load_of(7, 18)) == 8.0 + 18.0 + 3.0);
    // Contexts and drafts that no cell was measured under come on top.
    CHECK(cost.step_seconds(load_of(4, 4, 4, 28, 100)) == 16.0 + 2.0 + 50.0);
}

TEST_CASE("cell cost: a cell's own load gives the measured time to the bit") {
    support::dice roll(5);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 200; ++trial) {
        additive_cost const model({roll.real(), roll.real(), roll.real(), roll.real(), 0.1, 0.1, 0.1});
        std::vector<cost_sample> samples;
        for (int i = 0; i < 12; ++i) {
            std::size_t const requests = 1 + roll.below(4);
            step_load const load =
                load_of(requests, requests + 12 * static_cast<std::size_t>(i) + roll.below(12), 1, 5, 99);
            samples.push_back({load, model.step_seconds(load) * roll.between(0.1, 3.0)});
        }
        cell_cost const cost{model, samples};
        REQUIRE(cost.cells() == 12);
        for (cost_sample const& s : samples) REQUIRE(cost.step_seconds(s.load) == s.seconds);
    }
}

TEST_CASE("cell cost: no cells, one cell, several measurements of one, and a model that is far off") {
    additive_cost const model({.fixed = 8.0, .batch_token = 1.0, .context_token = 1.0});
    cell_cost const none{model, {}};
    CHECK(none.step_seconds(load_of(3, 9)) == 17.0);
    cell_cost const one{model, {{load_of(3, 9), 18.0}}};
    CHECK(one.step_seconds(load_of(1, 1)) == 10.0);
    CHECK(one.step_seconds(load_of(9, 90)) == 99.0);
    // Measured under contexts of 0 and 10, 1 and 3 above the model.
    cell_cost const mean{model, {{load_of(3, 9), 18.0}, {load_of(3, 9, 0, 0, 10), 30.0}}};
    CHECK(mean.cells() == 1);
    CHECK(mean.step_seconds(load_of(3, 9)) == 19.0);
    // The model charges 100 for contexts, the machine nearly nothing: no time becomes negative where there are none.
    cell_cost const overrated{model, {{load_of(3, 12, 0, 0, 100), 30.0}}};
    CHECK(overrated.step_seconds(load_of(3, 12, 0, 0, 100)) == 30.0);
    CHECK(overrated.step_seconds(load_of(3, 12)) == 0.9 * (30.0 / 120.0) * 20.0);
}

TEST_CASE("cell cost: unusable samples are refused by index") {
    additive_cost const model({.fixed = 1.0});
    auto const text = [&](step_load const& load, double seconds) {
        return error_text([&] { cell_cost(model, {{load_of(1, 1), 1.0}, {load, seconds}}); });
    };
    CHECK(says(text(load_of(2, 4), 0.0), "cell_cost: sample 1: seconds is 0, expected a number in [1e-15, 1e9]"));
    CHECK(says(text(load_of(2, 4), std::numeric_limits<double>::infinity()), "sample 1: seconds is inf"));
    CHECK(says(text(load_of(0, 4), 1.0), "sample 1: requests is 0"));
    CHECK(says(text(load_of(5, 4), 1.0), "sample 1: batch_tokens is 4 with 5 requests"));
    CHECK(says(text(load_of(2, 4, 3, 3), 1.0), "sample 1: drafting is 3 of 2 requests"));
    CHECK(says(text(load_of(2, 4, 2, 1), 1.0), "draft_tokens is 1 with 2 requests drafting"));
    CHECK(says(text(load_of(2, 4, 0, 1), 1.0), "draft_tokens is 1 with 0 requests drafting"));
}

TEST_CASE("batch cost: a curve and a draft") {
    capacity_table<> const table({{1, 1.0}, {8, 3.0}, {64, 5.0}});
    auto const cost = of_batch(table, {.fixed = 0.5, .request = 0.25, .token = 0.125});
    CHECK(cost.step_seconds(load_of(4, 8)) == 3.0);
    CHECK(cost.step_seconds(load_of(4, 8, 2, 8)) == 3.0 + 0.5 + 0.5 + 1.0);
    step_load behind = load_of(4, 8, 2, 8);
    behind.unread_tokens = 16;
    behind.replays = 3;
    CHECK(of_batch(table, {.unread = 0.25, .replay = 2.0}).step_seconds(behind) == 3.0 + 4.0 + 6.0);
    for (std::size_t b = 1; b < 100; ++b) {
        CHECK(of_batch(table).step_seconds(load_of(1, b)) == table.step_seconds(b));
    }
    CHECK(of_batch(analytic_capacity(8000.0, 96.0)).step_seconds(load_of(1, 4)) == 1.0 / 80.0);
    CHECK(says(error_text([&] { (void)of_batch(table, {.token = -1.0}); }), "of_batch: draft: draft_token is -1"));
}

TEST_CASE("priced rounds: a round's curve is the model at its load") {
    additive_cost const model({.fixed = 3.0, .batch_token = 0.5, .context_token = 0.25, .draft_fixed = 1.0});
    auto const curve = curve_of(model, load_of(2, 2, 2, 8, 4));
    static_assert(capacity_curve<std::remove_cvref_t<decltype(curve)>>);
    CHECK(curve.steps_per_second(2) == 1.0 / 6.0);
    CHECK(curve.steps_per_second(10) == 1.0 / 10.0);
    cost_ref const lent{model};
    CHECK(lent.step_seconds(load_of(2, 2)) == 4.0);
    CHECK(&lent.model() == &model);
}

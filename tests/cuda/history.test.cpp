// SPDX-License-Identifier: MIT
//
// The device's memory of past rounds is survival_history: over random rounds in which requests come, pause and go.

#include <sureleap/cuda/schedule/budget.cuh>
#include <sureleap/cuda/schedule/history.cuh>
#include <sureleap/cuda/schedule/schedules.cuh>

#include <sureleap/cost/capacity.hpp>
#include <sureleap/schedule/planning.hpp>
#include <sureleap/schedule/top_k.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/support/captured.hpp"
#include "cuda/support/device_rounds.hpp"
#include "cuda/support/seeds.hpp"
#include "support/catch.hpp"
#include "support/dice.hpp"
#include "support/survival_tables.hpp"

using namespace sureleap;
namespace device = sureleap::cuda;  // CUDA has a namespace cuda of its own
using support::dice;

namespace {

template <std::size_t Lag>
void mirror_rounds(std::uint64_t seed, std::size_t slots, std::size_t gamma, std::size_t rounds) {
    INFO("seed " << seed << ", lag " << Lag << ", slots " << slots << ", gamma " << gamma);
    dice roll(seed);
    double const prior = roll.chance(0.2) ? static_cast<double>(roll.below(2)) : roll.real();
    fixed_probability fixed_prior = 0;
    REQUIRE(quantise(prior, fixed_prior));
    analytic_capacity const curve{100.0, roll.between(1.0, 20.0)};

    device::device_limits const limits{static_cast<std::uint32_t>(slots), static_cast<std::uint32_t>(gamma), 10, 0,
                                       false};
    support::device_rounds device = support::round_of(limits);
    device::device_round const& round = device.columns;
    support::carved<device::history_memory> const past(
        [&](device::workspace& ws) { return device::carve_history(ws, limits, Lag, fixed_prior); });
    support::carved<device::survival_columns> const table(
        [&](device::workspace& ws) { return device::carve_survivals(ws, limits); });
    support::carved<device::capacity_table> const capacity(
        [&](device::workspace& ws) { return device::carve_capacity(ws, limits); });
    device_array<std::uint32_t> budget(1);
    std::vector<double> rates(capacity.columns.size);
    device::tabulate(curve, rates);
    support::upload(capacity.columns.steps_per_second, rates);
    require_cuda(device::forget_all(past.columns, nullptr));

    survival_history host(slots, gamma, Lag, prior);
    workspace sizer;
    static_cast<void>(planning_memory::carve(sizer, slots, gamma));
    std::vector<std::byte> buffer(sizer.used());
    workspace ws{buffer};
    planning_memory memory = planning_memory::carve(ws, slots, gamma);

    for (std::size_t i = 0; i < rounds; ++i) {
        INFO("round " << i);
        std::vector<std::uint32_t> present;
        for (std::uint32_t slot = 0; slot < slots; ++slot) {
            if (roll.chance(0.1)) {
                host.join(slot);
                require_cuda(device::join(past.columns, slot, nullptr));
            }
            if (roll.chance(0.8)) present.push_back(slot);
        }
        if (roll.chance(0.3)) std::reverse(present.begin(), present.end());
        std::size_t const requests = present.size();

        std::vector<request_settings> settings(requests);
        std::vector<request_view> views(requests);
        std::vector<std::uint32_t> remaining(requests), draft_limits(requests);
        std::vector<fixed_probability> weights(requests);
        support::owned_table live(requests, gamma);
        for (std::size_t r = 0; r < requests; ++r) {
            remaining[r] = static_cast<std::uint32_t>(roll.chance(0.3) ? 1 + roll.below(gamma + 1) : 1000);
            draft_limits[r] = static_cast<std::uint32_t>(roll.chance(0.3) ? roll.below(gamma + 2) : 0xffffffffu);
            weights[r] = roll.chance(0.5) ? certain : static_cast<fixed_probability>(1 + roll.below(certain));
            views[r].slot = present[r];
            views[r].remaining = remaining[r];
            views[r].settings = &settings[r];
            views[r].draft_limit = draft_limits[r];
            views[r].weight = weights[r];
            std::size_t const cap = views[r].draft_cap(gamma);
            live.sizes[r] = static_cast<std::uint32_t>(roll.chance(0.3) ? roll.below(cap + 1) : cap);
            for (std::size_t k = 0; k < gamma; ++k) {
                live.confidence[r * gamma + k] = static_cast<fixed_probability>(roll.below(certain + 1));
            }
        }
        support::upload(round.requests.count, static_cast<std::uint32_t>(requests));
        support::upload(round.requests.slots, present);
        support::upload(round.requests.remaining, remaining);
        support::upload(round.requests.draft_limits, draft_limits);
        support::upload(round.requests.weights, weights);

        auto const expected = host.lagged<Lag>(views, memory);
        support::in_graph(
            [&](cudaStream_t stream) { return device::lagged_table(round, past.columns, table.columns, stream); });
        auto const sizes = support::download(table.columns.sizes, requests);
        auto const survival = support::download(table.columns.survival, requests * gamma);
        for (std::size_t r = 0; r < requests; ++r) {
            REQUIRE(sizes[r] == expected.survivals().sizes[r]);
            for (std::size_t k = 0; k < sizes[r]; ++k) {
                REQUIRE(survival[r * gamma + k] == expected.survivals().at(r, k).survival);
            }
        }
        support::in_graph([&](cudaStream_t stream) {
            return device::best_budget(round, table.columns, capacity.columns, budget.data(), stream);
        });
        CHECK(budget.download()[0] == lagged_top_k<Lag>(curve, prior).budget(expected));

        support::upload(round.drafts.sizes, live.sizes);
        support::upload(round.drafts.confidence, live.confidence);
        support::in_graph([&](cudaStream_t stream) { return device::remember(round, past.columns, stream); });
        host.push(views, live.view());
    }
}

}  // namespace

TEST_CASE("History: random rounds") {
    for (std::uint64_t seed = 1; seed <= 30; ++seed) {
        emulator::seed(seed);
        std::size_t const slots = 1 + (seed * 7) % 11;
        std::size_t const gamma = seed % 7 == 0 ? 31 : 1 + seed % 9;
        switch (seed % 3) {
            case 0: mirror_rounds<1>(seed, slots, gamma, 12); break;
            case 1: mirror_rounds<2>(seed, slots, gamma, 12); break;
            default: mirror_rounds<3>(seed, slots, gamma, 15); break;
        }
    }
}

TEST_CASE("History: many blocks of threads agree on the number of the round") {
    emulator::seed(5);
    mirror_rounds<2>(77, 700, 7, 5);
}

TEST_CASE("History: what does not fit is refused") {
    device::device_limits const limits{4, 3, 10, 0, false};
    support::device_rounds const device = support::round_of(limits);
    auto const refused = [](cudaError_t error) { return error == cudaErrorInvalidValue; };
    auto const history_of = [](device::device_limits const& made, std::uint32_t lag) {
        return support::carved<device::history_memory>(
            [&](device::workspace& ws) { return device::carve_history(ws, made, lag, certain); });
    };
    support::carved<device::survival_columns> const table(
        [&](device::workspace& ws) { return device::carve_survivals(ws, limits); });
    auto const good = history_of(limits, 2);
    CHECK(refused(device::lagged_table({}, good.columns, table.columns, nullptr)));
    CHECK(refused(device::lagged_table(device.columns, {}, table.columns, nullptr)));
    CHECK(refused(device::lagged_table(device.columns, good.columns, {}, nullptr)));
    CHECK(refused(device::remember({}, good.columns, nullptr)));
    CHECK(refused(device::join(good.columns, 4, nullptr)));
    CHECK(refused(device::forget_all({}, nullptr)));
    CHECK(refused(device::remember(device.columns, history_of({3, 3, 10, 0, false}, 2).columns, nullptr)));
    CHECK(refused(device::remember(device.columns, history_of({4, 2, 10, 0, false}, 2).columns, nullptr)));
    CHECK(refused(device::remember(device.columns, history_of(limits, 0).columns, nullptr)));
    device::history_memory sure = good.columns;
    sure.prior = certain + 1;
    CHECK(refused(device::remember(device.columns, sure, nullptr)));
}

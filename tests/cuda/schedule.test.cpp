// SPDX-License-Identifier: MIT
//
// Lengths and budgets of the device are the host's, for every table and curve.

#include <sureleap/cuda/schedule/budget.cuh>
#include <sureleap/cuda/schedule/schedules.cuh>

#include <sureleap/cost/capacity.hpp>
#include <sureleap/schedule/budget.hpp>
#include <sureleap/schedule/greedy.hpp>
#include <sureleap/schedule/simple.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
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

/// A table with weights, on both sides.
struct table_case {
    support::owned_table table;
    std::vector<fixed_probability> weights;

    table_case(std::size_t requests, std::size_t gamma) : table(requests, gamma), weights(requests, certain) {}

    [[nodiscard]] survival_table view() const {
        survival_table view = table.view();
        for (fixed_probability const w : weights) view.weight += w;
        return view;
    }
    /// Row r: c(k) of every position in use.
    template <class Confidence>
    void fill(std::size_t r, std::size_t size, Confidence const& c) {
        table.sizes[r] = static_cast<std::uint32_t>(size);
        fixed_probability before = weights[r];
        for (std::size_t k = 0; k < table.block_size; ++k) {
            std::size_t const i = r * table.block_size + k;
            if (k >= size) {  // what a round before left there
                table.confidence[i] = table.survival[i] = 0xdeadbeef;
                continue;
            }
            table.confidence[i] = c(k);
            table.survival[i] = before = extend_survival(before, table.confidence[i]);
        }
    }
};

enum class kind { smooth, few_values, alike, sure, hopeless, mixed };
constexpr kind kinds[] = {kind::smooth, kind::few_values, kind::alike, kind::sure, kind::hopeless, kind::mixed};

table_case random_case(dice& roll, std::size_t requests, std::size_t gamma, kind what, bool weighted, bool ragged) {
    table_case made(requests, gamma);
    std::size_t const levels = 1 + roll.below(4);
    auto const alike = static_cast<fixed_probability>(roll.below(certain + 1));
    for (std::size_t r = 0; r < requests; ++r) {
        if (weighted) {
            made.weights[r] = roll.chance(0.3)
                                  ? certain
                                  : static_cast<fixed_probability>(1 + roll.below(roll.chance(0.5) ? certain : 1000));
        }
        kind const here = what == kind::mixed ? kinds[roll.below(5)] : what;
        double const level = roll.between(0.3, 1.0);
        made.fill(r, ragged ? roll.below(gamma + 1) : gamma, [&](std::size_t) -> fixed_probability {
            switch (here) {
                case kind::smooth: return static_cast<fixed_probability>(roll.between(level * 0.7, level) * 0x1p24);
                case kind::few_values: return static_cast<fixed_probability>((roll.below(levels + 1) << 24) / levels);
                case kind::alike: return alike;
                case kind::sure: return certain;
                case kind::hopeless: return roll.chance(0.1) ? 1u : 0u;
                case kind::mixed: break;
            }
            return 0;
        });
    }
    return made;
}

/// The device's side: one round, uploaded.
class device_schedules {
public:
    /// `room`: the round could be this much larger.
    explicit device_schedules(table_case const& made, std::size_t room = 0)
        : requests_(made.weights.size()),
          limits_{static_cast<std::uint32_t>(requests_ + room), static_cast<std::uint32_t>(made.table.block_size), 100,
                  0, false},
          round_(support::round_of(limits_)),
          past_([&](device::workspace& ws) { return device::carve_survivals(ws, limits_); }),
          capacity_([&](device::workspace& ws) { return device::carve_capacity(ws, limits_); }),
          budget_(1) {
        device::device_round const& round = round_.columns;
        support::upload(round.requests.count, static_cast<std::uint32_t>(requests_));
        support::upload(round.requests.weights, made.weights);
        support::upload(round.drafts.sizes, made.table.sizes);
        support::upload(round.drafts.confidence, made.table.confidence);
        support::upload(round.drafts.survival, made.table.survival);
        support::upload(past_.columns.sizes, made.table.sizes);
        support::upload(past_.columns.survival, made.table.survival);
    }

    template <class Curve>
    void use(Curve const& curve) {
        std::vector<double> rates(capacity_.columns.size);
        device::tabulate(curve, rates);
        support::upload(capacity_.columns.steps_per_second, rates);
    }
    [[nodiscard]] std::vector<std::uint32_t> greedy() {
        support::in_graph([&](cudaStream_t stream) {
            return device::admit(device::greedy_schedule{capacity_.columns}, round_.columns, stream);
        });
        return lengths();
    }
    [[nodiscard]] std::uint32_t best() {
        support::in_graph([&](cudaStream_t stream) {
            return device::best_budget(round_.columns, past_.columns, capacity_.columns, budget_.data(), stream);
        });
        return budget_.download()[0];
    }
    /// With the budget that best() left.
    [[nodiscard]] std::vector<std::uint32_t> planned() {
        support::in_graph([&](cudaStream_t stream) {
            return device::admit(device::top_k_schedule{budget_.data()}, round_.columns, stream);
        });
        return lengths();
    }
    [[nodiscard]] std::vector<std::uint32_t> top_k(std::uint32_t budget) {
        support::in_graph(
            [&](cudaStream_t stream) { return device::admit(device::top_k_schedule{budget}, round_.columns, stream); });
        return lengths();
    }
    [[nodiscard]] std::vector<std::uint32_t> lengths() const {
        auto all = support::download(round_.columns.batch.lengths, limits_.requests);
        CHECK(std::all_of(all.begin() + static_cast<std::ptrdiff_t>(requests_), all.end(),
                          [](std::uint32_t l) { return l == 0; }));
        all.resize(requests_);
        return all;
    }
    [[nodiscard]] device::device_round const& round() const { return round_.columns; }
    [[nodiscard]] device::survival_columns const& past() const { return past_.columns; }
    [[nodiscard]] device::capacity_table const& capacity() const { return capacity_.columns; }

private:
    std::size_t requests_;
    device::device_limits limits_;
    support::device_rounds round_;
    support::carved<device::survival_columns> past_;
    support::carved<device::capacity_table> capacity_;
    device_array<std::uint32_t> budget_;
};

template <class Schedule>
std::vector<std::uint32_t> on_host(Schedule const& schedule, survival_table const& table) {
    support::admission_memory memory(table.requests());
    causal_frontier frontier{table, memory.view()};
    schedule.admit(frontier);
    return memory.lengths;
}

std::vector<std::uint32_t> best_on_host(survival_table const& table, std::size_t budget) {
    support::admission_memory memory(table.requests());
    causal_frontier frontier{table, memory.view()};
    frontier.admit_best(budget);
    return memory.lengths;
}

/// SPS as it is told, with no promise of any shape.
struct told_capacity {
    std::vector<double> rates;
    [[nodiscard]] double steps_per_second(std::size_t b) const noexcept { return rates[std::min(b, rates.size() - 1)]; }
};

template <class Curve>
void check_curve(char const* name, Curve const& curve, table_case const& made, device_schedules& device) {
    INFO(name);
    survival_table const table = made.view();
    device.use(curve);
    CHECK(device.greedy() == on_host(greedy_schedule{curve}, table));
    support::admission_memory memory(table.requests());
    std::size_t const best = best_budget(table, memory.view(), curve);
    CHECK(device.best() == best);
    CHECK(device.planned() == best_on_host(table, best));
}

/// One of many curves, by number; the batch may reach `most`.
void check_curves(dice& roll, std::size_t which, std::size_t most, table_case const& made, device_schedules& device) {
    auto const points = [&](auto const& seconds) {
        std::vector<capacity_point> made_points;
        for (std::size_t b = 1 + roll.below(std::min<std::size_t>(most, 8)); b <= most + 1;
             b += 1 + roll.below(most / 6 + 2)) {
            made_points.push_back({b, seconds(static_cast<double>(b))});
        }
        return made_points;
    };
    double const scale = static_cast<double>(most);
    switch (which % 7) {
        case 0: return check_curve("analytic", analytic_capacity{1e5, scale * roll.between(0.0, 2.0)}, made, device);
        case 1: {
            double const kink = scale * roll.between(0.1, 0.9);
            capacity_table<> const curve{
                points([&](double b) { return 1e-3 * (1.0 + std::max(b - kink, 0.0) / scale * 3.0); })};
            return check_curve("linear, with a kink", curve, made, device);
        }
        case 2: {
            capacity_table<> const curve{
                points([&](double b) { return 1e-3 * (1.0 + b / scale) * roll.between(0.9, 1.1); })};
            return check_curve("linear, measured badly", curve, made, device);
        }
        case 3: {
            capacity_table<staircase> const curve{points([&](double b) { return 1e-3 * (0.4 + b / scale); })};
            return check_curve("staircase", curve, made, device);
        }
        case 4: {
            told_capacity curve{std::vector<double>(most + 1)};
            for (std::size_t b = 0; b <= most; ++b) curve.rates[b] = 100.0 + static_cast<double>(b);
            return check_curve("rising", curve, made, device);
        }
        case 5: {
            told_capacity curve{std::vector<double>(most + 1)};
            for (double& rate : curve.rates) rate = roll.between(0.5, 1.5);
            return check_curve("wild", curve, made, device);
        }
        default: return check_curve("flat", told_capacity{std::vector<double>(most + 1, 100.0)}, made, device);
    }
}

void check_table(dice& roll, table_case const& made, std::size_t curves, std::size_t room) {
    device_schedules device(made, room);
    survival_table const table = made.view();
    std::size_t const requests = table.requests();
    std::size_t candidates = 0;
    for (std::uint32_t const size : made.table.sizes) candidates += size;
    std::size_t const which = roll.below(7);
    for (std::size_t i = 0; i < curves; ++i) {
        check_curves(roll, which + i, requests * (1 + table.block_size), made, device);
    }
    std::size_t const budgets[] = {0, 1, roll.below(candidates + 1), candidates, candidates + 7, 0xffffffffu};
    for (std::size_t const budget : budgets) {
        INFO("budget " << budget << " of " << candidates);
        CHECK(device.top_k(static_cast<std::uint32_t>(budget)) == best_on_host(table, budget));
    }
}

}  // namespace

TEST_CASE("Schedules: small tables") {
    for (std::uint64_t seed = 1; seed <= rounds_of(180); ++seed) {
        dice roll(seed);
        emulator::seed(seed);
        std::size_t const sizes[] = {1, 2, 3, 31, 40};
        std::size_t const requests = sizes[roll.below(5)];
        std::size_t const gamma = roll.chance(0.2) ? 31 : 1 + roll.below(8);
        kind const what = kinds[seed % 6];
        INFO("seed " << seed << ", R " << requests << ", gamma " << gamma << ", kind " << static_cast<int>(what));
        bool const weighted = roll.chance(0.5);
        bool const ragged = roll.chance(0.7);
        table_case const made = random_case(roll, requests, gamma, what, weighted, ragged);
        check_table(roll, made, 1, roll.below(3) * 100);
    }
}

TEST_CASE("Schedules: some hundred requests, sorted as a whole") {
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
        dice roll(seed);
        emulator::seed(seed);
        std::size_t const requests = seed % 2 == 0 ? 256 : 1000;
        std::size_t const gamma = seed % 2 == 0 ? 7 : 8;
        kind const what = kinds[(seed / 2) % 2 == 0 ? 0 : 5];
        INFO("seed " << seed << ", R " << requests);
        check_table(roll, random_case(roll, requests, gamma, what, seed > 3, seed != 2), 1, 0);
    }
}

TEST_CASE("Schedules: as many candidates as can be sorted") {
    std::pair<std::size_t, std::size_t> const shapes[] = {{8192, 1}, {4096, 2}, {1024, 8}, {264, 31}};
    for (std::uint64_t seed = 1; seed <= rounds_of(8); ++seed) {
        dice roll(seed);
        emulator::seed(seed);
        auto const [requests, gamma] = shapes[seed % 4];
        INFO("seed " << seed << ", R " << requests << ", gamma " << gamma);
        check_table(roll, random_case(roll, requests, gamma, kinds[seed % 6], seed % 3 == 0, seed % 2 == 0), 1, 0);
    }
}

TEST_CASE("Schedules: thresholds and a fixed length") {
    for (std::uint64_t seed = 1; seed <= rounds_of(40); ++seed) {
        dice roll(seed);
        INFO("seed " << seed);
        std::size_t const requests = 1 + roll.below(300);
        std::size_t const gamma = 1 + roll.below(31);
        // Thresholds are on probabilities, so weights change nothing: the host is told of none.
        bool const weighted = roll.chance(0.5);
        table_case const made = random_case(roll, requests, gamma, kinds[seed % 6], weighted, true);
        table_case plain = made;
        plain.weights.assign(requests, certain);
        for (std::size_t r = 0; r < requests; ++r) {
            plain.fill(r, made.table.sizes[r], [&](std::size_t k) { return made.table.confidence[r * gamma + k]; });
        }
        device_schedules const device(made, 5);
        double const threshold = roll.chance(0.3) ? static_cast<double>(roll.below(2)) : roll.real();
        fixed_probability fixed = 0;
        REQUIRE(quantise(threshold, fixed));
        support::in_graph([&](cudaStream_t stream) {
            return device::admit(device::threshold_schedule{fixed}, device.round(), stream);
        });
        CHECK(device.lengths() == on_host(threshold_schedule{threshold}, made.view()));
        support::in_graph([&](cudaStream_t stream) {
            return device::admit(device::survival_threshold_schedule{fixed}, device.round(), stream);
        });
        CHECK(device.lengths() == on_host(survival_threshold_schedule{threshold}, made.view()));
        CHECK(device.lengths() == on_host(survival_threshold_schedule{threshold}, plain.view()));
        std::size_t const length = roll.below(33);
        support::in_graph([&](cudaStream_t stream) {
            return device::admit(device::fixed_schedule{static_cast<std::uint32_t>(length)}, device.round(), stream);
        });
        CHECK(device.lengths() == on_host(fixed_schedule{length}, made.view()));
        // Numbers in device memory.
        device_array<std::uint32_t> const numbers{
            std::vector<std::uint32_t>{static_cast<std::uint32_t>(length), fixed}};
        support::in_graph([&](cudaStream_t stream) {
            return device::admit(device::fixed_schedule{numbers.data()}, device.round(), stream);
        });
        CHECK(device.lengths() == on_host(fixed_schedule{length}, made.view()));
        support::in_graph([&](cudaStream_t stream) {
            return device::admit(device::threshold_schedule{numbers.data() + 1}, device.round(), stream);
        });
        CHECK(device.lengths() == on_host(threshold_schedule{threshold}, made.view()));
    }
}

TEST_CASE("Schedules: a round without requests") {
    table_case const made(0, 4);
    device_schedules device(made, 3);
    device.use(analytic_capacity{1.0, 1.0});
    CHECK(device.greedy().empty());
    CHECK(device.best() == 0);
    CHECK(device.planned().empty());
    CHECK(device.top_k(9).empty());
}

TEST_CASE("Schedules: what does not fit is refused") {
    table_case const made(4, 3);
    device_schedules const device(made);
    device_array<std::uint32_t> budget(1);
    device::device_round const& round = device.round();
    auto const refused = [](cudaError_t error) { return error == cudaErrorInvalidValue; };

    device::capacity_table shorter = device.capacity();
    --shorter.size;
    CHECK(refused(device::admit(device::greedy_schedule{shorter}, round, nullptr)));
    CHECK(refused(device::admit(device::greedy_schedule{}, round, nullptr)));
    CHECK(refused(device::admit(device::greedy_schedule{device.capacity()}, {}, nullptr)));
    CHECK(refused(device::admit(device::top_k_schedule{static_cast<std::uint32_t const*>(nullptr)}, round, nullptr)));
    CHECK(refused(device::admit(device::top_k_schedule{budget.data()}, {}, nullptr)));
    CHECK(refused(device::best_budget(round, device.past(), shorter, budget.data(), nullptr)));
    CHECK(refused(device::best_budget(round, device.past(), device.capacity(), nullptr, nullptr)));
    CHECK(refused(device::best_budget(round, {}, device.capacity(), budget.data(), nullptr)));
    CHECK(refused(device::admit(device::fixed_schedule{2}, {}, nullptr)));
    CHECK(refused(device::admit(device::threshold_schedule{certain + 1}, round, nullptr)));
    CHECK(refused(device::admit(device::fixed_schedule{static_cast<std::uint32_t const*>(nullptr)}, round, nullptr)));
    CHECK(refused(device::admit(device::survival_threshold_schedule{certain + 1}, round, nullptr)));

    // More candidates than are sorted, though this round has few of them.
    table_case few(4, 31);
    for (std::size_t r = 0; r < 4; ++r) few.fill(r, 31, [](std::size_t) { return certain; });
    device_schedules const large(few, 261);
    CHECK_FALSE(large.round().limits.sortable());
    CHECK(large.capacity().size == 0);
    device_array<double> rates(265 * 32 + 1);
    device::capacity_table const by_hand{rates.data(), static_cast<std::uint32_t>(rates.size())};
    CHECK(refused(device::admit(device::greedy_schedule{by_hand}, large.round(), nullptr)));
    CHECK(refused(device::admit(device::top_k_schedule{3}, large.round(), nullptr)));
    CHECK(refused(device::best_budget(large.round(), large.past(), by_hand, budget.data(), nullptr)));
    support::in_graph(
        [&](cudaStream_t stream) { return device::admit(device::fixed_schedule{2}, large.round(), stream); });
    CHECK(large.lengths() == std::vector<std::uint32_t>(4, 2));

    // This round's own table decides about x_k by what depends on x_k.
    device::survival_columns const live = device::live_table(round);
    CHECK(refused(device::best_budget(round, live, device.capacity(), budget.data(), nullptr)));
    device::survival_columns later_rows = device.past();
    later_rows.survival = live.survival + 4;  // 16 bytes: aligned as a column is
    CHECK(refused(device::best_budget(round, later_rows, device.capacity(), budget.data(), nullptr)));
}

// SPDX-License-Identifier: MIT
//
// Cost models: what a question costs, and what a schedule takes that asks them. Everything on one engine: steps of
// (1 + B/2R) ms at R requests, gamma 8, of which schedules verify part.
//
//     cost/step_seconds   one question, at random loads of a table of 4,096
//     cost/observe        refined_cost learns from one round
//     cost/fit            prices from a profile's samples
//     cost/greedy         Algorithm 1 at R requests under a model; us a call, admitted: the share of candidates
//     cost/best_budget    the global maximum, likewise
//     vs_table            the time under a capacity_table of the same steps over that
//
//     additive: prices. padded: graphs, two sizes an octave. cells: 140 measured steps about the prices, 5 % apart.
//     profiled: cells, padded. refined: prices, and 1,000 rounds seen of a machine that is 30 % slower, 10 % noise.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include <sureleap/fit/cost_fit.hpp>
#include <sureleap/fit/profile.hpp>
#include <sureleap/serving.hpp>
#include <sureleap/sureleap.hpp>

#include "measure.hpp"

namespace {

using namespace sureleap;

constexpr std::size_t gamma = 8;

/// Random loads of up to `most` requests.
std::vector<step_load> some_loads(std::size_t most, std::size_t count) {
    std::mt19937_64 bits(3);
    std::vector<step_load> loads;
    for (std::size_t i = 0; i < count; ++i) {
        std::size_t const r = 1 + bits() % most;
        loads.push_back({r, r + bits() % (r * gamma + 1), r, r * gamma, 1000 * r});
    }
    return loads;
}

// ---- models ------------------------------------------------------------------------------------------------------

additive_cost prices_at(std::size_t requests) {
    return additive_cost({.fixed = 0.9e-3,
                          .batch_token = 0.5e-3 / static_cast<double>(requests),
                          .draft_token = 0.1e-3 / static_cast<double>(requests * gamma)});
}

/// Two sizes an octave, from 8 to all there can be.
std::vector<std::size_t> sizes_at(std::size_t requests) {
    std::vector<std::size_t> sizes;
    for (std::size_t s = 8; s < 2 * requests * (gamma + 1); s *= 2) {
        sizes.push_back(s);
        sizes.push_back(s + s / 2);
    }
    return sizes;
}

cell_cost<additive_cost> cells_at(std::size_t requests) {
    std::mt19937_64 bits(5);
    std::vector<cost_sample> cells;
    for (std::size_t i = 1; i <= 14; ++i) {
        std::size_t const r = std::max<std::size_t>(1, requests * i / 12);
        for (std::size_t j = 0; j < 10; ++j) {
            step_load const load{.requests = r, .batch_tokens = r + r * gamma * j / 9};
            double const off = 1.0 + 0.05 * (static_cast<double>(bits() % 1000) / 1000.0 - 0.5);
            cells.push_back({load, prices_at(requests).step_seconds(load) * off});
        }
    }
    return cell_cost{prices_at(requests), std::move(cells)};
}

refined_cost<additive_cost> refined_at(std::size_t requests) {
    std::mt19937_64 bits(7);
    std::normal_distribution<double> normal;
    refined_cost cost{prices_at(requests)};
    for (step_load const& load : some_loads(2 * requests, 1000)) {
        cost.observe(load, cost.model().step_seconds(load) * 1.3 * (1.0 + 0.1 * normal(bits)));
    }
    return cost;
}

capacity_table<> table_at(std::size_t requests) {
    std::vector<capacity_point> points;
    for (std::size_t const s : sizes_at(requests)) {
        points.push_back({s, 1e-3 * (1.0 + static_cast<double>(s) / static_cast<double>(2 * requests))});
    }
    return capacity_table<>(std::move(points));
}

// ---- tables ------------------------------------------------------------------------------------------------------

/// Requests differ in difficulty, and confidences fluctuate about it.
struct table {
    std::vector<std::uint32_t> sizes;
    std::vector<fixed_probability> confidence, survival;
    std::vector<std::byte> buffer;
    frontier_memory memory{};

    explicit table(std::size_t requests)
        : sizes(requests, gamma), confidence(requests * gamma), survival(requests * gamma) {
        std::mt19937_64 bits(1);
        std::normal_distribution<double> normal;
        for (std::size_t r = 0; r < requests; ++r) {
            double const ease = 1.3 + normal(bits);
            fixed_probability before = certain;
            for (std::size_t i = r * gamma; i < (r + 1) * gamma; ++i) {
                static_cast<void>(quantise(1.0 / (1.0 + std::exp(-ease - 0.8 * normal(bits))), confidence[i]));
                survival[i] = before = extend_survival(before, confidence[i]);
            }
        }
        workspace sizer;
        static_cast<void>(frontier_memory::carve(sizer, requests));
        buffer.resize(sizer.used());
        workspace ws{buffer};
        memory = frontier_memory::carve(ws, requests);
    }
    [[nodiscard]] survival_table view() const {
        std::size_t const r = sizes.size();
        return {gamma, sizes, confidence, survival, {r, r, r, r * gamma, 1000 * r}};
    }
};

table& table_of(std::size_t requests) {
    static std::map<std::size_t, std::unique_ptr<table>> made;
    auto& t = made[requests];
    if (t == nullptr) t = std::make_unique<table>(requests);
    return *t;
}

// ---- measuring ---------------------------------------------------------------------------------------------------

/// Calls f(name, model) with every model of an engine for so many requests.
template <class F>
void with_models(std::size_t requests, F&& f) {
    f("additive", prices_at(requests));
    f("padded", padded_cost{prices_at(requests), sizes_at(requests)});
    f("cells", cells_at(requests));
    f("profiled", padded_cost{cells_at(requests), sizes_at(requests)});
    f("refined", refined_at(requests));
    f("table", of_batch(table_at(requests), {.token = 0.1e-3 / static_cast<double>(requests * gamma)}));
}

template <class Cost>
void ask(benchmark::State& state, Cost const& cost) {
    auto const loads = some_loads(512, 4096);
    std::size_t i = 0;
    for (auto _ : state) benchmark::DoNotOptimize(cost.step_seconds(loads[i++ % 4096]));
}

/// `admit` of (table): how many candidates.
template <class Admit, class Beside>
void schedule(benchmark::State& state, std::size_t requests, Admit&& admit, Beside&& beside) {
    table& data = table_of(requests);
    std::vector<double> times, others;
    std::size_t admitted = 0;
    for (auto _ : state) {
        times.push_back(measure::seconds_of([&] { admitted = admit(data); }));
        others.push_back(measure::seconds_of([&] { benchmark::DoNotOptimize(beside(data)); }));
        state.SetIterationTime(times.back());
    }
    double const mine = measure::median(times);
    state.counters["us"] = mine * 1e6;
    state.counters["vs_table"] = measure::median(others) / mine;
    state.counters["admitted"] = static_cast<double>(admitted) / static_cast<double>(requests * gamma);
}

template <class Cost>
std::size_t greedy(table& data, Cost const& cost) {
    causal_frontier frontier{data.view(), data.memory};
    greedy_schedule{cost_ref{cost}}.admit(frontier);
    return frontier.admitted();
}
template <class Cost>
std::size_t budget(table& data, Cost const& cost) {
    return best_budget(data.view(), data.memory, cost);
}

int add() {
    with_models(256, [](std::string const& name, auto cost) {
        benchmark::RegisterBenchmark(("cost/step_seconds/" + name).c_str(),
                                     [cost](benchmark::State& state) { ask(state, cost); });
    });
    benchmark::RegisterBenchmark("cost/observe", [](benchmark::State& state) {
        auto cost = refined_at(256);
        auto const loads = some_loads(512, 4096);
        std::size_t i = 0;
        for (auto _ : state) cost.observe(loads[i++ % 4096], 1e-3);
        benchmark::DoNotOptimize(cost.error().size);
    });
    benchmark::RegisterBenchmark("cost/fit", [](benchmark::State& state) {
        std::vector<cost_sample> samples;
        for (step_load const& load : profile_grid({.max_requests = 256, .block_size = 7, .contexts = {128, 4096}})) {
            samples.push_back({load, prices_at(256).step_seconds(load)});
        }
        for (auto _ : state) benchmark::DoNotOptimize(fit_additive_cost(samples).spread);
        state.counters["samples"] = static_cast<double>(samples.size());
    })->Unit(benchmark::kMillisecond);
    for (std::size_t const r : {std::size_t{64}, std::size_t{4096}, std::size_t{1048576}}) {
        with_models(r, [r](std::string const& name, auto cost) {
            std::string const end = "/R:" + std::to_string(r) + "/" + name;
            auto const timed = [&](std::string const& what, auto run) {
                benchmark::RegisterBenchmark(("cost/" + what + end).c_str(), run)
                    ->UseManualTime()
                    ->Unit(benchmark::kMicrosecond);
            };
            timed("greedy", [=](benchmark::State& state) {
                schedule(
                    state, r, [&](table& data) { return greedy(data, cost); },
                    [plain = of_batch(table_at(r))](table& data) { return greedy(data, plain); });
            });
            timed("best_budget", [=](benchmark::State& state) {
                schedule(
                    state, r, [&](table& data) { return budget(data, cost); },
                    [plain = table_at(r)](table& data) { return budget(data, plain); });
            });
        });
    }
    return 0;
}
[[maybe_unused]] int const added = add();

}  // namespace

// SPDX-License-Identifier: MIT
//
// Fits of calibrations and what measures them, on rounds of which nothing is known in advance:
//
//     calibrate/sts      fit_temperatures, by ECE, everything included: data checked, held-out figures before and after
//     calibrate/loss     the same by log loss
//     calibrate/platt    fit_platt
//     calibrate/metrics  calibration_recorder over all rounds: ECE, AUROC, Brier score
//
//     ms              median of a fit
//     vs_scalar       a user's time over it (rivals.hpp): the whole grid in plain loops, no held-out figures
//     vs_exhaustive   likewise that of the whole grid with the library's vector passes
//     vs_reference    likewise that of the exhaustive search or of the same fit with the scalar passes
//
// Rounds: the truth's logits are N(m, 1.5) with an m of its own at every position, around 1.5; labels are drawn from the
// truth. What the head says depends on `data`:
//     0  the truth's logits times 1.6 to 2.2 by position, with noise N(0, 0.3): a head that is too sure
//     1  the truth itself: the bottom of ECE is flat, and chance decides where it is lowest
//     2  the truth times 3: far from calibrated, far candidates are easy to tell
//     3  the truth with m = 0: means of sigmoids are 1/2 at every temperature, so that the bound bounds nothing
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include <benchmark/benchmark.h>

#include <sureleap/sureleap.hpp>

#include "measure.hpp"
#include "rivals.hpp"

namespace {

using namespace sureleap;

struct recorded_rounds {
    std::size_t n;
    std::size_t gamma;
    std::vector<double> logits;
    std::vector<std::uint8_t> labels;
    std::vector<std::uint32_t> observed;

    recorded_rounds(std::size_t rounds, std::size_t positions, int kind)
        : n(rounds), gamma(positions), observed(rounds, static_cast<std::uint32_t>(positions)) {
        std::mt19937_64 bits(static_cast<std::uint64_t>(kind) + 1);
        std::normal_distribution<double> normal;
        std::uniform_real_distribution<double> uniform;
        for (std::size_t i = 0; i < n; ++i) {
            bool alive = true;
            for (std::size_t k = 0; k < gamma; ++k) {
                auto const turn = static_cast<double>((k * 3) % 7) / 6.0;  // 0 to 1, in no order
                double const truth = (kind == 3 ? 0.0 : 1.3 + 0.4 * turn) + 1.5 * normal(bits);
                alive = alive && uniform(bits) * (1.0 + std::exp(-truth)) < 1.0;
                labels.push_back(alive ? 1 : 0);
                double const noise = 0.3 * normal(bits);
                logits.push_back(kind == 0 ? truth * (1.6 + 0.6 * turn) + noise : kind == 2 ? 3.0 * truth : truth);
            }
        }
    }
    [[nodiscard]] calibration_data view() const { return {gamma, logits, labels, observed}; }
    [[nodiscard]] rivals::rounds plain() const { return {logits.data(), labels.data(), n, gamma}; }
};

using measure::median;
using measure::rival;
using measure::seconds_of;

template <class F>
double measure(benchmark::State& state, F const& f) {
    std::vector<double> times;
    for (auto _ : state) {
        times.push_back(seconds_of(f));
        state.SetIterationTime(times.back());
    }
    double const middle = median(times);
    state.counters["ms"] = middle * 1e3;
    return middle;
}

temperature_settings settings_of(benchmark::State const& state, temperature_objective objective) {
    return {.temperatures = static_cast<std::size_t>(state.range(2)), .objective = objective};
}
recorded_rounds rounds_of(benchmark::State const& state) {
    return {static_cast<std::size_t>(state.range(0)), static_cast<std::size_t>(state.range(1)),
            static_cast<int>(state.range(3))};
}

void sts(benchmark::State& state) {
    recorded_rounds const rounds = rounds_of(state);
    auto const settings = settings_of(state, temperature_objective::calibration_error);
    double const ours = measure(state, [&] { benchmark::DoNotOptimize(fit_temperatures(rounds.view(), settings)); });
    auto const candidates = detail::temperature_candidates(settings);
    state.counters["vs_exhaustive"] =
        rival(3,
              [&] {
                  auto const fit = detail::fit_sequentially(rounds.view(), settings.bins, native_sample_kernels(),
                                                            [&](detail::scaled_samples& samples) {
                                                                double least = 2.0;
                                                                logit_scaling best;
                                                                for (double const t : candidates) {
                                                                    double const error = samples.ece({t}).value;
                                                                    if (error < least - temperature_tie)
                                                                        least = error, best = {t};
                                                                }
                                                                return best;
                                                            });
                  benchmark::DoNotOptimize(fit);
              }) /
        ours;
    std::vector<double> prefix(rounds.n);
    std::vector<double> chosen(rounds.gamma);
    state.counters["vs_scalar"] =
        rival(1,
              [&] {
                  rivals::scalar_temperatures(rounds.plain(), candidates.data(), candidates.size(), prefix.data(),
                                              chosen.data());
                  benchmark::DoNotOptimize(chosen.data());
              }) /
        ours;
}

void loss(benchmark::State& state) {
    recorded_rounds const rounds = rounds_of(state);
    auto const settings = settings_of(state, temperature_objective::log_loss);
    double const ours = measure(state, [&] { benchmark::DoNotOptimize(fit_temperatures(rounds.view(), settings)); });
    state.counters["vs_reference"] =
        rival(1, [&] { benchmark::DoNotOptimize(fit_temperatures_exhaustively(rounds.view(), settings)); }) / ours;
}

void platt(benchmark::State& state) {
    recorded_rounds const rounds = rounds_of(state);
    double const ours = measure(state, [&] { benchmark::DoNotOptimize(fit_platt(rounds.view())); });
    state.counters["vs_reference"] =
        rival(3, [&] { benchmark::DoNotOptimize(fit_platt(rounds.view(), {}, scalar_sample_kernels)); }) / ours;
}

void metrics(benchmark::State& state) {
    recorded_rounds rounds = rounds_of(state);
    for (double& c : rounds.logits) c = 1.0 / (1.0 + std::exp(-c));  // confidences from here on
    calibration_recorder recorder(rounds.gamma);
    double const ours = measure(state, [&] {
        recorder.clear();
        for (std::size_t i = 0; i < rounds.n; ++i) {
            auto const row = std::span(rounds.logits).subspan(i * rounds.gamma, rounds.gamma);
            auto const labels = std::span(rounds.labels).subspan(i * rounds.gamma, rounds.gamma);
            benchmark::DoNotOptimize(recorder.observe(row, labels, rounds.gamma));
        }
        benchmark::DoNotOptimize(recorder.mean());
    });
    std::vector<double> memory(rounds.gamma * 2061);
    state.counters["vs_scalar"] =
        rival(9, [&] { benchmark::DoNotOptimize(rivals::scalar_metrics(rounds.plain(), memory.data())); }) / ours;
    state.counters["ns_a_label"] = ours * 1e9 / static_cast<double>(rounds.n * rounds.gamma);
}

void sizes(benchmark::internal::Benchmark* b) {
    b->ArgNames({"n", "gamma", "temperatures", "data"})->UseManualTime()->Unit(benchmark::kMillisecond);
}

BENCHMARK(sts)
    ->Name("calibrate/sts")
    ->Apply(sizes)
    ->Args({100000, 7, 100, 0})
    ->Args({100000, 7, 100, 1})
    ->Args({100000, 7, 100, 2})
    ->Args({100000, 7, 100, 3})
    ->Args({1000, 7, 100, 0})
    ->Args({10000, 7, 100, 0})
    ->Args({400000, 7, 100, 0})
    ->Args({100000, 7, 400, 0})
    ->Args({100000, 15, 100, 0});
BENCHMARK(loss)->Name("calibrate/loss")->Apply(sizes)->Args({100000, 7, 100, 0});
BENCHMARK(platt)->Name("calibrate/platt")->Apply(sizes)->Args({100000, 7, 0, 0})->Args({100000, 7, 0, 1});
BENCHMARK(metrics)->Name("calibrate/metrics")->Apply(sizes)->Args({100000, 7, 0, 0})->Args({100000, 7, 0, 1});

}  // namespace

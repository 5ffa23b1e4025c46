// SPDX-License-Identifier: MIT
//
// Scheduling and flattening, from survivals to a batch, on tables of bench/schedule.cpp's kind: requests differ in
// difficulty, confidences fluctuate about it.
//
//     schedule/greedy_and_flatten   Algorithm 1 on a smooth curve where about a third is admitted, then the batch
//     schedule/top_k_and_flatten    a budget of a third of all candidates
//     schedule/best_budget          the global maximum, of a staircase of 64 sizes
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <sureleap/cost/capacity.hpp>
#include <sureleap/cuda/schedule/schedules.cuh>
#include <sureleap/cuda/verify/flatten.cuh>
#include <sureleap/schedule/frontier.hpp>
#include <sureleap/schedule/greedy.hpp>
#include <sureleap/schedule/survival.hpp>

#include "data.cuh"
#include "measure.cuh"

namespace {

using namespace sureleap;
namespace device = sureleap::cuda;

constexpr unsigned turns = 16;

template <class T>
void upload(T* to, std::vector<T> const& values) {
    MEASURE_CHECK(cudaMemcpy(to, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
}

struct scene {
    std::uint32_t requests;
    std::uint32_t gamma;
    device::device_limits limits;
    std::vector<data::round> rounds;
    std::vector<std::vector<fixed_probability>> survivals;
    measure::device_array<unsigned char> memory;
    device::capacity_table capacity{};
    device::survival_columns table{};
    std::uint32_t* budget = nullptr;

    explicit scene(bench::state const& state)
        : requests(state["R"]), gamma(state["gamma"]), limits{requests, gamma, 151936} {
        for (unsigned turn = 0; turn < turns; ++turn) {
            std::mt19937_64 bits(turn + 1);
            std::normal_distribution<double> normal;
            std::vector<fixed_probability> confidence(std::size_t{requests} * gamma);
            auto& survival = survivals.emplace_back(confidence.size());
            for (std::size_t r = 0; r < requests; ++r) {
                double const ease = 1.3 + normal(bits);
                fixed_probability before = certain;
                for (std::size_t i = r * gamma; i < (r + 1) * gamma; ++i) {
                    static_cast<void>(quantise(1.0 / (1.0 + std::exp(-ease - 0.8 * normal(bits))), confidence[i]));
                    survival[i] = before = extend_survival(before, confidence[i]);
                }
            }
            auto& round = rounds.emplace_back(limits, turn);
            upload(round.columns.drafts.confidence, confidence);
            upload(round.columns.drafts.survival, survival);
        }
        device::workspace sizer;
        carve_all(sizer);
        memory = measure::device_array<unsigned char>(sizer.used());
        device::workspace ws{memory.get(), memory.size()};
        carve_all(ws);
        upload(budget, std::vector<std::uint32_t>{requests * gamma / 3});
        upload(table.sizes, std::vector<std::uint32_t>(requests, gamma));
        upload(table.survival, survivals[0]);
    }
    void carve_all(device::workspace& ws) {
        capacity = carve_capacity(ws, limits);
        table = carve_survivals(ws, limits);
        budget = ws.take<std::uint32_t>(1);
    }
    template <class Curve>
    void use(Curve const& curve) const {
        std::vector<double> steps(capacity.size);
        device::tabulate(curve, steps);
        upload(capacity.steps_per_second, steps);
    }
    /// A step of 1 + x + x^2 / 4 at x times `scale` tokens.
    [[nodiscard]] capacity_table<> smooth(double scale) const {
        std::vector<capacity_point> points;
        for (double b = 1.0; b < 2.0 * requests * (gamma + 1); b *= std::sqrt(2.0)) {
            auto const tokens = static_cast<std::size_t>(std::lround(b));
            if (!points.empty() && points.back().batch_tokens == tokens) continue;
            double const x = static_cast<double>(tokens) / scale;
            points.push_back({tokens, 1e-3 * (1.0 + x + 0.25 * x * x)});
        }
        return capacity_table<>(std::move(points));
    }
    /// The one under which Algorithm 1 admits a third of the first table, found on the host.
    [[nodiscard]] capacity_table<> smooth_at_a_third() const {
        std::vector<std::uint32_t> const sizes(requests, gamma);
        sureleap::workspace sizer;
        static_cast<void>(frontier_memory::carve(sizer, requests));
        std::vector<std::byte> buffer(sizer.used());
        sureleap::workspace ws{buffer};
        auto const walk = frontier_memory::carve(ws, requests);
        double low = 1.0;
        double high = 1e9;
        while (high > low * 1.001) {
            double const middle = std::sqrt(low * high);
            causal_frontier frontier{{gamma, sizes, survivals[0], survivals[0]}, walk};
            greedy_schedule{smooth(middle)}.admit(frontier);
            (3 * frontier.admitted() < survivals[0].size() ? low : high) = middle;
        }
        return smooth(high);
    }
};

void greedy(bench::state& state) {
    scene const s(state);
    s.use(s.smooth_at_a_third());
    measure::stream on;
    measure::report(state, measure::captured(on, turns, [&](unsigned turn) {
                        auto const& round = s.rounds[turn].columns;
                        cudaError_t const error = device::admit(device::greedy_schedule{s.capacity}, round, on);
                        return error == cudaSuccess ? flatten(round, on) : error;
                    }));
    auto const lengths = s.rounds[0].columns.batch.lengths;
    std::vector<std::uint32_t> found(s.requests);
    MEASURE_CHECK(cudaMemcpy(found.data(), lengths, found.size() * sizeof(found[0]), cudaMemcpyDeviceToHost));
    double admitted = 0.0;
    for (std::uint32_t const l : found) admitted += l;
    state.figure("admitted", admitted / (s.requests * s.gamma));
}

void top_k(bench::state& state) {
    scene const s(state);
    measure::stream on;
    measure::report(state, measure::captured(on, turns, [&](unsigned turn) {
                        auto const& round = s.rounds[turn].columns;
                        cudaError_t const error = device::admit(device::top_k_schedule{s.budget}, round, on);
                        return error == cudaSuccess ? flatten(round, on) : error;
                    }));
}

void budget(bench::state& state) {
    scene const s(state);
    std::vector<capacity_point> points;
    std::size_t const most = s.requests * (s.gamma + 1);
    std::size_t const width = (most + 63) / 64;
    for (std::size_t b = width; b < most + width; b += width) {
        points.push_back({b, 1e-3 * (1.0 + static_cast<double>(b) / (2.0 * s.requests))});
    }
    s.use(capacity_table<staircase>(std::move(points)));
    measure::stream on;
    measure::report(state, measure::captured(on, turns, [&](unsigned turn) {
                        return best_budget(s.rounds[turn].columns, s.table, s.capacity, s.budget, on);
                    }));
}

std::vector<std::string> const names{"R", "gamma"};
std::vector<bench::numbers> const shapes{{1, 7}, {32, 7}, {128, 7}, {256, 7}, {1024, 7}};

[[maybe_unused]] bool const added[] = {bench::add("schedule/greedy_and_flatten", &greedy, names, shapes),
                                       bench::add("schedule/top_k_and_flatten", &top_k, names, shapes),
                                       bench::add("schedule/best_budget", &budget, names, shapes)};

}  // namespace

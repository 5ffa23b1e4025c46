// SPDX-License-Identifier: MIT
//
// Start-up profiling: times steps over a grid of batch sizes, for a capacity curve, or over a grid of loads, for
// fit_additive_cost and cell_cost.
//
//   auto const curve = profile([&](std::size_t tokens) { engine.dry_run(tokens); }, {1, 2, 4, 8, 16, 32, 64});
//   curve.steps_per_second(24);
//
//   auto const grid = profile_grid({.max_requests = 256, .block_size = 7, .contexts = {128, 4096}});
//   auto const profile = profile_steps([&](step_load const& load) { engine.dry_run(load); }, grid);
//   auto const fit = fit_additive_cost(profile.samples());
//
// The result for a load is the median of several runs; their median absolute deviation says how far to trust it.
// Rejected: means and standard deviations, which one preempted run changes. Such runs are common at start-up.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cost/capacity.hpp>
#include <sureleap/cost/sample.hpp>

SURELEAP_BEGIN_NAMESPACE

namespace detail {

/// The mean of the middle two where there is no middle one; sorts.
[[nodiscard]] inline double median_of(std::vector<double>& values) noexcept {
    std::sort(values.begin(), values.end());
    std::size_t const middle = values.size() / 2;
    return values.size() % 2 == 1 ? values[middle] : 0.5 * (values[middle - 1] + values[middle]);
}

}  // namespace detail

// ---- a capacity curve --------------------------------------------------------------------------------------------

/// How often profile() times a batch size.
struct profile_settings {
    std::size_t warm_up = 3;   ///< untimed runs per batch size, before all timed ones
    std::size_t repeats = 11;  ///< timed runs per batch size, >= 1; their median counts
};

/// Times `step(batch_tokens)` over a grid of batch sizes in strictly ascending order and returns the table of medians,
/// in seconds. `step` must return only after its work is done (synchronise a device inside).
///
/// Each repeat goes round the whole grid. So a machine that slows down for a while disturbs one sample of each median,
/// not all samples of one size. Clock is any chrono clock.
template <class Interpolation = linear_step_time, class Clock = std::chrono::steady_clock, class Step>
[[nodiscard]] capacity_table<Interpolation> profile(Step&& step, std::vector<std::size_t> const& batch_sizes,
                                                    profile_settings const& settings = {}) {
    static_assert(std::invocable<Step&, std::size_t>,
                  "profile: the functor must be callable with the number of batch tokens (std::size_t)");
    if (settings.repeats == 0) fail_with("profile: repeats is 0, expected at least 1");
    std::vector<capacity_point> points;
    for (std::size_t const b : batch_sizes) points.push_back({b, 1.0});
    detail::check_capacity_points("profile", points);  // the grid, before time is spent on it

    for (capacity_point const& p : points) {
        for (std::size_t i = 0; i < settings.warm_up; ++i) step(p.batch_tokens);
    }
    std::vector<std::vector<double>> samples(points.size());
    for (std::size_t i = 0; i < settings.repeats; ++i) {
        for (std::size_t j = 0; j < points.size(); ++j) {
            auto const start = Clock::now();
            step(points[j].batch_tokens);
            samples[j].push_back(std::chrono::duration<double>(Clock::now() - start).count());
        }
    }
    for (std::size_t j = 0; j < points.size(); ++j) {
        points[j].seconds = detail::median_of(samples[j]);
        if (!(points[j].seconds > 0.0)) {
            fail_with("profile: the median at index ", j, " (batch tokens ", points[j].batch_tokens,
                      ") is 0 seconds: the functor returns before its work is done, or is too short for "
                      "the clock");
        }
    }
    return capacity_table<Interpolation>(std::move(points));
}

// ---- loads -------------------------------------------------------------------------------------------------------

struct step_profile_settings {
    std::size_t warm_up = 3;    ///< untimed runs of each load, before all timed ones
    std::size_t repeats = 9;    ///< timed runs of each load, >= 1
    double most_spread = 0.05;  ///< relative spread above which a load is measured again
    std::size_t retries = 2;    ///< how often, `repeats` more runs each time
};

/// What was measured of one load.
struct profiled_step {
    step_load load{};
    double seconds = 0.0;  ///< median of all runs
    double spread = 0.0;   ///< 1.4826 x median absolute deviation / median: relative, as a standard deviation
    std::size_t runs = 0;
    bool noisy = false;  ///< the spread stayed above most_spread
};

struct step_profile {
    std::vector<profiled_step> steps;  ///< in the order of the grid

    [[nodiscard]] std::vector<cost_sample> samples() const {
        std::vector<cost_sample> all;
        for (profiled_step const& s : steps) all.push_back({s.load, s.seconds});
        return all;
    }
    /// Loads that could not be measured well: another process on the machine, clocks that change, a cold cache. A model
    /// made from them is as good as they are.
    [[nodiscard]] std::size_t noisy() const noexcept {
        return static_cast<std::size_t>(
            std::count_if(steps.begin(), steps.end(), [](profiled_step const& s) { return s.noisy; }));
    }
};

/// Times `step(load)` for every load of a grid. `step` must return only after its work is done (synchronise a device
/// inside). Clock is any chrono clock. Goes round the whole grid once per repeat, as profile() does and for the same
/// reason. Then measures again what is still too noisy.
///
/// Error if the grid is empty, a load is none (with its index), or a median is 0 seconds.
template <class Clock = std::chrono::steady_clock, class Step>
[[nodiscard]] step_profile profile_steps(Step&& step, std::span<step_load const> grid,
                                         step_profile_settings const& settings = {}) {
    static_assert(std::invocable<Step&, step_load const&>,
                  "profile_steps: the functor must be callable with a step_load, whose step it runs to its end");
    if (settings.repeats == 0) fail_with("profile_steps: repeats is 0, expected at least 1");
    if (!(settings.most_spread >= 0.0)) {
        fail_with("profile_steps: most_spread is ", settings.most_spread, ", expected a number of at least 0");
    }
    if (grid.empty()) fail_with("profile_steps: the grid is empty, expected at least one load");
    for (std::size_t i = 0; i < grid.size(); ++i) {
        detail::check_load("profile_steps: load " + std::to_string(i), grid[i]);
    }

    for (step_load const& load : grid) {
        for (std::size_t i = 0; i < settings.warm_up; ++i) step(load);
    }
    step_profile profile;
    std::vector<std::vector<double>> runs(grid.size());
    for (step_load const& load : grid) profile.steps.push_back({.load = load, .noisy = true});
    std::vector<double> sorted;
    for (std::size_t pass = 0; pass <= settings.retries && profile.noisy() > 0; ++pass) {
        for (std::size_t i = 0; i < settings.repeats; ++i) {
            for (std::size_t j = 0; j < grid.size(); ++j) {
                if (!profile.steps[j].noisy) continue;
                auto const start = Clock::now();
                step(grid[j]);
                runs[j].push_back(std::chrono::duration<double>(Clock::now() - start).count());
            }
        }
        for (std::size_t j = 0; j < grid.size(); ++j) {
            profiled_step& s = profile.steps[j];
            if (!s.noisy) continue;
            sorted = runs[j];
            s.seconds = detail::median_of(sorted);
            s.runs = sorted.size();
            if (!(s.seconds > 0.0)) {
                fail_with("profile_steps: the median of load ", j, " (requests ", s.load.requests, ", batch tokens ",
                          s.load.batch_tokens,
                          ") is 0 seconds: the functor returns before its work is done, or is too short for "
                          "the clock");
            }
            for (double& x : sorted) x = std::abs(x - s.seconds);
            s.spread = 1.4826 * detail::median_of(sorted) / s.seconds;
            s.noisy = s.spread > settings.most_spread;
        }
    }
    return profile;
}

/// Sizes of an engine, for which profile_grid() chooses loads.
struct profile_grid_settings {
    std::size_t max_requests = 1;
    std::size_t block_size = 1;                    ///< gamma
    std::vector<std::uint64_t> contexts = {1024};  ///< committed tokens of each request; two tell the price of one
    std::uint64_t unread = 0;  ///< of a draft that keeps a context of its own: so many tokens of each request are read
    bool replays = false;      ///< of a target that cannot take back drafts for nothing
};

/// Loads that tell all prices apart, if there are two contexts: requests 1, 2, 4 .. max_requests; of each, batches of
/// 0, half and all drafts verified; nobody drafting, half of the requests half the block, everybody all of it. With
/// `unread` and `replays`, steps as well in which everybody's draft reads, and in which all requests are replayed.
[[nodiscard]] inline std::vector<step_load> profile_grid(profile_grid_settings const& settings) {
    if (settings.max_requests == 0) fail_with("profile_grid: max_requests is 0, expected at least 1");
    if (settings.contexts.empty()) fail_with("profile_grid: contexts is empty, expected at least one length");
    // With the anchors: (gamma + 1) tokens a request.
    if (settings.block_size >= detail::most_tokens ||
        settings.max_requests > detail::most_tokens / (settings.block_size + 1)) {
        fail_with("profile_grid: max_requests is ", settings.max_requests, " and block_size ", settings.block_size,
                  ", expected a largest step of ", detail::most_tokens_text, " tokens");
    }
    for (std::size_t i = 0; i < settings.contexts.size(); ++i) {
        if (settings.contexts[i] > (std::uint64_t{1} << 62) / settings.max_requests) {
            fail_with("profile_grid: context ", i, " is ", settings.contexts[i], " tokens for each of ",
                      settings.max_requests, " requests, expected at most 2^62 = 4611686018427387904 tokens in all");
        }
    }
    if (settings.unread > (std::uint64_t{1} << 62) / settings.max_requests) {
        fail_with("profile_grid: unread is ", settings.unread, " tokens for each of ", settings.max_requests,
                  " requests, expected at most 2^62 = 4611686018427387904 tokens in all");
    }
    std::vector<step_load> grid;
    for (std::size_t r = 1;; r = std::min(2 * r, settings.max_requests)) {
        for (std::uint64_t const context : settings.contexts) {
            auto const add = [&](std::size_t verified, std::size_t drafting, std::size_t each, std::uint64_t unread = 0,
                                 std::size_t replays = 0) {
                step_load const load{r,      r + verified, each > 0 ? drafting : 0, drafting * each, r * context,
                                     unread, replays};
                if (std::find(grid.begin(), grid.end(), load) == grid.end()) grid.push_back(load);
            };
            std::size_t const gamma = settings.block_size;
            for (std::size_t const verified : {std::size_t{0}, r * gamma / 2, r * gamma}) {
                add(verified, 0, 0);
                add(verified, (r + 1) / 2, (gamma + 1) / 2);
                add(verified, r, gamma);
                if (gamma > 0) add(verified, r, gamma, r * settings.unread);
            }
            if (settings.replays) add(0, 0, 0, 0, r);
        }
        if (r == settings.max_requests) return grid;
    }
}

SURELEAP_END_NAMESPACE

// SPDX-License-Identifier: MIT
//
// A cost model that is corrected by the steps it priced. Profiles become wrong by other load on the machine, a hotter
// chip, or longer contexts than were measured. This model compares every round's measured seconds with what the model
// said, and keeps correction factors.
//
//   refined_cost cost{model};                                  // the engine owns it,
//   decoder dec{target, drafter, planned_schedule{cost_ref{cost}}, rule, {.clock = now}};
//   while (dec.step()) cost.observe(dec.round());              // a schedule sees one version a round
//
// Factors stand at knots: requests in octaves, batch tokens per request at 1, 2, 3, 4, 6, 8, 12 .. 32. Each knot's
// factor is the decayed mean of what was observed near it. Where little was, it is drawn towards the mean of the whole
// machine, which in turn starts as 1. What the draft reads and what the target replays have a factor each, of the
// machine. A step teaches each factor by its share of the predicted time. Between knots of one R the *difference* from
// the model is a line in B, as in cell_cost: no cliffs where cells would meet.
//
// It must stand wrong measurements. A time that is no positive finite number is ignored. Any other counts as at most 1
// + `clip` times what was predicted. So one observation moves a knot by at most clip / (1 + what was seen there), and
// factors stay within bounds. Errors that persist in one direction count more and more, because then the machine has
// changed. Rejected: medians over windows, which need the windows, per knot; means of logarithms, which differ between
// maths libraries, while two ranks that are told the same seconds must come to the same factors.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/round/record.hpp>

SURELEAP_BEGIN_NAMESPACE

/// How fast and how far measured times correct a cost model; fixed at set-up.
struct refined_cost_settings {
    double memory = 64.0;  ///< observations at a knot, and rounds of the machine, after which one counts 1/e; > 1
    double idle = 4096.0;  ///< rounds after which a knot counts 1/e that nothing was seen of; > 1
    double prior = 8.0;    ///< observations that the machine's factor counts for at a knot, and 1 in the machine's, > 0
    double clip = 0.5;     ///< an observation counts as at most 1 + clip times longer, or shorter, than predicted; > 0
    double most = 8.0;     ///< factors stay in [1/2, most], > 1; like clip at most 1e6, so that every product is finite
};

/// How predictions compare with what was measured, over the memory.
struct prediction_error {
    double bias = 0.0;            ///< mean of (measured - predicted) / predicted; each clipped to [-1, 1]
    double size = 0.0;            ///< mean of its absolute value
    double unrefined = 0.0;       ///< the same of the model alone
    std::uint64_t observed = 0;   ///< rounds learned from
    std::uint64_t clipped = 0;    ///< of these, rounds further off than `clip` allows
    std::uint64_t discarded = 0;  ///< rounds without a positive finite time
};

/// A model and what was learned of it. Models cost_model. step_seconds costs three questions to the model, two more
/// where something is read or replayed, and observe about a microsecond; nothing is allocated. Not thread-safe: observe
/// between rounds. A price of 0 stays 0 whatever is measured: of unread tokens and replays the model has to have one.
template <cost_model Model>
class refined_cost {
public:
    using model_type = Model;

    /// Error if a setting is outside its range.
    explicit refined_cost(Model model, refined_cost_settings const& settings = {})
        : model_(std::move(model)), settings_(settings), idle_keep_(1.0 - 1.0 / settings.idle) {
        auto const check = [](bool good, char const* name, double value, char const* expected) {
            if (!good) fail_with("refined_cost: ", name, " is ", value, ", expected ", expected);
        };
        check(settings.memory > 1.0 && std::isfinite(settings.memory), "memory", settings.memory,
              "a finite number of observations above 1");
        check(settings.idle > 1.0 && std::isfinite(settings.idle), "idle", settings.idle,
              "a finite number of rounds above 1");
        check(settings.prior > 0.0 && std::isfinite(settings.prior), "prior", settings.prior,
              "a positive finite number of observations");
        check(settings.clip > 0.0 && settings.clip <= 1e6, "clip", settings.clip,
              "a positive finite number of at most 1e6");
        check(settings.most > 1.0 && settings.most <= 1e6, "most", settings.most,
              "a finite factor above 1 and at most 1e6");
        forget();
    }

    [[nodiscard]] double step_seconds(step_load const& load) const noexcept {
        arrears const owed = arrears_of(load);
        double const seconds = std::fma(bounded(read_.value), owed.read, round_seconds(owed.without));
        return std::fma(bounded(replayed_.value), owed.replayed, seconds);
    }

    /// Learns from a round. What nobody measured teaches nothing.
    void observe(round_record const& round) noexcept { observe(round.load, round.seconds); }
    /// The same for an engine with its own loop: a step of this load took so long.
    void observe(step_load const& load, double seconds) noexcept {
        if (!(seconds > 0.0 && std::isfinite(seconds)) || load.requests == 0) {
            ++error_.discarded;
            return;
        }
        arrears const owed = arrears_of(load);
        double const of_round = round_seconds(owed.without);
        double const base = at(owed.without, load.batch_tokens);
        double const predicted = step_seconds(load);
        record_error(seconds, predicted, base + owed.read + owed.replayed);
        double const times = believable(seconds / predicted);
        auto const teach = [&](mean& factor, double modelled) {
            double const now = bounded(factor.value);
            if (modelled > 0.0) factor.add(times * now, now * modelled / predicted, settings_.memory);
        };
        teach(read_, owed.read);
        teach(replayed_, owed.replayed);
        learn(place_of(load), times * of_round / base, of_round / predicted);
    }

    /// Back to the model: call when the machine has changed.
    void forget() noexcept {
        machine_ = read_ = replayed_ = {1.0, settings_.prior};
        for (auto& row : seen_) row.fill({});
        for (auto& row : factors_) row.fill(1.0);
        error_ = {};
        error_weight_ = 0.0;
        streak_ = 0;
    }

    [[nodiscard]] prediction_error const& error() const noexcept { return error_; }
    /// What the model is corrected by at a load: 1 before anything was seen.
    [[nodiscard]] double factor_at(step_load const& load) const noexcept {
        return step_seconds(load) / at(load, load.batch_tokens);
    }
    [[nodiscard]] Model const& model() const noexcept { return model_; }
    [[nodiscard]] refined_cost_settings const& settings() const noexcept { return settings_; }

private:
    static constexpr double least = 0.5;  // a machine twice as fast as its model is another machine
    static constexpr std::array<std::size_t, 10> knots = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32};  // B / R
    static constexpr std::size_t columns = knots.size();
    static constexpr std::size_t rows = 25;  // R = 2^row

    /// A decayed mean.
    struct mean {
        double value = 1.0;
        double weight = 0.0;

        void add(double x, double share, double memory) noexcept {
            weight = std::fma(weight, 1.0 - share / memory, share);
            value = std::fma(share / weight, x - value, value);
        }
        /// Drawn towards `to`, which counts as so many observations.
        [[nodiscard]] double drawn_to(double to, double prior) const noexcept {
            return std::fma(weight / (weight + prior), value - to, to);
        }
    };
    /// What a step pays for the past, by the model, and its load without it.
    struct arrears {
        step_load without{};
        double read = 0.0;
        double replayed = 0.0;
    };
    [[nodiscard]] arrears arrears_of(step_load const& load) const noexcept {
        arrears owed{load};
        if (load.unread_tokens == 0 && load.replays == 0) return owed;
        double const whole = at(load, load.batch_tokens);
        owed.without.unread_tokens = 0;
        double const unread = at(owed.without, load.batch_tokens);
        owed.without.replays = 0;
        owed.read = std::max(whole - unread, 0.0);
        owed.replayed = std::max(unread - at(owed.without, load.batch_tokens), 0.0);
        return owed;
    }
    /// Corrected, of a load without arrears.
    [[nodiscard]] double round_seconds(step_load const& load) const noexcept {
        double const base = at(load, load.batch_tokens);
        place const here = place_of(load);
        double const left_factor = factor(here, here.column);
        if (here.column + 1 == columns) return left_factor * base;
        std::size_t const left = knots[here.column] * here.requests;
        std::size_t const right = knots[here.column + 1] * here.requests;
        double const from = excess(left_factor, at(load, left));
        double const to = excess(factor(here, here.column + 1), at(load, right));
        // Where the model has a cliff between two knots, the line may undercut its lower side.
        return std::max(base + std::fma(here.along, to - from, from), least * base);
    }

    /// Between which knots a load lies.
    struct place {
        std::size_t requests = 1;
        std::size_t row = 0;
        std::size_t column = 0;
        double down = 0.0;   // the share of the way to row + 1
        double along = 0.0;  // and to column + 1
    };

    [[nodiscard]] static place place_of(step_load const& load) noexcept {
        place p;
        p.requests = std::max<std::size_t>(load.requests, 1);
        p.row = static_cast<std::size_t>(std::bit_width(p.requests)) - 1;
        if (p.row >= rows - 1) {
            p.row = rows - 2;
            p.down = 1.0;
        } else {
            std::size_t const octave = std::size_t{1} << p.row;
            p.down = static_cast<double>(p.requests - octave) / static_cast<double>(octave);
        }
        std::size_t const each = load.batch_tokens / p.requests;
        while (p.column + 1 < columns && knots[p.column + 1] <= each) ++p.column;
        if (p.column + 1 < columns) {
            std::size_t const left = knots[p.column] * p.requests;
            std::size_t const right = knots[p.column + 1] * p.requests;
            p.along = static_cast<double>(std::max(load.batch_tokens, left) - left) / static_cast<double>(right - left);
        }
        return p;
    }
    [[nodiscard]] double factor(place const& p, std::size_t column) const noexcept {
        double const low = factors_[p.row][column];
        return std::fma(p.down, factors_[p.row + 1][column] - low, low);
    }
    [[nodiscard]] double at(step_load load, std::size_t batch_tokens) const noexcept {
        load.batch_tokens = batch_tokens;
        return static_cast<double>(model_.step_seconds(load));
    }

    /// (factor - 1) x seconds, rounded once: a product by itself, compilers would fuse with what is done to it next, or
    /// not.
    [[nodiscard]] static double excess(double factor, double seconds) noexcept {
        return std::fma(factor, seconds, -seconds);
    }

    /// How many times longer than predicted a step is taken to have been. One that is far off is an accident; the
    /// longer it goes on the same way, the more of it is believed.
    [[nodiscard]] double believable(double times) noexcept {
        double const most = 1.0 + settings_.clip;
        bool const beyond = times > most || times < 1.0 / most;
        if (beyond) ++error_.clipped;
        streak_ = !beyond ? 0 : times > 1.0 ? std::clamp(streak_ + 1, 1, 64) : std::clamp(streak_ - 1, -64, -1);
        int const before = std::max(std::abs(streak_) - 1, 0);
        double const reach = std::fma(settings_.clip, 1.0 + 0.125 * static_cast<double>(before), 1.0);
        return std::clamp(times, 1.0 / reach, reach);
    }

    /// `part`: of the step, in (0, 1].
    void learn(place const& here, double ratio, double part) noexcept {
        machine_.add(ratio, part, settings_.memory);
        for (auto& row : seen_) {
            // What is forgotten is set to 0: products that never end there become denormal, and slow.
            for (mean& m : row) m.weight = m.weight < 1e-12 ? 0.0 : m.weight * idle_keep_;
        }
        for (std::size_t row = here.row; row <= here.row + 1; ++row) {
            for (std::size_t column = here.column; column <= here.column + 1; ++column) {
                double const share = part * (row == here.row ? 1.0 - here.down : here.down) *
                                     (column == here.column ? 1.0 - here.along : here.along);
                if (share > 0.0) seen_[row][column].add(ratio, share, settings_.memory);
            }
        }
        double const machine = bounded(machine_.value);
        for (std::size_t r = 0; r < rows; ++r) {
            for (std::size_t c = 0; c < columns; ++c) {
                factors_[r][c] = bounded(seen_[r][c].drawn_to(machine, settings_.prior));
            }
        }
    }
    [[nodiscard]] double bounded(double factor) const noexcept { return std::clamp(factor, least, settings_.most); }

    void record_error(double seconds, double predicted, double base) noexcept {
        ++error_.observed;
        double const off = (seconds - predicted) / predicted;
        error_weight_ = std::fma(error_weight_, 1.0 - 1.0 / settings_.memory, 1.0);
        auto const average = [&](double& old, double x) { old = std::fma(1.0 / error_weight_, x - old, old); };
        average(error_.bias, std::clamp(off, -1.0, 1.0));
        average(error_.size, std::min(std::abs(off), 1.0));
        average(error_.unrefined, std::min(std::abs(seconds - base) / base, 1.0));
    }

    Model model_;
    refined_cost_settings settings_;
    double idle_keep_;
    mean machine_{};
    mean read_{};  // of what the draft reads, and of what the target replays
    mean replayed_{};
    std::array<std::array<mean, columns>, rows> seen_{};
    std::array<std::array<double, columns>, rows> factors_{};
    prediction_error error_{};
    double error_weight_ = 0.0;
    int streak_ = 0;  // observations clipped in a row, negative if from below
};

SURELEAP_END_NAMESPACE

// SPDX-License-Identifier: MIT
//
// Confidences beside what became of their drafts, and how well the two agree.
//
// A confidence is conditional: c_k is the probability that draft k is accepted, given that all before it were. So it
// has an outcome only in rounds that got as far as k. What schedules multiply up, and what is judged here as in the
// library (fit/confidence_metrics.hpp), is survival, a_k = c_1 .. c_k against "all of x_1 .. x_k were accepted", which
// has an outcome in every round that verified the whole block. The conditional AUC is beside it, because survival's is
// flattered by rounds that had ended long before.
//
// An expected calibration error is never 0, not even of a perfect estimator, since outcomes are chance. The floor is
// what such an estimator would get: the ECE of the same predictions with outcomes drawn from them.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <sureleap/confidence/calibration.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/fit/calibration_data.hpp>
#include <sureleap/fit/confidence_metrics.hpp>
#include <sureleap/fit/platt_fit.hpp>
#include <sureleap/fit/temperature_fit.hpp>
#include <sureleap/sampling/random.hpp>

namespace evaluate {

inline constexpr std::size_t reliability_bins = 15;
inline constexpr std::size_t floor_repeats = 20;
/// A finer grid than the library's default: neighbours differ by 1.2 %, so that a temperature can be found within a
/// few.
inline constexpr sureleap::temperature_settings fit_settings{.temperatures = 401, .bins = reliability_bins};

/// Rounds that verified their whole block.
class confidence_rounds {
public:
    explicit confidence_rounds(std::size_t block_size) : block_size_(block_size) {}

    /// observed: positions whose outcome exists, at most as many as there are confidences.
    void add(std::span<double const> confidences, std::size_t accepted, std::size_t observed) {
        for (std::size_t k = 0; k < block_size_; ++k) {
            double const c = k < observed ? confidences[k] : 0.5;
            logits_.push_back(std::log(c) - std::log1p(-c));
            labels_.push_back(k < std::min(accepted, observed) ? 1 : 0);
        }
        observed_.push_back(static_cast<std::uint32_t>(observed));
    }
    void append(confidence_rounds const& other, std::size_t first, std::size_t count) {
        auto const copy = [&]<class T>(std::vector<T> const& from, std::vector<T>& to, std::size_t stride) {
            auto const begin = from.begin() + static_cast<std::ptrdiff_t>(first * stride);
            to.insert(to.end(), begin, begin + static_cast<std::ptrdiff_t>(count * stride));
        };
        copy(other.logits_, logits_, block_size_);
        copy(other.labels_, labels_, block_size_);
        copy(other.observed_, observed_, 1);
    }
    void append(confidence_rounds const& other) { append(other, 0, other.size()); }

    [[nodiscard]] std::size_t size() const noexcept { return observed_.size(); }
    [[nodiscard]] std::size_t block_size() const noexcept { return block_size_; }
    [[nodiscard]] sureleap::calibration_data data() const noexcept {
        return {.block_size = block_size_, .logits = logits_, .labels = labels_, .observed = observed_};
    }

    /// The same rounds with the logits of position k times by[k]: overconfident scores where that is above 1.
    [[nodiscard]] confidence_rounds scaled(std::span<double const> by) const {
        confidence_rounds out = *this;
        for (std::size_t i = 0; i < out.logits_.size(); ++i) out.logits_[i] *= by[i % block_size_];
        return out;
    }

private:
    std::size_t block_size_;
    std::vector<double> logits_;
    std::vector<std::uint8_t> labels_;
    std::vector<std::uint32_t> observed_;
};

/// The ways to mend confidences that are compared. All are maps of logits, and Platt's the most general.
enum class mending {
    temperatures,           ///< sequential temperature scaling by ECE: the paper's
    temperatures_log_loss,  ///< the same by log loss
    platt,                  ///< temperatures and offsets
};
inline constexpr std::array all_mendings{mending::temperatures, mending::temperatures_log_loss, mending::platt};

[[nodiscard]] inline char const* name_of(mending m) noexcept {
    switch (m) {
        case mending::temperatures: return "STS";
        case mending::temperatures_log_loss: return "STS by log loss";
        case mending::platt: return "Platt";
    }
    return "";
}

/// On all rounds: the library fits on every second sample and holds the others out, so each is there twice.
[[nodiscard]] inline sureleap::sequential_scaling fit(mending how, confidence_rounds const& rounds) {
    confidence_rounds twice(rounds.block_size());
    for (std::size_t i = 0; i < rounds.size(); ++i) {
        twice.append(rounds, i, 1);
        twice.append(rounds, i, 1);
    }
    if (how == mending::platt) return sureleap::fit_platt(twice.data(), {.bins = reliability_bins}).calibration;
    auto settings = fit_settings;
    if (how == mending::temperatures_log_loss) settings.objective = sureleap::temperature_objective::log_loss;
    return sureleap::fit_temperatures(twice.data(), settings).calibration;
}

struct position_study {
    std::uint64_t count = 0;
    double survival = 0;         ///< share of rounds that got past this position
    double prediction = 0;       ///< mean of a_k
    double ece = 0;              ///< of a_k
    double floor = 0;            ///< the same of a perfect estimator, mean over repeats
    double auc = 0;              ///< of a_k
    double conditional_auc = 0;  ///< of c_k, over rounds that got here
    std::vector<sureleap::reliability_bin> bins{};
};

/// How good confidences are after a calibration. Means are over positions, weighted by their counts.
struct confidence_study {
    std::size_t rounds = 0;
    std::vector<position_study> positions{};
    double ece = 0;
    double floor = 0;
    double auc = 0;

    [[nodiscard]] double excess() const noexcept { return ece - floor; }
};

namespace detail {

/// Calls f(round, k, c_k, label) in order, for every position with an outcome.
template <class F>
void for_each_outcome(confidence_rounds const& rounds, sureleap::sequential_scaling const& calibration, F const& f) {
    auto const data = rounds.data();
    for (std::size_t i = 0; i < rounds.size(); ++i) {
        for (std::size_t k = 0; k < data.observed[i]; ++k) {
            std::size_t const at = i * data.block_size + k;
            f(i, k, calibration.from_logit(k, data.logits[at]), data.labels[at] != 0);
        }
    }
}

/// A draw for every (repeat, round, position).
[[nodiscard]] inline double outcome_draw(std::uint64_t seed, std::size_t repeat, std::size_t round, std::size_t k) {
    return sureleap::uniform({.seed = seed,
                              .position = (std::uint64_t{repeat} << 40) | round,
                              .index = static_cast<std::uint32_t>(k),
                              .use = sureleap::purpose::accept});
}

}  // namespace detail

/// `seed` draws the outcomes of the perfect estimator.
[[nodiscard]] inline confidence_study study(confidence_rounds const& rounds,
                                            sureleap::sequential_scaling const& calibration, std::uint64_t seed) {
    if (rounds.size() == 0) sureleap::fail_with("confidence study: no rounds, expected at least one");
    std::size_t const gamma = rounds.block_size();
    sureleap::metric_settings const settings{.bins = reliability_bins};
    sureleap::calibration_recorder survival(gamma, settings), conditional(gamma, settings);
    double a = 1;
    bool got_here = true;
    detail::for_each_outcome(rounds, calibration, [&](std::size_t, std::size_t k, double c, bool label) {
        a = k == 0 ? c : a * c;
        got_here = k == 0 || got_here;
        survival.add(k, a, label);
        if (got_here) conditional.add(k, c, label);
        got_here = label;
    });

    confidence_study out{.rounds = rounds.size(), .ece = survival.mean().ece, .auc = survival.mean().auroc};
    for (std::size_t k = 0; k < gamma; ++k) {
        auto const m = survival.position(k);
        auto const bins = survival.reliability(k);
        out.positions.push_back({.count = m.count,
                                 .survival = m.mean_label,
                                 .prediction = m.mean_prediction,
                                 .ece = m.ece,
                                 .floor = 0,
                                 .auc = m.auroc,
                                 .conditional_auc = conditional.position(k).auroc,
                                 .bins = {bins.begin(), bins.end()}});
    }
    for (std::size_t repeat = 0; repeat < floor_repeats; ++repeat) {
        survival.clear();
        bool alive = true;
        detail::for_each_outcome(rounds, calibration, [&](std::size_t round, std::size_t k, double c, bool) {
            a = k == 0 ? c : a * c;
            alive = (k == 0 || alive) && detail::outcome_draw(seed, repeat, round, k) < c;
            survival.add(k, a, alive);
        });
        out.floor += survival.mean().ece / floor_repeats;
        for (std::size_t k = 0; k < gamma; ++k) out.positions[k].floor += survival.position(k).ece / floor_repeats;
    }
    return out;
}

/// Confidences as they come.
[[nodiscard]] inline sureleap::sequential_scaling untouched(std::size_t block_size) {
    return sureleap::sequential_platt_scaling(std::vector<sureleap::logit_scaling>(block_size));
}

}  // namespace evaluate

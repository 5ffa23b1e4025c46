// SPDX-License-Identifier: MIT
//
// Measurements that override a model: exact step times at some (requests, batch tokens), and a model everywhere else.
//
// What is added to the model is the difference between measurement and model, d(R, B). It is interpolated linearly in B
// between the cells of a row of equal R, then linearly in R between rows. Beyond the cells the nearest difference
// stays.
//
// - The model goes on pricing what a cell does not say: contexts and drafts other than the ones it was measured under.
//   They are other kernels than the one that was measured, so they come on top.
// - Differences, not times: between two cells of a padded engine the model's stairs remain. Better still is to put the
//   padding outside, padded_cost<cell_cost<additive_cost>>, which then asks for measured sizes only.
// - Beyond the cells the nearest difference applies. A difference of 0 would be a cliff at the edge of what was
//   measured, where the machine has none. Schedules choose the cheap side of a cliff.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cost/sample.hpp>

SURELEAP_BEGIN_NAMESPACE

/// A model and measured cells. Models cost_model. Immutable, concurrently callable, no allocation; O(log cells) and one
/// question to the model. At a cell's own load: the measured time, to the bit. No cells: the model as it is.
template <cost_model Model>
class cell_cost {
public:
    using model_type = Model;

    /// Samples in any order. Several of one (requests, batch tokens), under other drafts or contexts, count as their
    /// mean. Error if a load or a time is none, measured or modelled, with its index.
    explicit cell_cost(Model model, std::vector<cost_sample> samples) : model_(std::move(model)) {
        if (samples.empty()) return;
        detail::check_samples("cell_cost", samples);
        for (std::size_t i = 0; i < samples.size(); ++i) {
            double const seconds = static_cast<double>(model_.step_seconds(samples[i].load));
            if (!(seconds >= detail::least_seconds && std::isfinite(seconds))) {
                fail_with("cell_cost: sample ", i, ": the model says ", seconds,
                          " seconds, expected a finite number of at least 1e-15");
            }
        }
        std::sort(samples.begin(), samples.end(),
                  [](cost_sample const& a, cost_sample const& b) { return in_full(a) < in_full(b); });
        std::vector<double> counts;
        for (cost_sample const& s : samples) {
            bool const begins_row = rows_.empty() || rows_.back().requests != s.load.requests;
            if (begins_row) rows_.push_back({s.load.requests, cells_.size(), 0});
            if (begins_row || cells_.back().batch_tokens != s.load.batch_tokens) {
                cells_.push_back({s.load.batch_tokens, {}});
                counts.push_back(0.0);
                ++rows_.back().size;
            }
            cells_.back().at.measured += s.seconds;
            cells_.back().at.modelled += static_cast<double>(model_.step_seconds(s.load));
            counts.back() += 1.0;
        }
        for (std::size_t i = 0; i < cells_.size(); ++i) {
            times& at = cells_[i].at;
            at = {at.measured / counts[i], at.modelled / counts[i]};
            least_share_ = std::min(least_share_, 0.9 * (at.measured / at.modelled));
        }
    }

    [[nodiscard]] double step_seconds(step_load const& load) const noexcept {
        double const model = static_cast<double>(model_.step_seconds(load));
        if (rows_.empty()) return model;
        auto const [low, high] = rows_around(load.requests);
        times here = along(rows_[low], load.batch_tokens);
        if (low != high) {
            double const t = static_cast<double>(load.requests - rows_[low].requests) /
                             static_cast<double>(rows_[high].requests - rows_[low].requests);
            here = between(here, along(rows_[high], load.batch_tokens), t);
        }
        // A model that overrates contexts could be corrected below 0 where there are none; a share of it always stays.
        return std::max(here.measured + (model - here.modelled), least_share_ * model);
    }

    [[nodiscard]] Model const& model() const noexcept { return model_; }
    [[nodiscard]] std::size_t cells() const noexcept { return cells_.size(); }

private:
    struct times {
        double measured = 0.0;
        double modelled = 0.0;
    };
    struct cell {
        std::size_t batch_tokens = 0;
        times at{};
    };
    struct row {
        std::size_t requests = 0;
        std::size_t first = 0;
        std::size_t size = 0;
    };

    /// Rows, cells, and then anything that is the same in whatever order samples come.
    [[nodiscard]] static auto in_full(cost_sample const& s) noexcept {
        return std::tuple(s.load.requests, s.load.batch_tokens, s.load.drafting, s.load.draft_tokens,
                          s.load.context_tokens, s.load.unread_tokens, s.load.replays, s.seconds);
    }
    [[nodiscard]] static bool before(std::size_t batch_tokens, cell const& c) noexcept {
        return batch_tokens < c.batch_tokens;
    }
    [[nodiscard]] static times between(times const& a, times const& b, double t) noexcept {
        return {std::fma(t, b.measured - a.measured, a.measured), std::fma(t, b.modelled - a.modelled, a.modelled)};
    }
    [[nodiscard]] std::span<cell const> cells_of(row const& r) const noexcept {
        return std::span(cells_).subspan(r.first, r.size);
    }

    /// The rows that so many requests lie between; the same one twice at a row and beyond the rows.
    [[nodiscard]] std::pair<std::size_t, std::size_t> rows_around(std::size_t requests) const noexcept {
        auto const at = std::lower_bound(rows_.begin(), rows_.end(), requests,
                                         [](row const& r, std::size_t n) { return r.requests < n; });
        auto const high = static_cast<std::size_t>(at - rows_.begin());
        if (at == rows_.end()) return {high - 1, high - 1};
        if (high == 0 || at->requests == requests) return {high, high};
        return {high - 1, high};
    }

    [[nodiscard]] times along(row const& r, std::size_t batch_tokens) const noexcept {
        auto const cells = cells_of(r);
        auto const above = std::upper_bound(cells.begin(), cells.end(), batch_tokens, before);
        if (above == cells.begin()) return above->at;
        auto const& left = *(above - 1);
        if (above == cells.end() || left.batch_tokens == batch_tokens) return left.at;
        double const t = static_cast<double>(batch_tokens - left.batch_tokens) /
                         static_cast<double>(above->batch_tokens - left.batch_tokens);
        return between(left.at, above->at, t);
    }

    Model model_;
    std::vector<row> rows_;    // ascending in requests
    std::vector<cell> cells_;  // row after row, ascending in batch tokens
    double least_share_ = 0.5;
};

SURELEAP_END_NAMESPACE

// SPDX-License-Identifier: MIT
//
// How fits go through their samples: position by position in columns, with the passes of kernel/sample.hpp. From left to
// right, the map of position k is the one that serves a_k best while those of 1..k-1 stay what they became. Fitting all
// positions jointly would be a search in gamma dimensions or more, and fitting each c_k by itself would calibrate factors
// but not their product, in which errors add up. Every second sample is held out and says what the fit is worth.
//
// What is found is what calibration_reference.hpp defines, up to rounding. Every sample is in the bin where the reference
// has it: close to the edge of a bin, its survival is evaluated again as the reference does. So sums differ by
// rounding alone, figures agree to about 1e-12, and each comes with a radius that holds the reference's value.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include <sureleap/confidence/calibration.hpp>
#include <sureleap/confidence/calibration_data.hpp>
#include <sureleap/confidence/metrics.hpp>
#include <sureleap/config.hpp>
#include <sureleap/kernel/sample.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace detail {

/// Every second sample, from `first` on, by position. Samples are sorted by how many of their positions were observed, most
/// first, so that those observed at k are the first observed(k) of every column.
class sample_columns {
public:
    /// The shapes are right. Nothing is copied yet.
    sample_columns(calibration_data const& data, std::size_t first)
        : rows_((data.samples() - first + 1) / 2),
          survived_(std::make_unique_for_overwrite<std::uint32_t[]>(rows_.size())),
          observed_(data.block_size),
          surviving_(data.block_size + 1),
          starts_(data.block_size) {
        sort(data, first);
        std::size_t total = 0;
        for (std::size_t k = 0; k < data.block_size; ++k) {
            starts_[k] = total;
            total += observed_[k];
        }
        logits_ = std::make_unique_for_overwrite<double[]>(total);
    }

    /// Copies samples j to j + count, as far as there are any.
    void copy(calibration_data const& data, std::size_t j, std::size_t count, sample_kernels const& kernels) {
        copy_rows(data, j, std::min(j + count, rows_.size()));
        for (std::size_t k = 0; k < data.block_size && observed_[k] > j; ++k) {
            std::size_t const here = std::min(count, observed_[k] - j);
            usable_ = kernels.numbers(logits_.get() + starts_[k] + j, here) && usable_;
        }
    }

    /// No NaN among what was copied, labels are masks of prefixes, no more observed than there is.
    [[nodiscard]] bool usable() const noexcept { return usable_; }
    [[nodiscard]] std::size_t samples() const noexcept { return rows_.size(); }
    [[nodiscard]] std::size_t observed(std::size_t k) const noexcept { return observed_[k]; }
    /// How many of them have the label 1.
    [[nodiscard]] std::size_t labelled(std::size_t k) const noexcept {
        return std::accumulate(surviving_.begin() + static_cast<std::ptrdiff_t>(k) + 1, surviving_.end(),
                               std::size_t{0});
    }
    [[nodiscard]] std::span<double const> logits(std::size_t k) const noexcept {
        return {logits_.get() + starts_[k], observed_[k]};
    }
    [[nodiscard]] sample_labels labels(std::size_t k) const noexcept {
        return {survived_.get(), static_cast<std::uint32_t>(k)};
    }
    /// Where sample j is in the data.
    [[nodiscard]] std::size_t row(std::size_t j) const noexcept { return rows_[j]; }

private:
    void sort(calibration_data const& data, std::size_t first) {
        std::size_t const gamma = data.block_size;
        std::vector<std::size_t> places(gamma + 1);  // of those with so many observed
        for (std::size_t i = first; i < data.samples(); i += 2) {
            usable_ = usable_ && data.observed[i] <= gamma;
            ++places[std::min<std::size_t>(data.observed[i], gamma)];
        }
        std::size_t before = 0;
        for (std::size_t o = gamma + 1; o-- > 0;) {
            std::size_t const count = places[o];
            places[o] = before;
            before += count;
            if (o > 0) observed_[o - 1] = before;
        }
        for (std::size_t i = first; i < data.samples(); i += 2) {
            rows_[places[std::min<std::size_t>(data.observed[i], gamma)]++] = i;
        }
    }

    void copy_rows(calibration_data const& data, std::size_t j, std::size_t end) {
        for (; j < end; ++j) {
            std::size_t const observed = std::min<std::size_t>(data.observed[rows_[j]], data.block_size);
            std::size_t const at = rows_[j] * data.block_size;
            double const* const logits = data.logits.data() + at;
            std::uint8_t const* const labels = data.labels.data() + at;
            unsigned survived = 0;
            unsigned before = 1;
            bool mask = true;
            for (std::size_t k = 0; k < observed; ++k) {
                logits_[starts_[k] + j] = logits[k];
                mask &= labels[k] <= before;
                before = labels[k];
                survived += before;
            }
            if (!mask) survived = 0;
            usable_ &= mask;
            survived_[j] = survived;
            ++surviving_[survived];
        }
    }

    std::vector<std::size_t> rows_;
    std::unique_ptr<std::uint32_t[]> survived_;
    std::vector<std::size_t> observed_;
    std::vector<std::size_t> surviving_;  // [gamma + 1], samples that survived so many positions
    std::vector<std::size_t> starts_;
    std::unique_ptr<double[]> logits_;
    bool usable_ = true;
};

/// A figure and how far the reference's may be from it.
struct estimate {
    double value;
    double radius;
};

/// Columns under the scalings of their first positions: the survival of every sample's prefix before the next one.
class scaled_samples {
public:
    scaled_samples(calibration_data const& data, sample_columns const& columns, std::size_t bins,
                   sample_kernels const& kernels)
        : data_(data),
          columns_(columns),
          kernels_(bins <= most_vector_bins ? kernels : scalar_sample_kernels),
          bins_(bins),
          sums_(bin_copies * bins),
          prefix_(columns.observed(0), 1.0) {}

    /// Positions settled so far; k is the next one.
    [[nodiscard]] std::size_t position() const noexcept { return scalings_.size(); }
    [[nodiscard]] std::size_t observed() const noexcept { return columns_.observed(position()); }
    [[nodiscard]] std::span<logit_scaling const> scalings() const noexcept { return scalings_; }
    [[nodiscard]] sample_columns const& columns() const noexcept { return columns_; }
    [[nodiscard]] sample_kernels const& kernels() const noexcept { return kernels_; }
    [[nodiscard]] std::span<double const> prefix() const noexcept { return {prefix_.data(), observed()}; }
    [[nodiscard]] std::span<double const> logits() const noexcept { return columns_.logits(position()); }
    [[nodiscard]] sample_labels labels() const noexcept { return columns_.labels(position()); }

    /// ECE of a_k under `scaling` at k. There are samples observed.
    [[nodiscard]] estimate ece(logit_scaling scaling) {
        std::array<double, block> survivals;
        begin_gaps();
        for_each_block([&](std::size_t first, std::size_t size) {
            survive(scaling, first, size, survivals.data());
            add_gaps(scaling, first, size, survivals.data());
        });
        return {gaps(), rounding(1.0)};
    }

    /// Mean log loss of a_k under `scaling` at k, likewise.
    [[nodiscard]] estimate log_loss(logit_scaling scaling) const {
        std::array<double, block> survivals;
        double sum = 0.0;
        double least = 1.0;
        for_each_block([&](std::size_t first, std::size_t size) {
            survive(scaling, first, size, survivals.data());
            sum += kernels_.log_losses(survivals.data(), at(first), size, log_loss_floor, &least);
        });
        // log x moves by at most 2 d / x where x moves by d <= x / 2.
        double const moved = survival_error();
        constexpr double most = 28.0;
        bool const steady = moved <= least / 2.0;
        return {sum / static_cast<double>(observed()),
                steady ? 2.0 * moved / least + rounding(most) : std::numeric_limits<double>::infinity()};
    }

    /// Settles k.
    void settle(logit_scaling scaling) {
        survive(scaling, 0, observed(), prefix_.data());
        scalings_.push_back(scaling);
    }
    /// The same, and returns what ece() would have; NaN if nothing is observed.
    double settle_with_ece(logit_scaling scaling) {
        begin_gaps();
        for_each_block([&](std::size_t first, std::size_t size) {
            survive(scaling, first, size, prefix_.data() + first);
            add_gaps(scaling, first, size, prefix_.data() + first);
        });
        double const error = gaps();
        scalings_.push_back(scaling);
        return error;
    }

private:
    static constexpr std::size_t block = 1024;

    template <class F>
    void for_each_block(F const& f) const {
        for (std::size_t first = 0; first < observed(); first += block) f(first, std::min(block, observed() - first));
    }
    [[nodiscard]] sample_labels at(std::size_t first) const noexcept {
        return {labels().survived + first, labels().position};
    }
    void survive(logit_scaling s, std::size_t first, std::size_t size, double* out) const {
        kernels_.survive(prefix_.data() + first, logits().data() + first, size, s.temperature, s.offset, out);
    }

    /// Most that a survival here and the reference's may be apart: each factor is off by sigmoid_error on both sides, and
    /// products are rounded.
    [[nodiscard]] double survival_error() const noexcept {
        return static_cast<double>(position() + 2) * 2.0 * sigmoid_error;
    }
    /// Most that means of values up to `most` may be apart: n roundings of sums, on both sides.
    [[nodiscard]] double rounding(double most) const noexcept {
        return survival_error() + most * static_cast<double>(observed() + 64) * 0x1p-52;
    }

    void begin_gaps() { std::fill(sums_.begin(), sums_.end(), 0.0); }
    void add_gaps(logit_scaling scaling, std::size_t first, std::size_t size, double const* survivals) {
        // Places in bins are rounded on both sides as well.
        auto const bins = static_cast<double>(bins_);
        double const margin = bins_ > 1 ? bins * (survival_error() + 0x1p-50) : -1.0;
        std::array<std::uint32_t, block> near;
        std::size_t const found = kernels_.gaps(survivals, at(first), size, bins_, margin, sums_.data(), near.data());
        for (std::size_t f = 0; f < found; ++f) {
            double const a = reference(scaling, first + near[f]);
            sums_[probability_bin(a, bins_)] += a - labels()[first + near[f]];
        }
    }
    [[nodiscard]] double gaps() const noexcept {
        double sum = 0.0;
        for (std::size_t b = 0; b < bins_; ++b) {
            double gap = 0.0;
            for (std::size_t copy = 0; copy < bin_copies; ++copy) gap += sums_[copy * bins_ + b];
            sum += std::fabs(gap);
        }
        return sum / static_cast<double>(observed());
    }
    /// The survival of sample j under `scaling` at k, in the arithmetic of the reference.
    [[nodiscard]] double reference(logit_scaling scaling, std::size_t j) const noexcept {
        double const* const row = data_.logits.data() + columns_.row(j) * data_.block_size;
        double survival = 1.0;
        for (std::size_t k = 0; k < position(); ++k) survival *= scalings_[k](row[k]);
        return survival * scaling(row[position()]);
    }

    calibration_data const& data_;
    sample_columns const& columns_;
    sample_kernels const& kernels_;
    std::size_t bins_;
    std::vector<double> sums_;  // [bin_copies, bins]
    std::vector<double> prefix_;
    std::vector<logit_scaling> scalings_;
};

/// The fit of all positions.
struct sequential_fit {
    std::uint64_t fit_samples = 0;
    std::uint64_t evaluation_samples = 0;
    std::vector<position_fit> positions;  ///< [gamma]

    [[nodiscard]] std::vector<logit_scaling> scalings() const {
        std::vector<logit_scaling> out;
        for (position_fit const& p : positions) out.push_back(p.scaling);
        return out;
    }
};

/// choose(samples) -> logit_scaling of the next position, for the half that is fitted on, where it is observed.
template <class Choose>
[[nodiscard]] sequential_fit fit_sequentially(calibration_data const& data, std::size_t bins,
                                              sample_kernels const& kernels, Choose&& choose) {
    check_calibration_shapes(data);
    sample_columns even(data, 0);
    sample_columns odd(data, 1);
    constexpr std::size_t tile = 128;  // together: neighbouring rows share cache lines
    for (std::size_t j = 0; j < even.samples(); j += tile) {
        even.copy(data, j, tile, kernels);
        odd.copy(data, j, tile, kernels);
    }
    if (!even.usable() || !odd.usable()) check_calibration_values(data);
    scaled_samples fitted(data, even, bins, kernels);
    scaled_samples held_out(data, odd, bins, kernels);
    scaled_samples untouched(data, odd, bins, kernels);
    sequential_fit out{even.samples(), odd.samples(), {}};
    for (std::size_t k = 0; k < data.block_size; ++k) {
        position_fit p;
        p.fit_observed = even.observed(k);
        p.evaluation_observed = odd.observed(k);
        if (p.fit_observed > 0) p.scaling = choose(fitted);
        fitted.settle(p.scaling);
        double const before = untouched.settle_with_ece({});
        double const after = held_out.settle_with_ece(p.scaling);
        if (p.evaluation_observed > 0) {
            p.ece_before = before;
            p.ece_after = after;
        }
        out.positions.push_back(p);
    }
    return out;
}

}  // namespace detail
SURELEAP_END_NAMESPACE

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
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
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

/// How many positions a row survived, or more than `observed` if its labels are no mask of a prefix. `labels` goes on to the
/// end of all rows, so that eight labels may be read at once where there are fewer.
[[nodiscard]] inline std::uint32_t survived_positions(std::span<std::uint8_t const> labels,
                                                      std::size_t observed) noexcept {
    std::uint64_t survived = 0;
    std::uint64_t wrong = 0;
    std::uint64_t before = 1;
    std::size_t k = 0;
    if constexpr (std::endian::native == std::endian::little) {
        constexpr std::uint64_t ones = 0x0101010101010101u;
        for (; k < observed && k + 8 <= labels.size(); k += 8) {
            std::uint64_t eight = 0;
            std::memcpy(&eight, labels.data() + k, 8);
            if (observed - k < 8) eight &= (std::uint64_t{1} << 8 * (observed - k)) - 1;
            wrong |= eight & ~((eight << 8 | before) & ones);  // 1 after a 0, or neither
            before = eight >> 56;
            survived += eight * ones >> 56;
        }
    }
    for (; k < observed; ++k) {
        std::uint64_t const label = labels[k];
        wrong |= label & ~(before & 1);
        before = label;
        survived += label;
    }
    return static_cast<std::uint32_t>(wrong == 0 ? survived : observed + 1);
}

/// Every second sample, from `first` on, by position. Samples are sorted by how many of their positions were observed, most
/// first, so that those observed at k are the first observed(k) of every column.
class sample_columns {
public:
    /// The shapes are right. Nothing is copied yet.
    sample_columns(calibration_data const& data, std::size_t first)
        : first_(first),
          samples_((data.samples() - first + 1) / 2),
          survived_(std::make_unique_for_overwrite<std::uint32_t[]>(samples_)),
          observed_(data.block_size),
          surviving_(data.block_size + 1),
          starts_(data.block_size),
          columns_(data.block_size) {
        sort(data);
        std::size_t total = 0;
        for (std::size_t k = 0; k < data.block_size; ++k) {
            starts_[k] = total;
            total += observed_[k];
        }
        logits_ = std::make_unique_for_overwrite<double[]>(total);
    }

    /// At most so many samples are copied at once.
    static constexpr std::size_t tile = 64;

    /// Copies samples j to j + tile, as far as there are any.
    void copy(calibration_data const& data, std::size_t j, sample_kernels const& kernels) {
        std::array<double const*, tile> rows;
        std::array<std::size_t, tile> lengths;
        if (j >= samples_) return;
        std::size_t const count = std::min(tile, samples_ - j);
        for (std::size_t i = 0; i < count; ++i) {
            std::size_t const at = row(j + i) * data.block_size;
#if defined(__GNUC__)
            // The row that follows a tile later: it comes from memory, and nothing else asks for it in time.
            __builtin_prefetch(data.logits.data() + row(std::min(j + i + tile, samples_ - 1)) * data.block_size);
#endif
            std::size_t const length = observed_of(data, row(j + i));
            std::uint32_t survived = survived_positions(data.labels.subspan(at), length);
            if (survived > length) {
                usable_ = false;
                survived = 0;
            }
            rows[i] = data.logits.data() + at;
            lengths[i] = length;
            survived_[j + i] = survived;
            ++surviving_[survived];
        }
        for (std::size_t k = 0; k < lengths[0]; ++k) columns_[k] = logits_.get() + starts_[k] + j;
        usable_ = kernels.transpose(rows.data(), lengths.data(), count, columns_.data()) && usable_;
    }

    /// No NaN among what was copied, labels are masks of prefixes, no more observed than there is.
    [[nodiscard]] bool usable() const noexcept { return usable_; }
    [[nodiscard]] std::size_t samples() const noexcept { return samples_; }
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
    [[nodiscard]] std::size_t row(std::size_t j) const noexcept { return rows_.empty() ? first_ + 2 * j : rows_[j]; }

private:
    [[nodiscard]] static std::size_t observed_of(calibration_data const& data, std::size_t i) noexcept {
        return std::min<std::size_t>(data.observed[i], data.block_size);
    }

    void sort(calibration_data const& data) {
        std::size_t const gamma = data.block_size;
        bool alike = true;
        std::uint32_t most = 0;
        for (std::size_t i = first_; i < data.samples(); i += 2) {
            alike &= data.observed[i] == data.observed[first_];
            most = std::max(most, data.observed[i]);
        }
        usable_ = most <= gamma;
        if (alike) {  // as in rounds that verify everything: in order already
            std::fill_n(observed_.begin(), observed_of(data, first_), samples_);
            return;
        }
        std::vector<std::size_t> places(gamma + 1);  // of those with so many observed
        for (std::size_t i = first_; i < data.samples(); i += 2) ++places[observed_of(data, i)];
        std::size_t before = 0;
        for (std::size_t o = gamma + 1; o-- > 0;) {
            std::size_t const count = places[o];
            places[o] = before;
            before += count;
            if (o > 0) observed_[o - 1] = before;
        }
        rows_.resize(samples_);
        for (std::size_t i = first_; i < data.samples(); i += 2) rows_[places[observed_of(data, i)]++] = i;
    }

    std::size_t first_;
    std::size_t samples_;
    std::vector<std::size_t> rows_;  // empty: in the order of the data
    std::unique_ptr<std::uint32_t[]> survived_;
    std::vector<std::size_t> observed_;
    std::vector<std::size_t> surviving_;  // [gamma + 1], samples that survived so many positions
    std::vector<std::size_t> starts_;
    std::unique_ptr<double[]> logits_;
    std::vector<double*> columns_;  // where copy() stands
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
        std::array<double, sample_block> survivals;
        begin_gaps();
        for_each_block([&](std::size_t first, std::size_t size) {
            survive(scaling, first, size, survivals.data());
            add_gaps(scaling, first, size, survivals.data());
        });
        return {gaps(), rounding(1.0)};
    }

    /// The same under a temperature at k, sooner and from floats, with a radius of 5e-7. Where there are too many bins for
    /// that, or the temperature is beyond floats, it is ece().
    [[nodiscard]] estimate screened_ece(double temperature) {
        bool const usual = temperature >= least_screen_temperature && temperature <= 1.0 / least_screen_temperature;
        if (bins_ > most_screen_bins || !usual) return ece({temperature});
        narrow();
        auto const bins = static_cast<double>(bins_);
        // The edges of bins are rounded as well.
        double const error = screen_error + survival_error();
        double const margin = bins * (error + 0x1p-22);
        begin_gaps();
        std::fill(screen_sums_.begin(), screen_sums_.end(), 0);
        for_each_block([&](std::size_t first, std::size_t size) {
            std::array<std::uint32_t, sample_block> near;
            std::size_t const found =
                kernels_.screen(narrow_prefix_.data() + first, narrow_logits_.data() + first, at(first), size,
                                temperature, bins_, margin, screen_sums_.data(), near.data());
            add_near({temperature}, first, {near.data(), found});
        });
        for (std::size_t i = 0; i < sums_.size(); ++i) sums_[i] += screen_unit * static_cast<double>(screen_sums_[i]);
        return {gaps(), error + screen_unit + rounding(1.0)};
    }

    /// Mean log loss of a_k under `scaling` at k.
    [[nodiscard]] estimate log_loss(logit_scaling scaling) const {
        std::array<double, sample_block> survivals;
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
    template <class F>
    void for_each_block(F const& f) const {
        for (std::size_t first = 0; first < observed(); first += sample_block) {
            f(first, std::min(sample_block, observed() - first));
        }
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
        double const margin = bins * (survival_error() + 0x1p-50);
        std::array<std::uint32_t, sample_block> near;
        std::size_t const found = kernels_.gaps(survivals, at(first), size, bins_, margin, sums_.data(), near.data());
        add_near(scaling, first, {near.data(), found});
    }
    void add_near(logit_scaling scaling, std::size_t first, std::span<std::uint32_t const> near) {
        for (std::uint32_t const j : near) {
            double const a = reference(scaling, first + j);
            sums_[probability_bin(a, bins_)] += a - labels()[first + j];
        }
    }
    /// Floats of k's columns, once a position.
    void narrow() {
        if (narrowed_ > position()) return;
        narrow_prefix_.resize(prefix_.size());
        narrow_logits_.resize(prefix_.size());
        screen_sums_.resize(sums_.size());
        kernels_.narrow(prefix().data(), observed(), narrow_prefix_.data());
        kernels_.narrow(logits().data(), observed(), narrow_logits_.data());
        narrowed_ = position() + 1;
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
    std::size_t narrowed_ = 0;  // positions whose columns were copied to floats
    std::vector<float> narrow_prefix_;
    std::vector<float> narrow_logits_;
    std::vector<std::int64_t> screen_sums_;  // [bin_copies, bins]
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
    for (std::size_t j = 0; j < even.samples(); j += sample_columns::tile) {  // together: their rows share cache lines
        even.copy(data, j, kernels);
        odd.copy(data, j, kernels);
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

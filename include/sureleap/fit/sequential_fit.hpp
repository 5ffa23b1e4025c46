// SPDX-License-Identifier: MIT
//
// The order in which calibrations are fitted: from the first position to the last. The map of position k is the one
// with the best a_k, while those of 1..k-1 stay as fitted. Fitting all positions jointly would be a search in gamma
// dimensions or more. Fitting each c_k by itself would calibrate the factors but not their product, in which errors add
// up.
//
// Every second sample is held out, and says what the fit is worth.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <sureleap/confidence/calibration.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/fit/calibration_data.hpp>
#include <sureleap/fit/confidence_metrics.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace detail {

/// Every second sample, from `first` on, and the survival of its prefix under the scalings so far.
class calibration_half {
public:
    calibration_half(calibration_data const& data, std::size_t first, std::size_t bins)
        : data_(data), first_(first), survival_((data.samples() - first + 1) / 2, 1.0), bins_(bins) {}

    [[nodiscard]] std::size_t samples() const noexcept { return survival_.size(); }
    /// How many positions have their scaling; k is the next one.
    [[nodiscard]] std::size_t position() const noexcept { return position_; }

    [[nodiscard]] std::uint64_t observed() const noexcept {
        std::uint64_t count = 0;
        for_each([&](double, double, bool) { ++count; });
        return count;
    }

    /// f(survival of the prefix before k, logit at k, label at k) for the samples observed at k, in order.
    template <class F>
    void for_each(F const& f) const {
        for (std::size_t j = 0; j < samples(); ++j) {
            std::size_t const i = first_ + 2 * j;
            std::size_t const at = i * data_.block_size + position_;
            if (data_.observed[i] > position_) f(survival_[j], data_.logits[at], data_.labels[at] != 0);
        }
    }

    /// ECE of a_k under `scaling` at k.
    [[nodiscard]] double ece(logit_scaling scaling) {
        std::fill(bins_.begin(), bins_.end(), reliability_bin{});
        for_each([&](double prefix, double logit, bool label) {
            double const a = prefix * scaling(logit);
            reliability_bin& bin = bins_[probability_bin(a, bins_.size())];
            ++bin.count;
            bin.sum_predictions += a;
            bin.sum_labels += label ? 1.0 : 0.0;
        });
        return expected_calibration_error(bins_);
    }

    /// Log loss of a_k under `scaling` at k, summed over the samples observed there.
    [[nodiscard]] double log_loss_sum(logit_scaling scaling) const {
        double sum = 0.0;
        for_each([&](double prefix, double logit, bool label) { sum += log_loss(prefix * scaling(logit), label); });
        return sum;
    }

    /// Gives position k its scaling: later ones multiply on top of it.
    void settle(logit_scaling scaling) {
        for (std::size_t j = 0; j < samples(); ++j) {
            std::size_t const i = first_ + 2 * j;
            if (data_.observed[i] <= position_) continue;
            survival_[j] *= scaling(data_.logits[i * data_.block_size + position_]);
        }
        ++position_;
    }

private:
    calibration_data const& data_;
    std::size_t first_;
    std::size_t position_ = 0;
    std::vector<double> survival_;
    std::vector<reliability_bin> bins_;
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

/// choose(half) -> logit_scaling of half.position(), for the half that is fitted on, where a sample is observed there.
/// Throws if `data` is unusable, with the index and the value.
template <class Choose>
[[nodiscard]] sequential_fit fit_sequentially(calibration_data const& data, std::size_t bins, Choose const& choose) {
    check_calibration_shapes(data);
    check_calibration_values(data);
    calibration_half fitted(data, 0, bins);
    calibration_half held_out(data, 1, bins);
    calibration_half untouched(data, 1, bins);
    sequential_fit out{fitted.samples(), held_out.samples(), {}};
    for (std::size_t k = 0; k < data.block_size; ++k) {
        position_fit p;
        p.fit_observed = fitted.observed();
        p.evaluation_observed = held_out.observed();
        if (p.fit_observed > 0) p.scaling = choose(fitted);
        if (p.evaluation_observed > 0) {
            p.ece_before = untouched.ece({});
            p.ece_after = held_out.ece(p.scaling);
        }
        fitted.settle(p.scaling);
        held_out.settle(p.scaling);
        untouched.settle({});
        out.positions.push_back(p);
    }
    return out;
}

}  // namespace detail
SURELEAP_END_NAMESPACE

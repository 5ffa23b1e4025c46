// SPDX-License-Identifier: MIT
//
// How well scalings serve samples, written down plainly: the library's definition of what the fits minimise and report, in
// std::exp and in the order of the samples. calibration_columns.hpp finds the same many times faster, up to rounding, and
// where rounding could decide, this does. Tests compare the two.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <sureleap/confidence/calibration.hpp>
#include <sureleap/confidence/calibration_data.hpp>
#include <sureleap/confidence/metrics.hpp>
#include <sureleap/config.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace detail {

/// Every second sample, from `first` on, and the survival of its prefix under the scalings so far.
class reference_half {
public:
    reference_half(calibration_data const& data, std::size_t first, std::size_t bins)
        : data_(data), first_(first), survival_((data.samples() - first + 1) / 2, 1.0), bins_(bins) {}

    [[nodiscard]] std::size_t samples() const noexcept { return survival_.size(); }

    [[nodiscard]] std::uint64_t observed(std::size_t k) const noexcept {
        std::uint64_t count = 0;
        for_each(k, [&](double, double, bool) { ++count; });
        return count;
    }

    /// f(survival of the prefix before k, logit at k, label at k) for the samples observed at k, in order.
    template <class F>
    void for_each(std::size_t k, F const& f) const {
        for (std::size_t j = 0; j < samples(); ++j) {
            std::size_t const i = first_ + 2 * j;
            std::size_t const at = i * data_.block_size + k;
            if (data_.observed[i] > k) f(survival_[j], data_.logits[at], data_.labels[at] != 0);
        }
    }

    /// ECE of a_k under `scaling` at k.
    [[nodiscard]] double ece(std::size_t k, logit_scaling scaling) {
        std::fill(bins_.begin(), bins_.end(), reliability_bin{});
        for_each(k, [&](double prefix, double logit, bool label) {
            double const a = prefix * scaling(logit);
            reliability_bin& bin = bins_[probability_bin(a, bins_.size())];
            ++bin.count;
            bin.sum_predictions += a;
            bin.sum_labels += label ? 1.0 : 0.0;
        });
        return expected_calibration_error(bins_);
    }

    /// Mean log loss of a_k under `scaling` at k.
    [[nodiscard]] double mean_log_loss(std::size_t k, logit_scaling scaling) const {
        double sum = 0.0;
        std::uint64_t count = 0;
        for_each(k, [&](double prefix, double logit, bool label) {
            sum += log_loss(prefix * scaling(logit), label);
            ++count;
        });
        return sum / static_cast<double>(count);
    }

    /// Settles position k: later ones multiply on top of it.
    void fix(std::size_t k, logit_scaling scaling) {
        for (std::size_t j = 0; j < samples(); ++j) {
            std::size_t const i = first_ + 2 * j;
            if (data_.observed[i] > k) survival_[j] *= scaling(data_.logits[i * data_.block_size + k]);
        }
    }

private:
    calibration_data const& data_;
    std::size_t first_;
    std::vector<double> survival_;
    std::vector<reliability_bin> bins_;
};

}  // namespace detail
SURELEAP_END_NAMESPACE

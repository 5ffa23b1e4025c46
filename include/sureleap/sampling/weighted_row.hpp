// SPDX-License-Identifier: MIT
//
// A row of logits l as weights: w(i) = exp((l_i - shift) / T) for kept entries i, 0 for others. In: the row, a table
// of passes (detail/kernel/rows.hpp), a shift, 1 / T and a cutoff. Out: weights when asked for, sums of them, and the
// entry at which a cumulative sum exceeds a threshold.
//
// Entries are those of the row, whatever tokens they stand for. Weights are evaluated in the compute type of T and
// summed in double. A question about one entry takes O(1), a sum or a search O(size), at the speed of reading the row.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/detail/kernel/native.hpp>
#include <sureleap/detail/kernel/rows.hpp>
#include <sureleap/sampling/quantile.hpp>
#include <sureleap/sampling/truncation.hpp>

SURELEAP_BEGIN_NAMESPACE

namespace detail {

/// The weights of one row. Trivially copyable; the row and the table must outlive it.
template <class T>
class weighted_row {
public:
    using real = compute_t<T>;

    weighted_row() = default;
    weighted_row(std::span<T const> logits, row_functions<T> const& functions) noexcept
        : logits_(logits), functions_(&functions) {}

    [[nodiscard]] std::span<T const> logits() const noexcept { return logits_; }
    [[nodiscard]] std::size_t size() const noexcept { return logits_.size(); }
    [[nodiscard]] row_functions<T> const& functions() const noexcept { return *functions_; }
    [[nodiscard]] real shift() const noexcept { return shift_; }
    [[nodiscard]] real scale() const noexcept { return scale_; }
    /// No cutoff: every finite logit is kept.
    [[nodiscard]] bool keeps_all() const noexcept { return cutoff_.keeps_all(); }
    [[nodiscard]] bool keeps(std::size_t i) const noexcept { return cutoff_.keeps(logits_, i); }

    void shift_by(real shift) noexcept { shift_ = shift; }
    void scale_by(real scale) noexcept { scale_ = scale; }
    /// The cutoff of `how`; the mode is known, and weights are relative to its. Returns what it keeps, in `order`.
    [[nodiscard]] std::span<token_id> cut(transform const& how, std::span<token_id> order) noexcept {
        functions_ = &functions_beside(top(), scale_);
        auto const kept = truncate(logits_, how, mode_, order, *functions_);
        cutoff_ = kept.last;
        return kept.tokens;
    }
    /// Only what is not behind that entry.
    void keep(cutoff<T> const& last) noexcept { cutoff_ = last; }
    /// The reference, which subtracts before it multiplies: for numbers near the end of their range.
    void use_reference() noexcept { functions_ = &reference(); }

    // ---- weights -----------------------------------------------------------------------------------------------

    [[nodiscard]] real exponent(std::size_t i) const noexcept { return (load(logits_[i]) - shift_) * scale_; }
    [[nodiscard]] real weight(std::size_t i) const noexcept {
        real weight = 0;
        weights(i, {&weight, 1});
        return weight;
    }
    /// The same of entries first, first + 1 ...
    void weights(std::size_t first, std::span<real> out) const noexcept {
        functions_->weights(logits_.data() + first, out.size(), shift_, scale_, out.data());
        if (cutoff_.keeps_all()) return;
        for (std::size_t i = 0; i < out.size(); ++i) {
            if (!cutoff_.keeps(logits_, first + i)) out[i] = real(0);
        }
    }
    /// The same of some entries, at most a segment.
    void weights_of(std::span<token_id const> entries, std::span<real> out) const noexcept {
        if (entries.empty()) return;
        segment<T> some;
        SURELEAP_EXPECTS(entries.size() <= some.size());
        for (std::size_t i = 0; i < entries.size(); ++i) some[i] = logits_[static_cast<std::size_t>(entries[i])];
        functions_->weights(some.data(), entries.size(), shift_, scale_, out.data());
        if (cutoff_.keeps_all()) return;
        for (std::size_t i = 0; i < entries.size(); ++i) {
            if (!cutoff_.keeps(logits_, static_cast<std::size_t>(entries[i]))) out[i] = real(0);
        }
    }

    // ---- the largest logit -------------------------------------------------------------------------------------

    /// Its first entry; a pass unless it is known.
    [[nodiscard]] token_id mode() const noexcept {
        return mode_ != no_token ? mode_ : static_cast<token_id>(functions_->mode(logits_.data(), logits_.size()));
    }
    void know_mode(token_id mode) noexcept { mode_ = mode; }
    /// Makes it known. False if there is none: a logit is NaN or +inf, or none is finite.
    [[nodiscard]] bool find_mode() noexcept {
        std::size_t const i = logits_.empty() ? 0 : functions_->mode(logits_.data(), logits_.size());
        if (i == logits_.size()) return false;
        mode_ = static_cast<token_id>(i);
        return true;
    }
    /// Once it is known.
    [[nodiscard]] real top() const noexcept { return load(logits_[static_cast<std::size_t>(mode_)]); }
    /// Some logit of ordinary size, so that one pass does: weights are taken relative to it, and need not be below 1.
    [[nodiscard]] real typical_logit() const noexcept {
        real largest = -std::numeric_limits<real>::infinity();
        for (T const& l : logits_.first(std::min<std::size_t>(logits_.size(), 64))) {
            largest = std::max(largest, load(l));
        }
        return largest;
    }
    /// The mode's share of all weights at temperature 1.
    [[nodiscard]] double peak() const noexcept {
        weighted_row law = *this;
        law.functions_ = &functions_beside(top(), real(1));
        law.shift_ = top();
        law.scale_ = real(1);
        // Nearly 1, but one of the sum's: a quotient of two roundings may exceed 1.
        return static_cast<double>(law.weight(static_cast<std::size_t>(mode_))) / law.sum();
    }

    // ---- sums --------------------------------------------------------------------------------------------------

    /// The sum of all weights, without a cutoff; those of blocks into `sums`, if it is not empty.
    [[nodiscard]] double sum(std::span<double> sums = {}) const noexcept {
        return functions_->sum(logits_.data(), logits_.size(), shift_, scale_, sums.empty() ? nullptr : sums.data());
    }
    [[nodiscard]] double sum_of(std::size_t first, std::size_t count) const noexcept {
        return functions_->sum(logits_.data() + first, count, shift_, scale_, nullptr);
    }
    /// The table has a pass for bounds.
    [[nodiscard]] bool can_bound() const noexcept { return functions_->bound != nullptr; }
    /// Not less than the sum. What is not less than those of blocks goes into `sums`.
    [[nodiscard]] double bound(std::span<double> sums) const noexcept {
        return functions_->bound(logits_.data(), logits_.size(), shift_, scale_, sums.data());
    }
    /// The sum of the weights that a cutoff keeps: those of `kept`, which this may sort. O(size), and O(m log m) for
    /// few.
    [[nodiscard]] double sum_kept(std::span<token_id> kept, std::span<double> sums) const noexcept {
        double total = 0.0;
        segment<real> some;
        std::fill(sums.begin(), sums.end(), 0.0);
        auto const add = [&](std::size_t first, double sum) {
            if (!sums.empty()) sums[first / row_block] += sum;
            total += sum;
        };
        if (kept.size() <= logits_.size() / 16) {
            std::sort(kept.begin(), kept.end());
            for (std::size_t k = 0; k < kept.size();) {  // in the order of the loop below, which adds zeros as well
                std::size_t const first = static_cast<std::size_t>(kept[k]) / some.size() * some.size();
                double sum = 0.0;
                for (; k < kept.size() && static_cast<std::size_t>(kept[k]) - first < some.size(); ++k) {
                    sum += static_cast<double>(weight(static_cast<std::size_t>(kept[k])));
                }
                add(first, sum);
            }
            return total;
        }
        for (std::size_t first = 0; first < logits_.size(); first += some.size()) {
            auto const here = std::span(some).first(std::min(some.size(), logits_.size() - first));
            weights(first, here);
            double sum = 0.0;
            for (real const weight : here) sum += static_cast<double>(weight);
            add(first, sum);
        }
        return total;
    }

    // ---- searches: an entry, or the size if there is none ------------------------------------------------------

    /// Without a cutoff: the first of entries first .. first + count - 1 at which their cumulative weight exceeds
    /// `within`.
    [[nodiscard]] std::size_t reach(std::size_t first, std::size_t count, double within) const noexcept {
        std::size_t const i = functions_->reach(logits_.data() + first, count, shift_, scale_, within);
        return i < count ? first + i : logits_.size();
    }
    /// With one: from `block` on, before `end`.
    [[nodiscard, gnu::noinline]] std::size_t find_kept(part_of_row const& block, std::size_t end,
                                                       double threshold) const noexcept {
        std::size_t const i =
            find_weight<real>(block, end, block_sums_are::exact, threshold,
                              [this](std::size_t first, std::span<real> out) { weights(first, out); });
        return i == end ? logits_.size() : i;
    }
    /// Where `within`, behind the weights of `count` entries from `first` on and before `claimed`, leads to.
    [[nodiscard]] std::size_t find_leftover(std::size_t first, std::size_t count, double claimed,
                                            double within) const noexcept {
        return detail::find_leftover<real>({first, 0.0}, first + count, claimed, within, size(),
                                           [this](std::size_t at, std::span<real> out) { weights(at, out); });
    }

private:
    [[nodiscard]] static row_functions<T> const& reference() noexcept {
        return scalar_kernels<row_kernels>.template get<T>();
    }
    // For weights relative to the mode's, whose logit is `top`: the reference where that is so large that its product
    // with `scale` is rounded to more than weights say.
    [[nodiscard]] row_functions<T> const& functions_beside(real top, real scale) const noexcept {
        real one = 0;
        functions_->weights(logits_.data() + mode_, 1, top, scale, &one);
        return one > real(0.5) && one < real(2) ? *functions_ : reference();
    }

    std::span<T const> logits_{};
    row_functions<T> const* functions_ = nullptr;
    real shift_ = 0;
    real scale_ = 1;
    cutoff<T> cutoff_{};
    token_id mode_ = no_token;  // index into the row, if known; what a law without a row is told
};

}  // namespace detail
SURELEAP_END_NAMESPACE

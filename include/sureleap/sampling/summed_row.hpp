// SPDX-License-Identifier: MIT
//
// What is known of the sum of a row's weights (weighted_row.hpp): the sum itself, bounds of it, what the row brought,
// or nothing. In: a weighted row, room for sums of its blocks, and how much is wanted. Out: bounds of the sum, and the
// entry that a share of it leads to.
//
// A row's own normaliser and block sums save passes and are checked before they decide anything. A row whose own prove
// wrong has no law. To know more than was wanted takes a pass, O(size). With block sums a search looks at one block,
// O(size / 1024).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/detail/kernel/rows.hpp>
#include <sureleap/sampling/interval.hpp>
#include <sureleap/sampling/quantile.hpp>
#include <sureleap/sampling/weighted_row.hpp>

SURELEAP_BEGIN_NAMESPACE

/// What the constructor makes of the sums of weights: the sums; bounds of them, at the speed of reading the row;
/// nothing.
enum class totals : unsigned char { exact, bounded, none };

namespace detail {

/// One row and its sum. What takes or makes a sum returns false if it found that there is no law: a logit is NaN or
/// +inf, or none is finite, or what the row brought is not its own.
template <class T>
class summed_row {
public:
    using real = compute_t<T>;

    summed_row() = default;
    summed_row(weighted_row<T> const& row, std::span<double> sums) noexcept : row_(row), sums_(sums) {}

    [[nodiscard]] weighted_row<T> const& row() const noexcept { return row_; }
    [[nodiscard]] weighted_row<T>& row() noexcept { return row_; }

    // ---- how to begin: one of these ----------------------------------------------------------------------------

    /// The sum is somebody else's affair.
    void leave_out() noexcept { known_ = totals::none; }
    /// Nothing to sum: one entry has it all.
    void make_one() noexcept { total_ = 1.0; }
    /// The weights that a cutoff keeps, which are those of `kept`.
    [[nodiscard]] bool sum_kept(std::span<token_id> kept) noexcept {
        total_ = row_.sum_kept(kept, sums_);
        return is_sum(total_);
    }
    /// All weights, now or later.
    [[nodiscard]] bool sum_all(totals made) noexcept {
        real const near = row_.typical_logit();
        return put_off(near, made) || sum_up(near);
    }
    /// The producer's normaliser: exp(l - log_normaliser) is p itself up to its own error, and a NaN or +inf would have
    /// reached it. So their sum is 1 within the tolerance, which is bounds of it.
    [[nodiscard]] bool take(logits_row<T> const& row) noexcept {
        row_.shift_by(*row.log_normaliser);
        if (!std::isfinite(row_.shift())) return false;
        is_given_ = true;
        if (row.block_sums.size() == row_blocks(row.values.size())) given_ = row.block_sums;
        known_ = totals::bounded;
        total_ = 1.0 + normaliser_tolerance;
        loose_ = 2.0 * normaliser_tolerance / (1.0 - 1.0 / loosest_bound);
        return true;
    }

    // ---- what is known -----------------------------------------------------------------------------------------

    /// total() is known, and every search finds an entry.
    [[nodiscard]] bool is_settled() const noexcept { return known_ == totals::exact; }
    [[nodiscard]] double total() const noexcept {
        bool const is_known = is_settled() || (known_ == totals::bounded && loose_ == 0.0);
        return is_known ? total_ : row_.sum();
    }
    /// Where total() lies; a pass if nothing is known.
    [[nodiscard]] interval mass() const noexcept {
        if (known_ == totals::bounded) return {total_ - loose_ * (1.0 - 1.0 / loosest_bound), total_};
        double const sum = total();
        return {sum, sum};
    }
    /// How far total() may be from the sum of the weights, as a part of it, once it is known.
    [[nodiscard]] double rounding() const noexcept {
        return is_given_ ? given_room() : sum_rounding_of<real>(row_.size());
    }
    /// There is no such weight, if the sum is what the row brought.
    [[nodiscard]] bool doubts(double weight) const noexcept {
        return is_given_ && !(weight <= 1.0 + normaliser_tolerance);
    }
    /// Sums of blocks, if they are made, perhaps as bounds: 0 where a block has no weight.
    [[nodiscard]] std::span<double const> sums() const noexcept {
        return sums_are_made() ? std::span<double const>(sums_) : std::span<double const>{};
    }
    /// The first entry of the heaviest block; 0 if there are no sums of blocks.
    [[nodiscard]] std::size_t heaviest_block() const noexcept {
        auto const heaviest = [](auto const& sums) {
            if (sums.empty()) return std::size_t{0};
            return row_block * static_cast<std::size_t>(std::max_element(sums.begin(), sums.end()) - sums.begin());
        };
        return !given_.empty() ? heaviest(given_) : sums_are_made() ? heaviest(sums_) : 0;
    }

    // ---- to know more ------------------------------------------------------------------------------------------

    /// Brings mass() closer: first the sums of the heavy blocks are made, then all. What a row brought is added up.
    [[nodiscard]] bool refine() noexcept {
        if (is_given_ && !is_settled()) return add_up();
        if (known_ == totals::bounded && loose_ == total_ && sum_heavy_blocks()) return true;
        return settle();
    }
    [[nodiscard]] bool settle() noexcept {
        if (is_settled()) return true;
        bool const is_law = is_given_ ? add_up() : sum_up(row_.shift());
        known_ = totals::exact;
        return is_law;
    }
    /// Of what the row brought; nothing of others.
    [[nodiscard]] bool add_up() noexcept {
        if (!is_given_ || loose_ == 0.0) return true;
        if (given_.empty()) return distrust();
        total_ = detail::sum_of<real>(given_);
        loose_ = 0.0;
        return adds_up(total_);
    }
    /// What the row brought is held against a pass, and no longer used; nothing of others.
    [[nodiscard, gnu::cold, gnu::noinline]] bool distrust() noexcept {
        if (!is_given_) return true;
        is_given_ = false;
        given_ = {};
        loose_ = 0.0;
        known_ = totals::exact;
        total_ = row_.sum(sums_);
        return adds_up(total_);
    }

    // ---- searches ----------------------------------------------------------------------------------------------

    /// The entry at which the cumulative weight exceeds `threshold`, the size if there is none.
    [[nodiscard]] std::size_t find(double threshold) const noexcept {
        auto const [block, count, sum, room] = find_block(threshold);
        if (!row_.keeps_all()) return row_.find_kept(block, block.first + count, threshold);
        double const within = (threshold - block.before) * (1.0 + room);
        std::size_t const i = row_.reach(block.first, count, within);
        if (i < row_.size() || known_ == totals::bounded) return i;
        return row_.find_leftover(block.first, count, (sum == sum_of_row ? total() : sum) * (1.0 + room), within);
    }

private:
    // What rounding a block sum and the normaliser is of it, and of an exponent that the normaliser is taken from.
    [[nodiscard]] double given_room() const noexcept {
        constexpr double unit = 0.5 * static_cast<double>(std::numeric_limits<real>::epsilon());
        return sum_rounding<real> + (4.0 + 2.0 * std::abs(static_cast<double>(row_.shift()))) * unit;
    }
    [[nodiscard]] static bool adds_up(double sum) noexcept { return std::abs(sum - 1.0) <= normaliser_tolerance; }
    [[nodiscard]] static bool is_sum(double total) noexcept {
        return total > 0.0 && total < std::numeric_limits<double>::infinity();
    }
    // There are numbers in sums_, of which a search finds its block.
    [[nodiscard]] bool sums_are_made() const noexcept { return known_ != totals::none && !is_given_; }

    // The block in which the cumulative weight exceeds `threshold`, or the row. `sum` is what it is taken to sum to (of
    // a row see total()), `room` the share by which that may be below its weights.
    struct found_block {
        part_of_row at;
        std::size_t count;
        double sum;
        double room;
    };
    static constexpr double sum_of_row = -1.0;
    template <class Sum>
    [[nodiscard]] found_block find_block(std::span<Sum const> sums, double threshold, double room) const noexcept {
        auto const at = detail::find_block(sums, row_.size(), threshold);
        if (at.first == row_.size()) return {at, 0, 0.0, room};  // there is no weight in any of them
        return {at, std::min(row_block, row_.size() - at.first), static_cast<double>(sums[at.first / row_block]), room};
    }
    [[nodiscard]] found_block find_block(double threshold) const noexcept {
        if (!given_.empty()) return find_block(given_, threshold, given_room());
        bool const bounds = known_ == totals::bounded && !is_given_;  // which have room enough
        double const room = bounds ? 0.0 : sum_rounding_of<real>(row_.size());
        if (sums_are_made() && !sums_.empty()) return find_block(std::span<double const>(sums_), threshold, room);
        return {{0, 0.0}, row_.size(), sum_of_row, room};
    }

    // The sum relative to `shift`. False if it is no number, or so large that its inverse would lose digits, or if the
    // weight of `shift` itself is not near 1.
    [[nodiscard]] bool sum_from(real shift) noexcept {
        if (!std::isfinite(shift)) return false;
        row_.shift_by(shift);
        total_ = row_.sum(sums_);
        return total_ > 0.5 && total_ < 1e30;
    }
    // Leaves the sum for later, if that was wanted and may save something.
    [[nodiscard]] bool put_off(real shift, totals made) noexcept {
        if (made == totals::exact || !std::isfinite(shift)) return false;
        row_.shift_by(shift);
        if (made == totals::bounded) {
            if (sums_.size() < 2 || !row_.can_bound()) return false;
            total_ = row_.bound(sums_);
            if (!(total_ > 0.5 * loosest_bound && total_ < 1e30)) return false;
            loose_ = total_;
        }
        known_ = made;
        return true;
    }
    // Of blocks with more than their share of the total. False if there is none.
    [[nodiscard]] bool sum_heavy_blocks() noexcept {
        double const share = total_ / static_cast<double>(sums_.size());
        double loose = 0.0;
        double total = 0.0;
        for (std::size_t b = 0; b < sums_.size(); ++b) {
            if (sums_[b] > share) {
                std::size_t const first = b * row_block;
                sums_[b] = row_.sum_of(first, std::min(row_block, row_.size() - first));
            } else {
                loose += sums_[b];
            }
            total += sums_[b];
        }
        bool const any = loose < total_;
        total_ = total;
        loose_ = loose;
        return any;
    }
    // If `shift` is too far below others, or the row has no law: for those that have one the largest logit does, and
    // for numbers near the end of their range the reference. False if there is none, also where weights are no numbers:
    // 1 / temperature is 0 where the temperature is beyond the format, and 0 times -inf is NaN.
    [[nodiscard]] bool sum_up(real shift) noexcept {
        if (sum_from(shift)) return true;
        if (!row_.find_mode()) return false;
        real const top = row_.top();
        if (sum_from(top)) return true;
        row_.use_reference();
        static_cast<void>(sum_from(top));
        return is_sum(total_);
    }

    weighted_row<T> row_{};
    std::span<double> sums_{};       // of blocks, that this made
    std::span<real const> given_{};  // of blocks, that the row brought
    double total_ = 0.0;
    double loose_ = 0.0;            // of bounds: the part of total_ that no sum was made of
    totals known_ = totals::exact;  // of total_ and sums_
    bool is_given_ = false;         // total_ rests on what the row brought, sums_ is not made
};

}  // namespace detail
SURELEAP_END_NAMESPACE

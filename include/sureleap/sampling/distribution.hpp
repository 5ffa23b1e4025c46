// SPDX-License-Identifier: MIT
//
// The distribution that a row of logits l gives under a temperature T and a truncation: p(v) = exp((l_v - shift) / T) /
// total for kept tokens v, 0 for others. The object has constant size and refers to the row, which the caller owns.
// Probabilities are not stored: p(v) is evaluated when asked for, and asking for all of them takes a pass over the row.
//
// The caller may pass the row's total and block sums with it (logits_row). They save passes and are checked: if they
// are wrong, tokens still have the probabilities that the logits give.
//
// Target and draft use the same code, each with its own transform. A recorded draft row gives the same q again, so what
// verification reads is what was sampled from.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/detail/kernel/native.hpp>
#include <sureleap/detail/kernel/rows.hpp>
#include <sureleap/sampling/quantile.hpp>
#include <sureleap/sampling/random.hpp>
#include <sureleap/sampling/truncation.hpp>
#include <sureleap/sampling/vocabulary_map.hpp>

SURELEAP_BEGIN_NAMESPACE

/// What the constructor makes of the sums of weights: the sums; bounds of them, at the speed of reading the row; nothing.
enum class totals : unsigned char { exact, bounded, none };

/// A distribution over the target vocabulary given by a row of logits in storage format T, or one-hot.
///
/// It is a weight function (size, operator[], total), so draws take it as it is. Weights are evaluated in the compute type of T
/// by one table of passes (detail/kernel/rows.hpp) and summed in double. The distribution is exact for these weights, up to the
/// rounding of a sum. Trivially copyable; the row, the block sums, the table and the vocabulary map must outlive it.
template <class T>
class distribution {
    static_assert(is_storage_v<T>, "distribution: T must be float, double, sureleap::bf16 or sureleap::half");

public:
    using value_type = T;
    using real = compute_t<T>;
    using weight_type = real;

    /// Not a distribution: valid() is false.
    distribution() = default;

    /// The law of `row` under `how`. `order` needs one entry per logit if `how` truncates, else it may be empty. `sums`
    /// holds the weights' sums by blocks, row_blocks(size) of them, so that a draw looks at one block; without it a draw
    /// looks at the row. Invalid (no law) if a logit is NaN or +inf or if none is finite. `map` translates a draft row to
    /// target ids. O(size), plus O(m log size) for a top-p that keeps m tokens; O(size / 1024) where the row brings its
    /// normaliser and block sums.
    ///
    /// With totals::bounded a row of several blocks that is not truncated may be left with bounds of its sums. One that
    /// brings its normaliser always is. With totals::none any row is left without sums. The law is the same and answers
    /// every question, by a pass over the row where the answer needs total(). settle() makes that pass once and for
    /// all. With totals::none valid() says nothing before that. Copies share `sums`.
    distribution(logits_row<T> row, transform const& how, std::span<token_id> order, vocabulary_view map = {},
                 row_kernels const& kernels = native_kernels<row_kernels>(), std::span<double> sums = {},
                 totals made = totals::exact) noexcept
        : logits_(row.values), map_(map), functions_(&kernels.get<T>()), sums_(sums) {
        SURELEAP_EXPECTS(!map || map.draft_size() == row.values.size());
        SURELEAP_EXPECTS(sums.empty() || sums.size() == row_blocks(row.values.size()));
        size_ = map_ ? map_.target_size() : logits_.size();
        if (row.log_normaliser && how.temperature == 1.0 && !how.truncates()) {
            take(row, made);
            return;
        }
        if (how.greedy()) {
            kind_ = find_mode() ? kind::one_hot : kind::invalid;
            total_ = 1.0;
            return;
        }
        scale_ = static_cast<real>(1.0 / how.temperature);
        if (how.truncates()) {
            if (!find_mode()) return;
            shift_ = load(logits_[static_cast<std::size_t>(mode_)]);
            cutoff_ = detail::truncate(logits_, how, mode_, order);
            sum_kept();
            if (!is_sum(total_)) return;
        } else if (real const near = typical_logit(); !put_off(near, made) && !sum_up(near)) {
            return;
        }
        kind_ = kind::dense;
    }

    /// All mass on one (target) token of a vocabulary of `size`: what a deterministic draft samples from.
    [[nodiscard]] static distribution one_hot(std::size_t size, token_id token) noexcept {
        distribution result;
        result.size_ = size;
        result.mode_ = token;
        result.total_ = 1.0;
        result.kind_ = kind::one_hot;
        return result;
    }

    [[nodiscard]] bool valid() const noexcept { return kind_ != kind::invalid; }
    [[nodiscard]] bool is_one_hot() const noexcept { return kind_ == kind::one_hot; }
    /// Target vocabulary size.
    [[nodiscard]] std::size_t size() const noexcept { return size_; }

    /// Unnormalised weight of target token v.
    [[nodiscard]] real operator[](token_id v) const noexcept {
        if (kind_ == kind::one_hot) return v == mode() ? real(1) : real(0);
        token_id const i = map_ ? map_.to_draft(v) : v;
        return i == no_token ? real(0) : row_weight(static_cast<std::size_t>(i));
    }
    /// The weights of tokens first, first + 1 ..., as many as fit `out`.
    void evaluate(token_id first, std::span<real> out) const noexcept {
        if (kind_ == kind::dense && !map_) return row_weights(static_cast<std::size_t>(first), out);
        if (auto const listed = support(); !listed.empty()) {  // far fewer than there are tokens
            std::fill(out.begin(), out.end(), real(0));
            auto const end = first + static_cast<token_id>(out.size());
            auto at = std::lower_bound(listed.begin(), listed.end(), first);
            for (; at != listed.end() && *at < end; ++at) {
                out[static_cast<std::size_t>(*at - first)] = row_weight(static_cast<std::size_t>(at - listed.begin()));
            }
            return;
        }
        for (std::size_t i = 0; i < out.size(); ++i) out[i] = (*this)[first + static_cast<token_id>(i)];
    }
    /// The sum of all weights.
    [[nodiscard]] double total() const noexcept {
        bool const is_known = is_settled() || (known_ == totals::bounded && loose_ == 0.0);
        return is_known ? total_ : functions_->sum(logits_.data(), logits_.size(), shift_, scale_, nullptr);
    }
    /// total() is known, and every draw finds a token.
    [[nodiscard]] bool is_settled() const noexcept { return known_ == totals::exact; }
    /// Makes it so. O(size) if it is not; O(size / 1024) if the row brought block sums.
    void settle() noexcept {
        if (is_settled()) return;
        if (is_given_) {
            add_up();
            known_ = totals::exact;
            return;
        }
        known_ = totals::exact;
        if (!sum_up(shift_)) kind_ = kind::invalid;
    }
    /// Brings the bounds of total() closer, together at last: first the sums of the heavy blocks are made, which hold most
    /// of the mass in a small part of the row, then all. What a row brought is added up.
    void narrow() noexcept {
        if (is_given_ && !is_settled()) return add_up();
        if (known_ == totals::bounded && loose_ == total_ && sum_heavy_blocks()) return;
        settle();
    }
    /// The same of a row that brought its normaliser, before it is drawn from: then total() is known. Nothing of others.
    void add_up() noexcept {
        if (!is_given_ || loose_ == 0.0) return;
        if (given_.empty()) return recount();
        double const sum = detail::sum_of<real>(given_);
        if (!adds_up(sum)) {
            misled_ = true;
            return recount();
        }
        total_ = sum;
        loose_ = 0.0;
    }
    /// Settles by a pass over the row, whatever it brought.
    [[gnu::cold, gnu::noinline]] void recount() noexcept {
        if (!is_given_) return settle();
        is_given_ = false;
        given_ = {};
        loose_ = 0.0;
        known_ = totals::exact;
        total_ =
            functions_->sum(logits_.data(), logits_.size(), shift_, scale_, sums_.empty() ? nullptr : sums_.data());
        if (adds_up(total_)) return;
        misled_ = true;
        if (!sum_up(typical_logit())) kind_ = kind::invalid;
    }
    /// For a draw that missed. Bounds allow that. But if the row brought block sums, a sum is larger than its block, by
    /// a rounding or because it is wrong. A pass tells which.
    void doubt() noexcept {
        if (is_given_) recount();
    }
    /// There is no such weight, if the sum is what the row brought.
    [[nodiscard]] bool doubts(double weight) const noexcept {
        return is_given_ && !(weight <= 1.0 + normaliser_tolerance);
    }
    /// What the row brought proved wrong. The law is the row's own now; what was decided by it before may not be.
    [[nodiscard]] bool misled() const noexcept { return misled_; }
    /// What total() is at least and at most; without a pass where that is known, and both total() where that is.
    [[nodiscard]] double least_total() const noexcept {
        return known_ == totals::bounded ? total_ - loose_ * (1.0 - 1.0 / loosest_bound) : total();
    }
    [[nodiscard]] double largest_total() const noexcept { return known_ == totals::bounded ? total_ : total(); }
    [[nodiscard]] double probability(token_id v) const noexcept { return static_cast<double>((*this)[v]) / total(); }
    /// log probability(v), without underflow; -inf for tokens that cannot be drawn.
    [[nodiscard]] double log_probability(token_id v) const noexcept {
        constexpr double none = -std::numeric_limits<double>::infinity();
        if (kind_ == kind::one_hot) return v == mode() ? 0.0 : none;
        token_id const i = map_ ? map_.to_draft(v) : v;
        if (i == no_token || !cutoff_.keeps(logits_, static_cast<std::size_t>(i))) return none;
        // Tables round the shift, which all weights share: only where a weight says nothing is the exponent better.
        auto const weight = static_cast<double>(row_weight(static_cast<std::size_t>(i)));
        if (weight > 1e-30) return std::log(weight / total());
        return static_cast<double>(exponent(static_cast<std::size_t>(i))) - std::log(total());
    }
    /// The first token, in the order of the row, whose cumulative weight exceeds u * total(); never one of weight zero. The
    /// few u that rounded sums leave to no token, behind the weights of a block, are spread over all tokens by their weights:
    /// each token has its probability, up to the rounding of sums in double.
    ///
    /// If only bounds of total() are known, no_token for some u: the others are spread over the tokens by their weights, so
    /// a draw that tries another u then has the law. no_token if there is no law.
    [[nodiscard]] token_id quantile(double u) const noexcept {
        if (kind_ == kind::one_hot) return mode();
        if (kind_ == kind::invalid) return no_token;
        double const threshold = u * largest_total();
        std::size_t const i = find(threshold);
        if (i == logits_.size()) return no_token;
        return map_ ? map_.to_target(static_cast<token_id>(i)) : static_cast<token_id>(i);
    }
    /// The most probable token, the lowest id among equals. O(size) unless the law is greedy or truncated.
    [[nodiscard]] token_id mode() const noexcept {
        token_id i = mode_;
        if (i == no_token) i = static_cast<token_id>(functions_->mode(logits_.data(), logits_.size()));
        return map_ && !logits_.empty() ? map_.to_target(i) : i;
    }

    /// How sure the row is of its mode: probability(mode()), and for a greedy law, which is sure by decree, the mode's
    /// softmax probability at temperature 1. O(size).
    [[nodiscard]] double peak() const noexcept {
        if (kind_ != kind::one_hot || logits_.empty()) return probability(mode());
        T const* const at = logits_.data() + mode_;
        real weight = 0;  // nearly 1, but one of the sum's: a quotient of two roundings may exceed 1
        functions_->weights(at, 1, load(*at), real(1), &weight);
        return static_cast<double>(weight) /
               functions_->sum(logits_.data(), logits_.size(), load(*at), real(1), nullptr);
    }

    /// The tokens that may have weight, ascending, if the row runs over a list of tokens; else empty.
    [[nodiscard]] std::span<token_id const> support() const noexcept {
        return kind_ == kind::dense ? map_.list() : std::span<token_id const>{};
    }

    /// For Gumbel-max draws (sampling/gumbel_max.hpp).
    [[nodiscard]] bool can_list() const noexcept { return !plain_row().empty(); }
    [[nodiscard]] std::size_t above(std::size_t first, std::size_t count, double const* least,
                                    std::uint32_t* out) const noexcept {
        return functions_->above(logits_.data() + first, count, shift_, scale_, least, out);
    }
    /// The heaviest token of the heaviest block, or of the first one if there are no sums of blocks.
    [[nodiscard]] token_id likely() const noexcept {
        auto const heaviest = [](auto const& sums) {
            if (sums.empty()) return std::size_t{0};
            return row_block * static_cast<std::size_t>(std::max_element(sums.begin(), sums.end()) - sums.begin());
        };
        std::size_t const first = !given_.empty() ? heaviest(given_) : sums_are_made() ? heaviest(sums_) : 0;
        std::size_t const count = std::min(row_block, logits_.size() - first);
        std::size_t const i = functions_->mode(logits_.data() + first, count);
        return i == count ? no_token : static_cast<token_id>(first + i);
    }

    /// The row, if weights of it are the law's: no map and no truncation; else empty.
    [[nodiscard]] std::span<T const> plain_row() const noexcept {
        return kind_ == kind::dense && !map_ && cutoff_.keeps_all() ? logits_ : std::span<T const>{};
    }
    [[nodiscard]] row_functions<T> const& functions() const noexcept { return *functions_; }
    /// For row_functions::residual, which takes factor / total() of the weights.
    [[nodiscard]] row_side<real> side(double factor) const noexcept { return {shift_, scale_, factor / total()}; }

private:
    enum class kind : unsigned char { invalid, dense, one_hot };

    [[nodiscard]] real exponent(std::size_t i) const noexcept { return (load(logits_[i]) - shift_) * scale_; }
    [[nodiscard]] real row_weight(std::size_t i) const noexcept {
        real weight = 0;
        row_weights(i, {&weight, 1});
        return weight;
    }
    // The same of row entries first, first + 1 ...
    void row_weights(std::size_t first, std::span<real> out) const noexcept {
        functions_->weights(logits_.data() + first, out.size(), shift_, scale_, out.data());
        if (cutoff_.keeps_all()) return;
        for (std::size_t i = 0; i < out.size(); ++i) {
            if (!cutoff_.keeps(logits_, first + i)) out[i] = real(0);
        }
    }

    // The producer's normaliser: exp(l - log_normaliser) is p itself up to its own error, and a NaN or +inf would have
    // reached it. So their sum is 1 within the tolerance, which is bounds of it.
    void take(logits_row<T> const& row, totals made) noexcept {
        shift_ = *row.log_normaliser;
        if (!std::isfinite(shift_)) return;
        kind_ = kind::dense;
        is_given_ = true;
        if (row.block_sums.size() == row_blocks(row.values.size())) given_ = row.block_sums;
        known_ = totals::bounded;
        total_ = 1.0 + normaliser_tolerance;
        loose_ = 2.0 * normaliser_tolerance / (1.0 - 1.0 / loosest_bound);
        if (made == totals::exact) settle();
    }
    // What rounding a block sum and the normaliser is of it, and of an exponent that the normaliser is taken from.
    [[nodiscard]] double given_room() const noexcept {
        constexpr double unit = 0.5 * static_cast<double>(std::numeric_limits<real>::epsilon());
        return sum_rounding<real> + (4.0 + 2.0 * std::abs(static_cast<double>(shift_))) * unit;
    }
    [[nodiscard]] static bool adds_up(double sum) noexcept { return std::abs(sum - 1.0) <= normaliser_tolerance; }
    // There are numbers in sums_, of which a draw finds its block.
    [[nodiscard]] bool sums_are_made() const noexcept { return known_ != totals::none && !is_given_; }
    // The block in which the cumulative weight exceeds `threshold`, or the row. `sum` is what it is taken to sum to (of
    // a row see total()), `room` the share by which that may be below its weights.
    struct found_block {
        detail::part_of_row at;
        std::size_t count;
        double sum;
        double room;
    };
    static constexpr double sum_of_row = -1.0;
    template <class Sum>
    [[nodiscard]] found_block find_block(std::span<Sum const> sums, double threshold, double room) const noexcept {
        auto const at = detail::find_block(sums, logits_.size(), threshold);
        if (at.first == logits_.size()) return {at, 0, 0.0, room};  // there is no weight in any of them
        return {at, std::min(row_block, logits_.size() - at.first), static_cast<double>(sums[at.first / row_block]),
                room};
    }
    [[nodiscard]] found_block find_block(double threshold) const noexcept {
        if (!given_.empty()) return find_block(given_, threshold, given_room());
        bool const bounds = known_ == totals::bounded && !is_given_;  // which have room enough
        double const room = bounds ? 0.0 : sum_rounding_of<real>(logits_.size());
        if (sums_are_made() && !sums_.empty()) return find_block(std::span<double const>(sums_), threshold, room);
        return {{0, 0.0}, logits_.size(), sum_of_row, room};
    }
    // The entry of the row whose cumulative weight exceeds `threshold`, the size if there is none.
    [[nodiscard]] std::size_t find(double threshold) const noexcept {
        auto const [block, count, sum, room] = find_block(threshold);
        if (!cutoff_.keeps_all()) return find_kept(block, block.first + count, threshold);
        double const within = (threshold - block.before) * (1.0 + room);
        std::size_t const i = functions_->reach(logits_.data() + block.first, count, shift_, scale_, within);
        if (i < count) return block.first + i;
        if (known_ == totals::bounded) return logits_.size();
        return find_leftover(block.first, count, (sum == sum_of_row ? total() : sum) * (1.0 + room), within);
    }
    [[nodiscard, gnu::noinline]] std::size_t find_kept(detail::part_of_row const& block, std::size_t end,
                                                       double threshold) const noexcept {
        std::size_t const i =
            detail::find_weight<real>(block, end, detail::block_sums_are::exact, threshold,
                                      [this](std::size_t first, std::span<real> out) { row_weights(first, out); });
        return i == end ? logits_.size() : i;
    }
    // Where `within`, behind the weights of `count` entries from `first` on and before `claimed`, leads to.
    [[nodiscard, gnu::cold, gnu::noinline]] std::size_t find_leftover(std::size_t first, std::size_t count,
                                                                      double claimed, double within) const noexcept {
        double weights = 0.0;
        detail::segment<real> some;
        for (std::size_t i = 0; i < count; i += some.size()) {
            auto const here = std::span(some).first(std::min(some.size(), count - i));
            row_weights(first + i, here);
            weights += detail::sum_of<real>(here);
        }
        return detail::find_share<real>(logits_.size(), detail::share_between(weights, claimed, within),
                                        [this](std::size_t at, std::span<real> out) { row_weights(at, out); });
    }
    // Some logit of ordinary size, so that one pass does: weights are taken relative to it, and need not be below 1.
    [[nodiscard]] real typical_logit() const noexcept {
        real largest = -std::numeric_limits<real>::infinity();
        for (T const& l : logits_.first(std::min<std::size_t>(logits_.size(), 64))) {
            largest = std::max(largest, load(l));
        }
        return largest;
    }
    // The sum relative to `shift`. False if it is no number, or so large that its inverse would lose digits, or if the
    // weight of `shift` itself is not near 1.
    [[nodiscard]] bool sum_from(real shift) noexcept {
        if (!std::isfinite(shift)) return false;
        shift_ = shift;
        total_ = functions_->sum(logits_.data(), logits_.size(), shift, scale_, sums_.empty() ? nullptr : sums_.data());
        return total_ > 0.5 && total_ < 1e30;
    }
    [[nodiscard]] static bool is_sum(double total) noexcept {
        return total > 0.0 && total < std::numeric_limits<double>::infinity();
    }
    // Leaves the sum for later, if that was wanted and may save something.
    [[nodiscard]] bool put_off(real shift, totals made) noexcept {
        if (made == totals::exact || !std::isfinite(shift)) return false;
        shift_ = shift;
        if (made == totals::bounded) {
            if (sums_.size() < 2 || functions_->bound == nullptr) return false;
            total_ = functions_->bound(logits_.data(), logits_.size(), shift, scale_, sums_.data());
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
                std::size_t const count = std::min(row_block, logits_.size() - first);
                sums_[b] = functions_->sum(logits_.data() + first, count, shift_, scale_, nullptr);
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
    // If `shift` is too far below others, or the row has no law: for those that have one the largest logit does, and for
    // numbers near the end of their range the reference, which subtracts before it multiplies. False if there is none, also
    // where weights are no numbers: 1 / temperature is 0 where the temperature is beyond the format, and 0 times -inf is NaN.
    [[nodiscard]] bool sum_up(real shift) noexcept {
        if (sum_from(shift)) return true;
        if (!find_mode()) return false;
        real const top = load(logits_[static_cast<std::size_t>(mode_)]);
        if (sum_from(top)) return true;
        functions_ = &scalar_kernels<row_kernels>.template get<T>();
        static_cast<void>(sum_from(top));
        return is_sum(total_);
    }
    void sum_kept() noexcept {
        total_ = 0.0;
        detail::segment<real> some;
        std::fill(sums_.begin(), sums_.end(), 0.0);
        for (std::size_t first = 0; first < logits_.size(); first += some.size()) {
            auto const here = std::span(some).first(std::min(some.size(), logits_.size() - first));
            row_weights(first, here);
            double sum = 0.0;
            for (real const weight : here) sum += static_cast<double>(weight);
            if (!sums_.empty()) sums_[first / row_block] += sum;
            total_ += sum;
        }
    }

    [[nodiscard]] bool find_mode() noexcept {
        std::size_t const i = logits_.empty() ? 0 : functions_->mode(logits_.data(), logits_.size());
        if (i == logits_.size()) return false;
        mode_ = static_cast<token_id>(i);
        return true;
    }

    std::span<T const> logits_{};
    vocabulary_view map_{};
    row_functions<T> const* functions_ = nullptr;
    std::span<double> sums_{};       // of blocks, that the law made
    std::span<real const> given_{};  // of blocks, that the row brought
    std::size_t size_ = 0;
    double total_ = 0.0;
    double loose_ = 0.0;  // of bounds: the part of total_ that no sum was made of
    real shift_ = 0;
    real scale_ = 1;
    detail::cutoff<T> cutoff_{};
    token_id mode_ = no_token;  // index into the row, if known; a target id when there is no row
    kind kind_ = kind::invalid;
    totals known_ = totals::exact;  // of total_ and sums_
    bool is_given_ = false;         // total_ rests on what the row brought, sums_ is not made
    bool misled_ = false;           // what it brought proved wrong
};

/// sum_v min(p(v), q(v)) = 1 - TV(p, q): the probability that token rejection accepts x ~ q. Also eq. 8's label c*.
template <class P, class Q>
[[nodiscard]] double overlap(P const& p, Q const& q) noexcept {
    SURELEAP_EXPECTS(p.size() == q.size());
    double sum = 0.0;
    for (token_id v = 0; v < static_cast<token_id>(p.size()); ++v) sum += std::min(p.probability(v), q.probability(v));
    return sum;
}

/// Total variation distance, half the L1 distance, in [0, 1].
template <class P, class Q>
[[nodiscard]] double total_variation(P const& p, Q const& q) noexcept {
    SURELEAP_EXPECTS(p.size() == q.size());
    double sum = 0.0;
    for (token_id v = 0; v < static_cast<token_id>(p.size()); ++v) sum += std::abs(p.probability(v) - q.probability(v));
    return 0.5 * sum;
}

SURELEAP_END_NAMESPACE

// SPDX-License-Identifier: MIT
//
// The distribution that a row of logits l gives under a temperature T and a truncation: p(v) = exp((l_v - shift) / T)
// / total for kept tokens v, 0 for others. The object has constant size and refers to the row, which the caller owns.
// Probabilities are not stored: p(v) is evaluated when asked for, and asking for all of them takes a pass over the
// row.
//
// The caller may pass the row's total and block sums with it (logits_row). They save passes and are checked: a row
// whose own are wrong has no law. What is known of the total is in summed_row.hpp, and the passes over the row in
// weighted_row.hpp.
//
// Target and draft use the same code, each with its own transform. A recorded draft row gives the same q again, so
// what verification reads is what was sampled from.
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
#include <sureleap/sampling/interval.hpp>
#include <sureleap/sampling/random.hpp>
#include <sureleap/sampling/summed_row.hpp>
#include <sureleap/sampling/vocabulary_map.hpp>
#include <sureleap/sampling/weighted_row.hpp>

SURELEAP_BEGIN_NAMESPACE

/// A distribution over the target vocabulary given by a row of logits in storage format T, or one-hot.
///
/// It is a weight function (size, operator[], total), so draws take it as it is. Weights are evaluated in the compute
/// type of T by one table of passes (detail/kernel/rows.hpp) and summed in double. The distribution is exact for these
/// weights, up to the rounding of a sum. Trivially copyable; the row, the block sums, the table and the vocabulary map
/// must outlive it.
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
    /// holds the weights' sums by blocks, row_blocks(size) of them, so that a draw looks at one block; without it a
    /// draw looks at the row. Invalid (no law) if a logit is NaN or +inf or if none is finite. `map` translates a draft
    /// row to target ids. O(size), plus O(m log size) for a top-p that keeps m tokens; O(size / 1024) where the row
    /// brings its normaliser and block sums.
    ///
    /// With totals::bounded a row of several blocks that is not truncated may be left with bounds of its sums. One that
    /// brings its normaliser always is. With totals::none any row is left without sums. The law is the same and answers
    /// every question, by a pass over the row where the answer needs total(). settle() makes that pass once and for
    /// all. With totals::none valid() says nothing before that. Copies share `sums`.
    distribution(logits_row<T> row, transform const& how, std::span<token_id> order, vocabulary_view map = {},
                 row_kernels const& kernels = native_kernels<row_kernels>(), std::span<double> sums = {},
                 totals made = totals::exact) noexcept
        : row_(detail::weighted_row<T>(row.values, kernels.get<T>()), sums), map_(map) {
        SURELEAP_EXPECTS(!map || map.draft_size() == row.values.size());
        SURELEAP_EXPECTS(sums.empty() || sums.size() == row_blocks(row.values.size()));
        size_ = map_ ? map_.target_size() : row.values.size();
        auto& weights = row_.row();
        if (row.log_normaliser && how.temperature == 1.0 && !how.truncates() && says_something(*row.log_normaliser)) {
            if (!row_.take(row)) return;
            kind_ = kind::dense;
            if (made == totals::exact) settle();
            return;
        }
        if (how.greedy()) {
            kind_ = weights.find_mode() ? kind::one_hot : kind::invalid;
            row_.make_one();
            return;
        }
        weights.scale_by(static_cast<real>(1.0 / how.temperature));
        if (how.truncates()) {
            if (!weights.find_mode()) return;
            weights.shift_by(weights.top());
            if (!row_.sum_kept(weights.cut(how, order))) return;
        } else if (!row_.sum_all(made)) {
            return;
        }
        kind_ = kind::dense;
    }

    /// All mass on one (target) token of a vocabulary of `size`: what a deterministic draft samples from.
    [[nodiscard]] static distribution one_hot(std::size_t size, token_id token) noexcept {
        distribution result;
        result.size_ = size;
        result.row_.row().know_mode(token);
        result.row_.make_one();
        result.kind_ = kind::one_hot;
        return result;
    }

    /// What one rank has of a law: its entries of a row, whose tokens are `over`. Nothing is summed, and sums that are
    /// asked for are those of these entries alone. Of a greedy law the scale is infinite.
    [[nodiscard]] static distribution slice(std::span<T const> row, double temperature, vocabulary_view over,
                                            row_kernels const& kernels) noexcept {
        bool const greedy = transform{.temperature = temperature}.greedy();
        distribution result;
        result.row_ = {detail::weighted_row<T>(row, kernels.get<T>()), {}};
        result.row_.row().scale_by(greedy ? std::numeric_limits<real>::infinity()
                                          : static_cast<real>(1.0 / temperature));
        result.row_.leave_out();
        result.map_ = over;
        result.size_ = over.target_size();
        result.kind_ = kind::dense;
        return result;
    }

    [[nodiscard]] bool valid() const noexcept { return kind_ != kind::invalid; }
    [[nodiscard]] bool is_one_hot() const noexcept { return kind_ == kind::one_hot; }
    /// Made by one_hot(), without a row.
    [[nodiscard]] bool is_without_row() const noexcept { return is_one_hot() && row_.row().size() == 0; }
    /// Target vocabulary size.
    [[nodiscard]] std::size_t size() const noexcept { return size_; }

    /// Unnormalised weight of target token v.
    [[nodiscard]] real operator[](token_id v) const noexcept {
        if (kind_ == kind::one_hot) return v == mode() ? real(1) : real(0);
        token_id const i = map_ ? map_.to_draft(v) : v;
        return i == no_token ? real(0) : row_.row().weight(static_cast<std::size_t>(i));
    }
    /// The weights of tokens first, first + 1 ..., as many as fit `out`.
    void evaluate(token_id first, std::span<real> out) const noexcept {
        if (kind_ == kind::dense && !map_) return row_.row().weights(static_cast<std::size_t>(first), out);
        if (auto const listed = support(); !listed.empty()) {  // far fewer than there are tokens
            std::fill(out.begin(), out.end(), real(0));
            auto const end = first + static_cast<token_id>(out.size());
            auto at = std::lower_bound(listed.begin(), listed.end(), first);
            for (; at != listed.end() && *at < end; ++at) {
                out[static_cast<std::size_t>(*at - first)] =
                    row_.row().weight(static_cast<std::size_t>(at - listed.begin()));
            }
            return;
        }
        for (std::size_t i = 0; i < out.size(); ++i) out[i] = (*this)[first + static_cast<token_id>(i)];
    }
    /// The sum of all weights.
    [[nodiscard]] double total() const noexcept { return row_.total(); }
    /// total() is known, and every draw finds a token.
    [[nodiscard]] bool is_settled() const noexcept { return row_.is_settled(); }
    /// Where total() lies; without a pass where something is known of it.
    [[nodiscard]] interval mass() const noexcept { return row_.mass(); }
    /// Brings mass() closer, until it is exact: first the sums of the heavy blocks are made, which hold most of the
    /// mass in a small part of the row, then all. What a row brought is added up.
    void refine() noexcept { keep_if(row_.refine()); }
    /// Makes total() known, and every draw find a token. O(size) if it is not so; O(size / 1024) if the row brought
    /// block sums.
    void settle() noexcept { keep_if(row_.settle()); }
    /// Of a row that brought its normaliser, before it is drawn from: total() is known then. Nothing of others.
    void add_up() noexcept { keep_if(row_.add_up()); }
    /// Of a row that brought its normaliser, where a draw missed or a weight is too large: a pass tells whether what it
    /// brought is rounded, or wrong, and then there is no law. Nothing of others, whose bounds allow that.
    void distrust() noexcept { keep_if(row_.distrust()); }
    /// There is no such weight, if the sum is what the row brought.
    [[nodiscard]] bool doubts(double weight) const noexcept { return row_.doubts(weight); }
    /// How far total() may be from the sum of the weights, as a part of it.
    [[nodiscard]] double rounding() const noexcept { return row_.rounding(); }
    [[nodiscard]] double probability(token_id v) const noexcept { return static_cast<double>((*this)[v]) / total(); }
    /// log probability(v), without underflow; -inf for tokens that cannot be drawn.
    [[nodiscard]] double log_probability(token_id v) const noexcept {
        constexpr double none = -std::numeric_limits<double>::infinity();
        if (kind_ == kind::one_hot) return v == mode() ? 0.0 : none;
        token_id const i = map_ ? map_.to_draft(v) : v;
        if (i == no_token || !row_.row().keeps(static_cast<std::size_t>(i))) return none;
        // Tables round the shift, which all weights share: only where a weight says nothing is the exponent better.
        auto const weight = static_cast<double>(row_.row().weight(static_cast<std::size_t>(i)));
        if (weight > 1e-30) return std::log(weight / total());
        return static_cast<double>(row_.row().exponent(static_cast<std::size_t>(i))) - std::log(total());
    }
    /// The first token, in the order of the row, whose cumulative weight exceeds u * total(); never one of weight zero.
    /// The few u that rounded sums leave to no token, behind the weights of a block, are spread over all tokens by
    /// their weights: each token has its probability, up to the rounding of sums in double.
    ///
    /// If only bounds of total() are known, no_token for some u: the others are spread over the tokens by their
    /// weights, so a draw that tries another u then has the law. no_token if there is no law.
    [[nodiscard]] token_id quantile(double u) const noexcept {
        if (kind_ == kind::one_hot) return mode();
        if (kind_ == kind::invalid) return no_token;
        double const threshold = u * mass().high;
        std::size_t const i = row_.find(threshold);
        if (i == row_.row().size()) return no_token;
        return map_ ? map_.to_target(static_cast<token_id>(i)) : static_cast<token_id>(i);
    }
    /// The most probable token, the lowest id among equals. O(size) unless the law is greedy or truncated.
    [[nodiscard]] token_id mode() const noexcept {
        token_id const i = row_.row().mode();
        return map_ && row_.row().size() > 0 ? map_.to_target(i) : i;
    }

    /// How sure the row is of its mode: probability(mode()), and for a greedy law, which is sure by decree, the mode's
    /// softmax probability at temperature 1. O(size).
    [[nodiscard]] double peak() const noexcept {
        return kind_ == kind::one_hot && row_.row().size() > 0 ? row_.row().peak() : probability(mode());
    }

    /// The tokens that have weight, ascending, in `out`, if the law is one-hot or truncated and they fit; else 0. A
    /// pass over the blocks that have weight.
    [[nodiscard]] std::size_t few_tokens(std::span<token_id> out) const noexcept {
        auto const& row = row_.row();
        if (out.empty()) return 0;
        out[0] = kind_ == kind::one_hot ? mode() : no_token;
        if (kind_ == kind::one_hot) return 1;
        if (kind_ != kind::dense || map_ || row.keeps_all()) return 0;
        std::size_t count = 0;
        for (std::size_t first = 0; first < row.size(); first += row_block) {
            if (!row_.sums().empty() && row_.sums()[first / row_block] == 0.0) continue;
            for (std::size_t i = first; i < std::min(first + row_block, row.size()); ++i) {
                if (!row.keeps(i)) continue;
                if (count == out.size()) return 0;
                out[count++] = static_cast<token_id>(i);
            }
        }
        return count;
    }

    /// The tokens that may have weight, ascending, if the row runs over a list of tokens; else empty.
    [[nodiscard]] std::span<token_id const> support() const noexcept {
        return kind_ == kind::dense ? map_.list() : std::span<token_id const>{};
    }

    /// The one token of a one-hot law, or those of a row over a part of the vocabulary, in its order; and their weights
    /// many at a time. 0: it is neither.
    [[nodiscard]] std::size_t mapped_size() const noexcept {
        if (kind_ == kind::one_hot) return 1;
        return kind_ == kind::dense && map_ ? map_.draft_size() : 0;
    }
    [[nodiscard]] token_id mapped_token(std::size_t i) const noexcept {
        return kind_ == kind::one_hot ? mode() : map_.to_target(static_cast<token_id>(i));
    }
    void mapped_weights(std::size_t first, std::span<real> out) const noexcept {
        if (kind_ == kind::one_hot) return std::fill(out.begin(), out.end(), real(1));
        row_.row().weights(first, out);
    }
    /// Where the token stands in the row, or among those of mapped_token(); beyond the end of both if it has no place
    /// there.
    [[nodiscard]] std::size_t place(token_id v) const noexcept {
        if (kind_ == kind::one_hot) return v == mode() ? 0 : size_;
        return static_cast<std::size_t>(map_ ? map_.to_draft(v) : v);
    }
    /// The sums of the row's blocks, of `row_block` places each, if the law has them.
    [[nodiscard]] std::span<double const> block_sums() const noexcept {
        return kind_ == kind::dense && is_settled() ? row_.sums() : std::span<double const>{};
    }

    /// The weights of some tokens, with the values that they have one at a time.
    void weights_of(std::span<token_id const> tokens, std::span<real> out) const noexcept {
        if (kind_ == kind::dense && !map_) return row_.row().weights_of(tokens, out);
        std::transform(tokens.begin(), tokens.end(), out.begin(), [this](token_id v) { return (*this)[v]; });
    }

    /// For Gumbel-max draws (sampling/gumbel_max.hpp). Of a truncated row tokens are listed that it does not keep as
    /// well.
    [[nodiscard]] bool can_list() const noexcept {
        return kind_ == kind::dense && size_ > 0 && (!map_ || map_.ascends());
    }
    [[nodiscard]] std::size_t above(std::size_t first, std::size_t count, double const* least,
                                    std::uint32_t* out) const noexcept {
        auto const& row = row_.row();
        return row.functions().above(row.logits().data() + first, count, row.shift(), row.scale(), least, out);
    }
    /// The mode where it is known: of a truncated row. Else the heaviest token of the heaviest block, or of the first
    /// one if there are no sums of blocks.
    [[nodiscard]] token_id likely() const noexcept {
        auto const& row = row_.row();
        if (!row.keeps_all()) return mode();
        std::size_t const first = row_.heaviest_block();
        std::size_t const count = std::min(row_block, row.size() - first);
        std::size_t const i = row.functions().mode(row.logits().data() + first, count);
        if (i == count) return no_token;
        auto const place = static_cast<token_id>(first + i);
        return map_ ? map_.to_target(place) : place;
    }

    /// The row that it was made of; empty for one_hot().
    [[nodiscard]] std::span<T const> logits() const noexcept { return row_.row().logits(); }
    /// Nothing of the row is cut off.
    [[nodiscard]] bool keeps_all() const noexcept { return row_.row().keeps_all(); }
    /// What the row runs over; nothing, if that is the vocabulary.
    [[nodiscard]] vocabulary_view const& over() const noexcept { return map_; }
    /// Logits are multiplied with it.
    [[nodiscard]] real scale() const noexcept { return row_.row().scale(); }
    /// The row, if weights of it are the law's: no map and no truncation; else empty.
    [[nodiscard]] std::span<T const> plain_row() const noexcept {
        return kind_ == kind::dense && !map_ && row_.row().keeps_all() ? row_.row().logits() : std::span<T const>{};
    }
    [[nodiscard]] row_functions<T> const& functions() const noexcept { return row_.row().functions(); }
    /// For row_functions::residual, which takes factor / total() of the weights.
    [[nodiscard]] row_side<real> side(double factor) const noexcept {
        return {row_.row().shift(), row_.row().scale(), factor / total()};
    }

private:
    enum class kind : unsigned char { invalid, dense, one_hot };

    // If it is no number, there is no law.
    [[nodiscard]] static bool says_something(real normaliser) noexcept {
        return !std::isfinite(normaliser) || std::abs(static_cast<double>(normaliser)) <= largest_normaliser<real>;
    }
    // What more is known of the sum may be that there is no law.
    void keep_if(bool is_law) noexcept {
        if (!is_law) kind_ = kind::invalid;
    }

    detail::summed_row<T> row_{};
    vocabulary_view map_{};
    std::size_t size_ = 0;
    kind kind_ = kind::invalid;
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

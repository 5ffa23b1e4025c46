// SPDX-License-Identifier: MIT
//
// From logits to a law. A distribution is a description of constant size over a row that somebody else owns:
// p(v) = exp((l_v - shift) / T) / total for kept tokens, 0 otherwise. Probabilities are never materialised; whoever
// needs p(v) evaluates it, and whoever needs all of them makes a pass.
//
// Target and draft go through the same code, each with its own transform, so the q that is sampled is by construction
// the q that is recorded.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <limits>
#include <span>
#include <type_traits>

#include <sureleap/config.hpp>
#include <sureleap/random.hpp>
#include <sureleap/types.hpp>
#include <sureleap/vocabulary.hpp>

SURELEAP_BEGIN_NAMESPACE

/// weights[i] = exp((logits[i] - shift) * scale), i < size; a function of each number alone, wherever it stands. Passes
/// over rows spend their time on this, and the standard library takes it one at a time: an engine with vector
/// instructions brings its own. logits and weights may be the same.
template <std::floating_point Real>
using exponentials = void (*)(Real const* logits, std::size_t size, Real shift, Real scale, Real* weights);

/// What an engine brings for rows of either compute type; null: std::exp.
struct row_kernels {
    exponentials<float> for_float = nullptr;
    exponentials<double> for_double = nullptr;

    template <std::floating_point Real>
    [[nodiscard]] exponentials<Real> get() const noexcept {
        if constexpr (std::is_same_v<Real, float>) {
            return for_float;
        } else {
            return for_double;
        }
    }
};

/// A distribution over the target vocabulary given by a row of logits in storage format T, or one-hot.
///
/// It is also a weight function (size, operator[], total): draws take it as it is. Weights are evaluated in the compute
/// type of T and summed in double in one order, so the law is exact for its own computed weights and the same sum is
/// found by every pass. Trivially copyable; the row (and the vocabulary map) must outlive it.
template <class T>
class distribution {
    static_assert(is_storage_v<T>, "distribution: T must be float, double, sureleap::bf16 or sureleap::half");

public:
    using value_type = T;
    using real = compute_t<T>;
    using weight_type = real;

    /// Not a distribution: valid() is false.
    distribution() = default;

    /// The law of `row` under `how`. `scratch` needs one entry per logit if `how` truncates, else it may be empty.
    /// Invalid (no law) if a logit is NaN or +inf or if none is finite. O(size), plus O(m log size) for a top-p that
    /// keeps m tokens. `map` translates a draft row to target ids.
    distribution(logits_row<T> row, transform const& how, std::span<token_id> scratch,
                 vocabulary_map const* map = nullptr, row_kernels const& kernels = {}) noexcept
        : logits_(row.values), map_(map), exponentials_(kernels.get<real>()) {
        SURELEAP_EXPECTS(map == nullptr || map->draft_size() == row.values.size());
        size_ = map_ ? map_->target_size() : logits_.size();
        if (row.log_normaliser && how.temperature == 1.0 && !how.truncates()) {
            // exp(l - log_normaliser) is p itself; a NaN or +inf anywhere would have reached the normaliser.
            shift_ = *row.log_normaliser;
            total_ = 1.0;
            kind_ = std::isfinite(shift_) ? kind::dense : kind::invalid;
            return;
        }
        if (!find_mode()) return;
        if (how.greedy()) {
            kind_ = kind::one_hot;
            total_ = 1.0;
            return;
        }
        kind_ = kind::dense;
        scale_ = static_cast<real>(1.0 / how.temperature);
        shift_ = load(logits_[static_cast<std::size_t>(mode_)]);
        if (how.truncates()) truncate(how, scratch);
        total_ = detail::sum_of_weights<real>([&](std::size_t i, std::span<real> out) { row_weights(i, out); },
                                              logits_.size());
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
        token_id const i = map_ ? map_->to_draft(v) : v;
        return i == no_token ? real(0) : row_weight(static_cast<std::size_t>(i));
    }
    /// The weights of tokens first, first + 1 ..., as many as fit `out`.
    void evaluate(token_id first, std::span<real> out) const noexcept {
        if (kind_ == kind::dense && !map_) return row_weights(static_cast<std::size_t>(first), out);
        for (std::size_t i = 0; i < out.size(); ++i) out[i] = (*this)[first + static_cast<token_id>(i)];
    }
    [[nodiscard]] double total() const noexcept { return total_; }
    [[nodiscard]] double probability(token_id v) const noexcept { return static_cast<double>((*this)[v]) / total_; }
    /// log probability(v), without underflow; -inf for tokens that cannot be drawn.
    [[nodiscard]] double log_probability(token_id v) const noexcept {
        constexpr double none = -std::numeric_limits<double>::infinity();
        if (kind_ == kind::one_hot) return v == mode() ? 0.0 : none;
        token_id const i = map_ ? map_->to_draft(v) : v;
        if (i == no_token || !keeps(static_cast<std::size_t>(i))) return none;
        return static_cast<double>(exponent(static_cast<std::size_t>(i))) - std::log(total_);
    }
    /// The most probable token, the lowest id among equals.
    [[nodiscard]] token_id mode() const noexcept {
        token_id const i = mode_ == no_token ? first_largest() : mode_;
        return map_ && !logits_.empty() ? map_->to_target(i) : i;
    }

    /// How sure the row is of its mode: probability(mode()), and for a greedy law, which is sure by decree, the mode's
    /// softmax probability at temperature 1. One pass in that case, O(1) otherwise.
    [[nodiscard]] double peak() const noexcept {
        if (kind_ != kind::one_hot || logits_.empty()) return probability(mode());
        real const top = load(logits_[static_cast<std::size_t>(mode_)]);
        return 1.0 / detail::sum_of_weights<real>(
                         [&](std::size_t i, std::span<real> out) { take_exponentials(i, top, real(1), out); },
                         logits_.size());
    }

private:
    enum class kind : unsigned char { invalid, dense, one_hot };

    [[nodiscard]] real exponent(std::size_t i) const noexcept { return (load(logits_[i]) - shift_) * scale_; }
    [[nodiscard]] real row_weight(std::size_t i) const noexcept {
        if (!keeps(i)) return real(0);
        if (exponentials_ == nullptr) return std::exp(exponent(i));
        real weight = load(logits_[i]);
        exponentials_(&weight, 1, shift_, scale_, &weight);
        return weight;
    }
    // The same of row entries first, first + 1 ...
    void row_weights(std::size_t first, std::span<real> out) const noexcept {
        take_exponentials(first, shift_, scale_, out);
        if (!(cutoff_ > -std::numeric_limits<real>::infinity())) return;  // all are kept
        for (std::size_t i = 0; i < out.size(); ++i) {
            if (!keeps(first + i)) out[i] = real(0);
        }
    }
    void take_exponentials(std::size_t first, real shift, real scale, std::span<real> out) const noexcept {
        if (exponentials_ == nullptr) {
            for (std::size_t i = 0; i < out.size(); ++i) out[i] = std::exp((load(logits_[first + i]) - shift) * scale);
        } else if constexpr (std::is_same_v<T, real>) {
            exponentials_(logits_.data() + first, out.size(), shift, scale, out.data());
        } else {
            for (std::size_t i = 0; i < out.size(); ++i) out[i] = load(logits_[first + i]);
            exponentials_(out.data(), out.size(), shift, scale, out.data());
        }
    }
    // Kept tokens are a prefix of the order (logit descending, id ascending): one logit and one id describe any.
    [[nodiscard]] bool keeps(std::size_t i) const noexcept {
        real const l = load(logits_[i]);
        return l > cutoff_ || (l == cutoff_ && static_cast<token_id>(i) <= cutoff_id_);
    }
    [[nodiscard]] bool precedes(token_id a, token_id b) const noexcept {
        real const la = load(logits_[static_cast<std::size_t>(a)]);
        real const lb = load(logits_[static_cast<std::size_t>(b)]);
        return la > lb || (la == lb && a < b);
    }

    [[nodiscard]] token_id first_largest() const noexcept {
        std::size_t best = 0;
        for (std::size_t i = 1; i < logits_.size(); ++i) {
            if (load(logits_[i]) > load(logits_[best])) best = i;
        }
        return static_cast<token_id>(best);
    }

    // One pass finds the mode and refuses rows without a law. `!(l < inf)` is true for NaN as well as for +inf. The
    // largest of a group is found by halves, which vectorises; its place is looked for once, in the group that has it.
    [[nodiscard]] bool find_mode() noexcept {
        constexpr real inf = std::numeric_limits<real>::infinity();
        constexpr std::size_t group = 64;
        real largest = -inf;
        std::size_t best = 0;
        for (std::size_t first = 0; first < logits_.size(); first += group) {
            std::array<real, group> l;
            std::size_t const count = std::min(group, logits_.size() - first);
            if (count < group) l.fill(-inf);
            std::transform(logits_.begin() + static_cast<std::ptrdiff_t>(first),
                           logits_.begin() + static_cast<std::ptrdiff_t>(first + count), l.begin(),
                           [](T const& x) { return load(x); });
            int bad = 0;
            for (std::size_t i = 0; i < group; ++i) bad |= l[i] < inf ? 0 : 1;
            if (bad != 0) return false;
            for (std::size_t i = 0; i < 32; ++i) l[i] = l[i] < l[i + 32] ? l[i + 32] : l[i];
            for (std::size_t i = 0; i < 16; ++i) l[i] = l[i] < l[i + 16] ? l[i + 16] : l[i];
            real const top = *std::max_element(l.begin(), l.begin() + 16);
            if (top > largest) {
                largest = top;
                best = first;
            }
        }
        if (!(largest > -inf)) return false;
        while (load(logits_[best]) != largest) ++best;
        mode_ = static_cast<token_id>(best);
        return true;
    }

    // Each filter shortens a prefix of the same order; the last kept token becomes the cutoff. Top-p pops a heap, which
    // costs O(size + m log size) where sorting would cost O(size log size) for the usual small nucleus m.
    void truncate(transform const& how, std::span<token_id> scratch) noexcept {
        SURELEAP_EXPECTS(scratch.size() >= logits_.size());
        constexpr real none = -std::numeric_limits<real>::infinity();
        auto const first = scratch.begin();
        auto last = first;
        for (std::size_t i = 0; i < logits_.size(); ++i) {
            if (load(logits_[i]) > none) *last++ = static_cast<token_id>(i);
        }
        auto const earlier = [this](token_id a, token_id b) { return precedes(a, b); };
        if (how.top_k > 0 && how.top_k < last - first) {
            std::nth_element(first, first + (how.top_k - 1), last, earlier);
            last = first + how.top_k;
        }
        if (how.top_p < 1.0) {
            double mass = 0.0;
            for (auto it = first; it != last; ++it) mass += static_cast<double>(row_weight_of(*it));
            auto const later = [this](token_id a, token_id b) { return precedes(b, a); };
            std::make_heap(first, last, later);
            double kept = 0.0;
            auto heap_end = last;
            do {
                std::pop_heap(first, heap_end, later);
                --heap_end;
                kept += static_cast<double>(row_weight_of(*heap_end));
            } while (heap_end != first && kept < how.top_p * mass);
            std::move(heap_end, last, first);
            last = first + (last - heap_end);
        }
        if (how.min_p > 0.0) {
            last = std::partition(first, last, [&](token_id i) {
                return i == mode_ || static_cast<double>(row_weight_of(i)) >= how.min_p;  // the mode's weight is 1
            });
        }
        token_id const cutoff = *std::max_element(first, last, earlier);
        cutoff_ = load(logits_[static_cast<std::size_t>(cutoff)]);
        cutoff_id_ = cutoff;
    }
    [[nodiscard]] real row_weight_of(token_id i) const noexcept {
        return std::exp(exponent(static_cast<std::size_t>(i)));
    }

    std::span<T const> logits_{};
    vocabulary_map const* map_ = nullptr;
    exponentials<real> exponentials_ = nullptr;
    std::size_t size_ = 0;
    double total_ = 0.0;
    real shift_ = 0;
    real scale_ = 1;
    real cutoff_ = -std::numeric_limits<real>::infinity();
    token_id cutoff_id_ = std::numeric_limits<token_id>::max();
    token_id mode_ = no_token;  // index into the row; a target id when there is no row
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

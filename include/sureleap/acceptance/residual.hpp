// SPDX-License-Identifier: MIT
//
// The residual distribution: what the target has left once the draft's mass is taken out.
#pragma once

#include <cstddef>
#include <span>

#include <sureleap/concepts.hpp>
#include <sureleap/config.hpp>
#include <sureleap/random.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Weights max(scale p(v) - q(v), 0) over target ids. scale = 1 is token rejection's residual (Leviathan et al. 2023);
/// block verification uses scale = p_i < 1 (Sun et al. 2025). Both are indexed by token id, never by place in a list.
/// Construction sums the mass, O(V); each weight is evaluated again when asked.
template <class P, class Q>
class residual {
public:
    using weight_type = double;

    residual(P const& p, Q const& q, double scale = 1.0) noexcept
        : p_(p), q_(q), p_factor_(scale / p.total()), q_factor_(1.0 / q.total()) {
        SURELEAP_EXPECTS(p.size() == q.size());
        mass_ = detail::sum_of_weights<double>(
            [this](std::size_t v, std::span<double> out) { evaluate(static_cast<token_id>(v), out); }, p.size());
    }

    [[nodiscard]] std::size_t size() const noexcept { return p_.size(); }
    [[nodiscard]] double operator[](token_id v) const noexcept {
        return left(static_cast<double>(p_[v]), static_cast<double>(q_[v]));
    }
    /// The weights of tokens first, first + 1 ..., as many as fit `out`.
    void evaluate(token_id first, std::span<double> out) const noexcept {
        detail::stretch<typename P::weight_type> p;
        detail::stretch<typename Q::weight_type> q;
        SURELEAP_EXPECTS(out.size() <= p.size());
        p_.evaluate(first, std::span(p).first(out.size()));
        q_.evaluate(first, std::span(q).first(out.size()));
        std::size_t i = 0;
        for (; i + 16 <= out.size(); i += 16) {  // a loop of constant length vectorises
            for (std::size_t l = 0; l < 16; ++l) {
                out[i + l] = left(static_cast<double>(p[i + l]), static_cast<double>(q[i + l]));
            }
        }
        for (; i < out.size(); ++i) out[i] = left(static_cast<double>(p[i]), static_cast<double>(q[i]));
    }
    [[nodiscard]] double total() const noexcept { return mass_; }

private:
    // From weights: what they are divided by is the same for all tokens.
    [[nodiscard]] double left(double p, double q) const noexcept {
        double const difference = p * p_factor_ - q * q_factor_;
        return difference > 0.0 ? difference : 0.0;
    }

    P const& p_;
    Q const& q_;
    double p_factor_;  // scale / p.total()
    double q_factor_;
    double mass_ = 0.0;
};

/// Draws the correction. No mass left means p = q up to rounding, where rejection has probability 0 but can round into
/// existence: then p itself is the law.
template <class P, class Q, class Rng>
[[nodiscard]] token_id draw_residual(P const& p, Q const& q, double scale, draw_key const& key, Rng& rng) {
    residual const left{p, q, scale};
    return left.total() > 0.0 ? rng.categorical(key, left) : rng.categorical(key, p);
}

SURELEAP_END_NAMESPACE

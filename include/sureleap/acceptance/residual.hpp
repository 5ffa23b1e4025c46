// SPDX-License-Identifier: MIT
//
// The residual distribution: what the target has left once the draft's mass is taken out.
#pragma once

#include <cstddef>

#include <sureleap/concepts.hpp>
#include <sureleap/config.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Weights max(scale p(v) - q(v), 0) over target ids. scale = 1 is token rejection's residual (Leviathan et al. 2023);
/// block verification uses scale = p_i < 1 (Sun et al. 2025). Both are indexed by token id, never by place in a list.
/// Construction sums the mass, O(V); each weight is evaluated again when asked.
template <class P, class Q>
class residual {
public:
    residual(P const& p, Q const& q, double scale = 1.0) noexcept : p_(p), q_(q), scale_(scale) {
        SURELEAP_EXPECTS(p.size() == q.size());
        for (token_id v = 0; v < static_cast<token_id>(p.size()); ++v) mass_ += (*this)[v];
    }

    [[nodiscard]] std::size_t size() const noexcept { return p_.size(); }
    [[nodiscard]] double operator[](token_id v) const noexcept {
        double const left = scale_ * p_.probability(v) - q_.probability(v);
        return left > 0.0 ? left : 0.0;
    }
    [[nodiscard]] double total() const noexcept { return mass_; }

private:
    P const& p_;
    Q const& q_;
    double scale_;
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

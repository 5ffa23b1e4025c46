// SPDX-License-Identifier: MIT
//
// Block verification (Sun et al., "Block verification accelerates speculative decoding", ICLR 2025): tokens are judged
// together instead of one by one, which accepts at least as many in expectation and is optimal among rules that emit
// one draft prefix and a correction.
//
// With p_0 = 1 and p_i = min(1, p_{i-1} p(x_i)/q(x_i)), prefix i survives with probability p_i: that identity holds at
// every node x^i, so the block may end at any length that is a function of x^i. Both the acceptance h_i and the
// residual max(p_i p - q, 0) are this rule's own; taking either from token rejection biases the output.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include <sureleap/acceptance/bounded.hpp>
#include <sureleap/acceptance/residual.hpp>
#include <sureleap/concepts.hpp>
#include <sureleap/config.hpp>

SURELEAP_BEGIN_NAMESPACE

namespace detail {

/// p_1..p_l, by the bounds of the laws as long as they do.
template <class Verification>
class joint_survival {
public:
    explicit joint_survival(Verification& v) noexcept
        : v_(v), low_(v.scratch().first(v.length())), high_(v.scratch().subspan(v.length(), v.length())) {}

    /// Adds the next prefix: false if it does not survive. Its row must hold a law.
    [[nodiscard]] bool extend() noexcept {
        auto const& p = v_.outline(size_);
        auto const weight = static_cast<double>(p[v_.token(size_)]);
        double const q = v_.draft(size_).probability(v_.token(size_));
        if (!(weight > 0.0)) return false;
        low_[size_] = survival((size_ == 0 ? 1.0 : low_[size_ - 1]) * weight / p.largest_total(), q);
        high_[size_] = survival((size_ == 0 ? 1.0 : high_[size_ - 1]) * weight / p.least_total(), q);
        if (!(high_[size_] > 0.0)) return false;
        ++size_;
        return true;
    }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] bounds of(std::size_t i) const noexcept {
        return i == 0 ? bounds{1.0, 1.0} : bounds{low_[i - 1], high_[i - 1]};
    }
    /// p_i itself. Makes the sums known of the rows since it was last known, which it is where it is 1 by all bounds.
    [[nodiscard]] double exact(std::size_t i) noexcept {
        std::size_t known = i;
        while (of(known).low != of(known).high) --known;
        for (; known < i; ++known) {
            token_id const x = v_.token(known);
            double const ratio = of(known).low * v_.target(known).probability(x);
            low_[known] = high_[known] = survival(ratio, v_.draft(known).probability(x));
        }
        return of(i).low;
    }

private:
    [[nodiscard]] static double survival(double ratio, double q) noexcept { return ratio < q ? ratio / q : 1.0; }

    Verification& v_;
    std::span<double> low_;
    std::span<double> high_;
    std::size_t size_ = 0;
};

}  // namespace detail

/// Exact in law under a non-anticipating schedule. Touches the target rows of the block up to the first p_i = 0, the one
/// behind it if all of it is accepted, and of q the drafted tokens and those that are proposed.
template <class DraftRule = categorical_draft>
class block_verification {
public:
    static constexpr fidelity guarantee = fidelity::distribution;
    static constexpr q_access access = q_access::row;
    using draft_rule = DraftRule;

    template <class Verification, class Rng>
    [[nodiscard]] decision operator()(Verification& v, Rng& rng) const {
        std::size_t const length = v.length();
        detail::joint_survival joint{v};
        while (joint.size() < length) {
            if (!v.outline(joint.size()).valid()) return {};
            if (!joint.extend()) break;
        }
        // The accepted prefix is the longest whose test succeeds, so testing from the end may stop at a success.
        std::size_t accepted = joint.size();
        for (; accepted > 0; --accepted) {
            bounds const survives = joint.of(accepted);
            auto const exact = [&] { return joint.exact(accepted); };
            if (accepted == length) {  // h_l = p_l at the end of the block
                if (decide(rng, v.key(accepted - 1, purpose::accept), {survives.low, 1.0}, {survives.high, 1.0},
                           [&] { return odds{exact(), 1.0}; })) {
                    break;
                }
                continue;
            }
            auto& p = v.outline(accepted);
            if (!p.valid()) return {};
            if (survives.low >= 1.0) break;  // h_i = 1, whatever is left
            token_id const next =
                correct_or_reject(p, v.draft(accepted), survives, exact, v.key(accepted - 1, purpose::accept),
                                  v.key(accepted, purpose::residual), rng, v.block_sums());
            if (next != no_token) return {true, accepted, next};
        }
        auto& p = v.outline(accepted);
        if (!p.valid()) return {};
        if (accepted == length) return {true, accepted, draw(p, v.key(accepted, purpose::bonus), rng)};
        return {true, accepted,
                draw_residual(p, v.draft(accepted), 1.0, v.key(accepted, purpose::residual), rng, v.block_sums())};
    }
};

SURELEAP_END_NAMESPACE

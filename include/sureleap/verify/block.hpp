// SPDX-License-Identifier: MIT
//
// Block verification (Sun et al., "Block verification accelerates speculative decoding", ICLR 2025). The drafted tokens
// of a block are judged together. In expectation this accepts at least as many as judging them one by one. No rule that
// emits a prefix and a correction accepts more.
//
//     p_0 = 1,  p_i = min(1, p_{i-1} p(x_i) / q(x_i))     survival of prefix i
//     r_i(v) = max(p_i p(v) - q(v), 0)                    residual behind prefix i
//     h_i = sum_v r_i(v) / (sum_v r_i(v) + 1 - p_i)       acceptance of prefix i; h_l = p_l
//
//     for i = l .. 1, with u uniform in [0, 1):
//         if u < h_i: emit x_1 .. x_i and a draw of r_i, or of p if i = l; end
//     emit a draw of r_0 = max(p - q, 0)
//
// So the accepted prefix is the longest one whose test succeeds. Prefix i survives with probability p_i, for every
// x_1..x_i. So the block may end at any length that is a function of x_1..x_i. h_i and the residual are not those of
// token rejection: using either of those biases the output.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/verify/bounded.hpp>
#include <sureleap/verify/residual.hpp>

SURELEAP_BEGIN_NAMESPACE

namespace detail {

/// p_1 .. p_l, each between two bounds. They follow from bounds of the target's sums (bounded.hpp), and come closer
/// when a decision needs it.
template <class Verification>
class joint_survival {
public:
    explicit joint_survival(Verification& v) noexcept
        : v_(v), low_(v.scratch().first(v.length())), high_(v.scratch().subspan(v.length(), v.length())) {}

    /// Adds the next prefix; false if it survives with probability 0. Its row must be valid.
    [[nodiscard]] bool extend() {
        multiply(size_);
        if (!(high_[size_] > 0.0)) return false;
        ++size_;
        return true;
    }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }

    /// p_i, a number that decisions are made by.
    struct prefix {
        joint_survival& all;
        std::size_t i;
        [[nodiscard]] interval known() const noexcept { return all.of(i); }
        void refine() { all.refine(i); }
    };
    [[nodiscard]] prefix operator[](std::size_t i) noexcept { return {*this, i}; }

private:
    [[nodiscard]] interval of(std::size_t i) const noexcept {
        return i == 0 ? interval{1.0, 1.0} : interval{low_[i - 1], high_[i - 1]};
    }
    // Brings p_i's bounds closer by one row's sum. The candidates are the rows behind the last prefix whose survival is
    // known exactly. The row with the widest bounds is chosen, the first among equals: all prefixes behind it gain.
    void refine(std::size_t i) {
        std::size_t row = i;
        double widest = 0.0;
        for (std::size_t k = i; k > 0 && !of(k).exact(); --k) {
            interval const mass = mass_of(target(k - 1));
            double const width = mass.high / mass.low;
            if (width >= widest) {
                widest = width;
                row = k - 1;
            }
        }
        sureleap::refine(target(row));
        for (; row < size_; ++row) multiply(row);
    }
    // The bounds of p_{k+1} from those of p_k. They are equal once the sums are known.
    void multiply(std::size_t k) {
        auto& p = target(k);
        double const weight = weight_of(p, v_.token(k));
        double const q = v_.draft(k).probability(v_.token(k));
        interval const mass = mass_of(p);
        low_[k] = survival(of(k).low * (weight / mass.high), q);
        high_[k] = survival(of(k).high * (weight / mass.low), q);
    }
    [[nodiscard]] auto& target(std::size_t k) { return v_.target(k, totals::bounded); }
    [[nodiscard]] static double survival(double ratio, double q) noexcept { return ratio < q ? ratio / q : 1.0; }

    Verification& v_;
    std::span<double> low_;
    std::span<double> high_;
    std::size_t size_ = 0;
};

}  // namespace detail

/// Exact under a non-anticipating schedule. Reads the target rows of the block up to the first p_i = 0, and one more if
/// the block is accepted; of q, the drafted tokens and those that draw_residual proposes.
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
            if (!v.target(joint.size(), totals::bounded).valid()) return {};
            if (!joint.extend()) break;
        }
        // The accepted prefix is the longest whose test succeeds. So prefixes are tested from the end, until one
        // succeeds.
        std::size_t accepted = joint.size();
        for (; accepted > 0; --accepted) {
            auto survives = joint[accepted];
            if (accepted == length) {  // h_l = p_l at the end of the block
                if (happens(survives, v.key(accepted - 1, purpose::accept), rng)) break;
                continue;
            }
            auto& p = v.target(accepted, totals::bounded);
            if (!p.valid()) return {};
            if (survives.known().low >= 1.0) break;  // h_i = 1, whatever is left
            token_id const next =
                correct_or_reject(p, v.draft(accepted), survives, v.key(accepted - 1, purpose::accept),
                                  v.key(accepted, purpose::residual), rng, v.block_sums());
            if (next != no_token) return {true, accepted, next};
        }
        auto& p = v.target(accepted, totals::bounded);
        if (!p.valid()) return {};
        if (accepted == length) return {true, accepted, draw(p, v.key(accepted, purpose::bonus), rng)};
        return {true, accepted,
                draw_residual(p, v.draft(accepted), 1.0, v.key(accepted, purpose::residual), rng, v.block_sums())};
    }
};

SURELEAP_END_NAMESPACE

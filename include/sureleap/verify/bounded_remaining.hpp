// SPDX-License-Identifier: MIT
//
// What is left of a node's law behind rejected children (remaining.hpp), known by bounds. It is taken together with the
// node's survival, as m_j = s_j p_j:
//
//     m_0 = s p,   t_j = sum of min(m_j, q_j),   m_{j+1} = max(m_j - q_j, 0) / (1 - t_j),   1 - s_{j+1} = (1 - s_j) / (1 - t_j)
//
// These are traversal verification's: the mass R of max(s_j p_j - q_j, 0) is s_j - t_j, and s_{j+1} = R / (R + 1 -
// s_j). Recursive rejection has s = 1, which stays 1.
//
// m_j grows with s / (the total of p) at every token, and so does t_j. So bounds of both numbers give bounds of all
// that follows: it is computed twice, with the smallest quotient and with the largest. Where q is a list, t_j takes the
// tokens of the list, so that no row is summed. A decision that needs more brings the bounds closer
// (verify/bounded.hpp).
//
// Where q has all tokens, or p is truncated to a few, a rejection takes exact numbers from `remaining`.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/sampling/draw_key.hpp>
#include <sureleap/sampling/quantile.hpp>
#include <sureleap/sampling/random.hpp>
#include <sureleap/verify/bounded.hpp>
#include <sureleap/verify/remaining.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Of one node of a path, whose survival follows from the node above. P: the law of a target row.
template <class DraftRule, class P, class Q>
class bounded_remaining {
public:
    /// The child of `above` that has `token`; nullptr: survival is 1. `room`: as many as the node has children.
    bounded_remaining(bounded_remaining* above, token_id token, std::span<rejected_child> room) noexcept
        : above_(above), token_(token), room_(room) {
        begin();
    }
    /// What the node's children are judged by. Before that only its survival is known.
    void look(P& p, Q const& q) noexcept {
        p_ = &p;
        q_ = &q;
        begin();
    }

    /// The node's survival behind what was rejected, a number that decisions are made by.
    [[nodiscard]] interval known() const noexcept {
        return {behind_all(survival_.low, most_.kept), behind_all(survival_.high, least_.kept)};
    }
    /// Brings bounds closer by the sum of a row: of all up to the anchor, that of the widest bounds.
    void refine() noexcept {
        bounded_remaining* chosen = nullptr;
        double widest = 1.0;
        for (bounded_remaining* at = this; at != nullptr; at = at->above_) {
            if (at->p_ == nullptr) continue;
            interval const total = mass_of(*at->p_);
            if (!(total.high > widest * total.low)) continue;
            widest = total.high / total.low;
            chosen = at;
        }
        if (chosen != nullptr) sureleap::refine(*chosen->p_);
        refresh();
    }
    /// m_j(x) of the next child, whose token is x, and q_j(x).
    [[nodiscard]] interval of(token_id x) const noexcept {
        if (!is_drawn && is_rejected(x)) return {0.0, 0.0};
        if (exact_) return {survival_.low * (*exact_)[x], survival_.low * (*exact_)[x]};
        double const weight = weight_of(*p_, x);
        double const drafted = most_.b > 0.0 ? q_->probability(x) : 0.0;
        return {least_.of(weight, drafted), most_.of(weight, drafted)};
    }
    [[nodiscard]] double drawn_with(token_id x) const noexcept {
        if (exact_) return exact_->drawn_with(x);
        return is_drawn ? q_->probability(x) / undrawn_ : 1.0;
    }
    /// Whether the next child, x, is kept.
    template <class Rng>
    [[nodiscard]] bool keeps(token_id x, draw_key const& key, Rng& rng) {
        double const drawn = drawn_with(x);
        auto const known = [&]() -> odds_interval {
            interval const m = of(x);
            return {{m.low, drawn}, {m.high, drawn}};
        };
        return decide(rng, key, known, [&] { refine(); });
    }

    /// The next child, x, was rejected, so that m_j(x) < q_j(x). The tokens of q's list; where q has none, O(V).
    void reject(token_id x) noexcept {
        SURELEAP_EXPECTS(rejected_ < room_.size());
        if (is_drawn && q_->support().empty()) return reject_exactly(x);
        room_[rejected_] = {x, 0.0, undrawn_};
        while (!leave_out(room_[rejected_])) refine();
        ++rejected_;
        if constexpr (is_drawn) undrawn_ = undrawn<Q, rejected_child>(*q_, room_.first(rejected_)).part();
    }
    [[nodiscard]] std::size_t rejected() const noexcept { return rejected_; }
    /// The token behind the node, drawn from what is left. As draw_remaining, whose keys it uses.
    template <class Rng>
    [[nodiscard]] token_id draw(draw_key const& key, Rng& rng) {
        if (exact_) return draw_remaining(*exact_, key, rng);
        if (p_->size() > row_block) {
            add_up(*p_);
            refresh();
            for (std::uint32_t i = 0; i < remaining_proposals; ++i) {
                draw_key named = key;
                named.index = key.index | i << 16;
                named.use = purpose::proposal;
                token_id const y = rng.categorical(named, *p_);
                if (y == no_token) {
                    distrust(*p_);
                    refresh();
                    continue;
                }
                named.use = purpose::proposal_accept;
                if (is_behind(y, named, rng)) return y;
            }
        }
        settle();
        remaining<DraftRule, P, Q> left{*p_, *q_, room_};
        double survival = survival_.low;
        for (std::size_t i = 0; i < rejected_; ++i) survival = behind(left.reject(room_[i].token, survival), survival);
        return draw_remaining_by_pass(left, key, rng);
    }

private:
    static constexpr bool is_drawn = !DraftRule::is_deterministic;
    // A rejection that leaves less has that probability, and the rounding of sums in double is as large.
    static constexpr double nothing_left = 1e-13;

    /// m_j(v) = max(a w(v) - b q(v), 0), and the product of all 1 - t_j. Of rejected tokens that is 0, since they had
    /// less of m than of q; but for chosen children, of which q is not asked.
    struct end {
        double a = 0.0;
        double b = 0.0;
        double kept = 1.0;
        [[nodiscard]] double of(double weight, double drafted) const noexcept {
            return std::max(a * weight - b * drafted, 0.0);
        }
        void leave(double left, double undrawn) noexcept {
            a /= left;
            b = (is_drawn ? b + 1.0 / undrawn : 0.0) / left;
            kept *= left;
        }
    };
    // Whether y, drawn from p, is the token: by its share of a w(y), which is what it would have without rejections.
    template <class Rng>
    [[nodiscard]] bool is_behind(token_id y, draw_key const& key, Rng& rng) {
        auto const known = [&]() -> odds_interval {
            double const weight = weight_of(*p_, y);
            interval const m = of(y);
            return {{m.low, least_.a * weight}, {m.high, most_.a * weight}};
        };
        return decide(rng, key, known, [&] { refine(); });
    }

    // From bounds as they are now; what was rejected is rejected again.
    void refresh() noexcept {
        if (above_ != nullptr) above_->refresh();
        begin();
    }
    void begin() noexcept {
        if (exact_) return;
        interval const before = survival_;
        survival_ = above_ == nullptr ? interval{1.0, 1.0} : above_->survival_of(token_);
        if (p_ == nullptr) return;
        interval const total = mass_of(*p_);
        if (total.low == total_.low && total.high == total_.high && survival_.low == before.low &&
            survival_.high == before.high) {
            return;
        }
        total_ = total;
        least_ = {survival_.low / total.high};
        most_ = {survival_.high / total.low};
        std::size_t const again = rejected_;
        for (rejected_ = 0; rejected_ < again; ++rejected_) static_cast<void>(leave_out(room_[rejected_]));
    }
    // Of a row that turns out to have no law nothing is a number, and nothing is open.
    [[nodiscard]] bool is_open() const noexcept { return least_.a < most_.a; }
    void settle() noexcept {
        while (is_open()) refine();
    }
    [[nodiscard]] interval survival_of(token_id x) const noexcept {
        interval const m = of(x);
        double const drawn = drawn_with(x);
        return {m.low < drawn ? m.low / drawn : 1.0, m.high < drawn ? m.high / drawn : 1.0};
    }
    [[nodiscard]] static double behind_all(double survival, double kept) noexcept {
        double const left = 1.0 - (1.0 - survival) / kept;
        return left > 0.0 ? std::min(left, 1.0) : 0.0;
    }
    [[nodiscard]] static double behind(double mass, double survival) noexcept {
        return survival < 1.0 ? mass / (mass + (1.0 - survival)) : survival;
    }
    [[nodiscard]] bool is_rejected(token_id v) const noexcept {
        auto const elders = room_.first(rejected_);
        return std::any_of(elders.begin(), elders.end(), [v](rejected_child const& c) { return c.token == v; });
    }
    // Those before the child are left out. False if bounds are so wide that nothing may be left.
    [[nodiscard]] bool leave_out(rejected_child const& child) noexcept {
        interval const t = is_drawn ? taken(child.undrawn) : of(child.token);
        if (1.0 - t.high > nothing_left) {
            least_.leave(1.0 - t.low, child.undrawn);
            most_.leave(1.0 - t.high, child.undrawn);
        } else if (is_open()) {
            return false;
        }  // else the rejection had probability 0 but for rounding, and the law stays as it was
        return true;
    }
    // t_j of drawn children; of a chosen one it is m_j at its token. Elder children have m_j = 0, so nothing is taken
    // from them.
    [[nodiscard]] interval taken(double undrawn) const noexcept {
        auto const list = q_->support();
        double const unit = 1.0 / q_->total();
        interval sum{};
        detail::segment<typename P::weight_type> weights;
        detail::segment<typename Q::weight_type> drafted;
        for (std::size_t first = 0; first < list.size(); first += weights.size()) {
            auto const here = list.subspan(first, std::min(weights.size(), list.size() - first));
            p_->weights_of(here, std::span(weights).first(here.size()));
            q_->mapped_weights(first, std::span(drafted).first(here.size()));
            for (std::size_t i = 0; i < here.size(); ++i) {
                auto const weight = static_cast<double>(weights[i]);
                double const q = unit * static_cast<double>(drafted[i]);
                sum.low += std::min(least_.of(weight, q), q / undrawn);
                sum.high += std::min(most_.of(weight, q), q / undrawn);
            }
        }
        return sum;
    }
    void reject_exactly(token_id x) noexcept {
        if (!exact_) {
            settle();
            exact_.emplace(*p_, *q_, room_);
        }
        survival_.low = survival_.high = behind(exact_->reject(x, survival_.low), survival_.low);
        ++rejected_;
    }

    bounded_remaining* above_;
    token_id token_;
    P* p_ = nullptr;
    Q const* q_ = nullptr;
    std::span<rejected_child> room_;
    std::size_t rejected_ = 0;
    double undrawn_ = 1.0;         // the part of q that rejected children have left
    interval survival_{1.0, 1.0};  // before rejections, unless they are exact
    interval total_{};             // of p
    end least_{};
    end most_{};
    std::optional<remaining<DraftRule, P, Q>> exact_{};
};

SURELEAP_END_NAMESPACE

// SPDX-License-Identifier: MIT
//
// What rules call to draw and to reject, over ranks: the same functions as of one row (verify/residual.hpp,
// verify/bounded.hpp, verify/bounded_remaining.hpp). Rules need not know of it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/ranks/questions.hpp>
#include <sureleap/ranks/sharded_law.hpp>
#include <sureleap/ranks/sharded_source.hpp>
#include <sureleap/sampling/draw_key.hpp>
#include <sureleap/sampling/interval.hpp>
#include <sureleap/verify/bounded.hpp>
#include <sureleap/verify/bounded_remaining.hpp>
#include <sureleap/verify/draft_tree.hpp>
#include <sureleap/verify/residual.hpp>

SURELEAP_BEGIN_NAMESPACE

/// The winner of the race over a law in slices; needs no sum of it.
template <class T, class View, class Rng>
[[nodiscard]] token_id gumbel_max(sharded_law<T>& p, draw_key const& key, token_id, sharded_source<View, Rng>& rng) {
    return rng.gumbel_max(key, p);
}

namespace detail {
/// The masses of max(scale p - q, 0), by parts; null as long as nobody knows.
template <class T, class Q>
[[nodiscard]] rank_question const* ask_residual(sharded_law<T> const& p, sharded_law<Q> const& q,
                                                double scale) noexcept {
    if (!p.valid() || !q.valid()) return nullptr;
    return p.questions().ask({.what = rank_question::kind::masses, .row = p.row().index, .a = scale, .b = 1.0});
}
}  // namespace detail

/// draw_residual (verify/residual.hpp) over ranks: by a pass of each over its slice, and no proposals.
template <class T, class Q, class View, class Rng>
[[nodiscard]] token_id draw_residual(sharded_law<T>& p, sharded_law<Q> const& q, double scale, draw_key const& key,
                                     sharded_source<View, Rng>& rng, std::span<double> = {},
                                     std::optional<std::uint32_t> = {}) {
    if (p.is_one_hot()) return p.mode();  // all that is left is its token, or nothing
    auto const* const left = detail::ask_residual(p, q, scale);
    if (left == nullptr) return no_token;
    return left->number > 0.0 ? rng.draw_left(*left, key, left->masses) : rng.categorical(key, p);
}

/// correct_or_reject (verify/residual.hpp) over ranks.
template <class T, class Q, class Scale, class View, class Rng>
[[nodiscard]] token_id correct_or_reject(sharded_law<T>& p, sharded_law<Q> const& q, Scale& scale,
                                         draw_key const& accept, draw_key const& key, sharded_source<View, Rng>& rng,
                                         std::span<double> = {}, std::optional<std::uint32_t> = {}) {
    double const survives = scale.known().low;
    double left = 0.0;
    if (p.is_one_hot()) {
        left = std::max(survives - q.probability(p.mode()), 0.0);
        if (p.questions().waits()) return no_token;
    } else {
        auto const* const known = detail::ask_residual(p, q, survives);
        if (known == nullptr) return no_token;  // the prefixes before this one are asked of in the same exchange
        left = known->number;
    }
    if (!rng.bernoulli(accept, left, left + (1.0 - survives))) return no_token;
    return draw_residual(p, q, survives, key, rng);
}

/// bounded_remaining (verify/bounded_remaining.hpp) over ranks, by exact numbers: each rejection of a drawn child takes
/// an exchange, of all requests at once.
template <class DraftRule, class T, class Q>
class bounded_remaining<DraftRule, sharded_law<T>, sharded_law<Q>> {
    using law = sharded_law<T>;
    using draft_law = sharded_law<Q>;
    using question = detail::rank_question;

public:
    bounded_remaining(bounded_remaining* above, token_id token, std::span<rejected_child> room) noexcept
        : room_(room), survival_(above == nullptr ? 1.0 : above->survival_of(token)) {}
    void look(law& p, draft_law const& q) noexcept {
        p_ = &p;
        q_ = &q;
    }

    [[nodiscard]] interval known() const noexcept { return {survival_, survival_}; }
    void refine() noexcept {}
    [[nodiscard]] interval of(token_id x) const noexcept {
        double const m = survival_ * left_of(x);
        return {m, m};
    }
    [[nodiscard]] double drawn_with(token_id x) const noexcept {
        return is_drawn ? q_->probability(x) / undrawn_ : 1.0;
    }
    template <class Rng>
    [[nodiscard]] bool keeps(token_id x, draw_key const& key, Rng& rng) {
        double const drawn = drawn_with(x);
        return rng.bernoulli(key, of(x).low, drawn);
    }
    // A child is rejected if it has less of what is left than of q, so that nothing is left of it.
    void reject(token_id x) noexcept {
        SURELEAP_EXPECTS(rejected_ < room_.size());
        double mass = survival_ - std::min(survival_ * left_of(x), 1.0);  // of a chosen child
        double const b = is_drawn ? survival_ * b_ + 1.0 / undrawn_ : 0.0;
        room_[rejected_++] = {x, 0.0, undrawn_};
        if constexpr (is_drawn) {
            if (!ask_what_is_left(survival_ * a_, b, mass)) return p_->questions().stop();
        }
        if (mass > 0.0) {
            a_ *= survival_ / mass;
            b_ = b / mass;
        } else {
            masses_ = {};  // the rejection had probability 0 but for rounding, and the law stays as it was
        }
        survival_ = survival_ < 1.0 ? mass / (mass + (1.0 - survival_)) : survival_;
    }
    [[nodiscard]] std::size_t rejected() const noexcept { return rejected_; }
    template <class Rng>
    [[nodiscard]] token_id draw(draw_key const& key, Rng& rng) {
        if (p_->is_one_hot()) return p_->mode();
        if (masses_.empty()) {
            asked_ = rest();
            auto const* const known = p_->questions().ask(asked_);
            if (known == nullptr) return no_token;
            masses_ = known->masses;
        }
        asked_.rejected = room_.first(rejected_);
        return rng.draw_left(asked_, key, masses_);
    }

private:
    static constexpr bool is_drawn = !DraftRule::is_deterministic;

    /// The mass of max(a p - b q, 0) without rejected children, and the part of q that they have left. False if it is
    /// not known yet.
    [[nodiscard]] bool ask_what_is_left(double a, double b, double& mass) noexcept {
        question of_p = rest();
        of_p.a = a;
        of_p.b = b;
        question of_q = rest();
        of_q.of_q = true;
        auto const* const left = p_->is_one_hot() ? nullptr : p_->questions().ask(of_p);
        auto const* const drafted = q_->is_one_hot() ? nullptr : p_->questions().ask(of_q);
        if ((left == nullptr && !p_->is_one_hot()) || (drafted == nullptr && !q_->is_one_hot())) return false;
        undrawn_ = drafted == nullptr ? 0.0 : drafted->number;
        if (left == nullptr) {
            double const q = q_->probability(p_->mode());
            if (p_->questions().waits()) return false;
            mass = is_rejected(p_->mode()) ? 0.0 : std::max(a - b * q, 0.0);
            return true;
        }
        mass = left->number;
        masses_ = left->masses;
        asked_ = of_p;
        return true;
    }
    [[nodiscard]] bool is_rejected(token_id v) const noexcept {
        return std::ranges::any_of(room_.first(rejected_), [v](rejected_child const& c) { return c.token == v; });
    }
    /// p_j(v).
    [[nodiscard]] double left_of(token_id v) const noexcept {
        if (is_rejected(v)) return 0.0;
        return std::max(a_ * p_->probability(v) - (b_ > 0.0 ? b_ * q_->probability(v) : 0.0), 0.0);
    }
    [[nodiscard]] double survival_of(token_id x) const noexcept {
        double const m = of(x).low;
        double const drawn = drawn_with(x);
        return m < drawn ? m / drawn : 1.0;
    }
    /// What is left of p_j, or was before the last rejection.
    [[nodiscard]] question rest() const noexcept {
        question q{.what = question::kind::masses, .row = p_->row().index, .a = a_, .b = b_};
        q.rejected = room_.first(rejected_);
        return q;
    }

    std::span<rejected_child> room_;
    double survival_;
    law* p_ = nullptr;
    draft_law const* q_ = nullptr;
    std::size_t rejected_ = 0;
    double undrawn_ = 1.0;
    double a_ = 1.0;
    double b_ = 0.0;
    question asked_{};                  // for what is left, in units of before the last rejection
    std::span<double const> masses_{};  // [parts] its answer
};

SURELEAP_END_NAMESPACE

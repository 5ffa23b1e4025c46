// SPDX-License-Identifier: MIT
//
// Laws behind a node some of whose children are known: what a further child is drawn from, and what is left of the target's
// law when children were rejected. Rejection behind rejection is the recursion of SpecInfer (Miao et al. 2024) for children
// drawn without replacement:
//
//     q_j(v) = q(v) / sum of q over tokens that are no elder child; 0 for elder children
//     p_{j+1}(v) = max(s p_j(v) - q_j(v), 0) / its sum         s: survival of the node, 1 for token by token rules
//
// Neither is a row: a number is computed from p, q and what was rejected, O(children rejected). So nothing of the size of
// the vocabulary is written.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include <sureleap/core/config.hpp>
#include <sureleap/core/guarantee.hpp>
#include <sureleap/core/types.hpp>

SURELEAP_BEGIN_NAMESPACE

/// q without the tokens of children that are there already: what the next one is drawn from. A weight function in units of
/// q's weights.
template <class Q>
class undrawn {
public:
    undrawn(Q const& q, std::span<token_id const> drawn) noexcept : q_(q), drawn_(drawn), total_(q.total()) {
        for (token_id const x : drawn) total_ -= static_cast<double>(q[x]);
    }
    [[nodiscard]] std::size_t size() const noexcept { return q_.size(); }
    [[nodiscard]] double operator[](token_id v) const noexcept {
        return std::find(drawn_.begin(), drawn_.end(), v) == drawn_.end() ? static_cast<double>(q_[v]) : 0.0;
    }
    [[nodiscard]] double total() const noexcept { return total_; }

private:
    Q const& q_;
    std::span<token_id const> drawn_;
    double total_;
};

/// A child that was rejected, and what its law lost.
struct rejected_child {
    token_id token = no_token;
    double scale = 1.0;    ///< s, the node's survival when it was judged
    double undrawn = 1.0;  ///< mass of q without elder children
    double left = 0.0;     ///< mass of what stayed of s p; 0: nothing, but for rounding it could not have been rejected
};

/// p_j and q_j of a node. A weight function whose total is 1. With an argmax_draft children are not drawn: q_j is one-hot at
/// the j-th child.
template <class DraftRule, class P, class Q>
class remaining {
public:
    /// `room`: as many as the node has children.
    remaining(P const& p, Q const& q, std::span<rejected_child> room) noexcept : p_(&p), q_(&q), room_(room) {}

    [[nodiscard]] std::size_t size() const noexcept { return p_->size(); }
    [[nodiscard]] static constexpr double total() noexcept { return 1.0; }
    [[nodiscard]] double operator[](token_id v) const noexcept {
        double weight = p_->probability(v);
        for (std::size_t j = 0; j < rejected_; ++j) weight = left_of(weight, j, v);
        return weight;
    }
    /// q_j(x) of the next child, whose token is x: what it was drawn with.
    [[nodiscard]] double drawn_with(token_id x) const noexcept {
        if constexpr (DraftRule::is_deterministic) return 1.0;
        return q_->probability(x) / undrawn_;
    }
    /// The next child, x, was rejected while the node's survival was `scale`. O(V). Returns the mass that is left of scale p_j.
    /// Where that is 0 the law stays as it was: the rejection had probability 0 but for rounding.
    double reject(token_id x, double scale) noexcept {
        SURELEAP_EXPECTS(rejected_ < room_.size());
        rejected_child& child = room_[rejected_];
        child = {.token = x, .scale = scale, .undrawn = undrawn_, .left = 1.0};
        double mass = 0.0;
        for (token_id v = 0; v < static_cast<token_id>(size()); ++v) mass += left_of((*this)[v], rejected_, v);
        if constexpr (!DraftRule::is_deterministic) undrawn_ -= q_->probability(x);
        child.left = mass;
        ++rejected_;
        return mass;
    }
    [[nodiscard]] std::size_t rejected() const noexcept { return rejected_; }

private:
    // What child j leaves of p_j(v) = weight.
    [[nodiscard]] double left_of(double weight, std::size_t j, token_id v) const noexcept {
        rejected_child const& child = room_[j];
        if (!(child.left > 0.0)) return weight;
        return std::max(child.scale * weight - drawn(j, v), 0.0) / child.left;
    }
    [[nodiscard]] double drawn(std::size_t j, token_id v) const noexcept {
        if constexpr (DraftRule::is_deterministic) {
            return v == room_[j].token ? 1.0 : 0.0;
        } else {
            for (std::size_t i = 0; i < j; ++i) {
                if (room_[i].token == v) return 0.0;
            }
            return q_->probability(v) / room_[j].undrawn;
        }
    }

    P const* p_;
    Q const* q_;
    std::span<rejected_child> room_;
    std::size_t rejected_ = 0;
    double undrawn_ = 1.0;
};

SURELEAP_END_NAMESPACE

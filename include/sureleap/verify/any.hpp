// SPDX-License-Identifier: MIT
//
// An acceptance rule that is chosen when the program runs.
//
//     any_rule rule = token_rejection{};
//     if (name == "coupled") rule = keyed_coupling{};
//     decoder dec{target, drafter, schedule, rule};
//
// It decides as the rule does that it holds, and says by traits() what that is. A rule's code is a template over the
// verification, so it cannot stand behind a pointer. Therefore any_rule knows the rules of the library, and no other.
// An engine that chooses among rules of its own writes a class like this.
#pragma once

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/guarantee.hpp>
#include <sureleap/traits.hpp>
#include <sureleap/verify/block.hpp>
#include <sureleap/verify/coupled.hpp>
#include <sureleap/verify/match.hpp>
#include <sureleap/verify/recursive.hpp>
#include <sureleap/verify/rejection.hpp>
#include <sureleap/verify/traversal.hpp>

SURELEAP_BEGIN_NAMESPACE

/// One of the library's acceptance rules with one of the draft rules that it takes. Models acceptance_sampler.
class any_rule {
public:
    // NOLINTBEGIN: a rule is one of any
    template <class D>
    any_rule(token_rejection<D> rule) noexcept : any_rule(kind::token_rejection, rule) {}
    template <class D>
    any_rule(block_verification<D> rule) noexcept : any_rule(kind::block_verification, rule) {}
    template <class D>
    any_rule(target_match<D> rule) noexcept : any_rule(kind::target_match, rule) {}
    any_rule(greedy_match rule) noexcept : any_rule(kind::greedy_match, rule) {}
    any_rule(keyed_coupling rule) noexcept : any_rule(kind::keyed_coupling, rule) {}
    template <class D>
    any_rule(recursive_rejection<D> rule) noexcept : any_rule(kind::recursive_rejection, rule) {}
    template <class D>
    any_rule(traversal_verification<D> rule) noexcept : any_rule(kind::traversal_verification, rule) {}
    // NOLINTEND

    [[nodiscard]] rule_traits traits() const noexcept { return traits_; }
    [[nodiscard]] detail::type_tag held_type() const noexcept { return type_; }
    /// The rule that does for a tree what this one does for a chain: it judges trees, and drafts are drawn alike.
    [[nodiscard]] any_rule for_trees() const {
        if (traits_.judges_trees) return *this;
        bool const jointly = kind_ == kind::block_verification;
        if (draws_argmax()) {
            return jointly ? any_rule(traversal_verification<argmax_draft>{})
                           : any_rule(recursive_rejection<argmax_draft>{});
        }
        return jointly ? any_rule(traversal_verification<>{}) : any_rule(recursive_rejection<>{});
    }

    template <class Verification, class Rng>
    [[nodiscard]] decision operator()(Verification& v, Rng& rng) const {
        // Only rules that divide q among siblings decide by how it was drawn.
        switch (kind_) {
            case kind::token_rejection: return token_rejection<>{}(v, rng);
            case kind::block_verification: return block_verification<>{}(v, rng);
            case kind::target_match: return target_match<>{}(v, rng);
            case kind::greedy_match: return greedy_match{}(v, rng);
            case kind::keyed_coupling: return keyed_coupling{}(v, rng);
            case kind::recursive_rejection:
                return draws_argmax() ? recursive_rejection<argmax_draft>{}(v, rng) : recursive_rejection<>{}(v, rng);
            case kind::traversal_verification:
                return draws_argmax() ? traversal_verification<argmax_draft>{}(v, rng)
                                      : traversal_verification<>{}(v, rng);
        }
        return {};
    }

private:
    enum class kind : unsigned char {
        token_rejection,
        block_verification,
        target_match,
        greedy_match,
        keyed_coupling,
        recursive_rejection,
        traversal_verification,
    };
    template <class Rule>
    any_rule(kind of, Rule const&) noexcept : kind_(of), traits_(traits_of<Rule>()), type_(detail::tag_of<Rule>()) {}
    [[nodiscard]] bool draws_argmax() const noexcept { return traits_.draft_rule == drawn_by::argmax; }

    kind kind_;
    rule_traits traits_;
    detail::type_tag type_;
};

SURELEAP_END_NAMESPACE

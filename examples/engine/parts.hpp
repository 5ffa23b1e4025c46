// SPDX-License-Identifier: MIT
//
// Drafters as a run-time choice, and rules by name.
//
// The library composes at compile time. For schedules and rules that are chosen by flags it has any_schedule and
// any_rule. A drafter is a template over what it draws from, so an engine has a variant of those that it offers. Only
// drawing visits it: nothing is compiled for a drafter and a schedule together.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include <sureleap/serving.hpp>
#include <sureleap/sureleap.hpp>

#include "draft_lm.hpp"
#include "dspark.hpp"
#include "eagle3.hpp"
#include "heads.hpp"

namespace engine {

// ---- the choices -----------------------------------------------------------------------------------------------

/// DSpark with its learned confidence, or with the draft's top-1 probability where the file has none (DFlash).
template <class Real, class Head = any_head<Real>>
using dspark_drafter = sureleap::semi_autoregressive<dspark<Real>&, Head, any_confidence<Real>>;
template <class Real, class Head = any_head<Real>>
using dflash_drafter = sureleap::semi_autoregressive<dspark<Real>&, Head, sureleap::top1_confidence>;
/// For either: the head that draws from short lists.
template <class Real>
using listing_head = sureleap::shortlist_head<any_head<Real>>;
/// DSpark that drafts trees.
template <class Real, class Head = any_head<Real>>
using dspark_trees = sureleap::tree_drafter<dspark_drafter<Real, Head>>;
template <class Real>
using eagle3_drafter = sureleap::autoregressive<eagle3<Real>&, sureleap::top1_confidence>;
/// Lookup in front of a drafter: in the context, and in what a store has.
template <class Drafter>
using joined_drafter = sureleap::with_lookup<Drafter, sureleap::text_store>;

/// Any language model, which drafts as text.
template <class Real>
using text_drafter = sureleap::retokenised_drafts<draft_lm<Real>&, token_texts, token_texts>;

template <class Real>
using any_drafter =
    std::variant<sureleap::no_drafter<Real>, sureleap::lookup, dspark_drafter<Real>, dflash_drafter<Real>,
                 dspark_drafter<Real, listing_head<Real>>, dflash_drafter<Real, listing_head<Real>>,
                 eagle3_drafter<Real>, dspark_trees<Real>, dspark_trees<Real, listing_head<Real>>,
                 joined_drafter<sureleap::no_drafter<Real>>, joined_drafter<dspark_drafter<Real>>,
                 joined_drafter<dflash_drafter<Real>>, joined_drafter<eagle3_drafter<Real>>,
                 joined_drafter<dspark_trees<Real>>, text_drafter<Real>>;

/// What a step costs on this machine: the target's pass by its rows, as measured, and drafting beside it.
using measured_cost = sureleap::batch_cost<sureleap::capacity_table<>>;

/// The same, corrected by the rounds that a server has timed. Schedules hold their costs by value: copies are one and
/// the same, so that what a server teaches one of them its schedule knows. Models cost_model. Not thread-safe.
class learned_cost {
public:
    /*implicit*/ learned_cost(measured_cost at_start)
        : known_(std::make_shared<sureleap::refined_cost<measured_cost>>(std::move(at_start))) {}

    [[nodiscard]] double step_seconds(sureleap::step_load const& load) const noexcept {
        return known_->step_seconds(load);
    }
    void observe(sureleap::round_record const& round) const noexcept { known_->observe(round); }
    /// Back to what was measured at start.
    void forget() const noexcept { known_->forget(); }

private:
    std::shared_ptr<sureleap::refined_cost<measured_cost>> known_;
};

/// Makes `drafter` that of a loaded model with a head of whichever kind; the model must outlive it.
template <class Real, class Head>
void set_drafter(any_drafter<Real>& drafter, dspark<Real>& model, Head head) {
    sureleap::drafter_options const options{.block_size = model.block_size(),
                                            .vocabulary = model.vocabulary(),
                                            .hidden_size = model.config().hidden_size,
                                            .map = model.map()};
    if (model.source().config().draft->confidence) {
        auto confidence = load_confidence<Real>(model.source());
        drafter.template emplace<dspark_drafter<Real, Head>>(model, std::move(head), std::move(confidence), options);
    } else {
        drafter.template emplace<dflash_drafter<Real, Head>>(model, std::move(head), sureleap::top1_confidence{},
                                                             options);
    }
}
/// A loaded model with the head of its file as a drafter; the model must outlive it.
template <class Real>
[[nodiscard]] any_drafter<Real> make_drafter(dspark<Real>& model) {
    any_drafter<Real> drafter = sureleap::no_drafter<Real>(model.config().vocabulary);
    set_drafter(drafter, model, load_head<Real>(model.source(), model.embeddings()));
    return drafter;
}
template <class Real>
[[nodiscard]] any_drafter<Real> make_drafter(eagle3<Real>& model) {
    return eagle3_drafter<Real>{
        model,
        sureleap::top1_confidence{},
        {.block_size = model.block_size(), .vocabulary = model.vocabulary(), .map = model.map()}};
}
/// For a target of so many tokens, which has the tokenizer `by.served`.
template <class Real>
[[nodiscard]] any_drafter<Real> make_drafter(language_draft<Real>& by, std::size_t target_vocabulary,
                                             std::size_t block_size) {
    return text_drafter<Real>{by.model, token_texts{&by.own}, token_texts{&by.served},
                              sureleap::retokenised_options{.block_size = block_size,
                                                            .draft_vocabulary = by.model.model().vocabulary(),
                                                            .target_vocabulary = target_vocabulary}};
}

/// Most tokens of a block where lookup stands in front of a drafter of so many. What is found costs no drafting: where
/// a text repeats itself, longer blocks pay than a model drafts.
[[nodiscard]] constexpr std::size_t joined_block(std::size_t drafted) noexcept {
    return std::max<std::size_t>(drafted, 12);
}

/// Puts lookup in front of a drafter, where a context repeats itself or a text of the store, which must outlive it.
/// Throws for one that cannot be joined.
template <class Real>
void join_lookup(any_drafter<Real>& drafter, sureleap::text_store const& store,
                 sureleap::with_lookup_options const& options = {}) {
    std::visit(
        [&]<class D>(D& alone) {
            using joined = joined_drafter<D>;
            if constexpr (std::is_constructible_v<any_drafter<Real>, joined>) {
                joined both(std::move(alone), store, options);
                drafter.template emplace<joined>(std::move(both));
            } else {
                sureleap::fail_with(
                    "parts: lookup joins DSpark, DFlash and Eagle3 drafters without a shortlist, or none");
            }
        },
        drafter);
}

/// T is an alternative of the variant.
template <class T, class Variant>
inline constexpr bool is_one_of = false;
template <class T, class... Alternatives>
inline constexpr bool is_one_of<T, std::variant<Alternatives...>> = (std::is_same_v<T, Alternatives> || ...);

/// Makes a drafter draft trees. Throws for one that cannot.
template <class Real>
void grow_trees(any_drafter<Real>& drafter, sureleap::tree_options const& options) {
    std::visit(
        [&]<class D>(D& alone) {
            if constexpr (is_one_of<sureleap::tree_drafter<D>, any_drafter<Real>>) {
                sureleap::tree_drafter<D> trees(std::move(alone), options);
                drafter.template emplace<sureleap::tree_drafter<D>>(std::move(trees));
            } else {
                sureleap::fail_with("parts: trees are for DSpark drafters with a confidence head");
            }
        },
        drafter);
}

inline constexpr std::string_view rule_names = "token, token-argmax, block, match, coupled";

[[nodiscard]] inline sureleap::any_rule make_rule(std::string_view name) {
    if (name == "token") return sureleap::token_rejection<>{};
    if (name == "token-argmax") return sureleap::token_rejection<sureleap::argmax_draft>{};
    if (name == "block") return sureleap::block_verification<>{};
    if (name == "match") return sureleap::target_match<>{};
    if (name == "coupled") return sureleap::keyed_coupling{};
    sureleap::fail_with("acceptance rule '", std::string(name), "' is unknown, expected one of ",
                        std::string(rule_names));
}

/// What the drafter is that was chosen.
template <class Real>
[[nodiscard]] sureleap::drafter_traits traits_of(any_drafter<Real> const& drafter) {
    return std::visit([](auto const& d) { return sureleap::traits_of(d); }, drafter);
}

/// Throws unless the parts go together, before anything is made for them.
template <class Real>
void check_parts(any_drafter<Real> const& drafter, sureleap::any_schedule const& schedule,
                 sureleap::any_rule const& rule) {
    std::visit([&](auto const& d) { sureleap::check_round(d, schedule, rule); }, drafter);
}

}  // namespace engine

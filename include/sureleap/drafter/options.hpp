// SPDX-License-Identifier: MIT
//
// What every drafter is told at set-up, and how the library calls a user's model.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

#include <sureleap/concepts.hpp>
#include <sureleap/confidence/estimate.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/drafter/draft_block.hpp>
#include <sureleap/sampling/vocabulary_map.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Shape of a drafter. `.map` is needed only if the draft speaks a vocabulary of its own.
struct drafter_options {
    std::size_t block_size = 7;           ///< gamma, 1 .. most_keyed_drafts
    std::size_t vocabulary = 0;           ///< length of a draft logits row
    std::size_t hidden_size = 0;          ///< d, if a head or a confidence reads hidden states
    vocabulary_map const* map = nullptr;  ///< draft ids to target ids; must outlive the drafter
    /// For sharded_drafter: a rank's slice of the vocabulary, or an ascending list of those tokens in it that are
    /// drafted. Base logits and the head's output have a number for each, `vocabulary` is the target's.
    vocabulary_view slice{};

    [[nodiscard]] std::size_t row_size() const noexcept { return slice ? slice.draft_size() : vocabulary; }
    /// What a row runs over.
    [[nodiscard]] vocabulary_view tokens() const noexcept { return slice ? slice : vocabulary_view(map); }
    [[nodiscard]] std::size_t target_vocabulary() const noexcept { return map ? map->target_size() : vocabulary; }
};

/// How many tokens a drafter, or its model, can draft for a request in the coming round: what its room(request) says,
/// where it has that. An engine that calls the stages sets request_view::model_limit to it; the decoder does.
template <class Part>
[[nodiscard]] std::size_t draft_room(Part const& part, request_view const& request) {
    if constexpr (requires {
                      { part.room(request) } -> std::convertible_to<std::size_t>;
                  }) {
        return part.room(request);
    } else {
        static_assert(
            !requires { &Part::room; },
            "draft_room: this part's room would never be called; write "
            "std::size_t room(request_view const& request) const");
        return static_cast<std::size_t>(-1);
    }
}

/// Committed tokens before the request's anchor that a drafter's model has not read, and reads before it drafts: what
/// its unread(request) says, where it has that. Of request_view::unread, as draft_room is of model_limit.
template <class Part>
[[nodiscard]] std::uint64_t draft_unread(Part const& part, request_view const& request) {
    if constexpr (requires {
                      { part.unread(request) } -> std::convertible_to<std::uint64_t>;
                  }) {
        return part.unread(request);
    } else {
        static_assert(
            !requires { &Part::unread; },
            "draft_unread: this part's unread would never be called; write "
            "std::uint64_t unread(request_view const& request) const");
        return request.unread;
    }
}

namespace detail {

inline void check_options(char const* owner, drafter_options const& options) {
    check_block_size(owner, "block_size (gamma)", options.block_size);
    if (options.vocabulary == 0) fail_with(owner, ": vocabulary is 0, expected the length of a draft logits row");
    if (options.map && options.map->draft_size() != options.vocabulary) {
        fail_with(owner, ": the vocabulary map has ", options.map->draft_size(), " draft tokens, expected ",
                  options.vocabulary);
    }
    if (!options.slice) return;
    if (options.map) fail_with(owner, ": there are a vocabulary map and a slice, expected one of them");
    if (options.slice.target_size() != options.vocabulary ||
        (!options.slice.is_slice() && options.slice.list().empty())) {
        fail_with(owner, ": slice is of ", options.slice.target_size(), " tokens, expected a slice of the ",
                  options.vocabulary, " of the vocabulary, or an ascending list of them");
    }
}

/// What a confidence says it reads, against what it will be given.
template <class Confidence>
void check_confidence(char const* owner, Confidence const& confidence, drafter_options const& options) {
    if constexpr (requires { confidence.hidden_size(); }) {
        if (confidence.hidden_size() != options.hidden_size) {
            fail_with(owner, ": the confidence reads hidden states of size ", confidence.hidden_size(),
                      ", expected options.hidden_size = ", options.hidden_size);
        }
    }
    if constexpr (requires { confidence.previous_vocabulary(); }) {
        if (confidence.previous_vocabulary() != 0 && confidence.previous_vocabulary() != options.target_vocabulary()) {
            fail_with(owner, ": the confidence embeds ", confidence.previous_vocabulary(),
                      " previous tokens, expected the target vocabulary of ", options.target_vocabulary());
        }
    }
}

/// model.forward(arguments...) or model(arguments...): a lambda is a model.
template <class Model, class... Arguments>
[[nodiscard]] decltype(auto) call_forward(Model& model, Arguments const&... arguments) {
    if constexpr (requires { model.forward(arguments...); }) {
        return model.forward(arguments...);
    } else {
        return model(arguments...);
    }
}

template <class Model, class... Arguments>
using forward_result_of_t = std::remove_cvref_t<decltype(call_forward(std::declval<std::remove_reference_t<Model>&>(),
                                                                      std::declval<Arguments const&>()...))>;
template <class Model>
using forward_result_t = forward_result_of_t<Model, std::span<request_view const>>;

}  // namespace detail

SURELEAP_END_NAMESPACE

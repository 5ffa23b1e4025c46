// SPDX-License-Identifier: MIT
//
// What stages of a round check before they do anything, in release builds too: that they are called in order, with the
// parts that the round_memory was made for, and with requests that can take part. A check is a comparison or two; texts
// are made where it fails.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory>
#include <span>
#include <type_traits>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/pass.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/round/check.hpp>
#include <sureleap/round/memory.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace detail {

/// The stage may run now, and with this part; `otherwise` says what is wrong and what to do.
inline void expect_round(bool so, char const* otherwise) {
    if (!so) fail_with(otherwise);
}

template <class Schedule>
void expect_schedule(round_parts const& parts, Schedule const& schedule, char const* stage) {
    if (parts.schedule == tag_of(schedule)) return;
    fail_with(stage,
              ": the round_memory was made with a schedule of another type; give all stages the schedule that it "
              "was made with");
}
/// The object that began the round, and not another of its type: which one is asked must not depend on what was drawn.
inline void expect_same(void const* began, void const* schedule, char const* stage) {
    if (began == schedule) return;
    fail_with(stage,
              ": this is another schedule than the one that began the round, though of its type; give all stages of a "
              "round the same object, and those of a round that failed while it drafted once more");
}
template <class Rule>
void expect_rule(round_parts const& parts, Rule const& rule, char const* stage) {
    if (parts.rule == tag_of(rule)) return;
    fail_with(stage,
              ": the round_memory was made for another acceptance rule, and may keep nothing of what this one "
              "reads; make a round_memory for each rule");
}
/// Rules without a state are all the same.
template <class Rule>
[[nodiscard]] constexpr void const* object_of(Rule const& rule) noexcept {
    return std::is_empty_v<Rule> ? nullptr : std::addressof(rule);
}

/// A schedule lowers limits and sets weights. Whatever else it did to the requests is refused, and limits that it
/// raised are the engine's again.
inline void keep_limits(std::span<request_view> limited, std::span<request_view const> requests,
                        std::size_t model_block_size) {
    for (std::size_t r = 0; r < requests.size(); ++r) {
        request_view& now = limited[r];
        request_view const& was = requests[r];
        bool const same = now.id == was.id && now.slot == was.slot && now.anchor == was.anchor &&
                          now.position == was.position && now.seed == was.seed && now.remaining == was.remaining &&
                          now.settings == was.settings && now.context.data() == was.context.data() &&
                          now.context.size() == was.context.size();
        if (!same) {
            fail_with("begin_round: limit_drafts left request ", now.id, " of slot ", now.slot, " at place ", r,
                      ", expected request ", was.id, " of slot ", was.slot,
                      " as it was; a schedule lowers draft_limit and model_limit and sets the weight, in the order "
                      "of the requests, and changes nothing else");
        }
        now.draft_limit = std::min(now.draft_limit, was.draft_limit);
        now.model_limit = std::min({now.model_limit, was.model_limit, model_block_size});
    }
}

/// What a model lent to this round is the round's, and no later pass of the model has overwritten it.
inline void expect_pass(pass_stamp const& pass, std::span<request_view const> requests, char const* stage,
                        char const* what, char const* remedy) {
    if (!pass.is_current()) {
        fail_with(stage, ": ", what, " of pass ", pass.number(), ", and pass ", pass.latest(),
                  " of the same model has begun since, which overwrites that; ", remedy);
    }
    if (pass.requests() != 0 && pass.requests() != fingerprint_of(requests)) {
        fail_with(
            stage, ": ", what,
            " of a pass for other requests than the round's; give each round_memory what was computed for its own");
    }
}
inline void expect_forward(pass_stamp const& pass, std::span<request_view const> requests, char const* stage) {
    expect_pass(
        pass, requests, stage, "what forward returned is",
        "draw each round before the drafter's next forward, or give each round_memory a drafter with a model of "
        "its own");
}
inline void expect_lent_drafts(pass_stamp const& pass, std::span<request_view const> requests, char const* stage) {
    expect_pass(
        pass, requests, stage, "the rows that tokens were drawn from are",
        "accept each round before the drafter's next forward, or give each round_memory a drafter with a model of "
        "its own");
}
inline void expect_rows(pass_stamp const& pass, std::span<request_view const> requests, char const* stage) {
    expect_pass(
        pass, requests, stage, "the target's rows are",
        "accept and end each round before the target's next pass, or give each round_memory a target with rows of "
        "its own");
}

/// The settings are read in every round, so they are checked in every round: the text is only made where they are
/// wrong.
[[nodiscard]] inline bool is_usable(transform const& t) noexcept {
    return t.temperature >= 0.0 && t.temperature <= largest_temperature && t.top_k >= 0 && t.top_p > 0.0 &&
           t.top_p <= 1.0 && t.min_p >= 0.0 && t.min_p <= 1.0;
}

inline void check_request(std::size_t r, request_view const& request, round_parts const& parts) {
    if (request.settings == nullptr) {
        fail_with("begin_round: request ", r, " (id ", request.id,
                  ") has no settings, expected a pointer to some that outlive the round");
    }
    request_settings const& s = *request.settings;
    bool const usable = is_usable(s.target_transform()) && (!s.draft || is_usable(*s.draft)) && s.priority > 0.0 &&
                        s.priority <= std::numeric_limits<double>::max() && s.min_new_tokens <= s.max_new_tokens;
    if (!usable) check_settings(s);
    if (parts.rule_is.greedy_only && !s.target_transform().greedy()) {
        fail_with("begin_round: request ", r, " (id ", request.id, ") has temperature ", s.temperature,
                  ", expected 0: this acceptance rule decodes greedily; use another for sampling");
    }
    if (s.masks_rows() && !parts.constrained) {
        fail_with("begin_round: request ", r, " (id ", request.id,
                  ") has a constraint or min_new_tokens, expected a round_memory with room for rows that are masked: "
                  "set round_limits::constrained (decoder_options::constrained)");
    }
    if (s.top_log_probabilities > (s.log_probabilities ? parts.top_log_probabilities : 0)) {
        fail_with("begin_round: request ", r, " (id ", request.id, ") asks for ", s.top_log_probabilities,
                  " top_log_probabilities, expected at most ",
                  s.log_probabilities ? parts.top_log_probabilities : std::size_t{0},
                  s.log_probabilities ? ": round_limits (decoder_options) ::top_log_probabilities sets it"
                                      : " where log_probabilities is false");
    }
    if (request.anchor < 0 || static_cast<std::size_t>(request.anchor) >= parts.target_vocabulary) {
        fail_with("begin_round: request ", r, " (id ", request.id, ") has anchor ", request.anchor,
                  ", expected a token of the target, 0 .. ", parts.target_vocabulary - 1);
    }
    if (!request.context.empty() && request.context.back() != request.anchor) {
        fail_with("begin_round: request ", r, " (id ", request.id, ") has anchor ", request.anchor,
                  ", but its context ends with ", request.context.back(), "; expected the same token");
    }
    if (request.remaining == 0) {
        fail_with(
            "begin_round: request ", r, " (id ", request.id,
            ") has remaining = 0, expected at least 1: a round emits a token; a request that is done takes no part");
    }
}

/// The first request that has another draft than in an attempt that failed, or beyond the last.
template <class Round>
[[nodiscard]] std::size_t first_other_draft(Round const& round) noexcept {
    auto const requests = round.block.requests();
    std::size_t r = 0;
    while (r < requests.size() &&
           round.attempts.same_draft(requests[r], round.block.tokens(r), round.block.parents(r))) {
        ++r;
    }
    return r;
}

/// The drafts of the round may end where they stand, whatever ended them. Else what ended them may be a token of one
/// request, and end those of another: a schedule that compares the two would look ahead.
template <class Round>
[[nodiscard]] bool may_end_drafts(Round const& round) noexcept {
    std::size_t const requests = round.block.requests().size();
    bool drawn = false;
    for (std::size_t r = 0; r < requests; ++r) drawn = drawn || !round.block.tokens(r).empty();
    return (!drawn || requests == 1 || round.attempts.takes_any_draft()) && first_other_draft(round) == requests;
}

/// Run again after a failure, a request drafts what it drafted before: the same tokens, by the same parts. Another
/// draft is a status of its own. Where lengths are not decided they would all depend on it, so there the round cannot
/// go on.
template <class Round>
void check_draft(std::size_t r, request_view const& request, Round& round) {
    if (round.attempts.same_draft(request, round.block.tokens(r), round.block.parents(r))) return;
    if (round.attempts.decided(request)) {
        status const so_far = round.block.draft_outcome(r);
        if (so_far == status::ok || is_draft_failure(so_far)) round.block.reject(r, status::other_draft);
        return;
    }
    fail_with(
        "admit: request ", r, " (id ", request.id,
        ") has another draft than in the attempt that failed, or another drafter or rule, expected the same tokens of "
        "the same parts. A drafter draws by the keys that it is given, not from a generator of its own; to give the "
        "round up, call join(slot) for each of its requests: they are new requests then");
}

}  // namespace detail

SURELEAP_END_NAMESPACE

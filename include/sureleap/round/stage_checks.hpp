// SPDX-License-Identifier: MIT
//
// What stages of a round check before they do anything, in release builds too: that they are called in order, with the parts that
// the round_memory was made for, and with requests that can take part. A check is a comparison or two; texts are made where it
// fails.
#pragma once

#include <cstddef>
#include <limits>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
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
void expect_schedule(round_parts const& parts, char const* stage) {
    if (parts.schedule == tag_of<Schedule>()) return;
    fail_with(stage,
              ": the round_memory was made with a schedule of another type; give all stages the schedule that it "
              "was made with");
}
template <class Rule>
void expect_rule(round_parts const& parts, char const* stage) {
    if (parts.rule == tag_of<Rule>()) return;
    fail_with(stage,
              ": the round_memory was made for another acceptance rule, and may keep nothing of what this one "
              "reads; make a round_memory for each rule");
}

/// The settings are read in every round, so they are checked in every round: the text is only made where they are wrong.
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
                        s.priority <= std::numeric_limits<double>::max();
    if (!usable) check_settings(s);
    if (parts.greedy_only && !s.target_transform().greedy()) {
        fail_with("begin_round: request ", r, " (id ", request.id, ") has temperature ", s.temperature,
                  ", expected 0: this acceptance rule decodes greedily; use another for sampling");
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

}  // namespace detail

SURELEAP_END_NAMESPACE

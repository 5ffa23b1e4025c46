// SPDX-License-Identifier: MIT
//
// Whole rounds. A runner holds the parts of an engine and the memory of its rounds. It calls the stages of
// round/stages.hpp in their order, with what a schedule may do before and after them. The decoder is a runner with
// places for requests. An engine that keeps its requests itself can use a runner if its forward passes are function
// calls. If they are not, it calls the stages.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <sureleap/concepts.hpp>
#include <sureleap/core/calibration_ref.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/executor.hpp>
#include <sureleap/drafter/options.hpp>
#include <sureleap/round/check.hpp>
#include <sureleap/round/record.hpp>
#include <sureleap/round/stages.hpp>
#include <sureleap/sampling/random.hpp>
#include <sureleap/schedule/planning.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Target: target_model. Drafter: drafter. Schedule: scheduler. Rule: acceptance_sampler. Hook: logits_hook. Rng:
/// randomness. Combinations whose output would not have the target's law do not compile, unless AllowLossy. Target and
/// Drafter are references where lvalues were given. Not thread-safe, not copyable: models may hold on to its memory.
template <class Target, class Drafter, class Schedule, class Rule, class Hook = no_logits_hook,
          class Rng = philox_randomness, bool AllowLossy = false>
class round_runner {
    using drafter_type = std::remove_cvref_t<Drafter>;
    static_assert(
        target_model<std::remove_reference_t<Target>>,
        "round_runner: the target is no target_model; give it score(verify_batch const&) or a call operator that "
        "returns sureleap::logits_rows<T>, or wrap a function of a context with sureleap::model_of");
    static_assert(drafter<drafter_type>, SURELEAP_DETAIL_NO_DRAFTER);
    static_assert(acceptance_sampler<Rule>, SURELEAP_DETAIL_NO_RULE);
    static_assert(scheduler<Schedule>, SURELEAP_DETAIL_NO_SCHEDULE);

    static_assert(
        !traits_of<drafter_type>().drafts_trees || scores_trees_v<Target>,
        "round_runner: the drafter drafts trees, and the target does not say that it scores them. A row's token is "
        "behind its own path (verify_batch::parents), not behind all rows before it; a target that heeds this "
        "declares `static constexpr bool scores_trees = true`");

public:
    using target_value = target_value_t<Target>;
    using draft_value = typename drafter_type::value_type;

    static_assert(logits_hook<Hook, compute_t<target_value>>,
                  "round_runner: the hook must be callable as hook(hook_context const&, std::span<real>)");
    static_assert(randomness<Rng>, "round_runner: the random source does not model sureleap::randomness");

    /// A drafter that throws costs its round the drafts it has not made, and is asked again in the next one: so many
    /// times in a row (drafter_retries), then its failure comes out of run. So it does at once where the round may not
    /// go on (can_end_drafts).
    round_runner(Target target, Drafter drafter, Schedule schedule, Rule rule, round_limits const& limits, Hook hook,
                 Rng rng, std::size_t drafter_retries = 0)
        : target_(std::forward<Target>(target)),
          drafter_(std::forward<Drafter>(drafter)),
          schedule_(std::move(schedule)),
          rule_(std::move(rule)),
          hook_(std::move(hook)),
          rng_(std::move(rng)),
          memory_(make_memory(limits)),
          views_(limits.max_requests),
          drafter_retries_(drafter_retries) {
        if constexpr (requires {
                          { target_.vocabulary() } -> std::convertible_to<std::size_t>;
                      }) {
            if (target_.vocabulary() != drafter_.target_vocabulary()) {
                fail_with("round_runner: the target has ", target_.vocabulary(), " tokens, the drafter speaks of ",
                          drafter_.target_vocabulary(), "; expected equal vocabularies (or a vocabulary_map)");
            }
        }
    }
    round_runner(round_runner const&) = delete;
    round_runner& operator=(round_runner const&) = delete;

    /// Call when a request takes a slot: forgets the slot's past.
    void join(std::size_t slot) { memory_.join(slot); }

    /// A round has failed while it drafted: the next one is of the same requests (round_memory).
    [[nodiscard]] bool undecided() const noexcept { return memory_.undecided(); }

    /// Runs a round for these requests and returns its record, valid until the next one. A failure of the target, of
    /// the hook, or of the drafter if it is out of retries, propagates with nothing committed; the round may be run
    /// again. Allocates nothing itself.
    round_record run(std::span<request_view const> requests) {
        draft_failure_ = nullptr;
        if (begin_round(schedule_, asked_about(requests), memory_)) draft();
        accept(rule_, score(target_, admit(schedule_, memory_)), hook_, rng_, memory_);
        return end_round(schedule_, memory_, target_, drafter_);
    }

    /// What the drafter threw in the last round, if that went on without it; else null.
    [[nodiscard]] std::exception_ptr draft_failure() const noexcept { return draft_failure_; }
    [[nodiscard]] drafter_type const& drafter_part() const noexcept { return drafter_; }
    [[nodiscard]] Schedule const& schedule() const noexcept { return schedule_; }
    [[nodiscard]] Rule const& rule() const noexcept { return rule_; }
    [[nodiscard]] std::size_t memory_bytes() const noexcept { return memory_.bytes(); }

private:
    using memory_type = round_memory<target_value, draft_value, Hook>;

    /// The requests, which draft no more than the drafter has room for, and what its model and the target are behind
    /// with.
    [[nodiscard]] std::span<request_view const> asked_about(std::span<request_view const> requests) {
        if (requests.size() > views_.size()) return requests;  // begin_round says what is wrong
        for (std::size_t r = 0; r < requests.size(); ++r) {
            views_[r] = requests[r];
            views_[r].model_limit = std::min(requests[r].model_limit, draft_room(drafter_part(), requests[r]));
            views_[r].unread = draft_unread(drafter_part(), requests[r]);
            if constexpr (requires { static_cast<bool>(target_.replays(requests[r])); }) {
                views_[r].replays = target_.replays(requests[r]);
            } else {
                static_assert(
                    !requires { &std::remove_reference_t<Target>::replays; },
                    "round_runner: this target's replays would never be called; write "
                    "bool replays(request_view const& request) const");
            }
        }
        return std::span(views_).first(requests.size());
    }
    void ask_drafter() {
        auto const forward = drafter_.forward(memory_.requests());
        plan(schedule_, drafter_, forward, memory_);
        draw(drafter_, forward, rule_, rng_, memory_);
    }
    void draft() {
#if SURELEAP_EXCEPTIONS
        try {
            ask_drafter();
            failures_ = 0;
        } catch (...) {
            if (++failures_ > drafter_retries_ || !can_end_drafts(memory_)) throw;
            draft_failure_ = std::current_exception();
            end_drafts(memory_);
        }
#else
        ask_drafter();
#endif
    }
    [[nodiscard]] memory_type make_memory(round_limits const& limits) {
        if constexpr (AllowLossy) {
            return memory_type{drafter_, schedule_, rule_, allow_lossy, limits};
        } else {
            return memory_type{drafter_, schedule_, rule_, limits};
        }
    }

    Target target_;
    Drafter drafter_;
    Schedule schedule_;
    Rule rule_;
    [[no_unique_address]] Hook hook_;
    [[no_unique_address]] Rng rng_;
    memory_type memory_;
    std::vector<request_view> views_;
    std::size_t drafter_retries_;
    std::size_t failures_ = 0;  // of the drafter, in a row
    std::exception_ptr draft_failure_{};
};

SURELEAP_END_NAMESPACE

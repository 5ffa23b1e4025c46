// SPDX-License-Identifier: MIT
//
// All memory of an engine's rounds, carved once, and how far a round has come. It is made for a drafter, a schedule and
// a rule. Their combination is checked here, and the stages of round/stages.hpp refuse other parts. Only stages write
// what the next stage reads. A length that was changed after admission, or a block of the round before, would bias the
// output without a trace.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include <sureleap/concepts.hpp>
#include <sureleap/core/calibration_ref.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/executor.hpp>
#include <sureleap/core/function_ref.hpp>
#include <sureleap/core/pass.hpp>
#include <sureleap/detail/kernel/rows.hpp>
#include <sureleap/drafter/draft_block.hpp>
#include <sureleap/drafter/draft_memory.hpp>
#include <sureleap/round/attempts.hpp>
#include <sureleap/round/check.hpp>
#include <sureleap/round/record.hpp>
#include <sureleap/schedule/adapter.hpp>
#include <sureleap/schedule/frontier.hpp>
#include <sureleap/schedule/planning.hpp>
#include <sureleap/traits.hpp>
#include <sureleap/verify/draft_tree.hpp>
#include <sureleap/verify/verdict.hpp>
#include <sureleap/verify/verification.hpp>
#include <sureleap/verify/verify_batch.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Sizes of an engine's rounds.
struct round_limits {
    std::size_t max_requests = 1;
    /// For everything that passes over rows of logits; a static table. Null: the best that this machine runs. (If it
    /// were named here, whoever includes this header would compile it.)
    row_kernels const* kernels = nullptr;
    /// Threads that a round may use; must outlive the memory. Default: the calling one. Results are the same bits with
    /// any.
    executor_ref executor{};
    /// Applied to every confidence, live and at the anchor; must outlive the memory. Default: none.
    calibration_ref calibration{};
    /// Times the rounds, from begin_round to the end of the commits; must outlive the memory. Default: nobody does.
    clock_ref clock{};
    /// Where the memory is carved: round_memory::bytes_for(..) bytes that outlive it. Empty: it is allocated.
    std::span<std::byte> buffer{};
    /// Requests may have a constraint or min_new_tokens: there is room for rows that are masked, (gamma + 1) V of the
    /// target's for each thread, and R gamma V of a drafter's that lends its rows.
    bool constrained = false;
    /// Most that a request may ask for (request_settings::top_log_probabilities).
    std::size_t top_log_probabilities = 0;
};

namespace detail {

/// How far a round has come, and by which passes. Flags and not one number, because a planner of past rounds may run
/// beside the draw, on another thread.
struct round_progress {
    bool begun = false;
    bool planned = false;
    bool drawn = false;
    bool admitted = false;
    bool judged = false;
    status ranks = status::ok;  ///< what all requests of the round end with, if the ranks do not agree
    pass_stamp lent_drafts{};   ///< of the rows that tokens were drawn from, if they stay with the drafter's model
    pass_stamp scored{};        ///< of the rows that the round was judged by
};

/// What the memory was made for.
struct round_parts {
    type_tag drafter = nullptr;
    type_tag schedule = nullptr;
    type_tag rule = nullptr;
    rule_traits rule_is{};
    bool finds_tokens = false;         ///< the drafter does, beside its model,
    std::size_t model_block_size = 0;  ///< which drafts so many at most
    std::size_t state_size = 0;        ///< of the drafter's head
    std::size_t target_vocabulary = 0;
    bool constrained = false;  ///< there is room for masked rows
    std::size_t top_log_probabilities = 0;

    [[nodiscard]] bool is_token(token_id x) const noexcept {
        return x >= 0 && static_cast<std::size_t>(x) < target_vocabulary;
    }
};

/// Carves the memory of a drafter, and says where it is.
using draft_carver = function_ref<void*(workspace&, draft_shape const&)>;

/// What stages leave for each other. Spans are of [R], or as it says there.
template <class T, class Q, class Hook>
struct round_state {
    round_parts parts{};
    round_progress at{};
    void const* schedule = nullptr;  ///< the object that began the round
    void const* rule = nullptr;      ///< that was drawn for, if it has a state
    clock_ref clock{};
    double began = 0.0;
    std::span<request_view> requests{};
    round_attempts attempts{};
    draft_block<Q> block{};
    void* drafting = nullptr;  ///< draft_memory_t of the drafter that the parts name
    planning_memory planning{};
    std::optional<std::size_t> budget{};  ///< what a planner decided
    survival_history history{};
    frontier_memory frontier{};
    verify_batch batch{};
    std::span<verification_memory<T, Hook>> verifications{};  ///< one for every request that may be judged at once
    std::span<tree_scratch> trees{};                          ///< the same, if trees are judged
    std::span<verdict> verdicts{};
    std::span<token_id> emitted{};                             ///< [R, gamma + 1]
    std::span<double> log_probabilities{};                     ///< [R, gamma + 1]
    std::span<token_log_probability> top_log_probabilities{};  ///< [R, gamma + 1, most]
    std::span<std::uint32_t> ranks{};                          ///< [R, gamma + 1]
    std::span<node_id> paths{};                                ///< [R, gamma] if trees are judged

    void carve(workspace& ws, draft_shape const& shape, draft_carver const& carve_draft) noexcept {
        std::size_t const rows = shape.requests * (shape.block_size + 1);
        requests = ws.take<request_view>(shape.requests);
        attempts = round_attempts(
            ws,
            {.slots = shape.requests, .positions = shape.block_size, .trees = shape.trees, .sampled = shape.keep_rows});
        block = draft_block<Q>(ws, shape);
        drafting = carve_draft(ws, block.shape());
        planning = planning_memory::carve(ws, shape.requests, shape.block_size);
        frontier = frontier_memory::carve(ws, shape.requests);
        batch = verify_batch(ws, shape.requests, shape.block_size);
        std::size_t const workers = std::min(shape.executor.width(), shape.requests);
        verifications = ws.take<verification_memory<T, Hook>>(workers);
        trees = ws.take<tree_scratch>(parts.rule_is.judges_trees ? workers : 0);
        for (std::size_t w = 0; w < workers; ++w) {
            auto const one = verification_memory<T, Hook>::carve(ws, shape.block_size, parts.target_vocabulary,
                                                                 *block.shape().kernels, parts.constrained);
            if (!ws.counting()) verifications[w] = one;
            if (!parts.rule_is.judges_trees) continue;
            auto const tree = tree_scratch::carve(ws, shape.block_size);
            if (!ws.counting()) trees[w] = tree;
        }
        paths = ws.take<node_id>(parts.rule_is.judges_trees ? shape.requests * shape.block_size : 0);
        verdicts = ws.take<verdict>(shape.requests);
        emitted = ws.take<token_id>(rows);
        log_probabilities = ws.take<double>(rows);
        top_log_probabilities = ws.take<token_log_probability>(rows * parts.top_log_probabilities);
        ranks = ws.take<std::uint32_t>(rows);
    }
};

struct round_access;

}  // namespace detail

/// T: target storage; Q: draft compute type; Hook: logits hook. Moves, and does not copy: it is full of views of
/// itself.
template <class T, class Q, class Hook = no_logits_hook>
class round_memory {
public:
    /// Sets the schedule up for these sizes, if it keeps something for each slot (sized_part), and keeps its history if
    /// it reads one. Does not compile if the parts together would not keep the target's law, or throws where they are
    /// chosen at run time (check_round). Throws if the limits cannot be honoured.
    template <class Drafter, class Schedule, class Rule>
    round_memory(Drafter const& drafter, Schedule& schedule, Rule const& rule, round_limits const& limits)
        : round_memory(drafter, schedule, rule, limits, std::false_type{}) {}
    /// The same of parts that do not keep the law.
    template <class Drafter, class Schedule, class Rule>
    round_memory(Drafter const& drafter, Schedule& schedule, Rule const& rule, allow_lossy_t,
                 round_limits const& limits)
        : round_memory(drafter, schedule, rule, limits, std::true_type{}) {}

    round_memory(round_memory&&) noexcept = default;
    round_memory& operator=(round_memory&&) noexcept = default;

    /// Forgets what is known of the slot: the request that takes it is another one, though it may have the same id.
    void join(std::size_t slot) {
        if (slot >= sizes_.max_requests) {
            fail_with("round_memory: slot ", slot,
                      " was taken, expected a slot below max_requests = ", sizes_.max_requests);
        }
        state_.attempts.forget(slot);
        state_.history.join(slot);
    }

    /// A round was drawn and is not admitted. If it has failed, the next one is the same: of its requests, all of them,
    /// those too that have left since, and of nobody else (round/attempts.hpp). An engine asks before it seats or
    /// removes anybody. Where the rule is exact for any draft, or drafts are not drawn, it makes no difference, and
    /// this is always false.
    [[nodiscard]] bool undecided() const noexcept { return state_.attempts.undecided(); }

    [[nodiscard]] round_sizes const& sizes() const noexcept { return sizes_; }
    [[nodiscard]] std::size_t bytes() const noexcept { return buffer_.size(); }
    /// Bytes that a round_limits::buffer needs for these parts.
    template <class Drafter, class Rule>
    [[nodiscard]] static std::size_t bytes_for(Drafter const& drafter, Rule const& rule, round_limits const& limits) {
        detail::round_state<T, Q, Hook> state{};
        state.parts.target_vocabulary = drafter.target_vocabulary();
        state.parts.rule_is = traits_of(rule);
        state.parts.constrained = limits.constrained;
        state.parts.top_log_probabilities = limits.top_log_probabilities;
        workspace sizer;
        state.carve(sizer, shape_of(drafter, rule, limits), carver_of(drafter));
        return sizer.used();
    }

    // Of the round, or of the last one until another begins:

    /// The requests as they take part, with the limits and weights of the round.
    [[nodiscard]] std::span<request_view const> requests() const noexcept { return state_.block.requests(); }
    [[nodiscard]] draft_block<Q> const& block() const noexcept { return state_.block; }
    [[nodiscard]] verify_batch const& batch() const noexcept { return state_.batch; }

private:
    friend struct detail::round_access;

    template <class Drafter, class Schedule, class Rule, bool AllowLossy>
    round_memory(Drafter const& drafter, Schedule& schedule, Rule const& rule, round_limits const& limits,
                 std::bool_constant<AllowLossy>)
        : sizes_{limits.max_requests, drafter.block_size()} {
        check_round<AllowLossy>(drafter, schedule, rule);
        make({detail::tag_of<Drafter>(), detail::tag_of(schedule), detail::tag_of(rule), traits_of(rule),
              finds_tokens_v<Drafter>, model_block_size_of(drafter), detail::state_size_of(drafter),
              drafter.target_vocabulary(), limits.constrained, limits.top_log_probabilities},
             shape_of(drafter, rule, limits), carver_of(drafter), limits);
        if constexpr (sized_part<Schedule>) schedule.set_up(sizes_);
        if constexpr (planner<Schedule>) {
            schedule_traits const plans = traits_of(schedule);
            if (!plans.reads_history()) return;
            state_.history =
                survival_history(sizes_.max_requests, sizes_.block_size, plans.lag, detail::prior_of(schedule));
        }
    }

    // The same code for all parts: engines that choose theirs at run time construct memories of hundreds of
    // combinations.
    void make(detail::round_parts const& parts, draft_shape const& shape, detail::draft_carver const& carve_draft,
              round_limits const& limits) {
        if (limits.max_requests == 0) fail_with("round_limits: max_requests is 0, expected at least 1");
        detail::check_block_size("round_memory", "the drafter's block_size()", sizes_.block_size);
        limits.calibration.expect_serves(sizes_);
        if (limits.executor.width() == 0) fail_with("round_limits: the executor's width is 0, expected at least 1");
        state_.parts = parts;
        state_.clock = limits.clock;
        workspace sizer;
        state_.carve(sizer, shape, carve_draft);
        if (limits.buffer.empty()) {
            own_.resize(sizer.used());
        } else if (limits.buffer.size() < sizer.used()) {
            fail_with("round_limits: buffer has ", limits.buffer.size(),
                      " bytes, expected at least bytes_for(..) = ", sizer.used());
        }
        buffer_ = limits.buffer.empty() ? std::span<std::byte>(own_) : limits.buffer;
        workspace ws{buffer_};
        state_.carve(ws, shape, carve_draft);
    }

    template <class Drafter>
    [[nodiscard]] static detail::draft_carver carver_of(Drafter const& d) noexcept {
        return {d, [](Drafter const& drafter, workspace& ws, draft_shape const& shape) noexcept -> void* {
                    draft_memory_t<Drafter, Q> const carved(ws, shape, drafter);
                    auto const place = ws.take<draft_memory_t<Drafter, Q>>(1);
                    if (!ws.counting()) place[0] = carved;
                    return place.data();
                }};
    }
    template <class Drafter>
    [[nodiscard]] static std::size_t model_block_size_of(Drafter const& d) noexcept {
        if constexpr (finds_tokens_v<Drafter>) return d.model_block_size();
        return d.block_size();
    }
    template <class Drafter, class Rule>
    [[nodiscard]] static draft_shape shape_of(Drafter const& d, Rule const& rule, round_limits const& limits) noexcept {
        // Of a drafter that says it is deterministic no rows are kept, so it is held to it.
        drawn_by const how = traits_of(d).is_deterministic ? drawn_by::argmax : traits_of(rule).draft_rule;
        bool const rows = traits_of(rule).access == q_access::row && how != drawn_by::argmax;
        return {.requests = limits.max_requests,
                .block_size = d.block_size(),
                .vocabulary = d.vocabulary(),
                .trees = traits_of(d).drafts_trees,
                .constrained = limits.constrained,
                .keep_rows = rows,
                .rule = how,
                .kernels = limits.kernels,
                .executor = limits.executor,
                .calibration = limits.calibration};
    }

    round_sizes sizes_{};
    std::vector<std::byte> own_;  // if none was lent
    std::span<std::byte> buffer_{};
    detail::round_state<T, Q, Hook> state_{};  // views of the buffer
};

namespace detail {
/// For the stages of round/stages.hpp.
struct round_access {
    template <class T, class Q, class Hook>
    [[nodiscard]] static round_state<T, Q, Hook>& state(round_memory<T, Q, Hook>& memory) noexcept {
        return memory.state_;
    }
    /// Precondition: the memory was made for a Drafter.
    template <class Drafter, class T, class Q, class Hook>
    [[nodiscard]] static auto& draft_memory(round_state<T, Q, Hook> const& round) noexcept {
        return *static_cast<draft_memory_t<Drafter, Q> const*>(round.drafting);
    }
};
}  // namespace detail

SURELEAP_END_NAMESPACE

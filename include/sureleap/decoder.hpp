// SPDX-License-Identifier: MIT
//
// The decoder owns the loop. Requests are submitted at any time and wait for a place; every step() runs one round for
// all that have one, through the stages of round/stages.hpp. Each request has its own settings, seed, limits and
// priority, and can be paused, resumed and cancelled between any two rounds.
//
//     decoder dec{target, drafter, greedy_schedule{capacity}, token_rejection{}, {.max_requests = 64}};
//     auto id = dec.submit(prompt, {.temperature = 0.7, .seed = 42, .max_new_tokens = 200});
//     while (dec.step()) {
//         for (auto const& event : dec.events()) {
//             if (event.outcome != status::ok) report(event.request, to_string(event.outcome));  // it stands still
//             send(event.request, event.tokens, event.finished);
//         }
//     }
//
// The other requests of a batch change how fast a request goes, and never the law of its tokens. Under target_match and
// keyed_coupling they do not change the tokens either. A request that waits, or is paused, is exactly as it was.
//
// Waiting requests get places in the order of their priorities, then of their submission, and nobody overtakes the
// first one: a small request that fits where the first does not would keep it waiting for ever. A queue does not age
// priorities: whether a request may wait for ever behind more important ones is for the engine to decide.
//
// A round that failed while it drafted is run again before anything else, by the requests that it had. With others, or
// without one of them, the lengths that are verified would be others because of the tokens that were drawn
// (round/attempts.hpp). Until that round is over nobody gets a place, and a request of it that was cancelled or paused
// takes part once more.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <sureleap/core/calibration_ref.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/executor.hpp>
#include <sureleap/detail/kernel/rows.hpp>
#include <sureleap/round/check.hpp>
#include <sureleap/round/record.hpp>
#include <sureleap/round/report.hpp>
#include <sureleap/round/request_place.hpp>
#include <sureleap/round/runner.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Sizes of a decoder, fixed at set-up, and what it lends to its rounds.
struct decoder_options {
    std::size_t max_requests = 1;  ///< places: requests of a round, paused ones included
    /// Requests that may wait beyond the places that are free. 0: no queue.
    std::size_t max_waiting = std::numeric_limits<std::size_t>::max();
    /// Of all requests that have a place, each counted with its prompt and all that it may generate: what a cache of
    /// keys and values must hold.
    std::size_t max_tokens = std::numeric_limits<std::size_t>::max();
    /// Where the seeds of unseeded requests come from: a request's is a function of this and of its id. Two decoders of
    /// one seed repeat each other, as a run that is to be reproduced must. So decoders that serve side by side need
    /// different seeds, or their requests of equal ids and prompts get equal texts. Unset: the system's random device,
    /// which needs no care.
    std::optional<std::uint64_t> seed{};
    /// For everything that passes over rows of logits, as in round_limits; a static table. Null: the best that runs
    /// here.
    row_kernels const* kernels = nullptr;
    /// Threads that a round may use; must outlive the decoder. Default: the one that calls step().
    executor_ref executor{};
    /// Applied to every confidence; must outlive the decoder. Default: none.
    calibration_ref calibration{};
    /// Times the rounds; must outlive the decoder. Default: nobody does.
    clock_ref clock{};
    /// Requests may have a constraint or min_new_tokens: room for rows that are masked (round_limits).
    bool constrained = false;
    /// Most that a request may ask for (request_settings::top_log_probabilities).
    std::size_t top_log_probabilities = 0;
    /// How often in a row a drafter that throws is tried again, in the rounds that follow. Those rounds go on with what
    /// it had drafted, and draft_failure() has what it threw. 0: its failure comes out of step(). So it does where
    /// tokens were drawn for several requests and the rule samples (can_end_drafts): then step again, and the round is
    /// the same.
    std::size_t drafter_retries = 0;

    [[nodiscard]] round_limits limits() const noexcept {
        return {.max_requests = max_requests,
                .kernels = kernels,
                .executor = executor,
                .calibration = calibration,
                .clock = clock,
                .constrained = constrained,
                .top_log_probabilities = top_log_probabilities};
    }
};

/// What became of the requests. submitted == waiting + placed + finished + cancelled, always.
struct request_counts {
    std::uint64_t submitted = 0;
    std::uint64_t finished = 0;
    std::uint64_t cancelled = 0;
    std::size_t waiting = 0;  ///< without a place, paused ones included
    std::size_t placed = 0;   ///< running, or suspended: paused, or after a round that failed for them
};

/// Speculative decoding of many requests; the parts are those of round_runner.
///
/// Lossless in law given the target's logits: a target whose logits depend on the shape of its batch changes its own
/// law, which no sampler can cure. A step allocates nothing; submit() does. Not thread-safe, not
/// copyable.
template <class Target, class Drafter, class Schedule, class Rule, class Hook = no_logits_hook,
          class Rng = philox_randomness, bool AllowLossy = false>
class decoder {
    using runner_type = round_runner<Target, Drafter, Schedule, Rule, Hook, Rng, AllowLossy>;

public:
    using target_value = typename runner_type::target_value;
    using draft_value = typename runner_type::draft_value;
    using schedule_type = Schedule;
    using rule_type = Rule;
    using hook_type = Hook;
    using randomness_type = Rng;

    decoder(Target target, Drafter drafter, Schedule schedule, Rule rule, decoder_options const& options = {},
            Hook hook = {}, Rng rng = {})
        : runner_(std::forward<Target>(target), std::forward<Drafter>(drafter), std::move(schedule), std::move(rule),
                  options.limits(), std::move(hook), std::move(rng), options.drafter_retries),
          slots_(options.max_requests),
          views_(options.max_requests),
          events_(options.max_requests),
          report_(runner_.drafter_part().block_size()),
          seed_of_(options.seed),
          max_waiting_(options.max_waiting),
          max_tokens_(options.max_tokens),
          tokens_left_(options.max_tokens),
          constrained_(options.constrained),
          top_log_probabilities_(options.top_log_probabilities) {
        for (std::size_t slot = 0; slot < options.max_requests; ++slot) free_.push_back(slot);
    }
    decoder(Target target, Drafter drafter, Schedule schedule, Rule rule, allow_lossy_t,
            decoder_options const& options = {}, Hook hook = {}, Rng rng = {})
        requires AllowLossy
        : decoder(std::forward<Target>(target), std::forward<Drafter>(drafter), std::move(schedule), std::move(rule),
                  options, std::move(hook), std::move(rng)) {}

    // Request views point into requests.
    decoder(decoder const&) = delete;
    decoder& operator=(decoder const&) = delete;

    // ---- requests ----------------------------------------------------------------------------------------------

    /// Adds a request. It takes a place at once if one is free and nobody waits before it. Else it waits: places that
    /// become free are given at the beginning of a step. Its first round drafts from the last prompt token. Throws if
    /// settings or prompt are unusable, if the request alone would not fit into max_tokens, or if the decoder is full.
    request_id submit(std::span<token_id const> prompt, request_settings const& settings = {}) {
        check_settings(settings, traits_of(runner_.rule()));
        if (settings.masks_rows() && !constrained_) {
            fail_with(
                "decoder: the request has a constraint or min_new_tokens, expected a decoder with room for rows "
                "that are masked: set decoder_options::constrained");
        }
        if (settings.top_log_probabilities > (settings.log_probabilities ? top_log_probabilities_ : 0)) {
            fail_with("decoder: the request asks for ", settings.top_log_probabilities,
                      " top_log_probabilities, expected log_probabilities, and at most "
                      "decoder_options::top_log_probabilities = ",
                      top_log_probabilities_);
        }
        detail::check_prompt("decoder", prompt, runner_.drafter_part().target_vocabulary());
        if (std::size_t const tokens = prompt.size() + settings.max_new_tokens; tokens > max_tokens_) {
            fail_with("decoder: the request may grow to ", tokens,
                      " tokens, expected at most decoder_options::max_tokens = ", max_tokens_);
        }
        if (full()) {
            fail_with("decoder: ", counts().waiting, " requests wait for ", free_.size(), " free of ", slots_.size(),
                      " places, expected at most max_waiting = ", max_waiting_,
                      " more than are free; ask full() first, or raise max_waiting or max_requests");
        }
        waiting_.reserve(waiting_.size() + 1);  // what can fail comes first
        request_id const id = last_id_ + 1;
        requests_.emplace(id, entry{{id, seed_of_(id, settings), prompt, settings}});
        last_id_ = id;
        ++submitted_;
        enqueue(id, settings.priority);
        seat();
        return id;
    }
    /// Whether submit() would find no room in the queue.
    [[nodiscard]] bool full() const noexcept {
        std::size_t const waiting = counts().waiting;
        return waiting >= free_.size() && waiting - free_.size() >= max_waiting_;
    }

    /// Forgets a request, whether it waits, runs, is suspended or has finished; its tokens are gone. If its round
    /// failed while it drafted, its place is free when that is over.
    void cancel(request_id id) {
        entry& e = find(id);
        if (e.request.state != request_state::finished) ++cancelled_;
        if (!repeats(e)) return forget(id);
        e.leaves = true;
        if (++leaving_ == taking_part_) give_up();
    }
    /// Takes a request out of the rounds. It keeps its place, if it has one, and is as it was when it is resumed; if
    /// its round failed while it drafted, as it is when that is over.
    void pause(request_id id) {
        detail::request_place& request = find(id).request;
        if (request.state == request_state::finished) return;
        if (request.state == request_state::waiting) dequeue(id);
        request.state = request_state::suspended;
    }
    /// Undoes pause(); lets a request whose round failed try again, with the same random keys.
    void resume(request_id id) {
        entry& e = find(id);
        if (e.request.state != request_state::suspended) return;
        if (e.slot == no_slot) {
            waiting_.reserve(waiting_.size() + 1);
            enqueue(id, e.request.settings().priority);
        } else {
            e.request.state = request_state::running;
        }
    }

    /// From the coming round on at most so many draft tokens a round for this request; 0: none. For a draft model that
    /// is out of room, say. A round that failed after its tokens were drawn is still run again with these.
    void limit_drafts(request_id id, std::size_t most) { find(id).request.draft_limit = most; }

    /// A request is known until it is cancelled. One that has finished is forgotten when another takes its place, which
    /// is the longest free one.
    [[nodiscard]] bool knows(request_id id) const noexcept {
        auto const at = requests_.find(id);
        return at != requests_.end() && !at->second.leaves;
    }
    /// Where a request stands, and its tokens so far. Throw if there is none of that id.
    [[nodiscard]] request_state state(request_id id) const { return find(id).request.state; }
    [[nodiscard]] std::span<token_id const> generated(request_id id) const { return find(id).request.generated(); }
    [[nodiscard]] request_counts counts() const noexcept {
        std::size_t const placed = slots_.size() - free_.size() - leaving_;
        auto const waiting = static_cast<std::size_t>(submitted_ - finished_ - cancelled_) - placed;
        return {submitted_, finished_, cancelled_, waiting, placed};
    }

    // ---- rounds ------------------------------------------------------------------------------------------------

    /// Gives places to requests that wait, and runs a round for all that run; false if there are none. A failure of the
    /// target or the drafter propagates with every request as it was: step again, and the round is the same.
    bool step() {
        event_count_ = 0;
        round_ = {};
        seat();
        if (!runner_.undecided()) take_part();
        if (taking_part_ == 0) return false;
        round_ = runner_.run({views_.data(), taking_part_});
        report_.record(round_.verdicts);
        for (verdict const& v : round_.verdicts) {
            if (leaving_ > 0 && !knows(v.id)) continue;  // it left between two attempts
            request_event const event = slots_[v.slot]->apply(v);
            events_[event_count_++] = event;
            if (event.finished == finish_reason::none) continue;
            ++finished_;
            tokens_left_ += most_tokens(*slots_[v.slot]);
            free_.push_back(v.slot);
        }
        return true;
    }

    /// What the drafter threw in the last step, if that went on without it (decoder_options::drafter_retries); else
    /// null.
    [[nodiscard]] std::exception_ptr draft_failure() const noexcept { return runner_.draft_failure(); }
    /// What the last step did, one event per request that took part.
    [[nodiscard]] std::span<request_event const> events() const noexcept { return {events_.data(), event_count_}; }
    /// The last step's round, for calibrations, cost models and counters; may be empty after the next submit() or
    /// cancel().
    [[nodiscard]] round_record const& round() const noexcept { return round_; }
    [[nodiscard]] round_report const& report() const noexcept { return report_; }
    [[nodiscard]] Schedule const& schedule() const noexcept { return runner_.schedule(); }
    /// Bytes of round memory.
    [[nodiscard]] std::size_t memory_bytes() const noexcept { return runner_.memory_bytes(); }

private:
    static constexpr std::size_t no_slot = static_cast<std::size_t>(-1);

    struct entry {
        detail::request_place request;
        std::size_t slot = no_slot;
        bool leaves = false;  ///< cancelled, and in a round that has to be run again
    };
    struct waiter {
        double priority;
        request_id id;
        // Ascending, so that the next one to get a place is the last.
        [[nodiscard]] bool operator<(waiter const& other) const noexcept {
            return priority != other.priority ? priority < other.priority : id > other.id;
        }
    };

    [[nodiscard]] entry& find(request_id id) { return const_cast<entry&>(std::as_const(*this).find(id)); }
    [[nodiscard]] entry const& find(request_id id) const {
        auto const at = requests_.find(id);
        if (!knows(id)) {
            fail_with("decoder: no request with id ", id,
                      "; it was never submitted, was cancelled, or another took its place after it had finished");
        }
        return at->second;
    }
    /// Precondition: there is room, reserved by those who may still fail.
    void enqueue(request_id id, double priority) {
        waiter const added{priority, id};
        waiting_.insert(std::lower_bound(waiting_.begin(), waiting_.end(), added), added);
        requests_.find(id)->second.request.state = request_state::waiting;
    }
    void dequeue(request_id id) noexcept {
        waiting_.erase(std::find_if(waiting_.begin(), waiting_.end(), [&](waiter const& w) { return w.id == id; }));
    }
    [[nodiscard]] static std::size_t most_tokens(detail::request_place const& request) noexcept {
        return request.prompt_size() + request.settings().max_new_tokens;
    }
    /// The coming round's requests: all that run.
    void take_part() noexcept {
        taking_part_ = 0;
        for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
            detail::request_place* const request = slots_[slot];
            if (request == nullptr || request->state != request_state::running) continue;
            views_[taking_part_++] = request->view(slot);
        }
    }
    [[nodiscard]] std::span<request_view const> repeated() const noexcept {
        return {views_.data(), runner_.undecided() ? taking_part_ : 0};
    }
    /// The request's round failed while it drafted.
    [[nodiscard]] bool repeats(entry const& e) const noexcept {
        auto const views = repeated();
        return std::any_of(views.begin(), views.end(), [&](request_view const& v) { return v.slot == e.slot; });
    }
    /// Everybody in the round that failed has left, so nobody is to run it again.
    void give_up() noexcept {
        for (request_view const& v : repeated()) runner_.join(v.slot);
    }
    void seat() noexcept {
        if (runner_.undecided()) return;
        for (std::size_t slot = 0; leaving_ > 0; ++slot) {
            if (slots_[slot] == nullptr || knows(slots_[slot]->id())) continue;
            forget(slots_[slot]->id());
            --leaving_;
        }
        while (!waiting_.empty() && !free_.empty()) {
            entry& e = requests_.find(waiting_.back().id)->second;
            if (most_tokens(e.request) > tokens_left_) return;
            tokens_left_ -= most_tokens(e.request);
            waiting_.pop_back();
            e.slot = free_.front();
            free_.erase(free_.begin());
            if (slots_[e.slot] != nullptr) {  // of a request that has finished
                requests_.erase(slots_[e.slot]->id());
                round_ = {};  // it may point into it
            }
            e.request.state = request_state::running;
            slots_[e.slot] = &e.request;
            runner_.join(e.slot);
        }
    }
    void forget(request_id id) noexcept {
        auto const at = requests_.find(id);
        entry const& e = at->second;
        if (e.slot != no_slot) {
            slots_[e.slot] = nullptr;
            round_ = {};  // it points into the request
            if (e.request.state == request_state::finished) {
                free_.erase(std::find(free_.begin(), free_.end(), e.slot));
            } else {
                tokens_left_ += most_tokens(e.request);
            }
            free_.insert(free_.begin(), e.slot);  // before those whose tokens can still be read
        } else if (e.request.state == request_state::waiting) {
            dequeue(id);
        }
        requests_.erase(at);
    }

    runner_type runner_;
    std::map<request_id, entry> requests_;       // all that are known; nodes do not move
    std::vector<detail::request_place*> slots_;  // who has which place; finished requests keep theirs until it is taken
    std::vector<std::size_t> free_;  // places of nobody or of a finished request; the next to be taken first
    std::vector<waiter> waiting_;
    std::vector<request_view> views_;
    std::size_t taking_part_ = 0;  // of the last step
    std::size_t leaving_ = 0;
    std::vector<request_event> events_;
    std::size_t event_count_ = 0;
    round_record round_{};
    round_report report_;
    detail::seed_source seed_of_;
    std::size_t max_waiting_;
    std::size_t max_tokens_;
    std::size_t tokens_left_;
    bool constrained_;
    std::size_t top_log_probabilities_;
    request_id last_id_ = 0;
    std::uint64_t submitted_ = 0;
    std::uint64_t finished_ = 0;
    std::uint64_t cancelled_ = 0;
};

template <class T, class D, class S, class R>
decoder(T&&, D&&, S, R) -> decoder<T, D, S, R>;
template <class T, class D, class S, class R>
decoder(T&&, D&&, S, R, decoder_options const&) -> decoder<T, D, S, R>;
template <class T, class D, class S, class R, class H>
decoder(T&&, D&&, S, R, decoder_options const&, H) -> decoder<T, D, S, R, H>;
template <class T, class D, class S, class R, class H, class G>
decoder(T&&, D&&, S, R, decoder_options const&, H, G) -> decoder<T, D, S, R, H, G>;
template <class T, class D, class S, class R>
decoder(T&&, D&&, S, R, allow_lossy_t) -> decoder<T, D, S, R, no_logits_hook, philox_randomness, true>;
template <class T, class D, class S, class R>
decoder(T&&, D&&, S, R, allow_lossy_t, decoder_options const&)
    -> decoder<T, D, S, R, no_logits_hook, philox_randomness, true>;

SURELEAP_END_NAMESPACE

// SPDX-License-Identifier: MIT
//
// Continuous batching: requests are submitted at any time, wait for a place, run, are paused, resumed and cancelled between
// any two rounds, each with its own settings, seed, limits, priority and cap on the block.
//
//     batch_decoder engine{target, drafter, planned_schedule{cost}, token_rejection{}, {.max_requests = 64}};
//     auto id = engine.submit(prompt, {.seed = 42, .priority = 2.0, .max_draft_tokens = 4});
//     while (engine.step())
//         for (auto const& event : engine.events()) send(event.request, event.tokens, event.finished);
//
// Whoever shares the batch changes how fast a request goes and never what law its tokens have; under target_match and
// keyed_coupling it does not change the tokens either. A request that waits, or is paused, is exactly as it was.
//
// Waiting requests get places in the order of their priorities, then of their submission, and nobody overtakes the first one:
// a small request that fits where the first does not would keep it waiting for ever. Who never gets a place because others
// with a higher priority keep coming is for the engine to know; a queue that aged priorities would decide it silently.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include <sureleap/core/calibration_ref.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/executor.hpp>
#include <sureleap/detail/kernel/native.hpp>
#include <sureleap/round/check.hpp>
#include <sureleap/round/record.hpp>
#include <sureleap/round/report.hpp>
#include <sureleap/round/request_place.hpp>
#include <sureleap/round/runner.hpp>

SURELEAP_BEGIN_NAMESPACE

struct batch_options {
    std::size_t max_requests = 1;  ///< places: requests of a round, paused ones included
    std::size_t max_waiting = std::numeric_limits<std::size_t>::max();
    /// Of all requests that have a place, each counted with its prompt and all that it may generate: what a cache of
    /// keys and values must hold.
    std::size_t max_tokens = std::numeric_limits<std::size_t>::max();
    // As in decoder_options; what is lent must outlive the decoder.
    std::optional<std::uint64_t> seed{};
    row_kernels const* kernels = &native_row_kernels();
    executor_ref executor{};
    calibration_ref calibration{};
    clock_ref clock{};

    [[nodiscard]] round_limits limits() const noexcept { return {max_requests, kernels, executor, calibration, clock}; }
};

/// What became of the requests. submitted == waiting + placed + finished + cancelled, always.
struct batch_counts {
    std::uint64_t submitted = 0;
    std::uint64_t finished = 0;
    std::uint64_t cancelled = 0;
    std::size_t waiting = 0;
    std::size_t placed = 0;  ///< running, or suspended: paused, or after a round that failed for them
};

/// Parts are those of round_runner. A step that gives nobody a place and ends no request allocates nothing; submit() does.
/// Not thread-safe, not copyable.
template <class Target, class Drafter, class Schedule, class Rule, class Hook = no_logits_hook,
          class Rng = philox_randomness, bool AllowLossy = false>
class batch_decoder {
    using runner_type = round_runner<Target, Drafter, Schedule, Rule, Hook, Rng, AllowLossy>;

public:
    using schedule_type = Schedule;
    using rule_type = Rule;

    batch_decoder(Target target, Drafter drafter, Schedule schedule, Rule rule, batch_options const& options = {},
                  Hook hook = {}, Rng rng = {})
        : runner_(std::forward<Target>(target), std::forward<Drafter>(drafter), std::move(schedule), std::move(rule),
                  options.limits(), std::move(hook), std::move(rng)),
          slots_(options.max_requests),
          views_(options.max_requests),
          events_(options.max_requests),
          report_(runner_.drafter_part().block_size()),
          seed_of_(options.seed),
          max_waiting_(options.max_waiting),
          tokens_left_(options.max_tokens),
          max_tokens_(options.max_tokens) {
        for (std::size_t slot = options.max_requests; slot-- > 0;) free_.push_back(slot);
        ended_.reserve(options.max_requests);
    }
    batch_decoder(Target target, Drafter drafter, Schedule schedule, Rule rule, allow_lossy_t,
                  batch_options const& options = {}, Hook hook = {}, Rng rng = {})
        requires AllowLossy
        : batch_decoder(std::forward<Target>(target), std::forward<Drafter>(drafter), std::move(schedule),
                        std::move(rule), options, std::move(hook), std::move(rng)) {}

    // Request views point into places.
    batch_decoder(batch_decoder const&) = delete;
    batch_decoder& operator=(batch_decoder const&) = delete;

    // ---- requests ----------------------------------------------------------------------------------------------

    /// Adds a request to those that wait; it takes a place at the beginning of a step. Empty if max_waiting are waiting
    /// already. Throws if settings or prompt are unusable, or if the request would not fit into max_tokens alone.
    std::optional<request_id> submit(std::span<token_id const> prompt, request_settings const& settings = {}) {
        check_settings<Rule>(settings);
        detail::check_prompt("batch_decoder", prompt, runner_.drafter_part().target_vocabulary());
        if (std::size_t const tokens = prompt.size() + settings.max_new_tokens; tokens > max_tokens_) {
            fail_with("batch_decoder: the request may grow to ", tokens,
                      " tokens, expected at most batch_options::max_tokens = ", max_tokens_);
        }
        if (counts().waiting >= max_waiting_) return std::nullopt;
        waiting_.reserve(waiting_.size() + 1);  // what can fail comes first
        request_id const id = last_id_ + 1;
        requests_.emplace(id, entry{{id, seed_of_(id, settings), prompt, settings}});
        last_id_ = id;
        ++submitted_;
        enqueue(id, settings.priority);
        return id;
    }
    /// Ends a request, whether it waits, runs or is suspended; its tokens are gone. One that has finished is gone anyway.
    void cancel(request_id id) {
        if (find(id).request.state == request_state::finished) return;
        ++cancelled_;
        drop(id);
    }
    /// Takes a request out of the rounds. It keeps its place, if it has one, and is as it was when it is resumed.
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

    /// One that has finished is known until the next step, a cancelled one no longer.
    [[nodiscard]] bool knows(request_id id) const noexcept { return requests_.find(id) != requests_.end(); }
    /// Where a request stands, and its tokens so far. Throw if there is none of that id.
    [[nodiscard]] request_state state(request_id id) const { return find(id).request.state; }
    [[nodiscard]] std::span<token_id const> generated(request_id id) const { return find(id).request.generated(); }
    [[nodiscard]] batch_counts counts() const noexcept {
        std::size_t const placed = slots_.size() - free_.size();
        return {submitted_, finished_, cancelled_, requests_.size() - placed, placed - ended_.size()};
    }

    // ---- rounds ------------------------------------------------------------------------------------------------

    /// Gives places to requests that wait, and runs a round for all that run; false if there are none. A failure of the
    /// target or the drafter propagates with every request as it was.
    bool step() {
        event_count_ = 0;
        for (request_id const id : ended_) drop(id);
        ended_.clear();
        seat();
        std::size_t count = 0;
        for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
            detail::request_place* const request = slots_[slot];
            if (request != nullptr && request->state == request_state::running) views_[count++] = request->view(slot);
        }
        round_ = {};
        if (count == 0) return false;
        round_ = runner_.run({views_.data(), count});
        report_.record(round_.verdicts);
        for (verdict const& v : round_.verdicts) {
            request_event const event = slots_[v.slot]->apply(v);
            events_[event_count_++] = event;
            if (event.finished == finish_reason::none) continue;
            ++finished_;
            ended_.push_back(v.id);
        }
        return true;
    }

    /// What the last step did, one event per request that took part.
    [[nodiscard]] std::span<request_event const> events() const noexcept { return {events_.data(), event_count_}; }
    /// The last step's round, for calibrations, cost models and counters; empty after the next cancel().
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
        if (at == requests_.end()) {
            fail_with("batch_decoder: no request with id ", id,
                      "; it was never submitted, was cancelled, or finished before the last step");
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
    void seat() noexcept {
        while (!waiting_.empty() && !free_.empty()) {
            entry& e = requests_.find(waiting_.back().id)->second;
            if (most_tokens(e.request) > tokens_left_) return;
            tokens_left_ -= most_tokens(e.request);
            waiting_.pop_back();
            e.slot = free_.back();
            free_.pop_back();
            e.request.state = request_state::running;
            slots_[e.slot] = &e.request;
            runner_.join(e.slot);
        }
    }
    void drop(request_id id) noexcept {
        auto const at = requests_.find(id);
        entry const& e = at->second;
        if (e.slot != no_slot) {
            tokens_left_ += most_tokens(e.request);
            slots_[e.slot] = nullptr;
            free_.push_back(e.slot);
            round_ = {};  // it points into the request
        } else if (e.request.state == request_state::waiting) {
            dequeue(id);
        }
        requests_.erase(at);
    }

    runner_type runner_;
    std::unordered_map<request_id, entry> requests_;  // all that are known; nodes do not move
    std::vector<detail::request_place*> slots_;       // who has which place
    std::vector<std::size_t> free_;
    std::vector<waiter> waiting_;
    std::vector<request_id> ended_;  // in the last step; they leave with the next
    std::vector<request_view> views_;
    std::vector<request_event> events_;
    std::size_t event_count_ = 0;
    round_record round_{};
    round_report report_;
    detail::seed_source seed_of_;
    std::size_t max_waiting_;
    std::size_t tokens_left_;
    std::size_t max_tokens_;
    request_id last_id_ = 0;
    std::uint64_t submitted_ = 0;
    std::uint64_t finished_ = 0;
    std::uint64_t cancelled_ = 0;
};

template <class T, class D, class S, class R>
batch_decoder(T&&, D&&, S, R) -> batch_decoder<T, D, S, R>;
template <class T, class D, class S, class R>
batch_decoder(T&&, D&&, S, R, batch_options const&) -> batch_decoder<T, D, S, R>;
template <class T, class D, class S, class R, class H>
batch_decoder(T&&, D&&, S, R, batch_options const&, H) -> batch_decoder<T, D, S, R, H>;
template <class T, class D, class S, class R, class H, class G>
batch_decoder(T&&, D&&, S, R, batch_options const&, H, G) -> batch_decoder<T, D, S, R, H, G>;
template <class T, class D, class S, class R>
batch_decoder(T&&, D&&, S, R, allow_lossy_t) -> batch_decoder<T, D, S, R, no_logits_hook, philox_randomness, true>;
template <class T, class D, class S, class R>
batch_decoder(T&&, D&&, S, R, allow_lossy_t, batch_options const&)
    -> batch_decoder<T, D, S, R, no_logits_hook, philox_randomness, true>;

SURELEAP_END_NAMESPACE

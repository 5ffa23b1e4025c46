// SPDX-License-Identifier: MIT
//
// The decoder owns the loop: requests join and leave between rounds, each with its own settings and seed, and every
// step() runs one round for all of them through the stages of round/stages.hpp.
//
//     decoder dec{target, drafter, greedy_schedule{capacity}, token_rejection{}};
//     auto id = dec.join(prompt, {.temperature = 0.7, .seed = 42, .max_new_tokens = 200});
//     while (dec.step())
//         for (auto const& event : dec.events()) print(event.tokens);
//
// It has as many places as it was given and no queue; serving/batch_decoder.hpp has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
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

struct decoder_options {
    std::size_t max_requests = 1;
    /// Where the seeds of unseeded requests come from, each its own. Unset: the system's random device.
    std::optional<std::uint64_t> seed{};
    /// For everything that passes over rows of logits, as in round_limits; a static table.
    row_kernels const* kernels = &native_row_kernels();
    /// Threads that a round may use; must outlive the decoder. Default: the one that calls step().
    executor_ref executor{};
    /// Applied to every confidence; must outlive the decoder. Default: none.
    calibration_ref calibration{};
    /// Times the rounds; must outlive the decoder. Default: nobody does.
    clock_ref clock{};

    [[nodiscard]] round_limits limits() const noexcept { return {max_requests, kernels, executor, calibration, clock}; }
};

/// Speculative decoding of many requests; the parts are those of round_runner.
///
/// Lossless in law given the target's logits: a target whose logits depend on the shape of its batch changes its own
/// law, which no sampler can cure. step() allocates nothing; join() does. Not thread-safe,
/// not copyable.
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
                  options.limits(), std::move(hook), std::move(rng)),
          places_(options.max_requests),
          views_(options.max_requests),
          events_(options.max_requests),
          report_(runner_.drafter_part().block_size()),
          seed_of_(options.seed) {}
    decoder(Target target, Drafter drafter, Schedule schedule, Rule rule, allow_lossy_t,
            decoder_options const& options = {}, Hook hook = {}, Rng rng = {})
        requires AllowLossy
        : decoder(std::forward<Target>(target), std::forward<Drafter>(drafter), std::move(schedule), std::move(rule),
                  options, std::move(hook), std::move(rng)) {}

    // Request views point into places.
    decoder(decoder const&) = delete;
    decoder& operator=(decoder const&) = delete;

    /// Adds a request; its first round drafts from the last prompt token. Takes the place of a finished request if no
    /// other is free. Throws if settings or prompt are unusable or every place is taken by a running request.
    request_id join(std::span<token_id const> prompt, request_settings const& settings = {}) {
        check_settings<Rule>(settings);
        detail::check_prompt("decoder", prompt, runner_.drafter_part().target_vocabulary());
        std::size_t const slot = free_slot();
        ++last_id_;
        round_ = {};  // it may point into a finished request
        places_[slot].emplace(last_id_, seed_of_(last_id_, settings), prompt, settings);
        runner_.join(slot);
        return last_id_;
    }
    /// Removes a request, running or not; its tokens are gone.
    void leave(request_id id) {
        places_[slot_of(id)].reset();
        round_ = {};  // it points into the request
    }
    /// Lets a suspended request try again, with the same random keys.
    void resume(request_id id) {
        auto& place = *places_[slot_of(id)];
        if (place.state == request_state::suspended) place.state = request_state::running;
    }

    /// One round for all running requests; false if there are none. A failure of the target or the drafter propagates
    /// with every request as it was.
    bool step() {
        std::size_t count = 0;
        for (std::size_t i = 0; i < places_.size(); ++i) {
            if (places_[i] && places_[i]->state == request_state::running) views_[count++] = places_[i]->view(i);
        }
        event_count_ = 0;
        round_ = {};
        if (count == 0) return false;
        round_ = runner_.run({views_.data(), count});
        report_.record(round_.verdicts);
        for (verdict const& v : round_.verdicts) events_[event_count_++] = places_[v.slot]->apply(v);
        return true;
    }

    /// What the last step did, one event per request that took part.
    [[nodiscard]] std::span<request_event const> events() const noexcept { return {events_.data(), event_count_}; }
    /// The last step's round, for calibrations and counters; empty after the next leave().
    [[nodiscard]] round_record const& round() const noexcept { return round_; }
    /// Tokens generated so far; readable until the request leaves or a new one takes its place.
    [[nodiscard]] std::span<token_id const> generated(request_id id) const { return places_[slot_of(id)]->generated(); }
    [[nodiscard]] round_report const& report() const noexcept { return report_; }
    [[nodiscard]] Schedule const& schedule() const noexcept { return runner_.schedule(); }
    /// Bytes of round memory.
    [[nodiscard]] std::size_t memory_bytes() const noexcept { return runner_.memory_bytes(); }

private:
    [[nodiscard]] std::size_t free_slot() const {
        for (std::size_t i = 0; i < places_.size(); ++i) {
            if (!places_[i]) return i;
        }
        for (std::size_t i = 0; i < places_.size(); ++i) {
            if (places_[i]->state == request_state::finished) return i;
        }
        fail_with("decoder: all ", places_.size(),
                  " places hold running requests; let one finish or leave, or "
                  "raise decoder_options::max_requests");
    }
    [[nodiscard]] std::size_t slot_of(request_id id) const {
        for (std::size_t i = 0; i < places_.size(); ++i) {
            if (places_[i] && places_[i]->id() == id) return i;
        }
        fail_with("decoder: no request with id ", id, "; it never joined, left, or was replaced after it finished");
    }

    runner_type runner_;
    std::vector<std::optional<detail::request_place>> places_;
    std::vector<request_view> views_;
    std::vector<request_event> events_;
    std::size_t event_count_ = 0;
    round_record round_{};
    round_report report_;
    detail::seed_source seed_of_;
    request_id last_id_ = 0;
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

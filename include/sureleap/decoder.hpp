// SPDX-License-Identifier: MIT
//
// The decoder owns the loop: requests join and leave between rounds, each with its own settings and seed, and every
// step() runs one round for all of them through the stages of round.hpp.
//
//     decoder dec{target, drafter, greedy_schedule{capacity}, token_rejection{}};
//     auto id = dec.join(prompt, {.temperature = 0.7, .seed = 42, .max_new_tokens = 200});
//     while (dec.step())
//         for (auto const& event : dec.events()) print(event.tokens);
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <sureleap/acceptance/verification.hpp>
#include <sureleap/concepts.hpp>
#include <sureleap/config.hpp>
#include <sureleap/error.hpp>
#include <sureleap/executor.hpp>
#include <sureleap/kernel/native.hpp>
#include <sureleap/random.hpp>
#include <sureleap/report.hpp>
#include <sureleap/round.hpp>
#include <sureleap/round_check.hpp>
#include <sureleap/schedule/planning.hpp>

SURELEAP_BEGIN_NAMESPACE

struct decoder_options {
    std::size_t max_requests = 1;
    /// Where the seeds of unseeded requests come from, each its own. Unset: the system's random device.
    std::optional<std::uint64_t> seed{};
    /// For everything that passes over rows of logits, as in round_limits; a static table.
    row_kernels const* kernels = &native_row_kernels();
    /// Threads that a round may use; must outlive the decoder. Default: the one that calls step().
    executor_ref executor{};
};

/// Why a request ended.
enum class finish_reason : std::uint8_t { none, stop_token, max_new_tokens };

/// What happened to one request in the last step. Views are valid until the next step.
struct request_event {
    request_id request = 0;
    std::span<token_id const> tokens{};           ///< new tokens, a stop token included
    std::span<double const> log_probabilities{};  ///< as the settings ask
    status outcome = status::ok;                  ///< not ok: the request is suspended as it was; resume() or leave()
    finish_reason finished = finish_reason::none;
};

/// Speculative decoding of many requests. Target: target_model. Drafter: drafter. Schedule: scheduler. Rule:
/// acceptance_sampler. Hook: logits_hook. Rng: randomness. Combinations whose output would not have the target's law do
/// not compile, unless AllowLossy. Target and Drafter are references where lvalues were given.
///
/// Lossless in law given the target's logits: a target whose logits depend on the shape of its batch changes its own
/// law, which no sampler can cure. step() allocates nothing; join() does. Not thread-safe,
/// not copyable.
template <class Target, class Drafter, class Schedule, class Rule, class Hook = no_logits_hook,
          class Rng = philox_randomness, bool AllowLossy = false>
class decoder {
    using drafter_type = std::remove_cvref_t<Drafter>;
    static_assert(target_model<std::remove_reference_t<Target>>,
                  "decoder: the target is no target_model; give it score(verify_batch const&) or a call operator that "
                  "returns sureleap::logits_rows<T>, or wrap a function of a context with sureleap::model_of");
    static_assert(drafter<drafter_type>,
                  "decoder: the drafter is no sureleap::drafter; wrap a model in autoregressive, parallel or "
                  "semi_autoregressive, or see concepts.hpp for a drafter of your own");

public:
    using target_value = target_value_t<Target>;
    using draft_value = typename drafter_type::value_type;
    using schedule_type = Schedule;
    using rule_type = Rule;
    using hook_type = Hook;
    using randomness_type = Rng;

    static_assert(logits_hook<Hook, compute_t<target_value>>,
                  "decoder: the hook must be callable as hook(hook_context const&, std::span<real>)");
    static_assert(randomness<Rng>, "decoder: the random source does not model sureleap::randomness");

    decoder(Target target, Drafter drafter, Schedule schedule, Rule rule, decoder_options const& options = {},
            Hook hook = {}, Rng rng = {})
        : target_(std::forward<Target>(target)),
          drafter_(std::forward<Drafter>(drafter)),
          schedule_(std::move(schedule)),
          rule_(std::move(rule)),
          hook_(std::move(hook)),
          rng_(std::move(rng)),
          memory_(drafter_, rule_,
                  {.max_requests = options.max_requests, .kernels = options.kernels, .executor = options.executor}),
          slots_(options.max_requests),
          views_(options.max_requests),
          events_(options.max_requests),
          report_(drafter_.block_size()),
          base_seed_(options.seed ? *options.seed : entropy()) {
        check_round<drafter_type, Schedule, Rule, AllowLossy>();
        if constexpr (requires {
                          { target_.vocabulary() } -> std::convertible_to<std::size_t>;
                      }) {
            if (target_.vocabulary() != drafter_.target_vocabulary()) {
                detail::fail_with("decoder: the target has ", target_.vocabulary(), " tokens, the drafter speaks of ",
                                  drafter_.target_vocabulary(), "; expected equal vocabularies (or a vocabulary_map)");
            }
        }
        if constexpr (has_history) {
            static_assert(
                requires {
                    { schedule_.prior() } -> std::convertible_to<double>;
                }, "decoder: a planner of past rounds needs prior(), the confidence of requests that have no past");
            history_ =
                survival_history(options.max_requests, drafter_.block_size(), Schedule::origin::lag, schedule_.prior());
        }
    }
    decoder(Target target, Drafter drafter, Schedule schedule, Rule rule, allow_lossy_t,
            decoder_options const& options = {}, Hook hook = {}, Rng rng = {})
        requires AllowLossy
        : decoder(std::forward<Target>(target), std::forward<Drafter>(drafter), std::move(schedule), std::move(rule),
                  options, std::move(hook), std::move(rng)) {}

    // Request views point into slots and models may hold on to the decoder's memory.
    decoder(decoder const&) = delete;
    decoder& operator=(decoder const&) = delete;

    /// Adds a request; its first round drafts from the last prompt token. Takes the place of a finished request if no
    /// other is free. Throws if settings or prompt are unusable or every place is taken by a running request.
    request_id join(std::span<token_id const> prompt, request_settings const& settings = {}) {
        check_settings<Rule>(settings);
        if (prompt.empty()) detail::fail("decoder: the prompt is empty, expected at least one token to start from");
        for (std::size_t i = 0; i < prompt.size(); ++i) {
            if (prompt[i] < 0 || static_cast<std::size_t>(prompt[i]) >= drafter_.target_vocabulary()) {
                detail::fail_with("decoder: prompt token ", i, " is ", prompt[i], ", expected 0 .. ",
                                  drafter_.target_vocabulary() - 1);
            }
        }
        std::size_t const place = free_slot();
        slot& s = slots_[place];
        s.state = slot_state::running;
        s.id = ++last_id_;
        s.settings = settings;
        s.stop_tokens.assign(settings.stop_tokens.begin(), settings.stop_tokens.end());
        s.settings.stop_tokens = s.stop_tokens;
        s.seed = settings.seed ? *settings.seed : fresh_seed();
        s.prompt_size = prompt.size();
        s.tokens.assign(prompt.begin(), prompt.end());
        s.tokens.reserve(prompt.size() + settings.max_new_tokens);
        if constexpr (has_history) history_.join(place);
        return s.id;
    }
    /// Removes a request, running or not; its tokens are gone.
    void leave(request_id id) { slots_[place_of(id)].state = slot_state::free; }
    /// Lets a suspended request try again, with the same random keys.
    void resume(request_id id) {
        if (slot& s = slots_[place_of(id)]; s.state == slot_state::suspended) s.state = slot_state::running;
    }

    /// One round for all running requests; false if there are none. A failure of the target or the drafter propagates
    /// with every request as it was.
    bool step() {
        std::size_t count = 0;
        for (std::size_t i = 0; i < slots_.size(); ++i) {
            if (slots_[i].state == slot_state::running) views_[count++] = slots_[i].view(i);
        }
        event_count_ = 0;
        if (count == 0) return false;
        std::span<request_view const> const requests{views_.data(), count};

        memory_.block.begin(requests);
        auto const forward = drafter_.forward(requests);
        auto const budget = plan(schedule_, drafter_, forward, memory_.block, history_, memory_.planning);
        drafter_.draw(forward, typename Rule::draft_rule{}, memory_.block, rng_);
        auto const lengths = admit(schedule_, memory_.block.table(), budget, memory_.frontier);
        flatten(memory_.block, lengths, memory_.batch);
        auto const rows = score(target_, memory_.batch);
        auto const verdicts = accept(rule_, rows, hook_, rng_, memory_);

        if constexpr (requires { target_.commit(verdicts); }) target_.commit(verdicts);
        if constexpr (requires { drafter_.commit(verdicts); }) drafter_.commit(verdicts);
        if constexpr (has_history) history_.push(requests, memory_.block.table().survivals);
        report_.record(verdicts);
        for (verdict const& v : verdicts) events_[event_count_++] = apply(v);
        return true;
    }

    /// What the last step did, one event per request that took part.
    [[nodiscard]] std::span<request_event const> events() const noexcept { return {events_.data(), event_count_}; }
    /// Tokens generated so far; readable until the request leaves or a new one takes its place.
    [[nodiscard]] std::span<token_id const> generated(request_id id) const {
        slot const& s = slots_[place_of(id)];
        return std::span<token_id const>(s.tokens).subspan(s.prompt_size);
    }
    [[nodiscard]] round_report const& report() const noexcept { return report_; }
    /// Bytes of round memory.
    [[nodiscard]] std::size_t memory_bytes() const noexcept { return memory_.bytes(); }

private:
    static constexpr bool has_history = [] {
        if constexpr (planner<Schedule>) {
            return !std::is_same_v<typename Schedule::origin, from_anchor>;
        } else {
            return false;
        }
    }();

    enum class slot_state : std::uint8_t { free, running, suspended, finished };

    struct slot {
        slot_state state = slot_state::free;
        request_id id = 0;
        std::uint64_t seed = 0;
        std::size_t prompt_size = 0;
        std::vector<token_id> tokens;  // prompt and output; reserved for max_new_tokens, so a round never grows it
        std::vector<token_id> stop_tokens;
        request_settings settings;

        [[nodiscard]] request_view view(std::size_t place) const noexcept {
            return {.id = id,
                    .slot = place,
                    .anchor = tokens.back(),
                    .position = tokens.size() - 1,
                    .context = tokens,
                    .seed = seed,
                    .remaining = settings.max_new_tokens - (tokens.size() - prompt_size),
                    .settings = &settings};
        }
    };

    [[nodiscard]] request_event apply(verdict const& v) noexcept {
        slot& s = slots_[v.slot];
        request_event event{v.id, v.emitted, v.log_probabilities, v.outcome, finish_reason::none};
        if (v.outcome != status::ok) {
            s.state = slot_state::suspended;
            return event;
        }
        s.tokens.insert(s.tokens.end(), v.emitted.begin(), v.emitted.end());
        if (v.stopped) {
            event.finished = finish_reason::stop_token;
        } else if (s.tokens.size() - s.prompt_size >= s.settings.max_new_tokens) {
            event.finished = finish_reason::max_new_tokens;
        }
        if (event.finished != finish_reason::none) s.state = slot_state::finished;
        return event;
    }

    [[nodiscard]] std::size_t free_slot() const {
        for (slot_state const wanted : {slot_state::free, slot_state::finished}) {
            for (std::size_t i = 0; i < slots_.size(); ++i) {
                if (slots_[i].state == wanted) return i;
            }
        }
        detail::fail_with("decoder: all ", slots_.size(),
                          " places hold running requests; let one finish or leave, or "
                          "raise decoder_options::max_requests");
    }
    [[nodiscard]] std::size_t place_of(request_id id) const {
        for (std::size_t i = 0; i < slots_.size(); ++i) {
            if (slots_[i].id == id && slots_[i].state != slot_state::free) return i;
        }
        detail::fail_with("decoder: no request with id ", id,
                          "; it never joined, left, or was replaced after it finished");
    }

    [[nodiscard]] static std::uint64_t entropy() {
        std::random_device device;
        return (std::uint64_t{device()} << 32) | device();
    }
    // Distinct per request: unseeded requests that shared a stream would emit correlated texts.
    [[nodiscard]] std::uint64_t fresh_seed() const noexcept {
        auto const bits = philox4x32(
            {static_cast<std::uint32_t>(last_id_), static_cast<std::uint32_t>(last_id_ >> 32), 0, 0}, base_seed_);
        return (std::uint64_t{bits[0]} << 32) | bits[1];
    }

    Target target_;
    Drafter drafter_;
    Schedule schedule_;
    Rule rule_;
    [[no_unique_address]] Hook hook_;
    [[no_unique_address]] Rng rng_;
    round_memory<target_value, draft_value, Hook> memory_;
    std::vector<slot> slots_;
    std::vector<request_view> views_;
    std::vector<request_event> events_;
    std::size_t event_count_ = 0;
    round_report report_;
    survival_history history_;
    std::uint64_t base_seed_;
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

// SPDX-License-Identifier: MIT
//
// Places for requests: what a decoder keeps of each between rounds. Tokens so far, settings, seed, and whether it runs.
// The place is the request's `slot` in every stage, so models and histories can keep state of their own by it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/sampling/random.hpp>
#include <sureleap/verify/verdict.hpp>

SURELEAP_BEGIN_NAMESPACE

/// What happened to one request in the last step. Views are valid until the next step.
struct request_event {
    request_id request = 0;
    std::span<token_id const> tokens{};           ///< new tokens, a stop token included
    std::span<double const> log_probabilities{};  ///< as the settings ask
    status outcome = status::ok;                  ///< not ok: the request is suspended as it was; resume() or cancel()
    finish_reason finished = finish_reason::none;
    std::span<token_log_probability const> top_log_probabilities{};  ///< as in its verdict
};

/// Where a request stands. A suspended one is as it was and takes part in no round until it is resumed.
enum class request_state : std::uint8_t { waiting, running, suspended, finished };

namespace detail {

/// One request. Tokens are reserved for max_new_tokens when it is submitted, so a round never grows them.
class request_place {
public:
    request_state state = request_state::running;
    std::size_t draft_limit = static_cast<std::size_t>(-1);  ///< request_view's

    request_place() = default;
    request_place(request_id id, std::uint64_t seed, std::span<token_id const> prompt, request_settings const& settings)
        : id_(id), seed_(seed), prompt_size_(prompt.size()), settings_(settings) {
        stop_tokens_.assign(settings.stop_tokens.begin(), settings.stop_tokens.end());
        tokens_.reserve(prompt.size() + settings.max_new_tokens);
        tokens_.assign(prompt.begin(), prompt.end());
    }

    [[nodiscard]] request_id id() const noexcept { return id_; }
    [[nodiscard]] std::size_t prompt_size() const noexcept { return prompt_size_; }
    [[nodiscard]] request_settings const& settings() const noexcept { return settings_; }
    [[nodiscard]] std::span<token_id const> generated() const noexcept {
        return std::span<token_id const>(tokens_).subspan(prompt_size_);
    }
    /// Points into this place, which must not move while the view is used.
    [[nodiscard]] request_view view(std::size_t slot) noexcept {
        settings_.stop_tokens = stop_tokens_;
        return {.id = id_,
                .slot = slot,
                .anchor = tokens_.back(),
                .position = tokens_.size() - 1,
                .context = tokens_,
                .seed = seed_,
                .remaining = settings_.max_new_tokens - generated().size(),
                .settings = &settings_,
                .draft_limit = draft_limit};
    }
    /// Takes over what a round emitted, and says what became of the request.
    [[nodiscard]] request_event apply(verdict const& v) noexcept {
        request_event const event{v.id, v.emitted, v.log_probabilities, v.outcome, v.finished, v.top_log_probabilities};
        if (v.outcome != status::ok) {
            state = request_state::suspended;
            return event;
        }
        tokens_.insert(tokens_.end(), v.emitted.begin(), v.emitted.end());
        if (event.finished != finish_reason::none) state = request_state::finished;
        return event;
    }

private:
    request_id id_ = 0;
    std::uint64_t seed_ = 0;
    std::size_t prompt_size_ = 0;
    std::vector<token_id> tokens_;  // prompt and output
    std::vector<token_id> stop_tokens_;
    request_settings settings_;
};

/// Seeds of requests that brought none, each its own: unseeded requests that shared a stream would emit correlated
/// texts.
class seed_source {
public:
    explicit seed_source(std::optional<std::uint64_t> base) : base_(base ? *base : entropy()) {}

    [[nodiscard]] std::uint64_t operator()(request_id id, request_settings const& settings) const noexcept {
        if (settings.seed) return *settings.seed;
        auto const bits =
            philox4x32({static_cast<std::uint32_t>(id), static_cast<std::uint32_t>(id >> 32), 0, 0}, base_);
        return (std::uint64_t{bits[0]} << 32) | bits[1];
    }

private:
    [[nodiscard]] static std::uint64_t entropy() {
        std::random_device device;
        return (std::uint64_t{device()} << 32) | device();
    }
    std::uint64_t base_;
};

/// Throws unless a request can start from this prompt.
inline void check_prompt(char const* who, std::span<token_id const> prompt, std::size_t vocabulary) {
    if (prompt.empty()) fail_with(who, ": the prompt is empty, expected at least one token to start from");
    for (std::size_t i = 0; i < prompt.size(); ++i) {
        if (prompt[i] < 0 || static_cast<std::size_t>(prompt[i]) >= vocabulary) {
            fail_with(who, ": prompt token ", i, " is ", prompt[i], ", expected 0 .. ", vocabulary - 1);
        }
    }
}

}  // namespace detail

SURELEAP_END_NAMESPACE

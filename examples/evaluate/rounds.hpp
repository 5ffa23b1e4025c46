// SPDX-License-Identifier: MIT
//
// Texts through the engine's server, round by round: all that the experiments measure goes through here.
//
// What is a round, and what is not, decides the figures:
//
//   - The first round of a text is left out. It is a plain step for drafters that read the target's features. It is
//     left out for the others, too, so that all drafters are measured at the same positions.
//   - Rounds count if their anchor is among the first `tokens` tokens of the output. Generation may go on for another
//     block, so no block that counts is cut short because the text ends soon.
//   - A drafted stop token ends what can be observed of its block: what would come after it is no text. Whether it was
//     accepted must not matter for that, or only rounds that went badly would be seen beyond it.
//
// Each text has its own seed, so what it becomes does not depend on which others were in the batch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <engine/parts.hpp>
#include <engine/phase_times.hpp>
#include <engine/server.hpp>
#include <engine/thread_pool.hpp>
#include <sureleap/sureleap.hpp>

#include "contestant.hpp"

namespace evaluate {

struct text {
    std::span<token_id const> prompt;
    std::uint64_t seed = 0;
};

/// One round of one text.
struct round_outcome {
    std::size_t text = 0;
    std::uint64_t position = 0;  ///< of the anchor in its text, the prompt included
    std::size_t drafted = 0;
    std::size_t verified = 0;
    std::size_t accepted = 0;               ///< of the drafts up to a stop token
    std::size_t emitted = 0;                ///< up to a stop token, the target's own included
    std::size_t observed = 0;               ///< verified positions up to a stop token
    std::span<double const> confidences{};  ///< [drafted]
};

/// What a verdict says, confidences left out. `drafts` are the verified ones.
[[nodiscard]] inline round_outcome outcome_of(std::size_t text, sureleap::verdict const& v,
                                              std::span<token_id const> drafts, std::span<token_id const> stop_tokens) {
    if (!v.parents.empty()) {
        std::size_t const kept = std::min(v.accepted, v.emitted.size());
        return {.text = text,
                .drafted = v.drafted,
                .verified = v.verified,
                .accepted = kept,
                .emitted = v.emitted.size(),
                .observed = v.verified};
    }
    auto const stop = std::find_first_of(drafts.begin(), drafts.end(), stop_tokens.begin(), stop_tokens.end());
    std::size_t const before = static_cast<std::size_t>(stop - drafts.begin());
    std::size_t const observed = before + (stop == drafts.end() ? 0 : 1);
    return {.text = text,
            .drafted = v.drafted,
            .verified = v.verified,
            .accepted = std::min(v.accepted, observed),
            .emitted = v.emitted.size(),
            .observed = observed};
}

struct decoding_settings {
    sureleap::transform sampling;
    sureleap::any_rule rule = sureleap::token_rejection{};
    sureleap::any_schedule schedule = sureleap::fixed_schedule{};
    std::size_t tokens = 128;
    std::optional<std::size_t> max_draft{};      ///< instead of the contestant's
    std::optional<engine::learned_cost> cost{};  ///< of the schedule, if it goes by one: rounds correct it
};

/// What rounds took together, and gave.
struct rounds_sum {
    double seconds = 0;  ///< on the clock, prompts left out
    std::uint64_t emitted = 0;
};

/// What a round consisted of, to be priced elsewhere.
struct priced_round {
    sureleap::step_load load;
    std::uint64_t emitted = 0;
};

/// What all rounds took together, those that do not count included.
struct run_totals {
    engine::phase_times times;
    rounds_sum all{};
    rounds_sum full{};  ///< those in which every slot decoded
    std::vector<priced_round> full_rounds{};
    std::uint64_t target_calls = 0;
    std::vector<std::vector<token_id>> outputs{};  ///< [text], up to a block longer than was asked for
};

using round_observer = std::function<void(round_outcome const&)>;
/// Told how many texts are done.
using progress_observer = std::function<void(std::size_t)>;

inline void ignore_round(round_outcome const&) {}
inline void ignore_progress(std::size_t) {}

/// A contestant with a schedule and a rule that stay up: what the schedule learns in one run is there in the next. The
/// contestant must outlive it.
class text_server {
public:
    text_server(contestant& who, decoding_settings const& how, engine::thread_pool& pool);

    /// Throws if a model's numbers are unusable.
    run_totals operator()(std::span<text const> texts, round_observer const& on_round = ignore_round,
                          progress_observer const& on_progress = ignore_progress);

private:
    void submit(text const& what);
    void observe(std::size_t r, run_totals const& so_far, round_observer const& on_round);
    [[nodiscard]] std::size_t text_of(sureleap::request_id id) const {
        return static_cast<std::size_t>(id - first_id_);
    }

    decoding_settings how_;
    std::size_t max_draft_;
    std::size_t slots_;
    std::span<token_id const> stop_tokens_;
    engine::server<float> server_;
    sureleap::request_id first_id_ = 0;  // of this run
    std::vector<double> confidences_;
};

/// Once, with a schedule that has learned nothing yet.
inline run_totals run_texts(contestant& who, decoding_settings const& how, std::span<text const> texts,
                            engine::thread_pool& pool, round_observer const& on_round = ignore_round,
                            progress_observer const& on_progress = ignore_progress) {
    return text_server(who, how, pool)(texts, on_round, on_progress);
}

/// Positions that the output of such a text may take: what a context must have beside the prompt.
[[nodiscard]] constexpr std::size_t positions_for(std::size_t tokens, std::size_t block_size) noexcept {
    return tokens + block_size + 1;
}

/// Distinct for every text of an evaluation and every pass over its prompts, and the same for every drafter.
[[nodiscard]] inline std::uint64_t text_seed(std::uint64_t seed, std::size_t domain, std::size_t prompt,
                                             std::size_t pass = 0) noexcept {
    auto const bits = sureleap::philox4x32(
        {static_cast<std::uint32_t>(prompt), static_cast<std::uint32_t>(domain), static_cast<std::uint32_t>(pass), 0},
        seed);
    return (std::uint64_t{bits[0]} << 32) | bits[1];
}

}  // namespace evaluate

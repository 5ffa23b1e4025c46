// SPDX-License-Identifier: MIT
//
// A prompt through the engine's server, from the first chunk to the last token.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include <engine/parts.hpp>
#include <engine/server.hpp>
#include <engine/target.hpp>
#include <engine/thread_pool.hpp>
#include <engine/token_regex.hpp>
#include <sureleap/sureleap.hpp>

#include "options.hpp"
#include "round_seen.hpp"

namespace generate {

/// Who drafts, how much of it is verified, and what is kept.
struct method {
    engine::any_drafter<float>& drafter;
    engine::draft_model<float>* draft;  ///< the model in it that wants the target's features; may be null
    sureleap::any_schedule schedule;
    sureleap::any_rule rule;
    std::optional<engine::learned_cost> cost{};  ///< of the schedule, if it goes by one: rounds correct it
};

/// What is to be decoded: the prompt, `copies` times with seeds seed, seed + 1, ...
struct job {
    std::span<token_id const> prompt;
    sureleap::request_settings settings;
    std::uint64_t seed = 1;
    std::size_t copies = 1;
    engine::token_regex const* regex = nullptr;  ///< every text matches it; null: any text
};

/// What came out, and what it took.
struct decoding {
    std::vector<std::vector<token_id>> outputs;  ///< [copies]
    std::vector<round_seen> rounds;              ///< of the first copy
    sureleap::round_report report;
    engine::phase_times times;
    std::size_t prefilled = 0;  ///< prompt tokens that went through the models, not counting the last of each copy

    [[nodiscard]] double tokens_per_second() const noexcept {
        return static_cast<double>(report.emitted()) / times.decode();
    }
    [[nodiscard]] double steps_per_second() const noexcept {
        return static_cast<double>(report.target_calls()) / times.decode();
    }
};

/// Called after every step with what is done so far, and the first copy's round: none while its prompt is prefilled.
using watcher = std::function<void(decoding const& so_far, std::span<round_seen const> news)>;

/// Throws if a model's numbers are unusable.
[[nodiscard]] decoding decode(method const& how, job const& what, engine::target<float>& target,
                              engine::thread_pool& pool, watcher const& watch);
/// By a server that has nothing else to do. Its report and its times count from where it was made.
[[nodiscard]] decoding decode(engine::server<float>& server, job const& what, watcher const& watch);

/// Whether the output under these settings is the same whatever is drafted, and not only of the same law.
[[nodiscard]] bool is_reproducible(sureleap::request_settings const& settings, sureleap::any_rule const& rule);

struct difference {
    std::size_t copy;
    std::size_t index;  ///< of the first token that differs or is missing
};
[[nodiscard]] std::optional<difference> first_difference(decoding const& a, decoding const& b);

}  // namespace generate

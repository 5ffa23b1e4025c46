// SPDX-License-Identifier: MIT
//
// A chain of llama.cpp's samplers, read: copies of its stages, which llama.cpp's code runs on each row, and what is
// refused.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <llama.h>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/ext/llama/sampler_stages.hpp>

SURELEAP_BEGIN_NAMESPACE

struct llama_chain_options {
    /// Whether stages that remember tokens, a grammar excepted, see the prompt, as in llama.cpp's own programs. If not,
    /// they see what was accepted before the chain is read and what is generated, as with llama_sampler_sample alone.
    bool sees_prompt = false;
    /// Names of stages of your own that may be run. Promise: deterministic, with a clone; apply is a function of the
    /// candidates and of the accepted tokens, and of nothing that another clone changes.
    std::span<std::string_view const> own_stages{};
};

/// What a chain asks for.
struct llama_sampling {
    /// The seed of dist, and temperature 0 for greedy; the rest is yours. Temperatures and truncations of the chain are
    /// in its stages: what is set here acts after them.
    request_settings settings{};
    /// Run on every row, before what the settings say.
    detail::llama_stages stages{};
    bool sees_prompt = false;

    /// Whether there is something to run. If not, neither a hook nor join is needed.
    [[nodiscard]] bool needs_hook() const noexcept { return !stages.empty(); }
};

namespace detail {

enum class llama_stage_kind {
    edits,  ///< a function of candidates and accepted tokens
    draws,
    is_random,
    unknown
};

[[nodiscard]] constexpr llama_stage_kind kind_of_llama_stage(std::string_view name) noexcept {
    constexpr std::string_view edits[] = {"temp",      "temp-ext", "top-k",      "top-p", "min-p",  "typical",
                                          "penalties", "grammar",  "logit-bias", "dry",   "infill", "top-n-sigma"};
    constexpr std::string_view draws[] = {"dist", "greedy"};
    constexpr std::string_view random[] = {"xtc", "mirostat", "mirostat-v2", "adaptive-p"};
    auto const is_among = [name](std::span<std::string_view const> names) {
        return std::find(names.begin(), names.end(), name) != names.end();
    };
    if (is_among(edits)) return llama_stage_kind::edits;
    if (is_among(draws)) return llama_stage_kind::draws;
    return is_among(random) ? llama_stage_kind::is_random : llama_stage_kind::unknown;
}

struct llama_stage {
    llama_sampler* sampler;
    llama_stage_kind kind;
};

/// Stages of a chain, and of chains in it, those left out that llama.cpp made to do nothing.
inline void list_llama_stages(llama_sampler* sampler, std::vector<llama_sampler*>& list) {
    if (llama_sampler_chain_get(sampler, -1) == nullptr) {
        std::string_view const name = name_of(sampler);
        bool const does_nothing =
            name.starts_with('?') && kind_of_llama_stage(name.substr(1)) != llama_stage_kind::unknown;
        if (!does_nothing) list.push_back(sampler);
        return;
    }
    for (std::int32_t i = 0; i < llama_sampler_chain_n(sampler); ++i) {
        list_llama_stages(llama_sampler_chain_get(sampler, i), list);
    }
}

/// Stages, the last of which draws; refuses what has no equal.
[[nodiscard]] inline std::vector<llama_stage> known_llama_stages(llama_sampler* chain,
                                                                 llama_chain_options const& options) {
    std::vector<llama_sampler*> list;
    if (chain != nullptr) list_llama_stages(chain, list);
    std::vector<llama_stage> stages;
    for (llama_sampler* const sampler : list) {
        std::string const name{name_of(sampler)};
        auto const refuse = [&](char const* why) {
            fail_with("read_llama_chain: stage ", stages.size(), " of ", list.size(), " is \"", name, "\", ", why);
        };
        llama_stage_kind kind = kind_of_llama_stage(name);
        if (std::find(options.own_stages.begin(), options.own_stages.end(), name) != options.own_stages.end()) {
            kind = llama_stage_kind::edits;
        }
        if (name.starts_with('+') || name.starts_with('-')) {
            refuse(
                "which is attached to a context; expected a chain that no context samples with: make another one "
                "without llama_set_sampler and llama_context_params::samplers");
        }
        if (kind == llama_stage_kind::is_random) {
            refuse(
                "which draws random numbers of its own, so that its rows are no law that a draft could be verified "
                "against; expected a chain without it: leave it out");
        }
        if (kind == llama_stage_kind::unknown) {
            refuse(
                "which is not known; expected stages that llama.cpp ships: if it is yours and deterministic, name it "
                "in "
                "llama_chain_options::own_stages");
        }
        bool const is_last = sampler == list.back();
        if (kind == llama_stage_kind::draws && !is_last) {
            refuse("which draws a token; expected that of the last stage only: remove it");
        }
        if (kind != llama_stage_kind::draws && is_last) {
            refuse(
                "and nothing draws a token after it; expected dist or greedy as the last stage: add "
                "llama_sampler_init_dist(seed) or llama_sampler_init_greedy()");
        }
        if (sampler->iface->clone == nullptr && sampler->ctx != nullptr) {
            refuse(
                "which cannot be cloned; expected a clone function in its llama_sampler_i: requests and drafts need "
                "copies of what it remembers");
        }
        stages.push_back({sampler, kind});
    }
    if (stages.empty()) {
        fail_with("read_llama_chain: the chain is ", chain == nullptr ? "null" : "empty",
                  ", expected stages that end in dist or greedy");
    }
    return stages;
}

/// The seed that dist was given; nothing if it was LLAMA_DEFAULT_SEED, which a reset draws anew.
[[nodiscard]] inline std::optional<std::uint64_t> seed_of_dist(llama_sampler const* dist) {
    owned_llama_sampler const again{llama_sampler_clone(dist)};
    llama_sampler_reset(again.get());
    std::uint32_t const seed = llama_sampler_get_seed(dist);
    if (seed == LLAMA_DEFAULT_SEED || seed != llama_sampler_get_seed(again.get())) return std::nullopt;
    return seed;
}

}  // namespace detail

/// What a chain of samplers, or one sampler, asks of a request: copies of its stages as they stand, with what they have
/// accepted. The chain itself stays yours and as it is. Throws, naming the stage, for what has no equal. Many requests
/// may join with one reading.
[[nodiscard]] inline llama_sampling read_llama_chain(llama_sampler* chain, llama_chain_options const& options = {}) {
    auto stages = detail::known_llama_stages(chain, options);
    llama_sampling result;
    result.sees_prompt = options.sees_prompt;
    llama_sampler const* const draws = stages.back().sampler;
    bool const is_greedy = detail::name_of(draws) == "greedy";
    if (is_greedy) {
        result.settings.temperature = 0.0;
    } else {
        result.settings.seed = detail::seed_of_dist(draws);
    }
    // Which of two largest logits is the first depends on how stages sort, so greedy is run behind others.
    if (!is_greedy || stages.size() == 1) stages.pop_back();
    for (detail::llama_stage const& stage : stages) result.stages.add(stage.sampler);
    return result;
}

SURELEAP_END_NAMESPACE

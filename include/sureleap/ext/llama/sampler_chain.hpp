// SPDX-License-Identifier: MIT
//
// A chain of llama.cpp's samplers, read: what of it becomes settings, what llama.cpp's code runs, and what is refused.
//
// Numbers are taken from the chain's end towards its beginning, as long as the stages stand in this library's order or
// give the same law in it: temp and top-k in any order, then top-p, then min-p; where there is no top-p, min-p may stand
// anywhere among them. What stands before is run as it is.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <llama.h>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/ext/llama/sampler_numbers.hpp>
#include <sureleap/ext/llama/sampler_stages.hpp>

SURELEAP_BEGIN_NAMESPACE

struct llama_chain_options {
    /// Whether stages that remember tokens, a grammar excepted, see the prompt, as in llama.cpp's own programs. If not, they
    /// see what was accepted before the chain is read and what is generated, as with llama_sampler_sample alone.
    bool sees_prompt = false;
    /// Every stage is run by llama.cpp's code, also where settings could say it: ties and edges are its own to the bit.
    bool all_by_llama = false;
    /// Names of stages of your own that may be run. Promise: deterministic, with a clone; apply is a function of the
    /// candidates and of the accepted tokens, and of nothing that another clone changes.
    std::span<std::string_view const> own_stages{};
};

/// What a chain asks for.
struct llama_sampling {
    /// Temperature, truncation, seed, and the draft's temperature; the rest is yours.
    request_settings settings{};
    /// Run on every row, before what the settings say.
    detail::llama_stages stages{};
    bool sees_prompt = false;

    /// Whether there is something to run. If not, neither a hook nor join is needed.
    [[nodiscard]] bool needs_hook() const noexcept { return !stages.empty(); }
};

namespace detail {

enum class llama_stage_kind {
    temperature,
    top_k,
    top_p,
    min_p,
    edits,      ///< of another kind, a function of candidates and accepted tokens
    displaces,  ///< such that candidates that were sorted are not, and are still marked so
    reorders,   ///< such that nobody knows
    draws,
    is_random,
    unknown
};

[[nodiscard]] constexpr llama_stage_kind kind_of_llama_stage(std::string_view name) noexcept {
    using enum llama_stage_kind;
    constexpr std::pair<std::string_view, llama_stage_kind> known[] = {
        {"temp", temperature},   {"temp-ext", temperature},  {"top-k", top_k},
        {"top-p", top_p},        {"min-p", min_p},           {"penalties", edits},
        {"grammar", displaces},  {"logit-bias", displaces},  {"dry", edits},
        {"typical", edits},      {"infill", reorders},       {"top-n-sigma", edits},
        {"dist", draws},         {"greedy", draws},          {"xtc", is_random},
        {"mirostat", is_random}, {"mirostat-v2", is_random}, {"adaptive-p", is_random}};
    for (auto const& [of, kind] : known) {
        if (of == name) return kind;
    }
    return unknown;
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
            kind = llama_stage_kind::reorders;
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

/// Whether candidates may be marked as sorted that are not. llama.cpp's truncations go by the mark, whatever it hides.
[[nodiscard]] inline bool misplaces(std::span<llama_stage const> stages) noexcept {
    bool sorted = false;
    for (llama_stage const& stage : stages) {
        switch (stage.kind) {
            case llama_stage_kind::temperature:  // a dynamic one
            case llama_stage_kind::top_k:
            case llama_stage_kind::top_p:
            case llama_stage_kind::min_p: sorted = true; break;
            case llama_stage_kind::displaces:
                if (sorted) return true;
                break;
            case llama_stage_kind::reorders: return true;
            default: break;
        }
    }
    return false;
}

/// Takes numbers from a chain's end towards its beginning, as long as the order is the library's, or the law is the same in it.
class llama_number_reader {
public:
    explicit llama_number_reader(bool greedy, bool truncates = true) noexcept
        : greedy_(greedy), truncates_(truncates) {}

    /// The stage before those that were taken is settings as well.
    [[nodiscard]] bool takes(llama_stage const& stage) {
        if (!truncates_ && stage.kind != llama_stage_kind::temperature) return false;
        switch (stage.kind) {
            case llama_stage_kind::temperature: return takes_temperature(find_temperature(stage.sampler));
            case llama_stage_kind::
                top_k:  // top-k and what only compares with the largest keep the same tokens in any order
                return greedy_ || (how_.top_k == 0 && put(find_top_k(stage.sampler), how_.top_k));
            case llama_stage_kind::top_p:  // its mass is of what the stages before it leave, at their temperature
                return greedy_ ||
                       (how_ == transform{.min_p = how_.min_p} && put(find_top_p(stage.sampler), how_.top_p));
            case llama_stage_kind::min_p: return greedy_ || takes_min_p(find_min_p(stage.sampler));
            default: return false;
        }
    }
    [[nodiscard]] bool greedy() const noexcept { return greedy_; }
    [[nodiscard]] transform taken() const noexcept { return greedy_ ? transform{.temperature = 0.0} : how_; }

private:
    template <class Number>
    [[nodiscard]] static bool put(std::optional<Number> const& found, Number& into) noexcept {
        if (found) into = *found;
        return found.has_value();
    }
    [[nodiscard]] bool takes_temperature(std::optional<double> const& found) noexcept {
        if (!found) return false;
        greedy_ = greedy_ || *found == 0.0;
        return greedy_ || (how_.temperature == 1.0 && put(found, how_.temperature));
    }
    /// Of l >= max + log p a temperature T that comes after it makes l / T >= max / T + log p / T.
    [[nodiscard]] bool takes_min_p(std::optional<double> const& found) noexcept {
        if (!found || how_.min_p > 0.0 || how_.top_p < 1.0) return false;
        how_.min_p = std::pow(*found, 1.0 / how_.temperature);
        return true;
    }

    bool greedy_;
    bool truncates_;
    transform how_{};  // what is left at its default was not taken
};

}  // namespace detail

/// What a chain of samplers, or one sampler, asks of a request: copies of its stages as they stand, with what they have
/// accepted. The chain itself stays yours and as it is. Throws, naming the stage, for what has no equal. Some
/// 0.1 ms; many requests may join with one reading.
[[nodiscard]] inline llama_sampling read_llama_chain(llama_sampler* chain, llama_chain_options const& options = {}) {
    auto stages = detail::known_llama_stages(chain, options);
    llama_sampling result;
    result.sees_prompt = options.sees_prompt;
    bool const is_greedy = detail::name_of(stages.back().sampler) == "greedy";
    if (!is_greedy) result.settings.seed = detail::seed_of_dist(stages.back().sampler);
    std::size_t edits = 0;  // stages before here edit rows
    auto const take = [&](detail::llama_number_reader taken) {
        edits = stages.size() - 1;
        while (!options.all_by_llama && edits > 0 && taken.takes(stages[edits - 1])) --edits;
        return taken;
    };
    auto numbers = take(detail::llama_number_reader{is_greedy});
    if (detail::misplaces(std::span(stages).first(edits))) {
        numbers = take(detail::llama_number_reader{is_greedy, false});
    }
    transform const how = numbers.taken();
    result.settings.temperature = how.temperature;
    result.settings.top_k = how.top_k;
    result.settings.top_p = how.top_p;
    result.settings.min_p = how.min_p;
    // Which of two largest logits is the first depends on how stages sort. So what decides is run as well.
    if (numbers.greedy() && edits > 0) edits = stages.size() - (is_greedy ? 0 : 1);
    double temperature = how.temperature;
    for (std::size_t i = 0; i < edits; ++i) {
        result.stages.add(stages[i].sampler);
        if (stages[i].kind != detail::llama_stage_kind::temperature) continue;
        temperature *= detail::find_temperature(stages[i].sampler).value_or(1.0);
    }
    // The draft's law is its own affair; it is accepted most often at the chain's temperature.
    if (temperature != how.temperature) {
        result.settings.draft = transform{.temperature = std::min(temperature, largest_temperature)};
    }
    return result;
}

SURELEAP_END_NAMESPACE

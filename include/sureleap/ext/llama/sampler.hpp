// SPDX-License-Identifier: MIT
//
// The samplers of a llama.cpp program, as they are: a llama_sampler chain is run on each of the target's rows, which is
// then the law that tokens are verified against.
//
//     llama_sampling const sampling = read_llama_chain(chain);        // throws, naming a stage that has no equal
//     llama_samplers samplers;
//     decoder dec{target, drafter, schedule, rule, options, samplers.hook()};
//     request_id const id = dec.submit(prompt, sampling.settings);
//     samplers.join(id, sampling, prompt);
//
// Every stage that is a function of the candidates and of the tokens so far is run by llama.cpp's own code. xtc,
// mirostat and adaptive-p are not such functions and are refused, as is what nobody knows. The seed is dist's. A chain
// sorts and copies a row of the vocabulary for each verified token. Who wants temperature, top-k, top-p, min-p or a
// mask alone sets them as settings of the request, which costs neither.
//
// Drawn is from the law of the chain, with the library's random numbers and not llama.cpp's.
#pragma once

#if !__has_include(<llama.h>)
#error "sureleap/ext/llama/sampler.hpp needs llama.h: install llama.cpp and link sureleap::llama"
#endif

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include <llama.h>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/ext/llama/sampler_chain.hpp>
#include <sureleap/ext/llama/sampler_stages.hpp>

SURELEAP_BEGIN_NAMESPACE

class llama_samplers;

/// The logits hook of llama_samplers, which must outlive it. Called concurrently for different requests.
class llama_logits_hook {
public:
    explicit llama_logits_hook(llama_samplers const& of) noexcept : of_(&of) {}
    [[nodiscard]] bool touches(request_view const& request) const noexcept;
    void operator()(hook_context const& at, std::span<float> row) const noexcept;

private:
    llama_samplers const* of_;
};

/// The stages of all requests. join and leave are called between rounds, in the thread that runs them. Rounds allocate
/// here, as llama.cpp's samplers do. Each request has a candidate a token of the vocabulary, 12 bytes.
///
/// A request that never joined gets no law (status::invalid_target): without its stages it would get another one. Nor
/// does one that finds the stages of an earlier request with its id: another seed, a position that fell, or a context
/// that does not go on from the prompt and the tokens seen before. Join it, then resume it. No law either if a
/// committed token is one that its grammar forbids, if a stage fails, and if stages remember tokens that
/// request_view::context does not have.
class llama_samplers {
public:
    llama_samplers() = default;
    llama_samplers(llama_samplers const&) = delete;
    llama_samplers& operator=(llama_samplers const&) = delete;

    [[nodiscard]] llama_logits_hook hook() const noexcept { return llama_logits_hook{*this}; }

    /// Before a request's first round, or when its text begins anew. Generation begins behind `prompt`, with which its
    /// context begins.
    void join(request_id id, llama_sampling const& sampling, std::span<token_id const> prompt) {
        auto stages = sampling.stages.clone();
        if (sampling.sees_prompt) stages.accept_prompt(prompt);
        requests_.insert_or_assign(id, std::make_unique<detail::llama_request_stages>(std::move(stages), prompt));
    }
    /// Frees what a request has here.
    void leave(request_id id) noexcept { requests_.erase(id); }

private:
    friend class llama_logits_hook;
    /// The stages of this request; null if there are none or they are another's.
    [[nodiscard]] detail::llama_request_stages* find(request_view const& request) const noexcept {
        auto const at = requests_.find(request.id);
        return at != requests_.end() && at->second->are_of(request) ? at->second.get() : nullptr;
    }

    std::map<request_id, std::unique_ptr<detail::llama_request_stages>> requests_;
};

inline bool llama_logits_hook::touches(request_view const& request) const noexcept {
    auto const* const stages = of_->find(request);
    return stages == nullptr || !stages->empty();
}
inline void llama_logits_hook::operator()(hook_context const& at, std::span<float> row) const noexcept {
    auto* const stages = of_->find(at.request);
    if (stages == nullptr) {
        std::fill(row.begin(), row.end(), std::numeric_limits<float>::quiet_NaN());
    } else if (!stages->empty()) {
        stages->edit(at, row);
    }
}

SURELEAP_END_NAMESPACE

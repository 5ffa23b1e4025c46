// SPDX-License-Identifier: MIT
//
// What tests of the decoder share: a hash language with a target and drafts of it, jobs that queue for places, and
// plain decoding of the same language, token by token.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <sureleap/confidence/head.hpp>
#include <sureleap/cost/capacity.hpp>
#include <sureleap/decoder.hpp>
#include <sureleap/drafter/autoregressive.hpp>
#include <sureleap/drafter/context_model.hpp>
#include <sureleap/drafter/semi_autoregressive.hpp>
#include <sureleap/head/markov.hpp>
#include <sureleap/sampling/distribution.hpp>
#include <sureleap/sampling/random.hpp>

#include "support/catch.hpp"
#include "support/hash_models.hpp"

namespace decoder_scene {

using namespace sureleap;
using support::hash_language;
using support::hash_model;

using tokens = std::vector<token_id>;

inline constexpr std::size_t vocabulary = 12;
inline constexpr std::size_t block = 4;
inline hash_language const target_language{};
inline hash_language const draft_language{.own = 5, .disagreement = 0.5};

inline auto target_model_of() {
    return hash_model<float>(vocabulary, target_language);
}
inline auto draft_model_of() {
    return autoregressive{hash_model<float>(vocabulary, draft_language),
                          top1_confidence{},
                          {.block_size = block, .vocabulary = vocabulary}};
}
inline analytic_capacity const capacity{100.0, 6.0};

/// A backbone without tokens: U depends on the context, h too; R * block rows.
struct hash_backbone {
    std::size_t hidden_size = 3;
    std::vector<float> hidden{}, logits{};

    block_forward<float> forward(std::span<request_view const> requests) {
        hidden.resize(requests.size() * block * hidden_size);
        logits.resize(requests.size() * block * vocabulary);
        for (std::size_t i = 0; i < requests.size() * block; ++i) {
            auto const& request = requests[i / block];
            auto const k = static_cast<std::uint32_t>(i % block);
            auto const anchor = static_cast<std::uint32_t>(request.anchor);
            auto const position = static_cast<std::uint32_t>(request.position % 7);
            for (std::size_t d = 0; d < hidden_size; ++d) {
                hidden[i * hidden_size + d] =
                    static_cast<float>(support::hashed(3, anchor, position, k, static_cast<std::uint32_t>(d)));
            }
            for (std::size_t v = 0; v < vocabulary; ++v) {
                logits[i * vocabulary + v] =
                    static_cast<float>(2.0 * support::hashed(4, anchor, position, k, static_cast<std::uint32_t>(v)));
            }
        }
        return {{hidden.data(), requests.size() * block, hidden_size},
                {{logits.data(), requests.size() * block, vocabulary}, {}}};
    }
};

/// Weights of a Markov head of rank 2 and of a confidence head over it.
struct head_weights {
    std::vector<float> w1 = random(vocabulary * 2, 11), w2 = random(vocabulary * 2, 12), confidence = random(3 + 2, 13);

    static std::vector<float> random(std::size_t count, std::uint64_t seed) {
        std::vector<float> out;
        for (std::size_t i = 0; i < count; ++i) {
            out.push_back(static_cast<float>(1.5 * support::hashed(seed, static_cast<std::uint32_t>(i), 0, 0, 0)));
        }
        return out;
    }
    [[nodiscard]] auto drafter() const {
        return semi_autoregressive{
            hash_backbone{},
            markov_head{matrix_view<float>{w1.data(), vocabulary, 2}, matrix_view<float>{w2.data(), vocabulary, 2}},
            confidence_head<float>{{confidence.data(), 1, 5}, 1.0f, {w1.data(), vocabulary, 2}},
            drafter_options{.block_size = block, .vocabulary = vocabulary, .hidden_size = 3}};
    }
};

struct job {
    tokens prompt;
    request_settings settings;
};

/// Jobs queue for `places` places: the same policy in decoder and engine, so that both see the same batches.
template <class Decoder>
std::vector<tokens> run(Decoder& dec, std::vector<job> const& jobs, std::size_t places) {
    std::vector<tokens> out(jobs.size());
    std::vector<std::pair<request_id, std::size_t>> active;
    std::size_t next = 0;
    for (;;) {
        while (next < jobs.size() && active.size() < places) {
            active.emplace_back(dec.submit(jobs[next].prompt, jobs[next].settings), next);
            ++next;
        }
        if (!dec.step()) return out;
        for (request_event const& e : dec.events()) {
            auto const found =
                std::find_if(active.begin(), active.end(), [&](auto const& a) { return a.first == e.request; });
            REQUIRE(found != active.end());
            REQUIRE(e.outcome == status::ok);
            tokens& text = out[found->second];
            text.insert(text.end(), e.tokens.begin(), e.tokens.end());
            if (e.finished == finish_reason::none) continue;
            auto const all = dec.generated(e.request);
            REQUIRE(text == tokens(all.begin(), all.end()));
            active.erase(found);
        }
    }
}

/// One request in a decoder of its own.
template <class Target, class Drafter, class Schedule, class Rule>
tokens run_alone(Target&& target, Drafter&& drafter, Schedule schedule, Rule rule, job const& j) {
    decoder dec{target, drafter, schedule, rule};
    return run(dec, {j}, 1)[0];
}

inline bool contains(std::span<token_id const> set, token_id x) {
    return std::find(set.begin(), set.end(), x) != set.end();
}

/// Plain decoding, one token per target row; choose(p, absolute position) gives the token.
template <class Choose>
tokens plain(job const& j, Choose choose) {
    tokens text = j.prompt;
    std::vector<float> logits(vocabulary);
    std::vector<token_id> order(vocabulary);
    while (text.size() < j.prompt.size() + j.settings.max_new_tokens) {
        target_language(std::span<token_id const>(text), std::span<float>(logits));
        distribution<float> const p{{logits, {}}, j.settings.target_transform(), order};
        REQUIRE(p.valid());
        text.push_back(choose(p, text.size()));
        if (contains(j.settings.stop_tokens, text.back())) break;
    }
    return {text.begin() + static_cast<std::ptrdiff_t>(j.prompt.size()), text.end()};
}
inline tokens plain_greedy(job const& j) {
    return plain(j, [](auto const& p, std::size_t) { return p.mode(); });
}
inline tokens plain_race(job const& j) {
    return plain(j, [&](auto const& p, std::size_t position) {
        return philox_randomness{}.gumbel_max({*j.settings.seed, position, 0, purpose::noise}, p);
    });
}
inline tokens plain_categorical(job const& j) {
    return plain(j, [&](auto const& p, std::size_t position) {
        return philox_randomness{}.categorical({*j.settings.seed, position, 0, purpose::noise}, p);
    });
}

inline std::vector<job> several_jobs(double temperature) {
    std::vector<job> jobs;
    for (std::uint64_t i = 0; i < 7; ++i) {
        job j;
        for (std::uint64_t t = 0; t <= i % 4; ++t)
            j.prompt.push_back(static_cast<token_id>((3 * i + 5 * t) % vocabulary));
        j.settings = {.temperature = temperature, .seed = 1000 + i, .max_new_tokens = 5 + 7 * (i % 3)};
        if (i % 3 == 1) j.settings.top_p = 0.8;
        if (i % 3 == 2) j.settings.top_k = 3;
        if (i == 4) j.settings.max_draft_tokens = 1;
        jobs.push_back(j);
    }
    return jobs;
}

}  // namespace decoder_scene

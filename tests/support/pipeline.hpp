// SPDX-License-Identifier: MIT
//
// The pipeline list: scenes with requests that join, leave and come back, and the law of a decoder whose parts learn
// while it runs. Horizons of scenes of one request and of the large ones are at least 4, which is lag + 2; the others'
// are 3.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/adaptive.hpp"
#include "support/exactness.hpp"

namespace pipeline {

using namespace exactness;
using namespace adaptive;

/// What is lent to a decoder and learns from its rounds: a calibration, or nothing.
struct free_parts {
    bool calibrated = true;
    free_calibration calibration{7};

    [[nodiscard]] calibration_ref lent() const { return calibrated ? calibration_ref{calibration} : calibration_ref{}; }
    void observe(round_record const& round) { calibration.observe(round); }
};

/// A decoder and the parts that were lent to it. What small_world::play plays.
template <class Parts, class Target, class Drafter, class Schedule, class Rule, class Rng>
class learning_decoder {
public:
    learning_decoder(std::size_t requests, Parts parts, Target& target, Drafter drafter, Schedule const& schedule,
                     Rule const& rule, Rng rng, std::function<void(round_record const&)> watch = {})
        : parts_(std::move(parts)),
          decoder_(target, std::move(drafter), schedule, rule, allow_lossy,
                   decoder_options{.max_requests = requests, .seed = 1, .calibration = parts_.lent()}, no_logits_hook{},
                   rng),
          watch_(std::move(watch)) {}

    request_id submit(std::span<token_id const> prompt, request_settings const& settings) {
        return decoder_.submit(prompt, settings);
    }
    void cancel(request_id id) { decoder_.cancel(id); }
    bool step() {
        if (!decoder_.step()) return false;
        parts_.observe(decoder_.round());
        if (watch_) watch_(decoder_.round());
        return true;
    }
    [[nodiscard]] std::span<request_event const> events() const { return decoder_.events(); }

private:
    Parts parts_;
    decoder<Target&, Drafter, Schedule, Rule, no_logits_hook, Rng, true> decoder_;
    std::function<void(round_record const&)> watch_;
};

/// How often what learns has acted, over all paths: that a test is about something.
struct action {
    std::size_t rounds = 0, undrafted = 0;
    std::size_t limited = 0, ended = 0, weighted = 0, trimmed = 0;  ///< request rounds
    std::size_t calibrated = 0;                                     ///< positions

    void observe(round_record const& round) {
        std::size_t const block_size = round.survivals.block_size;
        ++rounds;
        undrafted += round.load.drafting == 0 ? 1u : 0u;
        for (std::size_t r = 0; r < round.size(); ++r) {
            request_view const& request = round.requests[r];
            verdict const& v = round.verdicts[r];
            limited += std::min(request.draft_limit, request.model_limit) < block_size ? 1u : 0u;
            ended += v.drafted < request.draft_cap(block_size) ? 1u : 0u;
            weighted += request.weight != certain ? 1u : 0u;
            trimmed += v.verified < v.drafted ? 1u : 0u;
            for (std::size_t k = 0; k < v.drafted; ++k) {
                double const now = static_cast<double>(round.survivals.at(r, k).confidence) * 0x1p-24;
                calibrated += std::abs(now - round.raw_confidence(r, k)) > 0.01 ? 1u : 0u;
            }
        }
    }
};

/// The law of a pipeline over a scene. Every path begins with copies of the parts and of the schedule.
template <class Parts, class MakeDrafter, class Schedule, class Rule>
[[nodiscard]] law pipeline_law(enumerator::noise kind, world const& w, scene const& s, Parts const& parts,
                               MakeDrafter const& make_drafter, Schedule const& schedule, Rule const& rule,
                               std::function<void(round_record const&)> const& watch = {}) {
    using drafter_type = std::invoke_result_t<MakeDrafter const&>;
    static_assert(is_lossless_round_v<Rule, Schedule, drafter_type>,
                  "the exactness list holds combinations that the compiler lets through");
    auto target = target_of(w);
    return decoder_law(kind, s, [&](auto rng) {
        return learning_decoder<Parts, decltype(target), drafter_type, Schedule, Rule, decltype(rng)>(
            s.requests.size(), parts, target, make_drafter(), schedule, rule, rng, watch);
    });
}

/// How many paths: a few, thousands, tens of thousands.
enum class extent { small, usual, large };

struct pipeline_trial {
    world where;
    scene what;
    bool fresh_too = true;
    extent size = extent::usual;
};

inline token_id const stop_at_one[] = {1};

[[nodiscard]] inline std::vector<pipeline_trial> pipeline_trials() {
    auto const one = [](token_id prompt, double priority = 1.0, std::uint32_t tenant = 0) {
        return scene_request{{prompt}, {.priority = priority, .tokens_per_second = 0.8, .tenant = tenant}};
    };
    std::vector<pipeline_trial> list;
    list.push_back({{11, 2, 2}, {{one(0)}, 5, 2}});
    list.push_back({{24, 2, 3}, {{one(1)}, 4, 1}, true, extent::small});
    list.push_back({{22, 3, 2}, {{one(2)}, 4, 0}, false, extent::small});
    // A stop token, and a cap of its own on the block.
    pipeline_trial stopped{{31, 3, 3}, {{one(0)}, 4, 0}, false, extent::small};
    stopped.what.requests[0].settings.stop_tokens = stop_token;
    stopped.what.requests[0].settings.max_draft_tokens = 2;
    list.push_back(stopped);
    // Two requests of unequal priority; together, the second later, the first away for a round or two.
    list.push_back({{46, 2, 2}, {{one(1), one(1, 0.3, 1)}, 3, 0}, true, extent::small});
    list.push_back({{41, 2, 2}, {{one(0), one(1, 0.3, 1)}, 3, 1}});
    list.push_back({{44, 2, 2}, {{one(1), one(0, 0.3, 1)}, 4, 0}, false, extent::large});
    pipeline_trial late{{42, 2, 2}, {{one(1, 0.2), one(0, 1.0, 1)}, 4, 0}, false, extent::large};
    late.what.requests[1].joins_after = 1;
    list.push_back(late);
    pipeline_trial away{{43, 2, 2}, {{one(0, 1.0, 1), one(1, 0.5)}, 4, 0}, false, extent::large};
    away.what.requests[0].leaves_after = 1;
    away.what.requests[0].returns_after = 2;
    list.push_back(away);
    pipeline_trial to_and_fro{{45, 2, 2}, {{one(0), one(1)}, 3, 1}};
    to_and_fro.what.requests[0].leaves_after = 2;
    to_and_fro.what.requests[0].returns_after = 3;
    to_and_fro.what.requests[1].joins_after = 1;
    to_and_fro.what.requests[1].settings.stop_tokens = stop_at_one;
    list.push_back(to_and_fro);
    return list;
}

template <class Parts, class MakeDrafter, class Schedule, class Rule>
void check_one(std::string const& name, enumerator::noise kind, world const& w, scene const& s, Parts const& parts,
               MakeDrafter const& make_drafter, Schedule const& schedule, Rule const& rule) {
    INFO(name << ", " << (kind == enumerator::noise::keyed ? "keyed" : "fresh") << " noise, world " << w.seed
              << ", V = " << w.vocabulary << ", gamma = " << w.block_size << ", requests = " << s.requests.size());
    law const found = pipeline_law(kind, w, s, parts, make_drafter, schedule, rule);
    CHECK(largest_difference(found, autoregressive_law(w, s)) <= tolerance);
}

[[nodiscard]] constexpr freedom everything(std::uint64_t seed) {
    return {.limits = true, .floors = true, .weights = true, .seed = seed};
}

/// The schedules of which each is one of a kind: live, at the anchor, lagged by one and by two.
template <class Visit>
void for_one_schedule_of_a_kind(Visit&& visit) {
    visit("greedy", greedy_schedule{whole_step_cost{}});
    visit("planned", planned_schedule{whole_step_cost{}});
    visit("top-K, lag 1", lagged_top_k<1>(cliff_capacity{}, 0.7));
    visit("top-K, lag 2", top_k_schedule{whole_step_cost{}, 0.7});
}

template <class Visit>
void for_each_rule(Visit&& visit) {
    visit(token_rejection<>{});
    visit(block_verification<>{});
    visit(target_match<>{});
    visit(keyed_coupling{});
}

}  // namespace pipeline

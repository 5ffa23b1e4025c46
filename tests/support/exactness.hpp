// SPDX-License-Identifier: MIT
//
// The exactness list: every schedule, every scene a combination has to pass, and the check itself. A new rule or
// scheduler is exact when it passes here with both kinds of noise; add it to the list.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <sureleap/drafter/lookup.hpp>
#include <sureleap/drafter/parallel.hpp>
#include <sureleap/schedule/any.hpp>
#include <sureleap/schedule/greedy.hpp>
#include <sureleap/schedule/planned.hpp>
#include <sureleap/schedule/simple.hpp>
#include <sureleap/schedule/top_k.hpp>
#include <sureleap/serving/stop_texts.hpp>
#include <sureleap/verify/any.hpp>
#include <sureleap/verify/block.hpp>
#include <sureleap/verify/coupled.hpp>
#include <sureleap/verify/match.hpp>
#include <sureleap/verify/rejection.hpp>

#include "support/catch.hpp"
#include "support/small_world.hpp"

namespace exactness {

using namespace small_world;

inline constexpr double tolerance = 1e-12;
/// What a lossy combination or a mutant must at least show: far above rounding, below every bias listed in the docs.
inline constexpr double visible = 1e-3;

/// Smooth: the first stop is the global maximum. Jagged: batch sizes come in pairs, so looking past a cliff pays.
struct smooth_capacity {
    [[nodiscard]] double steps_per_second(std::size_t b) const { return 1.0 / (1.0 + static_cast<double>(b)); }
};
struct jagged_capacity {
    [[nodiscard]] double steps_per_second(std::size_t b) const {
        return 1.0 / (1.0 + 0.65 * static_cast<double>(b / 2));
    }
};
/// One cliff behind the first row: all or nothing, decided by every confidence of the block.
struct cliff_capacity {
    double seconds = 2.2;  ///< of any step with drafts; 1 without
    [[nodiscard]] double steps_per_second(std::size_t b) const {
        return b == 1 ? 1.0 : 1.0 / (seconds + 0.02 * static_cast<double>(b));
    }
};

/// Calls visit(name, schedule) for every non-anticipating schedule of the library.
template <class Visit>
void for_each_causal_schedule(Visit&& visit) {
    visit("fixed, all", fixed_schedule{});
    visit("fixed, 1", fixed_schedule{1});
    visit("greedy, smooth", greedy_schedule{smooth_capacity{}});
    visit("greedy, jagged", greedy_schedule{jagged_capacity{}});
    visit("threshold", threshold_schedule{0.6});
    visit("survival threshold", survival_threshold_schedule{0.45});
    visit("top-K, lag 1", lagged_top_k<1>(jagged_capacity{}, 0.7));
    visit("top-K, lag 2", top_k_schedule{jagged_capacity{}, 0.7});
    visit("top-K, lag 1, cliff", lagged_top_k<1>(cliff_capacity{}, 0.7));
    visit("planned", planned_schedule{jagged_capacity{}});
    visit("planned, cliff", planned_schedule{cliff_capacity{}});
}
/// And the anticipating one, for rules and drafts that are exact under any schedule.
template <class Visit>
void for_each_schedule(Visit&& visit) {
    for_each_causal_schedule(visit);
    visit("retrospective", retrospective_schedule{jagged_capacity{}});
    visit("retrospective, cliff", retrospective_schedule{cliff_capacity{}});
}

[[nodiscard]] inline bool is_constrained(scene const& s) {
    return std::ranges::any_of(s.requests, [](scene_request const& r) { return r.settings.masks_rows(); });
}

/// The law of target x drafter x schedule x rule over a scene. make_drafter() is called for every path.
template <class MakeDrafter, class Schedule, class Rule>
[[nodiscard]] law law_of(enumerator::noise kind, world const& w, scene const& s, MakeDrafter const& make_drafter,
                         Schedule const& schedule, Rule const& rule) {
    auto target = target_of(w);
    using drafter_type = std::invoke_result_t<MakeDrafter const&>;
    return decoder_law(kind, s, [&](auto rng) {
        return decoder<decltype(target)&, drafter_type, Schedule, Rule, no_logits_hook, decltype(rng), true>(
            target, make_drafter(), schedule, rule, allow_lossy,
            decoder_options{.max_requests = s.requests.size(), .seed = 1, .constrained = is_constrained(s)},
            no_logits_hook{}, rng);
    });
}

template <class MakeDrafter, class Schedule, class Rule>
void check_exact(std::string const& name, enumerator::noise kind, world const& w, scene const& s,
                 MakeDrafter const& make_drafter, Schedule const& schedule, Rule const& rule) {
    REQUIRE(misfit_of(traits_of(make_drafter()), traits_of(schedule), traits_of(rule)) == misfit::none);
    law const found = law_of(kind, w, s, make_drafter, schedule, rule);
    law const expected = autoregressive_law(w, s);
    INFO(name << ", " << (kind == enumerator::noise::keyed ? "keyed" : "fresh") << " noise, world " << w.seed
              << ", V = " << w.vocabulary << ", gamma = " << w.block_size << ", requests = " << s.requests.size()
              << ", horizon = " << s.horizon << " + " << s.beyond);
    CHECK(largest_difference(found, expected) <= tolerance);
}

/// Total variation of a combination from plain decoding.
template <class MakeDrafter, class Schedule, class Rule>
[[nodiscard]] double bias_of(enumerator::noise kind, world const& w, scene const& s, MakeDrafter const& make_drafter,
                             Schedule const& schedule, Rule const& rule) {
    return total_variation(law_of(kind, w, s, make_drafter, schedule, rule), autoregressive_law(w, s));
}

/// A world, a scene, and whether the cheap kind of noise is worth walking too.
struct trial {
    world where;
    scene what;
    bool fresh_too = true;
    bool large = false;  ///< tens of thousands of paths; more for rules that draw at every position
};

inline token_id const stop_token[] = {2};
inline token_id const stop_at_one[] = {1};
inline std::string_view letter_of(token_id x) noexcept {
    return std::string_view{"abc"}.substr(static_cast<std::size_t>(x), 1);
}
inline stop_texts const stop_at_string{letter_of, {"ba", "cc"}};

/// What tokens 0, 1 and 2 may follow behind the last one, at even and odd positions. In some places it is one of them
/// alone. Behind token 2 of requests that stop there it may not be asked.
struct small_grammar {
    static constexpr std::array<std::uint32_t, 6> words{0b110, 0b011, 0b111, 0b001, 0b101, 0b110};
    [[nodiscard]] token_mask operator()(request_view const& request, std::span<token_id const> drafted) const noexcept {
        token_id const last = drafted.empty() ? request.context.back() : drafted.back();
        if (request.settings->stops_at(last)) std::abort();
        std::size_t const parity = (request.context.size() + drafted.size()) % 2;
        return token_mask{std::span(words).subspan(static_cast<std::size_t>(last) * 2 + parity, 1)};
    }
};
inline small_grammar const grammar{};

/// The scenes of the list. `sampled` leaves temperature 0 out.
[[nodiscard]] inline std::vector<trial> trials(bool sampled = true) {
    std::vector<trial> list;
    request_settings const as_is{.temperature = sampled ? 1.0 : 0.0};
    auto const one = [&](std::vector<token_id> prompt, std::size_t joins = 0) {
        return scene_request{std::move(prompt), as_is, joins};
    };
    // One request. `beyond` keeps the limit on new tokens from shortening the observed blocks; a horizon of lag + 2.
    for (std::uint64_t const seed : {11u, 12u, 13u}) list.push_back({{seed, 2, 2}, {{one({0})}, 4, 3}});
    list.push_back({{12, 2, 3}, {{one({0})}, 4, 2}, false});
    list.push_back({{22, 3, 2}, {{one({2, 1})}, 3, 1}, false});
    list.push_back({{23, 3, 3}, {{one({0})}, 4, 0}, false, true});
    list.push_back({{24, 2, 3}, {{one({1})}, 4, 0}});
    list.push_back({{25, 3, 3}, {{one({1})}, 3, 0}});
    // A stop token inside, at the end of and after the accepted prefix.
    trial stopped{{31, 3, 2, 2}, {{one({0})}, 3, 2}};
    stopped.what.requests[0].settings.stop_tokens = stop_token;
    list.push_back(stopped);
    // A string inside a block and over two rounds.
    trial at_string{{32, 3, 2}, {{one({1})}, 3, 2}, false};
    at_string.what.requests[0].settings.text_end = stop_at_string;
    list.push_back(at_string);
    // Constrained texts, which have forced tokens; one may end, one may not end yet.
    trial constrained{{33, 3, 2}, {{one({1})}, 3, 1}, false};
    constrained.what.requests[0].settings.constraint = grammar;
    list.push_back(constrained);
    constrained.where = {34, 3, 2, 2};
    constrained.what.requests[0].settings.stop_tokens = stop_token;
    list.push_back(constrained);
    trial not_yet = stopped;
    not_yet.what.requests[0].settings.min_new_tokens = 2;
    not_yet.fresh_too = false;
    list.push_back(not_yet);
    // Two requests, together and one joining later: the joint law is the product.
    list.push_back({{41, 2, 2}, {{one({0}), one({1})}, 3, 0}});
    list.push_back({{42, 2, 2}, {{one({1}), one({0}, 1)}, 4, 0}, false, true});
    list.push_back({{43, 2, 2}, {{one({0}), one({1}, 1)}, 3, 0}});
    // Settings: truncated target, a draft with a temperature of its own.
    trial truncated{{51, 3, 2}, {{one({1})}, 3, 1}, false};
    auto& settings = truncated.what.requests[0].settings;
    if (sampled) settings.temperature = 0.6;
    settings.top_k = 2;
    settings.draft = transform{.temperature = 1.7};
    list.push_back(truncated);
    if (sampled) {
        // Nucleus and min-p for p, top-k for q; and temperature 0 inside a sampling rule.
        trial nucleus{{52, 3, 2}, {{one({0})}, 3, 1}, false};
        nucleus.what.requests[0].settings = {.top_p = 0.8, .min_p = 0.05, .draft = transform{.top_k = 2}};
        list.push_back(nucleus);
        trial greedy{{53, 3, 2}, {{one({0})}, 4, 2}};
        greedy.what.requests[0].settings.temperature = 0.0;
        list.push_back(greedy);
        trial greedy_target{{54, 3, 2}, {{one({0})}, 4, 2}};
        greedy_target.what.requests[0].settings = {.temperature = 0.0, .draft = transform{}};
        list.push_back(greedy_target);
    }
    return list;
}

/// All trials of a rule under a schedule, with the semi-autoregressive drafter.
template <class Schedule, class Rule>
void check_trials(std::string const& name, Schedule const& schedule, Rule const& rule, bool sampled = true,
                  bool large = true) {
    for (trial const& t : trials(sampled)) {
        if (t.large && !large) continue;
        auto const make = [&] { return semi_of(t.where); };
        if (t.fresh_too) check_exact(name, enumerator::noise::fresh, t.where, t.what, make, schedule, rule);
        check_exact(name, enumerator::noise::keyed, t.where, t.what, make, schedule, rule);
    }
}

}  // namespace exactness

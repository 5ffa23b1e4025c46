// SPDX-License-Identifier: MIT
//
// An engine that calls the stages itself gets the decoder's tokens bit for bit.
#include "support/catch.hpp"

#include <cstddef>
#include <span>
#include <vector>

#include <sureleap/cost/capacity.hpp>
#include <sureleap/decoder.hpp>
#include <sureleap/drafter/context_model.hpp>
#include <sureleap/drafter/lookup.hpp>
#include <sureleap/schedule/greedy.hpp>
#include <sureleap/schedule/planned.hpp>
#include <sureleap/schedule/simple.hpp>
#include <sureleap/schedule/top_k.hpp>
#include <sureleap/verify/block.hpp>
#include <sureleap/verify/coupled.hpp>
#include <sureleap/verify/match.hpp>
#include <sureleap/verify/rejection.hpp>

#include "support/decoder_scene.hpp"

using namespace sureleap;
using namespace decoder_scene;

// ---- the engine owns the loop ----------------------------------------------------------------------------------

namespace {

/// The stages in an engine's own loop, with the engine's own bookkeeping.
template <class Target, class Drafter, class Schedule, class Rule>
std::vector<tokens> engine_run(Target& target, Drafter drafter, Schedule schedule, Rule rule,
                               std::vector<job> const& jobs, std::size_t places) {
    struct sequence {
        bool running = false;
        std::size_t job = 0;
        tokens text{};
    };
    std::vector<sequence> sequences(places);
    std::vector<tokens> out(jobs.size());
    round_memory<target_value_t<Target>, typename Drafter::value_type> memory{drafter, schedule, rule, {places}};
    philox_randomness rng;
    no_logits_hook const hook;

    std::vector<request_view> views;
    for (std::size_t next = 0;;) {
        for (std::size_t i = 0; i < places && next < jobs.size(); ++i) {
            if (sequences[i].running) continue;
            sequences[i] = {true, next, jobs[next].prompt};
            memory.join(i);
            ++next;
        }
        views.clear();
        for (std::size_t i = 0; i < places; ++i) {
            sequence const& s = sequences[i];
            if (!s.running) continue;
            job const& j = jobs[s.job];
            views.push_back({.id = 100 + s.job,  // ids are the engine's own
                             .slot = i,
                             .anchor = s.text.back(),
                             .position = s.text.size() - 1,
                             .context = s.text,
                             .seed = *j.settings.seed,
                             .remaining = j.settings.max_new_tokens - (s.text.size() - j.prompt.size()),
                             .settings = &j.settings});
        }
        if (views.empty()) return out;

        if (begin_round(schedule, std::span<request_view const>(views), memory)) {
            auto const forward = drafter.forward(memory.requests());
            plan(schedule, drafter, forward, memory);
            draw(drafter, forward, rule, rng, memory);
        }
        auto const rows = score(target, admit(schedule, memory));
        accept(rule, rows, hook, rng, memory);

        for (verdict const& v : end_round(schedule, memory).verdicts) {
            REQUIRE(v.outcome == status::ok);
            sequence& s = sequences[v.slot];
            REQUIRE(v.id == 100 + s.job);
            s.text.insert(s.text.end(), v.emitted.begin(), v.emitted.end());
            out[s.job].insert(out[s.job].end(), v.emitted.begin(), v.emitted.end());
            s.running = v.finished == finish_reason::none;
        }
    }
}

template <class MakeDrafter, class Schedule, class Rule>
void compare_with_engine(MakeDrafter make, Schedule schedule, Rule rule) {
    static constexpr token_id stops[] = {0};
    auto jobs = several_jobs(0.8);
    jobs[3].settings.stop_tokens = stops;
    jobs[5].settings.stop_tokens = stops;
    jobs[2].settings.draft = transform{.temperature = 0.5, .top_k = 5};
    for (std::size_t const places : {1u, 2u, 4u}) {
        INFO(places << " places");
        auto target = target_model_of();
        decoder dec{target, make(), schedule, rule, {.max_requests = places}};
        auto const expected = run(dec, jobs, places);
        CHECK(dec.report().accepted() > 0);
        CHECK(dec.report().accepted() < dec.report().verified());
        CHECK(engine_run(target, make(), schedule, rule, jobs, places) == expected);
    }
}

}  // namespace

TEST_CASE("stages: an engine that owns its loop gets the decoder's tokens") {
    head_weights const weights;
    auto const semi = [&] { return weights.drafter(); };
    auto const found = [] { return lookup{{.block_size = block, .target_vocabulary = vocabulary}}; };
    compare_with_engine(draft_model_of, greedy_schedule{capacity}, token_rejection<>{});
    compare_with_engine(draft_model_of, top_k_schedule{capacity}, token_rejection<>{});
    compare_with_engine(draft_model_of, lagged_top_k<1>(capacity, 0.5), block_verification<>{});
    compare_with_engine(semi, lagged_top_k<3>(capacity), block_verification<>{});
    compare_with_engine(semi, planned_schedule{capacity}, block_verification<>{});
    compare_with_engine(semi, greedy_schedule{capacity}, token_rejection<argmax_draft>{});
    compare_with_engine(semi, retrospective_schedule{capacity}, target_match<>{});
    compare_with_engine(draft_model_of, threshold_schedule{0.15}, keyed_coupling{});
    compare_with_engine(found, fixed_schedule{3}, token_rejection<>{});
}

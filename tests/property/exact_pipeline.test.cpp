// SPDX-License-Identifier: MIT
//
// Exactness of the whole pipeline: gates, floors, priorities, calibrations that learn and cost models of all that a step
// depends on, each alone and all together, under every causal schedule and every rule, for requests that join, leave and
// come back. Horizons are at least lag + 2, so that what past rounds decided has acted.
#include <functional>

#include <sureleap/schedule/agreed.hpp>
#include <sureleap/schedule/cost_ref.hpp>
#include <sureleap/schedule/hysteresis.hpp>
#include <sureleap/serving/batch_decoder.hpp>
#include <sureleap/serving/never_lose.hpp>
#include <sureleap/serving/online_calibration.hpp>
#include <sureleap/serving/refined_cost.hpp>
#include <sureleap/serving/speed_targets.hpp>

#include "support/adaptive.hpp"
#include "support/exactness.hpp"

using namespace exactness;
using namespace adaptive;

namespace {

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

    request_id join(std::span<token_id const> prompt, request_settings const& settings) {
        return decoder_.join(prompt, settings);
    }
    void leave(request_id id) { decoder_.leave(id); }
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

template <class Visit>
void for_each_costed_schedule(Visit&& visit) {
    visit("greedy, whole step", greedy_schedule{whole_step_cost{}});
    visit("planned, whole step", planned_schedule{whole_step_cost{}});
    visit("top-K, lag 1, whole step", lagged_top_k<1>(whole_step_cost{}, 0.7));
    visit("top-K, lag 2, whole step", top_k_schedule{whole_step_cost{}, 0.7});
}

struct pipeline_trial {
    world where;
    scene what;
    bool fresh_too = true;
    bool large = false;  ///< tens of thousands of paths
};

std::vector<pipeline_trial> pipeline_trials() {
    auto const one = [](token_id prompt, double priority = 1.0, std::uint32_t tenant = 0) {
        return scene_request{{prompt}, {.priority = priority, .tokens_per_second = 0.8, .tenant = tenant}};
    };
    std::vector<pipeline_trial> list;
    list.push_back({{11, 2, 2}, {{one(0)}, 5, 2}});
    list.push_back({{24, 2, 3}, {{one(1)}, 4, 1}});
    list.push_back({{22, 3, 2}, {{one(2)}, 4, 0}, false});
    // A stop token, and a cap of its own on the block.
    pipeline_trial stopped{{31, 3, 3}, {{one(0)}, 4, 0}, false};
    stopped.what.requests[0].settings.stop_tokens = stop_token;
    stopped.what.requests[0].settings.max_draft_tokens = 2;
    list.push_back(stopped);
    // Two requests of unequal priority; together, the second later, the first away for a round or two.
    list.push_back({{41, 2, 2}, {{one(0), one(1, 0.3, 1)}, 3, 1}});
    list.push_back({{44, 2, 2}, {{one(1), one(0, 0.3, 1)}, 4, 0}, false, true});
    pipeline_trial late{{42, 2, 2}, {{one(1, 0.2), one(0, 1.0, 1)}, 4, 0}, false, true};
    late.what.requests[1].joins_after = 1;
    list.push_back(late);
    pipeline_trial away{{43, 2, 2}, {{one(0, 1.0, 1), one(1, 0.5)}, 4, 0}, false, true};
    away.what.requests[0].leaves_after = 1;
    away.what.requests[0].returns_after = 2;
    list.push_back(away);
    pipeline_trial to_and_fro{{45, 2, 2}, {{one(0), one(1)}, 3, 1}};
    to_and_fro.what.requests[0].leaves_after = 2;
    to_and_fro.what.requests[0].returns_after = 3;
    to_and_fro.what.requests[1].joins_after = 1;
    to_and_fro.what.requests[1].settings.stop_tokens = std::span(stop_token);
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

template <class Schedule, class Rule>
void check_pipeline(std::string const& name, Schedule const& schedule, Rule const& rule, freedom const& may,
                    bool calibrated, bool large) {
    free_schedule const free{schedule, may};
    for (pipeline_trial const& t : pipeline_trials()) {
        if (t.large && !large) continue;
        auto const make = [&] { return semi_of(t.where); };
        if (t.fresh_too)
            check_one(name, enumerator::noise::fresh, t.where, t.what, free_parts{calibrated}, make, free, rule);
        check_one(name, enumerator::noise::keyed, t.where, t.what, free_parts{calibrated}, make, free, rule);
    }
}

constexpr freedom everything(std::uint64_t seed) {
    return {.limits = true, .floors = true, .weights = true, .seed = seed};
}

template <class Rule, class Visit>
void for_each_schedule_of(Rule const&, Visit&& visit) {
    if constexpr (Rule::guarantee == fidelity::pathwise) {
        for_each_schedule(visit);
    } else {
        for_each_causal_schedule(visit);
    }
    for_each_costed_schedule(visit);
}

/// Everything at once, under every schedule.
template <class Rule>
void check_everything(Rule const& rule, bool large = true) {
    for_each_schedule_of(rule, [&](std::string const& name, auto const& schedule) {
        for (std::uint64_t const seed : {5u, 6u}) check_pipeline(name, schedule, rule, everything(seed), true, large);
    });
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

}  // namespace

// ---- each part alone -------------------------------------------------------------------------------------------

TEST_CASE("the pipeline, each part alone: exact", "[exact]") {
    for_each_rule([](auto const& rule) {
        for_one_schedule_of_a_kind([&](std::string const& name, auto const& schedule) {
            check_pipeline(name + ", priorities of the requests", schedule, rule, {}, false, false);
            check_pipeline(name + ", gate", schedule, rule, {.limits = true}, false, false);
            check_pipeline(name + ", floor", schedule, rule, {.floors = true}, false, false);
            check_pipeline(name + ", weights that change", schedule, rule, {.weights = true}, false, false);
            check_pipeline(name + ", calibration that learns", schedule, rule, {}, true, false);
        });
    });
}

// ---- all of them together --------------------------------------------------------------------------------------

TEST_CASE("the whole pipeline, token rejection: exact", "[exact][long]") {
    check_everything(token_rejection<>{});
}
TEST_CASE("the whole pipeline, block verification: exact", "[exact][long]") {
    check_everything(block_verification<>{});
}
TEST_CASE("the whole pipeline, target match, argmax drafts: exact", "[exact][long]") {
    check_everything(target_match<>{});
}
TEST_CASE("the whole pipeline, target match, sampled drafts: exact", "[exact][long]") {
    check_everything(target_match<categorical_draft>{}, false);
}
TEST_CASE("the whole pipeline, keyed coupling: exact", "[exact][long]") {
    check_everything(keyed_coupling{});
}

TEST_CASE("the whole pipeline in all scenes of the exactness list: exact", "[exact][long]") {
    // Truncated targets, drafts with a temperature of their own, temperature 0 among sampled requests.
    for_each_rule([](auto const& rule) {
        for_one_schedule_of_a_kind([&](std::string const& name, auto const& schedule) {
            check_trials(name, free_schedule{schedule, everything(8)}, rule, true, false);
        });
    });
}

TEST_CASE("the whole pipeline with drafters that have no head: exact", "[exact][long]") {
    for_each_rule([](auto const& rule) {
        auto const check = [&](std::string const& name, auto const& schedule) {
            free_schedule const free{schedule, everything(9)};
            scene stopped{{{}, {{1}, {}, 1}}, 3, 0};  // the second joins a round later
            for (auto& request : stopped.requests) request.settings.stop_tokens = stop_token;
            world const three{9, 3, 2};
            auto const from_three = [&] { return autoregressive_of(three); };
            check_one(name, enumerator::noise::keyed, three, stopped, free_parts{}, from_three, free, rule);
            world const two{8, 2, 3};
            auto const from_two = [&] { return autoregressive_of(two); };
            check_one(name, enumerator::noise::keyed, two, {{{}}, 4, 1}, free_parts{}, from_two, free, rule);
        };
        check("fixed", fixed_schedule{});
        check("greedy", greedy_schedule{whole_step_cost{}});
        check("top-K, lag 1", lagged_top_k<1>(cliff_capacity{}, 0.7));
        check("top-K, lag 2", top_k_schedule{whole_step_cost{}, 0.7});

        world const repeated{2, 3, 3};
        auto const look_up = [] { return lookup{{.block_size = 3, .target_vocabulary = 3}}; };
        check_one("lookup", enumerator::noise::keyed, repeated, {{{{0, 1, 2, 0, 1}}}, 4, 1}, free_parts{}, look_up,
                  free_schedule{fixed_schedule{}, everything(9)}, rule);
    });
}

// ---- continuous batching ---------------------------------------------------------------------------------------

namespace {

/// batch_decoder as small_world::play plays it: every step pauses some requests and resumes others, as past rounds say.
template <class Target, class Drafter, class Schedule, class Rule, class Rng>
class pausing_batch {
public:
    pausing_batch(std::size_t places, Target& target, Drafter drafter, Schedule const& schedule, Rule const& rule,
                  Rng rng)
        : engine_(target, std::move(drafter), schedule, rule,
                  batch_options{.max_requests = places, .seed = 1, .calibration = calibration_}, no_logits_hook{},
                  rng) {}

    request_id join(std::span<token_id const> prompt, request_settings const& settings) {
        ids_.push_back(*engine_.submit(prompt, settings));
        return ids_.back();
    }
    void leave(request_id id) { engine_.cancel(id); }
    bool step() {
        for (request_id const id : ids_) {
            if (!engine_.knows(id)) continue;
            if (past_.choice(std::array{false, false, true}, 4, id)) {
                engine_.pause(id);
            } else {
                engine_.resume(id);
            }
        }
        if (!engine_.step()) {  // everybody is paused
            for (request_id const id : ids_) {
                if (engine_.knows(id)) engine_.resume(id);
            }
            if (!engine_.step()) return false;
        }
        calibration_.observe(engine_.round());
        past_.observe(engine_.round());
        return true;
    }
    [[nodiscard]] std::span<request_event const> events() const { return engine_.events(); }

private:
    free_calibration calibration_{7};
    past_rounds past_{11};
    std::vector<request_id> ids_;
    batch_decoder<Target&, Drafter, Schedule, Rule, no_logits_hook, Rng> engine_;
};

}  // namespace

TEST_CASE("continuous batching, with a queue and pauses that past rounds decide: exact", "[exact][long]") {
    for_each_rule([](auto const& rule) {
        for_one_schedule_of_a_kind([&](std::string const& name, auto const& schedule) {
            for (pipeline_trial const& t : pipeline_trials()) {
                free_schedule const free{schedule, everything(10)};
                for (std::size_t places = 1; places <= t.what.requests.size(); ++places) {
                    if (t.large && places > 1) continue;
                    INFO(name << ", world " << t.where.seed << ", places " << places);
                    auto target = target_of(t.where);
                    law const found = decoder_law(enumerator::noise::keyed, t.what, [&](auto rng) {
                        return pausing_batch<decltype(target), decltype(semi_of(t.where)),
                                             std::remove_const_t<decltype(free)>, std::remove_cvref_t<decltype(rule)>,
                                             decltype(rng)>(places, target, semi_of(t.where), free, rule, rng);
                    });
                    CHECK(largest_difference(found, autoregressive_law(t.where, t.what)) <= tolerance);
                }
            }
        });
    });
}

// ---- the library's own parts -----------------------------------------------------------------------------------

namespace {

using learned_cost = refined_cost<whole_step_cost>;

/// Online calibration per tenant and a cost model that is refined by the times of steps, which past rounds make up. Schedules
/// refer to `cost`, which every path puts back to where it began.
class own_parts {
public:
    explicit own_parts(learned_cost& cost)
        : cost_(&cost),
          calibration_(3, {.maps = {.terms = online_terms::history,
                                    .prior_weight = 1.0,
                                    .memory = 16.0,
                                    .trusted_observations = 2.0},
                           .max_requests = 4,
                           .tenants = 2,
                           .shared_weight = 2.0}) {}

    [[nodiscard]] calibration_ref lent() const { return calibration_; }
    void observe(round_record const& round) {
        calibration_.observe(round);
        past_.observe(round);
        cost_->observe(round.load, past_.choice(std::array{0.5, 2.0, 5.0}, 5));
    }

private:
    learned_cost* cost_;
    online_calibration calibration_;
    past_rounds past_{12};
};

/// Ranks that agree on the largest of batches that others are said to have.
struct larger_batch {
    std::size_t operator()(std::size_t batch) const noexcept { return batch | 1u; }
};

/// The schedule as traffic of the same world leaves it, and the parts.
template <class Schedule>
void live_in(world const& w, Schedule& schedule, own_parts& parts) {
    auto target = target_of(w);
    decoder dec{target, semi_of(w), schedule, token_rejection<>{},
                decoder_options{.max_requests = 4, .calibration = parts.lent()}};
    std::size_t rounds = 0;
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
        std::vector<token_id> const prompt{static_cast<token_id>(seed % 2)};
        for (std::uint64_t i = 0; i <= seed % 3; ++i) {
            (void)dec.join(prompt, {.seed = 10 * seed + i,
                                    .max_new_tokens = 4 + seed,
                                    .priority = i == 0 ? 1.0 : 0.4,
                                    .tokens_per_second = 0.8,
                                    .tenant = static_cast<std::uint32_t>(i % 2)});
        }
        for (; dec.step(); ++rounds) parts.observe(dec.round());
    }
    REQUIRE(rounds > 60);
    schedule = dec.schedule();
}

template <class Schedule>
auto guarded(Schedule schedule, learned_cost const& cost) {
    return never_lose{
        speed_targets{
            std::move(schedule), cost_ref{cost}, {.max_requests = 4, .window = 2.0, .step = 1.0, .patience = 2}},
        cost_ref{cost},
        {.max_requests = 4, .block_size = 3, .prior = 0.7, .probing = 0.5}};
}

template <class Schedule, class Rule>
void check_own(std::string const& name, Schedule const& fresh, learned_cost& cost, Rule const& rule) {
    for (pipeline_trial const& t : pipeline_trials()) {
        if (t.large || t.where.block_size > 3) continue;
        // never_lose is told the drafter's block.
        world where = t.where;
        where.block_size = 3;
        auto const make = [&] { return semi_of(where); };
        learned_cost const before = cost;
        for (bool const warm : {false, true}) {
            own_parts parts{cost};
            Schedule schedule = fresh;
            if (warm) live_in(where, schedule, parts);
            learned_cost const beginning = cost;
            auto target = target_of(where);
            INFO(name << (warm ? ", after traffic" : ", new") << ", world " << where.seed << ", requests "
                      << t.what.requests.size());
            law const found = decoder_law(enumerator::noise::keyed, t.what, [&](auto rng) {
                cost = beginning;
                static_assert(is_lossless_round_v<Rule, Schedule, decltype(make())>,
                              "the exactness list holds combinations that the compiler lets through");
                return learning_decoder<own_parts, decltype(target), decltype(make()), Schedule, Rule, decltype(rng)>(
                    t.what.requests.size(), parts, target, make(), schedule, rule, rng);
            });
            CHECK(largest_difference(found, autoregressive_law(where, t.what)) <= tolerance);
            cost = before;
        }
    }
}

}  // namespace

TEST_CASE("the library's own controllers, calibration and cost model, new and after traffic: exact", "[exact][long]") {
    for_each_rule([](auto const& rule) {
        learned_cost cost{whole_step_cost{}, {.memory = 2.0, .prior = 1.0}};
        cost_ref const lent{cost};
        check_own("planned", guarded(hysteresis{planned_schedule{lent}, {.margin = 0.05}}, cost), cost, rule);
        check_own("top-K, lag 1, agreed", guarded(agreed{lagged_top_k<1>(lent, 0.7), larger_batch{}}, cost), cost,
                  rule);
        check_own("top-K, lag 2", guarded(top_k_schedule{lent, 0.7}, cost), cost, rule);
        check_own("greedy", guarded(greedy_schedule{lent}, cost), cost, rule);
        check_own(
            "fixed",
            never_lose{fixed_schedule{}, lent, {.max_requests = 4, .block_size = 3, .prior = 0.7, .probing = 0.5}},
            cost, rule);
    });
}

// ---- that the tests are about something ------------------------------------------------------------------------

TEST_CASE("the parts that learn do act in the scenes above", "[exact]") {
    std::size_t rounds = 0, gated = 0, undrafted = 0, ended = 0, weighted = 0, calibrated = 0, trimmed = 0;
    auto const watch = [&](round_record const& round) {
        ++rounds;
        undrafted += round.load.drafting == 0 ? 1u : 0u;
        for (std::size_t r = 0; r < round.size(); ++r) {
            request_view const& request = round.requests[r];
            verdict const& v = round.verdicts[r];
            gated += request.draft_limit == 0 ? 1u : 0u;
            ended += v.drafted < request.draft_cap(round.survivals.block_size) ? 1u : 0u;
            weighted += request.weight != certain ? 1u : 0u;
            trimmed += v.verified < v.drafted ? 1u : 0u;
            for (std::size_t k = 0; k < v.drafted; ++k) {
                double const now = static_cast<double>(round.survivals.at(r, k).confidence) * 0x1p-24;
                calibrated += std::abs(now - round.raw_confidence(r, k)) > 0.01 ? 1u : 0u;
            }
        }
    };
    free_schedule const free{planned_schedule{whole_step_cost{}}, everything(5)};
    for (pipeline_trial const& t : pipeline_trials()) {
        if (t.large) continue;
        (void)pipeline_law(
            enumerator::noise::keyed, t.where, t.what, free_parts{}, [&] { return semi_of(t.where); }, free,
            token_rejection<>{}, watch);
    }
    for (std::size_t const seen : {gated, undrafted, ended, weighted, calibrated, trimmed}) CHECK(20 * seen > rounds);
}

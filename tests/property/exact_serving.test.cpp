// SPDX-License-Identifier: MIT
//
// Exactness of serving: continuous batching with a queue and pauses, and the library's own controllers, calibration and
// refined costs. These are tested new, and in the state that traffic has left them in.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <sureleap/cost/views.hpp>
#include <sureleap/decoder.hpp>
#include <sureleap/schedule/agreed.hpp>
#include <sureleap/schedule/hysteresis.hpp>
#include <sureleap/serving/never_lose.hpp>
#include <sureleap/serving/online_calibration.hpp>
#include <sureleap/serving/refined_cost.hpp>
#include <sureleap/serving/speed_targets.hpp>

#include "support/pipeline.hpp"

using namespace pipeline;

// ---- continuous batching ---------------------------------------------------------------------------------------

namespace {

/// decoder as small_world::play plays it: every step pauses some requests and resumes others, as past rounds say.
template <class Target, class Drafter, class Schedule, class Rule, class Rng>
class pausing_batch {
public:
    pausing_batch(std::size_t places, Target& target, Drafter drafter, Schedule const& schedule, Rule const& rule,
                  Rng rng)
        : engine_(target, std::move(drafter), schedule, rule,
                  decoder_options{.max_requests = places, .seed = 1, .calibration = calibration_}, no_logits_hook{},
                  rng) {}

    request_id submit(std::span<token_id const> prompt, request_settings const& settings) {
        ids_.push_back(engine_.submit(prompt, settings));
        return ids_.back();
    }
    void cancel(request_id id) { engine_.cancel(id); }
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
    decoder<Target&, Drafter, Schedule, Rule, no_logits_hook, Rng> engine_;
};

}  // namespace

TEST_CASE("continuous batching, with a queue and pauses: exact", "[exact][long]") {
    for_each_rule([](auto const& rule) {
        for_one_schedule_of_a_kind([&](std::string const& name, auto const& schedule) {
            for (pipeline_trial const& t : pipeline_trials()) {
                free_schedule const free{schedule, everything(10)};
                for (std::size_t places = 1; places <= t.what.requests.size(); ++places) {
                    if (t.size == extent::large && places > 1) continue;
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

/// Online calibration per tenant and a cost model that is refined by the times of steps, which past rounds make up.
/// Schedules refer to `cost`, which every path puts back to where it began.
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
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        std::vector<token_id> const prompt{static_cast<token_id>(seed % 2)};
        for (std::uint64_t i = 0; i <= seed % 3; ++i) {
            (void)dec.submit(prompt, {.seed = 10 * seed + i,
                                      .max_new_tokens = 4 + seed,
                                      .priority = i == 0 ? 1.0 : 0.4,
                                      .tokens_per_second = 0.8,
                                      .tenant = static_cast<std::uint32_t>(i % 2)});
        }
        for (; dec.step(); ++rounds) parts.observe(dec.round());
    }
    REQUIRE(rounds > 40);
    schedule = dec.schedule();
}

template <class Schedule>
auto guarded(Schedule schedule, learned_cost const& cost) {
    return never_lose{speed_targets{std::move(schedule), cost_ref{cost}, {.window = 2.0, .step = 1.0, .patience = 2}},
                      cost_ref{cost},
                      {.prior = 0.7, .probing = 0.5}};
}

template <class Schedule, class Rule>
void check_own(std::string const& name, Schedule const& fresh, learned_cost& cost, Rule const& rule, action& seen) {
    for (pipeline_trial const& t : pipeline_trials()) {
        bool const large = t.size == extent::large;
        if (large && t.where.seed != 44) continue;
        // As many positions as the calibration has.
        world where = t.where;
        where.block_size = 3;
        auto const make = [&] { return semi_of(where); };
        learned_cost const before = cost;
        for (bool const warm : {false, true}) {
            if (large && !warm) continue;
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
                    t.what.requests.size(), parts, target, make(), schedule, rule, rng,
                    [&](round_record const& round) { seen.observe(round); });
            });
            CHECK(largest_difference(found, autoregressive_law(where, t.what)) <= tolerance);
            cost = before;
        }
    }
}

}  // namespace

TEST_CASE("controllers, calibration and cost model of the library: exact", "[exact][long]") {
    never_lose_options const careful{.prior = 0.7, .probing = 0.5};
    for_each_rule([&](auto const& rule) {
        action seen;
        learned_cost cost{whole_step_cost{}, {.memory = 2.0, .prior = 1.0}};
        cost_ref const lent{cost};
        auto const check = [&](std::string const& name, auto const& s) { check_own(name, s, cost, rule, seen); };
        check("planned", guarded(hysteresis{planned_schedule{lent}, {.margin = 0.05}}, cost));
        check("top-K, lag 1, agreed", agreed{guarded(lagged_top_k<1>(lent, 0.7), cost), larger_batch{}});
        check("top-K, lag 2", guarded(top_k_schedule{lent, 0.7}, cost));
        check("greedy", guarded(greedy_schedule{lent}, cost));
        check("fixed", never_lose{fixed_schedule{}, lent, careful});
        INFO("limited " << seen.limited << ", ended " << seen.ended << ", weighted " << seen.weighted << ", calibrated "
                        << seen.calibrated << ", trimmed " << seen.trimmed << ", rounds " << seen.rounds);
        for (std::size_t const n : {seen.limited, seen.ended, seen.weighted, seen.calibrated, seen.trimmed}) {
            CHECK(100 * n > seen.rounds);
        }
    });
}

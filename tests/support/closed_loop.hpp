// SPDX-License-Identifier: MIT
//
// Schedules in closed loop, without models: requests whose confidences and acceptance are drawn beforehand, time that
// is what a cost model says. Every schedule meets the same blocks, so that differences are the schedules' own.
//
// A block is drawn as logits of the conditional acceptance: a level of its domain, of its request, what hidden states
// tell at the anchor, and what only the drawn tokens tell. Acceptance is drawn with the live confidence itself:
// calibrated.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <sureleap/concepts.hpp>
#include <sureleap/round/record.hpp>
#include <sureleap/round/runner.hpp>
#include <sureleap/round/stages.hpp>
#include <sureleap/schedule/planning.hpp>
#include <sureleap/schedule/simple.hpp>
#include <sureleap/schedule/survival.hpp>

#include "support/dice.hpp"

namespace closed_loop {

using namespace sureleap;

// ---- what steps cost -------------------------------------------------------------------------------------------

/// Seconds of a step, in units of an idle machine's: verification by the (padded) batch, requests, and drafting.
struct machine {
    double per_token = 1.0 / 128.0;  ///< beyond `free_tokens`
    double free_tokens = 0.0;        ///< a batch that is bound by memory
    double per_request = 0.0;
    std::size_t padded_to = 1;
    double draft = 0.05;  ///< of a drafter's pass
    double per_draft_token = 0.001;
    double per_unread_token = 0.0;  ///< that the drafter reads before it drafts
    double replay = 0.0;            ///< of a request whose drafts were rejected in the round before

    [[nodiscard]] double step_seconds(step_load const& load) const noexcept {
        auto const padded = static_cast<double>((load.batch_tokens + padded_to - 1) / padded_to * padded_to);
        double seconds = 1.0 + per_token * std::max(padded - free_tokens, 0.0);
        seconds += per_request * static_cast<double>(load.requests);
        seconds += replay * static_cast<double>(load.replays);
        if (load.drafting > 0) {
            seconds += draft + per_draft_token * static_cast<double>(load.draft_tokens);
            seconds += per_unread_token * static_cast<double>(load.unread_tokens);
        }
        return seconds;
    }
};

// ---- what is drafted -------------------------------------------------------------------------------------------

struct domain {
    double level;           ///< mean logit of the conditional acceptance
    double requests = 0.5;  ///< standard deviations: between requests,
    double anchor = 0.9;    ///< of what is known at the anchor,
    double live = 0.9;      ///< of what the drafted tokens tell
};
inline constexpr domain chat{1.15};
inline constexpr domain code{2.05};
inline constexpr domain math{2.4};

/// Blocks of `rounds` rounds of `requests` slots. A slot's request changes every `life` rounds.
class blocks {
public:
    std::size_t requests, rounds, block_size, life;
    std::vector<float> anchor, live;     ///< [rounds, requests, gamma]
    std::vector<std::uint8_t> accepted;  ///< [rounds, requests] if all is verified

    template <class DomainOf>  // domain_of(slot, round)
    blocks(std::uint64_t seed, std::size_t requests_, std::size_t rounds_, std::size_t gamma, DomainOf const& domain_of,
           std::size_t life_ = 200)
        : requests(requests_),
          rounds(rounds_),
          block_size(gamma),
          life(life_),
          anchor(requests_ * rounds_ * gamma),
          live(anchor.size()),
          accepted(requests_ * rounds_) {
        support::dice roll(seed);
        std::vector<double> own(requests);
        constexpr double bell = 1.7320508;  // 1 / the deviation of dice::bell
        for (std::size_t t = 0; t < rounds; ++t) {
            for (std::size_t r = 0; r < requests; ++r) {
                if (t == 0 || (t + 13 * r) % life == 0) own[r] = bell * roll.bell();
                domain const d = domain_of(r, t);
                bool alive = true;
                for (std::size_t k = 0; k < block_size; ++k) {
                    double const known = d.level + d.requests * own[r] + d.anchor * bell * roll.bell();
                    double const x = known + d.live * bell * roll.bell();
                    std::size_t const i = (t * requests + r) * block_size + k;
                    // The mean of a logistic under normal noise, nearly.
                    anchor[i] = static_cast<float>(logistic(known / std::sqrt(1.0 + d.live * d.live * 0.346)));
                    live[i] = static_cast<float>(logistic(x));
                    alive = alive && roll.real() < live[i];
                    accepted[t * requests + r] =
                        static_cast<std::uint8_t>(accepted[t * requests + r] + (alive ? 1 : 0));
                }
            }
        }
    }
    [[nodiscard]] std::uint64_t id(std::size_t slot, std::size_t round) const {
        return 1 + slot + requests * ((round + 13 * slot) / life);
    }

private:
    [[nodiscard]] static double logistic(double x) { return 1.0 / (1.0 + std::exp(-x)); }
};

// ---- the loop --------------------------------------------------------------------------------------------------

/// What a run came to. `tokens` are expected ones: what verdicts would give in the mean, given what was verified.
struct outcome {
    double tokens = 0.0;
    double seconds = 0.0;
    double verified = 0.0;
    double drafted = 0.0;
    std::uint64_t read = 0;  ///< tokens that the drafter had missed
    double replays = 0.0;
    std::vector<double> by_slot{};           ///< emitted tokens, as drawn
    std::vector<std::size_t> batches{};      ///< batch tokens of every round
    std::vector<std::uint32_t> lengths{};    ///< of every request in every round
    std::vector<std::uint64_t> decisions{};  ///< of every round: each request's limit and weight, the floor, the budget
    std::vector<double> round_tokens{};
    std::vector<double> round_seconds{};

    [[nodiscard]] double throughput() const { return tokens / seconds; }
};

struct run_options {
    std::size_t from = 0;                                     ///< rounds before are run and not counted
    std::vector<request_settings> const* settings = nullptr;  ///< [slot]
    bool tell_seconds = true;
    double noise = 0.0;  ///< of the seconds that are told
    std::uint64_t noise_seed = 99;
    bool tell_confidences = true;  ///< otherwise every confidence is told as 1
    /// Not 0: a seed, and rounds fail. The schedule is asked again for the same requests, or for others in between.
    std::uint64_t failures = 0;
};

/// What a schedule is asked before a round, for a round that nobody will observe: some of the requests, or others in
/// their slots, each of them weighed anew.
template <class Schedule>
void fail_a_round(Schedule& schedule, std::span<request_view const> requests, support::dice& roll) {
    std::vector<request_view> views(requests.begin(), requests.end());
    if (roll.chance(0.5)) {
        views.resize(roll.below(views.size() + 1));
        for (request_view& r : views) r.id += roll.chance(0.5) ? 1u << 20 : 0;
    }
    detail::weigh(views);
    if constexpr (draft_limiter<Schedule>) schedule.limit_drafts(views);
    if constexpr (draft_stopper<Schedule>) (void)schedule.draft_floor();
}

/// Runs a schedule over the blocks; `load(t)`: how many requests there are in round t, slots 0, 1 ...
template <class Schedule, class Cost, class Load>
outcome run(blocks const& world, Schedule& schedule, Cost const& cost, Load const& load,
            run_options const& options = {}) {
    std::size_t const most = world.requests;
    std::size_t const gamma = world.block_size;
    request_settings const plain{.max_new_tokens = 1u << 30};
    std::vector<request_view> views(most);
    std::vector<verdict> verdicts(most);
    std::vector<token_id> emitted(gamma + 1);
    std::vector<std::uint32_t> sizes(most);
    std::vector<fixed_probability> confidence(most * gamma), survival(most * gamma);
    std::vector<std::uint64_t> last_id(most), position(most);
    std::vector<std::uint64_t> read(most);  // by the drafter
    std::vector<std::uint8_t> rejected(most);
    std::vector<std::byte> memory(1 << 16);
    workspace sizer;
    (void)planning_memory::carve(sizer, most, gamma);
    (void)frontier_memory::carve(sizer, most);
    memory.resize(sizer.used() + 64);
    workspace ws{memory};
    auto planning = planning_memory::carve(ws, most, gamma);
    auto const frontier = frontier_memory::carve(ws, most);
    survival_history history;
    schedule_traits const plans = traits_of(schedule);
    if (plans.reads_history()) history = survival_history(most, gamma, plans.lag, detail::prior_of(schedule));
    if constexpr (sized_part<Schedule>) schedule.set_up({most, gamma});
    outcome out;
    out.by_slot.resize(most);
    support::dice roll(options.noise_seed);
    support::dice fate(options.failures);
    for (std::size_t t = 0; t < world.rounds; ++t) {
        std::size_t const n = load(t);
        for (std::size_t r = 0; r < n; ++r) {
            if (last_id[r] != world.id(r, t)) {
                last_id[r] = world.id(r, t);
                position[r] = 100;
                read[r] = 100;  // with the prompt
                rejected[r] = 0;
                if (plans.reads_history()) history.join(r);
            }
            views[r] = {.id = last_id[r],
                        .slot = r,
                        .position = position[r],
                        .remaining = 1u << 20,
                        .settings = options.settings ? &(*options.settings)[r] : &plain,
                        .unread = position[r] - read[r],
                        .replays = rejected[r] != 0};
        }
        std::span<request_view> const round{views.data(), n};
        std::size_t const failures = options.failures == 0 ? 0 : fate.below(4);
        for (std::size_t i = 0; i < failures; ++i) fail_a_round(schedule, round, fate);
        detail::weigh(round);
        if constexpr (draft_limiter<Schedule>) schedule.limit_drafts(round);
        fixed_probability floor = 0;
        if constexpr (draft_stopper<Schedule>) floor = schedule.draft_floor();
        step_load step = load_of(round, gamma);
        verify_budget budget{};
        std::uint64_t weight = 0;
        for (std::size_t r = 0; r < n; ++r) {
            weight += round[r].weight;
            sizes[r] = 0;
            fixed_probability a = round[r].weight;
            for (std::size_t k = 0; k < round[r].draft_cap(gamma); ++k) {
                fixed_probability c = 0;
                (void)quantise(options.tell_confidences ? world.live[(t * most + r) * gamma + k] : 1.0, c);
                a = extend_survival(a, c);
                if (a < floor) break;
                confidence[r * gamma + k] = c;
                survival[r * gamma + k] = a;
                ++sizes[r];
            }
        }
        survival_table const table{gamma, {sizes.data(), n}, confidence, survival, step, weight};
        if constexpr (planner<Schedule>) {
            if (step.drafting > 0 && plans.plans) {
                if (plans.reads_history()) {
                    history.recall(round, planning);
                } else {
                    planning.start(round);
                    for (std::size_t r = 0; r < n; ++r) {
                        planning.begin(r);
                        for (std::size_t k = 0; k < round[r].draft_cap(gamma); ++k) {
                            planning.append(r, world.anchor[(t * most + r) * gamma + k]);
                        }
                    }
                }
                using origin = typename Schedule::origin;
                auto const plannable = detail::planning_access::make<origin>(planning.view(), planning.walk);
                for (std::size_t i = 0; i <= failures; ++i) budget = schedule.budget(plannable);
            }
        }
        for (request_view const& r : round) {
            out.decisions.push_back(std::min(r.draft_limit, r.model_limit));
            out.decisions.push_back(r.weight);
        }
        out.decisions.push_back(floor);
        out.decisions.push_back(budget.value_or(0));
        auto const lengths = admit(schedule, draft_table{table, {}, {}}, budget, frontier);
        double tokens = 0.0;
        step.batch_tokens = n;
        for (std::size_t r = 0; r < n; ++r) {
            std::size_t const l = lengths[r];
            out.lengths.push_back(lengths[r]);
            std::size_t const accepted = std::min<std::size_t>(world.accepted[t * most + r], l);
            verdicts[r] = {.id = round[r].id,
                           .slot = r,
                           .drafted = sizes[r],
                           .verified = l,
                           .accepted = accepted,
                           .emitted = {emitted.data(), accepted + 1}};
            step.batch_tokens += l;
            tokens += 1.0;
            double alive = 1.0;
            for (std::size_t k = 0; k < l; ++k) tokens += alive *= world.live[(t * most + r) * gamma + k];
            position[r] += accepted + 1;
            if (round[r].draft_cap(gamma) > 0) {
                out.read += t < options.from ? 0 : round[r].unread;
                read[r] = position[r];
            }
            rejected[r] = accepted < l;
        }
        double const seconds = cost.step_seconds(step);
        double const told = options.tell_seconds ? seconds * (1.0 + options.noise * roll.bell())
                                                 : std::numeric_limits<double>::quiet_NaN();
        if (plans.reads_history()) history.push(round, table);
        if constexpr (round_observer<Schedule>) {
            round_record const record{round, {verdicts.data(), n}, table, {}, step, told};
            schedule.observe(record);
        }
        out.batches.push_back(step.batch_tokens);
        out.round_tokens.push_back(tokens);
        out.round_seconds.push_back(seconds);
        if (t < options.from) continue;
        out.tokens += tokens;
        out.seconds += seconds;
        out.verified += static_cast<double>(step.batch_tokens - n);
        out.drafted += static_cast<double>(step.draft_tokens);
        out.replays += static_cast<double>(step.replays);
        for (std::size_t r = 0; r < n; ++r) out.by_slot[r] += static_cast<double>(verdicts[r].accepted + 1);
    }
    return out;
}

// ---- what it is compared with ----------------------------------------------------------------------------------

/// A schedule that drafts so many positions, always.
template <class Schedule>
class drafting_always {
public:
    static constexpr bool needs_confidence = needs_confidence_v<Schedule>;
    drafting_always(Schedule schedule, std::size_t length) : schedule_(schedule), length_(length) {}
    template <class... Arguments>
    void admit(Arguments&&... arguments) const
        requires requires(Schedule const& s) { s.admit(arguments...); }
    {
        schedule_.admit(arguments...);
    }
    void limit_drafts(std::span<request_view> requests) const noexcept {
        for (request_view& r : requests) r.draft_limit = length_;
    }

private:
    Schedule schedule_;
    std::size_t length_;
};

/// Throughput of the best static choice: no drafts, or always 1 .. gamma, all verified; and which.
struct best_static {
    double throughput = 0.0;
    std::size_t length = 0;
};
template <class Cost, class Load>
best_static static_of(blocks const& world, Cost const& cost, Load const& load, run_options const& options = {}) {
    best_static best;
    for (std::size_t length = 0; length <= world.block_size; ++length) {
        drafting_always schedule{fixed_schedule{}, length};
        if (double const found = run(world, schedule, cost, load, options).throughput(); found > best.throughput) {
            best = {found, length};
        }
    }
    return best;
}

/// The oracle: the best lengths in hindsight, with the best length of drafts.
template <class Cost, class Load>
double oracle_of(blocks const& world, Cost const& cost, Load const& load, run_options const& options = {}) {
    double best = 0.0;
    for (std::size_t length = 0; length <= world.block_size; ++length) {
        drafting_always schedule{retrospective_schedule{cost}, length};
        best = std::max(best, run(world, schedule, cost, load, options).throughput());
    }
    return best;
}

}  // namespace closed_loop

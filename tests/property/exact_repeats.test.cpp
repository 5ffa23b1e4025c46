// SPDX-License-Identifier: MIT
//
// What an engine may do between a round that failed and its repetition. A change that would bias the output is refused.
// An engine that takes it back is exact; one that gives the round up instead (join) is seen to be biased, so each
// refusal is needed. Some seconds.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include <sureleap/round/stages.hpp>
#include <sureleap/schedule/greedy.hpp>
#include <sureleap/schedule/top_k.hpp>

#include "support/failing_rounds.hpp"

using namespace failing_rounds;

namespace {

/// Where the first attempt at a round fails: at a token of 1 while the model drafts, or at one that is verified.
enum class fails { in_draw, in_score };
/// What is different when the round is run again.
enum class change { nothing, newcomer, leaver, slot, schedule, drafts };
/// What the engine does if that is refused.
enum class answer { takes_it_back, gives_up };

/// Draws are worth it in threes, or with somebody else's.
struct stairs {
    [[nodiscard]] double step_seconds(step_load const& load) const {
        static constexpr std::array seconds{1.0, 1.0, 1.9, 1.95, 2.0, 4.0, 4.1, 9.0, 9.0};
        return seconds[std::min(load.batch_tokens, seconds.size() - 1)];
    }
};

/// Draws from a generator of its own: what it draws in another attempt is new.
struct own_generator : autoregressive<failing_draft_model, top1_confidence> {
    struct source {
        enumerator::source base;
        std::uint64_t attempt;
        template <class W>
        [[nodiscard]] token_id categorical(draw_key key, W const& weights) const {
            key.seed += attempt << 32;
            return base.categorical(key, weights);
        }
        template <class W>
        [[nodiscard]] token_id gumbel_max(draw_key const& key, W const& weights) const {
            return base.gumbel_max(key, weights);
        }
    };
    source generator;
    own_generator(world const& w, bad_luck& luck, enumerator::source rng)
        : autoregressive(failing_autoregressive(w, luck, 2, 1)), generator{rng, 0} {}
    template <class DraftRule, class Rng>
    void draw(forward_type forward, DraftRule rule, draft_block<double>& block, draft_rows<double> const& rows, Rng&) {
        autoregressive::draw(forward, rule, block, rows, generator);
    }
};

/// An engine with one request that is observed and a guest at temperature 0, who has no outcomes of its own.
template <class Schedule, class Rule>
class engine {
public:
    engine(world const& w, Schedule const& schedule, Schedule const& other, Rule const& rule, fails where, change what,
           answer how, enumerator::source rng)
        : w_(w),
          schedules_{schedule, other},
          rule_(rule),
          where_(where),
          what_(what),
          how_(how),
          rng_(rng),
          drafter_(w, luck_, rng),
          memory_(drafter_, schedules_[0], rule_, {.max_requests = 3}) {}

    /// The text of the request.
    [[nodiscard]] outcome text(std::size_t horizon) {
        while (text_.size() < horizon + 1) {
            first_ = true;
            changed_ = false;
            std::size_t attempts = 0;
            while (!attempt(horizon)) {
                if (++attempts > 9) throw std::logic_error("the round does not end");
            }
        }
        text_.resize(horizon + 1);
        return {text_.begin() + 1, text_.end()};
    }
    std::size_t failures = 0;
    std::size_t refusals = 0;

private:
    [[nodiscard]] bool with_guest() const {
        return what_ == change::leaver ? !changed_ : what_ == change::newcomer && changed_;
    }
    [[nodiscard]] Schedule& schedule() { return schedules_[what_ == change::schedule && changed_ ? 1 : 0]; }

    [[nodiscard]] bool attempt(std::size_t horizon) {
        settings_.temperature = 1.0;
        guest_settings_.temperature = 0.0;
        std::array views{
            view(1, what_ == change::slot && changed_ ? 2 : 0, text_, settings_, horizon + 4 - text_.size()),
            view(2, 1, guest_, guest_settings_, 50)};
        std::span<request_view const> const requests{views.data(), std::size_t{with_guest() ? 2u : 1u}};
        drafter_.generator.attempt = what_ == change::drafts && changed_ ? 1 : 0;
        luck_.armed = first_ && where_ == fails::in_draw;
        try {
            if (begin_round(schedule(), requests, memory_)) {
                auto const forward = drafter_.forward(memory_.requests());
                plan(schedule(), drafter_, forward, memory_);
                draw(drafter_, forward, rule_, rng_, memory_);
            }
            verify_batch const& batch = admit(schedule(), memory_);
            auto const drafted = batch.drafted(0);
            bool const bad = drafted.size() > 1 && drafted[1] == 1;
            if (first_ && where_ == fails::in_score && bad) throw failed_round("score");
            auto target = target_of(w_);
            accept(rule_, target.score(batch), no_logits_hook{}, rng_, memory_);
            round_record const record = end_round(schedule(), memory_, drafter_);
            for (verdict const& v : record.verdicts) {
                if (v.outcome == status::other_draft) refuse();
                auto& tokens = v.id == 1 ? text_ : guest_;
                tokens.insert(tokens.end(), v.emitted.begin(), v.emitted.end());
            }
            return record.verdicts[0].outcome == status::ok;
        } catch (failed_round const&) {
            ++failures;
            changed_ = true;
        } catch (error const&) {
            refuse();
        }
        first_ = false;
        return false;
    }
    void refuse() {
        ++refusals;
        if (how_ == answer::takes_it_back) {
            changed_ = false;
        } else {
            for (std::size_t slot = 0; slot < 3; ++slot) memory_.join(slot);
        }
        first_ = false;
    }
    [[nodiscard]] request_view view(request_id id, std::size_t slot, std::vector<token_id> const& tokens,
                                    request_settings const& settings, std::size_t remaining) const {
        return {.id = id,
                .slot = slot,
                .anchor = tokens.back(),
                .position = tokens.size() - 1,
                .context = tokens,
                .seed = 70 + id,
                .remaining = remaining,
                .settings = &settings};
    }

    world const& w_;
    std::array<Schedule, 2> schedules_;
    Rule rule_;
    fails where_;
    change what_;
    answer how_;
    enumerator::source rng_;
    bad_luck luck_{trouble::draw, false};
    own_generator drafter_;
    round_memory<double, double> memory_;
    std::vector<token_id> text_{0};
    std::vector<token_id> guest_{1};
    request_settings settings_{};
    request_settings guest_settings_{};
    bool first_ = true;
    bool changed_ = false;
};

struct seen {
    double bias = 0.0;  // total variation, the worst of some worlds
    std::size_t refusals = 0;
};

template <class Schedule, class Rule>
[[nodiscard]] seen enumerate(Schedule const& schedule, Schedule const& other, Rule const& rule, fails where,
                             change what, answer how = answer::takes_it_back) {
    seen found;
    std::size_t failures = 0;
    constexpr std::size_t horizon = 2;
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        world const w{seed, 2, 3};
        law result;
        enumerator walk{enumerator::noise::keyed};
        walk.for_each_path([&] {
            engine<Schedule, Rule> e(w, schedule, other, rule, where, what, how, walk.handle());
            outcome text = e.text(horizon);
            text.push_back(-1);
            result[text] += walk.weight();
            failures += e.failures;
            found.refusals += e.refusals;
        });
        found.bias = std::max(found.bias, total_variation(result, autoregressive_law(w, {{{}}, horizon, 0})));
    }
    CHECK(failures > 0);
    return found;
}

/// Refused, and exact for who takes it back; biased for who gives the round up.
template <class Schedule, class Rule>
void check_refused(Schedule const& schedule, Schedule const& other, Rule const& rule, fails where, change what) {
    seen const heeded = enumerate(schedule, other, rule, where, what);
    CHECK(heeded.refusals > 0);
    CHECK(heeded.bias <= tolerance);
    seen const ignored = enumerate(schedule, other, rule, where, what, answer::gives_up);
    CHECK(ignored.bias > visible);
}
template <class Schedule, class Rule>
void check_allowed(Schedule const& schedule, Schedule const& other, Rule const& rule, fails where, change what) {
    seen const found = enumerate(schedule, other, rule, where, what);
    CHECK(found.refusals == 0);
    CHECK(found.bias <= tolerance);
}

template <class Visit>
void for_each_sampling_rule(Visit&& visit) {
    visit("token rejection", token_rejection<>{});
    visit("block verification", block_verification<>{});
}

greedy_schedule<stairs> const greedy{stairs{}};
greedy_schedule<stairs> const another = greedy;

}  // namespace

TEST_CASE("repeats: the same round once more is exact, wherever it failed", "[exact]") {
    for_each_sampling_rule([](char const* name, auto const& rule) {
        INFO(name);
        check_allowed(greedy, another, rule, fails::in_draw, change::nothing);
        check_allowed(greedy, another, rule, fails::in_score, change::nothing);
    });
}

TEST_CASE("repeats: while lengths are not decided, nobody joins or leaves", "[exact]") {
    for_each_sampling_rule([](char const* name, auto const& rule) {
        INFO(name);
        check_refused(greedy, another, rule, fails::in_draw, change::newcomer);
        check_refused(greedy, another, rule, fails::in_draw, change::leaver);
        check_allowed(greedy, another, rule, fails::in_score, change::newcomer);
        check_allowed(greedy, another, rule, fails::in_score, change::leaver);
    });
}

TEST_CASE("repeats: a request is run again in the slot that it had", "[exact]") {
    auto const planner = lagged_top_k<1>(stairs{}, 0.3);
    for_each_sampling_rule([&](char const* name, auto const& rule) {
        INFO(name);
        check_refused(planner, planner, rule, fails::in_score, change::slot);
        check_refused(planner, planner, rule, fails::in_draw, change::slot);
    });
}

TEST_CASE("repeats: while lengths are not decided, the schedule is the same object", "[exact]") {
    threshold_schedule const all{0.0};
    threshold_schedule const none{1.0};
    for_each_sampling_rule([&](char const* name, auto const& rule) {
        INFO(name);
        check_refused(all, none, rule, fails::in_draw, change::schedule);
        check_allowed(all, none, rule, fails::in_score, change::schedule);
    });
}

TEST_CASE("repeats: what was drafted is drafted again", "[exact]") {
    for_each_sampling_rule([](char const* name, auto const& rule) {
        INFO(name);
        check_refused(greedy, another, rule, fails::in_draw, change::drafts);
        check_refused(greedy, another, rule, fails::in_score, change::drafts);
    });
}

TEST_CASE("repeats: rules that are exact for any draft are refused nothing", "[exact]") {
    for (fails const where : {fails::in_draw, fails::in_score}) {
        for (change const what : {change::newcomer, change::leaver, change::schedule, change::drafts}) {
            check_allowed(greedy, another, target_match<categorical_draft>{}, where, what);
        }
    }
}

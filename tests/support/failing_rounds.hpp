// SPDX-License-Identifier: MIT
//
// Rounds that fail at each stage and are run again: the law of any drafter, schedule and rule in them. What fails may
// depend on the tokens that were drafted, and in between a guest may come or somebody leave.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/exactness.hpp"

namespace failing_rounds {

using namespace exactness;

/// What goes wrong in the first attempt at a round, and in no other. All behind `plan` depend on what was drafted.
enum class trouble { none, forward, plan, draw, confidence, half_draw, admit, score, row, hook, accept, commit };
inline constexpr std::array all_troubles{trouble::none,       trouble::forward,   trouble::plan,   trouble::draw,
                                         trouble::confidence, trouble::half_draw, trouble::admit,  trouble::score,
                                         trouble::row,        trouble::hook,      trouble::accept, trouble::commit};
/// The drafter's alone, before anything is drawn or between two draws: the round may go on with what was drafted.
[[nodiscard]] inline bool is_drafters(trouble t) {
    return t == trouble::forward || t == trouble::half_draw;
}
/// Who is there when the round is run again, besides those who were: nobody; a guest who comes; or one who was there
/// leaves.
enum class company { same, newcomer, leaver };

[[nodiscard]] inline char const* name_of(trouble t) {
    switch (t) {
        case trouble::none: return "no failure";
        case trouble::forward: return "the drafter's pass throws";
        case trouble::plan: return "the schedule throws when it plans";
        case trouble::draw: return "the drafter throws behind a drafted token";
        case trouble::confidence: return "a confidence is NaN after a drafted token";
        case trouble::half_draw: return "a confidence throws after a drafted token";
        case trouble::admit: return "the schedule throws when it admits";
        case trouble::score: return "the target throws at a long batch";
        case trouble::row: return "a row after a drafted token is NaN";
        case trouble::hook: return "the hook throws behind a drafted token";
        case trouble::accept: return "the rule throws";
        case trouble::commit: return "the commit loses its place, and the next pass throws";
    }
    return "";
}

[[nodiscard]] inline char const* name_of(company c) {
    return c == company::same ? "nobody else" : c == company::newcomer ? "a newcomer" : "somebody leaves";
}

struct failed_round : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct bad_luck {
    trouble what = trouble::none;
    bool goes_on = false;    ///< the round does, without the drafter
    bool armed = true;       ///< the coming attempt is a round's first
    bool bad_token = false;  ///< in this attempt a token was drafted that makes trouble
    bool lost = false;       ///< a commit could not follow
    std::size_t struck = 0;

    [[nodiscard]] bool strikes(trouble here) {
        if (what != here || !armed) return false;
        ++struck;
        return true;
    }
};

/// A world whose confidences may be NaN, or throw. `luck` must outlive it.
[[nodiscard]] inline world in_trouble(world w, bad_luck& luck) {
    w.spoils_confidence = [&luck](token_id previous, std::size_t k) {
        if (k == 1 && previous == 1 && luck.strikes(trouble::half_draw)) throw failed_round("confidence");
        return k == 1 && previous == 1 && luck.strikes(trouble::confidence);
    };
    return w;
}

/// The target of a world, in trouble.
template <class Target>
struct unlucky_target {
    static constexpr bool scores_trees = true;
    Target inner;
    bad_luck* luck;
    std::vector<double> rows{};

    [[nodiscard]] logits_rows<double> score(verify_batch const& batch) {
        if (std::exchange(luck->lost, false)) throw failed_round("commit");
        if (batch.rows() > batch.requests().size() + 1 && luck->strikes(trouble::score)) throw failed_round("score");
        logits_rows<double> const good = sureleap::score(inner, batch);
        if (luck->what != trouble::row || !luck->armed) return good;
        rows.assign(good.values.data, good.values.data + batch.rows() * good.values.cols);
        for (std::size_t i = 0; i < batch.rows(); ++i) {
            bool const drafted = batch.first_row(batch.markers()[i]) != i;
            if (!drafted || batch.tokens()[i] != 1 || !luck->strikes(trouble::row)) continue;
            rows[i * good.values.cols] = std::numeric_limits<double>::quiet_NaN();
        }
        return {{rows.data(), batch.rows(), good.values.cols}, {}, {}};
    }
    void commit(std::span<verdict const> verdicts) noexcept {
        for (verdict const& v : verdicts)
            luck->lost = luck->lost || (v.accepted == 1 && luck->strikes(trouble::commit));
    }
};
template <class Target>
unlucky_target(Target, bad_luck*) -> unlucky_target<Target>;

/// A drafter that throws before its pass, or when it has drawn.
template <class Drafter>
struct unlucky_drafter : Drafter {
    bad_luck* luck;
    unlucky_drafter(Drafter d, bad_luck* l) : Drafter(std::move(d)), luck(l) {}

    [[nodiscard]] auto forward(std::span<request_view const> requests) {
        if (requests[0].position % 2 == 0 && luck->strikes(trouble::forward)) throw failed_round("forward");
        return Drafter::forward(requests);
    }
    template <class Forward, class DraftRule, class Real, class Rng>
    void draw(Forward const& forward, DraftRule rule, draft_block<Real>& block,
              draft_memory_t<Drafter, Real> const& memory, Rng& rng) {
        draw_block(static_cast<Drafter&>(*this), forward, rule, block, memory, rng);
        for (std::size_t r = 0; r < block.requests().size(); ++r) {
            auto const drawn = block.tokens(r);
            luck->bad_token = luck->bad_token || (!drawn.empty() && drawn[0] == 1);
        }
        if (luck->bad_token && luck->strikes(trouble::draw)) throw failed_round("draw");
    }
};

/// The autoregressive draft model of small_world::autoregressive_of, which throws when the last drafted token is 1,
/// from `prefix` tokens on.
struct failing_draft_model {
    world const* w;
    bad_luck* luck;
    std::size_t prefix = 1;
    request_id of = 0;  ///< of this request; 0: of any
    std::vector<double> rows{};

    [[nodiscard]] logits_rows<double> forward(std::span<request_view const> requests, draft_prefixes prefixes) {
        rows.clear();
        for (std::size_t r = 0; r < requests.size(); ++r) {
            token_id const last = prefixes.size == 0 ? requests[r].anchor : prefixes.of(r).back();
            bool const looks = prefixes.size >= prefix && (of == 0 || requests[r].id == of);
            bool const drafts = prefixes.size < requests[r].draft_cap(w->block_size);
            if (looks && drafts && last == 1 && luck->strikes(trouble::draw)) throw failed_round("draw");
            for (std::size_t v = 0; v < w->vocabulary; ++v) {
                rows.push_back(4.0 * hash01(w->seed, 5, last, prefixes.size % 2, v) - 2.0);
            }
        }
        return {{rows.data(), requests.size(), w->vocabulary}, {}, {}};
    }
};
[[nodiscard]] inline auto failing_autoregressive(world const& w, bad_luck& luck, std::size_t prefix = 1,
                                                 request_id of = 0) {
    return autoregressive{failing_draft_model{&w, &luck, prefix, of}, top1_confidence{},
                          drafter_options{.block_size = w.block_size, .vocabulary = w.vocabulary}};
}

/// A schedule that throws when it plans or admits.
template <class Schedule>
struct unlucky_schedule : Schedule {
    bad_luck* luck;
    unlucky_schedule(Schedule const& s, bad_luck* l) : Schedule(s), luck(l) {}
    template <class... Arguments>
    void admit(Arguments&&... arguments) const
        requires requires(Schedule const& s) { s.admit(arguments...); }
    {
        Schedule::admit(arguments...);
        if (luck->bad_token && luck->strikes(trouble::admit)) throw failed_round("admit");
    }
    template <class Origin>
        requires planner<Schedule>
    [[nodiscard]] std::size_t budget(planning_table<Origin> const& t) const {
        if (t.requests() % 2 == 1 && luck->strikes(trouble::plan)) throw failed_round("plan");
        return Schedule::budget(t);
    }
};
/// A hook that changes nothing, and throws.
struct unlucky_hook {
    bad_luck* luck;
    void operator()(hook_context const& at, std::span<double>) const {
        if (at.drafted.empty() || at.drafted.back() != 1 || !luck->strikes(trouble::hook)) return;
        throw failed_round("hook");
    }
};
/// A rule that throws when it has decided.
template <class Rule>
struct unlucky_rule : Rule {
    bad_luck* luck;
    unlucky_rule(Rule const& rule, bad_luck* l) : Rule(rule), luck(l) {}
    template <class Verification, class Rng>
    [[nodiscard]] decision operator()(Verification& v, Rng& rng) const {
        auto const decided = Rule::operator()(v, rng);
        if (luck->bad_token && luck->strikes(trouble::accept)) throw failed_round("accept");
        return decided;
    }
};

/// Steps of a decoder in which every round that fails is run once more, while a guest comes or goes. The guest is at
/// temperature 0, so it has no outcomes of its own. What small_world::play plays.
template <class Drafter, class Schedule, class Rule, class Rng>
class persistent_decoder {
    using target_type = decltype(unlucky_target{target_of(std::declval<world const&>()), nullptr});

    static constexpr std::size_t endless = static_cast<std::size_t>(-1);

public:
    persistent_decoder(world const& w, std::size_t requests, bad_luck& luck, company with, Drafter drafter,
                       Schedule const& schedule, Rule const& rule, Rng rng)
        : luck_(luck),
          with_(with),
          decoder_(unlucky_target{target_of(w), &luck}, {std::move(drafter), &luck}, {schedule, &luck}, {rule, &luck},
                   allow_lossy,
                   decoder_options{.max_requests = requests + 1,
                                   .seed = 1,
                                   .constrained = true,
                                   .drafter_retries = luck.goes_on ? endless : 0},
                   {&luck}, rng) {}

    request_id submit(std::span<token_id const> prompt, request_settings const& settings) {
        hosts_.push_back(decoder_.submit(prompt, settings));
        return hosts_.back();
    }
    void cancel(request_id id) { decoder_.cancel(id); }
    bool step() {
        bool const over = std::none_of(hosts_.begin(), hosts_.end(), [&](request_id id) {
            return decoder_.knows(id) && decoder_.state(id) != request_state::finished;
        });
        if (over) return false;
        if (luck_.armed) guest(with_ == company::leaver);
        for (;;) {
            luck_.bad_token = false;
            try {
                if (!decoder_.step()) return false;
                break;
            } catch (failed_round const&) {
                luck_.armed = false;
                guest(with_ == company::newcomer);
            }
        }
        luck_.armed = true;
        for (verdict const& v : decoder_.round().verdicts) {
            if (v.accepted > v.emitted.size()) throw std::logic_error("more was accepted than was emitted");
        }
        for (request_event const& event : decoder_.events()) {
            if (event.outcome == status::ok) continue;
            decoder_.resume(event.request);
            luck_.armed = false;
        }
        if (!luck_.armed) guest(with_ == company::newcomer);
        return true;
    }
    [[nodiscard]] std::span<request_event const> events() const { return decoder_.events(); }

private:
    void guest(bool here) {
        bool const was = guest_ != 0 && decoder_.knows(guest_);
        if (was && !here) decoder_.cancel(guest_);
        if (was || !here) return;
        guest_ = decoder_.submit(std::vector<token_id>{1}, {.temperature = 0.0, .seed = 9, .priority = 0.7});
    }

    bad_luck& luck_;
    company with_;
    std::vector<request_id> hosts_;
    request_id guest_ = 0;
    decoder<target_type, unlucky_drafter<Drafter>, unlucky_schedule<Schedule>, unlucky_rule<Rule>, unlucky_hook, Rng,
            true>
        decoder_;
};

/// The law over a scene. make() gives the drafter, once a path.
template <class Make, class Schedule, class Rule>
[[nodiscard]] law law_in_trouble(world const& w, scene const& s, bad_luck& luck, company with, Make const& make,
                                 Schedule const& schedule, Rule const& rule) {
    using drafter_type = std::invoke_result_t<Make const&>;
    law result;
    enumerator walk{enumerator::noise::keyed};
    walk.for_each_path([&] {
        luck = {.what = luck.what, .goes_on = luck.goes_on, .struck = luck.struck};
        persistent_decoder<drafter_type, Schedule, Rule, enumerator::source> dec(w, s.requests.size(), luck, with,
                                                                                 make(), schedule, rule, walk.handle());
        outcome const seen = play(dec, s);
        result[seen] += walk.weight();
    });
    return result;
}

/// Who is there when such a round is run again: with one request a guest who comes, with two one who leaves. Some
/// failures are tried with a guest alone, for the time that they take; or not at all, where the rule is exact for any
/// draft and any length, so that it makes no difference who plans, admits and is there.
template <class Rule>
[[nodiscard]] std::vector<company> companies(trouble what, std::size_t requests) {
    bool const any_draft = Rule::guarantee != fidelity::distribution || Rule::draft_rule::is_deterministic;
    company const guest = requests == 1 ? company::newcomer : company::leaver;
    switch (what) {
        case trouble::plan:
        case trouble::admit:
        case trouble::accept: return any_draft ? std::vector<company>{} : std::vector{guest};
        case trouble::draw: return {any_draft ? company::same : guest};
        case trouble::score:
        case trouble::row:
            return any_draft || traits_of<Rule>().judges_trees ? std::vector{company::same}
                                                               : std::vector{company::same, guest};
        default: return {company::same};
    }
}

/// How often each trouble was tried, and how often it struck.
class strikes {
public:
    void note(trouble what, std::size_t struck) {
        ++tried_[place(what)];
        struck_[place(what)] += struck;
    }
    /// What was tried struck.
    void check() const {
        for (trouble const what : all_troubles) {
            INFO(name_of(what) << ": tried " << tried_[place(what)] << " times, struck " << struck_[place(what)]);
            bool const expected = tried_[place(what)] > 0 && what != trouble::none;
            CHECK(expected == (struck_[place(what)] > 0));
        }
    }

private:
    [[nodiscard]] static std::size_t place(trouble what) { return static_cast<std::size_t>(what); }
    std::array<std::size_t, all_troubles.size()> tried_{};
    std::array<std::size_t, all_troubles.size()> struck_{};
};

/// Drafter x schedule x rule through every trouble. The world is one of in_trouble(luck), which make() draws from.
template <class Make, class Schedule, class Rule>
void check_in_trouble(std::string const& name, world const& w, scene const& s, bad_luck& luck, Make const& make,
                      Schedule const& schedule, Rule const& rule, strikes& seen) {
    law const expected = autoregressive_law(w, s);
    for (trouble const what : all_troubles) {
        auto const check = [&](company with, bool goes_on) {
            luck = {.what = what, .goes_on = goes_on};
            law const found = law_in_trouble(w, s, luck, with, make, schedule, rule);
            seen.note(what, luck.struck);
            INFO(name << ", " << name_of(what) << (goes_on ? ", the round goes on" : "") << ", " << name_of(with)
                      << ", world " << w.seed << ", gamma = " << w.block_size << ", requests = " << s.requests.size());
            CHECK(largest_difference(found, expected) <= tolerance);
        };
        for (company const with : companies<Rule>(what, s.requests.size())) check(with, false);
        if (is_drafters(what)) check(company::same, true);
    }
}

}  // namespace failing_rounds

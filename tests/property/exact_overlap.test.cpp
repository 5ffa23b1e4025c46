// SPDX-License-Identifier: MIT
//
// Rounds that overlap: two requests, each in a round_memory of its own, over the same drafter and the same target, with
// their stages in every order. For every drafter the joint law is the product of plain decoding's, or a stage refuses
// what a later pass has overwritten and says what to do. Which orders are refused is known beforehand, and the remedy
// makes them exact. Models that do not say of which pass something is are put back, and their bias is seen. Some ten
// seconds.
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sureleap/round/stages.hpp>
#include <sureleap/serving/never_lose.hpp>
#include <sureleap/verify/recursive.hpp>

#include "support/catch.hpp"
#include "support/every_drafter.hpp"
#include "support/exactness.hpp"
#include "support/mutants.hpp"

using namespace exactness;
using namespace every_drafter;

namespace {

enum stage : std::size_t { forward, draft, pass, judge, commit, stages };

/// Whose stage comes next: 0 or 1, each `stages` times.
using order = std::array<std::size_t, 2 * stages>;

/// Round 0 begins first.
[[nodiscard]] std::vector<order> every_order() {
    order now{};
    std::fill(now.begin() + stages, now.end(), 1u);
    std::vector<order> all;
    do all.push_back(now);
    while (std::next_permutation(now.begin() + 1, now.end()));
    return all;
}
/// Double buffering: while one text's round n is verified, the other one's is drafted, and the other way round. Round 0
/// has been drafted before.
constexpr order double_buffered{0, 1, 1, 0, 0, 1, 0, 0, 1, 1};

/// When a round's stage comes.
[[nodiscard]] std::size_t when(order const& o, std::size_t mine, stage s) {
    std::size_t seen = 0;
    for (std::size_t i = 0; i < o.size(); ++i) {
        if (o[i] == mine && seen++ == s) return i;
    }
    return o.size();
}
/// The other round's `s` comes while this one's `from` is over and its `to` is not.
[[nodiscard]] bool between(order const& o, std::size_t mine, stage s, stage from, stage to) {
    std::size_t const at = when(o, 1 - mine, s);
    return when(o, mine, from) < at && at < when(o, mine, to);
}

struct shared {
    bool drafter = true;
    bool target = true;
};

/// Two texts, and whether lookup finds the end of each in it.
struct texts {
    std::array<std::vector<token_id>, 2> prompts;
    std::array<bool, 2> matched{};
};
texts const both_unmatched{{{{0, 1}, {1, 0}}}, {false, false}};
texts const one_matched{{{{1, 0, 1, 0}, {0, 1}}}, {true, false}};

[[nodiscard]] scene scene_of(texts const& t, std::size_t horizon) {
    return {{{t.prompts[0], {}}, {t.prompts[1], {}}}, horizon, 2};
}

/// Plays a path: stages follow each other in this order, over and over, until both texts have reached the horizon.
/// `ahead`: so many stages of round 0 come before.
template <class Drafter, class Target, class Schedule, class Rule, class Rng>
[[nodiscard]] outcome play_overlapping(order const& o, std::size_t ahead, scene const& s,
                                       std::array<Drafter*, 2> drafters, std::array<Target*, 2> targets,
                                       Schedule& schedule, Rule const& rule, Rng rng) {
    using memory_type = round_memory<double, typename Drafter::value_type>;
    using forward_type = decltype(drafters[0]->forward({}));
    struct round {
        memory_type memory;
        std::vector<token_id> text;
        request_settings settings{};
        std::optional<forward_type> lent{};
        std::optional<logits_rows<double>> rows{};
        std::size_t next = 0;
    };
    std::array<round, 2> rounds{round{{*drafters[0], schedule, rule, {}}, s.requests[0].prompt},
                                round{{*drafters[1], schedule, rule, {}}, s.requests[1].prompt}};
    auto const emitted = [&](std::size_t i) { return rounds[i].text.size() - s.requests[i].prompt.size(); };
    auto const step = [&](std::size_t i) {
        round& mine = rounds[i];
        if (mine.next % stages == 0 && emitted(i) >= s.horizon) return;
        switch (static_cast<stage>(mine.next++ % stages)) {
            case forward: {
                request_view const view{.id = i + 1,
                                        .slot = 0,
                                        .anchor = mine.text.back(),
                                        .position = mine.text.size() - 1,
                                        .context = mine.text,
                                        .seed = 100 + i,
                                        .remaining = s.horizon + s.beyond - emitted(i),
                                        .settings = &mine.settings};
                static_cast<void>(begin_round(schedule, {&view, 1}, mine.memory));
                mine.lent.emplace(drafters[i]->forward(mine.memory.requests()));
                break;
            }
            case draft:
                plan(schedule, *drafters[i], *mine.lent, mine.memory);
                draw(*drafters[i], *mine.lent, rule, rng, mine.memory);
                break;
            case pass: mine.rows.emplace(targets[i]->score(admit(schedule, mine.memory))); break;
            case judge: accept(rule, *mine.rows, no_logits_hook{}, rng, mine.memory); break;
            default: {
                auto const record = end_round(schedule, mine.memory, *targets[i], *drafters[i]);
                auto const& tokens = record.verdicts[0].emitted;
                mine.text.insert(mine.text.end(), tokens.begin(), tokens.end());
            }
        }
    };
    while (ahead-- > 0) step(0);
    while (emitted(0) < s.horizon || emitted(1) < s.horizon) {
        for (std::size_t const i : o) step(i);
    }
    outcome seen;
    for (std::size_t i = 0; i < 2; ++i) {
        auto const first = rounds[i].text.begin() + static_cast<std::ptrdiff_t>(s.requests[i].prompt.size());
        seen.insert(seen.end(), first, first + static_cast<std::ptrdiff_t>(s.horizon));
        seen.push_back(-1);
    }
    return seen;
}

struct overlapping {
    law output;
    std::string refused;  ///< what the first path was told; no other is walked then
};

template <class Make, class MakeTarget, class Schedule, class Rule>
[[nodiscard]] overlapping law_of_overlap(order const& o, std::size_t ahead, scene const& s, shared const& what,
                                         Make const& make, MakeTarget const& make_target, Schedule const& schedule,
                                         Rule const& rule) {
    overlapping result;
    enumerator walk{enumerator::noise::keyed};
    walk.for_each_path([&] {
        if (!result.refused.empty()) return;
        auto drafter = make();
        auto other = make();
        auto target = make_target();
        auto own = make_target();
        Schedule mine = schedule;
        try {
            outcome const seen =
                play_overlapping(o, ahead, s, std::array{&drafter, what.drafter ? &drafter : &other},
                                 std::array{&target, what.target ? &target : &own}, mine, rule, walk.handle());
            result.output[seen] += walk.weight();
        } catch (error const& e) {
            result.refused = e.what();
        }
    });
    return result;
}

/// What an order would read after it was overwritten, of models that are shared.
[[nodiscard]] shared overwritten(order const& o, texts const& t, lends lent, bool finds, bool reads_rows) {
    auto const asked = [&](std::size_t i) { return lent != lends::nothing && !(finds && t.matched[i]); };
    stage const until = lent == lends::until_judged && reads_rows ? judge : draft;
    shared lost{false, false};
    for (std::size_t i = 0; i < 2; ++i) {
        lost.drafter = lost.drafter || (asked(0) && asked(1) && between(o, i, forward, forward, until));
        lost.target = lost.target || between(o, i, pass, pass, commit);
    }
    return lost;
}

/// An order over models that are shared: exact, or refused where that is due, and then exact over models of their own.
template <class Make, class Schedule, class Rule>
void check_order(std::string const& name, order const& o, std::size_t ahead, world const& w, scene const& s,
                 shared const& lost, Make const& make, Schedule const& schedule, Rule const& rule,
                 std::size_t& refusals) {
    std::string stages_of;
    for (std::size_t const i : o) stages_of += i == 0 ? 'a' : 'b';
    for (shared what{};;) {
        auto const found = law_of_overlap(o, ahead, s, what, make, [&] { return target_of(w); }, schedule, rule);
        INFO(name << ", " << stages_of << ", drafter " << (what.drafter ? "shared" : "not shared") << ", target "
                  << (what.target ? "shared" : "not shared") << ": " << found.refused);
        bool const by_target = what.target && lost.target;
        if (!by_target && !(what.drafter && lost.drafter)) {
            CHECK(found.refused.empty());
            CHECK(largest_difference(found.output, autoregressive_law(w, s)) <= tolerance);
            return;
        }
        ++refusals;
        CHECK(found.refused.find("of the same model has begun since, which overwrites that") != std::string::npos);
        CHECK(found.refused.find("or give each round_memory a ") != std::string::npos);
        (by_target ? what.target : what.drafter) = false;
    }
}

template <class Rule>
[[nodiscard]] auto checks_of(world const& w, Rule const& rule, std::size_t& refusals) {
    return [&w, rule, &refusals](std::string const& name, lends lent, bool finds, auto const& make) {
        using drafter_type = std::remove_cvref_t<decltype(make())>;
        auto const check = [&](std::string const& with, auto const& schedule) {
            bool const reads_rows = Rule::access == q_access::row;
            auto const check_texts = [&](order const& o, texts const& t) {
                shared const lost = overwritten(o, t, lent, finds, reads_rows);
                check_order(name + with, o, 0, w, scene_of(t, 1), lost, make, schedule, rule, refusals);
            };
            for (order const& o : every_order()) {
                check_texts(o, both_unmatched);
                if (finds) check_texts(o, one_matched);
            }
            shared const lost{lent == lends::until_judged && reads_rows, false};
            check_order(name + with, double_buffered, 2, w, scene_of(both_unmatched, 3), lost, make, schedule, rule,
                        refusals);
        };
        check(", fixed", fixed_schedule{});
        if constexpr (traits_of<drafter_type>().plans_at_anchor)
            check(", planned", planned_schedule{jagged_capacity{}});
    };
}

}  // namespace

TEST_CASE("overlapping rounds of chains: exact or refused, for every drafter and in every order", "[exact]") {
    world const w{11, 2, 2};
    std::size_t refusals = 0;
    for_each_drafter(w, checks_of(w, token_rejection<>{}, refusals));
    CHECK(refusals > 500);
}

TEST_CASE("overlapping rounds of trees: exact or refused, for every drafter and in every order", "[exact]") {
    world const w{11, 2, 2};
    std::size_t refusals = 0;
    for_each_tree_drafter(w, checks_of(w, recursive_rejection<>{}, refusals));
    CHECK(refusals > 500);
}

TEST_CASE("overlapping rounds under a schedule that learns from both: exact", "[exact]") {
    // It takes the round that it observes for the one that it limited last.
    never_lose const learning{greedy_schedule{jagged_capacity{}}, jagged_capacity{}, {.prior = 0.6, .probing = 0.3}};
    auto const check = [&](auto const& rule) {
        world const w{12, 2, 1};
        scene const s = scene_of(both_unmatched, 3);
        std::size_t checked = 0;
        for (order const& o : every_order()) {
            if (checked++ % 12 != 0) continue;
            auto const found = law_of_overlap(
                o, 0, s, {true, false}, [&] { return with_lookup{autoregressive_of(w)}; }, [&] { return target_of(w); },
                learning, rule);
            CHECK(found.refused.empty());
            CHECK(largest_difference(found.output, autoregressive_law(w, s)) <= tolerance);
        }
    };
    check(token_rejection<>{});
}

// ---- that the tests are about something ------------------------------------------------------------------------

namespace {

/// The largest bias of an order over models that are shared, in some worlds.
template <class Make, class MakeTarget>
[[nodiscard]] double bias_of_overlap(order const& o, Make const& make, MakeTarget const& make_target) {
    double worst = 0.0;
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
        world const w{seed, 2, 2};
        scene const s = scene_of(both_unmatched, 1);
        auto const found = law_of_overlap(
            o, 0, s, {}, [&] { return make(w); }, [&] { return make_target(w); }, fixed_schedule{},
            token_rejection<>{});
        INFO(found.refused);
        CHECK(found.refused.empty());
        worst = std::max(worst, total_variation(found.output, autoregressive_law(w, s)));
    }
    return worst;
}

}  // namespace

TEST_CASE("mutant: a drafter that draws for the requests of its last forward pass", "[mutant]") {
    constexpr order both_forward_first{0, 1, 0, 0, 0, 0, 1, 1, 1, 1};
    auto const mutant = [](world const& w) {
        auto inner = autoregressive_of(w);
        return mutants::draws_for_last_forward<decltype(inner)>{std::move(inner)};
    };
    CHECK(bias_of_overlap(both_forward_first, autoregressive_of, target_of) <= tolerance);
    CHECK(bias_of_overlap(both_forward_first, mutant, target_of) > visible);
}

TEST_CASE("mutant: a target whose rows name no pass is asked twice before a verdict", "[mutant]") {
    constexpr order both_scored_first{0, 0, 0, 1, 1, 1, 0, 0, 1, 1};
    auto const mutant = [](world const& w) { return mutants::names_no_pass<decltype(target_of(w))>{target_of(w)}; };
    CHECK(bias_of_overlap(both_scored_first, autoregressive_of, mutant) > visible);
}

TEST_CASE("mutant: rows that tokens were drawn from are overwritten before a verdict", "[mutant]") {
    constexpr order forward_before_verdict{0, 0, 0, 1, 0, 0, 1, 1, 1, 1};
    auto const mutant = [](world const& w) {
        return parallel{mutants::backbone_of_one_pass{{&w}}, table_confidence{&w},
                        drafter_options{.block_size = w.block_size, .vocabulary = w.vocabulary}};
    };
    CHECK(bias_of_overlap(forward_before_verdict, mutant, target_of) > visible);
}

// SPDX-License-Identifier: MIT
//
// Every part of the library in one list, and the law of every combination that compiles: rule template x draft rule x schedule x
// adapter, in rounds that succeed and in rounds that fail at each stage and are run again. A part that is not in the list
// fails the test exactness_list, which reads the headers.
//
// The decoder sees schedules behind one type for each kind: live, planning from each origin, looking ahead. A decoder of its
// own for each of some hundred schedules would take minutes to compile. What compiles is asked of the types themselves.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <sureleap/drafter/tree_drafter.hpp>
#include <sureleap/schedule/agreed.hpp>
#include <sureleap/schedule/hysteresis.hpp>
#include <sureleap/schedule/when_priced.hpp>
#include <sureleap/serving/never_lose.hpp>
#include <sureleap/serving/speed_targets.hpp>
#include <sureleap/tree/match.hpp>
#include <sureleap/tree/rejection.hpp>
#include <sureleap/tree/traversal.hpp>
#include <sureleap/verify/block.hpp>
#include <sureleap/verify/coupled.hpp>
#include <sureleap/verify/match.hpp>
#include <sureleap/verify/rejection.hpp>

#include "support/exactness.hpp"

namespace every_part {

using namespace exactness;

// ---- schedules behind one type a kind --------------------------------------------------------------------------

struct live {};
struct looking_ahead {};
template <class Origin>
struct planning {};

template <class Schedule>
struct kind_of {
    using type = live;
};
template <planner Schedule>
struct kind_of<Schedule> {
    using type = planning<typename Schedule::origin>;
};
template <class Schedule>
    requires(table_scheduler<Schedule> && !frontier_scheduler<Schedule> && !planner<Schedule>)
struct kind_of<Schedule> {
    using type = looking_ahead;
};

/// What all schedules do besides scheduling.
struct side_effects {
    virtual ~side_effects() = default;
    virtual void limit_drafts(std::span<request_view>) = 0;
    [[nodiscard]] virtual fixed_probability draft_floor() const = 0;
    virtual void observe(round_record const&) noexcept = 0;
    virtual void set_up(round_sizes const&) = 0;
};

template <class Kind>
struct scheduling;
template <>
struct scheduling<live> : side_effects {
    [[nodiscard]] virtual std::unique_ptr<scheduling> copy() const = 0;
    virtual void admit(causal_frontier&) const = 0;
};
template <>
struct scheduling<looking_ahead> : side_effects {
    [[nodiscard]] virtual std::unique_ptr<scheduling> copy() const = 0;
    virtual void admit(draft_table const&, frontier_memory const&) const = 0;
};
template <class Origin>
struct scheduling<planning<Origin>> : side_effects {
    [[nodiscard]] virtual std::unique_ptr<scheduling> copy() const = 0;
    [[nodiscard]] virtual std::size_t budget(planning_table<Origin> const&) const = 0;
    [[nodiscard]] virtual double prior() const = 0;
};

template <class Schedule, class Kind>
struct acts;
template <class Schedule, class Kind>
struct acts_beside : scheduling<Kind> {
    Schedule schedule;
    explicit acts_beside(Schedule s) : schedule(std::move(s)) {}
    [[nodiscard]] std::unique_ptr<scheduling<Kind>> copy() const override {
        return std::make_unique<acts<Schedule, Kind>>(schedule);
    }
    void limit_drafts(std::span<request_view> r) override {
        if constexpr (draft_limiter<Schedule>) schedule.limit_drafts(r);
    }
    [[nodiscard]] fixed_probability draft_floor() const override {
        if constexpr (draft_stopper<Schedule>) return schedule.draft_floor();
        return 0;
    }
    void observe(round_record const& r) noexcept override {
        if constexpr (round_observer<Schedule>) schedule.observe(r);
    }
    void set_up(round_sizes const& sizes) override {
        if constexpr (sized_part<Schedule>) schedule.set_up(sizes);
    }
};
template <class Schedule>
struct acts<Schedule, live> final : acts_beside<Schedule, live> {
    using acts_beside<Schedule, live>::acts_beside;
    void admit(causal_frontier& f) const override { this->schedule.admit(f); }
};
template <class Schedule>
struct acts<Schedule, looking_ahead> final : acts_beside<Schedule, looking_ahead> {
    using acts_beside<Schedule, looking_ahead>::acts_beside;
    void admit(draft_table const& t, frontier_memory const& m) const override { this->schedule.admit(t, m); }
};
template <class Schedule, class Origin>
struct acts<Schedule, planning<Origin>> final : acts_beside<Schedule, planning<Origin>> {
    using acts_beside<Schedule, planning<Origin>>::acts_beside;
    [[nodiscard]] std::size_t budget(planning_table<Origin> const& t) const override {
        return this->schedule.budget(t);
    }
    [[nodiscard]] double prior() const override {
        if constexpr (requires { this->schedule.prior(); }) return this->schedule.prior();
        return 0.5;
    }
};

/// A schedule of some kind. Models what that kind is, and everything that a schedule may be besides.
template <class Kind>
class some_schedule_of {
public:
    template <class Schedule>
        requires std::is_same_v<typename kind_of<Schedule>::type, Kind>
    explicit some_schedule_of(Schedule const& s) : acts_(std::make_unique<acts<Schedule, Kind>>(s)) {}
    some_schedule_of(some_schedule_of const& other) : acts_(other.acts_->copy()), sizes_(other.sizes_) {}
    some_schedule_of(some_schedule_of&&) noexcept = default;

    void limit_drafts(std::span<request_view> r) { acts_->limit_drafts(r); }
    [[nodiscard]] fixed_probability draft_floor() const { return acts_->draft_floor(); }
    void observe(round_record const& r) noexcept { acts_->observe(r); }
    void set_up(round_sizes const& sizes) {
        sizes_ = sizes;
        acts_->set_up(sizes);
    }
    [[nodiscard]] round_sizes sizes() const { return sizes_; }

protected:
    std::unique_ptr<scheduling<Kind>> acts_;
    round_sizes sizes_{};
};
template <class Kind>
class some_schedule;
template <>
class some_schedule<live> : public some_schedule_of<live> {
public:
    using some_schedule_of::some_schedule_of;
    void admit(causal_frontier& f) const { acts_->admit(f); }
};
template <>
class some_schedule<looking_ahead> : public some_schedule_of<looking_ahead> {
public:
    using some_schedule_of::some_schedule_of;
    void admit(draft_table const& t, frontier_memory const& m) const { acts_->admit(t, m); }
};
template <class Origin>
class some_schedule<planning<Origin>> : public some_schedule_of<planning<Origin>> {
public:
    using origin = Origin;
    using some_schedule_of<planning<Origin>>::some_schedule_of;
    [[nodiscard]] std::size_t budget(planning_table<Origin> const& t) const { return this->acts_->budget(t); }
    [[nodiscard]] double prior() const { return this->acts_->prior(); }
};

// ---- the list --------------------------------------------------------------------------------------------------

/// Drafting costs, so that limits, gates and probes have something to decide about.
struct dear_drafts {
    [[nodiscard]] double step_seconds(step_load const& load) const noexcept {
        return 1.0 + 0.65 * static_cast<double>(load.batch_tokens / 2) + 0.08 * static_cast<double>(load.draft_tokens);
    }
};
struct as_said {
    [[nodiscard]] std::size_t operator()(std::size_t batch) const noexcept { return batch; }
    [[nodiscard]] double seconds(double) const noexcept { return 1.0; }
};

/// visit(name, schedule) for each of the library.
template <class Visit>
void for_each_bare_schedule(Visit&& visit) {
    visit("fixed_schedule", fixed_schedule{});
    visit("threshold_schedule", threshold_schedule{0.6});
    visit("survival_threshold_schedule", survival_threshold_schedule{0.45});
    visit("greedy_schedule", greedy_schedule{dear_drafts{}});
    visit("top_k_schedule, lag 1", lagged_top_k<1>(dear_drafts{}, 0.7));
    visit("top_k_schedule, lag 2", top_k_schedule{dear_drafts{}, 0.7});
    visit("planned_schedule", planned_schedule{dear_drafts{}});
    visit("retrospective_schedule", retrospective_schedule{dear_drafts{}});
}
/// visit(name, adapter around the schedule) for each adapter that takes it; the compiler refuses it to others.
template <class Schedule, class Visit>
void for_each_adapter_around(Schedule const& s, Visit&& visit) {
    visit("", s);
    visit(" in never_lose", never_lose{s, dear_drafts{}, {.prior = 0.6, .probing = 0.3}});
    visit(" in when_priced", when_priced{std::optional<Schedule>(s)});
    visit(" in when_priced, without a price", when_priced<Schedule>{std::nullopt, 1});
    if constexpr (needs_confidence_v<Schedule>) {
        speed_target_options const targets{.window = 2.0, .step = 2.0, .most = 3.0, .patience = 1};
        visit(" in speed_targets", speed_targets{s, dear_drafts{}, targets});
    }
    if constexpr (planner<Schedule>) {
        visit(" in hysteresis", hysteresis{s, {.margin = 0.3}});
        visit(" in agreed", agreed{s, as_said{}});
    }
}
template <class Visit>
void for_each_schedule_and_adapter(Visit&& visit) {
    for_each_bare_schedule([&](std::string const& name, auto const& bare) {
        for_each_adapter_around(bare, [&](std::string const& around, auto const& s) { visit(name + around, s); });
    });
}
/// visit(name, rule) of a rule template with every draft rule that there is.
template <template <class> class Rule, class Visit>
void for_each_draft_rule(std::string const& name, Visit&& visit) {
    visit(name + "<categorical_draft>", Rule<categorical_draft>{});
    visit(name + "<argmax_draft>", Rule<argmax_draft>{});
    visit(name + "<coupled_draft>", Rule<coupled_draft>{});
}
// ---- rounds that fail ------------------------------------------------------------------------------------------

/// What goes wrong in the first attempt at a round, and in no other. All behind `plan` depend on what was drafted.
enum class trouble { none, forward, plan, draw, confidence, admit, score, row, accept, commit };
inline constexpr std::array all_troubles{trouble::none,       trouble::forward, trouble::plan,  trouble::draw,
                                         trouble::confidence, trouble::admit,   trouble::score, trouble::row,
                                         trouble::accept,     trouble::commit};
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
        case trouble::admit: return "the schedule throws when it admits";
        case trouble::score: return "the target throws at a long batch";
        case trouble::row: return "a row after a drafted token is NaN";
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

struct unlucky_backbone {
    table_backbone inner;
    bad_luck* luck;
    [[nodiscard]] block_forward<double> forward(std::span<request_view const> requests) {
        if (requests[0].position % 2 == 0 && luck->strikes(trouble::forward)) throw failed_round("forward");
        return inner.forward(requests);
    }
};
struct unlucky_confidence {
    world const* w;
    bad_luck* luck;
    [[nodiscard]] double operator()(std::span<double const>, token_id previous, std::size_t k) const {
        if (k == 1 && previous == 1) {
            luck->bad_token = true;
            if (luck->strikes(trouble::confidence)) return std::numeric_limits<double>::quiet_NaN();
        }
        return w->confidence(previous, k);
    }
    [[nodiscard]] double at_anchor(std::span<double const>, token_id anchor, std::size_t k) const {
        return w->confidence(k == 0 ? anchor : no_token, k);
    }
};

[[nodiscard]] inline auto unlucky_drafter(world const& w, bad_luck* luck) {
    return semi_autoregressive{unlucky_backbone{{&w}, luck}, table_head{&w}, unlucky_confidence{&w, luck},
                               drafter_options{.block_size = w.block_size, .vocabulary = w.vocabulary}};
}
using chain_drafter_type = decltype(unlucky_drafter(std::declval<world const&>(), nullptr));
/// A drafter that throws when it has drawn.
template <class Drafter>
struct failing_draw : Drafter {
    bad_luck* luck;
    failing_draw(Drafter d, bad_luck* l) : Drafter(std::move(d)), luck(l) {}
    template <class Forward, class DraftRule, class Rng>
    void draw(Forward const& forward, DraftRule rule, draft_block<double>& block, Rng& rng) {
        Drafter::draw(forward, rule, block, rng);
        if (luck->bad_token && luck->strikes(trouble::draw)) throw failed_round("draw");
    }
};
/// Chains for rules that judge chains, and trees for the others.
template <class Rule>
using drafter_type =
    failing_draw<std::conditional_t<judges_trees_v<Rule>, tree_drafter<chain_drafter_type>, chain_drafter_type>>;
template <class Rule>
[[nodiscard]] drafter_type<Rule> drafter_for(world const& w, bad_luck* luck) {
    if constexpr (judges_trees_v<Rule>) {
        // What siblings are thought to be worth changes after every round.
        sibling_worth_settings const moody{.younger = 1.0, .assumed_weight = 0.3, .memory = 1.5};
        tree_options const options{.nodes = w.block_size + 1, .children = 2, .siblings = moody};
        return {tree_drafter<chain_drafter_type>{unlucky_drafter(w, luck), options}, luck};
    } else {
        return {unlucky_drafter(w, luck), luck};
    }
}

/// A schedule in trouble.
template <class Kind>
struct unlucky_schedule : some_schedule<Kind> {
    bad_luck* luck;
    unlucky_schedule(some_schedule<Kind> const& s, bad_luck* l) : some_schedule<Kind>(s), luck(l) {}
    template <class... Arguments>
    void admit(Arguments&&... arguments) const
        requires requires(some_schedule<Kind> const& s) { s.admit(arguments...); }
    {
        some_schedule<Kind>::admit(arguments...);
        if (luck->bad_token && luck->strikes(trouble::admit)) throw failed_round("admit");
    }
    template <class Origin>
        requires std::is_same_v<Kind, planning<Origin>>
    [[nodiscard]] std::size_t budget(planning_table<Origin> const& t) const {
        if (t.requests() % 2 == 1 && luck->strikes(trouble::plan)) throw failed_round("plan");
        return some_schedule<Kind>::budget(t);
    }
};
/// A rule that throws when it has decided.
template <class Rule>
struct failing_rule : Rule {
    using decision_type = std::conditional_t<judges_trees_v<Rule>, tree_decision, decision>;
    bad_luck* luck;
    failing_rule(Rule const& rule, bad_luck* l) : Rule(rule), luck(l) {}
    template <class Verification, class Rng>
    [[nodiscard]] decision_type operator()(Verification& v, Rng& rng) const {
        auto const decided = Rule::operator()(v, rng);
        if (luck->bad_token && luck->strikes(trouble::accept)) throw failed_round("accept");
        return decided;
    }
};

/// Steps of a decoder in which every round that fails is run once more, while a guest comes or goes. The guest is at
/// temperature 0, so it has no outcomes of its own. What small_world::play plays.
template <class Kind, class Rule, class Rng>
class persistent_decoder {
    using target_type = decltype(unlucky_target{target_of(std::declval<world const&>()), nullptr});

public:
    persistent_decoder(world const& w, std::size_t requests, trouble what, company with,
                       some_schedule<Kind> const& schedule, Rule const& rule, Rng rng, std::size_t& struck)
        : luck_(std::make_unique<bad_luck>(bad_luck{what})),
          with_(with),
          struck_(&struck),
          decoder_(unlucky_target{target_of(w), luck_.get()}, drafter_for<Rule>(w, luck_.get()),
                   unlucky_schedule<Kind>{schedule, luck_.get()}, failing_rule<Rule>{rule, luck_.get()}, allow_lossy,
                   decoder_options{.max_requests = requests + 1, .seed = 1}, no_logits_hook{}, rng) {}
    persistent_decoder(persistent_decoder const&) = delete;
    persistent_decoder& operator=(persistent_decoder const&) = delete;
    ~persistent_decoder() { *struck_ += luck_->struck; }

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
        if (luck_->armed) guest(with_ == company::leaver);
        for (;;) {
            luck_->bad_token = false;
            try {
                if (!decoder_.step()) return false;
                break;
            } catch (failed_round const&) {
                luck_->armed = false;
                guest(with_ == company::newcomer);
            }
        }
        luck_->armed = true;
        for (request_event const& event : decoder_.events()) {
            if (event.outcome == status::ok) continue;
            decoder_.resume(event.request);
            luck_->armed = false;
        }
        if (!luck_->armed) guest(with_ == company::newcomer);
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

    std::unique_ptr<bad_luck> luck_;
    company with_;
    std::size_t* struck_;
    std::vector<request_id> hosts_;
    request_id guest_ = 0;
    decoder<target_type, drafter_type<Rule>, unlucky_schedule<Kind>, failing_rule<Rule>, no_logits_hook, Rng, true>
        decoder_;
};

// ---- the check -------------------------------------------------------------------------------------------------

/// The law over a scene, and how often the trouble struck.
template <class Rule, class Kind>
[[nodiscard]] law law_in_trouble(world const& w, scene const& s, trouble what, company with,
                                 some_schedule<Kind> const& schedule, Rule const& rule, std::size_t& struck) {
    law result;
    enumerator walk{enumerator::noise::keyed};
    walk.for_each_path([&] {
        persistent_decoder<Kind, Rule, enumerator::source> dec(w, s.requests.size(), what, with, schedule, rule,
                                                               walk.handle(), struck);
        outcome const seen = play(dec, s);
        result[seen] += walk.weight();
    });
    return result;
}

/// Who is there when such a round is run again: with one request a guest who comes, with two one who leaves. Some failures
/// are tried with a guest alone, for the time that they take; or not at all, where the rule is exact for any draft and any
/// length, so that it makes no difference who plans, admits and is there.
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
            return any_draft || judges_trees_v<Rule> ? std::vector{company::same} : std::vector{company::same, guest};
        default: return {company::same};
    }
}

struct tally {
    std::size_t combinations = 0;  ///< that compile
    std::size_t refused = 0;       ///< that do not
    std::array<std::size_t, all_troubles.size()> struck{};
    std::array<bool, all_troubles.size()> tried{};
};

/// Small, and enough for what past rounds decide to act (lag + 2 tokens): one request; two of unequal priority. Rules that draw at
/// every position have more paths, and lengths to which they are indifferent: a token less.
template <class Rule>
[[nodiscard]] std::vector<trial> scenes() {
    double const temperature = is_greedy_only_v<Rule> ? 0.0 : 1.0;
    std::size_t const horizon = Rule::guarantee == fidelity::pathwise ? 3 : 4;
    auto const one = [&](token_id prompt, double priority) {
        return scene_request{{prompt}, {.temperature = temperature, .priority = priority, .tokens_per_second = 0.8}};
    };
    return {{{12, 2, 3}, {{one(0, 1.0)}, horizon, 1}}, {{41, 2, 2}, {{one(0, 1.0), one(1, 0.3)}, 2, 1}}};
}

/// A rule with everything it may be combined with, through every trouble.
template <class Rule>
void check_rule(std::string const& rule_name, Rule const& rule, tally& seen) {
    for_each_schedule_and_adapter([&]<class Schedule>(std::string const& name, Schedule const& schedule) {
        if constexpr (!is_lossless_round_v<Rule, Schedule, drafter_type<Rule>>) {
            ++seen.refused;
        } else {
            check_round<drafter_type<Rule>, Schedule, Rule>();
            ++seen.combinations;
            some_schedule<typename kind_of<Schedule>::type> const some{schedule};
            for (trial const& t : scenes<Rule>()) {
                law const expected = autoregressive_law(t.where, t.what);
                for (trouble const what : all_troubles) {
                    for (company const with : companies<Rule>(what, t.what.requests.size())) {
                        auto& struck = seen.struck[static_cast<std::size_t>(what)];
                        seen.tried[static_cast<std::size_t>(what)] = what != trouble::none;
                        law const found = law_in_trouble(t.where, t.what, what, with, some, rule, struck);
                        INFO(rule_name << ", " << name << ", " << name_of(what) << ", " << name_of(with) << ", world "
                                       << t.where.seed << ", gamma = " << t.where.block_size
                                       << ", requests = " << t.what.requests.size());
                        CHECK(largest_difference(found, expected) <= tolerance);
                    }
                }
            }
        }
    });
}

/// Every trouble that was tried struck, and the compiler refused what looks ahead or reuses noise where the rule samples.
inline void check_tally(tally const& seen, bool samples) {
    INFO(seen.combinations << " combinations, " << seen.refused << " refused");
    CHECK(seen.combinations > 50);
    CHECK((seen.refused > 0) == samples);
    for (trouble const what : all_troubles) {
        INFO(name_of(what));
        auto const i = static_cast<std::size_t>(what);
        CHECK(seen.tried[i] == (seen.struck[i] > 0));
    }
}

}  // namespace every_part

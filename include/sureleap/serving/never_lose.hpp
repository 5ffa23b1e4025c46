// SPDX-License-Identifier: MIT
//
// Decides before each round whether drafting pays: how far to draft at this load, for which requests, or not at all.
//
//     never_lose schedule{planned_schedule{cost}};
//
// A schedule chooses what to verify; what was drafted has been paid by then. This adapter decides before drafting, from
// past rounds and the requests at hand. It sets the limit of drafts that promises most tokens per second at this load, by
// the cost model and past survivals (draft_forecast.hpp); the limit is 0 if plain decoding promises more. Tokens that were
// found without a model cost no drafting: they are left to the schedule, if it has a price of its own. It excludes
// requests whose drafts are not worth their time (draft_worth.hpp). It sets the survival below which a chain ends, because
// its positions would not be admitted (draft_floor). All of this is known before a token is drawn, so the wrapped schedule
// keeps its causality.
//
// What is not drafted cannot be learned from. So some requests draft in full from time to time, as often as a set share
// of the throughput pays for; oftener at first, after drafting was turned off, and where they come near to changing that.
//
// Drafting leaves arrears, which a cost model may price (draft_arrears.hpp). A model that drafts again reads first what it
// has missed (request_view::unread). So a request drafts only if what it saves until its end pays for that; drafting comes
// back when being without it has cost as much, as one buys what was rented for its price; and those probe who have missed
// least. A target may have to decode again what was accepted before a rejection (request_view::replays). So drafts are
// priced with the rejections that they lead to.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cost/views.hpp>
#include <sureleap/round/record.hpp>
#include <sureleap/schedule/adapter.hpp>
#include <sureleap/serving/draft_arrears.hpp>
#include <sureleap/serving/draft_forecast.hpp>
#include <sureleap/serving/draft_worth.hpp>

SURELEAP_BEGIN_NAMESPACE

/// What is assumed of drafts before the first, and what probing may cost; fixed at set-up.
struct never_lose_options {
    double prior = 0.8;      ///< conditional confidence assumed before anything was drafted
    double probing = 0.003;  ///< share of the throughput that drafts beyond the limit may cost, in (0, 1)
};

namespace detail {
/// The schedule reckons with a cost of its own.
template <class Schedule>
concept priced_schedule =
    requires(Schedule const& s) { requires step_cost<std::remove_cvref_t<decltype(s.capacity())>>; };
template <class Schedule>
struct cost_of {
    static_assert(
        priced_schedule<Schedule>,
        "never_lose: this schedule has no cost to reckon with; pass one: never_lose{schedule, cost, options}");
    using type = std::remove_cvref_t<decltype(std::declval<Schedule const&>().capacity())>;
};
}  // namespace detail

/// Schedule: any. Cost: cost_model, or a capacity_curve, which knows no price of drafting. Models what Schedule models, and
/// sized_part: its memory is allocated in set_up. A round costs it O(R gamma), and some hundred questions to the cost.
///
/// What it decides is a function of the requests and of the rounds that were observed. So a round that failed and is run
/// again is limited as it was, and a round that nobody observed has not been.
///
/// Decides by doubles in a fixed order: ranks of an engine that run the same program on the same records decide alike.
template <scheduler Schedule, step_cost Cost>
class never_lose : public schedule_adapter<Schedule> {
    using base = schedule_adapter<Schedule>;

public:
    never_lose(Schedule schedule, Cost cost, never_lose_options const& options = {})
        : base(std::move(schedule)), cost_(std::move(cost)), options_(options) {
        if (fixed_probability unused = 0; !quantise(options.prior, unused)) {
            fail_with("never_lose: prior confidence is ", options.prior, ", expected a number in [0, 1]");
        }
        if (!(options.probing > 0.0 && options.probing < 1.0)) {
            fail_with("never_lose: probing is ", options.probing, ", expected a share of the throughput, in (0, 1)");
        }
    }
    /// With the cost that the schedule has.
    explicit never_lose(Schedule schedule, never_lose_options const& options = {})
        requires detail::priced_schedule<Schedule>
        : never_lose(schedule, Cost(schedule.capacity()), options) {}

    /// Takes the memory. The same sizes again change nothing. With other slots it forgets the requests that it knew, and with
    /// another gamma all that it learned.
    void set_up(round_sizes const& sizes) {
        detail::expect_sizes("never_lose", sizes);
        if constexpr (sized_part<Schedule>) base::set_up(sizes);
        if (sizes == sizes_) return;
        if (sizes.block_size != sizes_.block_size) {
            profile_ = survival_profile(sizes.block_size, options_.prior);
            open_.assign(sizes.block_size, 0.0);
            accepted_.assign(sizes.block_size, believed);
            expected_.assign(sizes.block_size, believed);
            trust_.assign(sizes.block_size, 1.0);
            settled_ = now_ = {};
        }
        gate_ = draft_worth(sizes.max_requests);
        line_.set_up(sizes.max_requests);
        sizes_ = sizes;
    }
    [[nodiscard]] round_sizes sizes() const noexcept { return sizes_; }

    /// Positions that are drafted at present, 0: none. Worth of a place in the batch. What was last promised.
    [[nodiscard]] draft_forecast const& choice() const noexcept { return now_.choice; }
    /// Tokens accepted of late at each position for each that survivals promised, [gamma]: 1 where confidences are calibrated.
    [[nodiscard]] std::span<double const> trust() const noexcept { return trust_; }
    /// What the schedule makes of drafts, of what the best batch would: low for one that a cliff of the curve stops.
    [[nodiscard]] double yield() const noexcept { return std::clamp(now_.reached / now_.promised, 0.25, 1.0); }
    /// The coming (or running) round is one in which some requests draft beyond the limit.
    [[nodiscard]] bool probes() const noexcept { return now_.probing; }

    /// Error before set_up, and for slots beyond it.
    void limit_drafts(std::span<request_view> requests) {
        detail::expect_slots("never_lose", requests, sizes_);
        base::limit_drafts(requests);
        now_ = settled_;
        if (requests.empty()) return;
        survey(requests);
        choose(requests);
        now_.probing = due(requests);
        for (std::size_t r = 0; r < requests.size(); ++r) {
            bool const hopeless =
                shut_now(requests[r]) || arrears_.outlast(requests[r], now_.best_drafting, now_.plain);
            std::size_t const limit = line_.has(r) ? reach() : hopeless ? 0 : now_.choice.limit;
            // A schedule that ranks candidates prices what is found beside the model by itself.
            std::size_t& own = ranks ? requests[r].model_limit : requests[r].draft_limit;
            own = std::min(own, limit);
        }
        ++now_.round;
        set_floor();
    }
    [[nodiscard]] fixed_probability draft_floor() const noexcept { return std::max(base::draft_floor(), now_.floor); }

    void observe(round_record const& record) noexcept {
        base::observe(record);
        if (record.requests.empty() || record.survivals.block_size != sizes_.block_size) return;  // no round of its own
        // While nobody else drafts, probers are all the evidence there will be: survivals of a few probes decide, and of some
        // more whether survivals are to be believed.
        double const requests = static_cast<double>(record.requests.size());
        double const some = static_cast<double>(probers(record.requests.size()));
        bool const drafts = now_.choice.limit > 0;
        double const memory = std::clamp(8.0 * requests, 48.0, 1024.0);
        learn_trust(record, drafts ? memory : 4.0 * some, drafts ? some : 4.0 * some);
        gate_.observe(record, settled_.price, now_.price, place_worth(), trust_);
        profile_.observe(record, draft_floor(), drafts ? memory : 0.5 * some);
        if (now_.probing)
            learn_probe_loss(record);
        else
            learn_yield(record);
        bool told = false;
        for (std::size_t r = 0; r < record.requests.size(); ++r) told = told || record.tells_of_model(r);
        if (now_.probing && !told) now_.since = never;  // the next round probes
        settled_ = now_;
    }

private:
    /// Accepted tokens, as many as promised, that every position begins with. A drafter that is never right is found out
    /// within some five rounds; one that is right by half is mistaken for it once in thirty times, until the next probe.
    static constexpr double believed = 4.0;
    static constexpr double yield_memory = 10.0;                // rounds
    static constexpr std::size_t never = std::size_t{1} << 20;  // rounds since something that has not been

    /// What one round's decisions leave to the next, whether or not anybody drafted.
    struct decided {
        draft_forecast choice{};
        draft_forecast plain{};
        draft_forecast best_drafting{};
        double price = 0.0;  // of drafting for one request, in tokens
        fixed_probability floor = 0;
        // Sums of Theta over the last rounds that drafted, and of what was expected of them, in plain decoding's. They begin as if
        // promises had been kept so far: one poor round is chance.
        double reached = yield_memory;
        double promised = yield_memory;
        double yield_at = 0.0;  // requests
        bool probing = false;
        std::size_t since = never;    // rounds since the last probe; the first that hides something is one
        std::size_t repeats = 0;      // probes in a row
        int vain = 0;                 // probes since drafting was turned off
        std::size_t cursor = 0;       // whose turn it is
        double probe_loss = 0.0;      // tokens that a probe costs a request, by what the last ones came to
        detail::draft_return back{};  // from a time without drafts
        std::uint64_t round = 0;
    };

    /// Of the throughput: what has to be gained before a decision is changed. Below what a static choice may be better by.
    static constexpr double margin = 0.002;
    static constexpr bool ranks = detail::priced_schedule<Schedule>;
    static constexpr std::size_t group_rows = 8;  // kernels serve at most so many at once
    static constexpr double least_period = 16.0;  // rounds from a probe to the next

    /// Who is there: how many may draft each position, what their tokens weigh, how long their contexts are.
    void survey(std::span<request_view const> requests) noexcept {
        std::fill(open_.begin(), open_.end(), 0.0);
        load_ = {.requests = requests.size(), .batch_tokens = requests.size()};
        anchors_ = 0.0;
        for (request_view const& r : requests) {
            anchors_ += static_cast<double>(r.weight) * 0x1p-24;
            load_.context_tokens += r.position + 1;
            if (gate_.shuts(r, settled_.price)) continue;
            std::size_t const cap = r.draft_cap(sizes_.block_size);
            for (std::size_t k = 0; k < cap; ++k) open_[k] += 1.0;
        }
        arrears_ = detail::arrears_prices::of(requests, load_, [&](step_load const& load) { return seconds(load); });
    }

    /// The round's load if everybody whom the gate lets drafts up to `limit`, and `fewer` of them not.
    [[nodiscard]] step_load load_at(std::size_t limit, double fewer = 0.0) const noexcept {
        step_load load = load_;
        double tokens = 0.0;
        for (std::size_t k = 0; k < limit; ++k) tokens += std::max(open_[k] - fewer, 0.0);
        load.draft_tokens = static_cast<std::size_t>(tokens);
        load.drafting = limit == 0 ? 0 : static_cast<std::size_t>(std::max(open_[0] - fewer, 0.0));
        return load;
    }
    [[nodiscard]] double seconds(step_load const& load) const noexcept {
        return 1.0 / static_cast<double>(curve_of(cost_, load).steps_per_second(load.batch_tokens));
    }

    void choose(std::span<request_view const> requests) noexcept {
        double const count = static_cast<double>(requests.size());
        if (std::abs(count - now_.yield_at) > 0.25 * now_.yield_at) {  // a cliff is where it is at one load
            now_.yield_at = count;
            now_.reached = now_.promised = yield_memory;
        }
        double const plain_seconds = seconds(load_);
        draft_forecast const plain{0, certain, anchors_ / plain_seconds, count, plain_seconds};
        draft_forecast best = plain;
        draft_forecast same = plain;  // as in the last round
        now_.best_drafting = {};
        auto const price = [&](std::size_t limit) -> decltype(auto) { return curve_of(cost_, load_at(limit)); };
        auto const consider = [&](draft_forecast found) {
            found.throughput *= yield();
            if (found.throughput > now_.best_drafting.throughput) now_.best_drafting = found;
            if (found.throughput > best.throughput) best = found;
            if (found.limit == now_.choice.limit) same = found;
        };
        profile_.template for_each_limit<ranks>(anchors_, requests.size(), open_, trust_, arrears_.replay, price,
                                                consider);
        if (now_.round > 0 && now_.choice.limit == 0 &&
            !now_.back.is_due(best, plain, arrears_.of_all() + replay_of_one() * count)) {
            best = plain;
        }
        now_.choice = same.throughput >= (1.0 - margin) * best.throughput ? same : best;
        now_.back.settle(settled_.round > 0 && settled_.choice.limit > 0, now_.choice, plain);
        now_.plain = plain;
        // What drafting for one request takes, in tokens. With one request left it is the drafter's whole time.
        step_load const load = load_at(now_.choice.limit);
        now_.price = now_.choice.limit == 0
                         ? 0.0
                         : now_.choice.throughput * (seconds(load) - seconds(load_at(now_.choice.limit, 1.0)) +
                                                     arrears_.replay * now_.choice.rejections / open_[0]);
    }

    /// Of a place in the batch, by what its row takes. What a candidate has to be worth pays for replays as well, which price
    /// has already.
    [[nodiscard]] fixed_probability place_worth() const noexcept {
        draft_forecast const& c = now_.choice;
        double const rows = c.batch_tokens - static_cast<double>(load_.requests);
        if (c.limit == 0 || rows <= 0.0) return 0;
        if (arrears_.replay == 0.0) return c.worth;
        step_load const without = load_at(c.limit);
        step_load with = without;
        with.batch_tokens = static_cast<std::size_t>(std::ceil(c.batch_tokens));
        double const row = (seconds(with) - seconds(without)) / std::ceil(rows);
        return std::min(c.worth, static_cast<fixed_probability>(std::clamp(c.throughput * row, 0.0, 1.0) * 0x1p24));
    }

    // ---- probes ------------------------------------------------------------------------------------------------

    [[nodiscard]] static std::size_t probers(std::size_t requests) noexcept {
        return std::min(requests, std::clamp<std::size_t>(requests / 4, 16, 64));
    }

    /// How far a prober drafts. What does not rank verifies all of it, and has to feel its way.
    [[nodiscard]] std::size_t reach() const noexcept {
        return ranks ? sizes_.block_size : std::min(sizes_.block_size, now_.choice.limit + 2);
    }

    /// Whether this round is one to look further in, and who does.
    [[nodiscard]] bool due(std::span<request_view const> requests) noexcept {
        line_.clear();
        ++now_.since;
        double const period = rounds_between_probes(requests.size());
        return static_cast<double>(now_.since) >= period && pick_probers(requests, period);
    }
    /// 0: it goes on.
    [[nodiscard]] double rounds_between_probes(std::size_t requests) noexcept {
        if (now_.choice.limit == sizes_.block_size && now_.floor == 0) return never;  // nothing is hidden
        std::size_t const more = probers(requests) * (reach() - now_.choice.limit);
        step_load without = load_at(now_.choice.limit);
        without.batch_tokens = static_cast<std::size_t>(now_.choice.batch_tokens);
        step_load with = without;
        with.drafting = std::max(with.drafting, probers(requests));
        with.draft_tokens += more;
        if (!ranks) with.batch_tokens += more;  // without a price of its own, a schedule verifies whatever was drafted
        double const loss = std::max(now_.probe_loss, 1.0 - seconds(without) / seconds(with));
        double period = static_cast<double>(1 + now_.repeats) *
                        std::clamp(std::ceil(loss / options_.probing), least_period, 1024.0);
        // Hard passages end. What was turned off is looked at soon, and half as often each time that it was in vain.
        if (now_.choice.limit > 0) now_.vain = 0;
        if (now_.choice.limit == 0) period = std::min(period, std::ldexp(least_period, std::min(now_.vain, 6)));
        bool const near =
            now_.choice.limit == 0 && now_.probing && now_.best_drafting.throughput > 0.97 * now_.plain.throughput;
        if (near && now_.repeats < 2) {
            ++now_.repeats;
            return 0.0;
        }
        if (static_cast<double>(now_.since) >= period) now_.repeats = 0;
        return period;
    }
    /// Seconds that drafts of a request lead to, if all of them are verified.
    [[nodiscard]] double replay_of_one() const noexcept {
        double const whole = trust_.back() * profile_.mean_survival(sizes_.block_size - 1);
        return arrears_.replay * std::max(1.0 - whole, 0.0);
    }
    /// Those whose turn it is, if what they have missed may be read, and rejected drafts replayed: by the time since the probe
    /// was due, of which that may take the share that probes may, and as they, more at first. If not, the probe waits once more
    /// as long, and asks the cheapest, as many as that pays for. False: nobody can be asked, at that price.
    [[nodiscard]] bool pick_probers(std::span<request_view const> requests, double period) noexcept {
        double const share = options_.probing * std::max(std::ldexp(least_period, -now_.vain), 1.0);
        double const rounds = static_cast<double>(now_.since);
        double const replay = now_.choice.limit > 0 ? 0.0 : replay_of_one();
        std::size_t const count =
            line_.pick(requests, now_.cursor, probers(requests.size()), share * (rounds - period) * now_.plain.seconds,
                       rounds >= 2.0 * period, [&](request_view const& r) { return arrears_.of_request(r) + replay; });
        if (count == 0) return false;
        now_.since = 0;
        now_.cursor += count;
        if (now_.choice.limit == 0 && now_.repeats == 0) ++now_.vain;
        return true;
    }

    /// Of a hopeless request: it drafts as others do once in a while, each in a round of its own, unless all of them would read
    /// more then than probes may cost.
    [[nodiscard]] bool shut_now(request_view const& r) const noexcept {
        if (!gate_.shuts(r, settled_.price, now_.price)) return false;
        constexpr std::uint64_t period = 64;
        double const all = arrears_.of_request(r) * static_cast<double>(load_.requests);
        bool const is_dear = all > options_.probing * static_cast<double>(period) * now_.plain.seconds;
        return is_dear || (now_.round + 7 * r.slot) % period != 0;
    }

    void set_floor() noexcept {
        // A schedule that ranks candidates finds the price of a place itself, round by round, and needs room to find it lower. It
        // knows none for replays, and one that verifies all there is knows none at all: there the floor is the price.
        double const whole = ranks && arrears_.replay == 0.0 ? 0.5 : 1.0;
        double const share = now_.probing ? 0.25 * whole : whole;
        now_.floor = now_.choice.limit == 0 || fewer_take_longer()
                         ? 0
                         : static_cast<fixed_probability>(share * static_cast<double>(now_.choice.worth));
    }
    /// Kernels that serve rows in groups take longer for a group that is not full. A chain cut short would then cost more than its
    /// last positions. Measured curves wobble: a fiftieth is no step.
    [[nodiscard]] bool fewer_take_longer() const noexcept {
        auto const& curve = curve_of(cost_, load_at(now_.choice.limit));
        auto const rate = [&](std::size_t b) { return static_cast<double>(curve.steps_per_second(b)); };
        auto const batch = static_cast<std::size_t>(std::ceil(now_.choice.batch_tokens));
        double const least = 0.98 * rate(batch);
        for (std::size_t back = 1; back <= group_rows && back + load_.requests <= batch; ++back) {
            if (rate(batch - back) < least) return true;
        }
        return false;
    }

    // ---- what came of it ---------------------------------------------------------------------------------------

    /// `memory`: tokens that a mean goes back; `hidden`: the same beyond the limit, where only probers see.
    void learn_trust(round_record const& record, double memory, double hidden) noexcept {
        for (std::size_t k = 0; k < sizes_.block_size; ++k) {
            double accepted = 0.0;
            double expected = 0.0;
            for (std::size_t r = 0; r < record.requests.size(); ++r) {
                verdict const& v = record.verdicts[r];
                if (!record.tells_of_model(r) || v.verified <= k) continue;
                expected += static_cast<double>(record.survivals.at(r, k).survival) * 0x1p-24;
                if (v.kept(k)) accepted += static_cast<double>(record.requests[r].weight) * 0x1p-24;
            }
            double const keep = 1.0 - expected / (expected + (k < now_.choice.limit ? memory : hidden));
            accepted_[k] = std::fma(accepted_[k], keep, accepted);
            expected_[k] = std::fma(expected_[k], keep, expected);
            trust_[k] = std::clamp(accepted_[k] / expected_[k], 0.0, 2.0);
        }
    }

    /// Tokens that a round was worth, by expectations, which are less of a gamble than tokens.
    [[nodiscard]] double expected_tokens(round_record const& record) const noexcept {
        double tokens = anchors_;
        for (std::size_t r = 0; r < record.requests.size(); ++r) {
            if (record.verdicts[r].ended_in_draft()) tokens -= static_cast<double>(record.requests[r].weight) * 0x1p-24;
            for (std::size_t k = 0; k < record.verdicts[r].verified; ++k) {
                tokens = std::fma(trust_[k] * 0x1p-24, static_cast<double>(record.survivals.at(r, k).survival), tokens);
            }
        }
        return tokens;
    }

    /// What the round takes, without what it paid for others before it, and with what its own rejections will take.
    [[nodiscard]] double own_seconds(round_record const& record) const noexcept {
        step_load load = record.load;
        load.unread_tokens = 0;
        load.replays = 0;
        double rejections = 0.0;
        for (std::size_t r = 0; r < record.requests.size(); ++r) {
            std::size_t const l = record.verdicts[r].verified;
            if (l == 0) continue;
            rejections += static_cast<double>(record.requests[r].weight) * 0x1p-24 -
                          trust_[l - 1] * 0x1p-24 * static_cast<double>(record.survivals.at(r, l - 1).survival);
        }
        return std::fma(arrears_.replay, std::max(rejections, 0.0), seconds(load));
    }

    /// What the round took beyond what its tokens take otherwise: rows that were verified in vain, above all.
    void learn_probe_loss(round_record const& record) noexcept {
        if (record.load.drafting == 0) return;
        double const lost = now_.choice.throughput * own_seconds(record) - expected_tokens(record);
        now_.probe_loss = 0.5 * (now_.probe_loss + std::max(lost / anchors_, 0.0));
    }

    /// By expectations on both sides.
    void learn_yield(round_record const& record) noexcept {
        // While nobody drafts nothing is seen of the schedule; but nothing is held against one forever.
        if (now_.choice.limit == 0) now_.reached = std::fma(0.0005, now_.promised - now_.reached, now_.reached);
        if (now_.choice.limit == 0 || record.load.drafting == 0) return;
        for (std::size_t r = 0; r < record.requests.size(); ++r) {
            if (!record.tells_of_model(r)) return;  // the forecast is of a round in which the model drafts for all
        }
        // By what is known now: what was known before this round is no fault of the schedule.
        auto const& curve = curve_of(cost_, load_at(now_.choice.limit));
        draft_forecast const expected = profile_.template at_limit<ranks>(now_.choice.limit, anchors_, load_.requests,
                                                                          open_, trust_, arrears_.replay, curve);
        double const plain = now_.plain.throughput;
        double const keep = 1.0 - 1.0 / yield_memory;
        now_.promised = std::fma(keep, now_.promised, expected.throughput / plain);
        now_.reached = std::fma(keep, now_.reached, expected_tokens(record) / (own_seconds(record) * plain));
    }

    Cost cost_;
    never_lose_options options_;
    round_sizes sizes_{};
    survival_profile profile_;
    draft_worth gate_;
    std::vector<double> open_;  // [gamma] requests that may draft the position
    step_load load_{};          // of this round, without drafts
    double anchors_ = 0.0;      // weights of this round's requests
    detail::arrears_prices arrears_{};
    detail::probe_line line_;
    std::vector<double> accepted_;  // [gamma], and what survivals promised
    std::vector<double> expected_;
    std::vector<double> trust_;
    decided settled_{};  // by the rounds that were observed
    decided now_{};      // by these and by the requests that were asked about last
};

template <class Schedule>
never_lose(Schedule) -> never_lose<Schedule, typename detail::cost_of<Schedule>::type>;
template <class Schedule>
never_lose(Schedule, never_lose_options) -> never_lose<Schedule, typename detail::cost_of<Schedule>::type>;
template <class Schedule, step_cost Cost>
never_lose(Schedule, Cost) -> never_lose<Schedule, Cost>;
template <class Schedule, class Cost>
never_lose(Schedule, Cost, never_lose_options) -> never_lose<Schedule, Cost>;

/// As safe as what it wraps: limits and floors are of past rounds.
template <class Schedule, class Cost>
inline constexpr bool enable_non_anticipating<never_lose<Schedule, Cost>> = enable_non_anticipating<Schedule>;

SURELEAP_END_NAMESPACE

// SPDX-License-Identifier: MIT
//
// Decides before each round whether drafting pays: how far to draft at this load, for which requests, or not at all.
//
//     never_lose schedule{planned_schedule{cost}};
//
// A schedule chooses what to verify; what was drafted has been paid by then. This adapter decides before, from past
// rounds and the requests at hand. It asks five parts:
//
//   draft_evidence.hpp        what rounds have taught
//   throughput_forecast.hpp   which limit of drafts pays
//   request_gate.hpp          whose drafts are worth their time
//   probe_schedule.hpp        who looks further, and when
//   draft_arrears.hpp         what drafting leaves to be paid
//
// Their numbers, and why they are what they are, stand in never_lose_tuning.hpp. All is known before a token is drawn,
// so the wrapped schedule keeps its causality.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <sureleap/core/error.hpp>
#include <sureleap/schedule/adapter.hpp>
#include <sureleap/serving/draft_arrears.hpp>
#include <sureleap/serving/probe_schedule.hpp>
#include <sureleap/serving/request_gate.hpp>

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

/// Schedule: any. Cost: cost_model, or a capacity_curve, which knows no price of drafting. Models what Schedule models,
/// and sized_part: its memory is allocated in set_up. A round costs it O(R gamma), and some hundred questions to the
/// cost.
///
/// What it decides is a function of the requests and of the rounds that were observed. So a round that failed and is
/// run again is limited as it was, and a round that nobody observed has not been.
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

    /// Takes the memory. The same sizes again change nothing. With other slots it forgets the requests that it knew,
    /// and with another gamma all that it learned.
    void set_up(round_sizes const& sizes) {
        detail::expect_sizes("never_lose", sizes);
        if constexpr (sized_part<Schedule>) base::set_up(sizes);
        if (sizes == sizes_) return;
        if (sizes.block_size != sizes_.block_size) {
            profile_ = detail::survival_profile(sizes.block_size, options_.prior);
            trust_ = detail::draft_trust(sizes.block_size);
            open_.assign(sizes.block_size, 0.0);
            settled_ = now_ = {};
        }
        gate_ = detail::request_gate(sizes.max_requests);
        line_ = detail::probe_line(sizes.max_requests);
        sizes_ = sizes;
    }
    [[nodiscard]] round_sizes sizes() const noexcept { return sizes_; }

    /// The limit of drafts at present, 0: none are drafted; what a place in the batch is worth; what was last promised.
    [[nodiscard]] detail::throughput_forecast const& choice() const noexcept { return now_.choice; }
    /// Tokens accepted of late at each position for each that survivals promised, [gamma]: 1 where confidences are
    /// calibrated.
    [[nodiscard]] std::span<double const> trust() const noexcept { return trust_.ratios(); }
    /// What the schedule makes of drafts, of what the best batch would: low for one that a cliff of the curve stops.
    [[nodiscard]] double yield() const noexcept { return now_.yield.value(); }
    /// The coming (or running) round is one in which some requests draft beyond the limit.
    [[nodiscard]] bool probes() const noexcept { return now_.probes.running(); }

    /// Error before set_up, and for slots beyond it.
    void limit_drafts(std::span<request_view> requests) {
        detail::expect_slots("never_lose", requests, sizes_);
        base::limit_drafts(requests);
        now_ = settled_;
        if (requests.empty()) return;
        survey(requests);
        choose();
        probe(requests);
        for (std::size_t r = 0; r < requests.size(); ++r) {
            std::size_t const limit = line_.has(r) ? reach() : is_left_out(requests[r]) ? 0 : now_.choice.limit;
            // A schedule that ranks candidates prices what is found beside the model by itself.
            std::size_t& own = ranks ? requests[r].model_limit : requests[r].draft_limit;
            own = std::min(own, limit);
        }
        ++now_.round;
        now_.floor = round().chain_floor(now_.choice, probes());
    }
    [[nodiscard]] fixed_probability draft_floor() const noexcept { return std::max(base::draft_floor(), now_.floor); }

    void observe(round_record const& record) noexcept {
        base::observe(record);
        if (record.requests.empty() || record.survivals.block_size != sizes_.block_size) return;  // no round of its own
        bool const drafts = now_.choice.limit > 0;
        double const requests = static_cast<double>(record.size());
        double const probers = static_cast<double>(detail::probers_of(record.size()));
        double const memory = std::clamp(tuning::memory_rounds * requests, tuning::least_memory, tuning::most_memory);
        trust_.observe(record, now_.choice.limit, memory, drafts ? probers : tuning::trust_probes * probers);
        gate_.observe(record, settled_.price, now_.price, round().row_worth(now_.choice), trust());
        profile_.observe(record, draft_floor(), drafts ? memory : tuning::profile_probes * probers);
        std::size_t told = 0;
        for (std::size_t r = 0; r < record.size(); ++r) told += record.tells_of_model(r) ? 1u : 0u;
        if (probes() && told == 0) now_.probes.failed();
        if (!probes() && !drafts) now_.yield.forgive();
        if (probes() && record.load.drafting > 0) learn_from_probe(record);
        // A forecast is of a round in which the model drafts for all.
        if (!probes() && drafts && record.load.drafting > 0 && told == record.size()) learn_from_round(record);
        settled_ = now_;
    }

private:
    using tuning = detail::never_lose_tuning;
    static constexpr bool ranks = detail::priced_schedule<Schedule>;

    /// What one round's decisions leave to the next, whether or not anybody drafted.
    struct decided {
        detail::throughput_forecasts found{};
        detail::throughput_forecast choice{};
        double price = 0.0;  // of drafting for one request, in tokens
        fixed_probability floor = 0;
        detail::schedule_yield yield{};
        detail::probe_schedule probes{};
        detail::draft_return back{};
        std::uint64_t round = 0;
    };

    [[nodiscard]] detail::round_prospect<ranks, Cost> round() const noexcept {
        return {cost_, profile_, load_, anchors_, open_, trust(), arrears_.replay};
    }

    /// Who is there: how many may draft each position, what their tokens weigh, how long their contexts are.
    void survey(std::span<request_view const> requests) noexcept {
        std::fill(open_.begin(), open_.end(), 0.0);
        load_ = {.requests = requests.size(), .batch_tokens = requests.size()};
        anchors_ = 0.0;
        for (request_view const& r : requests) {
            anchors_ += detail::unit(r.weight);
            load_.context_tokens += r.position + 1;
            if (gate_.shuts(r, settled_.price)) continue;
            std::size_t const cap = r.draft_cap(sizes_.block_size);
            for (std::size_t k = 0; k < cap; ++k) open_[k] += 1.0;
        }
        arrears_ = detail::arrears_prices::of(requests, round());
    }

    void choose() noexcept {
        double const requests = static_cast<double>(load_.requests);
        now_.yield.at_load(requests);
        now_.found = round().forecast(yield(), now_.choice.limit);
        bool const is_off = now_.round > 0 && now_.choice.limit == 0;
        double const price = arrears_.of_all() + replay_of_one() * requests;
        now_.choice = now_.found.choice(!is_off || now_.back.is_due(now_.found, price));
        now_.back.settle(settled_.choice.limit > 0, now_.choice, now_.found.plain);
        now_.price = round().tokens_for_one(now_.choice);
    }
    /// Seconds of replays that drafts of a request lead to, if all of them are verified.
    [[nodiscard]] double replay_of_one() const noexcept {
        double const whole = trust().back() * profile_.mean_survival(sizes_.block_size - 1);
        return arrears_.replay * std::max(1.0 - whole, 0.0);
    }

    [[nodiscard]] std::size_t reach() const noexcept {
        return detail::probed_limit(now_.choice.limit, sizes_.block_size, ranks);
    }
    /// Whether this round is one to look further in, and who does.
    void probe(std::span<request_view const> requests) noexcept {
        detail::throughput_forecast const& plain = now_.found.plain;
        bool const drafts = now_.choice.limit > 0;
        std::size_t const probers = detail::probers_of(requests.size());
        std::size_t const more = probers * (reach() - now_.choice.limit);
        step_load without = round().drafting(now_.choice.limit);
        without.batch_tokens = static_cast<std::size_t>(now_.choice.batch_tokens);
        step_load with = without;
        with.drafting = std::max(with.drafting, probers);
        with.draft_tokens += more;
        if (!ranks) with.batch_tokens += more;  // without a price of its own, a schedule verifies whatever was drafted
        detail::probe_terms const terms{.hides = now_.choice.limit < sizes_.block_size || now_.floor > 0,
                                        .drafts = drafts,
                                        .near = now_.found.best.throughput > tuning::near_plain * plain.throughput,
                                        .cost = 1.0 - round().seconds(without) / round().seconds(with),
                                        .share = options_.probing};
        line_.clear();
        if (!now_.probes.begin(terms)) return;
        double const replay = drafts ? 0.0 : replay_of_one();
        auto const price = [&](request_view const& r) { return arrears_.of_request(r) + replay; };
        double const pays = now_.probes.arrears_paid(options_.probing) * plain.seconds;
        now_.probes.start(terms,
                          line_.pick(requests, now_.probes.cursor(), probers, pays, now_.probes.has_waited(), price));
    }

    /// The request's drafts are not worth their time. Those that the gate shuts draft from time to time, unless all of
    /// them would read more then than probes may cost.
    [[nodiscard]] bool is_left_out(request_view const& r) const noexcept {
        if (arrears_.outlast(r, now_.found.best, now_.found.plain)) return true;
        if (!gate_.shuts(r, settled_.price, now_.price)) return false;
        double const all = arrears_.of_request(r) * static_cast<double>(load_.requests);
        double const period = static_cast<double>(tuning::shut_period) * now_.found.plain.seconds;
        return all > options_.probing * period || !detail::request_gate::looks_again(r.slot, now_.round);
    }

    /// What the round takes, without what it paid for others before it, and with what its own rejections will take.
    [[nodiscard]] double own_seconds(round_record const& record) const noexcept {
        step_load load = record.load;
        load.unread_tokens = 0;
        load.replays = 0;
        return std::fma(arrears_.replay, trust_.rejections(record), round().seconds(load));
    }
    /// A probe costs what it took beyond what its tokens take otherwise: rows that were verified in vain, above all.
    void learn_from_probe(round_record const& record) noexcept {
        double const lost = now_.choice.throughput * own_seconds(record) - trust_.tokens(record, anchors_);
        now_.probes.observe(lost / anchors_);
    }
    /// By what is known now: what was known before this round is no fault of the schedule.
    void learn_from_round(round_record const& record) noexcept {
        double const plain = now_.found.plain.throughput;
        double const promised = round().at_limit(now_.choice.limit).throughput;
        double const reached = trust_.tokens(record, anchors_) / (own_seconds(record) * plain);
        now_.yield.observe(promised / plain, reached);
    }

    Cost cost_;
    never_lose_options options_;
    round_sizes sizes_{};
    detail::survival_profile profile_;
    detail::draft_trust trust_;
    detail::request_gate gate_;
    detail::probe_line line_;
    std::vector<double> open_;  // [gamma] requests that may draft the position
    step_load load_{};          // of this round, without drafts
    double anchors_ = 0.0;      // weights of this round's requests
    detail::arrears_prices arrears_{};
    decided settled_{};  // by the rounds that were observed
    decided now_{};      // by these and by the requests that were asked about last
};

template <class Schedule>
never_lose(Schedule, never_lose_options = {}) -> never_lose<Schedule, typename detail::cost_of<Schedule>::type>;

/// As safe as what it wraps: limits and floors are of past rounds.
template <class Schedule, class Cost>
inline constexpr bool enable_non_anticipating<never_lose<Schedule, Cost>> = enable_non_anticipating<Schedule>;

SURELEAP_END_NAMESPACE

// SPDX-License-Identifier: MIT
//
// Which limit of drafts pays: a function of what drafts offer (survival_profile), of who is there, and of the cost. In:
// these three, as a round_prospect. Out: for each limit the best throughput of a round, and the batch that has it.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>

#include <sureleap/concepts.hpp>
#include <sureleap/cost/views.hpp>
#include <sureleap/serving/draft_evidence.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace detail {

/// What a round with this limit comes to.
struct throughput_forecast {
    std::size_t limit = 0;        ///< positions that are drafted; 0: none
    fixed_probability worth = 0;  ///< candidates below are not worth a place in the batch
    double throughput = 0.0;      ///< expected (weighted) tokens per second
    double batch_tokens = 0.0;    ///< expected, with anchors
    double seconds = 0.0;         ///< of a step, replays included
    double rejections = 0.0;      ///< expected: requests whose drafts are not all accepted, by weight
};

/// The rounds to choose from.
struct throughput_forecasts {
    throughput_forecast plain{};  ///< without drafts
    throughput_forecast best{};   ///< the best with drafts
    throughput_forecast same{};   ///< with the limit of the last round

    [[nodiscard]] bool drafts_pay() const noexcept { return best.throughput > plain.throughput; }
    /// The one with most throughput, or `plain` if drafting has to wait. The last round's limit stays unless that gains
    /// more than the margin.
    [[nodiscard]] throughput_forecast const& choice(bool may_draft = true) const noexcept {
        throughput_forecast const& most = may_draft && drafts_pay() ? best : plain;
        return same.throughput >= (1.0 - never_lose_tuning::margin) * most.throughput ? same : most;
    }
};

/// Candidates of a round up to some position, by class of survival.
struct candidate_sums {
    double batch = 0.0;  ///< if all of them are verified
    std::array<double, survival_class::count> count{};
    std::array<double, survival_class::count> sum{};
    std::array<double, survival_class::count> rejected{};  ///< chains that end there, if all of them are verified
};

/// A round before anybody drafts. A view.
///
/// Ranks: the schedule fills a batch that it chooses with the best candidates. If not, it verifies what was drafted:
/// the batch is what chains come to, and a floor makes it vary.
template <bool Ranks, step_cost Cost>
struct round_prospect {
    Cost const& cost;
    survival_profile const& profile;
    step_load load;                 ///< without drafts
    double anchors;                 ///< weights of the requests: tokens of a round without drafts
    std::span<double const> open;   ///< [gamma] requests that may draft the position
    std::span<double const> trust;  ///< [gamma] tokens accepted at the position for each that survivals promise
    double replay;                  ///< seconds that it takes when a request's drafts are not all accepted

    [[nodiscard]] double seconds(step_load const& step) const noexcept {
        return 1.0 / static_cast<double>(curve_of(cost, step).steps_per_second(step.batch_tokens));
    }
    /// The load if all who may draft do so up to `limit`, but `fewer` of them.
    [[nodiscard]] step_load drafting(std::size_t limit, double fewer = 0.0) const noexcept {
        step_load step = load;
        double tokens = 0.0;
        for (std::size_t k = 0; k < limit; ++k) tokens += std::max(open[k] - fewer, 0.0);
        step.draft_tokens = static_cast<std::size_t>(tokens);
        step.drafting = limit == 0 ? 0 : static_cast<std::size_t>(std::max(open[0] - fewer, 0.0));
        return step;
    }

    /// The rounds to choose from, if `yield` of what is promised comes true and the last round's limit was `last`. Asks
    /// the cost some gamma x classes times.
    [[nodiscard]] throughput_forecasts forecast(double yield, std::size_t last) const noexcept {
        throughput_forecasts found{.plain = {0, certain, 0.0, requests(), seconds(load)}};
        found.plain.throughput = anchors / found.plain.seconds;
        found.same = found.plain;
        candidate_sums all{.batch = requests()};
        for (std::size_t k = 0; k < profile.block_size() && open[k] > 0.0; ++k) {
            add(all, k);
            throughput_forecast next = best(all, k + 1);
            next.throughput *= yield;
            if (next.throughput > found.best.throughput) found.best = next;
            if (next.limit == last) found.same = next;
        }
        return found;
    }
    [[nodiscard]] throughput_forecast at_limit(std::size_t limit) const noexcept {
        candidate_sums all{.batch = requests()};
        for (std::size_t k = 0; k < limit; ++k) add(all, k);
        return best(all, limit);
    }

    /// Tokens that drafting for one request of the round takes. With one request left it is the drafter's whole time.
    [[nodiscard]] double tokens_for_one(throughput_forecast const& choice) const noexcept {
        if (choice.limit == 0) return 0.0;
        double const drafts = seconds(drafting(choice.limit)) - seconds(drafting(choice.limit, 1.0));
        return choice.throughput * (drafts + replay * choice.rejections / open[0]);
    }
    /// Worth of a place in the batch by what its row takes. The worth in the forecast pays for replays as well, which
    /// tokens_for_one has already.
    [[nodiscard]] fixed_probability row_worth(throughput_forecast const& choice) const noexcept {
        double const rows = choice.batch_tokens - requests();
        if (choice.limit == 0 || rows <= 0.0) return 0;
        if (replay == 0.0) return choice.worth;
        step_load const without = drafting(choice.limit);
        step_load with = without;
        with.batch_tokens = static_cast<std::size_t>(std::ceil(choice.batch_tokens));
        double const row = choice.throughput * ((seconds(with) - seconds(without)) / std::ceil(rows));
        return std::min(choice.worth, static_cast<fixed_probability>(std::clamp(row, 0.0, 1.0) * 0x1p24));
    }
    /// Survival below which a chain ends, because its position would not be admitted.
    [[nodiscard]] fixed_probability chain_floor(throughput_forecast const& choice, bool probes) const noexcept {
        if (choice.limit == 0 || fewer_rows_take_longer(choice)) return 0;
        // A schedule that ranks finds the price of a place itself, and may find it lower. It knows no price of replays.
        double const whole = Ranks && replay == 0.0 ? never_lose_tuning::ranked_floor : 1.0;
        double const share = probes ? never_lose_tuning::probe_floor * whole : whole;
        return static_cast<fixed_probability>(share * static_cast<double>(choice.worth));
    }

private:
    [[nodiscard]] double requests() const noexcept { return static_cast<double>(load.requests); }

    /// Kernels that serve rows in groups take longer for a group that is not full. A chain cut short would then cost
    /// more than its last positions.
    [[nodiscard]] bool fewer_rows_take_longer(throughput_forecast const& choice) const noexcept {
        auto const& curve = curve_of(cost, drafting(choice.limit));
        auto const rate = [&](std::size_t b) { return static_cast<double>(curve.steps_per_second(b)); };
        auto const batch = static_cast<std::size_t>(std::ceil(choice.batch_tokens));
        double const least = never_lose_tuning::step_of_curve * rate(batch);
        for (std::size_t back = 1; back <= never_lose_tuning::group_rows && back + load.requests <= batch; ++back) {
            if (rate(batch - back) < least) return true;
        }
        return false;
    }

    void add(candidate_sums& all, std::size_t k) const noexcept {
        double const trust_before = k == 0 ? 1.0 : trust[k - 1];
        all.batch += open[k];
        for (std::size_t i = 0; i < survival_class::count; ++i) {
            survival_profile::cell const& c = profile.at(k, i);
            all.count[i] += open[k] * c.count;
            all.sum[i] += trust[k] * open[k] * c.sum;
            all.rejected[i] += open[k] * (trust_before * c.before - trust[k] * c.sum);
        }
    }

    /// The best batch along the classes from the likeliest on. Candidates of a class count alike. The curve may take a
    /// step anywhere, so a schedule that ranks is asked about every batch of a small round, and about `looks` of a
    /// large one.
    [[nodiscard]] throughput_forecast best(candidate_sums const& all, std::size_t limit) const noexcept {
        auto const& curve = curve_of(cost, drafting(limit));
        // In a round of few requests the classes lie between the same few batches. So the curve is asked once for each:
        // one that learns (refined_cost) takes longer to ask than the rest of the search.
        std::array<double, never_lose_tuning::looks> known{};  // from a batch without drafts on; 0: not asked yet
        auto const seconds_of_whole = [&](std::size_t size) {
            std::size_t const i = size - load.requests;
            if (i >= known.size()) return 1.0 / static_cast<double>(curve.steps_per_second(size));
            if (known[i] == 0.0) known[i] = 1.0 / static_cast<double>(curve.steps_per_second(size));
            return known[i];
        };
        auto const seconds_of = [&](double size) {  // between whole batches, a mixture of them
            auto const whole = static_cast<std::size_t>(size);
            double const low = seconds_of_whole(whole);
            double const above = size - static_cast<double>(whole);
            return above > 0.0 ? std::fma(above, seconds_of_whole(whole + 1) - low, low) : low;
        };
        throughput_forecast found{limit, certain, 0.0, requests(), seconds_of(requests())};
        found.throughput = anchors / found.seconds;
        auto const look = [&](double tokens, double rejections, double batch, double step, fixed_probability worth) {
            double const whole = std::fma(replay, std::max(rejections, 0.0), step);
            if (tokens > found.throughput * whole) {
                found = {limit, worth, tokens / whole, batch, whole, std::max(rejections, 0.0)};
            }
        };
        double batch = requests();
        double tokens = anchors;
        double rejections = 0.0;
        double const looks = static_cast<double>(never_lose_tuning::looks);
        double const stride = std::max(std::ceil((all.batch - requests()) / looks), 1.0);
        double at = requests() + stride;
        for (std::size_t i = survival_class::count; i-- > 0;) {
            if (all.count[i] <= 0.0) continue;
            double const each = std::min(all.sum[i] / all.count[i], 1.0);
            double const end = batch + all.count[i];
            for (; Ranks && at < end; at += stride) {
                double const rejected = rejections + (at - batch) * (all.rejected[i] / all.count[i]);
                look(tokens + (at - batch) * each, rejected, at, seconds_of(at), survival_class::least(i));
            }
            tokens += all.count[i] * each;
            rejections += all.rejected[i];
            batch = end;
            double const spread = Ranks ? 0.0 : never_lose_tuning::batch_deviations * std::sqrt(batch - requests());
            look(tokens, rejections, batch, seconds_of(batch + spread), survival_class::least(i));
        }
        if constexpr (!Ranks) {
            // All of it, without a floor. A chain is there or it is not, as where drafts are found: a mixture of both.
            double const most = all.batch - requests();
            double const share = most > 0.0 ? std::min((batch - requests()) / most, 1.0) : 0.0;
            double const none = seconds_of(requests());
            look(tokens, rejections, batch, std::fma(share, seconds_of(all.batch) - none, none), 0);
        }
        return found;
    }
};

}  // namespace detail
SURELEAP_END_NAMESPACE

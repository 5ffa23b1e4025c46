// SPDX-License-Identifier: MIT
//
// What drafts are worth. Learned from the rounds that were run: how many candidates of which survival a request offers
// at each position. Predicted from that: the best Theta of a round of any size.
//
// A histogram of survivals by position is all that a budget search looks at. So it predicts the best Theta of a round
// before anybody has drafted, for any number of requests and any limit on drafts. A jump in load is therefore answered
// at once: only what acceptance does has to be learned. Rejected: the observed throughput of past rounds, which says
// nothing of another load and confuses the load with the drafts.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cost/views.hpp>
#include <sureleap/round/record.hpp>
#include <sureleap/schedule/survival.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Survivals by value: eight classes to a factor of two, since what a token must be worth goes from nearly nothing on
/// an idle machine to nearly one; what is below 2^-8 shares the first class.
struct survival_class {
    static constexpr std::size_t count = 66;  ///< the last is certainty alone

    [[nodiscard]] static constexpr std::size_t of(fixed_probability survival) noexcept {
        if (survival < (certain >> 8)) return 0;
        auto const octave = static_cast<std::size_t>(std::bit_width(survival)) - 17;  // of 2^-8: 0
        return 1 + 8 * octave + ((survival >> (octave + 13)) & 7u);
    }
    /// The least survival of a class.
    [[nodiscard]] static constexpr fixed_probability least(std::size_t index) noexcept {
        if (index == 0) return 0;
        std::size_t const octave = (index - 1) / 8;
        return static_cast<fixed_probability>((8 + (index - 1) % 8) << (octave + 13));
    }
};

/// A choice of how to draft, and what it promises.
struct draft_forecast {
    std::size_t limit = 0;        ///< positions that are drafted; 0: none
    fixed_probability worth = 0;  ///< candidates below are not worth a place in the batch
    double throughput = 0.0;      ///< expected (weighted) tokens per second
    double batch_tokens = 0.0;    ///< expected, with anchors
    double seconds = 0.0;         ///< of a step, replays included
    double rejections = 0.0;      ///< expected: requests whose drafts are not all accepted, by weight
};

/// Learned survivals. Memory is allocated at construction; observing costs O(R gamma + gamma classes).
class survival_profile {
public:
    /// Of no positions: it has nothing to learn and nothing to tell.
    survival_profile() = default;
    /// Until rounds say otherwise every position is taken to survive with `prior`, given that the one before did.
    survival_profile(std::size_t block_size, double prior) : block_size_(block_size), cells_(block_size * classes) {
        if (block_size == 0) fail_with("survival_profile: block_size is 0, expected the drafter's gamma");
        fixed_probability c = 0;
        if (!quantise(prior, c)) {
            fail_with("survival_profile: prior confidence is ", prior, ", expected a number in [0, 1]");
        }
        fixed_probability survival = certain;
        for (std::size_t k = 0; k < block_size; ++k) {
            double const before = static_cast<double>(survival) * 0x1p-24;
            survival = extend_survival(survival, c);
            for (std::size_t i = 0; i < classes; ++i) cells_[k * classes + i].seen = 2.0;  // the weight of two requests
            cell& likely = cells_[k * classes + survival_class::of(survival)];
            likely.count = 1.0;
            likely.sum = static_cast<double>(survival) * 0x1p-24;
            likely.before = before;
        }
        offered_.resize(block_size);
    }

    [[nodiscard]] std::size_t block_size() const noexcept { return block_size_; }

    /// Of position k, over all requests that may draft it.
    [[nodiscard]] double mean_survival(std::size_t k) const noexcept {
        double sum = 0.0;
        for (std::size_t i = 0; i < classes; ++i) sum += cells_[k * classes + i].sum;
        return sum;
    }

    /// Takes in a round whose chains ended before survivals below `floor`. Its requests replace at most what `memory`
    /// of them would have taught.
    ///
    /// Where nobody looked, nothing is learned: positions beyond a request's cap, and classes that the floor cuts off,
    /// keep what they have. Taking their absence for zero would make every limit its own justification.
    void observe(round_record const& record, fixed_probability floor, double memory) noexcept {
        std::fill(offered_.begin(), offered_.end(), 0.0);
        for (std::size_t r = 0; r < record.requests.size(); ++r) {
            if (!record.tells_of_model(r)) continue;
            std::size_t const cap = record.requests[r].draft_cap(block_size_);
            for (std::size_t k = 0; k < cap; ++k) offered_[k] += 1.0;
        }
        std::size_t const first = floor == 0 ? 0 : survival_class::of(floor - 1) + 1;  // classes all above the floor
        for (std::size_t k = 0; k < block_size_; ++k) {
            if (offered_[k] == 0.0) continue;
            for (std::size_t i = first; i < classes; ++i) {
                cell& c = cells_[k * classes + i];
                double const keep = c.seen / (c.seen + offered_[k]);
                c.count *= keep;
                c.sum *= keep;
                c.before *= keep;
                c.share = 1.0 / (c.seen + offered_[k]);
                c.seen = std::min(c.seen + offered_[k], memory);
            }
        }
        for (std::size_t r = 0; r < record.requests.size(); ++r) {
            if (!record.tells_of_model(r)) continue;
            std::size_t const cap =
                std::min<std::size_t>(record.survivals.sizes[r], record.requests[r].draft_cap(block_size_));
            fixed_probability before = record.requests[r].weight;
            for (std::size_t k = 0; k < cap; ++k) {
                fixed_probability const a = record.survivals.survival[r * record.survivals.block_size + k];
                std::size_t const i = survival_class::of(a);
                if (i >= first) {
                    cell& c = cells_[k * classes + i];
                    c.count += c.share;
                    c.sum += c.share * static_cast<double>(a) * 0x1p-24;
                    c.before += c.share * static_cast<double>(before) * 0x1p-24;
                }
                before = a;
            }
        }
    }

    /// The best that a round can do. `anchors`: the requests' weights in all, the tokens of a round without drafts.
    /// `open[k]`: requests that may draft position k. `trust[k]`: tokens accepted at position k for each that survivals
    /// promise. `replay`: seconds that it takes when a request's drafts are not all accepted. price(limit) -> the
    /// round's curve with drafts of that length, a capacity_curve. Tells of every limit from 1 to gamma what it finds:
    /// visit(draft_forecast). Some classes x gamma questions to the curve.
    ///
    /// Ranks: the schedule fills a batch that it chooses with the best candidates. If not, it verifies what was
    /// drafted: the batch is what chains come to, and a floor makes it vary.
    template <bool Ranks, class Price, class Visit>
    void for_each_limit(double anchors, std::size_t requests, std::span<double const> open,
                        std::span<double const> trust, double replay, Price const& price,
                        Visit&& visit) const noexcept {
        sums all{.batch = static_cast<double>(requests)};
        for (std::size_t k = 0; k < block_size_ && open[k] > 0.0; ++k) {
            add(all, k, open[k], trust);
            auto const& curve = price(k + 1);
            visit(best<Ranks>(anchors, static_cast<double>(requests), all, k + 1, replay, curve));
        }
    }
    /// The same for one limit.
    template <bool Ranks, capacity_curve Curve>
    [[nodiscard]] draft_forecast at_limit(std::size_t limit, double anchors, std::size_t requests,
                                          std::span<double const> open, std::span<double const> trust, double replay,
                                          Curve const& curve) const noexcept {
        sums all{.batch = static_cast<double>(requests)};
        for (std::size_t k = 0; k < limit; ++k) add(all, k, open[k], trust);
        return best<Ranks>(anchors, static_cast<double>(requests), all, limit, replay, curve);
    }

private:
    static constexpr std::size_t classes = survival_class::count;
    static constexpr std::size_t looks = 64;  // a stair's end is missed by at most 1/64 of the drafts

    /// Per request that may draft the position: candidates of the class, the sum of their survivals, and of the
    /// survivals of the positions before them. In trees these are not the parents': no target that replays scores
    /// trees.
    struct cell {
        double count = 0.0;
        double sum = 0.0;
        double before = 0.0;
        double seen = 0.0;   ///< requests behind it
        double share = 0.0;  ///< what one more counts for
    };

    /// Candidates of a round up to some position, by class.
    struct sums {
        double batch = 0.0;  ///< if all of them are verified
        std::array<double, classes> count{};
        std::array<double, classes> sum{};
        std::array<double, classes> rejected{};  ///< chains that end there, if all of them are verified
    };
    void add(sums& all, std::size_t k, double open, std::span<double const> trust) const noexcept {
        all.batch += open;
        double const trust_before = k == 0 ? 1.0 : trust[k - 1];
        for (std::size_t i = 0; i < classes; ++i) {
            cell const& c = cells_[k * classes + i];
            all.count[i] += open * c.count;
            all.sum[i] += trust[k] * open * c.sum;
            all.rejected[i] += open * (trust_before * c.before - trust[k] * c.sum);
        }
    }

    /// What a curve says of a round. In a round of few requests the classes lie between the same few batches, so
    /// answers are kept: a curve that learns (refined_cost) takes longer to ask than the rest of the search.
    template <capacity_curve Curve>
    class answers {
    public:
        answers(Curve const& curve, std::size_t requests) noexcept : curve_(curve), first_(requests) {}

        /// Seconds of a batch of so many tokens in the mean: between whole batches, a mixture of them.
        [[nodiscard]] double seconds(double batch) noexcept {
            auto const whole = static_cast<std::size_t>(batch);
            double const low = seconds_of(whole);
            double const above = batch - static_cast<double>(whole);
            return above > 0.0 ? std::fma(above, seconds_of(whole + 1) - low, low) : low;
        }

    private:
        static constexpr std::size_t kept = 64;

        [[nodiscard]] double seconds_of(std::size_t batch) noexcept {
            std::size_t const i = batch - first_;
            if (i >= seconds_.size()) return 1.0 / static_cast<double>(curve_.steps_per_second(batch));
            if (seconds_[i] == 0.0) seconds_[i] = 1.0 / static_cast<double>(curve_.steps_per_second(batch));
            return seconds_[i];
        }

        Curve const& curve_;
        std::size_t first_;
        std::array<double, kept> seconds_{};  // of first_, first_ + 1, ..; 0: not asked yet
    };

    /// The best batch along the classes from the likeliest on. Candidates of a class count alike. Theta is looked at
    /// where a class ends and, since the curve may take a step anywhere, at every batch of a small round, at `looks` of
    /// a large one.
    template <bool Ranks, capacity_curve Curve>
    [[nodiscard]] static draft_forecast best(double anchors, double requests, sums const& all, std::size_t limit,
                                             double replay, Curve const& asked) noexcept {
        answers<Curve> curve{asked, static_cast<std::size_t>(requests)};
        draft_forecast found{limit, certain, 0.0, requests, curve.seconds(requests)};
        found.throughput = anchors / found.seconds;
        auto const look = [&](double tokens, double rejections, double batch, double step, fixed_probability worth) {
            double const seconds = std::fma(replay, std::max(rejections, 0.0), step);
            if (tokens > found.throughput * seconds) {
                found = {limit, worth, tokens / seconds, batch, seconds, std::max(rejections, 0.0)};
            }
        };
        double batch = requests;
        double tokens = anchors;
        double rejections = 0.0;
        double const stride = std::max(std::ceil((all.batch - requests) / static_cast<double>(looks)), 1.0);
        double at = requests + stride;
        for (std::size_t i = classes; i-- > 0;) {
            if (all.count[i] <= 0.0) continue;
            double const each = std::min(all.sum[i] / all.count[i], 1.0);
            double const end = batch + all.count[i];
            if constexpr (Ranks) {
                for (; at < end; at += stride) {
                    double const rejected = rejections + (at - batch) * (all.rejected[i] / all.count[i]);
                    look(tokens + (at - batch) * each, rejected, at, curve.seconds(at), survival_class::least(i));
                }
            }
            tokens += all.count[i] * each;
            rejections += all.rejected[i];
            batch = end;
            // What nobody holds to a size comes out larger or smaller, by about the root: stairs have to be kept off.
            double const paid = Ranks ? batch : batch + 2.0 * std::sqrt(batch - requests);
            look(tokens, rejections, batch, curve.seconds(paid), survival_class::least(i));
        }
        if constexpr (!Ranks) {
            // All of it, without a floor. A chain is there or it is not, as where drafts are found: a mixture of both.
            double const most = all.batch - requests;
            double const share = most > 0.0 ? std::min((batch - requests) / most, 1.0) : 0.0;
            double const none = curve.seconds(requests);
            look(tokens, rejections, batch, std::fma(share, curve.seconds(all.batch) - none, none), 0);
        }
        return found;
    }

    std::size_t block_size_ = 0;
    std::vector<cell> cells_;      // [gamma, classes]
    std::vector<double> offered_;  // [gamma] requests of the round that were to draft the position
};

SURELEAP_END_NAMESPACE

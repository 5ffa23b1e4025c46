// SPDX-License-Identifier: MIT
//
// What rounds have taught about drafts: which survivals requests offer at each position (survival_profile), how many
// tokens are accepted for each that survivals promise (draft_trust), and how much of the promised throughput the
// schedule reaches (schedule_yield).
//
// All three hold at any load, and what a round of another load comes to is computed from them
// (throughput_forecast.hpp). So only what acceptance does has to be learned. Rejected: the throughput of past rounds,
// which says nothing of another load.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/round/record.hpp>
#include <sureleap/schedule/survival.hpp>
#include <sureleap/serving/never_lose_tuning.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace detail {

/// A survival or a weight as a number, 1 for certain.
[[nodiscard]] inline double unit(fixed_probability p) noexcept {
    return static_cast<double>(p) * 0x1p-24;
}

/// Survivals by value: eight classes to a factor of two. What a token must be worth goes from nearly nothing on an idle
/// machine to nearly one. Survivals below 2^-8 share the first class.
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

/// Learned survivals. Memory is allocated at construction. Observing costs O(R gamma + gamma classes).
class survival_profile {
public:
    /// Of one position and class, per request that may draft the position: candidates, the sum of their survivals, and
    /// of the survivals of the positions before them. In trees these are not the parents': no target that replays
    /// scores trees.
    struct cell {
        double count = 0.0;
        double sum = 0.0;
        double before = 0.0;
        double seen = 0.0;   ///< requests behind it
        double share = 0.0;  ///< what one more counts for
    };

    /// Of no positions: it has nothing to learn and nothing to tell.
    survival_profile() = default;
    /// Until rounds say otherwise every position is taken to survive with `prior`, in [0, 1], given that the one before
    /// did.
    survival_profile(std::size_t block_size, double prior) : block_size_(block_size), cells_(block_size * classes) {
        fixed_probability c = 0;
        (void)quantise(prior, c);
        fixed_probability survival = certain;
        for (std::size_t k = 0; k < block_size; ++k) {
            double const before = unit(survival);
            survival = extend_survival(survival, c);
            for (std::size_t i = 0; i < classes; ++i) at(k, i).seen = never_lose_tuning::prior_requests;
            cell& likely = at(k, survival_class::of(survival));
            likely.count = 1.0;
            likely.sum = unit(survival);
            likely.before = before;
        }
        offered_.resize(block_size);
    }

    [[nodiscard]] std::size_t block_size() const noexcept { return block_size_; }
    [[nodiscard]] cell const& at(std::size_t k, std::size_t i) const noexcept { return cells_[k * classes + i]; }

    /// Mean survival at position k of all requests that may draft it.
    [[nodiscard]] double mean_survival(std::size_t k) const noexcept {
        double sum = 0.0;
        for (std::size_t i = 0; i < classes; ++i) sum += at(k, i).sum;
        return sum;
    }

    /// Takes in a round whose chains ended before survivals below `floor`. Its requests replace at most what `memory`
    /// of them would have taught.
    ///
    /// Where nobody looked, nothing is learned. Positions beyond a request's cap and classes that the floor cuts off
    /// keep what they have. If their absence counted as zero, every limit would justify itself.
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
                cell& c = at(k, i);
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
                    cell& c = at(k, i);
                    c.count += c.share;
                    c.sum += c.share * unit(a);
                    c.before += c.share * unit(before);
                }
                before = a;
            }
        }
    }

private:
    static constexpr std::size_t classes = survival_class::count;

    [[nodiscard]] cell& at(std::size_t k, std::size_t i) noexcept { return cells_[k * classes + i]; }

    std::size_t block_size_ = 0;
    std::vector<cell> cells_;      // [gamma, classes]
    std::vector<double> offered_;  // [gamma] requests of the round that were to draft the position
};

/// Tokens accepted at each position for each that survivals promised: 1 where confidences are calibrated. Memory is
/// allocated at construction. Observing costs O(R gamma).
class draft_trust {
public:
    draft_trust() = default;
    explicit draft_trust(std::size_t block_size)
        : accepted_(block_size, never_lose_tuning::believed), promised_(accepted_), ratios_(block_size, 1.0) {}

    [[nodiscard]] std::span<double const> ratios() const noexcept { return ratios_; }

    /// The sums go back `memory` promised tokens where everybody drafts, up to `limit`, and `beyond` where only probers
    /// do.
    void observe(round_record const& record, std::size_t limit, double memory, double beyond) noexcept {
        for (std::size_t k = 0; k < ratios_.size(); ++k) {
            double accepted = 0.0;
            double promised = 0.0;
            for (std::size_t r = 0; r < record.requests.size(); ++r) {
                verdict const& v = record.verdicts[r];
                if (!record.tells_of_model(r) || v.verified <= k) continue;
                promised += unit(record.survivals.at(r, k).survival);
                if (v.kept(k)) accepted += unit(record.requests[r].weight);
            }
            double const keep = 1.0 - promised / (promised + (k < limit ? memory : beyond));
            accepted_[k] = std::fma(accepted_[k], keep, accepted);
            promised_[k] = std::fma(promised_[k], keep, promised);
            ratios_[k] = accepted_[k] / promised_[k];
        }
    }

    /// Tokens that a round was worth. Expectations are less of a gamble than tokens. `anchors`: those without drafts.
    [[nodiscard]] double tokens(round_record const& record, double anchors) const noexcept {
        double sum = anchors;
        for (std::size_t r = 0; r < record.requests.size(); ++r) {
            if (record.verdicts[r].ended_in_draft()) sum -= unit(record.requests[r].weight);
            for (std::size_t k = 0; k < record.verdicts[r].verified; ++k) {
                sum = std::fma(ratios_[k] * 0x1p-24, static_cast<double>(record.survivals.at(r, k).survival), sum);
            }
        }
        return sum;
    }
    /// Requests whose drafts were not all accepted, by weight, in expectation.
    [[nodiscard]] double rejections(round_record const& record) const noexcept {
        double sum = 0.0;
        for (std::size_t r = 0; r < record.requests.size(); ++r) {
            std::size_t const l = record.verdicts[r].verified;
            if (l == 0) continue;
            sum += unit(record.requests[r].weight) - ratios_[l - 1] * unit(record.survivals.at(r, l - 1).survival);
        }
        return std::max(sum, 0.0);
    }

private:
    std::vector<double> accepted_;  // [gamma], and what survivals promised
    std::vector<double> promised_;
    std::vector<double> ratios_;
};

/// What the schedule makes of drafts, of what the best batch would: low for one that a cliff of the curve stops. The
/// sums count throughputs of plain decoding. They begin as if promises had been kept so far: one poor round is chance.
class schedule_yield {
public:
    [[nodiscard]] double value() const noexcept { return std::min(reached_ / promised_, 1.0); }
    /// Forgets what came of another load: a cliff is where it is at one.
    void at_load(double requests) noexcept {
        if (std::abs(requests - requests_) <= never_lose_tuning::same_load * requests_) return;
        *this = {};
        requests_ = requests;
    }
    /// A round in which the model drafted for all.
    void observe(double promised, double reached) noexcept {
        double const keep = 1.0 - 1.0 / never_lose_tuning::yield_rounds;
        promised_ = std::fma(keep, promised_, promised);
        reached_ = std::fma(keep, reached_, reached);
    }
    /// A round in which nobody drafted. It tells nothing of the schedule, but nothing is held against one forever.
    void forgive() noexcept { reached_ = std::fma(never_lose_tuning::forgiven, promised_ - reached_, reached_); }

private:
    double reached_ = never_lose_tuning::yield_rounds;
    double promised_ = never_lose_tuning::yield_rounds;
    double requests_ = 0.0;
};

}  // namespace detail
SURELEAP_END_NAMESPACE

// SPDX-License-Identifier: MIT
//
// What is not drafted cannot be learned from, so some requests draft further from time to time. When they do is a
// function of rounds and of what probes cost (probe_schedule), who they are a function of whose turn it is and of what
// each of them costs (probe_line).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/serving/never_lose_tuning.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace detail {

/// Requests that probe at once.
[[nodiscard]] constexpr std::size_t probers_of(std::size_t requests) noexcept {
    using tuning = never_lose_tuning;
    return std::min(requests, std::clamp(requests / tuning::probing_part, tuning::least_probers, tuning::most_probers));
}
/// How far they draft. A schedule that does not rank verifies all of it, and has to feel its way.
[[nodiscard]] constexpr std::size_t probed_limit(std::size_t limit, std::size_t block_size, bool ranks) noexcept {
    return ranks ? block_size : std::min(block_size, limit + never_lose_tuning::steps_ahead);
}

/// What a round gives for and against a probe.
struct probe_terms {
    bool hides = false;   ///< a limit or a floor hides something
    bool drafts = false;  ///< requests draft without a probe, too
    bool near = false;    ///< the best drafts nearly pay
    double cost = 0.0;    ///< of a probe by the cost model, as a share of the round
    double share = 0.0;   ///< of the throughput that probes may cost
};

/// When rounds probe. The first that hides something does.
class probe_schedule {
    using tuning = never_lose_tuning;

public:
    /// The running round probes.
    [[nodiscard]] bool running() const noexcept { return running_; }
    /// Whose turn it is.
    [[nodiscard]] std::size_t cursor() const noexcept { return cursor_; }

    /// Rounds from the last probe to the next.
    [[nodiscard]] double period(probe_terms const& t) const noexcept {
        if (!t.hides) return never;
        double const paid_for = std::ceil(std::max(cost_, t.cost) / t.share);
        double const rounds =
            static_cast<double>(1 + again_) * std::clamp(paid_for, tuning::least_period, tuning::longest_period);
        // Hard passages end. What was turned off is looked at soon, and half as often each time that it was in vain.
        return t.drafts ? rounds : std::min({rounds, std::ldexp(tuning::least_period, vain_), tuning::longest_period});
    }
    /// Begins a round. True: a probe is due, if somebody can be asked.
    [[nodiscard]] bool begin(probe_terms const& t) noexcept {
        ++since_;
        if (t.hides && t.drafts) vain_ = 0;
        bool const repeats = t.hides && !t.drafts && running_ && t.near && again_ < tuning::most_again;
        running_ = false;
        period_ = repeats ? 0.0 : period(t);
        if (repeats) ++again_;
        bool const due = static_cast<double>(since_) >= period_;
        if (due && t.hides && !repeats) again_ = 0;
        return due;
    }
    /// The probe has waited once more as long as its period.
    [[nodiscard]] bool has_waited() const noexcept { return static_cast<double>(since_) >= tuning::waits * period_; }
    /// Rounds' time that arrears of probers may take: a share of the time since the probe was due. As probes, more at
    /// first.
    [[nodiscard]] double arrears_paid(double share) const noexcept {
        return share * std::max(std::ldexp(tuning::first_share, -vain_), 1.0) * (static_cast<double>(since_) - period_);
    }
    /// So many requests are asked.
    void start(probe_terms const& t, std::size_t probers) noexcept {
        if (probers == 0) return;
        running_ = true;
        since_ = 0;
        cursor_ += probers;
        if (!t.drafts && again_ == 0) ++vain_;
    }

    /// A probe took so many tokens of each request, beyond what its own were worth.
    void observe(double lost) noexcept { cost_ = std::midpoint(cost_, std::max(lost, 0.0)); }
    /// A probe told nothing: the next round probes.
    void failed() noexcept { since_ = never; }

private:
    static constexpr std::size_t never = std::size_t{1} << 20;

    bool running_ = false;
    std::size_t since_ = never;  // rounds since the last probe
    std::size_t again_ = 0;      // probes in a row
    std::size_t cursor_ = 0;
    int vain_ = 0;         // probes since drafting was turned off
    double cost_ = 0.0;    // by what the last probes came to
    double period_ = 0.0;  // of the running round
};

/// Who drafts beyond the limit in a round that probes. Memory is allocated at construction.
class probe_line {
public:
    probe_line() = default;
    explicit probe_line(std::size_t max_requests) : is_in_(max_requests) { line_.reserve(max_requests); }
    void clear() noexcept { std::fill(is_in_.begin(), is_in_.end(), std::uint8_t{0}); }
    /// Request r of the round probes.
    [[nodiscard]] bool has(std::size_t r) const noexcept { return is_in_[r] != 0; }

    /// Chooses the first `most` from request `first` on, if `pays` seconds cover what they cost, price_of(request)
    /// each. If not, and `cheapest` says so, as many of the cheapest as these seconds cover. Returns how many.
    template <class Price>
    [[nodiscard]] std::size_t pick(std::span<request_view const> requests, std::size_t first, std::size_t most,
                                   double pays, bool cheapest, Price const& price_of) noexcept {
        auto const request = [&](std::uint32_t turn) { return (first + turn) % requests.size(); };
        auto const price = [&](std::uint32_t turn) { return price_of(requests[request(turn)]); };
        auto const covered = [&] {
            double sum = 0.0;
            std::size_t count = 0;
            for (; count < most; ++count) {
                sum += price(line_[count]);
                if (sum > std::max(pays, 0.0)) break;
            }
            return count;
        };
        line_.resize(requests.size());
        std::iota(line_.begin(), line_.end(), 0u);
        std::size_t count = covered();
        if (count < most) {
            if (!cheapest) return 0;
            std::sort(line_.begin(), line_.end(), [&](std::uint32_t a, std::uint32_t b) {
                return std::pair{price(a), a} < std::pair{price(b), b};
            });
            count = covered();
        }
        for (std::size_t i = 0; i < count; ++i) is_in_[request(line_[i])] = 1;
        return count;
    }

private:
    std::vector<std::uint8_t> is_in_;  // [R]
    std::vector<std::uint32_t> line_;  // [R] turns, those who would probe first in front
};

}  // namespace detail
SURELEAP_END_NAMESPACE

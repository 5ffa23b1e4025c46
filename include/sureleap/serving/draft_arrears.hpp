// SPDX-License-Identifier: MIT
//
// What drafting, and pausing it, leaves to be paid later. A draft model with a cache of its own reads what it has
// missed before it drafts again (request_view::unread). A target that cannot take drafts back for nothing decodes again
// what was accepted before a rejection (request_view::replays). Where a cost model has prices for these, never_lose
// reckons with them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/serving/draft_forecast.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace detail {

/// Tokens that a request's draft has missed. The last one of a chain that was accepted to its end is none of them:
/// every draft reads it, in a pass that it makes anyway.
[[nodiscard]] inline std::uint64_t owed_tokens(request_view const& r) noexcept {
    return r.unread > 1 ? r.unread : 0;
}

/// Seconds of arrears in a round, and how many there are.
struct arrears_prices {
    double read = 0.0;         ///< of a token
    double replay = 0.0;       ///< of a request
    std::uint64_t unread = 0;  ///< tokens of all requests

    /// `seconds(load)`: of a step. `load`: of this round, without drafts.
    template <class Seconds>
    [[nodiscard]] static arrears_prices of(std::span<request_view const> requests, step_load load,
                                           Seconds const& seconds) noexcept {
        arrears_prices prices;
        double const plain = seconds(load);
        load.replays = 1;
        prices.replay = seconds(load) - plain;
        for (request_view const& r : requests) prices.unread += owed_tokens(r);
        if (prices.unread == 0) return prices;
        load = {.requests = load.requests,
                .batch_tokens = load.batch_tokens,
                .drafting = 1,
                .draft_tokens = 1,
                .context_tokens = load.context_tokens};
        double const drafting = seconds(load);
        load.unread_tokens = prices.unread;
        prices.read = (seconds(load) - drafting) / static_cast<double>(prices.unread);
        return prices;
    }

    [[nodiscard]] double of_request(request_view const& r) const noexcept {
        return read * static_cast<double>(owed_tokens(r));
    }
    [[nodiscard]] double of_all() const noexcept { return read * static_cast<double>(unread); }
    /// What the request's drafts save until its end does not pay for what has to be read before.
    [[nodiscard]] bool outlast(request_view const& r, draft_forecast const& drafting,
                               draft_forecast const& plain) const noexcept {
        double const price = of_request(r);
        double const saved = 1.0 / plain.throughput - 1.0 / drafting.throughput;  // a token
        return price > 0.0 && saved > 0.0 && price > saved * static_cast<double>(r.remaining);
    }
};

/// When drafting comes back after it was turned off: once being without it has cost what a return costs that proves
/// wrong after a round, all that is read and replayed. Each return that was over before it had paid for that doubles
/// what the next one waits for, since forecasts then come from few probes.
class draft_return {
public:
    /// While nobody drafts, in every round. `price`: seconds of a return.
    [[nodiscard]] bool is_due(draft_forecast const& best, draft_forecast const& plain, double price) noexcept {
        saved_ = best.limit == 0 ? 0.0 : saved_ + saving(best, plain);
        if (saved_ < std::ldexp(price, vain_)) return false;
        if (best.limit > 0) saved_ = -price;
        return true;
    }
    /// Once a round is decided. `drafted`: the one before.
    void settle(bool drafted, draft_forecast const& choice, draft_forecast const& plain) noexcept {
        if (choice.limit > 0) {
            if (drafted) saved_ += saving(choice, plain);
            return;
        }
        if (drafted) vain_ = saved_ < 0.0 ? std::min(vain_ + 1, 10) : 0;
        saved_ = std::max(saved_, 0.0);
    }

private:
    /// Seconds of a round.
    [[nodiscard]] static double saving(draft_forecast const& drafting, draft_forecast const& plain) noexcept {
        return plain.seconds * (drafting.throughput / plain.throughput - 1.0);
    }

    double saved_ = 0.0;  // by drafting, less what its return cost; or, while nobody drafts, not saved
    int vain_ = 0;        // returns in a row that did not pay for themselves
};

/// Who drafts beyond the limit in a round that probes. Memory is allocated in set_up.
class probe_line {
public:
    void set_up(std::size_t max_requests) {
        is_in_.assign(max_requests, 0);
        line_.reserve(max_requests);
    }
    void clear() noexcept { std::fill(is_in_.begin(), is_in_.end(), std::uint8_t{0}); }
    /// Request r of the round probes.
    [[nodiscard]] bool has(std::size_t r) const noexcept { return is_in_[r] != 0; }

    /// The first `most` from `first` on, if what they cost is paid for: price_of(request) seconds each, `pays` in all.
    /// If not, and `cheapest` says so, as many of the cheapest as are; those that cost nothing always are. Returns how
    /// many.
    template <class Price>
    [[nodiscard]] std::size_t pick(std::span<request_view const> requests, std::size_t first, std::size_t most,
                                   double pays, bool cheapest, Price const& price_of) noexcept {
        std::size_t const n = requests.size();
        line_.clear();
        for (std::size_t i = 0; i < n; ++i) line_.push_back(static_cast<std::uint32_t>((first + i) % n));
        auto const affordable = [&] {
            double price = 0.0;
            std::size_t count = 0;
            for (; count < most; ++count) {
                price += price_of(requests[line_[count]]);
                if (price > std::max(pays, 0.0)) break;
            }
            return count;
        };
        std::size_t count = affordable();
        if (count < most && cheapest) {
            auto const place = [&](std::uint32_t r) { return (r + n - first % n) % n; };
            std::sort(line_.begin(), line_.end(), [&](std::uint32_t a, std::uint32_t b) {
                double const of_a = price_of(requests[a]);
                double const of_b = price_of(requests[b]);
                return of_a != of_b ? of_a < of_b : place(a) < place(b);
            });
            count = affordable();
        } else if (count < most) {
            count = 0;
        }
        for (std::size_t i = 0; i < count; ++i) is_in_[line_[i]] = 1;
        return count;
    }

private:
    std::vector<std::uint8_t> is_in_;  // [R]
    std::vector<std::uint32_t> line_;  // [R] requests, those who would probe first in front
};

}  // namespace detail
SURELEAP_END_NAMESPACE

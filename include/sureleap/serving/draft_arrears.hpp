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

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/serving/throughput_forecast.hpp>

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

    template <class Prospect>
    [[nodiscard]] static arrears_prices of(std::span<request_view const> requests, Prospect const& round) noexcept {
        arrears_prices prices;
        step_load load = round.load;
        load.replays = 1;
        prices.replay = round.seconds(load) - round.seconds(round.load);
        for (request_view const& r : requests) prices.unread += owed_tokens(r);
        if (prices.unread == 0) return prices;
        load.replays = 0;
        load.drafting = load.draft_tokens = 1;
        double const drafting = round.seconds(load);
        load.unread_tokens = prices.unread;
        prices.read = (round.seconds(load) - drafting) / static_cast<double>(prices.unread);
        return prices;
    }

    [[nodiscard]] double of_request(request_view const& r) const noexcept {
        return read * static_cast<double>(owed_tokens(r));
    }
    [[nodiscard]] double of_all() const noexcept { return read * static_cast<double>(unread); }
    /// What the request's drafts save until its end does not pay for what has to be read before.
    [[nodiscard]] bool outlast(request_view const& r, throughput_forecast const& drafting,
                               throughput_forecast const& plain) const noexcept {
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
    [[nodiscard]] bool is_due(throughput_forecasts const& found, double price) noexcept {
        saved_ = found.drafts_pay() ? saved_ + saving(found.best, found.plain) : 0.0;
        if (saved_ < std::ldexp(price, vain_)) return false;
        if (found.drafts_pay()) saved_ = -price;
        return true;
    }
    /// Once a round is decided. `drafted`: the one before.
    void settle(bool drafted, throughput_forecast const& choice, throughput_forecast const& plain) noexcept {
        if (choice.limit > 0) {
            if (drafted) saved_ += saving(choice, plain);
            return;
        }
        if (drafted) vain_ = saved_ < 0.0 ? vain_ + 1 : 0;
        saved_ = std::max(saved_, 0.0);
    }

private:
    /// Seconds of a round.
    [[nodiscard]] static double saving(throughput_forecast const& drafting, throughput_forecast const& plain) noexcept {
        return plain.seconds * (drafting.throughput / plain.throughput - 1.0);
    }

    double saved_ = 0.0;  // by drafting, less what its return cost; or, while nobody drafts, not saved
    int vain_ = 0;        // returns in a row that did not pay for themselves
};

}  // namespace detail
SURELEAP_END_NAMESPACE

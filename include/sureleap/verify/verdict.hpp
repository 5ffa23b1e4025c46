// SPDX-License-Identifier: MIT
//
// The outcome of a round for one request.
#pragma once

#include <cstddef>
#include <span>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Accepted is not emitted: a stop token inside the accepted prefix ends emission, and the correction or bonus is
/// emitted without having been drafted. Views point into round memory and are valid until the next round.
struct verdict {
    request_id id = 0;
    std::size_t slot = 0;
    status outcome = status::ok;                  ///< anything else: nothing emitted, the request's state is unchanged
    std::size_t drafted = 0;                      ///< tokens in the block
    std::size_t verified = 0;                     ///< l, tokens scored by the target besides the anchor
    std::size_t accepted = 0;                     ///< kept by the rule, 0 .. l
    std::span<token_id const> emitted{};          ///< new tokens of the sequence; the last one is the next anchor
    bool stopped = false;                         ///< the last emitted token is a stop token
    std::span<double const> log_probabilities{};  ///< log p of each emitted token, if the request asked for them

    /// x_0 of the next round, or no_token if nothing was emitted.
    [[nodiscard]] token_id next_anchor() const noexcept { return emitted.empty() ? no_token : emitted.back(); }
};

SURELEAP_END_NAMESPACE

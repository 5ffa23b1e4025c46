// SPDX-License-Identifier: MIT
//
// Outputs beside those of plain decoding, token by token.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <engine/parts.hpp>
#include <sureleap/sureleap.hpp>

namespace evaluate {

/// Whether outputs under these settings are the same tokens whatever is drafted, and not only of the same law.
[[nodiscard]] inline bool is_reproducible(sureleap::transform const& sampling, sureleap::any_rule const& rule) {
    return sampling.greedy() || rule.traits().guarantee == sureleap::fidelity::pathwise;
}

/// Where the first `tokens` tokens of two outputs part, if they do.
[[nodiscard]] inline std::optional<std::size_t> parting(std::span<sureleap::token_id const> x,
                                                        std::span<sureleap::token_id const> y, std::size_t tokens) {
    x = x.first(std::min(x.size(), tokens));
    y = y.first(std::min(y.size(), tokens));
    auto const at = std::ranges::mismatch(x, y);
    if (at.in1 == x.end() && at.in2 == y.end()) return std::nullopt;
    return static_cast<std::size_t>(at.in1 - x.begin());
}

/// Throws at the first of the first `tokens` tokens of a text that is not as expected. `who` decoded it, and name(i) is
/// what the i-th text is called.
template <class Name>
void expect_same(std::string const& who, std::span<std::vector<sureleap::token_id> const> outputs,
                 std::span<std::vector<sureleap::token_id> const> expected, std::size_t tokens, Name const& name) {
    for (std::size_t i = 0; i < outputs.size(); ++i) {
        auto const& x = outputs[i];
        auto const& y = expected[i];
        auto const at = parting(x, y, tokens);
        if (!at) continue;
        auto const shown = [&](std::vector<sureleap::token_id> const& of) {
            return *at < std::min(of.size(), tokens) ? "token " + std::to_string(of[*at]) : std::string("the end");
        };
        sureleap::fail_with(name(i), ": ", who, " has ", shown(x), " at index ", *at, ", expected plain decoding's, ",
                            shown(y));
    }
}

}  // namespace evaluate

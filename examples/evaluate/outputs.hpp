// SPDX-License-Identifier: MIT
//
// Outputs beside those of plain decoding, token by token.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <engine/parts.hpp>
#include <sureleap/sureleap.hpp>

namespace evaluate {

/// Whether outputs under these settings are the same tokens whatever is drafted, and not only of the same law.
[[nodiscard]] inline bool is_reproducible(sureleap::transform const& sampling, engine::any_rule const& rule) {
    return sampling.greedy() ||
           std::visit([]<class R>(R const&) { return R::guarantee == sureleap::fidelity::pathwise; }, rule);
}

/// Throws at the first of the first `tokens` tokens of a text that is not as expected. `who` decoded it, and name(i) is
/// what the i-th text is called.
template <class Name>
void expect_same(std::string const& who, std::span<std::vector<sureleap::token_id> const> outputs,
                 std::span<std::vector<sureleap::token_id> const> expected, std::size_t tokens, Name const& name) {
    for (std::size_t i = 0; i < outputs.size(); ++i) {
        auto const& x = outputs[i];
        auto const& y = expected[i];
        std::size_t const a = std::min(x.size(), tokens);
        std::size_t const b = std::min(y.size(), tokens);
        std::size_t at = 0;
        while (at < std::min(a, b) && x[at] == y[at]) ++at;
        if (at == a && at == b) continue;
        auto const shown = [&](std::vector<sureleap::token_id> const& of, std::size_t size) {
            return at < size ? "token " + std::to_string(of[at]) : std::string("the end");
        };
        sureleap::fail_with(name(i), ": ", who, " has ", shown(x, a), " at index ", at, ", expected plain decoding's, ",
                            shown(y, b));
    }
}

}  // namespace evaluate

// SPDX-License-Identifier: MIT
//
// Prompt lookup against a search that looks at every place, and what it drafts into a block.
#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <sureleap/acceptance/rejection.hpp>
#include <sureleap/drafter/lookup.hpp>

#include "support/dice.hpp"
#include "support/drafted.hpp"

using namespace sureleap;
using tokens = std::vector<token_id>;

static_assert(drafter<lookup>);

namespace {

/// Longest match first, then the latest.
tokens naive(tokens const& context, std::size_t longest, std::size_t shortest) {
    for (std::size_t n = longest; n >= shortest; --n) {
        if (n >= context.size()) continue;
        tokens const ending(context.end() - static_cast<std::ptrdiff_t>(n), context.end());
        tokens found;
        for (std::size_t start = 0; start + n < context.size(); ++start) {
            auto const first = context.begin() + static_cast<std::ptrdiff_t>(start);
            auto const last = first + static_cast<std::ptrdiff_t>(n);
            if (tokens(first, last) == ending) found.assign(last, context.end());
        }
        if (!found.empty()) return found;
    }
    return {};
}

}  // namespace

TEST_CASE("lookup: drafts what followed the latest of the longest matches") {
    lookup const drafter{{.block_size = 4, .target_vocabulary = 100, .longest = 3, .shortest = 1}};
    auto const found = [&](tokens const& context) {
        auto const c = drafter.continuation(context);
        return tokens(c.begin(), c.end());
    };
    CHECK(found({1, 2, 3, 9, 1, 2, 3}) == tokens{9, 1, 2, 3});
    CHECK(found({1, 2, 7, 1, 2, 8, 1, 2}) == tokens{8, 1, 2});        // the latest of two
    CHECK(found({5, 1, 2, 7, 2, 8, 1, 2}) == tokens{7, 2, 8, 1, 2});  // longer beats later
    CHECK(found({4, 4}) == tokens{4});                                // the match may touch the ending
    CHECK(found({4, 4, 4}) == tokens{4});
    CHECK(found({1, 2, 3}).empty());
    CHECK(found({1}).empty());
    CHECK(found({}).empty());

    lookup const demanding{{.block_size = 4, .target_vocabulary = 100, .longest = 3, .shortest = 2}};
    CHECK(demanding.continuation(tokens{1, 7, 1}).empty());
    CHECK_FALSE(demanding.continuation(tokens{1, 7, 3, 1, 7}).empty());
}

TEST_CASE("lookup: equals a search of every place") {
    support::dice roll(61);
    INFO("seed " << roll.seed());
    std::size_t matched = 0;
    for (int trial = 0; trial < 5000; ++trial) {
        std::size_t const shortest = 1 + roll.below(3);
        std::size_t const longest = shortest + roll.below(4);
        tokens context(roll.below(25));
        std::size_t const alphabet = 1 + roll.below(6);
        for (token_id& x : context) x = static_cast<token_id>(roll.below(alphabet));
        lookup const drafter{{.block_size = 3, .target_vocabulary = 10, .longest = longest, .shortest = shortest}};
        auto const c = drafter.continuation(context);
        tokens const expected = naive(context, longest, shortest);
        INFO("trial " << trial);
        REQUIRE(tokens(c.begin(), c.end()) == expected);
        matched += !expected.empty();
    }
    CHECK(matched > 1000);
}

TEST_CASE("lookup: fills blocks up to each request's cap, with one-hot laws and certainty") {
    lookup drafter{{.block_size = 4, .target_vocabulary = 10}};
    tokens const repeated{1, 2, 3, 4, 5, 6, 1, 2}, fresh{1, 2, 3};
    request_settings const settings;
    request_settings capped;
    capped.max_draft_tokens = 2;
    std::vector<request_view> const views{
        {.anchor = 2, .position = 7, .context = repeated, .remaining = 50, .settings = &settings},
        {.anchor = 3, .position = 2, .context = fresh, .remaining = 50, .settings = &settings},
        {.anchor = 2, .position = 7, .context = repeated, .remaining = 50, .settings = &capped},
        {.anchor = 2, .position = 7, .context = repeated, .remaining = 2, .settings = &settings}};
    auto const memory = support::draft<float>(drafter, token_rejection<>{}, views);
    auto const drafted = [&](std::size_t r) {
        return tokens(memory.block.tokens(r).begin(), memory.block.tokens(r).end());
    };
    CHECK(drafted(0) == tokens{3, 4, 5, 6});
    CHECK(drafted(1).empty());
    CHECK(drafted(2) == tokens{3, 4});
    CHECK(drafted(3) == tokens{3});
    for (std::size_t k = 0; k < 4; ++k) {
        CHECK(memory.block.laws(0)[k].is_one_hot());
        CHECK(memory.block.laws(0)[k].size() == 10);
        CHECK(memory.block.laws(0)[k].mode() == drafted(0)[k]);
        CHECK(memory.block.table().survivals.at(0, k).survival == certain);
    }

    // The same in a block of another compute type: an engine in double looks up as well.
    auto const wide = support::draft<double>(drafter, token_rejection<>{}, views);
    auto const found = wide.block.tokens(0);
    CHECK(tokens(found.begin(), found.end()) == drafted(0));
}

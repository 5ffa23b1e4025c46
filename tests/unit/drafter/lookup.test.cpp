// SPDX-License-Identifier: MIT
//
// Prompt lookup against a search that looks at every place, and what it drafts into a block.
#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <span>
#include <vector>

#include <sureleap/drafter/lookup.hpp>
#include <sureleap/verify/rejection.hpp>

#include "support/dice.hpp"
#include "support/drafted.hpp"

using namespace sureleap;
using tokens = std::vector<token_id>;

static_assert(drafter<lookup>);

namespace {

/// Longest match first, then the latest; what follows it up to the first id that is no token. Where none follows at
/// all, the place is no match.
tokens naive(tokens const& context, std::size_t longest, std::size_t shortest, std::size_t vocabulary) {
    auto const foreign = [&](token_id x) { return x < 0 || static_cast<std::size_t>(x) >= vocabulary; };
    for (std::size_t n = longest; n >= shortest; --n) {
        if (n >= context.size()) continue;
        tokens const ending(context.end() - static_cast<std::ptrdiff_t>(n), context.end());
        tokens found;
        for (std::size_t start = 0; start + n < context.size(); ++start) {
            auto const first = context.begin() + static_cast<std::ptrdiff_t>(start);
            auto const last = first + static_cast<std::ptrdiff_t>(n);
            tokens const followed(last, std::find_if(last, context.end(), foreign));
            if (tokens(first, last) == ending && !followed.empty()) found = followed;
        }
        if (!found.empty()) return found;
    }
    return {};
}

}  // namespace

TEST_CASE("lookup: drafts what followed the latest of the longest matches") {
    lookup const drafter{{.block_size = 4, .target_vocabulary = 100, .longest = 3, .shortest = 1}};
    auto const found = [&](tokens const& context) {
        auto const c = drafter.match(context).followed;
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
    CHECK(demanding.match(tokens{1, 7, 1}).followed.empty());
    CHECK_FALSE(demanding.match(tokens{1, 7, 3, 1, 7}).followed.empty());
}

TEST_CASE("lookup: a draft ends before the first id that is no token") {
    lookup const drafter{{.block_size = 4, .target_vocabulary = 10, .longest = 3, .shortest = 1}};
    auto const found = [&](tokens const& context) {
        auto const c = drafter.match(context).followed;
        return tokens(c.begin(), c.end());
    };
    CHECK(found({1, 2, 7, -200, 8, 1, 2}) == tokens{7});           // an image's placeholder
    CHECK(found({1, 2, 7, 10, 8, 1, 2}) == tokens{7});             // an added token beyond V
    CHECK(found({1, 2, 9, 0, 8, 1, 2}) == tokens{9, 0, 8, 1, 2});  // the last token of V, and the first
    // They may be in what is matched: it was there before, and so was what came after.
    CHECK(found({-200, -200, 5, 6, -200, -200}) == tokens{5, 6});
    CHECK(found({3, -200, 5, 6, 3, -200}) == tokens{5, 6, 3});
    // A place that is followed by none predicts nothing: the search goes on.
    CHECK(found({1, 2, 7, 1, 2, -200, 8, 1, 2}) == tokens{7, 1, 2});
    CHECK(found({2, 4, 1, 2, -200, 1, 2}) == tokens{4, 1, 2});
    CHECK(found({1, 2, -200, 1, 2}).empty());
    CHECK(found({-200, -200, -200}).empty());
}

TEST_CASE("lookup: a block never holds an id that is no token") {
    lookup drafter{{.block_size = 4, .target_vocabulary = 10}};
    tokens const context{1, 2, 3, -200, -200, 4, 1, 2}, beyond{1, 2, 3, 4, 10, 4, 1, 2}, none{1, 2, -200, 5, 1, 2};
    request_settings const settings;
    std::vector<request_view> views;
    for (tokens const* c : {&context, &beyond, &none}) {
        views.push_back({.anchor = 2, .position = 7, .context = *c, .remaining = 50, .settings = &settings});
    }
    auto const memory = support::draft<float>(drafter, token_rejection<>{}, views);
    auto const drafted = [&](std::size_t r) {
        return tokens(memory.block.tokens(r).begin(), memory.block.tokens(r).end());
    };
    CHECK(drafted(0) == tokens{3});
    CHECK(drafted(1) == tokens{3, 4});
    CHECK(drafted(2).empty());
    for (std::size_t r = 0; r < views.size(); ++r) CHECK(memory.block.draft_outcome(r) == status::ok);
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
        token_id const foreign[] = {
            -200, -1, 10, 11, std::numeric_limits<token_id>::max(), std::numeric_limits<token_id>::min()};
        double const placeholders = roll.chance(0.5) ? 0.0 : 0.3;
        for (token_id& x : context) {
            x = roll.chance(placeholders) ? foreign[roll.below(roll.chance(0.5) ? 1 : std::size(foreign))]
                                          : static_cast<token_id>(roll.below(alphabet));
        }
        lookup const drafter{{.block_size = 3, .target_vocabulary = 10, .longest = longest, .shortest = shortest}};
        auto const c = drafter.match(context).followed;
        tokens const expected = naive(context, longest, shortest, 10);
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

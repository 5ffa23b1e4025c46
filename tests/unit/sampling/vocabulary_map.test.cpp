// SPDX-License-Identifier: MIT
//
// The map from draft to target ids, and what it refuses.
#include "support/catch.hpp"

#include <cstddef>
#include <limits>
#include <vector>

#include <sureleap/sampling/vocabulary_map.hpp>

#include "support/error_text.hpp"

using namespace sureleap;
using support::error_text;
using support::says;

TEST_CASE("vocabulary_map: there and back") {
    std::vector<token_id> ids{7, 0, 3, 9};
    vocabulary_map const map{ids, 10};
    ids.assign(4, 1);  // the map has its own copy
    CHECK(map.draft_size() == 4);
    CHECK(map.target_size() == 10);
    token_id const expected[] = {7, 0, 3, 9};
    for (token_id d = 0; d < 4; ++d) {
        CHECK(map.to_target(d) == expected[d]);
        CHECK(map.to_draft(expected[d]) == d);
    }
    for (token_id const v : {1, 2, 4, 5, 6, 8}) CHECK(map.to_draft(v) == no_token);
}

TEST_CASE("vocabulary_map: what is no token of the target is none of the draft") {
    std::vector<token_id> const ids{2, 0};
    vocabulary_map const map(ids, 4);
    for (token_id const foreign : {no_token, token_id{-200}, token_id{4}, std::numeric_limits<token_id>::max(),
                                   std::numeric_limits<token_id>::min()}) {
        CHECK(map.to_draft(foreign) == no_token);
        CHECK(vocabulary_view(&map).to_draft(foreign) == no_token);
    }
    CHECK(map.to_draft(2) == 0);
    CHECK(map.to_draft(3) == no_token);
}

TEST_CASE("vocabulary_map: refuses ids out of range, twice, or none at all") {
    auto const refused = [](std::vector<token_id> const& ids, std::size_t size) {
        return error_text([&] { vocabulary_map{ids, size}; });
    };
    CHECK(says(refused({1, 10, 2}, 10), {"vocabulary_map", "draft token 1", "target token 10", "0 .. 9"}));
    CHECK(says(refused({1, 2, -1}, 10), {"draft token 2", "target token -1", "0 .. 9"}));
    CHECK(says(refused({4, 2, 4}, 10), {"draft tokens 0 and 2", "target token 4", "distinct"}));
    CHECK(says(refused({}, 10), {"draft vocabulary is empty", "at least one"}));
    CHECK(refused({0}, 1).empty());
}

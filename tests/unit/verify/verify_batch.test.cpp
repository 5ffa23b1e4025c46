// SPDX-License-Identifier: MIT
//
// The flat batch: CSR offsets, positions, markers, and its padded view.
#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <sureleap/verify/verify_batch.hpp>

#include "support/dice.hpp"

using namespace sureleap;

TEST_CASE("verify_batch: rows, offsets, positions and markers of requests of any length") {
    support::dice roll(51);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 300; ++trial) {
        std::size_t const most = 1 + roll.below(8);
        std::size_t const gamma = roll.below(6);
        workspace sizer;
        verify_batch const counted(sizer, most, gamma);
        std::vector<std::byte> memory(sizer.used());
        workspace ws{memory};
        verify_batch batch(ws, most, gamma);

        for (int round = 0; round < 3; ++round) {  // the same memory, fewer or more requests
            std::size_t const requests = roll.below(most + 1);
            std::vector<request_view> views;
            std::vector<std::vector<token_id>> drafts;
            for (std::size_t r = 0; r < requests; ++r) {
                views.push_back(
                    {.anchor = static_cast<token_id>(100 + r), .position = (std::uint64_t{1} << 40) + 10 * r});
                std::vector<token_id> draft(roll.below(gamma + 1));  // l_r = 0 is ordinary
                for (token_id& x : draft) x = static_cast<token_id>(roll.below(50));
                drafts.push_back(draft);
            }
            batch.begin(views);
            for (auto const& draft : drafts) batch.append(draft);

            INFO("trial " << trial << ", round " << round);
            REQUIRE(batch.requests().size() == requests);
            REQUIRE(batch.offsets().size() == requests + 1);
            std::size_t row = 0, longest = 0;
            for (std::size_t r = 0; r < requests; ++r) {
                REQUIRE(batch.offsets()[r] == row);
                REQUIRE(batch.first_row(r) == row);
                REQUIRE(batch.length(r) == drafts[r].size());
                REQUIRE(
                    std::equal(drafts[r].begin(), drafts[r].end(), batch.drafted(r).begin(), batch.drafted(r).end()));
                longest = std::max(longest, drafts[r].size());
                for (std::size_t k = 0; k <= drafts[r].size(); ++k, ++row) {
                    REQUIRE(batch.tokens()[row] == (k == 0 ? views[r].anchor : drafts[r][k - 1]));
                    REQUIRE(batch.positions()[row] == views[r].position + k);
                    REQUIRE(batch.markers()[row] == r);
                }
            }
            REQUIRE(batch.rows() == row);
            REQUIRE(batch.offsets()[requests] == row);
            REQUIRE(batch.tokens().size() == row);
            REQUIRE(batch.positions().size() == row);
            REQUIRE(batch.markers().size() == row);

            std::size_t const width = longest + 1 + roll.below(3);
            std::vector<token_id> padded(requests * width + 2, -7);
            batch.padded_tokens(width, -5, padded);
            for (std::size_t r = 0; r < requests; ++r) {
                for (std::size_t k = 0; k < width; ++k) {
                    token_id const expected = k == 0 ? views[r].anchor : k <= drafts[r].size() ? drafts[r][k - 1] : -5;
                    REQUIRE(padded[r * width + k] == expected);
                }
            }
            REQUIRE(padded[requests * width] == -7);  // nothing beyond
        }
    }
}

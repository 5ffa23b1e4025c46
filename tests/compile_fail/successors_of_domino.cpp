// SPDX-License-Identifier: MIT
//
// A bias that depends on all tokens of the block says nothing of successors of one.
// expect-error: successor_table: the head's bias is not of the token before alone, so there are no successors by it
// expect-error: a shortlist_head without successors works
#include "parts.hpp"

#include <sureleap/head/domino.hpp>
#include <sureleap/head/markov.hpp>
#include <sureleap/head/shortlist.hpp>

using namespace parts;

int main() {
    float const one[9]{};
    matrix_view<float> const w{one, 1, 1};
    domino_head const head{w, {one, 3, 1}, {one, 3, 1}, {one, 1, 2}, w, 0};
#ifdef SURELEAP_EXPECT_FAILURE
    successor_table const table{head, 1};
#else
    successor_table const table{markov_head{w, w}, 1};
#endif
    return static_cast<int>(table.view().rows + shortlist_head{head, 1}.capacity());
}

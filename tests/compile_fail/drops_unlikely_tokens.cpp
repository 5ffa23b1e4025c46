// SPDX-License-Identifier: MIT
//
// "The draft itself gave this token little chance, so do not waste a row on it": which token was drawn decides
// whether it is verified.
// expect-error: this schedule looks ahead .it sees drafted tokens it decides about.
// expect-error: Use a schedule that only sees the causal_frontier
// expect-error: or a rule that is exact under any schedule .target_match, keyed_coupling., or deterministic drafts
#include "parts.hpp"

using namespace parts;

struct confident_tokens_only {
    void admit(draft_table const& table, frontier_memory const& memory) const {
        for (std::size_t r = 0; r < table.survivals.requests(); ++r) {
            std::uint32_t length = 0;
            while (length < table.survivals.sizes[r] &&
                   table.token_probabilities[r * table.survivals.block_size + length] > 0.3) {
                ++length;
            }
            memory.lengths[r] = length;
        }
    }
};

int main() {
#ifdef SURELEAP_EXPECT_FAILURE
    decoder dec{make_target(), make_drafter(), confident_tokens_only{}, token_rejection{}};
#else
    // top1_confidence is the largest probability of q_k, whichever token is drawn.
    decoder dec{make_target(), make_drafter(), threshold_schedule{0.3}, token_rejection{}};
    decoder coupled{make_target(), make_drafter(), confident_tokens_only{}, keyed_coupling{}};
    decoder lossy{make_target(), make_drafter(), confident_tokens_only{}, token_rejection{}, allow_lossy};
#endif
    return dec.step() ? 1 : 0;
}

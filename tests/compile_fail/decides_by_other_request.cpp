// SPDX-License-Identifier: MIT
//
// Each request's length depends on the other's first token only, never on its own: every marginal law is exact, the
// joint law is not, because each decides by a token the other's decision is about.
// expect-error: this schedule looks ahead .it sees drafted tokens it decides about.
// expect-error: Use a schedule that only sees the causal_frontier
#include "parts.hpp"

using namespace parts;

struct crosswise {
    void admit(draft_table const& table, frontier_memory const& memory) const {
        survival_table const& s = table.survivals;
        for (std::size_t r = 0; r < s.requests(); ++r) {
            token_id const other = table.tokens[(r + 1) % s.requests() * s.block_size];
            memory.lengths[r] = other == 0 ? s.sizes[r] : 0;
        }
    }
};

int main() {
    decoder_options const two{.max_requests = 2};
#ifdef SURELEAP_EXPECT_FAILURE
    decoder dec{make_target(), make_drafter(), crosswise{}, token_rejection{}, two};
#else
    decoder dec{make_target(), make_drafter(), fixed_schedule{}, token_rejection{}, two};
    decoder coupled{make_target(), make_drafter(), crosswise{}, keyed_coupling{}, two};
    decoder lossy{make_target(), make_drafter(), crosswise{}, token_rejection{}, allow_lossy, two};
#endif
    return dec.step() ? 1 : 0;
}

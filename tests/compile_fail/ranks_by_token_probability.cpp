// SPDX-License-Identifier: MIT
//
// Giving the rows of a batch to the drafts with the likeliest tokens, by the product of q_k(x_k).
// expect-error: this schedule looks ahead .it sees drafted tokens it decides about.
// expect-error: biases rules whose guarantee is fidelity::distribution
// expect-error: or plans before drafting .planned_schedule, top_k_schedule.
#include "parts.hpp"

using namespace parts;

struct likeliest_tokens_first {
    std::size_t rows = 4;

    void admit(draft_table const& table, frontier_memory const& memory) const {
        survival_table const& s = table.survivals;
        for (auto& length : memory.lengths.first(s.requests())) length = 0;
        for (std::size_t admitted = 0; admitted < rows; ++admitted) {
            double best = 0.0;
            std::size_t where = s.requests();
            for (std::size_t r = 0; r < s.requests(); ++r) {
                if (memory.lengths[r] == s.sizes[r]) continue;
                double product = 1.0;
                for (std::size_t k = 0; k <= memory.lengths[r]; ++k) {
                    product *= table.token_probabilities[r * s.block_size + k];
                }
                if (product > best) {
                    best = product;
                    where = r;
                }
            }
            if (where == s.requests()) return;
            ++memory.lengths[where];
        }
    }
};

int main() {
#ifdef SURELEAP_EXPECT_FAILURE
    decoder dec{make_target(), make_drafter(), likeliest_tokens_first{}, block_verification{}};
#else
    decoder dec{make_target(), make_drafter(), top_k_schedule{curve{}}, block_verification{}};  // ranks by max q
    decoder matched{make_target(), make_drafter(), likeliest_tokens_first{}, target_match<categorical_draft>{}};
    decoder lossy{make_target(), make_drafter(), likeliest_tokens_first{}, block_verification{}, allow_lossy};
#endif
    return dec.step() ? 1 : 0;
}

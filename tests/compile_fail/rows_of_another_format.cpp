// SPDX-License-Identifier: MIT
//
// The memory of rounds is made for the rows that the target returns, and for the hook that edits them.
// expect-error: accept: the target's rows are stored in another format than the round_memory was made for
// expect-error: its first parameter is that format
#include "parts.hpp"

using namespace parts;

int main() {
    auto drafter = make_drafter();
    fixed_schedule schedule{};
    token_rejection<> const rule{};
    round_memory<float, float> memory{drafter, schedule, rule, {.max_requests = 1}};
    philox_randomness rng;
#ifdef SURELEAP_EXPECT_FAILURE
    accept(rule, logits_rows<bf16>{}, no_logits_hook{}, rng, memory);
#else
    accept(rule, logits_rows<float>{}, no_logits_hook{}, rng, memory);
#endif
}

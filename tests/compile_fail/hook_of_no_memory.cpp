// SPDX-License-Identifier: MIT
//
// A hook edits copies of rows, for which the memory of rounds has room where it was told of it.
// expect-error: accept: the hook is not the one that the round_memory was made for
#include "parts.hpp"

using namespace parts;

struct grammar {
    void operator()(hook_context const&, std::span<float> logits) const { logits[0] = 0.0f; }
};

int main() {
    auto drafter = make_drafter();
    fixed_schedule schedule{};
    token_rejection<> const rule{};
#ifdef SURELEAP_EXPECT_FAILURE
    round_memory<float, float> memory{drafter, schedule, rule, {.max_requests = 1}};
#else
    round_memory<float, float, grammar> memory{drafter, schedule, rule, {.max_requests = 1}};
#endif
    philox_randomness rng;
    accept(rule, logits_rows<float>{}, grammar{}, rng, memory);
}

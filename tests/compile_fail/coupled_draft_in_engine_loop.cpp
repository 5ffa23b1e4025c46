// SPDX-License-Identifier: MIT
//
// An engine's own loop is checked where its memory is made, without being asked.
// expect-error: coupled_draft names its noise by absolute position, so a position that is drafted again meets noise
#include "parts.hpp"

using namespace parts;

int main() {
    auto drafter = make_drafter();
    fixed_schedule schedule{};
#ifdef SURELEAP_EXPECT_FAILURE
    token_rejection<coupled_draft> const rule{};
#else
    token_rejection<argmax_draft> const rule{};
    block_verification<coupled_draft> const biased{};
    round_memory<float, float> lossy{drafter, schedule, biased, allow_lossy, {.max_requests = 1}};
#endif
    round_memory<float, float> memory{drafter, schedule, rule, {.max_requests = 1}};
    return memory.bytes() == 0 ? 1 : 0;
}

// SPDX-License-Identifier: MIT
//
// A commit that throws would leave the target behind its text and the drafter not, and lose the tokens of the round.
// expect-error: commit: a model's commit.verdicts. may throw, but the round is over when it is called
// expect-error: A model that cannot follow remembers that, and fails in its next pass
#include "parts.hpp"

using namespace parts;

struct caching_model {
    logits_rows<float> forward(std::span<request_view const>, draft_prefixes const&) { return {}; }
#ifdef SURELEAP_EXPECT_FAILURE
    void commit(std::span<verdict const>) {}
#else
    void commit(std::span<verdict const>) noexcept {}
#endif
};

int main() {
    decoder engine{make_target(), autoregressive{caching_model{}, {.block_size = 2, .vocabulary = 4}}, fixed_schedule{},
                   target_match<>{}};
    return engine.step();
}

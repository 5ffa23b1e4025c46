// SPDX-License-Identifier: MIT
//
// Hidden states that have consumed drafted tokens must not reach a planner: a model that sees them is no backbone.
// expect-error: semi_autoregressive: the first argument is no backbone; give it forward.span<request_view const>.
#include "parts.hpp"

using namespace parts;

struct step_model {
    block_forward<float> forward(std::span<request_view const>, draft_prefixes const&) { return {}; }
};
struct step_model_logits {
    logits_rows<float> forward(std::span<request_view const>, draft_prefixes const&) { return {}; }
};

int main() {
    drafter_options const shape{.block_size = 2, .vocabulary = 4};
#ifdef SURELEAP_EXPECT_FAILURE
    semi_autoregressive drafts{step_model{}, no_head<float>{}, top1_confidence{}, shape};
#else
    autoregressive drafts{step_model_logits{}, top1_confidence{}, shape};
#endif
    return static_cast<int>(drafts.block_size());
}

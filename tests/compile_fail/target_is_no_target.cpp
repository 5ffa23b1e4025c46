// SPDX-License-Identifier: MIT
//
// A function of a context is the natural thing to pass; model_of makes a target of it.
// expect-error: round_runner: the target is no target_model; give it score.verify_batch const&. or a call operator that
// expect-error: returns sureleap::logits_rows<T>, or wrap a function of a context with sureleap::model_of
#include "parts.hpp"

using namespace parts;

int main() {
    auto const logits = [](std::span<token_id const>, std::span<float>) {};
#ifdef SURELEAP_EXPECT_FAILURE
    decoder dec{logits, make_drafter(), fixed_schedule{}, token_rejection{}};
#else
    decoder dec{model_of<float>(4, logits), make_drafter(), fixed_schedule{}, token_rejection{}};
    auto const engine = [](verify_batch const&) { return logits_rows<float>{}; };
    decoder other{engine, make_drafter(), fixed_schedule{}, token_rejection{}};
#endif
    return dec.step() ? 1 : 0;
}

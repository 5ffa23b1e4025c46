// SPDX-License-Identifier: MIT
//
// No concept can ask for a template: the stage says which form draw has to have.
// expect-error: draw: the drafter cannot fill this round's block. It needs .template <class DraftRule, class Rng> void
#include "parts.hpp"

using namespace parts;

struct silent {
    using value_type = float;
    static constexpr bool is_deterministic = true;
    static constexpr bool is_parallel = true;
    static constexpr bool has_confidence = false;
    struct nothing {};

    std::size_t block_size() const { return 2; }
    std::size_t vocabulary() const { return 0; }
    std::size_t target_vocabulary() const { return 4; }
    nothing forward(std::span<request_view const>) const { return {}; }
#ifdef SURELEAP_EXPECT_FAILURE
    template <class DraftRule, class Rng>
    void draw(draft_block<float>&, DraftRule, nothing, Rng&) const {}
#else
    template <class DraftRule, class Rng>
    void draw(nothing, DraftRule, draft_block<float>&, Rng&) const {}
#endif
};

int main() {
    decoder dec{make_target(), silent{}, fixed_schedule{}, token_rejection{}};
    return dec.step() ? 1 : 0;
}

// SPDX-License-Identifier: MIT
//
// A schedule that throws when the models have committed would lose the tokens of the round; inside any_schedule as
// well. expect-error: observe: a schedule's observe.record. may throw, but the round is over when it is called
// expect-error: One that cannot learn from a round remembers that, and throws in limit_drafts
#include <sureleap/schedule/any.hpp>

#include "parts.hpp"

using namespace parts;

struct logging_schedule : fixed_schedule {
#ifdef SURELEAP_EXPECT_FAILURE
    void observe(round_record const&) {}
#else
    void observe(round_record const&) noexcept {}
#endif
};

int main() {
    decoder engine{make_target(), make_drafter(), any_schedule{logging_schedule{fixed_schedule{}}}, target_match<>{}};
    return engine.step();
}

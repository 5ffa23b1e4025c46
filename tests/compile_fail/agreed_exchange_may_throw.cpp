// SPDX-License-Identifier: MIT
//
// A rank that throws in the middle of an exchange leaves the others waiting.
// expect-error: agreed: the exchange must be callable as exchange.std::size_t. const noexcept
#include "parts.hpp"

#include <sureleap/schedule/agreed.hpp>

using namespace parts;

#ifdef SURELEAP_EXPECT_FAILURE
#define PROMISE
#else
#define PROMISE noexcept
#endif

struct alone {
    std::size_t operator()(std::size_t batch) const PROMISE { return batch; }
};

int main() {
    decoder dec{make_target(), make_drafter(), agreed{top_k_schedule{curve{}}, alone{}}, token_rejection{}};
    return dec.step() ? 1 : 0;
}

// SPDX-License-Identifier: MIT
//
// The numbers behind draws, for who checks a port or replays a draw elsewhere: they are functions of a key and the
// same on every machine.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>

#include <sureleap/sureleap.hpp>

using namespace sureleap;

int main() {
    std::array<std::uint32_t, 4> const bits = philox4x32({0, 0, 0, 0}, 0);
    std::printf("philox4x32 of zeros: %08x %08x %08x %08x\n", bits[0], bits[1], bits[2], bits[3]);

    draw_key const key{.seed = 42, .position = 7, .index = 1, .use = purpose::accept};
    std::printf("uniform: %.6f\n", uniform(key));
    draw_key const other{.seed = 42, .position = 7, .index = 1, .use = purpose::bonus};
    std::printf("for another purpose: %.6f\n", uniform(other));

    // The exponentials of a race; token v arrives at exponential / weight.
    draw_key const race{.seed = 42, .position = 7, .index = 0, .use = purpose::noise};
    for (std::size_t v = 0; v < 4; ++v) std::printf("token %zu arrives at %.4f / weight\n", v, exponential(race, v));
}

// Prints:
// philox4x32 of zeros: 6627e8d5 e169c58d bc57ac4c 9b00dbd8
// uniform: 0.845035
// for another purpose: 0.328078
// token 0 arrives at 2.6975 / weight
// token 1 arrives at 0.6736 / weight
// token 2 arrives at 1.6096 / weight
// token 3 arrives at 0.1264 / weight

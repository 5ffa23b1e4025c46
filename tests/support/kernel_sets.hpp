// SPDX-License-Identifier: MIT
//
// What the tests of the engine's arithmetic share: each instruction set in turn, and vectors of random numbers.
#pragma once

#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <vector>

#include "engine/kernels.hpp"
#include "engine/kernels_table.hpp"
#include "support/catch.hpp"
#include "support/dice.hpp"

namespace support {

using sizes = std::initializer_list<std::size_t>;

/// Runs f with each instruction set that this machine has, and goes back to the one it chose.
template <class F>
void with_every_set(F const& f) {
    engine::kernel_set const& chosen = *engine::find_kernels(engine::instruction_set());
    for (char const* const name : {"avx512_bf16", "avx512", "avx2", "portable"}) {
        engine::kernel_set const* const set = engine::find_kernels(name);
        if (set == nullptr) continue;
        engine::use_kernels(*set);
        INFO(name);
        f();
    }
    engine::use_kernels(chosen);
}

template <class Real, class F>
std::vector<Real> numbers(std::size_t count, F const& value) {
    std::vector<Real> all(count);
    for (Real& v : all) v = static_cast<Real>(value());
    return all;
}
template <class Real>
std::vector<Real> normal(std::size_t count, dice& roll) {
    return numbers<Real>(count, [&] { return roll.bell(); });
}

template <class Real>
bool same_bits(Real const* a, Real const* b, std::size_t count) {
    return std::memcmp(a, b, count * sizeof(Real)) == 0;
}

}  // namespace support

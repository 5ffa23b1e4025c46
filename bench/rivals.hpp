// SPDX-License-Identifier: MIT
//
// What the benchmarks are held against: reading the same bytes and nothing else, and what users write. rivals.cpp is
// compiled for the machine it runs on (-O3 -march=native), the library is not. Plain pointers only: nothing that is
// inline may be compiled twice.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rivals {

/// Reads `size` floats, as fast as one thread can; the result keeps the compiler from leaving it out.
float read(float const* data, std::size_t size);
/// The same in one stream, which is what memory may like better.
float read_in_order(float const* data, std::size_t size);

/// A block as a user has it: target logits p [gamma + 1, size], the draft's probabilities q [gamma, size], drafted
/// tokens and a uniform number for every decision.
struct block {
    float const* p;
    float const* q;
    std::size_t size;
    std::size_t gamma;
    std::int32_t const* drafted;
    float const* uniforms;  ///< [gamma + 1]
};

/// Token rejection with every row of p made a probability vector first: plain loops and std::exp.
std::int32_t scalar_rejection(block const& b, float* scratch);
/// The same with Eigen's arrays. `scratch` holds (gamma + 1) * size floats in both.
std::int32_t eigen_rejection(block const& b, float* scratch);

/// softmax(logits) into out.
void softmax(float const* logits, std::size_t size, float* out);

/// A step of a Markov head as a user has it: base logits u [size], an output matrix w2 [size, rank], the embedding of
/// the previous token z [rank], a uniform number.
struct head_step {
    float const* w2;
    float const* z;
    float const* u;
    std::size_t size;
    std::size_t rank;
    float uniform;
};

/// Logits, softmax, draw: plain loops. `scratch` holds size floats in both.
std::int32_t scalar_step(head_step const& s, float* scratch);
/// The same with Eigen.
std::int32_t eigen_step(head_step const& s, float* scratch);

}  // namespace rivals

// SPDX-License-Identifier: MIT
#include "random_weights.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>

namespace engine {
namespace {

using sureleap::fail_with;
using sureleap::safetensors::dtype;
using sureleap::safetensors::tensor_spec;

/// Names and indices become independent numbers by hashing (the finaliser of SplitMix64). So there is no state, and any
/// part of a tensor can be made on its own.
constexpr std::uint64_t scramble(std::uint64_t x) noexcept {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

std::uint64_t key_of(std::string_view name, std::uint64_t seed) noexcept {
    std::uint64_t key = scramble(seed);
    for (char const c : name) key = scramble(key ^ static_cast<unsigned char>(c));
    return key;
}

/// Uniform with this mean and deviation. A normal distribution would cost more and change nothing: every output is a
/// sum over many weights.
struct spread {
    double mean;
    double deviation;
};

spread spread_of(tensor_spec const& spec) {
    if (spec.name.ends_with("norm.weight")) return {1.0, 0.1};
    if (spec.name.ends_with(".bias")) return {0.0, 0.1};
    // The bias of the Markov head is a product of two small tables; with this it has a deviation of one.
    if (spec.name == "markov_head.markov_w1.weight") return {0.0, 1.0};
    return {0.0, 1.0 / std::sqrt(static_cast<double>(spec.shape.back()))};
}

/// The elements of a tensor, one chunk after another.
template <class Stored>
class element_stream {
public:
    element_stream(tensor_spec const& spec, std::uint64_t seed)
        : key_(key_of(spec.name, seed)),
          mean_(static_cast<number>(spread_of(spec).mean)),
          step_(static_cast<number>(spread_of(spec).deviation * std::sqrt(3.0) * 0x1p-31)) {}

    /// One scrambled number makes two elements, so all chunks but the last must be of even size.
    void next(std::span<Stored> out) {
        std::size_t i = 0;
        for (; i + 1 < out.size(); i += 2) {
            std::uint64_t const bits = scramble(key_ + pair_++);
            out[i] = element(static_cast<std::uint32_t>(bits));
            out[i + 1] = element(static_cast<std::uint32_t>(bits >> 32));
        }
        if (i < out.size()) out[i] = element(static_cast<std::uint32_t>(scramble(key_ + pair_++)));
    }

private:
    using number = sureleap::compute_t<Stored>;

    [[nodiscard]] Stored element(std::uint32_t bits) const noexcept {
        return Stored(mean_ + step_ * static_cast<number>(static_cast<std::int32_t>(bits)));
    }

    std::uint64_t key_;
    std::uint64_t pair_ = 0;
    number mean_;
    number step_;
};

std::size_t elements(tensor_spec const& spec) {
    std::size_t product = 1;
    for (std::size_t const extent : spec.shape) product *= extent;
    return product;
}

/// Calls sink(bytes) with the tensor's data in pieces.
template <class Stored>
void make_as(tensor_spec const& spec, std::uint64_t seed, byte_sink const& sink) {
    constexpr std::size_t chunk = 32768;
    std::vector<Stored> buffer(std::min(chunk, elements(spec)));
    element_stream<Stored> stream(spec, seed);
    for (std::size_t left = elements(spec); left > 0;) {
        std::span<Stored> const piece(buffer.data(), std::min(chunk, left));
        stream.next(piece);
        sink(std::as_bytes(piece));
        left -= piece.size();
    }
}

/// The only integers of a model: the tokens that a drafter drafts, here the first ones.
void make_rising(tensor_spec const& spec, byte_sink const& sink) {
    std::vector<std::int32_t> tokens(elements(spec));
    std::iota(tokens.begin(), tokens.end(), 0);
    sink(std::as_bytes(std::span(tokens)));
}

}  // namespace

void make_tensor(tensor_spec const& spec, std::uint64_t seed, byte_sink const& sink) {
    switch (spec.type) {
        case dtype::bf16: return make_as<sureleap::bf16>(spec, seed, sink);
        case dtype::f16: return make_as<sureleap::half>(spec, seed, sink);
        case dtype::f32: return make_as<float>(spec, seed, sink);
        case dtype::f64: return make_as<double>(spec, seed, sink);
        case dtype::i32: return make_rising(spec, sink);
        default: fail_with("synthetic model: tensor '", spec.name, "' is ", name_of(spec.type), ", expected a float");
    }
}

}  // namespace engine

// SPDX-License-Identifier: MIT
#include "blocks.hpp"

#include <cstring>

#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>

namespace engine::gguf {
namespace {

using sureleap::fail_with;

template <class Stored>
Stored load(std::byte const* at) {
    Stored stored;
    std::memcpy(&stored, at, sizeof stored);
    return stored;
}

float half_at(std::byte const* at) {
    return static_cast<float>(load<sureleap::half>(at));
}

unsigned byte_at(std::byte const* at, std::size_t i) {
    return std::to_integer<unsigned>(at[i]);
}
int signed_at(std::byte const* at, std::size_t i) {
    return static_cast<std::int8_t>(at[i]);
}

/// Element i of 32 in 16 bytes.
unsigned nibble(std::byte const* nibbles, std::size_t i) {
    return byte_at(nibbles, i % 16) >> (i < 16 ? 0 : 4) & 15;
}
/// The same with a fifth bit, which is bit i of the 32 before the nibbles.
unsigned with_fifth(std::byte const* bits, std::size_t i) {
    return nibble(bits + 4, i) | (load<std::uint32_t>(bits) >> i & 1) << 4;
}

// ---- blocks of 32 ------------------------------------------------------------------------------------------------

void q4_0(std::byte const* block, float* out) {
    float const d = half_at(block);
    for (std::size_t i = 0; i < 32; ++i) out[i] = d * static_cast<float>(static_cast<int>(nibble(block + 2, i)) - 8);
}

void q4_1(std::byte const* block, float* out) {
    float const d = half_at(block);
    float const m = half_at(block + 2);
    for (std::size_t i = 0; i < 32; ++i) out[i] = d * static_cast<float>(nibble(block + 4, i)) + m;
}

void q5_0(std::byte const* block, float* out) {
    float const d = half_at(block);
    for (std::size_t i = 0; i < 32; ++i) {
        out[i] = d * static_cast<float>(static_cast<int>(with_fifth(block + 2, i)) - 16);
    }
}

void q5_1(std::byte const* block, float* out) {
    float const d = half_at(block);
    float const m = half_at(block + 2);
    for (std::size_t i = 0; i < 32; ++i) out[i] = d * static_cast<float>(with_fifth(block + 4, i)) + m;
}

void q8_0(std::byte const* block, float* out) {
    float const d = half_at(block);
    for (std::size_t i = 0; i < 32; ++i) out[i] = d * static_cast<float>(signed_at(block + 2, i));
}

// ---- blocks of 256 -----------------------------------------------------------------------------------------------

struct pair6 {
    float scale;
    float minimum;
};

/// Scale and minimum of sub-block j of 8, of 6 bits each in 12 bytes. The first four of either fill the low 6 bits of
/// bytes 0 .. 7. Of the last four, the low 4 bits are in bytes 8 .. 11, the upper 2 above those of the first four.
pair6 pair_of(std::byte const* packed, std::size_t j) {
    unsigned scale = byte_at(packed, j % 4) & 63;
    unsigned minimum = byte_at(packed, j % 4 + 4) & 63;
    if (j >= 4) {
        unsigned const low = byte_at(packed, j + 4);
        scale = (low & 15) | byte_at(packed, j - 4) >> 6 << 4;
        minimum = low >> 4 | byte_at(packed, j) >> 6 << 4;
    }
    return {static_cast<float>(scale), static_cast<float>(minimum)};
}

/// Element i of sub-block j of Q4_K, or of Q5_K, which has 32 bytes of fifth bits before the nibbles: bit j of byte i.
/// 32 bytes of nibbles hold two sub-blocks, the first in the low ones.
unsigned step_of(std::byte const* block, bool fifth, std::size_t j, std::size_t i) {
    std::byte const* const bits = block + 16;
    std::byte const* const nibbles = fifth ? bits + 32 : bits;
    unsigned const low = byte_at(nibbles, j / 2 * 32 + i) >> (j % 2 * 4) & 15;
    return fifth ? low | (byte_at(bits, i) >> j & 1) << 4 : low;
}

void q4_or_q5_k(std::byte const* block, bool fifth, float* out) {
    float const d = half_at(block);
    float const dmin = half_at(block + 2);
    for (std::size_t j = 0; j < 8; ++j) {
        pair6 const pair = pair_of(block + 4, j);
        float const scale = d * pair.scale;
        float const minimum = dmin * pair.minimum;
        for (std::size_t i = 0; i < 32; ++i) {
            out[j * 32 + i] = scale * static_cast<float>(step_of(block, fifth, j, i)) - minimum;
        }
    }
}

void q4_k(std::byte const* block, float* out) {
    q4_or_q5_k(block, false, out);
}
void q5_k(std::byte const* block, float* out) {
    q4_or_q5_k(block, true, out);
}

/// Two halves of 128 elements, each in four runs of 32. Runs 0 and 1 are the low nibbles of 64 bytes, runs 2 and 3 the
/// high ones. The upper bits of element i of run r are bits 2r and 2r + 1 of byte i of 32.
void q6_k(std::byte const* block, float* out) {
    std::byte const* const scales = block + 192;
    float const d = half_at(block + 208);
    for (std::size_t k = 0; k < 256; ++k) {
        std::size_t const half = k / 128;
        std::size_t const run = k / 32 % 4;
        std::size_t const i = k % 32;
        unsigned const low = byte_at(block, half * 64 + run % 2 * 32 + i) >> (run / 2 * 4) & 15;
        unsigned const high = byte_at(block + 128, half * 32 + i) >> (run * 2) & 3;
        float const scale = d * static_cast<float>(signed_at(scales, k / 16));
        out[k] = scale * static_cast<float>(static_cast<int>(low | high << 4) - 32);
    }
}

// ---- all of them ---------------------------------------------------------------------------------------------------

void f32(std::byte const* number, float* out) {
    *out = load<float>(number);
}
void f16(std::byte const* number, float* out) {
    *out = half_at(number);
}
void bf16(std::byte const* number, float* out) {
    *out = static_cast<float>(load<sureleap::bf16>(number));
}

using block_function = void (*)(std::byte const* block, float* out);

block_function function_of(tensor_type type) {
    switch (type) {
        case tensor_type::f32: return f32;
        case tensor_type::f16: return f16;
        case tensor_type::bf16: return bf16;
        case tensor_type::q4_0: return q4_0;
        case tensor_type::q4_1: return q4_1;
        case tensor_type::q5_0: return q5_0;
        case tensor_type::q5_1: return q5_1;
        case tensor_type::q8_0: return q8_0;
        case tensor_type::q4_k: return q4_k;
        case tensor_type::q5_k: return q5_k;
        case tensor_type::q6_k: return q6_k;
        default:
            fail_with("blocks of ", name_of(type),
                      ", expected F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K or Q6_K");
    }
}

}  // namespace

void dequantise(tensor_type type, std::byte const* blocks, std::size_t elements, float* out) {
    block_function const function = function_of(type);
    block_size const block = block_of(type);
    if (elements % block.elements != 0) {
        fail_with(elements, " elements of ", name_of(type), ", expected whole blocks of ", block.elements);
    }
    for (std::size_t i = 0; i < elements; i += block.elements, blocks += block.bytes) function(blocks, out + i);
}

bool unpack_steps(tensor_type type, std::byte const* block, stepped_block& out) noexcept {
    using enum tensor_type;
    bool const five = type == q5_0 || type == q5_1;
    bool const around_zero = type == q4_0 || type == q5_0;
    if (!five && !around_zero && type != q4_1) return false;
    out.scale = half_at(block);
    out.minimum = around_zero ? (five ? -16 : -8) * out.scale : half_at(block + 2);
    std::byte const* const bits = block + (around_zero ? 2 : 4);
    for (std::size_t i = 0; i < small_block; ++i) {
        out.steps[i] = static_cast<std::uint8_t>(five ? with_fifth(bits, i) : nibble(bits, i));
    }
    return true;
}

bool unpack_steps(tensor_type type, std::byte const* block, std::span<stepped_block, 8> out) noexcept {
    bool const five = type == tensor_type::q5_k;
    if (!five && type != tensor_type::q4_k) return false;
    for (std::size_t j = 0; j < out.size(); ++j) {
        pair6 const pair = pair_of(block + 4, j);
        out[j].scale = half_at(block) * pair.scale;
        out[j].minimum = -half_at(block + 2) * pair.minimum;
        for (std::size_t i = 0; i < small_block; ++i) {
            out[j].steps[i] = static_cast<std::uint8_t>(step_of(block, five, j, i));
        }
    }
    return true;
}

void unpack8(std::byte const* block, block8& out) noexcept {
    out.scale = half_at(block);
    for (std::size_t i = 0; i < small_block; ++i) out.values[i] = static_cast<std::int8_t>(signed_at(block + 2, i));
}

}  // namespace engine::gguf

// SPDX-License-Identifier: MIT
//
// Blocks of GGUF tensors: each type against blocks that the test packs element by element, and against values that
// ggml's own reference gives.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <sureleap/core/types.hpp>

#include <engine/gguf/blocks.hpp>

#include "support/catch.hpp"
#include "support/error_text.hpp"

using engine::gguf::block8;
using engine::gguf::block_of;
using engine::gguf::dequantise;
using engine::gguf::name_of;
using engine::gguf::stepped_block;
using engine::gguf::tensor_type;
using engine::gguf::unpack8;
using engine::gguf::unpack_steps;
using support::error_text;

namespace {

/// A block that is put together bit by bit, by where the format has each of them.
class packer {
public:
    explicit packer(tensor_type type) : bytes(block_of(type).bytes) {}

    void f16(std::size_t at, float value) {
        sureleap::half const stored(value);
        REQUIRE(static_cast<float>(stored) == value);
        std::memcpy(&bytes[at], &stored, 2);
    }
    /// The low `count` bits of the value, from bit `bit` of byte `at` on.
    void bits(std::size_t at, unsigned bit, unsigned count, unsigned value) {
        for (unsigned i = 0; i < count; ++i) {
            unsigned const place = bit + i;
            std::byte const mask{static_cast<std::uint8_t>(1u << place % 8)};
            if (value >> i & 1) bytes.at(at + place / 8) |= mask;
        }
    }
    void signed_byte(std::size_t at, int value) { bits(at, 0, 8, static_cast<unsigned>(value) & 0xff); }

    std::vector<std::byte> bytes;
};

std::vector<float> values_of(tensor_type type, std::span<std::byte const> blocks) {
    auto const block = block_of(type);
    // Not a number where nothing was written.
    std::vector<float> values(blocks.size() / block.bytes * block.elements, std::numeric_limits<float>::quiet_NaN());
    dequantise(type, blocks.data(), values.size(), values.data());
    return values;
}

/// Numbers that differ between neighbours and between halves, in 0 .. 2^bits - 1.
unsigned some(std::size_t i, unsigned bits) {
    return static_cast<unsigned>((i * i + 5 * i + i / 16 * 7 + i / 64 * 3) % (1u << bits));
}

/// Elements of a block of 32: 16 low nibbles first, then 16 high ones.
void pack_nibbles(packer& to, std::size_t at, unsigned bits) {
    for (std::size_t i = 0; i < 32; ++i) to.bits(at + i % 16, i < 16 ? 0 : 4, 4, some(i, bits) & 15);
}
void pack_fifths(packer& to, std::size_t at) {
    for (std::size_t i = 0; i < 32; ++i) to.bits(at + i / 8, i % 8, 1, some(i, 5) >> 4);
}

/// The scales and minima of 8 sub-blocks in 12 bytes: 6 bits of each.
unsigned scale6(std::size_t j) {
    return (11 * static_cast<unsigned>(j) + 17) % 64;
}
unsigned minimum6(std::size_t j) {
    return (63 - 9 * static_cast<unsigned>(j)) % 64;
}
void pack_scales(packer& to, std::size_t at) {
    for (std::size_t j = 0; j < 4; ++j) {
        to.bits(at + j, 0, 6, scale6(j));
        to.bits(at + 4 + j, 0, 6, minimum6(j));
        to.bits(at + 8 + j, 0, 4, scale6(j + 4));
        to.bits(at + 8 + j, 4, 4, minimum6(j + 4));
        to.bits(at + j, 6, 2, scale6(j + 4) >> 4);
        to.bits(at + 4 + j, 6, 2, minimum6(j + 4) >> 4);
    }
}

void check(tensor_type type, packer const& block, std::function<double(std::size_t)> const& expected) {
    auto const values = values_of(type, block.bytes);
    REQUIRE(values.size() == block_of(type).elements);
    for (std::size_t i = 0; i < values.size(); ++i) {
        INFO(name_of(type) << ", element " << i);
        REQUIRE(static_cast<double>(values[i]) == expected(i));
    }
}

struct golden {
    tensor_type type;
    std::uint64_t hash;
    char const* hex;
};

// Random blocks with scales of reasonable size. The hash is FNV-1a over the values as float, of what the Python package
// gguf 0.19 makes of the block with numpy (gguf.quants.dequantize).
golden const golden_blocks[] = {
    {tensor_type::q4_0, 0xb6590ca9d4771cc8u, "df2bb8abeeab14cef599cc052535d5cec0ad"},
    {tensor_type::q4_1, 0x9380f79134a97233u, "d92d2c2647fcfdbd24845a54a0072cc4d9e38cce"},
    {tensor_type::q5_0, 0x5a9cdbebae1abc0fu, "6821e6ac994004bf645069f641e6519835fb3b0f64c7"},
    {tensor_type::q5_1, 0x692b937819fcfc63u, "ae2d24aa9ada0a5b74756ea5dee36bec8462332964e059aa"},
    {tensor_type::q8_0, 0x6308728f9c7981ecu, "5425525f6d2e9b210cd63fb96950991f38f554a20f0eff4260c986b8dbafd40cc5d0"},
    {tensor_type::q4_k, 0x765f19730d1a398u,
     "2729fbadcee6542049761b8751b097ee35921c903939416acb870148b5b781d4c2797bb3d8a013fe024c11c80561"
     "e2f5791a702eef5b4eff897a5aa91f398ded60f9f4cc10cd94234f667d36c00b636c3791d61108e05caae378507e"
     "8a0e5651f25acae15bbb6b274e98a61ce0734149f614223823ead717280f036bb4ebb1134dd376f90bcb4d787299"
     "fd594ebfb704"},
    {tensor_type::q5_k, 0x68e285148350807u,
     "7faa5ba202f6a1a0684f71c40b76b13b044aaa37113567b961252c4402584fd6132808da4444d301a04f097c04ed"
     "73bb1845c09815d12099053423c1634b986c249c83594cdea6b958420db653bba6188f04e70a713279b6117dc19d"
     "a877d46b17883dcffbae4b2c8732ae7644e0af5671cbb2090c7bd67016c65e57e8a4dc0625b4572e800eacc4a96b"
     "91759c8134e2e368cb8959dde03add975bcae30f98ada9a0e731e5fdfc04837baf0571dcb2e5"},
    {tensor_type::q6_k, 0x33ffc35d2048c046u,
     "81de54460c9e80d3418ff4be9208f5fb354f379a2e28b4a2449f19ddd06015b070144386255acf5fb35553906a11"
     "1db0d408878294d3c9d64feaa3945918890fa68bc71a1d0fc6d5c287ba655e9a11cb932d5e385b66ba23b1754f2a"
     "b726e3c1e8ee8a5c20664a38581af7e125744e27de0397c69b9385033655664a9e8ec6a1f197acaa9928594c2539"
     "edaa558cc40532faa4542dccaaddd7d77c772a0d346265f219844221bd3ac29f03bca453bda1ddc9b72e14de3465"
     "e4110e9921562e3d94812e5f3b9b54dd1be7c6f1babca329a0a1"},
};

std::vector<std::byte> bytes_of_hex(std::string const& hex) {
    std::vector<std::byte> bytes(hex.size() / 2);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] = static_cast<std::byte>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
    }
    return bytes;
}

std::uint64_t fnv(std::span<float const> values) {
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (std::byte const b : std::as_bytes(values)) {
        hash = (hash ^ std::to_integer<std::uint64_t>(b)) * 0x100000001b3u;
    }
    return hash;
}

}  // namespace

TEST_CASE("gguf blocks: plain numbers") {
    std::array const numbers{0.0f, -1.5f, 65504.0f, 0x1p-24f, -0x1p-14f};
    std::vector<std::byte> as_half;
    for (float const x : numbers) {
        sureleap::half const stored(x);
        auto const raw = std::as_bytes(std::span(&stored, 1));
        as_half.insert(as_half.end(), raw.begin(), raw.end());
    }
    CHECK(std::ranges::equal(values_of(tensor_type::f16, as_half), numbers));
    CHECK(std::ranges::equal(values_of(tensor_type::f32, std::as_bytes(std::span(numbers))), numbers));
    CHECK(values_of(tensor_type::bf16, bytes_of_hex("803f20c0007f")) == std::vector<float>{1, -2.5f, 0x1p127f});
    // Not aligned for the numbers they hold.
    std::vector<std::byte> shifted(1);
    shifted.insert(shifted.end(), as_half.begin(), as_half.end());
    CHECK(std::ranges::equal(values_of(tensor_type::f16, std::span(shifted).subspan(1)), numbers));
}

TEST_CASE("gguf blocks: blocks of 32 elements") {
    packer q4_0(tensor_type::q4_0);
    q4_0.f16(0, -0.75f);
    pack_nibbles(q4_0, 2, 4);
    check(tensor_type::q4_0, q4_0, [](std::size_t i) { return -0.75 * (some(i, 4) - 8.0); });

    packer q4_1(tensor_type::q4_1);
    q4_1.f16(0, 0.125f);
    q4_1.f16(2, -3.5f);
    pack_nibbles(q4_1, 4, 4);
    check(tensor_type::q4_1, q4_1, [](std::size_t i) { return 0.125 * some(i, 4) - 3.5; });

    packer q5_0(tensor_type::q5_0);
    q5_0.f16(0, 0.25f);
    pack_fifths(q5_0, 2);
    pack_nibbles(q5_0, 6, 5);
    check(tensor_type::q5_0, q5_0, [](std::size_t i) { return 0.25 * (some(i, 5) - 16.0); });

    packer q5_1(tensor_type::q5_1);
    q5_1.f16(0, 0.375f);
    q5_1.f16(2, 9);
    pack_fifths(q5_1, 4);
    pack_nibbles(q5_1, 8, 5);
    check(tensor_type::q5_1, q5_1, [](std::size_t i) { return 0.375 * some(i, 5) + 9; });

    packer q8_0(tensor_type::q8_0);
    q8_0.f16(0, 0x1p-10f);
    auto const eight = [](std::size_t i) { return i == 0 ? -128 : i == 31 ? 127 : static_cast<int>(some(i, 8)) - 128; };
    for (std::size_t i = 0; i < 32; ++i) q8_0.signed_byte(2 + i, eight(i));
    check(tensor_type::q8_0, q8_0, [&](std::size_t i) { return 0x1p-10 * eight(i); });
}

TEST_CASE("gguf blocks: blocks of 256 elements") {
    auto const with_minimum = [](std::size_t i, unsigned bits) {
        return 0.5 * scale6(i / 32) * some(i, bits) - 0.0625 * minimum6(i / 32);
    };
    // 64 elements share 32 bytes: the first 32 have the low nibbles.
    auto const pack = [](packer& to, std::size_t at, unsigned bits) {
        for (std::size_t i = 0; i < 256; ++i) {
            to.bits(at + i / 64 * 32 + i % 32, i % 64 < 32 ? 0 : 4, 4, some(i, bits) & 15);
        }
    };
    packer q4_k(tensor_type::q4_k);
    q4_k.f16(0, 0.5f);
    q4_k.f16(2, 0.0625f);
    pack_scales(q4_k, 4);
    pack(q4_k, 16, 4);
    check(tensor_type::q4_k, q4_k, [&](std::size_t i) { return with_minimum(i, 4); });

    packer q5_k(tensor_type::q5_k);
    q5_k.f16(0, 0.5f);
    q5_k.f16(2, 0.0625f);
    pack_scales(q5_k, 4);
    for (std::size_t i = 0; i < 256; ++i) q5_k.bits(16 + i % 32, static_cast<unsigned>(i / 32), 1, some(i, 5) >> 4);
    pack(q5_k, 48, 5);
    check(tensor_type::q5_k, q5_k, [&](std::size_t i) { return with_minimum(i, 5); });

    packer q6_k(tensor_type::q6_k);
    auto const scale = [](std::size_t j) { return j == 0 ? -128 : j == 15 ? 127 : static_cast<int>(13 * j) - 90; };
    for (std::size_t i = 0; i < 256; ++i) {
        std::size_t const half = i / 128;
        std::size_t const in_half = i % 128;
        q6_k.bits(64 * half + in_half % 64, in_half < 64 ? 0 : 4, 4, some(i, 6) & 15);
        q6_k.bits(128 + 32 * half + in_half % 32, 2 * static_cast<unsigned>(in_half / 32), 2, some(i, 6) >> 4);
    }
    for (std::size_t j = 0; j < 16; ++j) q6_k.signed_byte(192 + j, scale(j));
    q6_k.f16(208, 0.03125f);
    check(tensor_type::q6_k, q6_k, [&](std::size_t i) { return 0.03125 * scale(i / 16) * (some(i, 6) - 32.0); });
}

TEST_CASE("gguf blocks: ggml's own reference gives the same values, bit for bit") {
    for (golden const& g : golden_blocks) {
        INFO(name_of(g.type));
        auto const bytes = bytes_of_hex(g.hex);
        REQUIRE(bytes.size() == block_of(g.type).bytes);
        CHECK(fnv(values_of(g.type, bytes)) == g.hash);
    }
}

TEST_CASE("gguf blocks: blocks one behind the other") {
    for (golden const& g : golden_blocks) {
        INFO(name_of(g.type));
        auto const first = bytes_of_hex(g.hex);
        auto second = first;
        second.back() ^= std::byte{0x31};
        std::vector<std::byte> both = first;
        both.insert(both.end(), second.begin(), second.end());
        auto expected = values_of(g.type, first);
        auto const rest = values_of(g.type, second);
        CHECK(rest != expected);
        expected.insert(expected.end(), rest.begin(), rest.end());
        CHECK(values_of(g.type, both) == expected);
        float untouched = 5;
        dequantise(g.type, both.data(), 0, &untouched);
        CHECK(untouched == 5);
    }
}

TEST_CASE("gguf blocks: what cannot be read is named") {
    std::vector<std::byte> const bytes(1000);
    std::vector<float> out(1000);
    auto const refusal = [&](std::uint32_t type, std::size_t elements) {
        return error_text([&] { dequantise(static_cast<tensor_type>(type), bytes.data(), elements, out.data()); });
    };
    std::string const known = ", expected F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K or Q6_K";
    CHECK(refusal(10, 256) == "blocks of Q2_K" + known);
    CHECK(refusal(11, 256) == "blocks of Q3_K" + known);
    CHECK(refusal(27, 1) == "blocks of I64" + known);
    CHECK(refusal(39, 32) == "blocks of type 39" + known);
    CHECK(refusal(39, 0) == "blocks of type 39" + known);
    CHECK(refusal(2, 31) == "31 elements of Q4_0, expected whole blocks of 32");
    CHECK(refusal(8, 33) == "33 elements of Q8_0, expected whole blocks of 32");
    CHECK(refusal(14, 128) == "128 elements of Q6_K, expected whole blocks of 256");
    CHECK(refusal(2, 64) == "");
    CHECK(refusal(1, 31) == "");
}

TEST_CASE("gguf blocks: unpacked for repacking, they are the same numbers") {
    unsigned of_steps = 0;
    for (golden const& g : golden_blocks) {
        INFO(name_of(g.type));
        auto const bytes = bytes_of_hex(g.hex);
        auto const expected = values_of(g.type, bytes);
        std::array<stepped_block, 8> small{};
        small[0].scale = 7;
        bool const one = unpack_steps(g.type, bytes.data(), small[0]);
        bool const eight = !one && unpack_steps(g.type, bytes.data(), std::span(small));
        CHECK((one || eight || small[0].scale == 7));
        for (std::size_t i = 0; (one || eight) && i < expected.size(); ++i) {
            stepped_block const& in = small[i / 32];
            std::string const name = name_of(g.type);
            CHECK(in.steps[i % 32] < (name.starts_with("Q4") ? 16 : 32));
            CHECK(std::fma(in.scale, static_cast<float>(in.steps[i % 32]), in.minimum) == expected[i]);
            if (name.ends_with("_0")) CHECK(in.minimum == (name.starts_with("Q4") ? -8 : -16) * in.scale);
        }
        of_steps += one || eight;
        if (g.type != tensor_type::q8_0) continue;
        block8 whole{};
        unpack8(bytes.data(), whole);
        for (std::size_t i = 0; i < 32; ++i) CHECK(whole.scale * static_cast<float>(whole.values[i]) == expected[i]);
    }
    CHECK(of_steps == 6);
    // Of no type that is not listed, either.
    std::byte const bytes[256]{};
    for (std::uint32_t type = 0; type < 64; ++type) {
        using enum tensor_type;
        auto const t = static_cast<tensor_type>(type);
        std::array<stepped_block, 8> small{};
        CHECK(unpack_steps(t, bytes, small[0]) == (t == q4_0 || t == q4_1 || t == q5_0 || t == q5_1));
        CHECK(unpack_steps(t, bytes, std::span(small)) == (t == q4_k || t == q5_k));
    }
}

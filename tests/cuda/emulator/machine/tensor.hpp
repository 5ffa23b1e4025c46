// SPDX-License-Identifier: MIT
//
// Matrix fragments, as the PTX ISA lays them out over the lanes of a warp: mma.m16n8k16 with float accumulators and
// ldmatrix.
//
// Products of bf16 or half are exact in float. The hardware adds them in an order and with a rounding that it does not
// document; here they are added in float, in rising order of k, after c. A test may rely on neither.
#pragma once

#include "collectives.hpp"

namespace emulator {

namespace detail {

inline float from_bf16(std::uint32_t bits) {
    return std::bit_cast<float>(bits << 16);
}
inline float from_half(std::uint32_t bits) {
    auto const exponent = static_cast<int>(bits >> 10 & 0x1fu);
    auto const fraction = static_cast<float>(bits & 0x3ffu);
    float magnitude = 0;
    if (exponent == 31) {
        magnitude = fraction == 0 ? INFINITY : NAN;
    } else if (exponent == 0) {
        magnitude = std::ldexp(fraction, -24);
    } else {
        magnitude = std::ldexp(fraction + 1024.0f, exponent - 25);
    }
    return (bits >> 15 & 1u) != 0 ? -magnitude : magnitude;
}

struct product {
    std::uint32_t const* a;  // 4: rows g and g + 8, columns 2t.. and 2t + 8.. for lane 4g + t
    std::uint32_t const* b;  // 2: rows 2t.. and 2t + 8.., column g
    float const* c;          // 4: rows g and g + 8, columns 2t and 2t + 1
    float* d;
};

template <float (*convert)(std::uint32_t)>
void complete_product(std::uint32_t mask, void* const* arguments) {
    if (mask != 0xffffffffu) {
        machine::the().report("mma: the whole warp must take part");
        machine::the().leave();
    }
    std::array<std::array<float, 16>, 16> a{};
    std::array<std::array<float, 8>, 16> b{};
    for (unsigned lane = 0; lane < 32; ++lane) {
        auto const& own = *static_cast<product const*>(arguments[lane]);
        unsigned const g = lane / 4;
        unsigned const t = lane % 4;
        for (unsigned i = 0; i < 8; ++i) {
            std::uint32_t const bits = own.a[i / 2] >> (16 * (i % 2)) & 0xffffu;
            a[g + (i / 2 % 2 != 0 ? 8u : 0u)][2 * t + i % 2 + (i >= 4 ? 8u : 0u)] = convert(bits);
        }
        for (unsigned i = 0; i < 4; ++i) {
            std::uint32_t const bits = own.b[i / 2] >> (16 * (i % 2)) & 0xffffu;
            b[2 * t + i % 2 + (i >= 2 ? 8u : 0u)][g] = convert(bits);
        }
    }
    for (unsigned lane = 0; lane < 32; ++lane) {
        auto const& own = *static_cast<product const*>(arguments[lane]);
        for (unsigned i = 0; i < 4; ++i) {
            unsigned const row = lane / 4 + (i >= 2 ? 8u : 0u);
            unsigned const column = 2 * (lane % 4) + i % 2;
            float sum = own.c[i];
            for (unsigned k = 0; k < 16; ++k) sum += a[row][k] * b[k][column];
            own.d[i] = sum;
        }
    }
}

inline constexpr collective bf16_product{"mma.m16n8k16 (bf16)", &complete_product<from_bf16>};
inline constexpr collective half_product{"mma.m16n8k16 (half)", &complete_product<from_half>};

struct fragment {
    void const* row;
    std::uint32_t* r;
};

inline void complete_ldmatrix(std::uint32_t mask, void* const* arguments) {
    machine& m = machine::the();
    if (mask != 0xffffffffu) {
        m.report("ldmatrix: the whole warp must take part");
        m.leave();
    }
    auto const* const shared = m.shared_memory();
    for (unsigned i = 0; i < 4; ++i) {
        std::array<std::array<std::uint16_t, 8>, 8> matrix{};
        for (unsigned row = 0; row < 8; ++row) {
            auto const* const address =
                static_cast<std::byte const*>(static_cast<fragment*>(arguments[8 * i + row])->row);
            if (address < shared || address + 16 > shared + m.shared_bytes()) {
                m.report("ldmatrix: the row of lane " + std::to_string(8 * i + row) + " is not in shared memory");
                m.leave();
            }
            if (reinterpret_cast<std::uintptr_t>(address) % 16 != 0) {
                m.report("ldmatrix: the row of lane " + std::to_string(8 * i + row) + " is not aligned to 16 bytes");
                m.leave();
            }
            std::memcpy(matrix[row].data(), address, 16);
        }
        for (unsigned lane = 0; lane < 32; ++lane) {
            unsigned const g = lane / 4;
            unsigned const t = 2 * (lane % 4);
            std::uint32_t const low = matrix[g][t];
            std::uint32_t const high = matrix[g][t + 1];
            static_cast<fragment*>(arguments[lane])->r[i] = high << 16 | low;
        }
    }
}

inline constexpr collective ldmatrix_operation{"ldmatrix", &complete_ldmatrix};

}  // namespace detail

/// d = a b + c for the warp's 16 x 16 matrix a and 16 x 8 matrix b (of bf16, two in a word).
inline void mma_m16n8k16_bf16(float (&d)[4], std::uint32_t const (&a)[4], std::uint32_t const (&b)[2],
                              float const (&c)[4], where place = where::current()) {
    detail::product arguments{a, b, c, d};
    detail::machine::the().gather(detail::bf16_product, 0xffffffffu, &arguments, place);
}
/// The same of half.
inline void mma_m16n8k16_half(float (&d)[4], std::uint32_t const (&a)[4], std::uint32_t const (&b)[2],
                              float const (&c)[4], where place = where::current()) {
    detail::product arguments{a, b, c, d};
    detail::machine::the().gather(detail::half_product, 0xffffffffu, &arguments, place);
}

/// 8 x 8 matrices of 16-bit elements from shared memory. Lane 8i + j gives the address of row j of matrix i. Lane 4g +
/// t gets of each matrix the elements 2t and 2t + 1 of row g.
inline void ldmatrix_x4(std::uint32_t (&r)[4], void const* row, where place = where::current()) {
    detail::fragment arguments{row, r};
    detail::machine::the().gather(detail::ldmatrix_operation, 0xffffffffu, &arguments, place);
}

}  // namespace emulator

// SPDX-License-Identifier: MIT
//
// Functions of one thread: bits, arithmetic with a stated rounding, conversions, loads and stores with a cache hint.
//
// The fast approximations (__expf, __logf, __fdividef, rsqrtf) are exact to the last place here, on the hardware they
// are not: a test that needs their exact value is wrong. Device compilers contract a * b + c into one rounding unless
// __fmul_rn and its like say otherwise; the host's compiler does not.
#pragma once

#include <math.h>

#include <bit>
#include <cstdint>
#include <limits>

#include "collectives.hpp"

// ---- bits
// --------------------------------------------------------------------------------------------------------------

inline int __popc(unsigned x) {
    return std::popcount(x);
}
inline int __popcll(unsigned long long x) {
    return std::popcount(x);
}
inline int __clz(int x) {
    return std::countl_zero(static_cast<unsigned>(x));
}
inline int __clzll(long long x) {
    return std::countl_zero(static_cast<unsigned long long>(x));
}
inline int __ffs(int x) {
    return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1;
}
inline int __ffsll(long long x) {
    return x == 0 ? 0 : std::countr_zero(static_cast<unsigned long long>(x)) + 1;
}
inline unsigned __brev(unsigned x) {
    unsigned y = 0;
    for (int i = 0; i < 32; ++i) y |= (x >> i & 1u) << (31 - i);
    return y;
}
inline unsigned long long __brevll(unsigned long long x) {
    return static_cast<unsigned long long>(__brev(static_cast<unsigned>(x))) << 32 |
           __brev(static_cast<unsigned>(x >> 32));
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    std::uint64_t const both = static_cast<std::uint64_t>(y) << 32 | x;
    unsigned out = 0;
    for (unsigned i = 0; i < 4; ++i) {
        unsigned const s = selector >> (4 * i) & 0xfu;
        auto byte = static_cast<unsigned>(both >> (8 * (s & 7u))) & 0xffu;
        if ((s & 8u) != 0) byte = (byte & 0x80u) != 0 ? 0xffu : 0u;
        out |= byte << (8 * i);
    }
    return out;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return static_cast<unsigned>((static_cast<std::uint64_t>(high) << 32 | low) << (shift & 31u) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return static_cast<unsigned>((static_cast<std::uint64_t>(high) << 32 | low) >> (shift & 31u));
}

// ---- integers
// ----------------------------------------------------------------------------------------------------------

inline unsigned __umulhi(unsigned a, unsigned b) {
    return static_cast<unsigned>(static_cast<std::uint64_t>(a) * b >> 32);
}
inline int __mulhi(int a, int b) {
    return static_cast<int>(static_cast<std::int64_t>(a) * b >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    __extension__ using wide = unsigned __int128;
    return static_cast<unsigned long long>(static_cast<wide>(a) * b >> 64);
}
inline long long __mul64hi(long long a, long long b) {
    __extension__ using wide = __int128;
    return static_cast<long long>(static_cast<wide>(a) * b >> 64);
}
/// c + the dot product of four bytes each.
inline int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 4; ++i) {
        c += static_cast<int>(static_cast<signed char>(a >> (8 * i))) * static_cast<signed char>(b >> (8 * i));
    }
    return c;
}

#define EMULATOR_MIN_MAX(type)           \
    constexpr type min(type a, type b) { \
        return b < a ? b : a;            \
    }                                    \
    constexpr type max(type a, type b) { \
        return a < b ? b : a;            \
    }
EMULATOR_MIN_MAX(int)
EMULATOR_MIN_MAX(unsigned)
EMULATOR_MIN_MAX(long)
EMULATOR_MIN_MAX(unsigned long)
EMULATOR_MIN_MAX(long long)
EMULATOR_MIN_MAX(unsigned long long)
#undef EMULATOR_MIN_MAX
inline float min(float a, float b) {
    return fminf(a, b);
}
inline float max(float a, float b) {
    return fmaxf(a, b);
}
inline double min(double a, double b) {
    return fmin(a, b);
}
inline double max(double a, double b) {
    return fmax(a, b);
}

// ---- floating point
// ----------------------------------------------------------------------------------------------------

inline unsigned __float_as_uint(float x) {
    return std::bit_cast<unsigned>(x);
}
inline int __float_as_int(float x) {
    return std::bit_cast<int>(x);
}
inline float __uint_as_float(unsigned x) {
    return std::bit_cast<float>(x);
}
inline float __int_as_float(int x) {
    return std::bit_cast<float>(x);
}
inline long long __double_as_longlong(double x) {
    return std::bit_cast<long long>(x);
}
inline double __longlong_as_double(long long x) {
    return std::bit_cast<double>(x);
}

inline float __fadd_rn(float a, float b) {
    return a + b;
}
inline float __fsub_rn(float a, float b) {
    return a - b;
}
inline float __fmul_rn(float a, float b) {
    return a * b;
}
inline float __fdiv_rn(float a, float b) {
    return a / b;
}
inline float __fmaf_rn(float a, float b, float c) {
    return fmaf(a, b, c);
}
inline float __frcp_rn(float a) {
    return 1.0f / a;
}
inline float __fsqrt_rn(float a) {
    return sqrtf(a);
}
inline double __dadd_rn(double a, double b) {
    return a + b;
}
inline double __dsub_rn(double a, double b) {
    return a - b;
}
inline double __dmul_rn(double a, double b) {
    return a * b;
}
inline double __ddiv_rn(double a, double b) {
    return a / b;
}
inline double __fma_rn(double a, double b, double c) {
    return fma(a, b, c);
}
inline double __drcp_rn(double a) {
    return 1.0 / a;
}
inline double __dsqrt_rn(double a) {
    return sqrt(a);
}

inline float __expf(float x) {
    return expf(x);
}
inline float __exp10f(float x) {
    return powf(10.0f, x);
}
inline float __logf(float x) {
    return logf(x);
}
inline float __log2f(float x) {
    return log2f(x);
}
inline float __fdividef(float a, float b) {
    return a / b;
}
inline float __saturatef(float x) {
    return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f;
}
inline float rsqrtf(float x) {
    return 1.0f / sqrtf(x);
}
inline double rsqrt(double x) {
    return 1.0 / sqrt(x);
}

namespace emulator::detail {

/// Conversion as the hardware does it: a NaN becomes 0 (in 64 bits the least or largest number), what is too large
/// saturates.
template <class To, class From>
To saturated(From rounded) {
    constexpr bool wide = sizeof(To) == 8;
    using limits = std::numeric_limits<To>;
    if (rounded != rounded) return wide ? static_cast<To>(0x8000000000000000u) : To{0};
    if (rounded <= static_cast<From>(limits::min())) return limits::min();
    if (rounded >= ldexp(static_cast<From>(1), limits::digits)) return limits::max();
    return static_cast<To>(rounded);
}

}  // namespace emulator::detail

#define EMULATOR_CONVERSIONS(from, to, type, argument)               \
    inline type __##from##2##to##_rn(argument x) {                   \
        return emulator::detail::saturated<type>(std::nearbyint(x)); \
    }                                                                \
    inline type __##from##2##to##_rz(argument x) {                   \
        return emulator::detail::saturated<type>(std::trunc(x));     \
    }                                                                \
    inline type __##from##2##to##_rd(argument x) {                   \
        return emulator::detail::saturated<type>(std::floor(x));     \
    }                                                                \
    inline type __##from##2##to##_ru(argument x) {                   \
        return emulator::detail::saturated<type>(std::ceil(x));      \
    }
EMULATOR_CONVERSIONS(float, int, int, float)
EMULATOR_CONVERSIONS(float, uint, unsigned, float)
EMULATOR_CONVERSIONS(float, ll, long long, float)
EMULATOR_CONVERSIONS(float, ull, unsigned long long, float)
EMULATOR_CONVERSIONS(double, int, int, double)
EMULATOR_CONVERSIONS(double, uint, unsigned, double)
EMULATOR_CONVERSIONS(double, ll, long long, double)
EMULATOR_CONVERSIONS(double, ull, unsigned long long, double)
#undef EMULATOR_CONVERSIONS
inline float __int2float_rn(int x) {
    return static_cast<float>(x);
}
inline float __uint2float_rn(unsigned x) {
    return static_cast<float>(x);
}
inline float __ll2float_rn(long long x) {
    return static_cast<float>(x);
}
inline float __ull2float_rn(unsigned long long x) {
    return static_cast<float>(x);
}
inline float __double2float_rn(double x) {
    return static_cast<float>(x);
}
inline double __int2double_rn(int x) {
    return x;
}
inline double __uint2double_rn(unsigned x) {
    return x;
}
inline double __ll2double_rn(long long x) {
    return static_cast<double>(x);
}
inline double __ull2double_rn(unsigned long long x) {
    return static_cast<double>(x);
}

// ---- memory
// ------------------------------------------------------------------------------------------------------------

namespace emulator::detail {

template <class T>
concept hinted = one_of<T, char, signed char, unsigned char, short, unsigned short, int, unsigned, long, unsigned long,
                        long long, unsigned long long, float, double, char2, char4, uchar2, uchar4, short2, short4,
                        ushort2, ushort4, int2, int4, uint2, uint4, longlong2, ulonglong2, float2, float4, double2>;

/// Vectors must be aligned to their size, where the host would not mind.
template <class T>
void check_alignment(T const* address, char const* name) {
    if (reinterpret_cast<std::uintptr_t>(address) % alignof(T) != 0) {
        machine::the().running(name);
        machine::the().report(std::string{name} + ": the address is not aligned to " + std::to_string(alignof(T)) +
                              " bytes");
        machine::the().leave();
    }
}

}  // namespace emulator::detail

#define EMULATOR_LOAD(name)                                \
    template <emulator::detail::hinted T>                  \
    T name(T const* address) {                             \
        emulator::detail::check_alignment(address, #name); \
        return *address;                                   \
    }
#define EMULATOR_STORE(name)                               \
    template <emulator::detail::hinted T>                  \
    void name(T* address, std::type_identity_t<T> value) { \
        emulator::detail::check_alignment(address, #name); \
        *address = value;                                  \
    }
EMULATOR_LOAD(__ldg)
EMULATOR_LOAD(__ldcs)
EMULATOR_LOAD(__ldcg)
EMULATOR_LOAD(__ldca)
EMULATOR_LOAD(__ldlu)
EMULATOR_LOAD(__ldcv)
EMULATOR_STORE(__stcs)
EMULATOR_STORE(__stcg)
EMULATOR_STORE(__stwb)
EMULATOR_STORE(__stwt)
#undef EMULATOR_LOAD
#undef EMULATOR_STORE

// SPDX-License-Identifier: MIT
//
// Vectors for the kernels, written with the extensions that GCC and Clang share. Included by kernels_<name>.cpp, which
// defines the width of a register (ENGINE_VECTOR_BYTES) and the namespace (ENGINE_KERNELS). So each instruction set has
// copies of its own (kernels_table.hpp says why that matters). Intrinsics are used only where the extensions give bad
// code: in three conversions.
//
// A sum is 64 bytes of Real wide, whatever the register: lane l adds up the elements l, l + lanes, l + 2 lanes..., and
// the lanes are added in halves at the end. Elements past the end are zeros in their lanes, so that a tail is summed in
// no other way than the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#if defined(__F16C__)
#include <immintrin.h>
#endif

#define ENGINE_INLINE [[gnu::always_inline]] inline
/// After the parameters of a lambda. Inlined late, as flatten does it, GCC keeps lanes in memory.
#define ENGINE_LAMBDA __attribute__((always_inline))

namespace engine::ENGINE_KERNELS {

// ---- vectors ------------------------------------------------------------------------------------------------------

inline constexpr std::size_t vector_bytes = ENGINE_VECTOR_BYTES;

template <class T, std::size_t N>
struct vector_of {
    typedef T type __attribute__((vector_size(N * sizeof(T))));
};
template <class T, std::size_t N>
using vec = typename vector_of<T, N>::type;

/// Elements of Real in a register, in a block of 64 bytes, and registers in a block.
template <class Real>
inline constexpr std::size_t width = vector_bytes / sizeof(Real);
template <class Real>
inline constexpr std::size_t lanes = 64 / sizeof(Real);
inline constexpr std::size_t parts = 64 / vector_bytes;

template <class Real>
using wide = vec<Real, width<Real>>;

template <std::size_t I>
struct constant {  // not std::integral_constant, whose conversion is a function that others share
    static constexpr std::size_t value = I;
    ENGINE_INLINE constexpr operator std::size_t() const { return I; }
};

template <class F, std::size_t... I>
ENGINE_INLINE void unroll(F const& f, std::integer_sequence<std::size_t, I...>) {
    (f(constant<I>{}), ...);
}
/// f(0), f(1) ... f(N - 1) with constants: arrays of vectors indexed by them stay in registers.
template <std::size_t N, class F>
ENGINE_INLINE void unroll(F const& f) {
    unroll(f, std::make_integer_sequence<std::size_t, N>{});
}

// ---- stored numbers -----------------------------------------------------------------------------------------------

struct half {
    std::uint16_t bits;
};
struct bfloat {
    std::uint16_t bits;
};

template <class V>
ENGINE_INLINE void read(void const* from, V& v) {
    __builtin_memcpy(&v, from, sizeof v);
}

/// N 16-bit patterns to 32 bits, zeros above. __builtin_convertvector, for which GCC 12 unpacks halves, where there is
/// no instruction. (The masked intrinsics, because the plain ones make GCC 12 warn of its own header.)
template <std::size_t N>
ENGINE_INLINE void widen(void const* from, vec<std::uint32_t, N>& v) {
#if defined(__AVX512F__)
    if constexpr (N == 16) {
        __m256i h;
        read(from, h);
        v = (vec<std::uint32_t, 16>)_mm512_maskz_cvtepu16_epi32(0xffff, h);
        return;
    }
#endif
#if defined(__AVX2__)
    if constexpr (N == 8) {
        __m128i h;
        read(from, h);
        v = (vec<std::uint32_t, 8>)_mm256_cvtepu16_epi32(h);
        return;
    }
#endif
    vec<std::uint16_t, N> h;
    read(from, h);
    v = __builtin_convertvector(h, vec<std::uint32_t, N>);
}

/// N stored numbers as they are.
template <std::size_t N>
ENGINE_INLINE void expand(double const* from, vec<double, N>& v) {
    read(from, v);
}
template <std::size_t N>
ENGINE_INLINE void expand(float const* from, vec<float, N>& v) {
    read(from, v);
}
template <std::size_t N>
ENGINE_INLINE void expand(bfloat const* from, vec<float, N>& v) {
    vec<std::uint32_t, N> bits;
    widen<N>(from, bits);
    v = (vec<float, N>)(bits << 16);
}
/// Exact, subnormals included; a signalling NaN may become a quiet one.
template <std::size_t N>
ENGINE_INLINE void expand(half const* from, vec<float, N>& v) {
#if defined(__AVX512F__)
    if constexpr (N == 16) {
        __m256i h;
        read(from, h);
        v = (vec<float, 16>)_mm512_maskz_cvtph_ps(0xffff, h);
        return;
    }
#endif
#if defined(__F16C__)
    if constexpr (N == 8) {
        __m128i h;
        read(from, h);
        v = (vec<float, 8>)_mm256_cvtph_ps(h);
        return;
    }
    if constexpr (N == 4) {
        __m128i h = {};
        __builtin_memcpy(&h, from, 8);
        v = (vec<float, 4>)_mm_cvtph_ps(h);
        return;
    }
#endif
    // Exponent and mantissa moved to float's place are the number times 2^-112, also where it is subnormal. The one
    // exponent for which that fails is the one of infinity and NaN: it becomes float's.
    vec<std::uint32_t, N> bits;
    widen<N>(from, bits);
    vec<std::uint32_t, N> const shifted = (bits & 0x7fffU) << 13;
    vec<float, N> const scaled = (vec<float, N>)shifted * 0x1p112f;
    vec<std::uint32_t, N> const special = (vec<std::uint32_t, N>)(shifted >= 0x0f800000U);
    v = (vec<float, N>)((vec<std::uint32_t, N>)scaled | (special & 0x7f800000U) | ((bits & 0x8000U) << 16));
}

template <class Stored>
struct expanded {
    using type = Stored;
};
template <>
struct expanded<half> {
    using type = float;
};
template <>
struct expanded<bfloat> {
    using type = float;
};

/// A register of Real.
template <class Real, class Stored>
ENGINE_INLINE void load(Stored const* from, wide<Real>& v) {
    vec<typename expanded<Stored>::type, width<Real>> stored;
    expand<width<Real>>(from, stored);
    v = __builtin_convertvector(stored, wide<Real>);
}
/// The same of `count` numbers, with zeros behind them if they are fewer.
template <class Real, class Stored>
ENGINE_INLINE void load(Stored const* from, std::size_t count, wide<Real>& v) {
    if (count >= width<Real>) {
        load<Real>(from, v);
    } else {
        Stored padded[width<Real>] = {};
        __builtin_memcpy(padded, from, count * sizeof(Stored));
        load<Real>(padded, v);
    }
}
template <class Real>
ENGINE_INLINE void store(Real* to, std::size_t count, wide<Real> const& v) {
    if (count >= width<Real>) {
        __builtin_memcpy(to, &v, sizeof v);
    } else {
        __builtin_memcpy(to, &v, count * sizeof(Real));
    }
}

// ---- sums ---------------------------------------------------------------------------------------------------------

/// The lanes of a sum.
template <class Real>
struct block {
    wide<Real> part[parts];
};

/// The lanes as one register.
template <class Real>
ENGINE_INLINE void add_parts(block<Real> const& b, wide<Real>& v) {
    v = b.part[0];
    if constexpr (parts == 2) v = v + b.part[1];
    if constexpr (parts == 4) v = (v + b.part[2]) + (b.part[1] + b.part[3]);
}

/// Of every 2 * Half lanes the first Half become the sums of a's two halves, the others the sums of b's.
template <class Real, std::size_t Half, std::size_t... I>
ENGINE_INLINE void fold(wide<Real>& a, wide<Real> const& b, std::integer_sequence<std::size_t, I...>) {
    constexpr std::size_t n = sizeof...(I);
    wide<Real> const stay = __builtin_shufflevector(a, b, ((I & Half) == 0 ? I : I + n)...);
    wide<Real> const cross = __builtin_shufflevector(a, b, ((I & Half) == 0 ? I + Half : I + n - Half)...);
    a = stay + cross;
}
/// The same of one register, or of pairs of the first Left, and so on with half as many and with half as many lanes.
template <class Real, std::size_t Half, std::size_t Left, std::size_t Count>
ENGINE_INLINE void fold(wide<Real> (&v)[Count]) {
    using every = std::make_integer_sequence<std::size_t, width<Real>>;
    constexpr std::size_t next = Left == 1 ? 1 : Left / 2;
    unroll<next>([&](auto j) { fold<Real, Half>(v[j], v[j + Left - next], every{}); });
    if constexpr (Half > 1) fold<Real, Half / 2, next>(v);
}
/// Every Step-th lane, side by side.
template <class Real, std::size_t Step, std::size_t... I>
ENGINE_INLINE void gather(wide<Real>& v, std::integer_sequence<std::size_t, I...>) {
    v = __builtin_shufflevector(v, v, (I * Step % sizeof...(I))...);
}

[[nodiscard]] inline constexpr std::size_t power_of_two(std::size_t at_least) {
    std::size_t n = 1;
    while (n < at_least) n *= 2;
    return n;
}

/// Lane j of the first register becomes the sum of the lanes of v[j], added up in halves. Summing one register alone
/// takes as many steps as summing a set of them: every step of a set halves the registers that are left.
template <class Real, std::size_t Count>
ENGINE_INLINE void sum_each(wide<Real> (&v)[Count]) {
    static_assert(Count <= width<Real> && (Count & (Count - 1)) == 0);
    fold<Real, width<Real> / 2, Count>(v);
    if constexpr (Count > 1 && Count < width<Real>) {  // sums stand width / Count lanes apart
        gather<Real, width<Real> / Count>(v[0], std::make_integer_sequence<std::size_t, width<Real>>{});
    }
}

template <class Real>
ENGINE_INLINE Real sum(block<Real> const& b) {
    wide<Real> v[1];
    add_parts(b, v[0]);
    sum_each<Real>(v);
    return v[0][0];
}

/// f(at, count, lanes) adds the elements at, at + 1 ... of `count` that are left to its register of the lanes; this is
/// the sum over [0, size).
template <class Real, class F>
ENGINE_INLINE Real sum_over(std::size_t size, F const& f) {
    block<Real> acc = {};
    for (std::size_t c = 0; c < size; c += lanes<Real>) {
        unroll<parts>([&](auto p) {
            std::size_t const at = c + p * width<Real>;
            if (at < size) f(at, size - at, acc.part[p]);
        });
    }
    return sum(acc);
}

}  // namespace engine::ENGINE_KERNELS

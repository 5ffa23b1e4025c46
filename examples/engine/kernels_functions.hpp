// SPDX-License-Identifier: MIT
//
// The functions between the products, attention, and the table of everything that an instruction set has. Each function
// has one loop over its elements, which takes the last few through a padded copy: a second loop for them might be fused
// otherwise, and a number would depend on where it stands.
#pragma once

#include "kernels_product.hpp"

namespace engine::ENGINE_KERNELS {

// ---- elementwise --------------------------------------------------------------------------------------------------

template <class Real>
struct exp_constants;
template <>
struct exp_constants<float> {
    using bits = std::uint32_t;
    static constexpr int mantissa = 23, bias = 127, degree = 7;
    static constexpr float low = -110.0f, high = 90.0f;  // beyond: 0 and infinity
    static constexpr float ln2_high = 0x1.62ep-1f;       // ends in so many zeros that its product with k is exact
    static constexpr float ln2_low = 0x1.0bfbe8p-15f;    // ln 2 - ln2_high
};
template <>
struct exp_constants<double> {
    using bits = std::uint64_t;
    static constexpr int mantissa = 52, bias = 1023, degree = 13;
    static constexpr double low = -760.0, high = 720.0;
    static constexpr double ln2_high = 0x1.62e42fefp-1;
    static constexpr double ln2_low = 0x1.473de6af278edp-34;
};

/// exp of every element, within 2 ulp: x = k ln 2 + r with |r| <= ln(2) / 2, exp(r) by its power series (the first
/// term left out is below a tenth of an ulp, so fitted coefficients would gain nothing), times 2^k in two factors so
/// that subnormal results and infinity come out right. NaN stays NaN.
template <class Real>
ENGINE_INLINE void exp(wide<Real>& x) {
    using traits = exp_constants<Real>;
    using integer = typename traits::bits;
    using integers = vec<integer, width<Real>>;
    wide<Real> const zero = {};
    x = x < traits::low ? zero + traits::low : x;
    x = x > traits::high ? zero + traits::high : x;
    // Adding 1.5 * 2^mantissa rounds to an integer and leaves it in the low bits.
    constexpr Real magic = static_cast<Real>(integer{3} << (traits::mantissa - 1));
    wide<Real> const shifted = x * static_cast<Real>(1.4426950408889634) + magic;
    wide<Real> const k = shifted - magic;
    wide<Real> r = x - k * traits::ln2_high;
    r = r - k * traits::ln2_low;
    wide<Real> series = zero + Real{1};
    unroll<traits::degree>(
        [&](auto i) { series = series * (r * (Real{1} / static_cast<Real>(traits::degree - i))) + Real{1}; });
    // 2^k = 2^floor(k / 2) 2^(k - floor(k / 2)); k is negative as often as not, so it is made positive for the shift.
    constexpr integer offset = integer{2} * traits::bias;
    integers const e = (integers)shifted - (integers)(zero + magic) + offset;
    integers const first = e >> 1;
    x = series * (wide<Real>)(first << traits::mantissa) * (wide<Real>)((e - first) << traits::mantissa);
}

template <class Real>
[[gnu::flatten]] void rms_norm(Real const* x, Real const* scale, std::size_t size, double epsilon, Real* out) {
    Real const squares = sum_over<Real>(size, [&](std::size_t at, std::size_t count, wide<Real>& acc) {
        wide<Real> v;
        load<Real>(x + at, count, v);
        acc += v * v;
    });
    double const mean = static_cast<double>(squares) / static_cast<double>(size);
    Real const factor = static_cast<Real>(1.0 / __builtin_sqrt(mean + epsilon));
    for (std::size_t c = 0; c < size; c += width<Real>) {
        wide<Real> v;
        wide<Real> s;
        load<Real>(x + c, size - c, v);
        load<Real>(scale + c, size - c, s);
        store<Real>(out + c, size - c, v * factor * s);
    }
}

template <class Real>
[[gnu::flatten]] void rotate(Real* x, Real const* cos, Real const* sin, std::size_t size) {
    std::size_t const pairs = size / 2;
    for (std::size_t i = 0; i < pairs; i += width<Real>) {
        std::size_t const count = pairs - i;
        wide<Real> a;
        wide<Real> b;
        wide<Real> c;
        wide<Real> s;
        load<Real>(x + i, count, a);
        load<Real>(x + pairs + i, count, b);
        load<Real>(cos + i, count, c);
        load<Real>(sin + i, count, s);
        store<Real>(x + i, count, a * c - b * s);
        store<Real>(x + pairs + i, count, b * c + a * s);
    }
}

template <class Real>
[[gnu::flatten]] void silu_mul(Real* gate, Real const* up, std::size_t size) {
    for (std::size_t i = 0; i < size; i += width<Real>) {
        wide<Real> g;
        wide<Real> u;
        load<Real>(gate + i, size - i, g);
        load<Real>(up + i, size - i, u);
        wide<Real> e = -g;
        exp<Real>(e);
        store<Real>(gate + i, size - i, g / (e + Real{1}) * u);
    }
}

// ---- attention ----------------------------------------------------------------------------------------------------

/// out[0, G registers) = sum_k weights[k] values[k][...], key by key.
template <class Real, std::size_t G>
ENGINE_INLINE void weigh(Real const* weights, Real const* values, std::size_t n, std::size_t size, std::size_t count,
                         Real factor, Real* out) {
    wide<Real> acc[G] = {};
    for (std::size_t k = 0; k < n; ++k) {
        unroll<G>([&](auto g) {
            wide<Real> v;
            load<Real>(values + k * size + g * width<Real>, G > 1 ? width<Real> : count, v);
            acc[g] += v * weights[k];
        });
    }
    unroll<G>([&](auto g) { store<Real>(out + g * width<Real>, G > 1 ? width<Real> : count, acc[g] * factor); });
}

template <class Real>
[[gnu::flatten]] void attend(Real const* query, Real const* keys, Real const* values, std::size_t n, std::size_t size,
                             Real scale, Real* scores, Real* out) {
    Real tail[lanes<Real>];
    std::size_t const rest = size % lanes<Real>;
    for (std::size_t c = 0; c < lanes<Real>; ++c) tail[c] = c < rest ? query[size - rest + c] : Real{0};
    tiles<Real, Real, 1>(query, tail, keys, n, size, scores, n, false);
    Real greatest = scores[0];
    for (std::size_t k = 1; k < n; ++k) greatest = scores[k] > greatest ? scores[k] : greatest;
    Real const total = sum_over<Real>(n, [&](std::size_t at, std::size_t count, wide<Real>& acc) {
        wide<Real> s;
        load<Real>(scores + at, count, s);
        s = (s - greatest) * scale;
        exp<Real>(s);
        store<Real>(scores + at, count, s);
        load<Real>(scores + at, count, s);  // zeros past the end
        acc += s;
    });
    Real const factor = Real{1} / total;
    constexpr std::size_t group = 8;
    std::size_t c = 0;
    for (; c + group * width<Real> <= size; c += group * width<Real>) {
        weigh<Real, group>(scores, values + c, n, size, 0, factor, out + c);
    }
    for (; c < size; c += width<Real>) weigh<Real, 1>(scores, values + c, n, size, size - c, factor, out + c);
}

// ---- reading ------------------------------------------------------------------------------------------------------

/// Reads as the products do, eight streams at a time and asking ahead, which is faster here than one after another.
[[gnu::flatten]] inline std::uint64_t read_all(void const* data, std::size_t bytes) {
    constexpr std::size_t streams = 8;
    constexpr std::size_t length = 2048;
    using words = vec<std::uint64_t, vector_bytes / 8>;
    auto const* from = static_cast<char const*>(data);
    words acc[streams] = {};
    for (; bytes >= streams * length; bytes -= streams * length, from += streams * length) {
        for (std::size_t at = 0; at < length; at += vector_bytes) {
            unroll<streams>([&](auto i) {
                words v;
                read(from + i * length + at, v);
                ask_for(from + i * length + at, streams * length);
                acc[i] ^= v;
            });
        }
    }
    std::uint64_t result = 0;
    for (; bytes > 0; --bytes) result ^= static_cast<unsigned char>(*from++);
    for (words const& v : acc) {
        for (std::size_t i = 0; i < vector_bytes / 8; ++i) result ^= v[i];
    }
    return result;
}

template <class Real>
inline constexpr kernel_table<Real> table = {
    {multiply<Real, double>, multiply<Real, float>, multiply<Real, half>, multiply<Real, bfloat>},
    {load_row<Real, double>, load_row<Real, float>, load_row<Real, half>, load_row<Real, bfloat>},
    pack<Real>,
    rms_norm<Real>,
    rotate<Real>,
    silu_mul<Real>,
    attend<Real>,
};

}  // namespace engine::ENGINE_KERNELS

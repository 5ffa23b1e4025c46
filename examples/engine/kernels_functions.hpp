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

/// exp of every element, within 2 ulp. With x = k ln 2 + r and |r| <= ln(2) / 2, exp(r) is its power series. The first
/// term left out is below a tenth of an ulp, so fitted coefficients would gain nothing. 2^k is multiplied in two
/// factors, so that subnormal results and infinity come out right. NaN stays NaN.
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

// Queries of a few rows and of the heads that share keys and values come together: both are read once for all of them.
// That is what attention to a context waits for.

/// The exponentials of a query's scores in their place; returns one over their sum.
template <class Real>
ENGINE_INLINE Real softmax(Real* scores, std::size_t n, Real scale) {
    wide<Real> top = wide<Real>{} + scores[0];
    std::size_t k = 0;
    for (; k + width<Real> <= n; k += width<Real>) {
        wide<Real> s;
        load<Real>(scores + k, s);
        top = s > top ? s : top;
    }
    Real greatest = top[0];
    for (std::size_t i = 1; i < width<Real>; ++i) greatest = top[i] > greatest ? top[i] : greatest;
    for (; k < n; ++k) greatest = scores[k] > greatest ? scores[k] : greatest;
    Real const total = sum_over<Real>(n, [&](std::size_t at, std::size_t count, wide<Real>& acc) {
        wide<Real> s;
        load<Real>(scores + at, count, s);
        s = (s - greatest) * scale;
        exp<Real>(s);
        store<Real>(scores + at, count, s);
        load<Real>(scores + at, count, s);  // zeros past the end
        acc += s;
    });
    return Real{1} / total;
}

/// G registers of the outputs of Q queries, from column `at` on: the sum of their weighted values, key by key.
template <class Real, std::size_t G, std::size_t Q>
ENGINE_INLINE void weigh(attention_query<Real> const* queries, Real const* weights, std::size_t stride,
                         Real const (&factor)[Q], Real const* values, std::size_t size, std::size_t at) {
    std::size_t const left = size - at;
    std::size_t shared = queries[0].keys;
    std::size_t most = shared;
    for (std::size_t q = 1; q < Q; ++q) {
        shared = queries[q].keys < shared ? queries[q].keys : shared;
        most = queries[q].keys > most ? queries[q].keys : most;
    }
    wide<Real> acc[Q * G];
    unroll<Q * G>([&](auto i) ENGINE_LAMBDA { acc[i] = wide<Real>{}; });
    for (std::size_t k = 0; k < most; ++k) {
        wide<Real> v[G];
        unroll<G>([&](auto g) ENGINE_LAMBDA {
            load<Real>(values + k * size + at + g * width<Real>, G > 1 ? width<Real> : left, v[g]);
        });
        unroll<Q>([&](auto q) ENGINE_LAMBDA {
            if (k < shared || k < queries[q].keys) {
                Real const weight = weights[q * stride + k];
                unroll<G>([&](auto g) ENGINE_LAMBDA { acc[q * G + g] += v[g] * weight; });
            }
        });
    }
    unroll<Q>([&](auto q) ENGINE_LAMBDA {
        unroll<G>([&](auto g) ENGINE_LAMBDA {
            store<Real>(queries[q].out + at + g * width<Real>, G > 1 ? width<Real> : left, acc[q * G + g] * factor[q]);
        });
    });
}

template <class Real, std::size_t Q>
[[gnu::flatten]] void finish(attention_query<Real> const* queries, Real* scores, std::size_t stride, Real const* values,
                             std::size_t size, Real scale) {
    Real factor[Q];
    for (std::size_t q = 0; q < Q; ++q) factor[q] = softmax(scores + q * stride, queries[q].keys, scale);
    std::size_t c = 0;
    for (; c + 4 * width<Real> <= size; c += 4 * width<Real>) {
        weigh<Real, 4>(queries, scores, stride, factor, values, size, c);
    }
    for (; c < size; c += width<Real>) weigh<Real, 1>(queries, scores, stride, factor, values, size, c);
}

template <class Real>
void attend(attention_query<Real> const* queries, std::size_t count, Real const* keys, Real const* values,
            std::size_t size, Real scale, Real* packed, Real* scores) {
    std::size_t most = 0;
    for (std::size_t q = 0; q < count; ++q) {
        pack_row<Real, Real>(queries[q].x, count, size, q, packed);
        most = queries[q].keys > most ? queries[q].keys : most;
    }
    multiply<Real, Real>(packed, count, keys, most, size, scores, most, false);
    constexpr std::size_t together = vector_bytes == 64 ? 4 : 2;
    std::size_t q = 0;
    for (; q + together <= count; q += together) {
        finish<Real, together>(queries + q, scores + q * most, most, values, size, scale);
    }
    // What is left reads the values once as well: three heads often share their keys.
    unroll<together>([&](auto left) {
        if constexpr (left > 0) {
            if (count - q == left) finish<Real, left>(queries + q, scores + q * most, most, values, size, scale);
        }
    });
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

/// What is rounded in double is double.
template <class Real>
struct rounding_of {
    using type = bfloat;
};
template <>
struct rounding_of<float> {
    using type = rounding_bfloat;
};
template <class Real>
using rounding = typename rounding_of<Real>::type;

template <class Real>
inline constexpr kernel_table<Real> table = {
    {{pack<Real, double>, multiply<Real, double>},
     {pack<Real, float>, multiply<Real, float>},
     {pack<Real, half>, multiply<Real, half>},
     {pack<Real, bfloat>, multiply<Real, bfloat>},
     {pack<Real, rounding<Real>>, multiply<Real, rounding<Real>>}},
    {load_row<Real, double>, load_row<Real, float>, load_row<Real, half>, load_row<Real, bfloat>},
    rows_together,
    rms_norm<Real>,
    rotate<Real>,
    silu_mul<Real>,
    attend<Real>,
};

}  // namespace engine::ENGINE_KERNELS

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

// Queries of a few rows and of the heads that share keys come together: a chunk is read once for all of them. That is
// what attention to a context waits for.

/// Queries whose sums stay in registers, beside a register of each column that they share.
inline constexpr std::size_t queries_together = 6;
inline constexpr std::size_t columns_together = vector_bytes == 64 ? 4 : 2;

/// G registers of Q sums, from column `at` on: out[q] = a[q][0] m[0] + a[q][1] m[1] ... up to a[q][rows[q] - 1]. The
/// rows of m have `size` numbers. Each sum is in the order of its rows, whatever is summed beside it.
template <class Real, std::size_t G, std::size_t Q>
ENGINE_INLINE void add_rows(Real const* const (&a)[Q], std::size_t const (&rows)[Q], Real const* m, std::size_t size,
                            std::size_t at, Real* const (&out)[Q]) {
    // What comes after it in the cache is the next head of the chunk.
    constexpr std::size_t ahead = 16384;
    std::size_t const left = size - at;
    std::size_t shared = rows[0];
    std::size_t most = shared;
    for (std::size_t q = 1; q < Q; ++q) {
        shared = rows[q] < shared ? rows[q] : shared;
        most = rows[q] > most ? rows[q] : most;
    }
    wide<Real> sum[Q * G];
    unroll<Q * G>([&](auto i) ENGINE_LAMBDA { sum[i] = wide<Real>{}; });
    for (std::size_t k = 0; k < most; ++k) {
        wide<Real> v[G];
        unroll<G>([&](auto g) ENGINE_LAMBDA {
            Real const* const from = m + k * size + at + g * width<Real>;
            if (g * width<Real> % lanes<Real> == 0) ask_for(from, ahead);
            load<Real>(from, G > 1 ? width<Real> : left, v[g]);
        });
        unroll<Q>([&](auto q) ENGINE_LAMBDA {
            if (k < shared || k < rows[q]) {
                Real const factor = a[q][k];
                unroll<G>([&](auto g) ENGINE_LAMBDA { sum[q * G + g] += v[g] * factor; });
            }
        });
    }
    unroll<Q>([&](auto q) ENGINE_LAMBDA {
        unroll<G>([&](auto g) ENGINE_LAMBDA {
            store<Real>(out[q] + at + g * width<Real>, G > 1 ? width<Real> : left, sum[q * G + g]);
        });
    });
}
template <class Real, std::size_t Q>
ENGINE_INLINE void add_rows(Real const* const (&a)[Q], std::size_t const (&rows)[Q], Real const* m, std::size_t size,
                            Real* const (&out)[Q]) {
    constexpr std::size_t step = columns_together * width<Real>;
    std::size_t c = 0;
    for (; c + step <= size; c += step) add_rows<Real, columns_together>(a, rows, m, size, c, out);
    for (; c < size; c += width<Real>) add_rows<Real, 1>(a, rows, m, size, c, out);
}

/// The weights of a chunk in place of its scores, zeros behind the keys that a query sees.
template <class Real>
ENGINE_INLINE void weigh(Real* scores, std::size_t keys, Real scale, Real& top, Real& total) {
    for (std::size_t k = keys; k < chunk_keys; ++k) scores[k] = -__builtin_inf();
    wide<Real> greatest = wide<Real>{} + scores[0];
    for (std::size_t k = 0; k < chunk_keys; k += width<Real>) {
        wide<Real> s;
        load<Real>(scores + k, s);
        greatest = s > greatest ? s : greatest;
    }
    Real most = greatest[0];
    for (std::size_t i = 1; i < width<Real>; ++i) most = greatest[i] > most ? greatest[i] : most;
    total = sum_over<Real>(chunk_keys, [&](std::size_t at, std::size_t, wide<Real>& acc) {
        wide<Real> s;
        load<Real>(scores + at, s);
        s = (s - most) * scale;
        exp<Real>(s);
        store<Real>(scores + at, width<Real>, s);
        acc += s;
    });
    top = most * scale;
}

template <class Real, std::size_t Q>
[[gnu::flatten]] void attend_together(attention_query<Real> const* queries, Real const* chunk, std::size_t size,
                                      Real scale) {
    Real scores[Q][chunk_keys];
    Real const* x[Q];
    Real const* weights[Q];
    Real* to[Q];
    Real* attended[Q];
    std::size_t components[Q];
    std::size_t keys[Q];
    for (std::size_t q = 0; q < Q; ++q) {
        x[q] = queries[q].x;
        weights[q] = to[q] = scores[q];
        attended[q] = queries[q].attended;
        components[q] = size;
        keys[q] = queries[q].keys;
    }
    add_rows<Real>(x, components, chunk, chunk_keys, to);
    for (std::size_t q = 0; q < Q; ++q) weigh(scores[q], keys[q], scale, attended[q][size], attended[q][size + 1]);
    add_rows<Real>(weights, keys, chunk + size * chunk_keys, size, attended);
}

template <class Real>
void attend(attention_query<Real> const* queries, std::size_t count, Real const* chunk, std::size_t size, Real scale) {
    for (; count >= queries_together; count -= queries_together, queries += queries_together) {
        attend_together<Real, queries_together>(queries, chunk, size, scale);
    }
    unroll<queries_together>([&](auto left) {
        if constexpr (left > 0) {
            if (count == left) attend_together<Real, left>(queries, chunk, size, scale);
        }
    });
}

template <class Real>
[[gnu::flatten]] void join_attended(Real const* chunks, std::size_t count, std::size_t size, Real* out) {
    std::size_t const stride = attended_size(size);
    Real top = chunks[size];
    for (std::size_t c = 1; c < count; ++c) top = chunks[c * stride + size] > top ? chunks[c * stride + size] : top;
    Real total = 0;
    for (std::size_t i = 0; i < size; ++i) out[i] = 0;
    for (std::size_t c = 0; c < count; ++c) {
        Real const* const from = chunks + c * stride;
        wide<Real> factor = wide<Real>{} + (from[size] - top);
        exp<Real>(factor);
        total += factor[0] * from[size + 1];
        for (std::size_t i = 0; i < size; i += width<Real>) {
            wide<Real> v;
            wide<Real> sum;
            load<Real>(from + i, size - i, v);
            load<Real>(out + i, size - i, sum);
            store<Real>(out + i, size - i, sum + v * factor);
        }
    }
    Real const factor = Real{1} / total;
    for (std::size_t i = 0; i < size; i += width<Real>) {
        wide<Real> v;
        load<Real>(out + i, size - i, v);
        store<Real>(out + i, size - i, v * factor);
    }
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
    join_attended<Real>,
};

}  // namespace engine::ENGINE_KERNELS

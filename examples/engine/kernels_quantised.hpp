// SPDX-License-Identifier: MIT
//
// Products with packed weights (quantised.hpp): integers inside a block, floats from block to block.
//
// Activations become integers of 8 bits, row by row, in blocks of 32 with one scale each. A block's sum of products is
// exact then, in whichever order a processor adds it. What is left of a block for one row of x is a conversion and two
// multiply-adds, with the block's scale and with its minimum. They come in the same order however many rows there are.
// So a row's bits do not depend on its batch.
//
// A block of weights is decoded once for up to `most_rows` rows of x. That is what makes verification cheap: decoding
// and memory are most of the work of one row, and further rows pay for neither.
#pragma once

#include <type_traits>

#include "kernels_table.hpp"
#include "kernels_vector.hpp"

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#endif

namespace engine::ENGINE_KERNELS {

inline constexpr std::size_t outputs = 16;  // of a block
inline constexpr std::size_t inputs = 32;

/// Of a block of 4, 5 or 8 bits.
template <unsigned Bits>
inline constexpr std::size_t scales_at = outputs * inputs * Bits / 8;
template <unsigned Bits>
inline constexpr std::size_t block_bytes = scales_at<Bits> + outputs * (Bits == 8 ? 2 : 4);

inline constexpr std::size_t group = vector_bytes / 4;  // outputs that a register holds 4 inputs of
inline constexpr std::size_t most_rows = vector_bytes == 64 ? 16 : 4;

using octets = vec<std::uint8_t, vector_bytes>;
using counts = vec<std::int32_t, group>;

// ---- activations --------------------------------------------------------------------------------------------------

/// 32 inputs of one row, in the memory of packed x, which is of Real. The same block of all rows lies together: a tile
/// reaches its rows from one address, so that no registers are spent on addresses.
template <class Real>
struct [[gnu::may_alias]] quantised_inputs {
    std::int8_t values[inputs];
    Real scale;
    Real scaled_sum;  // scale * sum
    std::int32_t sum;
};
static_assert(sizeof(quantised_inputs<float>) <= inputs * sizeof(float));

/// All lanes of v joined, in pairs of halves.
template <class T, std::size_t N, class Join>
ENGINE_INLINE void reduce(vec<T, N> const& v, Join const& join, T& out) {
    if constexpr (N == 2) {
        out = join(v[0], v[1]);
    } else {
        vec<T, N / 2> half[2];
        __builtin_memcpy(half, &v, sizeof v);
        vec<T, N / 2> const both = join(half[0], half[1]);
        reduce<T, N / 2>(both, join, out);
    }
}

/// Row `row` of x [n, cols].
template <class Real>
[[gnu::flatten]] void quantise(Real const* x, std::size_t n, std::size_t cols, std::size_t row, Real* out) {
    constexpr std::size_t registers = inputs / width<Real>;
    // Adding 1.5 * 2^mantissa rounds to an integer, ties to even, and leaves it in the low bits.
    constexpr bool is_float = sizeof(Real) == 4;
    constexpr Real magic = is_float ? Real(12582912.0) : Real(6755399441055744.0);
    using integer = std::conditional_t<is_float, std::int32_t, std::int64_t>;
    using integers = vec<integer, width<Real>>;
    constexpr integer magic_bits = is_float ? integer{0x4b400000} : static_cast<integer>(0x4338000000000000);
    Real const* from = x + row * cols;
    auto* to = reinterpret_cast<quantised_inputs<Real>*>(out) + row;
    for (std::size_t b = 0; b < cols / inputs; ++b, from += inputs, to += n) {
        wide<Real> v[registers];
        wide<Real> top = {};
        unroll<registers>([&](auto i) ENGINE_LAMBDA {
            load<Real>(from + i * width<Real>, v[i]);
            wide<Real> const size = v[i] < Real{0} ? -v[i] : v[i];
            top = size > top ? size : top;
        });
        Real largest;
        reduce<Real, width<Real>>(
            top, [](auto const& p, auto const& q) ENGINE_LAMBDA { return p > q ? p : q; }, largest);
        Real const scale = largest / Real{127};
        Real const inverse = largest > Real{0} ? Real{127} / largest : Real{0};
        integers sums = {};
        unroll<registers>([&](auto i) ENGINE_LAMBDA {
            wide<Real> const rounded = v[i] * inverse + magic;
            integers const whole = (integers)rounded - magic_bits;
            sums += whole;
            auto const narrow = __builtin_convertvector(whole, vec<std::int8_t, width<Real>>);
            __builtin_memcpy(to->values + i * width<Real>, &narrow, sizeof narrow);
        });
        integer sum;
        reduce<integer, width<Real>>(sums, [](auto const& p, auto const& q) ENGINE_LAMBDA { return p + q; }, sum);
        to->scale = scale;
        to->scaled_sum = scale * static_cast<Real>(sum);
        to->sum = static_cast<std::int32_t>(sum);
    }
}

// ---- weights ------------------------------------------------------------------------------------------------------

/// `group` outputs of a block, from output `first` on: 8 registers, each of 4 inputs.
template <unsigned Bits>
ENGINE_INLINE void decode(std::uint8_t const* block, std::size_t first, octets (&w)[8]) {
    if constexpr (Bits == 8) {
        unroll<8>([&](auto v) ENGINE_LAMBDA { read(block + v * 64 + first * 4, w[v]); });
    } else {
        octets fifth;
        if constexpr (Bits == 5) read(block + 256 + first * 4, fifth);
        unroll<4>([&](auto v) ENGINE_LAMBDA {
            octets both;
            read(block + v * 64 + first * 4, both);
            w[v] = both & 15;
            w[v + 4] = both >> 4;
            if constexpr (Bits == 5) {
                w[v] |= fifth << int{4 - v} & 16;
                w[v + 4] |= fifth >> int{v} & 16;
            }
        });
    }
}

/// Four numbers of a row in every place.
template <class V>
ENGINE_INLINE void spread(std::int8_t const* from, V& v) {
    std::int32_t four;
    __builtin_memcpy(&four, from, 4);
    v = (V)(counts{} + four);
}

#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
// The instruction takes unsigned weights: those of 8 bits are moved up by 128, and 128 times the sum of x comes off.
inline constexpr bool moves_up = true;
ENGINE_INLINE void multiply_add(counts& sum, octets const& w, octets const& x) {
#if defined(__AVX512VNNI__)
    sum = (counts)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)w, (__m512i)x);
#else
    sum = (counts)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)w, (__m256i)x);
#endif
}
template <unsigned Bits>
ENGINE_INLINE void dot(octets const (&w)[8], std::int8_t const* x, std::int32_t sum_of_x, counts& out) {
    counts part[2] = {counts{} - (Bits == 8 ? 128 * sum_of_x : 0), counts{}};
    unroll<8>([&](auto v) ENGINE_LAMBDA {
        octets four;
        spread(x + v * 4, four);
        multiply_add(part[v % 2], w[v], four);
    });
    out = part[0] + part[1];
}
#elif defined(__AVX2__)
inline constexpr bool moves_up = false;
// Pairs are added in 16 bits. Eight pairs of nibbles fit: 8 * 2 * 15 * 127 < 2^15. Of 5 bits four do, of 8 bits one.
template <unsigned Bits>
ENGINE_INLINE void dot(octets const (&w)[8], std::int8_t const* x, std::int32_t, counts& out) {
#if defined(__AVX512BW__)
    using shorts = __m512i;
    auto const ones = _mm512_set1_epi16(1);
    auto const pairs = [&](octets const& a, octets const& b)
                           ENGINE_LAMBDA { return _mm512_maddubs_epi16((__m512i)a, (__m512i)b); };
    auto const add16 = [](shorts a, shorts b) ENGINE_LAMBDA { return _mm512_add_epi16(a, b); };
    auto const fours = [&](shorts a) ENGINE_LAMBDA { return (counts)_mm512_madd_epi16(a, ones); };
    auto const size_of = [](octets const& a) ENGINE_LAMBDA { return (octets)_mm512_abs_epi8((__m512i)a); };
    auto const with_sign = [](octets const& a, octets const& s) ENGINE_LAMBDA {
        __m512i const zero = _mm512_setzero_si512();
        return (octets)_mm512_mask_sub_epi8((__m512i)a, _mm512_movepi8_mask((__m512i)s), zero, (__m512i)a);
    };
#else
    using shorts = __m256i;
    auto const ones = _mm256_set1_epi16(1);
    auto const pairs = [&](octets const& a, octets const& b)
                           ENGINE_LAMBDA { return _mm256_maddubs_epi16((__m256i)a, (__m256i)b); };
    auto const add16 = [](shorts a, shorts b) ENGINE_LAMBDA { return _mm256_add_epi16(a, b); };
    auto const fours = [&](shorts a) ENGINE_LAMBDA { return (counts)_mm256_madd_epi16(a, ones); };
    auto const size_of = [](octets const& a) ENGINE_LAMBDA { return (octets)_mm256_abs_epi8((__m256i)a); };
    auto const with_sign = [](octets const& a, octets const& s)
                               ENGINE_LAMBDA { return (octets)_mm256_sign_epi8((__m256i)a, (__m256i)s); };
#endif
    out = counts{};
    if constexpr (Bits == 8) {
        unroll<8>([&](auto v) ENGINE_LAMBDA {
            octets four;
            spread(x + v * 4, four);
            out += fours(pairs(size_of(w[v]), with_sign(four, w[v])));
        });
    } else {
        constexpr std::size_t together = Bits == 4 ? 8 : 4;
        unroll<8 / together>([&](auto part) ENGINE_LAMBDA {
            shorts some = {};
            unroll<together>([&](auto v) ENGINE_LAMBDA {
                octets four;
                spread(x + (part * together + v) * 4, four);
                some = add16(some, pairs(w[part * together + v], four));
            });
            out += fours(some);
        });
    }
}
#elif defined(__ARM_FEATURE_DOTPROD)
inline constexpr bool moves_up = false;
template <unsigned>
ENGINE_INLINE void dot(octets const (&w)[8], std::int8_t const* x, std::int32_t, counts& out) {
    int32x4_t part[2] = {vdupq_n_s32(0), vdupq_n_s32(0)};
    unroll<8>([&](auto v) ENGINE_LAMBDA {
        octets four;
        spread(x + v * 4, four);
        part[v % 2] = vdotq_s32(part[v % 2], (int8x16_t)w[v], (int8x16_t)four);
    });
    out = (counts)vaddq_s32(part[0], part[1]);
}
#else
inline constexpr bool moves_up = false;
/// Of twice as many lanes as `out` the sums of neighbours.
template <std::size_t... I>
ENGINE_INLINE void add_neighbours(vec<std::int32_t, 2 * sizeof...(I)> const& v, vec<std::int32_t, sizeof...(I)>& out,
                                  std::integer_sequence<std::size_t, I...>) {
    out = __builtin_shufflevector(v, v, (2 * I)...) + __builtin_shufflevector(v, v, (2 * I + 1)...);
}
// Processors without more multiply 16 bits fastest. Eight products of 5 bits fit in them, two of 8-bit numbers do.
template <unsigned Bits>
ENGINE_INLINE void dot(octets const (&w)[8], std::int8_t const* x, std::int32_t, counts& out) {
    using signed_octets = vec<std::int8_t, vector_bytes>;
    using shorts = vec<std::int16_t, vector_bytes>;
    using products = vec<std::int32_t, vector_bytes>;
    constexpr std::size_t together = Bits == 8 ? 2 : 8;
    products all = {};
    unroll<8 / together>([&](auto part) ENGINE_LAMBDA {
        shorts some = {};
        unroll<together>([&](auto v) ENGINE_LAMBDA {
            constexpr std::size_t at = part * together + v;
            signed_octets four;
            spread(x + at * 4, four);
            some += __builtin_convertvector((signed_octets)w[at], shorts) * __builtin_convertvector(four, shorts);
        });
        all += __builtin_convertvector(some, products);
    });
    vec<std::int32_t, 2 * group> pairs;
    add_neighbours(all, pairs, std::make_integer_sequence<std::size_t, 2 * group>{});
    add_neighbours(pairs, out, std::make_integer_sequence<std::size_t, group>{});
}
#endif

// ---- products -----------------------------------------------------------------------------------------------------

/// `group` numbers of a block's scales or minima, as Real.
template <class Real>
struct column {
    static constexpr std::size_t registers = group / width<Real>;
    wide<Real> part[registers];
};

/// Of N rows of x, `group` outputs from output `first` of a row of blocks on. All rows' blocks are `apart`.
template <class Real, unsigned Bits, std::size_t N>
[[gnu::flatten]] void group_of_outputs(quantised_inputs<Real> const* x, std::size_t apart, std::uint8_t const* w,
                                       std::size_t first, std::size_t blocks, Real* y, std::size_t stride,
                                       std::size_t count, bool add) {
    constexpr bool has_minimum = Bits < 8;
    constexpr std::size_t registers = column<Real>::registers;
    // As far as memory and its pages take to come, to the second cache: the first would lose it again meanwhile.
    constexpr std::size_t ahead = 64 * block_bytes<Bits>;
    column<Real> acc[N];
    unroll<N>([&](auto i) ENGINE_LAMBDA { acc[i] = {}; });
    for (std::size_t b = 0; b < blocks; ++b, w += block_bytes<Bits>, x += apart) {
        if (first == 0) {  // outputs further on find it in the cache
            unroll<block_bytes<Bits> / 64>([&](auto line) ENGINE_LAMBDA {
                __builtin_prefetch(
                    reinterpret_cast<void const*>(reinterpret_cast<std::uintptr_t>(w) + ahead + line * 64), 0, 2);
            });
        }
        octets weights[8];
        decode<Bits>(w, first, weights);
        if constexpr (Bits == 8 && moves_up) unroll<8>([&](auto v) ENGINE_LAMBDA { weights[v] ^= 0x80; });
        column<Real> scale;
        column<Real> minimum;
        unroll<registers>([&](auto p) ENGINE_LAMBDA {
            auto const* const at = reinterpret_cast<half const*>(w + scales_at<Bits>) + first + p * width<Real>;
            load<Real>(at, scale.part[p]);
            if constexpr (has_minimum) load<Real>(at + outputs, minimum.part[p]);
        });
        unroll<N>([&](auto i) ENGINE_LAMBDA {
            counts integers;
            dot<Bits>(weights, x[i].values, x[i].sum, integers);
            unroll<registers>([&](auto p) ENGINE_LAMBDA {
                vec<std::int32_t, width<Real>> some;
                __builtin_memcpy(&some, reinterpret_cast<char const*>(&integers) + p * sizeof some, sizeof some);
                acc[i].part[p] += __builtin_convertvector(some, wide<Real>) * (scale.part[p] * x[i].scale);
                if constexpr (has_minimum) acc[i].part[p] += minimum.part[p] * x[i].scaled_sum;
            });
        });
    }
    unroll<N>([&](auto i) ENGINE_LAMBDA {
        unroll<registers>([&](auto p) ENGINE_LAMBDA {
            std::size_t const at = p * width<Real>;
            if (at >= count) return;
            Real* const to = y + i * stride + at;
            wide<Real> sum = acc[i].part[p];
            if (add) {
                wide<Real> before;
                load<Real>(to, count - at, before);
                sum += before;
            }
            store<Real>(to, count - at, sum);
        });
    });
}

/// As product_functions::multiply. `w` begins with a whole block of outputs.
template <class Real, unsigned Bits>
void multiply_quantised(Real const* x, std::size_t n, void const* w, std::size_t rows, std::size_t cols, Real* y,
                        std::size_t stride, bool add) {
    std::size_t const blocks = cols / inputs;
    auto const* from = static_cast<std::uint8_t const*>(w);
    std::size_t const tiles = (n + most_rows - 1) / most_rows;
    for (std::size_t j = 0; j < rows; j += outputs, from += blocks * block_bytes<Bits>) {
        for (std::size_t t = 0; t < tiles; ++t) {  // as even as possible; the blocks stay in the cache meanwhile
            std::size_t const begin = t * n / tiles;
            std::size_t const size = (t + 1) * n / tiles - begin;
            auto const* const of = reinterpret_cast<quantised_inputs<Real> const*>(x) + begin;
            for (std::size_t first = 0; first < outputs && j + first < rows; first += group) {
                std::size_t const left = rows - j - first;
                Real* const to = y + begin * stride + j + first;
                unroll<most_rows>([&](auto i) {
                    if (size == i + 1) {
                        group_of_outputs<Real, Bits, i + 1>(of, n, from, first, blocks, to, stride,
                                                            left < group ? left : group, add);
                    }
                });
            }
        }
    }
}

template <class Real>
inline constexpr quantised_table<Real> packed_table = {
    {quantise<Real>, multiply_quantised<Real, 4>},
    {quantise<Real>, multiply_quantised<Real, 5>},
    {quantise<Real>, multiply_quantised<Real, 8>},
};

}  // namespace engine::ENGINE_KERNELS

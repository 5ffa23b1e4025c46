// SPDX-License-Identifier: MIT
//
// Everything that is written for NEON, which every AArch64 processor has. The header is empty for other processors, and
// for compilers without GCC's vector extensions. Functions need no attribute, and there is nothing to choose at run
// time.
#pragma once

#if defined(__aarch64__) && defined(__ARM_NEON) && defined(__GNUC__)

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include <arm_neon.h>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/detail/kernel/heads.hpp>
#include <sureleap/detail/kernel/rows.hpp>

#define SURELEAP_KERNEL inline
#define SURELEAP_INLINE __attribute__((always_inline)) inline  // sums stay in registers

SURELEAP_BEGIN_NAMESPACE
namespace detail::neon {

// ---- rows ------------------------------------------------------------------------------------------------------

struct isa {
    static constexpr std::size_t width = 4;
    using vec = float32x4_t;
    struct sums {
        float64x2_t low, high;
    };
    using flags = uint32x4_t;

    SURELEAP_KERNEL static vec load(float const* from) { return vld1q_f32(from); }
    SURELEAP_KERNEL static vec load(bf16 const* from) {
        return vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(patterns(from)), 16));
    }
    SURELEAP_KERNEL static vec load(half const* from) { return vcvt_f32_f16(vreinterpret_f16_u16(patterns(from))); }
    SURELEAP_KERNEL static void store(float* to, vec x) { vst1q_f32(to, x); }

    SURELEAP_KERNEL static vec fill(float x) { return vdupq_n_f32(x); }
    SURELEAP_KERNEL static vec plus(vec a, vec b) { return vaddq_f32(a, b); }
    /// Not vmaxq, which hands on a NaN from either side.
    SURELEAP_KERNEL static vec max(vec a, vec b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
    SURELEAP_KERNEL static vec multiply_add(vec a, vec b, vec c) { return vfmaq_f32(c, a, b); }
    SURELEAP_KERNEL static vec subtract_product(vec a, vec b, vec c) { return vfmsq_f32(a, b, c); }

    /// As in avx2.hpp.
    SURELEAP_KERNEL static vec exp2(vec x) {
        uint32x4_t const normal = vmvnq_u32(vcltq_f32(x, fill(-126.0f)));
        x = max(fill(-126.0f), x);
        vec const n = vrndnq_f32(vbslq_f32(vcltq_f32(fill(200.0f), x), fill(200.0f), x));
        vec const f = vsubq_f32(x, n);
        vec p = fill(0.0013276472f);
        p = multiply_add(p, f, fill(0.0096755414f));
        p = multiply_add(p, f, fill(0.0555071327f));
        p = multiply_add(p, f, fill(0.2402211972f));
        p = multiply_add(p, f, fill(0.6931469671f));
        p = multiply_add(p, f, fill(1.0000000717f));
        int32x4_t const whole = vcvtq_s32_f32(n);
        int32x4_t const half_of_it = vshrq_n_s32(whole, 1);
        vec const power_of_two = vmulq_f32(vmulq_f32(p, power(half_of_it)), power(vsubq_s32(whole, half_of_it)));
        return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(power_of_two), normal));
    }

    SURELEAP_KERNEL static sums zero() { return {vdupq_n_f64(0.0), vdupq_n_f64(0.0)}; }
    SURELEAP_KERNEL static void add(sums& s, vec x) {
        s.low = vaddq_f64(s.low, vcvt_f64_f32(vget_low_f32(x)));
        s.high = vaddq_f64(s.high, vcvt_high_f64_f32(x));
    }
    SURELEAP_KERNEL static double total(sums const& s) { return vaddvq_f64(vaddq_f64(s.low, s.high)); }
    SURELEAP_KERNEL static float largest(vec x) { return vmaxvq_f32(x); }

    SURELEAP_KERNEL static void raise(flags& f, vec x) {
        f = vorrq_u32(f, vmvnq_u32(vcltq_f32(x, fill(std::numeric_limits<float>::infinity()))));
    }
    SURELEAP_KERNEL static bool any(flags f) { return vmaxvq_u32(f) != 0; }
    SURELEAP_KERNEL static std::uint32_t exceeds(vec a, vec b) {
        return vaddvq_u32(vbicq_u32(uint32x4_t{1, 2, 4, 8}, vcleq_f32(a, b)));
    }

    using words = int32x4_t;
    SURELEAP_KERNEL static words no_words() { return vdupq_n_s32(0); }
    SURELEAP_KERNEL static words either(words a, words b) { return vorrq_s32(a, b); }
    /// The conversion stops at the largest number, and makes a zero of NaN: neither is negative.
    SURELEAP_KERNEL static words rounded(vec x) {
        return vbslq_s32(vcltq_f32(x, fill(0x1p31f)), vcvtnq_s32_f32(x), vdupq_n_s32(-1));
    }
    SURELEAP_KERNEL static vec pattern(words w) { return vreinterpretq_f32_s32(w); }
    SURELEAP_KERNEL static bool any_negative(words w) { return vminvq_s32(w) < 0; }

private:
    template <class Narrow>
    SURELEAP_KERNEL static uint16x4_t patterns(Narrow const* from) {
        static_assert(sizeof(Narrow) == sizeof(std::uint16_t));
        uint16x4_t bits;
        std::memcpy(&bits, from, sizeof bits);
        return bits;
    }
    SURELEAP_KERNEL static vec power(int32x4_t n) {
        return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23));
    }
};

#include <sureleap/detail/kernel/rows.inl>

// ---- heads -----------------------------------------------------------------------------------------------------

/// Four rows are multiplied side by side with one vector: sixteen sums of four lanes, which is half of the registers. A
/// batch goes over the same four rows once for every vector, from the first cache. heads.inl is not used: its block
/// sizes were measured on x86. Nothing has been measured on AArch64 (tests/aarch64.sh only runs it).
struct heads {
    static constexpr std::size_t lanes = 16;
    static constexpr std::size_t parts = lanes / isa::width;
    static constexpr std::size_t together = 4;  // rows

    /// Rows i .. i + 3; the last row takes the place of those that are not there.
    template <class W>
    struct group {
        W const* row[together];
        std::size_t size;

        group(row_selection<W> const& rows, std::size_t i) : size(std::min(together, rows.count - i)) {
            for (std::size_t r = 0; r < together; ++r) row[r] = rows.row(std::min(i + r, rows.count - 1));
        }
    };
    /// Rows here and there are fetched a group ahead; memory sees by itself which ones follow one another.
    template <class W>
    static void fetch_named(row_selection<W> const& rows, std::size_t first) {
        if (rows.ids == nullptr) return;
        for (std::size_t i = first; i < first + together && i < rows.count; ++i) {
            auto const* const row = reinterpret_cast<char const*>(rows.row(i));
            for (std::size_t c = 0; c < rows.cols * sizeof(W); c += 64) __builtin_prefetch(row + c, 0, 2);
        }
    }

    /// y[r] = base[r] + sum r, for `size` of them.
    static void store(float const* base, float* y, std::size_t size, float32x4_t sums) {
        float some[together] = {};
        for (std::size_t r = 0; r < size; ++r) some[r] = base[r];
        vst1q_f32(some, vaddq_f32(vld1q_f32(some), sums));
        for (std::size_t r = 0; r < size; ++r) y[r] = some[r];
    }

    // ---- floating point ----------------------------------------------------------------------------------------

    struct sums {
        float32x4_t of[together][parts];
    };
    /// Columns that `add` takes: of bf16 two for every lane, since eight of them are widened two by two.
    template <class W>
    static constexpr std::size_t step = std::is_same_v<W, bf16> ? 2 * lanes : lanes;

    template <class W>
    SURELEAP_INLINE static void add(W const* const (&row)[together], float const* x, sums& s) {
        SURELEAP_DETAIL_UNROLL(4)
        for (std::size_t p = 0; p < parts; ++p) {
            float32x4_t const of_x = isa::load(x + p * isa::width);
            SURELEAP_DETAIL_UNROLL(4)
            for (std::size_t r = 0; r < together; ++r) {
                s.of[r][p] = vfmaq_f32(s.of[r][p], isa::load(row[r] + p * isa::width), of_x);
            }
        }
    }

    SURELEAP_INLINE static void add(bf16 const* const (&row)[together], float const* x, sums& s) {
        SURELEAP_DETAIL_UNROLL(4)
        for (std::size_t p = 0; p < parts; ++p) {
            float32x4x2_t const of_x = vld2q_f32(x + 2 * p * isa::width);
            SURELEAP_DETAIL_UNROLL(4)
            for (std::size_t r = 0; r < together; ++r) {
                uint32x4_t two;
                std::memcpy(&two, row[r] + 2 * p * isa::width, sizeof two);
                float32x4_t const even = vreinterpretq_f32_u32(vshlq_n_u32(two, 16));
                float32x4_t const odd = vreinterpretq_f32_u32(vandq_u32(two, vdupq_n_u32(0xffff0000)));
                s.of[r][p] = vfmaq_f32(vfmaq_f32(s.of[r][p], even, of_x.val[0]), odd, of_x.val[1]);
            }
        }
    }

    /// Lane l plus lane l + 8, then + 4, + 2, + 1: a sum a row.
    SURELEAP_INLINE static float32x4_t gather(sums const& s) {
        float32x4_t four[together];
        SURELEAP_DETAIL_UNROLL(4)
        for (std::size_t r = 0; r < together; ++r) {
            four[r] = vaddq_f32(vaddq_f32(s.of[r][0], s.of[r][2]), vaddq_f32(s.of[r][1], s.of[r][3]));
        }
        auto const halve = [](float32x4_t a, float32x4_t b) {
            return vaddq_f32(vcombine_f32(vget_low_f32(a), vget_low_f32(b)),
                             vcombine_f32(vget_high_f32(a), vget_high_f32(b)));
        };
        return vpaddq_f32(halve(four[0], four[1]), halve(four[2], four[3]));
    }

    template <class W>
    SURELEAP_INLINE static float32x4_t dots(group<W> const& g, float const* x, std::size_t cols) {
        sums s{};
        std::size_t c = 0;
        for (; c + step<W> <= cols; c += step<W>)
            add({g.row[0] + c, g.row[1] + c, g.row[2] + c, g.row[3] + c}, x + c, s);
        if (c < cols) {  // zeros behind the last columns
            float last_x[step<W>] = {};
            W last[together][step<W>] = {};
            for (std::size_t j = 0; c + j < cols; ++j) {
                last_x[j] = x[c + j];
                for (std::size_t r = 0; r < together; ++r) last[r][j] = g.row[r][c + j];
            }
            add({last[0], last[1], last[2], last[3]}, last_x, s);
        }
        return gather(s);
    }

    template <class W>
    static void product(row_selection<W> const& rows, float const* const* x, float const* const* base, float* const* y,
                        std::size_t n) {
        for (std::size_t i = 0; i < rows.count; i += together) {
            group<W> const g(rows, i);
            fetch_named(rows, i + together);
            for (std::size_t k = 0; k < n; ++k) store(base[k] + i, y[k] + i, g.size, dots(g, x[k], rows.cols));
        }
    }

    // ---- eight bits --------------------------------------------------------------------------------------------

    static std::int32_t dot(std::int8_t const* row, std::int16_t const* x, std::size_t cols) {
        int32x4_t low = vdupq_n_s32(0);
        int32x4_t high = vdupq_n_s32(0);
        std::size_t c = 0;
        for (; c + 8 <= cols; c += 8) {
            int16x8_t const weights = vmovl_s8(vld1_s8(row + c));
            int16x8_t const of_x = vld1q_s16(x + c);
            low = vmlal_s16(low, vget_low_s16(weights), vget_low_s16(of_x));
            high = vmlal_high_s16(high, weights, of_x);
        }
        std::int32_t sum = vaddvq_s32(vaddq_s32(low, high));
        for (; c < cols; ++c) sum += std::int32_t{row[c]} * x[c];
        return sum;
    }

    static void int8_product(row_selection<std::int8_t> const& rows, float const* scales, std::int16_t const* const* x,
                             float const* unit, float const* const* base, float* const* y, std::size_t n) {
        for (std::size_t i = 0; i < rows.count; i += together) {
            group<std::int8_t> const g(rows, i);
            fetch_named(rows, i + together);
            for (std::size_t k = 0; k < n; ++k) {
                for (std::size_t r = 0; r < g.size; ++r) {
                    auto const sum = static_cast<float>(dot(g.row[r], x[k], rows.cols));
                    y[k][i + r] = std::fma(sum, scales[rows.index(i + r)] * unit[k], base[k][i + r]);
                }
            }
        }
    }

    // ---- shortlists --------------------------------------------------------------------------------------------

    static std::size_t at_least(float const* row, std::size_t size, float threshold, token_id* out) {
        float32x4_t const t = vdupq_n_f32(threshold);
        std::size_t count = 0;
        std::size_t i = 0;
        for (; i + lanes <= size; i += lanes) {
            uint32x4_t any = vdupq_n_u32(0);
            for (std::size_t p = 0; p < parts; ++p) any = vorrq_u32(any, vcgeq_f32(vld1q_f32(row + i + 4 * p), t));
            if (vmaxvq_u32(any) != 0) count += list(row, i, i + lanes, threshold, out + count);
        }
        return count + list(row, i, size, threshold, out + count);
    }

private:
    static std::size_t list(float const* row, std::size_t i, std::size_t end, float threshold, token_id* out) {
        std::size_t count = 0;
        for (; i < end; ++i) {
            if (row[i] >= threshold) out[count++] = static_cast<token_id>(i);
        }
        return count;
    }
};

}  // namespace detail::neon

template <class Table>
inline constexpr Table neon_kernels{};
template <std::same_as<row_kernels> Table>
inline constexpr Table neon_kernels<Table>{"neon", instruction_set::neon};
template <std::same_as<head_kernels> Table>
inline constexpr Table neon_kernels<Table> = Table::template of<detail::neon::heads>("neon");

SURELEAP_END_NAMESPACE

#undef SURELEAP_INLINE
#undef SURELEAP_KERNEL

#endif

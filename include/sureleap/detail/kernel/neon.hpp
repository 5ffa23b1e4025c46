// SPDX-License-Identifier: MIT
//
// The passes of row.hpp with NEON, which every AArch64 processor has. The header is empty for other processors, and for
// compilers without GCC's vector extensions. Functions need no attribute, and there is nothing to choose at run time.
#pragma once

#if defined(__aarch64__) && defined(__ARM_NEON) && defined(__GNUC__)

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include <arm_neon.h>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/detail/kernel/row.hpp>

#define SURELEAP_KERNEL inline

SURELEAP_BEGIN_NAMESPACE
namespace detail::neon {

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
        x = max(fill(-200.0f), x);
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
        return vmulq_f32(vmulq_f32(p, power(half_of_it)), power(vsubq_s32(whole, half_of_it)));
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

}  // namespace detail::neon

/// The passes with NEON; in double the reference.
inline constexpr row_kernels neon_row_kernels{"neon", detail::neon::rows<float>::table,
                                              detail::scalar_rows<double>::table, detail::neon::rows<bf16>::table,
                                              detail::neon::rows<half>::table};

SURELEAP_END_NAMESPACE

#undef SURELEAP_KERNEL

#endif

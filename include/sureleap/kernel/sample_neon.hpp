// SPDX-License-Identifier: MIT
//
// The passes of sample.hpp with NEON, which every AArch64 processor has; empty for others, and for compilers without
// GCC's vector extensions.
#pragma once

#if defined(__aarch64__) && defined(__ARM_NEON) && defined(__GNUC__)

#include <cstddef>
#include <cstdint>

#include <arm_neon.h>

#include <sureleap/config.hpp>
#include <sureleap/kernel/sample.hpp>

#define SURELEAP_KERNEL inline

SURELEAP_BEGIN_NAMESPACE
namespace detail::neon_samples {

struct isa {
    static constexpr std::size_t width = 2;
    using vec = float64x2_t;
    using ints = int32x2_t;

    SURELEAP_KERNEL static vec load(double const* from) { return vld1q_f64(from); }
    SURELEAP_KERNEL static void store(double* to, vec x) { vst1q_f64(to, x); }
    SURELEAP_KERNEL static vec load_first(double const* from, std::size_t n) {
        if (n >= width) return load(from);
        return n == 0 ? fill(0.0) : vsetq_lane_f64(*from, fill(0.0), 0);
    }
    SURELEAP_KERNEL static void store_first(double* to, vec x, std::size_t n) {
        if (n >= width) return store(to, x);
        if (n == 1) *to = vgetq_lane_f64(x, 0);
    }
    SURELEAP_KERNEL static void transpose(vec* x) {
        vec const first = x[0];
        x[0] = vtrn1q_f64(first, x[1]);
        x[1] = vtrn2q_f64(first, x[1]);
    }
    SURELEAP_KERNEL static vec fill(double x) { return vdupq_n_f64(x); }
    SURELEAP_KERNEL static vec min(vec a, vec b) { return vbslq_f64(vcltq_f64(a, b), a, b); }
    SURELEAP_KERNEL static vec max(vec a, vec b) { return vbslq_f64(vcgtq_f64(a, b), a, b); }
    SURELEAP_KERNEL static vec multiply_add(vec a, vec b, vec c) { return vfmaq_f64(c, a, b); }
    SURELEAP_KERNEL static vec round(vec x) { return vrndnq_f64(x); }
    SURELEAP_KERNEL static vec whole(vec x) { return vrndq_f64(x); }
    SURELEAP_KERNEL static vec eighth_power(vec n) {
        uint64x2_t const lowest = vandq_u64(vreinterpretq_u64_f64(n), vdupq_n_u64(7));
        return vsetq_lane_f64(eighth_powers[vgetq_lane_u64(lowest, 1)], fill(eighth_powers[vgetq_lane_u64(lowest, 0)]),
                              1);
    }
    SURELEAP_KERNEL static vec shift_exponent(vec p, vec n) {
        uint64x2_t const whole = vbicq_u64(vreinterpretq_u64_f64(n), vdupq_n_u64(7));
        return vreinterpretq_f64_u64(vaddq_u64(vreinterpretq_u64_f64(p), vshlq_n_u64(whole, 49)));
    }
    SURELEAP_KERNEL static vec split(vec x, vec& e) {  // as in sample_avx512.hpp
        uint64x2_t const exponent = vshrq_n_u64(vreinterpretq_u64_f64(x * fill(1.4142135623730951)), 52);
        e = vcvtq_f64_u64(exponent) - fill(1023.0);
        uint64x2_t const raised = vshlq_n_u64(vsubq_u64(exponent, vdupq_n_u64(1023)), 52);
        return vreinterpretq_f64_u64(vsubq_u64(vreinterpretq_u64_f64(x), raised));
    }
    SURELEAP_KERNEL static vec labels(std::uint32_t const* survived, std::uint32_t position) {
        uint32x2_t const more = vcgt_u32(vld1_u32(survived), vdup_n_u32(position));
        return vcvtq_f64_u64(vmovl_u32(vand_u32(more, vdup_n_u32(1))));
    }
    SURELEAP_KERNEL static vec choose(vec flags, vec a, vec b) { return vbslq_f64(vceqzq_f64(flags), b, a); }
    SURELEAP_KERNEL static ints integers(vec x) { return vmovn_s64(vcvtq_s64_f64(x)); }
    SURELEAP_KERNEL static void put(std::int32_t* to, ints x) { vst1_s32(to, x); }
    SURELEAP_KERNEL static std::uint32_t differ(ints a, ints b) {
        return vaddv_u32(vbic_u32(uint32x2_t{1, 2}, vceq_s32(a, b)));
    }
    SURELEAP_KERNEL static std::uint32_t unordered(vec a) {
        return static_cast<std::uint32_t>(vaddvq_u64(vbicq_u64(uint64x2_t{1, 2}, vceqq_f64(a, a))));
    }
    SURELEAP_KERNEL static void pairs(vec lows, vec highs, std::uint64_t* to) {
        vst1q_u64(to, vorrq_u64(vcvtq_u64_f64(lows), vshlq_n_u64(vcvtq_u64_f64(highs), 32)));
    }
    SURELEAP_KERNEL static double total(vec x) { return vaddvq_f64(x); }
};

struct narrow_isa {
    static constexpr std::size_t width = 4;
    using vec = float32x4_t;
    using ints = int32x4_t;

    SURELEAP_KERNEL static vec load(float const* from) { return vld1q_f32(from); }
    SURELEAP_KERNEL static void store(float* to, vec x) { vst1q_f32(to, x); }
    SURELEAP_KERNEL static vec fill(float x) { return vdupq_n_f32(x); }
    SURELEAP_KERNEL static vec min(vec a, vec b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
    SURELEAP_KERNEL static vec max(vec a, vec b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
    SURELEAP_KERNEL static vec multiply_add(vec a, vec b, vec c) { return vfmaq_f32(c, a, b); }
    SURELEAP_KERNEL static vec from_doubles(double const* from) {
        return vcombine_f32(vcvt_f32_f64(vld1q_f64(from)), vcvt_f32_f64(vld1q_f64(from + 2)));
    }
    SURELEAP_KERNEL static vec shift_exponent(vec p, vec n) {
        int32x4_t const shift = vshlq_n_s32(vreinterpretq_s32_f32(n), 23);
        return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(p), shift));
    }
    SURELEAP_KERNEL static ints integers(vec x) { return vcvtq_s32_f32(x); }
    SURELEAP_KERNEL static ints nearest(vec x) { return vcvtnq_s32_f32(x); }
    SURELEAP_KERNEL static void put(std::int32_t* to, ints x) { vst1q_s32(to, x); }
    SURELEAP_KERNEL static std::uint32_t differ(ints a, ints b) {
        return vaddvq_u32(vbicq_u32(uint32x4_t{1, 2, 4, 8}, vceqq_s32(a, b)));
    }
    SURELEAP_KERNEL static ints labelled(ints x, std::uint32_t const* survived, std::uint32_t position,
                                         std::int32_t one) {
        uint32x4_t const more = vcgtq_u32(vld1q_u32(survived), vdupq_n_u32(position));
        return vsubq_s32(x, vandq_s32(vreinterpretq_s32_u32(more), vdupq_n_s32(one)));
    }
};

#include <sureleap/kernel/samples.inl>
#include <sureleap/kernel/screens.inl>

}  // namespace detail::neon_samples

/// The passes with NEON.
inline constexpr sample_kernels neon_sample_kernels = detail::neon_samples::screens::table("neon");

SURELEAP_END_NAMESPACE

#undef SURELEAP_KERNEL

#endif

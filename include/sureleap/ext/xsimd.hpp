// SPDX-License-Identifier: MIT
//
// Backends by xsimd (8.1 or newer). One is a linear-algebra backend for the heads (linear.hpp). The other is a table of
// passes over rows of logits (detail/kernel/rows.hpp). Both are for the architecture that the unit is compiled for.
//
//     markov_head head{w1, w2, xsimd_backend{}};
//     round_memory<float, float> memory{drafter, rule, {.max_requests = 8, .kernels = &xsimd_row_kernels<>}};
//
// The built-in tables are chosen when the program runs and need no flags, so this one is for processors that they do
// not know: compile the unit for the processor, and whatever xsimd has for it is used.
//
// bf16 and half rows are converted in small blocks on the stack, since no version of xsimd has batches of them.
// Sums run in an order of the architecture's own, so a result agrees with scalar_backend up to rounding, not bit
// for bit.
#pragma once

#if !__has_include(<xsimd/xsimd.hpp>)
#error "sureleap/ext/xsimd.hpp needs xsimd >= 8.1: install it (Debian: libxsimd-dev) and link sureleap::xsimd"
#endif

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>

#include <xsimd/xsimd.hpp>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/detail/kernel/rows.hpp>
#include <sureleap/head/linear.hpp>

SURELEAP_BEGIN_NAMESPACE

namespace detail {

/// Sum of a batch: reduce_add since xsimd 9, hadd before. Not the version is asked but the function; the
/// unqualified call is found through its argument, so the name that a version lacks is not even looked up.
template <class Batch>
[[nodiscard]] inline typename Batch::value_type sum_of(Batch const& batch) noexcept {
    if constexpr (requires { reduce_add(batch); }) {
        return reduce_add(batch);
    } else {
        return hadd(batch);
    }
}

}  // namespace detail

/// Models linear_backend with xsimd batches of one architecture. The architecture is a parameter, not simply that of
/// the translation unit. So units with different -march instantiate different types instead of two definitions of one
/// function.
template <class Arch = xsimd::default_arch>
struct basic_xsimd_backend {
    using architecture = Arch;

    template <class Weight, std::floating_point Real>
    [[nodiscard]] static Real dot(std::span<Weight const> weights, std::span<Real const> x) noexcept {
        static_assert(is_storage_v<Weight>, "xsimd_backend: weights must be float, double, bf16 or half");
        SURELEAP_EXPECTS(weights.size() == x.size());
        if constexpr (std::is_same_v<Weight, Real>) {
            return native_dot(weights, x);
        } else {
            return detail::dot_by_blocks(weights, x, [](auto block, auto part) { return native_dot(block, part); });
        }
    }

    template <class Weight, std::floating_point Real>
    static void gemv(matrix_view<Weight> weights, std::type_identity_t<std::span<Real const>> x,
                     std::span<Real> y) noexcept {
        detail::gemv_by_rows<basic_xsimd_backend, false>(weights, x, y);
    }

    template <class Weight, std::floating_point Real>
    static void gemv_add(matrix_view<Weight> weights, std::type_identity_t<std::span<Real const>> x,
                         std::span<Real> y) noexcept {
        detail::gemv_by_rows<basic_xsimd_backend, true>(weights, x, y);
    }

private:
    template <class Real>
    static Real native_dot(std::span<Real const> a, std::span<Real const> b) noexcept {
        using batch = xsimd::batch<Real, Arch>;
        constexpr std::size_t width = batch::size;
        // Four sums at once: one alone would wait for its own addition, four cycles each.
        batch sum0(Real(0)), sum1(Real(0)), sum2(Real(0)), sum3(Real(0));
        std::size_t i = 0;
        for (; i + 4 * width <= a.size(); i += 4 * width) {
            sum0 = multiply_add(a.data() + i, b.data() + i, sum0);
            sum1 = multiply_add(a.data() + i + width, b.data() + i + width, sum1);
            sum2 = multiply_add(a.data() + i + 2 * width, b.data() + i + 2 * width, sum2);
            sum3 = multiply_add(a.data() + i + 3 * width, b.data() + i + 3 * width, sum3);
        }
        for (; i + width <= a.size(); i += width) sum0 = multiply_add(a.data() + i, b.data() + i, sum0);
        Real total = detail::sum_of(batch((sum0 + sum1) + (sum2 + sum3)));
        for (; i < a.size(); ++i) total += a[i] * b[i];
        return total;
    }

    template <class Real>
    static xsimd::batch<Real, Arch> multiply_add(Real const* a, Real const* b,
                                                 xsimd::batch<Real, Arch> const& sum) noexcept {
        using batch = xsimd::batch<Real, Arch>;
        return xsimd::fma(batch::load_unaligned(a), batch::load_unaligned(b), sum);
    }
};

/// The architecture this translation unit is compiled for.
using xsimd_backend = basic_xsimd_backend<>;

// ---- passes over rows ------------------------------------------------------------------------------------------

// GCC 12 warns of its own header where AVX-512 shifts are inlined.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace detail {

/// Compilers' own vectors, for what xsimd has no batch of.
template <std::size_t Count>
struct patterns {
    typedef std::uint16_t narrow __attribute__((vector_size(2 * Count)));
    typedef std::uint32_t wide __attribute__((vector_size(4 * Count)));
};

/// detail/kernel/rows.inl over batches. Only what all versions have is used, which costs something where they differ:
/// patterns are cast by std::bit_cast, and lanes go through memory where sums are widened and masks are read, which is
/// rare. Without a fused multiply-add in the architecture products are rounded twice.
template <class Arch>
struct xsimd_passes {
#define SURELEAP_KERNEL inline
    struct isa {
        using vec = xsimd::batch<float, Arch>;
        using integers = xsimd::batch<std::int32_t, Arch>;
        static constexpr std::size_t width = vec::size;
        static_assert(32 % width == 0, "xsimd_row_kernels: a register holds more than 32 floats");
        struct sums {
            double lanes[width];
        };
        struct flags {
            vec raised = vec(0.0f);  // braces would list lanes
        };

        static vec load(float const* from) { return vec::load_unaligned(from); }
        /// As a loop over lanes it would stay one.
        static vec load(bf16 const* from) {
            typename patterns<width>::narrow bits;
            std::memcpy(&bits, from, sizeof bits);
            return std::bit_cast<vec>(__builtin_convertvector(bits, typename patterns<width>::wide) << 16);
        }
        static vec load(half const* from) {
            float wide[width];
            for (std::size_t i = 0; i < width; ++i) wide[i] = sureleap::load(from[i]);
            return load(wide);
        }
        static void store(float* to, vec const& x) { x.store_unaligned(to); }

        static vec fill(float x) { return vec(x); }
        static vec plus(vec const& a, vec const& b) { return a + b; }
        static vec max(vec const& a, vec const& b) { return xsimd::select(a > b, a, b); }
        static vec multiply_add(vec const& a, vec const& b, vec const& c) { return xsimd::fma(a, b, c); }
        static vec subtract_product(vec const& a, vec const& b, vec const& c) { return xsimd::fnma(b, c, a); }

        /// As in detail/kernel/avx2.hpp. Not xsimd::exp2, which is less exact, slower, and another function on another
        /// machine.
        static vec exp2(vec x) {
            x = max(fill(-200.0f), x);
            vec const n = xsimd::nearbyint(xsimd::min(fill(200.0f), x));  // whatever it makes of NaN: f stays one
            vec const f = x - n;
            vec p = fill(0.0013276472f);
            p = multiply_add(p, f, fill(0.0096755414f));
            p = multiply_add(p, f, fill(0.0555071327f));
            p = multiply_add(p, f, fill(0.2402211972f));
            p = multiply_add(p, f, fill(0.6931469671f));
            p = multiply_add(p, f, fill(1.0000000717f));
            integers const whole = xsimd::to_int(n);
            integers const half_of_it = whole >> 1;
            return p * power(half_of_it) * power(whole - half_of_it);
        }

        static sums zero() { return {}; }
        static void add(sums& s, vec const& x) {
            float lanes[width];
            store(lanes, x);
            for (std::size_t i = 0; i < width; ++i) s.lanes[i] += static_cast<double>(lanes[i]);
        }
        static double total(sums const& s) {
            double all = 0.0;
            for (double const lane : s.lanes) all += lane;
            return all;
        }
        static float largest(vec const& x) {
            float lanes[width];
            store(lanes, x);
            return *std::max_element(lanes, lanes + width);
        }

        static void raise(flags& f, vec const& x) {
            f.raised = xsimd::select(x < fill(std::numeric_limits<float>::infinity()), f.raised, fill(1.0f));
        }
        static bool any(flags const& f) { return xsimd::any(f.raised != fill(0.0f)); }
        static std::uint32_t exceeds(vec const& a, vec const& b) {
            auto const not_more = a <= b;
            if (xsimd::all(not_more)) return 0;
            bool lanes[width];
            not_more.store_unaligned(lanes);
            std::uint32_t mask = 0;
            for (std::size_t i = 0; i < width; ++i) mask |= static_cast<std::uint32_t>(!lanes[i]) << i;
            return mask;
        }

        using words = integers;
        static words no_words() { return words(0); }
        static words either(words const& a, words const& b) { return a | b; }
        /// Conversions of NaN and of large numbers differ between architectures, so select replaces both. to_int
        /// truncates and the passes want rounding, so nearbyint comes first.
        static words rounded(vec const& x) {
            return xsimd::to_int(xsimd::nearbyint(xsimd::select(x < fill(0x1p31f), x, fill(-1.0f))));
        }
        static vec pattern(words const& w) { return std::bit_cast<vec>(w); }
        static bool any_negative(words const& w) { return xsimd::any(w < words(0)); }

    private:
        static vec power(integers const& n) { return std::bit_cast<vec>((n + integers(127)) << 23); }
    };

#include <sureleap/detail/kernel/rows.inl>
#undef SURELEAP_KERNEL
};

}  // namespace detail

/// The passes with batches of one architecture, in double the reference: a table for round_limits::kernels. The unit
/// must be compiled for the architecture, and the machine must have it: nothing asks when the program runs.
template <class Arch = xsimd::default_arch>
inline constexpr row_kernels xsimd_row_kernels{
    .name = "xsimd",
    .for_float = &detail::xsimd_passes<Arch>::template rows<float>::table,
    .for_bf16 = &detail::xsimd_passes<Arch>::template rows<bf16>::table,
    .for_half = &detail::xsimd_passes<Arch>::template rows<half>::table,
};

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

SURELEAP_END_NAMESPACE

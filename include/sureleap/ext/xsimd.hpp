// SPDX-License-Identifier: MIT
//
// Glue to xsimd (8.1 or newer): a linear-algebra backend for the heads (see linear.hpp).
//
//     markov_head head{w1, w2, xsimd_backend{}};
//
// bf16 and half rows are converted in small blocks on the stack, since no version of xsimd has batches of them.
// Sums run in an order of the architecture's own, so a result agrees with scalar_backend up to rounding, not bit
// for bit.
#pragma once

#if !__has_include(<xsimd/xsimd.hpp>)
#error "sureleap/ext/xsimd.hpp needs xsimd >= 8.1: install it (Debian: libxsimd-dev) and link sureleap::xsimd"
#endif

#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>

#include <xsimd/xsimd.hpp>

#include <sureleap/config.hpp>
#include <sureleap/linear.hpp>
#include <sureleap/types.hpp>

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

/// Models linear_backend with xsimd batches of one architecture. The architecture is a parameter, and not simply
/// what the translation unit was compiled for, so that units with different -march instantiate different types
/// instead of two definitions of one function.
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

SURELEAP_END_NAMESPACE

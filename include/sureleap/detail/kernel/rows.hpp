// SPDX-License-Identifier: MIT
//
// Passes over whole rows of logits (largest logit, weights, sums, searches), as a table of functions (tables.hpp). A
// verification reads hundreds of thousands of logits and does next to nothing else, so its time is spent here. The
// functions here are the reference: portable, std::exp, sums in double.
//
// All tables keep these promises, on which laws and draws rely:
//   - a weight is a function of its logit, shift and scale alone, wherever the logit stands, in every function;
//   - the weight of -inf is 0, no weight is negative, and one that is too large, of +inf or of NaN is not finite;
//   - the sum of a block is that of its weights within sum_rounding_of, in an order of the table's own;
//   - reach finds its token by sums in double, so that a small weight beside large ones can still be drawn.
// Two tables agree up to rounding: exp is within 2e-7, and its argument within 1e-7, both relative.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/detail/kernel/tables.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Tokens that share a sum: a draw looks for its block among the sums and then for its token in that block, which costs
/// V / 1024 + 1024 steps instead of V. Engines that hand over block sums with their rows sum the same blocks.
inline constexpr std::size_t row_block = 1024;

[[nodiscard]] constexpr std::size_t row_blocks(std::size_t size) noexcept {
    return (size + row_block - 1) / row_block;
}

/// Tokens that share a threshold in row_functions::above, and the smallest exponential of a race
/// (sampling/gumbel_max.hpp).
inline constexpr std::size_t row_group = 128;

/// How far, as a part of itself, the sum of a block may be from that of its weights in double. Vector code adds up
/// eight floats first, which takes three roundings of 2^-24 each. A row that is one block is summed in double: it costs
/// next to nothing there.
template <class Real>
inline constexpr double sum_rounding = std::is_same_v<Real, double> ? 0x1p-42 : 0x1p-22;
template <class Real>
[[nodiscard]] constexpr double sum_rounding_of(std::size_t size) noexcept {
    return size <= row_block ? sum_rounding<double> : sum_rounding<Real>;
}

/// See row_functions::bound.
inline constexpr double loosest_bound = 1.0625;

/// One side of a residual: factor times the weights of shift and scale.
template <class Real>
struct row_side {
    Real shift = 0;
    Real scale = 1;
    double factor = 1.0;
};

/// Passes over rows of `size` >= 1 logits in storage format T. Weights are exp((logit - shift) * scale), scale > 0.
template <class T>
struct row_functions {
    using real = compute_t<T>;

    /// out[i] = the weight of row[i].
    void (*weights)(T const* row, std::size_t size, real shift, real scale, real* out);
    /// The sum of all weights, not finite if one of them is not; those of the blocks into sums [row_blocks(size)],
    /// unless that is null.
    double (*sum)(T const* row, std::size_t size, real shift, real scale, double* sums);
    /// The largest logit's index, the first among equals; `size` if a logit is NaN or +inf, or none is finite.
    std::size_t (*mode)(T const* row, std::size_t size);
    /// The sum of max(p.factor * weight of p[i] - q.factor * weight of q[i], 0); those of the blocks into sums,
    /// likewise.
    double (*residual)(T const* p, row_side<real> const& of_p, real const* q, row_side<real> const& of_q,
                       std::size_t size, double* sums);
    /// Bounds of the blocks' sums, into bounds [row_blocks(size)], and their sum: each is at least the sum of its block
    /// and at most `loosest_bound` times it, but for 2^-100. Not finite if a weight is not, and where weights are
    /// beyond what the bound can do. As fast as the row can be read. Null if sums are as cheap.
    double (*bound)(T const* row, std::size_t size, real shift, real scale, double* bounds);
    /// The tokens i whose weight may exceed least[i / row_group] >= 0 or is no number, ascending, into out [size];
    /// returns how many. It may name some whose weight is less by a tenth, and leaves none out.
    std::size_t (*above)(T const* row, std::size_t size, real shift, real scale, double const* least,
                         std::uint32_t* out);
    /// The first token whose weight and those before it, summed in double, add up to more than `threshold` >= 0, never
    /// one of weight zero; `size` if there is none. Reads as far as that token.
    std::size_t (*reach)(T const* row, std::size_t size, real shift, real scale, double threshold);
};

/// The passes for every storage format: those of a set of instructions, or an engine's own. A program compiles passes
/// for the formats that it asks for.
struct row_kernels {
    char const* name;
    instruction_set instructions = instruction_set::portable;
    /// An engine's own; null: those of `instructions`.
    row_functions<float> const* for_float = nullptr;
    row_functions<double> const* for_double = nullptr;
    row_functions<bf16> const* for_bf16 = nullptr;
    row_functions<half> const* for_half = nullptr;

    /// O(1). In double the reference, unless an engine brings its own. Defined where the vector code is known
    /// (available.hpp).
    template <class T>
    [[nodiscard]] row_functions<T> const& get() const noexcept;

    template <class T>
    [[nodiscard]] constexpr row_functions<T> const* own() const noexcept {
        static_assert(is_storage_v<T>, "row_kernels: T must be float, double, sureleap::bf16 or sureleap::half");
        if constexpr (std::is_same_v<T, float>) {
            return for_float;
        } else if constexpr (std::is_same_v<T, double>) {
            return for_double;
        } else if constexpr (std::is_same_v<T, bf16>) {
            return for_bf16;
        } else {
            return for_half;
        }
    }
};

// ---- the reference ---------------------------------------------------------------------------------------------

namespace detail {

template <class T>
struct scalar_rows {
    using real = compute_t<T>;

    [[nodiscard]] static real weight(T const& logit, real shift, real scale) noexcept {
        return std::exp((load(logit) - shift) * scale);
    }

    static void weights(T const* row, std::size_t size, real shift, real scale, real* out) {
        for (std::size_t i = 0; i < size; ++i) out[i] = weight(row[i], shift, scale);
    }

    static double sum(T const* row, std::size_t size, real shift, real scale, double* sums) {
        double total = 0.0;
        for (std::size_t first = 0; first < size; first += row_block) {
            double here = 0.0;
            for (std::size_t i = first; i < std::min(first + row_block, size); ++i) {
                here += static_cast<double>(weight(row[i], shift, scale));
            }
            if (sums != nullptr) sums[first / row_block] = here;
            total += here;
        }
        return total;
    }

    static std::size_t mode(T const* row, std::size_t size) {
        constexpr real inf = std::numeric_limits<real>::infinity();
        std::size_t best = 0;
        for (std::size_t i = 0; i < size; ++i) {
            if (!(load(row[i]) < inf)) return size;  // true for NaN as well
            if (load(row[i]) > load(row[best])) best = i;
        }
        return load(row[best]) > -inf ? best : size;
    }

    static double residual(T const* p, row_side<real> const& of_p, real const* q, row_side<real> const& of_q,
                           std::size_t size, double* sums) {
        // In units of p's weights: exactly 0 where both sides are the same, also if the compiler fuses the difference.
        double const ratio = of_q.factor / of_p.factor;
        double total = 0.0;
        for (std::size_t first = 0; first < size; first += row_block) {
            double here = 0.0;
            for (std::size_t i = first; i < std::min(first + row_block, size); ++i) {
                auto const wp = static_cast<double>(weight(p[i], of_p.shift, of_p.scale));
                auto const wq = static_cast<double>(scalar_rows<real>::weight(q[i], of_q.shift, of_q.scale));
                here += std::max(wp - ratio * wq, 0.0);
            }
            here *= of_p.factor;
            if (sums != nullptr) sums[first / row_block] = here;
            total += here;
        }
        return total;
    }

    static std::size_t above(T const* row, std::size_t size, real shift, real scale, double const* least,
                             std::uint32_t* out) {
        std::size_t count = 0;
        for (std::size_t i = 0; i < size; ++i) {
            if (!(static_cast<double>(weight(row[i], shift, scale)) <= least[i / row_group])) {
                out[count++] = static_cast<std::uint32_t>(i);
            }
        }
        return count;
    }

    static std::size_t reach(T const* row, std::size_t size, real shift, real scale, double threshold) {
        double sum = 0.0;
        for (std::size_t i = 0; i < size; ++i) {
            sum += static_cast<double>(weight(row[i], shift, scale));
            if (sum > threshold) return i;
        }
        return size;
    }

    static constexpr row_functions<T> table{weights, sum, mode, residual, nullptr, above, reach};
};

}  // namespace detail

template <std::same_as<row_kernels> Table>
inline constexpr Table scalar_kernels<Table>{"scalar", instruction_set::portable};

SURELEAP_END_NAMESPACE

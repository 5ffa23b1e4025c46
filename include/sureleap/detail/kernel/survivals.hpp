// SPDX-License-Identifier: MIT
//
// Passes over a table of survivals. They tell how many are at least t and their sum, which lie between two values, and
// how long each row is above t. A schedule over many requests spends its time in them (schedule/bulk_admission.hpp), so
// there is vector code as well (tables.hpp). All versions count integers and agree exactly.
//
// A pass reads rows as they lie in the table and masks what is behind a row's end. Rejected: transposing the table, or
// zeroing what is not in use, which takes the time of a pass and memory of its own.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/detail/kernel/tables.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Rows of survivals (counts of 2^-24, at most 2^24), `stride` apart, none rising along itself. A view.
struct survival_rows {
    std::uint32_t const* values = nullptr;  ///< [rows, stride]
    std::size_t rows = 0;
    std::size_t stride = 1;
    std::uint32_t const* sizes = nullptr;  ///< [rows] entries in use; nullptr: all, so that rows are one array
    std::size_t every = 1;                 ///< looks at rows 0, every, 2 every, ...
};

/// A number of candidates and their sum.
struct survival_tally {
    std::size_t count = 0;
    std::uint64_t sum = 0;
};

struct survival_kernels {
    char const* name;
    /// Those of at least t.
    survival_tally (*at_least)(survival_rows const& rows, std::uint32_t t);
    /// Copies those in [low, high) to `out`, in any order; `out` has room for `room` of them and for `spare` more
    /// numbers. Returns how many there are and their sum, copied or not, and in `above` the same of those of at least
    /// `high`.
    survival_tally (*between)(survival_rows const& rows, std::uint32_t low, std::uint32_t high, std::uint32_t* out,
                              std::size_t room, survival_tally& above);
    /// For every row how many are at least t, into out [rows]; returns the sum.
    std::size_t (*lengths)(survival_rows const& rows, std::uint32_t t, std::uint32_t* out);

    template <class Passes>
    [[nodiscard]] static constexpr survival_kernels of(char const* name) noexcept {
        return {name, Passes::at_least, Passes::between, Passes::lengths};
    }

    /// Numbers behind the stored ones that `between` may overwrite.
    static constexpr std::size_t spare = 8;
};

// ---- the reference ---------------------------------------------------------------------------------------------

namespace detail {

struct scalar_survivals {
    /// Calls f(values, how many) for segments of entries in use.
    template <class F>
    static void for_each_run(survival_rows const& rows, F&& f) noexcept {
        if (rows.sizes == nullptr && rows.every == 1) {
            f(rows.values, rows.rows * rows.stride);
            return;
        }
        for (std::size_t r = 0; r < rows.rows; r += rows.every) {
            f(rows.values + r * rows.stride, rows.sizes == nullptr ? rows.stride : std::size_t{rows.sizes[r]});
        }
    }

    static survival_tally at_least(survival_rows const& rows, std::uint32_t t) {
        survival_tally all;
        for_each_run(rows, [&](std::uint32_t const* a, std::size_t size) {
            for (std::size_t i = 0; i < size; ++i) {
                bool const counts = a[i] >= t;
                all.count += counts ? 1u : 0u;
                all.sum += counts ? a[i] : 0u;
            }
        });
        return all;
    }

    static survival_tally between(survival_rows const& rows, std::uint32_t low, std::uint32_t high, std::uint32_t* out,
                                  std::size_t room, survival_tally& above) {
        survival_tally inside;
        survival_tally over;
        for_each_run(rows, [&](std::uint32_t const* a, std::size_t size) {
            for (std::size_t i = 0; i < size; ++i) {
                if (a[i] >= high) {
                    ++over.count;
                    over.sum += a[i];
                } else if (a[i] >= low) {
                    if (inside.count < room) out[inside.count] = a[i];
                    ++inside.count;
                    inside.sum += a[i];
                }
            }
        });
        above = over;
        return inside;
    }

    static std::size_t lengths(survival_rows const& rows, std::uint32_t t, std::uint32_t* out) {
        std::size_t total = 0;
        for (std::size_t r = 0; r < rows.rows; ++r) {
            std::uint32_t const* const a = rows.values + r * rows.stride;
            std::size_t const size = rows.sizes == nullptr ? rows.stride : std::size_t{rows.sizes[r]};
            std::uint32_t length = 0;
            while (length < size && a[length] >= t) ++length;
            out[r] = length;
            total += length;
        }
        return total;
    }
};

}  // namespace detail

template <std::same_as<survival_kernels> Table>
inline constexpr Table scalar_kernels<Table> = Table::template of<detail::scalar_survivals>("scalar");

SURELEAP_END_NAMESPACE

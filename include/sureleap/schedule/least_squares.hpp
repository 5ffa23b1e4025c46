// SPDX-License-Identifier: MIT
//
// Least squares with few unknowns, as fits of step times need them: rows are taken one by one, unknowns may have to be
// non-negative, and columns that the rows cannot tell apart are found instead of being given arbitrary values.
//
// Rows are rotated into a triangle (Givens). Rejected: normal equations, which square the condition and so cost half of
// the digits; a linear algebra library, which the core does not have.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <sureleap/config.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace detail {

/// The triangle R of rows (x_1 .. x_N, y): |Xb - y|^2 = |R (b, -1)|^2 for every b.
template <std::size_t N>
class row_triangle {
public:
    using row = std::array<double, N + 1>;

    /// O(N^2).
    void add(row x) noexcept {
        for (std::size_t i = 0; i <= N; ++i) {
            if (x[i] == 0.0) continue;
            double const length = std::hypot(rows_[i][i], x[i]);
            double const c = rows_[i][i] / length;
            double const s = x[i] / length;
            for (std::size_t j = i; j <= N; ++j) {
                double const above = rows_[i][j];
                rows_[i][j] = c * above + s * x[j];
                x[j] = c * x[j] - s * above;
            }
        }
    }
    [[nodiscard]] row const& operator[](std::size_t i) const noexcept { return rows_[i]; }
    [[nodiscard]] double length(std::size_t column) const noexcept {
        double sum = 0.0;
        for (row const& r : rows_) sum += r[column] * r[column];
        return std::sqrt(sum);
    }

private:
    std::array<row, N + 1> rows_{};
};

/// Columns are compared at unit length; what is shorter than this is rounding.
inline constexpr double column_tolerance = 1e-8;

/// b >= 0 that minimises |Xb - y| (Lawson and Hanson, Solving Least Squares Problems, chapter 23). Where columns depend on
/// each other, the one named first in `order` gets what they share, as far as the signs let it.
template <std::size_t N>
[[nodiscard]] std::array<double, N> solve_non_negative(row_triangle<N> const& rows,
                                                       std::array<std::size_t, N> const& order) noexcept {
    std::array<double, N> length{};
    for (std::size_t j = 0; j < N; ++j) length[j] = rows.length(j);
    double const target = rows.length(N);
    std::array<double, N> b{};  // of columns of unit length
    std::array<std::size_t, N> chosen{};
    std::size_t size = 0;

    // The unconstrained solution of the chosen columns; false if the last of them depends on the others.
    auto const solve = [&](std::array<double, N>& z) {
        row_triangle<N> r;
        for (std::size_t i = 0; i <= N; ++i) {
            typename row_triangle<N>::row x{};
            for (std::size_t k = 0; k < size; ++k) x[k] = rows[i][chosen[k]] / length[chosen[k]];
            x[size] = rows[i][N];
            r.add(x);
        }
        if (std::abs(r[size - 1][size - 1]) < column_tolerance) return false;
        for (std::size_t k = size; k-- > 0;) {
            double rest = r[k][size];
            for (std::size_t j = k + 1; j < size; ++j) rest -= r[k][j] * z[j];
            z[k] = rest / r[k][k];
        }
        return true;
    };

    std::uint32_t refused = 0;  // columns that did not help since the solution last moved
    for (std::size_t step = 0; step < 8 * N; ++step) {
        std::size_t next = N;
        for (std::size_t const j : order) {
            bool open = length[j] > 0.0 && (refused >> j & 1u) == 0;
            for (std::size_t k = 0; k < size; ++k) open = open && chosen[k] != j;
            if (!open) continue;
            double gain = 0.0;  // how fast the error falls with b_j
            for (std::size_t i = 0; i <= N; ++i) {
                double error = rows[i][N];
                for (std::size_t k = 0; k < N; ++k) {
                    if (length[k] > 0.0) error -= rows[i][k] / length[k] * b[k];
                }
                gain += error * rows[i][j] / length[j];
            }
            if (gain > 1e-13 * target) {
                next = j;
                break;
            }
        }
        if (next == N) break;
        chosen[size++] = next;
        std::array<double, N> z{};
        if (!solve(z) || !(z[size - 1] > 0.0)) {
            --size;
            refused |= 1u << next;
            continue;
        }
        refused = 0;
        // Towards z until the first becomes 0, which leaves; again, until none would be negative.
        for (;;) {
            double reach = 1.0;
            for (std::size_t k = 0; k < size; ++k) {
                if (z[k] <= 0.0) reach = std::min(reach, b[chosen[k]] / (b[chosen[k]] - z[k]));
            }
            std::size_t left = 0;
            for (std::size_t k = 0; k < size; ++k) {
                std::size_t const j = chosen[k];
                bool const stays = reach == 1.0 || z[k] > 0.0 || b[j] / (b[j] - z[k]) > reach;
                b[j] = stays ? b[j] + reach * (z[k] - b[j]) : 0.0;
                if (reach == 1.0) b[j] = z[k];
                if (stays) chosen[left++] = j;
            }
            bool const done = left == size;
            size = left;
            if (done || size == 0 || !solve(z)) break;
        }
    }
    for (std::size_t j = 0; j < N; ++j) b[j] = length[j] > 0.0 ? b[j] / length[j] : 0.0;
    return b;
}

/// What rows say of each unknown.
template <std::size_t N>
struct column_report {
    std::array<double, N> error{};                ///< standard error of b_j if those of the rows are 1; 0 where unknown
    std::array<bool, N> known{};                  ///< the rows determine b_j
    std::array<std::uint32_t, N> blurred_with{};  ///< bit i: only sums of b_i and b_j (and others) are determined
};

/// By the singular values of the columns at unit length (one-sided Jacobi): directions without length are combinations of
/// unknowns that no row depends on.
template <std::size_t N>
[[nodiscard]] column_report<N> examine_columns(row_triangle<N> const& rows) noexcept {
    std::array<std::array<double, N + 1>, N> u{};  // columns
    std::array<std::array<double, N>, N> v{};      // v[k]: the k-th direction
    std::array<double, N> length{};
    for (std::size_t j = 0; j < N; ++j) {
        length[j] = rows.length(j);
        v[j][j] = 1.0;
        for (std::size_t i = 0; i <= N && length[j] > 0.0; ++i) u[j][i] = rows[i][j] / length[j];
    }
    auto const dot = [](auto const& a, auto const& b) {
        double sum = 0.0;
        for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
        return sum;
    };
    for (int sweep = 0; sweep < 40; ++sweep) {
        double most = 0.0;
        for (std::size_t p = 0; p < N; ++p) {
            for (std::size_t q = p + 1; q < N; ++q) {
                double const pp = dot(u[p], u[p]);
                double const qq = dot(u[q], u[q]);
                double const pq = dot(u[p], u[q]);
                if (std::abs(pq) <= 1e-17 * std::sqrt(pp * qq) || pq == 0.0) continue;
                most = std::max(most, std::abs(pq) / std::sqrt(pp * qq));
                double const zeta = (qq - pp) / (2.0 * pq);
                double const t = std::copysign(1.0, zeta) / (std::abs(zeta) + std::hypot(1.0, zeta));
                double const c = 1.0 / std::hypot(1.0, t);
                double const s = c * t;
                auto const turn = [&](auto& a, auto& b) {
                    for (std::size_t i = 0; i < a.size(); ++i) {
                        double const before = a[i];
                        a[i] = c * before - s * b[i];
                        b[i] = s * before + c * b[i];
                    }
                };
                turn(u[p], u[q]);
                turn(v[p], v[q]);
            }
        }
        if (most < 1e-15) break;
    }
    column_report<N> report;
    std::array<std::array<double, N>, N> unseen{};  // the projection on directions that no row sees
    for (std::size_t k = 0; k < N; ++k) {
        double const size = std::sqrt(dot(u[k], u[k]));
        for (std::size_t i = 0; i < N; ++i) {
            if (size >= column_tolerance) {
                report.error[i] += v[k][i] / size * (v[k][i] / size);
                continue;
            }
            for (std::size_t j = 0; j < N; ++j) unseen[i][j] += v[k][i] * v[k][j];
        }
    }
    constexpr double rounding = 1e-6;
    for (std::size_t j = 0; j < N; ++j) {
        report.known[j] = unseen[j][j] < rounding;
        report.error[j] = report.known[j] && length[j] > 0.0 ? std::sqrt(report.error[j]) / length[j] : 0.0;
        for (std::size_t i = 0; i < N; ++i) {
            if (i != j && std::abs(unseen[i][j]) > rounding) report.blurred_with[j] |= 1u << i;
        }
    }
    // What is blurred with a third is blurred with each other.
    for (std::size_t k = 0; k < N; ++k) {
        for (std::size_t j = 0; j < N; ++j) {
            if (report.blurred_with[j] >> k & 1u) report.blurred_with[j] |= report.blurred_with[k] & ~(1u << j);
        }
    }
    return report;
}

}  // namespace detail
SURELEAP_END_NAMESPACE

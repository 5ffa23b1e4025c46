// SPDX-License-Identifier: MIT
//
// Least squares with few unknowns, as fits of step times need them. Rows are taken one by one. Unknowns may have to be
// non-negative. Columns that the rows cannot tell apart are found instead of being given arbitrary values.
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

#include <sureleap/core/config.hpp>

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

/// b >= 0 that minimises |Xb - y|, by the active-set method of Lawson and Hanson (Solving Least Squares Problems,
/// chapter 23): unknowns are let in one by one, and leave again where the solution would make them negative.
template <std::size_t N>
class non_negative_solution {
public:
    /// Where columns depend on each other, the one named first in `order` gets what they share, as far as the signs let
    /// it.
    non_negative_solution(row_triangle<N> const& rows, std::array<std::size_t, N> const& order) noexcept
        : rows_(rows), order_(order) {
        for (std::size_t j = 0; j < N; ++j) length_[j] = rows.length(j);
        for (std::size_t step = 0; step < 8 * N; ++step) {
            std::size_t const next = candidate_column();
            if (next == N) break;
            in_[size_++] = next;
            if (!solve() || !(free_[size_ - 1] > 0.0)) {
                --size_;
                refused_[next] = true;
                continue;
            }
            refused_ = {};
            while (!advance() && size_ > 0 && solve()) {
            }
        }
    }

    [[nodiscard]] std::array<double, N> values() const noexcept {
        std::array<double, N> b{};
        for (std::size_t k = 0; k < size_; ++k) b[in_[k]] = b_[in_[k]] / length_[in_[k]];
        return b;
    }

private:
    /// The first column outside with which the error would fall; N if there is none, which is optimal.
    [[nodiscard]] std::size_t candidate_column() const noexcept {
        std::array<double, N + 1> error{};
        for (std::size_t i = 0; i <= N; ++i) {
            error[i] = rows_[i][N];
            for (std::size_t k = 0; k < size_; ++k) error[i] -= rows_[i][in_[k]] / length_[in_[k]] * b_[in_[k]];
        }
        for (std::size_t const j : order_) {
            auto const chosen = in_.begin() + static_cast<std::ptrdiff_t>(size_);
            if (!(length_[j] > 0.0) || refused_[j] || std::find(in_.begin(), chosen, j) != chosen) continue;
            double gain = 0.0;
            for (std::size_t i = 0; i <= N; ++i) gain += error[i] * rows_[i][j] / length_[j];
            if (gain > 1e-13 * rows_.length(N)) return j;
        }
        return N;
    }

    /// free_: the solution by the columns that are in, whatever its signs. False if the last of them depends on the
    /// others.
    [[nodiscard]] bool solve() noexcept {
        row_triangle<N> r;
        for (std::size_t i = 0; i <= N; ++i) {
            typename row_triangle<N>::row x{};
            for (std::size_t k = 0; k < size_; ++k) x[k] = rows_[i][in_[k]] / length_[in_[k]];
            x[size_] = rows_[i][N];
            r.add(x);
        }
        if (std::abs(r[size_ - 1][size_ - 1]) < column_tolerance) return false;
        for (std::size_t k = size_; k-- > 0;) {
            double rest = r[k][size_];
            for (std::size_t j = k + 1; j < size_; ++j) rest -= r[k][j] * free_[j];
            free_[k] = rest / r[k][k];
        }
        return true;
    }

    /// Goes from b_ towards free_ until the first unknown reaches 0, which leaves. True if it got there.
    [[nodiscard]] bool advance() noexcept {
        auto const until_zero = [&](std::size_t k) {
            double const b = b_[in_[k]];
            return free_[k] > 0.0 ? 1.0 : b / (b - free_[k]);
        };
        double way = 1.0;
        for (std::size_t k = 0; k < size_; ++k) way = std::min(way, until_zero(k));
        if (way == 1.0) {
            for (std::size_t k = 0; k < size_; ++k) b_[in_[k]] = free_[k];
            return true;
        }
        std::size_t left = 0;
        for (std::size_t k = 0; k < size_; ++k) {
            std::size_t const j = in_[k];
            bool const stays = until_zero(k) > way;
            b_[j] = stays ? b_[j] + way * (free_[k] - b_[j]) : 0.0;
            if (stays) in_[left++] = j;
        }
        size_ = left;
        return false;
    }

    row_triangle<N> const& rows_;
    std::array<std::size_t, N> order_;
    std::array<double, N> length_{};
    std::array<double, N> b_{};     // of columns of unit length; 0 for those that are not in
    std::array<double, N> free_{};  // of the columns that are in, in their order
    std::array<std::size_t, N> in_{};
    std::size_t size_ = 0;           // columns that are in
    std::array<bool, N> refused_{};  // did not help since the solution last moved
};

/// What rows say of each unknown.
template <std::size_t N>
struct column_report {
    std::array<double, N> error{};                ///< standard error of b_j if those of the rows are 1; 0 where unknown
    std::array<bool, N> known{};                  ///< the rows determine b_j
    std::array<std::uint32_t, N> blurred_with{};  ///< bit i: only sums of b_i and b_j (and others) are determined
};

/// By the singular values of the columns at unit length (one-sided Jacobi): directions without length are combinations
/// of unknowns that no row depends on.
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

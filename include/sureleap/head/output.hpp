// SPDX-License-Identifier: MIT
//
// The two ends that all learned heads share. The first step is e = W1[previous], the row of the token before. The last
// step is B = W2 z, the product of the output matrix with the code z [r] that a head makes of its inputs. It is nearly
// all of a head's cost. It takes one code or a batch of them, all tokens or a shortlist, and weights in floating point
// or in eight bits.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/executor.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/head/int8.hpp>
#include <sureleap/head/linear.hpp>

SURELEAP_BEGIN_NAMESPACE

/// W2 [V_draft, r] and who multiplies with it. Weights: matrix_view<W> or int8_view, both views. A batch reads W2 once.
template <class Weights, class Real, class Backend>
class output_layer {
    static constexpr bool is_int8 = std::is_same_v<Weights, int8_view>;
    static_assert(!is_int8 || std::is_same_v<Real, float>,
                  "output_layer: int8 weights are multiplied in float; use a head whose Real is float");

public:
    /// Throws unless W2 has `rank` columns and only finite numbers, or scales in eight bits. `owner` opens the message.
    /// No rows: those of a rank whose slice of the vocabulary is empty.
    output_layer(char const* owner, Weights weights, std::size_t rank) : weights_(weights) {
        if constexpr (is_int8) {
            bool const is_there = weights.rows == 0 || (weights.values != nullptr && weights.scales != nullptr);
            if (weights.cols != rank || !is_there) {
                fail_with(owner, ": w2 is ", detail::shape_text(weights.rows, weights.cols), ", expected ",
                          detail::shape_text(weights.rows, rank), " with values and scales (draft vocabulary x ",
                          "rank of w1)");
            }
            if (rank > int8_view::most_columns) {
                fail_with(owner, ": w2 has ", rank, " columns in eight bits, expected at most ",
                          int8_view::most_columns);
            }
            for (std::size_t i = 0; i < weights.rows; ++i) {
                if (!std::isfinite(weights.scales[i])) {
                    fail_with(owner, ": w2's scale of row ", i, " is ", weights.scales[i],
                              ", expected a finite number");
                }
            }
        } else if (weights.rows > 0 || weights.cols != rank) {
            detail::check_weights<Real>(owner, "w2", weights, weights.rows, rank, "draft vocabulary x rank of w1");
        }
    }

    [[nodiscard]] std::size_t vocabulary() const noexcept { return weights_.rows; }
    [[nodiscard]] std::size_t rank() const noexcept { return weights_.cols; }
    [[nodiscard]] Weights const& weights() const noexcept { return weights_; }

    /// logits[i][v] = base[i][v] + (W2 codes[i])[v] for i < n; base[i] may be logits[i]. O(V r n), reads W2 once. Its
    /// rows are divided among `threads`, which changes no bit if the backend sums a row alike wherever it stands, as
    /// the library's do.
    void add(Real const* const* codes, Real const* const* base, Real* const* logits, std::size_t n,
             executor_ref const& threads = {}) const noexcept {
        constexpr std::size_t read_meanwhile = 4;  // codes that are multiplied in the time that a row takes to arrive
        std::size_t const workers = threads.worth(vocabulary() * rank() * std::max(n / read_meanwhile, std::size_t{1}));
        if (workers == 1) return multiply(weights_, codes, base, logits, n);
        // More parts than threads, of which one may come late; whole cache lines of results.
        std::size_t const size = (vocabulary() / (4 * workers) / together + 1) * together;
        std::size_t const parts = (vocabulary() + size - 1) / size;
        detail::share_out(threads, workers, parts, [&](std::size_t, std::size_t part) {
            std::size_t const first = part * size;
            Weights const rows = part_of(weights_, first, std::min(size, vocabulary() - first));
            std::array<Real const*, most_codes> from;
            std::array<Real*, most_codes> to;
            for (std::size_t i = 0; i < n; i += most_codes) {
                std::size_t const here = std::min(most_codes, n - i);
                std::transform(base + i, base + i + here, from.begin(), [&](Real const* row) { return row + first; });
                std::transform(logits + i, logits + i + here, to.begin(), [&](Real* row) { return row + first; });
                multiply(rows, codes + i, from.data(), to.data(), here);
            }
        });
    }
    /// logits[v] += (W2 code)[v].
    void add(std::span<Real const> code, std::span<Real> logits) const noexcept {
        SURELEAP_EXPECTS(code.size() == rank() && logits.size() == vocabulary());
        Real const* const from = code.data();
        Real* const to = logits.data();
        add(&from, &to, &to, 1);
    }
    /// logits[i] += (W2 code)[tokens[i]]. O(tokens r).
    void add_at(std::span<token_id const> tokens, std::span<Real const> code, std::span<Real> logits) const noexcept {
        SURELEAP_EXPECTS(code.size() == rank() && logits.size() >= tokens.size());
        Real const* const from = code.data();
        Real* const to = logits.data();
        if constexpr (is_int8) {
            detail::int8_product(native_kernels<head_kernels>(), weights_, tokens.data(), tokens.size(), &from, &to,
                                 &to, 1);
        } else if constexpr (requires { Backend::gather_add(weights_, tokens, from, to); }) {
            Backend::gather_add(weights_, tokens, from, to);
        } else {
            for (std::size_t i = 0; i < tokens.size(); ++i) {
                logits[i] += Backend::dot(weights_.row(static_cast<std::size_t>(tokens[i])), code);
            }
        }
    }

private:
    static constexpr std::size_t together = 64;    // rows that parts are multiples of
    static constexpr std::size_t most_codes = 64;  // that share a read of a part

    [[nodiscard]] static int8_view part_of(int8_view const& w, std::size_t first, std::size_t count) noexcept {
        return {w.values + first * w.cols, w.scales + first, count, w.cols};
    }
    template <class W>
    [[nodiscard]] static matrix_view<W> part_of(matrix_view<W> const& w, std::size_t first,
                                                std::size_t count) noexcept {
        return {w.data + first * w.stride, count, w.cols, w.stride};
    }
    static void multiply(Weights const& w, Real const* const* codes, Real const* const* base, Real* const* logits,
                         std::size_t n) noexcept {
        if constexpr (is_int8) {
            detail::int8_product(native_kernels<head_kernels>(), w, nullptr, w.rows, codes, base, logits, n);
        } else if constexpr (requires { Backend::gemm_add(w, codes, base, logits, n); }) {
            Backend::gemm_add(w, codes, base, logits, n);
        } else {
            for (std::size_t i = 0; i < n; ++i) {
                if (base[i] != logits[i]) std::copy_n(base[i], w.rows, logits[i]);
                Backend::gemv_add(w, {codes[i], w.cols}, std::span<Real>(logits[i], w.rows));
            }
        }
    }

    Weights weights_;
};

namespace detail {

/// W1 and W2 of a learned head, which adds what stands between them: code(), and a state for it.
template <class Weight, class Real, class Backend, class Output>
class embedding_and_output {
    static_assert(is_storage_v<Weight>, "a head's Weight must be float, double, sureleap::bf16 or sureleap::half");
    static_assert(std::floating_point<Real>, "a head's Real must be float or double; bf16 and half only store");

public:
    using value_type = Real;
    using weight_type = Weight;
    using backend_type = Backend;
    using output_type = output_layer<Output, Real, Backend>;

    [[nodiscard]] std::size_t rank() const noexcept { return w1_.cols; }
    /// Rows of w2: what the logits run over.
    [[nodiscard]] std::size_t vocabulary() const noexcept { return output_.vocabulary(); }
    /// Rows of w1: what a previous token may be.
    [[nodiscard]] std::size_t previous_vocabulary() const noexcept { return w1_.rows; }
    [[nodiscard]] output_type const& output() const noexcept { return output_; }

    /// out = W1[previous], r reals, which a confidence head reads. Precondition: 0 <= previous < previous_vocabulary().
    void embed(token_id previous, std::span<Real> out) const noexcept {
        SURELEAP_EXPECTS(previous >= 0);
        widen(w1_.row(static_cast<std::size_t>(previous)), out);
    }

protected:
    /// Throws unless W1 [V_target, r] and W2 [V_draft, r] are finite matrices of one rank. `owner` opens the message.
    embedding_and_output(char const* owner, matrix_view<Weight> w1, Output w2)
        : w1_(checked_weights<Real>(owner, "w1", w1, w1.rows, w1.cols, "target vocabulary x rank")),
          output_(owner, w2, w1.cols) {}

private:
    matrix_view<Weight> w1_;
    output_type output_;
};

}  // namespace detail

SURELEAP_END_NAMESPACE

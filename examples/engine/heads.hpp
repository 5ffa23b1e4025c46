// SPDX-License-Identifier: MIT
//
// The library's sequential and confidence heads, chosen by what a file contains.
//
// The library's heads are templates on the storage of their weights, which a file decides at run time. A variant closes
// the gap: the four head kinds over four storage formats become one type that models sequential_head. One visit per
// drafted position is nothing beside the product that follows.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <sureleap/confidence/head.hpp>
#include <sureleap/distribution.hpp>
#include <sureleap/head/gated.hpp>
#include <sureleap/head/markov.hpp>
#include <sureleap/head/none.hpp>
#include <sureleap/head/rnn.hpp>
#include <sureleap/types.hpp>

#include "checkpoint.hpp"
#include "config.hpp"
#include "kernels.hpp"
#include "thread_pool.hpp"

namespace engine {

// ---- the engine's kernels as a backend of the library ----------------------------------------------------------

namespace detail {

template <class Stored>
inline constexpr storage storage_of = std::is_same_v<Stored, double>           ? storage::f64
                                      : std::is_same_v<Stored, float>          ? storage::f32
                                      : std::is_same_v<Stored, sureleap::half> ? storage::f16
                                                                               : storage::bf16;

template <class Stored>
[[nodiscard]] weight as_weight(sureleap::matrix_view<Stored> m) noexcept {
    return {m.data, storage_of<Stored>, m.rows, m.cols};
}
template <class Stored>
[[nodiscard]] sureleap::matrix_view<Stored> as_view(weight const& w) noexcept {
    return {static_cast<Stored const*>(w.data), w.rows, w.cols};
}

}  // namespace detail

/// Models linear_backend. A backend of the library has static functions only, so the pool it runs on is the one that
/// the calling thread lent with a `lend`; without one it runs on the caller.
class kernel_backend {
public:
    class lend {
    public:
        explicit lend(thread_pool& pool) noexcept : before_(std::exchange(lent_, &pool)) {}
        ~lend() { lent_ = before_; }
        lend(lend const&) = delete;
        lend& operator=(lend const&) = delete;

    private:
        thread_pool* before_;
    };

    template <class W, class R>
    [[nodiscard]] static R dot(std::span<W const> row, std::span<R const> x) noexcept {
        R sum{};
        matmul(pool(), x.data(), 1, detail::as_weight(sureleap::matrix_view<W>(row.data(), 1, row.size())), &sum);
        return sum;
    }
    template <class W, class R>
    static void gemv(sureleap::matrix_view<W> w, std::type_identity_t<std::span<R const>> x, std::span<R> y) noexcept {
        for_whole(w,
                  [&](weight const& part, std::size_t first) { matmul(pool(), x.data(), 1, part, y.data() + first); });
    }
    template <class W, class R>
    static void gemv_add(sureleap::matrix_view<W> w, std::type_identity_t<std::span<R const>> x,
                         std::span<R> y) noexcept {
        for_whole(
            w, [&](weight const& part, std::size_t first) { matmul_add(pool(), x.data(), 1, part, y.data() + first); });
    }

private:
    // Columns cut out of a wider matrix (the parts of a gate's projection) have gaps: those go row by row.
    template <class W, class F>
    static void for_whole(sureleap::matrix_view<W> w, F const& f) noexcept {
        if (w.stride == w.cols) {
            f(detail::as_weight(w), 0);
        } else {
            for (std::size_t i = 0; i < w.rows; ++i) {
                f(detail::as_weight(sureleap::matrix_view<W>(w.row(i).data(), 1, w.cols)), i);
            }
        }
    }
    [[nodiscard]] static thread_pool& pool() noexcept {
        static thread_local thread_pool alone{1};
        return lent_ != nullptr ? *lent_ : alone;
    }

    inline static thread_local thread_pool* lent_ = nullptr;
};

// ---- heads -----------------------------------------------------------------------------------------------------

/// Markov, gated, RNN or no head over weights of any storage. Models sequential_head.
template <class Real>
class any_head {
    template <class W>
    using markov = sureleap::markov_head<W, Real, kernel_backend>;
    template <class W>
    using gated = sureleap::gated_head<W, Real, kernel_backend>;
    template <class W>
    using rnn = sureleap::rnn_head<W, Real, kernel_backend>;

public:
    using value_type = Real;
    using variant =
        std::variant<sureleap::no_head<Real>, markov<double>, markov<float>, markov<sureleap::half>,
                     markov<sureleap::bf16>, gated<double>, gated<float>, gated<sureleap::half>, gated<sureleap::bf16>,
                     rnn<double>, rnn<float>, rnn<sureleap::half>, rnn<sureleap::bf16>>;

    any_head(variant head) : head_(std::move(head)) {}  // NOLINT: a head is a head

    [[nodiscard]] std::size_t vocabulary() const noexcept {
        return std::visit([](auto const& h) { return h.vocabulary(); }, head_);
    }
    [[nodiscard]] std::size_t previous_vocabulary() const noexcept {
        return std::visit([](auto const& h) { return h.previous_vocabulary(); }, head_);
    }
    [[nodiscard]] std::size_t hidden_size() const noexcept {
        return std::visit([](auto const& h) { return h.hidden_size(); }, head_);
    }
    [[nodiscard]] std::size_t state_size() const noexcept {
        return std::visit([](auto const& h) { return h.state_size(); }, head_);
    }
    void reset(std::span<Real> state) const noexcept {
        std::visit([&](auto const& h) { h.reset(state); }, head_);
    }
    void add_bias(std::span<Real> state, std::span<Real const> hidden, sureleap::token_id previous,
                  std::span<Real> logits) const noexcept {
        std::visit([&](auto const& h) { h.add_bias(state, hidden, previous, logits); }, head_);
    }

private:
    variant head_;
};

/// The learned confidence over weights of any storage. Models pre_token_confidence and anchor_confidence.
template <class Real>
class any_confidence {
    template <class W>
    using head = sureleap::confidence_head<W, Real, kernel_backend>;

public:
    using variant = std::variant<head<double>, head<float>, head<sureleap::half>, head<sureleap::bf16>>;

    any_confidence(variant confidence) : confidence_(std::move(confidence)) {}  // NOLINT

    [[nodiscard]] std::size_t hidden_size() const noexcept {
        return std::visit([](auto const& c) { return c.hidden_size(); }, confidence_);
    }
    [[nodiscard]] std::size_t previous_vocabulary() const noexcept {
        return std::visit([](auto const& c) { return c.previous_vocabulary(); }, confidence_);
    }
    [[nodiscard]] Real logit(std::span<Real const> hidden, sureleap::token_id previous) const noexcept {
        return std::visit([&](auto const& c) { return c.logit(hidden, previous); }, confidence_);
    }
    [[nodiscard]] Real operator()(std::span<Real const> hidden, sureleap::token_id previous,
                                  std::size_t k) const noexcept {
        return std::visit([&](auto const& c) { return c(hidden, previous, k); }, confidence_);
    }
    [[nodiscard]] Real at_anchor(std::span<Real const> hidden, sureleap::token_id anchor,
                                 std::size_t k) const noexcept {
        return std::visit([&](auto const& c) { return c.at_anchor(hidden, anchor, k); }, confidence_);
    }

private:
    variant confidence_;
};

// ---- from a file -----------------------------------------------------------------------------------------------

namespace detail {

inline constexpr char const* first_tensor = "markov_head.markov_w1.weight";

/// Calls f with a value of the type that a weight is stored as.
template <class F>
auto with_storage(storage type, F const& f) {
    switch (type) {
        case storage::f64: return f(double{});
        case storage::f32: return f(float{});
        case storage::f16: return f(sureleap::half{});
        case storage::bf16: break;
    }
    return f(sureleap::bf16{});
}

/// Part of a head, where it lies. A head of the library is stored in one format throughout: that of its first tensor.
template <class Stored>
[[nodiscard]] sureleap::matrix_view<Stored> same_storage(checkpoint const& from, char const* name, weight const& part) {
    if (part.type != storage_of<Stored>) {
        sureleap::detail::fail_with(from.folder().string(), ": tensor '", name, "' is stored otherwise than '",
                                    first_tensor, "', expected one format for all tensors of the heads");
    }
    return as_view<Stored>(part);
}

}  // namespace detail

/// The sequential head of a DSpark folder, no_head if it has none (DFlash). The checkpoint must outlive it.
template <class Real>
[[nodiscard]] any_head<Real> load_head(checkpoint const& from) {
    draft_config const& draft = from.config().draft.value();
    if (draft.head == head_kind::none) return {sureleap::no_head<Real>{}};
    std::size_t const V = from.config().transformer.vocabulary;
    std::size_t const d = from.config().transformer.hidden_size;
    std::size_t const r = draft.markov_rank;
    weight const w1 = from.matrix(detail::first_tensor, V, r);
    return detail::with_storage(w1.type, [&](auto stored) -> any_head<Real> {
        using W = decltype(stored);
        kernel_backend const backend;
        auto const matrix = [&](char const* name, std::size_t rows, std::size_t cols) {
            return detail::same_storage<W>(from, name, from.matrix(name, rows, cols));
        };
        auto const row = [&](char const* name, std::size_t size) {
            return detail::same_storage<W>(from, name, from.row(name, size)).row(0);
        };
        auto const in = detail::as_view<W>(w1);
        auto const out = matrix("markov_head.markov_w2.weight", V, r);
        if (draft.head == head_kind::gated) {
            return {sureleap::gated_head<W, Real, kernel_backend>{in, out,
                                                                  matrix("markov_head.gate_proj.weight", r, d + r),
                                                                  row("markov_head.gate_proj.bias", r), backend}};
        }
        if (draft.head == head_kind::rnn) {
            return {sureleap::rnn_head<W, Real, kernel_backend>{
                in, out, matrix("markov_head.joint_proj.weight", 3 * r, 2 * r + d),
                row("markov_head.joint_proj.bias", 3 * r), backend}};
        }
        return {sureleap::markov_head<W, Real, kernel_backend>{in, out, backend}};
    });
}

/// The confidence head of a DSpark folder whose config has one (draft.confidence). The checkpoint must outlive it.
template <class Real>
[[nodiscard]] any_confidence<Real> load_confidence(checkpoint const& from) {
    draft_config const& draft = from.config().draft.value();
    std::size_t const V = from.config().transformer.vocabulary;
    std::size_t const d = from.config().transformer.hidden_size;
    std::size_t const r = draft.confidence_with_markov ? draft.markov_rank : 0;
    Real const bias = from.vector<Real>("confidence_head.proj.bias", 1).front();
    char const* const name = "confidence_head.proj.weight";
    weight const w = from.matrix(name, 1, d + r);
    weight const w1 = r > 0 ? from.matrix(detail::first_tensor, V, r) : w;
    return detail::with_storage(w1.type, [&](auto stored) -> any_confidence<Real> {
        using W = decltype(stored);
        using head = sureleap::confidence_head<W, Real, kernel_backend>;
        auto const weights = detail::same_storage<W>(from, name, w);
        if (r == 0) return {head{weights, bias}};
        return {head{weights, bias, detail::as_view<W>(w1)}};
    });
}

}  // namespace engine

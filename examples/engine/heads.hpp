// SPDX-License-Identifier: MIT
//
// The library's sequential and confidence heads, chosen by what a file contains.
//
// The library's heads are templates on the storage of their weights, which a file decides at run time. A variant closes
// the gap: the five head kinds over four storage formats become one type that models factored_head. A visit or two per
// drafted position are nothing beside the product that follows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <sureleap/concepts.hpp>
#include <sureleap/confidence/head.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/head/domino.hpp>
#include <sureleap/head/gated.hpp>
#include <sureleap/head/int8.hpp>
#include <sureleap/head/linear.hpp>
#include <sureleap/head/markov.hpp>
#include <sureleap/head/none.hpp>
#include <sureleap/head/rnn.hpp>
#include <sureleap/sampling/distribution.hpp>

#include "checkpoint.hpp"
#include "config.hpp"
#include "quantised.hpp"

namespace engine {

namespace detail {

template <class Stored>
inline constexpr storage storage_of = std::is_same_v<Stored, double>           ? storage::f64
                                      : std::is_same_v<Stored, float>          ? storage::f32
                                      : std::is_same_v<Stored, sureleap::half> ? storage::f16
                                                                               : storage::bf16;

template <class Stored>
[[nodiscard]] sureleap::matrix_view<Stored> as_view(weight const& w) noexcept {
    return {static_cast<Stored const*>(w.data), w.rows, w.cols};
}

}  // namespace detail

// ---- heads -----------------------------------------------------------------------------------------------------

/// A drafter without a head (DFlash) as a head: its bias is nothing, of a known number of tokens.
template <class Real>
class no_bias : public sureleap::no_head<Real> {
public:
    explicit no_bias(std::size_t vocabulary) noexcept : output_{vocabulary} {}

    struct output_type {
        std::size_t tokens;
        [[nodiscard]] std::size_t vocabulary() const noexcept { return tokens; }
        [[nodiscard]] std::size_t rank() const noexcept { return 0; }
        void add(Real const* const*, Real const* const* base, Real* const* logits, std::size_t n,
                 sureleap::executor_ref const& = {}) const noexcept {
            for (std::size_t i = 0; i < n; ++i) {
                if (base[i] != logits[i]) std::copy_n(base[i], tokens, logits[i]);
            }
        }
        void add_at(std::span<sureleap::token_id const>, std::span<Real const>, std::span<Real>) const noexcept {}
    };
    [[nodiscard]] std::size_t vocabulary() const noexcept { return output_.tokens; }
    [[nodiscard]] std::span<Real const> code(std::span<Real>, std::span<Real const>,
                                             sureleap::token_id) const noexcept {
        return {};
    }
    [[nodiscard]] output_type const& output() const noexcept { return output_; }

private:
    output_type output_;
};

/// Markov, gated, RNN, Domino or no head over weights of any storage. Models factored_head, so batches read W2 once and
/// shortlists read little of it.
template <class Real>
class any_head {
    template <class W>
    using markov = sureleap::markov_head<W, Real>;
    template <class W>
    using gated = sureleap::gated_head<W, Real>;
    template <class W>
    using rnn = sureleap::rnn_head<W, Real>;
    template <class W>
    using domino = sureleap::domino_head<W, Real>;

public:
    using value_type = Real;
    /// W2 in eight bits, which products in float take.
    using int8_markov = sureleap::markov_head<float, float, sureleap::native_backend, sureleap::int8_view>;
    template <class... Heads>
    using with_int8 =
        std::conditional_t<std::is_same_v<Real, float>, std::variant<Heads..., int8_markov>, std::variant<Heads...>>;
    using variant = with_int8<no_bias<Real>, markov<double>, markov<float>, markov<sureleap::half>,
                              markov<sureleap::bf16>, gated<double>, gated<float>, gated<sureleap::half>,
                              gated<sureleap::bf16>, rnn<double>, rnn<float>, rnn<sureleap::half>, rnn<sureleap::bf16>,
                              domino<double>, domino<float>, domino<sureleap::half>, domino<sureleap::bf16>>;

    any_head(variant head) : head_(std::move(head)) {}  // NOLINT: a head is a head
    /// A head over memory that it keeps alive.
    any_head(variant head, std::shared_ptr<void const> memory) : memory_(std::move(memory)), head_(std::move(head)) {}

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
    [[nodiscard]] std::span<Real const> code(std::span<Real> state, std::span<Real const> hidden,
                                             sureleap::token_id previous) const noexcept {
        return std::visit([&](auto const& h) { return h.code(state, hidden, previous); }, head_);
    }
    /// Throws for a Domino head: its bias is not of one token.
    void embed(sureleap::token_id previous, std::span<Real> out) const {
        std::visit(
            [&](auto const& h) {
                if constexpr (requires { h.embed(previous, out); }) {
                    h.embed(previous, out);
                } else {
                    sureleap::fail_with(
                        "a Domino head has no successors of a token, expected a shortlist without them");
                }
            },
            head_);
    }

    /// W2 of whichever head it is. A view of the head.
    class output_type {
    public:
        explicit output_type(variant const& head) noexcept : head_(&head) {}

        [[nodiscard]] std::size_t vocabulary() const noexcept {
            return visit([](auto const& w2) { return w2.vocabulary(); });
        }
        [[nodiscard]] std::size_t rank() const noexcept {
            return visit([](auto const& w2) { return w2.rank(); });
        }
        void add(Real const* const* codes, Real const* const* base, Real* const* logits, std::size_t n,
                 sureleap::executor_ref const& threads = {}) const noexcept {
            visit([&](auto const& w2) { w2.add(codes, base, logits, n, threads); });
        }
        void add_at(std::span<sureleap::token_id const> tokens, std::span<Real const> code,
                    std::span<Real> logits) const noexcept {
            visit([&](auto const& w2) { w2.add_at(tokens, code, logits); });
        }

    private:
        template <class F>
        decltype(auto) visit(F const& f) const noexcept {
            return std::visit([&](auto const& h) { return f(h.output()); }, *head_);
        }
        variant const* head_;
    };
    [[nodiscard]] output_type output() const noexcept { return output_type(head_); }

private:
    std::shared_ptr<void const> memory_;
    variant head_;
};

static_assert(sureleap::factored_head<any_head<float>> && sureleap::factored_head<any_head<double>>);

/// The learned confidence over weights of any storage. Models pre_token_confidence and anchor_confidence.
template <class Real>
class any_confidence {
    template <class W>
    using head = sureleap::confidence_head<W, Real, sureleap::native_backend>;

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
        default: return f(sureleap::bf16{});
    }
}

/// Part of a head, where it lies. A head of the library is stored in one format throughout: that of its first tensor.
template <class Stored>
[[nodiscard]] sureleap::matrix_view<Stored> same_storage(checkpoint const& from, char const* name, weight const& part,
                                                         char const* first = first_tensor) {
    if (part.type != storage_of<Stored>) {
        sureleap::fail_with(from.folder().string(), ": tensor '", name, "' is stored otherwise than '", first,
                            "', expected one format for all tensors of the heads");
    }
    return as_view<Stored>(part);
}

/// A Markov head whose W2 is packed, as a GGUF file has it: in eight bits where products are in float.
template <class Real>
[[nodiscard]] any_head<Real> packed_markov_head(sureleap::matrix_view<float> w1, weight const& w2) {
    auto const numbers = std::make_shared<std::vector<float>>(w2.rows * w2.cols);
    for (std::size_t i = 0; i < w2.rows; ++i) unpack_row(w2, i, numbers->data() + i * w2.cols);
    sureleap::matrix_view<float> const out{numbers->data(), w2.rows, w2.cols};
    if constexpr (std::is_same_v<Real, float>) {
        auto const eight_bits = std::make_shared<sureleap::int8_matrix const>(out);
        return {sureleap::markov_head{w1, eight_bits->view()}, eight_bits};
    } else {
        return {sureleap::markov_head<float, Real>{w1, out}, numbers};
    }
}

/// The Domino head of a DFlash folder.
template <class Real>
[[nodiscard]] any_head<Real> domino_head(checkpoint const& from, weight const& embeddings) {
    draft_config const& draft = from.config().draft.value();
    std::size_t const V = from.config().transformer.vocabulary;
    std::size_t const d = from.config().transformer.hidden_size;
    std::size_t const g = draft.gru_units;
    std::size_t const r = draft.markov_rank;
    char const* const first = "prefix_gru.weight_ih_l0";
    weight const input = from.matrix(first, 3 * g, d);
    return with_storage(input.type, [&](auto stored) -> any_head<Real> {
        using W = decltype(stored);
        auto const matrix = [&](char const* name, std::size_t rows, std::size_t cols) {
            return same_storage<W>(from, name, from.matrix(name, rows, cols), first);
        };
        return {sureleap::domino_head<W, Real>{same_storage<W>(from, "embed_tokens.weight", embeddings, first),
                                               as_view<W>(input), matrix("prefix_gru.weight_hh_l0", 3 * g, g),
                                               matrix("embed_proj.0.weight", r, d + g),
                                               matrix("embed_proj.2.weight", V, r), draft.uncorrected}};
    });
}

}  // namespace detail

/// The sequential head of a DSpark model, no_bias if it has none (DFlash). A Domino head reads `embeddings`, the
/// target's, where the file leaves them out. Both must outlive it.
template <class Real>
[[nodiscard]] any_head<Real> load_head(checkpoint const& from, weight const& embeddings = {}) {
    draft_config const& draft = from.config().draft.value();
    std::size_t const V = from.config().transformer.vocabulary;
    std::size_t const drafted = draft.vocabulary > 0 ? draft.vocabulary : V;
    if (draft.head == head_kind::none) return {no_bias<Real>{drafted}};
    std::size_t const d = from.config().transformer.hidden_size;
    if (draft.head == head_kind::domino) {
        char const* const own = "embed_tokens.weight";
        bool const shares = !embeddings.empty() && !from.contains(own);
        return detail::domino_head<Real>(from, shares ? embeddings : from.matrix(own, V, d));
    }
    std::size_t const r = draft.markov_rank;
    weight const w1 = from.matrix(detail::first_tensor, V, r);
    char const* const output = "markov_head.markov_w2.weight";
    if (weight const w2 = from.matrix(output, drafted, r);
        is_packed(w2.type) && w1.type == storage::f32 && draft.head == head_kind::vanilla) {
        return detail::packed_markov_head<Real>(detail::as_view<float>(w1), w2);
    }
    return detail::with_storage(w1.type, [&](auto stored) -> any_head<Real> {
        using W = decltype(stored);
        auto const matrix = [&](char const* name, std::size_t rows, std::size_t cols) {
            return detail::same_storage<W>(from, name, from.matrix(name, rows, cols));
        };
        auto const row = [&](char const* name, std::size_t size) {
            return detail::same_storage<W>(from, name, from.row(name, size)).row(0);
        };
        auto const in = detail::as_view<W>(w1);
        auto const out = matrix(output, drafted, r);
        if (draft.head == head_kind::gated) {
            return {sureleap::gated_head<W, Real>{in, out, matrix("markov_head.gate_proj.weight", r, d + r),
                                                  row("markov_head.gate_proj.bias", r)}};
        }
        if (draft.head == head_kind::rnn) {
            return {sureleap::rnn_head<W, Real>{in, out, matrix("markov_head.joint_proj.weight", 3 * r, 2 * r + d),
                                                row("markov_head.joint_proj.bias", 3 * r)}};
        }
        return {sureleap::markov_head<W, Real>{in, out}};
    });
}

/// The confidence head of a DSpark folder whose config has one (draft.confidence). The checkpoint must outlive it.
template <class Real>
[[nodiscard]] any_confidence<Real> load_confidence(checkpoint const& from) {
    draft_config const& draft = from.config().draft.value();
    std::size_t const V = from.config().transformer.vocabulary;
    std::size_t const d = from.config().transformer.hidden_size;
    std::size_t const r = draft.confidence_with_markov ? draft.markov_rank : 0;
    char const* const shift = "confidence_head.proj.bias";
    Real const bias = from.contains(shift) ? from.vector<Real>(shift, 1).front() : Real(0);  // GGUF files may lack it
    char const* const name = "confidence_head.proj.weight";
    weight const w = from.matrix(name, 1, d + r);
    weight const w1 = r > 0 ? from.matrix(detail::first_tensor, V, r) : w;
    return detail::with_storage(w1.type, [&](auto stored) -> any_confidence<Real> {
        using W = decltype(stored);
        using head = sureleap::confidence_head<W, Real, sureleap::native_backend>;
        auto const weights = detail::same_storage<W>(from, name, w);
        if (r == 0) return {head{weights, bias}};
        return {head{weights, bias, detail::as_view<W>(w1)}};
    });
}

}  // namespace engine

// SPDX-License-Identifier: MIT
//
// Where q of a position comes from, given the base logits U_k of a backbone: a row source. First a row is wanted, then
// it is made, then it has a law. Here are dense rows, lent ones and factored ones; listed_rows.hpp has another kind. A
// source is constructed with (workspace&, draft_shape const&, head, positions of a block, the drafter's tokens) and has
// these verbs:
//
//     begin(r)                        a block of request r begins
//     want(head, base, hidden, at)    makes the row of a position; the head's state moves on
//     made(base, at)                  that row
//     anchor(head, base, at)          U_k as a row, the head left out: all that is known at the anchor
//     map(at, given)                  the tokens that these run over, if the drafter's are `given`
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>

#include <sureleap/core/config.hpp>
#include <sureleap/core/executor.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/core/workspace.hpp>
#include <sureleap/drafter/draft_memory.hpp>
#include <sureleap/head/linear.hpp>
#include <sureleap/head/none.hpp>
#include <sureleap/sampling/vocabulary_map.hpp>

SURELEAP_BEGIN_NAMESPACE

/// A row that is wanted: of position k of request r behind `previous`.
template <class Q>
struct row_position {
    std::size_t worker;  ///< whose scratch may be used (draft_block::worker)
    std::size_t r, k;
    std::size_t place;   ///< where the row is kept
    token_id previous;   ///< x_{k-1}
    std::span<Q> state;  ///< of the head behind the tokens before
};

/// A row of its own for each place: any sequential_head adds its bias. T: storage of base logits.
template <class Head, class T>
class dense_rows : public draft_rows<typename Head::value_type> {
public:
    using value_type = typename Head::value_type;
    using numbers = std::span<value_type const>;
    using position = row_position<value_type>;
    /// One product makes the rows of several requests, which are drawn together for it.
    static constexpr bool is_shared = false;

    dense_rows() = default;
    dense_rows(workspace& ws, draft_shape const& shape, Head const&, std::size_t, vocabulary_view,
               bool lent = false) noexcept
        : draft_rows<value_type>(ws, shape, lent) {}

    void begin(std::size_t) const noexcept {}
    void want(Head const& head, std::span<T const> base, numbers hidden, position const& at) const {
        head.add_bias(at.state, hidden, at.previous, copy(base, at));
    }
    [[nodiscard]] numbers made(std::span<T const>, position const& at) const noexcept { return this->row(at.place); }
    /// U_k where it is, or where its row goes if it is stored in another type.
    [[nodiscard]] numbers anchor(Head const&, std::span<T const> base, position const& at) const noexcept {
        if constexpr (std::is_same_v<T, value_type>) {
            return base;
        } else {
            return copy(base, at);
        }
    }
    [[nodiscard]] vocabulary_view map(position const&, vocabulary_view given) const noexcept { return given; }

private:
    [[nodiscard]] std::span<value_type> copy(std::span<T const> base, position const& at) const noexcept {
        detail::widen(base, this->row(at.place));
        return this->row(at.place);
    }
};

/// U_k is not copied: acceptance reads it behind the target's pass.
template <class Real>
class lent_rows : public dense_rows<no_head<Real>, Real> {
public:
    lent_rows() = default;
    lent_rows(workspace& ws, draft_shape const& shape, no_head<Real> const& head, std::size_t positions,
              vocabulary_view over) noexcept
        : dense_rows<no_head<Real>, Real>(ws, shape, head, positions, over, true) {}

    void want(no_head<Real> const&, std::span<Real const>, std::span<Real const>,
              row_position<Real> const&) const noexcept {}
    [[nodiscard]] std::span<Real const> made(std::span<Real const> base, row_position<Real> const&) const noexcept {
        return base;
    }
};

/// Rows of a factored_head: a code times W2, added to base logits. One pass over W2 makes the rows that several
/// requests want. So want() makes the codes alone, at most one a request, and make() the rows of all.
template <class Head, class T>
class factored_rows : public dense_rows<Head, T> {
public:
    using typename dense_rows<Head, T>::value_type;
    static constexpr bool is_shared = true;

    factored_rows() = default;
    factored_rows(workspace& ws, draft_shape const& shape, Head const& head, std::size_t positions,
                  vocabulary_view over) noexcept
        : dense_rows<Head, T>(ws, shape, head, positions, over),
          codes_(ws.take<value_type const*>(shape.requests)),
          from_(ws.take<value_type const*>(shape.requests)),
          to_(ws.take<value_type*>(shape.requests)) {}

    void begin(std::size_t r) const noexcept { to_[r] = nullptr; }
    /// The code stays in the head's state until the row is made.
    void want(Head const& head, std::span<T const> base, std::span<value_type const> hidden,
              row_position<value_type> const& at) const {
        to_[at.r] = this->row(at.place).data();
        from_[at.r] = this->anchor(head, base, at).data();
        codes_[at.r] = head.code(at.state, hidden, at.previous).data();
    }
    void make(Head const& head, std::size_t requests, executor_ref const& threads) const {
        std::size_t n = 0;
        for (std::size_t r = 0; r < requests; ++r) {
            if (to_[r] == nullptr) continue;
            codes_[n] = codes_[r];
            from_[n] = from_[r];
            to_[n++] = to_[r];
        }
        if (n > 0) head.output().add(codes_.data(), from_.data(), to_.data(), n, threads);
        std::fill_n(to_.begin(), requests, nullptr);
    }

private:
    std::span<value_type const*> codes_{};
    std::span<value_type const*> from_{};
    std::span<value_type*> to_{};  // null: the request wants no row
};

SURELEAP_END_NAMESPACE

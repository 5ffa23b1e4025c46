// SPDX-License-Identifier: MIT
//
// A sequential head that leaves a short list of tokens to draw from: the best of a position's base logits, united with
// the best successors of the token before by the head's own bias. Only their rows of W2 are multiplied, which takes a
// hundredth of the time of all. Whatever the list, the rule stays exact: q is the softmax over the list, and that is
// what tokens are drawn from and verified against. What a list leaves out costs acceptance alone.
//
// Base logits by themselves leave out what the bias would have brought in, several per cent of accepted tokens; the
// successors cost a table that is computed once.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/executor.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/detail/kernel/native.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Memory of the choice of a list, carved once and used for every position.
template <class Real>
struct shortlist_scratch {
    std::span<token_id> candidates{};  ///< [candidates(best)]
    std::span<Real> values{};          ///< [values(best, vocabulary)]

    static constexpr std::size_t chunk = 1024;
    static constexpr std::size_t sampled = 128;  ///< one of so many logits is looked at for a first threshold
    [[nodiscard]] static constexpr std::size_t candidate_count(std::size_t best) noexcept { return 2 * best + chunk; }
    [[nodiscard]] static constexpr std::size_t value_count(std::size_t best, std::size_t vocabulary) noexcept {
        return std::max(candidate_count(best), vocabulary / sampled + 1);
    }
};

namespace detail {

/// A number and how many are larger.
template <class Real>
struct ranked {
    Real value;
    std::size_t larger;
};

/// The number that `rank` others precede in descending order; `values` are lost. By a histogram first: comparisons of
/// numbers in no order are guessed wrong every other time, and there are thousands of them in every position.
template <class Real>
[[nodiscard]] ranked<Real> nth_largest(std::span<Real> values, std::size_t rank) noexcept {
    constexpr std::size_t buckets = 256;
    constexpr Real inf = std::numeric_limits<Real>::infinity();
    SURELEAP_EXPECTS(rank < values.size());
    Real high = -inf;
    Real low = inf;
    for (Real const v : values) {
        high = v > high ? v : high;
        low = v < low ? v : low;
    }
    auto const nth = [](std::span<Real> some, std::size_t r) {
        auto const at = some.begin() + static_cast<std::ptrdiff_t>(r);
        std::nth_element(some.begin(), at, some.end(), [](auto a, auto b) { return a > b; });
        auto const larger = std::count_if(some.begin(), at, [&](Real v) { return v > *at; });
        return ranked<Real>{*at, static_cast<std::size_t>(larger)};
    };
    Real const width = (high - low) / static_cast<Real>(buckets - 1);
    if (values.size() < buckets || !(width > Real(0)) || !(width < inf)) return nth(values, rank);

    Real const per_width = Real(1) / width;
    if (!(per_width < inf)) return nth(values, rank);
    auto const bucket = [&](Real v) {  // monotone as rounded, so buckets are in order
        return std::min(static_cast<std::size_t>(static_cast<int>((v - low) * per_width)), buckets - 1);
    };
    std::array<std::uint32_t, buckets> counts{};
    for (Real const v : values) ++counts[bucket(v)];
    std::size_t b = buckets - 1;
    std::size_t before = 0;
    while (before + counts[b] <= rank) before += counts[b--];
    std::size_t here = 0;
    for (Real const v : values) {
        bool const inside = bucket(v) == b;
        values[here] = inside ? v : values[here];
        here += inside ? 1 : 0;
    }
    auto const inside = nth(values.first(here), rank - before);
    return {inside.value, inside.larger + before};
}

/// The `best` tokens by (logit descending, id ascending), among the ascending `count` candidates; ascending again.
template <class T, class Real>
[[nodiscard]] std::size_t keep_best(std::span<T const> row, std::size_t best, std::size_t count,
                                    shortlist_scratch<Real> const& scratch, Real& least) noexcept {
    if (count <= best || best == 0) return std::min(count, best);
    auto const logit = [&](token_id v) { return static_cast<Real>(load(row[static_cast<std::size_t>(v)])); };
    auto const ids = scratch.candidates.first(count);
    auto const values = scratch.values.first(count);
    std::transform(ids.begin(), ids.end(), values.begin(), logit);
    auto const last = nth_largest(values, best - 1);
    least = last.value;
    std::size_t ties = best - last.larger;
    std::size_t kept = 0;
    for (token_id const v : ids) {  // no branch: which ones stay is as good as random
        Real const l = logit(v);
        bool const tie = l == least && ties > 0;
        ties -= tie ? 1 : 0;
        ids[kept] = v;
        kept += l > least || tie ? 1 : 0;
    }
    return kept;
}

/// Everything at or above `threshold`, thinned out whenever it becomes too much. Ascending, in scratch.candidates.
template <class T, class Real>
[[nodiscard]] std::size_t best_from(std::span<T const> row, std::size_t best, Real threshold,
                                    shortlist_scratch<Real> const& scratch) noexcept {
    std::size_t count = 0;
    for (std::size_t first = 0; first < row.size(); first += scratch.chunk) {
        auto const part = row.subspan(first, std::min(scratch.chunk, row.size() - first));
        auto const to = scratch.candidates.subspan(count);
        std::size_t found = 0;
        if constexpr (std::is_same_v<T, float>) {
            auto const least = static_cast<float>(threshold);  // exact: a logit of the row, or -inf
            found = native_kernels<head_kernels>().at_least(part.data(), part.size(), least, to.data());
        } else {
            for (std::size_t i = 0; i < part.size(); ++i) {
                if (static_cast<Real>(load(part[i])) >= threshold) to[found++] = static_cast<token_id>(i);
            }
        }
        for (token_id& v : to.first(found)) v += static_cast<token_id>(first);
        count += found;
        if (count > 2 * best) count = keep_best(row, best, count, scratch, threshold);
    }
    return keep_best(row, best, count, scratch, threshold);
}

/// The `best` tokens of a row by (logit descending, id ascending), ascending by id, in scratch.candidates; returns how
/// many. NaN is never among them. O(V): a sample of the row says where to look, one pass collects what is there, and if
/// the sample misled, another one does.
template <class T, class Real>
[[nodiscard]] std::size_t best_tokens(std::span<T const> row, std::size_t best,
                                      shortlist_scratch<Real> const& scratch) noexcept {
    SURELEAP_EXPECTS(scratch.candidates.size() >= scratch.candidate_count(best));
    SURELEAP_EXPECTS(scratch.values.size() >= scratch.value_count(best, row.size()));
    constexpr Real lowest = -std::numeric_limits<Real>::infinity();
    std::size_t const sampled = row.size() / scratch.sampled;
    // So many of the sample are among the best on average; a little more are asked for, since too few cost a pass.
    double const expected = static_cast<double>(best) / static_cast<double>(scratch.sampled);
    auto const rank = static_cast<std::size_t>(expected + 3.0 * std::sqrt(expected) + 2.0);
    if (rank < sampled) {
        auto const values = scratch.values.first(sampled);
        constexpr std::size_t line = 16;  // neighbours cost one look at memory
        for (std::size_t i = 0; i < sampled; ++i) {
            auto const l = static_cast<Real>(load(row[i / line * line * scratch.sampled + i % line]));
            values[i] = l >= lowest ? l : lowest;  // a NaN has no place in an order
        }
        if (std::size_t const count = best_from(row, best, nth_largest(values, rank).value, scratch); count == best) {
            return count;
        }
    }
    return best_from(row, best, lowest, scratch);
}

}  // namespace detail

/// For every previous token, the tokens that the head's transition bias W2 W1[previous] raises most, ascending by id.
/// For gated and RNN heads, whose bias depends on more, it is that of the open gate. Domino heads have no table. Owns
/// its table.
class successor_table {
public:
    /// Throws if biases overflow. O(V_target V_draft r) time, once: minutes for a large vocabulary, so an engine keeps
    /// it with the weights. Products are divided among `threads`.
    template <factored_head Head>
    successor_table(Head const& head, std::size_t successors, executor_ref const& threads = {})
        : rows_(head.previous_vocabulary()), cols_(std::min<std::size_t>(successors, head.vocabulary())) {
        using real = typename Head::value_type;
        static_assert(
            requires(std::span<real> code) { head.embed(token_id{}, code); },
            "successor_table: the head's bias is not of the token before alone, so there are no successors by "
            "it; a shortlist_head without successors works");
        constexpr std::size_t batch = 24;
        std::size_t const V = head.vocabulary();
        table_.reserve(rows_ * cols_);
        std::vector<real> codes(batch * head.output().rank());
        std::vector<real> bias(batch * V);
        std::vector<token_id> candidates(shortlist_scratch<real>::candidate_count(cols_));
        std::vector<real> values(shortlist_scratch<real>::value_count(cols_, V));
        for (std::size_t first = 0; first < rows_; first += batch) {
            std::size_t const n = std::min(batch, rows_ - first);
            std::array<real const*, batch> from;
            std::array<real*, batch> to;
            std::fill(bias.begin(), bias.end(), real(0));
            for (std::size_t i = 0; i < n; ++i) {
                auto const code = std::span(codes).subspan(i * head.output().rank(), head.output().rank());
                head.embed(static_cast<token_id>(first + i), code);
                from[i] = code.data();
                to[i] = bias.data() + i * V;
            }
            head.output().add(from.data(), to.data(), to.data(), n, threads);
            for (std::size_t i = 0; i < n; ++i) {
                std::size_t const count = detail::best_tokens<real, real>({to[i], V}, cols_, {candidates, values});
                if (count != cols_) {  // weights are finite, but sums of large products need not be numbers
                    fail_with("successor_table: the bias after token ", first + i, " has ", count,
                              " values that are numbers, expected at least ", cols_,
                              ": products of the weights are too large");
                }
                table_.insert(table_.end(), candidates.begin(),
                              candidates.begin() + static_cast<std::ptrdiff_t>(count));
            }
        }
    }

    /// [V_target, successors], to be kept or handed to a shortlist_head.
    [[nodiscard]] matrix_view<token_id> view() const noexcept { return {table_.data(), rows_, cols_}; }

private:
    std::size_t rows_;
    std::size_t cols_;
    std::vector<token_id> table_;
};

/// A factored head confined to lists of at most `best + successors` tokens. Immutable, concurrently callable.
///
/// A drafter with this head keeps rows of capacity() logits instead of V.
template <factored_head Head>
class shortlist_head {
public:
    using value_type = typename Head::value_type;
    using scratch_type = shortlist_scratch<value_type>;

    /// `best` tokens by base logits, at least 1; the successors of the token before as `successors` says (a view of
    /// [V_target, any], rows ascending; successor_table makes one), or none. Throws on sizes that do not fit, ids out
    /// of range or rows that do not ascend.
    explicit shortlist_head(Head head, std::size_t best, matrix_view<token_id> successors = {})
        : head_(std::move(head)), best_(std::min<std::size_t>(best, head_.vocabulary())), successors_(successors) {
        if (best == 0) fail_with("shortlist_head: best is 0, expected at least 1 token by base logits");
        if (successors.rows != 0 && successors.rows != head_.previous_vocabulary()) {
            fail_with("shortlist_head: successors of ", successors.rows, " tokens, expected ",
                      head_.previous_vocabulary(), ", one row per previous token");
        }
        for (std::size_t i = 0; i < successors.rows; ++i) {
            auto const row = successors.row(i);
            for (std::size_t j = 0; j < row.size(); ++j) {
                token_id const least = j == 0 ? 0 : row[j - 1] + 1;
                if (row[j] < least || static_cast<std::size_t>(row[j]) >= head_.vocabulary()) {
                    fail_with("shortlist_head: successor ", j, " of token ", i, " is ", row[j], ", expected ", least,
                              " .. ", head_.vocabulary() - 1, " (ascending ids of the vocabulary)");
                }
            }
        }
    }

    [[nodiscard]] Head const& head() const noexcept { return head_; }
    [[nodiscard]] std::size_t best() const noexcept { return best_; }
    /// The most tokens of a list.
    [[nodiscard]] std::size_t capacity() const noexcept {
        return std::min<std::size_t>(best_ + successors_.cols, vocabulary());
    }

    [[nodiscard]] std::size_t vocabulary() const noexcept { return head_.vocabulary(); }
    [[nodiscard]] std::size_t previous_vocabulary() const noexcept { return head_.previous_vocabulary(); }
    [[nodiscard]] std::size_t hidden_size() const noexcept { return head_.hidden_size(); }
    [[nodiscard]] std::size_t state_size() const noexcept { return head_.state_size(); }
    void reset(std::span<value_type> state) const noexcept { head_.reset(state); }
    /// The head's own bias, of all tokens.
    void add_bias(std::span<value_type> state, std::span<value_type const> hidden, token_id previous,
                  std::span<value_type> logits) const noexcept {
        head_.add_bias(state, hidden, previous, logits);
    }

    /// The list of a position is made in two parts, for who asks for several successors of one position. What base
    /// logits choose, ascending, in `scratch`;
    template <class T>
    [[nodiscard]] std::span<token_id const> choose_best(std::span<T const> base,
                                                        scratch_type const& scratch) const noexcept {
        return scratch.candidates.first(detail::best_tokens(base, best_, scratch));
    }
    /// and that united with the successors of the token before, ascending, in `tokens` [capacity()]; returns its
    /// length. Of no_token, or any other id without a row of successors, there are none: so plans are made at the
    /// anchor.
    [[nodiscard]] std::size_t unite(std::span<token_id const> best, token_id previous,
                                    std::span<token_id> tokens) const noexcept {
        std::span<token_id const> next{};
        // A negative id becomes one that is larger than any.
        if (auto const row = static_cast<std::size_t>(previous); row < successors_.rows) next = successors_.row(row);
        return static_cast<std::size_t>(
            std::set_union(best.begin(), best.end(), next.begin(), next.end(), tokens.begin()) - tokens.begin());
    }
    /// logits[i] = base[tokens[i]] + B_k[tokens[i]], and the state moves on. O(tokens r).
    template <class T>
    void evaluate(std::span<T const> base, std::span<token_id const> tokens, std::span<value_type> state,
                  std::span<value_type const> hidden, token_id previous, std::span<value_type> logits) const noexcept {
        copy(base, tokens, logits);
        head_.output().add_at(tokens, head_.code(state, hidden, previous), logits);
    }
    /// logits[i] = base[tokens[i]].
    template <class T>
    void copy(std::span<T const> base, std::span<token_id const> tokens, std::span<value_type> logits) const noexcept {
        for (std::size_t i = 0; i < tokens.size(); ++i) {
            logits[i] = static_cast<value_type>(load(base[static_cast<std::size_t>(tokens[i])]));
        }
    }

private:
    Head head_;
    std::size_t best_;
    matrix_view<token_id> successors_;
};

SURELEAP_END_NAMESPACE

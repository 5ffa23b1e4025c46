// SPDX-License-Identifier: MIT
//
// A law whose row lies in slices on several ranks. To a rule it is what `distribution` is. Where it has to know what
// other ranks hold, it asks (questions.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/ranks/cut_search.hpp>
#include <sureleap/ranks/questions.hpp>
#include <sureleap/ranks/slice_row.hpp>
#include <sureleap/ranks/vocabulary_slices.hpp>
#include <sureleap/sampling/slice_records.hpp>
#include <sureleap/verify/draft_tree.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace detail {

/// The drafted tokens of a request, each in its place.
struct drafted_places {
    std::span<token_id const> tokens{};
    std::span<node_id const> parents{};  ///< of a tree; empty: a chain

    [[nodiscard]] std::size_t row(std::size_t k) const noexcept {
        return parents.empty() ? k : static_cast<std::size_t>(parents[k]);
    }
    /// Which of them is x behind row n; their number if none is.
    [[nodiscard]] std::size_t find(std::size_t n, token_id x) const noexcept {
        std::size_t k = parents.empty() ? n : 0;
        std::size_t const end = parents.empty() ? std::min(n + 1, tokens.size()) : tokens.size();
        for (; k < end; ++k) {
            if (tokens[k] == x && row(k) == n) return k;
        }
        return tokens.size();
    }
};

/// What ranks know together of a row.
template <class T>
struct sharded_row {
    using real = compute_t<T>;
    enum class kind : std::uint8_t {
        none,     ///< there is no law
        one_hot,  ///< at `mode`, without a row
        greedy,   ///< at the first largest logit
        dense,
    };

    kind is = kind::none;
    bool is_draft = false;
    bool truncates = false;
    bool is_summed = false;   ///< top, sums, total, logits
    bool lists_best = false;  ///< ranks list their best tokens, to find the cut
    bool is_cut = false;      ///< cut_logit, cut_token
    bool has_mode = false;
    bool has_winner = false;
    std::uint32_t index = 0;  ///< n
    slice_row<T> own{};
    token_id mode = no_token;
    token_id winner = no_token;
    real top = 0;
    real cut_logit = 0;  ///< of the last token that is kept
    token_id cut_token = no_token;
    std::uint64_t own_equals = 0;  ///< of this rank's tokens with that logit, how many are kept
    cut_search<real> search{};
    bool searches_mass = false;  ///< what the search is for: top-p, or else top-k
    double total = 0.0;
    slice_records given{};        ///< of this row alone: what the rank need not compute
    std::span<double> sums{};     ///< [parts] of exp((logit - top) scale)
    std::span<double> weights{};  ///< [gamma] the same of drafted tokens, unless the row is truncated
    std::span<real> logits{};     ///< [gamma] of drafted token k, if it is behind this row

    /// Of part i of this rank.
    [[nodiscard]] part_sum<real> own_sum(vocabulary_part const& part, std::size_t i) const noexcept {
        if (given.parts == nullptr) return own.sum(part, truncates);
        return {static_cast<real>(given.parts[i].top), static_cast<double>(given.parts[i].sum)};
    }
    [[nodiscard]] slice_mode<real> own_mode() const noexcept {
        if (given.best == nullptr) return own.mode();
        return {static_cast<real>(given.best->top), given.best->token};
    }
};

}  // namespace detail

/// p or q of a row of T. Weights are exp((logit - top) / temperature), top a logit of the row. O(1) each, but O(gamma)
/// in a tree. What is not known yet is asked, and answered as if it were nothing: then the rule's outcome does not
/// count. Precondition: the rule runs on all ranks alike.
template <class T>
class sharded_law {
public:
    using value_type = T;
    using weight_type = double;
    using row_type = detail::sharded_row<T>;

    sharded_law() = default;
    sharded_law(row_type const& row, std::size_t vocabulary, detail::rank_questions& questions,
                detail::drafted_places const& drafted) noexcept
        : row_(row), vocabulary_(vocabulary), questions_(&questions), drafted_(&drafted) {}

    [[nodiscard]] row_type const& row() const noexcept { return row_; }
    [[nodiscard]] row_type& row() noexcept { return row_; }
    [[nodiscard]] detail::rank_questions& questions() const noexcept { return *questions_; }

    [[nodiscard]] std::size_t size() const noexcept { return vocabulary_; }
    [[nodiscard]] bool is_one_hot() const noexcept { return row_.is == kind::one_hot || row_.is == kind::greedy; }
    [[nodiscard]] static constexpr bool is_settled() noexcept { return true; }
    /// True as long as nobody knows.
    [[nodiscard]] bool valid() const noexcept {
        if (row_.is == kind::dense) return !is_summed() || is_law();
        if (row_.is == kind::greedy) return !has_mode() || row_.mode != no_token;
        return row_.is == kind::one_hot;
    }
    /// What truncation leaves, once its cut is known.
    [[nodiscard]] bool keeps(token_id v) const noexcept {
        if (!row_.truncates) return true;
        double const l = logit(v);
        auto const last = static_cast<double>(row_.cut_logit);
        return l > last || (l == last && v <= row_.cut_token);
    }
    /// Its cut is known, or it has none; before that nobody runs a race over it.
    [[nodiscard]] bool can_race() const noexcept { return !row_.truncates || row_.is != kind::dense || is_summed(); }
    /// It is known that there is no law.
    [[nodiscard]] bool is_known_invalid() const noexcept {
        if (row_.is == kind::none) return true;
        if (row_.is == kind::greedy) return row_.has_mode && row_.mode == no_token;
        if (row_.is == kind::one_hot) return false;
        return (row_.is_summed && !is_law()) || (row_.has_winner && row_.winner == no_token);
    }
    /// The weight of token v; of one that was drafted behind this row without an exchange of its own.
    [[nodiscard]] double operator[](token_id v) const noexcept {
        if (is_one_hot()) return v == mode() ? 1.0 : 0.0;
        if (!is_summed() || !keeps(v)) return 0.0;
        std::size_t const k = row_.truncates ? drafted_->tokens.size() : drafted_->find(row_.index, v);
        return k < drafted_->tokens.size() ? row_.weights[k] : std::exp(exponent(v));
    }
    [[nodiscard]] double total() const noexcept {
        if (row_.is != kind::dense) return 1.0;
        return is_summed() ? row_.total : 1.0;
    }
    [[nodiscard]] double probability(token_id v) const noexcept { return (*this)[v] / total(); }
    [[nodiscard]] double log_probability(token_id v) const noexcept {
        if (is_one_hot()) return v == mode() ? 0.0 : -std::numeric_limits<double>::infinity();
        if (!is_summed()) return 0.0;
        return keeps(v) ? exponent(v) - std::log(row_.total) : -std::numeric_limits<double>::infinity();
    }
    /// Of a law at temperature 0. The first largest logit; no_token as long as nobody knows.
    [[nodiscard]] token_id mode() const noexcept {
        if (row_.is != kind::one_hot) static_cast<void>(has_mode());
        return row_.mode;
    }

private:
    using kind = typename row_type::kind;
    using question = detail::rank_question;

    [[nodiscard]] bool is_law() const noexcept {
        return row_.total > 0.0 && row_.total < std::numeric_limits<double>::infinity();
    }
    [[nodiscard]] bool is_summed() const noexcept {
        if (row_.is_summed) return true;
        bool known = questions_->ask({.what = question::kind::laws}) != nullptr;
        if (row_.lists_best) known = questions_->ask({.what = question::kind::best}) != nullptr && known;
        if (known && row_.truncates && questions_->searches()) {
            static_cast<void>(questions_->ask({.what = question::kind::cut, .row = questions_->step()}));
        } else if (known && row_.truncates) {
            static_cast<void>(questions_->ask({.what = question::kind::kept}));
        }
        questions_->stop();
        return false;
    }
    [[nodiscard]] bool has_mode() const noexcept {
        if (row_.has_mode) return true;
        static_cast<void>(questions_->ask({.what = question::kind::modes}));
        questions_->stop();
        return false;
    }
    /// 0 as long as nobody knows.
    [[nodiscard]] double logit(token_id v) const noexcept {
        std::size_t const k = drafted_->find(row_.index, v);
        if (k < drafted_->tokens.size()) return static_cast<double>(row_.logits[k]);
        question const wanted{.what = question::kind::logit, .of_q = row_.is_draft, .row = row_.index, .token = v};
        auto const* const known = questions_->ask(wanted);
        return known == nullptr ? 0.0 : known->number;
    }
    [[nodiscard]] double exponent(token_id v) const noexcept {
        return (logit(v) - static_cast<double>(row_.top)) * static_cast<double>(row_.own.scale());
    }

    row_type row_{};
    std::size_t vocabulary_ = 0;
    detail::rank_questions* questions_ = nullptr;
    detail::drafted_places const* drafted_ = nullptr;
};

SURELEAP_END_NAMESPACE

// SPDX-License-Identifier: MIT
//
// What an acceptance rule sees of one request whose rows lie in slices: the same as of whole rows (verification.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/core/workspace.hpp>
#include <sureleap/ranks/questions.hpp>
#include <sureleap/ranks/sharded_law.hpp>
#include <sureleap/ranks/slice_row.hpp>
#include <sureleap/ranks/vocabulary_slices.hpp>
#include <sureleap/sampling/distribution.hpp>
#include <sureleap/verify/verification.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace detail {

/// What the ranks know of a request in a round. P: storage of the target's rows as they are read, Q: of the draft's.
template <class P, class Q>
struct sharded_request {
    /// The largest top-k that lists of tokens are exchanged for, and how many are listed for a top-p.
    static constexpr std::size_t most_listed = 256;
    static constexpr std::size_t listed_for_top_p = 64;

    transform how{};  ///< of p
    /// Tokens that each rank lists of each row.
    [[nodiscard]] std::size_t best_count() const noexcept {
        if (!how.truncates() || how.greedy()) return 0;
        auto const k = static_cast<std::size_t>(how.top_k);
        if (k > 0) return k <= most_listed ? k : 0;
        return how.top_p < 1.0 ? listed_for_top_p : 0;
    }
    [[nodiscard]] bool lists_best() const noexcept { return best_count() > 0; }
    /// All tokens of p's rows are summed. A short top-k needs no such sum.
    [[nodiscard]] bool sums_targets() const noexcept { return how.top_k == 0 || !lists_best(); }

    std::uint64_t identity = 0;    ///< a checksum of what must be the same on all ranks
    bool open = false;             ///< nothing is decided yet
    bool reads_q = false;          ///< the rule does
    bool bad_drafts = false;       ///< some have a token that their q does not have
    bool has_logits = false;       ///< target_logits are known
    std::size_t length = 0;        ///< drafted tokens that are judged: those before
    std::size_t asked_length = 0;  ///< all that came
    rank_questions questions{};
    drafted_places drafted{};
    std::span<sharded_law<P>> targets{};  ///< [gamma + 1] of each row
    std::span<sharded_law<Q>> drafts{};   ///< [gamma] what token k was drawn from, if it is the first behind its row
    std::span<compute_t<P>> target_logits{};       ///< [gamma] of the drafted tokens, in the rows that they are behind
    std::span<double> target_weights{};            ///< [gamma] their weights
    std::span<double> draft_weights{};             ///< [gamma]
    std::span<compute_t<Q>> draft_logits{};        ///< [gamma]
    std::span<draw_key> noise{};                   ///< [gamma + 1] of the race of each row
    std::span<bool> touched{};                     ///< [gamma + 1] rows that the rule came to
    std::span<double> scratch{};                   ///< [2 gamma]
    std::span<slice_mode<compute_t<P>>> listed{};  ///< [ranks, most_listed] scratch, of one request at a time

    sharded_request() = default;
    sharded_request(workspace& ws, std::size_t block_size, std::size_t part_count) noexcept
        : questions(ws, block_size, part_count),
          targets(ws.take<sharded_law<P>>(block_size + 1)),
          drafts(ws.take<sharded_law<Q>>(block_size)),
          target_logits(ws.take<compute_t<P>>(block_size)),
          target_weights(ws.take<double>(block_size)),
          draft_weights(ws.take<double>(block_size)),
          draft_logits(ws.take<compute_t<Q>>(block_size)),
          noise(ws.take<draw_key>(block_size + 1)),
          touched(ws.take<bool>(block_size + 1)),
          scratch(ws.take<double>(2 * block_size)),
          target_sums(ws.take<double>(block_size + 1, part_count)),
          draft_sums(ws.take<double>(block_size, part_count)) {}

    /// Token k is the first behind its row, so that the row's q is its own.
    [[nodiscard]] bool is_first_behind(std::size_t k) const noexcept { return first_behind(drafted.row(k)) == k; }
    /// The first token behind row n; asked_length if there is none.
    [[nodiscard]] std::size_t first_behind(std::size_t n) const noexcept {
        if (drafted.parents.empty()) return std::min(n, asked_length);
        std::size_t k = 0;
        while (k < asked_length && drafted.row(k) != n) ++k;
        return k;
    }

    carved_rows<double> target_sums{};  ///< [gamma + 1, parts]
    carved_rows<double> draft_sums{};   ///< [gamma, parts]
};

}  // namespace detail

/// P: storage of the target's rows, Q: of the draft's.
template <class P, class Q>
class sharded_verification : public judged_drafts {
public:
    using law = sharded_law<P>;
    using draft_law = sharded_law<Q>;

    sharded_verification(judged_drafts const& drafts, detail::sharded_request<P, Q>& of,
                         vocabulary_slices const& slices) noexcept
        : judged_drafts(drafts), of_(&of), slices_(&slices) {
        std::ranges::fill(of.touched, false);
        of.questions.run();
    }

    [[nodiscard]] draft_law const& draft(std::size_t n) const noexcept {
        std::size_t const k = first_behind(n);
        return k < length() ? of_->drafts[k] : none_;
    }
    [[nodiscard]] law& target(std::size_t n, totals = totals::exact) noexcept {
        of_->touched[n] = true;
        return of_->targets[n];
    }
    [[nodiscard]] draft_law const& draft(node_id n) const noexcept { return draft(static_cast<std::size_t>(n)); }
    [[nodiscard]] law& target(node_id n, totals how = totals::exact) noexcept {
        return target(static_cast<std::size_t>(n), how);
    }
    /// The logits of all drafted tokens in p are known.
    [[nodiscard]] bool has_logits() const noexcept { return of_->has_logits || of_->asked_length == 0; }
    /// No row that was asked for is known to lack a law.
    [[nodiscard]] bool valid() const noexcept {
        for (std::size_t n = 0; n <= length(); ++n) {
            if (of_->touched[n] && of_->targets[n].is_known_invalid()) return false;
        }
        return true;
    }
    [[nodiscard]] std::span<double> scratch() const noexcept { return of_->scratch; }
    [[nodiscard]] static std::span<double> block_sums() noexcept { return {}; }

    // ---- for sharded_source ------------------------------------------------------------------------------------

    /// The law of a row that the rule may not have come to.
    [[nodiscard]] law const& law_of(std::size_t n) const noexcept { return of_->targets[n]; }
    [[nodiscard]] detail::rank_questions& questions() const noexcept { return of_->questions; }
    [[nodiscard]] vocabulary_slices const& slices() const noexcept { return *slices_; }

private:
    detail::sharded_request<P, Q>* of_;
    vocabulary_slices const* slices_;
    draft_law none_{};
};

SURELEAP_END_NAMESPACE

// SPDX-License-Identifier: MIT
//
// The outcome of a round for one request.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>

SURELEAP_BEGIN_NAMESPACE

/// What is accepted is emitted, and a correction or bonus behind it, which was not drafted. A text that ends at a
/// drafted token has none: then emitted is accepted, and verified ends there too. Views point into round memory and are
/// valid until the next round.
struct verdict {
    request_id id = 0;
    std::size_t slot = 0;
    status outcome = status::ok;          ///< anything else: nothing emitted, the request's state is unchanged
    status draft_outcome = status::ok;    ///< what ended the drafts before their time, if it is not ok
    std::size_t drafted = 0;              ///< tokens in the block
    std::size_t verified = 0;             ///< l, tokens that were judged; the first l that were drafted
    std::size_t accepted = 0;             ///< kept, 0 .. l and at most emitted; of a tree, the tokens of one path
    std::span<token_id const> emitted{};  ///< new tokens of the sequence; the last one is the next anchor
    finish_reason finished = finish_reason::none;  ///< the text ends with the last emitted token, and why
    std::span<double const> log_probabilities{};   ///< log p of each emitted token, if the request asked for them
    /// [emitted, top_log_probabilities] the likeliest tokens where each was emitted, in order; no_token behind a law's
    /// last.
    std::span<token_log_probability const> top_log_probabilities{};
    std::span<std::uint32_t const> ranks{};  ///< [emitted] of each emitted token, if the request asked for them; 1 ..
    std::uint64_t pass = 0;  ///< the target's pass that it was judged by (pass_stamp::number); 0 if the rows name none
    // Of trees; empty for chains:
    std::span<std::int32_t const> parents{};  ///< [drafted] 0 for the anchor, else 1 + the index of the token before it
    std::span<std::int32_t const> path{};     ///< [accepted] 1 + the index of each token that was kept

    /// x_0 of the next round, or no_token if nothing was emitted.
    [[nodiscard]] token_id next_anchor() const noexcept { return emitted.empty() ? no_token : emitted.back(); }
    /// The text ended at a drafted token, so the round emitted no correction or bonus.
    [[nodiscard]] bool ended_in_draft() const noexcept { return accepted > 0 && accepted == emitted.size(); }
    /// The request's row of the batch behind the k-th accepted token, which is at position anchor + k; k = 0 is the
    /// anchor's row. Keys and features of these rows stay.
    [[nodiscard]] std::size_t row(std::size_t k) const noexcept {
        return k == 0 || path.empty() ? k : static_cast<std::size_t>(path[k - 1]);
    }
    /// Drafted token k was accepted. O(accepted) of a tree.
    [[nodiscard]] bool kept(std::size_t k) const noexcept {
        return parents.empty() ? k < accepted : is_on_path(static_cast<std::int32_t>(k) + 1);
    }
    /// Drafted token k was verified, and kept or not by itself: what is before it was kept, and in a tree none of its
    /// elder siblings. O(k) of a tree.
    [[nodiscard]] bool reached(std::size_t k) const noexcept {
        if (k >= verified) return false;
        if (parents.empty()) return k <= accepted;
        if (parents[k] != 0 && !is_on_path(parents[k])) return false;
        for (std::size_t i = 0; i < k; ++i) {
            if (parents[i] == parents[k] && kept(i)) return false;
        }
        return true;
    }
    /// Drafted tokens between the anchor and token k. O(depth) of a tree.
    [[nodiscard]] std::size_t depth(std::size_t k) const noexcept {
        if (parents.empty()) return k;
        std::size_t before = 0;
        for (std::int32_t n = parents[k]; n != 0; n = parents[static_cast<std::size_t>(n) - 1]) ++before;
        return before;
    }

private:
    [[nodiscard]] bool is_on_path(std::int32_t node) const noexcept {
        return std::find(path.begin(), path.end(), node) != path.end();
    }
};

namespace detail {

template <bool may_not_throw>
constexpr void expect_commit() noexcept {
    static_assert(
        may_not_throw,
        "commit: a model's commit(verdicts) may throw, but the round is over when it is called: others have "
        "committed, and its tokens would be lost. Say that it does not: void commit(std::span<verdict const>) "
        "noexcept. A model that cannot follow remembers that, and fails in its next pass");
}
/// Tells a model what became of the round, if it wants to know.
template <class Model>
void commit_to(Model& model, std::span<verdict const> verdicts) noexcept {
    if constexpr (requires { model.commit(verdicts); }) {
        expect_commit<noexcept(model.commit(verdicts))>();
        model.commit(verdicts);
    } else {
        static_assert(
            !requires { &Model::commit; },
            "commit: this model's commit would never be called, so it would keep what was rejected; write "
            "void commit(std::span<verdict const> verdicts) noexcept, of a drafter perhaps "
            "commit(verdicts, draft_block<Q> const& block, memory)");
    }
}

}  // namespace detail

SURELEAP_END_NAMESPACE

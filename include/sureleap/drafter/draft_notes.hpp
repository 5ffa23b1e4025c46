// SPDX-License-Identifier: MIT
//
// What drafters write down of a draft for their commit, which learns from it. It lies in the round's own memory, beside
// the draft: a drafter that remembered its last draft instead would take the verdicts of one round for those of
// another, where two rounds overlap.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/core/workspace.hpp>
#include <sureleap/verify/draft_tree.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Where the end of a context occurred before.
struct lookup_match {
    std::size_t length = 0;                ///< tokens that agree, at most lookup_options::longest; 0: none was found
    std::span<token_id const> followed{};  ///< what came then, a part of the context

    [[nodiscard]] std::span<token_id const> tokens() const noexcept { return followed; }
};

/// Notes about R requests. A view of workspace memory.
class draft_notes {
public:
    draft_notes() = default;
    /// `trees`: drafts are trees of at most block_size nodes.
    draft_notes(workspace& ws, std::size_t requests, std::size_t block_size, bool trees) noexcept
        : block_size_(block_size),
          matches_(ws.take<noted_match>(requests)),
          followed_(ws.take<token_id>(requests * block_size)),
          confidences_(ws.take<double>(trees ? requests * block_size : 0)) {}

    /// Forgets the matches of the round before.
    void begin(std::size_t requests) const noexcept { std::fill_n(matches_.begin(), requests, noted_match{}); }

    /// What was found for request r. Of what followed, the first block_size tokens are kept, drafted or not.
    void note(std::size_t r, lookup_match const& match) const noexcept {
        auto const kept = match.followed.first(std::min(match.followed.size(), block_size_));
        std::copy(kept.begin(), kept.end(), followed_.subspan(r * block_size_, block_size_).begin());
        matches_[r] = {match.length, kept.size(), inside_};
    }
    /// What was noted by this drafter; length 0: nothing.
    [[nodiscard]] lookup_match match(std::size_t r) const noexcept {
        noted_match const& noted = matches_[r];
        if (noted.inside != inside_) return {};
        return {noted.length, followed_.subspan(r * block_size_, noted.followed)};
    }
    /// Where the confidence behind node n < block_size of the tree of request r is noted, after calibration.
    [[nodiscard]] double& confidence(std::size_t r, node_id n) const noexcept {
        return confidences_[r * block_size_ + static_cast<std::size_t>(n)];
    }

    /// The notes of the drafter inside the one whose notes these are.
    [[nodiscard]] draft_notes of_inner() const noexcept {
        draft_notes inner = *this;
        ++inner.inside_;
        return inner;
    }

private:
    struct noted_match {
        std::size_t length = 0;
        std::size_t followed = 0;  // tokens
        std::size_t inside = 0;    // by whom: how many drafters it is inside of
    };

    std::size_t block_size_ = 0;
    std::size_t inside_ = 0;
    std::span<noted_match> matches_{};
    std::span<token_id> followed_{};   // [R, block_size]
    std::span<double> confidences_{};  // [R, block_size]
};

SURELEAP_END_NAMESPACE

// SPDX-License-Identifier: MIT
//
// No drafts: every round is a row and a token, which is plain decoding in the same loop. Inside with_lookup it leaves
// all drafts to what is found: in the context, and in texts beside it.
//
//     with_lookup drafter{no_drafter{vocabulary}, store, {.block_size = 12}};
#pragma once

#include <cstddef>
#include <span>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/drafter/draft_block.hpp>
#include <sureleap/schedule/planning.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Models drafter; plans at the anchor. Real: the compute type of the rounds, which matters beside a target of double.
template <class Real = float>
class no_drafter {
public:
    using value_type = Real;
    struct forward_type {};

    static constexpr bool is_deterministic = true;
    static constexpr bool is_parallel = true;
    static constexpr bool has_confidence = true;  // of each of its tokens
    static constexpr bool plans_at_anchor = true;

    /// V of the target, at least 1.
    explicit no_drafter(std::size_t target_vocabulary) : target_vocabulary_(target_vocabulary) {
        if (target_vocabulary == 0) fail_with("no_drafter: target_vocabulary is 0, expected V");
    }

    [[nodiscard]] std::size_t block_size() const noexcept { return 1; }  // the least that a round has room for
    [[nodiscard]] std::size_t vocabulary() const noexcept { return 0; }
    [[nodiscard]] std::size_t target_vocabulary() const noexcept { return target_vocabulary_; }
    [[nodiscard]] forward_type forward(std::span<request_view const>) const noexcept { return {}; }
    void plan(forward_type, draft_block<Real> const&, planning_memory&) const noexcept {}
    template <class DraftRule, class Rng>
    void draw(forward_type, DraftRule, draft_block<Real>&, Rng&) const noexcept {}

private:
    std::size_t target_vocabulary_;
};

SURELEAP_END_NAMESPACE

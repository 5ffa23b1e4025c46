// SPDX-License-Identifier: MIT
//
// A draft may have a vocabulary of its own, usually the frequent part of the target's. Everything outside the drafter
// speaks target ids; this map is the only place where the two meet.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <sureleap/config.hpp>
#include <sureleap/error.hpp>
#include <sureleap/types.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Injective map from draft ids to target ids, with its inverse. Owns both tables; O(target vocabulary) memory.
class vocabulary_map {
public:
    /// `to_target[d]` is the target id of draft token d. Throws if an id is out of range or occurs twice.
    vocabulary_map(std::span<token_id const> to_target, std::size_t target_vocabulary)
        : to_target_(to_target.begin(), to_target.end()), to_draft_(target_vocabulary, no_token) {
        if (to_target_.empty())
            detail::fail("vocabulary_map: the draft vocabulary is empty, expected at least one token");
        for (std::size_t d = 0; d < to_target_.size(); ++d) {
            token_id const v = to_target_[d];
            if (v < 0 || static_cast<std::size_t>(v) >= target_vocabulary) {
                detail::fail_with("vocabulary_map: draft token ", d, " maps to target token ", v, ", expected 0 .. ",
                                  target_vocabulary - 1);
            }
            if (to_draft_[static_cast<std::size_t>(v)] != no_token) {
                detail::fail_with("vocabulary_map: draft tokens ", to_draft_[static_cast<std::size_t>(v)], " and ", d,
                                  " both map to target token ", v, ", expected distinct target tokens");
            }
            to_draft_[static_cast<std::size_t>(v)] = static_cast<token_id>(d);
        }
    }

    [[nodiscard]] std::size_t draft_size() const noexcept { return to_target_.size(); }
    [[nodiscard]] std::size_t target_size() const noexcept { return to_draft_.size(); }
    [[nodiscard]] token_id to_target(token_id draft) const noexcept {
        return to_target_[static_cast<std::size_t>(draft)];
    }
    /// Draft id of a target token, or no_token if the draft cannot say it.
    [[nodiscard]] token_id to_draft(token_id target) const noexcept {
        return to_draft_[static_cast<std::size_t>(target)];
    }

private:
    std::vector<token_id> to_target_;
    std::vector<token_id> to_draft_;
};

SURELEAP_END_NAMESPACE

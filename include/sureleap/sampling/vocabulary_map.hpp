// SPDX-License-Identifier: MIT
//
// A draft may have a vocabulary of its own: usually the frequent part of the target's, or for one position a short
// list. Everything outside the drafter speaks target ids; here is the only place where the two meet.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Injective map from draft ids to target ids, with its inverse. Owns both tables; O(target vocabulary) memory.
class vocabulary_map {
public:
    /// `to_target[d]` is the target id of draft token d. Throws if an id is out of range or occurs twice.
    vocabulary_map(std::span<token_id const> to_target, std::size_t target_vocabulary)
        : to_target_(to_target.begin(), to_target.end()), to_draft_(target_vocabulary, no_token) {
        if (to_target_.empty()) fail_with("vocabulary_map: the draft vocabulary is empty, expected at least one token");
        for (std::size_t d = 0; d < to_target_.size(); ++d) {
            token_id const v = to_target_[d];
            if (v < 0 || static_cast<std::size_t>(v) >= target_vocabulary) {
                fail_with("vocabulary_map: draft token ", d, " maps to target token ", v, ", expected 0 .. ",
                          target_vocabulary - 1);
            }
            if (to_draft_[static_cast<std::size_t>(v)] != no_token) {
                fail_with("vocabulary_map: draft tokens ", to_draft_[static_cast<std::size_t>(v)], " and ", d,
                          " both map to target token ", v, ", expected distinct target tokens");
            }
            to_draft_[static_cast<std::size_t>(v)] = static_cast<token_id>(d);
        }
        ascends_ = std::is_sorted(to_target_.begin(), to_target_.end());
    }

    [[nodiscard]] std::size_t draft_size() const noexcept { return to_target_.size(); }
    [[nodiscard]] std::size_t target_size() const noexcept { return to_draft_.size(); }
    [[nodiscard]] token_id to_target(token_id draft) const noexcept {
        return to_target_[static_cast<std::size_t>(draft)];
    }
    /// Draft id of a target token, or no_token if the draft cannot say it: so of an id that is no target token.
    [[nodiscard]] token_id to_draft(token_id target) const noexcept {
        auto const v = static_cast<std::size_t>(target);  // a negative id becomes one that is larger than any
        return v < to_draft_.size() ? to_draft_[v] : no_token;
    }
    /// Draft tokens are in the order of the target's.
    [[nodiscard]] bool ascends() const noexcept { return ascends_; }

private:
    std::vector<token_id> to_target_;
    std::vector<token_id> to_draft_;
    bool ascends_ = false;
};

/// What a row of logits runs over: a vocabulary_map; an ascending list of target ids, in which an id is searched for; a
/// slice, ids that follow each other; nothing, if the row speaks the target's vocabulary. A view.
class vocabulary_view {
public:
    vocabulary_view() = default;
    /// A null pointer is no map.
    vocabulary_view(vocabulary_map const* map) noexcept  // NOLINT: a map is what it runs over
        : map_(map), target_size_(map == nullptr ? 0 : map->target_size()) {}
    /// `list`: ascending target ids below `target_size`, at least one.
    vocabulary_view(std::span<token_id const> list, std::size_t target_size) noexcept
        : list_(list), target_size_(target_size) {
        SURELEAP_EXPECTS(!list.empty());
    }
    /// Tokens first .. first + count - 1 of `target_size`; perhaps none.
    [[nodiscard]] static vocabulary_view slice(std::size_t first, std::size_t count, std::size_t target_size) noexcept {
        SURELEAP_EXPECTS(first + count <= target_size);
        vocabulary_view view;
        view.first_ = first;
        view.count_ = count;
        view.target_size_ = target_size;
        return view;
    }

    [[nodiscard]] explicit operator bool() const noexcept { return target_size_ > 0; }
    [[nodiscard]] std::size_t draft_size() const noexcept {
        return map_ != nullptr ? map_->draft_size() : is_slice() ? count_ : list_.size();
    }
    [[nodiscard]] bool is_slice() const noexcept { return map_ == nullptr && list_.empty() && target_size_ > 0; }
    [[nodiscard]] std::size_t target_size() const noexcept { return target_size_; }
    /// The list; empty if it is none.
    [[nodiscard]] std::span<token_id const> list() const noexcept { return list_; }
    [[nodiscard]] bool ascends() const noexcept { return map_ == nullptr || map_->ascends(); }
    [[nodiscard]] token_id to_target(token_id draft) const noexcept {
        if (map_ != nullptr) return map_->to_target(draft);
        return list_.empty() ? static_cast<token_id>(first_) + draft : list_[static_cast<std::size_t>(draft)];
    }
    /// O(1) with a map or a slice, O(log size) with a list.
    [[nodiscard]] token_id to_draft(token_id target) const noexcept {
        if (map_ != nullptr) return map_->to_draft(target);
        if (list_.empty()) {
            std::size_t const i = static_cast<std::size_t>(target) - first_;  // below `first_` it becomes large
            return i < count_ ? static_cast<token_id>(i) : no_token;
        }
        auto const at = std::lower_bound(list_.begin(), list_.end(), target);
        return at != list_.end() && *at == target ? static_cast<token_id>(at - list_.begin()) : no_token;
    }

private:
    vocabulary_map const* map_ = nullptr;
    std::span<token_id const> list_{};
    std::size_t first_ = 0;  // of a slice
    std::size_t count_ = 0;
    std::size_t target_size_ = 0;
};

SURELEAP_END_NAMESPACE

// SPDX-License-Identifier: MIT
//
// Which rank holds the logits of which tokens. Rank r has a slice of every row, tokens first(r) .. end(r) - 1.
//
// Slices are cut into parts, each of which is summed by itself. What ranks exchange of a row is a number of each part,
// and everybody adds these up in the same order. So results are the same bits for any number of ranks whose slices end
// where parts do.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/detail/kernel/rows.hpp>
#include <sureleap/sampling/vocabulary_map.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Tokens first .. first + count - 1, which one rank holds.
struct vocabulary_part {
    std::size_t first = 0;
    std::size_t count = 0;
    std::size_t rank = 0;
};

/// Tokens of a part, unless it is told: few enough that a part stays in the first cache while it is summed, many enough
/// that a row is summed up in some 40 numbers.
inline constexpr std::size_t default_part_size = 4 * row_block;

/// The same on all ranks.
class vocabulary_slices {
public:
    /// Rank r's slice ends before token ends[r], where the next one begins; the last end is V. A slice may be empty.
    /// Parts begin at multiples of part_size, and where slices begin. Throws if ends do not ascend.
    explicit vocabulary_slices(std::span<std::size_t const> ends, std::size_t part_size = default_part_size)
        : ends_(ends.begin(), ends.end()), part_size_(part_size) {
        if (ends.empty()) fail_with("vocabulary_slices: there are no ends, expected one for each rank");
        if (part_size == 0) fail_with("vocabulary_slices: part_size is 0, expected some tokens");
        for (std::size_t r = 0; r < ends.size(); ++r) {
            std::size_t const begin = first(r);
            if (ends[r] < begin) {
                fail_with("vocabulary_slices: ends[", r, "] is ", ends[r], ", expected at least ", begin,
                          ", where the slice begins");
            }
            first_parts_.push_back(parts_.size());
            for (std::size_t at = begin; at < ends[r]; at += parts_.back().count) {
                std::size_t const end = std::min(at - at % part_size + part_size, ends[r]);
                parts_.push_back({at, end - at, r});
            }
        }
        first_parts_.push_back(parts_.size());
        if (parts_.empty()) fail_with("vocabulary_slices: all slices are empty, expected a vocabulary");
        for (std::size_t r = 0; r < ranks(); ++r) most_parts_ = std::max(most_parts_, parts_of(r).size());
    }
    /// Slices that end where parts do, with as many parts each, or one more.
    [[nodiscard]] static vocabulary_slices even(std::size_t vocabulary, std::size_t ranks,
                                                std::size_t part_size = default_part_size) {
        std::vector<std::size_t> ends(ranks);
        std::size_t const parts = part_size == 0 ? 0 : (vocabulary + part_size - 1) / part_size;
        for (std::size_t r = 0; r < ranks; ++r) {
            ends[r] = std::min(parts * (r + 1) / ranks * part_size, vocabulary);
        }
        return vocabulary_slices{ends, part_size};
    }

    [[nodiscard]] std::size_t vocabulary() const noexcept { return ends_.back(); }
    [[nodiscard]] std::size_t part_size() const noexcept { return part_size_; }
    [[nodiscard]] std::size_t ranks() const noexcept { return ends_.size(); }
    [[nodiscard]] std::size_t first(std::size_t rank) const noexcept { return rank == 0 ? 0 : ends_[rank - 1]; }
    [[nodiscard]] std::size_t end(std::size_t rank) const noexcept { return ends_[rank]; }
    /// Tokens of a rank's slice.
    [[nodiscard]] std::size_t size(std::size_t rank) const noexcept { return end(rank) - first(rank); }

    [[nodiscard]] vocabulary_view tokens(std::size_t rank) const noexcept {
        return vocabulary_view::slice(first(rank), size(rank), vocabulary());
    }

    /// All parts, in the order of tokens.
    [[nodiscard]] std::span<vocabulary_part const> parts() const noexcept { return parts_; }
    [[nodiscard]] std::span<vocabulary_part const> parts_of(std::size_t rank) const noexcept {
        return parts().subspan(first_parts_[rank], first_parts_[rank + 1] - first_parts_[rank]);
    }
    /// The first of them among all.
    [[nodiscard]] std::size_t first_part(std::size_t rank) const noexcept { return first_parts_[rank]; }
    /// Most parts of a rank.
    [[nodiscard]] std::size_t most_parts() const noexcept { return most_parts_; }
    /// Who holds token v. O(log ranks).
    [[nodiscard]] std::size_t owner(token_id v) const noexcept {
        auto const at = std::upper_bound(ends_.begin(), ends_.end(), static_cast<std::size_t>(v));
        return static_cast<std::size_t>(at - ends_.begin());
    }
    /// The part that token v lies in. O(log parts).
    [[nodiscard]] std::size_t part_of(token_id v) const noexcept {
        auto const at = std::ranges::upper_bound(parts_, static_cast<std::size_t>(v), {}, &vocabulary_part::first);
        return static_cast<std::size_t>(at - parts_.begin()) - 1;
    }

private:
    std::vector<std::size_t> ends_;  // [ranks]
    std::size_t part_size_;
    std::vector<vocabulary_part> parts_;
    std::vector<std::size_t> first_parts_;  // [ranks + 1]
    std::size_t most_parts_ = 0;
};

SURELEAP_END_NAMESPACE

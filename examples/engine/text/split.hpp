// SPDX-License-Identifier: MIT
//
// A step of the pre-tokenizer: cuts a text where a pattern matches. Tokens never cross a cut. All steps that are
// supported come down to this one, with the behaviours that the tokenizers library knows.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "pattern.hpp"

namespace engine::text {

/// What becomes of a match.
enum class split_behavior : std::uint8_t {
    isolated,              ///< a piece of its own
    removed,               ///< nothing: its bytes are lost
    merged_with_previous,  ///< the end of the piece before it
    merged_with_next,      ///< the beginning of the piece after it
    contiguous,            ///< one piece with the matches that touch it
};

struct split {
    pattern where;
    split_behavior behavior = split_behavior::isolated;
    bool invert = false;  ///< what does not match is the match

    /// Appends the pieces of a valid UTF-8 text; they point into it and none is empty.
    void operator()(std::string_view text, std::vector<std::string_view>& pieces) const {
        std::vector<match_range> const ranges = where.find(text);
        std::size_t begin = 0;  // of the piece being made
        for (std::size_t i = 0; i < ranges.size(); ++i) {
            bool const last = i + 1 == ranges.size();
            if (!last && joined(ranges[i].matched != invert, ranges[i + 1].matched != invert)) continue;
            bool const dropped = behavior == split_behavior::removed && ranges[i].matched != invert;
            if (!dropped && begin < ranges[i].end) pieces.push_back(text.substr(begin, ranges[i].end - begin));
            begin = ranges[i].end;
        }
    }

private:
    /// Do neighbours, each a match or not, belong to one piece?
    [[nodiscard]] bool joined(bool left, bool right) const noexcept {
        switch (behavior) {
            case split_behavior::isolated:
            case split_behavior::removed: return false;
            case split_behavior::merged_with_previous: return !left && right;
            case split_behavior::merged_with_next: return left && !right;
            case split_behavior::contiguous: return left == right;
        }
        return false;
    }
};

}  // namespace engine::text

// SPDX-License-Identifier: MIT
//
// What a round's drafts need memory for: sizes, and what is particular about a drafter's rows and tokens.
#pragma once

#include <cstddef>

#include <sureleap/core/calibration_ref.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/executor.hpp>
#include <sureleap/core/guarantee.hpp>
#include <sureleap/detail/kernel/rows.hpp>
#include <sureleap/sampling/draw_key.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Sizes of a round; fixed at set-up.
struct draft_shape {
    std::size_t requests = 0;       ///< most requests in a round
    std::size_t block_size = 0;     ///< gamma
    std::size_t vocabulary = 0;     ///< length of a draft logits row; 0 if the drafter has none
    std::size_t state_size = 0;     ///< numbers a sequential head keeps for a request
    bool trees = false;             ///< tokens are nodes of trees, block_size at most
    bool lists_tokens = false;      ///< rows run over lists of tokens, which are kept beside them
    bool lends_rows = false;        ///< rows are in memory of the drafter's until the round is over: none are kept here
    std::size_t candidates = 0;     ///< scratch of a choice of tokens: ids,
    std::size_t values = 0;         ///< and numbers
    bool constrained = false;       ///< rows may have to be masked, so lent ones too are kept here
    bool keep_rows = true;          ///< the acceptance rule reads q rows, so they must outlive the draw
    drawn_by rule = drawn_by::any;  ///< how tokens have to be drawn
    /// Null: the best that this machine runs.
    row_kernels const* kernels = nullptr;
    executor_ref executor{};
    calibration_ref calibration{};  ///< applied to every confidence; what it was before is kept then
};

namespace detail {
inline void check_block_size(char const* owner, char const* what, std::size_t size) {
    if (size >= 1 && size <= most_keyed_drafts) return;
    fail_with(owner, ": ", what, " is ", size, ", expected 1 .. ", most_keyed_drafts,
              ": keys of draws have 16 bits for the place of a drafted token");
}
}  // namespace detail

SURELEAP_END_NAMESPACE

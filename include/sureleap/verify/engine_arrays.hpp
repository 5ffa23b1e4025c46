// SPDX-License-Identifier: MIT
//
// What an engine hands over that drafts and scores by itself, and verifies here: arrays in the layout in which it keeps
// them. They are views: of host memory for `verifier` (verifier.hpp), of device memory for cuda::verify
// (cuda/round/verifier.cuh).
//
// R requests take part, with gamma drafts at most, over V tokens. An array "of slots" has an entry for each place where
// the engine keeps a request; request r of the call is at slots[r], or at r where no slots are given. Of an array that
// is null, every entry is the value that is said beside it.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Numbers that an engine keeps in one of two widths. A view; no array if it is null.
template <class Narrow, class Wide>
class either_array {
public:
    either_array() = default;
    SURELEAP_HOST_DEVICE either_array(Narrow* values) noexcept : narrow_(values) {}  // NOLINT: it is the array
    SURELEAP_HOST_DEVICE either_array(Wide* values) noexcept : wide_(values) {}      // NOLINT
    SURELEAP_HOST_DEVICE either_array(std::nullptr_t) noexcept {}                    // NOLINT

    [[nodiscard]] SURELEAP_HOST_DEVICE explicit operator bool() const noexcept {
        return narrow_ != nullptr || wide_ != nullptr;
    }
    /// Precondition: there is an array.
    [[nodiscard]] SURELEAP_HOST_DEVICE Wide operator[](std::size_t i) const noexcept {
        return wide_ != nullptr ? wide_[i] : static_cast<Wide>(narrow_[i]);
    }
    [[nodiscard]] SURELEAP_HOST_DEVICE Wide value_or(std::size_t i, Wide otherwise) const noexcept {
        return *this ? (*this)[i] : otherwise;
    }
    /// Nothing is stored where there is no array.
    SURELEAP_HOST_DEVICE void store(std::size_t i, Wide value) const noexcept {
        if (wide_ != nullptr) wide_[i] = value;
        if (narrow_ != nullptr) narrow_[i] = static_cast<Narrow>(value);
    }

private:
    Narrow* narrow_ = nullptr;
    Wide* wide_ = nullptr;
};

/// Token ids, counts and places: int32 or int64.
using integer_array = either_array<std::int32_t const, std::int64_t const>;
/// Settings: float or double.
using number_array = either_array<float const, double const>;
/// What is written of each kind, if it is wanted.
using integer_output = either_array<std::int32_t, std::int64_t>;
/// The same.
using number_output = either_array<float, double>;

/// What the drafts were drawn from. Position k of request r has its row at `rows` + slot slot_stride + k row_stride.
template <class Q>
struct q_arrays {
    Q const* rows = nullptr;  ///< logits or probabilities, of V tokens or n listed ones. Null: all drafts were found
    std::size_t slot_stride = 0;
    std::size_t row_stride = 0;
    integer_array slots{};   ///< [R] where the rows of a request are; r
    integer_array listed{};  ///< which tokens the numbers are of, with the strides of `rows`; -1 where there are fewer
    /// [slots of q, gamma] log of the sum of exp(logit / draft temperature) over each row of all tokens. Then a device
    /// takes no pass over the rows; q, and so what is emitted, is off by as much as they are. The host makes its own.
    number_array log_normalisers{};
};

/// How logits become p, and which draws are a request's own. Arrays of slots.
struct settings_arrays {
    number_array temperature{};        ///< 1; below least_temperature greedy
    integer_array top_k{};             ///< 0; below 1, or V and above, keeps all
    number_array top_p{};              ///< 1
    number_array min_p{};              ///< 0
    number_array draft_temperature{};  ///< the temperature; what q's logits were divided by
    integer_array seeds{};             ///< never null: a request's own, whatever else is in the batch
    integer_array stop_tokens{};       ///< [slots, stop_stride] -1 where there are fewer. The text ends at one
    std::size_t stop_stride = 0;
};

/// Changes to the logits of the target before they become p: bias, then penalties, then the mask. The drafts before a
/// row count as emitted there.
struct edit_arrays {
    /// [rows, bitmask_stride] words, a row beside each of the target's: bit v % 32 of word v / 32 is set if token v may
    /// come. Null: all may.
    std::int32_t const* bitmask = nullptr;
    std::size_t bitmask_stride = 0;

    // Of slots:
    integer_array bias_tokens{};  ///< [slots, bias_stride] -1 where there are fewer
    number_array bias{};          ///< the same: added to the logits of these tokens
    std::size_t bias_stride = 0;
    integer_array bias_counts{};  ///< how many there are; up to the first -1
    /// 1; logits above 0 of tokens that the prompt holds or that were emitted are divided by it, others multiplied.
    number_array repetition{};
    number_array frequency{};  ///< 0; times how often a token was emitted, taken from its logit
    number_array presence{};   ///< 0; taken from the logits of all that were emitted
    std::int32_t const* counts =
        nullptr;  ///< [slots, counts_stride] how often each was emitted, the anchor too. Null: 0
    std::size_t counts_stride = 0;
    std::int32_t const* prompt =
        nullptr;  ///< [slots, prompt_stride] words as of a bitmask: the prompt's tokens. Null: none
    std::size_t prompt_stride = 0;
};

/// What comes of it. Null arrays are not wanted.
struct verified_arrays {
    integer_output tokens{};        ///< [R, gamma + 1] what is emitted; -1 behind it
    integer_output counts{};        ///< [R] how many there are; 0 where the status is not ok
    integer_output accepted{};      ///< [R] how many of them are drafts
    integer_output next_anchors{};  ///< [R] the last of them; -1 if there are none
    integer_output paths{};         ///< [R, gamma] of trees: 1 + the index of each draft that was accepted; -1 behind
    std::uint8_t* statuses = nullptr;  ///< [R] `status`: invalid_target and the like, or what ended the drafts
    std::uint8_t* finished = nullptr;  ///< [R] `finish_reason`
    // Of each that is emitted, as verifier_options says; not a number, -1 or 0 behind them:
    number_output log_probabilities{};      ///< [R, gamma + 1]
    integer_output ranks{};                 ///< [R, gamma + 1] tokens that were at least as likely
    integer_output top_tokens{};            ///< [R, gamma + 1, n] the likeliest
    number_output top_log_probabilities{};  ///< [R, gamma + 1, n]
};

/// A call. T: storage of the target's logits, Q: of what the drafts were drawn from.
template <class T, class Q = float>
struct engine_arrays {
    std::size_t requests = 0;  ///< R
    /// [1] how many of them there are in this call, for calls that a device replays; requests.
    integer_array count{};

    /// [rows, V] logits of the target. Row k of a request is behind its k-th draft, row 0 behind its anchor.
    matrix_view<T> target{};
    /// [R + 1] the first row of each request, and the number of rows. Null: r (gamma + 1).
    integer_array row_begin{};

    /// Draft k of request r is drafts[r draft_stride + k]. draft_stride 0: drafts[row_begin[r] + 1 + k], so that each
    /// row has the token that it is behind, the anchor first. -1 ends the drafts of a request, as its last row does.
    integer_array drafts{};
    std::size_t draft_stride = 0;
    /// Of trees, in the places of the drafts: 0 for the anchor, else 1 + the index of the draft before.
    integer_array parents{};
    q_arrays<Q> q{};

    integer_array slots{};           ///< [R] where settings and edits of a request are; r
    integer_array positions{};       ///< [R] of its anchor in its text. Never null: with the seed it names the draws
    bool positions_of_rows = false;  ///< positions are [rows], each row's own
    integer_array remaining{};       ///< [R] tokens that it may still emit; gamma + 1
    settings_arrays settings{};
    edit_arrays edits{};
    verified_arrays out{};

    // Places of request r.
    [[nodiscard]] SURELEAP_HOST_DEVICE std::size_t slot(std::size_t r) const noexcept {
        return static_cast<std::size_t>(slots.value_or(r, static_cast<std::int64_t>(r)));
    }
    [[nodiscard]] SURELEAP_HOST_DEVICE std::size_t first_row(std::size_t r, std::size_t block_size) const noexcept {
        return static_cast<std::size_t>(row_begin.value_or(r, static_cast<std::int64_t>(r * (block_size + 1))));
    }
    [[nodiscard]] SURELEAP_HOST_DEVICE std::size_t first_draft(std::size_t r, std::size_t block_size) const noexcept {
        return draft_stride > 0 ? r * draft_stride : first_row(r, block_size) + 1;
    }
    [[nodiscard]] SURELEAP_HOST_DEVICE std::size_t slot_of_q(std::size_t r) const noexcept {
        return static_cast<std::size_t>(q.slots.value_or(r, static_cast<std::int64_t>(r)));
    }
    /// Where q's row of position 0 is, as numbers from `q.rows`.
    [[nodiscard]] SURELEAP_HOST_DEVICE std::size_t first_q(std::size_t r) const noexcept {
        return slot_of_q(r) * q.slot_stride;
    }
};

SURELEAP_END_NAMESPACE

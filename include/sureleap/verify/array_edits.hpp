// SPDX-License-Identifier: MIT
//
// Bias, penalties and masks out of an engine's arrays, as a logits hook: what `verifier` changes of the target's rows
// before they become p. A drafted token counts as emitted in the rows behind it, so p is that of plain decoding.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/token_mask.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/sampling/row_mask.hpp>
#include <sureleap/verify/engine_arrays.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Models logits_hook. Request r of the round is the r-th of the arrays, in slot r.
class array_edits {
public:
    static constexpr bool takes_slices = true;

    /// Where request r of the call has its own. Views, until the round has ended.
    struct places {
        std::span<std::size_t const> slots{};       ///< [R] of the edits
        std::span<std::size_t const> first_rows{};  ///< [R]
        std::size_t block_size = 0;
        std::span<token_id const> drafts{};       ///< [R, gamma]
        std::span<std::int32_t const> parents{};  ///< [R, gamma] of trees
    };

    array_edits() = default;
    array_edits(edit_arrays const& edits, places const& at) noexcept : edits_(edits), at_(at) {}

    /// Some row of the request is changed.
    [[nodiscard]] bool touches(request_view const& request) const noexcept {
        std::size_t const s = at_.slots[request.slot];
        return edits_.bitmask != nullptr || biases(s) || penalises(s);
    }
    /// O(V) where a mask or a penalty is the request's, else O(bias_stride).
    template <class Real>
    void operator()(hook_context const& at, std::span<Real> row) const noexcept {
        std::size_t const s = at_.slots[at.request.slot];
        if (biases(s)) bias(s, at.first_token, row);
        if (penalises(s)) penalise(s, at, row);
        if (edits_.bitmask == nullptr) return;
        std::size_t const i = at_.first_rows[at.request.slot] + row_behind(at.request.slot, at.drafted);
        std::size_t const vocabulary = at.first_token + row.size();
        std::span const words{edits_.bitmask + i * edits_.bitmask_stride, mask_words(vocabulary)};
        auto const over = vocabulary_view::slice(at.first_token, row.size(), vocabulary);
        row_mask{token_mask{words}, {}}.apply(row, at.first_token == 0 ? vocabulary_view{} : over);
    }

private:
    [[nodiscard]] bool biases(std::size_t s) const noexcept {
        return count_biases(s) > 0 && edits_.bias_tokens[s * edits_.bias_stride] >= 0;
    }
    [[nodiscard]] std::size_t count_biases(std::size_t s) const noexcept {
        if (!edits_.bias_tokens) return 0;
        auto const most = static_cast<std::int64_t>(edits_.bias_stride);
        return static_cast<std::size_t>(std::clamp<std::int64_t>(edits_.bias_counts.value_or(s, most), 0, most));
    }
    [[nodiscard]] bool penalises(std::size_t s) const noexcept {
        return edits_.repetition.value_or(s, 1.0) != 1.0 || edits_.frequency.value_or(s, 0.0) != 0.0 ||
               edits_.presence.value_or(s, 0.0) != 0.0;
    }
    template <class Real>
    void bias(std::size_t s, std::size_t first_token, std::span<Real> row) const noexcept {
        std::size_t const first = s * edits_.bias_stride;
        for (std::size_t i = first; i < first + count_biases(s); ++i) {
            std::int64_t const x = edits_.bias_tokens[i];
            if (x < 0) return;
            std::size_t const v = static_cast<std::size_t>(x) - first_token;  // in front of it, it becomes large
            if (v < row.size()) row[v] += static_cast<Real>(edits_.bias[i]);
        }
    }
    template <class Real>
    void penalise(std::size_t s, hook_context const& context, std::span<Real> row) const noexcept {
        std::span<token_id const> const drafted = context.drafted;
        std::size_t const begin = context.first_token;
        std::size_t const end = begin + row.size();
        auto const repetition = static_cast<Real>(edits_.repetition.value_or(s, 1.0));
        auto const frequency = static_cast<Real>(edits_.frequency.value_or(s, 0.0));
        auto const presence = static_cast<Real>(edits_.presence.value_or(s, 0.0));
        auto const* const counts = edits_.counts == nullptr ? nullptr : edits_.counts + s * edits_.counts_stride;
        auto const* const prompt = edits_.prompt == nullptr ? nullptr : edits_.prompt + s * edits_.prompt_stride;
        auto const change = [&](std::size_t v, std::ptrdiff_t drafts) {
            Real l = row[v - begin];
            std::ptrdiff_t const count = (counts == nullptr ? 0 : counts[v]) + drafts;
            bool const prompted = prompt != nullptr && (static_cast<std::uint32_t>(prompt[v / 32]) >> v % 32 & 1u) != 0;
            if (count > 0 || prompted) l = l > Real{0} ? l / repetition : l * repetition;
            if (count > 0) l -= frequency * static_cast<Real>(count) + presence;
            row[v - begin] = l;
        };
        bool const all = counts != nullptr || prompt != nullptr;
        for (std::size_t v = begin; v < end; ++v) {
            std::size_t next = end;  // the next token that was drafted
            for (token_id const x : drafted) {
                if (static_cast<std::size_t>(x) >= v) next = std::min(next, static_cast<std::size_t>(x));
            }
            for (; all && v < next; ++v) change(v, 0);
            v = next;
            if (v < end) change(v, std::count(drafted.begin(), drafted.end(), static_cast<token_id>(v)));
        }
    }
    /// The request's row behind these drafts.
    [[nodiscard]] std::size_t row_behind(std::size_t r, std::span<token_id const> path) const noexcept {
        if (at_.parents.empty()) return path.size();
        std::size_t n = 0;
        for (token_id const x : path) {
            std::size_t i = r * at_.block_size;
            while (at_.parents[i] != static_cast<std::int32_t>(n) || at_.drafts[i] != x) ++i;
            n = i - r * at_.block_size + 1;
        }
        return n;
    }

    edit_arrays edits_{};
    places at_{};
};

SURELEAP_END_NAMESPACE

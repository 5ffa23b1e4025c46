// SPDX-License-Identifier: MIT
//
// The target's laws of one request, each made from its row when somebody asks for it.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/core/workspace.hpp>
#include <sureleap/sampling/distribution.hpp>
#include <sureleap/sampling/row_mask.hpp>
#include <sureleap/sampling/vocabulary_map.hpp>

SURELEAP_BEGIN_NAMESPACE

/// The default hook: rows go to the transform as the target returned them, without a copy.
struct no_logits_hook {
    template <class Real>
    void operator()(hook_context const&, std::span<Real>) const noexcept {}
};

/// Scratch of one verification, reused for every request that a thread judges in a round. T is the target's storage
/// format.
template <class T, class Hook>
struct verification_memory {
    static constexpr bool hooked = !std::is_same_v<Hook, no_logits_hook>;
    /// Some requests' rows need no copy, as the hook says and their format allows.
    static constexpr bool spares =
        std::is_same_v<compute_t<T>, T> && requires(Hook const& hook, request_view const& r) {
            { hook.touches(r) } -> std::same_as<bool>;
        };
    /// Hooked rows are copies in the compute type, masked ones in their own; others are read where the target left
    /// them.
    using row_type = std::conditional_t<hooked, compute_t<T>, T>;

    std::span<distribution<row_type>> laws{};  ///< [gamma + 1]
    std::span<bool> made{};                    ///< [gamma + 1] the law of the row is there
    std::span<double> joint{};                 ///< [2 gamma]
    std::span<token_id> order{};               ///< [V], for truncation
    std::span<row_type> rows{};                ///< [(gamma + 1) V], if hooked or constrained
    std::span<double> sums{};                  ///< [(gamma + 2) row_blocks(V)], of the laws and of a residual
    row_kernels const* kernels = nullptr;

    /// Where row k is copied to, if it is.
    [[nodiscard]] std::span<row_type> rows_of(std::size_t k) const noexcept {
        std::size_t const vocabulary = order.size();
        return rows.empty() ? rows : rows.subspan(k * vocabulary, vocabulary);
    }

    /// `constrained`: rows may have to be masked.
    [[nodiscard]] static verification_memory carve(workspace& ws, std::size_t block_size, std::size_t vocabulary,
                                                   row_kernels const& kernels = native_kernels<row_kernels>(),
                                                   bool constrained = false) noexcept {
        return {ws.take<distribution<row_type>>(block_size + 1),
                ws.take<bool>(block_size + 1),
                ws.take<double>(2 * block_size),
                ws.take<token_id>(vocabulary),
                ws.take<row_type>(hooked || constrained ? (block_size + 1) * vocabulary : 0),
                ws.take<double>((block_size + 2) * row_blocks(vocabulary)),
                &kernels};
    }
};

/// What p of a row is made of: the one token that it has, or a row of logits.
template <class Row>
struct prepared_row {
    token_id one_hot = no_token;
    logits_row<Row> row{};
};

/// `row`, which the target gave behind `drafted`, as the request's edits and masks leave it; in `copied` if something
/// is changed. `over`: what the row runs over; nothing, if that is the vocabulary. Throws what the hook throws.
template <class T, class Hook, class Row = typename verification_memory<T, Hook>::row_type>
[[nodiscard]] prepared_row<Row> prepare_row(request_view const& request, std::span<token_id const> drafted,
                                            logits_row<T> const& row, vocabulary_view over, Hook const& hook,
                                            std::span<Row> copied) {
    using memory = verification_memory<T, Hook>;
    // Behind a stop token there is no law to read: the text has ended. A rule that draws there gets the stop token once
    // more, which nobody emits.
    if (!drafted.empty() && request.settings->stops_at(drafted.back())) return {drafted.back(), {}};
    row_mask const mask = mask_behind(request, drafted);
    std::size_t const vocabulary = over ? over.target_size() : row.values.size();
    if (token_id const forced = mask.only(vocabulary); forced != no_token) return {forced, {}};
    bool hooked = memory::hooked;
    if constexpr (memory::spares) hooked = hook.touches(request);
    if (hooked || mask) {
        std::transform(row.values.begin(), row.values.end(), copied.begin(),
                       [](T const& l) { return static_cast<Row>(load(l)); });
        if (hooked)
            hook(hook_context{request, drafted, over ? static_cast<std::size_t>(over.to_target(0)) : 0}, copied);
        mask.apply(copied, over);
        return {no_token, {copied, {}, {}}};
    }
    // Hooked rows are of the compute type, so what is read in place is of it as well.
    if constexpr (std::is_same_v<Row, T>) {
        return {no_token, row};
    } else {
        return {};
    }
}

/// Row k of a request is row first_row + k of the target's, for k = 0 .. l.
template <class T, class Hook>
class target_laws {
public:
    using memory_type = verification_memory<T, Hook>;
    using law = distribution<typename memory_type::row_type>;

    target_laws(request_view const& request, logits_rows<T> const& rows, std::size_t first_row, Hook const& hook,
                memory_type const& memory) noexcept
        : request_(request), rows_(rows), first_row_(first_row), hook_(hook), memory_(memory) {}

    [[nodiscard]] law& operator[](std::size_t k) const noexcept { return memory_.laws[k]; }
    /// Makes the law of row k, which the target gave behind `drafted`. Its sum is made as `how` says, or later. Throws
    /// what the hook throws.
    void make(std::size_t k, std::span<token_id const> drafted, totals how) const {
        memory_.laws[k] = made(k, drafted, how);
    }
    /// Room for the block sums of a row; k = l + 1 is nobody's.
    [[nodiscard]] std::span<double> block_sums(std::size_t k) const noexcept {
        std::size_t const blocks = row_blocks(rows_.values.cols);
        return memory_.sums.subspan(k * blocks, blocks);
    }
    [[nodiscard]] memory_type const& memory() const noexcept { return memory_; }

private:
    [[nodiscard]] law made(std::size_t k, std::span<token_id const> drafted, totals how) const {
        auto const read = prepare_row(request_, drafted, rows_.row(first_row_ + k), {}, hook_, memory_.rows_of(k));
        return read.one_hot != no_token ? law::one_hot(rows_.values.cols, read.one_hot) : law_of(k, read.row, how);
    }
    [[nodiscard]] law law_of(std::size_t k, logits_row<typename memory_type::row_type> const& row,
                             totals how) const noexcept {
        return {row, request_.settings->target_transform(), memory_.order, {}, *memory_.kernels, block_sums(k), how};
    }
    request_view const& request_;
    logits_rows<T> const& rows_;
    std::size_t first_row_;
    Hook const& hook_;
    memory_type memory_;
};

SURELEAP_END_NAMESPACE

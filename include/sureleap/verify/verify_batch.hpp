// SPDX-License-Identifier: MIT
//
// Requests with blocks of different lengths as one flat target batch, without padding or gaps. A block is a chain, or a
// tree: then a row attends to its own ancestors instead of all rows before it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/core/workspace.hpp>

SURELEAP_BEGIN_NAMESPACE

/// The tokens the target scores in a round, sum over r of (1 + l_r) rows. Request r owns rows
/// offsets()[r] .. offsets()[r+1]-1 (CSR): its anchor x_0, then x_1..x_l. Row i asks for the law of the token after it.
/// In a tree that is the token after its own path. A view of workspace memory.
class verify_batch {
public:
    static constexpr std::uint32_t no_row = static_cast<std::uint32_t>(-1);

    verify_batch() = default;
    verify_batch(workspace& ws, std::size_t requests, std::size_t block_size) noexcept
        : offsets_(ws.take<std::uint32_t>(requests + 1)),
          tokens_(ws.take<token_id>(requests * (block_size + 1))),
          positions_(ws.take<std::uint64_t>(requests * (block_size + 1))),
          markers_(ws.take<std::uint32_t>(requests * (block_size + 1))),
          parents_(ws.take<std::uint32_t>(requests * (block_size + 1))) {}

    /// Starts the batch of a round.
    void begin(std::span<request_view const> requests) noexcept {
        SURELEAP_EXPECTS(requests.size() < offsets_.size());
        requests_ = requests;
        filled_ = 0;
        offsets_[0] = 0;
        branches_ = false;
    }
    /// Appends the next request: its anchor and the prefix to verify. Call in the order of the requests. `parents` [l]
    /// of the drafted tokens in a tree: 0 for the anchor, else 1 + the index of the token before it. Empty: a chain.
    void append(std::span<token_id const> drafted, std::span<std::int32_t const> parents = {}) noexcept {
        std::uint32_t const first = offsets_[filled_];
        request_view const& request = requests_[filled_];
        SURELEAP_EXPECTS(first + drafted.size() < tokens_.size());
        std::uint32_t row = first;
        for (std::size_t k = 0; k <= drafted.size(); ++k, ++row) {
            tokens_[row] = k == 0 ? request.anchor : drafted[k - 1];
            markers_[row] = static_cast<std::uint32_t>(filled_);
            bool const chained = k == 0 || parents.empty();
            parents_[row] = k == 0 ? no_row : chained ? row - 1 : first + static_cast<std::uint32_t>(parents[k - 1]);
            positions_[row] = k == 0 ? request.position : positions_[parents_[row]] + 1;
            branches_ = branches_ || (k > 0 && parents_[row] + 1 != row);
        }
        offsets_[++filled_] = row;
    }

    [[nodiscard]] std::span<request_view const> requests() const noexcept { return requests_; }
    /// Batch tokens B of this step.
    [[nodiscard]] std::size_t rows() const noexcept { return offsets_[filled_]; }
    [[nodiscard]] std::span<std::uint32_t const> offsets() const noexcept { return offsets_.first(filled_ + 1); }
    /// Per row: token id, absolute position in its sequence, index of its request in requests().
    [[nodiscard]] std::span<token_id const> tokens() const noexcept { return tokens_.first(rows()); }
    [[nodiscard]] std::span<std::uint64_t const> positions() const noexcept { return positions_.first(rows()); }
    [[nodiscard]] std::span<std::uint32_t const> markers() const noexcept { return markers_.first(rows()); }
    /// Per row: the row of the token before it, which comes earlier in the batch; no_row of anchors.
    [[nodiscard]] std::span<std::uint32_t const> parents() const noexcept { return parents_.first(rows()); }
    /// Some row's parent is not the row before it. If not, all requests are chains and parents say nothing new.
    [[nodiscard]] bool has_trees() const noexcept { return branches_; }

    [[nodiscard]] std::size_t first_row(std::size_t r) const noexcept { return offsets_[r]; }
    /// l_r, the draft tokens of request r in the batch.
    [[nodiscard]] std::size_t length(std::size_t r) const noexcept { return offsets_[r + 1] - offsets_[r] - 1; }
    /// x_1..x_l of request r; of a tree, its tokens in the order in which they were grown.
    [[nodiscard]] std::span<token_id const> drafted(std::size_t r) const noexcept {
        return std::span<token_id const>(tokens_).subspan(offsets_[r] + 1, length(r));
    }
    /// The batch padded to `width` rows a request, for captured graphs: out[r * width + k], `pad` beyond 1 + l_r.
    /// width is at least 1 + the longest l_r, out holds requests * width tokens.
    void padded_tokens(std::size_t width, token_id pad, std::span<token_id> out) const noexcept {
        SURELEAP_EXPECTS(out.size() >= requests_.size() * width);
        for (std::size_t r = 0; r < requests_.size(); ++r) {
            std::size_t const used = length(r) + 1;
            SURELEAP_EXPECTS(used <= width);
            auto const row = out.subspan(r * width, width);
            std::copy_n(tokens_.begin() + offsets_[r], used, row.begin());
            std::fill(row.begin() + static_cast<std::ptrdiff_t>(used), row.end(), pad);
        }
    }

private:
    std::span<request_view const> requests_{};
    std::size_t filled_ = 0;
    std::span<std::uint32_t> offsets_{};
    std::span<token_id> tokens_{};
    std::span<std::uint64_t> positions_{};
    std::span<std::uint32_t> markers_{};
    std::span<std::uint32_t> parents_{};
    bool branches_ = false;
};

SURELEAP_END_NAMESPACE

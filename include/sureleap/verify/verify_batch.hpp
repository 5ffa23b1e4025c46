// SPDX-License-Identifier: MIT
//
// Requests with blocks of different lengths as one flat target batch, without padding or gaps.
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
/// A view of workspace memory; a chain today, its tokens could carry parents tomorrow.
class verify_batch {
public:
    verify_batch() = default;
    verify_batch(workspace& ws, std::size_t requests, std::size_t block_size) noexcept
        : offsets_(ws.take<std::uint32_t>(requests + 1)),
          tokens_(ws.take<token_id>(requests * (block_size + 1))),
          positions_(ws.take<std::uint64_t>(requests * (block_size + 1))),
          markers_(ws.take<std::uint32_t>(requests * (block_size + 1))) {}

    /// Starts the batch of a round.
    void begin(std::span<request_view const> requests) noexcept {
        SURELEAP_EXPECTS(requests.size() < offsets_.size());
        requests_ = requests;
        filled_ = 0;
        offsets_[0] = 0;
    }
    /// Appends the next request: its anchor and the prefix to verify. Call in the order of the requests.
    void append(std::span<token_id const> drafted) noexcept {
        std::size_t row = offsets_[filled_];
        request_view const& request = requests_[filled_];
        SURELEAP_EXPECTS(row + drafted.size() < tokens_.size());
        for (std::size_t k = 0; k <= drafted.size(); ++k, ++row) {
            tokens_[row] = k == 0 ? request.anchor : drafted[k - 1];
            positions_[row] = request.position + k;
            markers_[row] = static_cast<std::uint32_t>(filled_);
        }
        offsets_[++filled_] = static_cast<std::uint32_t>(row);
    }

    [[nodiscard]] std::span<request_view const> requests() const noexcept { return requests_; }
    /// Batch tokens B of this step.
    [[nodiscard]] std::size_t rows() const noexcept { return offsets_[filled_]; }
    [[nodiscard]] std::span<std::uint32_t const> offsets() const noexcept { return offsets_.first(filled_ + 1); }
    /// Per row: token id, absolute position in its sequence, index of its request in requests().
    [[nodiscard]] std::span<token_id const> tokens() const noexcept { return tokens_.first(rows()); }
    [[nodiscard]] std::span<std::uint64_t const> positions() const noexcept { return positions_.first(rows()); }
    [[nodiscard]] std::span<std::uint32_t const> markers() const noexcept { return markers_.first(rows()); }

    [[nodiscard]] std::size_t first_row(std::size_t r) const noexcept { return offsets_[r]; }
    /// l_r, the draft tokens of request r in the batch.
    [[nodiscard]] std::size_t length(std::size_t r) const noexcept { return offsets_[r + 1] - offsets_[r] - 1; }
    /// x_1..x_l of request r.
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
};

SURELEAP_END_NAMESPACE

// SPDX-License-Identifier: MIT
//
// Names of draws. The same key gives the same outcome, so a draw is reproducible without carrying state, and the tests
// can own every outcome.
//
// Keys never repeat (see purpose): rules that sample name their draws by the anchor's position, which moves in every
// round. Naming them by absolute position is biased: a position that is drafted again would see the same draw after
// decisions that depended on it. Only `noise` is keyed by absolute position, and only rules whose output is a function
// of the target row and that noise may use it. The request id is no part of a key.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/detail/kernel/philox.hpp>

SURELEAP_BEGIN_NAMESPACE

/// What a draw is for; part of its key, so that no two decisions ever share a draw. A rule of your own has accept,
/// residual and bonus too, each once for a position.
enum class purpose : std::uint32_t {
    anchor = 0,    ///< of training, no draw of a round: may a position be an anchor?; visit of a sequence, lane t
    draft = 1,     ///< x_k ~ q_k; anchor position, index k
    accept = 2,    ///< keep x_k?; anchor position, index k
    residual = 3,  ///< the correction after the first rejection; anchor position, index = accepted tokens
    bonus = 4,     ///< the extra token after a fully accepted block; anchor position, index = accepted tokens
    noise = 5,     ///< the target's own token; ABSOLUTE position of that token, index 0
    excess = 6,    ///< of `noise`, over the smallest of a group (sampling/gumbel_max.hpp); same position and index
    proposal = 7,  ///< y ~ p that may become the correction; anchor position, index = accepted tokens + 2^16 * attempt
    proposal_accept = 8,  ///< does it?; the same
    own = 9,  ///< what these do not name, of a rule, a drafter or a head of your own; index and position as you like
};

/// Name of one draw.
struct draw_key {
    std::uint64_t seed = 0;
    std::uint64_t position = 0;
    std::uint32_t index = 0;  ///< below 2^24
    purpose use = purpose::draft;

    [[nodiscard]] bool operator==(draw_key const&) const = default;
};

/// The most tokens that a round may draft for a request. A key has 16 bits for the position in its block or the node of
/// its tree; in the bits above, decisions that draw again count their attempts.
inline constexpr std::size_t most_keyed_drafts = 0xffff;

namespace detail {
inline void check_block_size(char const* owner, char const* what, std::size_t size) {
    if (size >= 1 && size <= most_keyed_drafts) return;
    fail_with(owner, ": ", what, " is ", size, ", expected 1 .. ", most_keyed_drafts,
              ": keys of draws have 16 bits for the place of a drafted token");
}
}  // namespace detail

/// Key of a draw that belongs to a block: (seed, anchor position, k, purpose).
[[nodiscard]] inline draw_key block_key(request_view const& request, std::size_t k, purpose use) noexcept {
    SURELEAP_EXPECTS(k <= most_keyed_drafts);
    return {request.seed, request.position, static_cast<std::uint32_t>(k), use};
}
/// Key of the noise that chooses the token at position k of the block: (seed, absolute position).
[[nodiscard]] inline draw_key noise_key(request_view const& request, std::size_t k) noexcept {
    return {request.seed, request.position + 1 + k, 0, purpose::noise};
}

// ---- Philox ----------------------------------------------------------------------------------------------------

/// What Philox is asked for the bits of a key. `lane` numbers the blocks of one key.
struct key_counter {
    std::uint32_t word[4];

    SURELEAP_HOST_DEVICE key_counter(draw_key const& key, std::uint32_t lane) noexcept
        : word{lane, (key.index << 8) | static_cast<std::uint32_t>(key.use), static_cast<std::uint32_t>(key.position),
               static_cast<std::uint32_t>(key.position >> 32)} {}
};
/// 128 bits of a key, as words.
struct key_bits {
    std::uint32_t word[4];

    SURELEAP_HOST_DEVICE explicit key_bits(draw_key const& key, std::uint32_t lane = 0) noexcept
        : key_bits(key_counter(key, lane), key.seed) {}
    SURELEAP_HOST_DEVICE key_bits(key_counter const& counter, std::uint64_t seed) noexcept
        : word{counter.word[0], counter.word[1], counter.word[2], counter.word[3]} {
        detail::philox_rounds(word, seed);
    }
};

/// The same, for the host.
[[nodiscard]] inline std::array<std::uint32_t, 4> random_bits(draw_key const& key, std::uint32_t lane) noexcept {
    key_bits const bits{key, lane};
    return {bits.word[0], bits.word[1], bits.word[2], bits.word[3]};
}

/// Uniform on [0, 1), a multiple of 2^-53.
[[nodiscard]] SURELEAP_HOST_DEVICE inline double uniform(draw_key const& key) noexcept {
    key_bits const bits{key};
    return static_cast<double>(((std::uint64_t{bits.word[0]} << 32) | bits.word[1]) >> 11) * 0x1p-53;
}

SURELEAP_END_NAMESPACE

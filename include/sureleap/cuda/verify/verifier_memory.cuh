// SPDX-License-Identifier: MIT
//
// What a verification of an engine's arrays is made for, and its device memory (the host's verifier_options).
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/workspace.cuh>
#include <sureleap/cuda/sampling/edited_row.cuh>
#include <sureleap/cuda/verify/memory.cuh>
#include <sureleap/cuda/verify/token_report.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// What memory is made for, and what comes with drafts.
struct verifier_limits {
    device_limits round{};
    std::uint32_t listed = 0;    ///< n: rows of q have n numbers, of tokens that are listed
    bool probabilities = false;  ///< q holds probabilities and not logits
    bool edits = false;          ///< calls may have edits
    std::uint32_t biases = 0;    ///< most biased tokens of a request
    // What is reported of each emitted token. With round.log_probabilities; a pass over its row.
    bool raw = false;             ///< by the target's row as it came, at temperature 1
    std::uint32_t likeliest = 0;  ///< n tokens beside each, at most most_likeliest

    [[nodiscard]] bool valid() const noexcept {
        return round.valid() && listed <= round.vocabulary && likeliest <= most_likeliest;
    }
};

/// Pointers, to be passed to kernels by value.
struct verifier_memory {
    verifier_limits limits{};
    device_round round{};
    verify_memory verification{};
    std::size_t* first_rows = nullptr;      ///< [R] of the target
    std::size_t* first_q = nullptr;         ///< [R] where q's rows begin
    std::uint8_t* found = nullptr;          ///< [R] no q is read
    block_weight* draft_weights = nullptr;  ///< [R gamma, blocks] if q's rows are logits of all tokens
    double* draft_upto = nullptr;           ///< the same
    request_edits* edits = nullptr;         ///< [R]
    token_id* bias_tokens = nullptr;        ///< [R, biases]
    float* bias = nullptr;                  ///< [R, biases]
    std::uint32_t* seen = nullptr;          ///< [R, words]

    [[nodiscard]] bool ready() const noexcept { return first_rows != nullptr; }
    [[nodiscard]] SURELEAP_HOST_DEVICE std::uint32_t words() const noexcept {
        return (limits.round.vocabulary + 31) / 32;
    }
};

/// Out of `ws`; not ready() if that only counts or is too small, and then verify refuses it. Beside what carve and
/// carve_verification take, V / 8 bytes a request if there are edits, and V / 64 a draft if q's rows are logits of all
/// tokens.
[[nodiscard]] inline verifier_memory carve_verifier(workspace& ws, verifier_limits const& limits) noexcept {
    verifier_memory memory{};
    if (!limits.valid()) return memory;
    std::size_t const requests = limits.round.requests;
    memory.limits = limits;
    memory.round = carve(ws, limits.round);
    memory.verification = carve_verification(ws, limits.round);
    memory.first_rows = ws.take<std::size_t>(requests);
    memory.first_q = ws.take<std::size_t>(requests);
    memory.found = ws.take<std::uint8_t>(requests);
    bool const dense = limits.listed == 0 && !limits.probabilities;
    std::size_t const draft_blocks =
        dense ? requests * limits.round.block_size * count_blocks(limits.round.vocabulary) : 0;
    memory.draft_weights = ws.take<block_weight>(draft_blocks);
    memory.draft_upto = ws.take<double>(draft_blocks);
    memory.edits = ws.take<request_edits>(requests);
    memory.bias_tokens = ws.take<token_id>(limits.edits ? requests * limits.biases : 0);
    memory.bias = ws.take<float>(limits.edits ? requests * limits.biases : 0);
    memory.seen = ws.take<std::uint32_t>(limits.edits ? requests * memory.words() : 0);
    if (!ws.fits()) memory = {};
    return memory;
}

}  // namespace cuda
SURELEAP_END_NAMESPACE

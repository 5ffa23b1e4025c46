// SPDX-License-Identifier: MIT
//
// Device memory of a verification. In: the limits of rounds. Out: pointers for the kernels, in one struct. Row k of
// request r has the number r (gamma + 1) + k, wherever it lies in the batch. So what is known of a request lies together.
//
// Nothing outlives a call: its first kernel (work.cuh) resets what the others count by. So a captured graph can be
// replayed, and an aborted round leaves nothing behind.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/distribution.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/workspace.cuh>
#include <sureleap/cuda/sampling/gumbel_max_row.cuh>
#include <sureleap/cuda/sampling/row.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// Threads of every block that weighs rows and judges.
inline constexpr unsigned verification_threads = 256;
inline constexpr unsigned verification_warps = verification_threads / warp_size;

/// What a row of the target is to the rule that judges it.
struct target_row {
    law p;
    double kept = 0.0;           ///< p of the token that was drafted for this position; behind the block: 0
    token_id choice = no_token;  ///< of rules that let the target choose first: its token
};

/// A pass over a row of p and of q that a request waits for.
struct residual_pass {
    std::uint32_t position = 0;
    std::uint32_t judges = 0;  ///< 1: block verification's test and correction in one, 0: a correction
    double scale = 1.0;        ///< of max(scale p - q, 0)
};

/// Where a request stands: a bit for each row that is complete (0 .. 31), how many completions nobody has looked at yet (from
/// bit 32 on), and whether any row of it is still wanted (bit 63). One word, so that a completion is one atomic addition.
using request_state = unsigned long long;
inline constexpr request_state one_completion = request_state{1} << 32;
inline constexpr request_state closed = request_state{1} << 63;
[[nodiscard]] __device__ __forceinline__ std::uint32_t complete_rows(request_state s) {
    return static_cast<std::uint32_t>(s);
}
[[nodiscard]] __device__ __forceinline__ std::uint32_t completions(request_state s) {
    return static_cast<std::uint32_t>((s & ~closed) >> 32);
}

/// Requests wait for their first pass together, for a second one likewise; further ones each makes by itself.
inline constexpr std::uint32_t pass_stages = 2;

struct verify_counters {
    std::uint32_t next = 0;      ///< work item that nobody took yet
    std::uint32_t finished = 0;  ///< requests that are listed first, by themselves: their rows need not be read
    std::uint32_t rows = 0;      ///< rows that are listed behind them
    std::uint32_t waiting[pass_stages] = {};
    std::uint32_t next_pass[pass_stages] = {};
};

/// Pointers, to be passed to kernels by value.
struct verify_memory {
    round_limits limits{};  ///< that it was carved for
    verify_counters* counters = nullptr;
    std::uint32_t* order = nullptr;        ///< [R (gamma + 1)] requests, then rows as request | position << 16
    request_state* states = nullptr;       ///< [R]
    std::uint32_t* next = nullptr;         ///< [R] position that is judged next
    std::uint32_t* tiles = nullptr;        ///< [rows] parts of the row that are done
    block_weight* weights = nullptr;       ///< [rows, blocks]
    double* upto = nullptr;                ///< [rows, blocks] sums of the law's weights up to and with the block
    gumbel_winner* winners = nullptr;      ///< [rows, gumbel_parts] who came first of what a warp looked at
    target_row* targets = nullptr;         ///< [rows]
    double* joint = nullptr;               ///< [R gamma] p_1 .. p_l of block verification
    residual_pass* passes = nullptr;       ///< [R]
    std::uint32_t* pass_blocks = nullptr;  ///< [R] blocks of the pass that are done
    double* left = nullptr;                ///< [R, blocks] their masses
    std::uint32_t* queues = nullptr;       ///< [pass_stages, R]

    [[nodiscard]] bool ready() const noexcept { return counters != nullptr; }
    [[nodiscard]] SURELEAP_HOST_DEVICE std::uint32_t blocks() const noexcept { return count_blocks(limits.vocabulary); }
    /// At most as many warps look at a row: one for every block, of whole blocks of threads.
    [[nodiscard]] SURELEAP_HOST_DEVICE std::uint32_t gumbel_parts() const noexcept {
        return (blocks() + verification_warps - 1) / verification_warps * verification_warps;
    }
    [[nodiscard]] SURELEAP_HOST_DEVICE std::uint32_t row(std::uint32_t r, std::uint32_t k) const noexcept {
        return r * (limits.block_size + 1) + k;
    }
};

/// Out of `ws`; not ready() if that only counts or is too small, and then accept refuses it. About 32 bytes for every 1,024
/// logits of a full batch.
[[nodiscard]] inline verify_memory carve_verification(workspace& ws, round_limits const& limits) noexcept {
    verify_memory memory{};
    if (!limits.valid()) return memory;
    std::size_t const requests = limits.requests;
    std::size_t const rows = requests * (limits.block_size + 1);
    std::size_t const blocks = count_blocks(limits.vocabulary);
    memory.limits = limits;
    memory.counters = ws.take<verify_counters>(1);
    memory.order = ws.take<std::uint32_t>(rows);
    memory.states = ws.take<request_state>(requests);
    memory.next = ws.take<std::uint32_t>(requests);
    memory.tiles = ws.take<std::uint32_t>(rows);
    memory.weights = ws.take<block_weight>(rows * blocks);
    memory.upto = ws.take<double>(rows * blocks);
    memory.winners = ws.take<gumbel_winner>(rows * memory.gumbel_parts());
    memory.targets = ws.take<target_row>(rows);
    memory.joint = ws.take<double>(requests * limits.block_size);
    memory.passes = ws.take<residual_pass>(requests);
    memory.pass_blocks = ws.take<std::uint32_t>(requests);
    memory.left = ws.take<double>(requests * blocks);
    memory.queues = ws.take<std::uint32_t>(pass_stages * requests);
    if (!ws.fits()) memory = {};
    return memory;
}

}  // namespace cuda
SURELEAP_END_NAMESPACE

// SPDX-License-Identifier: MIT
//
// Device memory of a verification. In: the limits of rounds. Out: pointers for the kernels, in one struct. Row k of
// request r has the number r (gamma + 1) + k, wherever it lies in the batch. So what is known of a request lies
// together.
//
// Nothing outlives a call: its first kernel (weigh.cuh) resets what the second one counts by. So a captured graph can
// be replayed, and an aborted round leaves nothing behind.
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

/// Threads of every block that judges.
inline constexpr unsigned verification_threads = 512;
inline constexpr unsigned verification_warps = verification_threads / warp_size;

/// What a row of the target is to the rule that judges it.
struct target_row {
    distribution p;
    token_id choice = no_token;  ///< of rules that let the target choose first: its token
    double kept = 0.0;           ///< p of the token that was drafted for this position; behind the block: 0
};

/// A pass over a row of p and of q that a request waits for.
struct residual_pass {
    std::uint32_t position = 0;
    std::uint32_t judges = 0;  ///< 1: block verification's test and correction in one, 0: a correction
    double scale = 1.0;        ///< of max(scale p - q, 0)
};

/// What the rows of a request say of it: that one holds no distribution, or the position that it ends at.
enum class request_fate : std::uint32_t { open, refused, decided };
struct request_standing {
    request_fate fate = request_fate::open;  ///< open: nothing is known yet
    std::uint32_t position = 0;              ///< at which the rule settles it
};

/// What blocks of threads count by while they judge.
struct verify_counters {
    std::uint32_t cut_requests = 0;  ///< those whose distributions are truncated
    std::uint32_t next_cut = 0;      ///< of their rows, position by position
    std::uint32_t next_request = 0;
    std::uint32_t open_passes = 0;  ///< that have blocks which nobody makes yet
    std::uint32_t last_opened = 0;  ///< the request whose pass it is
    std::uint32_t undecided = 0;    ///< requests without a verdict
};

/// Pointers, to be passed to kernels by value.
struct verify_memory {
    device_limits limits{};  ///< that it was carved for
    verify_counters* counters = nullptr;
    block_weight* weights = nullptr;   ///< [rows, blocks]
    double* upto = nullptr;            ///< [rows, blocks] sums of the distribution's weights up to and with the block
    gumbel_winner* winners = nullptr;  ///< [rows, blocks] who came first in a segment, at its first block; else nobody
    target_row* targets = nullptr;     ///< [rows]
    double* joint = nullptr;           ///< [R gamma] p_1 .. p_l of block verification
    std::uint32_t* cut_requests = nullptr;  ///< [R] which they are, in any order
    std::uint32_t* cut_rows = nullptr;      ///< [R] rows that are cut or need not be
    std::uint32_t* settled_at = nullptr;    ///< [R] no row behind this position is looked at
    residual_pass* passes = nullptr;        ///< [R]
    std::uint32_t* next_block = nullptr;    ///< [R] of the pass; past the last one if there is no pass
    std::uint32_t* pass_blocks = nullptr;   ///< [R] blocks of the pass that are done
    double* left = nullptr;                 ///< [R, blocks] their masses

    [[nodiscard]] bool ready() const noexcept { return counters != nullptr; }
    [[nodiscard]] SURELEAP_HOST_DEVICE std::uint32_t blocks() const noexcept { return count_blocks(limits.vocabulary); }
    [[nodiscard]] SURELEAP_HOST_DEVICE std::uint32_t row(std::uint32_t r, std::uint32_t k) const noexcept {
        return r * (limits.block_size + 1) + k;
    }
};

namespace detail {
/// `joint`: of block verification, which judges chains.
[[nodiscard]] inline verify_memory carve_verification(workspace& ws, device_limits const& limits, bool joint) noexcept {
    verify_memory memory{};
    std::size_t const requests = limits.requests;
    std::size_t const rows = requests * (limits.block_size + 1);
    std::size_t const blocks = count_blocks(limits.vocabulary);
    memory.limits = limits;
    memory.counters = ws.take<verify_counters>(1);
    memory.weights = ws.take<block_weight>(rows * blocks);
    memory.upto = ws.take<double>(rows * blocks);
    memory.winners = ws.take<gumbel_winner>(rows * blocks);
    memory.targets = ws.take<target_row>(rows);
    memory.joint = joint ? ws.take<double>(requests * limits.block_size) : nullptr;
    memory.cut_requests = ws.take<std::uint32_t>(requests);
    memory.cut_rows = ws.take<std::uint32_t>(requests);
    memory.settled_at = ws.take<std::uint32_t>(requests);
    memory.passes = ws.take<residual_pass>(requests);
    memory.next_block = ws.take<std::uint32_t>(requests);
    memory.pass_blocks = ws.take<std::uint32_t>(requests);
    memory.left = ws.take<double>(requests * blocks);
    if (!ws.fits()) memory = {};
    return memory;
}
}  // namespace detail

/// Out of `ws`; not ready() if that only counts or is too small, and then accept refuses it. About 32 bytes for every
/// 1,024 logits of a full batch.
[[nodiscard]] inline verify_memory carve_verification(workspace& ws, device_limits const& limits) noexcept {
    return limits.valid() ? detail::carve_verification(ws, limits, true) : verify_memory{};
}

}  // namespace cuda
SURELEAP_END_NAMESPACE

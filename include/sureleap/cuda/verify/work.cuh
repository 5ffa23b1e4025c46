// SPDX-License-Identifier: MIT
//
// The work of a verification: which pieces there are, who takes them, and when a row of the target is complete. In:
// the batch of a round. Out: a list of requests and rows in the memory of the verification, and pieces of it for
// blocks of threads.
//
// Requests whose rows need not be read come first. Then come the rows of position 0 of all requests, those of position
// 1, and so on. A row is divided into tiles, and a tile among the warps of a block. Blocks take the next tile by a
// counter. Rows of requests that are decided by then are passed over. The list takes one block O(R gamma / 1024) a
// thread.
#pragma once

#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/verify/memory.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {
namespace detail {

// ---- the list --------------------------------------------------------------------------------------------------

inline constexpr unsigned list_threads = 1024;

struct list_shared {
    std::uint32_t
        counts[round_limits::longest_block + 2];  // of rows by position; the last one of requests without rows
};

/// What is to be read of a request's rows.
enum class work_kind : std::uint32_t { nothing, request, rows };

/// One block. Requests that have nothing to judge get their verdict here. Given normalisers make a law without a pass.
template <class T>
__global__ void list_rows(verify_memory memory, device_round round, logits_rows<T> rows, bool may_take) {
    constexpr std::uint32_t alone = round_limits::longest_block + 1;
    auto& s = shared_memory<list_shared>();
    std::uint32_t const requests = *round.requests.count;
    std::uint32_t const padded = (requests + warp_size - 1) / warp_size * warp_size;  // whole warps
    unsigned const earlier_lanes = (1u << lane_index()) - 1;

    auto const what = [&](std::uint32_t r) {
        if (r >= requests || round.drafts.statuses[r] != status::ok || round.requests.remaining[r] == 0) {
            return work_kind::nothing;
        }
        std::uint32_t const length = round.batch.lengths[r];
        std::int32_t const first = round.batch.offsets[r];
        if (first < 0 || length > memory.limits.block_size || static_cast<std::uint32_t>(first) + length >= rows.rows) {
            return work_kind::nothing;
        }
        transform const& how = round.requests.targets[r];
        bool const taken = may_take && rows.are_normalised(how);
        return taken ? work_kind::request : work_kind::rows;
    };
    // The places of the requests in their lists, of as many as there are lanes: f(position, rank among the warp's).
    auto const for_each_row = [&](std::uint32_t r, auto const& f) {
        work_kind const mine = what(r);
        f(alone, __ballot_sync(all_lanes, mine == work_kind::request));
        std::uint32_t const length = mine == work_kind::rows ? round.batch.lengths[r] : 0;
        for (std::uint32_t k = 0; k <= memory.limits.block_size; ++k) {
            unsigned const with_row = __ballot_sync(all_lanes, mine == work_kind::rows && k <= length);
            if (with_row == 0) break;
            f(k, with_row);
        }
    };

    if (threadIdx.x <= alone) s.counts[threadIdx.x] = 0;
    __syncthreads();
    for (std::uint32_t r = threadIdx.x; r < padded; r += blockDim.x) {
        for_each_row(r, [&](std::uint32_t k, unsigned lanes) {
            if (lane_index() == 0 && lanes != 0) atomicAdd(&s.counts[k], static_cast<unsigned>(__popc(lanes)));
        });
        if (r >= requests) continue;
        memory.states[r] = 0;
        memory.next[r] = 0;
        for (std::uint32_t k = 0; k <= memory.limits.block_size; ++k) memory.tiles[memory.row(r, k)] = 0;
        if (what(r) == work_kind::nothing) {
            status const drafted = round.drafts.statuses[r];
            bool const sound = drafted != status::ok || round.requests.remaining[r] == 0;
            round.verdicts.statuses[r] = sound ? drafted : status::invalid_target;
            round.verdicts.accepted[r] = 0;
            round.verdicts.emitted[r] = 0;
            round.verdicts.stopped[r] = 0;
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        verify_counters counters{};
        counters.finished = s.counts[alone];
        std::uint32_t first = counters.finished;
        s.counts[alone] = 0;
        for (std::uint32_t k = 0; k < alone; ++k) {
            std::uint32_t const here = s.counts[k];
            s.counts[k] = first;
            first += here;
        }
        counters.rows = first - counters.finished;
        *memory.counters = counters;
    }
    __syncthreads();
    for (std::uint32_t r = threadIdx.x; r < padded; r += blockDim.x) {
        for_each_row(r, [&](std::uint32_t k, unsigned lanes) {
            std::uint32_t first = 0;
            if (lane_index() == 0) first = atomicAdd(&s.counts[k], static_cast<unsigned>(__popc(lanes)));
            first = __shfl_sync(all_lanes, first, 0);
            if ((lanes >> lane_index() & 1u) == 0) return;
            std::uint32_t const place = first + static_cast<std::uint32_t>(__popc(lanes & earlier_lanes));
            memory.order[place] = r | (k == alone ? 0 : k << 16);
        });
    }
}

// ---- pieces of it ----------------------------------------------------------------------------------------------

/// Blocks of tokens that are a warp's part of a tile: 4 KiB of a row. Small tiles, since at small batches there are hardly more
/// of a position than multiprocessors. A race needs some preparation, as much as looking at four blocks.
template <class Rule, class T>
inline constexpr std::uint32_t warp_blocks = Rule::by_gumbel_max ? 4 : 4 / sizeof(T);
template <class Rule, class T>
[[nodiscard]] SURELEAP_HOST_DEVICE constexpr std::uint32_t count_tiles(std::uint32_t blocks) noexcept {
    return (blocks + verification_warps * warp_blocks<Rule, T> - 1) / (verification_warps * warp_blocks<Rule, T>);
}

/// A request by itself, or a tile of a row.
struct work_item {
    work_kind what;
    std::uint32_t request;
    std::uint32_t position;
    std::uint32_t tile;
};

/// WARP collective: the next piece of work that is still wanted. Rows of requests that are decided are passed over 32 at a
/// time, for everybody.
template <class Rule, class T>
__device__ void take_item(verify_memory const& memory, work_item& out) {
    verify_counters& counters = *memory.counters;
    std::uint32_t const finished = counters.finished;
    std::uint32_t const rows = counters.rows;
    std::uint32_t const tiles = count_tiles<Rule, T>(memory.blocks());
    work_item item{};
    for (bool found = false; !found;) {
        std::uint32_t i = lane_index() == 0 ? atomicAdd(&counters.next, 1u) : 0;
        i = __shfl_sync(all_lanes, i, 0);
        if (i < finished) {
            item = {work_kind::request, memory.order[i], 0, 0};
            break;
        }
        std::uint32_t const n = (i - finished) / tiles;
        if (n >= rows) break;
        std::uint32_t const at = n + lane_index();
        std::uint32_t const entry = memory.order[finished + (at < rows ? at : n)];
        bool const wanted =
            at < rows && (*static_cast<request_state const volatile*>(memory.states + (entry & 0xffffu)) & closed) == 0;
        unsigned const all_wanted = __ballot_sync(all_lanes, wanted);
        found = (all_wanted & 1u) != 0;
        item = {work_kind::rows, entry & 0xffffu, entry >> 16, (i - finished) % tiles};
        if (!found && lane_index() == 0) {
            std::uint32_t const skipped =
                all_wanted != 0 ? static_cast<std::uint32_t>(__ffs(static_cast<int>(all_wanted))) - 1 : warp_size;
            std::uint32_t const to = n + skipped < rows ? n + skipped : rows;
            atomicMax(&counters.next, finished + to * tiles);
        }
        if (!found) item = {};
    }
    if (lane_index() == 0) out = item;
}

/// One thread, after a barrier: a tile of the row is done. True if it was the last one, and of use to anybody.
[[nodiscard]] __device__ inline bool finish_tile(verify_memory const& memory, work_item const& item,
                                                 std::uint32_t tiles) {
    // What blocks wrote of the row is there for the last of them.
    __threadfence();
    bool const last = atomicAdd(memory.tiles + memory.row(item.request, item.position), 1u) + 1 == tiles;
    __threadfence();
    return last && (*static_cast<request_state const volatile*>(memory.states + item.request) & closed) == 0;
}

}  // namespace detail
}  // namespace cuda
SURELEAP_END_NAMESPACE

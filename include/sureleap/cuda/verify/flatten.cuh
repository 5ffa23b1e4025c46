// SPDX-License-Identifier: MIT
//
// Puts requests with blocks of different lengths into one flat target batch (verify_batch.hpp), in the layouts that
// attention kernels take. In: round.batch.lengths, whoever wrote them; l_r is at most round.drafts.sizes[r]. Out: the
// other arrays of round.batch.
//
// This takes one launch, or none: where one block is enough, round/admit.cuh flattens in its own launch. A block of
// threads has 32 requests of its own and adds up the lengths of all before them by itself. For 8,192 requests the last
// block reads 32 KB. Rejected: a second launch; blocks that wait for each other.
//
// The arrays and the names that FlashInfer and FlashAttention have for them follow. All are int32 and of fixed size, so
// that plans and graphs may be captured for limits.requests. Requests that are absent are empty sequences at the end.
//
//     round.batch.offsets             qo_indptr                    cu_seqlens_q
//     attention_layout::kv_indptr     kv_indptr (ragged)           cu_seqlens_k
//                      kv_lengths                                  seqused_k, cache_seqlens
//                      page_indptr    paged_kv_indptr
//                      last_pages     paged_kv_last_page_len
//                      longest                                     max_seqlen_q, max_seqlen_k
//
// Keys count the committed tokens, anchor included, and the drafts in the batch: position + 1 + l_r. Queries are the
// last 1 + l_r of them, which is what a causal mask aligned at the bottom right expects.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/block_scan.cuh>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/workspace.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// What an attention kernel wants to know beside the offsets. Members that are null are left out. Keys of all requests
/// together are below 2^31 where kv_indptr is asked for.
struct attention_layout {
    std::int32_t* kv_indptr = nullptr;    ///< [limits.requests + 1] keys of all requests before; beyond R, of all
    std::int32_t* kv_lengths = nullptr;   ///< [limits.requests] keys; 0 beyond R
    std::uint32_t page_size = 0;          ///< keys of a page of the cache; 0: it has none
    std::int32_t* page_indptr = nullptr;  ///< [limits.requests + 1] pages of all requests before
    std::int32_t* last_pages =
        nullptr;                      ///< [limits.requests] keys in the last page, 1 .. page_size; beyond R, page_size
    std::int32_t* longest = nullptr;  ///< [2] most queries and most keys of a request
    std::int32_t* positions = nullptr;  ///< [limits.requests (gamma + 1)] of each row, for rotary embeddings

    [[nodiscard]] bool valid() const noexcept {
        return page_size > 0 || (page_indptr == nullptr && last_pages == nullptr);
    }
    /// Whether anything but the rows' own is asked for.
    [[nodiscard]] __device__ bool wants_keys() const {
        return kv_indptr != nullptr || kv_lengths != nullptr || page_size > 0 || longest != nullptr;
    }
};

/// All of it. page_size: 0 for a cache without pages.
[[nodiscard]] inline attention_layout carve_attention(workspace& ws, device_limits const& limits,
                                                      std::uint32_t page_size) noexcept {
    std::size_t const requests = limits.requests;
    attention_layout layout{};
    layout.kv_indptr = ws.take<std::int32_t>(requests + 1);
    layout.kv_lengths = ws.take<std::int32_t>(requests);
    layout.page_size = page_size;
    layout.page_indptr = page_size > 0 ? ws.take<std::int32_t>(requests + 1) : nullptr;
    layout.last_pages = page_size > 0 ? ws.take<std::int32_t>(requests) : nullptr;
    layout.longest = ws.take<std::int32_t>(2);
    layout.positions = ws.take<std::int32_t>(requests * (limits.block_size + 1));
    return layout;
}

/// Batch sizes that the target was captured for, and which of them a round needs.
struct captured_sizes {
    std::uint32_t const* sizes = nullptr;  ///< [count] rows, ascending; in device memory
    std::uint32_t count = 0;
    token_id pad = 0;  ///< the token of rows without a request; their position is 0
    std::uint32_t* chosen =
        nullptr;  ///< [3] rows B of the round; the least size that holds them; its index. If none does:
                  ///< B, B, count. Device memory, or mapped host memory for the host to poll

    [[nodiscard]] bool valid() const noexcept { return (sizes == nullptr && count == 0) || chosen != nullptr; }
};

/// What is wanted besides round.batch.
struct flat_batch {
    attention_layout attention{};
    captured_sizes captured{};

    [[nodiscard]] bool valid() const noexcept { return attention.valid() && captured.valid(); }
};

namespace detail {

inline constexpr unsigned threads_of_flatten = 256;
inline constexpr unsigned requests_of_flatten = 32;  ///< of a block, in a launch of its own

/// Shared memory of flattening: of the requests that a block has of its own, at most one a thread.
struct flatten_shared {
    static constexpr unsigned most_requests = 1024;

    block_shared block;
    std::uint32_t first_row[most_requests];
    std::uint32_t rows[most_requests];
};

/// What a request needs of the batch.
struct request_extent {
    std::uint32_t rows = 0;
    std::uint32_t keys = 0;
    std::uint32_t pages = 0;

    /// At most 2^21 rows in the upper bits of the word, and fewer than 2^40 keys below.
    [[nodiscard]] __device__ std::uint64_t rows_and_keys() const { return (std::uint64_t{rows} << 40) + keys; }
};

[[nodiscard]] __device__ __forceinline__ request_extent extent_of(device_round const& round,
                                                                  attention_layout const& layout, bool with_keys,
                                                                  std::uint32_t r) {
    request_extent extent{};
    extent.rows = round.batch.lengths[r] + 1;
    if (with_keys) extent.keys = static_cast<std::uint32_t>(round.requests.positions[r]) + extent.rows;
    if (layout.page_size > 0) extent.pages = (extent.keys + layout.page_size - 1) / layout.page_size;
    return extent;
}

/// BLOCK collective: where the rows of the `group` requests from `first` on begin, one request a thread, and all that
/// is asked for but what stands in rows; `last` if no requests come behind them. Leaves first rows and numbers of rows
/// in `s`.
__device__ inline void lay_out_requests(device_round const& round, flat_batch const& flat, std::uint32_t first,
                                        std::uint32_t group, bool last, flatten_shared& s) {
    attention_layout const& layout = flat.attention;
    captured_sizes const& captured = flat.captured;
    device_limits const& limits = round.limits;
    batch_columns const& batch = round.batch;
    std::uint32_t const count = *round.requests.count < limits.requests ? *round.requests.count : limits.requests;
    bool const with_keys = layout.wants_keys();

    std::uint64_t rows_and_keys = 0;
    std::uint64_t pages = 0;
    std::uint32_t most_rows = 0;
    std::uint32_t most_keys = 0;
    auto const see = [&](request_extent const& e) {
        most_rows = e.rows > most_rows ? e.rows : most_rows;
        most_keys = e.keys > most_keys ? e.keys : most_keys;
    };
    if (first > 0) {
        for (std::uint32_t r = threadIdx.x; r < first && r < count; r += blockDim.x) {
            request_extent const e = extent_of(round, layout, with_keys, r);
            rows_and_keys += e.rows_and_keys();
            pages += e.pages;
            see(e);
        }
        rows_and_keys = sum_over_block(rows_and_keys, s.block).total;
        if (layout.page_size > 0) pages = sum_over_block(pages, s.block).total;
    }

    std::uint32_t const own = first + threadIdx.x;
    bool const owns = threadIdx.x < group && own < limits.requests;
    request_extent const e = owns && own < count ? extent_of(round, layout, with_keys, own) : request_extent{};
    see(e);
    block_sum const sum = sum_over_block(e.rows_and_keys(), s.block);
    block_sum const sum_of_pages = layout.page_size > 0 ? sum_over_block(e.pages, s.block) : block_sum{};
    // Before request `r`, and of all where r is limits.requests.
    auto const write_sums = [&](std::uint32_t r, std::uint64_t rows_and_keys_before, std::uint64_t pages_before) {
        batch.offsets[r] = static_cast<std::int32_t>(rows_and_keys_before >> 40);
        if (layout.kv_indptr != nullptr) layout.kv_indptr[r] = static_cast<std::int32_t>(rows_and_keys_before);
        if (layout.page_indptr != nullptr) layout.page_indptr[r] = static_cast<std::int32_t>(pages_before);
    };
    if (owns) {
        std::uint64_t const before = rows_and_keys + sum.before;
        s.first_row[threadIdx.x] = static_cast<std::uint32_t>(before >> 40);
        s.rows[threadIdx.x] = e.rows;
        write_sums(own, before, pages + sum_of_pages.before);
        if (layout.kv_lengths != nullptr) layout.kv_lengths[own] = static_cast<std::int32_t>(e.keys);
        if (layout.last_pages != nullptr) {
            // Of no page too: (pages - 1) page_size + last is 0 keys then.
            std::uint32_t const full = e.pages > 0 ? (e.pages - 1) * layout.page_size : 0;
            layout.last_pages[own] = static_cast<std::int32_t>(e.pages > 0 ? e.keys - full : layout.page_size);
        }
    }
    if (last && threadIdx.x == 0) {
        write_sums(limits.requests, rows_and_keys + sum.total, pages + sum_of_pages.total);
    }
    __syncthreads();

    if (!last) return;

    if (layout.longest != nullptr) {
        double const rows = largest_of_block(static_cast<double>(most_rows), s.block);
        double const keys = largest_of_block(static_cast<double>(most_keys), s.block);
        if (threadIdx.x == 0) {
            layout.longest[0] = static_cast<std::int32_t>(rows);
            layout.longest[1] = static_cast<std::int32_t>(keys);
        }
    }
    if (captured.chosen == nullptr) return;
    auto const rows = static_cast<std::uint32_t>((rows_and_keys + sum.total) >> 40);
    std::uint32_t index = 0;
    while (index < captured.count && captured.sizes[index] < rows) ++index;
    std::uint32_t const size = index < captured.count ? captured.sizes[index] : rows;
    if (threadIdx.x == 0) {
        captured.chosen[0] = rows;
        captured.chosen[1] = size;
        captured.chosen[2] = index;
    }
    std::uint32_t const room = limits.requests * (limits.block_size + 1);
    for (std::uint32_t row = rows + threadIdx.x; row < size && row < room; row += blockDim.x) {
        batch.tokens[row] = captured.pad;
        batch.positions[row] = 0;
        batch.markers[row] = limits.requests;
        if (layout.positions != nullptr) layout.positions[row] = 0;
    }
}

/// BLOCK collective: the same with the rows, which are chains.
__device__ inline void flatten_requests(device_round const& round, flat_batch const& flat, std::uint32_t first,
                                        std::uint32_t group, bool last, flatten_shared& s) {
    device_limits const& limits = round.limits;
    batch_columns const& batch = round.batch;
    lay_out_requests(round, flat, first, group, last, s);
    std::uint32_t const width = limits.block_size + 1;
    std::uint32_t const places = (limits.requests - first < group ? limits.requests - first : group) * width;
    for (std::uint32_t i = threadIdx.x; i < places; i += blockDim.x) {
        std::uint32_t const local = i / width;
        std::uint32_t const k = i - local * width;
        if (k >= s.rows[local]) continue;
        std::uint32_t const r = first + local;
        std::uint32_t const row = s.first_row[local] + k;
        std::uint64_t const position = round.requests.positions[r] + k;
        batch.tokens[row] = k == 0 ? round.requests.anchors[r] : round.drafts.tokens[r * limits.block_size + (k - 1)];
        batch.positions[row] = position;
        batch.markers[row] = r;
        if (flat.attention.positions != nullptr) flat.attention.positions[row] = static_cast<std::int32_t>(position);
    }
}

template <class = void>
__global__ void __launch_bounds__(threads_of_flatten) flatten_kernel(device_round round, flat_batch flat) {
    auto& s = shared_memory<flatten_shared>();
    flatten_requests(round, flat, blockIdx.x * requests_of_flatten, requests_of_flatten, blockIdx.x == gridDim.x - 1,
                     s);
}

}  // namespace detail

/// Fills round.batch from its lengths, and what else `flat` asks for. Rows that pad the batch to a captured size have
/// limits.requests for a marker; there are as many as the batch has room for, limits.requests (gamma + 1) rows in all.
[[nodiscard]] inline cudaError_t flatten(device_round const& round, flat_batch const& flat,
                                         cudaStream_t stream) noexcept {
    if (!round.ready() || !flat.valid()) return cudaErrorInvalidValue;
    unsigned const blocks = (round.limits.requests + detail::requests_of_flatten - 1) / detail::requests_of_flatten;
    return launch(detail::flatten_kernel<>, blocks, detail::threads_of_flatten, sizeof(detail::flatten_shared), stream,
                  round, flat);
}
[[nodiscard]] inline cudaError_t flatten(device_round const& round, cudaStream_t stream) noexcept {
    return flatten(round, flat_batch{}, stream);
}

}  // namespace cuda
SURELEAP_END_NAMESPACE

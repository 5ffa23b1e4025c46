// SPDX-License-Identifier: MIT
//
// The chain over shortlists: the device's sureleap::shortlist_head. A position draws from the best tokens by its base
// logits, united with the successors of the token before by the head's own bias; only their rows of W2 are multiplied.
//
// Two launches draft whole blocks. The best tokens of all rows depend on no drafted token and come first
// (head/top_tokens.cuh). Then one block a request goes through all its positions. Requests need not wait for each
// other, because they share no product over the vocabulary. A position reads some hundred scattered rows of W2 (295 KB
// for 576 tokens, r = 256 in 16 bits). A warp keeps loads of 8 rows in flight. Lists and their logits are recorded, and
// that is all that acceptance needs.
//
// Codes are used as floats without rounding: a row is computed only once, so no second computation has to agree with
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <sureleap/core/config.hpp>
#include <sureleap/core/guarantee.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/confidence/policy.cuh>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/distribution.cuh>
#include <sureleap/cuda/core/linear.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/storage.cuh>
#include <sureleap/cuda/drafter/list_distribution.cuh>
#include <sureleap/cuda/drafter/shortlist_memory.cuh>
#include <sureleap/cuda/head/markov.cuh>
#include <sureleap/cuda/head/top_tokens.cuh>
#include <sureleap/cuda/sampling/gumbel_max_row.cuh>
#include <sureleap/sampling/draw_key.hpp>
#include <sureleap/schedule/survival.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {
namespace detail {

/// BLOCK collective: both ascending lists as one, into `to`. Returns its length; ends with a barrier.
__device__ inline std::uint32_t unite(token_id const* a, std::uint32_t a_count, token_id const* b,
                                      std::uint32_t b_count, token_id* fresh, token_id* to, shortlist_shared& s) {
    if (a_count <= s.near) {
        for (std::uint32_t i = threadIdx.x; i < a_count; i += blockDim.x) s.best[i] = a[i];
        a = s.best;
    }
    if (b_count <= s.near) fresh = s.fresh;
    __syncthreads();
    std::uint32_t fresh_count = 0;  // of b, those that a has not
    for (std::uint32_t first = 0; first < b_count; first += blockDim.x) {
        std::uint32_t const j = first + threadIdx.x;
        bool is_fresh = j < b_count;
        if (is_fresh) {
            std::uint32_t const at = ids_below(a, a_count, b[j]);
            is_fresh = at == a_count || a[at] != b[j];
        }
        std::uint32_t const place = count_before(is_fresh, s.counts, fresh_count);
        if (is_fresh) fresh[place] = b[j];
    }
    __syncthreads();
    for (std::uint32_t i = threadIdx.x; i < a_count; i += blockDim.x)
        to[i + ids_below(fresh, fresh_count, a[i])] = a[i];
    for (std::uint32_t j = threadIdx.x; j < fresh_count; j += blockDim.x) {
        to[j + ids_below(a, a_count, fresh[j])] = fresh[j];
    }
    __syncthreads();  // no mutant: a head's code() ends with a barrier as well, but reads no list
    return a_count + fresh_count;
}

/// BLOCK collective: the list of position k of request r behind `previous`, and its logits. `best` and `fresh` are
/// those of the position. Returns the length of the list; ends with a barrier.
template <class Head, class U>
[[nodiscard]] __device__ __forceinline__ std::uint32_t list_behind(shortlist_head<Head> const& head, U const* base,
                                                                   std::uint32_t r, std::uint32_t k, token_id previous,
                                                                   token_id const* best, std::uint32_t best_count,
                                                                   token_id* fresh, token_id* ids, float* logits,
                                                                   shortlist_shared& s) {
    auto const successors = static_cast<std::uint32_t>(head.successors.data == nullptr ? 0 : head.successors.cols);
    token_id const* const next = head.successors.data + static_cast<std::size_t>(previous) * head.successors.stride;
    std::uint32_t const count = unite(best, best_count, next, successors, fresh, ids, s);
    head.head.code(r, k, previous, s.z, s.rest());
    matrix_view<typename Head::weight_type> const& w2 = head.head.w2;
    each_product(
        count, [&](std::uint32_t j) { return w2.data + static_cast<std::size_t>(ids[j]) * w2.stride; },
        [&](std::uint32_t j) { return widen(base[ids[j]]); }, s.z, static_cast<unsigned>(w2.cols),
        [&](std::uint32_t j, float logit) { logits[j] = logit; });
    __syncthreads();
    return count;
}

/// BLOCK collective: where the token is that DraftRule draws: the likeliest, that of the race named `noise`, or that of
/// the draw named `own`.
template <class DraftRule>
[[nodiscard]] __device__ __forceinline__ std::uint32_t draw_place(list_distribution const& row, bool takes_mode,
                                                                  token_id const* ids, float const* logits,
                                                                  std::uint32_t count, draw_key const& own,
                                                                  [[maybe_unused]] draw_key const& noise,
                                                                  shortlist_shared& s) {
    if (takes_mode) return row.mode(s);
    if constexpr (std::is_same_v<DraftRule, coupled_draft>) {
        return gumbel_max_list(ids, logits, count, row.get(), noise, s.gumbel);
    } else {
        static_assert(
            std::is_same_v<DraftRule, categorical_draft> || std::is_same_v<DraftRule, argmax_draft>,
            "draw_chain, grow_trees: unknown draft_rule; use categorical_draft, argmax_draft or coupled_draft");
        return row.quantile(uniform(own) * row.get().total, s);
    }
}

/// A block of threads drafts the block of request blockIdx.x, position by position.
template <class DraftRule, class Head, class U, class Confidence>
__global__ void __launch_bounds__(shortlist_threads, 2)
    shortlist_chain_kernel(shortlist_head<Head> head, Confidence confidence, matrix_view<U> base,
                           shortlist_memory memory, fixed_probability const* floor, device_round round) {
    auto& s = shared_memory<shortlist_shared>();
    std::uint32_t const r = blockIdx.x;
    if (r >= *round.requests.count) return;
    draft_columns const& drafts = round.drafts;
    std::uint32_t const gamma = round.limits.block_size;
    std::uint32_t const cap = round.chain_cap(r);
    transform const how = round.requests.drafts[r];
    bool const takes_mode = DraftRule::is_deterministic || how.greedy();
    token_id previous = round.requests.anchors[r];
    fixed_probability survival = round.requests.weights[r];
    std::uint32_t size = 0;
    status outcome = status::ok;
    for (bool ended = false; size < cap && !ended; ++size) {
        std::uint32_t const k = size;
        std::size_t const i = std::size_t{r} * gamma + k;
        token_id* const ids = memory.lists.tokens + i * memory.lists.capacity;
        float* const logits = memory.logits + i * memory.lists.capacity;
        std::uint32_t const count = list_behind(
            head, base.data + i * base.stride, r, k, previous, memory.best.tokens + i * memory.best.capacity,
            memory.best.counts[i], memory.fresh + std::size_t{r} * memory.shape.successors, ids, logits, s);
        if (threadIdx.x == 0) memory.lists.counts[i] = count;
        list_distribution const row{logits, count, how, s};
        distribution const& q = row.get();
        fixed_probability certainty = 0;
        if (!q.valid()) {
            outcome = status::invalid_draft;
        } else if (!quantise(confidence(r, k, previous, position_statistics{1.0 / q.total}, s.rest()), certainty)) {
            outcome = status::invalid_confidence;
        }
        if (outcome != status::ok) break;
        survival = extend_survival(survival, certainty);
        if (floor != nullptr && survival < *floor) break;

        std::uint32_t const place =
            draw_place<DraftRule>(row, takes_mode, ids, logits, count, block_key(round.requests, r, k, purpose::draft),
                                  noise_key(round.requests, r, k), s);
        previous = ids[place];
        ended = round.stops_at(r, previous);
        if (threadIdx.x == 0) {
            double const weight = static_cast<double>(q.weight(logits[place], static_cast<token_id>(place)));
            drafts.tokens[i] = previous;
            drafts.distributions[i] = takes_mode ? distribution::one_hot(previous) : q;
            drafts.token_probabilities[i] = takes_mode ? 1.0 : weight / q.total;
            drafts.confidence[i] = certainty;
            drafts.survival[i] = survival;
        }
    }
    if (threadIdx.x == 0) {
        drafts.sizes[r] = size;
        drafts.statuses[r] = outcome;
    }
}

}  // namespace detail

/// Drafts a block for every request of `round`, as draw_chain does, from lists. DraftRule: categorical_draft,
/// argmax_draft or coupled_draft. `floor` [1]: blocks end before a survival below it; null: nowhere.
///
/// `forward` has rows for limits.requests requests, and base logits over limits.vocabulary tokens. Two launches and
/// what head and confidence prepare. cudaErrorInvalidValue, before any of them, if shapes do not fit each other or a
/// pointer is null. O(R gamma (V + M r)) for lists of M tokens.
template <class DraftRule, device_head Head, class U, device_confidence Confidence>
[[nodiscard]] cudaError_t draw_chain(shortlist_head<Head> const& head, Confidence const& confidence,
                                     forward_view<U> const& forward, shortlist_memory const& memory,
                                     device_round const& round, cudaStream_t stream,
                                     fixed_probability const* floor = nullptr) noexcept {
    static_assert(is_device_storage_v<U>, "draw_chain: base logits are float, sureleap::bf16 or sureleap::half");
    matrix_view<U> const& base = forward.base_logits;
    if (!round.ready() || !memory.ready() || !head.valid() || !confidence.valid() || base.data == nullptr) {
        return cudaErrorInvalidValue;
    }
    device_limits const& limits = round.limits;
    bool const same_limits = memory.limits.requests == limits.requests && memory.limits.block_size == limits.block_size;
    std::size_t const rows = std::size_t{limits.requests} * limits.block_size;
    if (!same_limits || memory.shape != shape_of(head) || base.cols != limits.vocabulary ||
        base.cols != head.head.w2.rows || base.stride < base.cols || base.rows < rows) {
        return cudaErrorInvalidValue;
    }
    std::uint32_t const rest =
        head.head.shared_size() > confidence.shared_size() ? head.head.shared_size() : confidence.shared_size();
    cudaError_t error = head.head.prepare(forward, round, stream);
    if (error == cudaSuccess) error = confidence.prepare(forward, round, stream);
    if (error == cudaSuccess) error = best_tokens(base, memory.shape.best, round, memory.best, stream);
    if (error != cudaSuccess) return error;
    return launch(detail::shortlist_chain_kernel<DraftRule, Head, U, Confidence>, dim3(limits.requests),
                  dim3(detail::shortlist_threads), sizeof(detail::shortlist_shared) + rest * sizeof(float), stream,
                  head, confidence, base, memory, floor, round);
}

}  // namespace cuda
SURELEAP_END_NAMESPACE

// SPDX-License-Identifier: MIT
//
// The chain over shortlists: the device's sureleap::shortlist_head. A position draws from the best tokens by its base logits,
// united with the successors of the token before by the head's own bias; only their rows of W2 are multiplied.
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
#include <sureleap/cuda/core/workspace.cuh>
#include <sureleap/cuda/head/markov.cuh>
#include <sureleap/cuda/head/top_tokens.cuh>
#include <sureleap/cuda/sampling/gumbel_max_row.cuh>
#include <sureleap/cuda/sampling/truncate.cuh>
#include <sureleap/sampling/draw_key.hpp>
#include <sureleap/schedule/survival.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// A head confined to lists of at most `best + successors` tokens. The draft speaks the target's vocabulary.
template <device_head Head>
struct shortlist {
    Head head{};
    std::uint32_t best = 0;              ///< tokens by base logits, at least 1
    matrix_view<token_id> successors{};  ///< [V_target, any] rows ascending (sureleap::successor_table), or empty

    [[nodiscard]] bool valid() const noexcept {
        bool const none = successors.data == nullptr;
        return head.valid() && best > 0 && (none || (successors.cols > 0 && successors.stride >= successors.cols));
    }
};

/// What the memory of lists is made for.
struct shortlist_shape {
    std::uint32_t vocabulary = 0;
    std::uint32_t best = 0;        ///< at most the vocabulary
    std::uint32_t successors = 0;  ///< of a token

    /// The most tokens of a list.
    [[nodiscard]] std::uint32_t capacity() const noexcept {
        return successors < vocabulary - best ? best + successors : vocabulary;
    }
    [[nodiscard]] bool operator==(shortlist_shape const&) const = default;
};

template <device_head Head>
[[nodiscard]] shortlist_shape shape_of(shortlist<Head> const& list) noexcept {
    auto const vocabulary = static_cast<std::uint32_t>(list.head.w2.rows);
    return {vocabulary, list.best < vocabulary ? list.best : vocabulary,
            static_cast<std::uint32_t>(list.successors.data == nullptr ? 0 : list.successors.cols)};
}

/// Lists with their logits live until the drafts are judged; the rest is done with when the chain is.
struct shortlist_memory {
    shortlist_shape shape{};
    round_limits limits{};
    token_lists best{};         ///< of every position by base logits
    token_lists lists{};        ///< what positions were drawn from, ascending
    float* logits = nullptr;    ///< [R, gamma, lists.capacity]
    token_id* fresh = nullptr;  ///< [R, shape.successors] those that are not among the best

    [[nodiscard]] bool ready() const noexcept { return logits != nullptr; }
};

/// Out of `ws`: R gamma (12 best + 8 successors) bytes and little else. If that only counts or is too small, the result is not
/// ready().
[[nodiscard]] inline shortlist_memory carve_shortlist(workspace& ws, round_limits const& limits,
                                                      shortlist_shape const& shape) noexcept {
    shortlist_memory memory{};
    if (!limits.valid() || shape.best == 0 || shape.best > shape.vocabulary) return memory;
    std::size_t const rows = std::size_t{limits.requests} * limits.block_size;
    memory.shape = shape;
    memory.limits = limits;
    memory.best = token_lists::take(ws, limits, shape.best);
    memory.lists = token_lists::take(ws, limits, shape.capacity());
    memory.logits = ws.take<float>(rows * shape.capacity());
    memory.fresh = ws.take<token_id>(std::size_t{limits.requests} * shape.successors);
    if (!ws.fits()) memory = {};
    return memory;
}

namespace detail {

/// How many of `count` ascending ids are less than `id`.
[[nodiscard]] __device__ __forceinline__ std::uint32_t ids_below(token_id const* ids, std::uint32_t count,
                                                                 token_id id) {
    std::uint32_t low = 0;
    while (count > 0) {
        std::uint32_t const half = count / 2;
        bool const less = ids[low + half] < id;
        low = less ? low + half + 1 : low;
        count = less ? count - half - 1 : half;
    }
    return low;
}

}  // namespace detail

/// The draft rows of lists (DraftRows of draft_rows.cuh). In their laws a place is one in the list.
struct listed_draft_rows {
    token_lists lists{};
    float const* logits = nullptr;
    std::uint32_t block_size = 0;

    /// WARP collective: the weight of token v under q, law of position k of request r; 0 if it is not in the list.
    __device__ float weight(std::uint32_t r, std::uint32_t k, law const& q, token_id v) const {
        std::size_t const row = std::size_t{r} * block_size + k;
        token_id const* const ids = lists.tokens + row * lists.capacity;
        std::uint32_t const place = detail::ids_below(ids, lists.counts[row], v);
        if (place == lists.counts[row] || ids[place] != v) return 0.0f;
        return q.weight(logits[row * lists.capacity + place], static_cast<token_id>(place));
    }
    /// BLOCK collective: the weights of tokens 1,024 block .. + 1,023 into shared out [1,024]. No barrier.
    __device__ void weights(std::uint32_t r, std::uint32_t k, law const& q, std::uint32_t block, float* out) const {
        constexpr std::uint32_t size = 1024;
        std::size_t const row = std::size_t{r} * block_size + k;
        token_id const* const ids = lists.tokens + row * lists.capacity;
        auto const begin = static_cast<token_id>(block * size);
        std::uint32_t const first = detail::ids_below(ids, lists.counts[row], begin);
        std::uint32_t const count =
            detail::ids_below(ids + first, lists.counts[row] - first, begin + static_cast<token_id>(size));
        for (std::uint32_t i = threadIdx.x; i < size; i += blockDim.x) {  // each looks for itself: nobody has to wait
            token_id const v = begin + static_cast<token_id>(i);
            std::uint32_t const at = detail::ids_below(ids + first, count, v);
            bool const listed = at < count && ids[first + at] == v;
            std::uint32_t const place = first + at;
            out[i] = listed ? q.weight(logits[row * lists.capacity + place], static_cast<token_id>(place)) : 0.0f;
        }
    }
};

[[nodiscard]] inline listed_draft_rows draft_rows_of(shortlist_memory const& memory) noexcept {
    return {memory.lists, memory.logits, memory.limits.block_size};
}

namespace detail {

inline constexpr std::uint32_t shortlist_threads = 256;
inline constexpr std::uint32_t shortlist_warps = shortlist_threads / warp_size;

/// Behind it is the scratch of head and confidence.
struct shortlist_shared {
    static constexpr std::uint32_t near =
        1024;  ///< ids of a list that are searched here; longer lists stay where they are
    token_id best[near];
    token_id fresh[near];
    double sums[shortlist_warps];
    gumbel_shared gumbel;
    float largest[shortlist_warps];
    std::uint32_t counts[shortlist_warps];
    std::uint32_t first;  // thread or place that was found
    std::uint32_t last;
    truncate_shared truncation;
    alignas(16) float z[most_rank];

    [[nodiscard]] __device__ float* scratch() { return reinterpret_cast<float*>(this + 1); }
};
static_assert(sizeof(shortlist_shared) % 16 == 0);

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

/// A law over a list of logits: each thread has so many of them in order.
class list_law {
public:
    /// BLOCK collective: largest logit and total under `how`.
    __device__ list_law(float const* logits, std::uint32_t count, transform const& how, shortlist_shared& s)
        : logits_(logits) {
        std::uint32_t const each = (count + shortlist_threads - 1) / shortlist_threads;
        first_ = threadIdx.x * each < count ? threadIdx.x * each : count;
        end_ = first_ + each < count ? first_ + each : count;

        float largest = -infinity;
        for (std::uint32_t i = first_; i < end_; ++i) {
            largest = logits[i] < infinity ? fmaxf(largest, logits[i]) : infinity;  // NaN is no more of a logit
            if (!(largest < infinity)) break;
        }
        for (int mask = warp_size / 2; mask > 0; mask /= 2) {
            largest = fmaxf(largest, __shfl_xor_sync(all_lanes, largest, mask));
        }
        if (lane_index() == 0) s.largest[warp_index()] = largest;
        __syncthreads();
        for (std::uint32_t w = 0; w < shortlist_warps; ++w) largest = fmaxf(largest, s.largest[w]);
        if (!(largest > -infinity && largest < infinity)) return;

        q_.kind = law_kind::dense;
        q_.shift = largest;
        q_.scale = how.greedy() ? 1.0f : static_cast<float>(1.0 / how.temperature);  // 1: for the peak
        if (how.truncates() && !how.greedy()) {
            row_statistics statistics{};
            statistics.top = largest;
            cutoff const least = truncate(logits, count, how, statistics, s.truncation);
            q_.least_logit = least.logit;
            q_.least_id = least.id;
        }
        sum_up(s);
    }
    [[nodiscard]] __device__ law const& get() const { return q_; }

    /// BLOCK collective: the place of the first largest logit.
    [[nodiscard]] __device__ std::uint32_t mode(shortlist_shared& s) const {
        if (threadIdx.x == 0) s.first = 0xffffffffu;
        __syncthreads();
        for (std::uint32_t i = end_; i-- > first_;) {
            if (logits_[i] == q_.shift) atomicMin(&s.first, i);
        }
        __syncthreads();
        return s.first;
    }
    /// BLOCK collective: the first place whose cumulative weight exceeds `threshold`; the last one with weight if rounding runs
    /// past the end.
    [[nodiscard]] __device__ std::uint32_t quantile(double threshold, shortlist_shared& s) const {
        if (threadIdx.x == 0) {
            s.first = 0xffffffffu;
            s.last = 0;
        }
        __syncthreads();
        if (own_ > 0.0 && before_ + own_ > threshold) atomicMin(&s.first, threadIdx.x);
        if (own_ > 0.0) atomicMax(&s.last, threadIdx.x);
        __syncthreads();
        std::uint32_t const finder = s.first != 0xffffffffu ? s.first : s.last;
        __syncthreads();
        if (threadIdx.x == finder) {
            double cumulative = before_;
            for (std::uint32_t i = first_; i < end_ && !(cumulative > threshold); ++i) {
                double const w = weight(i);
                if (!(w > 0.0)) continue;
                cumulative += w;
                s.first = i;
            }
        }
        __syncthreads();
        return s.first;
    }

private:
    [[nodiscard]] __device__ double weight(std::uint32_t i) const {
        return static_cast<double>(q_.weight(logits_[i], static_cast<token_id>(i)));
    }
    __device__ void sum_up(shortlist_shared& s) {
        own_ = 0.0;
        for (std::uint32_t i = first_; i < end_; ++i) own_ += weight(i);
        double upto = own_;
        for (unsigned by = 1; by < warp_size; by *= 2) {
            double const other = __shfl_up_sync(all_lanes, upto, by);
            if (lane_index() >= by) upto += other;
        }
        if (lane_index() == warp_size - 1) s.sums[warp_index()] = upto;
        before_ = __shfl_up_sync(all_lanes, upto, 1);
        if (lane_index() == 0) before_ = 0.0;
        __syncthreads();
        double before = 0.0;
        q_.total = 0.0;
        for (std::uint32_t w = 0; w < shortlist_warps; ++w) {
            if (w == warp_index()) before = q_.total;
            q_.total += s.sums[w];
        }
        before_ += before;
    }

    float const* logits_;
    std::uint32_t first_;
    std::uint32_t end_;
    double own_ = 0.0;     // weight of this thread's logits
    double before_ = 0.0;  // and of those before
    law q_{};
};

/// BLOCK collective: where the token is that DraftRule draws.
template <class DraftRule>
[[nodiscard]] __device__ __forceinline__ std::uint32_t draw_place(list_law const& row, transform const& how,
                                                                  token_id const* ids, float const* logits,
                                                                  std::uint32_t count, device_round const& round,
                                                                  std::uint32_t r, std::uint32_t k,
                                                                  shortlist_shared& s) {
    if (DraftRule::is_deterministic || how.greedy()) return row.mode(s);
    if constexpr (std::is_same_v<DraftRule, coupled_draft>) {
        return gumbel_max_list(ids, logits, count, row.get(), noise_key(round.requests, r, k), s.gumbel);
    } else {
        static_assert(std::is_same_v<DraftRule, categorical_draft> || std::is_same_v<DraftRule, argmax_draft>,
                      "draw_chain: unknown draft_rule; use categorical_draft, argmax_draft or coupled_draft");
        return row.quantile(uniform(block_key(round.requests, r, k, purpose::draft)) * row.get().total, s);
    }
}

template <class DraftRule, class Head, class U, class Confidence>
__global__ void __launch_bounds__(shortlist_threads, 2)
    shortlist_chain_kernel(shortlist<Head> head, Confidence confidence, matrix_view<U> base, shortlist_memory memory,
                           fixed_probability const* floor, device_round round) {
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
    for (; size < cap; ++size) {
        std::uint32_t const k = size;
        std::size_t const i = std::size_t{r} * gamma + k;
        token_id* const ids = memory.lists.tokens + i * memory.lists.capacity;
        float* const logits = memory.logits + i * memory.lists.capacity;
        token_id const* const next = head.successors.data + static_cast<std::size_t>(previous) * head.successors.stride;
        std::uint32_t const count =
            unite(memory.best.tokens + i * memory.best.capacity, memory.best.counts[i], next, memory.shape.successors,
                  memory.fresh + std::size_t{r} * memory.shape.successors, ids, s);
        if (threadIdx.x == 0) memory.lists.counts[i] = count;
        head.head.code(r, k, previous, s.z, s.scratch());
        matrix_view<typename Head::weight_type> const& w2 = head.head.w2;
        U const* const u = base.data + i * base.stride;
        each_product(
            count, [&](std::uint32_t j) { return w2.data + static_cast<std::size_t>(ids[j]) * w2.stride; },
            [&](std::uint32_t j) { return widen(u[ids[j]]); }, s.z, static_cast<unsigned>(w2.cols),
            [&](std::uint32_t j, float logit) { logits[j] = logit; });
        __syncthreads();
        list_law const row{logits, count, how, s};
        law const& q = row.get();
        fixed_probability certainty = 0;
        if (!q.valid()) {
            outcome = status::invalid_draft;
        } else if (!quantise(confidence(r, k, previous, position_statistics{1.0 / q.total}, s.scratch()), certainty)) {
            outcome = status::invalid_confidence;
        }
        if (outcome != status::ok) break;
        survival = extend_survival(survival, certainty);
        if (floor != nullptr && survival < *floor) break;

        std::uint32_t const place = draw_place<DraftRule>(row, how, ids, logits, count, round, r, k, s);
        previous = ids[place];
        if (threadIdx.x == 0) {
            double const weight = static_cast<double>(q.weight(logits[place], static_cast<token_id>(place)));
            drafts.tokens[i] = previous;
            drafts.laws[i] = takes_mode ? law::one_hot(previous) : q;
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

/// Drafts a block for every request of `round`, as draw_chain does, from lists. DraftRule: categorical_draft, argmax_draft or
/// coupled_draft.
/// `floor` [1]: blocks end before a survival below it; null: nowhere.
///
/// `forward` has rows for limits.requests requests, and base logits over limits.vocabulary tokens. Two launches and what head
/// and confidence prepare. cudaErrorInvalidValue, before any of them, if shapes do not fit each other or a pointer is null.
/// O(R gamma (V + M r)) for lists of M tokens.
template <class DraftRule, device_head Head, class U, device_confidence Confidence>
[[nodiscard]] cudaError_t draw_chain(shortlist<Head> const& head, Confidence const& confidence,
                                     forward_view<U> const& forward, shortlist_memory const& memory,
                                     device_round const& round, cudaStream_t stream,
                                     fixed_probability const* floor = nullptr) noexcept {
    static_assert(is_device_storage_v<U>, "draw_chain: base logits are float, sureleap::bf16 or sureleap::half");
    matrix_view<U> const& base = forward.base_logits;
    if (!round.ready() || !memory.ready() || !head.valid() || !confidence.valid() || base.data == nullptr) {
        return cudaErrorInvalidValue;
    }
    round_limits const& limits = round.limits;
    bool const same_limits = memory.limits.requests == limits.requests && memory.limits.block_size == limits.block_size;
    std::size_t const rows = std::size_t{limits.requests} * limits.block_size;
    if (!same_limits || memory.shape != shape_of(head) || base.cols != limits.vocabulary ||
        base.cols != head.head.w2.rows || base.stride < base.cols || base.rows < rows) {
        return cudaErrorInvalidValue;
    }
    std::uint32_t const scratch =
        head.head.scratch_size() > confidence.scratch_size() ? head.head.scratch_size() : confidence.scratch_size();
    cudaError_t error = head.head.prepare(forward, round, stream);
    if (error == cudaSuccess) error = confidence.prepare(forward, round, stream);
    if (error == cudaSuccess) error = best_tokens(base, memory.shape.best, round, memory.best, stream);
    if (error != cudaSuccess) return error;
    return launch(detail::shortlist_chain_kernel<DraftRule, Head, U, Confidence>, dim3(limits.requests),
                  dim3(detail::shortlist_threads), sizeof(detail::shortlist_shared) + scratch * sizeof(float), stream,
                  head, confidence, base, memory, floor, round);
}

}  // namespace cuda
SURELEAP_END_NAMESPACE

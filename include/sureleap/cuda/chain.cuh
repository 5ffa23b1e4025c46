// SPDX-License-Identifier: MIT
//
// The sequential chain (paper section 3.1) for a batch, without a look at a token by the host: gamma times
//     multiply    statistics of U_k + W2 z_k for the requests that draft position k     (product.cuh)
//     draw        per request: total, confidence, x_k ~ q_k, records, and z_{k+1}       (here)
// Requests stop where their cap, their floor or a failure ends them, and join no further product.
//
// A draw knows of the row 1,187 pairs of numbers. It is the host's inverse CDF, by larger and larger parts: the cumulative sums
// of the groups find the group, then its 128 logits are computed again (64 KiB of W2 for r = 256) and searched in
// ascending order. The confidence is asked before that, in the same kernel: nothing can make it depend on x_k.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/config.hpp>
#include <sureleap/cuda/confidence_policy.cuh>
#include <sureleap/cuda/device.cuh>
#include <sureleap/cuda/head.cuh>
#include <sureleap/cuda/law.cuh>
#include <sureleap/cuda/product.cuh>
#include <sureleap/cuda/recomputed_rows.cuh>
#include <sureleap/cuda/round.cuh>
#include <sureleap/cuda/workspace.cuh>
#include <sureleap/draw_key.hpp>
#include <sureleap/guarantee.hpp>
#include <sureleap/schedule/survival.hpp>
#include <sureleap/types.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// What the chain's memory is made for.
struct chain_shape {
    std::uint32_t vocabulary = 0;  ///< V_draft
    std::uint32_t rank = 0;
    std::uint32_t code_bytes = 0;  ///< of a component, all terms

    [[nodiscard]] bool operator==(chain_shape const&) const = default;
};

template <device_head Head>
[[nodiscard]] chain_shape shape_of(Head const& head) noexcept {
    return {static_cast<std::uint32_t>(head.w2.rows), static_cast<std::uint32_t>(head.w2.cols),
            code_terms<Head> * static_cast<std::uint32_t>(sizeof(typename Head::weight_type))};
}

/// Codes live until the drafts are judged; everything else is done with when the chain is.
struct chain_memory {
    chain_shape shape{};
    round_limits limits{};
    unsigned char* codes = nullptr;          ///< [R, gamma, r] components
    group_statistics* statistics = nullptr;  ///< [R, groups]
    std::uint32_t* lists = nullptr;          ///< [gamma, R] requests that draft a position
    std::uint32_t* counts = nullptr;         ///< [gamma] how many

    [[nodiscard]] bool ready() const noexcept { return counts != nullptr; }

    template <class W>
    [[nodiscard]] code_rows<W> code_rows_of(std::uint32_t terms) const noexcept {
        return {reinterpret_cast<W*>(codes), limits.block_size, shape.rank, terms};
    }
    [[nodiscard]] request_list list(std::uint32_t k) const noexcept {
        return {lists + static_cast<std::size_t>(k) * limits.requests, counts + k};
    }
};

/// Out of `ws`: R gamma r code_bytes + 8 R V / 128 and little else: 10 MiB for 128 requests of V = 151,936, gamma = 7,
/// r = 256. If that only counts or is too small, the result is not ready().
[[nodiscard]] inline chain_memory carve_chain(workspace& ws, round_limits const& limits,
                                              chain_shape const& shape) noexcept {
    chain_memory memory{};
    if (!limits.valid() || shape.vocabulary == 0 || shape.rank == 0) return memory;
    std::size_t const requests = limits.requests;
    memory.shape = shape;
    memory.limits = limits;
    memory.codes = ws.take<unsigned char>(requests * limits.block_size * shape.rank * shape.code_bytes);
    memory.statistics = ws.take<group_statistics>(requests * groups_of(shape.vocabulary));
    memory.lists = ws.take<std::uint32_t>(requests * limits.block_size);
    memory.counts = ws.take<std::uint32_t>(limits.block_size);
    if (!ws.fits()) memory = {};
    return memory;
}

/// What an engine may add.
struct chain_options {
    token_id const* to_target = nullptr;       ///< [V_draft] the target's ids of draft tokens; null: the same
    fixed_probability const* floor = nullptr;  ///< [1] blocks end before a survival below it; null: 0
};

/// The rows of a chain that has been drawn, for acceptance. `to_draft` [limits.vocabulary] is the inverse of to_target.
template <device_head Head, class U>
[[nodiscard]] recomputed_draft_rows<Head, U> draft_rows_of(Head const& head, forward_view<U> const& forward,
                                                           chain_memory const& memory,
                                                           token_id const* to_draft = nullptr) noexcept {
    return {head.w2, memory.code_rows_of<typename Head::weight_type>(code_terms<Head>), forward.base_logits, to_draft,
            memory.limits.vocabulary};
}

namespace detail {

inline constexpr std::uint32_t draw_threads = 256;
inline constexpr std::uint32_t draw_warps = draw_threads / warp_size;
inline constexpr std::uint32_t nobody = 0xffffffffu;

/// What a block keeps while it draws; behind it is the scratch of head and confidence.
struct draw_shared {
    double cumulative[draw_threads];
    double sums[draw_warps];
    double before;
    float largest[draw_warps];
    float logits[group_size];
    float z[most_rank];
    std::uint32_t first[draw_warps];
    std::uint32_t last[draw_warps];
    std::uint32_t group;
    token_id token;

    [[nodiscard]] __device__ float* scratch() { return reinterpret_cast<float*>(this + 1); }
};
static_assert(sizeof(draw_shared) % 16 == 0);

/// BLOCK collective: z_k of request r into the codes, and the request into the list of position k.
template <class Head>
__device__ void make_code(Head const& head, code_rows<typename Head::weight_type> const& codes,
                          request_list const& list, std::uint32_t r, std::uint32_t k, token_id previous,
                          draw_shared& s) {
    head.code(r, k, previous, s.z, s.scratch());
    auto* const to = codes.row(r, k);
    for (std::uint32_t i = threadIdx.x; i < codes.rank; i += blockDim.x) {
        store_code(s.z[i], to + i, codes.rank, codes.terms);
    }
    if (threadIdx.x == 0) list.ids[atomicAdd(list.count, 1u)] = r;
}

template <class Head>
__global__ void __launch_bounds__(draw_threads)
    begin_blocks(Head head, code_rows<typename Head::weight_type> codes, request_list list, device_round round) {
    auto& s = shared_memory<draw_shared>();
    std::uint32_t const r = blockIdx.x;
    if (r >= *round.requests.count) return;
    if (threadIdx.x == 0) {
        round.drafts.sizes[r] = 0;
        round.drafts.statuses[r] = status::ok;
    }
    if (round.requests.draft_cap(r, round.limits.block_size) == 0) return;
    make_code(head, codes, list, r, 0, round.requests.anchors[r], s);
}

// ---- the row of a request, by its groups -----------------------------------------------------------------------

/// The groups of a row, so many for each thread in order.
class row_summary {
public:
    __device__ row_summary(group_statistics const* groups, std::uint32_t count, float scale)
        : groups_(groups), scale_(scale) {
        std::uint32_t const each = (count + draw_threads - 1) / draw_threads;
        first_ = threadIdx.x * each < count ? threadIdx.x * each : count;
        end_ = first_ + each < count ? first_ + each : count;
    }

    /// BLOCK collective: the largest logit and the cumulative sums of the threads' weights, relative to it.
    __device__ void sum_up(draw_shared& s) {
        float largest = -infinity;
        for (std::uint32_t g = first_; g < end_; ++g) largest = fmaxf(largest, groups_[g].largest);
        for (int mask = 16; mask > 0; mask /= 2) {
            largest = fmaxf(largest, __shfl_xor_sync(all_lanes, largest, mask));
        }
        if (lane_index() == 0) s.largest[warp_index()] = largest;
        __syncthreads();
        largest_ = s.largest[0];
        for (std::uint32_t w = 1; w < draw_warps; ++w) largest_ = fmaxf(largest_, s.largest[w]);

        own_ = 0.0;
        for (std::uint32_t g = first_; g < end_; ++g) own_ += weight(g);
        double sum = own_;
        for (unsigned by = 1; by < warp_size; by *= 2) {
            double const other = __shfl_up_sync(all_lanes, sum, by);
            if (lane_index() >= by) sum += other;
        }
        if (lane_index() == warp_size - 1) s.sums[warp_index()] = sum;
        __syncthreads();
        double before = 0.0;
        for (std::uint32_t w = 0; w < warp_index(); ++w) before += s.sums[w];
        s.cumulative[threadIdx.x] = before + sum;
        __syncthreads();
        total_ = s.cumulative[draw_threads - 1];
    }
    [[nodiscard]] __device__ float largest() const { return largest_; }
    [[nodiscard]] __device__ double total() const { return total_; }
    /// Every logit is a number below +inf, and one is finite.
    [[nodiscard]] __device__ bool valid() const {
        return largest_ > -infinity && largest_ < infinity && total_ < static_cast<double>(infinity);
    }

    /// BLOCK collective: the first group with the largest logit, into s.group.
    __device__ void find_mode(draw_shared& s) const {
        std::uint32_t here = nobody;
        for (std::uint32_t g = end_; g-- > first_;) {
            if (groups_[g].largest == largest_) here = g;
        }
        if (threadIdx.x == find(s, here != nobody, false)) s.group = here;
        __syncthreads();
    }
    /// BLOCK collective: the group in which the cumulative weight exceeds `threshold`, the last one with weight if rounding
    /// runs past the end, into s.group, and what is before it into s.before.
    __device__ void find_group(draw_shared& s, double threshold) const {
        if (threadIdx.x == find(s, own_ > 0.0 && s.cumulative[threadIdx.x] > threshold, own_ > 0.0)) {
            double before = threadIdx.x == 0 ? 0.0 : s.cumulative[threadIdx.x - 1];
            for (std::uint32_t g = first_; g < end_; ++g) {
                double const here = weight(g);
                if (!(here > 0.0)) continue;
                s.group = g;
                s.before = before;
                before += here;
                if (before > threshold) break;
            }
        }
        __syncthreads();
    }

private:
    // Groups that weigh nothing beside the largest logit count as nothing, so that whoever is found has a token to show.
    [[nodiscard]] __device__ double weight(std::uint32_t g) const {
        double const w =
            static_cast<double>(groups_[g].sum) * static_cast<double>(expf((groups_[g].largest - largest_) * scale_));
        return w < 0x1p-100 ? 0.0 : w;
    }
    // BLOCK collective: the first thread that is `wanted`, or else the last one that is `acceptable`.
    [[nodiscard]] static __device__ std::uint32_t find(draw_shared& s, bool wanted, bool acceptable) {
        unsigned const those = __ballot_sync(all_lanes, wanted);
        unsigned const others = __ballot_sync(all_lanes, acceptable);
        if (lane_index() == 0) {
            s.first[warp_index()] =
                those == 0 ? nobody : threadIdx.x + static_cast<unsigned>(__ffs(static_cast<int>(those))) - 1;
            s.last[warp_index()] =
                others == 0 ? nobody : threadIdx.x + 31 - static_cast<unsigned>(__clz(static_cast<int>(others)));
        }
        __syncthreads();
        std::uint32_t first = nobody;
        std::uint32_t last = nobody;
        for (std::uint32_t w = draw_warps; w-- > 0;) {
            if (s.first[w] != nobody) first = s.first[w];
            if (last == nobody) last = s.last[w];
        }
        return first != nobody ? first : last;
    }

    group_statistics const* groups_;
    float scale_;
    std::uint32_t first_;
    std::uint32_t end_;
    float largest_ = 0.0f;
    double own_ = 0.0;
    double total_ = 0.0;
};

/// BLOCK collective: the logits of s.group, computed again, -inf behind the vocabulary.
template <class Rows>
__device__ void recompute_group(Rows const& rows, std::uint32_t r, std::uint32_t k, draw_shared& s) {
    constexpr std::uint32_t together = 4;
    auto const vocabulary = static_cast<std::uint32_t>(rows.w2.rows);
    typename Rows::code_type const z{rows.codes, r, k};
    for (std::uint32_t at = warp_index() * together; at < group_size; at += draw_warps * together) {
        std::uint32_t tokens[together];
#pragma unroll
        for (std::uint32_t t = 0; t < together; ++t) {
            std::uint32_t const token = s.group * group_size + at + t;
            tokens[t] = token < vocabulary ? token : vocabulary - 1;
        }
        float logits[together];
        rows.logits(z, r, k, tokens, logits);
#pragma unroll
        for (std::uint32_t t = 0; t < together; ++t) {
            if (lane_index() == t) {
                s.logits[at + t] = s.group * group_size + at + t < vocabulary ? logits[t] : -infinity;
            }
        }
    }
    __syncthreads();
}

inline constexpr std::uint32_t tokens_of_lane = group_size / warp_size;

/// WARP collective: the first of the largest logits of s.group, as a place in the group, in every lane.
[[nodiscard]] __device__ __forceinline__ std::uint32_t first_largest(draw_shared const& s) {
    std::uint32_t place = lane_index() * tokens_of_lane;
    float best = s.logits[place];
    for (std::uint32_t j = 1; j < tokens_of_lane; ++j) {
        std::uint32_t const other = lane_index() * tokens_of_lane + j;
        if (s.logits[other] > best) {
            best = s.logits[other];
            place = other;
        }
    }
    for (int mask = 16; mask > 0; mask /= 2) {
        float const logit = __shfl_xor_sync(all_lanes, best, mask);
        std::uint32_t const other = __shfl_xor_sync(all_lanes, place, mask);
        if (logit > best || (logit == best && other < place)) {
            best = logit;
            place = other;
        }
    }
    return place;
}

/// WARP collective: the first place in s.group whose cumulative weight exceeds `threshold`, the last one with weight if
/// rounding runs past the end, in every lane.
[[nodiscard]] __device__ __forceinline__ std::uint32_t find_place(draw_shared const& s, law const& q,
                                                                  double threshold) {
    double weights[tokens_of_lane];
    double own = 0.0;
#pragma unroll
    for (std::uint32_t j = 0; j < tokens_of_lane; ++j) {
        std::uint32_t const place = lane_index() * tokens_of_lane + j;
        weights[j] =
            static_cast<double>(q.weight(s.logits[place], static_cast<token_id>(s.group * group_size + place)));
        own += weights[j];
    }
    double sum = own;
    for (unsigned by = 1; by < warp_size; by *= 2) {
        double const other = __shfl_up_sync(all_lanes, sum, by);
        if (lane_index() >= by) sum += other;
    }
    unsigned const beyond = __ballot_sync(all_lanes, own > 0.0 && s.before + sum > threshold);
    unsigned const some = __ballot_sync(all_lanes, own > 0.0);
    int const lane = beyond != 0 ? __ffs(static_cast<int>(beyond)) - 1 : 31 - __clz(static_cast<int>(some));
    double before = s.before + sum - own;
    std::uint32_t place = 0;
    for (std::uint32_t j = 0; j < tokens_of_lane; ++j) {
        if (!(weights[j] > 0.0)) continue;
        place = lane_index() * tokens_of_lane + j;
        before += weights[j];
        if (before > threshold) break;
    }
    return __shfl_sync(all_lanes, place, lane);
}

// ---- the draw --------------------------------------------------------------------------------------------------

template <class Head, class U>
struct draw_step {
    recomputed_draft_rows<Head, U> rows{};
    group_statistics const* statistics = nullptr;
    request_list next{};  ///< those that draft position k + 1
    chain_options options{};
    std::uint32_t k = 0;
};

template <class DraftRule, class Head, class U, class Confidence>
__global__ void __launch_bounds__(draw_threads)
    draw_position(Head head, Confidence confidence, draw_step<Head, U> step, device_round round) {
    auto& s = shared_memory<draw_shared>();
    std::uint32_t const r = blockIdx.x;
    std::uint32_t const k = step.k;
    draft_columns const& drafts = round.drafts;
    if (r >= *round.requests.count) return;
    std::uint32_t const cap = round.requests.draft_cap(r, round.limits.block_size);
    if (k >= cap || drafts.sizes[r] != k || drafts.statuses[r] != status::ok) return;
    std::size_t const i = static_cast<std::size_t>(r) * round.limits.block_size + k;
    token_id const previous = k == 0 ? round.requests.anchors[r] : drafts.tokens[i - 1];
    transform const how = round.requests.drafts[r];
    bool const takes_mode = DraftRule::is_deterministic || how.greedy();
    auto const reject = [&](status why) {
        if (threadIdx.x != 0) return;
        drafts.sizes[r] = 0;
        drafts.statuses[r] = why;
    };

    law q{};
    q.kind = law_kind::dense;
    q.scale = how.greedy() ? 1.0f : static_cast<float>(1.0 / how.temperature);
    std::uint32_t const groups = groups_of(static_cast<std::uint32_t>(step.rows.w2.rows));
    row_summary row{step.statistics + static_cast<std::size_t>(r) * groups, groups, q.scale};
    row.sum_up(s);
    q.shift = row.largest();
    q.total = row.total();
    if (!row.valid()) return reject(status::invalid_draft);

    fixed_probability certainty = 0;
    if (!quantise(confidence(r, k, previous, row_facts{1.0 / q.total}, s.scratch()), certainty)) {
        return reject(status::invalid_confidence);
    }
    fixed_probability const survival =
        extend_survival(k == 0 ? round.requests.weights[r] : drafts.survival[i - 1], certainty);
    if (step.options.floor != nullptr && survival < *step.options.floor) return;

    double const threshold = uniform(block_key(round.requests, r, k, purpose::draft)) * q.total;
    if (takes_mode) {
        row.find_mode(s);
    } else {
        row.find_group(s, threshold);
    }
    recompute_group(step.rows, r, k, s);
    if (warp_index() == 0) {
        std::uint32_t const place = takes_mode ? first_largest(s) : find_place(s, q, threshold);
        auto const found = static_cast<token_id>(s.group * group_size + place);
        token_id const x = step.options.to_target == nullptr ? found : step.options.to_target[found];
        if (lane_index() == 0) {
            double const probability =
                takes_mode ? 1.0 : static_cast<double>(q.weight(s.logits[place], found)) / q.total;
            drafts.tokens[i] = x;
            drafts.laws[i] = takes_mode ? law::one_hot(x) : q;
            drafts.token_probabilities[i] = probability;
            drafts.confidence[i] = certainty;
            drafts.survival[i] = survival;
            drafts.sizes[r] = k + 1;
            s.token = x;
        }
    }
    __syncthreads();
    if (k + 1 < cap) make_code(head, step.rows.codes, step.next, r, k + 1, s.token, s);
}

}  // namespace detail

/// Drafts a block for every request of `round`: drafts.tokens, laws, token_probabilities, confidence, survival, sizes and
/// statuses. DraftRule: categorical_draft or argmax_draft, the host's types. Request r drafts at most
/// requests.draft_cap(r, gamma) tokens; one whose row holds NaN, +inf or no finite logit, or whose confidence is no
/// probability, drafts none and has a status that says so.
///
/// `forward` has rows for limits.requests requests. 2 gamma + 2 launches whose shape depends on limits alone.
/// cudaErrorInvalidValue, before any of them, if shapes do not fit each other, a pointer is null, or the memory is not of
/// this head's shape. O(gamma R V r).
template <class DraftRule, device_head Head, class U, device_confidence Confidence>
[[nodiscard]] cudaError_t draw_chain(Head const& head, Confidence const& confidence, forward_view<U> const& forward,
                                     chain_memory const& memory, device_round const& round, cudaStream_t stream,
                                     chain_options const& options = {}) noexcept {
    using W = typename Head::weight_type;
    constexpr std::uint32_t terms = code_terms<Head>;
    static_assert(is_device_storage_v<U>, "draw_chain: base logits are float, sureleap::bf16 or sureleap::half");
    matrix_view<U> const& base = forward.base_logits;
    if (!round.ready() || !memory.ready() || !head.valid() || !confidence.valid() || base.data == nullptr) {
        return cudaErrorInvalidValue;
    }
    round_limits const& limits = round.limits;
    bool const same_limits = memory.limits.requests == limits.requests && memory.limits.block_size == limits.block_size;
    bool const own_vocabulary = options.to_target != nullptr;
    if (!same_limits || memory.shape != shape_of(head) || base.cols != head.w2.rows || base.stride < base.cols ||
        base.rows < std::size_t{limits.requests} * limits.block_size ||
        (own_vocabulary ? base.cols > limits.vocabulary : base.cols != limits.vocabulary)) {
        return cudaErrorInvalidValue;
    }

    auto const codes = memory.code_rows_of<W>(terms);
    std::uint32_t const scratch =
        head.scratch_size() > confidence.scratch_size() ? head.scratch_size() : confidence.scratch_size();
    std::size_t const bytes = sizeof(detail::draw_shared) + scratch * sizeof(float);
    dim3 const grid(limits.requests);
    dim3 const block(detail::draw_threads);
    cudaError_t error = head.prepare(forward, round, stream);
    if (error == cudaSuccess) error = confidence.prepare(forward, round, stream);
    if (error == cudaSuccess) {
        error = cudaMemsetAsync(memory.counts, 0, limits.block_size * sizeof(std::uint32_t), stream);
    }
    if (error == cudaSuccess) {
        error = launch(detail::begin_blocks<Head>, grid, block, bytes, stream, head, codes, memory.list(0), round);
    }
    for (std::uint32_t k = 0; k < limits.block_size && error == cudaSuccess; ++k) {
        error = multiply<terms>(
            product_step<W, U>{head.w2, base, codes, memory.list(k), round.requests.drafts, memory.statistics, k},
            limits.requests, stream);
        if (error != cudaSuccess) break;
        bool const last = k + 1 == limits.block_size;
        detail::draw_step<Head, U> const step{draft_rows_of(head, forward, memory), memory.statistics,
                                              last ? request_list{} : memory.list(k + 1), options, k};
        error = launch(detail::draw_position<DraftRule, Head, U, Confidence>, grid, block, bytes, stream, head,
                       confidence, step, round);
    }
    return error;
}

}  // namespace cuda
SURELEAP_END_NAMESPACE

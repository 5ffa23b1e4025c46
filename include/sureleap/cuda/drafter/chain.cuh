// SPDX-License-Identifier: MIT
//
// Drafts the blocks of a batch by the sequential chain (paper section 3.1), without the host reading a token. In:
// hidden states and base logits of the backbone. Out: round.drafts. gamma times:
//     multiply    statistics of U_k + W2 z_k for the requests that draft position k     (product.cuh)
//     draw        per request: total, confidence, x_k ~ q_k, records, and z_{k+1}       (here)
// Requests end at their cap, their floor, a stop token or a failure, and join no further product.
//
// A draw reads 1,187 pairs of statistics of a row (V = 151,936). It is the host's inverse CDF in two steps. The
// cumulative sums of the groups give the group. Then its 128 logits are computed again (64 KiB of W2 for r = 256) and
// searched in ascending order. The confidence is computed before that, in the same kernel, so it cannot depend on x_k.
//
// Truncated distributions and Gumbel-max draws look at logits one by one, so the product leaves them a row
// (chain_shape::keeps_rows). A cutoff is found in that row. What is recorded is the recomputed logit of the last token
// kept. So that token is kept whenever q is read later. Another token within rounding of the cutoff may be kept in one
// place and not in the other. Its effect is that of the rounding of a total.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/guarantee.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/confidence/policy.cuh>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/distribution.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/storage.cuh>
#include <sureleap/cuda/drafter/chain_memory.cuh>
#include <sureleap/cuda/head/markov.cuh>
#include <sureleap/cuda/head/product.cuh>
#include <sureleap/cuda/head/recomputed_rows.cuh>
#include <sureleap/cuda/head/row_draw.cuh>
#include <sureleap/cuda/sampling/gumbel_max_row.cuh>
#include <sureleap/cuda/sampling/truncate.cuh>
#include <sureleap/sampling/draw_key.hpp>
#include <sureleap/schedule/survival.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {
namespace detail {

/// BLOCK collective: z_k of request r into the codes, and the request into the list of position k.
template <class Head>
__device__ void make_code(Head const& head, code_rows<typename Head::weight_type> const& codes,
                          request_list const& list, std::uint32_t r, std::uint32_t k, token_id previous,
                          draw_shared& s) {
    head.code(r, k, previous, s.z, s.rest());
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
    if (round.chain_cap(r) == 0) return;
    make_code(head, codes, list, r, 0, round.requests.anchors[r], s);
}

template <class Head, class U>
struct draw_step {
    recomputed_draft_rows<Head, U> rows{};
    group_statistics* statistics = nullptr;
    cutoff const* cutoffs = nullptr;
    logit_rows logits{};  ///< of those that have one
    request_list next{};  ///< those that draft position k + 1
    chain_options options{};
    std::uint32_t k = 0;
};

[[nodiscard]] __device__ __forceinline__ float scale_of(transform const& how) {
    return how.greedy() ? 1.0f : static_cast<float>(1.0 / how.temperature);
}

/// Between a product and its draw: the cutoffs of truncated distributions, and the statistics of what they keep. A
/// kernel of its own, since a search takes five times the shared memory of a draw.
template <unsigned threads>
__global__ void __launch_bounds__(threads)
    truncate_rows(request_list list, transform const* transforms, group_statistics* statistics, logit_rows rows,
                  std::uint32_t vocabulary, cutoff* cutoffs) {
    auto& s = shared_memory<draw_shared>();
    if (blockIdx.x >= *list.count) return;
    std::uint32_t const r = list.ids[blockIdx.x];
    transform const how = transforms[r];
    if (how.greedy() || !how.truncates()) return;
    distribution q{};
    q.kind = distribution_kind::dense;
    q.scale = scale_of(how);
    std::uint32_t const groups = groups_of(vocabulary);
    row_summary row{statistics + static_cast<std::size_t>(r) * groups, groups, q.scale};
    row.sum_up(s);
    if (!row.valid()) return;  // the draw will see that too
    float const* const logits = rows.row(r, how);
    cutoff const last = truncate(logits, vocabulary, how, row_statistics{row.largest(), row.total(), nullptr},
                                 s.rest_as<truncate_shared>());
    q.least_logit = last.logit;
    q.least_id = last.id;
    row.keep(logits, vocabulary, q);
    if (threadIdx.x == 0) cutoffs[r] = last;
}

template <class DraftRule, class Head, class U, class Confidence>
__global__ void __launch_bounds__(draw_threads)
    draw_position(Head head, Confidence confidence, draw_step<Head, U> step, device_round round) {
    auto& s = shared_memory<draw_shared>();
    std::uint32_t const r = blockIdx.x;
    std::uint32_t const k = step.k;
    draft_columns const& drafts = round.drafts;
    if (r >= *round.requests.count) return;
    std::uint32_t const cap = round.chain_cap(r);
    if (k >= cap || drafts.sizes[r] != k || drafts.statuses[r] != status::ok) return;
    std::size_t const i = static_cast<std::size_t>(r) * round.limits.block_size + k;
    token_id const previous = k == 0 ? round.requests.anchors[r] : drafts.tokens[i - 1];
    if (k > 0 && round.stops_at(r, previous)) return;
    transform const how = round.requests.drafts[r];
    bool const takes_mode = DraftRule::is_deterministic || how.greedy();
    auto const reject = [&](status why) {
        if (threadIdx.x == 0) drafts.statuses[r] = why;  // what was drawn stays, as on the host
    };

    distribution q{};
    q.kind = distribution_kind::dense;
    q.scale = scale_of(how);
    auto const vocabulary = static_cast<std::uint32_t>(step.rows.w2.rows);
    std::uint32_t const groups = groups_of(vocabulary);
    row_summary row{step.statistics + static_cast<std::size_t>(r) * groups, groups, q.scale};
    row.sum_up(s);
    if (!row.valid()) return reject(status::invalid_draft);
    if (!how.greedy() && how.truncates()) {
        if (step.cutoffs == nullptr) return reject(status::invalid_draft);
        q.least_logit = step.cutoffs[r].logit;
        q.least_id = step.cutoffs[r].id;
    }
    q.shift = row.largest();
    q.total = row.total();

    fixed_probability certainty = 0;
    if (!quantise(confidence(r, k, previous, position_statistics{1.0 / q.total}, s.rest()), certainty)) {
        return reject(status::invalid_confidence);
    }
    fixed_probability const survival =
        extend_survival(k == 0 ? round.requests.weights[r] : drafts.survival[i - 1], certainty);
    if (step.options.floor != nullptr && survival < *step.options.floor) return;

    double const threshold = uniform(block_key(round.requests, r, k, purpose::draft)) * q.total;
    std::uint32_t winner = nobody;
    if (takes_mode) {
        row.find_mode(s);
    } else if constexpr (std::is_same_v<DraftRule, coupled_draft>) {
        // Exponentials go by the target's names, of which a block of a row has its own only where the vocabulary is the
        // same.
        float const* const logits = step.logits.row(r, how);
        draw_key const key = noise_key(round.requests, r, k);
        auto& shared = s.rest_as<gumbel_shared>();
        winner = step.options.to_target == nullptr
                     ? static_cast<std::uint32_t>(gumbel_max_row(logits, vocabulary, q, key, no_token, shared).token)
                     : gumbel_max_list(step.options.to_target, logits, vocabulary, q, key, shared);
        if (threadIdx.x == 0) s.group = winner / group_size;
        __syncthreads();
    } else {
        row.find_group(s, threshold);
    }
    recompute_group(step.rows, r, k, s);
    if (warp_index() == 0) {
        if (!q.keeps_all()) q.least_logit = step.rows.logit(r, k, q.least_id);
        std::uint32_t const place = takes_mode         ? first_largest(s)
                                    : winner != nobody ? winner % group_size
                                                       : find_drawn(s, q);
        auto const found = place == nobody ? q.least_id : static_cast<token_id>(s.group * group_size + place);
        float const logit = place == nobody ? q.least_logit : s.logits[place];
        token_id const x = step.options.to_target == nullptr ? found : step.options.to_target[found];
        if (lane_index() == 0) {
            drafts.tokens[i] = x;
            drafts.distributions[i] = takes_mode ? distribution::one_hot(x) : q;
            drafts.token_probabilities[i] = takes_mode ? 1.0 : static_cast<double>(q.weight(logit, found)) / q.total;
            drafts.confidence[i] = certainty;
            drafts.survival[i] = survival;
            drafts.sizes[r] = k + 1;
            s.token = x;
        }
    }
    __syncthreads();
    if (k + 1 == cap || round.stops_at(r, s.token)) return;
    make_code(head, step.rows.codes, step.next, r, k + 1, s.token, s);
}

}  // namespace detail

/// Nothing is enqueued between the positions of a chain.
struct no_stage {
    [[nodiscard]] cudaError_t operator()(std::uint32_t) const noexcept { return cudaSuccess; }
};

/// Drafts a block for every request of `round`: drafts.tokens, distributions, token_probabilities, confidence,
/// survival, sizes and statuses. DraftRule: categorical_draft, argmax_draft or coupled_draft, the host's types. Request
/// r drafts at most round.chain_cap(r) tokens. It drafts none, and has a status that says so, in three cases. Its row
/// holds NaN, +inf or no finite logit. Its confidence is no probability. Its draft distribution is truncated and the
/// memory keeps no rows. coupled_draft needs rows; where the draft has a vocabulary of its own, its Gumbel-max draws
/// cost a call of Philox for every token.
///
/// `before_position`: cudaError_t(std::uint32_t k), called before the launches that draft position k. It may enqueue
/// work that depends on drafts.tokens before k, as a mask of the base logits of position k (mask_base_rows) does.
///
/// Instruction: what the product multiplies by (multiply in head/product.cuh).
///
/// `forward` has rows for limits.requests requests. 2 gamma + 2 launches, 3 gamma + 2 with rows, whose shape depends on
/// limits alone. cudaErrorInvalidValue, before any of them, if shapes do not fit each other, a pointer is null, or the
/// memory is not of this head's shape. O(gamma R V r).
template <class DraftRule, class Instruction = by_mma, device_head Head, class U, device_confidence Confidence,
          class BeforePosition = no_stage>
[[nodiscard]] cudaError_t draw_chain(Head const& head, Confidence const& confidence, forward_view<U> const& forward,
                                     chain_memory const& memory, device_round const& round, cudaStream_t stream,
                                     chain_options const& options = {},
                                     BeforePosition const& before_position = {}) noexcept {
    using W = typename Head::weight_type;
    constexpr std::uint32_t terms = code_terms<Head>;
    static_assert(is_device_storage_v<U>, "draw_chain: base logits are float, sureleap::bf16 or sureleap::half");
    matrix_view<U> const& base = forward.base_logits;
    constexpr bool by_gumbel_max = std::is_same_v<DraftRule, coupled_draft>;
    if (!round.ready() || !memory.ready() || !head.valid() || !confidence.valid() || base.data == nullptr) {
        return cudaErrorInvalidValue;
    }
    device_limits const& limits = round.limits;
    bool const same_limits = memory.limits.requests == limits.requests && memory.limits.block_size == limits.block_size;
    bool const own_vocabulary = options.to_target != nullptr;
    if (!same_limits || memory.shape != shape_of(head, memory.shape.keeps_rows) ||
        (by_gumbel_max && !memory.shape.keeps_rows) || base.cols != head.w2.rows || base.stride < base.cols ||
        base.rows < std::size_t{limits.requests} * limits.block_size ||
        (own_vocabulary ? base.cols > limits.vocabulary : base.cols != limits.vocabulary)) {
        return cudaErrorInvalidValue;
    }

    logit_rows rows = memory.rows;
    rows.all = by_gumbel_max;
    auto const codes = memory.code_rows_of<W>(terms);
    std::size_t rest = sizeof(float) * std::max(head.shared_size(), confidence.shared_size());
    if (by_gumbel_max) rest = std::max(rest, sizeof(gumbel_shared));
    std::size_t const bytes = sizeof(detail::draw_shared) + rest;
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
        error = before_position(k);
        if (error != cudaSuccess) break;
        error = multiply<terms, Instruction>(
            product_step<W, U>{head.w2, base, codes, memory.list(k), round.requests.drafts, memory.statistics, rows, k},
            limits.requests, stream);
        if (error == cudaSuccess && memory.shape.keeps_rows) {
            error = launch(detail::truncate_rows<detail::draw_threads>, grid, block,
                           sizeof(detail::draw_shared) + sizeof(truncate_shared), stream, memory.list(k),
                           round.requests.drafts, memory.statistics, rows, memory.shape.vocabulary, memory.cutoffs);
        }
        if (error != cudaSuccess) break;
        bool const last = k + 1 == limits.block_size;
        detail::draw_step<Head, U> const step{draft_rows_of(head, forward, memory),
                                              memory.statistics,
                                              memory.cutoffs,
                                              rows,
                                              last ? request_list{} : memory.list(k + 1),
                                              options,
                                              k};
        error = launch(detail::draw_position<DraftRule, Head, U, Confidence>, grid, block, bytes, stream, head,
                       confidence, step, round);
    }
    return error;
}

}  // namespace cuda
SURELEAP_END_NAMESPACE

// SPDX-License-Identifier: MIT
//
// An engine's arrays as the columns of a round. In: engine_arrays in device memory. Out: requests, drafts and batch of
// verifier_memory::round, and what is changed in the rows of each request.
//
// Settings out of their range are brought into it, counts are clamped to what memory was made for, and a token that is
// none ends its drafts: nothing can throw here.
#pragma once

#include <cfloat>
#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/distribution.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/sampling/edited_row.cuh>
#include <sureleap/cuda/verify/verifier_memory.cuh>
#include <sureleap/verify/engine_arrays.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {
namespace detail {

/// A number in its range; `otherwise` if it is none.
[[nodiscard]] __device__ inline double within(double x, double least, double most, double otherwise) {
    return x >= least ? (x <= most ? x : most) : x < least ? least : otherwise;
}

/// One thread: how the target's logits of a slot become p.
[[nodiscard]] __device__ inline transform transform_of(settings_arrays const& given, std::size_t s,
                                                       std::uint32_t vocabulary) {
    transform how{};
    how.temperature = within(given.temperature.value_or(s, 1.0), 0.0, largest_temperature, 0.0);
    std::int64_t const k = given.top_k.value_or(s, 0);
    how.top_k = k > 0 && k < static_cast<std::int64_t>(vocabulary) ? static_cast<int>(k) : 0;
    how.top_p = within(given.top_p.value_or(s, 1.0), DBL_MIN, 1.0, 1.0);
    how.min_p = within(given.min_p.value_or(s, 0.0), 0.0, 1.0, 0.0);
    return how;
}

/// One thread: what is changed in the rows of request r.
__device__ inline void take_edits(edit_arrays const& given, verifier_memory const& memory, std::uint32_t r,
                                  std::size_t s) {
    request_edits own{};
    own.repetition = static_cast<float>(given.repetition.value_or(s, 1.0));
    if (!(own.repetition > 0.0f && own.repetition < infinity)) own.repetition = 1.0f;
    own.frequency = static_cast<float>(given.frequency.value_or(s, 0.0));
    own.presence = static_cast<float>(given.presence.value_or(s, 0.0));
    own.counts = given.counts == nullptr ? nullptr : given.counts + s * given.counts_stride;
    own.prompt = given.prompt == nullptr
                     ? nullptr
                     : reinterpret_cast<std::uint32_t const*>(given.prompt + s * given.prompt_stride);
    own.seen = memory.seen + static_cast<std::size_t>(r) * memory.words();
    std::size_t const first = static_cast<std::size_t>(r) * memory.limits.biases;
    own.bias_tokens = memory.bias_tokens + first;
    own.bias = memory.bias + first;
    auto const most = static_cast<std::int64_t>(given.bias_stride);
    std::int64_t const biases = given.bias_tokens ? given.bias_counts.value_or(s, most) : 0;
    for (std::int64_t j = 0; j < biases && j < most && own.biases < memory.limits.biases; ++j) {
        auto const i = static_cast<std::size_t>(j);
        std::int64_t const x = given.bias_tokens[s * given.bias_stride + i];
        if (x < 0) break;
        if (x >= static_cast<std::int64_t>(memory.limits.round.vocabulary)) continue;
        memory.bias_tokens[first + own.biases] = static_cast<token_id>(x);
        memory.bias[first + own.biases] = static_cast<float>(given.bias[s * given.bias_stride + i]);
        ++own.biases;
    }
    memory.edits[r] = own;
}

/// q's rows hold logits of all tokens, and their normalisers came with them.
template <class T, class Q>
[[nodiscard]] SURELEAP_HOST_DEVICE bool is_normalised(engine_arrays<T, Q> const& call, verifier_memory const& memory) {
    return call.q.log_normalisers && memory.limits.listed == 0 && !memory.limits.probabilities;
}

/// One thread: q of a row of logits whose log-sum-exp is known. What a float rounds the shift by goes to the total.
[[nodiscard]] __device__ inline distribution law_of_normaliser(double log_normaliser, double temperature) {
    distribution q{};
    q.scale = static_cast<float>(1.0 / temperature);
    q.shift = static_cast<float>(log_normaliser * temperature);
    q.total = exp(log_normaliser - static_cast<double>(q.shift) * static_cast<double>(q.scale));
    bool const good = q.total > 0.5 && q.total < 2.0;  // no NaN, no infinity, and no overflow of the shift
    q.kind = good ? distribution_kind::dense : distribution_kind::invalid;
    return q;
}

/// Requests and drafts of a call as columns of a round, a thread a request.
template <class T, class Q>
__global__ void take_arrays(engine_arrays<T, Q> const __grid_constant__ call,
                            verifier_memory const __grid_constant__ memory) {
    device_round const& round = memory.round;
    device_limits const& limits = memory.limits.round;
    std::uint32_t const gamma = limits.block_size;
    std::uint32_t const r = blockIdx.x * blockDim.x + threadIdx.x;
    auto const asked = static_cast<std::int64_t>(call.requests);
    std::int64_t const counted = call.count.value_or(0, asked);
    std::int64_t const count = counted < 0 ? 0 : counted < asked ? counted : asked;
    if (r == 0) {
        *round.requests.count = static_cast<std::uint32_t>(count);
        round.batch.offsets[limits.requests] = static_cast<std::int32_t>(count * (gamma + 1));
    }
    if (static_cast<std::int64_t>(r) >= count) return;

    std::size_t const s = call.slot(r);
    std::size_t const first = call.first_row(r, gamma);
    std::int64_t rows = static_cast<std::int64_t>(gamma) + 1;
    if (call.row_begin) rows = call.row_begin[r + 1] - call.row_begin[r];
    bool const there =
        rows > 0 && first < call.target.rows && static_cast<std::size_t>(rows) <= call.target.rows - first;
    if (rows > static_cast<std::int64_t>(gamma) + 1) rows = static_cast<std::int64_t>(gamma) + 1;
    std::int64_t remaining = call.remaining.value_or(r, static_cast<std::int64_t>(gamma) + 1);
    remaining = remaining < 0 ? 0 : remaining < 0x7fffffff ? remaining : 0x7fffffff;

    memory.first_rows[r] = first;
    memory.first_q[r] = call.first_q(r);
    round.requests.anchors[r] = 0;
    std::size_t const at = !call.positions_of_rows ? r : there ? first : 0;
    round.requests.positions[r] = static_cast<std::uint64_t>(call.positions[at]);
    round.requests.seeds[r] = static_cast<std::uint64_t>(call.settings.seeds[s]);
    transform const target = transform_of(call.settings, s, limits.vocabulary);
    transform draft{};
    draft.temperature = within(call.settings.draft_temperature.value_or(s, target.temperature), 0.0,
                               largest_temperature, target.temperature);
    round.requests.targets[r] = target;
    round.requests.drafts[r] = draft;
    round.requests.remaining[r] = static_cast<std::uint32_t>(remaining);
    round.requests.min_remaining[r] = 0;
    for (std::uint32_t i = 0; i < limits.stop_tokens; ++i) {
        bool const given = call.settings.stop_tokens && i < call.settings.stop_stride;
        std::int64_t const x = given ? call.settings.stop_tokens[s * call.settings.stop_stride + i] : no_token;
        round.requests.stop_tokens[static_cast<std::size_t>(r) * limits.stop_tokens + i] = static_cast<token_id>(x);
    }
    // p of a greedy request is one token, whatever was drafted, and an argmax need not be the one of q's ties.
    bool const found = call.q.rows == nullptr || target.greedy() || (!memory.limits.probabilities && draft.greedy());
    memory.found[r] = found ? 1 : 0;

    // Drafts, up to the first that is none.
    std::uint32_t const begin = r * (gamma + 1);
    status drafted = status::ok;
    std::int64_t cap = there && call.drafts ? rows - 1 : 0;
    if (cap > remaining - 1) cap = remaining > 0 ? remaining - 1 : 0;
    std::uint32_t length = 0;
    round.batch.tokens[begin] = 0;
    std::size_t const from = call.first_draft(r, gamma);
    for (; length < cap; ++length) {
        if (length > 0 && round.stops_at(r, round.batch.tokens[begin + length])) break;
        std::int64_t const x = call.drafts[from + length];
        if (x < 0 || x >= static_cast<std::int64_t>(limits.vocabulary)) {
            if (x != no_token) drafted = status::invalid_draft;
            break;
        }
        round.batch.tokens[begin + length + 1] = static_cast<token_id>(x);
        std::size_t const i = static_cast<std::size_t>(r) * gamma + length;
        round.drafts.tokens[i] = static_cast<token_id>(x);
        distribution q = distribution::one_hot(static_cast<token_id>(x));
        double probability = 1.0;
        if (!found && is_normalised(call, memory)) {
            double const log = call.q.log_normalisers[call.slot_of_q(r) * gamma + length];
            Q const logit = call.q.rows[memory.first_q[r] + length * call.q.row_stride + static_cast<std::size_t>(x)];
            q = law_of_normaliser(log, draft.temperature);
            probability =
                q.valid() ? static_cast<double>(q.weight(load(logit), static_cast<token_id>(x))) / q.total : 0.0;
        }
        round.drafts.distributions[i] = q;
        round.drafts.token_probabilities[i] = probability;
    }
    round.drafts.sizes[r] = length;
    round.drafts.statuses[r] = drafted;
    round.batch.offsets[r] = static_cast<std::int32_t>(begin);
    for (std::uint32_t k = 0; k <= gamma; ++k) round.batch.markers[begin + k] = r;
    round.batch.lengths[r] = there ? length : gamma + 1;  // which fits no batch: invalid_target
    if (memory.limits.edits) take_edits(call.edits, memory, r, s);
}

/// The tokens of a penalised request's prompt, and those that were emitted, a warp for 32 of them.
template <class = void>
__global__ void mark_seen(verifier_memory const __grid_constant__ memory) {
    std::uint32_t const requests = *memory.round.requests.count;
    std::uint32_t const words = memory.words();
    std::uint32_t const vocabulary = memory.limits.round.vocabulary;
    std::uint64_t const warps = static_cast<std::uint64_t>(gridDim.x) * (blockDim.x / warp_size);
    std::uint64_t const all = static_cast<std::uint64_t>(requests) * words;
    for (std::uint64_t i = static_cast<std::uint64_t>(blockIdx.x) * (blockDim.x / warp_size) + warp_index(); i < all;
         i += warps) {
        request_edits const& own = memory.edits[i / words];
        if (!own.penalises()) continue;
        auto const w = static_cast<std::uint32_t>(i % words);
        std::uint32_t const v = w * 32 + lane_index();
        bool const emitted = own.counts != nullptr && v < vocabulary && own.counts[v] > 0;
        std::uint32_t bits = __ballot_sync(all_lanes, emitted);
        if (own.prompt != nullptr) bits |= own.prompt[w];
        if (lane_index() == 0) memory.seen[i] = bits;
    }
}

}  // namespace detail
}  // namespace cuda
SURELEAP_END_NAMESPACE

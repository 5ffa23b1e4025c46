// SPDX-License-Identifier: MIT
//
// Verification alone on the device, for an engine that drafts and scores by itself: its arrays go in, what it emits
// comes out. verifier (verifier.hpp) is the same on the host, over the same engine_arrays.
//
//     take_arrays    requests and drafts as columns of a round
//     mark_seen      which tokens penalties change; if the call has edits
//     weigh_drafts   what drafts were drawn from, from rows of q; if there are any
//     accept         (accept.cuh)
//     give_arrays    verdicts as the engine's arrays
//     report_tokens  ranks, and the likeliest tokens; if they are wanted
//
// Settings out of their range are brought into it, counts are clamped to what memory was made for, and a token that is
// none ends its drafts: nothing can throw here.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/token_mask.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/distribution.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/workspace.cuh>
#include <sureleap/cuda/round/accept.cuh>
#include <sureleap/cuda/sampling/edited_row.cuh>
#include <sureleap/cuda/sampling/row.cuh>
#include <sureleap/cuda/verify/draft_rows.cuh>
#include <sureleap/cuda/verify/engine_rows.cuh>
#include <sureleap/cuda/verify/memory.cuh>
#include <sureleap/cuda/verify/residual.cuh>
#include <sureleap/cuda/verify/target_rows.cuh>
#include <sureleap/cuda/verify/token_report.cuh>
#include <sureleap/cuda/verify/verification.cuh>
#include <sureleap/verify/array_edits.hpp>
#include <sureleap/verify/engine_arrays.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// What memory is made for, and what comes with drafts (the host's verifier_options).
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
    std::size_t* first_rows = nullptr;  ///< [R] of the target
    std::size_t* first_q = nullptr;     ///< [R] where q's rows begin
    std::uint8_t* found = nullptr;      ///< [R] no q is read
    request_edits* edits = nullptr;     ///< [R]
    token_id* bias_tokens = nullptr;    ///< [R, biases]
    float* bias = nullptr;              ///< [R, biases]
    std::uint32_t* seen = nullptr;      ///< [R, words]

    [[nodiscard]] bool ready() const noexcept { return first_rows != nullptr; }
    [[nodiscard]] SURELEAP_HOST_DEVICE std::uint32_t words() const noexcept {
        return (limits.round.vocabulary + 31) / 32;
    }
};

/// Out of `ws`; not ready() if that only counts or is too small, and then verify refuses it. Beside what carve and
/// carve_verification take, V / 8 bytes a request if there are edits.
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
    memory.edits = ws.take<request_edits>(requests);
    memory.bias_tokens = ws.take<token_id>(limits.edits ? requests * limits.biases : 0);
    memory.bias = ws.take<float>(limits.edits ? requests * limits.biases : 0);
    memory.seen = ws.take<std::uint32_t>(limits.edits ? requests * memory.words() : 0);
    if (!ws.fits()) memory = {};
    return memory;
}

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
    if (r == 0) *round.requests.count = static_cast<std::uint32_t>(count);
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
        round.drafts.distributions[i] = distribution::one_hot(static_cast<token_id>(x));
        round.drafts.token_probabilities[i] = 1.0;
    }
    round.drafts.sizes[r] = length;
    round.drafts.statuses[r] = drafted;
    round.batch.offsets[r] = static_cast<std::int32_t>(begin);
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

struct weigh_drafts_shared {
    verification_shared verification;
    float largest[verification_warps];
    std::uint32_t bad;
    distribution q;
};

/// BLOCK collective: q of a row whose numbers are read one by one: of probabilities, or of a list.
template <class Q>
[[nodiscard]] __device__ distribution weigh_numbers(engine_draft_rows<Q> const& rows, std::size_t row, float scale,
                                                    std::uint32_t vocabulary, weigh_drafts_shared& s) {
    distribution q{};
    q.scale = scale;
    if (threadIdx.x == 0) s.bad = 0;
    __syncthreads();
    auto const counts = [&](std::uint32_t i) { return !rows.listed || rows.listed[row + i] != no_token; };
    float largest = -infinity;
    bool bad = false;
    for (std::uint32_t i = threadIdx.x; i < rows.size; i += blockDim.x) {
        if (!counts(i)) continue;
        float const x = load(rows.data[row + i]);
        largest = fmaxf(largest, x);
        bad |= !(x < infinity) || (rows.probabilities && !(x >= 0.0f));
        if (!rows.listed) continue;
        std::int64_t const v = rows.listed[row + i];
        bad |= v < 0 || v >= static_cast<std::int64_t>(vocabulary);
        for (std::uint32_t j = 0; j < i; ++j) bad |= rows.listed[row + j] == v;  // twice
    }
    largest = warp_max(largest);
    if (lane_index() == 0) s.largest[warp_index()] = largest;
    if (bad) s.bad = 1;
    __syncthreads();
    for (float const part : s.largest) largest = fmaxf(largest, part);
    q.shift = largest;
    double sum = 0.0;
    for (std::uint32_t i = threadIdx.x; i < rows.size; i += blockDim.x) {
        if (counts(i)) sum += static_cast<double>(rows.weight_at(row + i, q, static_cast<token_id>(i)));
    }
    q.total = sum_of_threads(s.verification, sum);
    bool const good = s.bad == 0 && q.total > 0.0 && q.total < static_cast<double>(infinity);
    q.kind = good ? distribution_kind::dense : distribution_kind::invalid;
    return q;
}

/// What each draft was drawn from, a block of threads a draft. A draft that its q excludes ends those of its request.
/// The weights of a dense row's blocks lie where the target's will.
template <class Q>
__global__ void __launch_bounds__(verification_threads)
    weigh_drafts(engine_draft_rows<Q> const __grid_constant__ rows, verifier_memory const __grid_constant__ memory) {
    auto& s = shared_memory<weigh_drafts_shared>();
    device_round const& round = memory.round;
    device_limits const& limits = memory.limits.round;
    std::uint32_t const drafts = *round.requests.count * limits.block_size;
    for (std::uint32_t i = blockIdx.x; i < drafts; i += gridDim.x) {
        std::uint32_t const r = i / limits.block_size;
        std::uint32_t const k = i % limits.block_size;
        if (memory.found[r] != 0 || k >= round.drafts.sizes[r]) continue;
        std::size_t const row = rows.begin(r, k);
        double const temperature = round.requests.drafts[r].temperature;
        float const scale = rows.probabilities ? 1.0f : static_cast<float>(1.0 / temperature);
        distribution q{};
        if (rows.listed || rows.probabilities) {
            q = weigh_numbers(rows, row, scale, limits.vocabulary, s);
        } else {
            std::size_t const at =
                static_cast<std::size_t>(memory.verification.row(r, k)) * memory.verification.blocks();
            block_weight* const weights = memory.verification.weights + at;
            for (std::uint32_t b = warp_index(); b < memory.verification.blocks(); b += verification_warps) {
                row_lanes<Q> logits;
                read_block(rows.data + row, rows.size, b, logits);
                block_weight const weight = weigh_block(logits, rate_of(scale));
                if (lane_index() == 0) weights[b] = weight;
            }
            __syncthreads();
            if (warp_index() == 0) {
                distribution const made =
                    distribution_of(rows.data + row, rows.size, weights, memory.verification.upto + at, false, scale);
                if (lane_index() == 0) s.q = made;
            }
            __syncthreads();
            q = s.q;
        }
        if (warp_index() == 0) {
            token_id const x = round.drafts.tokens[i];
            double const kept = q.valid() ? static_cast<double>(rows.weight(r, k, q, x)) / q.total : 0.0;
            if (lane_index() == 0) {
                round.drafts.distributions[i] = q;
                round.drafts.token_probabilities[i] = kept;
                if (!(kept > 0.0)) atomicMin(&round.batch.lengths[r], k);
            }
        }
        __syncthreads();  // s is free again
    }
}

/// Verdicts as an engine's arrays, a thread a request.
template <class = void>
__global__ void give_arrays(verified_arrays const __grid_constant__ out,
                            verifier_memory const __grid_constant__ memory) {
    device_round const& round = memory.round;
    std::uint32_t const r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= *round.requests.count) return;
    std::uint32_t const width = memory.limits.round.block_size + 1;
    verdict_columns const& v = round.verdicts;
    status const outcome = v.statuses[r];
    std::uint32_t const count = outcome == status::ok ? v.emitted[r] : 0;
    for (std::uint32_t k = 0; k < width; ++k) {
        std::size_t const i = static_cast<std::size_t>(r) * width + k;
        bool const there = k < count;
        out.tokens.store(i, there ? v.tokens[i] : no_token);
        if (v.log_probabilities == nullptr) continue;
        out.log_probabilities.store(i, there ? v.log_probabilities[i] : static_cast<double>(nanf("")));
    }
    std::size_t const last = static_cast<std::size_t>(r) * width + count - 1;
    out.counts.store(r, count);
    out.accepted.store(r, count > 0 ? v.accepted[r] : 0);
    out.next_anchors.store(r, count > 0 ? v.tokens[last] : no_token);
    status const drafted = round.batch.lengths[r] < round.drafts.sizes[r] ? status::invalid_draft  // by its q
                                                                          : round.drafts.statuses[r];
    status const what = outcome == status::ok ? drafted : outcome;
    if (out.statuses != nullptr) out.statuses[r] = static_cast<std::uint8_t>(what);
    if (out.finished == nullptr) return;
    finish_reason why = finish_reason::none;
    if (count > 0 && v.stopped[r] != 0) {
        why = finish_reason::stop_token;
    } else if (count >= round.requests.remaining[r]) {
        why = finish_reason::max_new_tokens;
    }
    out.finished[r] = static_cast<std::uint8_t>(why);
}

/// What is wanted of the emitted tokens beside give_arrays, a block of threads a token.
template <class Rows>
__global__ void __launch_bounds__(verification_threads)
    report_tokens(Rows const __grid_constant__ rows, verified_arrays const __grid_constant__ out,
                  verifier_memory const __grid_constant__ memory) {
    auto& s = shared_memory<token_report_shared>();
    device_round const& round = memory.round;
    std::uint32_t const width = memory.limits.round.block_size + 1;
    std::uint32_t const size = memory.limits.round.vocabulary;
    std::uint32_t const n = memory.limits.likeliest;
    double const none = static_cast<double>(nanf(""));
    std::uint32_t const places = *round.requests.count * width;
    for (std::uint32_t i = blockIdx.x; i < places; i += gridDim.x) {
        std::uint32_t const r = i / width;
        std::uint32_t const k = i % width;
        bool const there = round.verdicts.statuses[r] == status::ok && k < round.verdicts.emitted[r];
        if (!there) {
            if (threadIdx.x == 0) out.ranks.store(i, 0);
            for (std::uint32_t j = threadIdx.x; j < n; j += blockDim.x) {
                out.top_tokens.store(std::size_t{i} * n + j, no_token);
                out.top_log_probabilities.store(std::size_t{i} * n + j, none);
            }
            continue;
        }
        token_id const x = round.verdicts.tokens[i];
        std::size_t const at = static_cast<std::size_t>(memory.verification.row(r, k)) * memory.verification.blocks();
        block_weight* const weights = memory.verification.weights + at;
        double* const upto = memory.verification.upto + at;
        auto const report = [&](auto row, distribution const& p) {
            if (memory.limits.raw && warp_index() == 0) {
                double const log_p = p.valid() ? log_probability_of(p, row, x) : none;
                if (lane_index() == 0) out.log_probabilities.store(i, log_p);
            }
            if (out.ranks) {
                std::uint32_t const rank = p.valid() ? rank_of(row, size, p, x, s) : 0;
                if (threadIdx.x == 0) out.ranks.store(i, rank);
            }
            if (n == 0) return;
            find_likeliest(row, size, p, weights, n, s);
            if (warp_index() != 0 || lane_index() >= n) return;
            token_id const token = s.tokens[lane_index()];
            std::size_t const place = std::size_t{i} * n + lane_index();
            out.top_tokens.store(place, token);
            out.top_log_probabilities.store(place, token == no_token ? none : log_probability_of(p, row, token));
        };
        if (memory.limits.raw) {
            auto const row = rows.stored(r, k);
            report(row, level_law(row, size, weights, upto, s));
        } else {
            auto const row = rows.row(0, round, r, k);
            distribution p = memory.verification.targets[memory.verification.row(r, k)].p;
            if (p.is_one_hot()) p = level_law(row, size, weights, upto, s);
            report(row, p);
        }
        __syncthreads();  // s is free again
    }
}

template <class T, class Q>
[[nodiscard]] bool fits(engine_arrays<T, Q> const& call, verifier_memory const& memory, bool edited) noexcept {
    device_limits const& limits = memory.limits.round;
    std::uint32_t const size = memory.limits.listed > 0 ? memory.limits.listed : limits.vocabulary;
    edit_arrays const& e = call.edits;
    bool const edits = e.bitmask != nullptr || e.bias_tokens || e.repetition || e.frequency || e.presence;
    bool const rows =
        call.target.data != nullptr && call.target.cols == limits.vocabulary && call.target.stride >= limits.vocabulary;
    bool const q = call.q.rows == nullptr ||
                   (call.q.row_stride >= size && static_cast<bool>(call.q.listed) == (memory.limits.listed > 0));
    bool const masks = e.bitmask == nullptr || e.bitmask_stride >= mask_words(limits.vocabulary);
    bool const biases = !e.bias_tokens || (e.bias && e.bias_stride <= memory.limits.biases);
    bool const stops = !call.settings.stop_tokens || call.settings.stop_stride <= limits.stop_tokens;
    bool const top = call.out.top_tokens || call.out.top_log_probabilities;
    bool const reports = call.out.log_probabilities || call.out.ranks || top;
    bool const logs = (!reports || limits.log_probabilities) && (!top || memory.limits.likeliest > 0);
    bool const later = call.parents || call.out.paths;
    return memory.ready() && call.requests <= limits.requests && rows && q && masks && biases && stops && logs &&
           call.settings.seeds && call.positions && edited == memory.limits.edits && (edited || !edits) && !later;
}

}  // namespace detail

/// Judges the drafts of a call by the host's rule: token_rejection, block_verification, greedy_match, target_match or
/// keyed_coupling. Edits is array_edits if memory is made for calls with edits, else no_logits_hook. `call` points to
/// device memory; its numbers and pointers are those of the moment, so a graph that was captured replays them, with
/// call.count of its requests. Trees are the host's alone.
///
/// Reads a row of q once for each draft, and those of the target as accept does. cudaErrorInvalidValue, before anything
/// is launched, if the arrays do not fit the memory.
template <class Rule, class Edits = no_logits_hook, class T, class Q>
[[nodiscard]] cudaError_t verify(engine_arrays<T, Q> const& call, verifier_memory const& memory,
                                 cudaStream_t stream) noexcept {
    constexpr bool edited = std::is_same_v<Edits, array_edits>;
    static_assert(edited || std::is_same_v<Edits, no_logits_hook>,
                  "cuda::verify: Edits is array_edits, if calls have a bitmask, bias or penalties, or no_logits_hook");
    if (!detail::fits(call, memory, edited)) return cudaErrorInvalidValue;
    if (call.requests == 0) return cudaSuccess;
    engine_arrays<T, Q> given = call;
    if (device_rule<Rule>::chooses) given.q = {};  // such a rule reads no q
    device_limits const& limits = memory.limits.round;
    unsigned processors = 0;
    cudaError_t error = count_multiprocessors(processors);
    constexpr unsigned threads = 128;
    unsigned const blocks = static_cast<unsigned>((call.requests + threads - 1) / threads);
    if (error == cudaSuccess) {
        error = launch(detail::take_arrays<T, Q>, blocks, threads, 0, stream, given, memory);
    }
    if (edited && error == cudaSuccess) error = launch(detail::mark_seen<>, processors * 4, threads, 0, stream, memory);
    engine_draft_rows<Q> drafts{};
    drafts.data = given.q.rows;
    drafts.first = memory.first_q;
    drafts.stride = given.q.row_stride;
    drafts.listed = given.q.listed;
    drafts.size = memory.limits.listed > 0 ? memory.limits.listed : limits.vocabulary;
    drafts.probabilities = memory.limits.probabilities;
    if (given.q.rows != nullptr && error == cudaSuccess) {
        error = launch(detail::weigh_drafts<Q>, processors * detail::verification_residency, verification_threads,
                       sizeof(detail::weigh_drafts_shared), stream, drafts, memory);
    }
    engine_rows<T, edited> rows{};
    rows.data = given.target.data;
    rows.rows = limits.requests * (limits.block_size + 1);
    rows.stride = given.target.stride;
    rows.first_rows = memory.first_rows;
    rows.edits = memory.edits;
    rows.bitmask = reinterpret_cast<std::uint32_t const*>(call.edits.bitmask);
    rows.bitmask_stride = call.edits.bitmask_stride;
    if (error == cudaSuccess) error = accept<Rule>(rows, drafts, memory.verification, memory.round, stream);
    if (error == cudaSuccess) error = launch(detail::give_arrays<>, blocks, threads, 0, stream, call.out, memory);
    verified_arrays const& out = call.out;
    bool const logs = out.log_probabilities && memory.limits.raw;
    bool const reports = logs || out.ranks || out.top_tokens || out.top_log_probabilities;
    if (reports && error == cudaSuccess) {
        error = launch(detail::report_tokens<engine_rows<T, edited>>, processors * detail::verification_residency,
                       verification_threads, sizeof(token_report_shared), stream, rows, out, memory);
    }
    return error;
}

}  // namespace cuda
SURELEAP_END_NAMESPACE

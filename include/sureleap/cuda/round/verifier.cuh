// SPDX-License-Identifier: MIT
//
// Verification alone on the device, for an engine that drafts and scores by itself: its arrays go in, what it emits
// comes out. verifier (verifier.hpp) is the same on the host, over the same engine_arrays.
//
//     take_arrays    requests and drafts as columns of a round (verify/take_arrays.cuh)
//     mark_seen      which tokens penalties change; if the call has edits
//     weigh_drafts   what drafts were drawn from, from rows of q; if there are any (verify/weigh_drafts.cuh)
//     accept         (accept.cuh)
//     give_arrays    verdicts as the engine's arrays
//     report_tokens  ranks, and the likeliest tokens; if they are wanted
#pragma once

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
#include <sureleap/cuda/round/accept.cuh>
#include <sureleap/cuda/sampling/draw.cuh>
#include <sureleap/cuda/sampling/row.cuh>
#include <sureleap/cuda/verify/draft_rows.cuh>
#include <sureleap/cuda/verify/engine_rows.cuh>
#include <sureleap/cuda/verify/take_arrays.cuh>
#include <sureleap/cuda/verify/token_report.cuh>
#include <sureleap/cuda/verify/verifier_memory.cuh>
#include <sureleap/cuda/verify/weigh_drafts.cuh>
#include <sureleap/verify/array_edits.hpp>
#include <sureleap/verify/engine_arrays.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

namespace detail {

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
    status drafted = round.drafts.statuses[r];
    for (std::uint32_t k = 0; k < round.drafts.sizes[r]; ++k) {  // what its q excludes
        double const q = round.drafts.token_probabilities[static_cast<std::size_t>(r) * (width - 1) + k];
        if (!(q > 0.0)) drafted = status::invalid_draft;
    }
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
/// Reads the target's rows as accept does, and a row of q once for each draft. Rows of logits of all tokens are read in
/// the same pass, or not at all if their normalisers are given. cudaErrorInvalidValue, before anything is launched, if
/// the arrays do not fit the memory.
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
    drafts.found = memory.found;
    bool const read_one_by_one = drafts.probabilities || drafts.listed;
    if (given.q.rows != nullptr && !read_one_by_one && !detail::is_normalised(given, memory)) {
        drafts.draft_weights = memory.draft_weights;
        drafts.draft_upto = memory.draft_upto;
    }
    if (given.q.rows != nullptr && read_one_by_one && error == cudaSuccess) {
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

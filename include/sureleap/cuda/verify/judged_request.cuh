// SPDX-License-Identifier: MIT
//
// One request whose drafts are judged, as it stands in the arrays of a round. In: the round and the memory of the
// verification. Out: its tokens, its target rows, what was recorded of its drafts, and the names of its draws. It also
// writes the verdict.
//
// Positions k count from the anchor: row k of the target is the distribution of the token behind k drafted ones. Where
// drafts are trees (tree/match.cuh) k is the number of a node instead, and DraftRows says how nodes follow each other.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/distribution.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/sampling/draw.cuh>
#include <sureleap/cuda/sampling/gumbel_max.cuh>
#include <sureleap/cuda/sampling/row.cuh>
#include <sureleap/cuda/verify/memory.cuh>
#include <sureleap/sampling/draw_key.hpp>
#include <sureleap/sampling/random.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// All that the kernels of a verification are told.
template <class T, class DraftRows>
struct verify_task {
    logits_rows<T> rows;
    DraftRows drafts;
    verify_memory memory;
    device_round round;
};

/// Request r of a round. Functions may be called by any thread unless they say otherwise.
template <class T, class DraftRows>
class judged_request {
public:
    static constexpr bool is_tree = requires(DraftRows const& drafts) { drafts.on_path(0u, 0u); };

    __device__ judged_request(verify_task<T, DraftRows> const& task, std::uint32_t r)
        : task_(task), r_(r), length_(task.round.batch.lengths[r]) {}

    [[nodiscard]] __device__ std::uint32_t request() const { return r_; }
    /// l, and x_1 .. x_l.
    [[nodiscard]] __device__ std::uint32_t length() const { return length_; }
    [[nodiscard]] __device__ token_id token(std::uint32_t k) const {
        return task_.round.batch.tokens[first_row() + k + 1];
    }
    /// Of x_k, or no_token behind the block; of a tree what the first child has.
    [[nodiscard]] __device__ token_id token_or_none(std::uint32_t k) const {
        if constexpr (is_tree) {
            std::int32_t const child = task_.drafts.first_child(r_, k);
            return child < 0 ? no_token : token(static_cast<std::uint32_t>(child) - 1);
        } else {
            return k < length_ ? token(k) : no_token;
        }
    }
    /// q_k as recorded when x_k was drawn, and what it gave x_k.
    [[nodiscard]] __device__ distribution const& drafted_from(std::uint32_t k) const {
        return task_.round.drafts.distributions[draft(k)];
    }
    [[nodiscard]] __device__ double drafted_with(std::uint32_t k) const {
        return task_.round.drafts.token_probabilities[draft(k)];
    }
    /// Of a row that is complete.
    [[nodiscard]] __device__ target_row& target(std::uint32_t k) const { return memory().targets[memory().row(r_, k)]; }
    [[nodiscard]] __device__ T const* row(std::uint32_t k) const { return task_.rows.row(first_row() + k); }
    [[nodiscard]] __device__ double* upto(std::uint32_t k) const { return memory().upto + block_index(k); }
    [[nodiscard]] __device__ block_weight* weights(std::uint32_t k) const { return memory().weights + block_index(k); }
    [[nodiscard]] __device__ gumbel_winner* winners(std::uint32_t k) const { return memory().winners + block_index(k); }
    [[nodiscard]] __device__ std::uint32_t vocabulary() const { return memory().limits.vocabulary; }
    [[nodiscard]] __device__ std::uint32_t blocks() const { return memory().blocks(); }
    /// p_1 .. p_l of block verification.
    [[nodiscard]] __device__ double* joint() const {
        return memory().joint + static_cast<std::size_t>(r_) * memory().limits.block_size;
    }
    [[nodiscard]] __device__ transform const& target_transform() const { return task_.round.requests.targets[r_]; }

    [[nodiscard]] __device__ draw_key key(std::uint32_t k, purpose use) const {
        return block_key(task_.round.requests, r_, k, use);
    }
    /// Of the token behind row k, by its position alone: rows of a tree that are as deep share it.
    [[nodiscard]] __device__ draw_key noise(std::uint32_t k) const {
        std::uint32_t behind = k;
        if constexpr (is_tree) behind = task_.drafts.depth(r_, k);
        return noise_key(task_.round.requests, r_, behind);
    }
    /// The row behind j accepted tokens.
    [[nodiscard]] __device__ std::uint32_t accepted_row(std::uint32_t j) const {
        if constexpr (is_tree) {
            return task_.drafts.on_path(r_, j);
        } else {
            return j;
        }
    }
    [[nodiscard]] __device__ DraftRows const& drafts() const { return task_.drafts; }
    [[nodiscard]] __device__ std::uint32_t first_row() const {
        return static_cast<std::uint32_t>(task_.round.batch.offsets[r_]);
    }
    [[nodiscard]] __device__ verify_memory const& memory() const { return task_.memory; }
    /// A producer's normaliser is all that is needed of the request's rows.
    [[nodiscard]] __device__ bool is_taken() const {
        return task_.rows.are_normalised(target_transform(), first_row(), first_row() + length_);
    }

    // ---- verdicts ----------------------------------------------------------------------------------------------

    /// BLOCK collective: emits the accepted tokens and `last`, or up to the first stop token of these; nothing if `last` is none.
    /// What is behind the end of the text counts as not accepted.
    __device__ void emit(std::uint32_t accepted, token_id last) const {
        if (last == no_token) return refuse();
        if (warp_index() != 0) return;
        verdict_columns const& verdicts = task_.round.verdicts;
        bool const emits = lane_index() <= accepted;
        token_id x = last;
        if (lane_index() < accepted) x = token(accepted_row(lane_index() + 1) - 1);
        if (!emits) x = no_token;
        unsigned const stopping = __ballot_sync(all_lanes, task_.round.stops_at(r_, x));
        std::uint32_t const count =
            stopping != 0 ? static_cast<std::uint32_t>(__ffs(static_cast<int>(stopping))) : accepted + 1;
        std::uint32_t const at = r_ * (task_.round.limits.block_size + 1) + lane_index();
        if (lane_index() < count) verdicts.tokens[at] = x;
        for (std::uint32_t j = 0; verdicts.log_probabilities != nullptr && j < count; ++j) {
            double const log_p = log_probability(accepted_row(j), __shfl_sync(all_lanes, x, static_cast<int>(j)));
            if (lane_index() == j) verdicts.log_probabilities[at] = log_p;
        }
        if (lane_index() == 0) {
            verdicts.statuses[r_] = status::ok;
            verdicts.accepted[r_] = accepted < count ? accepted : count;
            verdicts.emitted[r_] = count;
            verdicts.stopped[r_] = stopping != 0 ? 1 : 0;
        }
    }
    /// WARP collective: of x behind row k. At temperature 0 of the row at temperature 1.
    [[nodiscard]] __device__ double log_probability(std::uint32_t k, token_id x) const {
        distribution const& p = target(k).p;
        if (x == no_token) return -static_cast<double>(infinity);
        if (!p.is_one_hot()) return log_probability_of(p, row(k), x);
        distribution level{};
        level.shift = load(row(k)[p.mode]);
        level.scale = 1.0f;
        double sum = 0.0;
        for (std::uint32_t b = 0; b < blocks(); ++b) sum += sum_block(row(k), vocabulary(), b, level);
        return -log(sum);
    }
    /// One thread of those that call: a row holds no distribution, and nothing is emitted.
    __device__ void refuse() const { end_without_tokens(status::invalid_target); }
    /// Likewise: there is nothing to judge. Drafts that failed or that nobody wants say so; a batch that does not fit is none.
    __device__ void refuse_undrafted() const {
        status const drafted = task_.round.drafts.statuses[r_];
        bool const ended = task_.round.requests.remaining[r_] == 0;
        bool const fails = drafted != status::ok && !is_draft_failure(drafted);
        end_without_tokens(fails ? drafted : ended ? status::ok : status::invalid_target);
    }

    // ---- distributions of rows --------------------------------------------------------------------------------------

    /// What the drafted token has in row k; anything behind the block.
    [[nodiscard]] __device__ float drafted_logit(std::uint32_t k) const {
        token_id const x = token_or_none(k);
        return x != no_token ? load(row(k)[x]) : 0.0f;
    }
    /// The distribution of row k that `made` is, unless the text has ended before: then there is none to read, and a
    /// rule that draws there gets the stop token once more, which nobody emits.
    [[nodiscard]] __device__ distribution unless_ended(std::uint32_t k, distribution const& made) const {
        return k > 0 && task_.round.stops_at(r_, token(k - 1)) ? distribution::one_hot(token(k - 1)) : made;
    }
    /// One thread, once the row is complete: what rules will ask of it. `drafted`: drafted_logit(k).
    __device__ void store(std::uint32_t k, distribution const& made, token_id choice, float drafted) const {
        distribution const p = unless_ended(k, made);
        if (k > 0 && task_.round.stops_at(r_, token(k - 1))) choice = token(k - 1);
        double kept = 0.0;
        token_id const x = token_or_none(k);
        if (p.valid() && x != no_token) {
            kept = p.is_one_hot() ? (x == p.mode ? 1.0 : 0.0) : static_cast<double>(p.weight(drafted, x)) / p.total;
        }
        target(k) = {p, kept, choice};
    }
    /// A producer's normaliser made the distribution of this row without a pass: exp(l - log_normaliser) is p itself.
    [[nodiscard]] __device__ distribution take_distribution(std::uint32_t k) const {
        distribution p{};
        p.shift = rows().log_normalisers[first_row() + k];
        p.scale = 1.0f;
        p.total = 1.0;
        p.kind = p.shift > -infinity && p.shift < infinity ? distribution_kind::dense : distribution_kind::invalid;
        return p;
    }
    /// WARP collective: a token of p by the draw of that name; its sums must be there.
    [[nodiscard]] __device__ token_id draw_by_warp(std::uint32_t k, distribution const& p, draw_key const& name) const {
        // What rounding block sums and a normaliser is of them: distribution's given_room.
        bool const given = rows().block_sums != nullptr && is_taken();
        double const room =
            given ? block_room + (4.0 + 2.0 * fabs(static_cast<double>(p.shift))) * 0x1p-24 : block_room;
        return draw_token(row(k), vocabulary(), p, upto(k), uniform(name), room);
    }

protected:
    /// Of all requests.
    [[nodiscard]] __device__ logits_rows<T> const& rows() const { return task_.rows; }

private:
    __device__ void end_without_tokens(status why) const {
        if (threadIdx.x != 0) return;
        verdict_columns const& out = task_.round.verdicts;
        out.statuses[r_] = why;
        out.accepted[r_] = 0;
        out.emitted[r_] = 0;
        out.stopped[r_] = 0;
    }
    [[nodiscard]] __device__ std::size_t draft(std::uint32_t k) const {
        return static_cast<std::size_t>(r_) * memory().limits.block_size + k;
    }
    [[nodiscard]] __device__ std::size_t block_index(std::uint32_t k) const {
        return static_cast<std::size_t>(memory().row(r_, k)) * blocks();
    }

    verify_task<T, DraftRows> const& task_;
    std::uint32_t r_;
    std::uint32_t length_;
};

}  // namespace cuda
SURELEAP_END_NAMESPACE

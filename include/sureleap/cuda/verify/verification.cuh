// SPDX-License-Identifier: MIT
//
// What an acceptance rule sees of one request on the device: the drafted tokens, the laws of target rows that are
// complete, draws and corrections. It does what the host's verification.hpp and residual.hpp do, with the same keys and
// the same order of decisions.
//
// A whole block of threads shares the work of a correction. Proposals are independent keyed draws, so every warp makes
// one. The first in order that is taken or rejects decides, as on the host. Proposals behind that one are ignored.
//
// All functions are BLOCK collectives, results are the same in all threads, and shared scratch is free again when they return,
// unless they say otherwise.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/distribution.cuh>
#include <sureleap/cuda/sampling/draw.cuh>
#include <sureleap/cuda/sampling/row.cuh>
#include <sureleap/cuda/verify/memory.cuh>
#include <sureleap/sampling/draw_key.hpp>
#include <sureleap/sampling/random.hpp>
#include <sureleap/verify/residual.hpp>

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

struct verification_shared {
    float drafted[block_tokens];  ///< weights of q
    double sums[verification_warps];
    double total;
    token_id outcomes[verification_warps];
    token_id chosen;
};

/// A rejected draft token, where no_token says that nothing is settled yet.
inline constexpr token_id rejected_token = -2;

/// A block may make a pass over so many blocks of a row by itself as soon as it would wait for others.
inline constexpr std::uint32_t short_row_blocks = 4;

template <class T, class DraftRows>
class verification {
public:
    /// `stage`: the next kernel that makes passes; pass_stages if there is none.
    __device__ verification(verify_task<T, DraftRows> const& task, verification_shared& s, std::uint32_t r,
                            std::uint32_t stage)
        : task_(task), s_(s), r_(r), stage_(stage), length_(task.round.batch.lengths[r]) {}

    [[nodiscard]] __device__ std::uint32_t request() const { return r_; }
    /// l, and x_1 .. x_l.
    [[nodiscard]] __device__ std::uint32_t length() const { return length_; }
    [[nodiscard]] __device__ token_id token(std::uint32_t k) const {
        return task_.round.batch.tokens[first_row() + k + 1];
    }
    /// Of x_k, or no_token behind the block.
    [[nodiscard]] __device__ token_id token_or_none(std::uint32_t k) const { return k < length_ ? token(k) : no_token; }
    /// q_k as recorded when x_k was drawn, and what it gave x_k.
    [[nodiscard]] __device__ law const& drafted_from(std::uint32_t k) const {
        return task_.round.drafts.laws[draft(k)];
    }
    [[nodiscard]] __device__ double drafted_with(std::uint32_t k) const {
        return task_.round.drafts.token_probabilities[draft(k)];
    }
    /// Of a row that is complete.
    [[nodiscard]] __device__ target_row& target(std::uint32_t k) const { return memory().targets[memory().row(r_, k)]; }
    [[nodiscard]] __device__ T const* row(std::uint32_t k) const { return task_.rows.row(first_row() + k); }
    [[nodiscard]] __device__ double* upto(std::uint32_t k) const { return memory().upto + block_index(k); }
    [[nodiscard]] __device__ block_weight* weights(std::uint32_t k) const { return memory().weights + block_index(k); }
    [[nodiscard]] __device__ gumbel_winner* winners(std::uint32_t k) const {
        return memory().winners + static_cast<std::size_t>(memory().row(r_, k)) * memory().gumbel_parts();
    }
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
    [[nodiscard]] __device__ draw_key noise(std::uint32_t k) const { return noise_key(task_.round.requests, r_, k); }

    // ---- draws from p ------------------------------------------------------------------------------------------

    /// A producer's normaliser made the law of this row without a pass: exp(l - log_normaliser) is p itself.
    [[nodiscard]] __device__ law take_law(std::uint32_t k) const {
        law p{};
        p.shift = task_.rows.log_normalisers[first_row() + k];
        p.scale = 1.0f;
        p.total = 1.0;
        p.kind = p.shift > -infinity && p.shift < infinity ? law_kind::dense : law_kind::invalid;
        return p;
    }
    /// BLOCK collective: a law that was taken, with the cumulative sums that draws look at and with its total, which is their
    /// sum: what a normaliser is off by is no token's. Block sums that do not add up to 1 are not used. No law if there is
    /// no sum. Nothing else has the sums: a row that is not drawn from needs none.
    [[nodiscard]] __device__ law sum_taken(std::uint32_t k, law p) {
        double total = 0.0;
        if (task_.rows.block_sums != nullptr) {
            float const* const sums = task_.rows.block_sums + static_cast<std::size_t>(first_row() + k) * blocks();
            if (warp_index() == 0) {
                double const sum =
                    sum_in_order(blocks(), upto(k), [&](std::uint32_t b) { return static_cast<double>(sums[b]); });
                if (lane_index() == 0) s_.total = sum;
            }
            __syncthreads();
            total = s_.total;
        }
        if (!(fabs(total - 1.0) <= normaliser_tolerance)) {
            total = sum_blocks(k, p, [](std::uint32_t) { return true; });
        }
        p.total = total;
        if (!(total > 0.0 && total < static_cast<double>(infinity))) p.kind = law_kind::invalid;
        return p;
    }
    /// The cumulative sums of a law by a pass over the row, but for blocks that may_weigh(b) says have no weight; returns
    /// the total.
    template <class MayWeigh>
    [[nodiscard]] __device__ double sum_blocks(std::uint32_t k, law const& p, MayWeigh const& may_weigh) {
        double* const sums = upto(k);
        for (std::uint32_t b = warp_index(); b < blocks(); b += verification_warps) {
            double const sum = may_weigh(b) ? sum_block(row(k), vocabulary(), b, p) : 0.0;
            if (lane_index() == 0) sums[b] = sum;
        }
        __syncthreads();
        if (warp_index() == 0) {
            double const total = sum_in_order(blocks(), sums, [&](std::uint32_t b) { return sums[b]; });
            if (lane_index() == 0) s_.total = total;
        }
        __syncthreads();
        double const total = s_.total;
        __syncthreads();  // no mutant: there is a barrier before the next total as well
        return total;
    }
    /// A token of law p of row k, by the draw of that name.
    [[nodiscard]] __device__ token_id draw(std::uint32_t k, draw_key const& name) {
        prepare_draw(k);
        return chosen_by_first_warp([&] { return draw_by_warp(k, target(k).p, name); });
    }

    // ---- corrections -------------------------------------------------------------------------------------------

    /// The correction at position k, or its pass is on the way: a token with probability max(p - q, 0) / its mass
    /// (draw_residual). Ends the request, now or then.
    __device__ void correct(std::uint32_t k) {
        prepare_draw(k);
        law const p = target(k).p;
        draw_key const name = key(k, purpose::residual);
        // All of a one-hot law that is left once anything is taken out of it is its token.
        token_id y = p.is_one_hot() ? p.mode : no_token;
        if (y == no_token && blocks() > 1) {
            y = first_settled(residual_proposals, [&](std::uint32_t i) { return propose(k, p, 1.0, name, i << 16); });
        }
        double mass = 0.0;
        if (y == no_token) {
            if (!pass({k, 0, 1.0}, mass)) return;
            y = draw_left({k, 0, 1.0}, mass);
        }
        emit(k, y);
    }
    /// Block verification's test of a prefix of k tokens that survives with probability `scale` < 1, and the correction
    /// behind it (correct_or_reject): a token, rejected_token, or no_token if its pass is on the way.
    [[nodiscard]] __device__ token_id correct_or_reject(std::uint32_t k, double scale) {
        prepare_draw(k);
        law const p = target(k).p;
        if (blocks() > 1) {
            draw_key const test = key(k - 1, purpose::accept);
            draw_key const name = key(k, purpose::residual);
            token_id const y = first_settled(judging_proposals, [&](std::uint32_t i) {
                std::uint32_t const turn = 8 * i << 16;
                draw_key named = test;
                named.index |= turn;
                return accepts(uniform(named), scale, 1.0) ? propose(k, p, scale, name, turn) : rejected_token;
            });
            if (y != no_token) return y;
        }
        double mass = 0.0;
        residual_pass const how{k, 1, scale};
        return pass(how, mass) ? judge_by_mass(how, mass) : no_token;
    }
    /// What correct_or_reject was open about, once the mass of max(scale p - q, 0) is known: a token or rejected_token.
    [[nodiscard]] __device__ token_id judge_by_mass(residual_pass const& how, double mass) {
        draw_key last = key(how.position - 1, purpose::accept);
        if (blocks() > 1) last.index |= 1u << 16;
        bool const corrects = accepts(uniform(last), mass, mass + (1.0 - how.scale));
        token_id const y = corrects ? draw_left(how, mass) : rejected_token;
        return y == no_token ? rejected_token : y;
    }
    /// A token of the law max(scale p - q, 0), whose blocks' masses are known. No mass left means p = q up to rounding,
    /// where rejection can round into existence: then p itself is the law.
    [[nodiscard]] __device__ token_id draw_left(residual_pass const& how, double mass) {
        std::uint32_t const k = how.position;
        draw_key const name = key(k, purpose::residual);
        if (mass > 0.0) {
            double const threshold = uniform(name) * mass;
            double const* const masses = left();
            std::uint32_t const b = find_block(masses, blocks(), threshold);
            remainder const of = remainder_of(how);
            weigh_draft(k, b);
            token_id const y = chosen_by_first_warp([&] {
                std::uint32_t const place = find_place<4>(
                    0, b == 0 ? 0.0 : masses[b - 1], threshold,
                    [&](unsigned i, unsigned e) { return left_of(of, b, (i * warp_size + lane_index()) * 4 + e); });
                return place == no_place ? no_token : static_cast<token_id>(b * block_tokens + place);
            });
            if (y != no_token) return y;
        }
        return draw(k, name);
    }
    /// One block of a pass: its mass, stored.
    __device__ void pass_block(residual_pass const& how, std::uint32_t b) {
        remainder const of = remainder_of(how);
        weigh_draft(how.position, b);
        double sum = 0.0;
        for (std::uint32_t i = threadIdx.x; i < block_tokens; i += verification_threads) sum += left_of(of, b, i);
        sum = warp_sum(sum);
        if (lane_index() == 0) s_.sums[warp_index()] = sum;
        __syncthreads();
        if (threadIdx.x == 0) {
            double mass = 0.0;
            for (double const part : s_.sums) mass += part;
            left()[b] = mass;
        }
        __syncthreads();
    }
    /// The whole mass, of a pass all of whose blocks are done; makes their masses cumulative.
    [[nodiscard]] __device__ double total_mass() {
        double* const masses = left();
        if (warp_index() == 0) {
            double const total = sum_in_order(blocks(), masses, [&](std::uint32_t b) { return masses[b]; });
            if (lane_index() == 0) s_.total = total;
        }
        __syncthreads();
        double const total = s_.total;
        __syncthreads();  // no mutant: there is a barrier before the next total as well
        return total;
    }

    // ---- verdicts ----------------------------------------------------------------------------------------------

    /// Emits x_1 .. x_accepted and `last`, or up to the first stop token of these; nothing if `last` is none.
    __device__ void emit(std::uint32_t accepted, token_id last) {
        if (last == no_token) return refuse();
        if (warp_index() != 0) return;
        std::uint32_t const most_stops = memory().limits.stop_tokens;
        verdict_columns const& verdicts = task_.round.verdicts;
        bool const emits = lane_index() <= accepted;
        token_id const x = !emits ? no_token : lane_index() == accepted ? last : token(lane_index());
        bool stops = false;
        for (std::uint32_t i = 0; i < most_stops; ++i) {
            token_id const stop = task_.round.requests.stop_tokens[static_cast<std::size_t>(r_) * most_stops + i];
            stops |= x != no_token && x == stop;
        }
        unsigned const stopping = __ballot_sync(all_lanes, stops);
        std::uint32_t const count =
            stopping != 0 ? static_cast<std::uint32_t>(__ffs(static_cast<int>(stopping))) : accepted + 1;
        std::uint32_t const at = memory().row(r_, lane_index());
        if (lane_index() < count) {
            verdicts.tokens[at] = x;
            if (verdicts.log_probabilities != nullptr) {
                verdicts.log_probabilities[at] = x == no_token
                                                     ? -static_cast<double>(infinity)
                                                     : log_probability_of(target(lane_index()).p, row(lane_index()), x);
            }
        }
        if (lane_index() == 0) {
            verdicts.statuses[r_] = status::ok;
            verdicts.accepted[r_] = accepted;
            verdicts.emitted[r_] = count;
            verdicts.stopped[r_] = stopping != 0 ? 1 : 0;
        }
    }
    /// A row holds no law: nothing is emitted.
    __device__ void refuse() {
        if (threadIdx.x != 0) return;
        verdict_columns const& out = task_.round.verdicts;
        out.statuses[r_] = status::invalid_target;
        out.accepted[r_] = 0;
        out.emitted[r_] = 0;
        out.stopped[r_] = 0;
    }

    /// One thread, once the row is complete: what rules will ask of it.
    __device__ void store(std::uint32_t k, law const& p, token_id choice) const {
        double const kept = p.valid() && k < length_ ? probability_of(p, row(k), token(k)) : 0.0;
        target(k) = {p, kept, choice};
    }
    /// WARP collective: a token of p by the draw of that name; its sums must be there.
    [[nodiscard]] __device__ token_id draw_by_warp(std::uint32_t k, law const& p, draw_key const& name) const {
        // What rounding block sums and a normaliser is of them: distribution's given_room.
        bool const given = task_.rows.block_sums != nullptr && is_taken();
        double const room =
            given ? block_room + (4.0 + 2.0 * fabs(static_cast<double>(p.shift))) * 0x1p-24 : block_room;
        return draw_token(row(k), vocabulary(), p, upto(k), uniform(name), room);
    }

    [[nodiscard]] __device__ verify_memory const& memory() const { return task_.memory; }
    /// A producer's normaliser is all that is needed of the request's rows.
    [[nodiscard]] __device__ bool is_taken() const { return task_.rows.are_normalised(target_transform()); }

private:
    [[nodiscard]] __device__ std::uint32_t first_row() const {
        return static_cast<std::uint32_t>(task_.round.batch.offsets[r_]);
    }
    [[nodiscard]] __device__ std::size_t draft(std::uint32_t k) const {
        return static_cast<std::size_t>(r_) * memory().limits.block_size + k;
    }
    [[nodiscard]] __device__ std::size_t block_index(std::uint32_t k) const {
        return static_cast<std::size_t>(memory().row(r_, k)) * blocks();
    }
    [[nodiscard]] __device__ double* left() const { return memory().left + static_cast<std::size_t>(r_) * blocks(); }
    __device__ void prepare_draw(std::uint32_t k) {
        if (!is_taken() || !target(k).p.valid()) return;
        law const p = sum_taken(k, target(k).p);  // with a barrier: all have read the law that is replaced
        if (threadIdx.x == 0) target(k).p = p;
        __syncthreads();
    }
    /// The token that the first warp finds, in all threads.
    template <class Find>
    [[nodiscard]] __device__ token_id chosen_by_first_warp(Find const& find) {
        if (warp_index() == 0) {
            token_id const y = find();
            if (lane_index() == 0) s_.chosen = y;
        }
        __syncthreads();
        token_id const y = s_.chosen;
        __syncthreads();  // no mutant: two choices in a row take a draw that rounding left with nothing
        return y;
    }
    /// try_to(0), try_to(1) ..., a warp each: the first that is not no_token, which is what they return if none is.
    template <class Try>
    [[nodiscard]] __device__ token_id first_settled(std::uint32_t count, Try const& try_to) {
        static_assert(residual_proposals % verification_warps == 0 && judging_proposals % verification_warps == 0);
        token_id settled = no_token;
        for (std::uint32_t first = 0; first < count && settled == no_token; first += verification_warps) {
            token_id const y = try_to(first + warp_index());
            if (lane_index() == 0) s_.outcomes[warp_index()] = y;
            __syncthreads();
            for (unsigned w = verification_warps; w-- > 0;) {
                if (s_.outcomes[w] != no_token) settled = s_.outcomes[w];
            }
            __syncthreads();
        }
        return settled;
    }
    /// WARP collective: y ~ p, if it is the correction, which it is with probability max(1 - q(y) / (scale p(y)), 0).
    [[nodiscard]] __device__ token_id propose(std::uint32_t k, law const& p, double scale, draw_key name,
                                              std::uint32_t attempt) const {
        name.index |= attempt;
        name.use = purpose::proposal;
        token_id const y = draw_by_warp(k, p, name);
        if (y == no_token) return no_token;
        law const& q = drafted_from(k);
        double const drafted = q.is_one_hot() ? (y == q.mode ? 1.0 : 0.0)
                                              : static_cast<double>(task_.drafts.weight(r_, k, q, y)) / q.total;
        double const survives = scale * probability_of(p, row(k), y);
        name.use = purpose::proposal_accept;
        return accepts(uniform(name), fmax(survives - drafted, 0.0), survives) ? y : no_token;
    }
    /// Weights of q of a block, for all to read.
    __device__ void weigh_draft(std::uint32_t k, std::uint32_t b) {
        law const& q = drafted_from(k);
        if (q.is_one_hot()) {
            for (std::uint32_t i = threadIdx.x; i < block_tokens; i += verification_threads) {
                s_.drafted[i] = b * block_tokens + i == static_cast<std::uint32_t>(q.mode) ? 1.0f : 0.0f;
            }
        } else {
            task_.drafts.weights(r_, k, q, b, s_.drafted);
        }
        __syncthreads();
    }
    /// max(scale p - q, 0), in units of p's weights, of which q's are a fixed multiple: exactly 0 where both are the same.
    struct remainder {
        law p;
        T const* row;
        double ratio;
        double factor;
    };
    [[nodiscard]] __device__ remainder remainder_of(residual_pass const& how) const {
        law const p = target(how.position).p;
        return {p, row(how.position), p.total / (drafted_from(how.position).total * how.scale), how.scale / p.total};
    }
    /// Of token i of the block whose drafted weights are there.
    [[nodiscard]] __device__ double left_of(remainder const& of, std::uint32_t b, std::uint32_t i) const {
        std::uint32_t const v = b * block_tokens + i;
        if (v >= vocabulary()) return 0.0;
        double const difference = static_cast<double>(weight_of(of.p, of.row, static_cast<token_id>(v))) -
                                  static_cast<double>(s_.drafted[i]) * of.ratio;
        return difference > 0.0 ? difference * of.factor : 0.0;
    }
    /// Makes the pass, or lets many blocks make it and returns false: the request is resumed when they have.
    [[nodiscard]] __device__ bool pass(residual_pass const& how, double& mass) {
        if (blocks() <= short_row_blocks || stage_ == pass_stages) {
            for (std::uint32_t b = 0; b < blocks(); ++b) pass_block(how, b);
            mass = total_mass();
            return true;
        }
        if (threadIdx.x == 0) {
            memory().passes[r_] = how;
            memory().pass_blocks[r_] = 0;
            std::uint32_t const place = atomicAdd(&memory().counters->waiting[stage_], 1u);
            memory().queues[stage_ * memory().limits.requests + place] = r_;
        }
        return false;
    }

    verify_task<T, DraftRows> const& task_;
    verification_shared& s_;
    std::uint32_t r_;
    std::uint32_t stage_;
    std::uint32_t length_;
};

}  // namespace cuda
SURELEAP_END_NAMESPACE

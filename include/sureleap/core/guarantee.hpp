// SPDX-License-Identifier: MIT
//
// What an acceptance rule promises, what a scheduler may look at, and which pairs keep the target's law.
//
// A round is lossless when the committed tokens have exactly the law of plain autoregressive decoding, given the
// target's logits. Whether it is depends on two parts that do not know each other: the acceptance rule (fidelity) and
// the schedule of verify lengths (causality). Both declare what they are; is_lossless_v joins them where they meet.
#pragma once

#include <type_traits>

#include <sureleap/core/config.hpp>

SURELEAP_BEGIN_NAMESPACE

/// How much of the target's law an acceptance rule keeps, weakest first; every level includes the ones before.
enum class fidelity : unsigned char {
    lossy,               ///< the law of the output is not the target's
    distribution,        ///< exact, provided {l >= k+1} depends on x_1..x_k only (a non-anticipating schedule)
    schedule_invariant,  ///< exact under any schedule
    pathwise,            ///< besides, each output token is a function of the target row and of position-keyed noise:
                         ///< the stream is the same for any schedule, drafter and batch
};

/// What a schedule knows of a block when it decides whether position k is verified.
enum class causality : unsigned char {
    anticipating,      ///< possibly x_{k+1} or later tokens, of this or of another request
    non_anticipating,  ///< x_1..x_k of each request at most, all requests following one order of reveal
};

/// Opt-in for a schedule that is handed a whole table and yet decides without looking ahead. Schedulers that only see
/// the causal_frontier, and planners that only see tables from before the block, need none: their signature is the
/// proof. Specialise to true only with a proof in hand; the tests of losslessness show how a mistake looks.
template <class Schedule>
inline constexpr bool enable_non_anticipating = false;

// ---- how a draft token is drawn from q -------------------------------------------------------------------------

// noise_returns: a position that is drafted again meets the noise of the first time.

/// x_k ~ q_k, keyed by (seed, anchor position, k).
struct categorical_draft {
    static constexpr bool is_deterministic = false;
    static constexpr bool noise_returns = false;
};
/// x_k = argmax q_k; the recorded q is one-hot at x_k, because that is what was sampled from.
struct argmax_draft {
    static constexpr bool is_deterministic = true;
    static constexpr bool noise_returns = false;
};
/// x_k = the winner of the exponential race (Gumbel-max) over q_k with the noise of its absolute position: the same
/// noise the target's token is chosen with.
///
/// For rules whose output does not depend on the draft (fidelity::pathwise). A rule that samples would judge such a
/// token by what earlier rounds let through: block verification is biased by it (total variation 0.042 seen), token
/// rejection under a schedule that reads the confidences of past rounds.
struct coupled_draft {
    static constexpr bool is_deterministic = false;
    static constexpr bool noise_returns = true;
};

/// How a block was drawn, as a value: a token remembers it, and a rule is given no others.
enum class drawn_by : unsigned char { any, categorical, argmax, coupled };
template <class DraftRule>
inline constexpr drawn_by drawn_by_v = std::is_same_v<DraftRule, categorical_draft> ? drawn_by::categorical
                                       : std::is_same_v<DraftRule, argmax_draft>    ? drawn_by::argmax
                                       : std::is_same_v<DraftRule, coupled_draft>   ? drawn_by::coupled
                                                                                    : drawn_by::any;

/// What an acceptance rule reads of the recorded q.
enum class q_access : unsigned char {
    none,  ///< nothing but the drafted tokens: rows of q are not kept
    row,   ///< q_k(v) for any v: the residual needs it
};

// ---- what goes with what ---------------------------------------------------------------------------------------

struct allow_lossy_t {
    explicit constexpr allow_lossy_t() = default;
};
/// Passed to a decoder to accept a combination whose output does not have the target's law. The only way out, and easy
/// to grep for.
inline constexpr allow_lossy_t allow_lossy{};

/// True when a rule of fidelity F under a schedule of causality C keeps the target's law. A deterministic draft is a
/// constant given the past, so no schedule can anticipate anything by looking at it. Where noise returns, a sampled
/// token depends on what earlier rounds decided about it. Only rules that do not depend on the draft are exact then.
[[nodiscard]] constexpr bool is_lossless(fidelity f, causality c, bool deterministic_draft,
                                         bool noise_returns = false) noexcept {
    return f == fidelity::schedule_invariant || f == fidelity::pathwise ||
           (f == fidelity::distribution &&
            (deterministic_draft || (c == causality::non_anticipating && !noise_returns)));
}
/// is_lossless(F, C, DeterministicDraft, NoiseReturns) as a constant.
template <fidelity F, causality C, bool DeterministicDraft, bool NoiseReturns = false>
inline constexpr bool is_lossless_v = is_lossless(F, C, DeterministicDraft, NoiseReturns);

SURELEAP_END_NAMESPACE

// SPDX-License-Identifier: MIT
//
// The words of the library as types: tokens, storage formats, views, sampling settings, requests, statuses.
//
// Indices: 0-based in code. Position k of a block (k = 0 .. gamma-1) is the paper's k+1: draft token x_{k+1},
// drawn from q_{k+1}, given the anchor x_0 and x_1..x_k. Documentation uses the paper's 1-based names.
// p is the target, q the draft, everywhere.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <type_traits>

#include <sureleap/core/config.hpp>
#include <sureleap/core/function_ref.hpp>
#include <sureleap/core/pass.hpp>
#include <sureleap/core/token_mask.hpp>

SURELEAP_BEGIN_NAMESPACE

/// A token of a vocabulary: 0 .. V - 1.
using token_id = std::int32_t;
/// Names a request in every round that it takes part in. The user chooses it.
using request_id = std::uint64_t;

/// What stands where there is no token.
inline constexpr token_id no_token = -1;

/// A probability as a count of 2^-24: what schedules compute with, so that lengths come out the same everywhere.
using fixed_probability = std::uint32_t;
/// Probability 1.
inline constexpr fixed_probability certain = fixed_probability{1} << 24;

// ---- storage formats -------------------------------------------------------------------------------------------

namespace detail {
/// std::bit_cast, which device code may not call without a flag of its compiler.
template <class To, class From>
[[nodiscard]] SURELEAP_HOST_DEVICE constexpr To bits_as(From const& from) noexcept {
    static_assert(sizeof(To) == sizeof(From));
    return __builtin_bit_cast(To, from);
}
}  // namespace detail

/// bfloat16 storage: the upper half of a float. Arithmetic happens in float.
struct bf16 {
    std::uint16_t bits{};

    bf16() = default;
    /// Rounds to nearest, ties to even; a NaN stays a NaN.
    SURELEAP_HOST_DEVICE explicit bf16(float value) noexcept {
        auto const u = detail::bits_as<std::uint32_t>(value);
        bits = value != value ? static_cast<std::uint16_t>((u >> 16) | 0x40u)
                              : static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
    }
    SURELEAP_HOST_DEVICE explicit operator float() const noexcept {
        return detail::bits_as<float>(static_cast<std::uint32_t>(bits) << 16);
    }
};

/// IEEE binary16 storage. Arithmetic happens in float.
struct half {
    std::uint16_t bits{};

    half() = default;
    /// Rounds to nearest, ties to even; overflows to infinity; a NaN stays a NaN.
    SURELEAP_HOST_DEVICE explicit half(float value) noexcept;
    SURELEAP_HOST_DEVICE explicit operator float() const noexcept;
};

SURELEAP_HOST_DEVICE inline half::half(float value) noexcept {
    auto const u = detail::bits_as<std::uint32_t>(value);
    auto const sign = static_cast<std::uint16_t>((u >> 16) & 0x8000u);
    std::uint32_t const magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        bits = static_cast<std::uint16_t>(sign | 0x7e00u);
    } else if (magnitude >= 0x477ff000u) {  // 65520 and beyond round to infinity
        bits = static_cast<std::uint16_t>(sign | 0x7c00u);
    } else if (magnitude < 0x38800000u) {
        // Subnormal: adding 0.5 aligns the mantissa so that the addition itself rounds to multiples of 2^-24.
        float const aligned = detail::bits_as<float>(magnitude) + 0.5f;
        bits = static_cast<std::uint16_t>(sign | (detail::bits_as<std::uint32_t>(aligned) - 0x3f000000u));
    } else {
        std::uint32_t const rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
        bits = static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
    }
}

SURELEAP_HOST_DEVICE inline half::operator float() const noexcept {
    std::uint32_t const sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
    std::uint32_t const exponent = (bits >> 10) & 0x1fu;
    std::uint32_t const mantissa = bits & 0x3ffu;
    if (exponent == 0) {
        float const magnitude = static_cast<float>(mantissa) * 0x1p-24f;
        return detail::bits_as<float>(detail::bits_as<std::uint32_t>(magnitude) | sign);
    }
    std::uint32_t const widened = exponent == 31 ? 255u : exponent + 112u;
    return detail::bits_as<float>(sign | (widened << 23) | (mantissa << 13));
}

/// The type arithmetic on stored T happens in: double stays double, every other format becomes float.
template <class T>
using compute_t = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// The formats logits and weights may be stored in.
template <class T>
inline constexpr bool is_storage_v =
    std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, bf16> || std::is_same_v<T, half>;

/// A stored value in its compute type.
template <class T>
[[nodiscard]] SURELEAP_HOST_DEVICE inline compute_t<T> load(T const& stored) noexcept {
    return static_cast<compute_t<T>>(stored);
}

// ---- views -----------------------------------------------------------------------------------------------------

/// Row-major matrix that somebody else owns: rows x cols, row i starts at data + i * stride (elements).
template <class T>
struct matrix_view {
    T const* data = nullptr;
    std::size_t rows = 0;
    std::size_t cols = 0;
    std::size_t stride = 0;

    matrix_view() noexcept = default;
    matrix_view(T const* first, std::size_t row_count, std::size_t column_count) noexcept
        : matrix_view(first, row_count, column_count, column_count) {}
    matrix_view(T const* first, std::size_t row_count, std::size_t column_count, std::size_t row_stride) noexcept
        : data(first), rows(row_count), cols(column_count), stride(row_stride) {}

    [[nodiscard]] std::span<T const> row(std::size_t i) const noexcept {
        SURELEAP_EXPECTS(i < rows);
        return {data + i * stride, cols};
    }
    [[nodiscard]] bool empty() const noexcept { return rows == 0 || cols == 0; }
};

/// How far the weights of a row that brings its normaliser may be from adding up to 1.
inline constexpr double normaliser_tolerance = 0x1p-10;
/// The largest normaliser, of either sign, that is read. Beyond it the rounding of a Real, and of products with it, is
/// a quarter of the tolerance and more.
template <class Real>
inline constexpr double largest_normaliser =
    0.25 * normaliser_tolerance / static_cast<double>(std::numeric_limits<Real>::epsilon());

/// One row of logits in storage format T: unnormalised log-probabilities over the vocabulary, -inf for masked tokens.
/// Not a probability_row: the two cannot be mixed up.
///
/// What a row brings along must be of these very values: of all of them, as they are stored, at temperature 1, after
/// the last change to any of them. A mask, a bias or a penalty that comes later makes it wrong; masked tokens are
/// masked before the sum, and a logits hook does it at the right place. It is used for laws at temperature 1 that are
/// not truncated, and not read for others.
///
/// A normaliser bounds the sum: sum exp(values - log_normaliser) is taken to be within normaliser_tolerance of 1. A
/// decision that is the same for all such sums needs no pass. Others, and draws, make the sum: of block_sums if there
/// are any, else of the row. So tokens keep the probabilities that the logits give, if the normaliser is within the
/// tolerance. As a float a normaliser beyond 2,048 is rounded to more than a fraction of that; it is not read.
///
/// Every round notices, at no cost, a sum that was made and is beyond the tolerance; a probability above 1; block sums
/// that do not add up to 1. Such a row has no law, and its request gets status::invalid_target. A draw that finds less
/// in a block than its sum says makes the sum by a pass. Each verification makes at least one sum. Not noticed without
/// a pass: a wrong normaliser of a row whose tokens were all accepted, and logits that were raised after their block
/// sums were made. A NaN that the normaliser does not show is noticed where it is read.
template <class T>
struct logits_row {
    std::span<T const> values;
    /// log(sum exp(values)), if the producer has it already (an LM head's epilogue). It saves the pass that computes it
    /// for rows that nothing is drawn from.
    std::optional<compute_t<T>> log_normaliser{};
    /// sum exp(values - log_normaliser) over tokens 0 .. 1023, 1024 .. 2047 and so on (row_block), if the producer has
    /// that as well: with it a law is made and drawn from without a pass. Read only with a log_normaliser. Their sum is
    /// the row's, so they are relative to the same normaliser (not to the row's maximum) and add up to 1 within
    /// normaliser_tolerance. Each is exact up to rounding them and the normaliser; by what one is too small beyond
    /// that, the last tokens of its block are drawn too rarely. One that is too large does no harm.
    std::span<compute_t<T> const> block_sums{};
};

/// Rows of logits somebody else owns, as a target or a backbone returns them; the library never asks for a copy. A
/// model that computes the next pass into the same memory says which one they are of, and stages refuse them when they
/// are overwritten.
template <class T>
struct logits_rows {
    using value_type = T;
    matrix_view<T> values{};                          ///< [rows, vocabulary]
    std::span<compute_t<T> const> log_normalisers{};  ///< [rows], or empty if the producer has none
    matrix_view<compute_t<T>> block_sums{};           ///< [rows, vocabulary / 1024, rounded up], or empty
    pass_stamp pass{};                                ///< of the model; by default the rows are said to stay
    /// Of a target that pads: request r has rows r * per_request and so on, [R, per_request, vocabulary], of which it
    /// uses 1 + l_r. 0: as in the batch, without gaps.
    std::size_t per_request = 0;
    /// [R] where the rows of each request begin, of a target that has gaps of other sizes. Empty: as per_request says.
    std::span<std::size_t const> first_rows{};

    [[nodiscard]] logits_row<T> row(std::size_t i) const noexcept {
        logits_row<T> result{values.row(i), std::nullopt, {}};
        if (!log_normalisers.empty()) result.log_normaliser = log_normalisers[i];
        if (!block_sums.empty()) result.block_sums = block_sums.row(i);
        return result;
    }
};

/// One row of probabilities over the vocabulary; sums to 1.
template <class T>
struct probability_row {
    std::span<T const> values;
};

/// A token, and the log of its probability.
struct token_log_probability {
    token_id token = no_token;
    double log_probability = -std::numeric_limits<double>::infinity();

    [[nodiscard]] bool operator==(token_log_probability const&) const = default;
};

// ---- settings --------------------------------------------------------------------------------------------------

/// The least temperature that is not greedy. Logits are multiplied with its inverse: below it, rounding them would
/// decide.
inline constexpr double least_temperature = 1e-5;
/// The largest temperature that a request may ask for. Far below where its inverse is 0 as a float (1.4e45), and far
/// above where laws of any real logits are level.
inline constexpr double largest_temperature = 1e6;

/// How logits become a distribution: temperature, then top-k, then top-p, then min-p, each on what the one before left,
/// renormalised. Truncation keeps tokens in the order (logit descending, id ascending), so ties are resolved alike
/// everywhere. Temperature 0 (in fact anything below least_temperature, as in the reference code) is greedy: all mass
/// on the first largest logit.
struct transform {
    double temperature = 1.0;  ///< 0 .. largest_temperature; below least_temperature greedy
    int top_k = 0;             ///< keep the k largest; 0 keeps all
    double top_p = 1.0;        ///< keep the smallest prefix with mass >= top_p; in (0, 1]
    double min_p = 0.0;        ///< keep tokens with p >= min_p * max p; in [0, 1]

    [[nodiscard]] SURELEAP_HOST_DEVICE bool greedy() const noexcept { return temperature < least_temperature; }
    [[nodiscard]] SURELEAP_HOST_DEVICE bool truncates() const noexcept {
        return top_k > 0 || top_p < 1.0 || min_p > 0.0;
    }
    [[nodiscard]] bool operator==(transform const&) const = default;
};

struct request_view;

/// Why a text ended.
enum class finish_reason : std::uint8_t { none, stop_token, max_new_tokens, stop_text };

/// Where a text ends besides its stop tokens, lent as a callable ends(request, emitted) -> bool. It says whether the
/// text ends with the last of `emitted`, what the round has emitted so far; what was committed before is the request's
/// context. stop_texts (serving/stop_texts.hpp) is one.
///
/// Promise: a function of these tokens. Where an executor is lent, it is called from its threads, for several requests
/// at once.
using text_end_ref = function_ref<bool(request_view const&, std::span<token_id const>)>;

/// Which tokens may come next in a constrained text, lent as a callable mask(request, drafted) -> token_mask: behind
/// the request's context and `drafted`, a part of what its round drafts. It is asked when a token is drafted there, and
/// again when the target's row there is read, for the same prefixes or others, and not behind a stop token. The mask
/// stays valid until it is asked again for the request. `constraint` (serving/constraint.hpp) makes one of a grammar's
/// matcher.
///
/// Promise: a function of these tokens, as long as the round lasts. Where an executor is lent, it is called from its
/// threads, for several requests at once. A mask that allows nothing leaves the row without a law.
using constraint_ref = function_ref<token_mask(request_view const&, std::span<token_id const>)>;

/// What a request may choose for itself. An aggregate: `decoder.submit(prompt, {.temperature = 0.7, .seed = 42})`.
struct request_settings {
    double temperature = 1.0;  ///< 0 .. largest_temperature; below least_temperature greedy
    int top_k = 0;
    double top_p = 1.0;
    double min_p = 0.0;
    /// Same seed and prompt, same random keys, in any batch. Unset: every request gets a seed of its own.
    std::optional<std::uint64_t> seed{};
    /// The draft's own transform. Unset: the target's temperature without truncation (q may differ from p freely).
    std::optional<transform> draft{};
    std::size_t max_new_tokens = 256;  ///< >= 1
    /// Before so many tokens no text ends: stop tokens have probability 0, and text_end is not asked. At most
    /// max_new_tokens. Needs rounds with round_limits::constrained, as a constraint does.
    std::size_t min_new_tokens = 0;
    /// Generation ends after one of these is emitted. The view must stay valid while the request lives.
    std::span<token_id const> stop_tokens{};
    /// Asked after each token that is emitted and no stop token. Must stay valid likewise.
    text_end_ref text_end{};
    /// Tokens that it does not allow have probability 0, in the target's law and in the draft's. Must stay valid
    /// likewise.
    constraint_ref constraint{};
    /// At most this many draft tokens in a round, whatever gamma is (the rollback depth of a recurrent target, say).
    std::size_t max_draft_tokens = static_cast<std::size_t>(-1);
    /// Report log p of every emitted token, p being the transformed target; at temperature 0, where that says nothing,
    /// the target at temperature 1 without truncation.
    bool log_probabilities = false;
    /// Those of the target's row as it came, at temperature 1: without a hook, a constraint or truncation.
    bool raw_log_probabilities = false;
    /// Report so many of the likeliest tokens beside each emitted one, by the same law. At most
    /// round_limits::top_log_probabilities, and with log_probabilities only.
    std::size_t top_log_probabilities = 0;
    /// Report beside log p how many tokens were at least as likely, the emitted one included, by the same law. With
    /// log_probabilities only.
    bool ranks = false;
    /// What a token of this request is worth beside those of others, > 0: schedules maximise expected tokens per
    /// second, weighted so. Changes how many of its drafts are verified, never what is emitted.
    double priority = 1.0;
    /// The speed this request should have at least, in tokens per second; 0 asks for none. Read by speed_targets.
    double tokens_per_second = 0.0;
    /// Whose request it is, for calibration per tenant.
    std::uint32_t tenant = 0;

    [[nodiscard]] transform target_transform() const noexcept { return {temperature, top_k, top_p, min_p}; }
    [[nodiscard]] transform draft_transform() const noexcept {
        return draft ? *draft : transform{.temperature = temperature};
    }
    /// Some rows of the request are masked.
    [[nodiscard]] bool masks_rows() const noexcept { return constraint || min_new_tokens > 0; }
    [[nodiscard]] bool stops_at(token_id x) const noexcept {
        return std::find(stop_tokens.begin(), stop_tokens.end(), x) != stop_tokens.end();
    }
};

// ---- requests and statuses -------------------------------------------------------------------------------------

/// A request as every stage sees it at the start of a round. The engine (or the decoder) owns what it points to.
struct request_view {
    request_id id = 0;
    std::size_t slot = 0;                 ///< stable index below max_requests while the request lives
    token_id anchor = no_token;           ///< x_0, the last committed token
    std::uint64_t position = 0;           ///< absolute position of the anchor in its sequence
    std::span<token_id const> context{};  ///< committed tokens, the anchor last; empty if the models keep their own
    std::uint64_t seed = 0;
    std::size_t remaining = 0;                   ///< tokens this request may still emit, >= 1
    request_settings const* settings = nullptr;  ///< never null in a round
    /// At most this many draft tokens in this round, 0 for none: an engine's limit, which the schedule may lower before
    /// anything is drafted.
    std::size_t draft_limit = static_cast<std::size_t>(-1);
    /// The same for what a drafter's model drafts: a schedule lowers it where the model's time is not paid for. Tokens
    /// that were found beside it (with_lookup) took no time, so it is no limit to them; the schedule prices their rows.
    std::size_t model_limit = static_cast<std::size_t>(-1);
    /// Committed tokens before the anchor that the drafter's model has not read, and reads before it drafts here.
    std::uint64_t unread = 0;
    /// The target decodes tokens again before it scores this round: it had to take back drafts, and could not for
    /// nothing.
    bool replays = false;
    // Set by begin_round:
    /// The worth of a token, 1 .. certain, relative to that of the round's most important request.
    fixed_probability weight = certain;
    /// The chain of drafts ends before the first position whose survival would be below this.
    fixed_probability draft_floor = 0;
    /// Parents of the tree that a failed round drafted (verdict::parents): it is drafted again in that shape. Empty:
    /// none.
    std::span<std::int32_t const> shape{};

    /// Tokens of the text before this round, by what remains of max_new_tokens.
    [[nodiscard]] std::size_t emitted() const noexcept {
        return settings->max_new_tokens > remaining ? settings->max_new_tokens - remaining : 0;
    }
    /// Largest useful number of draft tokens this round: one emitted token is always the target's own.
    [[nodiscard]] std::size_t draft_cap(std::size_t block_size) const noexcept {
        return std::min(found_cap(block_size), model_limit);
    }
    /// The same of tokens that were found beside the drafter's model.
    [[nodiscard]] std::size_t found_cap(std::size_t block_size) const noexcept {
        return std::min({block_size, settings->max_draft_tokens, remaining - 1, draft_limit});
    }
};

/// Tells the requests of a round from those of another one: a hash of who takes part, and where each stands. Never 0.
[[nodiscard]] inline std::uint64_t fingerprint_of(std::span<request_view const> requests) noexcept {
    std::uint64_t hash = requests.size();
    for (request_view const& r : requests) {
        hash ^= r.id * 0x9e3779b97f4a7c15u + r.seed * 0xc2b2ae3d27d4eb4fu + r.position * 0x165667b19e3779f9u;
        hash *= 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
    }
    return hash | 1;
}

/// Sizes of an engine's rounds: told once, at set-up, to every part that keeps something for each slot or position.
struct round_sizes {
    std::size_t max_requests = 0;  ///< most requests in a round; slots are below it
    std::size_t block_size = 0;    ///< gamma

    [[nodiscard]] bool operator==(round_sizes const&) const = default;
};

/// What a step is made of, as far as its time depends on it (cost_model).
struct step_load {
    std::size_t requests = 0;          ///< R
    std::size_t batch_tokens = 0;      ///< B: anchors and admitted drafts; before that is decided, R
    std::size_t drafting = 0;          ///< requests that draft
    std::size_t draft_tokens = 0;      ///< positions they were asked to draft, the sum of their caps
    std::uint64_t context_tokens = 0;  ///< committed tokens of all requests
    std::uint64_t unread_tokens = 0;  ///< tokens that the drafter's model reads before it drafts (request_view::unread)
    std::size_t replays = 0;          ///< requests that the target decodes tokens of again (request_view::replays)

    [[nodiscard]] bool operator==(step_load const&) const = default;
};

/// All that is known of a round's load before anything is drafted. How far chains really went is no part of it: they
/// may end by what was drawn (draft_floor), and a schedule that saw the sum would look ahead.
[[nodiscard]] inline step_load load_of(std::span<request_view const> requests, std::size_t block_size) noexcept {
    step_load load{.requests = requests.size(), .batch_tokens = requests.size()};
    for (request_view const& r : requests) {
        std::size_t const cap = r.draft_cap(block_size);
        load.drafting += cap > 0 ? 1 : 0;
        load.draft_tokens += cap;
        load.context_tokens += r.position + 1;
        load.unread_tokens += cap > 0 ? r.unread : 0;
        load.replays += r.replays ? 1 : 0;
    }
    return load;
}

/// What a semi-autoregressive backbone returns for R requests: hidden states h and base logits U of every position. Row
/// r * gamma + k belongs to request r, position k. h may be empty (d = 0) if no head reads it. Its pass is that of U.
template <class T>
struct block_forward {
    using value_type = T;
    matrix_view<T> hidden{};       ///< [R * gamma, d]
    logits_rows<T> base_logits{};  ///< [R * gamma, draft vocabulary]
};

/// What became of a request's drafts (verdict::draft_outcome), and of its round (verdict::outcome).
enum class status : std::uint8_t {
    ok,
    // What ends drafts before their time. The round goes on with what was drafted until then:
    invalid_draft,       ///< a draft row held NaN or +inf, or no finite logit that is allowed; or its shape was wrong
    invalid_confidence,  ///< a confidence was NaN or outside [0, 1]
    // What ends the round for a request, with nothing emitted:
    /// The same of a target logits row; or the normaliser or block sums that it brought are not its own; or what the
    /// rule decided is no token.
    invalid_target,
    wrong_draft_rule,  ///< the drafter drew by another draft rule than that of the acceptance rule
    other_draft,   ///< run again after a failure, the request drafted other tokens, or its drafter or rule is another
    invalid_tree,  ///< of kernels: a node of a tree stands before its parent
    // Of drafts again; the numbers are those of the C header:
    drafter_failed,  ///< the drafter threw, and the round went on (end_drafts)
    // Of all requests of a round, with nothing emitted:
    ranks_lost,    ///< a rank of the engine is gone, or came too late
    ranks_differ,  ///< ranks that should hold the same requests, versions or models do not (ranks/rank_consensus.hpp)
};

/// It ends drafts alone.
[[nodiscard]] SURELEAP_HOST_DEVICE constexpr bool is_draft_failure(status s) noexcept {
    return s == status::invalid_draft || s == status::invalid_confidence || s == status::drafter_failed;
}

/// The value's name, for logs.
[[nodiscard]] constexpr char const* to_string(status s) noexcept {
    switch (s) {
        case status::ok: return "ok";
        case status::invalid_draft: return "invalid draft logits";
        case status::invalid_confidence: return "invalid confidence";
        case status::drafter_failed: return "the drafter failed";
        case status::invalid_target: return "invalid target logits, or a normaliser or block sums that are not theirs";
        case status::wrong_draft_rule: return "drafted by another draft rule than the acceptance rule's";
        case status::other_draft: return "another draft than in the attempt that failed";
        case status::invalid_tree: return "a tree whose nodes do not come behind their parents";
        case status::ranks_lost: return "a rank is gone, or came too late";
        case status::ranks_differ: return "ranks do not hold the same requests";
    }
    return "unknown status";
}

SURELEAP_END_NAMESPACE

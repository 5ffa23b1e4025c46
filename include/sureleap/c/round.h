// SPDX-License-Identifier: MIT
//
// Rounds of speculative decoding. A round object is made once for a rule, a schedule and sizes, and then, for each
// step:
//
//     begin     the requests that take part                          -> how far each may draft
//     [plan]    confidences at the anchor, for SURELEAP_PLANNED
//     draft     rows of draft logits, or tokens with the q they were drawn from; as often as the drafter runs
//     admit                                                          -> how much of each chain is verified: the batch
//     accept    the target's rows, one for each token of the batch
//     end                                                            -> a verdict for each request
//
// A call out of this order is refused. Up to `end` nothing is committed: after a failure begin again, with the same
// requests at the same places and in their slots. The same tokens are drawn then, and as many of them verified. If you
// draw tokens yourself, hand over the same ones: with a rule that samples, others are an outcome of their own
// (OTHER_DRAFT), or refused. A round that fails between draft and admit is run again by all of its requests and nobody
// else. That holds as well if you drew tokens and failed before you handed over any, which no call can see. No call
// allocates.
//
// p is the target, q the draft. A request's anchor is its last committed token, which the target has not seen yet.
#ifndef SURELEAP_C_ROUND_H
#define SURELEAP_C_ROUND_H

#include <sureleap/c/common.h>
#include <sureleap/c/cost.h>

#if defined(__cplusplus)
extern "C" {
#endif

typedef struct sureleap_round sureleap_round;
typedef struct sureleap_calibration sureleap_calibration;

// ---- what a round is made of -----------------------------------------------------------------------------------

/// Acceptance rules.
enum {
    SURELEAP_TOKEN_REJECTION = 0,
    SURELEAP_BLOCK_VERIFICATION = 1,
    SURELEAP_TARGET_MATCH = 2,
    SURELEAP_GREEDY_MATCH = 3,  ///< requests at temperature 0 alone
    SURELEAP_KEYED_COUPLING = 4
};
/// How the library draws a token from q.
enum {
    SURELEAP_DRAFT_BY_RULE = 0,  ///< as the rule has it by default: categorical, argmax where it matches, coupled
    SURELEAP_DRAFT_CATEGORICAL = 1,
    SURELEAP_DRAFT_ARGMAX = 2,
    SURELEAP_DRAFT_COUPLED = 3  ///< by the noise that the target's token is chosen with
};
/// What is known of q where a token is drafted.
enum {
    SURELEAP_Q_DENSE = 0,   ///< a row over the vocabulary
    SURELEAP_Q_SPARSE = 1,  ///< a list of tokens and a number for each; all others have q = 0
    SURELEAP_Q_ONE_HOT =
        2  ///< the token alone, wherever it comes from (prompt lookup, an argmax); accepted with p(token)
};
enum {
    SURELEAP_Q_LOGITS = 0,        ///< the request's draft transform makes q of them
    SURELEAP_Q_PROBABILITIES = 1  ///< q itself, up to a factor; no transform. Dense rows are copied
};
/// Schedules: how much of a chain is verified.
enum {
    SURELEAP_FIXED = 0,               ///< `fixed_length` positions
    SURELEAP_THRESHOLD = 1,           ///< up to the first confidence below `threshold`
    SURELEAP_SURVIVAL_THRESHOLD = 2,  ///< up to where the product of confidences falls below `threshold`
    SURELEAP_GREEDY = 3,              ///< as long as tokens per second rise by `cost`
    SURELEAP_TOP_K = 4,               ///< the best number by confidences of `lag` rounds ago
    SURELEAP_PLANNED = 5,             ///< the best number by confidences at the anchor (sureleap_round_plan)
    SURELEAP_RETROSPECTIVE = 6        ///< the best lengths in hindsight; for rules that match
};
/// Where confidences come from: the probability that a drafted token is accepted, known before it is drawn.
enum {
    SURELEAP_CONFIDENCE_NONE = 0,
    SURELEAP_CONFIDENCE_GIVEN = 1,  ///< with the drafts
    SURELEAP_CONFIDENCE_TOP1 = 2    ///< the largest q of the row
};

typedef struct sureleap_round_options {
    size_t struct_size;
    int32_t rule;
    int32_t draft_rule;
    int32_t schedule;
    int32_t confidence;
    int32_t target_format;  ///< of the target's rows
    int32_t draft_format;   ///< of draft rows
    int32_t q;
    int32_t q_values;
    int32_t plans_at_anchor;  ///< 1: there are confidences before anything is drawn, of a parallel backbone
    int32_t allow_lossy;      ///< 1: also what does not keep the target's law
    int32_t constrained;      ///< 1: requests may have a constraint or min_new_tokens; there is room for masked rows
    size_t max_requests;      ///< most requests in a round, 1 .. 65,536; slots are below it
    size_t block_size;        ///< gamma, 1 .. 1,024
    size_t vocabulary;        ///< V, 1 .. 2^30
    size_t list_size;         ///< of sparse q: most tokens of a list, 1 .. V
    size_t fixed_length;
    double threshold;
    double prior;  ///< of SURELEAP_TOP_K: confidence of a request without a past
    size_t lag;    ///< of SURELEAP_TOP_K: 1 or 2 rounds
    sureleap_cost const* cost;
    sureleap_calibration const* calibration;  ///< null: none
    /// Where the seeds of requests come from that bring none: a request's is a function of this and of its id, for as
    /// long as the round lives. 0: the system's random device.
    uint64_t seed;
    size_t top_log_probabilities;  ///< most that a request may ask for, at most 1,024
} sureleap_round_options;

/// Token rejection of categorical drafts with dense logits in float, no confidence, everything verified; one request,
/// gamma = 7. The vocabulary is yours to set.
SURELEAP_C_API void sureleap_round_options_init(sureleap_round_options* options);
/// Bytes of memory that such a round needs.
SURELEAP_C_API sureleap_result sureleap_round_bytes(sureleap_round_options const* options, size_t* bytes,
                                                    sureleap_error* error);
/// Makes a round in `memory`, which it uses until it is destroyed. With SURELEAP_TOP_K its past lies on the heap.
SURELEAP_C_API sureleap_result sureleap_round_create(sureleap_round_options const* options, void* memory, size_t bytes,
                                                     sureleap_round** round, sureleap_error* error);
SURELEAP_C_API sureleap_result sureleap_round_destroy(sureleap_round* round);
/// The text of the last call that failed; "" before one has. Of no round a text that says so.
SURELEAP_C_API char const* sureleap_round_error(sureleap_round const* round);

// ---- a step ----------------------------------------------------------------------------------------------------

/// How logits become a distribution: temperature, then top-k, top-p, min-p.
typedef struct sureleap_transform {
    double temperature;  ///< 0 .. 10^6; 0 is greedy
    int32_t top_k;       ///< 0 keeps all
    double top_p;        ///< in (0, 1]
    double min_p;        ///< in [0, 1]
} sureleap_transform;

/// Where a text ends besides its stop tokens. Asked after each token that is emitted and no stop token: not 0 if the
/// text ends with the last of the `count` tokens that the round has emitted so far. A function of these tokens and of
/// those before. Where threads are lent, it is called from several at once.
typedef int32_t (*sureleap_text_end)(void* of, uint64_t id, int32_t const* emitted, size_t count);

/// Which tokens may come in a constrained text behind the `count` drafted tokens of its round: a bit for each, bit v %
/// 32 of word v / 32, (V + 31) / 32 words, as xgrammar and llguidance make them. Others have probability 0 in p, and in
/// a q that the library computes from logits. Asked when a token is drafted and when the target's row is read, for the
/// same prefixes or others, and not behind a stop token; the words stay valid until it is asked again for the request.
/// Null: every token. A function of these tokens and of those before. Where threads are lent, it is called from several
/// at once.
typedef int32_t const* (*sureleap_constraint)(void* of, uint64_t id, int32_t const* drafted, size_t count);

typedef struct sureleap_request {
    uint64_t id;
    size_t slot;        ///< a place below max_requests that stays while the request lives
    uint64_t position;  ///< absolute position of the anchor in its sequence
    uint64_t seed;      ///< the same seed and position give the same draws. 0: one of its own, by its id (options.seed)
    size_t remaining;   ///< tokens that it may still emit, at least 1
    size_t draft_limit;  ///< at most so many drafts in this round
    int32_t anchor;
    uint32_t tenant;
    sureleap_transform target;
    sureleap_transform draft;    ///< temperature below 0: the target's temperature without truncation
    double priority;             ///< worth of a token beside those of other requests
    int32_t const* stop_tokens;  ///< valid until the next round begins; null: none
    size_t stop_token_count;
    sureleap_text_end text_end;  ///< valid likewise; null: not asked
    void* text_end_of;
    sureleap_constraint constraint;  ///< valid likewise; null: none. Needs sureleap_round_options.constrained
    void* constraint_of;
    size_t min_new_tokens;      ///< at least so many more before it ends; needs constrained too, unless 0
    int32_t log_probabilities;  ///< 1: report log p of what is emitted
    int32_t replays;            ///< 1: the target decodes tokens of it again in this round, since drafts were rejected
    uint64_t unread;            ///< committed tokens before the anchor that the draft reads before it drafts
    int32_t raw_log_probabilities;  ///< 1: those of the target's row as it came, at temperature 1, in place of p's
    size_t top_log_probabilities;   ///< so many of the likeliest tokens beside each; needs log_probabilities
} sureleap_request;

/// Temperature 1, no limits, a seed of its own; slot, id, anchor and position are 0.
SURELEAP_C_API void sureleap_request_init(sureleap_request* request);

/// Forgets what is known of a slot: another request takes it.
SURELEAP_C_API sureleap_result sureleap_round_join(sureleap_round* round, size_t slot);
/// Begins a round. `draft_caps` [count], which may be null, says how many positions each request drafts at most.
SURELEAP_C_API sureleap_result sureleap_round_begin(sureleap_round* round, sureleap_request const* requests,
                                                    size_t count, size_t* draft_caps);
/// For SURELEAP_PLANNED, before anything is drafted: confidences [requests, gamma] that have seen no drafted token.
SURELEAP_C_API sureleap_result sureleap_round_plan(sureleap_round* round, double const* confidences, size_t stride);

/// The next positions of every request's chain; row and token r * positions + k are those of request r.
typedef struct sureleap_drafts {
    size_t positions;      ///< at least 1
    size_t const* counts;  ///< [requests] how many of them request r has; null: all. Fewer end its chain
    /// [requests * positions] drawn by you, -1 where a chain has ended; null: the library draws. Needed for one-hot q.
    int32_t const* tokens;
    double const* confidences;  ///< [requests * positions]; needed where they are given
    /// [requests * positions, V] or, if sparse, the numbers of the lists. None if q is one-hot. Dense logits in float
    /// are not copied: they stay as they are until the round has ended.
    sureleap_rows rows;
    int32_t const* list_tokens;  ///< of sparse q: the tokens beside the numbers, as many rows and columns, in any order
    size_t list_stride;
    size_t const* list_counts;  ///< [requests * positions] tokens of each list; null: all columns
    int32_t* drawn;  ///< out, may be null: [requests * positions] the tokens of the chains, -1 where they end
} sureleap_drafts;

/// Appends to the chains. Tokens of your own must be drawn from the q that comes with them, independently of all else;
/// only q that is categorical, or one-hot, can be drawn from outside. A chain ends at its cap. What is wrong with a
/// row, a list, a token or a confidence costs its request the round, and the verdict says so. Behind a stop token
/// nothing is emitted, so a drafter that runs once for each position may give that request a count of 0.
SURELEAP_C_API sureleap_result sureleap_round_draft(sureleap_round* round, sureleap_drafts const* drafts);

/// What the target has to score, request after request: its anchor, then the verified prefix of its chain. Row i of the
/// target is the law of the token after token i. Valid until the next round begins.
typedef struct sureleap_batch {
    size_t rows;
    size_t requests;
    int32_t const* tokens;      ///< [rows]
    uint64_t const* positions;  ///< [rows] in their sequences
    uint32_t const* markers;    ///< [rows] index of the request
    uint32_t const* offsets;    ///< [requests + 1]; request r has rows offsets[r] .. offsets[r + 1] - 1
} sureleap_batch;

/// Decides how much of each chain is verified.
SURELEAP_C_API sureleap_result sureleap_round_admit(sureleap_round* round, sureleap_batch* batch);
/// Judges every request by the target's rows, at least batch.rows of them and V wide. They are not read after it. They
/// must be those of this round's batch: where rounds overlap nobody else can tell, so keep each round's rows until its
/// accept.
SURELEAP_C_API sureleap_result sureleap_round_accept(sureleap_round* round, sureleap_rows const* rows);

/// Outcomes of a request. INVALID_DRAFT and INVALID_CONFIDENCE are draft_outcomes: they end its drafts alone, and the
/// round goes on with those before. The others end the round for it: nothing is emitted, and it may be run again from
/// the same place.
enum {
    SURELEAP_REQUEST_OK = 0,
    SURELEAP_REQUEST_INVALID_DRAFT = 1,       ///< a row, a list or a token that is none
    SURELEAP_REQUEST_INVALID_CONFIDENCE = 2,  ///< no number in [0, 1]
    SURELEAP_REQUEST_INVALID_TARGET = 3,      ///< a row of the target holds no law
    SURELEAP_REQUEST_OTHER_DRAFT = 5          ///< run again after a failure, it has other tokens than before
};

/// An outcome in words, such as "invalid draft logits".
SURELEAP_C_API char const* sureleap_outcome_text(int32_t outcome);

enum {
    SURELEAP_FINISHED_NONE = 0,
    SURELEAP_FINISHED_STOP_TOKEN = 1,
    SURELEAP_FINISHED_MAX_NEW_TOKENS = 2,  ///< the request's `remaining` are emitted
    SURELEAP_FINISHED_STOP_TEXT = 3
};

/// A token, and the log of its probability; token -1: none.
typedef struct sureleap_token_log_probability {
    int32_t token;
    double log_probability;
} sureleap_token_log_probability;

typedef struct sureleap_verdict {
    uint64_t id;
    size_t slot;
    size_t drafted;
    size_t verified;         ///< of them, up to the end of the text
    size_t accepted;         ///< at most emitted_count
    int32_t const* emitted;  ///< append these; the last one is the next anchor. Valid until the next round begins
    size_t emitted_count;
    double const* log_probabilities;  ///< [emitted_count], or null
    size_t rows_kept;                 ///< rows of the batch that stay in the target's cache: as many as were emitted
    size_t rows_rolled_back;          ///< and those that are dropped from its end
    int32_t outcome;
    int32_t draft_outcome;  ///< what ended the drafts before their time, if it is not SURELEAP_REQUEST_OK
    int32_t finished;       ///< SURELEAP_FINISHED_NONE, or why the text ends with the last emitted token
    /// [emitted_count, as many as the request asked for] the likeliest tokens where each was emitted, or null.
    sureleap_token_log_probability const* top_log_probabilities;
} sureleap_verdict;

/// Ends the round: verdicts [capacity], in the order of the requests; capacity is at least their number.
SURELEAP_C_API sureleap_result sureleap_round_end(sureleap_round* round, sureleap_verdict* verdicts, size_t capacity);
/// Gives the round up, wherever it stands: nothing was committed. The requests may begin again from the same places; in
/// any batch, unless something was drafted and nothing admitted. Without a round nothing happens.
SURELEAP_C_API sureleap_result sureleap_round_rollback(sureleap_round* round);

#if defined(__cplusplus)
}
#endif

#endif

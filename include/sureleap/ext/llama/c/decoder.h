// SPDX-License-Identifier: MIT
//
// A decoder over a llama_context: prompts go in, tokens come out, as many a pass as drafts were right about. What is
// drafted with and how much of it is verified is chosen once, when it is made. Then
//
//     submit    a request: its prompt and how it is sampled                       -> its id
//     step      one round of all requests that have a place                      -> what each emitted
//
// until a step has no events. Tokens have the law that llama.cpp samples from without speculation. Contexts, models and
// samplers stay the caller's and outlive the decoder. A context needs what docs/llama_cpp.md says; one that lacks it is
// refused with the remedy. Results, errors and memory are those of sureleap.h, and so are the texts of outcomes.
#ifndef SURELEAP_LLAMA_C_DECODER_H
#define SURELEAP_LLAMA_C_DECODER_H

#include <sureleap/c/common.h>
#include <sureleap/c/cost.h>
#include <sureleap/c/round.h>

#if defined(__cplusplus)
extern "C" {
#endif

struct llama_context;  // llama.h's
struct llama_sampler;

typedef struct sureleap_llama sureleap_llama;
typedef struct sureleap_llama_dspark sureleap_llama_dspark;

// ---- what a decoder is made of ---------------------------------------------------------------------------------

/// Who drafts: `draft`, `dspark` or neither, with prompt lookup beside it or not. Nobody: plain decoding.
typedef struct sureleap_llama_options {
    size_t struct_size;
    struct llama_context* target;
    struct llama_context* draft;    ///< of a second model, of the same vocabulary or another; null: none
    sureleap_llama_dspark* dspark;  ///< a DSpark file, attached to the target's context; null: none
    int32_t lookup;                 ///< 1: where the end of a text occurred before, what came then is proposed again
    int32_t rule;                   ///< SURELEAP_KEYED_COUPLING and its like
    int32_t schedule;               ///< SURELEAP_FIXED and its like
    int32_t never_lose;             ///< 1: drafts only as far as past rounds say that it pays, or not at all
    size_t max_requests;            ///< places of a round; more requests wait
    size_t block_size;              ///< gamma; of DSpark at most what its file drafts
    size_t tree_nodes;    ///< of DSpark: most tokens of a draft tree, with the rule's equal for trees; 0: chains
    size_t fixed_length;  ///< of schedules, as in sureleap_round_options
    double threshold;
    double prior;
    size_t lag;
    /// What a step costs, for never_lose and the schedules that weigh. Null: passes over the contexts are timed when
    /// the decoder is made, some six for each of its sizes.
    sureleap_cost const* cost;
    uint64_t seed;                 ///< as in sureleap_round_options
    int32_t first_sequence;        ///< place s is sequence first_sequence + s of the target's context,
    int32_t draft_first_sequence;  ///< and draft_first_sequence + s of the draft's
} sureleap_llama_options;

/// Lookup, SURELEAP_KEYED_COUPLING (a seed gives the same text whoever drafts), all that is drafted is verified, never
/// losing; one request, gamma = 7. The target's context is yours to set.
SURELEAP_C_API void sureleap_llama_options_init(sureleap_llama_options* options);
/// Bytes of a decoder's object. What it holds lies on the heap.
SURELEAP_C_API size_t sureleap_llama_bytes(void);
SURELEAP_C_API sureleap_result sureleap_llama_create(sureleap_llama_options const* options, void* memory, size_t bytes,
                                                     sureleap_llama** decoder, sureleap_error* error);
SURELEAP_C_API sureleap_result sureleap_llama_destroy(sureleap_llama* decoder);
/// The text of the last call that failed; "" before one has. Of no decoder a text that says so.
SURELEAP_C_API char const* sureleap_llama_error(sureleap_llama const* decoder);

// ---- requests --------------------------------------------------------------------------------------------------

typedef struct sureleap_llama_request {
    int32_t const* prompt;  ///< [prompt_count] tokens, at least one; copied
    size_t prompt_count;
    /// A chain of llama.cpp's samplers to sample by: copied as it stands, and refused where drafts could not be
    /// verified against it. `target` stays as it is then, and a seed is that of its dist. Null: `target` says all.
    struct llama_sampler* sampler;
    int32_t sampler_sees_prompt;  ///< 1: its penalties see the prompt, as in llama.cpp's programs
    sureleap_transform target;
    sureleap_transform draft;  ///< temperature below 0: the target's temperature without truncation
    uint64_t seed;             ///< the same seed gives the same draws. 0: one of its own, by its id (options.seed)
    size_t max_new_tokens;
    int32_t const* stop_tokens;  ///< [stop_token_count], copied
    size_t stop_token_count;
    int32_t stops_at_end;     ///< 1: also at every token that ends a generation (llama_vocab_is_eog)
    size_t max_draft_tokens;  ///< most that are drafted for it in a round
    double priority;          ///< worth of a token beside those of other requests
    int32_t log_probabilities;
} sureleap_llama_request;

/// Temperature 1, 256 tokens at most, ends where a generation ends.
SURELEAP_C_API void sureleap_llama_request_init(sureleap_llama_request* request);
/// Adds a request, which waits until it has a place.
SURELEAP_C_API sureleap_result sureleap_llama_submit(sureleap_llama* decoder, sureleap_llama_request const* request,
                                                     uint64_t* id);
/// Takes a request out of the rounds; it is as it was when it is resumed. A request whose round failed stands still as
/// well, and tries again when it is resumed.
SURELEAP_C_API sureleap_result sureleap_llama_pause(sureleap_llama* decoder, uint64_t id);
SURELEAP_C_API sureleap_result sureleap_llama_resume(sureleap_llama* decoder, uint64_t id);
/// Forgets a request.
SURELEAP_C_API sureleap_result sureleap_llama_cancel(sureleap_llama* decoder, uint64_t id);

// ---- rounds ----------------------------------------------------------------------------------------------------

/// What a round did for a request.
typedef struct sureleap_llama_event {
    uint64_t id;
    int32_t const* tokens;  ///< [count] new tokens, a stop token included
    size_t count;
    double const* log_probabilities;  ///< [count], or null
    int32_t outcome;                  ///< SURELEAP_REQUEST_OK, or the request stands still; sureleap_llama_report.pass
    int32_t finished;                 ///< SURELEAP_FINISHED_NONE, or why the text ends with the last token
} sureleap_llama_event;

/// One round. `events` [count] are the decoder's, valid until its next call. A count of 0: no request runs.
SURELEAP_C_API sureleap_result sureleap_llama_step(sureleap_llama* decoder, sureleap_llama_event const** events,
                                                   size_t* count);

/// What became of requests and tokens so far.
typedef struct sureleap_llama_report {
    uint64_t steps;   ///< rounds that were run
    uint64_t rounds;  ///< of each request, added up
    uint64_t drafted;
    uint64_t verified;
    uint64_t accepted;
    uint64_t emitted;
    uint64_t passes;   ///< calls of llama_decode over the target, those of timing too
    size_t waiting;    ///< requests without a place
    size_t placed;     ///< requests that run or stand still
    char const* pass;  ///< what became of the target's last pass: "ok", or why a round failed; a constant
} sureleap_llama_report;

SURELEAP_C_API sureleap_result sureleap_llama_report_of(sureleap_llama* decoder, sureleap_llama_report* report);

#if defined(__cplusplus)
}
#endif

#endif

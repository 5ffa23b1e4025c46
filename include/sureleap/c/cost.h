// SPDX-License-Identifier: MIT
//
// What a step of the engine costs, for schedules that weigh tokens against time. A cost is made once and lent to
// rounds. It must outlive them. Its numbers are copied, to the heap where they are many.
#ifndef SURELEAP_C_COST_H
#define SURELEAP_C_COST_H

#include <sureleap/c/common.h>

#if defined(__cplusplus)
extern "C" {
#endif

typedef struct sureleap_cost sureleap_cost;

enum {
    SURELEAP_COST_ADDITIVE = 0,   ///< a sum of nine prices
    SURELEAP_COST_TABLE = 1,      ///< measured times by batch tokens, straight lines between them
    SURELEAP_COST_STAIRCASE = 2,  ///< the same, each batch padded to the next measured size
    SURELEAP_COST_ANALYTIC = 3    ///< (overhead + batch tokens) / rate seconds
};

/// Seconds of each part of a step, none negative.
typedef struct sureleap_prices {
    double fixed;             ///< per step
    double request;           ///< per request
    double batch_token;       ///< per token that the target scores, anchors included
    double context_token;     ///< per committed token of all requests
    double draft_fixed;       ///< per step in which anything is drafted
    double drafting_request;  ///< per request that drafts
    double draft_token;       ///< per position drafted
    double unread_token;      ///< per committed token that the draft reads before it drafts
    double replay;            ///< per request that the target decodes tokens of again, since drafts were rejected
} sureleap_prices;

typedef struct sureleap_cost_options {
    size_t struct_size;
    int32_t kind;
    /// All nine of an additive cost. Of the others the last five, which are added to what the batch takes; the first
    /// four must be 0.
    sureleap_prices prices;
    size_t const* batch_tokens;  ///< [points], strictly ascending, at least one
    double const* seconds;       ///< [points], in [1e-15, 1e9]
    size_t points;
    double rate;      ///< tokens per second
    double overhead;  ///< tokens
    /// Sizes that the engine pads its batch to, ascending, and those that it pads the number of requests to. Null:
    /// none.
    size_t const* token_sizes;
    size_t token_size_count;
    size_t const* request_sizes;
    size_t request_size_count;
} sureleap_cost_options;

/// What a step is made of.
typedef struct sureleap_load {
    size_t requests;
    size_t batch_tokens;
    size_t drafting;      ///< requests that draft
    size_t draft_tokens;  ///< positions that they draft
    uint64_t context_tokens;
    uint64_t unread_tokens;  ///< committed tokens that the draft reads before it drafts
    size_t replays;          ///< requests that the target decodes tokens of again
} sureleap_load;

/// Additive, with no price set.
SURELEAP_C_API void sureleap_cost_options_init(sureleap_cost_options* options);
/// Bytes of a cost's object.
SURELEAP_C_API size_t sureleap_cost_bytes(void);
/// Makes a cost in `memory`, of at least sureleap_cost_bytes() bytes.
SURELEAP_C_API sureleap_result sureleap_cost_create(sureleap_cost_options const* options, void* memory, size_t bytes,
                                                    sureleap_cost** cost, sureleap_error* error);
SURELEAP_C_API sureleap_result sureleap_cost_destroy(sureleap_cost* cost);
/// Seconds of a step of this load.
SURELEAP_C_API sureleap_result sureleap_cost_seconds(sureleap_cost const* cost, sureleap_load const* load,
                                                     double* seconds);

#if defined(__cplusplus)
}
#endif

#endif

// SPDX-License-Identifier: MIT
//
// What a rank tells others of a row of which it has a slice (ranks/). The numbers may be made on a device
// (cuda/sampling/slice_records.cuh) and sent by the host, so both share these types. What ranks exchange is their
// fields.
#pragma once

#include <limits>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>

SURELEAP_BEGIN_NAMESPACE

/// The sum of exp((logit - top) / temperature) over a part of a slice. top: a logit of about its largest one's size;
/// NaN if a logit is NaN or +inf, -inf if none is finite.
struct slice_part {
    float top = -std::numeric_limits<float>::infinity();
    float sum = 0.0f;
};
/// The largest logit of a slice, the first token among equals. NaN without a token if a logit is NaN or +inf, -inf
/// without one if none is finite.
struct slice_best {
    float top = -std::numeric_limits<float>::infinity();
    token_id token = no_token;
};
/// A drafted token: its logit, and exp((logit - top) / temperature) with the top of its part. Zeros if it is in another
/// rank's slice.
struct slice_drafted {
    float logit = 0.0f;
    float weight = 0.0f;
};
/// Who comes first of a slice in the race of a row, and the log of its time. NaN without a token if a logit is NaN or
/// +inf, +inf without one if nobody runs.
struct slice_winner {
    double log_time = std::numeric_limits<double>::infinity();
    token_id token = no_token;
};
static_assert(sizeof(slice_part) == 8 && sizeof(slice_best) == 8 && sizeof(slice_drafted) == 8,
              "slice_records: two numbers of 4 bytes, as ranks exchange them");

/// What is known of the target's rows, in their order. A view of host memory. Promise: of rows of floats or what is
/// narrower, as they are, with the temperatures and keys of their requests.
struct slice_records {
    slice_part const* parts = nullptr;       ///< [rows, parts of the slice]
    slice_best const* best = nullptr;        ///< [rows]
    slice_drafted const* drafted = nullptr;  ///< [rows] of the token behind the row, in chains; null in trees
    slice_winner const* winners = nullptr;   ///< [rows], or null: no rule races
};

SURELEAP_END_NAMESPACE

// SPDX-License-Identifier: MIT
//
// What all functions of the C interface share: results, errors, and how rows of numbers are handed over. C99.
//
// - A function returns a sureleap_result. Anything but SURELEAP_OK says that nothing was changed, and why is a text: of
//   a create function and a size query in the sureleap_error that was passed (which may be null), of others in their
//   object (sureleap_round_error and its like). The texts name the value that was found and the one that was expected.
// - An object lies in memory of the caller's, whose size a query tells. Destroy it before the memory is given back. A
//   function that is given an object after that, or a null pointer, returns SURELEAP_INVALID_HANDLE.
// - Structs of options begin with their own size, which their init function sets, with the defaults of everything else.
// - One object is used by one thread at a time. Costs, and calibrations that observe nothing meanwhile, are shared
//   freely.
#ifndef SURELEAP_C_COMMON_H
#define SURELEAP_C_COMMON_H

#include <stddef.h>
#include <stdint.h>

/// Before each function that is declared: for a host that builds a shared library, say.
#ifndef SURELEAP_C_API
#define SURELEAP_C_API
#endif

#if defined(__cplusplus)
extern "C" {
#endif

/// Version of the implementation, "major.minor.patch".
SURELEAP_C_API char const* sureleap_version(void);

typedef int32_t sureleap_result;
enum {
    SURELEAP_OK = 0,
    SURELEAP_INVALID_ARGUMENT = 1,  ///< a null pointer, a size, a setting, a number
    SURELEAP_WRONG_ORDER = 2,       ///< a call without the one before it
    SURELEAP_INVALID_HANDLE = 3,    ///< no object of this kind lies there, or no longer
    SURELEAP_NO_MEMORY = 4,         ///< the memory is smaller than the query told, or the heap is exhausted
    SURELEAP_NOT_LOSSLESS = 5       ///< rule, drafts and schedule together would not keep the target's law
};

/// Why an object was not made.
typedef struct sureleap_error {
    sureleap_result code;
    char text[508];
} sureleap_error;

/// Formats that rows are stored in.
enum { SURELEAP_FLOAT = 0, SURELEAP_HALF = 1, SURELEAP_BF16 = 2 };

/// Rows of logits that somebody else owns; nothing is copied unless it says so where they are taken. -inf masks a
/// token. The last four members are optional (null, 0), and of rows of the target alone. Three of them save passes.
/// What they promise stands at logits_row in core/types.hpp.
typedef struct sureleap_rows {
    void const* data;  ///< [rows, columns], in the format that the round was made for
    size_t rows;
    size_t columns;
    size_t stride;                 ///< from a row to the next, in numbers; at least `columns`
    float const* log_normalisers;  ///< [rows] log sum exp of each row
    float const* block_sums;       ///< [rows, columns / 1024 rounded up] sums of exp(logit - log_normaliser)
    size_t block_sums_stride;      ///< from a row of them to the next
    /// Of a target that pads: request r of the batch has rows r * per_request and so on. 0: as in the batch, without
    /// gaps.
    size_t per_request;
} sureleap_rows;

#if defined(__cplusplus)
}
#endif

#endif

// SPDX-License-Identifier: MIT
//
// Maps from a drafter's confidence to how often tokens really are accepted, one for each position of a block. A
// calibration is lent to rounds, which apply it to every confidence. It must outlive them.
//
// One that was fitted before is loaded from its temperatures and offsets. An online one learns while serving: after
// each round it observes what was accepted, and what it learns acts from the next round on.
#ifndef SURELEAP_C_CALIBRATION_H
#define SURELEAP_C_CALIBRATION_H

#include <sureleap/c/round.h>

#if defined(__cplusplus)
extern "C" {
#endif

enum {
    SURELEAP_CALIBRATION_FIXED = 0,  ///< sigmoid(logit / temperature + offset)
    SURELEAP_CALIBRATION_ONLINE = 1  ///< the same, fitted while serving
};
/// What an online calibration fits.
enum {
    SURELEAP_FIT_TEMPERATURE = 1,  ///< temperatures
    SURELEAP_FIT_PLATT = 2,        ///< and offsets
    SURELEAP_FIT_HISTORY = 3       ///< and how far to rely on a request's own recent acceptance
};

typedef struct sureleap_calibration_options {
    size_t struct_size;
    int32_t kind;
    size_t block_size;  ///< gamma: positions
    /// [block_size] temperatures, positive. Null: of a fixed calibration an error; an online one starts from the
    /// identity.
    double const* temperatures;
    double const* offsets;  ///< [block_size]; null: zeros
    // Of an online one (serving/online_maps.hpp, serving/online_calibration.hpp):
    int32_t fit;
    double prior_weight;          ///< observations that the start counts as
    double memory;                ///< rounds of one request after which observations have faded
    double trusted_observations;  ///< from which a map acts without a cap
    double assumed_acceptance;    ///< in (0, 1), of a first position that nobody has observed
    size_t max_requests;          ///< slots whose history is kept, for SURELEAP_FIT_HISTORY
    size_t tenants;               ///< places for maps of tenants; 0: one map for everybody
    double shared_weight;         ///< observations at which a tenant's map is half its own
} sureleap_calibration_options;

SURELEAP_C_API void sureleap_calibration_options_init(sureleap_calibration_options* options);
/// Bytes of a calibration's object. Its maps lie on the heap, where creation puts them.
SURELEAP_C_API size_t sureleap_calibration_bytes(void);
SURELEAP_C_API sureleap_result sureleap_calibration_create(sureleap_calibration_options const* options, void* memory,
                                                           size_t bytes, sureleap_calibration** calibration,
                                                           sureleap_error* error);
SURELEAP_C_API sureleap_result sureleap_calibration_destroy(sureleap_calibration* calibration);
/// The text of the last call that failed; "" before one has. Of no calibration a text that says so.
SURELEAP_C_API char const* sureleap_calibration_error(sureleap_calibration const* calibration);

/// The calibrated confidence of position k. `request` says whose it is (id, slot, tenant); null: nobody's in
/// particular.
SURELEAP_C_API sureleap_result sureleap_calibration_apply(sureleap_calibration* calibration,
                                                          sureleap_request const* request, size_t k, double confidence,
                                                          double* calibrated);
/// Learns from the round that ended last. Once for each round, before the next begins.
SURELEAP_C_API sureleap_result sureleap_calibration_observe(sureleap_calibration* calibration,
                                                            sureleap_round const* round);
/// The maps of all requests as temperatures and offsets, [positions] each: to save, and to start from another time.
SURELEAP_C_API sureleap_result sureleap_calibration_maps(sureleap_calibration* calibration, double* temperatures,
                                                         double* offsets, size_t positions);

#if defined(__cplusplus)
}
#endif

#endif

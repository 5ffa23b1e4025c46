// SPDX-License-Identifier: MIT
//
// The functions of the C interface: each is a guarded call of an object. Included once in a program (sureleap.h).

#include <cstddef>
#include <limits>
#include <new>

#include <sureleap/c/calibration.hpp>
#include <sureleap/c/cost.hpp>
#include <sureleap/c/handle.hpp>
#include <sureleap/c/round.hpp>
#include <sureleap/core/config.hpp>

#define SURELEAP_DETAIL_TEXT_(x) #x
#define SURELEAP_DETAIL_TEXT(x) SURELEAP_DETAIL_TEXT_(x)

extern "C" {

char const* sureleap_version(void) {
    return SURELEAP_DETAIL_TEXT(SURELEAP_VERSION_MAJOR) "." SURELEAP_DETAIL_TEXT(
        SURELEAP_VERSION_MINOR) "." SURELEAP_DETAIL_TEXT(SURELEAP_VERSION_PATCH);
}

// ---- costs -----------------------------------------------------------------------------------------------------

void sureleap_cost_options_init(sureleap_cost_options* options) {
    if (options == nullptr) return;
    *options = {};
    options->struct_size = sizeof *options;
}
size_t sureleap_cost_bytes(void) {
    return sureleap::c::bytes_of<sureleap_cost>;
}
sureleap_result sureleap_cost_create(sureleap_cost_options const* options, void* memory, size_t bytes,
                                     sureleap_cost** cost, sureleap_error* error) {
    using namespace sureleap::c;
    return guarded(
        [&] {
            expect_given("sureleap_cost_create", "cost", cost);
            expect_options("sureleap_cost_create", options);
            *cost =
                ::new (placed("sureleap_cost_create", memory, bytes, sureleap_cost_bytes())) sureleap_cost(*options);
        },
        to_error(error));
}
sureleap_result sureleap_cost_destroy(sureleap_cost* cost) {
    return sureleap::c::destroyed(cost);
}
sureleap_result sureleap_cost_seconds(sureleap_cost const* cost, sureleap_load const* load, double* seconds) {
    if (!sureleap::c::handle<sureleap_cost>::lives(cost)) return SURELEAP_INVALID_HANDLE;
    if (load == nullptr || seconds == nullptr) return SURELEAP_INVALID_ARGUMENT;
    *seconds = cost->model.step_seconds({load->requests, load->batch_tokens, load->drafting, load->draft_tokens,
                                         load->context_tokens, load->unread_tokens, load->replays});
    return SURELEAP_OK;
}

// ---- rounds ----------------------------------------------------------------------------------------------------

void sureleap_round_options_init(sureleap_round_options* options) {
    if (options == nullptr) return;
    *options = {};
    options->struct_size = sizeof *options;
    options->max_requests = 1;
    options->block_size = 7;
    options->fixed_length = std::numeric_limits<std::size_t>::max();
    options->prior = 0.8;
    options->lag = 2;
}
sureleap_result sureleap_round_bytes(sureleap_round_options const* options, size_t* bytes, sureleap_error* error) {
    using namespace sureleap::c;
    return guarded(
        [&] {
            expect_given("sureleap_round_bytes", "bytes", bytes);
            check_options(options);
            *bytes = round_bytes<sureleap::philox_randomness>(*options);
        },
        to_error(error));
}
sureleap_result sureleap_round_create(sureleap_round_options const* options, void* memory, size_t bytes,
                                      sureleap_round** round, sureleap_error* error) {
    using namespace sureleap::c;
    return guarded(
        [&] {
            expect_given("sureleap_round_create", "round", round);
            *round = make_round(options, memory, bytes, sureleap::philox_randomness{});
        },
        to_error(error));
}
sureleap_result sureleap_round_destroy(sureleap_round* round) {
    return sureleap::c::destroyed(round);
}
char const* sureleap_outcome_text(int32_t outcome) {
    bool const known = outcome >= 0 && outcome <= 255;
    return sureleap::to_string(known ? static_cast<sureleap::status>(outcome) : static_cast<sureleap::status>(255));
}
char const* sureleap_round_error(sureleap_round const* round) {
    return sureleap::c::text_of(round);
}

void sureleap_request_init(sureleap_request* request) {
    if (request == nullptr) return;
    *request = {};
    request->remaining = request->draft_limit = std::numeric_limits<std::size_t>::max();
    request->target = {1.0, 0, 1.0, 0.0};
    request->draft = {-1.0, 0, 1.0, 0.0};
    request->priority = 1.0;
}
sureleap_result sureleap_round_join(sureleap_round* round, size_t slot) {
    return sureleap::c::on(round, [&](sureleap_round& r) { r.does->join(slot); });
}
sureleap_result sureleap_round_begin(sureleap_round* round, sureleap_request const* requests, size_t count,
                                     size_t* draft_caps) {
    return sureleap::c::on(round, [&](sureleap_round& r) { r.does->begin(requests, count, draft_caps); });
}
sureleap_result sureleap_round_plan(sureleap_round* round, double const* confidences, size_t stride) {
    return sureleap::c::on(round, [&](sureleap_round& r) { r.does->plan(confidences, stride); });
}
sureleap_result sureleap_round_draft(sureleap_round* round, sureleap_drafts const* drafts) {
    return sureleap::c::on(round, [&](sureleap_round& r) { r.does->draft(drafts); });
}
sureleap_result sureleap_round_admit(sureleap_round* round, sureleap_batch* batch) {
    return sureleap::c::on(round, [&](sureleap_round& r) { r.does->admit(batch); });
}
sureleap_result sureleap_round_accept(sureleap_round* round, sureleap_rows const* rows) {
    return sureleap::c::on(round, [&](sureleap_round& r) { r.does->accept(rows); });
}
sureleap_result sureleap_round_end(sureleap_round* round, sureleap_verdict* verdicts, size_t capacity) {
    return sureleap::c::on(round, [&](sureleap_round& r) { r.does->end(verdicts, capacity); });
}
sureleap_result sureleap_round_rollback(sureleap_round* round) {
    return sureleap::c::on(round, [](sureleap_round& r) { r.does->rollback(); });
}

// ---- calibrations ----------------------------------------------------------------------------------------------

void sureleap_calibration_options_init(sureleap_calibration_options* options) {
    if (options == nullptr) return;
    sureleap::online_calibration_settings const settings;
    *options = {};
    options->struct_size = sizeof *options;
    options->fit = SURELEAP_FIT_PLATT;
    options->prior_weight = settings.maps.prior_weight;
    options->memory = settings.maps.memory;
    options->trusted_observations = settings.maps.trusted_observations;
    options->assumed_acceptance = settings.maps.assumed_acceptance;
    options->shared_weight = settings.shared_weight;
}
size_t sureleap_calibration_bytes(void) {
    return sureleap::c::bytes_of<sureleap_calibration>;
}
sureleap_result sureleap_calibration_create(sureleap_calibration_options const* options, void* memory, size_t bytes,
                                            sureleap_calibration** calibration, sureleap_error* error) {
    using namespace sureleap::c;
    char const* const who = "sureleap_calibration_create";
    return guarded(
        [&] {
            expect_given(who, "calibration", calibration);
            expect_options(who, options);
            *calibration =
                ::new (placed(who, memory, bytes, sureleap_calibration_bytes())) sureleap_calibration(*options);
        },
        to_error(error));
}
sureleap_result sureleap_calibration_destroy(sureleap_calibration* calibration) {
    return sureleap::c::destroyed(calibration);
}
char const* sureleap_calibration_error(sureleap_calibration const* calibration) {
    return sureleap::c::text_of(calibration);
}
sureleap_result sureleap_calibration_apply(sureleap_calibration* calibration, sureleap_request const* request, size_t k,
                                           double confidence, double* calibrated) {
    using namespace sureleap::c;
    return on(calibration, [&](sureleap_calibration& c) {
        char const* const who = "sureleap_calibration_apply";
        expect_given(who, "calibrated", calibrated);
        expect_size(who, "k", k, 0, c.maps.block_size() - 1);
        if (!(confidence >= 0.0 && confidence <= 1.0)) {
            sureleap::fail_with(who, ": confidence is ", confidence, ", expected a number in [0, 1]");
        }
        sureleap::request_settings settings;
        sureleap::request_view view{.slot = std::numeric_limits<std::size_t>::max(), .settings = &settings};
        if (request != nullptr) {
            settings.tenant = request->tenant;
            view.id = request->id;
            view.slot = request->slot;
        }
        *calibrated = c.maps(view, k, confidence);
    });
}
sureleap_result sureleap_calibration_observe(sureleap_calibration* calibration, sureleap_round const* round) {
    using namespace sureleap::c;
    return on(calibration, [&](sureleap_calibration& c) {
        if (!handle<sureleap_round>::lives(round)) {
            fail_as(SURELEAP_INVALID_HANDLE, "sureleap_calibration_observe: round is null or was destroyed");
        }
        c.maps.observe(round->does->ended());
    });
}
sureleap_result sureleap_calibration_maps(sureleap_calibration* calibration, double* temperatures, double* offsets,
                                          size_t positions) {
    using namespace sureleap::c;
    return on(calibration, [&](sureleap_calibration& c) {
        char const* const who = "sureleap_calibration_maps";
        expect_given(who, "temperatures", temperatures);
        expect_given(who, "offsets", offsets);
        expect_size(who, "positions", positions, c.maps.block_size(), c.maps.block_size());
        for (std::size_t k = 0; k < positions; ++k) {
            sureleap::logit_scaling const map = c.maps.map(k);
            temperatures[k] = map.temperature;
            offsets[k] = map.offset;
        }
    });
}

}  // extern "C"

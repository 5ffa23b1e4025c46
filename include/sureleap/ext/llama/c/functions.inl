// SPDX-License-Identifier: MIT
//
// The functions of the llama.cpp part of the C interface. Included once in a program (sureleap_llama.h).

#include <cstddef>
#include <limits>
#include <new>
#include <span>

#include <sureleap/c/handle.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/ext/llama/c/decoder.hpp>

extern "C" {

void sureleap_llama_options_init(sureleap_llama_options* options) {
    if (options == nullptr) return;
    *options = {};
    options->struct_size = sizeof *options;
    options->lookup = 1;
    options->rule = SURELEAP_KEYED_COUPLING;
    options->never_lose = 1;
    options->max_requests = 1;
    options->block_size = 7;
    options->fixed_length = std::numeric_limits<std::size_t>::max();
    options->prior = 0.8;
    options->lag = 2;
}
size_t sureleap_llama_bytes(void) {
    return sureleap::c::bytes_of<sureleap_llama>;
}
sureleap_result sureleap_llama_create(sureleap_llama_options const* options, void* memory, size_t bytes,
                                      sureleap_llama** decoder, sureleap_error* error) {
    using namespace sureleap::c;
    char const* const who = "sureleap_llama_create";
    return guarded(
        [&] {
            expect_given(who, "decoder", decoder);
            *decoder = ::new (placed(who, memory, bytes, sureleap_llama_bytes())) sureleap_llama(options);
        },
        to_error(error));
}
sureleap_result sureleap_llama_destroy(sureleap_llama* decoder) {
    return sureleap::c::destroyed(decoder);
}
char const* sureleap_llama_error(sureleap_llama const* decoder) {
    return sureleap::c::text_of(decoder);
}

void sureleap_llama_request_init(sureleap_llama_request* request) {
    if (request == nullptr) return;
    *request = {};
    request->target = {1.0, 0, 1.0, 0.0};
    request->draft = {-1.0, 0, 1.0, 0.0};
    request->max_new_tokens = 256;
    request->stops_at_end = 1;
    request->max_draft_tokens = std::numeric_limits<std::size_t>::max();
    request->priority = 1.0;
}
sureleap_result sureleap_llama_submit(sureleap_llama* decoder, sureleap_llama_request const* request, uint64_t* id) {
    using namespace sureleap::c;
    return on(decoder, [&](sureleap_llama& d) {
        expect_given("sureleap_llama_submit", "request", request);
        expect_given("sureleap_llama_submit", "id", id);
        *id = d.does->submit(*request);
    });
}
sureleap_result sureleap_llama_pause(sureleap_llama* decoder, uint64_t id) {
    return sureleap::c::on(decoder, [&](sureleap_llama& d) { d.does->pause(id); });
}
sureleap_result sureleap_llama_resume(sureleap_llama* decoder, uint64_t id) {
    return sureleap::c::on(decoder, [&](sureleap_llama& d) { d.does->resume(id); });
}
sureleap_result sureleap_llama_cancel(sureleap_llama* decoder, uint64_t id) {
    return sureleap::c::on(decoder, [&](sureleap_llama& d) { d.does->cancel(id); });
}

sureleap_result sureleap_llama_step(sureleap_llama* decoder, sureleap_llama_event const** events, size_t* count) {
    using namespace sureleap::c;
    return on(decoder, [&](sureleap_llama& d) {
        expect_given("sureleap_llama_step", "events", events);
        expect_given("sureleap_llama_step", "count", count);
        std::span<sureleap_llama_event const> const done = d.does->step();
        *events = done.data();
        *count = done.size();
    });
}
sureleap_result sureleap_llama_report_of(sureleap_llama* decoder, sureleap_llama_report* report) {
    using namespace sureleap::c;
    return on(decoder, [&](sureleap_llama& d) {
        expect_given("sureleap_llama_report_of", "report", report);
        d.does->report(*report);
    });
}

// ---- DSpark files ----------------------------------------------------------------------------------------------

size_t sureleap_llama_dspark_bytes(void) {
    return sureleap::c::bytes_of<sureleap_llama_dspark>;
}
sureleap_result sureleap_llama_dspark_create(char const* file, void* memory, size_t bytes,
                                             sureleap_llama_dspark** dspark, sureleap_error* error) {
    using namespace sureleap::c;
    char const* const who = "sureleap_llama_dspark_create";
    return guarded(
        [&] {
            expect_given(who, "dspark", dspark);
            expect_given(who, "file", file);
            *dspark = ::new (placed(who, memory, bytes, sureleap_llama_dspark_bytes())) sureleap_llama_dspark(file);
        },
        to_error(error));
}
sureleap_result sureleap_llama_dspark_attach(sureleap_llama_dspark* dspark, struct llama_context_params* params) {
    using namespace sureleap::c;
    return on(dspark, [&](sureleap_llama_dspark& d) {
        expect_given("sureleap_llama_dspark_attach", "params", params);
        d.model.attach(*params);
    });
}
sureleap_result sureleap_llama_dspark_destroy(sureleap_llama_dspark* dspark) {
    return sureleap::c::destroyed(dspark);
}
char const* sureleap_llama_dspark_error(sureleap_llama_dspark const* dspark) {
    return sureleap::c::text_of(dspark);
}

}  // extern "C"

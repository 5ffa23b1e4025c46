// SPDX-License-Identifier: MIT
//
// What a llama_context must be to serve rounds. Parameters that llama.cpp would answer with an abort, or with a pass
// over the weights for each request, are refused with the remedy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include <llama.h>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/pass.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace detail {

/// Passes over a context, counted together for all adapters that use it: it has the rows of its last pass alone.
[[nodiscard]] inline std::shared_ptr<pass_counter> passes_over(llama_context const* context) {
    static std::mutex busy;
    static std::map<llama_context const*, std::weak_ptr<pass_counter>> known;
    std::lock_guard const lock(busy);
    std::erase_if(known, [](auto const& one) { return one.second.expired(); });
    std::shared_ptr<pass_counter> passes = known[context].lock();
    if (passes == nullptr) known[context] = passes = std::make_shared<pass_counter>();
    return passes;
}

/// The context. Throws if rounds of `slots` requests on sequences from first_sequence on, with up to `most_rows` rows,
/// do not fit it, in the name of `owner`.
[[nodiscard]] inline llama_context* checked_context(char const* owner, llama_context* context, std::size_t slots,
                                                    llama_seq_id first_sequence, std::size_t most_rows) {
    if (context == nullptr) fail_with(owner, ": the context is null, expected what llama_init_from_model returned");
    llama_model const* const model = llama_get_model(context);
    if (llama_get_memory(context) == nullptr || llama_model_has_encoder(model) || !llama_model_has_decoder(model) ||
        llama_model_is_diffusion(model) || !llama_get_causal_attn(context)) {
        fail_with(owner, ": the model does not decode token by token, expected a causal model without an encoder");
    }
    if (slots == 0) fail_with(owner, ": max_requests is 0, expected at least 1");
    std::size_t const sequences = llama_n_seq_max(context);
    if (first_sequence < 0 || static_cast<std::size_t>(first_sequence) + slots > sequences) {
        fail_with(owner, ": the sequences ", first_sequence, " .. ",
                  static_cast<std::size_t>(first_sequence) + slots - 1,
                  " are needed, expected ids below n_seq_max = ", sequences, "; raise llama_context_params::n_seq_max");
    }
    if (slots > 1 && llama_n_ctx_seq(context) < llama_n_ctx(context)) {
        fail_with(owner,
                  ": the context keeps a cache for each sequence, which cuts batches of different lengths into "
                  "several passes; set llama_context_params::kv_unified");
    }
    if (most_rows > llama_n_batch(context) || most_rows > llama_n_ubatch(context)) {
        fail_with(owner, ": a round may have ", most_rows, " rows, expected at most n_batch = ", llama_n_batch(context),
                  " and n_ubatch = ", llama_n_ubatch(context),
                  "; raise them, or lower max_requests or the drafter's block_size");
    }
    if (llama_n_rs_seq(context) > 0 && llama_n_rs_seq(context) + 1 >= llama_n_ubatch(context)) {
        fail_with(owner, ": n_rs_seq is ", llama_n_rs_seq(context),
                  ", expected at most n_ubatch - 2 = ", static_cast<std::int64_t>(llama_n_ubatch(context)) - 2,
                  "; raise llama_context_params::n_ubatch");
    }
    if (llama_get_embeddings(context) != nullptr) {
        fail_with(owner,
                  ": embeddings are on, so that every token of a prompt is an output; clear "
                  "llama_context_params::embeddings");
    }
    return context;
}

}  // namespace detail
SURELEAP_END_NAMESPACE

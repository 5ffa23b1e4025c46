// SPDX-License-Identifier: MIT
//
// A drafter in a GGUF file that llama.cpp runs as well (general.architecture dflash, with a Markov head): it reads
// hidden states of the target, so it is there before the target's context is made.
//
//     sureleap_llama_dspark_create("drafter.gguf", memory, bytes, &dspark, &error);
//     struct llama_context_params params = llama_context_default_params();
//     sureleap_llama_dspark_attach(dspark, &params);
//     options.target = llama_init_from_model(model, params);
//     options.dspark = dspark;
#ifndef SURELEAP_LLAMA_C_DSPARK_H
#define SURELEAP_LLAMA_C_DSPARK_H

#include <sureleap/c/common.h>
#include <sureleap/ext/llama/c/decoder.h>

#if defined(__cplusplus)
extern "C" {
#endif

struct llama_context_params;

/// Bytes of its object. What it holds lies on the heap.
SURELEAP_C_API size_t sureleap_llama_dspark_bytes(void);
/// Loads the file. One without the target's tokenizer is completed before (examples/train/to_gguf.py --target).
SURELEAP_C_API sureleap_result sureleap_llama_dspark_create(char const* file, void* memory, size_t bytes,
                                                            sureleap_llama_dspark** dspark, sureleap_error* error);
/// Lets the context that is made from `params` lend hidden states. The object outlives it, and the decoder.
SURELEAP_C_API sureleap_result sureleap_llama_dspark_attach(sureleap_llama_dspark* dspark,
                                                            struct llama_context_params* params);
SURELEAP_C_API sureleap_result sureleap_llama_dspark_destroy(sureleap_llama_dspark* dspark);
/// As sureleap_llama_error.
SURELEAP_C_API char const* sureleap_llama_dspark_error(sureleap_llama_dspark const* dspark);

#if defined(__cplusplus)
}
#endif

#endif

/* SPDX-License-Identifier: MIT
 *
 * sureleap_llama.h in C99: what a program in C would write, without a model. */
#include <sureleap/sureleap_llama.h>

#include <stdlib.h>
#include <string.h>

int main(void) {
    sureleap_llama_options options;
    sureleap_llama_request request;
    sureleap_llama_dspark* dspark = NULL;
    sureleap_llama* decoder = NULL;
    sureleap_llama_event const* events = NULL;
    size_t count = 1;
    sureleap_error error;
    void* const memory = malloc(sureleap_llama_bytes());
    int wrong = memory == NULL;

    sureleap_llama_options_init(&options);
    wrong |=
        options.struct_size != sizeof options || options.rule != SURELEAP_KEYED_COUPLING || options.never_lose != 1;
    wrong |=
        sureleap_llama_create(&options, memory, sureleap_llama_bytes(), &decoder, &error) != SURELEAP_INVALID_ARGUMENT;
    wrong |= strcmp(error.text, "sureleap_llama: target is null, expected a pointer") != 0;
    sureleap_llama_request_init(&request);
    wrong |= request.max_new_tokens != 256 || request.draft.temperature >= 0.0;
    wrong |= sureleap_llama_step(decoder, &events, &count) != SURELEAP_INVALID_HANDLE;
    wrong |= sureleap_llama_dspark_create("nowhere.gguf", memory, 8, &dspark, &error) != SURELEAP_NO_MEMORY;
    free(memory);
    return wrong;
}

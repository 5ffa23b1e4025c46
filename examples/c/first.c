// SPDX-License-Identifier: MIT
//
// A first program in C99: one request, a toy target of eight tokens, and a draft that is the target at another
// temperature. Prints the tokens and how many rounds they took. Exit status 1 and a text if a call fails.
#include <sureleap/sureleap.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { V = 8, gamma_ = 4, tokens_wanted = 40 };

/// The logits after `token`, `sharpness` of 1 for the target.
static void model(int32_t token, float sharpness, float* logits) {
    for (int v = 0; v < V; ++v) logits[v] = sharpness * 2.0f * (float)sin(1.7 * token + 2.3 * v);
}

static void expect(sureleap_result result, char const* text) {
    if (result == SURELEAP_OK) return;
    fprintf(stderr, "sureleap: %d: %s\n", (int)result, text);
    exit(1);
}

int main(void) {
    sureleap_error error = {SURELEAP_OK, ""};
    sureleap_round_options options;
    sureleap_round_options_init(&options);
    options.rule = SURELEAP_BLOCK_VERIFICATION;
    options.block_size = gamma_;
    options.vocabulary = V;

    // All memory of the rounds: this much, yours, once.
    size_t bytes = 0;
    expect(sureleap_round_bytes(&options, &bytes, &error), error.text);
    void* const memory = malloc(bytes);
    sureleap_round* round = NULL;
    expect(sureleap_round_create(&options, memory, bytes, &round, &error), error.text);

    int32_t text[tokens_wanted + 1] = {3};  // the prompt is one token
    size_t size = 1;
    int rounds = 0;
    while (size < tokens_wanted + 1) {
        sureleap_request request;
        sureleap_request_init(&request);
        request.id = 1;
        request.anchor = text[size - 1];
        request.position = size - 1;
        request.seed = 42;
        request.remaining = tokens_wanted + 1 - size;
        size_t cap = 0;
        expect(sureleap_round_begin(round, &request, 1, &cap), sureleap_round_error(round));

        // The draft model runs once a position and sees the token that was drawn before.
        static float draft_logits[gamma_][V];  // kept until the round has ended: rows of float are not copied
        int32_t last = request.anchor;
        for (size_t k = 0; k < cap; ++k) {
            model(last, 0.7f, draft_logits[k]);
            sureleap_drafts const drafts = {.positions = 1,
                                            .rows = {.data = draft_logits[k], .rows = 1, .columns = V, .stride = V},
                                            .drawn = &last};
            expect(sureleap_round_draft(round, &drafts), sureleap_round_error(round));
        }

        // The target scores the anchor and what is verified of the chain, one row each.
        sureleap_batch batch;
        expect(sureleap_round_admit(round, &batch), sureleap_round_error(round));
        static float target_logits[(gamma_ + 1) * V];
        for (size_t i = 0; i < batch.rows; ++i) model(batch.tokens[i], 1.0f, target_logits + i * V);
        sureleap_rows const rows = {.data = target_logits, .rows = batch.rows, .columns = V, .stride = V};
        expect(sureleap_round_accept(round, &rows), sureleap_round_error(round));

        sureleap_verdict verdict;
        expect(sureleap_round_end(round, &verdict, 1), sureleap_round_error(round));
        if (verdict.outcome != SURELEAP_REQUEST_OK) return 1;
        for (size_t i = 0; i < verdict.emitted_count; ++i) text[size++] = verdict.emitted[i];
        ++rounds;
    }

    for (size_t i = 1; i < size; ++i) printf("%d ", (int)text[i]);
    printf("\n%d tokens in %d rounds, sureleap %s\n", tokens_wanted, rounds, sureleap_version());
    expect(sureleap_round_destroy(round), "destroy");
    free(memory);
    return rounds < tokens_wanted ? 0 : 1;
}

// SPDX-License-Identifier: MIT
//
// Speculation in llama.cpp, the least that it takes: prompt lookup drafts, the model verifies.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <sureleap/ext/llama.hpp>
#include <sureleap/fit/profile.hpp>
#include <sureleap/serving.hpp>
#include <sureleap/sureleap.hpp>

using namespace sureleap;

int main(int argc, char** argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: %s MODEL.gguf PROMPT\n", argv[0]);
        return 2;
    }
    llama_log_set([](ggml_log_level, char const*, void*) {}, nullptr);

    std::unique_ptr<llama_model, decltype(&llama_model_free)> const model{
        llama_model_load_from_file(argv[1], llama_model_default_params()), llama_model_free};
    if (!model) {
        std::fprintf(stderr, "%s cannot be loaded\n", argv[1]);
        return 1;
    }
    llama_context_params params = llama_context_default_params();
    params.n_ctx = 2048;
    std::unique_ptr<llama_context, decltype(&llama_free)> const context{llama_init_from_model(model.get(), params),
                                                                        llama_free};
    llama_vocab const* const vocab = llama_model_get_vocab(model.get());

    // What was said before is proposed again; V is the model's, so that a wrong one cannot be given.
    lookup drafter{{.block_size = 5, .target_vocabulary = static_cast<std::size_t>(llama_vocab_n_tokens(vocab))}};
    llama_target target{context.get(), drafter};

    // What a pass of so many rows costs here decides whether a draft is worth verifying.
    auto const capacity = profile([&](std::size_t rows) { target.dry_run(rows); }, {1, 2, 3, 4, 5, 6});
    never_lose schedule{fixed_schedule{}, capacity};

    decoder dec{target, drafter, schedule, keyed_coupling{}, {.max_tokens = target.max_tokens()}};
    auto const ends = llama_end_tokens(vocab);
    dec.submit(llama_tokens(vocab, argv[2], true),
               {.temperature = 0.2, .top_p = 0.9, .seed = 13, .max_new_tokens = 200, .stop_tokens = ends});
    while (dec.step()) {
        for (token_id const x : dec.events()[0].tokens) {
            if (!llama_vocab_is_eog(vocab, x)) std::fputs(llama_piece(vocab, x).c_str(), stdout);
        }
        std::fflush(stdout);
    }
    std::printf("\n%.2f tokens a pass\n", dec.report().tau());
}

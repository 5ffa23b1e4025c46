// SPDX-License-Identifier: MIT
//
// Writes a GGUF file in another format, by libllama's own quantiser: what a row costs, and so what speculation can win,
// depends on it.
#include <cstdio>
#include <string_view>

#include <llama.h>

int main(int argc, char** argv) {
    struct format {
        std::string_view name;
        llama_ftype type;
    };
    constexpr format formats[] = {{"F16", LLAMA_FTYPE_MOSTLY_F16},
                                  {"Q8_0", LLAMA_FTYPE_MOSTLY_Q8_0},
                                  {"Q4_0", LLAMA_FTYPE_MOSTLY_Q4_0},
                                  {"Q4_1", LLAMA_FTYPE_MOSTLY_Q4_1},
                                  {"Q4_K", LLAMA_FTYPE_MOSTLY_Q4_K_M}};
    if (argc != 4) {
        std::fprintf(stderr, "usage: %s FROM.gguf FORMAT TO.gguf, the format one of", argv[0]);
        for (auto const& f : formats) std::fprintf(stderr, " %s", f.name.data());
        std::fprintf(stderr, "\n");
        return 2;
    }
    for (auto const& f : formats) {
        if (f.name != argv[2]) continue;
        llama_log_set([](ggml_log_level, char const*, void*) {}, nullptr);
        llama_model_quantize_params params = llama_model_quantize_default_params();
        params.ftype = f.type;
        params.allow_requantize = true;
        if (llama_model_quantize(argv[1], argv[3], &params) == 0) return 0;
        std::fprintf(stderr, "%s cannot be written as %s\n", argv[1], argv[2]);
        return 1;
    }
    std::fprintf(stderr, "%s is no format that this program knows\n", argv[2]);
    return 2;
}

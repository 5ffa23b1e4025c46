// SPDX-License-Identifier: MIT
#include "tiny.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <sureleap/core/error.hpp>

// The build says where the files are, so that the program runs from any directory.
#ifndef GENERATE_GOLDEN_DIR
#define GENERATE_GOLDEN_DIR "tests/golden"
#endif

namespace generate {
namespace {

sureleap::safetensors::file open_arrays() {
    std::filesystem::path const file = std::filesystem::path(GENERATE_GOLDEN_DIR) / "loop_t1.safetensors";
    if (!std::filesystem::exists(file)) {
        sureleap::fail_with(file.string(),
                            ": the tiny models are not where they were when this program was "
                            "built; give --target a folder");
    }
    return sureleap::safetensors::file::map(file);
}

}  // namespace

std::filesystem::path tiny_drafter() {
    return std::filesystem::path(GENERATE_GOLDEN_DIR) / "tiny_dspark_ckpt";
}

std::vector<sureleap::token_id> tiny_prompt() {
    auto const arrays = open_arrays();
    char const* const name = "s0.prompt";
    std::size_t const size = arrays.at(name).bytes.size() / sizeof(std::int32_t);
    auto const ids = arrays.values<std::int32_t>(name, {1, size});
    return {ids.begin(), ids.end()};
}

tiny_target::tiny_target() : arrays_(open_arrays()), drafter_(tiny_drafter()) {}

engine::stand_in<float>::weights tiny_target::weights() const {
    auto const& config = drafter_.config();
    std::size_t const V = config.transformer.vocabulary;
    std::size_t const d = config.transformer.hidden_size;
    std::size_t const r = config.draft->markov_rank;
    auto const matrix = [&](double const* data, std::size_t rows) {
        return engine::weight{data, engine::storage::f64, rows, d};
    };
    std::size_t const layers = config.draft->num_target_layers;
    std::size_t const positions = arrays_.at("P").bytes.size() / sizeof(double) / d;
    double const* const a = arrays_.values<double>("A", {layers, d, d}).data();
    engine::stand_in<float>::weights w{
        .embeddings = drafter_.matrix("embed_tokens.weight", V, d),
        .layers = {},
        .positions = matrix(arrays_.values<double>("P", {positions, d}).data(), positions),
        .output = matrix(arrays_.values<double>("W", {V, d}).data(), V),
        .bigram_in = drafter_.matrix("markov_head.markov_w1.weight", V, r),
        .bigram_out = drafter_.matrix("markov_head.markov_w2.weight", V, r),
    };
    for (std::size_t l = 0; l < layers; ++l) w.layers.push_back(matrix(a + l * d * d, d));
    return w;
}

}  // namespace generate

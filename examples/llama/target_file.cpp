// SPDX-License-Identifier: MIT
//
// generate and evaluate, with targets that llama.cpp computes: the programs llama and llama_bench.
#include <generate/target_file.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "llama_lm.hpp"

namespace generate {

loaded_target load_target_file(options const& chosen, std::vector<int> features, engine::thread_pool& pool,
                               engine::serving_limits const& limits, engine::any_ranks*) {
    // A tree of leaves alone has as many paths as tokens.
    auto model = std::make_unique<llama_example::llama_lm>(chosen.target, std::move(features), pool, limits,
                                                           std::max<std::size_t>(chosen.tree, 1));
    auto const layers = static_cast<std::size_t>(llama_model_n_layer(model->model()));
    auto const bytes = static_cast<std::size_t>(llama_model_size(model->model()));
    model_facts facts{.name = last_name(chosen.target) + " in llama.cpp " + llama_version(),
                      .description = sizes(layers, model->hidden_size(), model->vocabulary()),
                      .file_bytes = bytes,
                      .weight_bytes = bytes};
    auto stop_tokens = sureleap::llama_end_tokens(llama_model_get_vocab(model->model()));
    return {nullptr, std::move(model), layers, std::move(stop_tokens), std::move(facts), {}};
}

}  // namespace generate

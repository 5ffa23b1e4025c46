// SPDX-License-Identifier: MIT
#include "target_file.hpp"

#include <engine/causal_lm.hpp>
#include <engine/model_files.hpp>

namespace generate {

loaded_target load_target_file(options const& chosen, std::vector<int> features, engine::thread_pool& pool,
                               engine::serving_limits const& limits, engine::any_ranks* ranks) {
    auto config = engine::config_of(chosen.target);
    config.products = products_of(chosen);
    if (ranks != nullptr) config.place = {ranks->rank(), ranks->size()};
    engine::checkpoint from = engine::checkpoint_of(chosen.target, std::move(config));
    mapped_files mapped(last_name(chosen.target), from);
    std::size_t const bytes = from.bytes();
    auto stop_tokens = from.config().stop_tokens;
    auto model = std::make_unique<engine::causal_lm<float>>(std::move(from), std::move(features), pool, limits, ranks);
    std::size_t const layers = model->config().layers;
    model_facts facts{.name = mapped.name,
                      .description = sizes(layers, model->hidden_size(), model->vocabulary()),
                      .file_bytes = bytes,
                      .weight_bytes = model->weight_bytes()};
    return {nullptr, std::move(model), layers, std::move(stop_tokens), std::move(facts), std::move(mapped)};
}

}  // namespace generate

// SPDX-License-Identifier: MIT
//
// A target by its file. Whoever computes it is chosen when a program is linked: the engine's own model
// (target_file.cpp), or llama.cpp (examples/llama/target_file.cpp).
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <engine/checkpoint.hpp>
#include <engine/target.hpp>
#include <engine/thread_pool.hpp>

#include "numbers.hpp"
#include "options.hpp"

namespace generate {

/// A model in words and numbers.
struct model_facts {
    std::string name;
    std::string description;
    std::size_t file_bytes = 0;    ///< mapped
    std::size_t weight_bytes = 0;  ///< read by one pass; 0 if that is not known
};

/// The files of a checkpoint as they lie in memory; they stay there when it moves.
struct mapped_files {
    std::string name;
    std::vector<std::span<std::byte const>> parts;

    mapped_files() = default;
    mapped_files(std::string of, engine::checkpoint const& from) : name(std::move(of)) {
        for (auto const& file : from.files()) parts.push_back(file.bytes());
    }
};

struct loaded_target {
    std::shared_ptr<void const> files;  ///< what the model points into, if it keeps none of its own
    std::unique_ptr<engine::target<float>> model;
    std::size_t layers = 0;
    std::vector<token_id> stop_tokens;
    model_facts facts;
    mapped_files mapped;  ///< to be read before the first pass
};

[[nodiscard]] inline std::string last_name(std::filesystem::path const& folder) {
    return (folder.has_filename() ? folder : folder.parent_path()).filename().string();
}
[[nodiscard]] inline std::string sizes(std::size_t layers, std::size_t hidden_size, std::size_t vocabulary) {
    return counted(layers, "layer") + ", hidden size " + grouped(hidden_size) + ", vocabulary " + grouped(vocabulary);
}
[[nodiscard]] inline engine::arithmetic products_of(options const& chosen) noexcept {
    return chosen.bf16 ? engine::arithmetic::bf16 : engine::arithmetic::full;
}

/// The model at options::target, with the hidden states of such layers. Pool and ranks (null: none) must outlive it.
/// Throws sureleap::error.
[[nodiscard]] loaded_target load_target_file(options const& chosen, std::vector<int> features,
                                             engine::thread_pool& pool, engine::serving_limits const& limits,
                                             engine::any_ranks* ranks);

}  // namespace generate

// SPDX-License-Identifier: MIT
#include "model_files.hpp"

#include <memory>
#include <system_error>
#include <utility>

#include "gguf/file.hpp"
#include "gguf/model.hpp"

namespace engine {
namespace {

std::shared_ptr<gguf::file const> map(std::filesystem::path const& path) {
    return std::make_shared<gguf::file const>(gguf::file::map(path));
}

}  // namespace

bool is_gguf(std::filesystem::path const& path) {
    std::error_code ignored;
    return std::filesystem::is_regular_file(path, ignored);
}

model_config config_of(std::filesystem::path const& path) {
    if (!is_gguf(path)) return load_config(path);
    auto const file = map(path);
    model_config config = gguf::read_config(*file);
    if (is_target(config.kind)) config.stop_tokens = stop_tokens_of(*file);  // a drafter's file has no tokenizer
    return config;
}

checkpoint checkpoint_of(std::filesystem::path const& path, arithmetic products) {
    model_config config = config_of(path);
    config.products = products;
    return checkpoint_of(path, std::move(config));
}

checkpoint checkpoint_of(std::filesystem::path const& path, model_config config) {
    return is_gguf(path) ? gguf::load(map(path), std::move(config)) : checkpoint(path, std::move(config));
}

std::optional<tokenizer> tokenizer_of(std::filesystem::path const& path) {
    if (is_gguf(path)) return tokenizer::from_gguf(*map(path));
    std::filesystem::path const file = path / "tokenizer.json";
    if (std::error_code ignored; !std::filesystem::exists(file, ignored)) return std::nullopt;
    return tokenizer::load(file);
}

chat_template chat_template_of(std::filesystem::path const& path) {
    return is_gguf(path) ? chat_template_of(*map(path)) : chat_template{};
}

}  // namespace engine

// SPDX-License-Identifier: MIT
//
// Writes a folder with random weights in the layout and shapes of a released model. So loading, memory and speed can be
// measured without a download: they do not depend on the values of weights.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include <CLI/CLI.hpp>

#include <engine/checkpoint.hpp>
#include <engine/synthetic.hpp>

int main(int argc, char** argv) {
    std::map<std::string, std::function<engine::model_config()>> const models{
        {"qwen3-0.6b", engine::qwen3_0_6b},
        {"qwen3-4b", engine::qwen3_4b},
        {"dspark-qwen3-0.6b-block7", engine::dspark_qwen3_0_6b_block7},
        {"dspark-qwen3-4b-block7", engine::dspark_qwen3_4b_block7},
        {"dflash-qwen3-4b-block7", engine::dflash_qwen3_4b_block7},
    };
    std::map<std::string, engine::storage> const storages{
        {"bf16", engine::storage::bf16}, {"f16", engine::storage::f16}, {"f32", engine::storage::f32}};

    CLI::App app{"Writes a model folder with random weights in a released layout."};
    std::string model;
    std::filesystem::path folder;
    std::string type = "bf16";
    std::uint64_t seed = 1;
    double shard_gib = 0;
    app.add_option("model", model, "which shapes")->required()->check(CLI::IsMember(models));
    app.add_option("folder", folder, "where to; made if missing")->required();
    app.add_option("--storage", type, "of the weights")->check(CLI::IsMember(storages))->capture_default_str();
    app.add_option("--seed", seed, "of the weights")->capture_default_str();
    app.add_option("--shard-gib", shard_gib, "largest shard; 0 writes one file")->check(CLI::NonNegativeNumber);
    CLI11_PARSE(app, argc, argv);

    try {
        engine::write_folder(folder, models.at(model)(), storages.at(type), seed,
                             static_cast<std::size_t>(shard_gib * 1073741824.0));
        engine::checkpoint const written{folder};
        std::printf("%s: %zu tensors, %zu bytes\n", folder.string().c_str(), written.names().size(), written.bytes());
        return 0;
    } catch (std::exception const& e) {
        std::fprintf(stderr, "make_model: %s\n", e.what());
        return 2;
    }
}

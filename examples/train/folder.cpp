// SPDX-License-Identifier: MIT
#include "folder.hpp"

#include <fstream>
#include <string>
#include <vector>

#include <engine/checkpoint.hpp>
#include <engine/synthetic.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/ext/safetensors_writer.hpp>

namespace train {

void write_model(std::filesystem::path const& folder, engine::model_config const& config,
                 parameter_layout const& layout, std::span<float const> values,
                 std::span<sureleap::token_id const> drafted) {
    std::filesystem::create_directories(folder);
    std::vector<sureleap::safetensors::tensor_spec> specs;
    if (!drafted.empty()) specs.push_back({"d2t", sureleap::safetensors::dtype::i32, {drafted.size()}});
    for (auto const& e : layout.entries()) {
        auto const& t = e.place;
        specs.push_back(
            {e.name, sureleap::safetensors::dtype::bf16, e.vector ? std::vector{t.cols} : std::vector{t.rows, t.cols}});
    }
    sureleap::safetensors::writer out(folder / "model.safetensors", specs, {{"format", "pt"}});
    out.append(std::as_bytes(drafted));
    std::vector<sureleap::bf16> rounded;
    for (auto const& e : layout.entries()) {
        rounded.clear();
        for (float const v : e.place.values(values)) rounded.emplace_back(v);
        out.append(std::as_bytes(std::span(rounded)));
    }
    out.finish();
    auto const file = folder / "config.json";
    std::ofstream json(file);
    json << engine::config_json(config) << '\n';
    if (!json.flush()) sureleap::fail_with(file.string(), ": cannot be written");
}

aligned_vector<float> read_parameters(std::filesystem::path const& folder, parameter_layout const& layout) {
    aligned_vector<float> values(layout.size());
    layout.load(engine::checkpoint(folder), std::span(values));
    return values;
}

}  // namespace train

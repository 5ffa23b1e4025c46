// SPDX-License-Identifier: MIT
//
// The engine's models from golden files: the tiny drafter's folder, and the attention-free target beside it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <list>
#include <random>
#include <regex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <engine/checkpoint.hpp>
#include <engine/config.hpp>
#include <engine/kernels.hpp>
#include <engine/stand_in.hpp>
#include <sureleap/ext/safetensors.hpp>
#include <sureleap/ext/safetensors_writer.hpp>

#include "support/safetensors.hpp"

namespace golden {

/// How a file was made, where its arrays do not say: the first group of `pattern` in its description in index.json, or
/// in that of `like`, of which some files say they are the same; `fallback` if there is no such text.
inline std::string stated(std::string const& name, std::string const& like, std::string const& pattern,
                          std::string const& fallback) {
    std::ifstream in(path() + "/index.json");
    auto const index = nlohmann::json::parse(in, nullptr, false);
    for (std::string const& of : {name, like}) {
        nlohmann::json::json_pointer const place("/files/" + of + ".safetensors/description");
        std::string const text = index.is_object() ? index.value(place, "") : "";
        if (std::smatch found; std::regex_search(text, found, std::regex(pattern))) return found[1];
    }
    return fallback;
}

inline std::filesystem::path tiny_drafter() {
    return std::filesystem::path(path()) / "tiny_dspark_ckpt";
}

/// The drafter of eagle3_loop, which holds weights without a configuration: what shapes do not tell is how the file was
/// made.
inline engine::model_config eagle3_config(file const& f) {
    auto const shape = [&](std::string const& name) { return f.f64("w." + name).shape; };
    engine::model_config config;
    config.kind = engine::architecture::eagle3;
    auto& t = config.transformer;
    t.vocabulary = shape("embed_tokens.weight")[0];
    t.hidden_size = shape("embed_tokens.weight")[1];
    t.intermediate_size = shape("layers.0.mlp.gate_proj.weight")[0];
    t.layers = 1;
    t.head_dim = shape("layers.0.self_attn.q_norm.weight")[0];
    t.heads = shape("layers.0.self_attn.q_proj.weight")[0] / t.head_dim;
    t.kv_heads = shape("layers.0.self_attn.k_proj.weight")[0] / t.head_dim;
    t.max_positions = 4096;
    t.rope_theta = 1e6;
    t.rms_norm_eps = 1e-6;
    config.draft =
        engine::draft_config{.block_size = std::stoul(golden::stated("eagle3_loop", "", R"(ttt_length ([0-9]+))", "7")),
                             .target_layer_ids = {}};
    for (std::size_t i = 0; i < shape("fc.weight")[1] / t.hidden_size; ++i) {
        config.draft->target_layer_ids.push_back(static_cast<int>(i));
    }
    return config;
}

/// Keeps arrays alive and hands them out as weights: parts of double arrays, in double.
class weight_store {
public:
    engine::weight matrix(file const& f, std::string const& name) {
        arrays_.push_back(f.f64(name));
        auto const& a = arrays_.back();
        return {a.data(), engine::storage::f64, a.dim(0), a.dim(1)};
    }
    /// [n, rows, cols] as n matrices.
    std::vector<engine::weight> matrices(file const& f, std::string const& name) {
        arrays_.push_back(f.f64(name));
        auto const& a = arrays_.back();
        std::vector<engine::weight> out;
        for (std::size_t i = 0; i < a.dim(0); ++i) {
            out.push_back({a.row(i).data(), engine::storage::f64, a.dim(1), a.dim(2)});
        }
        return out;
    }
    /// The target of a loop file, over these embeddings.
    template <class Real>
    typename engine::stand_in<Real>::weights target(file const& f, engine::weight const& embeddings) {
        return {.embeddings = embeddings,
                .layers = matrices(f, "A"),
                .positions = matrix(f, "P"),
                .output = matrix(f, "W")};
    }

private:
    std::list<tensor<double>> arrays_;  // a list: weights point into what must not move
};

/// The arrays of a file whose names begin with `prefix`, without it, as a model. Matrices and vectors of doubles.
[[nodiscard]] inline engine::checkpoint copy_of(file const& f, std::string const& prefix,
                                                engine::model_config const& config) {
    namespace st = sureleap::safetensors;
    std::vector<st::tensor_spec> specs;
    for (std::string const& name : f.names()) {
        if (name.starts_with(prefix)) specs.push_back({name.substr(prefix.size()), st::dtype::f64, f.f64(name).shape});
    }
    // Mapped, then unlinked: the mapping holds the file.
    std::string const unique = std::to_string(std::random_device{}());
    auto const path = std::filesystem::temp_directory_path() / ("sureleap-golden-" + unique + ".safetensors");
    st::writer out(path, specs);
    for (auto const& spec : specs) {
        auto const values = f.f64(prefix + spec.name).values;
        out.append(std::as_bytes(std::span(values)));
    }
    out.finish();
    std::vector<st::file> files;
    files.push_back(st::file::map(path));
    std::filesystem::remove(path);
    return engine::checkpoint::from_files(config, std::move(files));
}

/// max |a - b| over two ranges of numbers, scaled by the larger of 1 and the largest |b|. NaN counts as infinite.
template <class A, class B>
[[nodiscard]] double difference(A const& a, B const& b) {
    if (a.size() != b.size()) return INFINITY;
    double worst = 0;
    double scale = 1;
    for (std::size_t i = 0; i < a.size(); ++i) {
        double const d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
        if (!(d <= worst)) worst = std::isnan(d) ? INFINITY : d;
        scale = std::max(scale, std::abs(static_cast<double>(b[i])));
    }
    return worst / scale;
}

}  // namespace golden

// SPDX-License-Identifier: MIT
//
// Folders: the reference checkpoint, random ones in every storage format, whole and in shards, and what is refused.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sureleap/ext/safetensors.hpp>
#include <sureleap/ext/safetensors_writer.hpp>

#include <engine/checkpoint.hpp>
#include <engine/synthetic.hpp>

#include "support/catch.hpp"
#include "support/dice.hpp"
#include "support/error_text.hpp"
#include "support/safetensors.hpp"
#include "support/scratch_folder.hpp"

namespace fs = std::filesystem;
namespace st = sureleap::safetensors;

using engine::checkpoint;
using engine::model_config;
using engine::storage;
using support::error_text;

namespace {

/// Paths in it are text, as in messages.
struct temporary_folder : support::scratch_folder {
    temporary_folder() : scratch_folder("checkpoint") {}
    [[nodiscard]] std::string operator/(char const* name) const { return (path / name).string(); }
};

fs::path reference() {
    return fs::path(golden::path()) / "tiny_dspark_ckpt";
}

model_config small_target(bool tied) {
    model_config c;
    c.transformer = {.vocabulary = 50,
                     .hidden_size = 24,
                     .intermediate_size = 40,
                     .layers = 3,
                     .heads = 4,
                     .kv_heads = 2,
                     .head_dim = 6,
                     .max_positions = 128,
                     .rope_theta = 1e4,
                     .rms_norm_eps = 1e-6,
                     .tied_embeddings = tied};
    c.stop_tokens = {7, 9};
    return c;
}

model_config small_dspark(engine::head_kind head, bool with_markov) {
    model_config c = small_target(false);
    c.kind = engine::architecture::dspark;
    c.draft = {.block_size = 5,
               .target_layer_ids = {-1, 2},
               .num_target_layers = 6,
               .mask_token = 49,
               .markov_rank = head == engine::head_kind::none ? 0u : 10u,
               .head = head,
               .confidence = true,
               .confidence_with_markov = with_markov};
    return c;
}

model_config small_eagle3() {
    model_config c = small_target(false);
    c.kind = engine::architecture::eagle3;
    c.transformer.layers = 1;
    c.draft.emplace();
    c.draft->block_size = 7;
    c.draft->target_layer_ids = {0, 1, 2, 3, 4};
    return c;
}

std::vector<model_config> all_kinds() {
    using engine::head_kind;
    return {small_target(true),
            small_target(false),
            small_dspark(head_kind::none, false),
            small_dspark(head_kind::vanilla, true),
            small_dspark(head_kind::gated, false),
            small_dspark(head_kind::rnn, true),
            small_eagle3()};
}

/// Every tensor of the layout, as doubles.
std::vector<std::vector<double>> contents(checkpoint const& c, storage type) {
    std::vector<std::vector<double>> all;
    for (st::tensor_spec const& spec : engine::layout(c.config(), type)) {
        if (spec.shape.size() == 1) {
            all.push_back(c.vector<double>(spec.name, spec.shape[0]));
            continue;
        }
        engine::weight const w = c.matrix(spec.name, spec.shape[0], spec.shape[1]);
        std::vector<double> values(w.rows * w.cols);
        for (std::size_t i = 0; i < values.size(); ++i) {
            auto const at = [&]<class T>(T stored) {
                std::memcpy(&stored, static_cast<std::byte const*>(w.data) + i * sizeof stored, sizeof stored);
                return static_cast<double>(sureleap::load(stored));
            };
            switch (w.type) {
                case storage::bf16: values[i] = at(sureleap::bf16{}); break;
                case storage::f16: values[i] = at(sureleap::half{}); break;
                case storage::f32: values[i] = at(float{}); break;
                case storage::f64: values[i] = at(double{}); break;
                default: FAIL("packed");
            }
        }
        all.push_back(std::move(values));
    }
    return all;
}

struct content {
    st::tensor_spec spec;
    std::vector<std::byte> bytes;
};

template <class T>
content tensor(std::string name, std::vector<std::size_t> shape, std::vector<T> const& values) {
    auto const bytes = std::as_bytes(std::span(values));
    return {{std::move(name), st::dtype_of<T>, std::move(shape)}, {bytes.begin(), bytes.end()}};
}

void write_file(std::string const& path, std::vector<content> const& tensors) {
    std::vector<st::tensor_spec> specs;
    for (content const& t : tensors) specs.push_back(t.spec);
    st::writer out(path, specs);
    for (content const& t : tensors) out.append(t.bytes);
    out.finish();
}

std::string config_text() {
    return engine::config_json(small_target(true));
}

std::string refusal(fs::path const& folder) {
    return error_text([&] { checkpoint const c(folder); });
}

}  // namespace

// ---- the reference checkpoint ----------------------------------------------------------------------------------

TEST_CASE("the reference checkpoint loads, and has the values that another reader finds") {
    checkpoint const c(reference());
    golden::file const file("tiny_dspark_ckpt/model");
    CHECK(c.folder() == reference());
    CHECK(c.names() == file.names());
    CHECK(c.bytes() == fs::file_size(reference() / "model.safetensors"));
    CHECK(c.config() == engine::load_config(reference()));

    auto const norm = file.f64("norm.weight");
    CHECK(c.vector<double>("norm.weight", 32) == norm.values);
    CHECK(c.vector<float>("norm.weight", 32) == std::vector<float>(norm.values.begin(), norm.values.end()));

    auto const all = contents(c, storage::bf16);
    REQUIRE(all.size() == file.names().size());
    for (std::size_t i = 0; i < all.size(); ++i) {
        INFO(file.names()[i]);
        CHECK(all[i] == file.f64(file.names()[i]).values);
    }
    CHECK(c.contains("fc.weight"));
    CHECK_FALSE(c.contains("fc.bias"));
}

TEST_CASE("a folder under another configuration than its own") {
    model_config shorter = engine::load_config(reference());
    shorter.draft->block_size = 3;
    checkpoint const c(reference(), shorter);
    CHECK(c.config() == shorter);
    CHECK(c.vector<double>("norm.weight", 32) == checkpoint(reference()).vector<double>("norm.weight", 32));
}

TEST_CASE("what a checkpoint hands out survives a move") {
    checkpoint a(reference());
    engine::weight const before = a.matrix("fc.weight", 32, 96);
    std::vector<checkpoint> moved;
    moved.push_back(std::move(a));
    moved.emplace_back(reference());
    CHECK(moved[0].matrix("fc.weight", 32, 96).data == before.data);
    CHECK(moved[1].matrix("fc.weight", 32, 96).data != before.data);
    CHECK(moved[0].vector<double>("norm.weight", 32) == moved[1].vector<double>("norm.weight", 32));
}

TEST_CASE("the layout is that of the reference checkpoint") {
    auto const specs = engine::layout(engine::load_config(reference()), storage::bf16);
    auto const file = st::file::map(reference() / "model.safetensors");
    REQUIRE(specs.size() == file.tensors().size());
    for (std::size_t i = 0; i < specs.size(); ++i) {
        CHECK(specs[i].name == file.tensors()[i].name);
        CHECK(specs[i].shape == file.tensors()[i].shape);
        CHECK(specs[i].type == file.tensors()[i].type);
    }
    CHECK(st::file_size(specs, {{"format", "pt"}}) == file.bytes().size());
}

TEST_CASE("the layout of Eagle3 is that of the reference model") {
    golden::file const file("eagle3_loop");
    model_config c = small_eagle3();
    c.transformer.vocabulary = 97;
    c.transformer.hidden_size = 32;
    c.transformer.intermediate_size = 64;
    c.transformer.head_dim = 8;
    std::size_t weights = 0;
    for (std::string const& name : file.names()) weights += name.starts_with("w.");
    auto const specs = engine::layout(c, storage::f64);
    CHECK(specs.size() == weights);
    for (st::tensor_spec const& spec : specs) {
        INFO(spec.name);
        CHECK(file.f64("w." + spec.name).shape == spec.shape);
    }
}

TEST_CASE("the layouts of published checkpoints have the published sizes") {
    auto const size = [](model_config const& c) {
        return st::file_size(engine::layout(c, storage::bf16), {{"format", "pt"}});
    };
    CHECK(size(engine::dspark_qwen3_4b_block7()) == 2'786'273'970);
    CHECK(size(engine::dflash_qwen3_4b_block7()) == 2'630'685'488);
    CHECK(engine::dspark_qwen3_4b_block7().draft->target_layer_ids == std::vector<int>{1, 9, 17, 25, 33});
}

TEST_CASE("names of the layout") {
    auto const names = [](model_config const& c) {
        std::vector<std::string> all;
        for (auto const& spec : engine::layout(c, storage::bf16)) all.push_back(spec.name);
        return all;
    };
    model_config one = small_target(true);
    one.transformer.layers = 1;
    std::vector<std::string> expected{"model.embed_tokens.weight",
                                      "model.layers.0.input_layernorm.weight",
                                      "model.layers.0.mlp.down_proj.weight",
                                      "model.layers.0.mlp.gate_proj.weight",
                                      "model.layers.0.mlp.up_proj.weight",
                                      "model.layers.0.post_attention_layernorm.weight",
                                      "model.layers.0.self_attn.k_norm.weight",
                                      "model.layers.0.self_attn.k_proj.weight",
                                      "model.layers.0.self_attn.o_proj.weight",
                                      "model.layers.0.self_attn.q_norm.weight",
                                      "model.layers.0.self_attn.q_proj.weight",
                                      "model.layers.0.self_attn.v_proj.weight",
                                      "model.norm.weight"};
    CHECK(names(one) == expected);
    one.transformer.tied_embeddings = false;
    expected.insert(expected.begin(), "lm_head.weight");
    CHECK(names(one) == expected);

    // Heads: shapes from the table of the checkpoint layout, input order [h ; e] and [s ; e ; h].
    auto const shape = [](model_config const& c, char const* name) {
        for (auto const& spec : engine::layout(c, storage::bf16)) {
            if (spec.name == name) return spec.shape;
        }
        return std::vector<std::size_t>{};
    };
    using sizes = std::vector<std::size_t>;
    using engine::head_kind;
    CHECK(shape(small_dspark(head_kind::gated, true), "markov_head.gate_proj.weight") == sizes{10, 34});
    CHECK(shape(small_dspark(head_kind::gated, true), "markov_head.gate_proj.bias") == sizes{10});
    CHECK(shape(small_dspark(head_kind::rnn, true), "markov_head.joint_proj.weight") == sizes{30, 44});
    CHECK(shape(small_dspark(head_kind::rnn, true), "markov_head.joint_proj.bias") == sizes{30});
    CHECK(shape(small_dspark(head_kind::rnn, true), "confidence_head.proj.weight") == sizes{1, 34});
    CHECK(shape(small_dspark(head_kind::rnn, false), "confidence_head.proj.weight") == sizes{1, 24});
    CHECK(shape(small_dspark(head_kind::none, false), "markov_head.markov_w1.weight").empty());
    CHECK(shape(small_dspark(head_kind::none, false), "fc.weight") == sizes{24, 48});
}

TEST_CASE("a configuration that no file could have has no layout") {
    auto const refused = [](model_config const& c) {
        return error_text([&] { static_cast<void>(engine::layout(c, storage::f32)); });
    };
    model_config c = small_target(true);
    c.transformer.kv_heads = 3;
    CHECK(refused(c) ==
          "synthetic model: field 'num_key_value_heads' is 3, expected a divisor of "
          "'num_attention_heads', 4");
    c = small_target(true);
    c.draft.emplace();
    CHECK(refused(c) == "synthetic model: the configuration has settings that its architecture does not know");
    c = small_dspark(engine::head_kind::none, false);
    c.draft.reset();
    CHECK(refused(c) == "synthetic model: field 'block_size' is missing, expected an integer in 1 .. 1024");
}

// ---- random models ---------------------------------------------------------------------------------------------

TEST_CASE("a random model is the same in memory, in one file and in shards") {
    for (model_config const& config : all_kinds()) {
        for (storage const type : {storage::bf16, storage::f16, storage::f32, storage::f64}) {
            INFO(engine::name_of(config.kind) << ", storage " << static_cast<int>(type));
            checkpoint const memory = engine::make_in_memory(config, type, 11);
            auto const expected = contents(memory, type);
            CHECK(memory.folder() == "synthetic model");
            CHECK(memory.config() == config);

            temporary_folder const folder;
            engine::write_folder(folder.path / "new", config, type, 11);
            checkpoint const whole(folder.path / "new");
            CHECK(whole.config() == config);
            CHECK(whole.names() == memory.names());
            CHECK(contents(whole, type) == expected);
            CHECK(whole.bytes() == fs::file_size(folder.path / "new" / "model.safetensors"));

            engine::write_folder(folder.path / "new", config, type, 11, 8000);  // over the whole one
            checkpoint const shards(folder.path / "new");
            CHECK(fs::exists(folder.path / "new" / "model.safetensors.index.json"));
            CHECK_FALSE(fs::exists(folder.path / "new" / "model.safetensors"));
            CHECK(shards.names() == memory.names());
            CHECK(contents(shards, type) == expected);

            engine::write_folder(folder.path / "new", config, type, 12);  // and back
            CHECK_FALSE(fs::exists(folder.path / "new" / "model.safetensors.index.json"));
            CHECK(contents(checkpoint(folder.path / "new"), type) != expected);
        }
    }
}

TEST_CASE("shards are filled in order and hold at least one tensor") {
    model_config const config = small_target(false);
    auto const specs = engine::layout(config, storage::f32);
    temporary_folder const folder;
    for (std::size_t const limit : {std::size_t{1}, std::size_t{5000}, std::size_t{20000}, std::size_t{1} << 40}) {
        INFO("limit " << limit);
        fs::path const path = folder.path / std::to_string(limit);
        engine::write_folder(path, config, storage::f32, 1, limit);
        std::size_t shards = 0;
        std::size_t tensors = 0;
        for (auto const& entry : fs::directory_iterator(path)) {
            if (entry.path().extension() != ".safetensors") continue;
            auto const file = st::file::map(entry.path());
            std::size_t bytes = 0;
            for (auto const& t : file.tensors()) bytes += t.bytes.size();
            CHECK((bytes <= limit || file.tensors().size() == 1));
            ++shards;
            tensors += file.tensors().size();
        }
        CHECK(tensors == specs.size());
        if (limit == 1) CHECK(shards == specs.size());
        if (limit > 1 && limit < 1000000) CHECK((shards > 1 && shards < specs.size()));
        if (limit > 1000000) CHECK(fs::exists(path / "model-00001-of-00001.safetensors"));
    }
}

TEST_CASE("storage formats differ by rounding only, seeds in everything") {
    model_config const config = small_dspark(engine::head_kind::rnn, true);
    auto const exact = contents(engine::make_in_memory(config, storage::f64, 5), storage::f64);
    struct {
        storage type;
        double error;
    } const formats[] = {{storage::bf16, 0x1p-8}, {storage::f16, 0x1p-10}, {storage::f32, 0x1p-22}};
    for (auto const& format : formats) {
        auto const rounded = contents(engine::make_in_memory(config, format.type, 5), format.type);
        double worst = 0.0;
        for (std::size_t i = 0; i < exact.size(); ++i) {
            for (std::size_t j = 0; j < exact[i].size(); ++j) {
                // Small half-precision numbers have a fixed spacing of 2^-24.
                double const allowed = format.error * std::abs(exact[i][j]) + 0x1p-24;
                worst = std::max(worst, std::abs(rounded[i][j] - exact[i][j]) / allowed);
            }
        }
        INFO("storage " << static_cast<int>(format.type));
        CHECK(worst <= 1.0);
        CHECK(worst > 0.0);
    }
    auto const other = contents(engine::make_in_memory(config, storage::f64, 6), storage::f64);
    for (std::size_t i = 0; i < exact.size(); ++i) {
        CHECK(exact[i] != other[i]);
        for (std::size_t j = i + 1; j < exact.size(); ++j) CHECK(exact[i] != exact[j]);
    }
}

TEST_CASE("random weights do not repeat, within a tensor or between tensors") {
    model_config config = small_target(false);
    config.transformer.hidden_size = 40;  // as wide as the MLP: then all matrices but o_proj share one scale
    std::vector<double> values;
    for (auto const& tensor : contents(engine::make_in_memory(config, storage::f64, 8), storage::f64)) {
        values.insert(values.end(), tensor.begin(), tensor.end());
    }
    std::ranges::sort(values);
    auto const repeated = std::ranges::unique(values).size();
    INFO(values.size() << " values");
    CHECK(repeated < 3);  // of 2^32 different ones; less than 0.1 are expected
}

TEST_CASE("random weights have the stated mean and deviation") {
    model_config config = small_dspark(engine::head_kind::vanilla, true);
    config.transformer.vocabulary = 2000;
    config.transformer.hidden_size = 128;
    config.draft->markov_rank = 32;
    auto const specs = engine::layout(config, storage::f32);
    auto const all = contents(engine::make_in_memory(config, storage::f32, 3), storage::f32);
    for (std::size_t i = 0; i < specs.size(); ++i) {
        INFO(specs[i].name);
        bool const norm = specs[i].name.ends_with("norm.weight");
        double const mean = norm ? 1.0 : 0.0;
        double const deviation = norm || specs[i].name.ends_with(".bias")          ? 0.1
                                 : specs[i].name == "markov_head.markov_w1.weight" ? 1.0
                                                                                   : 1.0 / std::sqrt(specs[i].shape[1]);
        auto const n = static_cast<double>(all[i].size());
        double sum = 0.0;
        double squares = 0.0;
        double farthest = 0.0;
        for (double const x : all[i]) {
            farthest = std::max(farthest, std::abs(x - mean));
            sum += x - mean;
            squares += (x - mean) * (x - mean);
        }
        CHECK(farthest < 1.7321 * deviation);  // uniform: nothing beyond sqrt(3) deviations
        // Five standard errors; that of the variance of a uniform distribution is sqrt(0.8 / n) of it.
        CHECK(std::abs(sum / n) < 5.0 * deviation / std::sqrt(n));
        CHECK(std::abs(squares / n / (deviation * deviation) - 1.0) < 5.0 * std::sqrt(0.8 / n));
    }
}

// ---- what is refused -------------------------------------------------------------------------------------------

TEST_CASE("folders without what they need") {
    temporary_folder const folder;
    CHECK(refusal(folder.path / "none") == folder / "none/config.json" + ": no such file");
    CHECK(refusal(folder.path) == folder / "config.json" + ": no such file");
    fs::create_directory(folder.path / "config.json");
    CHECK(refusal(folder.path) == folder / "config.json" + ": no such file");
    fs::remove(folder.path / "config.json");

    folder.write("config.json", config_text());
    CHECK(refusal(folder.path) ==
          folder.path.string() + ": has no weights, expected model.safetensors or model.safetensors.index.json");
    folder.write("model.safetensors", "short");
    CHECK(support::says(refusal(folder.path), folder / "model.safetensors" + ": 5 bytes"));

    folder.write("config.json", "{}");
    CHECK(refusal(folder.path) == folder / "config.json" + ": field 'architectures' is missing, expected a list");
    fs::resize_file(folder.path / "config.json", (std::uintmax_t{64} << 20) + 1);  // a hole, not disk space
    CHECK(refusal(folder.path) == folder / "config.json" + ": 67108865 bytes, expected at most 67108864");
}

TEST_CASE("generation_config.json has the last word on stop tokens") {
    temporary_folder const folder;
    folder.write("config.json", config_text());
    auto const stop_tokens = [&] { return engine::load_config(folder.path).stop_tokens; };
    CHECK(stop_tokens() == std::vector<sureleap::token_id>{7, 9});
    folder.write("generation_config.json", R"({"do_sample": true})");
    CHECK(stop_tokens() == std::vector<sureleap::token_id>{7, 9});
    folder.write("generation_config.json", R"({"eos_token_id": [30, 20]})");
    CHECK(stop_tokens() == std::vector<sureleap::token_id>{20, 30});
    folder.write("generation_config.json", R"({"eos_token_id": 50})");
    CHECK(error_text([&] { static_cast<void>(stop_tokens()); }) ==
          folder / "generation_config.json" + ": field 'eos_token_id' is 50, expected an integer in 0 .. 49");
}

TEST_CASE("tensors that are not what was asked for") {
    temporary_folder const folder;
    folder.write("config.json", config_text());
    double const nan = std::numeric_limits<double>::quiet_NaN();
    double const infinity = std::numeric_limits<double>::infinity();
    std::string const file = folder / "model.safetensors";
    write_file(file,
               {tensor<float>("fc.weight", {2, 3}, {1, 2, 3, 4, 5, 6}),
                tensor<std::int32_t>("ids", {2, 2}, {1, 2, 3, 4}), tensor<double>("huge", {3}, {1.0, -1e300, 2.0}),
                tensor<double>("nan", {2}, {1.0, nan}), tensor<double>("infinite", {2}, {-infinity, 1.0}),
                tensor<sureleap::half>("half", {2}, {sureleap::half(0.5f), sureleap::half(-2.0f)})});
    checkpoint const c(folder.path);
    auto const matrix = [&](char const* name, std::size_t rows, std::size_t cols) {
        return error_text([&] { static_cast<void>(c.matrix(name, rows, cols)); });
    };
    auto const vector = [&](char const* name, std::size_t size) {
        return error_text([&] { static_cast<void>(c.vector<float>(name, size)); });
    };
    CHECK(matrix("fc.weight", 2, 3).empty());
    CHECK(matrix("fc.weight", 3, 2) == file + ": tensor 'fc.weight' is [2, 3], expected [3, 2]");
    CHECK(matrix("half", 2, 1) == file + ": tensor 'half' is [2], expected [2, 1]");
    CHECK(vector("fc.weight", 6) == file + ": tensor 'fc.weight' is [2, 3], expected [6]");
    CHECK(matrix("ids", 2, 2) == file + ": tensor 'ids' is I32, expected BF16, F16, F32 or F64");
    CHECK(support::says(matrix("fc.weigth", 2, 3), {file.c_str(), ": no tensor 'fc.weigth'", "'fc.weight'"}));
    CHECK(support::says(vector("norm", 2), file + ": no tensor 'norm'"));

    engine::weight const half = c.row("half", 2);
    CHECK(half.type == storage::f16);
    CHECK(half.rows == 1);
    CHECK(half.cols == 2);
    CHECK(half.data == c.files()[0].at("half").bytes.data());
    CHECK(error_text([&] { static_cast<void>(c.row("half", 3)); }) == file + ": tensor 'half' is [2], expected [3]");
    CHECK(error_text([&] { static_cast<void>(c.row("fc.weight", 6)); }) ==
          file + ": tensor 'fc.weight' is [2, 3], expected [6]");

    CHECK(c.vector<double>("half", 2) == std::vector<double>{0.5, -2.0});
    CHECK(c.vector<double>("huge", 3) == std::vector<double>{1.0, -1e300, 2.0});
    CHECK(vector("huge", 3) == file + ": tensor 'huge' has -inf at 1, expected finite numbers");
    CHECK(vector("nan", 2) == file + ": tensor 'nan' has nan at 1, expected finite numbers");
    CHECK(vector("infinite", 2) == file + ": tensor 'infinite' has -inf at 0, expected finite numbers");
}

TEST_CASE("a matrix that lies askew is refused, a vector is copied anyway") {
    temporary_folder const folder;
    folder.write("config.json", config_text());
    std::string const file = folder / "model.safetensors";
    write_file(
        file, {tensor<std::uint8_t>("a", {1}, {1}), tensor<float>("m", {1, 2}, {1, 2}), tensor<float>("v", {2}, {3, 4}),
               tensor<std::uint8_t>("b", {3}, {1, 2, 3}), tensor<float>("straight", {1, 2}, {5, 6})});
    checkpoint const c(folder.path);
    auto const data = c.bytes() - (1 + 8 + 8 + 3 + 8);
    CHECK(error_text([&] { static_cast<void>(c.matrix("m", 1, 2)); }) ==
          file + ": tensor 'm' begins at byte " + std::to_string(data + 1) +
              " of the file, expected an address that is a multiple of 4: write the file anew with tensors of larger "
              "elements first");
    CHECK(support::says(error_text([&] { static_cast<void>(c.row("v", 2)); }), "'v' begins at byte "));
    CHECK(c.vector<float>("v", 2) == std::vector<float>{3, 4});
    engine::weight const w = c.matrix("straight", 1, 2);
    CHECK(w.type == storage::f32);
    CHECK(w.rows == 1);
    CHECK(w.cols == 2);
    CHECK(static_cast<float const*>(w.data)[1] == 6.0f);
}

TEST_CASE("a model whose weights are taken for zeros keeps its shapes and its lists of tokens") {
    temporary_folder const folder;
    folder.write("config.json", config_text());
    write_file(folder / "model.safetensors",
               {tensor<float>("m", {2, 2}, {1, 2, 3, 4}), tensor<float>("v", {3}, {5, 6, 7}),
                tensor<std::int32_t>("ids", {2}, {8, 9})});
    checkpoint const zeroed = checkpoint(folder.path).zeroed();
    engine::weight const m = zeroed.matrix("m", 2, 2);
    auto const* const numbers = static_cast<float const*>(m.data);
    CHECK(std::all_of(numbers, numbers + 4, [](float x) { return x == 0.0f; }));
    CHECK(m.data != zeroed.files()[0].at("m").bytes.data());
    CHECK(zeroed.vector<float>("v", 3) == std::vector<float>{0, 0, 0});
    CHECK(zeroed.names() == checkpoint(folder.path).names());
    CHECK(static_cast<int>(zeroed.files()[0].at("ids").bytes[0]) == 8);
    CHECK(support::says(error_text([&] { static_cast<void>(zeroed.matrix("m", 4, 1)); }), "expected [4, 1]"));
}

TEST_CASE("an index and its shards must agree") {
    temporary_folder const folder;
    folder.write("config.json", config_text());
    std::string const index = folder / "model.safetensors.index.json";
    auto const list = [&](char const* map) {
        folder.write("model.safetensors.index.json", std::string(R"({"weight_map": )") + map + "}");
    };
    write_file(folder / "one", {tensor<float>("a", {2}, {1, 2}), tensor<float>("extra", {1}, {0})});
    write_file(folder / "two", {tensor<float>("b", {2}, {3, 4}), tensor<float>("extra", {1}, {1})});

    list(R"({"a": "one", "b": "two"})");
    {
        checkpoint const c(folder.path);
        CHECK(c.vector<float>("a", 2) == std::vector<float>{1, 2});
        CHECK(c.vector<float>("b", 2) == std::vector<float>{3, 4});
        CHECK(c.names() == std::vector<std::string>{"a", "b"});
        CHECK_FALSE(c.contains("extra"));  // not listed
        CHECK(c.bytes() == fs::file_size(folder.path / "one") + fs::file_size(folder.path / "two"));
        CHECK(error_text([&] { static_cast<void>(c.vector<float>("c", 2)); }) ==
              folder.path.string() + ": no tensor 'c' among 2 in 2 files");
        CHECK(error_text([&] { static_cast<void>(c.vector<float>("b", 3)); }) ==
              folder / "two" + ": tensor 'b' is [2], expected [3]");
    }
    list(R"({"a": "one", "b": "three"})");
    CHECK(refusal(folder.path) == index + ": tensor 'b' is listed for 'three', but there is no such file");
    list(R"({"a": "one", "b": "one"})");
    CHECK(refusal(folder.path) == index + ": tensor 'b' is listed for 'one', which does not have it");
    list(R"({"a": "one", "b": "two", "extra": "one"})");
    CHECK(refusal(folder.path) == index + ": tensor 'extra' is listed for 'one', but 'two' has it as well");
    list(R"({"a": "../one"})");
    CHECK(refusal(folder.path) ==
          index + ": field 'weight_map.a' is \"../one\", expected the name of a file in the same folder");
    folder.write("three", "no tensors here, only text");
    list(R"({"a": "one", "b": "three"})");
    CHECK(support::says(refusal(folder.path), folder / "three: header of "));

    // A single file counts before an index, whatever that says.
    write_file(folder / "model.safetensors", {tensor<float>("a", {1}, {9})});
    CHECK(checkpoint(folder.path).names() == std::vector<std::string>{"a"});
}

TEST_CASE("a checkpoint from files in memory") {
    std::vector<st::file> none;
    CHECK(error_text([&] { static_cast<void>(checkpoint::from_files(small_target(true), std::move(none))); }) ==
          "checkpoint: no file given, expected at least one");

    temporary_folder const folder;
    write_file(folder / "one", {tensor<float>("a", {2}, {1, 2})});
    write_file(folder / "two", {tensor<float>("b", {2}, {3, 4}), tensor<float>("c", {1}, {0})});
    auto const opened = [&](std::vector<char const*> const& names) {
        std::vector<st::file> files;
        for (char const* const name : names) files.push_back(st::file::read(folder.path / name));
        return checkpoint::from_files(small_target(true), std::move(files));
    };
    CHECK(opened({"one", "two"}).names() == std::vector<std::string>{"a", "b", "c"});
    CHECK(opened({"two", "one"}).vector<float>("a", 2) == std::vector<float>{1, 2});
    CHECK(error_text([&] { static_cast<void>(opened({"one", "two", "one"})); }) ==
          folder / "one" + ": tensor 'a' is in '" + folder / "one" + "' as well");
}

// Not an assertion about one file but about all of them: whatever a byte says, there is an error or a usable model.
TEST_CASE("changed bytes of a checkpoint are found or harmless") {
    model_config const config = small_eagle3();
    temporary_folder const folder;
    engine::write_folder(folder.path, config, storage::bf16, 1);
    std::string const file = folder / "model.safetensors";
    std::vector<char> original(fs::file_size(file));
    std::ifstream(file, std::ios::binary).read(original.data(), static_cast<std::streamsize>(original.size()));
    support::dice roll(4);
    INFO("seed " << roll.seed());
    std::size_t refused = 0;
    for (int i = 0; i < 300; ++i) {
        std::vector<char> bytes = original;
        // Three of four changes in the header, where they matter.
        std::size_t const range = roll.chance(0.75) ? 2000 : bytes.size();
        bytes[roll.below(range)] = static_cast<char>(roll.below(256));
        folder.write("model.safetensors", std::string(bytes.begin(), bytes.end()));
        refused += !error_text([&] { static_cast<void>(contents(checkpoint(folder.path), storage::bf16)); }).empty();
    }
    CHECK(refused > 150);
    CHECK(refused < 300);
}

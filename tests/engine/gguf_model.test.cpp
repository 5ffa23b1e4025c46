// SPDX-License-Identifier: MIT
//
// A GGUF file as a model. The same weights in a folder and in a file must give the same logits to the last bit: of
// Qwen3 and Llama, whose query and key rows a file has in another order. Blocks of every type give what their numbers
// in float give, within what rounding the activations to 8 bits costs. Beside it every setting that is refused.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <engine/causal_lm.hpp>
#include <engine/gguf/blocks.hpp>
#include <engine/gguf/file.hpp>
#include <engine/gguf/model.hpp>
#include <engine/ranks.hpp>
#include <engine/synthetic.hpp>
#include <engine/thread_pool.hpp>
#include <sureleap/ranks/thread_ranks.hpp>

#include "support/catch.hpp"
#include "support/dice.hpp"
#include "support/error_text.hpp"
#include "support/gguf_model.hpp"
#include "support/gguf_writer.hpp"
#include "support/on_ranks.hpp"

namespace {

using engine::architecture;
using engine::checkpoint;
using engine::model_config;
using engine::gguf::tensor_type;
using support::distance;
using support::error_text;
using support::gguf_writer;
using support::opened;

/// Columns in blocks of 32, two heads that share keys; a hidden size of 256 where a type needs it.
model_config small(architecture kind, std::size_t hidden_size = 64) {
    model_config config;
    config.kind = kind;
    config.transformer = {.vocabulary = 48,
                          .hidden_size = hidden_size,
                          .intermediate_size = hidden_size == 64 ? 96U : 256U,
                          .layers = 2,
                          .heads = 4,
                          .kv_heads = 2,
                          .head_dim = hidden_size / 4,
                          .max_positions = 128,
                          .rope_theta = 1000.0,
                          .rms_norm_eps = static_cast<double>(1e-5f),  // as a file has it
                          .tied_embeddings = true};
    set_attention(config.transformer, kind);
    return config;
}

gguf_writer with_keys(model_config const& config) {
    auto const& c = config.transformer;
    std::string const name = config.kind == architecture::llama   ? "llama"
                             : config.kind == architecture::qwen2 ? "qwen2"
                                                                  : "qwen3";
    auto const u32 = [](std::size_t n) { return static_cast<std::uint32_t>(n); };
    gguf_writer w;
    w.set("general.architecture", name);
    w.set(name + ".embedding_length", u32(c.hidden_size));
    w.set(name + ".block_count", u32(c.layers));
    w.set(name + ".context_length", u32(c.max_positions));
    w.set(name + ".feed_forward_length", u32(c.intermediate_size));
    w.set(name + ".attention.head_count", u32(c.heads));
    w.set(name + ".attention.head_count_kv", u32(c.kv_heads));
    w.set(name + ".attention.layer_norm_rms_epsilon", static_cast<float>(c.rms_norm_eps));
    w.set(name + ".rope.freq_base", static_cast<float>(c.rope_theta));
    w.set(name + ".attention.key_length", u32(c.head_dim));
    return w;
}

/// The names of a file beside those of a folder, of one layer.
constexpr std::pair<char const*, char const*> of_layer[] = {
    {"attn_norm", "input_layernorm"},    {"ffn_norm", "post_attention_layernorm"},
    {"attn_q", "self_attn.q_proj"},      {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},      {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"}, {"attn_k_norm", "self_attn.k_norm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
};

/// The tensors of a folder in a file; `store` gives the type and bytes of a matrix [rows, cols].
template <class Store>
gguf_writer file_of(checkpoint const& from, Store const& store) {
    model_config const& config = from.config();
    gguf_writer w = with_keys(config);
    auto const add = [&](std::string const& own, std::string const& theirs, bool rotated) {
        if (!from.contains(theirs)) return;
        auto const& tensors = from.files()[0];
        auto const& t = tensors.at(theirs);
        std::vector<float> values(t.bytes.size() / sizeof(float));
        std::memcpy(values.data(), t.bytes.data(), t.bytes.size());
        std::vector<std::uint64_t> const shape(t.shape.begin(), t.shape.end());
        if (rotated && config.kind == architecture::llama) {
            // Row i of a half becomes row 2 i, row i of the other half row 2 i + 1.
            std::size_t const d = config.transformer.head_dim;
            std::vector<float> const plain = values;
            std::size_t const cols = t.shape[1];
            for (std::size_t row = 0; row < t.shape[0]; ++row) {
                std::size_t const i = row % d;
                std::size_t const to = row - i + (i < d / 2 ? 2 * i : 2 * (i - d / 2) + 1);
                std::copy_n(plain.begin() + static_cast<std::ptrdiff_t>(row * cols), cols,
                            values.begin() + static_cast<std::ptrdiff_t>(to * cols));
            }
        }
        if (shape.size() == 1) {
            w.tensor(own, shape, values);
        } else {
            auto const [type, bytes] = store(values);
            w.tensor(own, shape, type, bytes);
        }
    };
    add("token_embd.weight", "model.embed_tokens.weight", false);
    add("output_norm.weight", "model.norm.weight", false);
    add("output.weight", "lm_head.weight", false);
    for (std::size_t l = 0; l < config.transformer.layers; ++l) {
        for (auto const& [own, theirs] : of_layer) {
            std::string const name = own;
            std::string const in_file = "blk." + std::to_string(l) + "." + name;
            std::string const in_folder = "model.layers." + std::to_string(l) + "." + theirs;
            add(in_file + ".weight", in_folder + ".weight", name == "attn_q" || name == "attn_k");
            add(in_file + ".bias", in_folder + ".bias", false);
        }
    }
    return w;
}

std::pair<tensor_type, std::vector<std::byte>> as_f32(std::vector<float> const& values) {
    auto const bytes = std::as_bytes(std::span(values));
    return {tensor_type::f32, {bytes.begin(), bytes.end()}};
}

/// Logits after a short text, token by token.
std::vector<float> logits_of(checkpoint from, engine::thread_pool& pool, engine::any_ranks* ranks = nullptr) {
    engine::causal_lm<float> model(std::move(from), {}, pool, {.slots = 1, .context_length = 32, .max_rows = 16},
                                   ranks);
    std::vector<sureleap::token_id> const text = {3, 17, 40, 5, 5, 9, 31};
    model.prefill(0, 0, std::span(text).first(text.size() - 1));
    alignas(64) std::byte memory[4096];
    sureleap::workspace space{std::span<std::byte>(memory)};
    sureleap::verify_batch batch(space, 1, 1);
    sureleap::request_settings const settings;
    std::vector<sureleap::request_view> const requests = {{.id = 0,
                                                           .slot = 0,
                                                           .anchor = text.back(),
                                                           .position = text.size() - 1,
                                                           .context = text,
                                                           .settings = &settings}};
    batch.begin(requests);
    batch.append({});
    auto const row = model.score(batch).values.row(0);
    return {row.begin(), row.end()};
}

TEST_CASE("gguf: a file and a folder with the same weights are the same model", "[gguf]") {
    engine::thread_pool pool(2);
    for (architecture const kind : {architecture::qwen3, architecture::qwen2, architecture::llama}) {
        for (bool const tied : {true, false}) {
            model_config config = small(kind);
            config.transformer.tied_embeddings = tied;
            CAPTURE(name_of(kind), tied);
            checkpoint const folder = make_in_memory(config, engine::storage::f32, 7);
            opened file(file_of(folder, as_f32));
            REQUIRE(file.model.config() == config);
            REQUIRE(file.model.names() == folder.names());
            CHECK(logits_of(std::move(file.model), pool) ==
                  logits_of(make_in_memory(config, engine::storage::f32, 7), pool));
        }
    }
}

// ---- blocks --------------------------------------------------------------------------------------------------------

/// Random blocks of a type, with scales that make numbers of about 0.05; and a checkpoint in float of the same numbers.
struct in_blocks {
    gguf_writer file;
    gguf_writer in_float;

    in_blocks(model_config const& config, tensor_type type, std::uint64_t seed) {
        support::dice roll(seed);
        checkpoint const folder = make_in_memory(config, engine::storage::f32, 7);
        std::vector<std::vector<float>> numbers;
        file = file_of(folder, [&](std::vector<float> const& values) {
            auto const block = engine::gguf::block_of(type);
            std::vector<std::byte> bytes(values.size() / block.elements * block.bytes);
            for (std::byte& b : bytes) b = static_cast<std::byte>(roll.below(256));
            for (std::size_t at = 0; at < bytes.size(); at += block.bytes) {
                for (std::size_t const half : scales_of(type)) {
                    sureleap::half const scale(static_cast<float>(roll.between(0.5, 1.0) * step_of(type)));
                    std::memcpy(bytes.data() + at + half, &scale.bits, 2);
                }
            }
            numbers.emplace_back(values.size());
            engine::gguf::dequantise(type, bytes.data(), values.size(), numbers.back().data());
            return std::pair(type, bytes);
        });
        std::size_t next = 0;
        in_float = file_of(folder, [&](std::vector<float> const&) { return as_f32(numbers[next++]); });
    }

private:
    /// Where a block has F16 numbers.
    static std::vector<std::size_t> scales_of(tensor_type type) {
        switch (type) {
            case tensor_type::q4_1:
            case tensor_type::q5_1:
            case tensor_type::q4_k:
            case tensor_type::q5_k: return {0, 2};
            case tensor_type::q6_k: return {208};
            default: return {0};
        }
    }
    static double step_of(tensor_type type) {
        switch (type) {
            case tensor_type::q8_0: return 0.0005;
            case tensor_type::q4_k:
            case tensor_type::q5_k: return 0.0001;
            case tensor_type::q6_k: return 0.00003;
            default: return 0.005;
        }
    }
};

TEST_CASE("gguf: a rank unpacks its share of the layers, and the model is the same", "[gguf]") {
    for (tensor_type const type : {tensor_type::q4_1, tensor_type::q4_k, tensor_type::q6_k}) {
        CAPTURE(engine::gguf::name_of(type));
        in_blocks const made(small(architecture::llama, 256), type, 11);
        engine::thread_pool pool(1);
        auto const whole = logits_of(std::move(opened(made.file).model), pool);
        constexpr std::size_t size = 3;
        sureleap::thread_ranks all(size, {.most_bytes = 1 << 16});
        std::vector<std::vector<float>> logits(size);  // of slices: the first rank has all of so few tokens
        std::vector<std::size_t> unpacked(size);
        support::on_ranks(size, [&](std::size_t i) {
            auto own = all.of(i);
            engine::any_ranks ranks(own, 1 << 16);
            engine::thread_pool alone(1);
            opened file(made.file, {i, size});
            engine::weight const w = file.model.matrix("model.layers.0.mlp.down_proj.weight", 256, 256);
            std::vector<float> row(w.cols);
            for (std::size_t r = 0; r < w.rows; ++r) {
                load_row(w, r, row.data());
                unpacked[i] += row != std::vector<float>(w.cols);
            }
            logits[i] = logits_of(std::move(file.model), alone, &ranks);
        });
        CHECK(unpacked == std::vector<std::size_t>{96, 96, 64});
        CHECK(logits == std::vector<std::vector<float>>{{}, {}, whole});
    }
}

TEST_CASE("gguf: weights in blocks are those that they stand for", "[gguf]") {
    engine::thread_pool pool(2);
    struct expected {
        tensor_type type;
        bool exact;      ///< packed as it is
        double nearest;  ///< else the distance of an element, in the largest of its block; a minimum may be
                         ///< larger than that
    };
    for (auto const& [type, exact, nearest] : {expected{tensor_type::q4_0, true, 0},
                                               {tensor_type::q4_1, true, 0},
                                               {tensor_type::q5_0, true, 0},
                                               {tensor_type::q5_1, true, 0},
                                               {tensor_type::q8_0, true, 0},
                                               {tensor_type::q4_k, false, 0x1p-8},
                                               {tensor_type::q5_k, false, 0x1p-8},
                                               {tensor_type::q6_k, false, 0.0045}}) {
        CAPTURE(engine::gguf::name_of(type));
        in_blocks const made(small(architecture::llama, 256), type, 11);
        opened const packed(made.file);
        opened const in_float(made.in_float);
        for (std::string const name :
             {"model.layers.1.self_attn.k_proj.weight", "model.layers.0.mlp.down_proj.weight"}) {
            std::size_t const rows = name.find("k_proj") == name.npos ? 256 : 128;
            engine::weight const a = packed.model.matrix(name, rows, 256);
            engine::weight const b = in_float.model.matrix(name, rows, 256);
            REQUIRE(is_packed(a.type));
            std::vector<float> x(256), y(256);
            for (std::size_t row = 0; row < rows; ++row) {
                load_row(a, row, x.data());
                load_row(b, row, y.data());
                for (std::size_t c = 0; c < 256; c += 32) {
                    float largest = 0;
                    for (std::size_t i = c; i < c + 32; ++i) largest = std::max(largest, std::abs(y[i]));
                    for (std::size_t i = c; i < c + 32; ++i) {
                        // A product and a sum in another order than the definition's round otherwise. A scale
                        // of F16 has steps of 2^-24 at least.
                        double const most = exact ? 0x1p-22 * static_cast<double>(largest)
                                                  : nearest * static_cast<double>(largest) + 127.0 * 0x1p-25;
                        REQUIRE(std::abs(static_cast<double>(x[i]) - static_cast<double>(y[i])) <= most);
                    }
                }
            }
        }
        // Activations have 8 bits, and so a product is off by a hundredth or so.
        opened in_float_again(made.in_float);
        opened packed_again(made.file);
        double const off =
            distance(logits_of(std::move(in_float_again.model), pool), logits_of(std::move(packed_again.model), pool));
        CHECK(off < 0.05);
        CHECK(off > 0.0);
    }
}

TEST_CASE("gguf: matrices of 16 bits stay where they lie", "[gguf]") {
    for (tensor_type const type : {tensor_type::f16, tensor_type::bf16}) {
        checkpoint const folder = make_in_memory(small(architecture::qwen3), engine::storage::f32, 7);
        opened const file(file_of(folder, [&](std::vector<float> const& values) {
            return std::pair(type, std::vector<std::byte>(values.size() * 2));
        }));
        engine::weight const w = file.model.matrix("model.layers.0.self_attn.q_proj.weight", 64, 64);
        CHECK(w.type == (type == tensor_type::f16 ? engine::storage::f16 : engine::storage::bf16));
        CHECK(w.data >= file.bytes.data());
        CHECK(w.data < file.bytes.data() + file.bytes.size());
    }
}

// ---- refusals ------------------------------------------------------------------------------------------------------

TEST_CASE("gguf: weights that would be quantised and are no numbers are refused by name", "[gguf]") {
    checkpoint const folder = make_in_memory(small(architecture::llama, 256), engine::storage::f32, 7);
    for (std::uint16_t const scale : {std::uint16_t{0x7E00}, std::uint16_t{0x7C00}}) {  // no number, infinity
        gguf_writer const file = file_of(folder, [&](std::vector<float> const& values) {
            auto const block = engine::gguf::block_of(tensor_type::q6_k);
            std::vector<std::byte> bytes(values.size() / block.elements * block.bytes, std::byte{1});
            std::memcpy(bytes.data() + 2 * block.bytes + 208, &scale, 2);
            return std::pair(tensor_type::q6_k, bytes);
        });
        auto const text = error_text([&] { opened const loaded(file); });
        CAPTURE(text);
        CHECK(text.find(": tensor 'blk.0.attn_") != text.npos);
        CHECK(text.ends_with("has a weight that is infinite or not a number, expected finite weights"));
    }
}

template <class Change>
std::string refusal(Change const& change, architecture kind = architecture::llama) {
    checkpoint const folder = make_in_memory(small(kind), engine::storage::f32, 7);
    gguf_writer w = file_of(folder, as_f32);
    change(w);
    engine::thread_pool pool(1);
    return error_text([&] {
        opened file(w);
        static_cast<void>(logits_of(std::move(file.model), pool));
    });
}

TEST_CASE("gguf: settings that mean another model are refused by name", "[gguf]") {
    auto const key = [](char const* name, auto value) { return [=](gguf_writer& w) { w.set(name, value); }; };
    auto const without = [](char const* name) { return [=](gguf_writer& w) { w.erase(name); }; };
    using u32 = std::uint32_t;
    CHECK(refusal([](gguf_writer&) {}).empty());
    CHECK(refusal(key("general.architecture", std::string_view("gemma3"))) ==
          "m.gguf: key 'general.architecture' is \"gemma3\", expected \"llama\", \"qwen2\", \"qwen3\" or \"dflash\"");
    CHECK(refusal(key("llama.block_count", u32{0})) ==
          "m.gguf: key 'llama.block_count' is 0, expected an integer in 1 .. 1024");
    CHECK(refusal(without("llama.embedding_length")) ==
          "m.gguf: key 'llama.embedding_length' is missing, expected an integer in 1 .. 262144");
    CHECK(refusal(key("llama.attention.head_count_kv", u32{3})) ==
          "m.gguf: key 'llama.attention.head_count_kv' is 3, expected a divisor of the head count, 4");
    CHECK(refusal(key("llama.attention.layer_norm_rms_epsilon", 0.0f)) ==
          "m.gguf: key 'llama.attention.layer_norm_rms_epsilon' is 0, expected a number above 0, at most 1");
    CHECK(refusal(key("llama.rope.freq_base", 0.5f)) ==
          "m.gguf: key 'llama.rope.freq_base' is 0.5, expected a number in 1 .. 1e+12");
    CHECK(refusal(key("llama.rope.scaling.type", std::string_view("yarn"))) ==
          "m.gguf: key 'llama.rope.scaling.type' is \"yarn\", expected \"none\": rotary positions are scaled by "
          "'rope_freqs.weight' alone");
    CHECK(refusal(key("llama.expert_count", u32{8})) ==
          "m.gguf: key 'llama.expert_count' is 8, expected none: models with it are not supported");
    CHECK(refusal(key("llama.attention.value_length", u32{32})) ==
          "m.gguf: key 'llama.attention.value_length' is 32, expected 16, the size of a key");
    CHECK(refusal(key("llama.attention.key_length", u32{15})) ==
          "m.gguf: key 'llama.attention.key_length' is 15, expected heads of an even size");
    CHECK(refusal(key("llama.vocab_size", u32{49})) ==
          "m.gguf: key 'llama.vocab_size' is 49, expected 48, the rows of 'token_embd.weight'");
    CHECK(refusal(key("llama.feed_forward_length", std::vector<u32>{96, 64})).find("the same number in every layer") !=
          std::string::npos);
    CHECK(refusal(key("llama.feed_forward_length", std::vector<u32>{96})).find("one for each of 2 layers") !=
          std::string::npos);
    CHECK(refusal(key("llama.feed_forward_length", std::vector<u32>{96, 96})).empty());
    CHECK(refusal(without("llama.attention.key_length")).empty());
    CHECK(refusal(without("llama.attention.head_count_kv")).find("attn_k") != std::string::npos);
}

TEST_CASE("gguf: tensors that do not fit are refused by their names in the file", "[gguf]") {
    CHECK(refusal([](gguf_writer& w) { w.erase_tensor("token_embd.weight"); }).find("'token_embd.weight'") !=
          std::string::npos);
    CHECK(refusal([](gguf_writer& w) { w.at("blk.1.ffn_up.weight").shape = {64, 96}; }) ==
          "m.gguf: tensor 'blk.1.ffn_up.weight' is [64, 96], expected [96, 64]");
    CHECK(refusal([](gguf_writer& w) {
              auto& t = w.at("blk.0.attn_v.weight");
              t.type = tensor_type::q2_k;
              t.shape = {32, 256};
              t.bytes.resize(32 * 84);
          }).find("'blk.0.attn_v.weight'") != std::string::npos);
    CHECK(
        refusal([](gguf_writer& w) { w.tensor("rope_freqs.weight", {7}, std::vector<float>(7, 1.0f)); }) ==
        "m.gguf: tensor 'rope_freqs.weight' is F32 and has 7 numbers, expected F32 and 8, one for each pair of a head");
    CHECK(refusal([](gguf_writer& w) { w.tensor("rope_freqs.weight", {8}, std::vector<float>(8, 0.0f)); }) ==
          "m.gguf: tensor 'rope_freqs.weight' has 0 for pair 0, expected a number in 0.001 .. 1000");
    CHECK(refusal([](gguf_writer& w) { w.tensor("blk.0.attn_q.bias", {64}, std::vector<float>(64)); }) ==
          "m.gguf: tensor 'blk.0.attn_q.bias' is there, expected none");
    // A tensor that no model has is nobody's concern.
    CHECK(refusal([](gguf_writer& w) { w.tensor("something.weight", {8}, std::vector<float>(8, 1.0f)); }).empty());
}

}  // namespace

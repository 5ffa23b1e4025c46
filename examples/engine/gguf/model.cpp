// SPDX-License-Identifier: MIT
#include "model.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory_resource>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>

#include "../quantised.hpp"
#include "../row_share.hpp"
#include "blocks.hpp"

namespace engine::gguf {
namespace {

using sureleap::error_text;
using sureleap::fail_with;

// ---- configuration -------------------------------------------------------------------------------------------------

/// A size that files may state once for all layers or layer by layer; every layer must have the same.
std::size_t same_in_all_layers(field const& given, std::size_t layers, std::size_t most) {
    if (!given.is_list()) return given.size(1, most);
    auto const sizes = given.integers(1, static_cast<std::int64_t>(most));
    if (sizes.size() != layers) given.wrong("one number, or one for each of " + error_text(layers) + " layers");
    for (std::int64_t const size : sizes) {
        if (size != sizes.front()) given.wrong("the same number in every layer");
    }
    return static_cast<std::size_t>(sizes.front());
}

/// Settings under which the same tensors would mean another function.
void refuse_variants(file const& from, std::string const& prefix, bool has_biases) {
    if (field const scaling = from[prefix + "rope.scaling.type"]; scaling.present() && scaling.text() != "none") {
        scaling.wrong("\"none\": rotary positions are scaled by 'rope_freqs.weight' alone");
    }
    for (char const* const key : {"rope.scale_linear", "attention.sliding_window", "attention.scale", "expert_count",
                                  "logit_scale", "final_logit_softcapping", "embedding_scale"}) {
        field const given = from[prefix + key];
        if (given.present() && given.number() != 0.0) given.wrong("none: models with it are not supported");
    }
    for (char const* const name :
         {"blk.0.attn_q.bias", "blk.0.attn_output.bias", "blk.0.ffn_up.bias", "blk.0.attn_qkv.weight"}) {
        bool const expected = has_biases && std::string_view(name) == "blk.0.attn_q.bias";
        if (!expected && from.find(name) != nullptr)
            fail_with(from.name(), ": tensor '", name, "' is there, expected none");
    }
}

double positive(field const& given, double most) {
    double const value = given.number();
    if (!(value > 0.0 && value <= most)) given.wrong("a number above 0, at most " + error_text(most));
    return value;
}

/// What llama.cpp divides rotary frequencies by: Llama 3.1's scaling, computed when the file was made.
std::vector<double> read_rope_divisors(file const& from, std::size_t pairs) {
    tensor const* const found = from.find("rope_freqs.weight");
    if (found == nullptr) return {};
    if (found->type != tensor_type::f32 || found->shape != std::vector<std::size_t>{pairs} || found->bytes.empty()) {
        fail_with(from.name(), ": tensor 'rope_freqs.weight' is ", name_of(found->type), " and has ",
                  found->shape.empty() ? std::size_t{0} : found->shape[0], " numbers, expected F32 and ", pairs,
                  ", one for each pair of a head");
    }
    std::vector<float> numbers(pairs);
    std::memcpy(numbers.data(), found->bytes.data(), pairs * sizeof(float));
    for (std::size_t i = 0; i < pairs; ++i) {
        if (limits::is_rope_divisor(static_cast<double>(numbers[i]))) continue;
        fail_with(from.name(), ": tensor 'rope_freqs.weight' has ", numbers[i], " for pair ", i, ", expected ",
                  limits::rope_divisors);
    }
    return {numbers.begin(), numbers.end()};
}

// ---- tensors -------------------------------------------------------------------------------------------------------

/// Which row of a file's matrix is row `row` of a folder's.
struct row_order {
    std::size_t head_dim = 0;  ///< 0: the same

    [[nodiscard]] std::size_t operator()(std::size_t row) const noexcept {
        if (head_dim == 0) return row;
        std::size_t const half = head_dim / 2;
        std::size_t const i = row % head_dim;
        return row - i + (i < half ? 2 * i : 2 * (i - half) + 1);
    }
};

std::uint16_t half_bits(float value) noexcept {
    return sureleap::half(value).bits;
}

/// A matrix in memory of its own: packed, or copied for the order of its rows.
class repacker {
public:
    repacker(tensor const& t, row_order order, row_share share, std::pmr::memory_resource& memory,
             std::string_view file)
        : tensor_(t), order_(order), share_(share), memory_(memory), file_(file) {}

    /// Nothing if the matrix can be used where it lies.
    [[nodiscard]] std::optional<packed_matrix> packed() const {
        switch (tensor_.type) {
            case tensor_type::q4_0:
            case tensor_type::q4_1: return filled<stepped_block, 1>(storage::q4);
            case tensor_type::q4_k: return filled<stepped_block, 8>(storage::q4);
            case tensor_type::q5_0:
            case tensor_type::q5_1: return filled<stepped_block, 1>(storage::q5);
            case tensor_type::q5_k: return filled<stepped_block, 8>(storage::q5);
            case tensor_type::q8_0: return filled<block8, 1>(storage::q8);
            case tensor_type::q6_k: return quantised();
            default: return std::nullopt;
        }
    }

    /// The rows of a matrix that is not packed, in order; nothing if they are in order.
    [[nodiscard]] std::vector<std::byte> reordered() const {
        if (order_.head_dim == 0) return {};
        std::vector<std::byte> bytes(tensor_.bytes.size());
        for (std::size_t row = 0; row < rows(); ++row) {
            std::memcpy(bytes.data() + row * row_bytes(), bytes_of(row), row_bytes());
        }
        return bytes;
    }

private:
    [[nodiscard]] std::size_t rows() const noexcept { return tensor_.shape[0]; }
    [[nodiscard]] std::size_t cols() const noexcept { return tensor_.shape[1]; }
    [[nodiscard]] std::size_t row_bytes() const noexcept {
        block_size const size = block_of(tensor_.type);
        return cols() / size.elements * size.bytes;
    }
    [[nodiscard]] std::byte const* bytes_of(std::size_t row) const noexcept {
        return tensor_.bytes.data() + order_(row) * row_bytes();
    }

    static stepped_run run_of(stepped_block const& block) noexcept {
        stepped_run run{half_bits(block.scale), half_bits(block.minimum), {}};
        std::memcpy(run.steps, block.steps, sizeof run.steps);
        return run;
    }
    static q8_run run_of(block8 const& block) noexcept {
        q8_run run{half_bits(block.scale), {}};
        std::memcpy(run.values, block.values, sizeof run.values);
        return run;
    }
    void unpack(std::byte const* from, std::array<block8, 1>& to) const { unpack8(from, to[0]); }
    void unpack(std::byte const* from, std::array<stepped_block, 1>& to) const {
        static_cast<void>(unpack_steps(tensor_.type, from, to[0]));
    }
    void unpack(std::byte const* from, std::array<stepped_block, 8>& to) const {
        static_cast<void>(unpack_steps(tensor_.type, from, to));
    }

    /// A block of the file is `Small` blocks of 32.
    template <class Block, std::size_t Small>
    [[nodiscard]] packed_matrix filled(storage type) const {
        packed_matrix out(type, rows(), cols(), memory_);
        std::array<Block, Small> unpacked;
        for (std::size_t row = share_.first; row < share_.first + share_.count; ++row) {
            std::byte const* block = bytes_of(row);
            for (std::size_t b = 0; b < cols() / block_inputs; b += Small, block += block_of(tensor_.type).bytes) {
                unpack(block, unpacked);
                for (std::size_t k = 0; k < Small; ++k) out.set(row, b + k, run_of(unpacked[k]));
            }
        }
        return out;
    }

    [[nodiscard]] packed_matrix quantised() const {
        packed_matrix out(storage::q8, rows(), cols(), memory_);
        std::vector<float> numbers(cols());
        for (std::size_t row = share_.first; row < share_.first + share_.count; ++row) {
            dequantise(tensor_.type, bytes_of(row), cols(), numbers.data());
            if (!std::all_of(numbers.begin(), numbers.end(), [](float x) { return std::isfinite(x); })) {
                fail_with(std::string(file_), ": tensor '", printable(tensor_.name),
                          "' has a weight that is infinite or not a number, expected finite weights");
            }
            out.quantise(row, numbers);
        }
        return out;
    }

    tensor const& tensor_;
    row_order order_;
    row_share share_;  // what is packed
    std::pmr::memory_resource& memory_;
    std::string_view file_;  // for errors
};

std::optional<storage> storage_of(tensor_type type) noexcept {
    switch (type) {
        case tensor_type::f32: return storage::f32;
        case tensor_type::f16: return storage::f16;
        case tensor_type::bf16: return storage::bf16;
        default: return std::nullopt;
    }
}

/// What a tensor is called in a folder, without the layer's prefix; empty for one that models do not have.
std::string_view folder_name(std::string_view own, bool is_drafter) {
    static constexpr std::pair<std::string_view, std::string_view> of_drafters[] = {
        {"token_embd.weight", "embed_tokens.weight"},
        {"output_norm.weight", "norm.weight"},
        {"enc.output_norm.weight", "hidden_norm.weight"},
        {"fc.weight", "fc.weight"},
        {"markov_w1.weight", "markov_head.markov_w1.weight"},
        {"markov_w2.weight", "markov_head.markov_w2.weight"},
        {"conf_proj.weight", "confidence_head.proj.weight"},
        {"conf_proj.bias", "confidence_head.proj.bias"},
        {"d2t", "d2t"},
    };
    for (auto const& [theirs, ours] : of_drafters) {
        if (is_drafter && own == theirs) return ours;
    }
    static constexpr std::pair<std::string_view, std::string_view> names[] = {
        {"token_embd.weight", "model.embed_tokens.weight"},
        {"output_norm.weight", "model.norm.weight"},
        {"output.weight", "lm_head.weight"},
        {"attn_norm.weight", "input_layernorm.weight"},
        {"ffn_norm.weight", "post_attention_layernorm.weight"},
        {"attn_q.weight", "self_attn.q_proj.weight"},
        {"attn_k.weight", "self_attn.k_proj.weight"},
        {"attn_v.weight", "self_attn.v_proj.weight"},
        {"attn_output.weight", "self_attn.o_proj.weight"},
        {"attn_q.bias", "self_attn.q_proj.bias"},
        {"attn_k.bias", "self_attn.k_proj.bias"},
        {"attn_v.bias", "self_attn.v_proj.bias"},
        {"attn_q_norm.weight", "self_attn.q_norm.weight"},
        {"attn_k_norm.weight", "self_attn.k_norm.weight"},
        {"ffn_gate.weight", "mlp.gate_proj.weight"},
        {"ffn_up.weight", "mlp.up_proj.weight"},
        {"ffn_down.weight", "mlp.down_proj.weight"},
    };
    for (auto const& [theirs, ours] : names) {
        if (own == theirs) return ours;
    }
    return {};
}

std::string folder_name_of(std::string_view own, bool is_drafter) {
    if (!own.starts_with("blk.")) return std::string(folder_name(own, is_drafter));
    std::size_t const dot = own.find('.', 4);
    if (dot == own.npos) return {};
    std::string_view const rest = folder_name(own.substr(dot + 1), is_drafter);
    if (rest.empty()) return {};
    return (is_drafter ? "layers." : "model.layers.") + std::string(own.substr(4, dot - 4)) + "." + std::string(rest);
}

/// What a checkpoint of a file keeps alive.
struct loaded_file {
    explicit loaded_file(std::shared_ptr<file const> of)
        : mapped(std::move(of)), memory(mapped->bytes().size(), &huge_pages()) {}

    std::shared_ptr<file const> mapped;
    std::pmr::monotonic_buffer_resource memory;  // what is packed is about as large as the file
    std::vector<packed_matrix> packed;
    std::vector<std::vector<std::byte>> copies;
    std::vector<std::vector<float>> numbers;
};

/// Tokens that a drafter knows: as stated, or as many as have a row.
std::size_t drafter_vocabulary(file const& from, field const& stated) {
    if (stated.present()) return stated.size(1, limits::vocabulary);
    std::size_t found = 0;
    if (field const tokens = from["tokenizer.ggml.tokens"]; tokens.present()) found = tokens.list_size();
    for (char const* const name : {"token_embd.weight", "markov_w1.weight"}) {
        tensor const* const rows = from.find(name);
        if (found == 0 && rows != nullptr && rows->shape.size() == 2) found = rows->shape[0];
    }
    if (found >= 1 && found <= limits::vocabulary) return found;
    stated.wrong("the number of tokens, as nothing else in the file tells it");
}

draft_config read_draft(file const& from, transformer_config const& c) {
    std::string const prefix = "dflash.";
    draft_config draft;
    // As llama.cpp: without the key the anchor's row predicts nothing.
    field const anchored = from[prefix + "sample_from_anchor"];
    draft.sample_from_anchor = anchored.present() && anchored.boolean();
    draft.block_size = from[prefix + "block_size"].size(draft.sample_from_anchor ? 1 : 2, limits::block_size) -
                       (draft.sample_from_anchor ? 0 : 1);
    for (auto const input : from[prefix + "target_layers"].integers(0, limits::layers)) {
        draft.target_layer_ids.push_back(static_cast<int>(input) - 1);
    }
    if (std::ranges::adjacent_find(draft.target_layer_ids, std::ranges::greater_equal{}) !=
            draft.target_layer_ids.end() ||
        draft.target_layer_ids.empty()) {
        from[prefix + "target_layers"].wrong("rising layers, at least one");
    }
    draft.mask_token = static_cast<token_id>(from["tokenizer.ggml.mask_token_id"].size(0, c.vocabulary - 1));
    if (tensor const* const w1 = from.find("markov_w1.weight"); w1 != nullptr) {
        if (w1->shape.size() != 2 || w1->shape[1] == 0 || w1->shape[1] > limits::markov_rank) {
            fail_with(from.name(), ": tensor 'markov_w1.weight' has no rows of 1 .. ", limits::markov_rank,
                      " numbers, expected one for each token");
        }
        draft.head = head_kind::vanilla;
        draft.markov_rank = w1->shape[1];
    }
    if (tensor const* const weights = from.find("conf_proj.weight"); weights != nullptr) {
        draft.confidence = true;
        draft.confidence_with_markov = !weights->shape.empty() &&
                                       weights->shape.back() == c.hidden_size + draft.markov_rank &&
                                       draft.markov_rank > 0;
    }
    if (field const temperatures = from[prefix + "confidence_temperatures"]; temperatures.present()) {
        for (float const t : temperatures.reals()) draft.confidence_temperatures.push_back(static_cast<double>(t));
        if (!draft.confidence) temperatures.wrong("none, as there is no tensor 'conf_proj.weight'");
        if (draft.confidence_temperatures.size() != draft.block_size ||
            !std::ranges::all_of(draft.confidence_temperatures, &limits::is_confidence_temperature)) {
            temperatures.wrong(error_text(draft.block_size) + " entries, each " + limits::confidence_temperatures);
        }
    }
    if (tensor const* const drafted = from.find("d2t"); drafted != nullptr) {
        if (drafted->shape.size() != 1 || drafted->shape[0] == 0 || drafted->shape[0] > c.vocabulary) {
            fail_with(from.name(), ": tensor 'd2t' has ", drafted->shape.size(), " dimensions, expected 1 .. ",
                      c.vocabulary, " tokens, one after the other");
        }
        draft.vocabulary = drafted->shape[0];
    }
    return draft;
}

}  // namespace

model_config read_config(file const& from) {
    model_config config;
    field const architecture_key = from["general.architecture"];
    std::string const name(architecture_key.text());
    if (name == "llama") {
        config.kind = architecture::llama;
    } else if (name == "qwen2") {
        config.kind = architecture::qwen2;
    } else if (name == "dflash") {
        config.kind = architecture::dspark;
    } else if (name != "qwen3") {
        architecture_key.wrong("\"llama\", \"qwen2\", \"qwen3\" or \"dflash\"");
    }
    bool const is_drafter = config.kind == architecture::dspark;
    std::string const prefix = name + ".";
    auto const key = [&](char const* of) { return from[prefix + of]; };
    refuse_variants(from, prefix, config.kind == architecture::qwen2);

    transformer_config& c = config.transformer;
    set_attention(c, config.kind);
    c.hidden_size = key("embedding_length").size(1, limits::hidden_size);
    c.layers = key("block_count").size(1, limits::layers);
    c.max_positions = key("context_length").size(1, limits::max_positions);
    c.intermediate_size = same_in_all_layers(key("feed_forward_length"), c.layers, limits::intermediate_size);
    c.heads = same_in_all_layers(key("attention.head_count"), c.layers, limits::heads);
    field const kv_heads = key("attention.head_count_kv");
    c.kv_heads = kv_heads.present() ? same_in_all_layers(kv_heads, c.layers, limits::heads) : c.heads;
    if (c.heads % c.kv_heads != 0) kv_heads.wrong("a divisor of the head count, " + error_text(c.heads));
    c.rms_norm_eps = positive(key("attention.layer_norm_rms_epsilon"), 1.0);
    field const theta = key("rope.freq_base");
    c.rope_theta = theta.present() ? positive(theta, limits::rope_theta) : 10000.0;
    if (c.rope_theta < 1.0) theta.wrong("a number in 1 .. " + error_text(limits::rope_theta));

    field const head_dim = key("attention.key_length");
    c.head_dim = head_dim.present() ? head_dim.size(2, limits::head_dim) : c.hidden_size / c.heads;
    if (c.head_dim % 2 != 0 || (!head_dim.present() && c.head_dim * c.heads != c.hidden_size)) {
        (head_dim.present() ? head_dim : key("embedding_length")).wrong("heads of an even size");
    }
    c.rope_divisors = read_rope_divisors(from, c.head_dim / 2);
    for (char const* const same : {"attention.value_length", "rope.dimension_count"}) {
        field const given = key(same);
        if (given.present() && given.size(1, limits::head_dim) != c.head_dim) {
            given.wrong(error_text(c.head_dim) + ", the size of a key");
        }
    }

    if (is_drafter) {
        c.vocabulary = drafter_vocabulary(from, key("vocab_size"));
        config.draft = read_draft(from, c);
        return config;
    }
    tensor const& embeddings = from.at("token_embd.weight");
    if (embeddings.shape.size() != 2 || embeddings.shape[0] > limits::vocabulary) {
        fail_with(from.name(), ": tensor 'token_embd.weight' has ", embeddings.shape.size(),
                  " dimensions, expected a row for each of at most ", limits::vocabulary, " tokens");
    }
    c.vocabulary = embeddings.shape[0];
    if (field const stated = key("vocab_size");
        stated.present() && stated.size(1, limits::vocabulary) != c.vocabulary) {
        stated.wrong(error_text(c.vocabulary) + ", the rows of 'token_embd.weight'");
    }
    c.tied_embeddings = from.find("output.weight") == nullptr;
    return config;
}

checkpoint load(std::shared_ptr<file const> from, model_config config) {
    auto const memory = std::make_shared<loaded_file>(from);
    bool const is_drafter = !is_target(config.kind);
    std::vector<stored_tensor> tensors;
    for (tensor const& t : from->tensors()) {
        stored_tensor stored{.name = folder_name_of(t.name, is_drafter),
                             .file = *t.file,
                             .own_name = printable(t.name),  // for errors
                             .shape = t.shape,
                             .type = storage_of(t.type),
                             .integer_bytes = t.type == tensor_type::i64 ? std::size_t{8} : std::size_t{0},
                             .type_name = name_of(t.type),
                             .data = t.bytes.data(),
                             .offset = static_cast<std::ptrdiff_t>(t.offset)};
        if (stored.name.empty()) continue;
        if (is_drafter && (t.name == "markov_w1.weight" || t.name.starts_with("conf_proj.")) && !t.bytes.empty()) {
            std::size_t elements = 1;
            for (std::size_t const extent : t.shape) elements *= extent;
            auto& numbers = memory->numbers.emplace_back(elements);
            dequantise(t.type, t.bytes.data(), elements, numbers.data());
            stored.type = storage::f32;
            stored.data = reinterpret_cast<std::byte const*>(numbers.data());
            if (t.name == "conf_proj.weight" && t.shape.size() == 1) stored.shape = {1, t.shape[0]};
            tensors.push_back(std::move(stored));
            continue;
        }
        bool const rotated = t.name.ends_with(".attn_q.weight") || t.name.ends_with(".attn_k.weight");
        row_order order{rotated && config.kind == architecture::llama ? config.transformer.head_dim : 0};
        if (t.shape.size() == 2 && !t.bytes.empty() && t.shape[0] % std::max<std::size_t>(order.head_dim, 1) == 0) {
            // Embeddings and logits are read by other rows as well.
            bool const divided = t.name.starts_with("blk.") && !is_drafter;
            row_share const share = divided ? share_of(t.shape[0], config.place) : row_share{0, t.shape[0]};
            repacker const repack(t, order, share, memory->memory, from->name());
            if (auto packed = repack.packed()) {
                stored.type = packed->view().type;
                stored.data = static_cast<std::byte const*>(packed->view().data);
                memory->packed.push_back(std::move(*packed));
            } else if (stored.type && order.head_dim != 0) {
                memory->copies.push_back(repack.reordered());
                stored.data = memory->copies.back().data();
            }
        }
        tensors.push_back(std::move(stored));
    }
    return checkpoint::from_tensors(std::move(config), from->name(), std::move(tensors), from->bytes().size(), memory);
}

}  // namespace engine::gguf

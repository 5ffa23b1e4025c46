// SPDX-License-Identifier: MIT
//
// What the JSON files of a Hugging Face folder say about a model: config.json, generation_config.json and the index of
// a sharded checkpoint. The result is plain numbers; that the tensors agree with them is checked where tensors are
// looked up (checkpoint.hpp).
//
// Reading is strict. A model that is loaded under wrong assumptions does not crash, but writes slightly worse text. A
// drafter with a wrong layer or mask token only accepts less. The reason would be hard to find. So a field that changes
// the arithmetic is either understood or refused, and fields of a drafter have no defaults. Fields that only training
// or Python cares about are ignored.
//
// All sizes are within the limits below. Under these no shape, cache or byte count made of them exceeds 64 bits. So
// code after this point multiplies without checks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sureleap/core/types.hpp>

#include "kernels.hpp"
#include "row_share.hpp"
#include "text_file.hpp"

namespace engine {

using sureleap::token_id;

/// From `architectures`: `model_type` is qwen3 for all of them but llama and qwen2.
enum class architecture : std::uint8_t {
    qwen3,   ///< Qwen3ForCausalLM, a target (or an autoregressive draft model)
    qwen2,   ///< Qwen2ForCausalLM (Qwen2.5 too), the same with biases on queries, keys and values in place of norms
    llama,   ///< LlamaForCausalLM, the same with neither
    dspark,  ///< Qwen3DSparkModel: DSpark drafters, and DFlash ones, which are the same without the heads
    eagle3,  ///< Qwen3Eagle3Model or Eagle3DraftModel
};

[[nodiscard]] constexpr bool is_target(architecture kind) noexcept {
    return kind == architecture::qwen3 || kind == architecture::qwen2 || kind == architecture::llama;
}

/// The name in config.json; for eagle3 the first of the two.
[[nodiscard]] char const* name_of(architecture kind) noexcept;

namespace limits {
inline constexpr std::size_t vocabulary = std::size_t{1} << 24;
inline constexpr std::size_t hidden_size = std::size_t{1} << 18;
inline constexpr std::size_t intermediate_size = std::size_t{1} << 20;
inline constexpr std::size_t layers = 1024;
inline constexpr std::size_t heads = 4096;
inline constexpr std::size_t head_dim = 4096;
inline constexpr std::size_t max_positions = std::size_t{1} << 24;
inline constexpr std::size_t block_size = 1024;
inline constexpr std::size_t markov_rank = std::size_t{1} << 16;
inline constexpr std::size_t gru_units = std::size_t{1} << 16;
inline constexpr double rope_theta = 1e12;
inline constexpr char const* rope_divisors = "a number in 0.001 .. 1000";
[[nodiscard]] constexpr bool is_rope_divisor(double d) noexcept {
    return d >= 0.001 && d <= 1000.0;
}
inline constexpr char const* confidence_temperatures = "a number in 0.001 .. 1000";
[[nodiscard]] constexpr bool is_confidence_temperature(double t) noexcept {
    return t >= 0.001 && t <= 1000.0;
}
}  // namespace limits

/// Every size is in 1 .. its limit.
struct transformer_config {
    std::size_t vocabulary = 0;
    std::size_t hidden_size = 0;
    std::size_t intermediate_size = 0;
    std::size_t layers = 0;
    std::size_t heads = 0;
    std::size_t kv_heads = 0;  ///< divides heads
    std::size_t head_dim = 0;  ///< even
    std::size_t max_positions = 0;
    double rope_theta = 0.0;  ///< in [1, limit]
    /// [head_dim / 2] what the frequency of each pair is divided by, for texts longer than those of training; each in
    /// 0.001 .. 1000. Empty: 1.
    std::vector<double> rope_divisors{};
    double rms_norm_eps = 0.0;  ///< in (0, 1]
    bool tied_embeddings = false;
    bool query_key_norms = true;    ///< Qwen3's
    bool attention_biases = false;  ///< Qwen2's, of queries, keys and values

    [[nodiscard]] bool operator==(transformer_config const&) const = default;
};

/// What an architecture does to queries, keys and values.
inline void set_attention(transformer_config& c, architecture kind) noexcept {
    c.query_key_norms = kind != architecture::llama && kind != architecture::qwen2;
    c.attention_biases = kind == architecture::qwen2;
}

/// The sequential head of a DSpark drafter; domino: of a DFlash folder.
enum class head_kind : std::uint8_t { none, vanilla, gated, rnn, domino };

/// The name in config.json (domino's is that of a projector); "none" never stands there.
[[nodiscard]] char const* name_of(head_kind kind) noexcept;

struct draft_config {
    std::size_t block_size = 0;         ///< gamma; for eagle3 the length it was trained for (ttt_length)
    bool sample_from_anchor = true;     ///< x_1 is predicted by the anchor's row; else that row predicts nothing
    std::vector<int> target_layer_ids;  ///< strictly increasing; -1: the embedding; never the target's last layer
    std::size_t num_target_layers = 0;  ///< 0: not stated, as in eagle3 folders and GGUF files
    token_id mask_token = sureleap::no_token;  ///< below the vocabulary; eagle3 has none
    std::size_t markov_rank = 0;               ///< of the head's output product; 0 exactly if head is none
    head_kind head = head_kind::none;
    std::size_t gru_units = 0;    ///< 0 exactly if head is not domino
    std::size_t uncorrected = 0;  ///< first positions that a Domino head leaves as they are
    bool confidence = false;
    bool confidence_with_markov = false;  ///< only with confidence and a head
    /// Sequential temperature scaling of its confidences, one a position (paper, section 3.2.1). Empty: not fitted.
    std::vector<double> confidence_temperatures{};
    /// Of eagle3: the residual stream begins with the feature behind its norm.
    bool norm_before_residual = false;
    /// Tokens that are drafted, by the file's tensor d2t; 0: all of the target's.
    std::size_t vocabulary = 0;

    /// Of a block: the anchor's, and one for each token that no row before it predicts.
    [[nodiscard]] std::size_t block_rows() const noexcept { return block_size + (sample_from_anchor ? 0 : 1); }

    [[nodiscard]] bool operator==(draft_config const&) const = default;
};

struct model_config {
    architecture kind = architecture::qwen3;
    transformer_config transformer;
    std::optional<draft_config> draft;  ///< exactly if kind is no target
    /// End of text, of a turn: eos_token_id, ascending, each below the vocabulary. May be empty.
    std::vector<token_id> stop_tokens;
    /// How the model is to be computed: no part of the file, a choice of who loads it.
    arithmetic products = arithmetic::full;
    rank_place place{};  ///< of ranks that divide its products: others' rows of packed weights are not unpacked

    [[nodiscard]] bool operator==(model_config const&) const = default;
};

/// A config.json; `source` names it in errors. Throws sureleap::error.
[[nodiscard]] model_config parse_config(std::string_view json, std::string const& source);

/// The eos_token_id of a generation_config.json; nothing if it has none.
[[nodiscard]] std::optional<std::vector<token_id>> parse_stop_tokens(std::string_view json, std::string const& source,
                                                                     std::size_t vocabulary);

/// config.json of a folder, with the stop tokens of its generation_config.json, where there is one with such: chat
/// models end a turn by a token that config.json does not list.
[[nodiscard]] model_config load_config(std::filesystem::path const& folder);

/// Which file of the folder has which tensor: the weight_map of a model.safetensors.index.json. File names are plain
/// names without a path, so an index cannot reach out of its folder.
using shard_index = std::map<std::string, std::string, std::less<>>;

[[nodiscard]] shard_index parse_shard_index(std::string_view json, std::string const& source);

}  // namespace engine

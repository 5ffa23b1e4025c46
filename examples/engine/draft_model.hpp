// SPDX-License-Identifier: MIT
//
// What drafters that feed on a target's features have in common.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sureleap/core/error.hpp>

#include "checkpoint.hpp"
#include "config.hpp"
#include "kv_cache.hpp"
#include "layout.hpp"
#include "target.hpp"

namespace engine {

/// What the engine's loop knows of such a drafter: it is told what was committed. How it drafts is between it and the
/// library's concepts.
template <class Real>
class draft_model {
public:
    draft_model() = default;
    draft_model(draft_model const&) = delete;
    draft_model& operator=(draft_model const&) = delete;
    virtual ~draft_model() = default;

    [[nodiscard]] virtual std::size_t block_size() const noexcept = 0;
    /// Newly committed positions: the target's features of each row, and the committed token after it. Rows of a slot
    /// are consecutive, in order and without gaps from call to call; rows.keys is not read. At most limits.max_rows
    /// rows.
    virtual void observe(std::span<batch_row const> rows, Real const* features,
                         std::span<sureleap::token_id const> next_tokens) = 0;
    /// Bytes of weights that one pass reads, the sequential head's left out.
    [[nodiscard]] virtual std::size_t weight_bytes() const noexcept = 0;

    /// Sequential temperature scaling of the confidences, for the loop to lend to its rounds: block_size() of them, or
    /// none. The file's, unless others were set before the loop is made.
    [[nodiscard]] std::span<double const> confidence_temperatures() const noexcept { return temperatures_; }
    void set_confidence_temperatures(std::vector<double> temperatures) { temperatures_ = std::move(temperatures); }

private:
    std::vector<double> temperatures_;
};

/// Throws if the drafter's files have a tensor that this engine does not read. It would mean another function of the
/// others: sinks of attention, a bias, a selector. A drafter without it still drafts, and only accepts less.
inline void refuse_unread(checkpoint const& from) {
    auto const read = tensors_of(from.config(), storage::f32);
    for (std::string const& name : from.names()) {
        // The target's own where they are shared, d2t the other way round, and what positions say already.
        bool const harmless = name == "embed_tokens.weight" || name == "lm_head.weight" || name == "t2d" ||
                              name.ends_with("rotary_emb.inv_freq");
        if (harmless || std::ranges::find(read, name, &sureleap::safetensors::tensor_spec::name) != read.end())
            continue;
        sureleap::fail_with(from.folder().string(), ": tensor '", name, "' is none that ", name_of(from.config().kind),
                            " of this configuration has, expected one of its ", read.size(),
                            ": what it does is not known here, and nothing would show that it is missing");
    }
}

/// The draft's fields of a folder of this architecture that fits the target: equal vocabulary and hidden size, and the
/// features it was trained on. Throws otherwise.
template <class Real>
[[nodiscard]] draft_config checked_draft(checkpoint const& from, architecture expected, target<Real> const& served) {
    using sureleap::fail_with;
    std::string const where = from.folder().string();
    model_config const& config = from.config();
    if (config.kind != expected || !config.draft) {
        fail_with(where, ": the architecture is ", name_of(config.kind), ", expected ", name_of(expected));
    }
    if (config.transformer.vocabulary != served.vocabulary()) {
        fail_with(where, ": the drafter has ", config.transformer.vocabulary, " tokens, expected the target's ",
                  served.vocabulary());
    }
    // fc would take features of any width, but embedding and LM head are the target's.
    if (config.transformer.hidden_size != served.hidden_size()) {
        fail_with(where, ": the drafter's hidden size is ", config.transformer.hidden_size, ", expected the target's ",
                  served.hidden_size());
    }
    auto const layers = served.feature_layers();
    auto const& wanted = config.draft->target_layer_ids;
    if (!std::equal(layers.begin(), layers.end(), wanted.begin(), wanted.end())) {
        fail_with(where, ": the drafter reads ", wanted.size(),
                  " layers of the target (its target_layer_ids), but the "
                  "target was made with ",
                  layers.size(), " feature layers or others; pass the drafter's");
    }
    refuse_unread(from);
    return *config.draft;
}

/// A tensor of the draft's file, or the target's where the file leaves it out.
[[nodiscard]] inline weight own_or_shared(checkpoint const& from, std::string const& name, weight const& shared) {
    return from.contains(name) ? from.matrix(name, shared.rows, shared.cols) : shared;
}

/// The target ids of the tokens that the drafter drafts, from the tensor d2t, rising. Empty if it drafts all. Folders
/// hold offsets in I64, target = draft + d2t[draft], as EAGLE-3, speculators, SpecForge and vLLM do; GGUF files, and
/// I32, the ids themselves. Throws sureleap::error.
[[nodiscard]] inline std::vector<sureleap::token_id> drafted_tokens(checkpoint const& from) {
    using sureleap::fail_with;
    std::size_t const size = from.config().draft.value().vocabulary;
    if (size == 0) return {};
    auto ids = from.integers("d2t", size);
    bool const are_offsets = !from.files().empty() && from.integer_bytes("d2t") == sizeof(std::int64_t);
    for (std::size_t i = 0; are_offsets && i < size; ++i) ids[i] += static_cast<std::int64_t>(i);
    auto const end = static_cast<std::int64_t>(from.config().transformer.vocabulary);
    std::vector<sureleap::token_id> tokens;
    for (std::size_t i = 0; i < ids.size(); ++i) {
        std::int64_t const least = i == 0 ? 0 : ids[i - 1] + 1;
        if (ids[i] < least || ids[i] >= end) {
            fail_with(from.folder().string(), ": tensor 'd2t' has ", are_offsets ? "the offset of token " : "", ids[i],
                      " at ", i, ", expected rising tokens, here ", least, " .. ", end - 1);
        }
        tokens.push_back(static_cast<sureleap::token_id>(ids[i]));
    }
    return tokens;
}

}  // namespace engine

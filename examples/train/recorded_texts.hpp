// SPDX-License-Identifier: MIT
//
// Texts that a target wrote, with all that training a drafter on them needs. While the target writes, it computes the
// features that the drafter reads and the law that every token is drawn from. Both are recorded then, so that no step
// of training needs a pass of the target.
//
// A recording is a folder of shards 00000.safetensors, 00001.safetensors and so on. Each has whole texts:
//
//     tokens         I32 [T]         of all texts, one after the other
//     begins         I64 [N + 1]     where each begins
//     prompts        I64 [N]         tokens of it that the target did not write, at least 1
//     domains        I64 [N]         index of its domain; the metadata have `domain 0` and so on
//     numbers        I64 [N]         which text it is: the target would write the same again
//     features       F16 [T - N, w]  of every token but the last of each text, which the target never read
//     best_tokens    I32 [C, 16]     of every written token, the likeliest of the law it was drawn from, falling
//     best_shares    F32 [C, 16]     their probabilities; 0 where the law has fewer tokens
//
// A text of 400 tokens takes 1.4 MB at 3 layers of 576 features. Of a law 16 tokens are enough: at low temperatures
// they have nearly all of it, and what they lack counts as mass that a draft cannot win.
//
// A shard is complete when it has its name. Whoever is interrupted loses what was not in one yet, and goes on with the
// next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <sureleap/core/types.hpp>
#include <sureleap/ext/safetensors.hpp>

#include "documents.hpp"

namespace train {

/// Tokens of a law that are recorded.
inline constexpr std::size_t best_of_law = 16;

/// A text as it was written.
struct recorded_text {
    std::size_t number = 0;
    std::string domain{};
    std::size_t prompt = 0;
    std::vector<token_id> tokens{};
    std::vector<sureleap::half> features{};  ///< [tokens - 1, width]
    std::vector<token_id> best_tokens{};     ///< [tokens - prompt, best_of_law]
    std::vector<float> best_shares{};        ///< the same
};

/// What all shards of a recording have in common. A recording goes on only under the settings it was begun with.
struct recording_settings {
    std::vector<int> feature_layers{};
    std::size_t width = 0;     ///< of a row of features
    std::string written_by{};  ///< target, prompts and sampling, in words
    std::size_t shard_tokens = 100'000;
};

class recorder {
public:
    /// Makes the folder, or goes on in it. Throws sureleap::error if its shards were written under other settings.
    recorder(std::filesystem::path folder, recording_settings settings);

    /// Numbers of the texts that complete shards have.
    [[nodiscard]] std::set<std::size_t> const& written() const noexcept { return written_; }
    /// Takes a text; a shard is written when there are tokens enough.
    void add(recorded_text text);
    /// Writes a shard of what has been added since the last.
    void flush();

private:
    std::filesystem::path folder_;
    recording_settings settings_;
    std::set<std::size_t> written_;
    std::size_t shards_ = 0;
    std::size_t tokens_ = 0;  // of texts_
    std::vector<recorded_text> texts_;
};

/// Recordings as training reads them. Shards are mapped: features come from the page cache.
class recorded_texts {
public:
    /// Throws sureleap::error for a shard that does not fit the first, or whose tensors do not fit each other.
    recorded_texts(std::span<std::filesystem::path const> folders, std::size_t vocabulary);
    recorded_texts(std::filesystem::path const& folder, std::size_t vocabulary)
        : recorded_texts(std::span(&folder, 1), vocabulary) {}

    /// Their tokens, folder by folder in order of their numbers. Text i is document i.
    [[nodiscard]] documents const& texts() const noexcept { return texts_; }
    [[nodiscard]] std::vector<int> const& feature_layers() const noexcept { return feature_layers_; }
    [[nodiscard]] std::size_t width() const noexcept { return width_; }

    /// [tokens - 1, width] of a text.
    [[nodiscard]] sureleap::matrix_view<sureleap::half> features(std::size_t text) const noexcept;

    /// The likeliest tokens of the law that token t of a text was drawn from, and their probabilities, falling.
    struct law {
        std::span<token_id const> tokens;
        std::span<float const> shares;
    };
    /// prompt <= t < tokens.
    [[nodiscard]] law law_of(std::size_t text, std::size_t t) const noexcept;

private:
    struct shard;
    struct place {
        sureleap::half const* features;
        token_id const* best_tokens;
        float const* best_shares;
    };

    void add(std::filesystem::path const& folder, std::size_t vocabulary);

    std::vector<sureleap::safetensors::file> files_;
    documents texts_;
    std::vector<place> places_;
    std::vector<int> feature_layers_;
    std::size_t width_ = 0;
};

}  // namespace train

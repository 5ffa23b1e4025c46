// SPDX-License-Identifier: MIT
//
// The tokens of a byte-level model by the names that a file gives them, for those who read one: a tokenizer.json
// (tokenizer_file.hpp) or a GGUF file (gguf_tokenizer.hpp). A name is spelled in the alphabet of byte_level.hpp, and a
// merge is two names. Once the file is read nobody asks for names any more: a pipeline has bytes and ids.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <sureleap/core/types.hpp>

#include "byte_level.hpp"
#include "pipeline.hpp"

namespace engine::text {

/// Far above any vocabulary, and small enough for everyone who makes a table of them.
inline constexpr token_id largest_id = (token_id{1} << 24) - 1;

/// Fills the tokens and merges of a pipeline. What is wrong is told to the caller, who knows the words for it.
class spelled_vocabulary {
public:
    /// The pipeline must outlive this object, and so must all names of tokens.
    explicit spelled_vocabulary(pipeline& out) : out_(&out) {}

    void reserve(std::size_t tokens) {
        ids_.reserve(tokens);
        out_->tokens.reserve(tokens);
        out_->words.reserve(tokens);
    }

    /// A token of the model. The result is the token that has this id already, or nullptr if there is none. The name is
    /// valid UTF-8. A name outside the alphabet is kept as it is, for decoding only: no text is ever spelled like it.
    token_entry const* add(std::string_view name, token_id id) {
        std::optional<std::string> const bytes = bytes_of_symbols(name);
        auto const [entry, is_new] = out_->tokens.try_emplace(id, token_entry{bytes ? *bytes : std::string(name)});
        if (!is_new) return &entry->second;
        grow_to(id);
        ids_.emplace(name, id);
        if (bytes) out_->words.emplace(entry->second.bytes, id);
        return nullptr;
    }
    /// An added token, or any other that texts are not spelled with.
    void name(std::string_view name, token_id id) {
        grow_to(id);
        ids_.emplace(name, id);
    }

    [[nodiscard]] std::optional<token_id> find(std::string_view name) const {
        auto const found = ids_.find(name);
        return found == ids_.end() ? std::nullopt : std::optional(found->second);
    }

    /// Gives the model its tokens of single bytes, after the last add(). The result is the bytes that have none.
    [[nodiscard]] std::vector<std::uint8_t> set_bytes() {
        std::vector<std::uint8_t> missing;
        for (unsigned byte = 0; byte < 256; ++byte) {
            auto const found = find(symbol_of(static_cast<std::uint8_t>(byte)));
            out_->model.symbols[byte] = found.value_or(sureleap::no_token);
            if (!found) missing.push_back(static_cast<std::uint8_t>(byte));
        }
        return missing;
    }

    /// The next merge by rank. The result is empty, or the first name that no token has: left, right or both together.
    /// It is valid until the next call.
    [[nodiscard]] std::string_view add_merge(std::string_view left, std::string_view right) {
        joined_.assign(left).append(right);
        auto const left_id = find(left);
        if (!left_id) return left;
        auto const right_id = find(right);
        if (!right_id) return right;
        auto const result = find(joined_);
        if (!result) return joined_;
        out_->model.add_merge(*left_id, *right_id, *result);
        return {};
    }

    void grow_to(token_id id) { out_->vocabulary = std::max(out_->vocabulary, static_cast<std::size_t>(id) + 1); }

private:
    pipeline* out_;
    std::unordered_map<std::string_view, token_id> ids_;
    std::string joined_;
};

}  // namespace engine::text

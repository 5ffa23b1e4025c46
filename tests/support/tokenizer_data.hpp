// SPDX-License-Identifier: MIT
//
// tests/engine/data/tokenizer.json, as it is or changed. It has the structure of Qwen3's file at a size one can read:
// all bytes, a few hundred merges, and the added tokens of a chat.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <nlohmann/json.hpp>

#include <sureleap/core/error.hpp>

#include "engine/tokenizer.hpp"

namespace support {

/// `name` is relative to tests/.
[[nodiscard]] inline std::string file_text(std::string const& name) {
    std::filesystem::path const path = std::filesystem::path(SURELEAP_TESTS_DIR) / name;
    std::ifstream in(path, std::ios::binary);
    if (!in) sureleap::fail_with(path.string(), ": cannot be opened");
    return {std::istreambuf_iterator<char>(in), {}};
}

/// The document with a merge patch (RFC 7386) applied: null removes a field, lists are replaced whole.
[[nodiscard]] inline nlohmann::json changed_document(nlohmann::json const& patch) {
    static nlohmann::json const original = nlohmann::json::parse(file_text("engine/data/tokenizer.json"));
    nlohmann::json document = original;
    if (!patch.is_null()) document.merge_patch(patch);
    return document;
}

[[nodiscard]] inline engine::tokenizer changed_tokenizer(nlohmann::json const& patch) {
    return engine::tokenizer::parse(changed_document(patch).dump(), "tokenizer.json");
}

}  // namespace support

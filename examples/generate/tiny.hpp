// SPDX-License-Identifier: MIT
//
// Models for a first run, without a download: a DSpark drafter and the target without attention (engine/stand_in.hpp)
// whose decoding the tests compare with reference values. They speak in numbers, but they are a whole pair: a backbone
// with Markov head and confidence, and a target with the same bigram tables, so that drafts are accepted.
#pragma once

#include <filesystem>
#include <vector>

#include <engine/checkpoint.hpp>
#include <engine/stand_in.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/ext/safetensors.hpp>

namespace generate {

/// Its folder.
[[nodiscard]] std::filesystem::path tiny_drafter();

/// A prompt they know.
[[nodiscard]] std::vector<sureleap::token_id> tiny_prompt();

/// The target's weights, which are spread over two files.
class tiny_target {
public:
    tiny_target();

    /// Valid while this object lives; it may not be moved meanwhile.
    [[nodiscard]] engine::stand_in<float>::weights weights() const;
    [[nodiscard]] std::size_t bytes() const noexcept { return arrays_.bytes().size(); }

private:
    sureleap::safetensors::file arrays_;
    engine::checkpoint drafter_;  // embeddings and bigram tables are the drafter's
};

}  // namespace generate

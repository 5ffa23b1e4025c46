// SPDX-License-Identifier: MIT
#include "prompt.hpp"

#include <cstddef>
#include <filesystem>
#include <string>
#include <utility>

#include <engine/chat.hpp>
#include <engine/model_files.hpp>
#include <sureleap/core/error.hpp>

#include "tiny.hpp"

namespace generate {
namespace {

using sureleap::fail_with;

void check_chats(engine::tokenizer const& tokenizer) {
    if (!engine::has_chat_tokens(tokenizer)) {
        fail_with(
            "--chat: the tokenizer has no '<|im_start|>' and '<|im_end|>', expected that of a ChatML model such as "
            "Qwen's; leave --chat out");
    }
}

std::vector<token_id> from_ids(options const& chosen, std::size_t vocabulary) {
    if (chosen.tokens.empty()) return tiny_prompt();
    for (std::size_t i = 0; i < chosen.tokens.size(); ++i) {
        token_id const id = chosen.tokens[i];
        if (id < 0 || static_cast<std::size_t>(id) >= vocabulary) {
            fail_with("--tokens: token ", i, " is ", id, ", expected 0 .. ", vocabulary - 1);
        }
    }
    return chosen.tokens;
}

}  // namespace

prompt make_prompt(options const& chosen) {
    // The tiny target's vocabulary is its drafter's.
    auto const config = engine::config_of(chosen.tiny() ? tiny_drafter() : chosen.target);
    std::size_t const vocabulary = config.transformer.vocabulary;
    if (!chosen.prompt && !chosen.converses()) return {from_ids(chosen, vocabulary), std::nullopt};
    auto tokenizer = engine::tokenizer_of(chosen.target);
    if (!tokenizer) {
        fail_with((chosen.target / "tokenizer.json").string(),
                  ": there is no tokenizer; give the prompt as ids with --tokens");
    }
    tokenizer->check_fits(vocabulary);
    if (chosen.chat) check_chats(*tokenizer);
    if (chosen.converses()) return {{}, std::move(tokenizer)};
    auto tokens = chosen.chat
                      ? engine::chat_prompt(*tokenizer, *chosen.prompt,
                                            engine::chat_template_of(chosen.target).default_system, chosen.think)
                      : tokenizer->encode(*chosen.prompt);
    if (tokens.empty()) fail_with("the prompt is empty, expected at least one token");
    return {std::move(tokens), std::move(tokenizer)};
}

}  // namespace generate

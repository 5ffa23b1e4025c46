// SPDX-License-Identifier: MIT
#include "prompt.hpp"

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include <engine/config.hpp>
#include <sureleap/error.hpp>

#include "tiny.hpp"

namespace generate {
namespace {

using sureleap::detail::fail_with;

/// One turn in the format of Qwen's chat models (ChatML):
///
///     <|im_start|>user
///     the message<|im_end|>
///     <|im_start|>assistant
///
/// What the user wrote stays text, also where it looks like one of these marks: only the frame is parsed for them.
/// Without thinking the answer begins with an empty thought, as Qwen3's own template writes it.
std::vector<token_id> as_chat(engine::tokenizer const& tokenizer, std::string const& message, bool think) {
    std::vector<token_id> tokens;
    auto const mark = [&](std::string_view name) {
        auto const id = tokenizer.id_of(name);
        if (!id) {
            fail_with("--chat: the tokenizer has no token '", std::string(name),
                      "', expected that of a Qwen chat model; leave --chat out");
        }
        tokens.push_back(*id);
    };
    auto const text = [&](std::string const& part) {
        auto const ids = tokenizer.encode(part, {.parse_special = false, .add_special = false});
        tokens.insert(tokens.end(), ids.begin(), ids.end());
    };
    mark("<|im_start|>");
    text("user\n" + message);  // one text, because a token may reach from one part into the other
    mark("<|im_end|>");
    text("\n");
    mark("<|im_start|>");
    text("assistant\n");
    // A model that never thinks has no mark for it and needs no empty thought.
    if (!think && tokenizer.id_of("<think>")) {
        mark("<think>");
        text("\n\n");
        mark("</think>");
        text("\n\n");
    }
    return tokens;
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
    auto const config = engine::load_config(chosen.tiny() ? tiny_drafter() : chosen.target);
    std::size_t const vocabulary = config.transformer.vocabulary;
    if (!chosen.prompt) return {from_ids(chosen, vocabulary), std::nullopt};
    auto const file = chosen.target / "tokenizer.json";
    if (!std::filesystem::exists(file)) {
        fail_with(file.string(), ": there is no tokenizer; give the prompt as ids with --tokens");
    }
    auto tokenizer = engine::tokenizer::load(file);
    tokenizer.check_fits(vocabulary);
    auto tokens = chosen.chat ? as_chat(tokenizer, *chosen.prompt, chosen.think) : tokenizer.encode(*chosen.prompt);
    if (tokens.empty()) fail_with("the prompt is empty, expected at least one token");
    return {std::move(tokens), std::move(tokenizer)};
}

}  // namespace generate

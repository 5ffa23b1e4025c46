// SPDX-License-Identifier: MIT
//
// Text to tokens and back, by the tokenizer.json of a byte-level BPE model (Qwen, Llama 3, GPT-2 and their relatives),
// or by the tokenizer of a GGUF file, which may also be SentencePiece's (Llama 2, Mistral, Gemma).
//
//   auto const tokens = engine::tokenizer::load(folder / "tokenizer.json");
//   auto const prompt = tokens.encode("Once upon a time");
//   engine::utf8_stream characters;
//   for (token_id t : generated) std::cout << characters.push(tokens.bytes_of(t));
//
// A text goes through these stages, each a file in examples/engine/text:
//
//   added tokens    "<|im_end|>" and such are cut out of the text     added_tokens.hpp
//   normaliser      the rest in one Unicode form                      normal_form.hpp
//   pre-tokenizer   cut into words by patterns                        split.hpp, pattern.hpp
//   model           every word into tokens by merging bytes           bpe.hpp
//                   or all of the text, by merging characters         sentence_piece.hpp
//   post-processor  tokens around the text, such as Llama's first     pipeline.hpp
//
// A model sees nothing but the ids, and slightly wrong ids only make it write worse. So the file decides, and every
// stage gives what the Hugging Face library `tokenizers` gives. What is not supported is refused at loading, by name,
// never approximated (tokenizer_file.hpp, gguf_tokenizer.hpp, pattern_translator.hpp). Three things differ on purpose:
//
//   - decode() gives bytes, so that a text can be printed while it is written; the library replaces what is no UTF-8;
//   - an added token decodes to its own text; the library reads it in byte_level.hpp's alphabet, where "é" is a byte;
//   - parse_special = false finds no added token; the library's encode_special_tokens keeps those that are not special.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sureleap/core/types.hpp>

#include "text/utf8.hpp"

namespace engine {

using sureleap::token_id;

namespace gguf {
class file;
}
namespace text {
struct pipeline;
}

struct encode_options {
    /// Added tokens in the text become their ids. Without, every byte of the text is text: for what a stranger wrote.
    bool parse_special = true;
    /// Puts the file's template around the text. A chat prompt has its own first token already.
    bool add_special = true;
};

/// Move-only. Threads can share one.
class tokenizer {
public:
    [[nodiscard]] static tokenizer load(std::filesystem::path const& file);
    /// `source` names the text in errors.
    [[nodiscard]] static tokenizer parse(std::string_view json, std::string source);
    /// That of a GGUF file, which need not live on. Vocabularies there may lack bytes that training never met, such as
    /// rare control characters; in a text those bytes are lost, as with the library.
    [[nodiscard]] static tokenizer from_gguf(gguf::file const& file);

    tokenizer(tokenizer&&) noexcept;
    tokenizer& operator=(tokenizer&&) noexcept;
    ~tokenizer();

    /// 1 + the largest id.
    [[nodiscard]] std::size_t vocabulary() const noexcept;
    /// Throws if the model has no embedding for some token. A larger vocabulary is normal: models pad their tables.
    void check_fits(std::size_t model_vocabulary) const;

    /// What is no UTF-8 in the text counts as U+FFFD (utf8.hpp). Throws if matching a pattern of the file exceeds the
    /// limits of pattern.hpp. That takes a malicious pattern, or a text of hundreds of megabytes.
    [[nodiscard]] std::vector<token_id> encode(std::string_view text, encode_options options = {}) const;

    /// Bytes: a text that was cut between two tokens may begin or end inside a character. With skip_special, tokens
    /// that the file calls special are left out (of added tokens, not all are). Ids without a token give nothing.
    [[nodiscard]] std::string decode(std::span<token_id const> tokens, bool skip_special = false) const;
    /// Of one token. Valid as long as the tokenizer, or the one it is moved to; empty for an id without a token.
    [[nodiscard]] std::string_view bytes_of(token_id token) const;
    [[nodiscard]] bool is_special(token_id token) const;
    /// The token of exactly these bytes: "<|im_end|>", " the".
    [[nodiscard]] std::optional<token_id> id_of(std::string_view bytes) const;

private:
    explicit tokenizer(std::unique_ptr<text::pipeline const> all) noexcept;

    std::unique_ptr<text::pipeline const> parts_;
};

/// The tokens that end an answer, sorted: those that the file names, and added tokens with a well-known text, such as
/// "<|im_end|>". Files name one, but a model may well write another.
[[nodiscard]] std::vector<token_id> stop_tokens_of(gguf::file const& file);

}  // namespace engine

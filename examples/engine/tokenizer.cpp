// SPDX-License-Identifier: MIT
#include "tokenizer.hpp"

#include <fstream>
#include <iterator>
#include <utility>

#include <sureleap/core/error.hpp>

#include "text/gguf_tokenizer.hpp"
#include "text/pipeline.hpp"
#include "text/tokenizer_file.hpp"

namespace engine {
namespace {

using sureleap::fail_with;
using text::normal_form;
using text::normalized;
using text::pipeline;
using text::split;
using text::token_entry;

constexpr std::size_t max_file = std::size_t{256} << 20;

/// One text on its way through the stages, each of which hands its pieces to the next.
class encoding {
public:
    encoding(pipeline const& parts, std::vector<token_id>& out) : parts_(parts), out_(out) {}

    void with_added_tokens(std::string_view text) {
        auto const emit = [&](token_id id) { out_.push_back(id); };
        auto const plain = [&](std::string_view piece) { pre_tokenize(piece); };
        auto const between = [&](std::string_view piece) { parts_.normalized.cut(normalize(piece), plain, emit); };
        parts_.verbatim.cut(text, between, emit);
    }
    void without_added_tokens(std::string_view text) { pre_tokenize(normalize(text)); }

private:
    [[nodiscard]] std::string normalize(std::string_view text) const {
        std::string normal(text);
        for (normal_form const form : parts_.normalizer) normal = normalized(normal, form);
        return normal;
    }

    void pre_tokenize(std::string_view text) {
        if (text.empty()) return;  // or prefix_space would make something of it
        if (parts_.pieces) return parts_.pieces->encode(text, out_);
        std::vector<std::string_view> pieces{text};
        for (split const& step : parts_.splits) {
            std::vector<std::string_view> smaller;
            for (std::string_view const piece : pieces) step(piece, smaller);
            pieces = std::move(smaller);
        }
        for (std::string_view const piece : pieces) byte_level(piece);
    }

    void byte_level(std::string_view piece) {
        std::string spaced;
        if (parts_.prefix_space && !piece.starts_with(' ')) {
            spaced.append(" ").append(piece);
            piece = spaced;
        }
        if (!parts_.space_words) return word(piece);
        std::vector<std::string_view> words;
        (*parts_.space_words)(piece, words);
        for (std::string_view const one : words) word(one);
    }

    void word(std::string_view bytes) {
        if (parts_.whole_words_first) {
            if (auto const found = parts_.words.find(bytes); found != parts_.words.end()) {
                out_.push_back(found->second);
                return;
            }
        }
        parts_.model.encode(bytes, out_);
    }

    pipeline const& parts_;
    std::vector<token_id>& out_;
};

token_entry const* find(pipeline const& parts, token_id token) {
    auto const found = parts.tokens.find(token);
    return found == parts.tokens.end() ? nullptr : &found->second;
}

}  // namespace

tokenizer::tokenizer(std::unique_ptr<pipeline const> all) noexcept : parts_(std::move(all)) {}
tokenizer::tokenizer(tokenizer&&) noexcept = default;
tokenizer& tokenizer::operator=(tokenizer&&) noexcept = default;
tokenizer::~tokenizer() = default;

tokenizer tokenizer::load(std::filesystem::path const& file) {
    std::ifstream in(file, std::ios::binary | std::ios::ate);
    auto const size = in ? static_cast<std::streamoff>(in.tellg()) : std::streamoff{-1};
    if (size < 0) fail_with(file.string(), ": cannot be opened");
    if (static_cast<std::size_t>(size) > max_file) {
        fail_with(file.string(), ": has ", size, " bytes, expected a tokenizer.json of at most ", max_file);
    }
    std::string text(static_cast<std::size_t>(size), '\0');
    in.seekg(0);
    if (!in.read(text.data(), size)) fail_with(file.string(), ": cannot be read");
    return parse(text, file.string());
}

tokenizer tokenizer::parse(std::string_view json, std::string source) {
    return tokenizer(text::read_tokenizer(json, std::move(source)));
}

tokenizer tokenizer::from_gguf(gguf::file const& file) {
    return tokenizer(text::read_gguf_tokenizer(file));
}

std::size_t tokenizer::vocabulary() const noexcept {
    return parts_->vocabulary;
}

void tokenizer::check_fits(std::size_t model_vocabulary) const {
    if (vocabulary() <= model_vocabulary) return;
    auto const largest = static_cast<token_id>(vocabulary() - 1);
    fail_with(parts_->source, ": token ", largest, " '", to_utf8(bytes_of(largest)),
              "' does not fit the model's vocabulary of ", model_vocabulary);
}

std::vector<token_id> tokenizer::encode(std::string_view text, encode_options options) const {
    std::string repaired;
    if (!is_utf8(text)) text = repaired = to_utf8(text);
    std::vector<token_id> out;
    if (options.add_special) out = parts_->before;
    encoding stages(*parts_, out);
    if (options.parse_special) {
        stages.with_added_tokens(text);
    } else {
        stages.without_added_tokens(text);
    }
    if (options.add_special) out.insert(out.end(), parts_->after.begin(), parts_->after.end());
    return out;
}

std::string tokenizer::decode(std::span<token_id const> tokens, bool skip_special) const {
    std::string bytes;
    for (token_id const token : tokens) {
        token_entry const* const entry = find(*parts_, token);
        if (entry != nullptr && !(skip_special && entry->special)) bytes += entry->bytes;
    }
    return bytes;
}

std::string_view tokenizer::bytes_of(token_id token) const {
    token_entry const* const entry = find(*parts_, token);
    return entry == nullptr ? std::string_view() : std::string_view(entry->bytes);
}

bool tokenizer::is_special(token_id token) const {
    token_entry const* const entry = find(*parts_, token);
    return entry != nullptr && entry->special;
}

std::optional<token_id> tokenizer::id_of(std::string_view bytes) const {
    if (auto const found = parts_->added.find(std::string(bytes)); found != parts_->added.end()) return found->second;
    if (auto const found = parts_->words.find(bytes); found != parts_->words.end()) return found->second;
    return std::nullopt;
}

std::vector<token_id> stop_tokens_of(gguf::file const& file) {
    return text::read_gguf_stop_tokens(file);
}

}  // namespace engine

// SPDX-License-Identifier: MIT
//
// Texts as tokens: what all training reads.
//
// A corpus is a file of JSON lines, {"domain": "math", "prompt": "...", "completion": "..."}. Prompt and completion are
// tokenised one by one, because that is how they will meet at decoding time, where the prompt is all there is. What a
// target wrote itself is kept as tokens in a .safetensors file: its text, tokenised again, could give other tokens than
// those the target chose.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <engine/tokenizer.hpp>
#include <sureleap/core/types.hpp>

namespace train {

using sureleap::token_id;

class documents {
public:
    struct document {
        std::span<token_id const> tokens;
        std::size_t prompt = 0;  ///< the first tokens that nobody has to learn to write
        std::string const& domain;
    };

    [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }
    [[nodiscard]] std::size_t tokens() const noexcept { return tokens_.size(); }
    [[nodiscard]] document operator[](std::size_t i) const noexcept {
        entry const& e = entries_[i];
        return {std::span(tokens_).subspan(e.begin, e.size), e.prompt, domains_[e.domain]};
    }
    /// Of every domain, in order of first appearance.
    [[nodiscard]] std::vector<std::string> const& domains() const noexcept { return domains_; }
    /// Of all tokens and where documents begin: other documents, other checksum.
    [[nodiscard]] std::uint64_t checksum() const noexcept;
    [[nodiscard]] std::size_t tokens_of(std::string const& domain) const;

    void add(std::span<token_id const> tokens, std::size_t prompt, std::string const& domain);

    /// A corpus: every line is a document that ends with `end`, in pieces of at most `longest` tokens; a piece that
    /// begins within the completion has no prompt. `repeats` names domains whose documents are taken several times.
    /// Throws sureleap::error, naming file and line.
    [[nodiscard]] static documents read(std::filesystem::path const& file, engine::tokenizer const& tokens,
                                        token_id end, std::size_t longest,
                                        std::map<std::string, std::size_t> const& repeats = {});

    /// As tokens. `longest` and `vocabulary` are checked.
    [[nodiscard]] static documents load(std::filesystem::path const& file, std::size_t longest, std::size_t vocabulary);
    void save(std::filesystem::path const& file) const;

private:
    struct entry {
        std::size_t begin;
        std::size_t size;
        std::size_t prompt;
        std::size_t domain;
    };
    std::vector<token_id> tokens_;
    std::vector<entry> entries_;
    std::vector<std::string> domains_;
};

/// One line of a corpus, as text.
struct corpus_line {
    std::string domain;
    std::string prompt;
    std::string completion;
};
[[nodiscard]] std::vector<corpus_line> read_corpus(std::filesystem::path const& file);

/// Which documents each step of a run sees: every epoch all of them once, in an order of its own, about `tokens` tokens
/// at a time. A function of the seed alone, so a run that goes on later sees what it would have seen.
class batch_plan {
public:
    /// Throws sureleap::error without a document, or with one of more than `tokens` tokens.
    batch_plan(documents const& all, std::size_t tokens, std::uint64_t seed);

    struct batch {
        std::uint64_t epoch = 0;
        std::span<std::size_t const> members;  ///< indices of documents
    };
    /// Valid until the next call. Steps are asked for in rising order, or else the plan starts again.
    [[nodiscard]] batch at(std::size_t step);

private:
    void shuffle();

    documents const& all_;
    std::size_t tokens_;
    std::uint64_t seed_;
    std::uint64_t epoch_ = 0;
    std::size_t first_step_ = 0;  ///< of the epoch
    std::vector<std::size_t> order_;
    std::vector<std::size_t> begins_;  ///< of the epoch's batches in order_; one more than batches
};

/// Divides a batch into `shards` of nearly equal work, in a fixed way; `cost(document)` is what one takes.
template <class Cost>
[[nodiscard]] std::vector<std::vector<std::size_t>> divide(std::span<std::size_t const> members, std::size_t shards,
                                                           Cost const& cost) {
    std::vector<std::vector<std::size_t>> parts(shards);
    std::vector<std::size_t> load(shards, 0);
    for (std::size_t const i : members) {
        auto const least = static_cast<std::size_t>(std::min_element(load.begin(), load.end()) - load.begin());
        parts[least].push_back(i);
        load[least] += cost(i);
    }
    return parts;
}

}  // namespace train

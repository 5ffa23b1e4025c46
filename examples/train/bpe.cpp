// SPDX-License-Identifier: MIT
//
// Counting all pairs anew for every merge would read the corpus two thousand times. Three things make it seconds:
// equal words are kept once, with their number; a merge visits only the words that have the pair and corrects the
// counts of their pairs; and the commonest pair comes from a heap whose outdated entries are noticed when they come up.
#include "bpe.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <queue>
#include <set>
#include <tuple>
#include <unordered_map>

#include <nlohmann/json.hpp>

#include <sureleap/core/error.hpp>

#include "../engine/text/byte_level.hpp"
#include "../engine/text/split.hpp"
#include "../engine/text/utf8.hpp"

namespace train {
namespace {

using sureleap::fail_with;

constexpr std::size_t bytes_in_all = 256;
constexpr std::uint64_t fewest = 2;  // occurrences of a pair that is worth a token

using pair = std::pair<token_id, token_id>;

struct pair_hash {
    std::size_t operator()(pair const& p) const noexcept {
        auto const key =
            std::uint64_t{static_cast<std::uint32_t>(p.first)} << 32U | static_cast<std::uint32_t>(p.second);
        return static_cast<std::size_t>((key * 0x9E3779B97F4A7C15U) >> 20U);  // ids are small: spread them
    }
};

struct word {
    std::vector<token_id> tokens;
    std::uint64_t count;
};

/// The bytes in the order of their symbols: element i is the byte of token i.
std::array<std::uint8_t, bytes_in_all> bytes_by_token() {
    std::array<std::uint8_t, bytes_in_all> bytes{};
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i);
    std::ranges::sort(bytes, {}, [](std::uint8_t byte) { return engine::text::byte_alphabet[byte]; });
    return bytes;
}

/// Every different word of the texts, and how often it occurs.
std::unordered_map<std::string, std::uint64_t> counted_words(std::span<std::string const> texts) {
    using engine::text::pattern;
    engine::text::split const cut{pattern("train_bpe", qwen2_words, pattern::syntax::regular_expression)};
    std::unordered_map<std::string, std::uint64_t> counts;
    std::vector<std::string_view> pieces;
    for (std::string const& text : texts) {
        std::string const valid = engine::is_utf8(text) ? std::string() : engine::to_utf8(text);
        pieces.clear();
        cut(valid.empty() ? std::string_view(text) : std::string_view(valid), pieces);
        for (std::string_view const piece : pieces) ++counts[std::string(piece)];
    }
    return counts;
}

class learner {
public:
    explicit learner(std::unordered_map<std::string, std::uint64_t> const& counts) {
        std::array<token_id, bytes_in_all> token_of_byte{};
        for (std::uint8_t const byte : bytes_by_token()) {
            token_of_byte[byte] = static_cast<token_id>(symbols_.size());
            symbols_.push_back(engine::text::symbol_of(byte));
        }
        words_.reserve(counts.size());
        for (auto const& [text, count] : counts) {
            word& added = words_.emplace_back(word{{}, count});
            for (char const c : text) added.tokens.push_back(token_of_byte[static_cast<unsigned char>(c)]);
        }
        for (std::size_t i = 0; i < words_.size(); ++i) {
            for_pairs(words_[i], [&](pair const& p) { note(p, i); });
        }
        for (auto const& [p, found] : pairs_) candidates_.push({found.count, p});
    }

    /// Joins the commonest pair everywhere. False if none occurs often enough.
    bool merge_once() {
        while (!candidates_.empty()) {
            auto const [count, p] = candidates_.top();
            if (count < fewest) return false;
            candidates_.pop();
            // A pair gains occurrences only while its younger token is made, and is put into the heap after that.
            // Later it can only lose some, so an outdated entry comes up too early, never too late.
            std::uint64_t const now = pairs_.at(p).count;
            if (now == count) {
                merge(p);
                return true;
            }
            candidates_.push({now, p});
        }
        return false;
    }

    [[nodiscard]] std::vector<std::string> const& symbols() const noexcept { return symbols_; }
    [[nodiscard]] std::vector<pair> const& merges() const noexcept { return merges_; }

private:
    struct occurrences {
        std::uint64_t count = 0;
        std::vector<std::size_t> words;  ///< all that have the pair, and some that had it
    };
    struct candidate {
        std::uint64_t count;
        pair joined;
        /// The top of the heap is the commonest; of equals, the smallest ids.
        [[nodiscard]] bool operator<(candidate const& other) const noexcept {
            return std::tie(count, other.joined) < std::tie(other.count, joined);
        }
    };

    template <class F>
    static void for_pairs(word const& in, F const& f) {
        for (std::size_t i = 0; i + 1 < in.tokens.size(); ++i) f(pair{in.tokens[i], in.tokens[i + 1]});
    }

    void note(pair const& p, std::size_t word_index) {
        occurrences& found = pairs_[p];
        found.count += words_[word_index].count;
        if (found.words.empty() || found.words.back() != word_index) found.words.push_back(word_index);
    }

    void merge(pair const& p) {
        // Always a new token: what becomes of the bytes between two borders of a word depends on nothing around them,
        // so no two merges spell the same.
        auto const joined = static_cast<token_id>(symbols_.size());
        symbols_.push_back(symbols_[static_cast<std::size_t>(p.first)] + symbols_[static_cast<std::size_t>(p.second)]);
        merges_.push_back(p);
        std::set<pair> fresh;
        for (std::size_t const index : std::vector<std::size_t>(std::move(pairs_[p].words))) {
            word& changed = words_[index];
            std::vector<token_id> const before = changed.tokens;
            if (!join(changed.tokens, p, joined)) continue;
            for_pairs({before, 0}, [&](pair const& old) { pairs_[old].count -= changed.count; });
            for_pairs(changed, [&](pair const& now) {
                if (now.first != joined && now.second != joined) {
                    pairs_[now].count += changed.count;  // knows of this word
                    return;
                }
                note(now, index);
                fresh.insert(now);
            });
        }
        for (pair const& one : fresh) candidates_.push({pairs_[one].count, one});
    }

    /// From left to right, as encoding does. False if the pair does not occur.
    static bool join(std::vector<token_id>& tokens, pair const& p, token_id joined) {
        std::size_t kept = 0;
        for (std::size_t i = 0; i < tokens.size(); ++kept) {
            bool const here = i + 1 < tokens.size() && pair{tokens[i], tokens[i + 1]} == p;
            tokens[kept] = here ? joined : tokens[i];
            i += here ? 2 : 1;
        }
        bool const found = kept < tokens.size();
        tokens.resize(kept);
        return found;
    }

    std::vector<word> words_;
    std::unordered_map<pair, occurrences, pair_hash> pairs_;
    std::priority_queue<candidate> candidates_;
    std::vector<std::string> symbols_;  // of every token, in the byte-level alphabet
    std::vector<pair> merges_;
};

void check(bpe_settings const& settings) {
    std::size_t const least = bytes_in_all + settings.special.size();
    if (settings.vocabulary < least) {
        fail_with("train_bpe: a vocabulary of ", settings.vocabulary, " tokens, expected at least ", least, " (",
                  bytes_in_all, " bytes and ", settings.special.size(), " special tokens)");
    }
    for (std::size_t i = 0; i < settings.special.size(); ++i) {
        std::string const& token = settings.special[i];
        auto const before = settings.special.begin() + static_cast<std::ptrdiff_t>(i);
        if (token.empty() || !engine::is_utf8(token) || std::find(settings.special.begin(), before, token) != before) {
            fail_with("train_bpe: special token ", i, " is '", engine::to_utf8(token),
                      "', expected some UTF-8 text that no other special token has");
        }
    }
}

/// The file's fields in the order in which the tokenizers library writes them.
std::string tokenizer_json(learner const& learned, std::vector<std::string> const& special) {
    using json = nlohmann::ordered_json;
    std::vector<std::string> const& symbols = learned.symbols();
    json const byte_level = {
        {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", false}};

    json added = json::array();
    for (std::string const& token : special) {
        if (auto const same = std::ranges::find(symbols, token); same != symbols.end()) {
            fail_with("train_bpe: special token '", token, "' is token ", same - symbols.begin(),
                      " as well, expected a text that is no word of the texts");
        }
        added.push_back({{"id", symbols.size() + added.size()},
                         {"content", token},
                         {"single_word", false},
                         {"lstrip", false},
                         {"rstrip", false},
                         {"normalized", false},
                         {"special", true}});
    }
    json vocabulary = json::object();
    for (std::size_t id = 0; id < symbols.size(); ++id) vocabulary[symbols[id]] = id;
    json merges = json::array();
    for (auto const& [left, right] : learned.merges()) {
        // Read by every version of the library; the alphabet has no blank that could be mistaken for this one.
        merges.push_back(symbols[static_cast<std::size_t>(left)] + ' ' + symbols[static_cast<std::size_t>(right)]);
    }
    json const words = {
        {"type", "Split"}, {"pattern", {{"Regex", qwen2_words}}}, {"behavior", "Isolated"}, {"invert", false}};
    json const file = {{"version", "1.0"},
                       {"truncation", nullptr},
                       {"padding", nullptr},
                       {"added_tokens", added},
                       {"normalizer", nullptr},
                       {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", json::array({words, byte_level})}}},
                       {"post_processor", nullptr},
                       {"decoder", byte_level},
                       {"model",
                        {{"type", "BPE"},
                         {"dropout", nullptr},
                         {"unk_token", nullptr},
                         {"continuing_subword_prefix", nullptr},
                         {"end_of_word_suffix", nullptr},
                         {"fuse_unk", false},
                         {"byte_fallback", false},
                         {"ignore_merges", false},
                         {"vocab", vocabulary},
                         {"merges", merges}}}};
    return file.dump(1) + '\n';
}

}  // namespace

learned_bpe train_bpe(std::span<std::string const> texts, bpe_settings const& settings) {
    check(settings);
    learner learned(counted_words(texts));
    std::size_t const words = settings.vocabulary - settings.special.size();
    while (learned.symbols().size() < words && learned.merge_once()) {
    }
    return {tokenizer_json(learned, settings.special), learned.symbols().size() + settings.special.size(),
            learned.merges()};
}

}  // namespace train

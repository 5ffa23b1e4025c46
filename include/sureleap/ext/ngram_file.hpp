// SPDX-License-Identifier: MIT
//
// An index of n-grams as a file: built once from a corpus, and mapped by every process that drafts from it.
//
//     ngram_index index{10'000'000};
//     for (auto const& text : corpus) index.append(text), index.end_text();
//     write_ngrams("corpus.ngrams", index.view());
//     ...
//     ngram_file const corpus{"corpus.ngrams"};  // one copy in memory, whoever maps it
//     corpus.view().find(context, {});
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <utility>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/drafter/ngram_index.hpp>
#include <sureleap/ext/mapped_file.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace detail {

/// What stands before the words. All numbers are little-endian.
struct ngram_header {
    std::array<char, 8> magic{'n', 'g', 'r', 'a', 'm', 's', '0', '1'};
    std::uint64_t capacity = 0;
    std::uint64_t count = 0;
    std::uint64_t checksum = 0;  ///< of both and the words
};
static_assert(sizeof(ngram_header) == 32 && std::endian::native == std::endian::little,
              "ngram_file: words are read where they lie, so the machine has to be little-endian");

/// FNV-1a over words. A file that was cut or changed by accident is told; one that was made to deceive is searched
/// within its bounds.
[[nodiscard]] inline std::uint64_t checksum_of(ngram_view const& index) noexcept {
    std::uint64_t sum = 0xcbf29ce484222325u;
    auto const put = [&sum](std::uint64_t number) { sum = (sum ^ number) * 0x100000001b3u; };
    put(index.capacity());
    put(index.count());
    for (std::uint32_t const word : index.words()) put(word);
    return sum;
}

}  // namespace detail

/// Throws sureleap::error if it cannot be written. What is there already is replaced when the new file is whole.
inline void write_ngrams(std::filesystem::path const& path, ngram_view const& index) {
    std::filesystem::path const whole = path.string() + ".new";
    detail::ngram_header header;
    header.capacity = index.capacity();
    header.count = index.count();
    header.checksum = detail::checksum_of(index);
    std::ofstream out(whole, std::ios::binary);
    out.write(reinterpret_cast<char const*>(&header), sizeof header);
    out.write(reinterpret_cast<char const*>(index.words().data()),
              static_cast<std::streamsize>(index.words().size_bytes()));
    out.close();
    std::error_code problem;
    if (out) std::filesystem::rename(whole, path, problem);
    if (!out || problem) fail_with(path.string(), ": cannot be written");
}

/// A mapped index. Reads all of it once, for the checksum.
class ngram_file {
public:
    /// Throws sureleap::error if it is no such file, is not whole, or was changed.
    explicit ngram_file(std::filesystem::path const& path) : ngram_file(mapped_file::map(path)) {}
    explicit ngram_file(mapped_file file) : file_(std::move(file)) {
        auto const bytes = file_.bytes();
        detail::ngram_header header;
        detail::ngram_header const expected;
        if (bytes.size() >= sizeof header) std::memcpy(&header, bytes.data(), sizeof header);
        if (bytes.size() < sizeof header || header.magic != expected.magic) {
            fail_with(file_.name(), ": is no index of n-grams, expected a file of write_ngrams");
        }
        if (reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(std::uint32_t) != 0) {
            fail_with(file_.name(), ": its bytes begin at an odd address, expected a multiple of 4");
        }
        std::uint64_t const size = bytes.size() - sizeof header;
        if (!std::has_single_bit(header.capacity) || header.capacity > size ||
            header.capacity * ngram_view::bytes_per_token != size) {
            fail_with(file_.name(), ": has ", size, " bytes of tables, expected ", ngram_view::bytes_per_token,
                      " for each of ", header.capacity, " tokens, a power of 2");
        }
        std::span const words(reinterpret_cast<std::uint32_t const*>(bytes.data() + sizeof header),
                              static_cast<std::size_t>(size) / sizeof(std::uint32_t));
        view_ = ngram_view(words, static_cast<std::size_t>(header.capacity), header.count);
        if (detail::checksum_of(view_) != header.checksum) {
            fail_with(file_.name(), ": its checksum is not that of its tables, expected a file that is whole");
        }
    }

    /// Good as long as this lives, or what it is moved to.
    [[nodiscard]] ngram_view const& view() const noexcept { return view_; }

private:
    mapped_file file_;
    ngram_view view_{};
};

SURELEAP_END_NAMESPACE

// SPDX-License-Identifier: MIT
//
// The container of a GGUF file, the format of ggml and llama.cpp: metadata by key, tensors by name.
//
//   auto const file = gguf::file::map("model.gguf");
//   auto const layers = file["llama.block_count"].size(1, limits::layers);
//   gguf::tensor const& embeddings = file.at("token_embd.weight");
//
// The format is specified in docs/gguf.md of ggml (version 3; version 2 differs in nothing that is read here). Files
// are untrusted. Every claim of the header is checked once, when the file is opened: each string, array and tensor that
// is handed out lies inside the file. Values are not looked at. Memory stays in proportion to the file.
//
// Refused by name: big-endian files, arrays of arrays, tensors that overlap, and parts of a model that do not belong
// together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sureleap/ext/mapped_file.hpp>

namespace engine::gguf {

/// Of a metadata value, as numbered in the file.
enum class value_type : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

/// How a tensor is stored, as numbered in the file. Types that are not listed here can be in a file, too.
enum class tensor_type : std::uint32_t {
    f32 = 0,
    f16 = 1,
    q4_0 = 2,
    q4_1 = 3,
    q5_0 = 6,
    q5_1 = 7,
    q8_0 = 8,
    q2_k = 10,
    q3_k = 11,
    q4_k = 12,
    q5_k = 13,
    q6_k = 14,
    i64 = 27,
    bf16 = 30,
};

/// Text of a file inside a message: in UTF-8, without control characters, and short enough not to bury the rest.
[[nodiscard]] std::string printable(std::string_view text);

/// "Q4_1"; "type 39" for one without a name.
[[nodiscard]] std::string name_of(tensor_type type);

/// A type's block: so many elements in so many bytes. {0, 0} for a type that is not listed.
struct block_size {
    std::size_t elements = 0;
    std::size_t bytes = 0;
};
[[nodiscard]] block_size block_of(tensor_type type) noexcept;

/// A tensor of a file. Rows are whole blocks.
struct tensor {
    std::string name;
    std::vector<std::size_t> shape;  ///< outermost first, [rows, cols] of a matrix: the file has it the other way round
    tensor_type type = tensor_type::f32;
    std::span<std::byte const> bytes;   ///< empty for a type that is not listed: how many there are is not known
    std::string const* file = nullptr;  ///< the name of the one that it lies in, and where
    std::size_t offset = 0;
};

class file;

/// A metadata value, or its absence, that knows its key, so that whatever is wrong with it can be told in full:
///
///   m.gguf: key 'llama.block_count' is 0, expected an integer in 1 .. 1024
///
/// Valid as long as the file, or the one it is moved to. The functions are those of json_field.hpp.
class field {
public:
    [[nodiscard]] bool present() const noexcept { return value_ != nullptr; }
    [[nodiscard]] bool is_list() const noexcept;

    /// Points into the file.
    [[nodiscard]] std::string_view text() const;
    [[nodiscard]] bool boolean() const;
    [[nodiscard]] bool boolean_or(bool fallback) const { return present() ? boolean() : fallback; }
    /// An integer will do.
    [[nodiscard]] double number() const;
    /// Of any integer type.
    [[nodiscard]] std::int64_t integer(std::int64_t low, std::int64_t high) const;
    [[nodiscard]] std::size_t size(std::size_t low, std::size_t high) const;

    [[nodiscard]] std::size_t list_size() const;
    /// All strings of an array of strings, in order; they point into the file.
    [[nodiscard]] std::vector<std::string_view> texts() const;
    /// All entries of an array of integers of any type, each in low .. high.
    [[nodiscard]] std::vector<std::int64_t> integers(std::int64_t low, std::int64_t high) const;
    /// All entries of an array of F32.
    [[nodiscard]] std::vector<float> reals() const;

    [[noreturn]] void wrong(std::string const& expected) const;
    [[nodiscard]] std::string where() const;

private:
    friend class file;
    struct stored;
    field(std::string const& source, std::string_view key, stored const* found)
        : source_(&source), key_(key), value_(found) {}

    [[nodiscard]] std::string shown() const;

    std::string const* source_;
    std::string key_;
    stored const* value_;
};

/// An opened file. What it hands out points into it and is valid while the file, or the one it is moved to, lives.
/// Move-only; a moved-from file has neither keys nor tensors.
class file {
public:
    /// Maps the file read-only: nothing is copied, pages come with use. The file must not shrink meanwhile. Of a model
    /// that was split (llama-gguf-split) it is the first part, NAME-00001-of-0000N.gguf. The others lie beside it, and
    /// their tensors are this file's as well.
    [[nodiscard]] static file map(std::filesystem::path const& path);
    /// Bytes that somebody else keeps alive; `name` stands for the file in errors.
    [[nodiscard]] static file view(std::span<std::byte const> bytes, std::string name);

    ~file();
    file(file&& other) noexcept;
    file& operator=(file&& other) noexcept;

    [[nodiscard]] std::string const& name() const noexcept;
    [[nodiscard]] std::span<std::byte const> bytes() const noexcept;

    /// The metadata value of a key; field::present() says whether there is one.
    [[nodiscard]] field operator[](std::string_view key) const;
    /// Sorted.
    [[nodiscard]] std::vector<std::string_view> keys() const;

    /// Sorted by name.
    [[nodiscard]] std::span<tensor const> tensors() const noexcept;
    /// The tensor of this name, or nullptr.
    [[nodiscard]] tensor const* find(std::string_view name) const noexcept;
    /// The tensor of this name; it is an error if there is none.
    [[nodiscard]] tensor const& at(std::string_view name) const;

private:
    class header_reader;
    struct contents;
    enum class parts : bool { one, several };
    file(sureleap::mapped_file source, parts allowed);
    void join_parts(std::filesystem::path const& path);
    [[nodiscard]] contents const& get() const noexcept;

    std::unique_ptr<contents> contents_;  // stays where it is when the file is moved, so that fields can point to it
};

}  // namespace engine::gguf

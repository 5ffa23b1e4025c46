// SPDX-License-Identifier: MIT
//
// Making .safetensors files for tests, right ones and wrong ones, in memory and on disk.
#pragma once

#include "support/catch.hpp"
#include "support/error_text.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <sureleap/ext/safetensors.hpp>
#include <sureleap/ext/safetensors_writer.hpp>

namespace support {

namespace st = sureleap::safetensors;

/// A path that is free, and is cleared away with what came to lie there.
class scratch_path {
public:
    scratch_path() {
        static std::atomic<unsigned> count{0};
        path_ = std::filesystem::temp_directory_path() /
                ("sureleap_" + std::to_string(std::random_device{}()) + "_" + std::to_string(count++) + ".safetensors");
        REQUIRE_FALSE(std::filesystem::exists(path_));
    }
    ~scratch_path() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
        std::filesystem::remove_all(part(), ignored);
    }
    scratch_path(scratch_path const&) = delete;
    scratch_path& operator=(scratch_path const&) = delete;

    [[nodiscard]] std::filesystem::path const& get() const { return path_; }
    [[nodiscard]] std::filesystem::path part() const { return path_.string() + ".part"; }

private:
    std::filesystem::path path_;
};

/// Bytes at an address of known alignment: `offset` beyond a multiple of 8. The memory ends with them, so that a
/// sanitizer sees a read too far.
class bytes_at {
public:
    bytes_at(std::string_view bytes, std::size_t offset) : storage_(offset + bytes.size()), offset_(offset) {
        static_assert(__STDCPP_DEFAULT_NEW_ALIGNMENT__ % 8 == 0);
        for (std::size_t i = 0; i < bytes.size(); ++i) storage_[offset + i] = static_cast<std::byte>(bytes[i]);
    }
    [[nodiscard]] std::span<std::byte const> get() const { return std::span(storage_).subspan(offset_); }

private:
    std::vector<std::byte> storage_;
    std::size_t offset_;
};

[[nodiscard]] inline std::string length_prefix(std::uint64_t length) {
    std::string text(8, '\0');
    for (std::size_t i = 0; i < 8; ++i) text[i] = static_cast<char>(length >> (8 * i) & 0xff);
    return text;
}
/// What the prefix of a short file says, modulo 2^16.
[[nodiscard]] inline std::size_t header_length(std::string const& bytes) {
    return static_cast<unsigned char>(bytes[0]) + 256u * static_cast<unsigned char>(bytes[1]);
}
[[nodiscard]] inline std::string file_of(std::string const& header, std::size_t data_bytes = 0) {
    return length_prefix(header.size()) + header + std::string(data_bytes, '\x11');
}

/// What opening the bytes says; empty if they are a file.
[[nodiscard]] inline std::string opening(std::string const& bytes) {
    bytes_at const aligned(bytes, 0);
    return error_text([&] { (void)st::file::view(aligned.get(), "f"); });
}
[[nodiscard]] inline std::string opening(std::string const& header, std::size_t data_bytes) {
    return opening(file_of(header, data_bytes));
}

/// The header of one tensor 'a' with its fields as given.
[[nodiscard]] inline std::string one(std::string const& fields) {
    return "{\"a\":{" + fields + "}}";
}

inline void write_bytes(std::filesystem::path const& path, std::string const& bytes) {
    std::ofstream out(path, std::ios::binary);
    out << bytes;
    REQUIRE(out.flush());
}
[[nodiscard]] inline std::string read_bytes(std::filesystem::path const& path) {
    std::ifstream in(path, std::ios::binary);
    REQUIRE(in);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}
[[nodiscard]] inline std::string text_of(std::span<std::byte const> bytes) {
    return {reinterpret_cast<char const*>(bytes.data()), bytes.size()};
}

/// Every element type once, an empty tensor, a scalar, and metadata; the order is not that of the names.
struct sample {
    std::vector<st::tensor_spec> specs{
        {"u64", st::dtype::u64, {1}},       {"i64", st::dtype::i64, {2, 1}},   {"f64", st::dtype::f64, {}},
        {"f32", st::dtype::f32, {3, 5}},    {"u32", st::dtype::u32, {3}},      {"i32", st::dtype::i32, {1, 1, 3}},
        {"bf16", st::dtype::bf16, {2, 7}},  {"f16", st::dtype::f16, {5}},      {"u16", st::dtype::u16, {1}},
        {"i16", st::dtype::i16, {2}},       {"e4m3", st::dtype::f8_e4m3, {3}}, {"e5m2", st::dtype::f8_e5m2, {2, 2}},
        {"i8", st::dtype::i8, {1}},         {"u8", st::dtype::u8, {3}},        {"bool", st::dtype::boolean, {2, 3}},
        {"none", st::dtype::f32, {4, 0, 2}}};
    st::metadata_map metadata{{"format", "pt"}, {"a \"quoted\"\n\t\\ key", "caf\xc3\xa9"}};
    std::vector<std::string> data;

    sample() {
        std::mt19937 dice(7);
        for (st::tensor_spec const& spec : specs) {
            std::size_t bytes = st::size_of(spec.type);
            for (std::size_t const n : spec.shape) bytes *= n;
            std::string& text = data.emplace_back(bytes, '\0');
            for (char& c : text) c = static_cast<char>(dice());
        }
    }

    void write(std::filesystem::path const& path) const {
        st::writer out(path, specs, metadata);
        for (std::string const& bytes : data) out.append(std::as_bytes(std::span(bytes)));
        out.finish();
    }
    [[nodiscard]] std::string bytes() const {
        scratch_path const path;
        write(path.get());
        return read_bytes(path.get());
    }
};

}  // namespace support

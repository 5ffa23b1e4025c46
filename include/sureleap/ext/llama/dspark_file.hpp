// SPDX-License-Identifier: MIT
//
// What the library reads of a DSpark drafter's GGUF file by itself, in llama.cpp's layout: the shape of a block, the
// Markov head and the confidence head. The layers between are llama.cpp's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ggml.h>
#include <gguf.h>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace detail {

/// Keys and tensors of a GGUF file. Each is checked where it is read, and refused in the name of the file.
class gguf_numbers {
public:
    explicit gguf_numbers(std::string path)
        : path_(std::move(path)), file_(std::fopen(path_.c_str(), "rb")), keys_(file_ ? open(file_.get()) : nullptr) {
        if (keys_ == nullptr) fail_with(path_, ": cannot be read, expected a GGUF file");
    }

    [[nodiscard]] std::string const& path() const noexcept { return path_; }
    /// `otherwise` where there is no such key.
    [[nodiscard]] bool flag(char const* key, bool otherwise) const {
        auto const at = find(key, GGUF_TYPE_BOOL, false);
        return at < 0 ? otherwise : gguf_get_val_bool(keys_.get(), at);
    }
    [[nodiscard]] std::uint32_t number(char const* key) const {
        return gguf_get_val_u32(keys_.get(), find(key, GGUF_TYPE_UINT32, true));
    }
    [[nodiscard]] std::string_view text(char const* key) const {
        return gguf_get_val_str(keys_.get(), find(key, GGUF_TYPE_STRING, true));
    }
    /// Of 32 bits, with a sign or without.
    [[nodiscard]] std::vector<std::int32_t> numbers(char const* key) const {
        auto const at = find(key, GGUF_TYPE_ARRAY, true);
        auto const type = gguf_get_arr_type(keys_.get(), at);
        if (type != GGUF_TYPE_INT32 && type != GGUF_TYPE_UINT32) {
            fail_with(path_, ": key ", key, " is an array of ", gguf_type_name(type), ", expected numbers of 32 bits");
        }
        std::vector<std::int32_t> values(gguf_get_arr_n(keys_.get(), at));
        if (!values.empty()) {
            std::memcpy(values.data(), gguf_get_arr_data(keys_.get(), at), values.size() * sizeof values[0]);
        }
        return values;
    }

    [[nodiscard]] bool has(char const* tensor) const { return gguf_find_tensor(keys_.get(), tensor) >= 0; }
    [[nodiscard]] std::size_t rows(char const* tensor) const { return shape(tensor).second; }
    [[nodiscard]] std::size_t columns(char const* tensor) const { return shape(tensor).first; }
    /// [rows, columns], whatever they are stored as.
    template <class To>
    [[nodiscard]] std::vector<To> matrix(char const* tensor, std::size_t rows, std::size_t columns) const {
        auto const found = shape(tensor);
        if (found != std::pair(columns, rows)) {
            fail_with(path_, ": tensor ", tensor, " has ", found.second, " x ", found.first, " numbers, expected ",
                      rows, " x ", columns);
        }
        auto const type = gguf_get_tensor_type(keys_.get(), index(tensor));
        auto const to_float = ggml_get_type_traits(type)->to_float;
        if (type != GGML_TYPE_F32 && to_float == nullptr) {
            fail_with(path_, ": tensor ", tensor, " is stored as ", ggml_type_name(type),
                      ", expected floats or a type "
                      "that llama.cpp makes floats of");
        }
        auto const bytes = read(tensor);
        std::vector<To> values;
        values.reserve(rows * columns);
        std::vector<float> row(columns);
        std::size_t const stride = ggml_row_size(type, static_cast<std::int64_t>(columns));
        for (std::size_t r = 0; r < rows; ++r) {
            auto const* const from = bytes.data() + r * stride;
            if (type == GGML_TYPE_F32) {
                std::memcpy(row.data(), from, stride);
            } else {
                to_float(from, row.data(), static_cast<std::int64_t>(columns));
            }
            for (float const x : row) values.push_back(To(x));
        }
        return values;
    }
    /// Of 64 bits.
    [[nodiscard]] std::vector<token_id> tokens(char const* tensor) const {
        auto const type = gguf_get_tensor_type(keys_.get(), index(tensor));
        if (type != GGML_TYPE_I64) {
            fail_with(path_, ": tensor ", tensor, " is stored as ", ggml_type_name(type), ", expected i64");
        }
        auto const bytes = read(tensor);
        std::vector<std::int64_t> values(bytes.size() / sizeof(std::int64_t));
        std::memcpy(values.data(), bytes.data(), bytes.size());
        return {values.begin(), values.end()};
    }

private:
    struct close {
        void operator()(std::FILE* file) const noexcept { std::fclose(file); }
        void operator()(gguf_context* keys) const noexcept { gguf_free(keys); }
    };
    [[nodiscard]] static gguf_context* open(std::FILE* file) {
        return gguf_init_from_file_ptr(file, {.no_alloc = true, .ctx = nullptr});
    }
    [[nodiscard]] std::int64_t find(char const* key, gguf_type type, bool needed) const {
        auto const at = gguf_find_key(keys_.get(), key);
        if (at < 0 && !needed) return at;
        if (at < 0) fail_with(path_, ": there is no key ", key, ", expected a DSpark drafter in llama.cpp's layout");
        if (auto const found = gguf_get_kv_type(keys_.get(), at); found != type) {
            fail_with(path_, ": key ", key, " is of type ", gguf_type_name(found), ", expected ", gguf_type_name(type));
        }
        return at;
    }
    [[nodiscard]] std::int64_t index(char const* tensor) const {
        auto const at = gguf_find_tensor(keys_.get(), tensor);
        if (at < 0) fail_with(path_, ": there is no tensor ", tensor, ", expected a DSpark drafter with its heads");
        return at;
    }
    [[nodiscard]] std::pair<std::size_t, std::size_t> shape(char const* tensor) const {
        std::int64_t const* const size = gguf_get_tensor_ne(keys_.get(), index(tensor));
        return {static_cast<std::size_t>(size[0]), static_cast<std::size_t>(size[1])};
    }
    [[nodiscard]] std::vector<std::byte> read(char const* tensor) const {
        auto const at = index(tensor);
        std::vector<std::byte> bytes(gguf_get_tensor_size(keys_.get(), at));
        auto const from = gguf_get_data_offset(keys_.get()) + gguf_get_tensor_offset(keys_.get(), at);
        if (std::fseek(file_.get(), static_cast<long>(from), SEEK_SET) != 0 ||
            std::fread(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size()) {
            fail_with(path_, ": tensor ", tensor, " ends behind the file, expected ", bytes.size(), " bytes from ",
                      from);
        }
        return bytes;
    }

    std::string path_;
    std::unique_ptr<std::FILE, close> file_;
    std::unique_ptr<gguf_context, close> keys_;
};

}  // namespace detail
SURELEAP_END_NAMESPACE

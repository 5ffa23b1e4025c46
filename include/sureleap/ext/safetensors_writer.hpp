// SPDX-License-Identifier: MIT
//
// Writing .safetensors files, larger than memory if need be.
//
//   safetensors::writer out("model.safetensors", {{"norm.weight", safetensors::dtype::bf16, {2560}}, ...},
//                           {{"format", "pt"}});
//   out.append(std::as_bytes(norm));   // in the order of the specs, in as many pieces as is convenient
//   out.finish();
//
// Specs come first because the header does: it needs every size before the first byte of data. Tensors are laid out in
// the order of the specs, which is left to the caller: the reference writer's is falling dtype, then name, and keeps
// every tensor aligned. The header is written as the reference does: compact JSON, padded with blanks so that the data
// starts at a multiple of 8. So file_size tells the sizes of published checkpoints before anything is written.
//
// The bytes go to "<path>.part", which gets the file's name in finish(). So a file of that name is always whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/ext/safetensors_header.hpp>

SURELEAP_BEGIN_NAMESPACE

namespace safetensors {

/// What a tensor will be; its bytes come later.
struct tensor_spec {
    std::string name;
    dtype type = dtype::f32;
    std::vector<std::size_t> shape;
};

namespace detail {

/// As a JSON string. Bytes beyond ASCII stay as they are; if they are no UTF-8, reading the header back finds out.
[[nodiscard]] inline std::string json_string(std::string_view text) {
    std::string json = "\"";
    for (char const c : text) {
        auto const code = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') {
            json += {'\\', c};
        } else if (code < 0x20) {
            constexpr char const* digits = "0123456789abcdef";
            json += {'\\', 'u', '0', '0', digits[code / 16], digits[code % 16]};
        } else {
            json += c;
        }
    }
    return json + '"';
}

struct planned_file {
    std::string header;  ///< padded, without the 8 bytes of length
    std::vector<std::size_t> sizes;
    std::size_t data_bytes = 0;

    [[nodiscard]] std::size_t file_bytes() const noexcept { return 8 + header.size() + data_bytes; }
};

/// Lays out the file and proves that the reader would take it: duplicate or reserved names, text that is no UTF-8 and
/// the like are its errors.
[[nodiscard]] inline planned_file plan(std::span<tensor_spec const> specs, metadata_map const& metadata,
                                       std::string const& source) {
    planned_file file;
    std::string fields;
    for (auto const& [key, value] : metadata) {
        fields += (fields.empty() ? "\"__metadata__\":{" : ",") + json_string(key) + ':' + json_string(value);
    }
    if (!metadata.empty()) fields += '}';
    for (tensor_spec const& spec : specs) {
        std::size_t const bytes = bytes_of(spec.type, spec.shape, spec.name, source);
        std::size_t const begin = file.data_bytes;
        if (bytes > std::numeric_limits<std::size_t>::max() - max_header_bytes - 8 - begin) {
            fail_with(source, ": the tensors up to ", named(spec.name), " have more bytes than any file");
        }
        file.sizes.push_back(bytes);
        file.data_bytes += bytes;
        std::string shape;
        for (std::size_t const n : spec.shape) shape += (shape.empty() ? "" : ",") + std::to_string(n);
        fields += (fields.empty() ? "" : ",") + json_string(spec.name) + ":{\"dtype\":\"" + name_of(spec.type) +
                  "\",\"shape\":[" + shape + "],\"data_offsets\":[" + std::to_string(begin) + ',' +
                  std::to_string(file.data_bytes) + "]}";
    }
    file.header = '{' + fields + '}';
    file.header.resize((file.header.size() + 7) / 8 * 8, ' ');
    check_header_length(file.header.size(), file.file_bytes(), source);
    static_cast<void>(read_header(file.header, file.data_bytes, source));
    return file;
}

/// A file under construction, which goes away unless it becomes the finished one.
class part_file {
public:
    explicit part_file(std::filesystem::path const& finished) : path_(finished) {
        path_ += ".part";
        out_.open(path_, std::ios::binary | std::ios::trunc);
        if (!out_) fail_with(path_.string(), ": cannot be opened for writing");
    }
    ~part_file() {
        if (!incomplete_) return;
        out_.close();
        std::error_code ignored;
        std::filesystem::remove(path_, ignored);
    }
    part_file(part_file const&) = delete;
    part_file& operator=(part_file const&) = delete;

    void write(std::string_view bytes) {
        out_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
        if (!out_) fail_with(path_.string(), ": writing failed");
    }

    void become(std::filesystem::path const& finished) {
        if (!incomplete_) fail_with(finished.string(), ": finished twice");
        out_.close();  // fails if the last bytes cannot be written
        std::error_code code;
        if (out_) std::filesystem::rename(path_, finished, code);
        if (!out_ || code) fail_with(path_.string(), ": cannot be completed and renamed to ", finished.string());
        incomplete_ = false;
    }

private:
    std::filesystem::path path_;
    std::ofstream out_;
    bool incomplete_ = true;
};

}  // namespace detail

/// The size of the file that a writer with these arguments makes.
[[nodiscard]] inline std::size_t file_size(std::vector<tensor_spec> const& specs, metadata_map const& metadata = {}) {
    return detail::plan(specs, metadata, "safetensors::file_size").file_bytes();
}

class writer {
public:
    /// Opens "<path>.part" and writes the header.
    writer(std::filesystem::path path, std::vector<tensor_spec> specs, metadata_map const& metadata = {})
        : path_(std::move(path)),
          name_(path_.string()),
          specs_(std::move(specs)),
          plan_(detail::plan(specs_, metadata, name_)),
          part_(path_) {
        std::string length(8, '\0');
        for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(plan_.header.size() >> (8 * i) & 0xff);
        part_.write(length + plan_.header);
        skip_complete();
    }
    writer(writer const&) = delete;
    writer& operator=(writer const&) = delete;

    /// The next bytes of the current tensor. A piece that would run into the next tensor is refused: it is the sign of
    /// a wrong size, and the place to see it.
    void append(std::span<std::byte const> bytes) {
        if (bytes.empty()) return;
        std::size_t const missing = complete() ? 0 : plan_.sizes[current_] - written_;
        if (bytes.size() > missing) {
            fail_with(name_, ": ", bytes.size(), " bytes appended, expected at most ", missing,
                      complete() ? " (all tensors are complete)"
                                 : " (the rest of tensor " + detail::named(specs_[current_].name) + ")");
        }
        part_.write({reinterpret_cast<char const*>(bytes.data()), bytes.size()});
        written_ += bytes.size();
        skip_complete();
    }

    /// Closes the file and gives it its name. Without it nothing is left behind, and a file that had the name before
    /// keeps it.
    void finish() {
        if (!complete()) {
            fail_with(name_, ": tensor ", detail::named(specs_[current_].name), " (", current_ + 1, " of ",
                      specs_.size(), ") has got ", written_, " of its ", plan_.sizes[current_], " bytes");
        }
        part_.become(path_);
    }

private:
    [[nodiscard]] bool complete() const noexcept { return current_ == specs_.size(); }
    void skip_complete() {
        while (!complete() && written_ == plan_.sizes[current_]) {
            ++current_;
            written_ = 0;
        }
    }

    std::filesystem::path path_;
    std::string name_;
    std::vector<tensor_spec> specs_;
    detail::planned_file plan_;
    detail::part_file part_;
    std::size_t current_ = 0;  ///< the tensor that appended bytes belong to
    std::size_t written_ = 0;  ///< bytes of it so far
};

}  // namespace safetensors

SURELEAP_END_NAMESPACE

// SPDX-License-Identifier: MIT
//
// Making GGUF files for tests, right ones and wrong ones, in memory.
//
//   gguf_writer w;
//   w.set("general.architecture", "llama");
//   w.set("llama.block_count", std::uint32_t{2});
//   w.set("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b"});
//   w.tensor("output_norm.weight", {2}, std::vector<float>{1, 1});
//   w.tensor("token_embd.weight", {2, 32}, tensor_type::q8_0, blocks);
//   std::vector<std::byte> const bytes = w.bytes();
//   auto const file = engine::gguf::file::view(bytes, "f");
//
// Nothing is checked here. What is set can be set anew, taken away, or made wrong: each number that the file states of
// itself can be another one.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <engine/gguf/file.hpp>

namespace support {

/// A growing file; numbers are little-endian.
class byte_sink {
public:
    template <class T>
        requires std::is_arithmetic_v<T>
    byte_sink& number(T value) {
        std::byte raw[sizeof value];
        std::memcpy(raw, &value, sizeof value);
        return append(raw);
    }
    /// Its length before it, as everywhere in the format.
    byte_sink& text(std::string_view value) {
        number(std::uint64_t{value.size()});
        return append(std::as_bytes(std::span(value)));
    }
    byte_sink& append(std::span<std::byte const> raw) {
        bytes.insert(bytes.end(), raw.begin(), raw.end());
        return *this;
    }
    void align(std::size_t alignment) { bytes.resize((bytes.size() + alignment - 1) / alignment * alignment); }

    std::vector<std::byte> bytes;
};

/// The number that stands for T in the file.
template <class T>
    requires std::is_arithmetic_v<T>
[[nodiscard]] constexpr engine::gguf::value_type value_type_of() noexcept {
    using enum engine::gguf::value_type;
    if constexpr (std::same_as<T, bool>) return boolean;
    if constexpr (std::is_floating_point_v<T>) return sizeof(T) == 4 ? f32 : f64;
    constexpr bool is_signed = std::is_signed_v<T>;
    switch (sizeof(T)) {
        case 1: return is_signed ? i8 : u8;
        case 2: return is_signed ? i16 : u16;
        case 4: return is_signed ? i32 : u32;
        default: return is_signed ? i64 : u64;
    }
}

class gguf_writer {
public:
    using tensor_type = engine::gguf::tensor_type;
    using value_type = engine::gguf::value_type;

    struct entry {
        std::string key;
        value_type type;
        std::vector<std::byte> value;
    };
    struct tensor_entry {
        std::string name;
        std::vector<std::uint64_t> shape;  ///< outermost first, as readers have it
        tensor_type type;
        std::vector<std::byte> bytes;
        std::optional<std::uint64_t> offset;  ///< stated instead of where the bytes really are
    };

    // ---- metadata; a key that is set again gets the new value ----------------------------------------------------

    /// A number of T's own type: write std::uint32_t{2}, since a plain 2 is an i32.
    template <class T>
        requires std::is_arithmetic_v<T>
    gguf_writer& set(std::string const& key, T value) {
        return replace(key, value_type_of<T>(), std::move(byte_sink().number(value).bytes));
    }
    gguf_writer& set(std::string const& key, std::string_view value) {
        return replace(key, value_type::string, std::move(byte_sink().text(value).bytes));
    }
    /// An array of numbers or of strings.
    template <class T>
    gguf_writer& set(std::string const& key, std::vector<T> const& values) {
        byte_sink out;
        if constexpr (std::is_arithmetic_v<T>) {
            out.number(static_cast<std::uint32_t>(value_type_of<T>())).number(std::uint64_t{values.size()});
            for (T const value : values) out.number(value);
        } else {
            out.number(static_cast<std::uint32_t>(value_type::string)).number(std::uint64_t{values.size()});
            for (std::string_view const value : values) out.text(value);
        }
        return replace(key, value_type::array, std::move(out.bytes));
    }
    /// Any type and any bytes, beside what the key has already.
    gguf_writer& add(std::string const& key, value_type type, std::vector<std::byte> value) {
        entries.push_back({key, type, std::move(value)});
        return *this;
    }
    gguf_writer& erase(std::string_view key) {
        std::erase_if(entries, [&](entry const& e) { return e.key == key; });
        return *this;
    }

    // ---- tensors; what is returned can be changed until the next one is added ------------------------------------

    tensor_entry& tensor(std::string const& name, std::vector<std::uint64_t> shape, tensor_type type,
                         std::span<std::byte const> bytes) {
        return tensors.emplace_back(tensor_entry{name, std::move(shape), type, {bytes.begin(), bytes.end()}, {}});
    }
    /// F32.
    tensor_entry& tensor(std::string const& name, std::vector<std::uint64_t> shape, std::vector<float> const& values) {
        return tensor(name, std::move(shape), tensor_type::f32, std::as_bytes(std::span(values)));
    }
    /// The tensor of this name.
    [[nodiscard]] tensor_entry& at(std::string const& name) {
        auto const found = std::ranges::find(tensors, name, &tensor_entry::name);
        if (found == tensors.end()) throw std::out_of_range("no tensor " + name);
        return *found;
    }
    gguf_writer& erase_tensor(std::string_view name) {
        std::erase_if(tensors, [&](tensor_entry const& t) { return t.name == name; });
        return *this;
    }

    /// Where tensors may begin: 32 where no key says otherwise.
    gguf_writer& align(std::uint32_t alignment) {
        alignment_ = alignment;
        return set("general.alignment", alignment);
    }

    // ---- the file ------------------------------------------------------------------------------------------------

    [[nodiscard]] std::vector<std::byte> bytes() const {
        byte_sink out;
        out.append(std::as_bytes(std::span(magic))).number(version);
        out.number(tensor_count.value_or(tensors.size())).number(key_count.value_or(entries.size()));
        for (entry const& e : entries) out.text(e.key).number(static_cast<std::uint32_t>(e.type)).append(e.value);
        byte_sink data;
        for (tensor_entry const& t : tensors) {
            data.align(alignment_);
            out.text(t.name).number(static_cast<std::uint32_t>(t.shape.size()));
            for (std::size_t i = t.shape.size(); i-- > 0;) out.number(t.shape[i]);
            out.number(static_cast<std::uint32_t>(t.type)).number(t.offset.value_or(data.bytes.size()));
            data.append(t.bytes);
        }
        if (!tensors.empty()) out.align(alignment_);
        return std::move(out.append(data.bytes).bytes);
    }
    void save(std::filesystem::path const& path) const {
        auto const all = bytes();
        std::ofstream(path, std::ios::binary)
            .write(reinterpret_cast<char const*>(all.data()), static_cast<std::streamsize>(all.size()));
    }

    // What bytes() writes; the counts where they are not to be the true ones.
    std::string magic = "GGUF";
    std::uint32_t version = 3;
    std::optional<std::uint64_t> tensor_count;
    std::optional<std::uint64_t> key_count;
    std::vector<entry> entries;
    std::vector<tensor_entry> tensors;

private:
    gguf_writer& replace(std::string const& key, value_type type, std::vector<std::byte> value) {
        auto const found = std::ranges::find(entries, key, &entry::key);
        if (found == entries.end()) return add(key, type, std::move(value));
        found->type = type;
        found->value = std::move(value);
        return *this;
    }

    std::size_t alignment_ = 32;
};

}  // namespace support

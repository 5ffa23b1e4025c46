// SPDX-License-Identifier: MIT
//
// Reading .safetensors files, the format of Hugging Face checkpoints.
//
//   auto const file = safetensors::file::map("model.safetensors");
//   auto const w1 = file.matrix<bf16>("markov_head.markov_w1.weight", vocabulary, rank);   // a view, nothing is copied
//
// Files are untrusted. Every claim of the header is checked once, when the file is opened (safetensors_header.hpp has
// the format and its checks). So each tensor that is handed out lies inside the file. Values are not looked at.
#pragma once

#if !__has_include(<nlohmann/json.hpp>)
#error "sureleap/ext/safetensors.hpp needs nlohmann/json: install nlohmann-json3-dev and link sureleap::json"
#endif

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/ext/mapped_file.hpp>
#include <sureleap/ext/safetensors_header.hpp>

SURELEAP_BEGIN_NAMESPACE

namespace safetensors {

static_assert(std::endian::native == std::endian::little, "typed views show little-endian data as it lies");

// ---- files -----------------------------------------------------------------------------------------------------

/// An opened file. Tensors and views point into it: they stay valid while the file object, or the one it is moved to,
/// lives. Move-only; a moved-from file has no tensors.
class file {
public:
    /// Maps the file read-only: nothing is copied, pages come with use and may go again. The file must not shrink
    /// meanwhile, which no check here could foresee (replacing it by rename, as the writer does, is harmless).
    /// On systems without mmap the same as read.
    [[nodiscard]] static file map(std::filesystem::path const& path) { return file(mapped_file::map(path)); }

    /// Reads the file into memory.
    [[nodiscard]] static file read(std::filesystem::path const& path) { return file(mapped_file::read(path)); }

    /// Bytes that somebody else keeps alive; `name` stands for the file in messages.
    [[nodiscard]] static file view(std::span<std::byte const> bytes, std::string name) {
        return file(mapped_file::view(bytes, std::move(name)));
    }

    [[nodiscard]] std::string const& name() const noexcept { return source_.name(); }
    /// The whole file, header included.
    [[nodiscard]] std::span<std::byte const> bytes() const noexcept { return source_.bytes(); }
    /// Sorted by name.
    [[nodiscard]] std::span<tensor const> tensors() const noexcept { return tensors_; }
    /// The entry __metadata__: free text, empty if there is none.
    [[nodiscard]] metadata_map const& metadata() const noexcept { return metadata_; }

    /// The tensor of this name, or nullptr.
    [[nodiscard]] tensor const* find(std::string_view name) const noexcept {
        auto const at =
            std::ranges::lower_bound(tensors_, name, {}, [](tensor const& t) { return std::string_view(t.name); });
        return at != tensors_.end() && at->name == name ? &*at : nullptr;
    }

    /// The tensor of this name; it is an error if there is none.
    [[nodiscard]] tensor const& at(std::string_view name) const {
        tensor const* const found = find(name);
        if (found == nullptr) fail_missing(name);
        return *found;
    }

    /// The elements of a tensor of exactly this type and shape.
    template <class T>
    [[nodiscard]] std::span<T const> values(std::string_view name, std::initializer_list<std::size_t> shape) const {
        tensor const& t = at(name);
        std::span<std::size_t const> const expected(shape.begin(), shape.size());
        if (t.type != dtype_of<T>) {
            fail_with(source_.name(), ": tensor ", detail::named(name), " is ", name_of(t.type), ", expected ",
                      name_of(dtype_of<T>));
        }
        if (!std::ranges::equal(t.shape, expected)) {
            fail_with(source_.name(), ": tensor ", detail::named(name), " is ", detail::shown(t.shape), ", expected ",
                      detail::shown(expected));
        }
        if (t.bytes.empty()) return {};
        if (std::bit_cast<std::uintptr_t>(t.bytes.data()) % alignof(T) != 0) {
            fail_with(source_.name(), ": tensor ", detail::named(name), " lies at byte ",
                      t.bytes.data() - bytes().data(), " of the file, at an address that is no multiple of ",
                      alignof(T), " as ", name_of(t.type),
                      " needs: copy its bytes, or write the file anew "
                      "(sureleap/ext/safetensors_writer.hpp) with tensors sorted by falling element size");
        }
        return {reinterpret_cast<T const*>(t.bytes.data()), t.bytes.size() / sizeof(T)};
    }
    /// The elements of a vector.
    template <class T>
    [[nodiscard]] std::span<T const> values(std::string_view name, std::size_t size) const {
        return values<T>(name, {size});
    }
    template <class T>
    [[nodiscard]] matrix_view<T> matrix(std::string_view name, std::size_t rows, std::size_t cols) const {
        return {values<T>(name, {rows, cols}).data(), rows, cols};
    }

private:
    explicit file(mapped_file source);
    [[noreturn]] void fail_missing(std::string_view name) const;

    mapped_file source_;
    std::vector<tensor> tensors_;
    metadata_map metadata_;
};

inline file::file(mapped_file source) : source_(std::move(source)) {
    auto const bytes = this->bytes();
    if (bytes.size() < 8) {
        fail_with(source_.name(), ": ", bytes.size(), " bytes, expected at least 8 (the length of the header)");
    }
    std::uint64_t length = 0;
    for (std::size_t i = 0; i < 8; ++i) length |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
    detail::check_header_length(length, bytes.size(), source_.name());
    auto const size = static_cast<std::size_t>(length);
    auto const data = bytes.subspan(8 + size);
    std::string_view const text(reinterpret_cast<char const*>(bytes.data()) + 8, size);
    detail::header header = detail::read_header(text, data.size(), source_.name());
    metadata_ = std::move(header.metadata);
    tensors_.reserve(header.entries.size());
    for (detail::entry& e : header.entries) {
        e.value.bytes = data.subspan(static_cast<std::size_t>(e.begin), static_cast<std::size_t>(e.end - e.begin));
        tensors_.push_back(std::move(e.value));
    }
}

inline void file::fail_missing(std::string_view name) const {
    if (tensors_.empty()) fail_with(source_.name(), ": no tensor ", detail::named(name), ", the file has no tensors");
    // Near is what shares the longest beginning and end: finds a wrong prefix as well as a typing error.
    auto const likeness = [name](tensor const& t) {
        std::string_view const other = t.name;
        auto const front = std::ranges::mismatch(name, other).in1 - name.begin();
        auto const rest = name.substr(static_cast<std::size_t>(front));
        auto const tail = other.substr(static_cast<std::size_t>(front));
        return front + (std::mismatch(rest.rbegin(), rest.rend(), tail.rbegin(), tail.rend()).first - rest.rbegin());
    };
    auto const nearest = std::ranges::max_element(tensors_, {}, likeness);
    fail_with(source_.name(), ": no tensor ", detail::named(name), " among ", tensors_.size(), ", the nearest name is ",
              detail::named(nearest->name));
}

}  // namespace safetensors

SURELEAP_END_NAMESPACE

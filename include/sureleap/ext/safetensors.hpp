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
#include <fstream>
#include <initializer_list>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#if __has_include(<sys/mman.h>)
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/ext/safetensors_header.hpp>

SURELEAP_BEGIN_NAMESPACE

namespace safetensors {

static_assert(std::endian::native == std::endian::little, "typed views show little-endian data as it lies");

namespace detail {

/// How a file's bytes are given back, and how many there are.
struct release {
    enum class kind { borrowed, allocated, mapped } how = kind::borrowed;
    std::size_t size = 0;

    void operator()(std::byte const* data) const noexcept {
        if (how == kind::allocated) delete[] data;
#if __has_include(<sys/mman.h>)
        if (how == kind::mapped) ::munmap(const_cast<std::byte*>(data), size);
#endif
    }
};
using file_bytes = std::unique_ptr<std::byte const[], release>;

/// The size of a file as one of an object in memory.
[[nodiscard]] inline std::size_t memory_size(std::uintmax_t size, std::string const& name) {
    if (size > static_cast<std::uintmax_t>(std::numeric_limits<std::ptrdiff_t>::max())) {
        fail_with(name, ": ", size, " bytes do not fit the address space");
    }
    return static_cast<std::size_t>(size);
}

}  // namespace detail

// ---- files -----------------------------------------------------------------------------------------------------

/// An opened file. Tensors and views point into it: they stay valid while the file object, or the one it is moved to,
/// lives. Move-only; a moved-from file has no tensors.
class file {
public:
    /// Maps the file read-only: nothing is copied, pages come with use and may go again. The file must not shrink
    /// meanwhile, which no check here could foresee (replacing it by rename, as the writer does, is harmless).
    /// On systems without mmap the same as read.
    [[nodiscard]] static file map(std::filesystem::path const& path);

    /// Reads the file into memory.
    [[nodiscard]] static file read(std::filesystem::path const& path);

    /// Bytes that somebody else keeps alive; `name` stands for the file in messages.
    [[nodiscard]] static file view(std::span<std::byte const> bytes, std::string name) {
        return file(std::move(name), {bytes.data(), {detail::release::kind::borrowed, bytes.size()}});
    }

    [[nodiscard]] std::string const& name() const noexcept { return name_; }
    /// The whole file, header included.
    [[nodiscard]] std::span<std::byte const> bytes() const noexcept {
        return {bytes_.get(), bytes_ ? bytes_.get_deleter().size : 0};
    }
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
            fail_with(name_, ": tensor ", detail::named(name), " is ", name_of(t.type), ", expected ",
                      name_of(dtype_of<T>));
        }
        if (!std::ranges::equal(t.shape, expected)) {
            fail_with(name_, ": tensor ", detail::named(name), " is ", detail::shown(t.shape), ", expected ",
                      detail::shown(expected));
        }
        if (t.bytes.empty()) return {};
        if (std::bit_cast<std::uintptr_t>(t.bytes.data()) % alignof(T) != 0) {
            fail_with(name_, ": tensor ", detail::named(name), " lies at byte ", t.bytes.data() - bytes_.get(),
                      " of the file, at an address that is no multiple of ", alignof(T), " as ", name_of(t.type),
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
    file(std::string name, detail::file_bytes owned);
    [[noreturn]] void fail_missing(std::string_view name) const;

    std::string name_;
    detail::file_bytes bytes_;
    std::vector<tensor> tensors_;
    metadata_map metadata_;
};

inline file::file(std::string name, detail::file_bytes owned) : name_(std::move(name)), bytes_(std::move(owned)) {
    auto const bytes = this->bytes();
    if (bytes.size() < 8) {
        fail_with(name_, ": ", bytes.size(), " bytes, expected at least 8 (the length of the header)");
    }
    std::uint64_t length = 0;
    for (std::size_t i = 0; i < 8; ++i) length |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
    detail::check_header_length(length, bytes.size(), name_);
    auto const size = static_cast<std::size_t>(length);
    auto const data = bytes.subspan(8 + size);
    std::string_view const text(reinterpret_cast<char const*>(bytes.data()) + 8, size);
    detail::header header = detail::read_header(text, data.size(), name_);
    metadata_ = std::move(header.metadata);
    tensors_.reserve(header.entries.size());
    for (detail::entry& e : header.entries) {
        e.value.bytes = data.subspan(static_cast<std::size_t>(e.begin), static_cast<std::size_t>(e.end - e.begin));
        tensors_.push_back(std::move(e.value));
    }
}

inline file file::read(std::filesystem::path const& path) {
    std::string name = path.string();
    std::error_code code;
    std::uintmax_t const stored = std::filesystem::file_size(path, code);  // fails for directories, pipes and the like
    std::ifstream in;
    if (!code) in.open(path, std::ios::binary);
    if (code || !in) fail_with(name, ": cannot be opened for reading");
    std::size_t const size = detail::memory_size(stored, name);
    auto const data = new std::byte[size];
    detail::file_bytes owned(data, {detail::release::kind::allocated, size});
    in.read(reinterpret_cast<char*>(data), static_cast<std::streamsize>(size));
    if (!in) fail_with(name, ": reading failed at byte ", in.gcount(), " of ", size);
    return file(std::move(name), std::move(owned));
}

inline file file::map(std::filesystem::path const& path) {
#if __has_include(<sys/mman.h>)
    struct descriptor {
        int number;
        ~descriptor() {  // the mapping does not need it
            if (number >= 0) ::close(number);
        }
    };
    std::string name = path.string();
    descriptor const opened{::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};  // a pipe would wait for a writer
    struct stat status{};
    if (opened.number < 0 || ::fstat(opened.number, &status) != 0 || !S_ISREG(status.st_mode)) {
        fail_with(name, ": cannot be opened for reading");
    }
    std::size_t const size = detail::memory_size(static_cast<std::uintmax_t>(status.st_size), name);
    if (size == 0) return file(std::move(name), {});  // nothing to map: fails like other files that are too short
    void* const data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, opened.number, 0);
    if (data == MAP_FAILED) fail_with(name, ": mapping ", size, " bytes into memory failed");
    return file(std::move(name), {static_cast<std::byte const*>(data), {detail::release::kind::mapped, size}});
#else
    return read(path);
#endif
}

inline void file::fail_missing(std::string_view name) const {
    if (tensors_.empty()) fail_with(name_, ": no tensor ", detail::named(name), ", the file has no tensors");
    // Near is what shares the longest beginning and end: finds a wrong prefix as well as a typing error.
    auto const likeness = [name](tensor const& t) {
        std::string_view const other = t.name;
        auto const front = std::ranges::mismatch(name, other).in1 - name.begin();
        auto const rest = name.substr(static_cast<std::size_t>(front));
        auto const tail = other.substr(static_cast<std::size_t>(front));
        return front + (std::mismatch(rest.rbegin(), rest.rend(), tail.rbegin(), tail.rend()).first - rest.rbegin());
    };
    auto const nearest = std::ranges::max_element(tensors_, {}, likeness);
    fail_with(name_, ": no tensor ", detail::named(name), " among ", tensors_.size(), ", the nearest name is ",
              detail::named(nearest->name));
}

}  // namespace safetensors

SURELEAP_END_NAMESPACE

// SPDX-License-Identifier: MIT
//
// The bytes of a file, for readers of formats that are used where they lie (safetensors.hpp).
//
//   auto const file = mapped_file::map("model.safetensors");
//   std::span<std::byte const> const bytes = file.bytes();
//
// Nothing is known of their format here. Needs the standard library, and mmap where there is one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#if __has_include(<sys/mman.h>)
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Read-only bytes, and the name that errors give them. They stay where they are while the object, or the one it is
/// moved to, lives. Move-only; a moved-from object has no bytes.
class mapped_file {
public:
    /// Maps a regular file: nothing is copied, pages come with use and may go again. The file must not shrink
    /// meanwhile, which no check here could foresee (replacing it by rename is harmless). On systems without mmap the
    /// same as read. An empty file is no error.
    [[nodiscard]] static mapped_file map(std::filesystem::path const& path);

    /// Reads the file into memory.
    [[nodiscard]] static mapped_file read(std::filesystem::path const& path);

    /// Bytes that somebody else keeps alive; `name` stands for the file in errors.
    [[nodiscard]] static mapped_file view(std::span<std::byte const> bytes, std::string name) {
        return {std::move(name), bytes.data(), bytes.size(), release::borrowed};
    }

    [[nodiscard]] std::string const& name() const noexcept { return name_; }
    [[nodiscard]] std::span<std::byte const> bytes() const noexcept {
        return {data_.get(), data_ ? data_.get_deleter().size : 0};
    }

private:
    enum class release : std::uint8_t { borrowed, allocated, mapped };

    /// Gives the bytes back.
    struct deleter {
        release how = release::borrowed;
        std::size_t size = 0;

        void operator()(std::byte const* data) const noexcept {
            if (how == release::allocated) delete[] data;
#if __has_include(<sys/mman.h>)
            if (how == release::mapped) ::munmap(const_cast<std::byte*>(data), size);
#endif
        }
    };

    mapped_file(std::string name, std::byte const* data, std::size_t size, release how)
        : name_(std::move(name)), data_(data, {how, size}) {}

    /// The size of a file as one of an object in memory.
    [[nodiscard]] static std::size_t memory_size(std::uintmax_t size, std::string const& name) {
        if (size > static_cast<std::uintmax_t>(std::numeric_limits<std::ptrdiff_t>::max())) {
            fail_with(name, ": ", size, " bytes do not fit the address space");
        }
        return static_cast<std::size_t>(size);
    }

    std::string name_;
    std::unique_ptr<std::byte const[], deleter> data_;
};

inline mapped_file mapped_file::read(std::filesystem::path const& path) {
    std::string name = path.string();
    std::error_code code;
    std::uintmax_t const stored = std::filesystem::file_size(path, code);  // fails for directories, pipes and the like
    std::ifstream in;
    if (!code) in.open(path, std::ios::binary);
    if (code || !in) fail_with(name, ": cannot be opened for reading");
    std::size_t const size = memory_size(stored, name);
    auto const data = new std::byte[size];
    mapped_file file(std::move(name), data, size, release::allocated);
    in.read(reinterpret_cast<char*>(data), static_cast<std::streamsize>(size));
    if (!in) fail_with(file.name_, ": reading failed at byte ", in.gcount(), " of ", size);
    return file;
}

inline mapped_file mapped_file::map(std::filesystem::path const& path) {
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
    std::size_t const size = memory_size(static_cast<std::uintmax_t>(status.st_size), name);
    if (size == 0) return view({}, std::move(name));  // there is nothing to map
    void* const data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, opened.number, 0);
    if (data == MAP_FAILED) fail_with(name, ": mapping ", size, " bytes into memory failed");
    return {std::move(name), static_cast<std::byte const*>(data), size, release::mapped};
#else
    return read(path);
#endif
}

SURELEAP_END_NAMESPACE

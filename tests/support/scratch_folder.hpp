// SPDX-License-Identifier: MIT
//
// A folder of a test's own in the system's temporary one, gone with the object.
#pragma once

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include <unistd.h>

namespace support {

class scratch_folder {
public:
    /// `name` tells tests of one process apart.
    explicit scratch_folder(std::string const& name)
        : path(std::filesystem::temp_directory_path() / ("sureleap_" + name + "_" + std::to_string(::getpid()))) {
        std::filesystem::remove_all(path);
        std::filesystem::create_directories(path);
    }
    ~scratch_folder() { std::filesystem::remove_all(path); }
    scratch_folder(scratch_folder const&) = delete;
    scratch_folder& operator=(scratch_folder const&) = delete;

    [[nodiscard]] std::filesystem::path operator/(std::string const& name) const { return path / name; }
    /// The path of a file that has this text.
    std::filesystem::path write(std::string const& name, std::string const& text) const {
        std::ofstream out(path / name, std::ios::binary);
        if (!(out << text).flush()) throw std::runtime_error("scratch_folder: cannot write " + (path / name).string());
        return path / name;
    }

    std::filesystem::path const path;
};

}  // namespace support

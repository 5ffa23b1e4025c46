// SPDX-License-Identifier: MIT
//
// A folder of a test's own in the system's temporary one, gone with the object.
#pragma once

#include <filesystem>
#include <string>

#include <unistd.h>

namespace support {

class scratch_folder {
public:
    /// `name` tells tests of one process apart.
    explicit scratch_folder(std::string const& name)
        : folder_(std::filesystem::temp_directory_path() / ("sureleap_" + name + "_" + std::to_string(::getpid()))) {
        std::filesystem::remove_all(folder_);
        std::filesystem::create_directories(folder_);
    }
    ~scratch_folder() { std::filesystem::remove_all(folder_); }
    scratch_folder(scratch_folder const&) = delete;
    scratch_folder& operator=(scratch_folder const&) = delete;

    [[nodiscard]] std::filesystem::path operator/(char const* name) const { return folder_ / name; }

private:
    std::filesystem::path folder_;
};

}  // namespace support

// SPDX-License-Identifier: MIT
#include "text_file.hpp"

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <system_error>

#include <sureleap/core/error.hpp>

namespace engine {

using sureleap::fail_with;

std::string read_text(std::filesystem::path const& file) {
    constexpr std::size_t most = std::size_t{64} << 20;
    std::string const name = file.string();
    std::error_code failed;
    if (!std::filesystem::is_regular_file(file, failed)) fail_with(name, ": no such file");
    std::uintmax_t const size = std::filesystem::file_size(file, failed);
    if (size > most) fail_with(name, ": ", size, " bytes, expected at most ", most);
    std::ifstream in(file, std::ios::binary);
    std::string text(static_cast<std::size_t>(size), '\0');
    if (!in.read(text.data(), static_cast<std::streamsize>(size))) fail_with(name, ": cannot be read");
    return text;
}

void write_text(std::filesystem::path const& file, std::string const& text) {
    std::ofstream out(file, std::ios::binary | std::ios::trunc);
    out << text;
    out.close();  // what the file system has to say comes here at the latest
    if (!out) fail_with(file.string(), ": cannot be written");
}

}  // namespace engine

// SPDX-License-Identifier: MIT
//
// Text files as a whole, configurations and reports.
#pragma once

#include <filesystem>
#include <string>

namespace engine {

/// At most 64 MiB: what is longer is no configuration. Throws sureleap::error.
[[nodiscard]] std::string read_text(std::filesystem::path const& file);

/// Replaces what was there. Throws sureleap::error where a disk is full, too.
void write_text(std::filesystem::path const& file, std::string const& text);

}  // namespace engine

// SPDX-License-Identifier: MIT
//
// What llama.cpp writes to its log of warnings and errors is kept, and printed where a test case fails. log.cpp, which
// every test here links, sees to it.
#pragma once

#include <string>

namespace support {

/// Warnings and errors since the test case began; of very long logs the end.
[[nodiscard]] std::string llama_log();

}  // namespace support

// SPDX-License-Identifier: MIT
//
// JSON documents that are one edit away from a good one, in tables of {what is replaced, by what, what is said of it},
// and files to write them to.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <system_error>

#include "catch.hpp"
#include "error_text.hpp"

namespace support {

/// The text with the first `from` replaced.
[[nodiscard]] inline std::string replaced(std::string text, std::string const& from, std::string const& to) {
    auto const at = text.find(from);
    REQUIRE(at != std::string::npos);
    return text.replace(at, from.size(), to);
}

struct edit {
    std::string from, to;
    std::string says;  ///< a part of the error; empty: the document is good
};

/// `error_of` a document is what is said of it, empty if it is good, as `good` is.
template <class F>
void check_edits(std::string const& good, F const& error_of, std::initializer_list<edit> edits) {
    REQUIRE(error_of(good) == "");
    for (edit const& e : edits) {
        std::string const text = error_of(replaced(good, e.from, e.to));
        INFO(e.from << " becomes " << e.to << ", and the error is: " << text);
        if (e.says.empty()) CHECK(text == "");
        CHECK(says(text, e.says));
    }
}

/// A file that goes away with the test.
struct scratch_json {
    std::string path = (std::filesystem::temp_directory_path() /
                        ("sureleap_" + std::to_string(reinterpret_cast<std::uintptr_t>(this)) + ".json"))
                           .string();
    scratch_json() = default;
    ~scratch_json() {
        std::error_code ignored;
        std::filesystem::remove(path, ignored);
    }
    scratch_json(scratch_json const&) = delete;
    scratch_json& operator=(scratch_json const&) = delete;
};

}  // namespace support

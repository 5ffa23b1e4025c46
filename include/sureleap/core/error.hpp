// SPDX-License-Identifier: MIT
//
// sureleap::error, with the object, the index, the value and the expectation in its text. It is thrown when data given
// at set-up is wrong, or when stages of a round are called in a wrong order or with wrong parts. Inside a stage nothing
// throws. There a request gets a status (types.hpp), or a broken precondition aborts (SURELEAP_EXPECTS).
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include <sureleap/core/config.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Thrown for unusable data at set-up. Under -fno-exceptions the text is printed and the program aborts.
class error : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// Text of a value in an error message; shorter than a stream and free of its locale.
[[nodiscard]] inline std::string error_text(std::string text) {
    return text;
}
[[nodiscard]] inline std::string error_text(char const* text) {
    return text;
}
template <class Number>
    requires std::is_arithmetic_v<Number>
[[nodiscard]] std::string error_text(Number value) {
    if constexpr (std::is_floating_point_v<Number>) {
        char text[32];
        std::snprintf(text, sizeof text, "%.9g", static_cast<double>(value));  // to_string would print 1e-9 as 0
        return text;
    } else {
        return std::to_string(value);
    }
}

namespace detail {

[[noreturn, gnu::cold, gnu::noinline]] inline void throw_error(std::string const& text) {
#if SURELEAP_EXCEPTIONS
    throw error(text);
#else
    std::fprintf(stderr, "sureleap: %s\n", text.c_str());
    std::abort();
#endif
}

}  // namespace detail

/// Throws an error whose text is all parts joined: strings and numbers. Whoever reads a file for the library, or makes a part for
/// it, fails in the same way. The text is built on failure alone, so the caller tests first.
template <class... Parts>
[[noreturn, gnu::cold]] void fail_with(Parts... parts) {  // by value: literals of every length are one type
    std::string text;
    (text.append(error_text(std::move(parts))), ...);
    detail::throw_error(text);
}

namespace detail {

/// What learns from rounds has memory for so many positions. Looked at once a record, in release builds too.
inline void expect_block(char const* who, std::size_t positions, std::size_t block_size) {
    if (positions > block_size) {
        fail_with(who, ": a block of ", positions, " positions, expected at most its own block_size = ", block_size,
                  "; make it with the drafter's block_size()");
    }
}
inline void expect_position(char const* who, std::size_t k, std::size_t block_size) {
    if (k >= block_size) {
        fail_with(who, ": position ", k, ", expected one below its block_size = ", block_size,
                  "; make it with the drafter's block_size()");
    }
}

}  // namespace detail

SURELEAP_END_NAMESPACE

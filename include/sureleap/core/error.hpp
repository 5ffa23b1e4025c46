// SPDX-License-Identifier: MIT
//
// sureleap::error, with the object, the index, the value and the expectation in its text. It is thrown when data given
// at set-up is wrong, or when stages of a round are called in a wrong order or with wrong parts. Inside a stage nothing
// throws. There a request gets a status (types.hpp), or a broken precondition aborts (SURELEAP_EXPECTS).
#pragma once

#include <cstddef>
#include <cstdio>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include <sureleap/core/config.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Thrown for unusable data at set-up. Under -fno-exceptions the text is printed and the program aborts.
class error : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

namespace detail {

/// A part of an error's text: a string, which has to outlive it, or a number. All kinds are one type, so that the code
/// which joins parts exists once and not once for each list of types.
class error_part {
public:
    error_part(std::string_view text) noexcept : kind_(kind::text), text_(text) {}
    error_part(std::string const& text) noexcept : error_part(std::string_view(text)) {}
    error_part(char const* text) noexcept : error_part(std::string_view(text)) {}
    template <class Number>
        requires std::is_arithmetic_v<Number>
    error_part(Number value) noexcept {
        if constexpr (std::is_floating_point_v<Number>) {
            kind_ = kind::real;
            real_ = static_cast<double>(value);
        } else if constexpr (std::is_signed_v<Number>) {
            kind_ = kind::integer;
            integer_ = value;
        } else {
            kind_ = kind::natural;
            natural_ = value;
        }
    }

    [[nodiscard]] std::string text() const {
        switch (kind_) {
            case kind::integer: return std::to_string(integer_);
            case kind::natural: return std::to_string(natural_);
            case kind::real: {
                char digits[32];
                std::snprintf(digits, sizeof digits, "%.9g", real_);  // to_string would print 1e-9 as 0
                return digits;
            }
            default: return std::string(text_);
        }
    }

private:
    enum class kind : unsigned char { text, integer, natural, real };
    kind kind_;
    union {
        std::string_view text_;
        long long integer_;
        unsigned long long natural_;
        double real_;
    };
};

[[nodiscard, gnu::noinline]] inline std::string joined(std::initializer_list<error_part> parts) {
    std::string text;
    for (error_part const& part : parts) text += part.text();
    return text;
}

}  // namespace detail

/// Text of a value in an error message; shorter than a stream and free of its locale.
[[nodiscard]] inline std::string error_text(detail::error_part value) {
    return value.text();
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

/// Throws an error whose text is all parts joined: strings and numbers. Whoever reads a file for the library, or makes
/// a part for it, fails in the same way. The text is built on failure alone, so the caller tests first.
template <class... Parts>
[[noreturn, gnu::cold]] void fail_with(Parts... parts) {  // by value: literals of every length are one type
    detail::throw_error(detail::joined({parts...}));
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

// SPDX-License-Identifier: MIT
//
// Numbers in the bytes that ranks exchange.
#pragma once

#include <cstddef>
#include <cstring>

#include <sureleap/core/config.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace detail {

/// Puts numbers one behind the other.
class byte_writer {
public:
    explicit byte_writer(std::byte* at) noexcept : at_(at) {}
    template <class X>
    void put(X const& x) noexcept {
        std::memcpy(at_, &x, sizeof x);
        at_ += sizeof x;
    }

    /// Where the next one goes.
    [[nodiscard]] std::byte* here() const noexcept { return at_; }

private:
    std::byte* at_;
};
/// Takes them out again.
class byte_reader {
public:
    explicit byte_reader(std::byte const* at) noexcept : at_(at) {}
    template <class X>
    [[nodiscard]] X take() noexcept {
        X x;
        std::memcpy(&x, at_, sizeof x);
        at_ += sizeof x;
        return x;
    }

private:
    std::byte const* at_;
};

}  // namespace detail
SURELEAP_END_NAMESPACE

// SPDX-License-Identifier: MIT
//
// What ranks exchange: one record each, of a type that is bytes.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>

SURELEAP_BEGIN_NAMESPACE

/// The records [size()] of all ranks, in their order; false if the exchange failed (communicator).
template <communicator C, class Record>
[[nodiscard]] bool gather(C& ranks, Record const& own, std::span<std::type_identity_t<Record>> all) noexcept {
    static_assert(std::is_trivially_copyable_v<Record>,
                  "gather: a record is sent as bytes; make it trivially copyable");
    SURELEAP_EXPECTS(all.size() == ranks.size());
    return ranks.gather(std::as_bytes(std::span{&own, 1}), std::as_writable_bytes(all));
}
/// The same of several numbers a rank: all [size(), own.size()].
template <communicator C, class Number>
[[nodiscard]] bool gather(C& ranks, std::span<Number const> own, std::span<std::type_identity_t<Number>> all) noexcept {
    static_assert(std::is_trivially_copyable_v<Number>, "gather: numbers are sent as bytes");
    SURELEAP_EXPECTS(all.size() == ranks.size() * own.size());
    return ranks.gather(std::as_bytes(own), std::as_writable_bytes(all));
}

SURELEAP_END_NAMESPACE

// SPDX-License-Identifier: MIT
//
// Storage formats bit by bit, views, settings and the caps of a request.
#include "support/catch.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include <sureleap/core/types.hpp>

#include "support/dice.hpp"

using namespace sureleap;

namespace {

float from_bits(std::uint32_t bits) {
    return std::bit_cast<float>(bits);
}

template <class T>
T stored(std::uint32_t bits) {
    T x;
    x.bits = static_cast<std::uint16_t>(bits);
    return x;
}

/// binary16 by its definition, not by bit tricks.
double half_value(std::uint32_t bits) {
    double const sign = (bits & 0x8000u) != 0 ? -1.0 : 1.0;
    auto const exponent = static_cast<int>((bits >> 10) & 31u);
    auto const mantissa = static_cast<double>(bits & 0x3ffu);
    if (exponent == 31) return mantissa != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
    return exponent == 0 ? sign * std::ldexp(mantissa, -24) : sign * std::ldexp(1024.0 + mantissa, exponent - 25);
}

/// The nearest of all finite halves, the even one of two; computed by comparing with the neighbours.
template <class T>
bool is_nearest(float x, T rounded) {
    auto const value = [](std::uint32_t bits) { return static_cast<double>(static_cast<float>(stored<T>(bits))); };
    std::uint32_t const sign = rounded.bits & 0x8000u;
    std::uint32_t const magnitude = rounded.bits & 0x7fffu;
    double const exact = std::abs(static_cast<double>(x));
    double const own = std::abs(exact - value(magnitude));
    bool nearest = std::signbit(x) == (sign != 0);
    for (std::uint32_t const other : {magnitude - 1, magnitude + 1}) {
        if (magnitude == 0 && other > magnitude + 1) continue;
        double const distance = std::abs(exact - value(other));
        if (std::isinf(value(other))) continue;
        nearest = nearest && (own < distance || (own == distance && magnitude % 2 == 0));
    }
    return nearest;
}

}  // namespace

TEST_CASE("bf16: every bit pattern survives bits -> float -> bits") {
    bool exact = true, value = true, nan = true;
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
        auto const x = stored<bf16>(bits);
        float const f = static_cast<float>(x);
        bool const is_nan = (bits & 0x7fffu) > 0x7f80u;
        if (is_nan) {
            auto const back = bf16(f);
            nan = nan && f != f && (back.bits & 0x7fffu) > 0x7f80u && (back.bits & 0x8000u) == (bits & 0x8000u);
        } else {
            exact = exact && bf16(f).bits == bits;
            value = value && std::bit_cast<std::uint32_t>(f) == bits << 16;
        }
    }
    CHECK(exact);
    CHECK(value);
    CHECK(nan);
}

TEST_CASE("bf16: rounds to nearest, ties to even, overflows to infinity, keeps NaN") {
    CHECK(bf16(from_bits(0x3f808000)).bits == 0x3f80);  // a tie, down to even
    CHECK(bf16(from_bits(0x3f818000)).bits == 0x3f82);  // a tie, up to even
    CHECK(bf16(from_bits(0x3f808001)).bits == 0x3f81);
    CHECK(bf16(from_bits(0x3f817fff)).bits == 0x3f81);
    CHECK(bf16(from_bits(0xbf818000)).bits == 0xbf82);
    CHECK(bf16(from_bits(0x7f7f7fff)).bits == 0x7f7f);  // just below half way to the next power
    CHECK(bf16(from_bits(0x7f7f8000)).bits == 0x7f80);
    CHECK(bf16(std::numeric_limits<float>::max()).bits == 0x7f80);
    CHECK(bf16(-std::numeric_limits<float>::max()).bits == 0xff80);
    CHECK(bf16(std::numeric_limits<float>::infinity()).bits == 0x7f80);
    CHECK(bf16(std::numeric_limits<float>::denorm_min()).bits == 0);
    CHECK(bf16(from_bits(0x00008000)).bits == 0);  // a tie among subnormals
    CHECK(bf16(from_bits(0x00018000)).bits == 2);
    CHECK(bf16(-0.0f).bits == 0x8000);
    // A NaN whose payload lies in the lower half must not become an infinity.
    float const low_nan = from_bits(0x7f800001);
    CHECK(std::isnan(static_cast<float>(bf16(low_nan))));
    CHECK(std::isnan(static_cast<float>(bf16(from_bits(0xffffffff)))));

    support::dice roll(1);
    INFO("seed " << roll.seed());
    bool nearest = true;
    for (int i = 0; i < 200000; ++i) {
        float const x = from_bits(static_cast<std::uint32_t>(roll.bits()));
        if (!(std::abs(x) < 3e38f)) continue;
        nearest = nearest && is_nearest(x, bf16(x));
    }
    CHECK(nearest);
}

TEST_CASE("half: every bit pattern has its value, and survives bits -> float -> bits") {
    bool exact = true, value = true, nan = true;
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
        auto const x = stored<half>(bits);
        float const f = static_cast<float>(x);
        if ((bits & 0x7fffu) > 0x7c00u) {
            auto const back = half(f);
            nan = nan && f != f && (back.bits & 0x7fffu) > 0x7c00u && (back.bits & 0x8000u) == (bits & 0x8000u);
        } else {
            exact = exact && half(f).bits == bits;
            value = value && static_cast<double>(f) == half_value(bits) && std::signbit(f) == (bits >= 0x8000u);
        }
    }
    CHECK(exact);
    CHECK(value);
    CHECK(nan);
}

TEST_CASE("half: rounds to nearest, ties to even, overflows to infinity, keeps subnormals") {
    CHECK(half(1.0f + 0x1p-11f).bits == 0x3c00);  // a tie, down to even
    CHECK(half(1.0f + 0x3p-11f).bits == 0x3c02);  // a tie, up to even
    CHECK(half(std::nextafter(1.0f + 0x1p-11f, 2.0f)).bits == 0x3c01);
    CHECK(half(65504.0f).bits == 0x7bff);
    CHECK(half(65519.996f).bits == 0x7bff);
    CHECK(half(65520.0f).bits == 0x7c00);  // half way to what would be next: even is infinity
    CHECK(half(-65520.0f).bits == 0xfc00);
    CHECK(half(1e30f).bits == 0x7c00);
    CHECK(half(std::numeric_limits<float>::infinity()).bits == 0x7c00);
    CHECK(half(0x1p-24f).bits == 1);    // smallest subnormal
    CHECK(half(0x1p-25f).bits == 0);    // a tie, to even
    CHECK(half(0x1.8p-24f).bits == 2);  // a tie, to even
    CHECK(half(0x1.000002p-25f).bits == 1);
    CHECK(half(0x1.ff8p-15f).bits == 0x03ff);  // largest subnormal
    CHECK(half(0x1.ffcp-15f).bits == 0x0400);  // a tie, rounds up into the normal range
    CHECK(half(0x1.ffbp-15f).bits == 0x03ff);
    CHECK(half(0x1p-14f).bits == 0x0400);
    CHECK(half(std::numeric_limits<float>::denorm_min()).bits == 0);
    CHECK(half(-0x1p-26f).bits == 0x8000);
    CHECK(half(-0.0f).bits == 0x8000);
    CHECK(std::isnan(static_cast<float>(half(from_bits(0x7f800001)))));
    CHECK(std::isnan(static_cast<float>(half(from_bits(0xffc00000)))));

    support::dice roll(2);
    INFO("seed " << roll.seed());
    bool nearest = true;
    for (int i = 0; i < 400000; ++i) {
        int const exponent = static_cast<int>(roll.below(44)) - 27;
        auto const x = static_cast<float>(std::ldexp(roll.between(-1.0, 1.0), exponent));
        if (!(std::abs(x) < 65504.0f)) continue;
        nearest = nearest && is_nearest(x, half(x));
    }
    CHECK(nearest);
}

TEST_CASE("compute types: double stays double, everything else computes in float") {
    static_assert(std::is_same_v<compute_t<double>, double>);
    static_assert(std::is_same_v<compute_t<float>, float>);
    static_assert(std::is_same_v<compute_t<bf16>, float>);
    static_assert(std::is_same_v<compute_t<half>, float>);
    static_assert(is_storage_v<bf16> && is_storage_v<half> && is_storage_v<float> && is_storage_v<double>);
    static_assert(!is_storage_v<int> && !is_storage_v<long double>);
    static_assert(std::is_trivially_copyable_v<bf16> && sizeof(bf16) == 2 && sizeof(half) == 2);
    CHECK(load(bf16(1.5f)) == 1.5f);
    CHECK(load(half(-0.25f)) == -0.25f);
    CHECK(load(0.1) == 0.1);
}

TEST_CASE("matrix_view: rows by stride; logits_rows: rows with their normaliser") {
    std::vector<float> const data{0, 1, 2, 3, 4, 5, 6, 7};
    matrix_view<float> const dense{data.data(), 2, 4};
    CHECK(dense.row(1)[0] == 4);
    CHECK(dense.row(1).size() == 4);
    matrix_view<float> const strided{data.data(), 2, 3, 4};
    CHECK(strided.row(1)[2] == 6);
    CHECK(strided.row(1).size() == 3);
    CHECK_FALSE(strided.empty());
    CHECK(matrix_view<float>{}.empty());
    CHECK(matrix_view<float>{data.data(), 0, 3}.empty());
    CHECK(matrix_view<float>{data.data(), 3, 0}.empty());

    std::array<float, 2> const normalisers{0.5f, 0.75f};
    logits_rows<float> const with{dense, normalisers};
    CHECK(with.row(1).values[3] == 7);
    REQUIRE(with.row(1).log_normaliser.has_value());
    CHECK(*with.row(1).log_normaliser == 0.75f);
    CHECK_FALSE(logits_rows<float>{dense, {}}.row(0).log_normaliser.has_value());
}

TEST_CASE("settings: transforms of target and draft") {
    request_settings settings{.temperature = 0.7, .top_k = 5, .top_p = 0.9, .min_p = 0.1};
    CHECK(settings.target_transform() == transform{0.7, 5, 0.9, 0.1});
    CHECK(settings.draft_transform() == transform{.temperature = 0.7});  // no truncation unless asked for
    settings.draft = transform{.temperature = 0.3, .top_k = 2};
    CHECK(settings.draft_transform() == transform{0.3, 2, 1.0, 0.0});

    CHECK(transform{.temperature = 0.0}.greedy());
    CHECK(transform{.temperature = 9.99e-6}.greedy());
    CHECK_FALSE(transform{.temperature = 1e-5}.greedy());
    CHECK_FALSE(transform{}.truncates());
    CHECK(transform{.top_k = 1}.truncates());
    CHECK(transform{.top_p = 0.99}.truncates());
    CHECK(transform{.min_p = 0.01}.truncates());
}

TEST_CASE("draft_cap: block size, the request's limit, and one token for the target") {
    request_settings settings;
    request_view request{.remaining = 100, .settings = &settings};
    CHECK(request.draft_cap(7) == 7);
    request.remaining = 7;
    CHECK(request.draft_cap(7) == 6);
    request.remaining = 1;
    CHECK(request.draft_cap(7) == 0);
    request.remaining = 100;
    settings.max_draft_tokens = 3;
    CHECK(request.draft_cap(7) == 3);
    settings.max_draft_tokens = 0;
    CHECK(request.draft_cap(7) == 0);
}

TEST_CASE("statuses have names") {
    CHECK(std::string(to_string(status::ok)) == "ok");
    for (status const s : {status::invalid_draft, status::invalid_confidence, status::invalid_target}) {
        CHECK(std::string(to_string(s)).find("invalid") == 0);
    }
    CHECK(std::string(to_string(static_cast<status>(99))) == "unknown status");
}

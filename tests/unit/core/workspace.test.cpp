// SPDX-License-Identifier: MIT
//
// The workspace: counting equals carving, everything is aligned, apart and value-initialised.
#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <sureleap/core/workspace.hpp>

#include "support/dice.hpp"

using sureleap::workspace;

namespace {

struct with_defaults {
    int number = 5;
    double other = 2.5;
};

struct carved {
    std::span<std::byte> bytes;
    std::span<double> doubles;
    std::span<with_defaults> objects;
    std::span<std::uint16_t> shorts;
};

carved carve(workspace& ws, std::size_t a, std::size_t b, std::size_t c, std::size_t d) {
    // In the order of declaration: the counting and the carving run take the same steps.
    carved out{};
    out.bytes = ws.take<std::byte>(a);
    out.doubles = ws.take<double>(b);
    out.objects = ws.take<with_defaults>(c);
    out.shorts = ws.take<std::uint16_t>(d);
    return out;
}

template <class T>
bool aligned(std::span<T> s) {
    return s.empty() || reinterpret_cast<std::uintptr_t>(s.data()) % workspace::alignment == 0;
}

}  // namespace

TEST_CASE("workspace: what was counted suffices, at any alignment of the buffer") {
    support::dice roll(3);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 300; ++trial) {
        std::size_t const a = roll.below(200), b = roll.below(40), c = roll.below(20), d = roll.below(100);
        workspace sizer;
        REQUIRE(sizer.counting());
        auto const nothing = carve(sizer, a, b, c, d);
        REQUIRE(nothing.doubles.empty());

        std::size_t const shift = roll.below(128);
        std::size_t const guard = 64;
        std::vector<std::byte> memory(shift + sizer.used() + guard, std::byte{0xab});
        workspace ws{std::span(memory).subspan(shift, sizer.used())};
        REQUIRE_FALSE(ws.counting());
        auto const got = carve(ws, a, b, c, d);
        INFO("trial " << trial << ", shift " << shift << ", counts " << a << ' ' << b << ' ' << c << ' ' << d);
        REQUIRE(ws.used() == sizer.used());
        REQUIRE(got.bytes.size() == a);
        REQUIRE(got.doubles.size() == b);
        REQUIRE(got.objects.size() == c);
        REQUIRE(got.shorts.size() == d);
        REQUIRE((aligned(got.bytes) && aligned(got.doubles) && aligned(got.objects) && aligned(got.shorts)));
        REQUIRE(std::all_of(got.bytes.begin(), got.bytes.end(), [](std::byte x) { return x == std::byte{0}; }));
        REQUIRE(std::all_of(got.doubles.begin(), got.doubles.end(), [](double x) { return x == 0.0; }));
        REQUIRE(std::all_of(got.objects.begin(), got.objects.end(),
                            [](auto const& x) { return x.number == 5 && x.other == 2.5; }));
        REQUIRE(std::all_of(got.shorts.begin(), got.shorts.end(), [](std::uint16_t x) { return x == 0; }));

        // Writing one array leaves the others and the surroundings alone.
        std::fill(got.doubles.begin(), got.doubles.end(), 7.0);
        std::fill(got.shorts.begin(), got.shorts.end(), std::uint16_t{9});
        REQUIRE(std::all_of(got.objects.begin(), got.objects.end(), [](auto const& x) { return x.number == 5; }));
        REQUIRE(std::all_of(got.bytes.begin(), got.bytes.end(), [](std::byte x) { return x == std::byte{0}; }));
        REQUIRE(std::all_of(got.doubles.begin(), got.doubles.end(), [](double x) { return x == 7.0; }));
        REQUIRE(std::all_of(memory.begin(), memory.begin() + static_cast<std::ptrdiff_t>(shift),
                            [](std::byte x) { return x == std::byte{0xab}; }));
        REQUIRE(std::all_of(memory.end() - static_cast<std::ptrdiff_t>(guard), memory.end(),
                            [](std::byte x) { return x == std::byte{0xab}; }));
    }
}

TEST_CASE("workspace: empty arrays cost nothing") {
    workspace sizer;
    std::size_t const before = sizer.used();
    CHECK(sizer.take<double>(0).empty());
    CHECK(sizer.used() == before);
    std::vector<std::byte> memory(sizer.used());
    workspace ws{memory};
    CHECK(ws.take<double>(0).empty());
}

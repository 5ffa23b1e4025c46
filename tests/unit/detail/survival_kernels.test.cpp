// SPDX-License-Identifier: MIT
//
// Passes over survivals: every version that this machine runs against plain loops, over jagged rows with rubbish behind
// them, in arrays that end where the table ends.
#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include <sureleap/detail/kernel/native.hpp>
#include <sureleap/detail/kernel/survivals.hpp>
#include <sureleap/schedule/survival.hpp>

#include "support/dice.hpp"

using namespace sureleap;

namespace {

struct rows_case {
    std::vector<std::uint32_t> values, sizes;
    survival_rows rows{};
};

/// Rows that do not rise, and anything behind them.
rows_case make_rows(support::dice& roll, std::size_t count, std::size_t stride, bool jagged) {
    rows_case c;
    std::size_t const levels = roll.chance(0.3) ? 1 + roll.below(4) : certain;
    for (std::size_t r = 0; r < count; ++r) {
        c.sizes.push_back(static_cast<std::uint32_t>(jagged ? roll.below(stride + 1) : stride));
        std::uint64_t last = certain;
        for (std::size_t k = 0; k < stride; ++k) {
            if (!roll.chance(0.1)) last = last * (roll.below(levels) + 1) / levels;
            bool const used = k < c.sizes[r];
            c.values.push_back(static_cast<std::uint32_t>(used ? last : roll.below(std::size_t{1} << 31)));
        }
    }
    c.rows = {c.values.data(), count, stride, jagged ? c.sizes.data() : nullptr};
    return c;
}

std::vector<std::uint32_t> in_use(survival_rows const& rows) {
    std::vector<std::uint32_t> all;
    for (std::size_t r = 0; r < rows.rows; r += rows.every) {
        std::size_t const size = rows.sizes == nullptr ? rows.stride : rows.sizes[r];
        for (std::size_t k = 0; k < size; ++k) all.push_back(rows.values[r * rows.stride + k]);
    }
    return all;
}

survival_tally tally(std::vector<std::uint32_t> const& all, std::uint32_t low, std::uint32_t high) {
    survival_tally t;
    for (std::uint32_t const a : all) {
        if (a < low || a >= high) continue;
        ++t.count;
        t.sum += a;
    }
    return t;
}

bool same(survival_tally const& a, survival_tally const& b) {
    return a.count == b.count && a.sum == b.sum;
}

constexpr std::uint32_t no_limit = 0xffffffffu;

}  // namespace

TEST_CASE("survival kernels: the scalar reference is among them, last") {
    auto const all = available_kernels<survival_kernels>();
    REQUIRE(!all.empty());
    CHECK(all.back() == &scalar_kernels<survival_kernels>);
    CHECK(&native_kernels<survival_kernels>() == all.front());
}

TEST_CASE("survival kernels: counts, copies and lengths") {
    support::dice roll(61);
    INFO("seed " << roll.seed());
    for (auto const* kernels : available_kernels<survival_kernels>()) {
        INFO(kernels->name);
        for (int trial = 0; trial < 3000; ++trial) {
            bool const jagged = roll.chance(0.6);
            std::size_t const stride = trial % 50 == 0 ? 1 + roll.below(300) : 1 + roll.below(20);
            auto c = make_rows(roll, roll.below(trial % 20 == 0 ? 2000 : 40), stride, jagged);
            if (roll.chance(0.3)) c.rows.every = 1 + roll.below(5);
            auto const all = in_use(c.rows);
            auto const threshold = [&] {
                if (roll.chance(0.1)) return std::uint32_t{0};
                if (roll.chance(0.1)) return certain + 1;
                if (!all.empty() && roll.chance(0.5)) {
                    return all[roll.below(all.size())] + static_cast<std::uint32_t>(roll.below(2));
                }
                return static_cast<std::uint32_t>(roll.below(certain + 1));
            };
            std::uint32_t low = threshold();
            std::uint32_t high = threshold();
            if (low > high) std::swap(low, high);
            INFO("trial " << trial << ", rows " << c.rows.rows << " of " << stride << ", every " << c.rows.every
                          << ", [" << low << ", " << high << ")");
            REQUIRE(same(kernels->at_least(c.rows, low), tally(all, low, no_limit)));

            auto const expected = tally(all, low, high);
            std::size_t const room = roll.chance(0.5) ? expected.count : roll.below(expected.count + 1);
            std::vector<std::uint32_t> out(room + survival_kernels::spare, 77);
            survival_tally above{5, 5};
            REQUIRE(same(kernels->between(c.rows, low, high, out.data(), room, above), expected));
            REQUIRE(same(above, tally(all, high, no_limit)));
            if (room == expected.count) {
                std::vector<std::uint32_t> inside;
                std::copy_if(all.begin(), all.end(), std::back_inserter(inside),
                             [&](std::uint32_t a) { return a >= low && a < high; });
                out.resize(room);
                std::sort(inside.begin(), inside.end());
                std::sort(out.begin(), out.end());
                REQUIRE(out == inside);
            }

            c.rows.every = 1;
            std::vector<std::uint32_t> lengths(c.rows.rows, 77);
            std::size_t const total = kernels->lengths(c.rows, low, lengths.data());
            std::size_t sum = 0;
            bool equal = true;
            for (std::size_t r = 0; r < c.rows.rows; ++r) {
                std::uint32_t length = 0;
                while (length < c.sizes[r] && c.values[r * stride + length] >= low) ++length;
                equal = equal && lengths[r] == length;
                sum += length;
            }
            REQUIRE(equal);
            REQUIRE(total == sum);
        }
    }
}

TEST_CASE("survival kernels: sums of many certain candidates") {
    for (auto const* kernels : available_kernels<survival_kernels>()) {
        INFO(kernels->name);
        for (std::size_t const stride : {std::size_t{1}, std::size_t{8}, std::size_t{17}, std::size_t{50000}}) {
            std::size_t const count = stride == 50000 ? 2 : 6000;
            std::vector<std::uint32_t> const values(count * stride, certain);
            std::vector<std::uint32_t> sizes(count, static_cast<std::uint32_t>(stride));
            std::uint32_t const* const sized[] = {nullptr, sizes.data()};
            for (std::uint32_t const* const s : sized) {
                auto const all = kernels->at_least({values.data(), count, stride, s}, 1);
                CHECK(all.count == values.size());
                CHECK(all.sum == std::uint64_t{certain} * values.size());
            }
        }
    }
}

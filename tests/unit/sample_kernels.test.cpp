// SPDX-License-Identifier: MIT
//
// The passes over calibration samples: every table that the machine runs against the reference and against the promises
// of kernel/sample.hpp, at ragged sizes, at infinities, at edges of bins and beyond the nodes.
#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <sureleap/confidence/metrics.hpp>
#include <sureleap/kernel/sample.hpp>
#include <sureleap/kernel/sample_native.hpp>

using sureleap::available_sample_kernels;
using sureleap::bin_copies;
using sureleap::sample_kernels;
using sureleap::sigmoid_error;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

struct column {
    std::vector<double> prefix;
    std::vector<double> logits;
    std::vector<std::uint32_t> survived;

    column(std::size_t size, std::mt19937_64& draw) {
        std::normal_distribution<double> logit(0.5, 4.0);
        std::uniform_real_distribution<double> uniform;
        for (std::size_t i = 0; i < size; ++i) {
            prefix.push_back(draw() % 5 == 0 ? 1.0 : uniform(draw));
            logits.push_back(draw() % 20 == 0 ? (draw() % 2 == 0 ? infinity : -infinity) : logit(draw));
            survived.push_back(static_cast<std::uint32_t>(draw() % 9));
        }
    }
    [[nodiscard]] std::size_t size() const { return prefix.size(); }
};

template <class F>
void with_every_table(F const& f) {
    for (sample_kernels const* const kernels : available_sample_kernels()) {
        INFO(kernels->name);
        f(*kernels);
    }
}

std::vector<double> survive(sample_kernels const& kernels, column const& c, double temperature, double offset) {
    std::vector<double> out(c.size());
    kernels.survive(c.prefix.data(), c.logits.data(), c.size(), temperature, offset, out.data());
    return out;
}

}  // namespace

TEST_CASE("sample kernels: the reference is always there, and last") {
    CHECK(available_sample_kernels().back() == &sureleap::scalar_sample_kernels);
    CHECK(&sureleap::native_sample_kernels() == available_sample_kernels().front());
}

TEST_CASE("sample kernels: sigmoids are within their error, exact at 0 and at both ends") {
    // In long double where that is wider than double; where it is not, std::exp itself is part of the difference, and the
    // promise has room for it.
    with_every_table([](sample_kernels const& kernels) {
        std::vector<double> logits{0.0,   -0.0,   infinity, -infinity, 1e300, -1e300,
                                   709.0, -709.0, 709.9,    -709.9,    36.8,  1e-300};
        for (int i = -80000; i <= 80000; ++i) logits.push_back(static_cast<double>(i) / 1000.0 + 1e-5);
        std::vector<double> const ones(logits.size(), 1.0);
        std::vector<double> out(logits.size());
        for (double const temperature : {1.0, 0.1, 7.3}) {
            for (double const offset : {0.0, -1.7, 30.0}) {
                kernels.survive(ones.data(), logits.data(), logits.size(), temperature, offset, out.data());
                double worst = 0.0;
                for (std::size_t i = 0; i < logits.size(); ++i) {
                    long double const argument =
                        static_cast<long double>(logits[i]) / temperature + static_cast<long double>(offset);
                    long double const exact = 1.0L / (1.0L + std::exp(-argument));
                    worst = std::max(worst, static_cast<double>(std::fabs(static_cast<long double>(out[i]) - exact)));
                    REQUIRE(out[i] >= 0.0);
                    REQUIRE(out[i] <= 1.0);
                }
                CHECK(worst <= sigmoid_error);
            }
            kernels.survive(ones.data(), logits.data(), logits.size(), temperature, 0.0, out.data());
            CHECK(out[0] == 0.5);
            CHECK(out[1] == 0.5);
            CHECK(out[2] == 1.0);
            CHECK(out[3] == 0.0);
            CHECK(out[4] == 1.0);
            CHECK(out[5] == 0.0);
        }
    });
}

TEST_CASE("sample kernels: survivals of every size, their sum, in place; the vector tables agree to the last bit") {
    auto const seed = std::random_device{}();
    INFO("seed " << seed);
    std::mt19937_64 draw(seed);
    std::vector<std::size_t> sizes{0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 1000};
    for (std::size_t const size : sizes) {
        column const c(size, draw);
        std::vector<double> const expected = survive(sureleap::scalar_sample_kernels, c, 1.3, -0.2);
        std::vector<double> vectors;
        with_every_table([&](sample_kernels const& kernels) {
            INFO("size " << size);
            std::vector<double> out(size + 1, -7.0);
            double const sum = kernels.survive(c.prefix.data(), c.logits.data(), size, 1.3, -0.2, out.data());
            CHECK(out[size] == -7.0);
            double total = 0.0;
            for (std::size_t i = 0; i < size; ++i) {
                REQUIRE(std::fabs(out[i] - expected[i]) <= 2.0 * sigmoid_error);
                total += out[i];
            }
            CHECK(std::fabs(sum - total) <= 1e-12 * static_cast<double>(size + 1));
            out.pop_back();
            std::vector<double> in_place = c.prefix;
            kernels.survive(in_place.data(), c.logits.data(), size, 1.3, -0.2, in_place.data());
            CHECK(in_place == out);
            if (std::string(kernels.name) == "scalar") return;
            if (vectors.empty()) vectors = out;
            CHECK(vectors == out);
        });
    }
}

TEST_CASE("sample kernels: gaps by bin, with what is close to an edge left to the caller") {
    auto const seed = std::random_device{}();
    INFO("seed " << seed);
    std::mt19937_64 draw(seed);
    for (int repeat = 0; repeat < 60; ++repeat) {
        column c(draw() % 70, draw);
        std::size_t const bins = 1 + draw() % 40;
        double const margin = draw() % 2 == 0 ? 1e-9 : 0.05;
        auto const position = static_cast<std::uint32_t>(draw() % 8);
        for (double& a : c.prefix) {  // on edges, just beside them, at both ends
            auto const edge = static_cast<double>(draw() % (bins + 1)) / static_cast<double>(bins);
            if (draw() % 3 == 0) a = edge;
            if (draw() % 6 == 0) a = std::clamp(edge + (draw() % 2 == 0 ? 1e-12 : -1e-12), 0.0, 1.0);
        }
        std::vector<std::uint32_t> near;
        std::vector<double> expected(bins);
        for (std::size_t i = 0; i < c.size(); ++i) {
            double const place = c.prefix[i] * static_cast<double>(bins);
            double nearest = infinity;
            for (std::size_t e = 1; e < bins; ++e) {
                nearest = std::min(nearest, std::fabs(place - static_cast<double>(e)));
            }
            if (nearest <= margin) {
                near.push_back(static_cast<std::uint32_t>(i));
            } else {
                expected[sureleap::probability_bin(c.prefix[i], bins)] +=
                    c.prefix[i] - (c.survived[i] > position ? 1.0 : 0.0);
            }
        }
        with_every_table([&](sample_kernels const& kernels) {
            INFO("repeat " << repeat << " bins " << bins << " size " << c.size());
            std::vector<double> sums(bin_copies * bins, 0.25);
            std::vector<std::uint32_t> found(c.size());
            found.resize(kernels.gaps(c.prefix.data(), {c.survived.data(), position}, c.size(), bins, margin,
                                      sums.data(), found.data()));
            CHECK(found == near);
            for (std::size_t b = 0; b < bins; ++b) {
                double sum = 0.0;
                for (std::size_t copy = 0; copy < bin_copies; ++copy) sum += sums[copy * bins + b] - 0.25;
                CHECK(std::fabs(sum - expected[b]) < 1e-12);
            }
        });
    }
}

TEST_CASE("sample kernels: survivals in float are within their error, and so are their gaps by bin") {
    // One bin: its sum tells survivals, one by one. Many: samples close to an edge are left out, others are where they belong.
    auto const seed = std::random_device{}();
    INFO("seed " << seed);
    std::mt19937_64 draw(seed);
    auto const narrow = [](sample_kernels const& kernels, std::vector<double> const& values) {
        std::vector<float> out(values.size() + 1, -7.0f);
        kernels.narrow(values.data(), values.size(), out.data());
        CHECK(out.back() == -7.0f);
        for (std::size_t i = 0; i < values.size(); ++i) REQUIRE(out[i] == static_cast<float>(values[i]));
        return out;
    };
    double const slack = sureleap::screen_error + sureleap::screen_unit;
    with_every_table([&](sample_kernels const& kernels) {
        std::vector<double> logits{0.0, infinity, -infinity, 1e300, -1e300, 1e30, -1e30, 88.0, -88.0, 1e-300, 1e-40};
        for (int i = -4000; i <= 4000; ++i) logits.push_back(static_cast<double>(i) / 40.0 + 1e-5);
        std::uniform_real_distribution<double> uniform;
        for (double const temperature : {1.0, 0.1, 7.3, 1e-15, 1e15}) {
            double worst = 0.0;
            for (double const z : logits) {
                double const prefix = draw() % 2 == 0 ? 1.0 : uniform(draw);
                std::array<float, 1> const a{static_cast<float>(prefix)};
                std::array<float, 1> const x{static_cast<float>(z)};
                std::uint32_t const survived = draw() % 2 == 0 ? 1 : 0;
                std::array<std::int64_t, bin_copies> sums{};
                std::uint32_t near = 0;
                REQUIRE(kernels.screen(a.data(), x.data(), {&survived, 0}, 1, temperature, 1, 1e-5, sums.data(),
                                       &near) == 0);
                double sum = 0.0;
                for (std::int64_t const s : sums) sum += static_cast<double>(s) * sureleap::screen_unit;
                double const exact = prefix / (1.0 + std::exp(-z / temperature)) - survived;
                worst = std::max(worst, std::fabs(sum - exact));
            }
            CHECK(worst <= slack);
        }
        for (int repeat = 0; repeat < 40; ++repeat) {
            column const c(draw() % (sureleap::sample_block + 1), draw);
            std::vector<float> const prefix = narrow(kernels, c.prefix);
            std::vector<float> const places = narrow(kernels, c.logits);
            std::size_t const bins = 1 + draw() % 60;
            auto const position = static_cast<std::uint32_t>(draw() % 8);
            double const margin = draw() % 2 == 0 ? 1e-4 : 0.05;
            std::vector<double> const survivals = survive(sureleap::scalar_sample_kernels, c, 1.7, 0.0);
            std::vector<std::int64_t> sums(bin_copies * bins, 1000);
            std::vector<std::uint32_t> near(c.size());
            near.resize(kernels.screen(prefix.data(), places.data(), {c.survived.data(), position}, c.size(), 1.7, bins,
                                       margin, sums.data(), near.data()));
            std::vector<double> expected(bins);
            std::size_t next = 0;
            for (std::size_t i = 0; i < c.size(); ++i) {
                double const place = survivals[i] * static_cast<double>(bins);
                double nearest = infinity;
                for (std::size_t e = 1; e < bins; ++e) {
                    nearest = std::min(nearest, std::fabs(place - static_cast<double>(e)));
                }
                bool const left_out = next < near.size() && near[next] == i;
                double const doubt = static_cast<double>(bins) * 2.0 * slack;
                if (left_out) {
                    ++next;
                    REQUIRE(nearest <= margin + doubt);
                } else {
                    REQUIRE(nearest >= margin - doubt);
                    expected[sureleap::probability_bin(survivals[i], bins)] +=
                        survivals[i] - (c.survived[i] > position ? 1.0 : 0.0);
                }
            }
            CHECK(next == near.size());
            for (std::size_t b = 0; b < bins; ++b) {
                std::int64_t sum = -1000 * static_cast<std::int64_t>(bin_copies);
                for (std::size_t copy = 0; copy < bin_copies; ++copy) sum += sums[copy * bins + b];
                double const difference = static_cast<double>(sum) * sureleap::screen_unit - expected[b];
                CHECK(std::fabs(difference) <= slack * static_cast<double>(c.size()));
            }
        }
    });
}

TEST_CASE("sample kernels: spreading keeps weights and their means between the ends") {
    auto const seed = std::random_device{}();
    INFO("seed " << seed);
    std::mt19937_64 draw(seed);
    constexpr std::size_t cells = 16;
    for (std::size_t const size : std::vector<std::size_t>{0, 1, 3, 8, 13, 500, 1024, 1025, 5003}) {
        column const c(size, draw);
        double const lowest = -3.0;
        double const highest = 5.0;
        double weight = 0.0;
        double moment = 0.0;
        for (std::size_t i = 0; i < size; ++i) {
            weight += c.prefix[i];
            moment += c.prefix[i] * std::clamp(c.logits[i], lowest, highest);
        }
        // A weight and its upper part are rounded by half a unit each; logits are at most 5 away from 0, ends 0.5 apart.
        double const unit = sureleap::spread_unit * static_cast<double>(size) + 1e-10;
        with_every_table([&](sample_kernels const& kernels) {
            INFO("size " << size);
            std::array<std::uint64_t, cells> pairs{};
            kernels.spread(c.prefix.data(), c.logits.data(), size, lowest, highest, cells, pairs.data());
            double kept = 0.0;
            double where = 0.0;
            for (std::size_t cell = 0; cell < cells; ++cell) {
                double const left = lowest + (highest - lowest) * static_cast<double>(cell) / cells;
                double const lower = sureleap::spread_unit * static_cast<double>(pairs[cell] & 0xffffffffu);
                double const upper = sureleap::spread_unit * static_cast<double>(pairs[cell] >> 32);
                kept += lower + upper;
                where += lower * left + upper * (left + (highest - lowest) / cells);
            }
            CHECK(std::fabs(kept - weight) <= 0.5 * unit);
            CHECK(std::fabs(where - moment) <= 0.5 * (5.0 + 0.5) * unit);
        });
    }
}

TEST_CASE("sample kernels: as many samples of weight 1 in one place as spreading takes") {
    std::vector<double> const ones(sureleap::most_spread_samples, 1.0);
    with_every_table([&](sample_kernels const& kernels) {
        for (double const place : {0.0, 1.0}) {
            std::vector<double> const logits(ones.size(), place);
            std::array<std::uint64_t, 2> pairs{};
            kernels.spread(ones.data(), logits.data(), ones.size(), 0.0, 1.0, 1, pairs.data());
            auto const all = std::uint64_t{ones.size()} * 32768;
            CHECK(pairs[0] == (place == 0.0 ? all : all << 32));
            CHECK(pairs[1] == 0);
        }
    });
}

TEST_CASE("sample kernels: log losses and their least argument") {
    auto const seed = std::random_device{}();
    INFO("seed " << seed);
    std::mt19937_64 draw(seed);
    constexpr double floor = 1e-12;
    for (std::size_t const size : std::vector<std::size_t>{0, 1, 5, 8, 11, 300}) {
        column c(size, draw);
        for (double& a : c.prefix) {
            if (draw() % 4 == 0) a = std::pow(10.0, -static_cast<double>(draw() % 15));
            if (draw() % 8 == 0) a = 1.0 - a;
            if (draw() % 16 == 0) a = 0.0;
        }
        double expected = 0.0;
        double smallest = 1.0;
        for (std::size_t i = 0; i < size; ++i) {
            bool const label = c.survived[i] > 3;
            double const x = label ? std::max(c.prefix[i], floor) : 1.0 - std::min(c.prefix[i], 1.0 - floor);
            expected -= std::log(x);
            smallest = std::min(smallest, x);
        }
        with_every_table([&](sample_kernels const& kernels) {
            INFO("size " << size);
            double least = 1.0;
            double const sum = kernels.log_losses(c.prefix.data(), {c.survived.data(), 3}, size, floor, &least);
            CHECK(std::fabs(sum - expected) <= 1e-13 * static_cast<double>(size + 1) * 28.0);
            CHECK(least == smallest);
        });
    }
}

TEST_CASE("sample kernels: rows to columns, rows of any lengths, and NaN wherever it stands") {
    auto const seed = std::random_device{}();
    INFO("seed " << seed);
    std::mt19937_64 draw(seed);
    for (int repeat = 0; repeat < 300; ++repeat) {
        std::size_t const size = draw() % 40;
        std::size_t const longest = 1 + draw() % 20;
        std::vector<std::size_t> lengths(size, longest);
        if (draw() % 3 != 0) {
            for (std::size_t& length : lengths) length = draw() % (longest + 1);
            std::sort(lengths.rbegin(), lengths.rend());
        }
        // Rows that end where they are to end, so that a sanitizer sees who reads on; and a place for NaN.
        std::vector<std::vector<double>> data(size);
        std::vector<double const*> rows(size);
        std::size_t total = 0;
        for (std::size_t i = 0; i < size; ++i) {
            for (std::size_t k = 0; k < lengths[i]; ++k) {
                data[i].push_back(draw() % 9 == 0 ? infinity : static_cast<double>(draw() % 1000));
            }
            rows[i] = data[i].data();
            total += lengths[i];
        }
        std::uint64_t wrong = draw() % 2 == 0 && total > 0 ? draw() % total : total;
        bool const numbers = wrong == total;
        for (std::size_t i = 0; i < size && wrong < total; ++i) {
            if (wrong < lengths[i]) data[i][wrong] = std::numeric_limits<double>::quiet_NaN();
            wrong = wrong < lengths[i] ? total : wrong - lengths[i];
        }
        with_every_table([&](sample_kernels const& kernels) {
            INFO("repeat " << repeat);
            std::vector<std::vector<double>> found(longest, std::vector<double>(size, -7.0));
            std::vector<double*> columns;
            for (auto& column : found) columns.push_back(column.data());
            CHECK(kernels.transpose(rows.data(), lengths.data(), size, columns.data()) == numbers);
            for (std::size_t i = 0; i < size; ++i) {
                for (std::size_t k = 0; k < longest; ++k) {
                    if (k < lengths[i] && std::isnan(data[i][k])) {
                        REQUIRE(std::isnan(found[k][i]));
                    } else {
                        REQUIRE(found[k][i] == (k < lengths[i] ? data[i][k] : -7.0));
                    }
                }
            }
        });
    }
}

// SPDX-License-Identifier: MIT
//
// A layer of the trainer's models by itself, over what small drafters do not have: a sequence of several tiles, and
// causal rows and blocks over a context in one batch. Its gradients agree with finite differences, and a row depends on
// what it sees alone.
#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include <Eigen/Core>  // of train/gemm.hpp; said here, so that builds without Eigen leave this test out

#include <engine/config.hpp>
#include <sureleap/training/rows.hpp>
#include <train/layer.hpp>

#include "drafters.hpp"
#include "finite_differences.hpp"
#include "support/dice.hpp"
#include "support/golden_engine.hpp"

namespace {

using train::row_span;

// One layer with random weights over rows of three sequences: two causal ones, and blocks over context rows between.
struct layer_case {
    explicit layer_case(std::uint64_t seed)
        : roll(seed), config(drafters::small_transformer(1)), layer(layout, "", config) {
        values.resize(layout.size());
        for (double& v : values) v = 0.4 * roll.bell();
        for (std::size_t s = 0; s < std::size(lengths); ++s) {
            std::size_t const first = sees.size();
            for (std::size_t i = 0; i < lengths[s]; ++i) {
                bool const causal = s != 1;
                std::size_t const block = first + i / 5 * 5;  // blocks of 5, the context of each longer
                row_span const own = causal ? row_span{first, first + i + 1} : row_span{block, block + 5};
                sees.push_back({causal ? row_span{} : row_span{4, 5 + i / 5}, own});
                positions.push_back(static_cast<std::uint32_t>(i));
            }
        }
        sees[3] = {};  // sees nothing, though others see it
        for (std::size_t i = 0; i < contexts; ++i) context_positions.push_back(static_cast<std::uint32_t>(i));
        auto const filled = [&](std::size_t rows) {
            return drafters::random_matrix<double>(roll, rows, config.hidden_size, 1.0);
        };
        x = filled(sees.size());
        direction = filled(sees.size());
        context = filled(contexts);
    }

    [[nodiscard]] train::layer_pass<double> pass() const {
        return {angles, sees, positions, context.view(), context_positions};
    }
    // The output along a random direction.
    double objective() {
        layer.forward(std::span<double const>(values), pass(), x.view(), tape);
        double sum = 0;
        for (std::size_t i = 0; i < x.rows(); ++i) {
            for (std::size_t j = 0; j < x.cols(); ++j) sum += tape.output.view().row(i)[j] * direction.view().row(i)[j];
        }
        return sum;
    }

    static constexpr std::size_t lengths[] = {150, 20, 7};  // the first takes more than one tile
    static constexpr std::size_t contexts = 10;
    support::dice roll;
    engine::transformer_config config;
    train::parameter_layout layout;
    train::decoder_layer layer;
    train::rotary<double> angles{6, 1e3, 256};
    std::vector<double> values;
    std::vector<train::visible_rows> sees;
    std::vector<std::uint32_t> positions;
    std::vector<std::uint32_t> context_positions;
    train::matrix<double> x;
    train::matrix<double> direction;
    train::matrix<double> context;
    train::layer_tape<double> tape;
};

}  // namespace

TEST_CASE("a layer's gradients agree with finite differences, causal and over a context", "[property][train]") {
    std::uint64_t const seed = 41;
    INFO("seed " << seed);
    layer_case c(seed);
    c.objective();
    std::vector<double> gradients(c.values.size());
    train::layer_scratch<double> scratch;
    train::matrix<double> dx = c.direction;
    train::matrix<double> d_context;
    d_context.resize_zeroed(c.context.rows(), c.context.cols());
    c.layer.backward(std::span<double const>(c.values), c.pass(), c.x.view(), c.tape, scratch, std::span(gradients),
                     dx.span(), d_context.span());

    auto const check = [&](double& variable, double gradient) {
        double const found = support::derivative(variable, [&] { return c.objective(); });
        CAPTURE(found, gradient);
        CHECK(std::abs(found - gradient) < 1e-6 * std::max(1.0, std::abs(gradient)));
    };
    for (auto const& entry : c.layout.entries()) {
        CAPTURE(entry.name);
        for (int n = 0; n < 3; ++n) {
            std::size_t const i = entry.place.offset + c.roll.below(entry.place.size());
            check(c.values[i], gradients[i]);
        }
    }
    for (std::size_t const row : std::array<std::size_t, 8>{0, 3, 70, 149, 150, 163, 170, 176}) {
        CAPTURE(row);
        std::size_t const j = c.roll.below(c.x.cols());
        check(c.x.span().row(row)[j], dx.view().row(row)[j]);
    }
    for (std::size_t row = 0; row < c.context.rows(); ++row) {
        CAPTURE(row);
        std::size_t const j = c.roll.below(c.context.cols());
        double const gradient = d_context.view().row(row)[j];
        CHECK((gradient != 0.0) == (4 <= row && row < 8));  // the rows that some block sees
        check(c.context.span().row(row)[j], gradient);
    }
}

TEST_CASE("a row's output depends on what it sees alone", "[property][train]") {
    std::uint64_t const seed = 51;
    INFO("seed " << seed);
    layer_case c(seed);
    c.objective();
    train::matrix<double> const all = c.tape.output;
    // A causal sequence cut at any row ends like the whole one: in a batch, across tiles, and in a tile of its own.
    for (std::size_t const length : std::array<std::size_t, 7>{1, 3, 5, 64, 65, 130, 150}) {
        CAPTURE(length);
        c.sees.resize(length);
        c.positions.resize(length);
        auto const rows = sureleap::row_range(c.x.view(), 0, length);
        auto cut = c.pass();
        cut.context = {};
        cut.context_positions = {};
        c.layer.forward(std::span<double const>(c.values), cut, rows, c.tape);
        CHECK(golden::difference(c.tape.output.view().row(length - 1), all.view().row(length - 1)) < 1e-13);
        c = layer_case(seed);
    }
}

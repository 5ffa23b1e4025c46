// SPDX-License-Identifier: MIT
//
// The heads and the confidence as differentiable functions. Their forward is that of the inference heads, their
// backward the central difference of their forward. Gradients are added to what is there. Errors name unusable weights.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <sureleap/confidence/head.hpp>
#include <sureleap/head/gated.hpp>
#include <sureleap/head/markov.hpp>
#include <sureleap/head/rnn.hpp>
#include <sureleap/training/confidence_logit.hpp>
#include <sureleap/training/gated_code.hpp>
#include <sureleap/training/markov_code.hpp>
#include <sureleap/training/rnn_code.hpp>
#include <sureleap/training/rows.hpp>

#include "support/dice.hpp"
#include "support/error_text.hpp"
#include "support/slope.hpp"

using support::error_text;
using support::says;
using sureleap::matrix_span;
using sureleap::matrix_view;
using sureleap::token_id;

namespace {

/// A matrix with more room in a row than it uses, so that a stride that is ignored shows.
struct matrix {
    std::vector<double> values;
    std::size_t rows = 0;
    std::size_t cols = 0;

    matrix(std::size_t row_count, std::size_t column_count)
        : values(row_count * (column_count + 3)), rows(row_count), cols(column_count) {}
    matrix(std::size_t row_count, std::size_t column_count, support::dice& roll) : matrix(row_count, column_count) {
        for (double& x : values) x = roll.bell();
    }
    [[nodiscard]] std::size_t stride() const { return cols + 3; }
    [[nodiscard]] matrix_view<double> view() const { return {values.data(), rows, cols, stride()}; }
    [[nodiscard]] matrix_span<double> span() { return {values.data(), rows, cols, stride()}; }
};

std::vector<double> random_vector(std::size_t size, support::dice& roll) {
    std::vector<double> out(size);
    for (double& x : out) x = roll.bell();
    return out;
}

/// A kind of head: its parameters, its code, and the inference head with W2 = identity, whose bias is the code.
struct markov_kind {
    static constexpr char const* name = "Markov";
    static constexpr bool reads_hidden = false;
    using code = sureleap::markov_code<double>;
    std::size_t rank;
    matrix weight{0, 0};
    std::vector<double> bias{};

    markov_kind(std::size_t r, std::size_t, support::dice&) : rank(r) {}
    [[nodiscard]] code make() const { return code(rank); }
    [[nodiscard]] auto head(matrix_view<double> w1, matrix_view<double> w2) const {
        return sureleap::markov_head<double>(w1, w2);
    }
    static code::gradients gradients(matrix&, std::vector<double>&) { return {}; }
};

struct gated_kind {
    static constexpr char const* name = "gated";
    static constexpr bool reads_hidden = true;
    using code = sureleap::gated_code<double>;
    std::size_t rank;
    matrix weight;
    std::vector<double> bias;

    gated_kind(std::size_t r, std::size_t d, support::dice& roll)
        : rank(r), weight(r, d + r, roll), bias(random_vector(r, roll)) {}
    [[nodiscard]] code make() const { return code(weight.view(), bias); }
    [[nodiscard]] auto head(matrix_view<double> w1, matrix_view<double> w2) const {
        return sureleap::gated_head<double>(w1, w2, weight.view(), bias);
    }
    static code::gradients gradients(matrix& weight, std::vector<double>& bias) { return {weight.span(), bias}; }
};

struct rnn_kind {
    static constexpr char const* name = "RNN";
    static constexpr bool reads_hidden = true;
    using code = sureleap::rnn_code<double>;
    std::size_t rank;
    matrix weight;
    std::vector<double> bias;

    rnn_kind(std::size_t r, std::size_t d, support::dice& roll)
        : rank(r), weight(3 * r, 2 * r + d, roll), bias(random_vector(3 * r, roll)) {}
    [[nodiscard]] code make() const { return code(weight.view(), bias); }
    [[nodiscard]] auto head(matrix_view<double> w1, matrix_view<double> w2) const {
        return sureleap::rnn_head<double>(w1, w2, weight.view(), bias);
    }
    static code::gradients gradients(matrix& weight, std::vector<double>& bias) { return {weight.span(), bias}; }
};

double dot(matrix_view<double> a, matrix_view<double> b) {
    double sum = 0.0;
    for (std::size_t i = 0; i < a.rows; ++i) {
        for (std::size_t j = 0; j < a.cols; ++j) sum += a.row(i)[j] * b.row(i)[j];
    }
    return sum;
}

// Objectives are sums of at most 50 terms of order one with third derivatives of order ten: h^2 / 6 * 10 * 50 is
// 1e-8, rounding 1e-13 / h is 1e-8.
constexpr double step = 1e-5;
constexpr double bound = 3e-8;

}  // namespace

TEMPLATE_TEST_CASE("training codes: forward is the inference head", "", markov_kind, gated_kind, rnn_kind) {
    support::dice roll(42);
    INFO(TestType::name << ", seed " << roll.seed());
    for (int trial = 0; trial < 30; ++trial) {
        std::size_t const r = 1 + roll.below(20), d = 1 + roll.below(20), n = roll.below(8), v = 9;
        TestType const kind(r, d, roll);
        matrix const w1(v, r, roll), h(n, d, roll);
        matrix identity(r, r);
        for (std::size_t i = 0; i < r; ++i) identity.span().row(i)[i] = 1.0;
        std::vector<token_id> previous(n);
        for (token_id& x : previous) x = static_cast<token_id>(roll.below(v));

        auto const code = kind.make();
        REQUIRE(code.rank() == r);
        REQUIRE(code.hidden_size() == (TestType::reads_hidden ? d : 0));
        matrix e(n, r), z(n, r);
        std::vector<double> tape(code.tape_size(n), std::numeric_limits<double>::quiet_NaN());  // not ours to clear
        sureleap::gather_rows(w1.view(), std::span<token_id const>(previous), e.span());
        code.forward({e.view(), h.view()}, z.span(), tape);

        auto const head = kind.head(w1.view(), identity.view());
        std::vector<double> state(head.state_size());
        head.reset(state);
        for (std::size_t k = 0; k < n; ++k) {
            std::vector<double> bias(r);
            head.add_bias(state, h.view().row(k), previous[k], bias);
            bool all = true;
            for (std::size_t i = 0; i < r; ++i) all = all && std::abs(bias[i] - z.view().row(k)[i]) <= 1e-14;
            CHECK(all);
        }
    }
}

TEMPLATE_TEST_CASE("training codes: backward is the central difference of forward", "", markov_kind, gated_kind,
                   rnn_kind) {
    support::dice roll(4711);
    INFO(TestType::name << ", seed " << roll.seed());
    for (std::size_t trial = 0; trial < 16; ++trial) {
        std::size_t const r = 1 + roll.below(5), d = 1 + roll.below(6), n = trial % 8;
        INFO("trial " << trial << ", rank " << r << ", hidden " << d << ", positions " << n);
        TestType kind(r, d, roll);
        matrix e(n, r, roll), h(n, d, roll), dz(n, r, roll), z(n, r);
        auto const code = kind.make();
        std::vector<double> tape(code.tape_size(n));
        auto const objective = [&] {
            code.forward({e.view(), h.view()}, z.span(), tape);
            return dot(z.view(), dz.view());
        };

        // Gradients start from something, which has to be there afterwards.
        matrix d_e(n, r, roll), d_h(n, d, roll), d_weight(kind.weight.rows, kind.weight.cols, roll);
        auto d_bias = random_vector(kind.bias.size(), roll);
        matrix const e_before = d_e, h_before = d_h, weight_before = d_weight;
        auto const bias_before = d_bias;
        objective();
        code.backward({e.view(), h.view()}, z.view(), dz.view(), tape, TestType::gradients(d_weight, d_bias),
                      {d_e.span(), d_h.span()});

        auto const check_all = [&](char const* what, std::vector<double>& values, std::vector<double> const& after,
                                   std::vector<double> const& before) {
            INFO(what);
            bool all = true;
            for (std::size_t i = 0; i < values.size(); ++i) {
                all = all && std::abs(after[i] - before[i] - support::slope(values[i], step, objective)) <= bound;
            }
            CHECK(all);  // what lies between rows has difference 0 and must not have been written
        };
        check_all("embeddings", e.values, d_e.values, e_before.values);
        check_all("hidden", h.values, d_h.values, h_before.values);
        check_all("weight", kind.weight.values, d_weight.values, weight_before.values);
        check_all("bias", kind.bias, d_bias, bias_before);
    }
}

TEST_CASE("training codes: the RNN code sees the block behind it, and nothing reads the last state") {
    support::dice roll(3);
    INFO("seed " << roll.seed());
    rnn_kind const kind(3, 2, roll);
    auto const code = kind.make();
    matrix e(4, 3, roll), z(4, 3), dz(4, 3), d_e(4, 3), d_h(4, 2), d_weight(9, 8);
    matrix const h(4, 2, roll);
    std::vector<double> tape(code.tape_size(4)), d_bias(9);
    code.forward({e.view(), h.view()}, z.span(), tape);
    dz.span().row(2)[1] = 1.0;
    code.backward({e.view(), h.view()}, z.view(), dz.view(), tape, {d_weight.span(), d_bias}, {d_e.span(), d_h.span()});
    auto const silent = [](std::span<double const> row) {
        return std::ranges::all_of(row, [](double x) { return x == 0.0; });
    };
    CHECK_FALSE(silent(d_e.view().row(0)));
    CHECK_FALSE(silent(d_h.view().row(1)));
    CHECK_FALSE(silent(d_h.view().row(2)));
    CHECK(silent(d_e.view().row(3)));
    CHECK(silent(d_h.view().row(3)));
}

TEST_CASE("training codes: unusable parameters") {
    std::vector<double> const values(200, 0.5);
    auto const view = [&](std::size_t rows, std::size_t cols) {
        return matrix_view<double>(values.data(), rows, cols);
    };
    auto const bias = [&](std::size_t size) { return std::span<double const>(values).first(size); };
    auto bad = values;
    bad[13] = std::numeric_limits<double>::quiet_NaN();
    auto const broken = [&](std::size_t rows, std::size_t cols) { return matrix_view<double>(bad.data(), rows, cols); };

    using gated = sureleap::gated_code<double>;
    CHECK(error_text([&] { gated(view(4, 10), bias(4)); }).empty());
    CHECK(says(error_text([&] { gated(view(4, 4), bias(4)); }),
               "gated_code: gate has 4 columns, expected hidden size + rank, more than the rank 4 of bias"));
    CHECK(says(error_text([&] { gated(view(3, 10), bias(4)); }),
               "gated_code: gate is [3, 10], expected [4, 10] (rank x (hidden size + rank))"));
    CHECK(
        says(error_text([&] { gated(broken(4, 10), bias(4)); }), "gated_code: gate is not finite at row 1, column 3"));

    using rnn = sureleap::rnn_code<double>;
    CHECK(error_text([&] { rnn(view(6, 5), bias(6)); }).empty());
    CHECK(
        says(error_text([&] { rnn(view(6, 5), bias(7)); }), "rnn_code: bias has 7 elements, expected a multiple of 3"));
    CHECK(says(error_text([&] { rnn(view(6, 4), bias(6)); }),
               "rnn_code: joint has 4 columns, expected 2 * rank + hidden size, more than twice the rank 2 of bias"));
    CHECK(says(error_text([&] { rnn(view(5, 8), bias(6)); }), "rnn_code: joint is [5, 8], expected [6, 8]"));
    CHECK(says(error_text([&] { rnn(broken(6, 8), bias(6)); }), "rnn_code: joint is not finite at row 1, column 5"));

    using confidence = sureleap::confidence_logit<double>;
    CHECK(error_text([&] { confidence(view(1, 9), bias(1), 4); }).empty());
    CHECK(says(error_text([&] { confidence(view(1, 4), bias(1), 4); }),
               "confidence_logit: weight has 4 columns, expected hidden size + rank, more than the rank 4"));
    CHECK(says(error_text([&] { confidence(view(2, 9), bias(1), 4); }),
               "confidence_logit: weight is [2, 9], expected [1, 9]"));
    CHECK(says(error_text([&] { confidence(view(1, 9), bias(2), 4); }),
               "confidence_logit: bias is [1, 2], expected [1, 1]"));
}

TEST_CASE("training confidence: forward is the inference head, backward its difference") {
    support::dice roll(99);
    INFO("seed " << roll.seed());
    for (std::size_t const r : {std::size_t{0}, std::size_t{1}, std::size_t{5}}) {
        std::size_t const d = 4;
        INFO("rank " << r);
        std::vector<double> weight = random_vector(d + r, roll);
        std::vector<double> bias = random_vector(1, roll), h = random_vector(d, roll);
        matrix w1(3, r, roll);
        std::vector<double> e(w1.view().row(1).begin(), w1.view().row(1).end());
        matrix_view<double> const row(weight.data(), 1, weight.size());
        sureleap::confidence_logit<double> const logit(row, bias, r);
        CHECK(logit.hidden_size() == d);
        CHECK(logit.rank() == r);
        auto const head = r == 0 ? sureleap::confidence_head<double>(row, bias[0])
                                 : sureleap::confidence_head<double>(row, bias[0], w1.view());
        CHECK(std::abs(logit(h, e) - head.logit(h, 1)) <= 1e-15);

        auto d_weight = random_vector(d + r, roll), d_bias = random_vector(1, roll);
        auto d_h = random_vector(d, roll), d_e = random_vector(r, roll);
        auto const weight_before = d_weight, bias_before = d_bias, h_before = d_h, e_before = d_e;
        logit.backward(h, e, 1.5, {d_weight, d_bias}, d_h, d_e);
        auto const check = [&](std::vector<double>& x, std::vector<double> const& after,
                               std::vector<double> const& before) {
            for (std::size_t i = 0; i < x.size(); ++i) {
                double const expected = 1.5 * support::slope(x[i], step, [&] { return logit(h, e); });
                CHECK(std::abs(after[i] - before[i] - expected) <= 1e-9);  // linear: rounding 1e-15 / 1e-5 only
            }
        };
        check(weight, d_weight, weight_before);
        check(bias, d_bias, bias_before);
        check(h, d_h, h_before);
        check(e, d_e, e_before);
    }
}

TEST_CASE("training rows: scatter_add is the transpose of gather_rows") {
    support::dice roll(17);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 20; ++trial) {
        std::size_t const n = roll.below(12), v = 1 + roll.below(5), r = 1 + roll.below(6);
        matrix const table(v, r, roll), rows(n, r, roll);
        std::vector<token_id> indices(n);
        for (token_id& x : indices) x = static_cast<token_id>(roll.below(v));  // few rows: repetitions are the rule
        std::span<token_id const> const at(indices);
        matrix gathered(n, r), scattered(v, r);
        sureleap::gather_rows(table.view(), at, gathered.span());
        for (std::size_t i = 0; i < n; ++i) {
            CHECK(std::ranges::equal(gathered.view().row(i), table.view().row(static_cast<std::size_t>(indices[i]))));
        }
        sureleap::scatter_add(rows.view(), at, scattered.span());
        CHECK(std::abs(dot(gathered.view(), rows.view()) - dot(table.view(), scattered.view())) <= 1e-12);
    }
}

TEST_CASE("training rows: views") {
    std::vector<float> values{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    matrix_span<float> const m(values.data(), 3, 2, 4);
    CHECK(m.row(1)[1] == 5.0f);
    m.row(2)[0] = -1.0f;
    CHECK(values[8] == -1.0f);
    matrix_view<float> const seen = m;
    CHECK(seen.stride == 4);
    auto const last = sureleap::row_range(m, 1, 2);
    CHECK(last.rows == 2);
    CHECK(last.row(0)[0] == 4.0f);
    CHECK(sureleap::row_range(seen, 3, 0).rows == 0);
    sureleap::bf16 const stored[] = {sureleap::bf16(1.5f), sureleap::bf16(-2.0f)};
    std::vector<double> out(2);
    std::vector<std::size_t> const indices{1, 0};
    sureleap::gather_rows(matrix_view<sureleap::bf16>(stored, 2, 1), std::span<std::size_t const>(indices),
                          matrix_span<double>(out.data(), 2, 1));
    CHECK(out == std::vector<double>{-2.0, 1.5});
}

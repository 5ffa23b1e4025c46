// SPDX-License-Identifier: MIT
//
// Packed weights and their products, in every instruction set that this machine has. What must hold to the last bit:
// the numbers of a file, sums of products of small integers, a row's independence of its batch and of the threads.
// Beside it the distance from the definition in double: x rounded to 8 bits in blocks of 32, everything else exact.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <sureleap/core/types.hpp>

#include "engine/kernels.hpp"
#include "engine/kernels_table.hpp"
#include "engine/quantised.hpp"
#include "support/catch.hpp"
#include "support/dice.hpp"
#include "support/error_text.hpp"
#include "support/kernel_sets.hpp"

namespace {

using namespace engine;
using namespace support;

template <class F>
void with_every_quantised_set(F const& f) {
    for (quantised_set const* const set : available_quantised()) {
        use_quantised(*set);
        INFO(set->name);
        f();
    }
    use_kernels(*find_kernels(instruction_set()));
}

std::uint16_t half_bits(double value) {
    return sureleap::half(static_cast<float>(value)).bits;
}
double number(std::uint16_t bits) {
    sureleap::half stored;
    stored.bits = bits;
    return static_cast<double>(sureleap::load(stored));
}

/// A packed matrix and what its numbers are.
struct packed {
    packed_matrix memory;
    std::vector<double> values;
    weight view;

    /// scale() and minimum() of every run of 32 inputs, numbers of the storage's whole range.
    template <class Scale, class Minimum>
    packed(storage type, std::size_t rows, std::size_t cols, dice& roll, Scale const& scale, Minimum const& minimum)
        : memory(type, rows, cols), values(rows * cols), view(memory.view()) {
        for (std::size_t row = 0; row < rows; ++row) {
            for (std::size_t b = 0; b < cols / block_inputs; ++b) {
                double* const to = values.data() + row * cols + b * block_inputs;
                std::uint16_t const s = half_bits(scale());
                if (type != storage::q8) {
                    stepped_run run{s, half_bits(minimum()), {}};
                    for (std::size_t c = 0; c < block_inputs; ++c) {
                        run.steps[c] = static_cast<std::uint8_t>(roll.below(type == storage::q4 ? 16 : 32));
                        to[c] = run.steps[c] * number(s) + number(run.minimum);
                    }
                    memory.set(row, b, run);
                } else {
                    q8_run run{s, {}};
                    for (std::size_t c = 0; c < block_inputs; ++c) {
                        run.values[c] = static_cast<std::int8_t>(static_cast<int>(roll.below(255)) - 127);
                        to[c] = run.values[c] * number(s);
                    }
                    memory.set(row, b, run);
                }
            }
        }
    }
};

packed random_matrix(storage type, std::size_t rows, std::size_t cols, dice& roll) {
    return {type, rows, cols, roll, [&] { return 0.01 * roll.bell(); }, [&] { return 0.05 * roll.bell(); }};
}

/// x as products see it: 8 bits in blocks of 32.
template <class Real>
std::vector<double> rounded(std::vector<Real> const& x) {
    std::vector<double> out(x.size());
    for (std::size_t b = 0; b < x.size(); b += block_inputs) {
        Real largest = 0;
        for (std::size_t c = 0; c < block_inputs; ++c) largest = std::max(largest, std::abs(x[b + c]));
        Real const scale = largest / Real{127};
        for (std::size_t c = 0; c < block_inputs; ++c) {
            Real const steps = largest > 0 ? std::nearbyint(x[b + c] * (Real{127} / largest)) : Real{0};
            out[b + c] = static_cast<double>(scale) * static_cast<double>(steps);
        }
    }
    return out;
}

constexpr storage packed_storages[] = {storage::q4, storage::q5, storage::q8};

TEMPLATE_TEST_CASE("packed: products of small integers are exact for every shape", "[kernels]", float, double) {
    dice roll(1);
    thread_pool pool(2);
    for (storage const type : packed_storages) {
        for (std::size_t const cols : sizes{32, 96, 576}) {
            for (std::size_t const rows : sizes{1, 8, 16, 53}) {
                packed const w(type, rows, cols, roll, [] { return 1.0; }, [&] { return double(roll.below(5)) - 2.0; });
                for (std::size_t const n : sizes{1, 2, 3, 4, 5, 8, 9, 16, 17, 35}) {
                    // The largest of a block is 127, so its scale is 1.
                    auto x = numbers<TestType>(n * cols, [&] { return double(roll.below(255)) - 127.0; });
                    for (std::size_t b = 0; b < x.size(); b += block_inputs) x[b + roll.below(block_inputs)] = 127;
                    std::vector<TestType> expected(n * rows);
                    for (std::size_t i = 0; i < n; ++i) {
                        for (std::size_t j = 0; j < rows; ++j) {
                            double sum = 0;
                            for (std::size_t c = 0; c < cols; ++c)
                                sum += w.values[j * cols + c] * double(x[i * cols + c]);
                            expected[i * rows + j] = static_cast<TestType>(sum);
                        }
                    }
                    with_every_quantised_set([&] {
                        CAPTURE(static_cast<int>(type), cols, rows, n);
                        std::vector<TestType> y(n * rows, TestType(-1));
                        matmul(pool, x.data(), n, w.view, y.data());
                        REQUIRE(y == expected);
                        matmul_add(pool, x.data(), n, w.view, y.data());
                        for (TestType& v : y) v /= 2;
                        REQUIRE(y == expected);
                    });
                }
            }
        }
    }
}

TEST_CASE("packed: the largest sums of a block fit", "[kernels]") {
    thread_pool pool(1);
    for (storage const type : packed_storages) {
        constexpr std::size_t rows = 16;
        packed_matrix w(type, rows, block_inputs);
        int const most = type == storage::q4 ? 15 : type == storage::q5 ? 31 : 127;
        for (std::size_t row = 0; row < rows; ++row) {
            stepped_run steps{half_bits(1), half_bits(0), {}};
            q8_run values{half_bits(1), {}};
            std::fill_n(steps.steps, block_inputs, static_cast<std::uint8_t>(most));
            std::fill_n(values.values, block_inputs, static_cast<std::int8_t>(row % 2 == 0 ? most : -most));
            type == storage::q8 ? w.set(row, 0, values) : w.set(row, 0, steps);
        }
        std::vector<float> const x(block_inputs, -127.0f);
        with_every_quantised_set([&] {
            CAPTURE(static_cast<int>(type));
            std::vector<float> y(rows);
            matmul(pool, x.data(), 1, w.view(), y.data());
            for (std::size_t row = 0; row < rows; ++row) {
                int const sign = type == storage::q8 && row % 2 == 1 ? 1 : -1;
                CHECK(y[row] == static_cast<float>(sign * 127 * most * static_cast<int>(block_inputs)));
            }
        });
    }
}

TEMPLATE_TEST_CASE("packed: a product is that of the definition", "[kernels]", float, double) {
    dice roll(2);
    CAPTURE(roll.seed());
    thread_pool pool(2);
    constexpr std::size_t rows = 80;
    for (storage const type : packed_storages) {
        for (std::size_t const cols : sizes{64, 576, 1536}) {
            packed const w = random_matrix(type, rows, cols, roll);
            for (std::size_t const n : sizes{1, 6, 33}) {
                auto const x = normal<TestType>(n * cols, roll);
                auto const seen = rounded(x);
                with_every_quantised_set([&] {
                    std::vector<TestType> y(n * rows);
                    matmul(pool, x.data(), n, w.view, y.data());
                    for (std::size_t i = 0; i < n; ++i) {
                        for (std::size_t j = 0; j < rows; ++j) {
                            double sum = 0;
                            double size = 0;
                            for (std::size_t c = 0; c < cols; ++c) {
                                double const term = w.values[j * cols + c] * seen[i * cols + c];
                                sum += term;
                                size += std::abs(term);
                            }
                            // Four roundings a block, of which there are cols / 32; those of a nibble and a minimum may
                            // be of far larger terms than their sum.
                            double const unit = sizeof(TestType) == 4 ? 0x1p-23 : 0x1p-52;
                            REQUIRE(std::abs(double(y[i * rows + j]) - sum) <= 8.0 * unit * size * double(cols) / 32.0);
                        }
                    }
                });
            }
        }
    }
}

TEMPLATE_TEST_CASE("packed: a row has the same bits alone, in any batch and on any number of threads", "[kernels]",
                   float, double) {
    dice roll(3);
    CAPTURE(roll.seed());
    thread_pool one(1);
    thread_pool three(3);
    constexpr std::size_t cols = 576;
    constexpr std::size_t rows = 200;
    for (storage const type : packed_storages) {
        packed const w = random_matrix(type, rows, cols, roll);
        auto const x = normal<TestType>(40 * cols, roll);
        with_every_quantised_set([&] {
            std::vector<TestType> alone(40 * rows);
            for (std::size_t i = 0; i < 40; ++i) {
                matmul(one, x.data() + i * cols, 1, w.view, alone.data() + i * rows);
            }
            for (std::size_t n = 1; n <= 40; ++n) {
                std::vector<TestType> y(n * rows);
                matmul(three, x.data(), n, w.view, y.data());
                REQUIRE(same_bits(y.data(), alone.data(), y.size()));
            }
        });
    }
}

TEST_CASE("packed: rows are what was set, whichever way they are read", "[kernels]") {
    dice roll(4);
    for (storage const type : packed_storages) {
        packed const w = random_matrix(type, 37, 96, roll);
        std::vector<float> row(96);
        std::vector<double> row_in_double(96);
        std::vector<std::int32_t> const chosen = {36, 0, 17, 17, 16, 15, 1};
        gathered_rows const some(w.view, chosen);
        REQUIRE(some.view().rows == chosen.size());
        for (std::size_t i = 0; i < 37; ++i) {
            load_row(w.view, i, row.data());
            load_row(w.view, i, row_in_double.data());
            for (std::size_t c = 0; c < 96; ++c) {
                REQUIRE(row[c] == static_cast<float>(w.values[i * 96 + c]));
                REQUIRE(row_in_double[c] == static_cast<double>(row[c]));
            }
        }
        for (std::size_t i = 0; i < chosen.size(); ++i) {
            load_row(some.view(), i, row.data());
            for (std::size_t c = 0; c < 96; ++c) {
                REQUIRE(row[c] == static_cast<float>(w.values[static_cast<std::size_t>(chosen[i]) * 96 + c]));
            }
        }
    }
    std::vector<float> plain = {1, 2, 3, 4, 5, 6};
    std::vector<std::int32_t> const last_first = {2, 0};
    gathered_rows const of_plain({plain.data(), storage::f32, 3, 2}, last_first);
    std::vector<float> row(2);
    load_row(of_plain.view(), 0, row.data());
    CHECK(row == std::vector<float>{5, 6});
    load_row(of_plain.view(), 1, row.data());
    CHECK(row == std::vector<float>{1, 2});
}

TEST_CASE("packed: quantised numbers are off by at most half a step", "[kernels]") {
    dice roll(5);
    CAPTURE(roll.seed());
    packed_matrix memory(storage::q8, 5, 64);
    for (std::size_t i = 0; i < 5; ++i) {
        auto values = normal<float>(64, roll);
        if (i == 3) std::fill_n(values.begin(), 32, 0.0f);
        memory.quantise(i, values);
        std::vector<float> back(64);
        load_row(memory.view(), i, back.data());
        for (std::size_t b = 0; b < 64; b += 32) {
            float largest = 0;
            for (std::size_t c = b; c < b + 32; ++c) largest = std::max(largest, std::abs(values[c]));
            // Half a step, and what the scale lost when it became F16: at most 127 times 2^-11 of a step.
            for (std::size_t c = b; c < b + 32; ++c) {
                CHECK(std::abs(back[c] - values[c]) <= largest / 127.0f * (0.5f + 127.0f * 0x1p-11f));
            }
        }
    }
}

TEST_CASE("packed: rows gathered in 4 bits are off by at most half of sixteen steps", "[kernels]") {
    dice roll(7);
    CAPTURE(roll.seed());
    packed const w = random_matrix(storage::q8, 40, 64, roll);
    std::vector<std::int32_t> const chosen = {39, 3, 3, 16};
    auto const some = gathered_rows::in_4_bits(w.view, chosen);
    REQUIRE(some.view().type == storage::q4);
    REQUIRE(some.view().rows == chosen.size());
    for (std::size_t i = 0; i < chosen.size(); ++i) {
        std::vector<float> was(64), is(64);
        load_row(w.view, static_cast<std::size_t>(chosen[i]), was.data());
        load_row(some.view(), i, is.data());
        for (std::size_t b = 0; b < 64; b += 32) {
            auto const [least, largest] = std::minmax_element(was.begin() + static_cast<std::ptrdiff_t>(b),
                                                              was.begin() + static_cast<std::ptrdiff_t>(b) + 32);
            float const step = (*largest - *least) / 15.0f;
            float const of_half = 0x1p-11f * (std::abs(*least) + 15.0f * step);  // scale and minimum are F16
            for (std::size_t c = b; c < b + 32; ++c) CHECK(std::abs(is[c] - was[c]) <= 0.5f * step + 2.0f * of_half);
        }
    }
    std::vector<float> flat(32, 0.25f);
    packed_matrix wrong(storage::q8, 1, 32);
    wrong.set(0, 0, engine::q8_run{0x7E00, {}});  // a scale that is no number
    CHECK(support::error_text([&] {
              static_cast<void>(gathered_rows::in_4_bits(wrong.view(), std::vector<std::int32_t>{0}));
          }) == "gathered_rows: row 0 has a weight that is infinite or not a number, expected finite weights");
    for (storage const type : {storage::q4, storage::q5}) {
        packed_matrix memory(type, 1, 32);
        memory.quantise(0, flat);
        std::vector<float> back(32);
        load_row(memory.view(), 0, back.data());
        CHECK(back == flat);
    }
}

TEST_CASE("packed: a run that is set again leaves nothing of the one before", "[kernels]") {
    packed_matrix memory(storage::q5, 16, 64);
    std::vector<float> row(64);
    for (unsigned const top : {31U, 0U, 16U}) {
        stepped_run run{half_bits(1.0), half_bits(0.0), {}};
        std::fill_n(run.steps, block_inputs, static_cast<std::uint8_t>(top));
        memory.set(5, 1, run);
        load_row(memory.view(), 5, row.data());
        CHECK(std::all_of(row.begin() + 32, row.end(), [&](float x) { return x == static_cast<float>(top); }));
    }
}

TEST_CASE("packed: matrices of several kinds in one call", "[kernels]") {
    dice roll(6);
    thread_pool pool(2);
    packed const a = random_matrix(storage::q4, 48, 64, roll);
    packed const b = random_matrix(storage::q4, 24, 64, roll);
    packed const c = random_matrix(storage::q8, 48, 64, roll);
    auto const x = normal<float>(3 * 64, roll);
    std::vector<float> ya(3 * 48), yb(3 * 24), yc(3 * 48), together_a(3 * 48), together_b(3 * 24), together_c(3 * 48);
    matmul(pool, x.data(), 3, a.view, ya.data());
    matmul(pool, x.data(), 3, b.view, yb.data());
    matmul(pool, x.data(), 3, c.view, yc.data());
    matmul(pool, x.data(), 3, {{a.view, together_a.data()}, {b.view, together_b.data()}});
    CHECK(ya == together_a);
    CHECK(yb == together_b);
    matmul(pool, x.data(), 3, {{a.view, together_a.data()}, {c.view, together_c.data()}});
    CHECK(ya == together_a);
    CHECK(yc == together_c);
    std::vector<sureleap::bf16> const numbers(24 * 64, sureleap::bf16(0.5f));
    weight const rounds{numbers.data(), storage::bf16, 24, 64, arithmetic::bf16};
    matmul(pool, x.data(), 3, rounds, yb.data());
    matmul(pool, x.data(), 3, {{rounds, together_b.data()}, {a.view, together_a.data()}});
    CHECK(yb == together_b);
    CHECK(ya == together_a);
    std::vector<float> gated(3 * 48);
    gated_matmul(pool, x.data(), 3, a.view, c.view, gated.data());
    silu_mul(ya.data(), yc.data(), ya.size());
    CHECK(gated == ya);
}

TEST_CASE("packed: what cannot be packed is refused", "[kernels]") {
    CHECK(error_text([] { packed_matrix(storage::q8, 3, 33); }) ==
          "packed_matrix: [3, 33], expected 4, 5 or 8 bits and columns in blocks of 32");
    CHECK(error_text([] { packed_matrix(storage::f32, 3, 64); }) ==
          "packed_matrix: [3, 64], expected 4, 5 or 8 bits and columns in blocks of 32");
}

TEST_CASE("packed: the instruction set follows that of the other kernels", "[kernels]") {
    with_every_set([] {
        std::string const plain = instruction_set();
        std::string const of_packed = packed_instruction_set();
        if (plain == "portable") CHECK((of_packed == "portable" || of_packed == "neon_dot"));
        if (plain == "avx2") CHECK((of_packed == "avx2" || of_packed == "avx_vnni"));
        if (plain.starts_with("avx512")) CHECK(of_packed.starts_with("avx512"));
    });
}

}  // namespace

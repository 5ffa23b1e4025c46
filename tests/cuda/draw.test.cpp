// SPDX-License-Identifier: MIT
//
// Draws on the device by sums of blocks that are not those of the weights: rounded, off, too large or too small. Every token is
// drawn as often as its weight says, and none because it is the last one.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <sureleap/cuda/sampling/draw.cuh>

#include "cuda/support/device_array.hpp"
#include "support/dice.hpp"

using namespace sureleap;
namespace device = sureleap::cuda;  // CUDA has a namespace cuda of its own

namespace {

/// A warp for every number.
__global__ void draw_all(float const* row, std::uint32_t size, device::law p, double const* upto, double const* numbers,
                         token_id* out) {
    token_id const x = device::draw_token(row, size, p, upto, numbers[blockIdx.x]);
    if (threadIdx.x == 0) out[blockIdx.x] = x;
}

constexpr std::uint32_t size = 2 * 1024 + 500;

struct scene {
    std::vector<float> row;
    std::vector<double> weights{};
    std::vector<double> blocks{};
    double total = 0.0;
    device::law p{};

    explicit scene(std::vector<float> values) : row(std::move(values)), blocks(device::count_blocks(size)) {
        p.scale = 1.0f;
        p.kind = device::law_kind::dense;
        for (std::size_t v = 0; v < size; ++v) {
            auto const w = static_cast<double>(p.weight(row[v], static_cast<token_id>(v)));
            weights.push_back(w);
            blocks[v / row_block] += w;
            total += w;
        }
    }
    /// The tokens of `numbers`, by sums of blocks that are `by` times their own.
    [[nodiscard]] std::vector<token_id> draw(std::vector<double> const& numbers, std::vector<double> const& by) {
        std::vector<double> upto;
        double sum = 0.0;
        for (std::size_t b = 0; b < blocks.size(); ++b) upto.push_back(sum += blocks[b] * by[b]);
        p.total = sum;
        device_array<float> const on_device{row};
        device_array<double> const sums{upto}, asked{numbers};
        device_array<token_id> out(numbers.size());
        require_cuda(device::launch(draw_all, static_cast<unsigned>(numbers.size()), 32, 0, nullptr, on_device.data(),
                                    size, p, sums.data(), asked.data(), out.data()));
        return out.download();
    }
};

}  // namespace

TEST_CASE("cuda draw: what sums of blocks leave over is spread over the row", "[cuda]") {
    // Ten tokens, and a padded end of each block that nothing but rounding would be given to.
    support::dice roll{231};
    INFO("seed " << roll.seed());
    std::vector<float> row(size, -device::infinity);
    for (std::size_t const v : {3u, 400u, 900u, 1024u, 1300u, 1800u, 2048u, 2100u, 2300u, 2400u}) {
        row[v] = static_cast<float>(roll.between(-4.0, -2.0));
    }
    for (std::size_t const v : {1023u, 2047u, size - 1}) row[v] = -60.0f;
    scene s{row};
    std::size_t const n = 2000;
    std::vector<double> numbers;
    for (std::size_t i = 0; i < n; ++i) numbers.push_back((static_cast<double>(i) + 0.5) / static_cast<double>(n));
    for (double const off : {0.0, 1e-6, 1e-3, 0.3}) {
        INFO("sums too large by " << off);
        std::vector<double> drawn(size);
        for (token_id const x : s.draw(numbers, {1.0 + off, 1.0 + off, 1.0 + off})) {
            REQUIRE(x >= 0);
            drawn[static_cast<std::size_t>(x)] += 1.0 / static_cast<double>(n);
        }
        double distance = 0.0;
        for (std::size_t v = 0; v < size; ++v) distance += 0.5 * std::abs(drawn[v] - s.weights[v] / s.total);
        CHECK(distance <
              60.0 / static_cast<double>(n));  // the rest is drawn from thrice: a grid of its own in each block
        CHECK(drawn[1023] + drawn[2047] + drawn[size - 1] == 0.0);
    }
    // Numbers just below 1, which rounding used to give to the last token of the row.
    std::vector<double> last;
    for (int i = 0; i < 300; ++i) last.push_back(1.0 - roll.real() * 1e-7);
    for (token_id const x : s.draw(last, {1.0 + 1e-6, 1.0 + 1e-6, 1.0 + 1e-6}))
        REQUIRE(x != static_cast<token_id>(size - 1));
}

TEST_CASE("cuda draw: no token is out of reach at the end of a block whose sum is a rounding too small", "[cuda]") {
    support::dice roll{232};
    INFO("seed " << roll.seed());
    std::vector<float> row(size, -device::infinity);
    row[10] = -0.5f;
    row[1023] = -15.8f;  // 1.4e-7, less than the sum of its block lacks
    row[1500] = -2.0f;
    scene s{row};
    double const small = s.weights[1023];
    double const short_by = 2.3e-7;
    double const sum = s.blocks[0] * (1.0 - short_by) + s.blocks[1] + s.blocks[2];
    std::vector<double> numbers;
    for (int i = 0; i < 400; ++i) {  // those that stand for it by the block's own sum
        numbers.push_back((s.weights[10] - s.blocks[0] * short_by + small * (i + 0.5) / 400.0) / sum);
    }
    std::size_t found = 0;
    for (token_id const x : s.draw(numbers, {1.0 - short_by, 1.0, 1.0})) found += x == 1023;
    CHECK(found > 200);
}

TEST_CASE("cuda draw: sums that are no numbers, and rows without weight, draw nothing", "[cuda]") {
    std::vector<float> row(size, -1.0f);
    scene s{row};
    double const nan = std::numeric_limits<double>::quiet_NaN();
    for (token_id const x : s.draw({0.0, 0.4, 0.999}, {nan, nan, nan})) CHECK(x == no_token);
    for (std::size_t v = 0; v < size; ++v) row[v] = -device::infinity;
    scene nothing{row};
    for (token_id const x : nothing.draw({0.0, 0.4, 0.999}, {1.0, 1.0, 1.0})) CHECK(x == no_token);
}

// SPDX-License-Identifier: MIT
//
// Draws on the device by sums of blocks that are not those of the weights: rounded, off, too large or too small. Every
// token is drawn as often as its weight says, and none because it is the last one.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <sureleap/cuda/head/row_draw.cuh>
#include <sureleap/cuda/sampling/draw.cuh>

#include "cuda/support/device_array.hpp"
#include "support/dice.hpp"

using namespace sureleap;
namespace device = sureleap::cuda;  // CUDA has a namespace cuda of its own

namespace {

/// A warp for every number.
__global__ void draw_all(float const* row, std::uint32_t size, device::distribution p, double const* upto,
                         double const* numbers, token_id* out) {
    token_id const x = device::draw_token(row, size, p, upto, numbers[blockIdx.x]);
    if (threadIdx.x == 0) out[blockIdx.x] = x;
}

/// A block for every number, which draws from groups of 128 logits. Of the first group it computes the logits again.
__global__ void draw_from_groups(float const* logits, device::group_statistics* groups, std::uint32_t count,
                                 double const* numbers, std::uint32_t* out) {
    auto& s = device::shared_memory<device::detail::draw_shared>();
    device::detail::row_summary row(groups, count, 1.0f);
    row.sum_up(s);
    device::distribution q{};
    q.kind = device::distribution_kind::dense;
    q.scale = 1.0f;
    q.shift = row.largest();
    row.find_group(s, numbers[blockIdx.x] * row.total());
    if (threadIdx.x < device::group_size) s.logits[threadIdx.x] = logits[s.group * device::group_size + threadIdx.x];
    __syncthreads();
    if (device::warp_index() != 0) return;
    std::uint32_t const place = device::detail::find_drawn(s, q);
    if (threadIdx.x == 0) out[blockIdx.x] = s.group * device::group_size + place;
}

constexpr std::uint32_t size = 2 * 1024 + 500;

struct scene {
    std::vector<float> row;
    std::vector<double> weights{};
    std::vector<double> blocks{};
    double total = 0.0;
    device::distribution p{};

    explicit scene(std::vector<float> values) : row(std::move(values)), blocks(device::count_blocks(size)) {
        p.scale = 1.0f;
        p.kind = device::distribution_kind::dense;
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

TEST_CASE("cuda draw: what the sum of a group is off is spread over the group", "[cuda]") {
    // Two groups. The last token of each has a weight far below what their sums are off.
    constexpr std::size_t group = device::group_size;
    support::dice roll{233};
    INFO("seed " << roll.seed());
    std::vector<float> logits(2 * group);
    for (float& l : logits) l = static_cast<float>(roll.between(-6.0, 0.0));
    logits[group - 1] = logits[2 * group - 1] = -21.0f;
    for (double const off : {-0x1p-20, 0.0, 0x1p-20}) {
        INFO("sums are off by " << off);
        std::vector<device::group_statistics> groups(2);
        std::vector<double> weights(2 * group), claimed(2);
        float const top = *std::max_element(logits.begin(), logits.end());
        for (std::size_t g = 0; g < 2; ++g) {
            float const* const first = logits.data() + g * group;
            groups[g].largest = *std::max_element(first, first + group);
            double sum = 0.0;
            for (std::size_t j = 0; j < group; ++j) {
                weights[g * group + j] = std::exp(static_cast<double>(first[j] - top));
                sum += std::exp(static_cast<double>(first[j] - groups[g].largest));
            }
            groups[g].sum = static_cast<float>(sum * (1.0 + off));
            claimed[g] = static_cast<double>(groups[g].sum) * std::exp(static_cast<double>(groups[g].largest - top));
        }
        // Where each group's last token begins, and the group ends, by bisection.
        device_array<float> const on_device{logits};
        device_array<device::group_statistics> statistics{groups};
        auto const drawn = [&](double number) {
            device_array<double> const asked{std::vector<double>{number}};
            device_array<std::uint32_t> out(1);
            require_cuda(device::launch(draw_from_groups, 1, device::detail::draw_threads,
                                        sizeof(device::detail::draw_shared), nullptr, on_device.data(),
                                        statistics.data(), 2u, asked.data(), out.data()));
            return out.download()[0];
        };
        auto const beginning_of = [&](std::size_t token) {
            double below = 0.0, above = 1.0;
            for (int i = 0; i < 60; ++i) {
                double const middle = 0.5 * (below + above);
                (drawn(middle) >= token ? above : below) = middle;
            }
            return above;
        };
        double const total = claimed[0] + claimed[1];
        for (std::size_t g = 0; g < 2; ++g) {
            std::size_t const token = (g + 1) * group - 1;
            double const end = g == 0 ? beginning_of(token + 1) : 1.0;
            double own = 0.0;
            for (std::size_t j = 0; j < group; ++j) own += weights[g * group + j];
            double const probability = weights[token] / own * claimed[g] / total;
            CHECK(end - beginning_of(token) == Approx(probability).epsilon(1e-4));
        }
    }
}

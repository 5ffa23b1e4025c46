// SPDX-License-Identifier: MIT
//
// Races on the device have the host's winners: over whole rows of every format and shape, truncated or not, over listed
// tokens, and put together from parts.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <sureleap/cuda/sampling/gumbel_max_row.cuh>
#include <sureleap/sampling/distribution.hpp>
#include <sureleap/sampling/gumbel_max.hpp>

#include "cuda/support/device_array.hpp"
#include "cuda/support/rows.hpp"
#include "cuda/support/seeds.hpp"
#include "support/dice.hpp"

using namespace sureleap;
namespace device = sureleap::cuda;  // CUDA has a namespace cuda of its own

namespace {

template <class T>
__global__ void run_draws(T const* rows, std::uint32_t size, device::distribution const* distributions,
                          draw_key const* keys, token_id const* likely, device::gumbel_winner* out) {
    auto& shared = device::shared_memory<device::gumbel_shared>();
    std::uint32_t const i = blockIdx.x;
    T const* const row = rows + static_cast<std::size_t>(i) * size;
    draw_key other = keys[i];
    ++other.seed;
    // Twice, as a block does that looks at several rows.
    device::gumbel_winner const before = device::gumbel_max_row(row, size, distributions[i], other, no_token, shared);
    out[i * blockDim.x + threadIdx.x] = device::gumbel_max_row(row, size, distributions[i], keys[i], likely[i], shared);
    device::gumbel_winner const again =
        device::gumbel_max_row(row, size, distributions[i], other, before.token, shared);
    if (again.token != before.token) out[i * blockDim.x + threadIdx.x].invalid = 2;
}

/// A warp for every `share` blocks of the row, in a grid of their own; then one warp for all their results.
template <class T>
__global__ void run_part(T const* row, std::uint32_t size, std::uint32_t share, device::distribution how, draw_key key,
                         device::gumbel_winner* parts) {
    device::warp_gumbel_max mine{key, how};
    for (std::uint32_t b = blockIdx.x * share; b < (blockIdx.x + 1) * share && b * row_block < size; ++b) {
        mine.prepare_block(row, size, b);
        device::row_lanes<T> logits;
        device::read_block(row, size, b, logits);
        mine.visit_block(row, b, logits);
    }
    if (device::gumbel_winner const result = mine.winner(); threadIdx.x == 0) parts[blockIdx.x] = result;
}
__global__ void put_together(device::gumbel_winner const* parts, std::uint32_t count, device::gumbel_winner* out) {
    out[threadIdx.x] = device::first_of(parts, count);
}

__global__ void run_listed(token_id const* ids, float const* logits, std::uint32_t count, device::distribution how,
                           draw_key key, device::gumbel_winner* out) {
    device::warp_gumbel_max all{key, how};
    for (std::uint32_t first = 0; first < count; first += device::warp_size) {
        std::uint32_t const i = first + threadIdx.x;
        all.visit(i < count ? ids[i] : no_token, i < count ? logits[i] : -device::infinity);
    }
    out[threadIdx.x] = all.winner();
}

/// What the host makes of a row.
template <class T>
struct on_host {
    std::vector<token_id> order;
    distribution<T> p;
    device::distribution on_device{};

    on_host(std::vector<T> const& row, transform const& how)
        : order(row.size()), p({row, {}, {}}, how, order, {}, scalar_kernels<row_kernels>) {
        on_device.scale = static_cast<float>(1.0 / how.temperature);
        on_device.kind = device::distribution_kind::dense;
        if (!p.valid() || !how.truncates()) return;
        auto const last = sureleap::detail::truncate(std::span<T const>(row), how, p.mode(), std::span(order),
                                                     scalar_kernels<row_kernels>.template get<T>())
                              .last;
        on_device.least_logit = last.logit;
        on_device.least_id = last.id;
    }
};

/// log(E_v / w_v), in double.
template <class T>
double log_time(std::vector<T> const& row, float scale, draw_key const& key, token_id v) {
    auto const at = static_cast<std::size_t>(v);
    return std::log(exponential(key, at)) - static_cast<double>(load(row[at])) * static_cast<double>(scale);
}

/// Winners that were compared, and those that differed, each of which was a tie but for rounding.
struct tally {
    std::size_t all = 0;
    std::size_t near_ties = 0;

    template <class T>
    void compare(std::vector<T> const& row, on_host<T> const& host, draw_key const& key, token_id expected,
                 device::gumbel_winner const& found) {
        ++all;
        REQUIRE(found.invalid == 0);
        REQUIRE(found.token != no_token);
        double const mine = log_time(row, host.on_device.scale, key, found.token);
        CHECK(std::abs(found.log_time - mine) <= 1e-12 * (1.0 + std::abs(mine)));
        if (found.token == expected) return;
        ++near_ties;
        // The host's weight is a float of an argument that was rounded.
        double const other = log_time(row, host.on_device.scale, key, expected);
        double const argument = std::abs(static_cast<double>(load(row[static_cast<std::size_t>(host.p.mode())])) -
                                         static_cast<double>(load(row[static_cast<std::size_t>(expected)]))) *
                                static_cast<double>(host.on_device.scale);
        INFO("token " << found.token << " at " << mine << ", the host's " << expected << " at " << other);
        CHECK(mine <= other);
        CHECK(other - mine <= 1e-6 + 3e-7 * argument);
    }
    ~tally() { CHECK(static_cast<double>(near_ties) <= 1.0 + 0.001 * static_cast<double>(all)); }
};

transform random_transform(support::dice& roll) {
    transform how;
    double const temperatures[] = {1.0, 0.7, 0.1, 2.5};
    how.temperature = temperatures[roll.below(4)];
    if (roll.chance(0.5)) return how;
    if (roll.chance(0.5)) how.top_k = 1 + static_cast<int>(roll.below(60));
    if (roll.chance(0.5)) how.top_p = roll.between(0.3, 1.0);
    if (roll.chance(0.3)) how.min_p = roll.between(0.0, 0.3);
    return how;
}

template <class T>
void draw_over_rows(std::uint64_t seed, std::size_t size, std::size_t rounds) {
    support::dice roll(seed);
    INFO("seed " << roll.seed() << ", size " << size);
    std::vector<T> rows;
    std::vector<std::vector<T>> each;
    std::vector<device::distribution> distributions;
    std::vector<draw_key> keys;
    std::vector<token_id> likely;
    std::vector<on_host<T>> hosts;
    std::vector<token_id> expected;
    for (std::size_t round = 0; round < rounds; ++round) {
        for (support::row_shape const shape : support::row_shapes) {
            each.push_back(support::random_row<T>(roll, size, shape, roll.chance(0.5)));
            rows.insert(rows.end(), each.back().begin(), each.back().end());
            keys.push_back({roll.bits(), roll.bits(), static_cast<std::uint32_t>(roll.below(1000)), purpose::noise});
        }
    }
    for (std::size_t i = 0; i < each.size(); ++i) {
        hosts.emplace_back(each[i], random_transform(roll));
        distributions.push_back(hosts.back().on_device);
        expected.push_back(gumbel_max(keys[i], hosts.back().p));
        // Nothing, something, the winner.
        std::size_t const hint = roll.below(3);
        likely.push_back(hint == 0 ? no_token : hint == 1 ? static_cast<token_id>(roll.below(size)) : expected.back());
    }
    device_array<T> const d_rows(rows);
    device_array<device::distribution> const d_distributions(distributions);
    device_array<draw_key> const d_keys(keys);
    device_array<token_id> const d_likely(likely);
    unsigned const threads = size < 1000 ? 32 : size < 20000 ? 64 : 256;
    device_array<device::gumbel_winner> d_out(each.size() * threads);
    require_cuda(device::launch(run_draws<T>, dim3(static_cast<unsigned>(each.size())), dim3(threads),
                                sizeof(device::gumbel_shared), nullptr, d_rows.data(), static_cast<std::uint32_t>(size),
                                d_distributions.data(), d_keys.data(), d_likely.data(), d_out.data()));
    auto const out = d_out.download();
    tally results;
    for (std::size_t i = 0; i < each.size(); ++i) {
        INFO("row " << i << " of shape " << i % std::size(support::row_shapes) << ", hint " << likely[i]);
        for (unsigned t = 1; t < threads; ++t) REQUIRE(out[i * threads + t].token == out[i * threads].token);
        results.compare(each[i], hosts[i], keys[i], expected[i], out[i * threads]);
    }
}

}  // namespace

TEST_CASE("Gumbel-max on the device: the host's winners over rows of every format, shape and size") {
    std::uint64_t seed = 100;
    for (std::size_t const size : {1u, 2u, 37u, 128u, 1000u, 1024u, 1025u, 5000u}) {
        draw_over_rows<float>(++seed, size, 8);
        draw_over_rows<bf16>(++seed, size, 8);
        draw_over_rows<half>(++seed, size, 8);
    }
    draw_over_rows<float>(++seed, 33000, 4);
    draw_over_rows<bf16>(++seed, 33000, 4);
    draw_over_rows<half>(++seed, 33000, 4);
}

TEST_CASE("Gumbel-max on the device: parts of a row, put together by a warp") {
    support::dice roll(131);
    INFO("seed " << roll.seed());
    tally results;
    for (std::size_t const size : {5000u, 20000u, 150000u}) {
        auto const row = support::random_row<bf16>(roll, size, support::row_shape::heavy_tail);
        on_host<bf16> const host(row, {.temperature = 0.9});
        draw_key const key{roll.bits(), roll.bits(), 0, purpose::noise};
        auto const share = static_cast<std::uint32_t>(1 + roll.below(5));
        auto const parts = static_cast<std::uint32_t>((row_blocks(size) + share - 1) / share);
        device_array<bf16> const d_row(row);
        device_array<device::gumbel_winner> d_parts(parts);
        device_array<device::gumbel_winner> d_out(device::warp_size);
        require_cuda(device::launch(run_part<bf16>, dim3(parts), dim3(device::warp_size), 0, nullptr, d_row.data(),
                                    static_cast<std::uint32_t>(size), share, host.on_device, key, d_parts.data()));
        require_cuda(device::launch(put_together, dim3(1), dim3(device::warp_size), 0, nullptr, d_parts.data(), parts,
                                    d_out.data()));
        auto const out = d_out.download();
        for (auto const& lane : out) CHECK(lane.token == out.front().token);
        results.compare(row, host, key, gumbel_max(key, host.p), out.front());
    }
}

TEST_CASE("Gumbel-max on the device: listed tokens run for the same exponentials") {
    support::dice roll(132);
    INFO("seed " << roll.seed());
    tally results;
    for (std::size_t const size : {1u, 31u, 32u, 500u}) {
        // A row over 40,000 tokens that is masked but for those listed.
        std::vector<token_id> ids;
        std::vector<float> logits;
        std::vector<float> row(40000, -device::infinity);
        while (ids.size() < size) {
            std::size_t const v = roll.below(row.size());
            if (row[v] > -device::infinity) continue;
            row[v] = static_cast<float>(3.0 * roll.bell());
            ids.push_back(static_cast<token_id>(v));
            logits.push_back(row[v]);
        }
        on_host<float> const host(row, {.temperature = 1.3});
        for (int trial = 0; trial < 5; ++trial) {
            draw_key const key{roll.bits(), roll.bits(), 0, purpose::noise};
            device_array<token_id> const d_ids(ids);
            device_array<float> const d_logits(logits);
            device_array<device::gumbel_winner> d_out(device::warp_size);
            require_cuda(device::launch(run_listed, dim3(1), dim3(device::warp_size), 0, nullptr, d_ids.data(),
                                        d_logits.data(), static_cast<std::uint32_t>(size), host.on_device, key,
                                        d_out.data()));
            results.compare(row, host, key, gumbel_max(key, host.p), d_out.download().front());
        }
    }
}

TEST_CASE(
    "Gumbel-max on the device: a number that is no logit is reported, wherever it stands; a masked row has no winner") {
    support::dice roll(133);
    INFO("seed " << roll.seed());
    float const broken[] = {std::numeric_limits<float>::quiet_NaN(), device::infinity, -device::infinity};
    for (std::size_t const size : {3u, 1100u, 9000u}) {
        for (float const value : broken) {
            for (bool const all : {false, true}) {
                auto row = support::random_row<half>(roll, size, support::row_shape::peaked);
                if (all) {
                    std::fill(row.begin(), row.end(), half(value));
                } else {
                    row[roll.below(size)] = half(value);
                }
                device::distribution on_device{};
                on_device.scale = 1.0f;
                on_device.kind = device::distribution_kind::dense;
                device_array<half> const d_row(row);
                device_array<device::distribution> const d_distribution(std::vector<device::distribution>{on_device});
                device_array<draw_key> const d_key(std::vector<draw_key>{{roll.bits(), 1, 0, purpose::noise}});
                device_array<token_id> const d_likely(std::vector<token_id>{no_token});
                device_array<device::gumbel_winner> d_out(64);
                require_cuda(device::launch(run_draws<half>, dim3(1), dim3(64), sizeof(device::gumbel_shared), nullptr,
                                            d_row.data(), static_cast<std::uint32_t>(size), d_distribution.data(),
                                            d_key.data(), d_likely.data(), d_out.data()));
                auto const out = d_out.download();
                bool const masked = value == -device::infinity;
                CHECK(out[0].invalid == (masked ? 0u : 1u));
                if (masked) CHECK((out[0].token == no_token) == all);
            }
        }
    }
}

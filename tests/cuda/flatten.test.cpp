// SPDX-License-Identifier: MIT
//
// The device's batch is verify_batch's, and the layouts of attention kernels say the same of it.

#include <sureleap/cuda/schedule/schedules.cuh>
#include <sureleap/cuda/verify/flatten.cuh>
#include <sureleap/cuda/verify/padded.cuh>

#include <sureleap/core/workspace.hpp>
#include <sureleap/verify/verify_batch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/support/captured.hpp"
#include "cuda/support/device_rounds.hpp"
#include "cuda/support/seeds.hpp"
#include "support/catch.hpp"
#include "support/dice.hpp"

using namespace sureleap;
namespace device = sureleap::cuda;  // CUDA has a namespace cuda of its own
using support::dice;

namespace {

/// A round with random lengths, on both sides.
struct flat_case {
    device::device_limits limits;
    std::size_t requests;
    std::size_t gamma;
    support::device_rounds device;
    std::vector<request_view> views;
    std::vector<token_id> drafted;
    std::vector<std::uint32_t> lengths;
    std::vector<std::byte> buffer;
    verify_batch batch;

    flat_case(dice& roll, std::size_t most, std::size_t present, std::size_t block_size)
        : limits{static_cast<std::uint32_t>(most), static_cast<std::uint32_t>(block_size), 1000, 0, false},
          requests(present),
          gamma(block_size),
          device(support::round_of(limits)),
          views(present),
          drafted(present * block_size),
          lengths(present) {
        std::vector<token_id> anchors(requests);
        std::vector<std::uint64_t> positions(requests);
        std::uint32_t const most_length = static_cast<std::uint32_t>(roll.chance(0.1) ? 0 : gamma);
        for (token_id& x : drafted) x = static_cast<token_id>(roll.below(1000));
        for (std::size_t r = 0; r < requests; ++r) {
            views[r].anchor = anchors[r] = static_cast<token_id>(roll.below(1000));
            views[r].position = positions[r] = roll.below(roll.chance(0.1) ? 3 : 100000);
            lengths[r] = static_cast<std::uint32_t>(roll.below(most_length + 1));
        }
        device::device_round const& round = device.columns;
        support::upload(round.requests.count, static_cast<std::uint32_t>(requests));
        support::upload(round.requests.anchors, anchors);
        support::upload(round.requests.positions, positions);
        support::upload(round.drafts.tokens, drafted);
        support::upload(round.batch.lengths, lengths);

        workspace sizer;
        static_cast<void>(verify_batch(sizer, requests, gamma));
        buffer.resize(sizer.used());
        workspace ws{buffer};
        batch = verify_batch(ws, requests, gamma);
        batch.begin(views);
        for (std::size_t r = 0; r < requests; ++r) {
            batch.append(std::span<token_id const>(drafted).subspan(r * gamma, lengths[r]));
        }
    }

    [[nodiscard]] std::size_t rows_of(std::size_t r) const { return r < requests ? lengths[r] + 1 : 0; }

    void check_batch() const {
        device::batch_columns const& flat = device.columns.batch;
        auto const offsets = support::download(flat.offsets, limits.requests + 1);
        for (std::size_t r = 0; r <= limits.requests; ++r) {
            REQUIRE(static_cast<std::size_t>(offsets[r]) == batch.offsets()[std::min(r, requests)]);
        }
        auto const same = [&](auto const* column, auto const& expected) {
            auto const found = support::download(column, batch.rows());
            CHECK(std::equal(found.begin(), found.end(), expected.begin(), expected.end()));
        };
        same(flat.tokens, batch.tokens());
        same(flat.positions, batch.positions());
        same(flat.markers, batch.markers());
    }
};

}  // namespace

TEST_CASE("Flatten: random rounds") {
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        dice roll(seed);
        emulator::seed(seed);
        std::size_t const most = seed % 10 == 0 ? 700 : 1 + roll.below(80);
        std::size_t const present = roll.chance(0.3) ? most : roll.below(most + 1);
        std::size_t const gamma = roll.chance(0.2) ? 31 : 1 + roll.below(8);
        INFO("seed " << seed << ", R " << present << " of " << most << ", gamma " << gamma);
        flat_case const made(roll, most, present, gamma);
        support::in_graph([&](cudaStream_t stream) { return device::flatten(made.device.columns, stream); });
        made.check_batch();
    }
}

TEST_CASE("Flatten: 8,192 requests") {
    dice roll(3);
    flat_case const made(roll, 8192, 8192, 3);
    support::carved<device::attention_layout> const layout(
        [&](device::workspace& ws) { return device::carve_attention(ws, made.limits, 0); });
    support::in_graph(
        [&](cudaStream_t stream) { return device::flatten(made.device.columns, {layout.columns, {}}, stream); });
    made.check_batch();
    auto const indptr = support::download(layout.columns.kv_indptr, 8193);
    std::uint64_t keys = 0;
    for (std::size_t r = 0; r < 8192; ++r) keys += made.views[r].position + made.rows_of(r);
    CHECK(static_cast<std::uint64_t>(indptr[8192]) == keys);
}

TEST_CASE("Flatten: layouts of attention kernels") {
    for (std::uint64_t seed = 1; seed <= 30; ++seed) {
        dice roll(seed);
        emulator::seed(seed);
        std::size_t const most = 1 + roll.below(100);
        std::size_t const present = roll.below(most + 1);
        INFO("seed " << seed << ", R " << present << " of " << most);
        std::size_t const gamma = 1 + roll.below(8);
        flat_case const made(roll, most, present, gamma);
        std::uint32_t const page = roll.chance(0.3) ? 1u : static_cast<std::uint32_t>(16 << roll.below(3));
        support::carved<device::attention_layout> const carved(
            [&](device::workspace& ws) { return device::carve_attention(ws, made.limits, page); });
        device::attention_layout const& layout = carved.columns;
        support::in_graph(
            [&](cudaStream_t stream) { return device::flatten(made.device.columns, {layout, {}}, stream); });
        made.check_batch();

        auto const kv_indptr = support::download(layout.kv_indptr, most + 1);
        auto const kv_lengths = support::download(layout.kv_lengths, most);
        auto const page_indptr = support::download(layout.page_indptr, most + 1);
        auto const last_pages = support::download(layout.last_pages, most);
        auto const longest = support::download(layout.longest, 2);
        std::int64_t keys = 0;
        std::int64_t pages = 0;
        std::int64_t most_rows = 0;
        std::int64_t most_keys = 0;
        for (std::size_t r = 0; r < most; ++r) {
            auto const rows = static_cast<std::int64_t>(made.rows_of(r));
            std::int64_t const own = r < present ? static_cast<std::int64_t>(made.views[r].position) + rows : 0;
            CHECK(kv_indptr[r] == keys);
            CHECK(kv_lengths[r] == own);
            CHECK(page_indptr[r] == pages);
            CHECK(last_pages[r] >= 1);
            CHECK(last_pages[r] <= static_cast<std::int64_t>(page));
            std::int64_t const used = (own + page - 1) / page;
            CHECK((used - 1) * page + last_pages[r] == own);
            keys += own;
            pages += used;
            most_rows = std::max(most_rows, rows);
            most_keys = std::max(most_keys, own);
        }
        CHECK(kv_indptr[most] == keys);
        CHECK(page_indptr[most] == pages);
        CHECK(longest ==
              std::vector<std::int32_t>{static_cast<std::int32_t>(most_rows), static_cast<std::int32_t>(most_keys)});
        auto const positions = support::download(layout.positions, made.batch.rows());
        CHECK(std::equal(positions.begin(), positions.end(), made.batch.positions().begin(),
                         [](std::int32_t a, std::uint64_t b) { return a >= 0 && static_cast<std::uint64_t>(a) == b; }));

        // Each of them alone.
        device::attention_layout part{};
        part.longest = layout.longest;
        part.kv_lengths = roll.chance(0.5) ? layout.kv_lengths : nullptr;
        support::upload(layout.longest, std::vector<std::int32_t>{-1, -1});
        require_cuda(device::flatten(made.device.columns, {part, {}}, nullptr));
        made.check_batch();
        CHECK(support::download(layout.longest, 2) == longest);
        CHECK(support::download(layout.kv_lengths, most) == kv_lengths);
    }
}

TEST_CASE("Flatten: captured sizes") {
    for (std::uint64_t seed = 1; seed <= 30; ++seed) {
        dice roll(seed);
        emulator::seed(seed);
        std::size_t const most = 1 + roll.below(60);
        INFO("seed " << seed);
        std::size_t const present = roll.below(most + 1);
        std::size_t const gamma = 1 + roll.below(8);
        flat_case const made(roll, most, present, gamma);
        device::batch_columns const& flat = made.device.columns.batch;
        std::size_t const room = most * (made.gamma + 1);
        std::vector<std::uint32_t> sizes;
        for (std::size_t size = 1; size < (roll.chance(0.2) ? room / 2 : room + 20); size += 1 + roll.below(room)) {
            sizes.push_back(static_cast<std::uint32_t>(size));
        }
        device_array<std::uint32_t> const held(sizes);
        device_array<std::uint32_t> chosen(3);
        std::vector<token_id> const marked(room, -77);
        support::upload(flat.tokens, marked);
        require_cuda(device::flatten(made.device.columns,
                                     {{}, {held.data(), static_cast<std::uint32_t>(sizes.size()), 999, chosen.data()}},
                                     nullptr));
        made.check_batch();
        std::size_t const rows = made.batch.rows();
        auto const fits = std::lower_bound(sizes.begin(), sizes.end(), rows);
        std::size_t const size = fits == sizes.end() ? rows : *fits;
        CHECK(chosen.download() == std::vector<std::uint32_t>{static_cast<std::uint32_t>(rows),
                                                              static_cast<std::uint32_t>(size),
                                                              static_cast<std::uint32_t>(fits - sizes.begin())});
        auto const tokens = support::download(flat.tokens, room);
        auto const positions = support::download(flat.positions, room);
        auto const markers = support::download(flat.markers, room);
        for (std::size_t i = rows; i < room; ++i) {
            CHECK(tokens[i] == (i < size ? 999 : -77));
            if (i >= size) continue;
            CHECK(positions[i] == 0);
            CHECK(markers[i] == most);
        }
    }
}

TEST_CASE("Flatten: in the launch of a schedule") {
    for (std::uint64_t seed = 1; seed <= 9; ++seed) {
        dice roll(seed);
        emulator::seed(seed);
        std::size_t const most = seed % 8 == 0 ? 1100 : seed % 4 == 1 ? 200 + roll.below(700) : 1 + roll.below(40);
        std::size_t const gamma = 1 + roll.below(7);
        INFO("seed " << seed << ", R of " << most << ", gamma " << gamma);
        flat_case const made(roll, most, roll.below(most + 1), gamma);
        device::device_round const& round = made.device.columns;
        std::size_t const rows = most * (gamma + 1);
        std::vector<fixed_probability> survival(made.requests * gamma);
        for (std::size_t i = 0; i < survival.size(); ++i) {
            survival[i] = static_cast<fixed_probability>((gamma - i % gamma) * (1 + i / gamma % 5));
        }
        support::upload(round.requests.weights, std::vector<fixed_probability>(made.requests, certain));
        support::upload(round.drafts.sizes,
                        std::vector<std::uint32_t>(made.requests, static_cast<std::uint32_t>(gamma)));
        support::upload(round.drafts.survival, survival);
        support::carved<device::capacity_table> const capacity(
            [&](device::workspace& ws) { return device::carve_capacity(ws, made.limits); });
        std::vector<double> rates(capacity.columns.size, 1.0);
        for (std::size_t b = 0; b < rates.size(); ++b) rates[b] = 1.0 / static_cast<double>(1000 * most + b);
        support::upload(capacity.columns.steps_per_second, rates);
        support::carved<device::attention_layout> const layout(
            [&](device::workspace& ws) { return device::carve_attention(ws, made.limits, 16); });
        device_array<std::uint32_t> const sizes(std::vector<std::uint32_t>{static_cast<std::uint32_t>(rows)});
        device_array<std::uint32_t> chosen(3);
        device_array<std::uint32_t> const budget(
            std::vector<std::uint32_t>{static_cast<std::uint32_t>(roll.below(made.requests * gamma + 1))});
        device::flat_batch const flat{layout.columns, {sizes.data(), 1, 5, chosen.data()}};

        auto const everything = [&] {
            std::vector<std::int64_t> all;
            auto const add = [&](auto const* column, std::size_t count) {
                for (auto const x : support::download(column, count)) all.push_back(static_cast<std::int64_t>(x));
            };
            add(round.batch.lengths, most);
            add(round.batch.offsets, most + 1);
            add(round.batch.tokens, rows);
            add(round.batch.positions, rows);
            add(round.batch.markers, rows);
            add(layout.columns.kv_indptr, most + 1);
            add(layout.columns.kv_lengths, most);
            add(layout.columns.page_indptr, most + 1);
            add(layout.columns.last_pages, most);
            add(layout.columns.longest, 2);
            add(layout.columns.positions, rows);
            add(chosen.data(), 3);
            return all;
        };
        auto const check_same = [&](auto const& schedule) {
            require_cuda(device::admit(schedule, round, nullptr));
            support::in_graph([&](cudaStream_t stream) { return device::flatten(round, flat, stream); });
            auto const expected = everything();
            support::upload(round.batch.tokens, std::vector<token_id>(rows, -5));
            support::upload(round.batch.lengths, std::vector<std::uint32_t>(most, 77));
            support::upload(round.batch.offsets, std::vector<std::int32_t>(most + 1, -5));
            support::upload(layout.columns.kv_lengths, std::vector<std::int32_t>(most, -5));
            require_cuda(device::admit(schedule, round, flat, nullptr));
            CHECK(everything() == expected);
        };
        check_same(device::greedy_schedule{capacity.columns});
        check_same(device::top_k_schedule{budget.data()});
        check_same(device::top_k_schedule{static_cast<std::uint32_t>(made.requests * gamma / 2)});
        check_same(device::fixed_schedule{2});
    }
}

TEST_CASE("Flatten: the padded view") {
    for (std::uint64_t seed = 1; seed <= 30; ++seed) {
        dice roll(seed);
        emulator::seed(seed);
        std::size_t const most = 1 + roll.below(60);
        std::size_t const present = roll.below(most + 1);
        INFO("seed " << seed);
        std::size_t const gamma = 1 + roll.below(8);
        flat_case const made(roll, most, present, gamma);
        std::size_t const longest =
            made.lengths.empty() ? 0 : *std::max_element(made.lengths.begin(), made.lengths.end());
        std::size_t const width = longest + 1 + roll.below(3);
        support::carved<device::padded_columns> const padded([&](device::workspace& ws) {
            return device::carve_padded(ws, made.limits, static_cast<std::uint32_t>(width), 7);
        });
        support::in_graph(
            [&](cudaStream_t stream) { return device::pad(made.device.columns, padded.columns, stream); });
        std::vector<token_id> expected(most * width, 7);
        made.batch.padded_tokens(width, 7, expected);
        CHECK(support::download(padded.columns.tokens, most * width) == expected);
        auto const positions = support::download(padded.columns.positions, most * width);
        for (std::size_t i = 0; i < most * width; ++i) {
            std::size_t const r = i / width;
            CHECK(static_cast<std::uint64_t>(positions[i]) == (r < present ? made.views[r].position + i % width : 0));
        }
    }
}

TEST_CASE("Flatten: what does not fit is refused") {
    device::device_limits const limits{4, 3, 10, 0, false};
    support::device_rounds const device = support::round_of(limits);
    device_array<std::int32_t> array(8);
    device_array<std::uint32_t> sizes(8);
    auto const refused = [](cudaError_t error) { return error == cudaErrorInvalidValue; };
    CHECK(refused(device::flatten({}, nullptr)));
    device::attention_layout layout{};
    layout.page_indptr = array.data();
    CHECK(refused(device::flatten(device.columns, {layout, {}}, nullptr)));
    CHECK(refused(device::flatten(device.columns, {{}, {sizes.data(), 3, 0, nullptr}}, nullptr)));
    CHECK(refused(device::pad(device.columns, {}, nullptr)));
    CHECK(refused(device::pad(device.columns, {0, 0, array.data(), nullptr}, nullptr)));
    CHECK(refused(device::pad(device.columns, {2, 0, nullptr, nullptr}, nullptr)));
    CHECK(refused(device::pad({}, {2, 0, array.data(), nullptr}, nullptr)));
}

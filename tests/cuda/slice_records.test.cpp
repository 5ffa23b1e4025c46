// SPDX-License-Identifier: MIT
//
// What a rank says of its slice when its logits are on the device is what it says when they are on the host: the same
// largest logits, tokens and winners, and the same sums up to the rounding of exponentials. In rounds where one rank
// has a device and the others have none, all emit the tokens of ranks without one.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <sureleap/cuda/sampling/slice_records.cuh>
#include <sureleap/ranks/sharded_rows.hpp>
#include <sureleap/ranks/slice_row.hpp>
#include <sureleap/ranks/thread_ranks.hpp>
#include <sureleap/ranks/vocabulary_slices.hpp>
#include <sureleap/sampling/slice_records.hpp>
#include <sureleap/verifier.hpp>
#include <sureleap/verify/any.hpp>

#include "cuda/support/device_array.hpp"
#include "cuda/support/rows.hpp"
#include "cuda/support/seeds.hpp"
#include "cuda/support/slice_on_device.hpp"
#include "support/dice.hpp"
#include "support/on_ranks.hpp"
#include "support/sliced_calls.hpp"

using namespace sureleap;
using namespace support;
namespace device = sureleap::cuda;

namespace {

/// Some rows of a slice, and what is asked of them.
template <class T>
struct asked_rows {
    std::vector<std::vector<T>> rows;
    std::vector<float> scales;
    std::vector<token_id> drafted;
    std::vector<draw_key> noise;
};
template <class T>
asked_rows<T> random_rows(dice& roll, std::size_t count, vocabulary_slices const& slices, std::size_t rank) {
    asked_rows<T> out;
    for (std::size_t n = 0; n < count; ++n) {
        out.rows.push_back(
            random_row<T>(roll, slices.size(rank), row_shapes[n % std::size(row_shapes)], roll.chance(0.5)));
        auto& row = out.rows.back();
        if (roll.chance(0.2)) {  // a part without a token
            vocabulary_part const part = slices.parts_of(rank)[roll.below(slices.parts_of(rank).size())];
            for (std::size_t v = 0; v < part.count; ++v) {
                row[part.first - slices.first(rank) + v] = T(-std::numeric_limits<float>::infinity());
            }
        }
        if (roll.chance(0.1)) {
            float const none[]{std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()};
            row[roll.below(row.size())] = T(none[roll.below(2)]);
        }
        float const scales[]{1.0f, 1.25f, 1.0f / 0.7f};
        out.scales.push_back(scales[roll.below(3)]);
        out.drafted.push_back(roll.chance(0.1) ? no_token : static_cast<token_id>(roll.below(slices.vocabulary())));
        out.noise.push_back({.seed = roll.bits(), .position = n, .use = purpose::noise});
    }
    return out;
}

/// exp of an exponent that is rounded, of a size up to `size`. Tables of the host differ by as much.
bool is_near(double a, double b, double size) {
    return std::abs(a - b) <= (2.0 + size) * 0x1p-23 * std::max(std::abs(a), std::abs(b)) + 1e-37;
}
bool is_same(float a, float b) {
    return a == b || (std::isnan(a) && std::isnan(b));
}

template <class T>
void check_row(asked_rows<T> const& asked, std::size_t n, vocabulary_slices const& slices, std::size_t rank,
               device_records const& found) {
    INFO("row " << n << " of rank " << rank << ", a slice of " << slices.size(rank));
    sureleap::detail::slice_row<T> const row{
        asked.rows[n], vocabulary_view::slice(slices.first(rank), slices.size(rank), slices.vocabulary()),
        asked.scales[n], scalar_kernels<row_kernels>.template get<T>()};
    auto const parts = slices.parts_of(rank);
    for (std::size_t i = 0; i < parts.size(); ++i) {
        INFO("part " << i);
        auto const expected = row.sum(parts[i], true);
        slice_part const part = found.parts[n * parts.size() + i];
        CHECK(is_same(part.top, expected.top));
        CHECK(is_near(static_cast<double>(part.sum), expected.sum, 6.0));
    }
    auto const mode = row.mode();
    CHECK(is_same(found.best[n].top, mode.top));
    CHECK(found.best[n].token == mode.token);

    token_id const x = asked.drafted[n];
    bool const is_own = x != no_token && slices.owner(x) == rank;
    slice_drafted const drafted = found.drafted[n];
    CHECK(is_same(drafted.logit, is_own ? row.logit(x) : 0.0f));
    float top = 0.0f;
    if (is_own) top = row.sum(parts[slices.part_of(x) - slices.first_part(rank)], true).top;
    CHECK(is_near(static_cast<double>(drafted.weight), is_own ? static_cast<double>(row.weight(x, top)) : 0.0, 126.0));

    sureleap::detail::race_winner best{};
    for (vocabulary_part const& part : parts) {
        auto const here = row.race(part, asked.noise[n], best.time);
        if (std::isnan(here.time)) {
            best = here;
            break;
        }
        if (here.time < best.time) best = here;
    }
    slice_winner const winner = found.winners[n];
    CHECK(std::isnan(winner.log_time) == std::isnan(best.time));
    if (std::isnan(best.time)) {
        CHECK(winner.token == no_token);
        return;
    }
    CHECK(winner.token == best.token);
    bool const nobody = std::isinf(best.time) && winner.log_time == best.time;
    CHECK((nobody || std::abs(winner.log_time - best.time) < 1e-12 * (1.0 + std::abs(best.time))));
}

}  // namespace

TEMPLATE_TEST_CASE("slice records: the device says what the host says", "", float, bf16, half) {
    dice roll(71);
    struct shape {
        std::size_t vocabulary, ranks, part_size;
    };
    shape const shapes[]{{9000, 2, 4096}, {5000, 1, 1024}, {5000, 3, 2048}, {900, 1, 4096}, {40000, 3, 4096}};
    for (shape const& s : shapes) {
        for (bool const even : {true, false}) {
            // Uneven slices begin within parts.
            auto const slices = even ? vocabulary_slices::even(s.vocabulary, s.ranks, s.part_size)
                                     : uneven_blocks(roll, s.vocabulary, s.ranks, s.part_size);
            for (std::size_t rank = 0; rank < s.ranks; ++rank) {
                if (slices.size(rank) == 0) continue;
                auto const asked = random_rows<TestType>(roll, 12, slices, rank);
                for_each_order(2, [&] {
                    auto const found =
                        records_on_device(asked.rows, slices, rank, asked.scales, asked.drafted, asked.noise);
                    for (std::size_t n = 0; n < asked.rows.size(); ++n) check_row(asked, n, slices, rank, found);
                });
            }
        }
    }
}

namespace {

constexpr std::size_t V = 5000;
constexpr std::size_t drafts_each = 3;
constexpr std::size_t requests = 4;
constexpr std::size_t rows = requests * (drafts_each + 1);

/// Requests with so many drafts each, close to what the target thinks.
template <class T>
struct scene {
    std::vector<T> p;
    std::vector<float> q;
    std::vector<std::int32_t> drafts;
    std::vector<std::int64_t> seeds, positions;
    std::vector<float> temperatures;

    scene(dice& roll, bool greedy) : p(rows * V), q(requests * drafts_each * V) {
        for (auto& l : p) l = T(static_cast<float>(2.0 * roll.bell()));
        for (auto& l : q) l = static_cast<float>(2.0 * roll.bell());
        for (std::size_t r = 0; r < requests; ++r) {
            for (std::size_t k = 0; k < drafts_each; ++k) {
                std::size_t const x = roll.below(V);
                drafts.push_back(static_cast<std::int32_t>(x));
                q[(r * drafts_each + k) * V + x] = 10.0f;
                if (roll.chance(0.3)) continue;  // which the target does not think of
                p[(r * (drafts_each + 1) + k) * V + x] =
                    T(static_cast<float>(9.0 + roll.real() + (roll.chance(0.5) ? 2.0 : 0.0)));
            }
            seeds.push_back(static_cast<std::int64_t>(roll.bits() >> 2));
            positions.push_back(static_cast<std::int64_t>(roll.below(1000)));
            temperatures.push_back(greedy ? 0.0f : r % 2 == 0 ? 1.0f : 0.75f);
        }
    }
    [[nodiscard]] device_records records(vocabulary_slices const& slices, std::size_t rank) const {
        std::vector<std::vector<T>> own;
        std::vector<float> scales;
        std::vector<token_id> drafted;
        std::vector<draw_key> noise;
        for (std::size_t i = 0; i < rows; ++i) {
            std::size_t const r = i / (drafts_each + 1), n = i % (drafts_each + 1);
            auto const first = p.begin() + static_cast<std::ptrdiff_t>(i * V + slices.first(rank));
            own.emplace_back(first, first + static_cast<std::ptrdiff_t>(slices.size(rank)));
            auto const temperature = static_cast<double>(temperatures[r]);
            scales.push_back(temperature == 0.0 ? 1.0f : static_cast<float>(1.0 / temperature));
            drafted.push_back(n < drafts_each ? drafts[r * drafts_each + n] : no_token);
            request_view view{};
            view.seed = static_cast<std::uint64_t>(seeds[r]);
            view.position = static_cast<std::uint64_t>(positions[r]);
            noise.push_back(noise_key(view, n));
        }
        return records_on_device(own, slices, rank, scales, drafted, noise);
    }
};

/// What ranks emit, of which some have records of a device. `blind`: those have no logits on the host.
template <class Edits = no_logits_hook, class T>
std::vector<sliced_outputs> emit(scene<T> const& of, any_rule const& rule, vocabulary_slices const& slices,
                                 std::vector<device_records> const& records, std::vector<bool> const& on_device,
                                 bool blind = false, edit_arrays const& edits = {}) {
    std::size_t const P = slices.ranks();
    thread_ranks threads{P, {.most_bytes = 1 << 18, .seconds = 30.0}};
    std::vector<T> const nothing(of.p.size(), T(std::numeric_limits<float>::quiet_NaN()));
    std::vector<sliced_outputs> out(P, sliced_outputs(requests, drafts_each));
    on_ranks(P, [&](std::size_t rank) {
        auto ranks = threads.of(rank);
        row_shards<T, thread_ranks::rank_type, float, Edits> shards{
            ranks, slices, {.max_requests = requests, .block_size = drafts_each}};
        verifier<T, any_rule, Edits> verify{
            rule,
            {.drafts = {.block_size = drafts_each,
                        .vocabulary = V,
                        .slice = vocabulary_view::slice(slices.first(rank), slices.size(rank), V)},
             .max_requests = requests}};
        auto const& p = blind && on_device[rank] ? nothing : of.p;
        engine_arrays<T> call{
            .requests = requests,
            .target = {p.data() + slices.first(rank), rows, slices.size(rank), V},
            .drafts = of.drafts.data(),
            .draft_stride = drafts_each,
            .q = {.rows = of.q.data() + slices.first(rank), .slot_stride = drafts_each * V, .row_stride = V},
            .positions = of.positions.data(),
            .settings = {.temperature = of.temperatures.data(), .seeds = of.seeds.data()}};
        call.edits = edits;
        call.out = out[rank].arrays();
        static_cast<void>(verify(call, shards, on_device[rank] ? records[rank].view() : slice_records{}));
    });
    return out;
}

}  // namespace

TEMPLATE_TEST_CASE("slice records: rounds emit the same whichever ranks have a device", "", float, bf16) {
    std::vector<std::size_t> const ends{2048, 3072, V};
    vocabulary_slices const slices{ends, 1024};
    any_rule const rules[]{token_rejection<>{}, block_verification<>{}, target_match<>{}, keyed_coupling{},
                           greedy_match{}};
    std::size_t accepted = 0, rejected = 0;
    for (std::uint64_t seed = 0; seed < 3 * std::size(rules); ++seed) {
        INFO("seed " << seed);
        dice roll(seed);
        bool const is_greedy = seed % 5 == 4;
        bool const needs_no_logits = seed % 5 >= 3;
        any_rule const& rule = rules[seed % 5];
        scene<TestType> const of(roll, is_greedy);
        std::vector<device_records> records;
        for (std::size_t rank = 0; rank < slices.ranks(); ++rank) records.push_back(of.records(slices, rank));
        auto const expected = emit(of, rule, slices, records, {false, false, false});
        for (std::size_t r = 0; r < requests; ++r) {
            REQUIRE(expected[0].statuses[r] == 0);
            accepted += static_cast<std::size_t>(expected[0].accepted[r]);
            rejected += expected[0].accepted[r] < static_cast<std::int64_t>(drafts_each) ? 1u : 0u;
        }
        for (std::vector<bool> const& on_device :
             {std::vector{false, true, false}, std::vector{true, false, true}, std::vector{true, true, true}}) {
            CHECK(emit(of, rule, slices, records, on_device, needs_no_logits) == expected);
        }
        // They are what the ranks say: of a slice without a law.
        for (auto& each : records[1].parts) each.top = std::numeric_limits<float>::quiet_NaN();
        for (auto& each : records[1].best) each.top = std::numeric_limits<float>::quiet_NaN();
        for (auto& each : records[1].winners) each.log_time = std::numeric_limits<double>::quiet_NaN();
        for (auto const& out : emit(of, rule, slices, records, {false, true, false})) {
            for (auto const status : out.statuses) CHECK(status == static_cast<std::uint8_t>(status::invalid_target));
        }
    }
    CHECK(accepted > 20);
    CHECK(rejected > 10);
}

TEST_CASE("slice records: rows that are edited on the host are not what the device saw") {
    std::vector<std::size_t> const ends{2048, 3072, V};
    vocabulary_slices const slices{ends, 1024};
    // Of the first request alone, and more than any logit.
    std::vector<std::int64_t> tokens(requests, -1);
    std::vector<float> bias(requests, 0.0f);
    tokens[0] = 2500;
    bias[0] = 40.0f;
    edit_arrays const edits{.bias_tokens = tokens.data(), .bias = bias.data(), .bias_stride = 1};
    any_rule const rules[]{token_rejection<>{}, keyed_coupling{}, greedy_match{}};
    for (std::uint64_t seed = 0; seed < std::size(rules); ++seed) {
        INFO("seed " << seed);
        dice roll(seed);
        scene<float> const of(roll, seed == 2);
        std::vector<device_records> records;
        for (std::size_t rank = 0; rank < slices.ranks(); ++rank) records.push_back(of.records(slices, rank));
        auto const expected = emit<array_edits>(of, rules[seed], slices, records, {false, false, false}, false, edits);
        CHECK(expected[0].tokens[0] == 2500);
        CHECK(emit<array_edits>(of, rules[seed], slices, records, {true, true, true}, false, edits) == expected);
    }
}

TEST_CASE("slice records: what does not fit is refused before anything runs") {
    device_array<float> const logits(4096), scales(1);
    device_array<slice_part> parts(4);
    device_array<slice_best> best(1);
    device::slice_task<float> good{};
    good.logits = {.data = logits.data(), .rows = 1, .stride = 4096};
    good.size = 4096;
    good.scales = scales.data();
    good.parts = parts.data();
    good.best = best.data();
    CHECK(record_slices(good, nullptr) == cudaSuccess);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    auto const refused = [&](auto const& change) {
        auto task = good;
        change(task);
        return record_slices(task, nullptr) == cudaErrorInvalidValue;
    };
    CHECK(refused([](auto& t) { t.first = 512; }));
    CHECK(refused([](auto& t) { t.part_size = 1000; }));
    CHECK(refused([](auto& t) { t.part_size = 0; }));
    CHECK(refused([](auto& t) { t.logits.stride = 4000; }));
    CHECK(refused([](auto& t) { t.logits.data = nullptr; }));
    CHECK(refused([](auto& t) { t.scales = nullptr; }));
    CHECK(refused([](auto& t) { t.parts = nullptr; }));
    CHECK(refused([](auto& t) { t.best = nullptr; }));
    std::vector<token_id> const token{3};
    device_array<token_id> const drafted{token};
    CHECK(refused([&](auto& t) { t.drafted = drafted.data(); }));
    std::vector<draw_key> const key(1);
    device_array<draw_key> const noise{key};
    CHECK(refused([&](auto& t) { t.noise = noise.data(); }));
}

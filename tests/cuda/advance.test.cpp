// SPDX-License-Identifier: MIT
//
// How requests move on: by hand, and beside a decoder on the host, whose rounds the device schedules, flattens and
// moves on with the decoder's drafts and verdicts.

#include <sureleap/cuda/round/advance.cuh>
#include <sureleap/cuda/schedule/schedules.cuh>
#include <sureleap/cuda/verify/flatten.cuh>

#include <sureleap/confidence/estimate.hpp>
#include <sureleap/cost/capacity.hpp>
#include <sureleap/decoder.hpp>
#include <sureleap/drafter/autoregressive.hpp>
#include <sureleap/drafter/context_model.hpp>
#include <sureleap/schedule/greedy.hpp>
#include <sureleap/verify/rejection.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/support/device_rounds.hpp"
#include "cuda/support/seeds.hpp"
#include "support/catch.hpp"
#include "support/dice.hpp"
#include "support/hash_models.hpp"

using namespace sureleap;
namespace device = sureleap::cuda;  // CUDA has a namespace cuda of its own
using support::dice;

namespace {

/// The requests' columns that change, on the host.
struct moving_columns {
    std::vector<token_id> anchors;
    std::vector<std::uint64_t> positions;
    std::vector<std::uint32_t> remaining;
    std::vector<std::uint32_t> min_remaining;

    explicit moving_columns(std::size_t requests)
        : anchors(requests), positions(requests), remaining(requests), min_remaining(requests) {}

    void upload(device::request_columns const& to) const {
        support::upload(to.count, static_cast<std::uint32_t>(anchors.size()));
        support::upload(to.anchors, anchors);
        support::upload(to.positions, positions);
        support::upload(to.remaining, remaining);
        support::upload(to.min_remaining, min_remaining);
    }
    void download(device::request_columns const& from) {
        anchors = support::download(from.anchors, anchors.size());
        positions = support::download(from.positions, positions.size());
        remaining = support::download(from.remaining, remaining.size());
        min_remaining = support::download(from.min_remaining, min_remaining.size());
    }
    void erase(std::size_t r) {
        auto const i = static_cast<std::ptrdiff_t>(r);
        anchors.erase(anchors.begin() + i);
        positions.erase(positions.begin() + i);
        remaining.erase(remaining.begin() + i);
        min_remaining.erase(min_remaining.begin() + i);
    }
    [[nodiscard]] bool operator==(moving_columns const&) const = default;
};

/// What the target of the decoder was asked to score.
struct scored_batch {
    std::vector<std::uint32_t> offsets, markers;
    std::vector<token_id> tokens;
    std::vector<std::uint64_t> positions;

    void copy(verify_batch const& batch) {
        offsets.assign(batch.offsets().begin(), batch.offsets().end());
        markers.assign(batch.markers().begin(), batch.markers().end());
        tokens.assign(batch.tokens().begin(), batch.tokens().end());
        positions.assign(batch.positions().begin(), batch.positions().end());
    }
};

}  // namespace

TEST_CASE("Advance: random verdicts") {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        dice roll(seed);
        emulator::seed(seed);
        std::size_t const requests = seed % 10 == 0 ? 3000 : roll.below(70);
        std::size_t const gamma = 1 + roll.below(31);
        INFO("seed " << seed << ", R " << requests << ", gamma " << gamma);
        device::device_limits const limits{static_cast<std::uint32_t>(requests + 1 + roll.below(3)),
                                           static_cast<std::uint32_t>(gamma), 1000, 0, false};
        support::device_rounds const device = support::round_of(limits);
        device::device_round const& round = device.columns;
        support::carved<device::finished_columns> const finished(
            [&](device::workspace& ws) { return device::carve_finished(ws, limits); });

        moving_columns columns(requests);
        std::vector<status> statuses(requests);
        std::vector<std::uint32_t> emitted(requests);
        std::vector<std::uint8_t> stopped(requests);
        std::vector<token_id> tokens(requests * (gamma + 1));
        for (token_id& x : tokens) x = static_cast<token_id>(roll.below(1000));
        for (std::size_t r = 0; r < requests; ++r) {
            columns.anchors[r] = static_cast<token_id>(roll.below(1000));
            columns.positions[r] = (std::uint64_t{1} << 33) + roll.below(1000);
            bool const over = roll.chance(0.1);
            columns.remaining[r] = over ? 0 : static_cast<std::uint32_t>(1 + roll.below(40));
            columns.min_remaining[r] = static_cast<std::uint32_t>(roll.chance(0.5) ? 0 : roll.below(40));
            statuses[r] = roll.chance(0.1) ? status::invalid_target : status::ok;
            std::size_t const most = std::min<std::size_t>(gamma + 1, columns.remaining[r]);
            emitted[r] = statuses[r] == status::ok && !over ? static_cast<std::uint32_t>(1 + roll.below(most)) : 0;
            stopped[r] = emitted[r] > 0 && roll.chance(0.1);
        }
        columns.upload(round.requests);
        support::upload(round.verdicts.statuses, statuses);
        support::upload(round.verdicts.emitted, emitted);
        support::upload(round.verdicts.stopped, stopped);
        support::upload(round.verdicts.tokens, tokens);

        std::vector<std::uint32_t> ended;
        moving_columns expected = columns;
        for (std::size_t r = 0; r < requests; ++r) {
            if (emitted[r] > 0) {
                expected.anchors[r] = tokens[r * (gamma + 1) + emitted[r] - 1];
                expected.positions[r] += emitted[r];
                expected.min_remaining[r] -= std::min(expected.min_remaining[r], emitted[r]);
                expected.remaining[r] = stopped[r] != 0 ? 0 : expected.remaining[r] - emitted[r];
            }
            if (expected.remaining[r] == 0) ended.push_back(static_cast<std::uint32_t>(r));
        }
        bool const listed = roll.chance(0.7);
        require_cuda(listed ? device::advance(round, finished.columns, nullptr) : device::advance(round, nullptr));
        moving_columns found(requests);
        found.download(round.requests);
        CHECK(found == expected);
        if (!listed) continue;
        CHECK(support::download(finished.columns.count, 1)[0] == ended.size());
        CHECK(support::download(finished.columns.requests, ended.size()) == ended);
    }
}

TEST_CASE("Advance: beside a decoder") {
    constexpr std::size_t vocabulary = 12;
    constexpr std::size_t gamma = 4;
    constexpr std::size_t places = 6;
    analytic_capacity const curve{100.0, 6.0};
    scored_batch scored;
    auto model = support::hash_model<float>(vocabulary, {});
    auto const target = [&](verify_batch const& batch) {
        scored.copy(batch);
        return score(model, batch);
    };
    autoregressive drafter{support::hash_model<float>(vocabulary, {.own = 5, .disagreement = 0.5}),
                           top1_confidence{},
                           {.block_size = gamma, .vocabulary = vocabulary}};
    decoder dec{target, drafter, greedy_schedule{curve}, token_rejection{}, {.max_requests = places, .seed = 7}};

    device::device_limits const limits{places, gamma, vocabulary, 0, false};
    support::device_rounds const device = support::round_of(limits);
    device::device_round const& round = device.columns;
    support::carved<device::capacity_table> const capacity(
        [&](device::workspace& ws) { return device::carve_capacity(ws, limits); });
    support::carved<device::finished_columns> const finished(
        [&](device::workspace& ws) { return device::carve_finished(ws, limits); });
    std::vector<double> rates(capacity.columns.size);
    device::tabulate(curve, rates);
    support::upload(capacity.columns.steps_per_second, rates);

    // Requests of all lengths, some with a stop token, one that drafts little.
    token_id const stop[] = {3};
    std::vector<std::uint32_t> limits_of_drafts;
    moving_columns columns(places);
    std::size_t total = 0;
    for (std::size_t i = 0; i < places; ++i) {
        std::vector<token_id> prompt(1 + i, static_cast<token_id>(i));
        request_settings settings{.temperature = 0.8, .seed = 40 + i, .max_new_tokens = 9 + 5 * i};
        if (i % 2 == 1) settings.stop_tokens = stop;
        if (i == 4) settings.max_draft_tokens = 1;
        static_cast<void>(dec.submit(prompt, settings));
        columns.anchors[i] = prompt.back();
        columns.positions[i] = prompt.size() - 1;
        columns.remaining[i] = static_cast<std::uint32_t>(settings.max_new_tokens);
        limits_of_drafts.push_back(i == 4 ? 1 : 0xffffffffu);
    }

    while (dec.step()) {
        emulator::seed(++total);
        round_record const& record = dec.round();
        std::size_t const requests = record.size();
        REQUIRE(requests == columns.anchors.size());
        columns.upload(round.requests);
        support::upload(round.requests.weights, std::vector<fixed_probability>(requests, certain));
        for (std::size_t r = 0; r < requests; ++r) {
            CHECK(columns.anchors[r] == record.requests[r].anchor);
            CHECK(columns.positions[r] == record.requests[r].position);
            CHECK(columns.remaining[r] == record.requests[r].remaining);
        }

        survival_table const& table = record.survivals;
        support::upload(round.drafts.sizes, table.sizes);
        support::upload(round.drafts.survival, table.survival.first(requests * gamma));
        std::vector<token_id> drafted(requests * gamma, -99);
        std::vector<std::uint32_t> verified;
        std::vector<status> statuses;
        std::vector<std::uint32_t> emitted;
        std::vector<std::uint8_t> stopped;
        std::vector<token_id> tokens(requests * (gamma + 1), -99);
        for (std::size_t r = 0; r < requests; ++r) {
            verdict const& v = record.verdicts[r];
            for (std::size_t k = 0; k < v.verified; ++k)
                drafted[r * gamma + k] = scored.tokens[scored.offsets[r] + 1 + k];
            verified.push_back(static_cast<std::uint32_t>(v.verified));
            statuses.push_back(v.outcome);
            emitted.push_back(static_cast<std::uint32_t>(v.emitted.size()));
            stopped.push_back(v.finished == finish_reason::stop_token ? 1 : 0);
            std::copy(v.emitted.begin(), v.emitted.end(),
                      tokens.begin() + static_cast<std::ptrdiff_t>(r * (gamma + 1)));
        }
        support::upload(round.drafts.tokens, drafted);

        require_cuda(device::admit(device::greedy_schedule{capacity.columns}, round, nullptr));
        CHECK(support::download(round.batch.lengths, requests) == verified);
        require_cuda(device::flatten(round, nullptr));
        std::size_t const rows = scored.tokens.size();
        CHECK(support::download(round.batch.tokens, rows) == scored.tokens);
        CHECK(support::download(round.batch.positions, rows) == scored.positions);
        CHECK(support::download(round.batch.markers, rows) == scored.markers);
        auto const offsets = support::download(round.batch.offsets, requests + 1);
        CHECK(std::equal(offsets.begin(), offsets.end(), scored.offsets.begin(), scored.offsets.end(),
                         [](std::int32_t a, std::uint32_t b) { return a >= 0 && static_cast<std::uint32_t>(a) == b; }));

        support::upload(round.verdicts.statuses, statuses);
        support::upload(round.verdicts.emitted, emitted);
        support::upload(round.verdicts.stopped, stopped);
        support::upload(round.verdicts.tokens, tokens);
        require_cuda(device::advance(round, finished.columns, nullptr));
        columns.download(round.requests);

        // The engine takes out those that are finished; the decoder has done the same.
        auto const ended =
            support::download(finished.columns.requests, support::download(finished.columns.count, 1)[0]);
        for (auto r = ended.rbegin(); r != ended.rend(); ++r) columns.erase(*r);
    }
    CHECK(columns.anchors.empty());
    CHECK(total > 8);
}

TEST_CASE("Advance: what does not fit is refused") {
    device::device_limits const limits{4, 3, 10, 0, false};
    support::device_rounds const device = support::round_of(limits);
    device_array<std::uint32_t> array(4);
    auto const refused = [](cudaError_t error) { return error == cudaErrorInvalidValue; };
    CHECK(refused(device::advance({}, nullptr)));
    CHECK(refused(device::advance(device.columns, {array.data(), nullptr}, nullptr)));
    CHECK(refused(device::advance(device.columns, {nullptr, array.data()}, nullptr)));
}

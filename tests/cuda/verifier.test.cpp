// SPDX-License-Identifier: MIT
//
// verify on the device decides what the host's verifier decides, in layouts that are thrown for: all rules, storage
// formats and kinds of q, with edits and without. A request may differ where the host says that a decision lay within
// rounding. What does not fit is refused before anything is launched. Fifteen seconds.
#include <sureleap/cuda/round/verifier.cuh>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include <sureleap/verifier.hpp>
#include <sureleap/verify/any.hpp>

#include "cuda/support/captured.hpp"
#include "cuda/support/device_array.hpp"
#include "cuda/support/seeds.hpp"
#include "cuda/support/verify_round.hpp"
#include "support/catch.hpp"
#include "support/engine_scene.hpp"

using namespace sureleap;
using namespace support;

namespace {

template <class... X>
using on_device = device_array<X...>;

constexpr std::size_t likeliest = 3;

/// What both say of a call.
struct outputs {
    std::vector<std::int64_t> tokens, next;
    std::vector<std::int32_t> counts, accepted;
    std::vector<float> logs, top_logs;
    std::vector<std::int32_t> ranks, top;
    std::vector<std::uint8_t> statuses, finished;
};

template <class Rule, class T, class Edits>
void check_layout(std::uint64_t seed, engine_shape const& shape, tally& sum) {
    INFO("seed " << seed);
    constexpr bool edited = std::is_same_v<Edits, array_edits>;
    dice roll(seed);
    std::size_t const R = 1 + roll.below(5);
    std::vector<plain_request<T>> requests;
    for (std::size_t r = 0; r < R; ++r) requests.push_back(random_request<T>(roll, shape));
    std::uint64_t const layout = roll.bits();
    bool const raw = roll.chance(0.3);
    std::size_t const width = shape.block_size + 1;

    auto const on_host = [&](auto const& rng, outputs const& of) {
        outputs out = of;
        dice again(layout);
        laid_out<T, std::vector> arrays(again, shape, requests);
        arrays.call.out = verified_arrays{.tokens = out.tokens.data(),
                                          .counts = out.counts.data(),
                                          .accepted = out.accepted.data(),
                                          .next_anchors = out.next.data(),
                                          .statuses = out.statuses.data(),
                                          .finished = out.finished.data(),
                                          .log_probabilities = out.logs.data(),
                                          .ranks = out.ranks.data(),
                                          .top_tokens = out.top.data(),
                                          .top_log_probabilities = out.top_logs.data()};
        verifier<T, Rule, Edits, float, std::remove_cvref_t<decltype(rng)>> verify{
            {},
            {.drafts = {.block_size = shape.block_size,
                        .vocabulary = shape.vocabulary,
                        .probabilities = shape.probabilities(),
                        .listed = shape.listed()},
             .max_requests = R,
             .stop_tokens = scene_stops,
             .log_probabilities = true,
             .raw = raw,
             .ranks = true,
             .likeliest = likeliest,
             .kernels = &scalar_kernels<row_kernels>},  // which make sums, as devices do, and no bounds of them
            rng};
        static_cast<void>(verify(arrays.call));
        return out;
    };
    outputs const empty{.tokens = std::vector<std::int64_t>(R * width, 7),
                        .next = std::vector<std::int64_t>(R, 7),
                        .counts = std::vector<std::int32_t>(R, 7),
                        .accepted = std::vector<std::int32_t>(R, 7),
                        .logs = std::vector<float>(R * width, 7),
                        .top_logs = std::vector<float>(R * width * likeliest, 7),
                        .ranks = std::vector<std::int32_t>(R * width, 7),
                        .top = std::vector<std::int32_t>(R * width * likeliest, 7),
                        .statuses = std::vector<std::uint8_t>(R, 77),
                        .finished = std::vector<std::uint8_t>(R, 77)};
    outputs const host = on_host(philox_randomness{}, empty);
    std::map<std::uint64_t, double> margins;

    // The device, in a memory that is larger than it need be.
    dice again(layout);
    laid_out<T, on_device> arrays(again, shape, requests);
    device::verifier_limits const limits{.round = {.requests = static_cast<std::uint32_t>(R + 1),
                                                   .block_size = static_cast<std::uint32_t>(shape.block_size),
                                                   .vocabulary = static_cast<std::uint32_t>(shape.vocabulary),
                                                   .stop_tokens = scene_stops,
                                                   .log_probabilities = true},
                                         .listed = static_cast<std::uint32_t>(shape.listed()),
                                         .probabilities = shape.probabilities(),
                                         .edits = edited,
                                         .biases = edited ? static_cast<std::uint32_t>(scene_biases) : 0,
                                         .raw = raw,
                                         .likeliest = likeliest};
    device::workspace sizer;
    static_cast<void>(device::carve_verifier(sizer, limits));
    device_array<unsigned char> buffer(sizer.used());
    device::workspace ws{buffer.data(), buffer.size()};
    device::verifier_memory const memory = device::carve_verifier(ws, limits);
    REQUIRE(memory.ready());
    device_array<std::int64_t> tokens(R * width), next(R);
    device_array<std::int32_t> counts(R), accepted(R);
    device_array<float> logs(R * width), top_logs(R * width * likeliest);
    device_array<std::int32_t> ranks(R * width), top(R * width * likeliest);
    device_array<std::uint8_t> statuses(R), finished(R);
    arrays.call.out = verified_arrays{.tokens = tokens.data(),
                                      .counts = counts.data(),
                                      .accepted = accepted.data(),
                                      .next_anchors = next.data(),
                                      .statuses = statuses.data(),
                                      .finished = finished.data(),
                                      .log_probabilities = logs.data(),
                                      .ranks = ranks.data(),
                                      .top_tokens = top.data(),
                                      .top_log_probabilities = top_logs.data()};
    require_cuda(device::verify<Rule, Edits>(arrays.call, memory, nullptr));
    outputs const out{tokens.download(),   next.download(),     counts.download(), accepted.download(),
                      logs.download(),     top_logs.download(), ranks.download(),  top.download(),
                      statuses.download(), finished.download()};

    ++sum.rounds;
    for (std::size_t r = 0; r < R; ++r) {
        INFO("request " << r << " of " << R);
        ++sum.requests;
        sum.tokens += static_cast<std::size_t>(host.counts[r]);
        sum.accepted += static_cast<std::size_t>(host.accepted[r]);
        sum.refused += host.counts[r] == 0 ? 1u : 0u;
        bool same = host.counts[r] == out.counts[r];
        for (std::size_t k = 0; k < width; ++k) same = same && host.tokens[r * width + k] == out.tokens[r * width + k];
        if (!same) {
            if (margins.empty()) static_cast<void>(on_host(narrowest{&margins}, empty));
            CHECK(margins[static_cast<std::uint64_t>(requests[r].seed)] < rounding);
            sum.differing += static_cast<std::size_t>(host.counts[r]);
            continue;
        }
        CHECK(host.accepted[r] == out.accepted[r]);
        CHECK(host.next[r] == out.next[r]);
        CHECK(static_cast<int>(host.statuses[r]) == static_cast<int>(out.statuses[r]));
        CHECK(static_cast<int>(host.finished[r]) == static_cast<int>(out.finished[r]));
        for (std::size_t k = 0; k < width; ++k) {
            float const expected = host.logs[r * width + k];
            float const log = out.logs[r * width + k];
            CHECK(std::isnan(expected) == std::isnan(log));
            if (!std::isnan(expected)) CHECK(std::abs(expected - log) <= 1e-4f * (1.0f + std::abs(expected)));
            CHECK(host.ranks[r * width + k] == out.ranks[r * width + k]);
            for (std::size_t j = 0; j < likeliest; ++j) {
                std::size_t const i = (r * width + k) * likeliest + j;
                CHECK(host.top[i] == out.top[i]);
                CHECK(std::isnan(host.top_logs[i]) == std::isnan(out.top_logs[i]));
                if (host.top[i] == no_token) continue;
                CHECK(std::abs(host.top_logs[i] - out.top_logs[i]) <= 1e-4f * (1.0f + std::abs(host.top_logs[i])));
            }
        }
    }
}

/// `formats`: all that logits are stored in, or one with edits and one without.
template <class Rule, bool formats = false>
void check_layouts(std::uint64_t first, bool greedy = false) {
    tally sum;
    std::size_t const vocabularies[]{40, 70, 1100, 3000};
    for (std::uint64_t i = 0; i < rounds_of(80); ++i) {
        std::uint64_t const seed = first + i;
        engine_shape const shape{.vocabulary = vocabularies[i / 10 % 4],
                                 .q = static_cast<q_kind>(i % 5),
                                 .edits = i % 2 == 1,
                                 .greedy = greedy};
        if constexpr (formats) {
            if (i % 3 == 0 && shape.edits) check_layout<Rule, float, array_edits>(seed, shape, sum);
            if (i % 3 == 0 && !shape.edits) check_layout<Rule, bf16, no_logits_hook>(seed, shape, sum);
            if (i % 3 == 1 && shape.edits) check_layout<Rule, half, array_edits>(seed, shape, sum);
            if (i % 3 == 1 && !shape.edits) check_layout<Rule, half, no_logits_hook>(seed, shape, sum);
            if (i % 3 != 2) continue;
        }
        if (shape.edits) {
            check_layout<Rule, bf16, array_edits>(seed, shape, sum);
        } else {
            check_layout<Rule, float, no_logits_hook>(seed, shape, sum);
        }
    }
    sum.check();
    CHECK(sum.accepted > 0);
}

/// A call of two requests that is right, and memory for it.
struct plain_call {
    static constexpr std::size_t V = 40;
    static constexpr std::size_t gamma = 2;
    device_array<float> p{std::vector<float>(2 * (gamma + 1) * V, 0.0f)};
    device_array<float> q{std::vector<float>(2 * gamma * V, 0.0f)};
    device_array<std::int32_t> drafts{1, 2, 3, 4};
    device_array<std::int64_t> seeds{5, 6}, positions{7, 8};
    device_array<std::int64_t> tokens{std::vector<std::int64_t>(2 * (gamma + 1), 7)};
    device_array<std::int32_t> counts{7, 7};
    device_array<std::uint8_t> statuses{77, 77};
    engine_arrays<float> arrays{.requests = 2,
                                .target = {p.data(), 2 * (gamma + 1), V},
                                .drafts = drafts.data(),
                                .draft_stride = gamma,
                                .q = {.rows = q.data(), .slot_stride = gamma * V, .row_stride = V},
                                .positions = positions.data(),
                                .settings = {.seeds = seeds.data()},
                                .out = {.tokens = tokens.data(), .counts = counts.data(), .statuses = statuses.data()}};
    device::verifier_limits limits{.round = {.requests = 2, .block_size = gamma, .vocabulary = V}};
    device_array<unsigned char> buffer{};
    device::verifier_memory memory{};

    plain_call() {
        device::workspace sizer;
        static_cast<void>(device::carve_verifier(sizer, limits));
        buffer = device_array<unsigned char>(sizer.used());
        device::workspace ws{buffer.data(), buffer.size()};
        memory = device::carve_verifier(ws, limits);
    }
};

}  // namespace

TEST_CASE("cuda verifier: what the host's decides, token rejection", "[cuda]") {
    check_layouts<token_rejection<>, true>(1000);
}
TEST_CASE("cuda verifier: what the host's decides, block verification", "[cuda]") {
    check_layouts<block_verification<>>(2000);
}
TEST_CASE("cuda verifier: what the host's decides, target match", "[cuda]") {
    check_layouts<target_match<>>(3000);
}
TEST_CASE("cuda verifier: what the host's decides, keyed coupling", "[cuda]") {
    check_layouts<keyed_coupling>(4000);
}
TEST_CASE("cuda verifier: what the host's decides, greedy match", "[cuda]") {
    check_layouts<greedy_match>(5000, true);
}

TEST_CASE("cuda verifier: what does not fit is refused", "[cuda]") {
    using change = void (*)(plain_call&);
    change const mistakes[]{
        [](plain_call& c) { c.arrays.requests = 3; },
        [](plain_call& c) { c.arrays.target.data = nullptr; },
        [](plain_call& c) { c.arrays.target.cols = 39; },
        [](plain_call& c) { c.arrays.target.stride = 39; },
        [](plain_call& c) { c.arrays.settings.seeds = {}; },
        [](plain_call& c) { c.arrays.positions = {}; },
        [](plain_call& c) { c.arrays.q.row_stride = 39; },
        [](plain_call& c) { c.arrays.q.listed = c.drafts.data(); },
        [](plain_call& c) { c.arrays.settings.stop_tokens = c.drafts.data(), c.arrays.settings.stop_stride = 1; },
        [](plain_call& c) { c.arrays.edits.bitmask = c.drafts.data(), c.arrays.edits.bitmask_stride = 2; },
        [](plain_call& c) { c.arrays.out.log_probabilities = c.p.data(); },
        [](plain_call& c) { c.arrays.out.ranks = c.counts.data(); },
        [](plain_call& c) { c.arrays.parents = c.drafts.data(); },
        [](plain_call& c) { c.memory = {}; },
    };
    std::size_t i = 0;
    for (change const make : mistakes) {
        INFO("mistake " << i++);
        plain_call wrong;
        make(wrong);
        CHECK(device::verify<token_rejection<>>(wrong.arrays, wrong.memory, nullptr) == cudaErrorInvalidValue);
        CHECK(wrong.counts.download() == std::vector<std::int32_t>{7, 7});
    }
    plain_call right;
    CHECK(device::verify<token_rejection<>, array_edits>(right.arrays, right.memory, nullptr) ==
          cudaErrorInvalidValue);  // memory is made for none
    CHECK(device::verify<token_rejection<>>(right.arrays, right.memory, nullptr) == cudaSuccess);
    std::vector<std::int32_t> const counts = right.counts.download();
    CHECK((counts[0] > 0 && counts[1] > 0));
}

TEST_CASE("cuda verifier: arrays that point beside the rows, or say too much, are brought into range", "[cuda]") {
    plain_call call;
    device_array<std::int64_t> const row_begin{4, 9, 12};  // there are six rows
    device_array<float> const odd{-1.0f, NAN};
    device_array<double> const outside{0.0, 7.0};
    call.arrays.row_begin = row_begin.data();
    call.arrays.settings.temperature = odd.data();
    call.arrays.settings.top_p = outside.data();
    call.arrays.settings.min_p = outside.data();
    require_cuda(device::verify<block_verification<>>(call.arrays, call.memory, nullptr));
    auto const none = static_cast<std::uint8_t>(status::invalid_target);
    CHECK(call.statuses.download() == std::vector<std::uint8_t>{none, none});
    CHECK(call.counts.download() == std::vector<std::int32_t>{0, 0});
    call.arrays.row_begin = {};
    require_cuda(device::verify<block_verification<>>(call.arrays, call.memory, nullptr));
    CHECK(call.statuses.download() == std::vector<std::uint8_t>{0, 0});
    CHECK(call.tokens.download()[0] == 0);  // greedy, and all are level
}

TEST_CASE("cuda verifier: normalisers of q are believed, and what none can be excludes the draft", "[cuda]") {
    plain_call call;
    double const level = std::log(40.0);  // of 40 logits of 0
    device_array<double> const given{level, static_cast<double>(NAN), level, level + 30.0};
    call.arrays.q.log_normalisers = given.data();
    require_cuda(device::verify<token_rejection<>>(call.arrays, call.memory, nullptr));
    auto const ended = static_cast<std::uint8_t>(status::invalid_draft);
    CHECK(call.statuses.download() == std::vector<std::uint8_t>{ended, 0});
    CHECK(call.counts.download()[0] == 2);  // p is q: the first draft is taken, and a token of p follows
    CHECK(call.counts.download()[1] == 3);  // so is the second one of the other: its q is nearly 0
    CHECK(call.tokens.download()[0] == 1);
}

TEST_CASE("cuda verifier: a captured call takes the number of its requests from memory", "[cuda]") {
    plain_call call;
    device_array<std::int32_t> count{2};
    call.arrays.count = count.data();
    captured const graph(
        [&](cudaStream_t stream) { return device::verify<token_rejection<>>(call.arrays, call.memory, stream); });
    graph.replay();
    auto const both = call.tokens.download();
    for (std::int32_t const n : {1, 0, -3, 9}) {
        call.counts.upload({7, 7});
        count.upload({n});
        graph.replay();
        auto const counts = call.counts.download();
        CHECK((counts[0] == 7) == (n <= 0));
        CHECK((counts[1] == 7) == (n <= 1));
    }
    CHECK(call.tokens.download() == both);
}

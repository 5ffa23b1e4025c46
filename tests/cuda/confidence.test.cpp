// SPDX-License-Identifier: MIT
//
// Confidences on the device against the host's: heads of every format with and without Markov embedding, calibrations,
// plans at the anchor, and stored reference values.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <sureleap/confidence/estimate.hpp>
#include <sureleap/cuda/confidence/top1.cuh>
#include <sureleap/sampling/distribution.hpp>
#include <sureleap/schedule/planning.hpp>

#include "cuda/support/captured.hpp"
#include "cuda/support/head_world.hpp"
#include "support/safetensors.hpp"

using namespace head_world;

namespace {

/// c(r, k, previous) for given tokens, by a block of any number of warps; all threads must agree.
template <class Confidence>
__global__ void ask(Confidence c, token_id const* previous, double const* peaks, std::uint32_t gamma, double* out,
                    unsigned* disagree) {
    std::uint32_t const i = blockIdx.x;
    double const mine = c(i / gamma, i % gamma, previous[i], gpu::position_statistics{peaks[i]}, nullptr);
    if (threadIdx.x == 0) out[i] = mine;
    __syncthreads();
    if (detail::bits_as<std::uint64_t>(mine) != detail::bits_as<std::uint64_t>(out[i])) atomicAdd(disagree, 1u);
}

template <class Confidence, class U>
std::vector<double> confidences_of(Confidence const& c, gpu::forward_view<U> const& forward,
                                   round_on_device const& round, std::vector<token_id> const& previous,
                                   std::vector<double> const& peaks) {
    device_array<token_id> const tokens(previous);
    device_array<double> const known(peaks);
    device_array<double> out(previous.size());
    device_array<unsigned> disagree(std::vector<unsigned>{0});
    support::in_graph([&](cudaStream_t stream) { return c.prepare(forward, round.get(), stream); });
    require_cuda(gpu::launch(ask<Confidence>, dim3(static_cast<unsigned>(previous.size())), dim3(96), 0, nullptr, c,
                             tokens.data(), known.data(), round.get().limits.block_size, out.data(), disagree.data()));
    CHECK(disagree.download()[0] == 0);
    return out.download();
}

/// What `c` plans for the requests, and what the host's confidence does.
template <class Confidence, class Host>
void compare_plans(Confidence const& c, round_on_device const& round, requests const& asked, double bound,
                   Host const& host) {
    auto const count = static_cast<std::uint32_t>(asked.views.size());
    std::uint32_t const gamma = round.get().limits.block_size;
    device_array<std::uint32_t> sizes(count);
    device_array<fixed_probability> survival(count * gamma);
    support::in_graph([&](cudaStream_t stream) {
        return gpu::plan_at_anchor(c, round.get(), {sizes.data(), survival.data()}, stream);
    });
    auto const size = sizes.download();
    auto const got = survival.download();
    sureleap::workspace sizer;
    static_cast<void>(planning_memory::carve(sizer, count, gamma));
    std::vector<std::byte> bytes(sizer.used());
    sureleap::workspace ws{bytes};
    auto memory = planning_memory::carve(ws, count, gamma);
    memory.start(asked.views);
    for (std::size_t r = 0; r < count; ++r) {
        INFO("request " << r);
        memory.begin(r);
        for (std::size_t k = 0; k < asked.views[r].draft_cap(gamma); ++k) {
            if (!memory.append(r, host(r, k))) break;
        }
        REQUIRE(size[r] == memory.sizes[r]);
        for (std::size_t k = 0; k < size[r]; ++k) {
            // A product of factors that are off by `bound` each, and rounded down one by one.
            std::size_t const i = r * gamma + k;
            double const difference = static_cast<double>(got[i]) - static_cast<double>(memory.survival[i]);
            REQUIRE(std::abs(difference) * 0x1p-24 <= static_cast<double>(k + 1) * (bound + 0x1p-24));
        }
    }
}

}  // namespace

TEMPLATE_TEST_CASE("cuda: confidences are the host's, live and at the anchor", "[emulated]", (std::pair<bf16, bf16>),
                   (std::pair<half, half>), (std::pair<float, float>), (std::pair<bf16, float>),
                   (std::pair<float, bf16>)) {
    using W = typename TestType::first_type;
    using U = typename TestType::second_type;
    support::dice roll(7401);
    INFO("seed " << roll.seed());
    for (sizes const& of : {sizes{50, 16, 24}, sizes{33, 48, 19, 3}, sizes{70, 64, 1}, sizes{40, 256, 1032, 8}}) {
        for (bool const markov : {true, false}) {
            INFO("rank " << of.rank << ", d " << of.hidden << (markov ? ", with Markov embedding" : ""));
            constexpr std::uint32_t gamma = 6;
            constexpr std::uint32_t count = 7;
            // What float sums of some thousand terms of this size may differ by, through a sigmoid, which quarters it.
            constexpr double bound = 4e-7;
            gpu::device_limits const limits{count + 2, gamma, static_cast<std::uint32_t>(of.vocabulary)};
            weights<W> const w(roll, of);
            matrix<U> hidden(roll, limits.requests * gamma, of.hidden, 1.0, of.gap);
            hidden.values[(3 * gamma + 2) * hidden.stride] = U(std::numeric_limits<float>::quiet_NaN());
            hidden.there.upload(hidden.values);
            requests const asked(roll, count, of.vocabulary);
            round_on_device round(limits);
            round.write(asked.there);
            std::vector<token_id> previous;
            for (std::size_t i = 0; i < count * gamma; ++i) {
                previous.push_back(i % gamma == 0 ? asked.views[i / gamma].anchor
                                                  : static_cast<token_id>(roll.below(of.vocabulary)));
            }
            std::vector<double> const peaks(previous.size(), 0.5);

            matrix_view<W> const row{w.confidence.values.data(), 1, of.hidden + (markov ? of.rank : 0)};
            confidence_head const host =
                markov ? confidence_head<W>{row, 0.125f, w.w1.host()} : confidence_head<W>{row, 0.125f};
            gpu::confidence_head<W> there{w.confidence.there.data(), static_cast<std::uint32_t>(of.hidden), 0.125f,
                                          markov ? w.w1.device() : matrix_view<W>{}};
            gpu::workspace sizer;
            there.take(sizer, limits);
            device_array<unsigned char> bytes(sizer.used());
            gpu::workspace ws{bytes.data(), bytes.size()};
            there.take(ws, limits);
            if (markov)
                support::in_graph([&](cudaStream_t stream) { return gpu::mean_confidence_term(there, stream); });
            std::vector<std::vector<float>> h;
            for (std::size_t i = 0; i < previous.size(); ++i) {
                h.emplace_back();
                for (U const& x : hidden.host().row(i)) h.back().push_back(load(x));
            }
            std::vector<logit_scaling> maps(gamma);
            for (logit_scaling& m : maps) m = {roll.between(0.5, 2.0), roll.between(-1.0, 1.0)};
            maps[1] = {};
            device_array<logit_scaling> const maps_there(maps);
            std::vector<logit_scaling> own(count * gamma);
            for (logit_scaling& m : own) m = {roll.between(0.5, 2.0), roll.between(-1.0, 1.0)};
            device_array<logit_scaling> const own_there(own);
            gpu::calibrated const scaled{there, maps_there.data()};
            gpu::calibrated const by_request{scaled, own_there.data(), gamma};  // maps over maps
            static_assert(gpu::device_confidence<std::remove_const_t<decltype(by_request)>>);

            gpu::forward_view<U> const forward{{}, hidden.device()};
            auto const plain = confidences_of(there, forward, round, previous, peaks);
            auto const mapped = confidences_of(scaled, forward, round, previous, peaks);
            auto const twice = confidences_of(by_request, forward, round, previous, peaks);
            for (std::size_t i = 0; i < previous.size(); ++i) {
                INFO("row " << i);
                std::size_t const k = i % gamma;
                auto const c = static_cast<double>(host(h[i], previous[i], k));
                if (c != c) {
                    REQUIRE((plain[i] != plain[i] && mapped[i] != mapped[i] && twice[i] != twice[i]));
                    continue;
                }
                double const once = maps[k].of_confidence(c);
                REQUIRE(std::abs(plain[i] - c) <= bound);
                REQUIRE(std::abs(mapped[i] - once) <= 2 * bound);  // a temperature of 1/2 doubles differences
                REQUIRE(std::abs(twice[i] - own[i].of_confidence(once)) <= 4 * bound);
                if (k == 1) REQUIRE(mapped[i] == plain[i]);
            }
            auto const at_anchor = [&](std::size_t r, std::size_t k) {
                return static_cast<double>(host.at_anchor(h[r * gamma + k], asked.views[r].anchor, k));
            };
            compare_plans(there, round, asked, bound, at_anchor);
            compare_plans(scaled, round, asked, 2 * bound,
                          [&](std::size_t r, std::size_t k) { return maps[k].of_confidence(at_anchor(r, k)); });

            // Behind an anchor that is no token nothing is drafted, so nothing is planned.
            auto foreign = asked.there;
            foreign[0].anchor = -200;
            foreign[4].anchor = static_cast<token_id>(of.vocabulary);
            device_array<std::uint32_t> planned(limits.requests);
            device_array<fixed_probability> survival(std::size_t{limits.requests} * gamma);
            auto const sizes_of = [&](auto const& all) {
                round.write(all);
                support::in_graph([&](cudaStream_t stream) {
                    return gpu::plan_at_anchor(there, round.get(), {planned.data(), survival.data()}, stream);
                });
                auto sizes = planned.download();
                sizes.resize(count);
                return sizes;
            };
            auto expected = sizes_of(asked.there);
            expected[0] = expected[4] = 0;
            REQUIRE(sizes_of(foreign) == expected);
        }
    }
}

TEST_CASE("cuda: confidences without a head", "[emulated]") {
    support::dice roll(7402);
    INFO("seed " << roll.seed());
    constexpr std::uint32_t gamma = 3;
    requests const asked(roll, 4, 20);
    round_on_device round({4, gamma, 20});
    round.write(asked.there);
    std::vector<token_id> const previous(4 * gamma, 1);
    std::vector<double> peaks;
    for (std::size_t i = 0; i < previous.size(); ++i) peaks.push_back(roll.real());
    peaks[4] = std::numeric_limits<double>::quiet_NaN();
    device_array<double> const base(peaks);
    gpu::forward_view<float> const forward{};
    gpu::planned_top1_confidence c{};
    c.base_top1 = base.data();
    c.block_size = gamma;
    auto const live = confidences_of(c, forward, round, previous, peaks);
    for (std::size_t i = 0; i < live.size(); ++i) {
        CHECK(detail::bits_as<std::uint64_t>(live[i]) == detail::bits_as<std::uint64_t>(peaks[i]));
    }
    compare_plans(c, round, asked, 0.0, [&](std::size_t r, std::size_t k) { return peaks[r * gamma + k]; });
}

TEMPLATE_TEST_CASE("cuda: plans by base logits alone are the host's", "[emulated]", float, bf16, half) {
    using U = TestType;
    support::dice roll(7404);
    INFO("seed " << roll.seed());
    for (std::uint32_t const vocabulary : {1u, 30u, 1024u, 2333u}) {
        INFO("V " << vocabulary);
        constexpr std::uint32_t gamma = 3;
        constexpr std::uint32_t count = 8;
        constexpr float inf = std::numeric_limits<float>::infinity();
        matrix<U> base(roll, count * gamma, vocabulary, 4.0, roll.below(9));
        for (std::size_t i = 0; i < count * gamma; ++i) {
            auto const row = base.values.begin() + static_cast<std::ptrdiff_t>(i * base.stride);
            if (i % 7 == 2) std::fill(row, row + vocabulary, U(-inf));
            if (i % 7 == 4) row[static_cast<std::ptrdiff_t>(roll.below(vocabulary))] = U(roll.chance(0.5) ? inf : -inf);
            if (i % 7 == 6) row[static_cast<std::ptrdiff_t>(roll.below(vocabulary))] = U(inf - inf);
        }
        base.there.upload(base.values);
        requests const asked(roll, count, vocabulary, vocabulary > 1000);
        round_on_device round({count, gamma, vocabulary});
        round.write(asked.there);
        device_array<double> peaks(count * gamma);
        support::in_graph(
            [&](cudaStream_t stream) { return gpu::base_top1(base.device(), peaks.data(), round.get(), stream); });
        gpu::planned_top1_confidence c{};
        c.base_top1 = peaks.data();
        c.block_size = gamma;
        std::vector<token_id> order(vocabulary);
        compare_plans(c, round, asked, 2e-6, [&](std::size_t r, std::size_t k) {
            logits_row<U> const row{base.host().row(r * gamma + k), std::nullopt, {}};
            distribution<U> const q{row, asked.settings[r].draft_transform(), order, {}, scalar_kernels<row_kernels>};
            return q.valid() ? q.peak() : std::numeric_limits<double>::quiet_NaN();
        });
    }
}

TEST_CASE("cuda: a confidence head against stored values", "[emulated][golden]") {
    golden::file const f("confidence_head");
    auto const floats = [&](char const* name) {
        auto const t = f.f64(name);
        return std::vector<float>(t.values.begin(), t.values.end());
    };
    auto const hidden = f.f64("hidden");
    auto const w1 = f.f64("w1");
    auto const count = static_cast<std::uint32_t>(hidden.dim(0));
    auto const gamma = static_cast<std::uint32_t>(hidden.dim(1));
    std::size_t const d = hidden.dim(2);
    device_array<float> const hidden_there(floats("hidden"));
    device_array<float> const w1_there(floats("w1"));
    auto const previous = f.i32("prev_tokens");
    std::vector<token_id> const tokens(previous.values.begin(), previous.values.end());
    gpu::device_limits const limits{count, gamma, static_cast<std::uint32_t>(w1.dim(0))};
    round_on_device round(limits);
    round.write(std::vector<device_request>(count));
    for (std::string const variant : {"with_markov", "plain"}) {
        INFO(variant);
        device_array<float> const weight(floats((variant + ".weight").c_str()));
        gpu::confidence_head<float> c{
            weight.data(), static_cast<std::uint32_t>(d), static_cast<float>(f.f64(variant + ".bias")[0]),
            variant == "plain" ? matrix_view<float>{} : matrix_view<float>{w1_there.data(), w1.dim(0), w1.dim(1)}};
        gpu::workspace sizer;
        c.take(sizer, limits);
        device_array<unsigned char> bytes(sizer.used());
        gpu::workspace ws{bytes.data(), bytes.size()};
        c.take(ws, limits);
        gpu::forward_view<float> const forward{{}, {hidden_there.data(), count * gamma, d}};
        auto const got = confidences_of(c, forward, round, tokens, std::vector<double>(tokens.size()));
        auto const expected = f.f64(variant + ".c");
        for (std::size_t i = 0; i < got.size(); ++i) {
            INFO("row " << i);
            CHECK(std::abs(got[i] - expected[i]) <= 1e-5);
        }
    }
}

TEST_CASE("cuda: confidences that do not fit are refused", "[emulated]") {
    support::dice roll(7403);
    gpu::device_limits const limits{2, 3, 20};
    round_on_device round(limits);
    round.write(std::vector<device_request>(2));
    weights<float> const w(roll, {20, 16, 8});
    matrix<float> const hidden(roll, 6, 8, 1.0);
    device_array<float> memory(7);
    gpu::confidence_head<float> const good{w.confidence.there.data(), 8, 0.0f, w.w1.device(), 3, memory.data(),
                                           memory.data() + 6};
    gpu::forward_view<float> const forward{{}, hidden.device()};
    require_cuda(good.prepare(forward, round.get(), nullptr));
    auto const refused = [](cudaError_t e) { return e == cudaErrorInvalidValue; };
    CHECK(refused(good.prepare(forward, {}, nullptr)));
    CHECK(refused(good.prepare(gpu::forward_view<float>{}, round.get(), nullptr)));
    CHECK(refused(good.prepare(gpu::forward_view<float>{{}, {hidden.there.data(), 5, 8}}, round.get(), nullptr)));
    CHECK(refused(good.prepare(gpu::forward_view<float>{{}, {hidden.there.data(), 6, 7}}, round.get(), nullptr)));
    auto bad = good;
    bad.hidden_terms = nullptr;
    CHECK(refused(bad.prepare(forward, round.get(), nullptr)));
    bad = good;
    bad.block_size = 2;
    CHECK(refused(bad.prepare(forward, round.get(), nullptr)));
    bad = good;
    bad.mean_term = nullptr;
    CHECK(refused(gpu::mean_confidence_term(bad, nullptr)));
    device_array<std::uint32_t> columns(14);
    gpu::survival_columns const plan{columns.data(), columns.data() + 8};
    CHECK_FALSE(refused(gpu::plan_at_anchor(good, round.get(), plan, nullptr)));
    CHECK(refused(gpu::plan_at_anchor(bad, round.get(), plan, nullptr)));
    CHECK(refused(gpu::plan_at_anchor(good, round.get(), {}, nullptr)));
    CHECK(refused(gpu::plan_at_anchor(good, {}, plan, nullptr)));
}

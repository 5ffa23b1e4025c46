// SPDX-License-Identifier: MIT
//
// Chains over shortlists, drawn on the device, against the host's semi_autoregressive with shortlist_head: the same
// lists wherever the tokens before are the same, distributions and confidences up to rounding, tokens with the same
// keys.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <sureleap/cuda/drafter/shortlist.cuh>
#include <sureleap/head/shortlist.hpp>

#include "cuda/support/captured.hpp"
#include "cuda/support/head_world.hpp"
#include "cuda/support/seeds.hpp"

using namespace head_world;

namespace {

/// weights of listed_draft_rows, of every token by both members.
struct weights_shared {
    float of_block[1024];
};
__global__ void read_weights(gpu::listed_draft_rows rows, gpu::draft_columns drafts, std::uint32_t gamma,
                             std::uint32_t vocabulary, float* by_block, float* by_token) {
    auto& s = gpu::shared_memory<weights_shared>();
    std::uint32_t const i = blockIdx.x;
    if (i % gamma >= drafts.sizes[i / gamma]) return;
    gpu::distribution const q = drafts.distributions[i];
    for (std::uint32_t first = 0; first < vocabulary; first += 1024) {
        __syncthreads();
        rows.weights(i / gamma, i % gamma, q, first / 1024, s.of_block);
        __syncthreads();
        for (std::uint32_t j = threadIdx.x; j < 1024 && first + j < vocabulary; j += blockDim.x) {
            by_block[i * vocabulary + first + j] = s.of_block[j];
        }
    }
    for (std::uint32_t v = gpu::warp_index(); v < vocabulary; v += blockDim.x / gpu::warp_size) {
        float const w = rows.weight(i / gamma, i % gamma, q, static_cast<token_id>(v));
        if (gpu::lane_index() == 0) by_token[i * vocabulary + v] = w;
    }
}

enum class rows_are { smooth, rough, broken, truncated };
struct setting {
    sizes of;
    std::uint32_t best;
    std::uint32_t successors;
};

template <class W, class U, class DraftRule>
void check(support::dice& roll, setting const& how, std::string const& kind, rows_are what, tally& seen) {
    constexpr std::uint32_t gamma = 4;
    constexpr std::uint32_t count = 5;
    auto const vocabulary = static_cast<std::uint32_t>(how.of.vocabulary);
    gpu::device_limits const limits{count + 1, gamma, vocabulary, 1};
    INFO(kind << ", V " << vocabulary << ", rank " << how.of.rank << ", d " << how.of.hidden << ", best " << how.best
              << ", successors " << how.successors
              << (what == rows_are::rough    ? ", rough"
                  : what == rows_are::broken ? ", broken"
                                             : ""));
    weights<W> w(roll, how.of);
    std::size_t const rows = limits.requests * gamma;
    matrix<U> hidden(roll, rows, how.of.hidden, 1.0, how.of.gap);
    matrix<U> base(roll, rows, vocabulary, 3.0, how.of.gap);
    if (what == rows_are::rough) {  // ties, and few finite logits
        for (U& l : base.values) l = U(std::round(load(l)));
        for (U& l : base.values) l = roll.chance(0.9) ? U(-std::numeric_limits<float>::infinity()) : l;
        base.there.upload(base.values);
    }
    if (what == rows_are::broken) {
        constexpr float inf = std::numeric_limits<float>::infinity();
        float const bad[] = {std::numeric_limits<float>::quiet_NaN(), inf, -inf};
        auto const row = [&](std::size_t i) {
            return base.values.begin() + static_cast<std::ptrdiff_t>(i * base.stride);
        };
        std::fill(row(1), row(2), U(bad[0]));
        std::fill(row(gamma), row(gamma + 1), U(bad[2]));
        for (std::size_t v = 0; v < vocabulary; ++v)
            row(3 * gamma + 1)[static_cast<std::ptrdiff_t>(v)] = U(bad[roll.below(3)]);
        for (U& l : base.values) l = roll.chance(0.002) ? U(bad[0]) : l;
        hidden.values[(4 * gamma + 1) * hidden.stride] = U(bad[0]);
        base.there.upload(base.values);
        hidden.there.upload(hidden.values);
    }
    fixed_probability const floor = roll.chance(0.5) ? 0 : static_cast<fixed_probability>(roll.below(certain / 20));
    device_array<fixed_probability> const floor_there(std::vector<fixed_probability>{floor});
    auto const table = random_successors(roll, vocabulary, how.successors);
    device_array<token_id> const table_there(table);
    requests asked(roll, count, vocabulary, what == rows_are::truncated);
    for (std::size_t r = 0; r < count; ++r) {
        std::size_t const row = r * gamma + roll.below(gamma);
        if (roll.chance(0.3)) asked.end_at_mode<U>(r, std::span(base.values).subspan(row * base.stride, vocabulary));
    }
    if (what == rows_are::rough) {  // nothing is drafted behind these
        asked.there[2].anchor = asked.views[2].anchor = -200;
        asked.there[4].anchor = asked.views[4].anchor = static_cast<token_id>(vocabulary);
    }
    round_on_device round(limits);
    round.write(asked.there);

    confidence_head const c{w.confidence.host(), 0.25f, w.w1.host()};
    gpu::confidence_head<W> c_there{w.confidence.there.data(), static_cast<std::uint32_t>(how.of.hidden), 0.25f,
                                    w.w1.device()};
    gpu::workspace counted;
    c_there.take(counted, limits);
    device_array<unsigned char> c_memory(counted.used());
    gpu::workspace c_space{c_memory.data(), c_memory.size()};
    c_there.take(c_space, limits);

    w.with_head(kind, limits, [&](auto const& head, auto const& head_there) {
        matrix_view<token_id> const next{table.data(), how.successors == 0 ? 0u : vocabulary, how.successors};
        shortlist_head const listed{head, how.best, next};
        auto const forward = [&](std::span<request_view const>) {
            return block_forward<U>{hidden.host(), {base.host(), {}, {}}};
        };
        semi_autoregressive drafter{
            forward, listed, c,
            drafter_options{.block_size = gamma, .vocabulary = vocabulary, .hidden_size = how.of.hidden}};
        host_drafts const host{DraftRule{}, drafter, asked.views, floor};

        gpu::shortlist_head list{head_there, how.best,
                                 how.successors == 0
                                     ? matrix_view<token_id>{}
                                     : matrix_view<token_id>{table_there.data(), vocabulary, how.successors}};
        gpu::workspace sizer;
        static_cast<void>(gpu::carve_shortlist(sizer, limits, gpu::shape_of(list)));
        device_array<unsigned char> bytes(sizer.used());
        gpu::workspace ws{bytes.data(), bytes.size()};
        auto const memory = gpu::carve_shortlist(ws, limits, gpu::shape_of(list));
        REQUIRE(memory.ready());
        REQUIRE(memory.lists.capacity == listed.capacity());
        gpu::forward_view<U> const there{base.device(), hidden.device()};
        support::in_graph([&](cudaStream_t stream) {
            return gpu::draw_chain<DraftRule>(list, c_there, there, memory, round.get(), stream,
                                              floor == 0 ? nullptr : floor_there.data());
        });
        device_drafts const device(round.get(), count);
        compare(host.block, device, asked.views, 2e-5, seen);

        // Lists, and weights over them, wherever the tokens before are the same.
        auto const lists = round_on_device::read(memory.lists.tokens, rows * memory.lists.capacity);
        auto const lengths = round_on_device::read(memory.lists.counts, rows);
        device_array<float> by_block(std::size_t{count} * gamma * vocabulary);
        device_array<float> by_token(by_block.size());
        require_cuda(gpu::launch(read_weights, dim3(count * gamma), dim3(96), sizeof(weights_shared), nullptr,
                                 gpu::draft_rows_of(memory), round.get().drafts, gamma, vocabulary, by_block.data(),
                                 by_token.data()));
        auto const weights_of_blocks = by_block.download();
        auto const weights_of_tokens = by_token.download();
        for (std::size_t r = 0; r < count; ++r) {
            for (std::size_t k = 0; k < std::min<std::size_t>(host.block.size(r), device.sizes[r]); ++k) {
                INFO("request " << r << ", position " << k);
                std::size_t const i = r * gamma + k;
                auto const& q = host.block.laws(r)[k];
                if (auto const support = q.support(); !support.empty()) {
                    auto const first = lists.begin() + static_cast<std::ptrdiff_t>(i * memory.lists.capacity);
                    REQUIRE(std::vector<token_id>(first, first + lengths[i]) ==
                            std::vector<token_id>(support.begin(), support.end()));
                    for (token_id v = 0; v < static_cast<token_id>(vocabulary); ++v) {
                        std::size_t const at = i * vocabulary + static_cast<std::size_t>(v);
                        REQUIRE(weights_of_blocks[at] == weights_of_tokens[at]);
                        double const p = static_cast<double>(weights_of_tokens[at]) / device.distributions[i].total;
                        REQUIRE(std::abs(p - q.probability(v)) <= 2e-5 * (q.probability(v) + 1e-9));
                    }
                }
                if (device.tokens[i] != host.block.tokens(r)[k]) break;
            }
        }
    });
}

}  // namespace

TEST_CASE("cuda: what a chain over shortlists cannot take is refused", "[emulated]") {
    support::dice roll(7202);
    gpu::device_limits const limits{2, 3, 40};
    round_on_device round(limits);
    round.write(std::vector<device_request>(2));
    weights<float> const w(roll, {40, 16, 8});
    matrix<float> const base(roll, 6, 40, 1.0);
    gpu::shortlist_head const good{gpu::markov_head<float>{w.w1.device(), w.w2.device()}, 8};
    gpu::workspace sizer;
    CHECK_FALSE(gpu::carve_shortlist(sizer, limits, gpu::shape_of(good)).ready());
    device_array<unsigned char> bytes(sizer.used());
    gpu::workspace ws{bytes.data(), bytes.size()};
    auto const memory = gpu::carve_shortlist(ws, limits, gpu::shape_of(good));
    gpu::workspace small{bytes.data(), bytes.size() - 1};
    gpu::forward_view<float> const forward{base.device(), {}};
    auto const refused = [&](auto const& list, gpu::forward_view<float> const& f, gpu::shortlist_memory const& m,
                             gpu::device_round const& in) {
        return gpu::draw_chain<categorical_draft>(list, gpu::no_confidence{}, f, m, in, nullptr) ==
               cudaErrorInvalidValue;
    };
    CHECK_FALSE(refused(good, forward, memory, round.get()));
    CHECK(refused(good, forward, gpu::carve_shortlist(small, limits, gpu::shape_of(good)), round.get()));
    CHECK(refused(good, forward, memory, {}));
    CHECK(refused(good, {{base.there.data(), 5, 40}, {}}, memory, round.get()));
    CHECK(refused(good, {{base.there.data(), 6, 39}, {}}, memory, round.get()));
    CHECK(refused(good, {{nullptr, 6, 40}, {}}, memory, round.get()));
    auto bad = good;
    bad.best = 9;  // not what the memory was made for
    CHECK(refused(bad, forward, memory, round.get()));
    bad.best = 0;
    CHECK(refused(bad, forward, memory, round.get()));
    bad = good;
    bad.head.w2.stride = 17;  // rows at odd addresses
    CHECK(refused(bad, forward, memory, round.get()));
}

TEMPLATE_TEST_CASE("cuda: chains over shortlists are the host's", "[emulated]", (std::pair<bf16, bf16>),
                   (std::pair<float, float>), (std::pair<half, half>), (std::pair<bf16, float>)) {
    using W = typename TestType::first_type;
    using U = typename TestType::second_type;
    support::dice roll(7201);
    INFO("seed " << roll.seed());
    tally seen;
    for (std::string const kind : {"markov", "gated", "rnn"}) {
        check<W, U, categorical_draft>(roll, {{300, 16, 24}, 20, 7}, kind, rows_are::smooth, seen);
        check<W, U, categorical_draft>(roll, {{97, 48, 19, 3}, 97, 0}, kind, rows_are::smooth, seen);
        check<W, U, categorical_draft>(roll, {{1300, 64, 40}, 40, 300}, kind, rows_are::rough, seen);
        check<W, U, argmax_draft>(roll, {{200, 16, 8}, 1, 3}, kind, rows_are::rough, seen);
        check<W, U, categorical_draft>(roll, {{150, 16, 8}, 1, 0}, kind, rows_are::smooth, seen);
        check<W, U, categorical_draft>(roll, {{150, 16, 8}, 30, 11}, kind, rows_are::broken, seen);
        check<W, U, categorical_draft>(roll, {{400, 16, 8}, 200, 20}, kind, rows_are::truncated, seen);
        check<W, U, coupled_draft>(roll, {{400, 16, 8}, 100, 20}, kind, rows_are::truncated, seen);
        check<W, U, coupled_draft>(roll, {{400, 16, 8}, 50, 20}, kind, rows_are::smooth, seen);
    }
    for_each_order(rounds_of(6), [&] {
        check<W, U, categorical_draft>(roll, {{120, 16, 8}, 30, 9}, "rnn", rows_are::truncated, seen);
    });
    check<W, U, categorical_draft>(roll, {{700, 256, 72}, 350, 30}, "rnn", rows_are::smooth, seen);
    INFO("differ " << seen.differ << " of " << seen.tokens << ", confidence " << seen.confidence << ", probability "
                   << seen.probability);
    CHECK(seen.differ <= 1 + seen.tokens / 1000);
    CHECK(seen.confidence <= 4e-6);
    CHECK(seen.probability <= 2e-5);
    CHECK(seen.tokens > 100);
}

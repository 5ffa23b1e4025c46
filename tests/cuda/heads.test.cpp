// SPDX-License-Identifier: MIT
//
// Gated and RNN heads on the device. Products with hidden states are compared with sums in double, codes with the
// host's heads token for token, and whole chains with the host's drafter. All of it is compared with stored reference
// values.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <sureleap/cuda/drafter/chain.cuh>
#include <sureleap/cuda/drafter/shortlist.cuh>

#include "cuda/support/captured.hpp"
#include "cuda/support/head_world.hpp"
#include "support/safetensors.hpp"

using namespace head_world;

TEMPLATE_TEST_CASE("cuda::hidden_terms: products in any format, shape and alignment", "[emulated]",
                   (std::pair<bf16, bf16>), (std::pair<half, half>), (std::pair<float, float>),
                   (std::pair<bf16, float>), (std::pair<float, half>)) {
    using W = typename TestType::first_type;
    using U = typename TestType::second_type;
    support::dice roll(7301);
    INFO("seed " << roll.seed());
    struct shape {
        std::uint32_t requests, gamma;
        std::size_t outputs, hidden, gap, skipped;
    };
    for (shape const& s :
         {shape{1, 1, 1, 1, 0, 0}, shape{3, 5, 48, 24, 0, 0}, shape{4, 7, 70, 200, 8, 8}, shape{13, 5, 130, 64, 0, 16},
          shape{3, 7, 48, 19, 5, 3}, shape{2, 4, 33, 72, 0, 3}, shape{5, 3, 16, 328, 1, 0}}) {
        INFO(s.requests << " x " << s.gamma << " rows, " << s.outputs << " outputs, d " << s.hidden << ", gap " << s.gap
                        << ", " << s.skipped << " columns before");
        std::size_t const rows = (s.requests + 1) * s.gamma;
        matrix<W> const wide(roll, s.outputs, s.skipped + s.hidden, 1.0, s.gap);
        matrix<W> const bias(roll, 1, s.outputs, 1.0);
        matrix<U> const hidden(roll, rows, s.hidden, 1.0, s.gap);
        round_on_device round({s.requests + 1, s.gamma, 10});
        round.write(std::vector<device_request>(s.requests));
        device_array<float> out(rows * s.outputs);
        auto const untouched = out.download();
        matrix_view<W> const part{wide.there.data() + s.skipped, s.outputs, s.hidden, wide.stride};
        support::in_graph([&](cudaStream_t stream) {
            return gpu::hidden_terms(part, bias.there.data(), hidden.device(), out.data(), round.get(), stream);
        });
        auto const got = out.download();
        for (std::size_t i = 0; i < rows; ++i) {
            for (std::size_t n = 0; n < s.outputs; ++n) {
                INFO("row " << i << ", output " << n);
                if (i >= s.requests * s.gamma) {
                    REQUIRE(detail::bits_as<std::uint32_t>(got[i * s.outputs + n]) ==
                            detail::bits_as<std::uint32_t>(untouched[i * s.outputs + n]));
                    continue;
                }
                double sum = static_cast<double>(load(bias.values[n]));
                double size = std::abs(sum);
                for (std::size_t j = 0; j < s.hidden; ++j) {
                    double const term = static_cast<double>(load(wide.host().row(n)[s.skipped + j])) *
                                        static_cast<double>(load(hidden.host().row(i)[j]));
                    sum += term;
                    size += std::abs(term);
                }
                REQUIRE(std::abs(static_cast<double>(got[i * s.outputs + n]) - sum) <= 2e-6 * size);
            }
        }
    }
}

namespace {

struct codes_shared {
    alignas(16) float z[gpu::most_rank];
};
/// The codes of given tokens, a block a request.
template <class Head>
__global__ void make_codes(Head head, token_id const* previous, std::uint32_t gamma, std::uint32_t rank, float* codes) {
    auto& s = gpu::shared_memory<codes_shared>();
    auto* const scratch = reinterpret_cast<float*>(&s + 1);
    for (std::uint32_t k = 0; k < gamma; ++k) {
        std::size_t const i = blockIdx.x * gamma + k;
        head.code(blockIdx.x, k, previous[i], s.z, scratch);
        for (std::uint32_t j = threadIdx.x; j < rank; j += blockDim.x) codes[i * rank + j] = s.z[j];
        __syncthreads();
    }
}

template <class Head, class U>
std::vector<float> codes_of(Head const& head, gpu::forward_view<U> const& forward, round_on_device const& round,
                            std::vector<token_id> const& previous, std::uint32_t threads) {
    device_array<token_id> const there(previous);
    std::uint32_t const gamma = round.get().limits.block_size;
    auto const rank = static_cast<std::uint32_t>(head.w1.cols);
    device_array<float> codes(previous.size() * rank);
    support::in_graph([&](cudaStream_t stream) { return head.prepare(forward, round.get(), stream); });
    require_cuda(gpu::launch(make_codes<Head>, dim3(static_cast<unsigned>(previous.size()) / gamma), dim3(threads),
                             sizeof(codes_shared) + head.shared_size() * sizeof(float), nullptr, head, there.data(),
                             gamma, rank, codes.data()));
    return codes.download();
}

}  // namespace

TEMPLATE_TEST_CASE("cuda: codes of heads are the host's", "[emulated]", (std::pair<bf16, bf16>),
                   (std::pair<half, half>), (std::pair<float, float>), (std::pair<bf16, float>)) {
    using W = typename TestType::first_type;
    using U = typename TestType::second_type;
    support::dice roll(7302);
    INFO("seed " << roll.seed());
    for (sizes const& of : {sizes{40, 16, 24}, sizes{90, 48, 19, 3}, sizes{50, 64, 64, 8}, sizes{33, 256, 40}}) {
        for (std::string const kind : {"markov", "gated", "rnn"}) {
            constexpr std::uint32_t gamma = 5;
            constexpr std::uint32_t count = 3;
            weights<W> w(roll, of);
            matrix<U> const hidden(roll, count * gamma, of.hidden, 1.0, of.gap);
            requests const asked(roll, count, of.vocabulary);
            round_on_device round({count, gamma, static_cast<std::uint32_t>(of.vocabulary)});
            round.write(asked.there);
            std::vector<token_id> previous;
            for (std::size_t i = 0; i < count * gamma; ++i)
                previous.push_back(static_cast<token_id>(roll.below(of.vocabulary)));
            w.with_head(kind, round.get().limits, [&](auto const& head, auto const& there) {
                static_assert(gpu::device_head<std::remove_cvref_t<decltype(there)>>);
                gpu::forward_view<U> const forward{{}, hidden.device()};
                auto const codes = codes_of(there, forward, round, previous, roll.chance(0.5) ? 256 : 96);
                std::vector<float> state(head.state_size());
                for (std::size_t i = 0; i < count * gamma; ++i) {
                    INFO(kind << ", rank " << of.rank << ", d " << of.hidden << ", row " << i);
                    if (i % gamma == 0) head.reset(state);
                    std::vector<float> h;
                    for (std::size_t j = 0; j < head.hidden_size(); ++j) h.push_back(load(hidden.host().row(i)[j]));
                    auto const z = head.code(state, h, previous[i]);
                    for (std::size_t j = 0; j < of.rank; ++j) REQUIRE(std::abs(codes[i * of.rank + j] - z[j]) <= 3e-6f);
                }
            });
        }
    }
}

TEMPLATE_TEST_CASE("cuda: chains with gated and RNN heads are the host's", "[emulated]", (std::pair<bf16, bf16>),
                   (std::pair<half, float>), (std::pair<float, float>)) {
    using W = typename TestType::first_type;
    using U = typename TestType::second_type;
    support::dice roll(7303);
    INFO("seed " << roll.seed());
    tally seen;
    for (sizes const& of : {sizes{300, 16, 24}, sizes{517, 48, 19, 3}, sizes{200, 256, 40}}) {
        for (std::string const kind : {"gated", "rnn"}) {
            constexpr std::uint32_t gamma = 4;
            constexpr std::uint32_t count = 6;
            INFO(kind << ", V " << of.vocabulary << ", rank " << of.rank);
            auto const vocabulary = static_cast<std::uint32_t>(of.vocabulary);
            gpu::device_limits const limits{count + 1, gamma, vocabulary};
            weights<W> w(roll, of);
            matrix<U> const hidden(roll, limits.requests * gamma, of.hidden, 1.0, of.gap);
            matrix<U> const base(roll, limits.requests * gamma, vocabulary, 3.0);
            requests const asked(roll, count, vocabulary);
            round_on_device round(limits);
            round.write(asked.there);
            w.with_head(kind, limits, [&](auto const& head, auto const& head_there) {
                auto const forward = [&](std::span<request_view const>) {
                    return block_forward<U>{hidden.host(), {base.host(), {}, {}}};
                };
                semi_autoregressive drafter{
                    forward, head, top1_confidence{},
                    drafter_options{.block_size = gamma, .vocabulary = vocabulary, .hidden_size = of.hidden}};
                host_drafts const host{categorical_draft{}, drafter, asked.views};
                gpu::workspace sizer;
                static_cast<void>(gpu::carve_chain(sizer, limits, gpu::shape_of(head_there)));
                device_array<unsigned char> bytes(sizer.used());
                gpu::workspace ws{bytes.data(), bytes.size()};
                auto const memory = gpu::carve_chain(ws, limits, gpu::shape_of(head_there));
                gpu::forward_view<U> const there{base.device(), hidden.device()};
                support::in_graph([&](cudaStream_t stream) {
                    return gpu::draw_chain<categorical_draft>(head_there, gpu::top1_confidence{}, there, memory,
                                                              round.get(), stream);
                });
                compare(host.block, device_drafts(round.get(), count), asked.views, 1e-4, seen);
            });
        }
    }
    INFO("differ " << seen.differ << " of " << seen.tokens << ", confidence " << seen.confidence << ", probability "
                   << seen.probability);
    CHECK(seen.differ <= 1 + seen.tokens / 1000);
    CHECK(seen.confidence <= 1e-4);
    CHECK(seen.probability <= 1e-4);
    CHECK(seen.tokens > 50);
}

namespace {

/// Stored weights as floats on both sides, with columns or rows of zeros up to what the device's ranks allow. Parts of
/// rows and columns grow each by themselves: J has three parts of rows and [s ; e] and h in its columns.
struct padded {
    std::vector<float> values;
    std::size_t rows = 0;
    std::size_t cols = 0;
    device_array<float> there;

    padded(golden::tensor<double> const& t, std::size_t parts, std::vector<std::pair<std::size_t, std::size_t>> columns,
           std::size_t part_rows) {
        std::size_t const stored = t.shape.size() > 1 ? t.dim(1) : 1;
        std::size_t const stored_rows = t.dim(0) / parts;
        rows = parts * part_rows;
        for (auto const& [from, to] : columns) cols += to;
        values.assign(rows * cols, 0.0f);
        for (std::size_t p = 0; p < parts; ++p) {
            for (std::size_t i = 0; i < stored_rows; ++i) {
                std::size_t source = (p * stored_rows + i) * stored;
                std::size_t target = (p * part_rows + i) * cols;
                for (auto const& [from, to] : columns) {
                    for (std::size_t j = 0; j < from; ++j)
                        values[target + j] = static_cast<float>(t.values[source + j]);
                    source += from;
                    target += to;
                }
            }
        }
        there = device_array<float>(values);
    }
    [[nodiscard]] matrix_view<float> device() const { return {there.data(), rows, cols}; }
};

template <class Head>
void check_golden(golden::file const& f, Head head, padded const& w2) {
    auto const stored_hidden = f.f64("hidden");
    auto const stored_base = f.f64("base_logits");
    auto const count = static_cast<std::uint32_t>(stored_base.dim(0));
    auto const gamma = static_cast<std::uint32_t>(stored_base.dim(1));
    auto const vocabulary = static_cast<std::uint32_t>(stored_base.dim(2));
    padded const hidden({{count * gamma, stored_hidden.dim(2)}, stored_hidden.values}, 1,
                        {{stored_hidden.dim(2), stored_hidden.dim(2)}}, count * gamma);
    padded const base({{count * gamma, vocabulary}, stored_base.values}, 1, {{vocabulary, vocabulary}}, count * gamma);
    gpu::device_limits const limits{count, gamma, vocabulary};
    device_array<unsigned char> memory(1 << 16);
    if constexpr (requires(gpu::workspace& ws) { head.take(ws, limits); }) {
        gpu::workspace ws{memory.data(), memory.size()};
        head.take(ws, limits);
        REQUIRE(ws.fits());
    }
    round_on_device round(limits);
    auto const first = f.i32("first_prev");
    std::vector<device_request> asked(count);
    for (std::size_t r = 0; r < count; ++r) {
        asked[r].anchor = first.at(r);
        asked[r].draft.temperature = 0.0;
    }
    round.write(asked);
    gpu::forward_view<float> const forward{base.device(), hidden.device()};

    // Teacher forcing.
    auto const previous = f.i32("prev_tokens");
    auto const codes = codes_of(head, forward, round, {previous.values.begin(), previous.values.end()}, 128);
    auto const bias = f.f64("bias");
    for (std::size_t i = 0; i < std::size_t{count} * gamma; ++i) {
        for (std::size_t v = 0; v < vocabulary; ++v) {
            double sum = 0.0;
            for (std::size_t j = 0; j < w2.cols; ++j) {
                sum += static_cast<double>(w2.values[v * w2.cols + j]) * static_cast<double>(codes[i * w2.cols + j]);
            }
            INFO("row " << i << ", token " << v);
            CHECK(std::abs(sum - bias[i * vocabulary + v]) <= 1e-5 * std::max(1.0, std::abs(bias[i * vocabulary + v])));
        }
    }

    // Greedy blocks, over lists of all tokens, which record their logits.
    gpu::shortlist_head const list{head, vocabulary};
    gpu::workspace sizer;
    static_cast<void>(gpu::carve_shortlist(sizer, limits, gpu::shape_of(list)));
    device_array<unsigned char> bytes(sizer.used());
    gpu::workspace ws{bytes.data(), bytes.size()};
    auto const lists = gpu::carve_shortlist(ws, limits, gpu::shape_of(list));
    support::in_graph([&](cudaStream_t stream) {
        return gpu::draw_chain<categorical_draft>(list, gpu::no_confidence{}, forward, lists, round.get(), stream);
    });
    auto const tokens = round_on_device::read(round.get().drafts.tokens, std::size_t{count} * gamma);
    auto const logits = round_on_device::read(lists.logits, std::size_t{count} * gamma * vocabulary);
    auto const greedy = f.i32("greedy_tokens");
    auto const expected = f.f64("greedy_logits");
    CHECK(tokens == std::vector<token_id>(greedy.values.begin(), greedy.values.end()));
    for (std::size_t i = 0; i < logits.size(); ++i) {
        CHECK(std::abs(static_cast<double>(logits[i]) - expected[i]) <= 1e-5 * std::max(1.0, std::abs(expected[i])));
    }
}

}  // namespace

TEST_CASE("cuda: sequential heads against stored values", "[emulated][golden]") {
    constexpr std::size_t rank = 16;  // of the device
    golden::file const vanilla("markov_vanilla");
    golden::file const gate("markov_gated");
    golden::file const joint("markov_rnn");
    auto const table = [rank](golden::file const& f, std::string const& name) {
        auto const t = f.f64(name);
        return padded(t, 1, {{t.dim(1), rank}}, t.dim(0));
    };
    std::size_t const d = gate.f64("hidden").dim(2);
    std::size_t const r = gate.f64("w.markov_w1.weight").dim(1);
    REQUIRE(r <= rank);
    {
        padded const w1 = table(vanilla, "w.markov_w1.weight");
        padded const w2 = table(vanilla, "w.markov_w2.weight");
        check_golden(vanilla, gpu::markov_head<float>{w1.device(), w2.device()}, w2);
    }
    {
        padded const w1 = table(gate, "w.markov_w1.weight");
        padded const w2 = table(gate, "w.markov_w2.weight");
        padded const g(gate.f64("w.gate_proj.weight"), 1, {{d, d}, {r, rank}}, rank);
        padded const b(gate.f64("w.gate_proj.bias"), 1, {{1, 1}}, rank);
        check_golden(gate, gpu::gated_head<float>{w1.device(), w2.device(), g.device(), b.there.data()}, w2);
    }
    {
        padded const w1 = table(joint, "w.markov_w1.weight");
        padded const w2 = table(joint, "w.markov_w2.weight");
        padded const j(joint.f64("w.joint_proj.weight"), 3, {{r, rank}, {r, rank}, {d, d}}, rank);
        padded const b(joint.f64("w.joint_proj.bias"), 3, {{1, 1}}, rank);
        check_golden(joint, gpu::rnn_head<float>{w1.device(), w2.device(), j.device(), b.there.data()}, w2);
    }
}

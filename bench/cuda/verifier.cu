// SPDX-License-Identifier: MIT
//
// Verification of an engine's arrays beside a kernel that only reads the target's rows: what verify makes of them, q's
// laws from rows of logits included.
//
//     engine/dense/bf16     q as logits by slot
//     engine/one_hot/bf16   drafts that were found
//     engine/edited/bf16    the same with a bitmask for every row, and penalties for every request: of 400 tokens in
//                           its prompt and 200 that were emitted
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <sureleap/cuda/round/verifier.cuh>
#include <sureleap/cuda/verify/flatten.cuh>
#include <sureleap/verify/array_edits.hpp>
#include <sureleap/verify/rejection.hpp>

#include "data.cuh"
#include "measure.cuh"

namespace {

using namespace sureleap;
namespace device = sureleap::cuda;

enum class engine { dense, one_hot, edited };

/// Penalties and masks of an engine; empty where a case has none.
struct edits {
    measure::device_array<std::int32_t> bitmask, counts, prompt;
    measure::device_array<float> repetition, frequency;

    edits(device::device_limits const& limits, bool there, std::uint64_t seed) {
        if (!there) return;
        std::mt19937_64 bits(seed);
        std::size_t const V = limits.vocabulary;
        std::size_t const words = (V + 31) / 32;
        std::vector<std::int32_t> allowed(std::size_t{limits.requests} * (limits.block_size + 1) * words, -1);
        for (auto& word : allowed) word &= ~static_cast<std::int32_t>(1u << bits() % 32);
        std::vector<std::int32_t> emitted(limits.requests * V, 0);
        std::vector<std::int32_t> prompted(limits.requests * words, 0);
        for (std::size_t r = 0; r < limits.requests; ++r) {
            for (int i = 0; i < 200; ++i) ++emitted[r * V + bits() % V];
            for (int i = 0; i < 400; ++i)
                prompted[r * words + bits() % words] |= static_cast<std::int32_t>(1u << bits() % 32);
        }
        bitmask = measure::device_array(allowed);
        counts = measure::device_array(emitted);
        prompt = measure::device_array(prompted);
        repetition = measure::device_array(std::vector<float>(limits.requests, 1.1f));
        frequency = measure::device_array(std::vector<float>(limits.requests, 0.2f));
    }
    [[nodiscard]] edit_arrays view(std::size_t vocabulary) const {
        if (bitmask.size() == 0) return {};
        return {.bitmask = bitmask.get(),
                .bitmask_stride = (vocabulary + 31) / 32,
                .repetition = repetition.get(),
                .frequency = frequency.get(),
                .counts = counts.get(),
                .counts_stride = vocabulary,
                .prompt = prompt.get(),
                .prompt_stride = (vocabulary + 31) / 32};
    }
};

template <engine how>
void verify(bench::state& state) {
    using T = bf16;
    constexpr bool edited = how == engine::edited;
    device::device_limits const limits{static_cast<std::uint32_t>(state["R"]),
                                       static_cast<std::uint32_t>(state["gamma"]),
                                       static_cast<std::uint32_t>(state["V"])};
    std::size_t const V = limits.vocabulary;
    std::size_t const rows = std::size_t{limits.requests} * (limits.block_size + 1);
    device::verifier_limits const sizes{.round = limits, .edits = edited};
    edits const changed(limits, edited, 5);
    auto const temperature = measure::device_array(std::vector<float>(limits.requests, 1.0f));

    struct turn {
        data::round round;
        data::recording<T> made;
        measure::device_array<std::int64_t> tokens;
        measure::device_array<std::int32_t> counts;
        measure::device_array<unsigned char> buffer;
        device::verifier_memory memory;
    };
    std::vector<turn> turns;
    unsigned const count = measure::turns_for(rows * V * sizeof(T));
    for (unsigned i = 0; i < count; ++i) {
        std::uint64_t const seed = 11 + 17 * i;
        data::round round(limits, seed);
        std::vector<std::uint32_t> const lengths(limits.requests, limits.block_size);
        MEASURE_CHECK(cudaMemcpy(round.columns.batch.lengths, lengths.data(), lengths.size() * sizeof(lengths[0]),
                                 cudaMemcpyHostToDevice));
        MEASURE_CHECK(flatten(round.columns, nullptr));
        data::recording<T> made(round.columns, 0.01f * static_cast<float>(state["noise"]), seed);
        MEASURE_CHECK(flatten(round.columns, nullptr));  // again, now that there are drafts
        device::workspace sizer;
        static_cast<void>(carve_verifier(sizer, sizes));
        measure::device_array<unsigned char> buffer(sizer.used());
        device::workspace ws{buffer.get(), buffer.size()};
        device::verifier_memory const memory = carve_verifier(ws, sizes);
        turns.push_back({std::move(round), std::move(made), measure::device_array<std::int64_t>(rows),
                         measure::device_array<std::int32_t>(limits.requests), std::move(buffer), memory});
    }
    measure::stream on;
    measure::captured const calls(on, count, [&](unsigned i) {
        turn const& t = turns[i];
        device::device_round const& r = t.round.columns;
        engine_arrays<T, T> call{.requests = limits.requests,
                                 .target = {t.made.p.get(), rows, V, t.made.stride},
                                 .row_begin = r.batch.offsets,
                                 .drafts = r.batch.tokens,
                                 .positions = reinterpret_cast<std::int64_t const*>(r.requests.positions),
                                 .settings = {.temperature = temperature.get(),
                                              .seeds = reinterpret_cast<std::int64_t const*>(r.requests.seeds)},
                                 .edits = changed.view(V),
                                 .out = {.tokens = t.tokens.get(), .counts = t.counts.get()}};
        if (how == engine::dense) call.q = {t.made.q.get(), limits.block_size * V, V};
        return device::verify<token_rejection<>, std::conditional_t<edited, array_edits, no_logits_hook>>(call,
                                                                                                          t.memory, on);
    });
    std::vector<void const*> from;
    for (turn const& t : turns) {
        from.push_back(t.made.p.get());
        for (std::int32_t const n : t.counts.read()) {
            if (n < 1) state.failed("a request emits nothing");
        }
        if (bench::once()) return;  // the first turn alone was verified
    }
    std::size_t const bytes = rows * V * sizeof(T);
    measure::report(state, calls, bytes, measure::stream_seconds(on, bytes, from));
}

std::vector<std::string> const names{"V", "R", "gamma", "noise"};
std::vector<bench::numbers> const batches{{151936, 32, 7, 45}, {151936, 128, 7, 45}};

[[maybe_unused]] bool const added[] = {
    bench::add("engine/dense/bf16", &verify<engine::dense>, names, batches),
    bench::add("engine/one_hot/bf16", &verify<engine::one_hot>, names, batches),
    bench::add("engine/edited/bf16", &verify<engine::edited>, names, batches),
};

}  // namespace

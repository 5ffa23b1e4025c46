// SPDX-License-Identifier: MIT
//
// Verification beside a kernel that only reads the same bytes: all rows of the batch, each once.
//
//     verify/rejection, block, greedy, match, coupled /<format>     gamma = 5 or 7, dense or ragged (0 .. gamma)
//     verify/warm         temperature 0.7
//     verify/truncated    temperature 0.7, top-k 20, top-p 0.95
//     verify/mixed        requests of four kinds: as they come, truncated, greedy, temperature 1.3 with min-p
//     verify/odd_stride   rows of V + 1 elements, which no vector load is aligned to
//     verify/log_p        with log p of every emitted token
//     verify/given        rows come with normalisers and block sums, and no pass over them is made
//     weigh/<format>      the pass over all rows alone
//     noise 45: good drafts, 200: poor ones (hundredths; data.cuh)
//     rows   the rows a request that the rule came to, on average: of one that accepted a tokens, a + 1; of block
//            verification all, but for the one behind a block that was not accepted whole
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

#include <sureleap/cuda/round/accept.cuh>
#include <sureleap/cuda/verify/flatten.cuh>
#include <sureleap/verify/block.hpp>
#include <sureleap/verify/coupled.hpp>
#include <sureleap/verify/match.hpp>
#include <sureleap/verify/rejection.hpp>

#include "data.cuh"
#include "measure.cuh"

namespace {

using namespace sureleap;
namespace device = sureleap::cuda;

/// Normalisers and block sums of rows, plainly: a block of threads a row, a thread a block of tokens.
template <class T>
__global__ void sum_rows(T const* rows, std::uint32_t vocabulary, float* normalisers, float* sums) {
    struct shared {
        double block[1024];
        double total;
    };
    auto& s = device::shared_memory<shared>();
    T const* const row = rows + static_cast<std::size_t>(blockIdx.x) * vocabulary;
    std::uint32_t const blocks = (vocabulary + 1023) / 1024;
    if (threadIdx.x < blocks) {
        double sum = 0.0;
        for (std::uint32_t i = threadIdx.x * 1024; i < vocabulary && i < (threadIdx.x + 1) * 1024; ++i) {
            sum += exp(static_cast<double>(static_cast<float>(row[i])));
        }
        s.block[threadIdx.x] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        s.total = 0.0;
        for (std::uint32_t b = 0; b < blocks; ++b) s.total += s.block[b];
        normalisers[blockIdx.x] = static_cast<float>(log(s.total));
    }
    __syncthreads();
    if (threadIdx.x < blocks) {
        sums[static_cast<std::size_t>(blockIdx.x) * blocks + threadIdx.x] =
            static_cast<float>(s.block[threadIdx.x] / s.total);
    }
}

/// What a case has beyond its numbers.
enum class special { nothing, warm, truncated, mixed, odd_stride, log_p, given };

std::vector<transform> settings_of(special how) {
    transform const truncated{.temperature = 0.7, .top_k = 20, .top_p = 0.95};
    if (how == special::warm) return {{.temperature = 0.7}};
    if (how == special::truncated) return {truncated};
    if (how == special::mixed) return {{}, truncated, {.temperature = 0.0}, {.temperature = 1.3, .min_p = 0.05}};
    return {{}};
}

struct shape {
    std::uint32_t vocabulary;
    std::uint32_t requests;
    std::uint32_t gamma;
    float noise;
    bool ragged;
    special how;

    shape(bench::state const& state, special what)
        : vocabulary(state["V"]),
          requests(state["R"]),
          gamma(state["gamma"]),
          noise(0.01f * static_cast<float>(state["noise"])),
          ragged(state["ragged"] != 0),
          how(what) {}
    [[nodiscard]] std::uint32_t rows() const { return requests * (gamma + 1); }
    [[nodiscard]] bool given() const { return how == special::given; }
    [[nodiscard]] device::device_limits limits() const {
        return {requests, gamma, vocabulary, 0, how == special::log_p};
    }
};

/// A round whose rows have their places, which its drafts are made from. ragged: lengths between 0 and gamma.
data::round flattened(shape const& s, std::uint64_t seed) {
    data::round round(s.limits(), seed, settings_of(s.how));
    std::mt19937_64 bits(seed);
    std::vector<std::uint32_t> lengths(s.requests, s.gamma);
    if (s.ragged) {
        for (auto& l : lengths) l = static_cast<std::uint32_t>(bits() % (s.gamma + 1));
    }
    MEASURE_CHECK(cudaMemcpy(round.columns.batch.lengths, lengths.data(), lengths.size() * sizeof(lengths[0]),
                             cudaMemcpyHostToDevice));
    MEASURE_CHECK(flatten(round.columns, nullptr));
    return round;
}

template <class T>
struct turn {
    data::round round;
    data::recording<T> rows;
    measure::device_array<float> normalisers;
    measure::device_array<float> sums;

    turn(shape const& s, std::uint64_t seed)
        : round(flattened(s, seed)),
          rows(round.columns, s.noise, seed, s.how == special::odd_stride ? 1 : 0),
          normalisers(s.given() ? s.rows() : 0),
          sums(s.given() ? std::size_t{s.rows()} * row_blocks(s.vocabulary) : 0) {
        MEASURE_CHECK(flatten(round.columns, nullptr));  // again, now that there are drafts
        if (!s.given()) return;
        sum_rows<<<s.rows(), 256, 9000>>>(rows.p.get(), s.vocabulary, normalisers.get(), sums.get());
        MEASURE_CHECK(cudaDeviceSynchronize());
    }
    [[nodiscard]] device::logits_rows<T> target(shape const& s) const {
        return {rows.p.get(), s.rows(), rows.stride, s.given() ? normalisers.get() : nullptr,
                s.given() ? sums.get() : nullptr};
    }
    [[nodiscard]] device::dense_draft_rows<T> draft(shape const& s) const {
        return {rows.q.get(), s.vocabulary, s.gamma, s.vocabulary};
    }
};

/// Turns of a case, and memory to verify them with.
template <class T>
struct scene {
    shape of;
    std::vector<turn<T>> turns;
    measure::device_array<unsigned char> memory;
    device::verify_memory verification{};

    explicit scene(shape const& s) : of(s) {
        unsigned const count = measure::turns_for(std::size_t{s.rows()} * s.vocabulary * sizeof(T));
        for (unsigned i = 0; i < count; ++i) turns.emplace_back(s, 11 + 17 * i);
        device::workspace sizer;
        static_cast<void>(carve_verification(sizer, s.limits()));
        memory = measure::device_array<unsigned char>(sizer.used());
        device::workspace ws{memory.get(), memory.size()};
        verification = carve_verification(ws, s.limits());
    }
    [[nodiscard]] unsigned count() const { return static_cast<unsigned>(turns.size()); }

    /// Bytes of a turn's rows, on average, and the time that it takes to read as many.
    [[nodiscard]] std::pair<std::size_t, double> reading(measure::stream const& on) const {
        std::size_t rows = 0;
        std::vector<void const*> from;
        for (turn<T> const& t : turns) {
            std::int32_t end = 0;
            MEASURE_CHECK(
                cudaMemcpy(&end, t.round.columns.batch.offsets + of.requests, sizeof end, cudaMemcpyDeviceToHost));
            rows += static_cast<std::size_t>(end);
            from.push_back(t.rows.p.get());
        }
        std::size_t const bytes = rows * of.vocabulary * sizeof(T) / turns.size();
        return {bytes, measure::stream_seconds(on, bytes, from)};
    }
};

template <class Rule>
std::size_t came_to(std::uint32_t accepted, std::uint32_t length) {
    if constexpr (std::is_same_v<Rule, block_verification<>>) {
        return accepted == length ? length + 1 : length;
    } else {
        return accepted + 1;
    }
}

template <class Rule, class T, special how = special::nothing>
void verify(bench::state& state) {
    scene<T> const s(shape(state, how));
    measure::stream on;
    measure::captured const calls(on, s.count(), [&](unsigned i) {
        turn<T> const& t = s.turns[i];
        return device::accept<Rule>(t.target(s.of), t.draft(s.of), s.verification, t.round.columns, on);
    });

    std::size_t rows = 0;
    std::size_t judged = 0;
    for (auto const& t : s.turns) {
        std::vector<std::uint32_t> accepted(s.of.requests);
        std::vector<std::uint32_t> lengths(s.of.requests);
        std::vector<status> statuses(s.of.requests);
        auto const fetch = [&](auto& to, auto const* from) {
            MEASURE_CHECK(cudaMemcpy(to.data(), from, to.size() * sizeof(to[0]), cudaMemcpyDeviceToHost));
        };
        fetch(accepted, t.round.columns.verdicts.accepted);
        fetch(lengths, t.round.columns.batch.lengths);
        fetch(statuses, t.round.columns.verdicts.statuses);
        for (std::uint32_t r = 0; r < s.of.requests; ++r) {
            if (statuses[r] != status::ok) state.failed("a request has no verdict");
            rows += came_to<Rule>(accepted[r], lengths[r]);
        }
        judged += s.of.requests;
        if (bench::once()) return;  // the first turn alone was verified
    }
    if (s.of.given()) {
        measure::report(state, calls);
    } else {
        auto const [bytes, read] = s.reading(on);
        measure::report(state, calls, bytes, read);
    }
    state.figure("rows", static_cast<double>(rows) / static_cast<double>(judged));
}

template <class T>
void weigh(bench::state& state) {
    scene<T> const s(shape(state, special::nothing));
    measure::stream on;
    using task = device::verify_task<device::logits_rows<T>, device::dense_draft_rows<T>>;
    measure::captured const calls(on, s.count(), [&](unsigned i) {
        turn<T> const& t = s.turns[i];
        return device::detail::launch_weighing<device::device_rule<token_rejection<>>>(
            task{t.target(s.of), t.draft(s.of), s.verification, t.round.columns}, measure::multiprocessors(), on);
    });
    auto const [bytes, read] = s.reading(on);
    measure::report(state, calls, bytes, read);
}

std::vector<std::string> const names{"V", "R", "gamma", "noise", "ragged"};
constexpr int large = 151936;
std::vector<bench::numbers> const all_shapes = [] {
    std::vector<bench::numbers> all;
    for (int const noise : {45, 200}) {
        for (int const r : {1, 8, 32, 128, 256}) all.push_back({large, r, 7, noise, 0});
    }
    for (int const r : {32, 128, 256}) all.push_back({32000, r, 7, 45, 0});
    all.push_back({129280, 128, 5, 45, 0});
    all.push_back({large, 128, 7, 45, 1});
    return all;
}();
std::vector<bench::numbers> const large_batches{{large, 32, 7, 45, 0}, {large, 128, 7, 45, 0}, {large, 256, 7, 45, 0}};
std::vector<bench::numbers> const two_batches{{large, 32, 7, 45, 0}, {large, 128, 7, 45, 0}};
std::vector<bench::numbers> const poor_batches{
    {large, 32, 7, 200, 0}, {large, 128, 7, 200, 0}, {large, 256, 7, 200, 0}};

[[maybe_unused]] bool const added[] = {
    bench::add("verify/rejection/bf16", &verify<token_rejection<>, bf16>, names, all_shapes),
    bench::add("verify/rejection/float", &verify<token_rejection<>, float>, names, large_batches),
    bench::add("verify/rejection/half", &verify<token_rejection<>, half>, names, two_batches),
    bench::add("verify/block/bf16", &verify<block_verification<>, bf16>, names, large_batches),
    bench::add("verify/block/bf16", &verify<block_verification<>, bf16>, names, poor_batches),
    bench::add("verify/greedy/bf16", &verify<greedy_match, bf16>, names, two_batches),
    bench::add("verify/match/bf16", &verify<target_match<>, bf16>, names, two_batches),
    bench::add("verify/coupled/bf16", &verify<keyed_coupling, bf16>, names, two_batches),
    bench::add("verify/warm/bf16", &verify<token_rejection<>, bf16, special::warm>, names, two_batches),
    bench::add("verify/truncated/bf16", &verify<token_rejection<>, bf16, special::truncated>, names, two_batches),
    bench::add("verify/mixed/bf16", &verify<token_rejection<>, bf16, special::mixed>, names, two_batches),
    bench::add("verify/odd_stride/bf16", &verify<token_rejection<>, bf16, special::odd_stride>, names, two_batches),
    bench::add("verify/log_p/bf16", &verify<token_rejection<>, bf16, special::log_p>, names, two_batches),
    bench::add("verify/given/bf16", &verify<token_rejection<>, bf16, special::given>, names, large_batches),
    bench::add("weigh/bf16", &weigh<bf16>, names, large_batches),
    bench::add("weigh/float", &weigh<float>, names, large_batches),
};

}  // namespace

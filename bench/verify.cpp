// SPDX-License-Identifier: MIT
//
// The acceptance stage on one block of gamma = 7, as an engine calls it. It is compared with a pure read of the rows
// that a rule must touch, and with token rejection as users write it (rivals.hpp). Everything is measured in turns in
// one run; ratios are of medians:
//
//     vs_read     a block's time over that of reading the rows it must touch; GB/s is that read's
//     vs_scalar   a user's time over it: every row of p a probability vector, plain loops
//     vs_eigen    the same with Eigen
//
// Logits: logits.hpp, with noise 0.45 for a good draft and 2.0 for a poor one. Blocks rotate, and each is read once
// just before it is timed, with the normalisers and block sums it brings: all comes from the last cache level, as right
// after an LM head wrote it. `us_warm` is the time of the same block once more, with everything in the first caches.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include <sureleap/sureleap.hpp>

#include "logits.hpp"
#include "measure.hpp"
#include "rivals.hpp"

namespace {

using namespace sureleap;

constexpr std::size_t gamma = 7;
constexpr std::size_t blocks = 6;

/// What the target's rows bring.
enum class given { nothing, normalisers };

/// Drafts `blocks` recorded blocks in turn: the drafter and the target of the benchmark at once.
struct recorded : logits::recording {
    std::size_t vocabulary;
    std::vector<float> normalisers;
    std::vector<float> block_sums;
    std::size_t turn = 0;
    given what = given::nothing;

    recorded(std::size_t v, float noise) : recording(blocks, gamma, v, noise), vocabulary(v) {
        std::vector<double> sums(row_blocks(v));
        for (std::size_t row = 0; row < blocks * (gamma + 1); ++row) {
            double const total =
                native_kernels<row_kernels>().get<float>().sum(p.data() + row * v, v, 0.0f, 1.0f, sums.data());
            normalisers.push_back(static_cast<float>(std::log(total)));
            for (double const sum : sums) block_sums.push_back(static_cast<float>(sum / total));
        }
    }
    [[nodiscard]] block_forward<float> forward(std::span<request_view const>) const {
        return {{}, {{q.data() + turn * gamma * vocabulary, gamma, vocabulary}, {}, {}}};
    }
    [[nodiscard]] logits_rows<float> rows() const {
        std::size_t const first = turn * (gamma + 1);
        logits_rows<float> all{{p.data() + first * vocabulary, gamma + 1, vocabulary}, {}, {}};
        if (what == given::normalisers) {
            std::size_t const each = row_blocks(vocabulary);
            all.log_normalisers = std::span(normalisers).subspan(first, gamma + 1);
            all.block_sums = {block_sums.data() + first * each, gamma + 1, each};
        }
        return all;
    }
    [[nodiscard]] matrix_view<float> drafts() const {
        return {q.data() + turn * gamma * vocabulary, gamma, vocabulary};
    }
};

using measure::median;
using measure::seconds_since;

/// The library's own passes, counting those over p and q.
std::size_t residual_passes = 0;
double count_residual(float const* p, row_side<float> const& of_p, float const* q, row_side<float> const& of_q,
                      std::size_t size, double* sums) {
    ++residual_passes;
    return native_kernels<row_kernels>().get<float>().residual(p, of_p, q, of_q, size, sums);
}
row_kernels const& counting_kernels() {
    static row_functions<float> const functions = [] {
        auto f = native_kernels<row_kernels>().get<float>();
        f.residual = count_residual;
        return f;
    }();
    static row_kernels const counting{.name = "counting", .for_float = &functions};
    return counting;
}

/// Rows of p and of q that a rule must read.
struct touched {
    std::size_t p;
    std::size_t q;
};
touched rows_of(token_rejection<> const&, verdict const& v) {
    return {v.accepted + 1, 0};
}
touched rows_of(keyed_coupling const&, verdict const& v) {
    return {v.accepted + 1, 0};
}
touched rows_of(target_match<> const&, verdict const& v) {
    return {v.accepted + 1, 0};
}
touched rows_of(greedy_match const&, verdict const& v) {
    return {v.accepted + 1, 0};
}
/// Reads for the survival of the whole prefix, and the row behind it if that was accepted. Where the residual's mass
/// decides, it reads both rows of a position; p's was read before.
touched rows_of(block_verification<> const&, verdict const& v) {
    return {v.accepted == gamma ? gamma + 1 : gamma, residual_passes};
}

void read_rows(recorded const& data, touched const& t) {
    auto const p = data.rows().values;
    auto const sums = data.rows().block_sums;
    for (std::size_t k = 0; k < t.p; ++k) {
        benchmark::DoNotOptimize(rivals::read(p.row(k).data(), p.cols));
        if (!sums.empty()) benchmark::DoNotOptimize(rivals::read(sums.row(k).data(), sums.cols));
    }
    auto const q = data.drafts();
    for (std::size_t k = 0; k < t.q; ++k) {
        benchmark::DoNotOptimize(rivals::read(q.row(gamma - 1 - k).data(), q.cols));
    }
}

/// The first token whose cumulative probability exceeds u.
token_id draw(std::span<float const> probabilities, float u) {
    double cumulative = 0.0;
    std::size_t v = 0;
    while (v + 1 < probabilities.size() &&
           (cumulative += static_cast<double>(probabilities[v])) <= static_cast<double>(u))
        ++v;
    return static_cast<token_id>(v);
}

/// Median seconds of a user's token rejection.
template <class Rival>
double measure(recorded& data, Rival const& rejection) {
    std::size_t const v = data.vocabulary;
    std::vector<float> q(gamma * v);
    std::vector<float> scratch((gamma + 1) * v);
    std::vector<token_id> drafted(gamma);
    std::vector<float> uniforms(gamma + 1);
    std::vector<double> times;
    std::mt19937_64 bits(3);
    std::uniform_real_distribution<float> uniform;
    for (int i = 0; i < 12; ++i) {
        data.turn = (data.turn + 1) % blocks;
        for (std::size_t k = 0; k < gamma; ++k) {
            rivals::softmax(data.drafts().row(k).data(), v, q.data() + k * v);
            drafted[k] = draw({q.data() + k * v, v}, uniform(bits));
        }
        for (float& u : uniforms) u = uniform(bits);
        read_rows(data, {gamma + 1, 0});
        auto const start = std::chrono::steady_clock::now();
        benchmark::DoNotOptimize(
            rejection({data.rows().values.data, q.data(), v, gamma, drafted.data(), uniforms.data()}, scratch.data()));
        times.push_back(seconds_since(start));
    }
    return median(times);
}

/// The data of a benchmark, kept: repetitions of several come in turns. Users' versions are measured once.
struct prepared {
    recorded data;
    double scalar = 0.0;
    double eigen = 0.0;
};
prepared& prepare(long vocabulary, long noise) {
    static std::map<std::pair<long, long>, std::unique_ptr<prepared>> all;
    auto& made = all[{vocabulary, noise}];
    if (made == nullptr) {
        made.reset(new prepared{{static_cast<std::size_t>(vocabulary), static_cast<float>(noise) / 100.0f}});
    }
    return *made;
}

template <class Rule>
void verify(benchmark::State& state, Rule rule, double temperature, given what, bool beside_users) {
    prepared& ready = prepare(state.range(0), state.range(1));
    recorded& data = ready.data;
    data.what = what;
    parallel drafter{data, drafter_options{.block_size = gamma, .vocabulary = data.vocabulary}};
    fixed_schedule schedule;
    round_memory<float, float> memory{drafter, schedule, rule, {.max_requests = 1, .kernels = &counting_kernels()}};
    philox_randomness rng;
    request_settings settings;
    settings.temperature = temperature;
    std::uint64_t position = 0;
    std::vector<double> reading;
    std::vector<double> accepting;
    std::vector<double> repeating;
    double bytes = 0.0;
    double seconds = 0.0;
    std::size_t rows_read = 0;
    for (auto _ : state) {
        data.turn = (data.turn + 1) % blocks;
        request_view const request{
            .anchor = 0, .position = position++, .seed = 7, .remaining = 100, .settings = &settings};
        memory.join(0);  // another request in every round: blocks do not follow each other
        if (begin_round(schedule, std::span(&request, 1), memory)) {
            draw(drafter, drafter.forward(memory.requests()), rule, rng, memory);
        }
        if (admit(schedule, memory).rows() != gamma + 1) state.SkipWithError("a block is short of gamma tokens");
        read_rows(data, {gamma + 1, 0});

        residual_passes = 0;
        auto const start = std::chrono::steady_clock::now();
        accept(rule, data.rows(), no_logits_hook{}, rng, memory);
        benchmark::ClobberMemory();
        double const took = seconds_since(start);
        std::size_t const passes = residual_passes;
        accepting.push_back(took);
        state.SetIterationTime(took);
        if (what == given::normalisers) {
            auto const then = std::chrono::steady_clock::now();
            accept(rule, data.rows(), no_logits_hook{}, rng, memory);
            benchmark::ClobberMemory();
            repeating.push_back(seconds_since(then));
        }
        residual_passes = passes;
        touched const needed = rows_of(rule, end_round(schedule, memory).verdicts[0]);

        data.turn = (data.turn + blocks / 2) % blocks;  // another block, so that the read finds nothing in a cache
        read_rows(data, {gamma + 1, 0});
        auto const again = std::chrono::steady_clock::now();
        read_rows(data, needed);
        reading.push_back(seconds_since(again));
        seconds += reading.back();
        bytes += static_cast<double>((needed.p + needed.q) * data.vocabulary * sizeof(float));
        rows_read += needed.p + needed.q;
        data.turn = (data.turn + blocks - blocks / 2) % blocks;
    }
    // How many rows a block touches varies; what they take together does not mind.
    double all = 0.0;
    for (double const t : accepting) all += t;
    double const block = median(accepting);
    state.counters["us"] = block * 1e6;
    state.counters["rows"] = static_cast<double>(rows_read) / static_cast<double>(reading.size());
    if (what == given::nothing) {
        state.counters["vs_read"] = all / seconds;
        state.counters["GB/s"] = bytes / seconds * 1e-9;
    } else {
        state.counters["us_warm"] = median(repeating) * 1e6;
    }
    if (beside_users) {
        double const mean = all / static_cast<double>(accepting.size());
        if (ready.scalar == 0.0) {
            ready.scalar = measure(data, rivals::scalar_rejection);
            ready.eigen = measure(data, rivals::eigen_rejection);
        }
        state.counters["vs_scalar"] = ready.scalar / mean;
        state.counters["vs_eigen"] = ready.eigen / mean;
    }
}

int add() {
    for (long const vocabulary : {32000L, 129280L, 151936L}) {
        for (long const noise : {45L, 200L}) {
            auto const named = [=](char const* name, auto rule, double temperature, given what, bool beside_users) {
                benchmark::RegisterBenchmark(
                    name, [=](benchmark::State& s) { verify(s, rule, temperature, what, beside_users); })
                    ->Args({vocabulary, noise})
                    ->ArgNames({"V", "noise"})
                    ->Iterations(400)  // what is not timed, drafting above all, takes twenty times as long
                    ->UseManualTime()
                    ->Unit(benchmark::kMicrosecond);
            };
            named("verify/rejection", token_rejection<>{}, 1.0, given::nothing, true);
            named("verify/block", block_verification<>{}, 1.0, given::nothing, false);
            named("verify/greedy", greedy_match{}, 0.0, given::nothing, false);
            named("verify/match", target_match<>{}, 1.0, given::nothing, false);
            named("verify/coupled", keyed_coupling{}, 1.0, given::nothing, false);
            named("verify/given_normaliser", token_rejection<>{}, 1.0, given::normalisers, false);
        }
    }
    return 0;
}
[[maybe_unused]] int const added = add();

}  // namespace

// SPDX-License-Identifier: MIT
//
// The acceptance stage on one block of gamma = 7, as an engine calls it: rules as they ship (scalar code, the oracle of
// faster backends), beside a pure read of the rows they touch and what a user would write (softmax of every row of
// p and q with std::exp, then token rejection). vs_read is the time of a block over that of reading its touched rows.
//
// Logits: N(0, 2) with 40 peaks N(9, 1.8); the draft is the target + N(0, noise). Blocks rotate, and each is read once
// just before it is timed: rows come from the last cache level, as they do right after an LM head wrote them.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <random>
#include <vector>

#include <benchmark/benchmark.h>

#include <sureleap/sureleap.hpp>

namespace {

using namespace sureleap;

constexpr std::size_t gamma = 7;
constexpr std::size_t blocks = 6;

/// Drafts `blocks` recorded blocks in turn: the drafter and the target of the benchmark at once.
struct recorded {
    std::size_t vocabulary;
    std::vector<float> p;  // [blocks, gamma + 1, V]
    std::vector<float> q;  // [blocks, gamma, V]
    std::size_t turn = 0;

    recorded(std::size_t v, double noise) : vocabulary(v), p(blocks * (gamma + 1) * v), q(blocks * gamma * v) {
        std::mt19937_64 bits(1);
        std::normal_distribution<float> normal;
        for (float& l : p) l = 2.0f * normal(bits);
        for (std::size_t row = 0; row < blocks * (gamma + 1); ++row) {
            for (int peak = 0; peak < 40; ++peak) p[row * v + bits() % v] = 9.0f + 1.8f * normal(bits);
        }
        for (std::size_t b = 0; b < blocks; ++b) {
            for (std::size_t i = 0; i < gamma * v; ++i) {
                q[b * gamma * v + i] = p[b * (gamma + 1) * v + i] + static_cast<float>(noise) * normal(bits);
            }
        }
    }
    [[nodiscard]] block_forward<float> forward(std::span<request_view const>) const {
        return {{}, {{q.data() + turn * gamma * vocabulary, gamma, vocabulary}, {}}};
    }
    [[nodiscard]] logits_rows<float> rows() const {
        return {{p.data() + turn * (gamma + 1) * vocabulary, gamma + 1, vocabulary}, {}};
    }
};

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Reads a row and nothing else.
float read(std::span<float const> row) {
    float sums[16] = {};
    for (std::size_t i = 0; i + 16 <= row.size(); i += 16) {
        for (std::size_t j = 0; j < 16; ++j) sums[j] += row[i + j];
    }
    float sum = 0.0f;
    for (float const s : sums) sum += s;
    return sum;
}

void read_all(logits_rows<float> const& rows) {
    for (std::size_t k = 0; k < rows.values.rows; ++k) benchmark::DoNotOptimize(read(rows.values.row(k)));
}

/// Token rejection as one writes it the first time: every row a probability vector.
std::size_t user_rejection(recorded const& data, std::span<token_id const> drafted, std::mt19937_64& bits) {
    std::size_t const v = data.vocabulary;
    auto const softmax = [&](float const* row) {
        std::vector<float> out(row, row + v);
        float const top = *std::max_element(out.begin(), out.end());
        float sum = 0.0f;
        for (float& x : out) sum += x = std::exp(x - top);
        for (float& x : out) x /= sum;
        return out;
    };
    std::vector<std::vector<float>> p;
    std::vector<std::vector<float>> q;
    auto const rows = data.rows();
    auto const base = data.forward({});
    for (std::size_t k = 0; k <= gamma; ++k) p.push_back(softmax(rows.values.row(k).data()));
    for (std::size_t k = 0; k < gamma; ++k) q.push_back(softmax(base.base_logits.values.row(k).data()));
    std::uniform_real_distribution<float> uniform;
    for (std::size_t k = 0; k < gamma; ++k) {
        auto const x = static_cast<std::size_t>(drafted[k]);
        if (uniform(bits) < p[k][x] / q[k][x]) continue;
        for (std::size_t i = 0; i < v; ++i) p[k][i] = std::max(p[k][i] - q[k][i], 0.0f);
        std::discrete_distribution<token_id> left(p[k].begin(), p[k].end());
        return static_cast<std::size_t>(left(bits));
    }
    std::discrete_distribution<token_id> bonus(p[gamma].begin(), p[gamma].end());
    return static_cast<std::size_t>(bonus(bits));
}

enum class side { library, user };

template <class Rule>
void accept_block(benchmark::State& state, Rule rule, side which) {
    recorded data(static_cast<std::size_t>(state.range(0)), static_cast<double>(state.range(1)) / 100.0);
    parallel drafter{data, drafter_options{.block_size = gamma, .vocabulary = data.vocabulary}};
    round_memory<float, float> memory{drafter, rule, {.max_requests = 1}};
    std::mt19937_64 bits(2);
    philox_randomness rng;
    request_settings settings;
    std::uint64_t position = 0;
    double reading = 0.0;
    double accepting = 0.0;
    std::size_t touched = 0;
    std::size_t rounds = 0;
    for (auto _ : state) {
        data.turn = (data.turn + 1) % blocks;
        request_view const request{
            .anchor = 0, .position = position++, .seed = 7, .remaining = 100, .settings = &settings};
        memory.block.begin({&request, 1});
        auto const forward = drafter.forward({&request, 1});
        drafter.draw(forward, typename Rule::draft_rule{}, memory.block, rng);
        std::uint32_t const length = gamma;
        flatten(memory.block, {&length, 1}, memory.batch);
        auto const rows = data.rows();
        read_all(rows);

        auto const start = std::chrono::steady_clock::now();
        std::size_t rows_needed = gamma + 1;
        if (which == side::user) {
            benchmark::DoNotOptimize(user_rejection(data, memory.block.tokens(0), bits));
        } else {
            auto const verdicts = accept(rule, rows, no_logits_hook{}, rng, memory);
            benchmark::DoNotOptimize(verdicts.data());
            rows_needed = verdicts[0].accepted + 1;
        }
        double const took = seconds_since(start);
        accepting += took;
        state.SetIterationTime(took);

        data.turn = (data.turn + blocks / 2) % blocks;  // another block, so that the read finds nothing in a cache
        auto const other = data.rows();
        read_all(other);
        auto const again = std::chrono::steady_clock::now();
        for (std::size_t k = 0; k < rows_needed; ++k) benchmark::DoNotOptimize(read(other.values.row(k)));
        reading += seconds_since(again);
        data.turn = (data.turn + blocks - blocks / 2) % blocks;
        touched += rows_needed;
        ++rounds;
    }
    state.counters["vs_read"] = accepting / reading;
    state.counters["rows"] = static_cast<double>(touched) / static_cast<double>(rounds);
    state.counters["read_GB/s"] = static_cast<double>(touched * data.vocabulary * sizeof(float)) / reading * 1e-9;
}

void shapes(benchmark::internal::Benchmark* b) {
    // Vocabulary; draft noise in hundredths: 0.45 is a good draft, 2.0 a poor one.
    for (long const v : {32000L, 151936L}) {
        for (long const noise : {45L, 200L}) b->Args({v, noise});
    }
    b->ArgNames({"V", "noise"})->UseManualTime()->Unit(benchmark::kMicrosecond);
}

BENCHMARK_CAPTURE(accept_block, rejection, token_rejection<>{}, side::library)->Apply(shapes);
BENCHMARK_CAPTURE(accept_block, block, block_verification<>{}, side::library)->Apply(shapes);
BENCHMARK_CAPTURE(accept_block, match, target_match<>{}, side::library)->Apply(shapes);
BENCHMARK_CAPTURE(accept_block, coupled, keyed_coupling{}, side::library)->Apply(shapes);
BENCHMARK_CAPTURE(accept_block, rejection_user, token_rejection<>{}, side::user)->Apply(shapes);

}  // namespace

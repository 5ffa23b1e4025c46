// SPDX-License-Identifier: MIT
//
// The whole round.
//
// round/library_share: how much of a round of the reference engine (examples/engine) is the library's. Library: the
// sequential head with its laws and draws, schedule, flatten, acceptance, and the engine's own bookkeeping, which is
// small and not told apart. Model: the passes of backbone and target. V = 2,048 is the checkpoint in examples/models, V
// = 151,936 random weights in the shapes of Qwen3-0.6B. The rule is token rejection at temperature 1; the schedule is
// greedy over a flat capacity, so it does its work and admits every draft: a batch has the same size whatever a drafter
// says. Models use all cores, and so do head and acceptance where there is enough to do (bench/threads.cpp). This is
// what the bar is for: q over all tokens, as the engine does unless it is asked for less.
//
// round/library_share_shortlist: the same with q on at most 512 tokens, 384 by base logits and 128 successors.
//
// round/decoder: the library alone. The models return recorded rows, which they read just before. So rows come from the
// last cache level, as far as they fit, as they do from a model that has computed them. The models' time is subtracted.
// vs_scalar is the time of plain loops for the same (softmax of every row, draws, token rejection), over the library's.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include <sureleap/sureleap.hpp>

#include "engine/causal_lm.hpp"
#include "engine/checkpoint.hpp"
#include "engine/dspark.hpp"
#include "engine/parts.hpp"
#include "engine/server.hpp"
#include "engine/synthetic.hpp"
#include "logits.hpp"
#include "measure.hpp"
#include "rivals.hpp"

namespace {

using namespace sureleap;

using measure::median;
using measure::seconds_of;
using measure::seconds_since;

// ---- in the reference engine -----------------------------------------------------------------------------------

constexpr std::size_t most_requests = 32;
constexpr std::size_t rounds_of_a_server = 24;
constexpr std::size_t listed_best = 384;
constexpr std::size_t listed_successors = 128;

/// A target and its drafter, with room for every batch size measured.
struct models {
    engine::causal_lm<float> target;
    engine::dspark<float> draft;
    engine::any_drafter<float> drafter;
    engine::any_drafter<float> listing_drafter;  ///< the same model, q on a shortlist

    models(engine::checkpoint of_target, engine::checkpoint of_draft, engine::thread_pool& pool)
        : target(std::move(of_target), of_draft.config().draft->target_layer_ids, pool, limits(of_draft)),
          draft(std::move(of_draft), target, pool, target.limits()),
          drafter(engine::make_drafter(draft)),
          listing_drafter(drafter_of_nothing()),
          successors_(successors()) {
        sureleap::matrix_view<token_id> const table(successors_.data(), successors_.size() / listed_successors,
                                                    listed_successors);
        engine::set_drafter(listing_drafter, draft,
                            engine::listing_head<float>(engine::load_head<float>(draft.source()), listed_best, table));
    }

    static engine::serving_limits limits(engine::checkpoint const& of_draft) {
        std::size_t const block = of_draft.config().draft->block_size + 1;
        return {.slots = most_requests,
                .context_length = (rounds_of_a_server + 2) * block,
                .max_rows = most_requests * block};
    }

private:
    [[nodiscard]] engine::any_drafter<float> drafter_of_nothing() const {
        return sureleap::no_drafter<float>(target.vocabulary());
    }
    // Any successors take the same time, and those of a large vocabulary would take minutes to compute: one is drawn
    // from each of equal parts of the vocabulary.
    [[nodiscard]] std::vector<token_id> successors() const {
        std::size_t const part = target.vocabulary() / listed_successors;
        std::mt19937 bits(5);
        std::vector<token_id> table;
        table.reserve(target.vocabulary() * listed_successors);
        for (std::size_t v = 0; v < target.vocabulary(); ++v) {
            for (std::size_t i = 0; i < listed_successors; ++i) {
                table.push_back(static_cast<token_id>(i * part + bits() % part));
            }
        }
        return table;
    }

    std::vector<token_id> successors_;
};

engine::thread_pool& pool() {
    static engine::thread_pool all;
    return all;
}

models& models_of(std::size_t vocabulary) {
    static std::map<std::size_t, std::unique_ptr<models>> made;
    auto& m = made[vocabulary];
    if (m != nullptr) return *m;
    if (vocabulary == 151936) {
        m = std::make_unique<models>(
            engine::make_in_memory(engine::qwen3_0_6b(), engine::storage::bf16, 1),
            engine::make_in_memory(engine::dspark_qwen3_0_6b_block7(), engine::storage::bf16, 2), pool());
    } else {
        std::string const folder = SURELEAP_MODELS_DIR;
        m = std::make_unique<models>(engine::checkpoint(folder + "/target"), engine::checkpoint(folder + "/dspark"),
                                     pool());
    }
    return *m;
}

/// Starts a server and its requests. In their first round, which is over then, nothing is drafted.
void start(std::optional<engine::server<float>>& server, models& with, engine::any_drafter<float>& drafter,
           std::size_t requests, std::uint64_t seed) {
    server.emplace(with.target, drafter, &with.draft, threshold_schedule{0.0}, token_rejection<>{}, pool());
    for (std::size_t r = 0; r < requests; ++r) {
        server->submit({static_cast<token_id>(100 + r)},
                       {.seed = seed + r, .max_new_tokens = with.target.limits().context_length - 1});
    }
    server->step();
}

void library_share(benchmark::State& state, engine::any_drafter<float> models::* drafter) {
    auto& with = models_of(static_cast<std::size_t>(state.range(0)));
    auto const requests = static_cast<std::size_t>(state.range(1));
    std::optional<engine::server<float>> server;
    std::size_t rounds = rounds_of_a_server;
    std::uint64_t seed = 1;
    std::vector<double> shares;
    std::vector<double> of_head;
    std::vector<double> of_accept;
    std::vector<double> of_model;
    for (auto _ : state) {
        if (rounds == rounds_of_a_server) {
            start(server, with, with.*drafter, requests, seed);
            seed += requests;
            rounds = 0;
        }
        engine::phase_times const before = server->times();
        server->step();
        engine::phase_times const after = server->times();
        ++rounds;
        double const head = after.head - before.head;
        double const accept = after.accept - before.accept;
        double const model = after.draft - before.draft + after.verify - before.verify;
        state.SetIterationTime(head + accept + model);
        shares.push_back((head + accept) / (head + accept + model));
        of_head.push_back(head);
        of_accept.push_back(accept);
        of_model.push_back(model);
    }
    state.counters["share"] = median(shares);
    state.counters["head_us"] = median(of_head) * 1e6;
    state.counters["accept_us"] = median(of_accept) * 1e6;
    state.counters["model_us"] = median(of_model) * 1e6;
}

void registered(char const* name, engine::any_drafter<float> models::* drafter) {
    for (long const v : {2048L, 151936L}) {
        for (long const batch : {1L, 32L}) {
            benchmark::RegisterBenchmark(name, library_share, drafter)
                ->ArgNames({"V", "batch"})
                ->Args({v, batch})
                ->Iterations(v == 2048    ? 4 * rounds_of_a_server
                             : batch == 1 ? 5
                                          : 3)
                ->UseManualTime()
                ->Unit(benchmark::kMillisecond);
        }
    }
}
[[maybe_unused]] bool const share_registered = [] {
    registered("round/library_share", &models::drafter);
    registered("round/library_share_shortlist", &models::listing_drafter);
    return true;
}();

// ---- the library alone -----------------------------------------------------------------------------------------

/// Blocks of rows for all requests, drafter and target at once. One request takes another block in every round, many
/// have rows enough to fill the caches.
class recorded {
public:
    recorded(std::size_t vocabulary, std::size_t requests, std::size_t gamma)
        : vocabulary_(vocabulary),
          requests_(requests),
          gamma_(gamma),
          blocks_(std::max<std::size_t>(requests, 6)),
          rows_(blocks_, gamma, vocabulary, 0.45f) {}

    void next() { turn_ = (turn_ + 1) % (blocks_ - requests_ + 1); }
    [[nodiscard]] double seconds() const { return seconds_; }
    [[nodiscard]] matrix_view<float> p() const {
        return {rows_.p.data() + turn_ * (gamma_ + 1) * vocabulary_, requests_ * (gamma_ + 1), vocabulary_};
    }
    [[nodiscard]] matrix_view<float> q() const {
        return {rows_.q.data() + turn_ * gamma_ * vocabulary_, requests_ * gamma_, vocabulary_};
    }

    [[nodiscard]] block_forward<float> forward(std::span<request_view const>) {
        touch(q());
        return {{}, {q(), {}, {}}};
    }
    [[nodiscard]] logits_rows<float> score(verify_batch const&) {
        touch(p());
        return {p(), {}, {}};
    }
    void touch(matrix_view<float> rows) {
        seconds_ += seconds_of([&] { benchmark::DoNotOptimize(rivals::read(rows.data, rows.rows * rows.cols)); });
    }

private:
    std::size_t vocabulary_;
    std::size_t requests_;
    std::size_t gamma_;
    std::size_t blocks_;
    logits::recording rows_;
    std::size_t turn_ = 0;
    double seconds_ = 0.0;
};

/// Median seconds that a user's round takes for one request: the first.
double users_round(recorded& data, std::size_t gamma) {
    std::size_t const v = data.p().cols;
    std::vector<float> q(gamma * v);
    std::vector<float> scratch((gamma + 1) * v);
    std::vector<token_id> drafted(gamma);
    std::vector<float> uniforms(gamma + 1);
    std::vector<double> times;
    std::mt19937_64 bits(3);
    std::uniform_real_distribution<float> uniform;
    for (int i = 0; i < 5; ++i) {
        data.next();
        for (float& u : uniforms) u = uniform(bits);
        data.touch({data.q().data, gamma, v});
        data.touch({data.p().data, gamma + 1, v});
        auto const start = std::chrono::steady_clock::now();
        for (std::size_t k = 0; k < gamma; ++k) {
            float* const row = q.data() + k * v;
            rivals::softmax(data.q().row(k).data(), v, row);
            float const u = uniform(bits);
            std::size_t x = 0;
            for (float sum = row[0]; sum <= u && x + 1 < v; sum += row[x]) ++x;
            drafted[k] = static_cast<token_id>(x);
        }
        benchmark::DoNotOptimize(rivals::scalar_rejection(
            {data.p().data, q.data(), v, gamma, drafted.data(), uniforms.data()}, scratch.data()));
        times.push_back(seconds_since(start));
    }
    return median(times);
}

void decoder_round(benchmark::State& state) {
    auto const vocabulary = static_cast<std::size_t>(state.range(0));
    auto const requests = static_cast<std::size_t>(state.range(1));
    auto const gamma = static_cast<std::size_t>(state.range(2));
    recorded data(vocabulary, requests, gamma);
    parallel drafter{data, top1_confidence{}, drafter_options{.block_size = gamma, .vocabulary = vocabulary}};
    decoder dec{data, drafter, threshold_schedule{0.0}, token_rejection<>{}, {.max_requests = requests}};
    std::vector<double> rounds;
    std::uint64_t seed = 1;
    for (auto _ : state) {
        auto before = data.seconds();
        data.next();
        auto start = std::chrono::steady_clock::now();
        while (!dec.step()) {  // all are done, as in the beginning
            for (std::size_t r = 0; r < requests; ++r) {
                static_cast<void>(dec.submit(std::vector<token_id>{0}, {.seed = seed++, .max_new_tokens = 1u << 18}));
            }
            before = data.seconds();
            start = std::chrono::steady_clock::now();
        }
        rounds.push_back(seconds_since(start) - (data.seconds() - before));
        state.SetIterationTime(rounds.back());
    }
    double const round = median(rounds);
    state.counters["us"] = round * 1e6;
    state.counters["us_request"] = round * 1e6 / static_cast<double>(requests);
    state.counters["tau"] = dec.report().tau();
    state.counters["vs_scalar"] = users_round(data, gamma) * static_cast<double>(requests) / round;
}

void shapes(benchmark::internal::Benchmark* b) {
    for (long const v : {32000L, 129280L, 151936L}) {
        for (long const requests : {1L, 8L, 32L}) b->Args({v, requests, 7});
    }
    for (long const gamma : {1L, 3L, 15L}) b->Args({151936, 1, gamma});
}

BENCHMARK(decoder_round)
    ->Name("round/decoder")
    ->ArgNames({"V", "batch", "gamma"})
    ->Apply(shapes)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace

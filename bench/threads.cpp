// SPDX-License-Identifier: MIT
//
// What lent threads bring (executor.hpp): a stage alone and with all cores of the machine, in turns in one run.
//
//     threads/draw        drafting behind a Markov head of rank 256 over W2 in bf16, gamma = 7
//     threads/draw_list   the same from lists of 512 tokens
//     threads/accept      token rejection of these blocks, drafts of noise 0.45
//
// Times are those with threads; alone_us is the calling thread's, vs_alone that over this, both medians. The pool is
// the reference engine's, whose threads spin for 150 us before they sleep. Each measurement follows a pass over other
// memory in the calling thread, which takes longer.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include <sureleap/sureleap.hpp>

#include "engine/thread_pool.hpp"
#include "logits.hpp"
#include "measure.hpp"

namespace {

using namespace sureleap;

constexpr std::size_t gamma = 7;
constexpr std::size_t rank = 256;
constexpr std::size_t rows_made = 4 * (gamma + 1);  // requests share them, each beginning at another token

engine::thread_pool& pool() {
    static engine::thread_pool all;
    return all;
}

/// Rows of logits of all requests, and a head.
struct material {
    std::size_t vocabulary;
    std::size_t most;
    std::vector<float> target;  // [most (gamma + 1), V]
    std::vector<float> draft;   // [most gamma, V]
    std::vector<bf16> w1, w2;   // [V, rank]
    std::vector<token_id> successors;

    material(std::size_t v, std::size_t requests) : vocabulary(v), most(requests), w1(v * rank), w2(v * rank) {
        std::vector<float> const made = logits::of_target(rows_made, v, 1);
        logits::normals normal(2);
        std::vector<float> near = made;
        for (float& l : near) l += 0.45f * normal();
        for (std::size_t r = 0; r < requests; ++r) {
            append(target, made, r, gamma + 1);
            append(draft, near, r, gamma);
        }
        for (auto* w : {&w1, &w2}) {
            for (bf16& x : *w) x = bf16((static_cast<float>(normal.bits() >> 40) * 0x1p-23f - 1.0f) * 0.05f);
        }
        for (std::size_t i = 0; i < v; ++i) {
            for (std::size_t j = 0; j < 128; ++j)
                successors.push_back(static_cast<token_id>(j * (v / 128) + i % (v / 128)));
        }
    }
    [[nodiscard]] auto head() const {
        return markov_head{matrix_view<bf16>{w1.data(), vocabulary, rank},
                           matrix_view<bf16>{w2.data(), vocabulary, rank}};
    }
    [[nodiscard]] auto drafter(auto head) const {
        auto backbone = [this](std::span<request_view const> requests) {
            return block_forward<float>{{}, {{draft.data(), requests.size() * gamma, vocabulary}, {}, {}}};
        };
        return semi_autoregressive{
            std::move(backbone), std::move(head), {.block_size = gamma, .vocabulary = vocabulary}};
    }
    void forget() const {  // more than the caches hold
        static std::vector<float> const other(std::size_t{1} << 24);
        benchmark::DoNotOptimize(std::count(other.begin(), other.end(), 1.0f));
    }

private:
    // Rows of request r, turned by some tokens: targets and drafts alike.
    void append(std::vector<float>& to, std::vector<float> const& made, std::size_t r, std::size_t rows) const {
        for (std::size_t k = 0; k < rows; ++k) {
            auto const row = std::span(made).subspan((r % 4 * (gamma + 1) + k) * vocabulary, vocabulary);
            auto const turn = static_cast<std::ptrdiff_t>(r * 101 % vocabulary);
            to.insert(to.end(), row.begin() + turn, row.end());
            to.insert(to.end(), row.begin(), row.begin() + turn);
        }
    }
};

material const& material_of(std::size_t vocabulary) {
    static std::map<std::size_t, std::unique_ptr<material>> made;
    auto& m = made[vocabulary];
    if (m == nullptr) m = std::make_unique<material>(vocabulary, 32);
    return *m;
}

/// The draws of a later position: one block is judged in many ways.
struct shifted_randomness {
    static constexpr bool is_concurrent = true;
    std::uint64_t by;
    philox_randomness own{};

    [[nodiscard]] draw_key shifted(draw_key key) const noexcept {
        key.position += by;
        return key;
    }
    template <class... Odds>
    [[nodiscard]] bool bernoulli(draw_key const& key, Odds&&... odds) const noexcept {
        return own.bernoulli(shifted(key), std::forward<Odds>(odds)...);
    }
    template <class Weights>
    [[nodiscard]] token_id categorical(draw_key const& key, Weights const& weights) const noexcept {
        return own.categorical(shifted(key), weights);
    }
    template <class Weights>
    [[nodiscard]] token_id gumbel_max(draw_key const& key, Weights const& weights,
                                      token_id likely = no_token) const noexcept {
        return own.gumbel_max(shifted(key), weights, likely);
    }
};

/// Memories of rounds with and without threads, and the stages over them.
template <class Drafter>
class rounds {
public:
    rounds(material const& with, Drafter drafter, std::size_t requests)
        : with_(with), drafter_(std::move(drafter)), views_(requests) {
        memories_.emplace_back(drafter_, schedule_, token_rejection<>{}, round_limits{.max_requests = requests});
        memories_.emplace_back(drafter_, schedule_, token_rejection<>{},
                               round_limits{.max_requests = requests, .executor = pool()});
    }
    void begin(std::size_t round) {
        round_ = round;
        for (std::size_t r = 0; r < views_.size(); ++r) {
            views_[r] = {.id = r,
                         .slot = r,
                         .anchor = static_cast<token_id>(r),
                         .position = round,
                         .context = {},
                         .seed = r,
                         .remaining = gamma + 1,
                         .settings = &settings_};
        }
    }
    void draw(std::size_t i) {
        auto& memory = memories_[i];
        for (std::size_t r = 0; r < views_.size(); ++r) memory.join(r);  // no round is ended
        benchmark::DoNotOptimize(begin_round(schedule_, std::span<request_view const>(views_), memory));
        sureleap::draw(drafter_, drafter_.forward(memory.requests()), token_rejection<>{}, rng_, memory);
        benchmark::DoNotOptimize(admit(schedule_, memory).rows());
    }
    /// Judges the block that was drawn in round 0.
    void accept(std::size_t i) {
        logits_rows<float> const rows{{with_.target.data(), views_.size() * (gamma + 1), with_.vocabulary}, {}, {}};
        shifted_randomness rng{round_};
        sureleap::accept(token_rejection<>{}, rows, no_logits_hook{}, rng, memories_[i]);
        benchmark::ClobberMemory();
    }

private:
    material const& with_;
    Drafter drafter_;
    fixed_schedule schedule_;
    std::vector<request_view> views_;
    std::size_t round_ = 0;
    request_settings settings_{};
    philox_randomness rng_;
    std::vector<round_memory<float, float>> memories_;
};

template <class Stage>
double seconds_of(Stage const& stage) {
    auto const start = std::chrono::steady_clock::now();
    stage();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

enum class what { draw, draw_list, accept };

template <class Drafter>
void in_turns(benchmark::State& state, what stage, material const& with, Drafter drafter) {
    rounds all(with, std::move(drafter), static_cast<std::size_t>(state.range(1)));
    std::vector<double> times[2];
    std::size_t round = 0;
    if (stage == what::accept) {  // one block, judged by other draws in every round
        all.begin(round);
        for (std::size_t const i : {0u, 1u}) all.draw(i);
    }
    for (auto _ : state) {
        all.begin(++round);
        for (std::size_t const i : {0u, 1u}) {
            with.forget();
            times[i].push_back(seconds_of([&] { stage == what::accept ? all.accept(i) : all.draw(i); }));
        }
        state.SetIterationTime(times[1].back());
    }
    double const alone = measure::median(times[0]);
    double const lent = measure::median(times[1]);
    state.counters["us"] = lent * 1e6;
    state.counters["alone_us"] = alone * 1e6;
    state.counters["vs_alone"] = alone / lent;
}

void measure(benchmark::State& state, what stage) {
    material const& with = material_of(static_cast<std::size_t>(state.range(0)));
    if (stage == what::draw_list) {
        matrix_view<token_id> const next{with.successors.data(), with.vocabulary, 128};
        in_turns(state, stage, with, with.drafter(shortlist_head{with.head(), 384, next}));
    } else {
        in_turns(state, stage, with, with.drafter(with.head()));
    }
}

[[maybe_unused]] bool const registered = [] {
    for (auto const& [name, stage] : {std::pair{"threads/draw", what::draw},
                                      {"threads/draw_list", what::draw_list},
                                      {"threads/accept", what::accept}}) {
        auto* const b = benchmark::RegisterBenchmark(name, measure, stage);
        b->ArgNames({"V", "batch"})->UseManualTime()->Unit(benchmark::kMicrosecond);
        if (stage == what::accept)
            b->Iterations(20);  // each after a pass over memory that takes a hundred times as long
        for (long const v : {32000L, 151936L}) {
            for (long const batch : {1L, 4L, 32L}) b->Args({v, batch});
        }
    }
    return true;
}();

}  // namespace

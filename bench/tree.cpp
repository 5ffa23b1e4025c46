// SPDX-License-Identifier: MIT
//
// Draft trees beside chains of the same drafter: a Markov head of rank 256 on lists of 64 tokens, seven positions. A
// round of the chain and one of the tree are measured in turns; ratios are of medians in one run.
//
//     tree/grow     a tree from base logits to its last token; `vs_chain` over drawing a chain of seven
//     tree/verify   the acceptance of a tree; vs_<rule> the time per row over that rule's per row of a chain of seven
//
// A row is a row of the target's batch: nodes and one more, whether a rule looks at it or not. `rows` are those. Rules
// that look at the accepted path alone look at more rows where they accept more: path_vs_<rule> is the same per row of
// that path. Recursive rejection stands beside both rules for chains, token rejection (which it is of a chain) and
// block verification.
//
// Logits: logits.hpp, a good draft, at temperature 0.7, since the lists have little of the mass at 1. A node's row is
// its depth's. All rows are read once just before what is timed. So they come from the last cache level as far as they
// fit there, as right after an LM head wrote them. Blocks rotate, and the chain's is another one than the tree's: the
// head's weights are not those that the other one just used.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include <sureleap/sureleap.hpp>

#include "logits.hpp"
#include "measure.hpp"
#include "rivals.hpp"

namespace {

using namespace sureleap;

using measure::median;
using measure::seconds_of;

constexpr std::size_t gamma = 7;
constexpr std::size_t blocks = 6;
constexpr std::size_t rank = 256;
constexpr std::size_t hidden = 64;
constexpr std::size_t listed = 64;
constexpr std::size_t most_nodes = 32;

[[nodiscard]] std::vector<float> random(std::size_t count, float deviation, std::uint64_t seed) {
    logits::normals normal(seed);
    std::vector<float> all(count);
    for (float& x : all) x = deviation * normal();
    return all;
}

/// Recorded blocks in turn, and a head's weights: backbone and target at once.
struct recorded {
    std::size_t vocabulary;
    logits::recording logits;
    std::vector<float> states = random(blocks * gamma * hidden, 1.0f, 11);
    std::vector<float> w1;
    std::vector<float> w2;
    std::vector<float> rows;
    std::size_t turn = 0;
    bool is_judged = true;  // else rows stay what they are: copies would take the drafter's rows out of the caches

    explicit recorded(std::size_t v)
        : vocabulary(v),
          logits(blocks, gamma, v, 0.45f),
          w1(random(v * rank, 0.1f, 12)),
          w2(random(v * rank, 0.1f, 13)),
          rows((most_nodes + 1) * v) {}

    [[nodiscard]] block_forward<float> operator()(std::span<request_view const>) const {
        float const* const base = logits.q.data() + turn * gamma * vocabulary;
        benchmark::DoNotOptimize(rivals::read(base, gamma * vocabulary));
        return {{states.data() + turn * gamma * hidden, gamma, hidden}, {{base, gamma, vocabulary}, {}, {}}};
    }
    /// Row n is that of the target behind as many tokens as node n has.
    [[nodiscard]] logits_rows<float> score(verify_batch const& batch) {
        for (std::size_t n = 0; is_judged && n < batch.rows(); ++n) {
            std::uint64_t const depth = batch.positions()[n] - batch.positions()[0];
            float const* const row = logits.p.data() + (turn * (gamma + 1) + depth) * vocabulary;
            std::copy_n(row, vocabulary, rows.data() + n * vocabulary);
        }
        if (is_judged) benchmark::DoNotOptimize(rivals::read(rows.data(), batch.rows() * vocabulary));
        return {{rows.data(), batch.rows(), vocabulary}, {}, {}};
    }
};
recorded& data_of(long vocabulary) {
    static std::map<long, std::unique_ptr<recorded>> all;
    auto& made = all[vocabulary];
    if (made == nullptr) made = std::make_unique<recorded>(static_cast<std::size_t>(vocabulary));
    return *made;
}

/// From 0.62 to 0.78, by the state: trees of one shape would be judged in one way.
struct confidence {
    [[nodiscard]] static double of(std::span<float const> h) {
        return 0.7 + 0.08 * static_cast<double>(h[0] > 0.0f) - 0.08 * static_cast<double>(h[1] > 0.0f);
    }
    double operator()(std::span<float const> h, token_id, std::size_t) const { return of(h); }
    double at_anchor(std::span<float const> h, token_id, std::size_t) const { return of(h); }
};

[[nodiscard]] auto chain_drafter(recorded& data) {
    std::size_t const v = data.vocabulary;
    markov_head<float> const head{{data.w1.data(), v, rank}, {data.w2.data(), v, rank}};
    return semi_autoregressive{[&data](std::span<request_view const> r) { return data(r); },
                               shortlist_head{head, listed},
                               confidence{},
                               {.block_size = gamma, .vocabulary = v, .hidden_size = hidden}};
}
[[nodiscard]] auto tree_of(recorded& data, std::size_t nodes) {
    return tree_drafter{chain_drafter(data), {.nodes = nodes}};
}

/// Rounds of one drafter under one rule, of a request that is another one every time.
template <class Drafter, class Rule>
class rounds {
public:
    rounds(recorded& data, Drafter drafter, Rule rule)
        : data_(data),
          drafter_(std::move(drafter)),
          rule_(rule),
          memory_(drafter_, schedule_, rule_, {.max_requests = 1}) {}

    /// A round of block `turn`. True if it verified `rows` rows, as it should.
    [[nodiscard]] bool step(std::size_t turn, std::uint64_t position, std::size_t rows) {
        data_.turn = turn % blocks;
        request_view const request{
            .anchor = 0, .position = 10 * position, .seed = 7, .remaining = 100, .settings = &settings_};
        memory_.join(0);
        if (!begin_round(schedule_, std::span(&request, 1), memory_)) return false;
        auto const forward = drafter_.forward(memory_.requests());
        drawing_.push_back(seconds_of([&] { draw(drafter_, forward, rule_, rng_, memory_); }));
        auto const& batch = admit(schedule_, memory_);
        auto const scored = data_.score(batch);
        accepting_.push_back(seconds_of([&] {
            accept(rule_, scored, no_logits_hook{}, rng_, memory_);
            benchmark::ClobberMemory();
        }));
        rows_ = batch.rows();
        // The drafter learns nothing: what siblings are worth stays what is assumed, and shapes do not depend on
        // earlier cases.
        std::size_t const accepted = end_round(schedule_, memory_).verdicts[0].accepted;
        accepted_ += accepted;
        by_path_.push_back(accepting_.back() / static_cast<double>(accepted + 1));
        return rows_ == rows;
    }
    [[nodiscard]] double drawing() const { return median(drawing_); }
    [[nodiscard]] double accepting() const { return median(accepting_); }
    [[nodiscard]] double last_draw() const { return drawing_.back(); }
    [[nodiscard]] double last_acceptance() const { return accepting_.back(); }
    [[nodiscard]] double rows() const { return static_cast<double>(rows_); }
    [[nodiscard]] double per_row() const { return accepting() / rows(); }
    /// Per row of the accepted path, its end included.
    [[nodiscard]] double per_row_of_path() const { return median(by_path_); }
    [[nodiscard]] double accepted() const {
        return static_cast<double>(accepted_) / static_cast<double>(accepting_.size());
    }

private:
    recorded& data_;
    Drafter drafter_;
    Rule rule_;
    fixed_schedule schedule_{};
    round_memory<float, float> memory_;
    philox_randomness rng_{};
    request_settings settings_{.temperature = 0.7};
    std::vector<double> drawing_;
    std::vector<double> accepting_;
    std::vector<double> by_path_;
    std::size_t rows_ = 0;
    std::size_t accepted_ = 0;
};

constexpr char const* of_another_size = "a block or a tree has not the tokens that it should have";

template <class TreeRule, class ChainRule>
void grow(benchmark::State& state, TreeRule rule, ChainRule beside) {
    recorded& data = data_of(state.range(0));
    data.is_judged = false;
    auto const nodes = static_cast<std::size_t>(state.range(1));
    rounds trees(data, tree_of(data, nodes), rule);
    rounds chains(data, chain_drafter(data), beside);
    std::uint64_t position = 0;
    for (auto _ : state) {
        bool const whole = chains.step(position, position, gamma + 1) && trees.step(position + 3, position, nodes + 1);
        if (!whole) return state.SkipWithError(of_another_size);
        ++position;
        state.SetIterationTime(trees.last_draw());
    }
    state.counters["us"] = trees.drawing() * 1e6;
    state.counters["chain_us"] = chains.drawing() * 1e6;
    state.counters["vs_chain"] = trees.drawing() / chains.drawing();
}

/// Beside a rule for chains, called `name`, or two.
template <class TreeRule, class ChainRule, class Other>
void verify(benchmark::State& state, TreeRule rule, char const* name, ChainRule beside, char const* other,
            Other second) {
    recorded& data = data_of(state.range(0));
    data.is_judged = true;
    auto const nodes = static_cast<std::size_t>(state.range(1));
    rounds trees(data, tree_of(data, nodes), rule);
    rounds chains(data, chain_drafter(data), beside);
    rounds others(data, chain_drafter(data), second);
    std::uint64_t position = 0;
    for (auto _ : state) {
        bool const whole = chains.step(position, position, gamma + 1) &&
                           trees.step(position + 2, position, nodes + 1) &&
                           (other == nullptr || others.step(position + 4, position, gamma + 1));
        if (!whole) return state.SkipWithError(of_another_size);
        ++position;
        state.SetIterationTime(trees.last_acceptance());
    }
    state.counters["us"] = trees.accepting() * 1e6;
    state.counters["rows"] = trees.rows();
    state.counters["accepted"] = trees.accepted();
    auto const compare = [&](std::string const& with, auto const& chain) {
        state.counters["vs_" + with] = trees.per_row() / chain.per_row();
        if (with != "block") state.counters["path_vs_" + with] = trees.per_row_of_path() / chain.per_row_of_path();
        state.counters[with + "_us"] = chain.accepting() * 1e6;
        state.counters[with + "_accepted"] = chain.accepted();
    };
    compare(name, chains);
    if (other != nullptr) compare(other, others);
}

int add() {
    for (long const vocabulary : {32000L, 151936L}) {
        for (long const nodes : {7L, 32L}) {
            auto const named = [=](char const* name, auto run) {
                benchmark::RegisterBenchmark(name, run)
                    ->Args({vocabulary, nodes})
                    ->ArgNames({"V", "nodes"})
                    ->Iterations(300)  // what is not timed, rows above all, takes fifty times as long
                    ->UseManualTime()
                    ->Unit(benchmark::kMicrosecond);
            };
            using state = benchmark::State;
            named("tree/grow/drawn", [](state& s) { grow(s, recursive_rejection<>{}, token_rejection<>{}); });
            named("tree/grow/coupled", [](state& s) { grow(s, keyed_coupling{}, keyed_coupling{}); });
            named("tree/grow/likeliest", [](state& s) { grow(s, target_match<>{}, target_match<>{}); });
            named("tree/verify/match",
                  [](state& s) { verify(s, target_match<>{}, "match", target_match<>{}, nullptr, target_match<>{}); });
            named("tree/verify/coupled", [](state& s) {
                verify(s, keyed_coupling{}, "coupled", keyed_coupling{}, nullptr, keyed_coupling{});
            });
            named("tree/verify/rejection", [](state& s) {
                verify(s, recursive_rejection<>{}, "token", token_rejection<>{}, "block", block_verification<>{});
            });
            named("tree/verify/traversal", [](state& s) {
                verify(s, traversal_verification<>{}, "block", block_verification<>{}, nullptr, block_verification<>{});
            });
        }
    }
    return 0;
}
[[maybe_unused]] int const added = add();

}  // namespace

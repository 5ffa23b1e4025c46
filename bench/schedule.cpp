// SPDX-License-Identifier: MIT
//
// Schedules over tables of R requests and gamma positions, as the admit stage calls them. Everything is measured in
// turns in one run; ratios are of medians:
//
//     us         a call
//     vs_heap    the walk candidate by candidate (causal_frontier's best and admit) over it, but for a million requests
//     vs_scalar  what a user writes who reads Algorithm 1, over it: all candidates into an array, std::sort, a loop
//     admitted   share of the candidates
//
//     schedule/greedy       Algorithm 1. smooth: a profiled curve of growing slope. staircase: padded sizes, of which the
//                           first is reached. Both at the load where a third is admitted.
//     schedule/best_budget  the global maximum. stairs: 64 padded sizes
//     schedule/top_k        live admission of a planner's budget, a third of all
//
// Requests differ in difficulty and confidences fluctuate about it. Tables rotate, 8 MiB of them or two: they come from
// a cache below the first, as when a draft has just been drawn; a million requests do not fit any.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <benchmark/benchmark.h>

#include <sureleap/sureleap.hpp>

#include "measure.hpp"

namespace {

using namespace sureleap;

struct shape {
    std::size_t requests;
    std::size_t gamma = 8;
    bool jagged = false;
};

struct table {
    std::size_t gamma;
    std::vector<std::uint32_t> sizes;
    std::vector<fixed_probability> confidence;
    std::vector<fixed_probability> survival;

    table(shape const& s, std::uint64_t seed)
        : gamma(s.gamma),
          sizes(s.requests, static_cast<std::uint32_t>(s.gamma)),
          confidence(s.requests * s.gamma),
          survival(s.requests * s.gamma) {
        std::mt19937_64 bits(seed);
        std::normal_distribution<double> normal;
        for (std::size_t r = 0; r < s.requests; ++r) {
            if (s.jagged && bits() % 2 == 0) sizes[r] = static_cast<std::uint32_t>(bits() % (gamma + 1));
            double const ease = 1.3 + normal(bits);
            fixed_probability before = certain;
            for (std::size_t i = r * gamma; i < (r + 1) * gamma; ++i) {
                static_cast<void>(quantise(1.0 / (1.0 + std::exp(-ease - 0.8 * normal(bits))), confidence[i]));
                survival[i] = before = extend_survival(before, confidence[i]);
            }
        }
    }
    [[nodiscard]] survival_table view() const { return {gamma, sizes, confidence, survival}; }
};

struct tables {
    std::vector<table> all;
    std::size_t turn = 0;

    explicit tables(shape const& s) {
        std::size_t const bytes = s.requests * s.gamma * sizeof(fixed_probability);
        std::size_t const count = std::clamp<std::size_t>((std::size_t{8} << 20) / bytes, 2, 256);
        for (std::size_t i = 0; i < count; ++i) all.emplace_back(s, i + 1);
    }
    survival_table next() { return all[turn = (turn + 1) % all.size()].view(); }
    [[nodiscard]] std::size_t candidates() const {
        std::size_t sum = 0;
        for (std::uint32_t const size : all[0].sizes) sum += size;
        return sum;
    }
};

tables& tables_of(shape const& s) {
    static std::map<std::tuple<std::size_t, std::size_t, bool>, std::unique_ptr<tables>> made;
    auto& t = made[{s.requests, s.gamma, s.jagged}];
    if (t == nullptr) t = std::make_unique<tables>(s);
    return *t;
}

struct memory {
    std::vector<std::byte> buffer;
    frontier_memory walk{};

    explicit memory(std::size_t requests) {
        workspace sizer;
        static_cast<void>(frontier_memory::carve(sizer, requests));
        buffer.resize(sizer.used());
        workspace ws{buffer};
        walk = frontier_memory::carve(ws, requests);
    }
};

// ---- curves ----------------------------------------------------------------------------------------------------

/// A step of 1 + x + x^2 / 4 at x times `scale` tokens, profiled at two sizes an octave.
capacity_table<> smooth(shape const& s, double scale) {
    std::vector<capacity_point> points;
    for (double b = 1.0; b < 2.0 * static_cast<double>(s.requests * (s.gamma + 1)); b *= std::sqrt(2.0)) {
        auto const tokens = static_cast<std::size_t>(std::lround(b));
        if (!points.empty() && points.back().batch_tokens == tokens) continue;
        double const x = static_cast<double>(tokens) / scale;
        points.push_back({tokens, 1e-3 * (1.0 + x + 0.25 * x * x)});
    }
    return capacity_table<>(std::move(points));
}

/// The smooth curve under which Algorithm 1 admits a third of the first table.
capacity_table<> smooth_at_a_third(shape const& s, tables const& data) {
    memory mine(s.requests);
    double low = 1.0;
    double high = 1e9;
    while (high > low * 1.0001) {
        double const middle = std::sqrt(low * high);
        causal_frontier frontier{data.all[0].view(), mine.walk};
        greedy_schedule{smooth(s, middle)}.admit(frontier);
        (3 * frontier.admitted() < data.candidates() ? low : high) = middle;
    }
    return smooth(s, high);
}

capacity_table<staircase> stairs(shape const& s, std::size_t first, std::size_t width) {
    std::vector<capacity_point> points;
    auto const most = s.requests * (s.gamma + 1);
    for (std::size_t b = first; b < most + width; b += width) {
        points.push_back({b, 1e-3 * (1.0 + static_cast<double>(b) / static_cast<double>(2 * s.requests))});
    }
    return capacity_table<staircase>(std::move(points));
}

// ---- the walks that are compared ---------------------------------------------------------------------------------

template <class Capacity>
std::size_t heap_greedy(survival_table const& t, frontier_memory const& memory, Capacity const& capacity) {
    causal_frontier frontier{t, memory};
    auto step = expected_step::without_drafts(t.requests());
    double theta = step.throughput(capacity);
    while (!frontier.empty()) {
        candidate const c = frontier.best();
        auto const longer = step.with(c);
        double const gained = longer.throughput(capacity);
        if (!(gained > theta)) break;
        frontier.admit(c.request);
        step = longer;
        theta = gained;
    }
    return frontier.admitted();
}

template <class Capacity>
std::size_t heap_budget(survival_table const& t, frontier_memory const& memory, Capacity const& capacity) {
    causal_frontier frontier{t, memory};
    auto step = expected_step::without_drafts(t.requests());
    double theta = step.throughput(capacity);
    std::size_t budget = 0;
    while (!frontier.empty()) {
        candidate const c = frontier.best();
        frontier.admit(c.request);
        step = step.with(c);
        if (double const now = step.throughput(capacity); now > theta) {
            theta = now;
            budget = frontier.admitted();
        }
    }
    return budget;
}

std::size_t heap_first(survival_table const& t, frontier_memory const& memory, std::size_t count) {
    causal_frontier frontier{t, memory};
    while (!frontier.empty() && frontier.admitted() < count) frontier.admit(frontier.best().request);
    return frontier.admitted();
}

/// A user's: every candidate sorted, then taken while `take` says so.
template <class Take>
std::size_t sort_everything(survival_table const& t, frontier_memory const& memory, std::vector<candidate>& all,
                            Take&& take) {
    all.clear();
    for (std::size_t r = 0; r < t.requests(); ++r) {
        for (std::size_t k = 0; k < t.sizes[r]; ++k) all.push_back(t.at(r, k));
    }
    std::sort(all.begin(), all.end(), precedes);
    std::fill_n(memory.lengths.begin(), t.requests(), 0u);
    auto step = expected_step::without_drafts(t.requests());
    std::size_t count = 0;
    for (candidate const& c : all) {
        step = step.with(c);
        if (!take(step)) break;
        ++memory.lengths[c.request];
        ++count;
    }
    return count;
}

// ---- measuring ---------------------------------------------------------------------------------------------------

using measure::median;
using measure::seconds_of;

/// What is measured beside a case, once: a benchmark's function is called again for every repetition.
struct others {
    double heap = 0.0;
    double scalar = 0.0;
    bool agree = true;
};

/// Median seconds of f(table), over about a fifth of a second: several tables, or one that takes longer. What f admits
/// has to be what `ours` does.
template <class F, class Ours>
double typical(tables& data, F&& f, Ours&& ours, bool& agree) {
    std::vector<double> times;
    double all = 0.0;
    while (times.empty() || (all < 0.2 && times.size() < 1000)) {
        survival_table const t = data.next();
        std::size_t admitted = 0;
        times.push_back(seconds_of([&] { admitted = f(t); }));
        all += times.back();
        agree = agree && admitted == ours(t);
    }
    return median(times);
}

/// `ours`, `heap` and `scalar` of (table): what is admitted, of every table the same by all.
template <class Ours, class Heap, class Scalar>
void compare(benchmark::State& state, tables& data, others& beside, Ours&& ours, Heap&& heap, Scalar&& scalar) {
    std::vector<double> times;
    std::size_t admitted = 0;
    for (auto _ : state) {
        survival_table const t = data.next();
        times.push_back(seconds_of([&] { admitted = ours(t); }));
        state.SetIterationTime(times.back());
    }
    if (beside.scalar == 0.0) {
        beside.scalar = typical(data, scalar, ours, beside.agree);
        // Where sorting takes a second the walk takes ten to fifty.
        if (beside.scalar < 1.0) beside.heap = typical(data, heap, ours, beside.agree);
    }
    if (!beside.agree) return state.SkipWithError("they do not agree");
    double const mine = median(times);
    state.counters["us"] = mine * 1e6;
    state.counters["admitted"] = static_cast<double>(admitted) / static_cast<double>(data.candidates());
    if (beside.heap > 0.0) state.counters["vs_heap"] = beside.heap / mine;
    state.counters["vs_scalar"] = beside.scalar / mine;
}

template <class Capacity>
void greedy(benchmark::State& state, shape const& s, tables& data, others& beside, Capacity const& capacity) {
    memory mine(s.requests);
    std::vector<candidate> all;
    greedy_schedule const schedule{capacity};
    compare(
        state, data, beside,
        [&](survival_table const& t) {
            causal_frontier frontier{t, mine.walk};
            schedule.admit(frontier);
            return frontier.admitted();
        },
        [&](survival_table const& t) { return heap_greedy(t, mine.walk, capacity); },
        [&](survival_table const& t) {
            double theta = expected_step::without_drafts(t.requests()).throughput(capacity);
            return sort_everything(t, mine.walk, all, [&](expected_step const& step) {
                double const last = theta;
                return (theta = step.throughput(capacity)) > last;
            });
        });
}

template <class Capacity>
void budget(benchmark::State& state, shape const& s, tables& data, others& beside, Capacity const& capacity) {
    memory mine(s.requests);
    std::vector<candidate> all;
    compare(
        state, data, beside, [&](survival_table const& t) { return best_budget(t, mine.walk, capacity); },
        [&](survival_table const& t) { return heap_budget(t, mine.walk, capacity); },
        [&](survival_table const& t) {
            double best = expected_step::without_drafts(t.requests()).throughput(capacity);
            std::size_t count = 0;
            sort_everything(t, mine.walk, all, [&](expected_step const& step) {
                if (double const theta = step.throughput(capacity); theta > best) {
                    best = theta;
                    count = step.batch_tokens - t.requests();
                }
                return true;
            });
            return count;
        });
}

void top_k(benchmark::State& state, shape const& s, tables& data, others& beside) {
    memory mine(s.requests);
    std::vector<candidate> all;
    std::size_t const count = data.candidates() / 3;
    compare(
        state, data, beside,
        [&](survival_table const& t) {
            causal_frontier frontier{t, mine.walk};
            frontier.admit_best(count);
            return frontier.admitted();
        },
        [&](survival_table const& t) { return heap_first(t, mine.walk, count); },
        [&](survival_table const& t) {
            return sort_everything(t, mine.walk, all,
                                   [&](expected_step const& x) { return x.batch_tokens <= t.requests() + count; });
        });
}

int add() {
    auto const named = [](std::string const& what, shape const& s, std::string const& curve, auto run) {
        std::string const name = what + "/R:" + std::to_string(s.requests) + "/" + curve +
                                 "gamma:" + std::to_string(s.gamma) + (s.jagged ? "/jagged" : "");
        auto const beside = std::make_shared<others>();
        benchmark::RegisterBenchmark(name.c_str(),
                                     [=](benchmark::State& state) { run(state, s, tables_of(s), *beside); })
            ->UseManualTime()
            ->Unit(benchmark::kMicrosecond);
    };
    auto const greedy_on = [&](shape const& s) {
        named("schedule/greedy", s, "smooth/",
              [](benchmark::State& state, shape const& at, tables& data, others& beside) {
                  greedy(state, at, data, beside, smooth_at_a_third(at, data));
              });
        named("schedule/greedy", s, "staircase/",
              [](benchmark::State& state, shape const& at, tables& data, others& beside) {
                  std::size_t const third = data.candidates() / 3;
                  greedy(state, at, data, beside, stairs(at, at.requests + third, third));
              });
    };
    for (std::size_t const r :
         {std::size_t{4}, std::size_t{8}, std::size_t{16}, std::size_t{64}, std::size_t{256}, std::size_t{1024},
          std::size_t{4096}, std::size_t{16384}, std::size_t{65536}, std::size_t{262144}, std::size_t{1048576}}) {
        greedy_on({r});
        named("schedule/top_k", {r}, "", [](benchmark::State& state, shape const& at, tables& data, others& beside) {
            top_k(state, at, data, beside);
        });
    }
    for (std::size_t const gamma : {std::size_t{4}, std::size_t{6}, std::size_t{12}, std::size_t{16}}) {
        greedy_on({4096, gamma});
    }
    for (std::size_t const r : {std::size_t{256}, std::size_t{4096}, std::size_t{65536}, std::size_t{1048576}}) {
        greedy_on({r, 8, true});
        named("schedule/best_budget", {r}, "smooth/",
              [](benchmark::State& state, shape const& at, tables& data, others& beside) {
                  budget(state, at, data, beside, smooth_at_a_third(at, data));
              });
        named("schedule/best_budget", {r}, "stairs/",
              [](benchmark::State& state, shape const& at, tables& data, others& beside) {
                  std::size_t const width = at.requests * (at.gamma + 1) / 64;
                  budget(state, at, data, beside, stairs(at, width, width));
              });
    }
    return 0;
}
[[maybe_unused]] int const added = add();

}  // namespace

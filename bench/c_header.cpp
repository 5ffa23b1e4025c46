// SPDX-License-Identifier: MIT
//
// round/c_header: a round through the C header beside the same round in C++, one request. The models return recorded
// rows, which are read just before, so what is measured is the library alone. Both rounds are taken in turns. vs_cpp is
// the median of the C rounds over that of the C++ ones; the tokens are equal.
#define SURELEAP_C_IMPLEMENTATION
#include <sureleap/sureleap.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include <benchmark/benchmark.h>

#include <sureleap/sureleap.hpp>

#include "measure.hpp"

namespace {

using namespace sureleap;
using measure::median;
using measure::seconds_of;

constexpr std::size_t block_size = 7;
constexpr std::size_t recorded_rounds = 32;

struct recorded {
    explicit recorded(std::size_t V) : vocabulary(V) {
        std::mt19937 dice(1);
        std::normal_distribution<float> normal(0.0f, 2.0f);
        draft.resize(recorded_rounds * block_size * V);
        target.resize(recorded_rounds * (block_size + 1) * V);
        for (float& x : draft) x = normal(dice);
        std::normal_distribution<float> noise(0.0f, 0.3f);
        for (std::size_t i = 0; i < target.size(); ++i) target[i] = draft[i % draft.size()] + noise(dice);
    }
    [[nodiscard]] float const* draft_of(std::uint64_t round) const {
        return draft.data() + round % recorded_rounds * block_size * vocabulary;
    }
    [[nodiscard]] float const* target_of(std::uint64_t round) const {
        return target.data() + round % recorded_rounds * block_size * vocabulary;
    }

    /// As models leave them: in the caches, as far as they fit.
    void read(std::uint64_t round) const {
        std::size_t const size = block_size * vocabulary;
        benchmark::DoNotOptimize(std::accumulate(draft_of(round), draft_of(round) + size, 0.0f));
        benchmark::DoNotOptimize(std::accumulate(target_of(round), target_of(round) + size + vocabulary, 0.0f));
    }

    std::size_t vocabulary;
    std::vector<float> draft{};
    std::vector<float> target{};
};

/// The stages, as an engine calls them.
class in_cpp {
    struct backbone_of {
        recorded const* rows;
        std::uint64_t const* round;
        [[nodiscard]] block_forward<float> forward(std::span<request_view const>) const {
            return {{}, {{rows->draft_of(*round), block_size, rows->vocabulary}, {}, {}}};
        }
    };

public:
    explicit in_cpp(recorded const& rows)
        : rows_(rows),
          drafter_(backbone_of{&rows, &round_}, top1_confidence{},
                   {.block_size = block_size, .vocabulary = rows.vocabulary}),
          memory_(drafter_, schedule_, rule_, {.max_requests = 1}) {}

    /// The token emitted last.
    token_id step(std::uint64_t round) {
        round_ = round;
        request_view const request{
            .anchor = 0, .position = round * 16, .seed = 3, .remaining = 100, .settings = &settings_};
        if (begin_round(schedule_, {&request, 1}, memory_)) {
            auto const forward = drafter_.forward(memory_.requests());
            plan(schedule_, drafter_, forward, memory_);
            draw(drafter_, forward, rule_, rng_, memory_);
        }
        verify_batch const& batch = admit(schedule_, memory_);
        logits_rows<float> const target{{rows_.target_of(round), batch.rows(), rows_.vocabulary}, {}, {}};
        accept(rule_, target, no_logits_hook{}, rng_, memory_);
        return end_round(schedule_, memory_).verdicts[0].next_anchor();
    }

private:
    recorded const& rows_;
    std::uint64_t round_ = 0;
    request_settings settings_{};
    parallel<backbone_of, top1_confidence> drafter_;
    survival_threshold_schedule schedule_{0.01};
    token_rejection<> rule_{};
    philox_randomness rng_{};
    round_memory<float, float> memory_;
};

/// The same through the header.
class in_c {
public:
    explicit in_c(recorded const& rows) : rows_(rows) {
        sureleap_round_options o;
        sureleap_round_options_init(&o);
        o.schedule = SURELEAP_SURVIVAL_THRESHOLD;
        o.threshold = 0.01;
        o.confidence = SURELEAP_CONFIDENCE_TOP1;
        o.block_size = block_size;
        o.vocabulary = rows.vocabulary;
        std::size_t bytes = 0;
        if (sureleap_round_bytes(&o, &bytes, nullptr) != SURELEAP_OK) std::abort();
        memory_.resize(bytes);
        if (sureleap_round_create(&o, memory_.data(), bytes, &round_, nullptr) != SURELEAP_OK) std::abort();
    }
    ~in_c() { static_cast<void>(sureleap_round_destroy(round_)); }
    in_c(in_c const&) = delete;
    in_c& operator=(in_c const&) = delete;

    std::int32_t step(std::uint64_t round) {
        sureleap_request request;
        sureleap_request_init(&request);
        request.position = round * 16;
        request.seed = 3;
        request.remaining = 100;
        sureleap_drafts drafts{};
        drafts.positions = block_size;
        drafts.rows = {rows_.draft_of(round), block_size, rows_.vocabulary, rows_.vocabulary, nullptr, nullptr, 0, 0};
        sureleap_batch batch{};
        sureleap_verdict verdict{};
        sureleap_rows target{rows_.target_of(round), 0, rows_.vocabulary, rows_.vocabulary, nullptr, nullptr, 0, 0};
        bool good = sureleap_round_begin(round_, &request, 1, nullptr) == SURELEAP_OK;
        good = good && sureleap_round_draft(round_, &drafts) == SURELEAP_OK;
        good = good && sureleap_round_admit(round_, &batch) == SURELEAP_OK;
        target.rows = batch.rows;
        good = good && sureleap_round_accept(round_, &target) == SURELEAP_OK;
        good = good && sureleap_round_end(round_, &verdict, 1) == SURELEAP_OK;
        return good && verdict.emitted_count > 0 ? verdict.emitted[verdict.emitted_count - 1] : no_token;
    }

private:
    recorded const& rows_;
    std::vector<std::byte> memory_{};
    sureleap_round* round_ = nullptr;
};

void c_header(benchmark::State& state) {
    recorded const rows(static_cast<std::size_t>(state.range(0)));
    in_cpp cpp(rows);
    in_c c(rows);
    std::vector<double> times_cpp;
    std::vector<double> times_c;
    std::uint64_t round = 0;
    token_id last = no_token;
    std::int32_t c_last = no_token;
    for (auto _ : state) {
        ++round;
        auto const run_cpp = [&] {
            rows.read(round);
            times_cpp.push_back(seconds_of([&] { last = cpp.step(round); }));
        };
        auto const run_c = [&] {
            rows.read(round);
            times_c.push_back(seconds_of([&] { c_last = c.step(round); }));
        };
        if (round % 2 == 0) {
            run_cpp();
            run_c();
        } else {
            run_c();
            run_cpp();
        }
        state.SetIterationTime(times_c.back());
        if (last != c_last) {
            state.SkipWithError("the tokens differ");
            break;
        }
    }
    state.counters["us"] = 1e6 * median(times_c);
    state.counters["vs_cpp"] = median(times_c) / median(times_cpp);
}
BENCHMARK(c_header)->Name("round/c_header")->ArgName("V")->Arg(32'000)->UseManualTime();

}  // namespace

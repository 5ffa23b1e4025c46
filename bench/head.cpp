// SPDX-License-Identifier: MIT
//
// Sequential heads: what drafting takes once the backbone has run, for blocks of gamma = 7 and heads of rank 256, per
// step, which is one position of all requests. A step is everything: the base logits of the position, the bias, the
// law, the draw, and for a shortlist the choice of its tokens.
//
//     head/markov/fp32, bf16, int8    the storage of W2
//     head/gated/fp32, rnn/fp32       with hidden states of 1,024 numbers
//     head/markov/batch32             32 requests in fp32; head/batch goes through numbers of requests
//     head/shortlist/M                M / 2 tokens by base logits and M / 2 successors
//
// vs_read is a step over reading W2, as one thread can; vs_scalar and vs_eigen are users' steps over it. Base logits
// and tokens change from block to block; a shortlist's rows of W2 therefore come from memory unless tokens return.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <benchmark/benchmark.h>

#include <sureleap/sureleap.hpp>

#include "logits.hpp"
#include "measure.hpp"
#include "rivals.hpp"

namespace {

using namespace sureleap;

constexpr std::size_t gamma = 7;
constexpr std::size_t rank = 256;
constexpr std::size_t hidden_size = 1024;

using measure::median;
using measure::seconds_since;

/// Weights in large pages, where the system gives them: rows here and there of a matrix of this size are found two to
/// three times as fast as in pages of 4 KiB.
template <class T>
class pages {
public:
    explicit pages(std::size_t size) : memory_(size * sizeof(T) + page), size_(size) {
        auto const rest = reinterpret_cast<std::uintptr_t>(memory_.data()) % page;
        data_ = reinterpret_cast<T*>(memory_.data() + (page - rest) % page);
#if defined(__linux__)
        ::madvise(data_, size * sizeof(T), MADV_HUGEPAGE);  // a wish; before anything is written
#endif
        std::uninitialized_value_construct_n(data_, size);
    }
    [[nodiscard]] T* data() const { return data_; }
    [[nodiscard]] std::size_t size() const { return size_; }
    [[nodiscard]] T& operator[](std::size_t i) const { return data_[i]; }

private:
    struct freed {
        void operator()(std::byte* bytes) const { std::free(bytes); }
    };
    static constexpr std::size_t page = std::size_t{1} << 21;
    struct block {
        explicit block(std::size_t size) : bytes(static_cast<std::byte*>(std::malloc(size))) {}
        [[nodiscard]] std::byte* data() const { return bytes.get(); }
        std::unique_ptr<std::byte, freed> bytes;
    } memory_;
    T* data_ = nullptr;
    std::size_t size_;
};

/// Weights, base logits and hidden states of one vocabulary.
struct material {
    static constexpr std::size_t blocks = 3;

    std::size_t vocabulary;
    pages<float> w1, w2;
    pages<bf16> w2_bf16;
    pages<std::int8_t> w2_int8;
    std::vector<float> scales;
    std::vector<float> gate, joint, bias;
    std::vector<float> base;  // [blocks, gamma, V]
    std::vector<float> hidden;
    std::vector<token_id> successors;  // [V, V / 64 at most 1,024]: any will do for the time
    std::size_t most_successors;

    explicit material(std::size_t v)
        : vocabulary(v),
          w1(v * rank),
          w2(v * rank),
          w2_bf16(v * rank),
          w2_int8(v * rank),
          base(logits::of_target(blocks * gamma, v, 3)),
          most_successors(std::min<std::size_t>(1024, v / 64)) {
        std::mt19937_64 bits(4);
        auto const some = [&](float spread) { return (static_cast<float>(bits() >> 40) * 0x1p-23f - 1.0f) * spread; };
        for (std::size_t i = 0; i < v * rank; ++i) {
            w1[i] = some(0.2f);
            w2[i] = some(0.2f);
            w2_bf16[i] = bf16(w2[i]);
        }
        int8_matrix const rounded(output());
        std::copy_n(rounded.view().values, v * rank, w2_int8.data());
        scales.assign(rounded.view().scales, rounded.view().scales + v);
        for (std::size_t i = 0; i < 3 * rank * (2 * rank + hidden_size); ++i) joint.push_back(some(0.05f));
        gate.assign(joint.begin(), joint.begin() + rank * (rank + hidden_size));
        bias.assign(3 * rank, 0.0f);
        for (std::size_t i = 0; i < blocks * gamma * hidden_size; ++i) hidden.push_back(some(1.0f));
        for (std::size_t t = 0; t < v; ++t) {
            std::size_t const apart = v / most_successors;
            for (std::size_t i = 0; i < most_successors; ++i) {
                successors.push_back(static_cast<token_id>(i * apart + bits() % apart));
            }
        }
    }
    [[nodiscard]] matrix_view<float> embedding() const { return {w1.data(), vocabulary, rank}; }
    [[nodiscard]] matrix_view<float> output() const { return {w2.data(), vocabulary, rank}; }
    [[nodiscard]] int8_view output_int8() const { return {w2_int8.data(), scales.data(), vocabulary, rank}; }
};

material& material_of(std::size_t vocabulary) {
    static std::map<std::size_t, std::unique_ptr<material>> made;
    auto& m = made[vocabulary];
    if (m == nullptr) m = std::make_unique<material>(vocabulary);
    return *m;
}

/// A backbone that has run: rows of one block, or of one block for each of `requests`.
struct recorded {
    material const* from;
    std::size_t requests;
    std::vector<float> base;  // [requests, gamma, V] if there are several
    std::vector<float> hidden;
    std::size_t turn = 0;

    recorded(material const& m, std::size_t n) : from(&m), requests(n) {
        std::size_t const rows = gamma * m.vocabulary;
        for (std::size_t r = 0; r < n && n > 1; ++r) {
            auto const first = m.base.begin() + static_cast<std::ptrdiff_t>(r % material::blocks * rows);
            base.insert(base.end(), first, first + static_cast<std::ptrdiff_t>(rows));
        }
        for (std::size_t r = 0; r < n; ++r) {
            hidden.insert(hidden.end(), m.hidden.begin(), m.hidden.begin() + gamma * hidden_size);
        }
    }
    [[nodiscard]] float const* rows() const {
        return requests > 1 ? base.data() : from->base.data() + turn * gamma * from->vocabulary;
    }
    [[nodiscard]] block_forward<float> forward(std::span<request_view const>) const {
        return {{hidden.data(), requests * gamma, hidden_size}, {{rows(), requests * gamma, from->vocabulary}, {}, {}}};
    }
};

/// The faster of two ways.
template <class Weight>
double seconds_of_read(Weight const* data, std::size_t size) {
    double least = 1e9;
    for (auto const read : {rivals::read, rivals::read_in_order}) {
        auto const start = std::chrono::steady_clock::now();
        benchmark::DoNotOptimize(read(reinterpret_cast<float const*>(data), size * sizeof(Weight) / sizeof(float)));
        least = std::min(least, seconds_since(start));
    }
    return least;
}

/// make(material) gives the head; read(material) reads what a step has to, in seconds.
template <class Make, class Read>
void step(benchmark::State& state, std::size_t requests, Make const& make, Read const& read, bool beside_users) {
    material& m = material_of(static_cast<std::size_t>(state.range(0)));
    recorded backbone(m, requests);
    auto drafter = semi_autoregressive{
        backbone, make(m),
        drafter_options{.block_size = gamma, .vocabulary = m.vocabulary, .hidden_size = hidden_size}};
    fixed_schedule schedule;
    token_rejection<> const rule;
    round_memory<float, float> memory(drafter, schedule, rule, {.max_requests = requests});
    request_settings const settings{.max_new_tokens = 1000};
    std::vector<request_view> views;
    for (std::size_t r = 0; r < requests; ++r) {
        views.push_back({.id = r, .slot = r, .remaining = 1000, .settings = &settings});
    }
    philox_randomness rng;
    std::vector<double> drafting;
    std::vector<double> reading;
    std::uint64_t round = 0;
    for (auto _ : state) {
        backbone.turn = round % material::blocks;
        for (std::size_t r = 0; r < requests; ++r) {
            views[r].position = ++round;
            views[r].seed = 7 * r;
            views[r].anchor = static_cast<token_id>(round * 7919 % m.vocabulary);
            memory.join(r);  // no round is ended: every one is of other requests
        }
        // Base logits are what the backbone has just written.
        benchmark::DoNotOptimize(rivals::read(backbone.rows(), gamma * m.vocabulary));
        if (!begin_round(schedule, std::span<request_view const>(views), memory)) state.SkipWithError("nobody drafts");
        auto const forward = drafter.forward(memory.requests());
        auto const start = std::chrono::steady_clock::now();
        draw(drafter, forward, rule, rng, memory);
        double const took = seconds_since(start);
        benchmark::DoNotOptimize(memory.block().tokens(0).data());
        drafting.push_back(took / static_cast<double>(gamma));
        state.SetIterationTime(took);  // a block's, so that a repetition is not gamma times as long as asked for
        reading.push_back(read(m));
    }
    for (std::size_t r = 0; r < requests; ++r) {
        if (memory.block().size(r) != gamma) state.SkipWithError("a block is short of gamma tokens");
    }
    double const one = median(drafting);
    state.counters["us"] = one * 1e6;
    if (double const floor = median(reading); floor > 0.0) state.counters["vs_read"] = one / floor;
    if (!beside_users) return;
    std::vector<float> scratch(m.vocabulary);
    rivals::head_step const users{m.w2.data(), m.w1.data(), m.base.data(), m.vocabulary, rank, 0.5f};
    struct rival {
        char const* name;
        std::int32_t (*step)(rivals::head_step const&, float*);
    };
    for (auto const& [name, version] :
         {rival{"vs_scalar", rivals::scalar_step}, rival{"vs_eigen", rivals::eigen_step}}) {
        auto const theirs = [&] { benchmark::DoNotOptimize(version(users, scratch.data())); };
        state.counters[name] = measure::rival(3, theirs) / one;
    }
}

int add() {
    auto const read_fp32 = [](material const& m) { return seconds_of_read(m.w2.data(), m.w2.size()); };
    auto const read_nothing = [](material const&) { return 0.0; };
    auto const markov = [](material& m) { return markov_head{m.embedding(), m.output()}; };
    auto const named = [](std::string const& name, auto make, auto read, std::size_t requests, bool beside_users,
                          std::vector<std::int64_t> const& vocabularies) {
        auto* const b = benchmark::RegisterBenchmark(
            name.c_str(), [=](benchmark::State& s) { step(s, requests, make, read, beside_users); });
        for (auto const v : vocabularies) b->Arg(v);
        b->ArgNames({"V"})->UseManualTime()->Unit(benchmark::kMicrosecond);
    };
    std::vector<std::int64_t> const all{32000, 129280, 151936};

    named("head/markov/fp32", markov, read_fp32, 1, true, all);
    named(
        "head/markov/bf16",
        [](material& m) {
            matrix_view<bf16> const w2(m.w2_bf16.data(), m.vocabulary, rank);
            return markov_head<float, float, native_backend, matrix_view<bf16>>{m.embedding(), w2};
        },
        [](material const& m) { return seconds_of_read(m.w2_bf16.data(), m.w2.size()); }, 1, false, all);
    named(
        "head/markov/int8", [](material& m) { return markov_head{m.embedding(), m.output_int8()}; },
        [](material const& m) { return seconds_of_read(m.w2_int8.data(), m.w2.size()); }, 1, false, all);
    named(
        "head/gated/fp32",
        [](material& m) {
            return gated_head{m.embedding(),
                              m.output(),
                              {m.gate.data(), rank, rank + hidden_size},
                              std::span<float const>(m.bias).first(rank)};
        },
        read_fp32, 1, false, all);
    named(
        "head/rnn/fp32",
        [](material& m) {
            return rnn_head{m.embedding(),
                            m.output(),
                            {m.joint.data(), 3 * rank, 2 * rank + hidden_size},
                            std::span<float const>(m.bias)};
        },
        read_fp32, 1, false, all);
    for (std::size_t const size : {128u, 256u, 512u, 1024u}) {
        auto const list = [=](auto head, material& m) {
            std::size_t const next = std::min(size / 2, m.most_successors);
            return shortlist_head{head, size - next, {m.successors.data(), m.vocabulary, next, m.most_successors}};
        };
        named(
            "head/shortlist/" + std::to_string(size), [=](material& m) { return list(markov(m), m); }, read_nothing, 1,
            false, all);
        if (size != 512) continue;
        named(
            "head/shortlist_int8/512",
            [=](material& m) { return list(markov_head{m.embedding(), m.output_int8()}, m); }, read_nothing, 1, false,
            all);
    }
    named("head/markov/batch32", markov, read_fp32, 32, false, all);
    for (std::size_t const requests : {1u, 2u, 4u, 8u, 16u, 32u, 64u}) {
        benchmark::RegisterBenchmark("head/batch",
                                     [=](benchmark::State& s) { step(s, requests, markov, read_fp32, false); })
            ->Args({32000, static_cast<std::int64_t>(requests)})
            ->ArgNames({"V", "batch"})
            ->UseManualTime()
            ->Unit(benchmark::kMicrosecond);
    }
    return 0;
}
[[maybe_unused]] int const added = add();

}  // namespace

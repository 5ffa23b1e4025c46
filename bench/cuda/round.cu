// SPDX-License-Identifier: MIT
//
// A whole round but for the models, captured in one graph: the chain with a Markov head (r = 256, bf16), Algorithm 1,
// the batch, token rejection, the step to the next round. On a curve that makes every draft worth verifying, so that
// all gamma positions are: the most that a round can be.
//
//     round/markov     all of it
//     round/shortlist  the same over lists of 512 tokens
//     emitted          tokens a request and round
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <sureleap/cuda/drafter/chain.cuh>
#include <sureleap/cuda/drafter/shortlist.cuh>
#include <sureleap/cuda/round/accept.cuh>
#include <sureleap/cuda/round/advance.cuh>
#include <sureleap/cuda/schedule/schedules.cuh>
#include <sureleap/verify/rejection.hpp>

#include "data.cuh"
#include "measure.cuh"

namespace {

using namespace sureleap;
namespace device = sureleap::cuda;

constexpr std::uint32_t rank = 256;
constexpr std::uint32_t listed = 512;

struct scene {
    std::uint32_t vocabulary;
    std::uint32_t requests;
    std::uint32_t gamma;
    device::device_limits limits;
    measure::device_array<bf16> w1;
    measure::device_array<bf16> w2;
    data::round round;
    std::vector<data::recording<bf16>> turns;
    measure::device_array<unsigned char> memory;
    device::chain_memory chain{};
    device::shortlist_memory lists{};
    device::verify_memory verification{};
    device::capacity_table capacity{};

    explicit scene(bench::state const& state)
        : vocabulary(state["V"]),
          requests(state["R"]),
          gamma(state["gamma"]),
          limits{requests, gamma, vocabulary},
          w1(std::size_t{vocabulary} * rank),
          w2(std::size_t{vocabulary} * rank),
          round(limits, 5) {
        // Biases of some tenths: what a draft is worth is its base logits' affair, which are the target's with noise.
        data::fill_normals<<<1024, 256>>>(w1.get(), w1.size(), 0.1f, 1);
        data::fill_normals<<<1024, 256>>>(w2.get(), w2.size(), 0.1f, 2);
        std::vector<std::uint32_t> const lengths(requests, gamma);
        MEASURE_CHECK(cudaMemcpy(round.columns.batch.lengths, lengths.data(), requests * sizeof(lengths[0]),
                                 cudaMemcpyHostToDevice));
        MEASURE_CHECK(flatten(round.columns, nullptr));
        std::size_t const bytes = std::size_t{requests} * (2 * gamma + 1) * vocabulary * sizeof(bf16);
        for (unsigned i = 0; i < measure::turns_for(bytes); ++i) {
            turns.emplace_back(round.columns, 0.01f * static_cast<float>(state["noise"]), 31 + i);
        }
        device::workspace sizer;
        carve_all(sizer);
        memory = measure::device_array<unsigned char>(sizer.used());
        device::workspace ws{memory.get(), memory.size()};
        carve_all(ws);
        std::vector<double> const steps(capacity.size, 100.0);
        MEASURE_CHECK(
            cudaMemcpy(capacity.steps_per_second, steps.data(), steps.size() * sizeof(double), cudaMemcpyHostToDevice));
    }
    void carve_all(device::workspace& ws) {
        chain = carve_chain(ws, limits, shape_of(head()));
        lists = carve_shortlist(ws, limits, shape_of(confined()));
        verification = carve_verification(ws, limits);
        capacity = carve_capacity(ws, limits);
    }
    [[nodiscard]] device::markov_head<bf16> head() const {
        return {{w1.get(), vocabulary, rank}, {w2.get(), vocabulary, rank}};
    }
    [[nodiscard]] device::shortlist_head<device::markov_head<bf16>> confined() const { return {head(), listed, {}}; }
    [[nodiscard]] device::forward_view<bf16> forward(unsigned turn) const {
        return {{turns[turn].q.get(), std::size_t{requests} * gamma, vocabulary}, {}};
    }
    template <class DraftRows>
    [[nodiscard]] cudaError_t finish(unsigned turn, DraftRows const& drafts, cudaStream_t on) const {
        device::logits_rows<bf16> const rows{turns[turn].p.get(), requests * (gamma + 1), vocabulary};
        cudaError_t error = device::admit(device::greedy_schedule{capacity}, round.columns, device::flat_batch{}, on);
        if (error == cudaSuccess) {
            error = device::accept<token_rejection<>>(rows, drafts, verification, round.columns, on);
        }
        return error == cudaSuccess ? advance(round.columns, on) : error;
    }
};

/// `draft`(scene, turn, stream) is a whole round.
template <class Whole>
void measure_round(bench::state& state, Whole const& whole) {
    scene const s(state);
    measure::stream on;
    measure::captured const calls(on, static_cast<unsigned>(s.turns.size()),
                                  [&](unsigned turn) { return whole(s, turn, static_cast<cudaStream_t>(on)); });
    measure::report(state, calls);
    std::vector<std::uint32_t> emitted(s.requests);
    MEASURE_CHECK(cudaMemcpy(emitted.data(), s.round.columns.verdicts.emitted, s.requests * sizeof(emitted[0]),
                             cudaMemcpyDeviceToHost));
    state.figure("emitted", std::accumulate(emitted.begin(), emitted.end(), 0.0) / s.requests);
}

void markov(bench::state& state) {
    measure_round(state, [](scene const& s, unsigned turn, cudaStream_t on) {
        cudaError_t const error = draw_chain<categorical_draft>(s.head(), device::top1_confidence{}, s.forward(turn),
                                                                s.chain, s.round.columns, on);
        return error == cudaSuccess ? s.finish(turn, draft_rows_of(s.head(), s.forward(turn), s.chain), on) : error;
    });
}

void over_lists(bench::state& state) {
    measure_round(state, [](scene const& s, unsigned turn, cudaStream_t on) {
        cudaError_t const error = draw_chain<categorical_draft>(s.confined(), device::top1_confidence{},
                                                                s.forward(turn), s.lists, s.round.columns, on);
        return error == cudaSuccess ? s.finish(turn, draft_rows_of(s.lists), on) : error;
    });
}

std::vector<std::string> const names{"V", "R", "gamma", "noise"};
std::vector<bench::numbers> const shapes{{151936, 1, 7, 45},   {151936, 32, 7, 45},   {151936, 128, 7, 45},
                                         {151936, 256, 7, 45}, {151936, 128, 7, 200}, {129280, 128, 5, 45},
                                         {32000, 128, 7, 45}};

[[maybe_unused]] bool const added[] = {bench::add("round/markov", &markov, names, shapes),
                                       bench::add("round/shortlist", &over_lists, names, shapes)};

}  // namespace

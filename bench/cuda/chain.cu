// SPDX-License-Identifier: MIT
//
// The sequential chain with a Markov head, r = 256, weights and base logits in bf16: what a step costs beside what it
// must.
//
//     chain/product   the product of one position with its statistics, for R requests. floor: its time over the
//                     larger of two times of this run. One is of a kernel that only reads W2 and the base logits.
//                     The other is of the multiplications, at the rate of a large bf16 product of cuBLAS
//     chain/product_wgmma, chain/product_held    the same by wgmma, in code for sm_90a; with W2 held in the cache
//     chain/block     the whole chain of gamma positions: product, draw, code; us_step is a position's part
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <sureleap/core/guarantee.hpp>
#include <sureleap/cuda/core/persisting_cache.cuh>
#include <sureleap/cuda/drafter/chain.cuh>

#include "data.cuh"
#include "matrix.cuh"
#include "measure.cuh"

namespace {

using namespace sureleap;
namespace device = sureleap::cuda;

constexpr std::uint32_t rank = 256;

struct shape {
    std::uint32_t vocabulary;
    std::uint32_t requests;
    std::uint32_t gamma;

    explicit shape(bench::state const& state) : vocabulary(state["V"]), requests(state["R"]), gamma(state["gamma"]) {}
    [[nodiscard]] device::device_limits limits() const { return {requests, gamma, vocabulary}; }
};

/// A head, base logits of so many rounds that no cache holds them, and memory.
struct scene {
    measure::device_array<bf16> w1;
    measure::device_array<bf16> w2;
    measure::device_array<bf16> base;  ///< [turns, R gamma, V]
    measure::device_array<unsigned char> memory;
    unsigned turns;
    shape of;
    data::round round;
    device::chain_memory chain{};

    explicit scene(shape const& s)
        : w1(std::size_t{s.vocabulary} * rank),
          w2(std::size_t{s.vocabulary} * rank),
          turns(measure::turns_for(rows(s) * s.vocabulary * sizeof(bf16))),
          of(s),
          round(s.limits(), 5) {
        base = measure::device_array<bf16>(turns * rows(s) * s.vocabulary);
        data::fill_normals<<<1024, 256>>>(w1.get(), w1.size(), 0.2f, 1);
        data::fill_normals<<<1024, 256>>>(w2.get(), w2.size(), 0.2f, 2);
        data::fill_normals<<<1024, 256>>>(base.get(), base.size(), 2.0f, 3);
        data::add_peaks<<<static_cast<unsigned>(turns * rows(s)), 64>>>(base.get(), s.vocabulary, s.vocabulary, 4);
        device::workspace sizer;
        static_cast<void>(carve_chain(sizer, s.limits(), shape_of(head())));
        memory = measure::device_array<unsigned char>(sizer.used());
        device::workspace ws{memory.get(), memory.size()};
        chain = carve_chain(ws, s.limits(), shape_of(head()));
        MEASURE_CHECK(cudaDeviceSynchronize());
    }
    [[nodiscard]] static std::size_t rows(shape const& s) { return std::size_t{s.requests} * s.gamma; }
    [[nodiscard]] device::markov_head<bf16> head() const {
        return {{w1.get(), of.vocabulary, rank}, {w2.get(), of.vocabulary, rank}};
    }
    [[nodiscard]] device::forward_view<bf16> forward(unsigned turn) const {
        return {{base.get() + turn * rows(of) * of.vocabulary, rows(of), of.vocabulary}, {}};
    }
    [[nodiscard]] cudaError_t draw(unsigned turn, cudaStream_t on) const {
        return draw_chain<categorical_draft>(head(), device::no_confidence{}, forward(turn), chain, round.columns, on);
    }
};

template <class Instruction, bool held = false>
void product(bench::state& state) {
    scene const s{shape(state)};
    measure::stream on;
    if (held) MEASURE_CHECK(device::hold_in_cache(s.w2.get(), s.w2.size() * sizeof(bf16), on));
    // A chain first, so that there are codes and lists of those who draft.
    MEASURE_CHECK(s.draw(0, on));
    MEASURE_CHECK(cudaStreamSynchronize(on));
    measure::captured const calls(on, s.turns * s.of.gamma, [&](unsigned turn) {
        std::uint32_t const k = turn % s.of.gamma;
        return device::multiply<1, Instruction>(
            device::product_step<bf16, bf16>{s.head().w2,
                                             s.forward(turn / s.of.gamma).base_logits,
                                             s.chain.code_rows_of<bf16>(1),
                                             s.chain.list(k),
                                             s.round.columns.requests.drafts,
                                             s.chain.statistics,
                                             {},
                                             k},
            s.of.requests, on);
    });
    if (held) MEASURE_CHECK(device::hold_in_cache(nullptr, 0, on));
    // W2, and a row of base logits a request, which lie in one piece of as many bytes.
    std::size_t const bytes = (rank + s.of.requests) * std::size_t{s.of.vocabulary} * sizeof(bf16);
    unsigned const turns = measure::turns_for(bytes);
    measure::device_array<uint4> const read_too(turns * (bytes / sizeof(uint4)));
    MEASURE_CHECK(cudaMemset(read_too.get(), 0x5a, read_too.size() * sizeof(uint4)));
    std::vector<void const*> from;
    for (unsigned turn = 0; turn < turns; ++turn) from.push_back(read_too.get() + turn * (bytes / sizeof(uint4)));
    double const read = measure::stream_seconds(on, bytes, from);
    measure::report(state, calls, bytes, read);
    double const matrix = measure::matrix_seconds();
    if (matrix == 0.0) return state.not_run("there is no libcublas.so.13, which the floor is made with");
    double const share = static_cast<double>(rank) * s.of.requests * s.of.vocabulary /
                         (static_cast<double>(measure::matrix_size) * measure::matrix_size * measure::matrix_size);
    state.figure("floor", calls.seconds() / std::max(read, share * matrix));
}

void block(bench::state& state) {
    scene const s{shape(state)};
    measure::stream on;
    measure::captured const calls(on, s.turns, [&](unsigned turn) { return s.draw(turn, on); });
    measure::report(state, calls);
    state.figure("us_step", 1e6 * calls.seconds() / s.of.gamma);
}

std::vector<std::string> const names{"V", "R", "gamma"};
std::vector<bench::numbers> const shapes{{151936, 1, 7},   {151936, 8, 7},  {151936, 32, 7}, {151936, 128, 7},
                                         {151936, 256, 7}, {32000, 128, 7}, {129280, 128, 5}};

std::vector<bench::numbers> const large_shapes{{151936, 128, 7}, {151936, 256, 7}};

[[maybe_unused]] bool const added[] = {
    bench::add("chain/product", &product<device::by_mma>, names, shapes),
    bench::add("chain/product_wgmma", &product<device::by_wgmma>, names, large_shapes),
    bench::add("chain/product_held", &product<device::by_mma, true>, names, large_shapes),
    bench::add("chain/block", &block, names, shapes)};

}  // namespace

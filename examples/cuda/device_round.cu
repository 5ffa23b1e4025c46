// SPDX-License-Identifier: MIT
//
// Rounds that stay on the device. Drafting, scheduling, the target's pass, acceptance and the step to the next round
// are captured in one graph. The graph is then replayed, and the host looks at no token. Requests finish on their own;
// the host asks now and then how many are left.
//
//     nvcc -std=c++20 -O3 -arch=native -Iinclude examples/cuda/device_round.cu -o device_round && ./device_round
//
// The models are toys of one kernel each. The target's next token depends on the last one alone, by a product of two
// random matrices. The draft's Markov head has these matrices with some noise.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include <sureleap/cuda/drafter/chain.cuh>
#include <sureleap/cuda/round/accept.cuh>
#include <sureleap/cuda/round/advance.cuh>
#include <sureleap/cuda/schedule/schedules.cuh>
#include <sureleap/cuda/verify/flatten.cuh>
#include <sureleap/sureleap.hpp>

namespace {

using namespace sureleap;
namespace device = sureleap::cuda;  // CUDA has a namespace cuda of its own

constexpr std::uint32_t vocabulary = 8192;
constexpr std::uint32_t rank = 64;
constexpr std::uint32_t block_size = 7;  // gamma
constexpr std::uint32_t requests = 64;
constexpr std::uint32_t new_tokens = 512;

void check(cudaError_t error, int line) {
    if (error == cudaSuccess) return;
    std::fprintf(stderr, "device_round.cu:%d: %s\n", line, cudaGetErrorString(error));
    std::exit(1);
}
#define CHECK(call) check((call), __LINE__)

template <class T>
T* allocate(std::size_t count) {
    void* memory = nullptr;
    CHECK(cudaMalloc(&memory, count * sizeof(T)));
    CHECK(cudaMemset(memory, 0, count * sizeof(T)));
    return static_cast<T*>(memory);  // until the process ends
}
template <class T>
void upload(T* to, std::vector<T> const& values) {
    CHECK(cudaMemcpy(to, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
}
template <class T>
T* uploaded(std::vector<T> const& values) {
    T* const to = allocate<T>(values.size());
    upload(to, values);
    return to;
}

/// The target: a row of logits for every row of the batch. Like every stage, it takes the number of rows from the
/// device.
__global__ void score(bf16 const* in, bf16 const* out, device::device_round round, bf16* rows) {
    std::uint32_t const row = blockIdx.x;
    if (row >= static_cast<std::uint32_t>(round.batch.offsets[round.limits.requests])) return;
    bf16 const* const code = in + static_cast<std::size_t>(round.batch.tokens[row]) * rank;
    for (std::uint32_t v = threadIdx.x; v < vocabulary; v += blockDim.x) {
        float logit = 0.0f;
        for (std::uint32_t i = 0; i < rank; ++i) {
            logit += static_cast<float>(code[i]) * static_cast<float>(out[std::size_t{v} * rank + i]);
        }
        rows[static_cast<std::size_t>(row) * vocabulary + v] = bf16(logit);
    }
}

}  // namespace

int main() {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        std::fprintf(stderr, "device_round: no GPU answers\n");
        return 77;
    }

    // ---- weights ---------------------------------------------------------------------------------------------------
    std::mt19937_64 bits(1);
    std::normal_distribution<float> normal(0.0f, 0.75f);
    std::vector<bf16> in(std::size_t{vocabulary} * rank);
    std::vector<bf16> out(in.size());
    std::vector<bf16> noisy(in.size());
    for (std::size_t i = 0; i < in.size(); ++i) {
        float const x = normal(bits);
        in[i] = bf16(x);
        noisy[i] = bf16(x + 0.2f * normal(bits));
        out[i] = bf16(normal(bits));
    }
    bf16 const* const target_in = uploaded(in);
    bf16 const* const target_out = uploaded(out);
    device::markov_head<bf16> const head{{uploaded(noisy), vocabulary, rank}, {target_out, vocabulary, rank}};
    // A backbone would write these in every round; this one knows nothing that the head does not.
    device::forward_view<bf16> const forward{{allocate<bf16>(std::size_t{requests} * block_size * vocabulary),
                                              std::size_t{requests} * block_size, vocabulary},
                                             {}};

    // ---- memory: once to count, once to take -----------------------------------------------------------------------
    device::device_limits const limits{.requests = requests, .block_size = block_size, .vocabulary = vocabulary};
    device::device_round round;
    device::chain_memory chain;
    device::verify_memory verification;
    device::capacity_table capacity;
    auto const carve_all = [&](device::workspace& ws) {
        round = carve(ws, limits);
        chain = carve_chain(ws, limits, shape_of(head));
        verification = carve_verification(ws, limits);
        capacity = carve_capacity(ws, limits);
    };
    device::workspace sizer;
    carve_all(sizer);
    device::workspace ws{allocate<unsigned char>(sizer.used()), sizer.used()};
    carve_all(ws);
    bf16* const rows = allocate<bf16>(std::size_t{requests} * (block_size + 1) * vocabulary);

    // What a step costs, as a profile would say: a millisecond, and 4 microseconds for every token.
    std::vector<double> steps(capacity.size);
    device::tabulate(analytic_capacity{250'000.0, 250.0}, steps);
    upload(capacity.steps_per_second, steps);

    // ---- requests --------------------------------------------------------------------------------------------------
    std::vector<token_id> anchors(requests);
    std::vector<std::uint64_t> seeds(requests);
    std::vector<std::uint32_t> slots(requests);
    for (std::uint32_t r = 0; r < requests; ++r) {
        anchors[r] = static_cast<token_id>(bits() % vocabulary);
        seeds[r] = 1000 + r;
        slots[r] = r;
    }
    upload(round.requests.count, std::vector<std::uint32_t>{requests});
    upload(round.requests.anchors, anchors);
    upload(round.requests.positions, std::vector<std::uint64_t>(requests, 0));
    upload(round.requests.seeds, seeds);
    upload(round.requests.slots, slots);
    upload(round.requests.targets, std::vector<transform>(requests));
    upload(round.requests.drafts, std::vector<transform>(requests));
    upload(round.requests.remaining, std::vector<std::uint32_t>(requests, new_tokens));
    upload(round.requests.min_remaining, std::vector<std::uint32_t>(requests, 0));
    upload(round.requests.draft_limits, std::vector<std::uint32_t>(requests, block_size));
    upload(round.requests.weights, std::vector<fixed_probability>(requests, certain));

    // ---- the round -------------------------------------------------------------------------------------------------
    cudaStream_t stream = nullptr;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t replay = nullptr;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK(draw_chain<categorical_draft>(head, device::top1_confidence{}, forward, chain, round, stream));
    CHECK(device::admit(device::greedy_schedule{capacity}, round, stream));
    CHECK(flatten(round, stream));
    score<<<requests*(block_size + 1), 256, 0, stream>>>(target_in, target_out, round, rows);
    CHECK(device::accept<token_rejection<>>(device::logits_rows<bf16>{rows, requests * (block_size + 1), vocabulary},
                                            draft_rows_of(head, forward, chain), verification, round, stream));
    CHECK(advance(round, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&replay, graph, 0));

    // ---- and many of them ------------------------------------------------------------------------------------------
    std::vector<std::uint32_t> remaining(requests, 1);
    std::uint32_t rounds = 0;
    std::uint64_t steps_of_requests = 0;
    for (std::uint32_t left = requests; left > 0;) {
        constexpr std::uint32_t between_looks = 16;
        for (std::uint32_t i = 0; i < between_looks; ++i) CHECK(cudaGraphLaunch(replay, stream));
        CHECK(cudaMemcpyAsync(remaining.data(), round.requests.remaining, requests * sizeof(remaining[0]),
                              cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        rounds += between_looks;
        steps_of_requests += std::uint64_t{between_looks} * left;
        left = 0;
        for (std::uint32_t const tokens : remaining) left += tokens > 0 ? 1 : 0;
    }
    std::printf("%u requests of %u tokens in %u rounds: at least %.2f tokens a round and request\n", requests,
                new_tokens, rounds,
                static_cast<double>(std::uint64_t{requests} * new_tokens) / static_cast<double>(steps_of_requests));
    return 0;
}

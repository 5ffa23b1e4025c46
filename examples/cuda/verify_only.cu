// SPDX-License-Identifier: MIT
//
// An engine on a GPU that drafts and scores by itself, and only verifies here: its arrays stay where they are. Their
// names are those of vLLM 0.33, in rejection_sample and in the sampler's states. Logits are as the models gave them:
// what the sampler makes of them, temperature and truncation among it, is made here.
//
//     nvcc -std=c++20 -O3 -arch=native -Iinclude examples/cuda/verify_only.cu -o verify_only && ./verify_only
//
// The numbers are made up. The target agrees with the drafts of the first request, whose last one is penalised, since
// it was emitted before. Of the second request it holds another token likelier, which a grammar forbids.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <sureleap/cuda/round/verifier.cuh>
#include <sureleap/sureleap.hpp>

namespace {

using namespace sureleap;
namespace device = sureleap::cuda;  // CUDA has a namespace cuda of its own

constexpr std::size_t vocab_size = 4096;
constexpr std::size_t num_speculative_steps = 3;
constexpr std::size_t max_num_reqs = 4;
constexpr std::size_t words = vocab_size / 32;
constexpr std::size_t most_biases = 2;

void check(cudaError_t error, int line) {
    if (error == cudaSuccess) return;
    std::fprintf(stderr, "verify_only.cu:%d: %s\n", line, cudaGetErrorString(error));
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
T* uploaded(std::vector<T> const& values) {
    T* const to = allocate<T>(values.size());
    CHECK(cudaMemcpy(to, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
    return to;
}
template <class T>
std::vector<T> downloaded(T const* from, std::size_t count) {
    std::vector<T> values(count);
    CHECK(cudaMemcpy(values.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
}

}  // namespace

int main() {
    // Two requests, at places 2 and 0 of the engine's states: one has three drafts, one has two.
    std::size_t const num_reqs = 2;
    std::size_t const num_logits = 7;
    std::vector<std::int32_t> const rows{0, 4, 7};
    std::vector<std::int32_t> const sampled_tokens{0, 10, 11, 12, 0, 20, 21};  // each row's own, anchors first
    std::vector<bf16> p(num_logits * vocab_size), q(max_num_reqs * num_speculative_steps * vocab_size);
    for (std::size_t k = 0; k < 3; ++k) {
        p[k * vocab_size + 10 + k] = bf16(12.0f);
        q[(2 * num_speculative_steps + k) * vocab_size + 10 + k] = bf16(12.0f);
    }
    for (std::size_t k = 0; k < 2; ++k) q[k * vocab_size + 20 + k] = bf16(12.0f);
    p[4 * vocab_size + 30] = bf16(20.0f);
    p[4 * vocab_size + 31] = bf16(16.0f);
    std::vector<std::int32_t> mask(num_logits * words, -1);
    mask[4 * words] = static_cast<std::int32_t>(~(1u << 30));
    std::vector<std::int32_t> emitted(max_num_reqs * vocab_size, 0);
    emitted[2 * vocab_size + 12] = 1;

    auto const* const target_logits = uploaded(p);
    auto const* const draft_logits = uploaded(q);
    auto const* const draft_sampled = uploaded(sampled_tokens);
    auto const* const cu_num_logits = uploaded(rows);
    auto const* const pos = uploaded(std::vector<std::int64_t>{7, 8, 9, 10, 40, 41, 42});
    auto const* const idx_mapping = uploaded(std::vector<std::int32_t>{2, 0});
    auto const* const temperature = uploaded(std::vector<float>{0.8f, 1.0f, 0.8f, 1.0f});
    auto const* const top_k = uploaded(std::vector<std::int32_t>(max_num_reqs, static_cast<std::int32_t>(vocab_size)));
    auto const* const top_p = uploaded(std::vector<float>(max_num_reqs, 1.0f));
    auto const* const min_p = uploaded(std::vector<float>(max_num_reqs, 0.0f));
    auto const* const seeds = uploaded(std::vector<std::int64_t>{11, 12, 13, 14});
    auto const* const grammar_bitmask = uploaded(mask);
    auto const* const logit_bias_token_ids = allocate<std::int32_t>(max_num_reqs * most_biases);
    auto const* const logit_bias = allocate<float>(max_num_reqs * most_biases);
    auto const* const num_logit_bias = allocate<std::int32_t>(max_num_reqs);
    auto const* const repetition_penalty = uploaded(std::vector<float>(max_num_reqs, 1.0f));
    auto const* const frequency_penalty = uploaded(std::vector<float>{0.0f, 0.0f, 40.0f, 0.0f});
    auto const* const presence_penalty = allocate<float>(max_num_reqs);
    auto const* const output_bin_counts = uploaded(emitted);
    auto const* const prompt_bin_mask = allocate<std::int32_t>(max_num_reqs * words);
    auto* const sampled = allocate<std::int64_t>(max_num_reqs * (num_speculative_steps + 1));
    auto* const num_sampled = allocate<std::int32_t>(max_num_reqs);

    // Made once.
    device::verifier_limits const limits{
        .round = {.requests = max_num_reqs, .block_size = num_speculative_steps, .vocabulary = vocab_size},
        .edits = true,
        .biases = most_biases};
    device::workspace sizer;
    static_cast<void>(carve_verifier(sizer, limits));
    device::workspace ws{allocate<unsigned char>(sizer.used()), sizer.used()};
    device::verifier_memory const memory = carve_verifier(ws, limits);

    // A call.
    engine_arrays<bf16, bf16> const call{
        .requests = num_reqs,
        .target = {target_logits, num_logits, vocab_size},
        .row_begin = cu_num_logits,
        .drafts = draft_sampled,
        .q = {.rows = draft_logits,
              .slot_stride = num_speculative_steps * vocab_size,
              .row_stride = vocab_size,
              .slots = idx_mapping},
        .slots = idx_mapping,
        .positions = pos,
        .positions_of_rows = true,
        .settings = {.temperature = temperature, .top_k = top_k, .top_p = top_p, .min_p = min_p, .seeds = seeds},
        .edits = {.bitmask = grammar_bitmask,
                  .bitmask_stride = words,
                  .bias_tokens = logit_bias_token_ids,
                  .bias = logit_bias,
                  .bias_stride = most_biases,
                  .bias_counts = num_logit_bias,
                  .repetition = repetition_penalty,
                  .frequency = frequency_penalty,
                  .presence = presence_penalty,
                  .counts = output_bin_counts,
                  .counts_stride = vocab_size,
                  .prompt = prompt_bin_mask,
                  .prompt_stride = words},
        .out = {.tokens = sampled, .counts = num_sampled}};
    cudaError_t const error = device::verify<block_verification<>, array_edits>(call, memory, nullptr);

    CHECK(error);
    auto const tokens = downloaded(sampled, num_reqs * (num_speculative_steps + 1));
    auto const counts = downloaded(num_sampled, num_reqs);
    for (std::size_t r = 0; r < num_reqs; ++r) {
        std::printf("request %zu emits", r + 1);
        for (std::int32_t k = 0; k < counts[r]; ++k) {
            std::printf(" %d", static_cast<int>(tokens[r * (num_speculative_steps + 1) + static_cast<std::size_t>(k)]));
        }
        std::puts("");
    }
}

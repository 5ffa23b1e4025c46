// SPDX-License-Identifier: MIT
//
// Chains as an engine would ask for them: every rule, with and without tensor cores, and their rows.
#include <type_traits>

#include <sureleap/core/guarantee.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/drafter/chain.cuh>

namespace {

namespace gpu = sureleap::cuda;
using sureleap::bf16;
using sureleap::half;

template <class Rule, class W, class U, class Confidence, class Instruction = gpu::by_mma>
cudaError_t draw(gpu::device_round const& round, gpu::chain_memory const& memory, cudaStream_t stream) {
    return gpu::draw_chain<Rule, Instruction>(gpu::markov_head<W>{}, Confidence{}, gpu::forward_view<U>{}, memory,
                                              round, stream);
}

template <class Rows>
__global__ void weigh(Rows rows, gpu::distribution const* q, float* out) {
    auto& s = gpu::shared_memory<float[1024]>();
    rows.weights(blockIdx.x, 0, q[blockIdx.x], 0, s);
    __syncthreads();
    float const weight = rows.weight(blockIdx.x, 0, q[blockIdx.x], 5);
    if (threadIdx.x == 0) out[blockIdx.x] = weight + s[7];
}

}  // namespace

cudaError_t draw_all(gpu::device_round const& round, gpu::chain_memory const& memory, cudaStream_t stream) {
    cudaError_t error = draw<sureleap::categorical_draft, bf16, bf16, gpu::no_confidence>(round, memory, stream);
    if (error == cudaSuccess) {
        error = draw<sureleap::coupled_draft, half, float, gpu::top1_confidence, gpu::by_wgmma>(round, memory, stream);
    }
    if (error == cudaSuccess) {
        error = draw<sureleap::argmax_draft, float, half, gpu::no_confidence>(round, memory, stream);
    }
    auto const rows = gpu::draft_rows_of(gpu::markov_head<bf16>{}, gpu::forward_view<half>{}, memory);
    if (error == cudaSuccess) {
        error = gpu::launch(weigh<std::remove_const_t<decltype(rows)>>, dim3(1), dim3(128), sizeof(float[1024]), stream,
                            rows, round.drafts.distributions, static_cast<float*>(nullptr));
    }
    return error;
}

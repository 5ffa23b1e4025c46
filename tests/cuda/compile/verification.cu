// SPDX-License-Identifier: MIT
//
// Verification by every rule, of rows of every type, of rows that are edited, and along trees. tests/cuda/code_size.py
// counts its instructions.
#include <sureleap/cuda/round/accept.cuh>
#include <sureleap/cuda/verify/engine_rows.cuh>

namespace {

namespace gpu = sureleap::cuda;
using namespace sureleap;

template <class Rule, class T>
cudaError_t plain(gpu::verify_memory const& memory, gpu::device_round const& round, cudaStream_t stream) {
    return gpu::accept<Rule>(gpu::logits_rows<T>{}, gpu::dense_draft_rows<T>{}, memory, round, stream);
}

}  // namespace

cudaError_t verify_all(gpu::tree_columns const& trees, gpu::verify_memory const& memory, gpu::device_round const& round,
                       cudaStream_t stream) {
    cudaError_t error = plain<token_rejection<>, bf16>(memory, round, stream);
    if (error == cudaSuccess) error = plain<token_rejection<>, float>(memory, round, stream);
    if (error == cudaSuccess) error = plain<token_rejection<>, half>(memory, round, stream);
    if (error == cudaSuccess) error = plain<block_verification<>, bf16>(memory, round, stream);
    if (error == cudaSuccess) error = plain<target_match<>, bf16>(memory, round, stream);
    if (error == cudaSuccess) error = plain<greedy_match, bf16>(memory, round, stream);
    if (error == cudaSuccess) error = plain<keyed_coupling, bf16>(memory, round, stream);
    if (error == cudaSuccess) {
        error = gpu::accept<token_rejection<>>(gpu::engine_rows<bf16, false>{}, gpu::engine_draft_rows<bf16>{}, memory,
                                               round, stream);
    }
    if (error == cudaSuccess) {
        error = gpu::accept<token_rejection<>>(gpu::engine_rows<bf16, true>{}, gpu::engine_draft_rows<bf16>{}, memory,
                                               round, stream);
    }
    if (error == cudaSuccess) {
        error = gpu::accept<recursive_rejection<>>(gpu::logits_rows<bf16>{}, gpu::dense_draft_rows<bf16>{}, trees,
                                                   memory, round, stream);
    }
    return error;
}

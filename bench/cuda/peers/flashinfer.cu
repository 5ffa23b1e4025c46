// SPDX-License-Identifier: MIT
//
// FlashInfer's kernels for run.py, compiled with the flags that FlashInfer compiles them with.
#include <cstddef>
#include <cstdint>

#include <flashinfer/sampling.cuh>

extern "C" {

int peers_softmax(float* logits, float* out, std::uint32_t rows, std::uint32_t vocabulary, void* room,
                  std::size_t bytes, cudaStream_t stream) {
    return flashinfer::sampling::OnlineSoftmax<float>(logits, out, rows, vocabulary, nullptr, 1.0f, room, bytes, false,
                                                      stream);
}
/// `accepted` and `emitted` are added to.
int peers_chain(float* q, int* tokens, float* p, int* out, int* accepted, int* emitted, std::uint32_t requests,
                std::uint32_t gamma, std::uint32_t vocabulary, cudaStream_t stream) {
    return flashinfer::sampling::ChainSpeculativeSampling<float, int>(
        q, tokens, p, out, accepted, emitted, requests, gamma, vocabulary, true, nullptr, 7, nullptr, 0, stream);
}

}  // extern "C"

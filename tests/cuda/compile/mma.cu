// SPDX-License-Identifier: MIT
//
// Both element types of mma.cuh and its load, with fragments that are bound to be kept.
#include <cstdint>

#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/mma.cuh>
#include <sureleap/cuda/core/runtime.cuh>

namespace {

struct tiles {
    std::uint32_t a[32 * 4];
    std::uint32_t b[32 * 4];
};

template <class T>
__global__ void multiply(std::uint32_t const* in, float* out) {
    namespace cuda = sureleap::cuda;
    auto& s = cuda::shared_memory<tiles>();
    unsigned const lane = cuda::lane_index();
    for (unsigned i = 0; i < 4; ++i) {
        s.a[i * 32 + lane] = in[i * 32 + lane];
        s.b[i * 32 + lane] = in[(i + 4) * 32 + lane];
    }
    __syncwarp();
    std::uint32_t a[4], two_b[4];
    cuda::ldmatrix_x4(a, s.a + lane * 4);
    cuda::ldmatrix_x4(two_b, s.b + lane * 4);
    std::uint32_t const b[2] = {two_b[0], two_b[1]};
    float sums[4] = {};
    cuda::mma_m16n8k16<T>(sums, a, b, sums);
    for (unsigned i = 0; i < 4; ++i) out[i * 32 + lane] = sums[i];
}

}  // namespace

cudaError_t multiply_all(std::uint32_t const* in, float* out, cudaStream_t stream) {
    using sureleap::cuda::launch;
    cudaError_t const first = launch(multiply<sureleap::bf16>, 1, 32, sizeof(tiles), stream, in, out);
    return first != cudaSuccess ? first : launch(multiply<sureleap::half>, 1, 32, sizeof(tiles), stream, in, out);
}

// SPDX-License-Identifier: MIT
//
// Both element types and all loads of mma.cuh, with fragments that are bound to be kept.
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
    std::uint32_t a[4], a_columns[4], b[2], b_rows[2];
    cuda::ldmatrix_x4(a, s.a + lane * 4);
    cuda::ldmatrix_x4_trans(a_columns, s.a + lane * 4);
    cuda::ldmatrix_x2(b, s.b + lane % 16 * 4);
    cuda::ldmatrix_x2_trans(b_rows, s.b + lane % 16 * 4);
    float sums[4] = {};
    cuda::mma_m16n8k16<T>(sums, a, b, sums);
    cuda::mma_m16n8k16<T>(sums, a_columns, b_rows, sums);
    for (unsigned i = 0; i < 4; ++i) out[i * 32 + lane] = sums[i];
}

}  // namespace

cudaError_t multiply_all(std::uint32_t const* in, float* out, cudaStream_t stream) {
    using sureleap::cuda::launch;
    cudaError_t const first = launch(multiply<sureleap::bf16>, 1, 32, sizeof(tiles), stream, in, out);
    return first != cudaSuccess ? first : launch(multiply<sureleap::half>, 1, 32, sizeof(tiles), stream, in, out);
}

// SPDX-License-Identifier: MIT
//
// Records of slices of every storage type.
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/sampling/slice_records.cuh>

namespace gpu = sureleap::cuda;

cudaError_t record_all(gpu::slice_task<float> const& floats, gpu::slice_task<sureleap::bf16> const& bf16s,
                       gpu::slice_task<sureleap::half> const& halves, cudaStream_t stream) {
    cudaError_t error = gpu::record_slices(floats, stream);
    if (error == cudaSuccess) error = gpu::record_slices(bf16s, stream);
    if (error == cudaSuccess) error = gpu::record_slices(halves, stream);
    return error;
}

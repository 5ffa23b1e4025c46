// SPDX-License-Identifier: MIT
//
// Device code of a user: compiles for devices, links, and finds out that there may be none.
#include <sureleap/cuda/core/runtime.cuh>

static_assert(__cplusplus >= 202002L, "sureleap::cuda brings -std=c++20");

__global__ void twice(int* value) {
    *value *= 2;
}

bool on_device() {
    unsigned multiprocessors = 0;
    if (sureleap::cuda::count_multiprocessors(multiprocessors) != cudaSuccess) return true;
    int* value = nullptr;
    if (cudaMalloc(&value, sizeof(int)) != cudaSuccess || cudaMemset(value, 1, sizeof(int)) != cudaSuccess)
        return false;
    if (sureleap::cuda::launch(twice, 1, 1, 0, nullptr, value) != cudaSuccess) return false;
    int back = 0;
    if (cudaMemcpy(&back, value, sizeof(int), cudaMemcpyDeviceToHost) != cudaSuccess) return false;
    return cudaFree(value) == cudaSuccess && back == 0x02020202;
}

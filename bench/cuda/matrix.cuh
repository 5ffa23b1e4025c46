// SPDX-License-Identifier: MIT
//
// The rate of a large product of bf16 matrices by cuBLAS, which is opened when it is asked for: a program that travels
// does not carry it, and a machine with PyTorch has it.
#pragma once

#include <cublas_v2.h>
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>

#include <sureleap/core/types.hpp>

#include "data.cuh"
#include "measure.cuh"

namespace measure {

inline constexpr std::uint32_t matrix_size = 8192;

/// Seconds of a product of matrices of that size, 0 where there is no cuBLAS.
[[nodiscard]] inline double matrix_seconds() {
    static double const found = [] {
        void* const library = dlopen("libcublas.so.13", RTLD_NOW);
        if (library == nullptr || bench::once()) return 0.0;
        // The headers give some of them a name of another version.
        auto const create = reinterpret_cast<decltype(&cublasCreate_v2)>(dlsym(library, "cublasCreate_v2"));
        auto const destroy = reinterpret_cast<decltype(&cublasDestroy_v2)>(dlsym(library, "cublasDestroy_v2"));
        auto const set_stream = reinterpret_cast<decltype(&cublasSetStream_v2)>(dlsym(library, "cublasSetStream_v2"));
        auto const set_workspace =
            reinterpret_cast<decltype(&cublasSetWorkspace_v2)>(dlsym(library, "cublasSetWorkspace_v2"));
        auto const multiply = reinterpret_cast<cublasStatus_t (*)(
            cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, void const*, void const*, cudaDataType,
            int, void const*, cudaDataType, int, void const*, void*, cudaDataType, int, cublasComputeType_t,
            cublasGemmAlgo_t)>(dlsym(library, "cublasGemmEx"));
        cublasHandle_t blas = nullptr;
        if (!create || !destroy || !set_stream || !set_workspace || !multiply ||
            create(&blas) != CUBLAS_STATUS_SUCCESS) {
            return 0.0;
        }
        constexpr int n = matrix_size;
        constexpr std::size_t size = std::size_t{n} * n;
        stream const on;
        device_array<sureleap::bf16> a(size);
        device_array<sureleap::bf16> b(size);
        device_array<sureleap::bf16> c(size);
        data::fill_normals<<<1024, 256>>>(a.get(), size, 1.0f, 1);
        data::fill_normals<<<1024, 256>>>(b.get(), size, 1.0f, 2);
        MEASURE_CHECK(cudaDeviceSynchronize());
        device_array<unsigned char> room(std::size_t{64} << 20);
        set_stream(blas, on);
        set_workspace(blas, room.get(), room.size());
        float const one = 1.0f;
        float const zero = 0.0f;
        double const seconds =
            captured(on, 1, [&](unsigned) {
                cublasStatus_t const done =
                    multiply(blas, CUBLAS_OP_T, CUBLAS_OP_N, n, n, n, &one, a.get(), CUDA_R_16BF, n, b.get(),
                             CUDA_R_16BF, n, &zero, c.get(), CUDA_R_16BF, n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
                return done == CUBLAS_STATUS_SUCCESS ? cudaSuccess : cudaErrorUnknown;
            }).seconds();
        destroy(blas);
        return seconds;
    }();
    return found;
}

}  // namespace measure

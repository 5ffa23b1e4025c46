// SPDX-License-Identifier: MIT
//
// What graphs mean here, in the emulator and on a device: arguments are those of the capture, memory that of the
// replay. And that a stage which could not be captured would be found.
#include <sureleap/cuda/core/runtime.cuh>

#include <exception>
#include <string>
#include <vector>

#include "cuda/support/captured.hpp"
#include "cuda/support/device_array.hpp"
#include "support/catch.hpp"

namespace {

using support::captured;

__global__ void add(int const* more, int times, int* total) {
    total[threadIdx.x] += times * more[threadIdx.x];
}

[[nodiscard]] cudaError_t add_to(device_array<int>& total, device_array<int> const& more, int times,
                                 cudaStream_t stream) {
    return sureleap::cuda::launch(add, 1, 2, 0, stream, more.data(), times, total.data());
}

/// What CUDA says of a capture of that work; afterwards all is as before.
template <class Enqueue>
[[nodiscard]] std::string refusal(Enqueue const& enqueue) {
    std::string said;
    try {
        captured const work(enqueue);
    } catch (std::exception const& error) {
        said = error.what();
    }
    static_cast<void>(cudaGetLastError());
    return said;
}

}  // namespace

TEST_CASE("a graph keeps arguments, and reads memory when it is replayed") {
    device_array<int> more{1, 10};
    device_array<int> total{0, 0};
    int times = 2;
    captured const work([&](cudaStream_t stream) {
        cudaError_t const error = add_to(total, more, times, stream);
        return error == cudaSuccess ? add_to(total, more, 1, stream) : error;
    });
    CHECK(total.download() == std::vector{0, 0});  // nothing ran
    times = 100;
    work.replay();
    CHECK(total.download() == std::vector{3, 30});
    more.upload({0, 1});
    work.replay();
    work.replay();
    CHECK(total.download() == std::vector{3, 36});
}

TEST_CASE("fills and copies are work like kernels") {
    device_array<int> total{1, 2};
    device_array<int> copy{5, 6};
    support::in_graph([&](cudaStream_t stream) {
        cudaError_t const error = cudaMemsetAsync(total.data(), 0, sizeof(int), stream);
        if (error != cudaSuccess) return error;
        return cudaMemcpyAsync(copy.data(), total.data(), total.bytes(), cudaMemcpyDeviceToDevice, stream);
    });
    CHECK(total.download() == std::vector{0, 2});
    CHECK(copy.download() == std::vector{0, 2});
}

TEST_CASE("work that a graph cannot keep is refused") {
    device_array<int> more{1, 10};
    device_array<int> total{0, 0};
    CHECK(refusal([&](cudaStream_t) {
              void* memory = nullptr;
              return cudaMalloc(&memory, 16);
          }) == "CUDA: operation not permitted when stream is capturing");
    CHECK(refusal([](cudaStream_t stream) { return cudaStreamSynchronize(stream); }) ==
          "CUDA: operation not permitted when stream is capturing");
    // A stage that forgets the stream it was given, and one that forgets to look at the error.
    CHECK(refusal([&](cudaStream_t) { return add_to(total, more, 1, nullptr); }) ==
          "CUDA: operation would make the legacy stream depend on a capturing blocking stream");
    CHECK(refusal([&](cudaStream_t) {
              static_cast<void>(add_to(total, more, 1, nullptr));
              return cudaSuccess;
          }) == "CUDA: operation failed due to a previous error during capture");
    CHECK(total.download() == std::vector{0, 0});
    // And then a capture is as good as ever.
    support::in_graph([&](cudaStream_t stream) { return add_to(total, more, 1, stream); });
    CHECK(total.download() == std::vector{1, 10});
}

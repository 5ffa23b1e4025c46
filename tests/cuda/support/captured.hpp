// SPDX-License-Identifier: MIT
//
// Stages of a round in a graph, as engines run them: whatever allocates, waits, or is launched on another stream than
// the one it was given cannot be captured.
//
//   captured const work([&](cudaStream_t stream) { return draw_chain<...>(..., stream); });
//   work.replay();
#pragma once

#include <cuda_runtime.h>

#include "cuda/support/device_array.hpp"

namespace support {

class captured {
public:
    /// `enqueue` takes a stream and returns a cudaError_t. Throws what it returned, or what CUDA says of the capture.
    template <class Enqueue>
    explicit captured(Enqueue const& enqueue) {
        // A stream that waits for copies of the host and is waited for by them.
        require_cuda(cudaStreamCreate(&stream_));
        require_cuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal));
        cudaError_t const enqueued = enqueue(stream_);
        cudaGraph_t graph = nullptr;
        cudaError_t const ended = cudaStreamEndCapture(stream_, &graph);
        if (enqueued == cudaSuccess && ended == cudaSuccess) {
            cudaError_t const made = cudaGraphInstantiate(&graph_, graph, 0);
            static_cast<void>(cudaGraphDestroy(graph));
            if (made == cudaSuccess) return;
            release();
            require_cuda(made);
        }
        if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
        release();
        require_cuda(enqueued);
        require_cuda(ended);
    }
    captured(captured const&) = delete;
    captured& operator=(captured const&) = delete;
    ~captured() { release(); }

    void replay() const { require_cuda(cudaGraphLaunch(graph_, stream_)); }

private:
    void release() noexcept {
        if (graph_ != nullptr) static_cast<void>(cudaGraphExecDestroy(graph_));
        static_cast<void>(cudaStreamDestroy(stream_));
    }

    cudaStream_t stream_ = nullptr;
    cudaGraphExec_t graph_ = nullptr;
};

/// Captures and replays once, which gives what a plain call would give.
template <class Enqueue>
void in_graph(Enqueue const& enqueue) {
    captured(enqueue).replay();
    require_cuda(cudaDeviceSynchronize());
}

}  // namespace support

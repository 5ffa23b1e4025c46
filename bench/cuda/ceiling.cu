// SPDX-License-Identifier: MIT
//
// What this device gives at most, to see the other figures by. KB: thousands of bytes, read, or read and written.
//
//     ceiling/read            a kernel that only reads: what verification is measured by
//     ceiling/copy_kernel     a kernel that copies half of them
//     ceiling/copy_stream     the copies of a stream, and of nodes of a graph
//     ceiling/copy_graph
//     ceiling/kernels         a graph of kernels that do nothing, the time of one. 0 kernels: of a graph of one,
//                             from which the others are counted
//     ceiling/matrix          a product of bf16 matrices by cuBLAS
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "data.cuh"
#include "matrix.cuh"
#include "measure.cuh"

namespace {

enum class way { read, copy_kernel, copy_stream, copy_graph };

template <way how>
void move(bench::state& state) {
    constexpr bool copies = how != way::read;
    std::size_t const bytes = std::size_t{state["KB"]} * 1000;
    std::size_t const one = (copies ? bytes / 2 : bytes) / 16 * 16;
    measure::stream on;
    unsigned const turns = measure::turns_for(bytes);
    measure::device_array<unsigned char> const from(one * turns);
    measure::device_array<unsigned char> const to(copies ? one * turns : 0);
    data::fill_normals<<<1024, 256>>>(reinterpret_cast<float*>(from.get()), from.size() / sizeof(float), 1.0f, 1);
    MEASURE_CHECK(cudaDeviceSynchronize());
    std::vector<void const*> froms;
    std::vector<void*> tos;
    for (unsigned turn = 0; turn < turns; ++turn) {
        froms.push_back(from.get() + turn * one);
        if (copies) tos.push_back(to.get() + turn * one);
    }
    auto const copy = [&](unsigned turn) {
        return cudaMemcpyAsync(tos[turn], froms[turn], one, cudaMemcpyDeviceToDevice, on);
    };
    std::vector<double> seconds;
    if constexpr (how == way::copy_graph) {
        seconds = measure::captured(on, turns, copy).all();
    } else if constexpr (how == way::copy_stream) {
        for (unsigned i = 0; i < measure::samples; ++i) {
            double const all = on.seconds_of([&] {
                cudaError_t error = cudaSuccess;
                for (unsigned turn = 0; turn < turns && error == cudaSuccess; ++turn) error = copy(turn);
                return error;
            });
            seconds.push_back(all / turns);
        }
    } else {
        seconds = {measure::stream_seconds(on, one, froms, tos)};
    }
    state.set_seconds(seconds);
    state.figure("GB/s", 1e-9 * static_cast<double>(bytes) / measure::median(seconds));
}

void kernels(bench::state& state) {
    unsigned const count = state["kernels"];
    measure::stream on;
    if (count == 0) {
        state.set_seconds({measure::empty_graph_seconds(on)});
        return;
    }
    measure::graph const all(on, [&] {
        for (unsigned i = 0; i < count; ++i) measure::do_nothing<<<1, 1, 0, on>>>();
        return cudaGetLastError();
    });
    std::vector<double> seconds = all.seconds();
    for (double& each : seconds) each = (each - measure::empty_graph_seconds(on)) / count;
    state.set_seconds(seconds);
}

void matrix(bench::state& state) {
    double const seconds = measure::matrix_seconds();
    if (seconds == 0.0) return state.not_run("there is no libcublas.so.13");
    constexpr double n = measure::matrix_size;
    state.set_seconds({seconds});
    state.figure("TFLOP/s", 2e-12 * n * n * n / seconds);
}

// Those of a batch of V = 151,936, gamma = 7, bf16: R = 1, 8, 32, 128, 256. And one that no cache has to do with.
std::vector<bench::numbers> const sizes{{2431}, {19448}, {77791}, {311165}, {622330}, {4000000}};

[[maybe_unused]] bool const added[] = {
    bench::add("ceiling/read", &move<way::read>, {"KB"}, sizes),
    bench::add("ceiling/copy_kernel", &move<way::copy_kernel>, {"KB"}, sizes),
    bench::add("ceiling/copy_stream", &move<way::copy_stream>, {"KB"}, sizes),
    bench::add("ceiling/copy_graph", &move<way::copy_graph>, {"KB"}, sizes),
    bench::add("ceiling/kernels", &kernels, {"kernels"}, {{0}, {1}, {20}}),
    bench::add("ceiling/matrix", &matrix, {}, {{}}),
};

}  // namespace

// SPDX-License-Identifier: MIT
//
// A round in device memory for tests of single stages: what the engine would write, and what a stage left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <sureleap/cuda/round.cuh>
#include <sureleap/types.hpp>

#include "cuda/support/device_array.hpp"

/// A request as the engine writes it.
struct device_request {
    sureleap::token_id anchor = 0;
    std::uint64_t position = 0;
    std::uint64_t seed = 0;
    sureleap::transform draft{};
    std::uint32_t remaining = 1000;
    std::uint32_t draft_limit = 1000;
    sureleap::fixed_probability weight = sureleap::certain;
    sureleap::transform target{};
};

class round_on_device {
public:
    explicit round_on_device(sureleap::cuda::round_limits const& limits) {
        sureleap::cuda::workspace sizer;
        static_cast<void>(sureleap::cuda::carve(sizer, limits));
        memory_ = device_array<unsigned char>(sizer.used());
        sureleap::cuda::workspace ws{memory_.data(), memory_.size()};
        round_ = sureleap::cuda::carve(ws, limits);
    }

    [[nodiscard]] sureleap::cuda::device_round const& get() const { return round_; }

    void write(std::vector<device_request> const& requests) {
        auto const& to = round_.requests;
        put(to.count, std::vector<std::uint32_t>{static_cast<std::uint32_t>(requests.size())});
        column(to.anchors, requests, [](auto const& q) { return q.anchor; });
        column(to.positions, requests, [](auto const& q) { return q.position; });
        column(to.seeds, requests, [](auto const& q) { return q.seed; });
        column(to.targets, requests, [](auto const& q) { return q.target; });
        column(to.drafts, requests, [](auto const& q) { return q.draft; });
        column(to.remaining, requests, [](auto const& q) { return q.remaining; });
        column(to.draft_limits, requests, [](auto const& q) { return q.draft_limit; });
        column(to.weights, requests, [](auto const& q) { return q.weight; });
    }
    template <class T>
    [[nodiscard]] static std::vector<T> read(T const* from, std::size_t count) {
        require_cuda(cudaDeviceSynchronize());
        std::vector<T> values(count);
        if (count > 0) require_cuda(cudaMemcpy(values.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost));
        return values;
    }

private:
    template <class T>
    static void put(T* to, std::vector<T> const& values) {
        if (!values.empty())
            require_cuda(cudaMemcpy(to, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
    }
    template <class T, class Get>
    static void column(T* to, std::vector<device_request> const& requests, Get get) {
        std::vector<T> values;
        for (device_request const& q : requests) values.push_back(get(q));
        put(to, values);
    }

    device_array<unsigned char> memory_;
    sureleap::cuda::device_round round_{};
};

// SPDX-License-Identifier: MIT
//
// A round in device memory for tests of single stages: what the engine would write, and what a stage left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/columns.cuh>

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
    std::uint32_t slot = 0;
    sureleap::token_id stop_token = sureleap::no_token;  ///< where there is room for one
    std::uint32_t min_remaining = 0;
};

/// Writes the requests of a round, as the engine does when they come and go.
inline void write_requests(sureleap::cuda::device_round const& round, std::vector<device_request> const& requests) {
    auto const column = [&](auto* to, auto const& get) {
        std::vector<std::remove_pointer_t<decltype(to)>> values;
        for (device_request const& q : requests) values.push_back(get(q));
        if (values.empty()) return;
        require_cuda(cudaMemcpy(to, values.data(), values.size() * sizeof(values[0]), cudaMemcpyHostToDevice));
    };
    auto const& to = round.requests;
    auto const count = static_cast<std::uint32_t>(requests.size());
    require_cuda(cudaMemcpy(to.count, &count, sizeof(count), cudaMemcpyHostToDevice));
    column(to.anchors, [](auto const& q) { return q.anchor; });
    column(to.positions, [](auto const& q) { return q.position; });
    column(to.seeds, [](auto const& q) { return q.seed; });
    column(to.targets, [](auto const& q) { return q.target; });
    column(to.drafts, [](auto const& q) { return q.draft; });
    column(to.remaining, [](auto const& q) { return q.remaining; });
    column(to.draft_limits, [](auto const& q) { return q.draft_limit; });
    column(to.weights, [](auto const& q) { return q.weight; });
    column(to.slots, [](auto const& q) { return q.slot; });
    column(to.min_remaining, [](auto const& q) { return q.min_remaining; });
    if (round.limits.stop_tokens == 1) column(to.stop_tokens, [](auto const& q) { return q.stop_token; });
}

class round_on_device {
public:
    explicit round_on_device(sureleap::cuda::device_limits const& limits) {
        sureleap::cuda::workspace sizer;
        static_cast<void>(sureleap::cuda::carve(sizer, limits));
        memory_ = device_array<unsigned char>(sizer.used());
        sureleap::cuda::workspace ws{memory_.data(), memory_.size()};
        round_ = sureleap::cuda::carve(ws, limits);
    }

    [[nodiscard]] sureleap::cuda::device_round const& get() const { return round_; }

    void write(std::vector<device_request> const& requests) { write_requests(round_, requests); }
    template <class T>
    [[nodiscard]] static std::vector<T> read(T const* from, std::size_t count) {
        require_cuda(cudaDeviceSynchronize());
        std::vector<T> values(count);
        if (count > 0) require_cuda(cudaMemcpy(values.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost));
        return values;
    }

private:
    device_array<unsigned char> memory_;
    sureleap::cuda::device_round round_{};
};

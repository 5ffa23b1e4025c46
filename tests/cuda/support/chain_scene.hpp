// SPDX-License-Identifier: MIT
//
// A round of random requests with the weights of a head and the base logits of a backbone, on the device and on the
// host. What a chain should compute of them is given as rows of logits in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <sureleap/cuda/drafter/chain.cuh>
#include <sureleap/drafter/draft_block.hpp>
#include <sureleap/drafter/semi_autoregressive.hpp>
#include <sureleap/head/markov.hpp>

#include "cuda/support/device_array.hpp"
#include "support/dice.hpp"
#include "support/drafted.hpp"

namespace chain_scene {

using namespace sureleap;
namespace device = sureleap::cuda;

struct sizes {
    std::uint32_t vocabulary = 128;
    std::uint32_t rank = 16;
    std::uint32_t requests = 1;
    std::uint32_t block_size = 3;
    std::uint32_t padding = 0;  ///< of rows of base logits
    std::uint32_t target = 0;   ///< vocabulary of the target; 0: the same
};

[[nodiscard]] inline std::string text(sizes const& s) {
    return "V " + std::to_string(s.vocabulary) + ", r " + std::to_string(s.rank) + ", R " + std::to_string(s.requests) +
           ", gamma " + std::to_string(s.block_size) + ", padding " + std::to_string(s.padding);
}

template <class T>
[[nodiscard]] double wide(T const& x) {
    return static_cast<double>(load(x));
}

template <class T>
[[nodiscard]] std::vector<T> downloaded(T const* from, std::size_t count) {
    std::vector<T> out(count);
    require_cuda(cudaDeviceSynchronize());
    require_cuda(cudaMemcpy(out.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost));
    return out;
}
template <class T>
void uploaded(T* to, std::vector<T> const& values) {
    require_cuda(cudaMemcpy(to, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
}

/// W: storage of the weights, U: of the base logits.
template <class W, class U>
struct scene {
    sizes shape;
    std::size_t stride;
    std::vector<W> w1, w2;
    std::vector<U> base;
    std::vector<request_settings> settings;
    std::vector<request_view> views;
    std::vector<bool> finished;
    std::vector<token_id> stops;  // of each request, or no_token

    scene(support::dice& roll, sizes const& of, double temperature = -1.0)
        : shape(of),
          stride(of.vocabulary + of.padding),
          w1(support::random_values<W>(roll, std::size_t{target()} * of.rank, 0.7)),
          w2(support::random_values<W>(roll, std::size_t{of.vocabulary} * of.rank, 0.7)),
          base(support::random_values<U>(roll, stride * of.requests * of.block_size, 2.0)),
          settings(of.requests),
          finished(of.requests),
          stops(of.requests, no_token) {
        double const choices[] = {0.0, 0.7, 1.0, 1.3};
        for (std::size_t r = 0; r < of.requests; ++r) {
            settings[r].temperature = temperature >= 0.0 ? temperature : choices[roll.below(4)];
            if (roll.chance(0.3)) settings[r].max_draft_tokens = roll.below(of.block_size + 2);
            finished[r] = of.requests > 1 && roll.chance(0.1);
            std::size_t const left = roll.chance(0.3) ? 1 + roll.below(of.block_size) : of.block_size + 5;
            views.push_back(
                {.id = r + 1,
                 .slot = r,
                 .anchor = static_cast<token_id>(roll.below(target())),
                 .position = roll.below(1000),
                 .seed = roll.bits(),
                 .remaining = finished[r] ? 1 : left,  // drafts nothing either
                 .settings = nullptr,
                 .weight = static_cast<fixed_probability>(roll.chance(0.5) ? certain : 1 + roll.below(certain))});
        }
        for (std::size_t r = 0; r < of.requests; ++r) {
            views[r].settings = &settings[r];
            if (!roll.chance(0.3)) continue;
            U const* const likely = &logit(r, roll.below(of.block_size), 0);  // a row whose mode ends the text
            auto const less = [](U const& a, U const& b) { return wide(a) < wide(b); };
            stops[r] = static_cast<token_id>(std::max_element(likely, likely + of.vocabulary, less) - likely);
            settings[r].stop_tokens = {&stops[r], 1};
        }
    }
    scene(scene const&) = delete;

    /// Every request drafts gamma tokens.
    void drafts_all() {
        for (std::size_t r = 0; r < views.size(); ++r) {
            settings[r].max_draft_tokens = shape.block_size;
            settings[r].stop_tokens = {};
            stops[r] = no_token;
            views[r].remaining = shape.block_size + 5;
            finished[r] = false;
        }
    }
    [[nodiscard]] std::uint32_t target() const { return shape.target == 0 ? shape.vocabulary : shape.target; }
    [[nodiscard]] U& logit(std::size_t r, std::size_t k, std::size_t v) {
        return base[(r * shape.block_size + k) * stride + v];
    }
    /// Logits of position k of request r after `previous`, in double.
    [[nodiscard]] std::vector<double> row(std::size_t r, std::size_t k, token_id previous) const {
        std::vector<double> out(shape.vocabulary);
        for (std::size_t v = 0; v < out.size(); ++v) {
            out[v] = wide(base[(r * shape.block_size + k) * stride + v]);
            for (std::size_t j = 0; j < shape.rank; ++j) {
                out[v] += wide(w2[v * shape.rank + j]) * wide(w1[static_cast<std::size_t>(previous) * shape.rank + j]);
            }
        }
        return out;
    }
};

/// The same on the device, with memory for a round of at most `most` requests.
template <class W, class U>
struct device_scene {
    device_array<W> w1, w2;
    device_array<U> base;
    device_array<unsigned char> memory;
    device::device_limits limits;
    device::device_round round;
    device::markov_head<W> head;
    device::forward_view<U> forward;
    device::chain_memory chain;

    device_scene(scene<W, U> const& s, std::uint32_t most, bool keeps_rows = false)
        : w1(s.w1),
          w2(s.w2),
          base(padded(s, most)),
          limits{.requests = most, .block_size = s.shape.block_size, .vocabulary = s.target(), .stop_tokens = 1} {
        head = {{w1.data(), s.target(), s.shape.rank}, {w2.data(), s.shape.vocabulary, s.shape.rank}};
        forward.base_logits = {base.data(), std::size_t{most} * s.shape.block_size, s.shape.vocabulary, s.stride};
        device::workspace sizer;
        static_cast<void>(device::carve(sizer, limits));
        static_cast<void>(device::carve_chain(sizer, limits, device::shape_of(head, keeps_rows)));
        memory = device_array<unsigned char>(sizer.used());
        device::workspace ws{memory.data(), memory.size()};
        round = device::carve(ws, limits);
        chain = device::carve_chain(ws, limits, device::shape_of(head, keeps_rows));
        write(s);
    }

    void write(scene<W, U> const& s) {
        auto const column = [&](auto* to, auto const& of) {
            std::vector<std::remove_pointer_t<decltype(to)>> values;
            for (std::size_t r = 0; r < s.views.size(); ++r) values.push_back(of(r));
            uploaded(to, values);
        };
        auto const& requests = round.requests;
        uploaded(requests.count, std::vector<std::uint32_t>{s.shape.requests});
        column(requests.anchors, [&](std::size_t r) { return s.views[r].anchor; });
        column(requests.positions, [&](std::size_t r) { return s.views[r].position; });
        column(requests.seeds, [&](std::size_t r) { return s.views[r].seed; });
        column(requests.targets, [&](std::size_t r) { return s.settings[r].target_transform(); });
        column(requests.drafts, [&](std::size_t r) { return s.settings[r].draft_transform(); });
        column(requests.remaining,
               [&](std::size_t r) { return s.finished[r] ? 0u : static_cast<std::uint32_t>(s.views[r].remaining); });
        column(requests.draft_limits, [&](std::size_t r) {
            return static_cast<std::uint32_t>(std::min<std::size_t>(s.settings[r].max_draft_tokens, 0xffffffffu));
        });
        column(requests.weights, [&](std::size_t r) { return s.views[r].weight; });
        column(requests.slots, [&](std::size_t r) { return static_cast<std::uint32_t>(r); });
        column(requests.min_remaining, [&](std::size_t) { return 0u; });
        column(requests.stop_tokens, [&](std::size_t r) { return s.stops[r]; });
    }

private:
    static std::vector<U> padded(scene<W, U> const& s, std::uint32_t most) {
        std::vector<U> all = s.base;
        all.resize(std::size_t{most} * s.shape.block_size * s.stride);
        return all;
    }
};

/// The host's drafter on the same round.
template <class W, class U, class Confidence = sureleap::no_confidence>
struct host_blocks {
    std::vector<request_view> views;
    std::optional<support::drafted<float>> memory;
    draft_block<float> block;

    template <class DraftRule>
    host_blocks(scene<W, U> const& s, DraftRule rule, fixed_probability floor = 0, vocabulary_map const* map = nullptr)
        : views(s.views) {
        for (request_view& view : views) view.draft_floor = floor;
        auto const backbone = [&](std::span<request_view const> requests) {
            block_forward<U> forward;
            forward.base_logits.values = {s.base.data(), requests.size() * s.shape.block_size, s.shape.vocabulary,
                                          s.stride};
            return forward;
        };
        markov_head<W, float, scalar_backend> const head{{s.w1.data(), s.target(), s.shape.rank},
                                                         matrix_view<W>{s.w2.data(), s.shape.vocabulary, s.shape.rank}};
        semi_autoregressive drafter(
            backbone, head, Confidence{},
            drafter_options{.block_size = s.shape.block_size, .vocabulary = s.shape.vocabulary, .map = map});
        memory.emplace(drafter, std::span<request_view const>(views),
                       sureleap::draft_shape{.kernels = &scalar_kernels<row_kernels>});
        philox_randomness rng;
        memory->draw(drafter, drafter.forward(views), rule, rng);
        block = memory->block;
    }
};

}  // namespace chain_scene

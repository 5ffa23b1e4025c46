// SPDX-License-Identifier: MIT
//
// Random heads, backbones and requests, on the host and on the device, and what the host drafts with them: the oracle
// of everything that draws blocks on the device.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sureleap/confidence/head.hpp>
#include <sureleap/core/calibration_ref.hpp>
#include <sureleap/core/workspace.hpp>
#include <sureleap/cuda/confidence/head.cuh>
#include <sureleap/cuda/head/gated.cuh>
#include <sureleap/cuda/head/markov.cuh>
#include <sureleap/cuda/head/rnn.cuh>
#include <sureleap/drafter/draft_block.hpp>
#include <sureleap/drafter/semi_autoregressive.hpp>
#include <sureleap/head/gated.hpp>
#include <sureleap/head/markov.hpp>
#include <sureleap/head/rnn.hpp>
#include <sureleap/sampling/random.hpp>

#include "cuda/support/device_array.hpp"
#include "cuda/support/round_on_device.hpp"
#include "support/catch.hpp"
#include "support/dice.hpp"
#include "support/drafted.hpp"

namespace head_world {

using namespace sureleap;
namespace gpu = sureleap::cuda;

/// A matrix on both sides, rows `stride` apart.
template <class T>
struct matrix {
    std::vector<T> values;
    device_array<T> there;
    std::size_t rows = 0;
    std::size_t cols = 0;
    std::size_t stride = 0;

    matrix() = default;
    matrix(support::dice& roll, std::size_t row_count, std::size_t column_count, double scale, std::size_t gap = 0)
        : values(support::random_values<T>(roll, row_count * (column_count + gap), scale)),
          there(values),
          rows(row_count),
          cols(column_count),
          stride(column_count + gap) {}

    [[nodiscard]] matrix_view<T> host() const { return {values.data(), rows, cols, stride}; }
    [[nodiscard]] matrix_view<T> device() const { return {there.data(), rows, cols, stride}; }
};

struct sizes {
    std::size_t vocabulary;
    std::size_t rank;
    std::size_t hidden;
    std::size_t gap = 0;  ///< behind rows of gate, joint and hidden states
};

/// Weights of every kind of head and of a confidence, such that logits differ by some units.
template <class W>
struct weights {
    sizes of;
    matrix<W> w1, w2, gate, gate_bias, joint, joint_bias, confidence;
    device_array<unsigned char> memory{};  // of the device's heads

    weights(support::dice& roll, sizes const& s)
        : of(s),
          w1(roll, s.vocabulary, s.rank, 1.5),
          w2(roll, s.vocabulary, s.rank, 6.0 / std::sqrt(static_cast<double>(s.rank))),
          gate(roll, s.rank, s.hidden + s.rank, 1.0 / std::sqrt(static_cast<double>(s.hidden)), s.gap),
          gate_bias(roll, 1, s.rank, 1.0),
          joint(roll, 3 * s.rank, 2 * s.rank + s.hidden, 1.0 / std::sqrt(static_cast<double>(s.hidden)), s.gap),
          joint_bias(roll, 1, 3 * s.rank, 1.0),
          confidence(roll, 1, s.hidden + s.rank, 2.0 / std::sqrt(static_cast<double>(s.hidden))) {}

    /// use(the host's head, the device's) for the kind. The device's has memory.
    template <class Use>
    void with_head(std::string const& kind, gpu::device_limits const& limits, Use const& use) {
        auto const take = [&](auto& head) {
            gpu::workspace sizer;
            head.take(sizer, limits);
            memory = device_array<unsigned char>(sizer.used());
            gpu::workspace ws{memory.data(), memory.size()};
            head.take(ws, limits);
        };
        if (kind == "gated") {
            gpu::gated_head<W> there{w1.device(), w2.device(), gate.device(), gate_bias.there.data()};
            take(there);
            use(gated_head{w1.host(), w2.host(), gate.host(), gate_bias.values, scalar_backend{}}, there);
        } else if (kind == "rnn") {
            gpu::rnn_head<W> there{w1.device(), w2.device(), joint.device(), joint_bias.there.data()};
            take(there);
            use(rnn_head{w1.host(), w2.host(), joint.host(), joint_bias.values, scalar_backend{}}, there);
        } else {
            use(markov_head{w1.host(), w2.host(), scalar_backend{}}, gpu::markov_head<W>{w1.device(), w2.device()});
        }
    }
};

/// A table of successors, ascending; some rows may repeat what is best.
inline std::vector<token_id> random_successors(support::dice& roll, std::size_t vocabulary, std::size_t count) {
    std::vector<token_id> table;
    std::vector<std::size_t> last_in(vocabulary, vocabulary);  // by token: the row that it was last drawn for
    for (std::size_t v = 0; v < vocabulary; ++v) {
        std::vector<token_id> row;
        while (row.size() < count) {
            std::size_t const t = roll.below(vocabulary);
            if (std::exchange(last_in[t], v) != v) row.push_back(static_cast<token_id>(t));
        }
        std::sort(row.begin(), row.end());
        table.insert(table.end(), row.begin(), row.end());
    }
    return table;
}

/// Requests of a round, alike on both sides.
struct requests {
    std::vector<device_request> there;
    std::vector<request_settings> settings;
    std::vector<request_view> views;
    std::vector<token_id> stops;

    requests(support::dice& roll, std::size_t count, std::size_t vocabulary, bool truncated = false)
        : settings(count), stops(count, no_token) {
        for (std::size_t r = 0; r < count; ++r) {
            device_request q;
            q.anchor = static_cast<token_id>(roll.below(vocabulary));
            q.position = roll.below(1000);
            q.seed = roll.bits();
            q.draft.temperature = roll.chance(0.2) ? 0.0 : roll.between(0.5, 1.5);
            if (truncated) {
                if (roll.chance(0.6)) q.draft.top_k = static_cast<int>(1 + roll.below(30));
                if (roll.chance(0.6)) q.draft.top_p = roll.between(0.3, 0.99);
                if (roll.chance(0.4)) q.draft.min_p = roll.between(0.0, 0.1);
            }
            if (roll.chance(0.2)) q.draft_limit = static_cast<std::uint32_t>(roll.below(4));
            if (roll.chance(0.2)) q.remaining = static_cast<std::uint32_t>(1 + roll.below(4));
            if (roll.chance(0.3)) q.weight = static_cast<fixed_probability>(1 + roll.below(certain));
            there.push_back(q);
        }
        for (std::size_t r = 0; r < count; ++r) {
            device_request const& q = there[r];
            settings[r].draft = q.draft;
            views.push_back({.id = r,
                             .slot = r,
                             .anchor = q.anchor,
                             .position = q.position,
                             .seed = q.seed,
                             .remaining = q.remaining,
                             .settings = &settings[r],
                             .draft_limit = q.draft_limit,
                             .weight = q.weight});
        }
    }
    requests(requests const&) = delete;

    /// The text of request r ends at the likeliest token of that row.
    template <class U>
    void end_at_mode(std::size_t r, std::span<U const> row) {
        auto const less = [](U const& a, U const& b) { return load(a) < load(b); };
        stops[r] = static_cast<token_id>(std::max_element(row.begin(), row.end(), less) - row.begin());
        there[r].stop_token = stops[r];
        settings[r].stop_tokens = {&stops[r], 1};
    }
};

/// What the host drafts, by the reference's row functions.
struct host_drafts {
    std::vector<request_view> views;
    std::optional<support::drafted<float>> memory;
    draft_block<float> block;

    template <class DraftRule, class Drafter>
    host_drafts(DraftRule rule, Drafter&& drafter, std::span<request_view const> requests, fixed_probability floor = 0,
                calibration_ref const& calibration = {})
        : views(requests.begin(), requests.end()) {
        for (request_view& view : views) view.draft_floor = floor;
        memory.emplace(drafter, std::span<request_view const>(views),
                       draft_shape{.kernels = &scalar_kernels<row_kernels>, .calibration = calibration});
        philox_randomness rng;
        memory->draw(drafter, drafter.forward(views), rule, rng);
        block = memory->block;
    }
};

/// The device's drafts.
struct device_drafts {
    std::vector<token_id> tokens;
    std::vector<gpu::distribution> distributions;
    std::vector<double> token_probabilities;
    std::vector<fixed_probability> confidence;
    std::vector<fixed_probability> survival;
    std::vector<std::uint32_t> sizes;
    std::vector<status> statuses;

    device_drafts(gpu::device_round const& round, std::size_t count) {
        std::size_t const n = count * round.limits.block_size;
        tokens = round_on_device::read(round.drafts.tokens, n);
        distributions = round_on_device::read(round.drafts.distributions, n);
        token_probabilities = round_on_device::read(round.drafts.token_probabilities, n);
        confidence = round_on_device::read(round.drafts.confidence, n);
        survival = round_on_device::read(round.drafts.survival, n);
        sizes = round_on_device::read(round.drafts.sizes, count);
        statuses = round_on_device::read(round.drafts.statuses, count);
    }
};

/// Tokens that were compared, and those that differ within rounding.
struct tally {
    std::size_t tokens = 0;
    std::size_t differ = 0;
    double confidence = 0.0;   ///< largest difference
    double probability = 0.0;  ///< largest relative difference of q_k(x_k)
};

/// The distance of `x` from what the host's distribution gives for the draw, as a share of the total: 0 if it is that.
template <class Weights>
double misses(Weights const& q, double u, token_id x) {
    double total = 0.0, before = 0.0, own = 0.0;
    for (token_id v = 0; v < static_cast<token_id>(q.size()); ++v) {
        auto const w = static_cast<double>(q[v]);
        before += v < x ? w : 0.0;
        own += v == x ? w : 0.0;
        total += w;
    }
    REQUIRE(own > 0.0);
    return std::max({before - u * total, u * total - before - own, 0.0}) / total;
}

/// Compares blocks position by position, as long as their tokens agree; where they part, the device's token must be
/// within rounding (`token_bound`, a share of the mass) of the draw.
inline void compare(draft_block<float> const& host, device_drafts const& device, std::span<request_view const> views,
                    double token_bound, tally& seen) {
    std::size_t const gamma = host.block_size();
    for (std::size_t r = 0; r < views.size(); ++r) {
        INFO("request " << r);
        bool parted = false;
        std::size_t const size = std::min<std::size_t>(host.size(r), device.sizes[r]);
        fixed_probability survival = views[r].weight;
        for (std::size_t k = 0; k < size && !parted; ++k) {
            INFO("position " << k);
            std::size_t const i = r * gamma + k;
            auto const& q = host.laws(r)[k];
            token_id const x = device.tokens[i];
            survival = extend_survival(survival, device.confidence[i]);
            REQUIRE(device.survival[i] == survival);
            double const c = static_cast<double>(host.table().survivals.confidence[i]);
            seen.confidence =
                std::max(seen.confidence, std::abs(c - static_cast<double>(device.confidence[i])) * 0x1p-24);
            ++seen.tokens;
            REQUIRE(device.distributions[i].is_one_hot() == q.is_one_hot());
            if (x != host.tokens(r)[k]) {
                parted = true;
                ++seen.differ;
                REQUIRE_FALSE(q.is_one_hot());
                REQUIRE(misses(q, uniform(block_key(views[r], k, purpose::draft)), x) <= token_bound);
            } else {
                double const p = q.probability(x);
                seen.probability = std::max(seen.probability, std::abs(p - device.token_probabilities[i]) / p);
                if (q.is_one_hot()) REQUIRE(device.distributions[i].mode == x);
            }
        }
        if (parted) continue;
        REQUIRE(device.sizes[r] == host.size(r));
        REQUIRE(device.statuses[r] == host.draft_outcome(r));
    }
}

}  // namespace head_world

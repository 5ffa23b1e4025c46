// SPDX-License-Identifier: MIT
//
// What engines hand over to be verified, twice: request by request, and as arrays in a layout that was thrown for. The
// arrays may lie on the host or on a device.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include <sureleap/core/token_mask.hpp>
#include <sureleap/verify/engine_arrays.hpp>

#include "support/dice.hpp"

namespace support {

using namespace sureleap;

enum class q_kind { found, logits, probabilities, listed_logits, listed_probabilities };

/// What all requests of a call share.
struct engine_shape {
    std::size_t vocabulary = 40;
    std::size_t block_size = 4;
    q_kind q = q_kind::logits;
    bool edits = false;
    bool greedy = false;  ///< all requests are
    bool truncates = true;

    [[nodiscard]] bool is_listed() const noexcept {
        return q == q_kind::listed_logits || q == q_kind::listed_probabilities;
    }
    [[nodiscard]] bool probabilities() const noexcept {
        return q == q_kind::probabilities || q == q_kind::listed_probabilities;
    }
    [[nodiscard]] std::size_t listed() const noexcept { return is_listed() ? 5 : 0; }
    [[nodiscard]] std::size_t q_width() const noexcept { return is_listed() ? listed() : vocabulary; }
};

/// A request as it is meant. Settings are floats, so that no width of an array rounds them.
template <class T>
struct plain_request {
    std::vector<std::int64_t> drafts;  ///< [l] some are no tokens, or -1
    std::vector<T> p;                  ///< [l + 1, V]
    std::vector<float> q;              ///< [l, q_width()]
    std::vector<std::int64_t> listed;  ///< the same
    float temperature = 1.0f;
    float draft_temperature = 1.0f;
    std::int64_t top_k = 0;
    float top_p = 1.0f;
    float min_p = 0.0f;
    std::int64_t seed = 0;
    std::int64_t position = 0;
    std::int64_t remaining = 0;
    std::vector<std::int64_t> stops;
    // Edits:
    std::vector<std::int32_t> masks;  ///< [l + 1, words]
    std::vector<std::int64_t> bias_tokens;
    std::vector<float> bias;
    float repetition = 1.0f;
    float frequency = 0.0f;
    float presence = 0.0f;
    std::vector<std::int32_t> counts;  ///< [V]
    std::vector<std::int32_t> prompt;  ///< [words]
};

inline constexpr std::size_t scene_stops = 2;
inline constexpr std::size_t scene_biases = 3;

template <class T>
[[nodiscard]] plain_request<T> random_request(dice& roll, engine_shape const& shape) {
    std::size_t const V = shape.vocabulary;
    std::size_t const words = mask_words(V);
    plain_request<T> r;
    std::size_t const l = roll.below(shape.block_size + 1);
    r.p = random_values<T>(roll, (l + 1) * V, 2.0);
    r.q = random_values<float>(roll, l * shape.q_width(), 2.0);
    for (std::size_t k = 0; k < l; ++k) {
        // Drafts are close to the target, so that some are accepted.
        std::size_t best = 0;
        for (std::size_t v = 0; v < V; ++v) {
            if (load(r.p[k * V + v]) > load(r.p[k * V + best])) best = v;
        }
        std::size_t const x = roll.chance(0.6) ? best : roll.below(V);
        r.drafts.push_back(static_cast<std::int64_t>(x));
        if (shape.is_listed()) {
            std::vector<std::int64_t> some(V);
            std::iota(some.begin(), some.end(), 0);
            std::swap(some[0], some[x]);
            for (std::size_t i = 1; i < shape.listed(); ++i) std::swap(some[i], some[i + roll.below(V - i)]);
            std::swap(some[0], some[roll.below(shape.listed())]);
            if (roll.chance(0.3)) some[roll.below(shape.listed())] = -1;
            r.listed.insert(r.listed.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(shape.listed()));
        } else {
            r.q[k * V + x] += 2.0f;
        }
    }
    if (shape.probabilities()) {
        for (float& x : r.q) x = std::exp(x);
    }
    if (l > 0 && roll.chance(0.1)) {
        std::int64_t const none[]{-1, -7, static_cast<std::int64_t>(V), std::int64_t{1} << 30};
        r.drafts[roll.below(l)] = none[roll.below(4)];
    }
    float const temperatures[]{1.0f, 0.75f, 1.5f, 0.0f};
    r.temperature = shape.greedy ? 0.0f : temperatures[roll.below(4)];
    r.draft_temperature = roll.chance(0.3) ? 1.25f : r.temperature;
    if (shape.truncates) {
        std::int64_t const ks[]{0, -1, 5, static_cast<std::int64_t>(V), std::int64_t{1} << 30};
        r.top_k = ks[roll.below(5)];
        if (roll.chance(0.3)) r.top_p = 0.8125f;
        if (roll.chance(0.2)) r.min_p = 0.0625f;
    }
    r.seed = static_cast<std::int64_t>(roll.bits() >> 2);
    r.position = static_cast<std::int64_t>(roll.below(5000));
    r.remaining = roll.chance(0.2) ? 1 + static_cast<std::int64_t>(roll.below(shape.block_size + 1))
                                   : static_cast<std::int64_t>(shape.block_size + 1);
    for (std::size_t i = roll.below(scene_stops + 1); i > 0; --i)
        r.stops.push_back(static_cast<std::int64_t>(roll.below(V)));
    if (!shape.edits) return r;
    for (std::size_t i = 0; i < (l + 1) * words; ++i) {
        r.masks.push_back(roll.chance(0.5) ? -1 : static_cast<std::int32_t>(roll.bits() | 1u));
    }
    for (std::size_t i = roll.below(scene_biases + 1); i > 0; --i) {
        r.bias_tokens.push_back(static_cast<std::int64_t>(roll.below(V)));
        r.bias.push_back(static_cast<float>(roll.below(16)) * 0.25f - 2.0f);
    }
    if (roll.chance(0.4)) r.repetition = 1.25f;
    if (roll.chance(0.3)) r.frequency = 0.5f;
    if (roll.chance(0.3)) r.presence = 0.75f;
    for (std::size_t v = 0; v < V; ++v)
        r.counts.push_back(roll.chance(0.1) ? 1 + static_cast<std::int32_t>(roll.below(4)) : 0);
    for (std::size_t w = 0; w < words; ++w) r.prompt.push_back(static_cast<std::int32_t>(roll.bits() & roll.bits()));
    return r;
}

/// Numbers in one of two widths.
template <template <class...> class Array, class Narrow, class Wide>
struct either_numbers {
    Array<Narrow> narrow{};
    Array<Wide> wide{};
    bool is_there = false;
    bool is_wide = false;

    template <class X>
    void take(dice& roll, std::vector<X> const& values) {
        is_there = true;
        is_wide = roll.chance(0.5);
        if (is_wide) {
            wide = Array<Wide>(std::vector<Wide>(values.begin(), values.end()));
        } else {
            std::vector<Narrow> some;
            for (X const x : values) some.push_back(static_cast<Narrow>(x));
            narrow = Array<Narrow>(some);
        }
    }
    [[nodiscard]] either_array<Narrow const, Wide const> view() const {
        if (!is_there) return {};
        if (is_wide) return wide.data();
        return narrow.data();
    }
};

/// The arrays of a call. Array: std::vector, or device_array.
template <class T, template <class...> class Array>
struct laid_out {
    template <class N, class W>
    using either = either_numbers<Array, N, W>;
    using integers = either<std::int32_t, std::int64_t>;
    using numbers = either<float, double>;

    engine_arrays<T> call{};
    Array<T> p{};
    Array<float> q{};
    Array<std::int32_t> masks{}, counts{}, prompt{};
    numbers q_normalisers{};
    integers row_begin{}, drafts{}, q_slots{}, listed{}, slots{}, positions{}, remaining{}, top_k{}, seeds{}, stops{},
        bias_tokens{}, bias_counts{};
    numbers temperature{}, top_p{}, min_p{}, draft_temperature{}, bias{}, repetition{}, frequency{}, presence{};

    laid_out(dice& roll, engine_shape const& shape, std::vector<plain_request<T>> const& requests) {
        std::size_t const R = requests.size();
        std::size_t const V = shape.vocabulary;
        std::size_t const gamma = shape.block_size;
        std::size_t const words = mask_words(V);

        // Rows: padded, packed, or with gaps. Requests that end before gamma need rows of their own, or a -1.
        bool const padded = roll.chance(0.3);
        std::vector<std::size_t> first(R + 1, 0);
        std::size_t at = padded ? 0 : roll.below(3);
        for (std::size_t r = 0; r < R; ++r) {
            first[r] = at;
            at += padded ? gamma + 1 : requests[r].drafts.size() + 1;
        }
        first[R] = at;
        std::size_t const stride = V + (roll.chance(0.5) ? roll.below(9) : 0);
        std::vector<T> p_values(at * stride, T(9.0f));
        std::size_t const mask_stride = words + roll.below(2);
        std::vector<std::int32_t> mask_values(at * mask_stride, 0);
        bool const beside = roll.chance(0.4);
        std::size_t const draft_stride = beside ? 0 : gamma + roll.below(3);
        std::vector<std::int64_t> draft_values(beside ? at : R * draft_stride + 1, 0);
        bool const of_rows = roll.chance(0.4);
        std::vector<std::int64_t> position_values(of_rows ? at : R, 1234567);

        // Settings: by request, or at slots.
        bool const slotted = roll.chance(0.6);
        bool const q_slotted = roll.chance(0.6);
        std::size_t const places = R + 3;
        auto const some_places = [&](bool shuffled) {
            std::vector<std::int64_t> chosen(places);
            std::iota(chosen.begin(), chosen.end(), 0);
            for (std::size_t i = 0; shuffled && i < places; ++i)
                std::swap(chosen[i], chosen[i + roll.below(places - i)]);
            return chosen;
        };
        auto const own = some_places(slotted);
        auto const q_own = some_places(q_slotted);
        std::size_t const q_row = shape.q_width() + roll.below(4);
        std::size_t const q_slot = gamma * q_row + roll.below(5);
        std::vector<float> q_values(places * q_slot, 9.0f);
        std::vector<std::int64_t> listed_values(q_values.size(), 3);
        std::vector<float> temperatures(places, 3.0f), top_ps(places, 0.5f), min_ps(places, 0.5f),
            drafts_at(places, 3.0f);
        std::vector<std::int64_t> top_ks(places, 1), seed_values(places, 99), remaining_values(R, 0);
        std::vector<std::int64_t> stop_values(places * scene_stops, -1), bias_ids(places * scene_biases, -1);
        std::vector<float> bias_values(places * scene_biases, 5.0f), repetitions(places, 2.0f),
            frequencies(places, 2.0f), presences(places, 2.0f);
        std::size_t const count_stride = V + roll.below(3);
        std::vector<std::int32_t> count_values(places * count_stride, 4), prompt_values(places * words, -1);

        auto const put = [](auto const& from, auto& to, std::size_t at_place) {
            std::copy(from.begin(), from.end(), to.begin() + static_cast<std::ptrdiff_t>(at_place));
        };
        auto const rows_to = [&](auto const& from, auto& to, std::size_t width, std::size_t begin, std::size_t step) {
            for (std::size_t i = 0; i < from.size(); ++i) to[begin + i / width * step + i % width] = from[i];
        };
        for (std::size_t r = 0; r < R; ++r) {
            plain_request<T> const& request = requests[r];
            std::size_t const l = request.drafts.size();
            auto const s = static_cast<std::size_t>(own[r]);
            auto const qs = static_cast<std::size_t>(q_own[r]);
            rows_to(request.p, p_values, V, first[r] * stride, stride);
            rows_to(request.masks, mask_values, words, first[r] * mask_stride, mask_stride);
            std::size_t const draft = beside ? first[r] + 1 : r * draft_stride;
            put(request.drafts, draft_values, draft);
            if (padded && l < gamma) draft_values[draft + l] = -1;
            position_values[of_rows ? first[r] : r] = request.position;
            rows_to(request.q, q_values, shape.q_width(), qs * q_slot, q_row);
            rows_to(request.listed, listed_values, shape.q_width(), qs * q_slot, q_row);
            temperatures[s] = request.temperature;
            drafts_at[s] = request.draft_temperature;
            top_ks[s] = request.top_k;
            top_ps[s] = request.top_p;
            min_ps[s] = request.min_p;
            seed_values[s] = request.seed;
            remaining_values[r] = request.remaining;
            put(request.stops, stop_values, s * scene_stops);
            put(request.bias_tokens, bias_ids, s * scene_biases);
            put(request.bias, bias_values, s * scene_biases);
            repetitions[s] = request.repetition;
            frequencies[s] = request.frequency;
            presences[s] = request.presence;
            put(request.counts, count_values, s * count_stride);
            put(request.prompt, prompt_values, s * words);
        }

        p = Array<T>(p_values);
        call = engine_arrays<T>{.requests = R,
                                .target = {p.data(), at, V, stride},
                                .draft_stride = draft_stride,
                                .positions_of_rows = of_rows};
        if (!padded) row_begin.take(roll, std::vector<std::int64_t>(first.begin(), first.end()));
        drafts.take(roll, draft_values);
        if (shape.q != q_kind::found) {
            q = Array<float>(q_values);
            call.q = q_arrays<float>{.rows = q.data(), .slot_stride = q_slot, .row_stride = q_row};
            if (shape.is_listed()) listed.take(roll, listed_values);
            if (q_slotted) q_slots.take(roll, q_own);
            call.q.slots = q_slots.view();
            call.q.listed = listed.view();
        }
        if (slotted) slots.take(roll, own);
        positions.take(roll, position_values);
        remaining.take(roll, remaining_values);
        temperature.take(roll, temperatures);
        draft_temperature.take(roll, drafts_at);
        if (shape.truncates) {
            top_k.take(roll, top_ks);
            top_p.take(roll, top_ps);
            min_p.take(roll, min_ps);
        }
        seeds.take(roll, std::vector<std::int64_t>(seed_values));
        if (!seeds.is_wide)
            seeds = integers{.wide = Array<std::int64_t>(seed_values), .is_there = true, .is_wide = true};
        stops.take(roll, stop_values);
        call.row_begin = row_begin.view();
        call.drafts = drafts.view();
        call.slots = slots.view();
        call.positions = positions.view();
        call.remaining = remaining.view();
        call.settings = settings_arrays{.temperature = temperature.view(),
                                        .top_k = top_k.view(),
                                        .top_p = top_p.view(),
                                        .min_p = min_p.view(),
                                        .draft_temperature = draft_temperature.view(),
                                        .seeds = seeds.view(),
                                        .stop_tokens = stops.view(),
                                        .stop_stride = scene_stops};
        if (shape.q == q_kind::logits && roll.chance(0.4)) {
            std::vector<double> logs(places * gamma, 7.0);
            for (std::size_t r = 0; r < R; ++r) {
                for (std::size_t k = 0; k < requests[r].drafts.size(); ++k) {
                    double sum = 0.0;
                    for (std::size_t v = 0; v < V; ++v) {
                        sum += std::exp(static_cast<double>(requests[r].q[k * V + v] / requests[r].draft_temperature));
                    }
                    logs[static_cast<std::size_t>(q_own[r]) * gamma + k] = std::log(sum);
                }
            }
            q_normalisers.take(roll, logs);
            call.q.log_normalisers = q_normalisers.view();
        }
        if (!shape.edits) return;
        masks = Array<std::int32_t>(mask_values);
        counts = Array<std::int32_t>(count_values);
        prompt = Array<std::int32_t>(prompt_values);
        if (roll.chance(0.5)) {  // counted, and other numbers behind
            std::vector<std::int64_t> biased(places, 0);
            for (std::size_t r = 0; r < R; ++r) {
                biased[static_cast<std::size_t>(own[r])] = static_cast<std::int64_t>(requests[r].bias.size());
            }
            std::replace(bias_ids.begin(), bias_ids.end(), std::int64_t{-1}, std::int64_t{1});
            bias_counts.take(roll, biased);
        }
        bias_tokens.take(roll, bias_ids);
        bias.take(roll, bias_values);
        repetition.take(roll, repetitions);
        frequency.take(roll, frequencies);
        presence.take(roll, presences);
        call.edits = edit_arrays{.bitmask = masks.data(),
                                 .bitmask_stride = mask_stride,
                                 .bias_tokens = bias_tokens.view(),
                                 .bias = bias.view(),
                                 .bias_stride = scene_biases,
                                 .bias_counts = bias_counts.view(),
                                 .repetition = repetition.view(),
                                 .frequency = frequency.view(),
                                 .presence = presence.view(),
                                 .counts = counts.data(),
                                 .counts_stride = count_stride,
                                 .prompt = prompt.data(),
                                 .prompt_stride = words};
    }
};

}  // namespace support

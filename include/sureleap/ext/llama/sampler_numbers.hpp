// SPDX-License-Identifier: MIT
//
// What number a stage of llama.cpp works with. A llama_sampler tells its name and no parameter. So it is asked: it is
// applied to made-up candidates, and what it does with them gives the number away. Then it is applied to others, which it
// has to treat as that number says. A stage that does not, because it keeps a minimum of candidates or its temperature
// depends on them, has no number here, and sampler.hpp has llama.cpp run it.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include <llama.h>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace detail {

/// Applies a stage to candidates 0, 1, 2 ... with given logits.
class llama_probe {
public:
    explicit llama_probe(llama_sampler* stage) noexcept : stage_(stage) {}

    /// What the stage leaves, valid until the next call. `sorted` says to it that the candidates stand in its order, whether
    /// they do or not: so top-p can be given masses in any order.
    [[nodiscard]] std::span<llama_token_data const> operator()(std::span<float const> logits, bool sorted) {
        candidates_.clear();
        for (float const l : logits) candidates_.push_back({static_cast<llama_token>(candidates_.size()), l, 0.0F});
        llama_token_data_array array{candidates_.data(), candidates_.size(), -1, sorted};
        llama_sampler_apply(stage_, &array);
        return {array.data, array.size};
    }

private:
    llama_sampler* stage_;
    std::vector<llama_token_data> candidates_;
};

/// Rows that stages are tried on: peaked and flat ones, short and long ones, logits falling.
[[nodiscard]] inline std::vector<std::vector<float>> llama_trials() {
    std::vector<std::vector<float>> rows;
    for (float const spread : {0.37F, 5.3F, 41.0F}) {
        for (std::size_t const size : {std::size_t{2}, std::size_t{37}, std::size_t{700}}) {
            auto& row = rows.emplace_back();
            for (std::size_t i = 0; i < size; ++i) {
                float const x = static_cast<float>(i) / static_cast<float>(size);
                row.push_back(6.1F - spread * x * (1.3F - 0.3F * x));
            }
        }
    }
    return rows;
}

/// The stage keeps candidates from the first on: of each row as many as `is_right(row, kept)` says.
template <class IsRight>
[[nodiscard]] bool keeps_a_prefix(llama_sampler* stage, IsRight const& is_right) {
    llama_probe probe{stage};
    for (auto const& row : llama_trials()) {
        auto const kept = probe(row, false);
        if (kept.empty() || !is_right(std::span(row), kept)) return false;
        for (std::size_t i = 0; i < kept.size(); ++i) {
            if (kept[i].id != static_cast<llama_token>(i) || kept[i].logit != row[i]) return false;
        }
    }
    return true;
}

/// T, if logits become l / T; 0 if the largest alone stays. O(1) small rows.
[[nodiscard]] inline std::optional<double> find_temperature(llama_sampler* stage) {
    llama_probe probe{stage};
    auto const divides_by = [](std::span<float const> row, std::span<llama_token_data const> made, float t) {
        for (std::size_t i = 0; i < made.size(); ++i) {
            if (made[i].id != static_cast<llama_token>(i) || made[i].logit != row[i] / t) return false;
        }
        return made.size() == row.size();
    };
    auto const keeps_first = [](std::span<float const> row, std::span<llama_token_data const> made) {
        return made.size() == row.size() && made[0].id == 0 && made[0].logit == row[0] &&
               std::all_of(made.begin() + 1, made.end(), [](llama_token_data const& c) {
                   return c.logit == -std::numeric_limits<float>::infinity();
               });
    };
    auto const trials = llama_trials();
    auto const everywhere = [&](auto const& is_right) {
        return std::all_of(trials.begin(), trials.end(),
                           [&](std::vector<float> const& row) { return is_right(row, probe(row, false)); });
    };
    if (everywhere(keeps_first)) return 0.0;
    // A quotient of two floats gives t away up to two units in its last place; of 700 quotients no two t give the same.
    std::vector<float> const& row = trials[2];
    float t = row[0] / probe(row, false)[0].logit;
    for (int i = 0; i < 2; ++i) t = std::nextafter(t, 0.0F);
    for (int i = 0; i < 5; ++i, t = std::nextafter(t, std::numeric_limits<float>::max())) {
        auto const wide = static_cast<double>(t);
        if (!(wide >= least_temperature && wide <= largest_temperature)) continue;
        if (everywhere([&](auto const& r, auto const& made) { return divides_by(r, made, t); })) return wide;
    }
    return std::nullopt;
}

/// k, if the k largest stay, up to 2^20. O(k).
[[nodiscard]] inline std::optional<int> find_top_k(llama_sampler* stage) {
    llama_probe probe{stage};
    for (std::size_t size = std::size_t{1} << 10; size <= std::size_t{1} << 20; size <<= 5) {
        std::vector<float> row(size);
        for (std::size_t i = 0; i < size; ++i) row[i] = -static_cast<float>(i) / 1024.0F;
        std::size_t const k = probe(row, true).size();
        if (k == size) continue;
        bool const is_right = keeps_a_prefix(
            stage, [k](auto const& r, auto const& kept) { return kept.size() == std::min(k, r.size()); });
        return is_right ? std::optional(static_cast<int>(k)) : std::nullopt;
    }
    return std::nullopt;
}

/// p, if the first candidates stay whose masses, added up in float, reach p; to the float, from 2^-10 on. A first candidate
/// stays alone if its mass reaches p. The stage leaves in it the mass that it computed, so masses on both sides of p
/// are known exactly, and come as close as a float sum of masses allows. O(1) small rows.
[[nodiscard]] inline std::optional<double> find_top_p(llama_sampler* stage) {
    llama_probe probe{stage};
    std::vector<float> row;
    std::span<llama_token_data const> kept;
    // The first candidate, `more`, `others` like the first, and a last one. Of m like it the first has mass 1 / m.
    auto const stays_alone = [&](std::size_t others, float last, std::initializer_list<float> more = {}) {
        row.assign({0.0F});
        row.insert(row.end(), more);
        row.resize(row.size() + others, 0.0F);
        row.push_back(last);
        kept = probe(row, true);
        return kept.size() == 1;
    };
    auto const bits = [](float x) {
        return std::bit_cast<std::uint32_t>(x);
    };  // of positive floats, ordered as they are
    std::size_t others = 0;
    for (std::size_t end = 1024; others < end;) {
        std::size_t const middle = others + (end - others) / 2;
        stays_alone(middle, 0.0F) ? others = middle + 1 : end = middle;
    }
    if (others == 1024 || !stays_alone(others, -50.0F)) return std::nullopt;
    std::uint32_t light = bits(50.0F);
    for (std::uint32_t heavy = bits(0.0F); light - heavy > 1;) {
        std::uint32_t const middle = heavy + (light - heavy) / 2;
        (stays_alone(others, -std::bit_cast<float>(middle)) ? light : heavy) = middle;
    }
    (void)stays_alone(others, -std::bit_cast<float>(light));
    float p = kept[0].p;
    (void)stays_alone(others, -std::bit_cast<float>(light - 1));
    float const below = kept[0].p;
    // There may be a float between them: a second candidate that adds one unit, and is lost in the sum of all, tells.
    (void)stays_alone(others, -std::bit_cast<float>(light - 1), {std::log(0.98F * 0x1p-24F)});
    if (kept.size() == 2 && kept[0].p == below) p = std::min(p, below + kept[1].p);
    bool const is_right = keeps_a_prefix(stage, [p](auto const& trial, auto const& left) {
        float sum = 0.0F;
        for (std::size_t i = 0; i + 1 < left.size(); ++i) sum += left[i].p;
        return sum < p && (sum + left.back().p >= p || left.size() == trial.size());
    });
    return is_right ? std::optional(static_cast<double>(p)) : std::nullopt;
}

/// p, if candidates stay whose logit is at most -log(p) below the largest. The stage compares with the float log(p), which
/// is found exactly; exp of it lies in the middle of what has this logarithm. O(1) small rows.
[[nodiscard]] inline std::optional<double> find_min_p(llama_sampler* stage) {
    llama_probe probe{stage};
    auto const keeps = [&probe](float distance) { return probe(std::array{0.0F, -distance}, true).size() == 2; };
    float const most = 100.0F;
    if (!keeps(0.0F) || keeps(most)) return std::nullopt;
    auto near = std::bit_cast<std::uint32_t>(0.0F);
    for (auto far = std::bit_cast<std::uint32_t>(most); far - near > 1;) {
        std::uint32_t const middle = near + (far - near) / 2;
        (keeps(std::bit_cast<float>(middle)) ? near : far) = middle;
    }
    float const log_p = -std::bit_cast<float>(near);
    bool const is_right = keeps_a_prefix(stage, [log_p](auto const& row, auto const& kept) {
        auto const least = row[0] + log_p;
        auto const is_kept = [least](float l) { return l >= least; };
        return kept.size() == static_cast<std::size_t>(std::count_if(row.begin(), row.end(), is_kept));
    });
    return is_right ? std::optional(std::exp(static_cast<double>(log_p))) : std::nullopt;
}

}  // namespace detail
SURELEAP_END_NAMESPACE

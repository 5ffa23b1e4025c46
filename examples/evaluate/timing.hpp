// SPDX-License-Identifier: MIT
//
// How long a text took, and what is made of that.
//
// A machine that others use now and then takes a run twice as long, so every text is decoded several times and the run
// in the middle counts. Seconds a token are compared, not seconds: where a text ends within its last block, methods may
// emit a few tokens more or less.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <engine/phase_times.hpp>
#include <sureleap/core/error.hpp>

namespace evaluate {

/// a + scale * b.
[[nodiscard]] inline engine::phase_times added(engine::phase_times const& a, engine::phase_times const& b,
                                               double scale = 1.0) {
    return {.prefill = a.prefill + scale * b.prefill,
            .draft = a.draft + scale * b.draft,
            .head = a.head + scale * b.head,
            .verify = a.verify + scale * b.verify,
            .accept = a.accept + scale * b.accept};
}

/// One method on one text.
struct timing {
    double seconds = 0;
    std::uint64_t tokens = 0;
    std::uint64_t steps = 0;
    engine::phase_times times{};

    [[nodiscard]] double seconds_a_token() const { return seconds / static_cast<double>(tokens); }
};

/// One method on all texts, [domain][text].
using text_timings = std::vector<std::vector<timing>>;

/// The one in the middle, of an even number the larger of two.
template <class T, class Key>
[[nodiscard]] T median_by(std::vector<T> values, Key const& key) {
    if (values.empty()) sureleap::fail_with("median of no values, expected at least one");
    auto const middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end(), [&](T const& a, T const& b) { return key(a) < key(b); });
    return *middle;
}
[[nodiscard]] inline double median(std::vector<double> values) {
    return median_by(std::move(values), [](double x) { return x; });
}

/// Of every text its median run by seconds a token. `runs` have the same texts.
[[nodiscard]] inline text_timings median_runs(std::vector<text_timings> const& runs) {
    text_timings out = runs.at(0);
    for (std::size_t d = 0; d < out.size(); ++d) {
        for (std::size_t i = 0; i < out[d].size(); ++i) {
            std::vector<timing> of_text;
            for (text_timings const& run : runs) of_text.push_back(run[d][i]);
            out[d][i] = median_by(std::move(of_text), [](timing const& t) { return t.seconds_a_token(); });
        }
    }
    return out;
}

/// A text and how many times as fast a method is on it as another one.
struct text_ratio {
    std::size_t domain = 0;
    std::size_t text = 0;
    double ratio = 0;
};

/// All texts of at least `least` tokens by either method: a short one is over before its time can be told from chance.
[[nodiscard]] inline std::vector<text_ratio> text_ratios(text_timings const& fast, text_timings const& plain,
                                                         std::size_t least) {
    std::vector<text_ratio> all;
    for (std::size_t d = 0; d < fast.size(); ++d) {
        for (std::size_t i = 0; i < fast[d].size(); ++i) {
            timing const& a = fast[d][i];
            timing const& b = plain[d][i];
            if (std::min(a.tokens, b.tokens) >= least) all.push_back({d, i, b.seconds_a_token() / a.seconds_a_token()});
        }
    }
    return all;
}

/// None if all texts are too short.
[[nodiscard]] inline std::optional<text_ratio> worst(std::vector<text_ratio> const& all) {
    auto const found = std::min_element(all.begin(), all.end(),
                                        [](text_ratio const& a, text_ratio const& b) { return a.ratio < b.ratio; });
    return found == all.end() ? std::nullopt : std::optional(*found);
}

}  // namespace evaluate

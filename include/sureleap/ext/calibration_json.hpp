// SPDX-License-Identifier: MIT
//
// What an online calibration has learned, as JSON, so that a server restarts warm.
//
//   save_evidence(calibration.shared(), "calibration.json");
//   calibration.restore(load_evidence("calibration.json"));
//
// The sums of evidence are saved, not the maps: a map follows from its evidence and the settings, and the settings of
// the new start may be others. Tenants are not saved; they start from the shared maps.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <sureleap/ext/json_document.hpp>

#include <sureleap/core/config.hpp>
#include <sureleap/serving/online_fit.hpp>
#include <sureleap/serving/online_maps.hpp>

SURELEAP_BEGIN_NAMESPACE

namespace detail {

inline constexpr char const* evidence_format = "sureleap.online_evidence";

/// No sum of logits of at most 12 grows further in the life of a server. At this size the prior, which keeps a fit
/// solvable, is not yet lost in the rounding.
[[nodiscard]] inline double read_sum(json_field const& field) {
    return field.number_within(-1e12, 1e12, "a number in [-1e12, 1e12]");
}

/// No sums over observations look otherwise; what does would be fitted to something that is no map.
[[nodiscard]] inline bool is_evidence(std::array<double, logit_evidence::size> const& n) noexcept {
    auto const within = [](double product, double a, double b) { return product * product <= a * b * (1.0 + 1e-9); };
    bool const squares = n[0] >= 0.0 && n[2] >= 0.0 && n[5] >= 0.0 && within(n[1], n[0], n[2]) &&
                         within(n[3], n[0], n[5]) && within(n[4], n[2], n[5]);
    double const determinant =
        n[0] * (n[2] * n[5] - n[4] * n[4]) - n[1] * (n[1] * n[5] - n[4] * n[3]) + n[3] * (n[1] * n[4] - n[2] * n[3]);
    return squares && determinant >= -1e-9 * n[0] * n[2] * n[5] && n[10] >= 0.0 && n[9] >= n[10];
}

}  // namespace detail

/// { "format": "sureleap.online_evidence", "version": 1, "block_size": 7,
///   "positions": [ {"squares": [6 numbers, the lower triangle by rows], "moments": [3 numbers],
///                   "observations": 812.4, "accepted": 503.1}, ... ] }
[[nodiscard]] inline std::string to_json(online_maps const& maps) {
    using ordered = nlohmann::ordered_json;
    ordered document{{"format", detail::evidence_format}, {"version", 1}};
    document["block_size"] = maps.block_size();
    document["positions"] = ordered::array();
    for (std::size_t k = 0; k < maps.block_size(); ++k) {
        auto const n = maps.evidence(k).numbers();
        ordered position;
        position["squares"] = ordered::array({n[0], n[1], n[2], n[3], n[4], n[5]});
        position["moments"] = ordered::array({n[6], n[7], n[8]});
        position["observations"] = n[9];
        position["accepted"] = n[10];
        document["positions"].push_back(std::move(position));
    }
    return document.dump(2);
}

/// `source` names the text in messages.
[[nodiscard]] inline std::vector<logit_evidence> evidence_from_json(std::string const& text,
                                                                    std::string const& source = "evidence JSON") {
    nlohmann::json const document = detail::parse_document(text, source, detail::evidence_format, 1);
    detail::json_field const root(document, source, "");
    auto const list = root["positions"];
    if (list.size() == 0) list.wrong("one entry per position");
    if (root["block_size"].natural() != list.size()) {
        root["block_size"].wrong("the number of entries of 'positions'");
    }
    std::vector<logit_evidence> evidence;
    for (std::size_t k = 0; k < list.size(); ++k) {
        auto const position = list[k];
        auto const squares = position["squares"];
        auto const moments = position["moments"];
        if (squares.size() != 6) squares.wrong("6 numbers");
        if (moments.size() != 3) moments.wrong("3 numbers");
        std::array<double, logit_evidence::size> n{};
        for (std::size_t i = 0; i < 6; ++i) n[i] = detail::read_sum(squares[i]);
        for (std::size_t i = 0; i < 3; ++i) n[6 + i] = detail::read_sum(moments[i]);
        n[9] = detail::read_sum(position["observations"]);
        n[10] = detail::read_sum(position["accepted"]);
        if (!detail::is_evidence(n)) position.wrong("sums that observations can have");
        evidence.push_back(logit_evidence::of_numbers(n));
    }
    return evidence;
}

inline void save_evidence(online_maps const& maps, std::string const& file) {
    detail::write_text(file, to_json(maps));
}

[[nodiscard]] inline std::vector<logit_evidence> load_evidence(std::string const& file) {
    return evidence_from_json(detail::read_text(file), file);
}

SURELEAP_END_NAMESPACE

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

/// No sums over observations look otherwise; what does would be fitted to something that is no map. Squares of terms,
/// each divided by what it is at most, have no negative eigenvalue.
[[nodiscard]] inline bool is_evidence(std::array<double, logit_evidence::size> const& n) noexcept {
    auto const at = [](std::size_t i, std::size_t j) { return i * (i + 1) / 2 + j; };
    std::array<double, logit_evidence::squares> factor{};  // of Cholesky
    for (std::size_t i = 0; i < logit_evidence::terms; ++i) {
        for (std::size_t j = 0; j <= i; ++j) {
            double const most = std::sqrt(n[at(i, i)]) * std::sqrt(n[at(j, j)]);
            double sum = most > 0.0 ? n[at(i, j)] / most : n[at(i, j)];
            if (!(most > 0.0) && sum != 0.0) return false;
            for (std::size_t m = 0; m < j; ++m) sum -= factor[at(i, m)] * factor[at(j, m)];
            if (i == j) sum = std::sqrt(sum + 1e-9);
            if (i == j && std::isnan(sum)) return false;
            factor[at(i, j)] = i == j ? sum : sum / factor[at(j, j)];
        }
    }
    double const observations = n[logit_evidence::size - 2];
    double const accepted = n[logit_evidence::size - 1];
    return accepted >= 0.0 && observations >= accepted;
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
        auto const moments = n.begin() + logit_evidence::squares;
        ordered position;
        position["squares"] = std::vector<double>(n.begin(), moments);
        position["moments"] = std::vector<double>(moments, moments + logit_evidence::terms);
        position["observations"] = n[logit_evidence::size - 2];
        position["accepted"] = n[logit_evidence::size - 1];
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
        if (squares.size() != logit_evidence::squares) squares.wrong("6 numbers");
        if (moments.size() != logit_evidence::terms) moments.wrong("3 numbers");
        std::array<double, logit_evidence::size> n{};
        for (std::size_t i = 0; i < logit_evidence::squares; ++i) n[i] = detail::read_sum(squares[i]);
        for (std::size_t i = 0; i < logit_evidence::terms; ++i)
            n[logit_evidence::squares + i] = detail::read_sum(moments[i]);
        n[logit_evidence::size - 2] = detail::read_sum(position["observations"]);
        n[logit_evidence::size - 1] = detail::read_sum(position["accepted"]);
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

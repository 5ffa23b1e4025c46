// SPDX-License-Identifier: MIT
//
// Capacity tables and fitted calibrations as JSON, by means of nlohmann/json.
//
//   save(profile(step, {1, 8, 64}), "capacity.json");
//   auto const curve = load_capacity("capacity.json");
//
// Documents carry a format and a version. What cannot be read is a sureleap::error that names the source, the field and
// the expectation. Numbers are written with as many digits as it takes to read back the same double.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <sureleap/ext/json_document.hpp>

#include <sureleap/confidence/calibration.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/cost/capacity.hpp>
#include <sureleap/fit/calibration_data.hpp>
#include <sureleap/fit/platt_fit.hpp>
#include <sureleap/fit/temperature_fit.hpp>

SURELEAP_BEGIN_NAMESPACE

namespace detail {

inline constexpr char const* capacity_format = "sureleap.capacity";
inline constexpr char const* temperatures_format = "sureleap.temperatures";
inline constexpr char const* platt_format = "sureleap.platt";

}  // namespace detail

// ---- capacity --------------------------------------------------------------------------------------------------

/// { "format": "sureleap.capacity", "version": 1, "interpolation": "linear_step_time",
///   "points": [ {"batch_tokens": 1, "seconds": 0.012}, ... ] }
template <class Interpolation>
[[nodiscard]] std::string to_json(capacity_table<Interpolation> const& table) {
    nlohmann::ordered_json document{{"format", detail::capacity_format}, {"version", 1}};
    document["interpolation"] = Interpolation::name;
    document["points"] = nlohmann::ordered_json::array();
    for (capacity_point const& p : table.points()) {
        document["points"].push_back(nlohmann::ordered_json{{"batch_tokens", p.batch_tokens}, {"seconds", p.seconds}});
    }
    return document.dump(2);
}

/// `source` names the text in messages. A table saved under another interpolation is refused, not reinterpreted:
/// the times of a padded engine mean something else between the points.
template <class Interpolation = linear_step_time>
[[nodiscard]] capacity_table<Interpolation> capacity_from_json(std::string const& text,
                                                               std::string const& source = "capacity JSON") {
    nlohmann::json const document = detail::parse_document(text, source, detail::capacity_format, 1);
    detail::json_field const root(document, source, "");
    if (root["interpolation"].text() != Interpolation::name) root["interpolation"].wrong(Interpolation::name);
    auto const list = root["points"];
    std::vector<capacity_point> points;
    for (std::size_t i = 0; i < list.size(); ++i) {
        points.push_back({list[i]["batch_tokens"].natural(), list[i]["seconds"].number()});
    }
    detail::check_capacity_points(source + ": field 'points'", points);
    return capacity_table<Interpolation>(std::move(points));
}

template <class Interpolation>
void save(capacity_table<Interpolation> const& table, std::string const& file) {
    detail::write_text(file, to_json(table));
}

template <class Interpolation = linear_step_time>
[[nodiscard]] capacity_table<Interpolation> load_capacity(std::string const& file) {
    return capacity_from_json<Interpolation>(detail::read_text(file), file);
}

// ---- calibrations ----------------------------------------------------------------------------------------------

namespace detail {

/// What both fits have: block_size, samples and the record of each position. An ECE without observations is null.
template <class Fit, class Write>
void write_positions(Fit const& fit, nlohmann::ordered_json& document, Write const& write) {
    using ordered = nlohmann::ordered_json;
    auto const ece = [](double value) { return std::isnan(value) ? ordered(nullptr) : ordered(value); };
    document["samples"] = ordered{{"fit", fit.fit_samples}, {"evaluation", fit.evaluation_samples}};
    document["positions"] = ordered::array();
    for (position_fit const& p : fit.positions) {
        ordered position = write(p.scaling);
        position["fit_observed"] = p.fit_observed;
        position["evaluation_observed"] = p.evaluation_observed;
        position["ece_before"] = ece(p.ece_before);
        position["ece_after"] = ece(p.ece_after);
        document["positions"].push_back(std::move(position));
    }
}

template <class Read>
[[nodiscard]] sequential_fit read_positions(json_field const& root, Read const& read) {
    sequential_fit fit{root["samples"]["fit"].count(), root["samples"]["evaluation"].count(), {}};
    auto const list = root["positions"];
    if (list.size() == 0) list.wrong("one entry per position");
    if (root["block_size"].natural() != list.size()) {
        root["block_size"].wrong("the number of entries of 'positions'");
    }
    auto const ece = [](json_field const& field, std::uint64_t observed) {
        if (field.is_null() && observed == 0) return std::numeric_limits<double>::quiet_NaN();
        if (double const value = field.number(); value >= 0.0 && value <= 1.0 && observed > 0) return value;
        field.wrong(observed > 0 ? "a number in [0, 1]" : "null, as nothing was observed");
    };
    auto const count = [](json_field const& field, std::uint64_t samples, std::uint64_t before) -> std::uint64_t {
        std::size_t const observed = field.count();
        if (observed > samples) field.wrong("at most the number of samples");
        if (observed > before) {
            field.wrong(("at most the " + std::to_string(before) + " of the position before").c_str());
        }
        return observed;
    };
    for (std::size_t k = 0; k < list.size(); ++k) {
        position_fit p;
        p.scaling = read(list[k]);
        bool const first = k == 0;
        p.fit_observed = count(list[k]["fit_observed"], fit.fit_samples,
                               first ? fit.fit_samples : fit.positions.back().fit_observed);
        p.evaluation_observed = count(list[k]["evaluation_observed"], fit.evaluation_samples,
                                      first ? fit.evaluation_samples : fit.positions.back().evaluation_observed);
        p.ece_before = ece(list[k]["ece_before"], p.evaluation_observed);
        p.ece_after = ece(list[k]["ece_after"], p.evaluation_observed);
        fit.positions.push_back(p);
    }
    return fit;
}

/// Within the range that the document says it was fitted in; the ends come out of a logarithm.
template <class Settings>
[[nodiscard]] double read_temperature(json_field const& position, Settings const& settings) {
    double const t = position["temperature"].number();
    if (!(t > 0.0)) position["temperature"].wrong("a positive number");
    if (!(t >= settings.lowest * (1.0 - 1e-9) && t <= settings.highest * (1.0 + 1e-9))) {
        std::ostringstream range;
        range << "a number in [" << settings.lowest << ", " << settings.highest << "], the range of 'settings'";
        position["temperature"].wrong(range.str().c_str());
    }
    return t;
}

[[nodiscard]] inline char const* name_of(temperature_objective objective) noexcept {
    return objective == temperature_objective::log_loss ? "log_loss" : "calibration_error";
}

[[nodiscard]] inline temperature_objective read_objective(json_field const& field) {
    for (auto const objective : {temperature_objective::calibration_error, temperature_objective::log_loss}) {
        if (field.text() == name_of(objective)) return objective;
    }
    field.wrong("calibration_error or log_loss");
}

}  // namespace detail

/// { "format": "sureleap.temperatures", "version": 2, "block_size": 7,
///   "settings": {"lowest": 0.1, "highest": 10, "temperatures": 100, "bins": 15, "objective": "calibration_error"},
///   "samples": {"fit": 2000, "evaluation": 2000},
///   "positions": [ {"temperature": 1.2, "fit_observed": 2000, "evaluation_observed": 2000,
///                   "ece_before": 0.06, "ece_after": 0.02}, ... ] }
[[nodiscard]] inline std::string to_json(temperature_fit const& fit) {
    using ordered = nlohmann::ordered_json;
    ordered document{{"format", detail::temperatures_format}, {"version", 2}};
    document["block_size"] = fit.positions.size();
    document["settings"] = ordered{{"lowest", fit.settings.lowest},
                                   {"highest", fit.settings.highest},
                                   {"temperatures", fit.settings.temperatures},
                                   {"bins", fit.settings.bins},
                                   {"objective", detail::name_of(fit.settings.objective)}};
    detail::write_positions(fit, document,
                            [](logit_scaling const& s) { return ordered{{"temperature", s.temperature}}; });
    return document.dump(2);
}

[[nodiscard]] inline temperature_fit temperatures_from_json(std::string const& text,
                                                            std::string const& source = "temperatures JSON") {
    nlohmann::json const document = detail::parse_document(text, source, detail::temperatures_format, 2);
    detail::json_field const root(document, source, "");
    auto const written = root["settings"];
    temperature_settings const settings{written["lowest"].number(), written["highest"].number(),
                                        written["temperatures"].count(), written["bins"].count(),
                                        detail::read_objective(written["objective"])};
    detail::check_temperature_settings(source + ": field 'settings'", settings);
    auto fit = detail::read_positions(
        root, [&](detail::json_field const& p) { return logit_scaling{detail::read_temperature(p, settings)}; });
    return {sequential_scaling(fit.scalings()), settings, fit.fit_samples, fit.evaluation_samples,
            std::move(fit.positions)};
}

inline void save(temperature_fit const& fit, std::string const& file) {
    detail::write_text(file, to_json(fit));
}

[[nodiscard]] inline temperature_fit load_temperatures(std::string const& file) {
    return temperatures_from_json(detail::read_text(file), file);
}

/// { "format": "sureleap.platt", "version": 1, "block_size": 7,
///   "settings": {"lowest": 0.1, "highest": 10, "bins": 15},
///   "samples": as above, "positions": [ {"temperature": 1.2, "offset": -0.3, ... as above}, ... ] }
[[nodiscard]] inline std::string to_json(platt_fit const& fit) {
    using ordered = nlohmann::ordered_json;
    ordered document{{"format", detail::platt_format}, {"version", 1}};
    document["block_size"] = fit.positions.size();
    document["settings"] =
        ordered{{"lowest", fit.settings.lowest}, {"highest", fit.settings.highest}, {"bins", fit.settings.bins}};
    detail::write_positions(fit, document, [](logit_scaling const& s) {
        return ordered{{"temperature", s.temperature}, {"offset", s.offset}};
    });
    return document.dump(2);
}

[[nodiscard]] inline platt_fit platt_from_json(std::string const& text, std::string const& source = "Platt JSON") {
    nlohmann::json const document = detail::parse_document(text, source, detail::platt_format, 1);
    detail::json_field const root(document, source, "");
    auto const written = root["settings"];
    platt_settings const settings{written["lowest"].number(), written["highest"].number(), written["bins"].count()};
    detail::check_platt_settings(source + ": field 'settings'", settings);
    auto fit = detail::read_positions(root, [&](detail::json_field const& p) {
        return logit_scaling{detail::read_temperature(p, settings), p["offset"].number()};
    });
    return {sequential_scaling(fit.scalings()), settings, fit.fit_samples, fit.evaluation_samples,
            std::move(fit.positions)};
}

inline void save(platt_fit const& fit, std::string const& file) {
    detail::write_text(file, to_json(fit));
}

[[nodiscard]] inline platt_fit load_platt(std::string const& file) {
    return platt_from_json(detail::read_text(file), file);
}

SURELEAP_END_NAMESPACE

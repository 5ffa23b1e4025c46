// SPDX-License-Identifier: MIT
//
// Capacity tables and temperature fits as JSON, by means of nlohmann/json.
//
//   save(profile(step, {1, 8, 64}), "capacity.json");
//   auto const curve = load_capacity("capacity.json");
//
// Documents carry a format and a version. Reading trusts nothing: a truncated or malformed text, another format or
// version, a missing field, a wrong type or an impossible value is a sureleap::error that names the source, the
// field and the expectation. Types are checked by hand, not by catching what the parser throws, so that
// -fno-exceptions builds get the same diagnosis. Numbers are written with as many digits as it takes to read back
// the same double.
#pragma once

#if !__has_include(<nlohmann/json.hpp>)
#error "sureleap/ext/json.hpp needs nlohmann/json: install nlohmann-json3-dev and link sureleap::json"
#endif

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <sureleap/confidence/calibration.hpp>
#include <sureleap/config.hpp>
#include <sureleap/error.hpp>
#include <sureleap/schedule/capacity.hpp>

SURELEAP_BEGIN_NAMESPACE

namespace detail {

/// A value inside a document together with the way to it, for messages like `f.json: field 'points[2].seconds'
/// ...`.
class json_field {
public:
    json_field(nlohmann::json const& value, std::string const& source, std::string path)
        : value_(&value), source_(&source), path_(std::move(path)) {}

    [[nodiscard]] json_field operator[](char const* key) const {
        std::string const name = path_.empty() ? key : path_ + "." + key;
        if (!value_->is_object()) wrong("an object");
        auto const found = value_->find(key);
        if (found == value_->end()) fail_with(*source_, ": field '", name, "' is missing");
        return {*found, *source_, name};
    }
    [[nodiscard]] std::size_t size() const {
        if (!value_->is_array()) wrong("an array");
        return value_->size();
    }
    [[nodiscard]] json_field operator[](std::size_t i) const {
        return {(*value_)[i], *source_, path_ + "[" + std::to_string(i) + "]"};
    }

    [[nodiscard]] std::string text() const {
        if (!value_->is_string()) wrong("a string");
        return value_->get<std::string>();
    }
    [[nodiscard]] std::size_t natural() const {
        if (!value_->is_number_unsigned()) wrong("a non-negative integer");
        auto const wide = value_->get<std::uint64_t>();
        if (wide > std::numeric_limits<std::size_t>::max()) wrong("an integer that fits this platform");
        return static_cast<std::size_t>(wide);
    }
    [[nodiscard]] double number() const {
        if (!value_->is_number() || !std::isfinite(value_->get<double>())) wrong("a finite number");
        return value_->get<double>();
    }
    [[nodiscard]] bool is_null() const { return value_->is_null(); }

    [[noreturn]] void wrong(char const* expected) const {
        fail_with(*source_, ": field '", path_, "' is ", shortened(), ", expected ", expected);
    }

private:
    [[nodiscard]] std::string shortened() const {
        if (value_->is_object()) return "an object";
        if (value_->is_array()) return "an array";
        // Never throws on text that is no UTF-8; a long string would bury the message.
        std::string shown = value_->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
        if (shown.size() > 60) shown = shown.substr(0, 57) + "...";
        return shown;
    }

    nlohmann::json const* value_;
    std::string const* source_;
    std::string path_;
};

/// Listens to a parse only for the place where it fails.
struct json_fault {
    using json = nlohmann::json;
    std::size_t position = 0;

    bool null() { return true; }
    bool boolean(bool) { return true; }
    bool number_integer(json::number_integer_t) { return true; }
    bool number_unsigned(json::number_unsigned_t) { return true; }
    bool number_float(json::number_float_t, json::string_t const&) { return true; }
    bool string(json::string_t&) { return true; }
    bool binary(json::binary_t&) { return true; }
    bool start_object(std::size_t) { return true; }
    bool key(json::string_t&) { return true; }
    bool end_object() { return true; }
    bool start_array(std::size_t) { return true; }
    bool end_array() { return true; }
    bool parse_error(std::size_t where, std::string const&, nlohmann::detail::exception const&) {
        position = where;
        return false;
    }
};

[[nodiscard]] inline nlohmann::json parse_document(std::string const& text, std::string const& source,
                                                   char const* format, std::size_t version) {
    nlohmann::json document = nlohmann::json::parse(text, nullptr, false);
    if (document.is_discarded()) {
        json_fault fault;
        nlohmann::json::sax_parse(text, &fault);
        fail_with(source, ": malformed or truncated JSON at byte ", fault.position, " of ", text.size(),
                  ", expected a document of format ", format);
    }
    json_field const root(document, source, "");
    if (!document.is_object()) fail_with(source, ": expected an object of format ", format);
    if (root["format"].text() != format) root["format"].wrong(format);
    if (root["version"].natural() != version) root["version"].wrong(std::to_string(version).c_str());
    return document;
}

[[nodiscard]] inline std::string read_text(std::string const& file) {
    std::ifstream in(file, std::ios::binary);
    if (!in) fail_with(file, ": cannot be opened for reading");
    std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    if (in.bad()) fail_with(file, ": reading failed");
    return text;
}

inline void write_text(std::string const& file, std::string const& text) {
    std::ofstream out(file, std::ios::binary | std::ios::trunc);
    if (!out) fail_with(file, ": cannot be opened for writing");
    out << text << '\n';
    out.close();
    if (!out) fail_with(file, ": writing failed, the file is incomplete");
}

inline constexpr char const* capacity_format = "sureleap.capacity";
inline constexpr char const* temperatures_format = "sureleap.temperatures";

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

// ---- sequential temperature scaling ----------------------------------------------------------------------------

/// { "format": "sureleap.temperatures", "version": 1, "block_size": 7,
///   "settings": {"lowest": 0.1, "highest": 10, "temperatures": 100, "bins": 15},
///   "samples": {"fit": 2000, "evaluation": 2000},
///   "positions": [ {"temperature": 1.2, "fit_observed": 2000, "evaluation_observed": 2000,
///                   "ece_before": 0.06, "ece_after": 0.02}, ... ] }
/// An ECE without observations is null.
[[nodiscard]] inline std::string to_json(temperature_fit const& fit) {
    using ordered = nlohmann::ordered_json;
    auto const ece = [](double value) { return std::isnan(value) ? ordered(nullptr) : ordered(value); };
    ordered document{{"format", detail::temperatures_format}, {"version", 1}};
    document["block_size"] = fit.positions.size();
    document["settings"] = ordered{{"lowest", fit.settings.lowest},
                                   {"highest", fit.settings.highest},
                                   {"temperatures", fit.settings.temperatures},
                                   {"bins", fit.settings.bins}};
    document["samples"] = ordered{{"fit", fit.fit_samples}, {"evaluation", fit.evaluation_samples}};
    document["positions"] = ordered::array();
    for (position_fit const& p : fit.positions) {
        document["positions"].push_back(ordered{{"temperature", p.temperature},
                                                {"fit_observed", p.fit_observed},
                                                {"evaluation_observed", p.evaluation_observed},
                                                {"ece_before", ece(p.ece_before)},
                                                {"ece_after", ece(p.ece_after)}});
    }
    return document.dump(2);
}

[[nodiscard]] inline temperature_fit temperatures_from_json(std::string const& text,
                                                            std::string const& source = "temperatures JSON") {
    nlohmann::json const document = detail::parse_document(text, source, detail::temperatures_format, 1);
    detail::json_field const root(document, source, "");
    auto const written = root["settings"];
    temperature_settings const settings{written["lowest"].number(), written["highest"].number(),
                                        written["temperatures"].natural(), written["bins"].natural()};
    detail::check_temperature_settings(source + ": field 'settings'", settings);
    std::uint64_t const fit_samples = root["samples"]["fit"].natural();
    std::uint64_t const evaluation_samples = root["samples"]["evaluation"].natural();

    auto const list = root["positions"];
    if (list.size() == 0) list.wrong("one entry per position");
    if (root["block_size"].natural() != list.size()) {
        root["block_size"].wrong("the number of entries of 'positions'");
    }
    auto const ece = [](detail::json_field const& field, std::uint64_t observed) {
        if (field.is_null() && observed == 0) return std::numeric_limits<double>::quiet_NaN();
        if (double const value = field.number(); value >= 0.0 && value <= 1.0 && observed > 0) return value;
        field.wrong(observed > 0 ? "a number in [0, 1]" : "null, as nothing was observed");
    };
    auto const count = [](detail::json_field const& field, std::uint64_t samples) -> std::uint64_t {
        std::size_t const observed = field.natural();
        if (observed > samples) field.wrong("at most the number of samples");
        return observed;
    };
    std::vector<position_fit> positions;
    std::vector<double> temperatures;
    for (std::size_t k = 0; k < list.size(); ++k) {
        position_fit p;
        p.temperature = list[k]["temperature"].number();
        if (!(p.temperature > 0.0)) list[k]["temperature"].wrong("a positive number");
        p.fit_observed = count(list[k]["fit_observed"], fit_samples);
        p.evaluation_observed = count(list[k]["evaluation_observed"], evaluation_samples);
        p.ece_before = ece(list[k]["ece_before"], p.evaluation_observed);
        p.ece_after = ece(list[k]["ece_after"], p.evaluation_observed);
        temperatures.push_back(p.temperature);
        positions.push_back(p);
    }
    return {sequential_temperature_scaling(std::move(temperatures)), settings, fit_samples, evaluation_samples,
            std::move(positions)};
}

inline void save(temperature_fit const& fit, std::string const& file) {
    detail::write_text(file, to_json(fit));
}

[[nodiscard]] inline temperature_fit load_temperatures(std::string const& file) {
    return temperatures_from_json(detail::read_text(file), file);
}

SURELEAP_END_NAMESPACE

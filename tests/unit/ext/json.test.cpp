// SPDX-License-Identifier: MIT
//
// JSON documents: what is written reads back bit for bit; every way of being broken is named.
#include "support/calibration_rounds.hpp"
#include "support/catch.hpp"
#include "support/edited_documents.hpp"
#include "support/error_text.hpp"

#include <cmath>
#include <cstddef>
#include <fstream>
#include <string>
#include <vector>

#include <sureleap/ext/json.hpp>

using sureleap::capacity_table;

using support::check_edits;
using support::error_text;
using support::replaced;
using support::says;
using support::scratch_json;

namespace {

std::string bad_capacity(std::string const& text) {
    return error_text([&] { (void)sureleap::capacity_from_json(text, "c.json"); });
}
std::string bad_temperatures(std::string const& text) {
    return error_text([&] { (void)sureleap::temperatures_from_json(text, "t.json"); });
}

// Two positions; only the first is ever observed in the held-out half.
support::rounds const small_data{
    2, {2.0, 1.0, -1.0, 0.5, 0.25, -2.0, 1.5, 3.0}, {1, 0, 0, 0, 1, 1, 0, 0}, {2, 1, 2, 1}};

sureleap::temperature_fit small_fit() {
    return sureleap::fit_temperatures(small_data.view(), {.temperatures = 7, .bins = 4});
}

}  // namespace

TEST_CASE("json: a capacity table reads back bit for bit") {
    capacity_table<> const table({{1, 0.1}, {7, 1.0 / 3.0}, {4096, 6.02e8}, {4097, 1e-15}});
    auto const again = sureleap::capacity_from_json(sureleap::to_json(table));
    REQUIRE(again.points().size() == table.points().size());
    for (std::size_t i = 0; i < again.points().size(); ++i) CHECK(again.points()[i] == table.points()[i]);

    scratch_json const file;
    save(table, file.path);
    auto const loaded = sureleap::load_capacity(file.path);
    for (std::size_t i = 0; i < again.points().size(); ++i) CHECK(loaded.points()[i] == table.points()[i]);

    capacity_table<sureleap::staircase> const stairs({{8, 0.5}});
    CHECK(sureleap::capacity_from_json<sureleap::staircase>(sureleap::to_json(stairs)).step_seconds(16) == 1.0);
    CHECK(says(bad_capacity(sureleap::to_json(stairs)),
               "c.json: field 'interpolation' is \"staircase\", expected linear_step_time"));
}

TEST_CASE("json: every truncation of a document is refused with the file's name") {
    std::string const capacity = sureleap::to_json(capacity_table<>({{1, 0.5}, {2, 0.75}}));
    for (std::size_t length = 0; length < capacity.size(); ++length) {
        INFO("length " << length);
        REQUIRE(says(bad_capacity(capacity.substr(0, length)), "c.json: malformed or truncated JSON at byte"));
    }
    std::string const temperatures = sureleap::to_json(small_fit());
    for (std::size_t length = 0; length < temperatures.size(); ++length) {
        REQUIRE(says(bad_temperatures(temperatures.substr(0, length)), "t.json: malformed or truncated JSON at byte"));
    }

    scratch_json const file;
    std::ofstream(file.path) << capacity.substr(0, capacity.size() / 2);
    CHECK(says(error_text([&] { (void)sureleap::load_capacity(file.path); }), file.path + ": malformed"));
}

TEST_CASE("json: files that cannot be opened") {
    CHECK(says(error_text([] { (void)sureleap::load_capacity("no/such/file.json"); }),
               "no/such/file.json: cannot be opened for reading"));
    CHECK(says(error_text([] { (void)sureleap::load_temperatures("no/such/file.json"); }), "cannot be opened"));
    CHECK(says(error_text([] { save(capacity_table<>({{1, 1.0}}), "no/such/file.json"); }),
               "no/such/file.json: cannot be opened for writing"));
}

TEST_CASE("json: wrong capacity documents name the field") {
    std::string const good = sureleap::to_json(capacity_table<>({{1, 0.5}, {2, 0.75}}));
    CHECK(says(bad_capacity("[]"), "c.json: expected an object of format sureleap.capacity"));
    CHECK(says(bad_capacity("{}"), "c.json: field 'format' is missing"));
    check_edits(
        good, bad_capacity,
        {
            {"sureleap.capacity", "sureleap.temperatures",
             "field 'format' is \"sureleap.temperatures\", expected sureleap.capacity"},
            {"\"version\": 1", "\"version\": 2", "field 'version' is 2, expected 1"},
            {"\"version\": 1", "\"version\": \"1\"", "field 'version' is \"1\", expected a non-negative integer"},
            {"\"points\"", "\"point\"", "field 'points' is missing"},
            {"0.75", "\"fast\"", "field 'points[1].seconds' is \"fast\", expected a finite number"},
            {"0.75", "null", "field 'points[1].seconds' is null"},
            {"0.75", "-0.75", "c.json: field 'points': seconds at index 1"},
            {"0.75", "1e999", "c.json: malformed"},
            {"0.75", "NaN", "c.json: malformed"},
            {"\"batch_tokens\": 2", "\"batch_tokens\": 2.5",
             "field 'points[1].batch_tokens' is 2.5, expected a non-negative integer"},
            {"\"batch_tokens\": 2", "\"batch_tokens\": -2", "field 'points[1].batch_tokens' is -2"},
            {"\"batch_tokens\": 2", "\"batch_tokens\": 1", "1 a second time"},
            {"\"batch_tokens\": 2,", "", "'points[1].batch_tokens' is missing"},
            {"linear_step_time", "\xff", "c.json: malformed"},
        });
    CHECK(says(bad_capacity(R"({"format": "sureleap.capacity", "version": 1,
                               "interpolation": "linear_step_time", "points": {}})"),
               "field 'points' is an object, expected an array"));
    CHECK(says(bad_capacity(R"({"format": "sureleap.capacity", "version": 1,
                               "interpolation": "linear_step_time", "points": []})"),
               "c.json: field 'points': the table is empty"));
    CHECK(says(bad_capacity(R"({"format": "sureleap.capacity", "version": 1,
                               "interpolation": "linear_step_time", "points": [3]})"),
               "field 'points[0]' is 3, expected an object"));
}

TEST_CASE("json: numbers that no table can have are refused with their field") {
    std::string const good = sureleap::to_json(capacity_table<>({{1, 0.5}, {2, 0.75}}));
    auto const seconds = [&](std::string const& text) { return bad_capacity(replaced(good, "0.75", text)); };
    auto const tokens = [&](std::string const& text) {
        return bad_capacity(replaced(good, "\"batch_tokens\": 2", "\"batch_tokens\": " + text));
    };
    CHECK(says(seconds("1e-320"), {"c.json: field 'points': seconds at index 1 (batch tokens 2): got 9.9998",
                                   "expected a positive finite number in [1e-15, 1e9]"}));
    CHECK(says(seconds("1e-400"), "seconds at index 1 (batch tokens 2): got 0"));
    CHECK(says(seconds("1e300"), "seconds at index 1 (batch tokens 2): got 1e+300"));
    CHECK(says(seconds("-0.0"), "seconds at index 1 (batch tokens 2): got -0"));
    CHECK(says(seconds("1e400"),
               "c.json: malformed JSON: field 'points[1].seconds' is 1e400, expected a number that a double holds"));
    CHECK(says(seconds("-1e400"), "field 'points[1].seconds' is -1e400"));
    CHECK(says(seconds("Infinity"), "c.json: malformed or truncated JSON at byte"));
    CHECK(says(seconds("true"), "field 'points[1].seconds' is true, expected a finite number"));
    CHECK(says(tokens("18446744073709551615"),
               {"c.json: field 'points': batch tokens at index 1: got 18446744073709551615", "expected at most 2^62"}));
    CHECK(says(tokens("18446744073709551616"), "field 'points[1].batch_tokens' is 1.8446744073709552e+19"));
    CHECK(says(tokens("4611686018427387905"), "batch tokens at index 1: got 4611686018427387905"));
    CHECK(says(tokens("2.0"), "field 'points[1].batch_tokens' is 2.0, expected a non-negative integer"));
    CHECK(says(tokens("-0"), "field 'points[1].batch_tokens' is"));
    CHECK(says(tokens("\"2\""), "field 'points[1].batch_tokens' is \"2\", expected a non-negative integer"));
    CHECK(tokens("4611686018427387904").empty());
    CHECK(seconds("1e9").empty());
    CHECK(seconds("7").empty());
}

TEST_CASE("json: a key that occurs twice is refused, at any depth") {
    std::string const good = sureleap::to_json(capacity_table<>({{1, 0.5}, {2, 0.75}}));
    auto const text = [&](std::string const& from, std::string const& to) {
        return bad_capacity(replaced(good, from, to));
    };
    CHECK(text("\"version\": 1", "\"version\": 2, \"version\": 1") ==
          "c.json: field 'version' occurs twice, expected each key once");
    CHECK(text("\"seconds\": 0.75", "\"seconds\": 0.5, \"seconds\": 0.75") ==
          "c.json: field 'points[1].seconds' occurs twice, expected each key once");
    CHECK(text("\"batch_tokens\": 1", "\"batch_tokens\": 1, \"batch_\\u0074okens\": 1") ==
          "c.json: field 'points[0].batch_tokens' occurs twice, expected each key once");
    CHECK(text("\"seconds\": 0.75",
               "\"seconds\": 0.75, \"more\": [[], [{\"a\": {}}, {\"b\": 1, \"c\": {\"b\": 2}, \"b\": 3}]]") ==
          "c.json: field 'points[1].more[1][1].b' occurs twice, expected each key once");
    // In different objects, or as a value, a name may come again; fields that nobody reads may stand beside the others.
    CHECK(text("\"seconds\": 0.75",
               "\"seconds\": 0.75, \"more\": [{\"a\": 1}, {\"a\": 2}, \"a\", {\"b\": {\"a\": \"a\"}}]")
              .empty());
    CHECK(says(bad_temperatures(replaced(sureleap::to_json(small_fit()), "\"fit\": 2", "\"fit\": 2, \"fit\": 2")),
               "t.json: field 'samples.fit' occurs twice"));
}

TEST_CASE("json: brackets without end and text behind the document are refused") {
    std::string const good = sureleap::to_json(capacity_table<>({{1, 0.5}, {2, 0.75}}));
    auto const nested = [&](std::size_t depth) {
        return bad_capacity(
            replaced(good, "0.75", "0.75, \"more\": " + std::string(depth, '[') + std::string(depth, ']')));
    };
    CHECK(nested(20).empty());
    CHECK(says(nested(100), "is nested deeper than 64"));
    CHECK(says(nested(1000000), {"c.json: field 'points[1].more[0][0]", "is nested deeper than 64"}));
    CHECK(says(bad_capacity(good + " {}"), "c.json: malformed or truncated JSON at byte"));
    CHECK(says(bad_capacity(good + std::string(1, '\0') + "{}"), "c.json: malformed or truncated JSON at byte"));
    CHECK(bad_capacity(good + " \n").empty());
}

TEST_CASE("json: a temperature fit reads back bit for bit with its record") {
    auto const fit = small_fit();
    scratch_json const file;
    save(fit, file.path);
    auto const again = sureleap::load_temperatures(file.path);
    CHECK(again.settings == fit.settings);
    CHECK(again.fit_samples == 2);
    CHECK(again.evaluation_samples == 2);
    REQUIRE(again.positions.size() == fit.positions.size());
    for (std::size_t k = 0; k < fit.positions.size(); ++k) {
        auto const& a = again.positions[k];
        auto const& b = fit.positions[k];
        CHECK(a.scaling == b.scaling);
        CHECK(again.calibration.positions()[k].temperature == b.scaling.temperature);
        CHECK(a.fit_observed == b.fit_observed);
        CHECK(a.evaluation_observed == b.evaluation_observed);
    }
    CHECK(again.positions[0].ece_before == fit.positions[0].ece_before);
    CHECK(again.positions[0].ece_after == fit.positions[0].ece_after);
    CHECK(again.positions[1].evaluation_observed == 0);
    CHECK(std::isnan(again.positions[1].ece_before));
    CHECK(std::isnan(again.positions[1].ece_after));
    CHECK(sureleap::to_json(again) == sureleap::to_json(fit));
}

TEST_CASE("json: wrong temperature documents name the field") {
    auto const document = [](std::string const& position, std::string const& rest = "") {
        return R"({"format": "sureleap.temperatures", "version": 2, "block_size": 1,
                   "settings": {"lowest": 0.1, "highest": 10, "temperatures": 100, "bins": 15,
                                "objective": "calibration_error"},
                   "samples": {"fit": 5, "evaluation": 4}, "positions": [{)" +
               position + "}]" + rest + "}";
    };
    std::string const good = document(R"("temperature": 1.5, "fit_observed": 5, "evaluation_observed": 4,
                                         "ece_before": 0.25, "ece_after": 0.125)");
    CHECK(sureleap::temperatures_from_json(good).calibration.positions()[0].temperature == 1.5);
    check_edits(good, bad_temperatures,
                {
                    {"1.5", "0.0", "'positions[0].temperature' is 0.0, expected a positive"},
                    {"1.5", "[]", "'positions[0].temperature' is an array"},
                    {"0.25", "1.25", "'positions[0].ece_before' is 1.25, expected a number in"},
                    {"0.125", "null", "'positions[0].ece_after' is null, expected a finite"},
                    {"\"evaluation_observed\": 4", "\"evaluation_observed\": 0",
                     "'positions[0].ece_before' is 0.25, expected null"},
                    {"\"fit_observed\": 5", "\"fit_observed\": 6",
                     "'positions[0].fit_observed' is 6, expected at most the number of samples"},
                    {"\"block_size\": 1", "\"block_size\": 2", "field 'block_size' is 2"},
                    {"\"lowest\": 0.1", "\"lowest\": 2", "'settings': lowest temperature"},
                    {"\"bins\": 15", "\"bin\": 15", "field 'settings.bins' is missing"},
                    {"calibration_error", "loss",
                     "field 'settings.objective' is \"loss\", expected calibration_error or log_loss"},
                    {"\"version\": 2", "\"version\": 1", "'version' is 1, expected 2"},
                    {"\"samples\"", "\"sample\"", "field 'samples' is missing"},
                    {"1.5", "1e-320",
                     "'positions[0].temperature' is 1e-320, expected a number in [0.1, 10], the range of 'settings'"},
                    {"1.5", "10.1", "'positions[0].temperature' is 10.1"},
                    {"1.5", "10", ""},
                    {"\"lowest\": 0.1", "\"lowest\": 1e-320", "'settings': lowest temperature is 9.9998"},
                    {"\"bins\": 15", "\"bins\": 18446744073709551615",
                     "field 'settings.bins' is 18446744073709551615, expected at most 2^62"},
                    {"\"fit\": 5", "\"fit\": 18446744073709551615",
                     "field 'samples.fit' is 18446744073709551615, expected at most 2^62"},
                    {"\"fit\": 5", "\"fit\": true", "field 'samples.fit' is true"},
                });
    CHECK(sureleap::temperatures_from_json(replaced(good, "calibration_error", "log_loss")).settings.objective ==
          sureleap::temperature_objective::log_loss);
    // Fewer samples reach a position than the one before it.
    std::string const second = R"(, {"temperature": 1, "fit_observed": 5, "evaluation_observed": 3,
                                     "ece_before": 0, "ece_after": 0}])";
    std::string const two = replaced(replaced(good, "}]", "}" + second), "\"block_size\": 1", "\"block_size\": 2");
    CHECK(bad_temperatures(two).empty());
    CHECK(bad_temperatures(replaced(two, "\"evaluation_observed\": 3", "\"evaluation_observed\": 4")).empty());
    CHECK(says(bad_temperatures(replaced(two, "\"fit_observed\": 5, \"evaluation_observed\": 4",
                                         "\"fit_observed\": 4, \"evaluation_observed\": 4")),
               "'positions[1].fit_observed' is 5, expected at most the 4 of the position before"));
}

TEST_CASE("json: a Platt fit reads back bit for bit with its record; what is wrong is named") {
    auto const fit = sureleap::fit_platt(small_data.view(), {.lowest = 0.5, .bins = 4});
    scratch_json const file;
    save(fit, file.path);
    auto const again = sureleap::load_platt(file.path);
    CHECK(again.settings == fit.settings);
    REQUIRE(again.positions.size() == 2);
    for (std::size_t k = 0; k < 2; ++k) {
        CHECK(again.positions[k].scaling == fit.positions[k].scaling);
        CHECK(again.calibration.positions()[k] == fit.positions[k].scaling);
        CHECK(again.calibration(k, 0.3) == fit.calibration(k, 0.3));
    }
    CHECK(again.positions[0].scaling.offset != 0.0);
    std::string const good = sureleap::to_json(fit);
    CHECK(sureleap::to_json(again) == good);

    auto const bad = [](std::string const& text) {
        return error_text([&] { (void)sureleap::platt_from_json(text, "p.json"); });
    };
    CHECK(says(bad(sureleap::to_json(small_fit())),
               "p.json: field 'format' is \"sureleap.temperatures\", expected sureleap.platt"));
    CHECK(says(bad(replaced(good, "\"offset\"", "\"off\"")), "p.json: field 'positions[0].offset' is missing"));
    CHECK(says(bad(replaced(good, "\"lowest\": 0.5", "\"lowest\": 1.5")), "'settings': lowest temperature is 1.5"));
    CHECK(says(bad(replaced(good, "\"fit_observed\": 2", "\"fit_observed\": 3")), "'positions[0].fit_observed' is 3"));
    CHECK(says(bad(good.substr(0, good.size() / 2)), "p.json: malformed or truncated JSON at byte"));
}

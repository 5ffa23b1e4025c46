// SPDX-License-Identifier: MIT
//
// Cost tables as JSON: what is written reads back bit for bit; foreign, stale and broken tables are refused with a text
// that says so, whatever the breakage; and a refusal ends in a schedule that does not speculate.
#include "support/catch.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <sureleap/ext/cost_json.hpp>
#include <sureleap/schedule/any.hpp>
#include <sureleap/schedule/planned.hpp>
#include <sureleap/schedule/simple.hpp>

#include "support/dice.hpp"
#include "support/edited_documents.hpp"
#include "support/error_text.hpp"

using namespace sureleap;
using support::check_edits;
using support::error_text;
using support::replaced;
using support::says;
using support::scratch_json;

namespace {

constexpr std::int64_t noon = 1790000000;
cost_fingerprint const here{{"device", "H200"}, {"driver", "580.65"}, {"model", "V4"}, {"tensor_parallel", "8"}};

cost_table example() {
    return {.prices = {9e-3, 0.0, 1.0 / 3.0, 3e-9, 1e-3, 5e-324, 2e-5},
            .cells = {{{1, 8, 1, 7, 1024, 96, 1}, 0.1}, {{2, 2, 0, 0, 0}, 6.02e8}},
            .token_sizes = {1, 2, 4, 8},
            .request_sizes = {2, 9007199254740993},  // no double holds it
            .measured_on = here,
            .measured_at = noon};
}

void check_equal(cost_table const& a, cost_table const& b) {
    CHECK(a.prices == b.prices);
    CHECK(a.cells == b.cells);
    CHECK(a.token_sizes == b.token_sizes);
    CHECK(a.request_sizes == b.request_sizes);
    CHECK(a.measured_on == b.measured_on);
    CHECK(a.measured_at == b.measured_at);
}

void write(std::string const& path, std::string const& text) {
    std::ofstream(path, std::ios::binary) << text;
}

std::string bad(std::string const& text) {
    return error_text([&] { (void)cost_from_json(text, "c.json"); });
}

}  // namespace

TEST_CASE("cost json: a table reads back bit for bit") {
    check_equal(cost_from_json(to_json(example())), example());
    cost_table const least{.prices = {.fixed = 1.0}};
    check_equal(cost_from_json(to_json(least)), least);
    cost_table odd = example();
    odd.measured_on = {{"name with \"quotes\"\n", "\xc3\xa9\x01"}, {"", ""}};
    check_equal(cost_from_json(to_json(odd)), odd);
    odd.measured_on = {{"broken \xff", "\xfe"}};  // written with replacements: legal JSON, and then another fingerprint
    CHECK(cost_from_json(to_json(odd)).measured_on.begin()->second == "\xef\xbf\xbd");

    scratch_json const file;
    save(example(), file.path);
    check_equal(load_cost(file.path, {.machine = here, .max_age = 60, .now = noon + 60}), example());
}

TEST_CASE("cost json: what only some engines have may be missing") {
    cost_table const all = example();
    std::string text = to_json(all);
    for (std::string const key : {"\"unread_token\": ", "\"replay\": ", "\"unread_tokens\": ", "\"replays\": "}) {
        for (std::size_t at = text.find(key); at != std::string::npos; at = text.find(key)) {
            std::size_t const comma = text.rfind(',', at);  // the one before, since a last key has none behind it
            text.erase(comma, text.find_first_of(",\n", at) - comma);
        }
    }
    cost_table expected = all;
    expected.cells[0].load.unread_tokens = 0;
    expected.cells[0].load.replays = 0;
    check_equal(cost_from_json(text), expected);
}

TEST_CASE("cost table: the model of a table is its parts, one around the other") {
    cost_table table{.prices = {.fixed = 8.0, .batch_token = 1.0}};
    CHECK(table.model().step_seconds({.requests = 1, .batch_tokens = 3}) == 11.0);
    table.cells = {{{1, 4, 0, 0, 0}, 15.0}};
    CHECK(table.model().step_seconds({.requests = 1, .batch_tokens = 3}) == 14.0);
    table.token_sizes = {4};
    CHECK(table.model().step_seconds({.requests = 1, .batch_tokens = 3}) == 15.0);
    CHECK(table.model().step_seconds({.requests = 1, .batch_tokens = 5}) == 30.0);
    table.prices.fixed = -1.0;
    CHECK(says(error_text([&] { (void)table.model(); }), "additive_cost: fixed is -1"));
}

TEST_CASE("cost table: foreign tables are refused with the name and both values") {
    cost_table const table = example();
    auto const why = [&](cost_fingerprint const& machine) {
        return why_refused(table, {.machine = machine, .now = noon}, "c.json");
    };
    CHECK(why(here).empty());
    cost_fingerprint other = here;
    other["driver"] = "570.1";
    CHECK(why(other) == "c.json: foreign: 'driver' is '580.65' in the table and '570.1' on this machine");
    other = here;
    other["dtype"] = "fp8";
    CHECK(why(other) == "c.json: foreign: 'dtype' is missing in the table and 'fp8' on this machine");
    other = here;
    other.erase("model");
    CHECK(why(other) == "c.json: foreign: 'model' is 'V4' in the table and missing on this machine");
    CHECK(says(why({}), "c.json: foreign: 'device' is 'H200'"));
    other = here;
    other["device"] = "h200";  // text is text
    CHECK(says(why(other), "'device' is 'H200' in the table and 'h200'"));
}

TEST_CASE("cost table: stale tables are refused with their age, and so are those of the future") {
    cost_table const table = example();
    auto const why = [&](std::int64_t now, std::int64_t max_age) {
        return why_refused(table, {.machine = here, .max_age = max_age, .now = now}, "c.json");
    };
    CHECK(why(noon + 3600, 3600).empty());
    CHECK(why(noon + 3601, 3600) == "c.json: stale: measured 3601 seconds ago, expected at most 3600");
    CHECK(why(noon + 400 * 86400, std::numeric_limits<std::int64_t>::max()).empty());
    CHECK(why(noon - 300, 0).empty());  // two clocks are never quite alike
    CHECK(why(noon - 301, 3600) == "c.json: measured 301 seconds after now: one of the two clocks is wrong");
    CHECK(unix_now() > noon - 400 * 86400);
}

TEST_CASE("cost json: every truncation is refused with the file's name") {
    std::string const text = to_json(example());
    for (std::size_t length = 0; length < text.size(); ++length) {
        INFO(length);
        REQUIRE(says(bad(text.substr(0, length)), "c.json: "));
    }
    CHECK(says(bad(""), "malformed or truncated JSON at byte "));
}

TEST_CASE("cost json: what is wrong is named") {
    std::string const text = to_json(example());
    check_edits(
        text, bad,
        {
            {"sureleap.cost", "sureleap.capacity", "c.json: field 'format' is \"sureleap.capacity\""},
            {"\"version\": 1", "\"version\": 2", "field 'version' is 2, expected 1"},
            {"1790000000", "-5", "field 'measured_at' is -5, expected a non-negative integer"},
            {"1790000000", "18446744073709551615", "expected seconds since the Unix epoch"},
            {"\"H200\"", "200", "field 'measured_on.device' is 200, expected a string"},
            {"\"measured_on\": {", "\"measured_on\": 3, \"x\": {", "field 'measured_on' is 3, expected an object"},
            {"\"fixed\": 0.009", "\"fixed\": -0.009", "field 'prices': fixed is -0.009 seconds"},
            {"\"fixed\": 0.009", "\"fixed\": 1e400", "c.json: "},
            {"\"fixed\": 0.009", "\"fixed\": \"0.009\"", "field 'prices.fixed' is \"0.009\", expected a finite number"},
            {"\"draft_token\"", "\"draught_token\"", "field 'prices.draft_token' is missing"},
            {"\"token_sizes\": [\n    1", "\"token_sizes\": [\n    0", "field 'token_sizes' at index 0: got 0"},
            {"    4,\n    8", "    8,\n    8", "field 'token_sizes' at index 3: got 8 after 8"},
            {"\"requests\": 1", "\"requests\": 0", "field 'cells': sample 0: requests is 0"},
            {"\"seconds\": 0.1", "\"seconds\": 0.0", "field 'cells': sample 0: seconds is 0"},
            {"\"draft_tokens\": 7", "\"draft_tokens\": 7.5", "field 'cells[0].draft_tokens' is 7.5"},
            {"\"cells\": [", "\"cells\": {}, \"more\": [", "field 'cells' is an object, expected an array"},
        });
}

TEST_CASE("cost json: numbers that no table can have, and keys that stand twice, are refused") {
    std::string const text = to_json(example());
    auto const with = [&](std::string const& from, std::string const& to) { return bad(replaced(text, from, to)); };
    std::string const huge = "18446744073709551615";
    CHECK(says(with("\"seconds\": 0.1", "\"seconds\": 1e-320"),
               {"field 'cells': sample 0: seconds is 9.9998", "e-321, expected a number in [1e-15, 1e9]"}));
    CHECK(says(with("\"batch_tokens\": 8", "\"batch_tokens\": " + huge),
               "field 'cells': sample 0: batch_tokens is 18446744073709551615, expected at most 2^62"));
    CHECK(says(with("\"draft_tokens\": 7", "\"draft_tokens\": " + huge),
               "field 'cells': sample 0: draft_tokens is 18446744073709551615, expected at most 2^62"));
    CHECK(says(with("\"context_tokens\": 1024", "\"context_tokens\": " + huge),
               "field 'cells': sample 0: context_tokens is 18446744073709551615, expected at most 2^62"));
    CHECK(says(with("9007199254740993", huge),
               "field 'request_sizes' at index 1: got 18446744073709551615, expected at most 2^62"));
    CHECK(says(with("    4,\n    8", "    4,\n    4611686018427387905"), "field 'token_sizes' at index 3: got"));
    CHECK(with("    4,\n    8", "    4,\n    4611686018427387904").empty());
    CHECK(says(with("\"fixed\": 0.009", "\"fixed\": 1e400"), "field 'prices.fixed' is 1e400, expected a number that"));
    CHECK(with("\"request\": 0.0", "\"request\": -0.0").empty());  // is 0, in every sum
    CHECK(with("\"driver\": \"580.65\"", "\"driver\": \"1\", \"driver\": \"580.65\"") ==
          "c.json: field 'measured_on.driver' occurs twice, expected each key once");
    CHECK(with("\"seconds\": 0.1", "\"seconds\": 0.2, \"seconds\": 0.1") ==
          "c.json: field 'cells[0].seconds' occurs twice, expected each key once");
    CHECK(with("\"fixed\": 0.009", "\"fixed\": 1, \"fixed\": 0.009") ==
          "c.json: field 'prices.fixed' occurs twice, expected each key once");
}

TEST_CASE("cost json: a document with something else in it is a table or an error, never anything else") {
    support::dice roll(51);
    INFO("seed " << roll.seed());
    std::string const text = to_json(example());
    char const* const pieces[] = {"{}",   "[]",          "null",   "-1",        "1e308", "\"\"",
                                  "true", "\"\\ud800\"", "1e-400", "{\"a\":1}", ",",     "\"",
                                  "}",    "\xff",        "0",      "[[",        ":",     "18446744073709551616"};
    std::size_t refused = 0;
    for (int trial = 0; trial < 20000; ++trial) {
        std::string other = text;
        std::size_t const edits = 1 + roll.below(3);
        for (std::size_t e = 0; e < edits; ++e) {
            std::size_t const at = roll.below(other.size());
            switch (roll.below(4)) {
                case 0: other[at] = static_cast<char>(roll.below(256)); break;
                case 1: other.erase(at, 1 + roll.below(20)); break;
                case 2: other.insert(at, pieces[roll.below(std::size(pieces))]); break;
                default: {  // a whole value
                    std::size_t const colon = other.find(": ", at);
                    if (colon == std::string::npos) break;
                    std::size_t const end = other.find_first_of(",}\n", colon);
                    other.replace(colon + 2, end == std::string::npos ? 1 : end - colon - 2,
                                  pieces[roll.below(std::size(pieces))]);
                }
            }
            if (other.empty()) other = " ";
        }
        std::string const why = bad(other);
        if (!why.empty()) ++refused;
        if (why.empty()) {
            double const seconds =
                cost_from_json(other).model().step_seconds({.requests = 3, .batch_tokens = 9, .context_tokens = 7});
            REQUIRE(seconds > 0.0);
            REQUIRE(std::isfinite(seconds));
        } else {
            REQUIRE(says(why, "c.json: "));
        }
    }
    CHECK(refused > 10000);
    CHECK(refused < 20000);
}

TEST_CASE("cost json: an offer is a table or the reason why not, and a schedule in either case") {
    cost_demands const demands{.machine = here, .max_age = 3600, .now = noon + 60};
    scratch_json const file;
    auto const schedule_of = [](cost_offer const& offer) {
        any_schedule schedule =
            offer.table ? any_schedule{planned_schedule{offer.table->model()}} : any_schedule{fixed_schedule{1}};
        return schedule;
    };
    auto const refusal = [&] {
        cost_offer const offer = find_cost(file.path, demands);
        CHECK(schedule_of(offer).get_if<fixed_schedule>() != nullptr);
        CHECK_FALSE(offer.table.has_value());
        // What load_cost says is what find_cost reports.
        CHECK(error_text([&] { (void)load_cost(file.path, demands); }) == offer.refusal);
        return offer.refusal;
    };
    CHECK(refusal() == file.path + ": cannot be opened for reading");
    write(file.path, "{\"format\": ");
    CHECK(says(refusal(), file.path + ": malformed or truncated JSON"));
    write(file.path, replaced(to_json(example()), "580.65", "1"));
    CHECK(says(refusal(), file.path + ": foreign: 'driver' is '1'"));
    write(file.path, replaced(to_json(example()), "1790000000", "1700000000"));
    CHECK(says(refusal(), file.path + ": stale: measured 90000060 seconds ago"));
    CHECK(says(find_cost(std::filesystem::temp_directory_path().string(), demands).refusal, "reading failed"));

    save(example(), file.path);
    cost_offer const offer = find_cost(file.path, demands);
    CHECK(offer.refusal.empty());
    REQUIRE(offer.table.has_value());
    check_equal(*offer.table, example());
    CHECK(schedule_of(offer).traits().plans_at_anchor());
}

// SPDX-License-Identifier: MIT
//
// Evidence of online maps as JSON: back and forth without loss, and what is no evidence is refused by name.
#include "support/catch.hpp"

#include <cstddef>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <sureleap/ext/calibration_json.hpp>

#include "support/dice.hpp"
#include "support/edited_documents.hpp"
#include "support/error_text.hpp"

using namespace sureleap;
using support::check_edits;
using support::error_text;
using support::replaced;
using support::says;

namespace {

online_maps learned(std::size_t block_size, online_terms terms) {
    online_settings settings;
    settings.terms = terms;
    online_maps maps(block_size, settings);
    support::dice roll(1);
    for (int i = 0; i < 50; ++i) {
        for (int r = 0; r < 40; ++r) {
            for (std::size_t k = 0; k < block_size; ++k) {
                maps.observe(k, logit_terms::of_confidence(roll.real(), roll.bell()), roll.chance(0.6));
            }
        }
        maps.close_round(40);
    }
    return maps;
}

}  // namespace

TEST_CASE("evidence comes back as it was") {
    auto const terms = GENERATE(online_terms::temperature, online_terms::platt, online_terms::history);
    online_maps const maps = learned(3, terms);
    auto const back = evidence_from_json(to_json(maps));
    REQUIRE(back.size() == 3);
    for (std::size_t k = 0; k < 3; ++k) CHECK(back[k].numbers() == maps.evidence(k).numbers());
    online_settings settings;
    settings.terms = terms;
    online_maps again(3, settings);
    again.restore(back);
    CHECK(to_json(again) == to_json(maps));
    CHECK(evidence_from_json(to_json(online_maps(2)))[1].observations() == 0.0);

    std::string const file = "calibration_json.test.json";
    save_evidence(maps, file);
    CHECK(load_evidence(file)[2].numbers() == maps.evidence(2).numbers());
    std::remove(file.c_str());
}

TEST_CASE("what is no evidence is refused, with its field") {
    std::string const good = to_json(learned(1, online_terms::platt));
    auto const text = [](std::string const& document) {
        return error_text([&] { (void)evidence_from_json(document, "f.json"); });
    };
    CHECK(says(text(good.substr(0, good.size() / 2)), "f.json: malformed or truncated JSON at byte"));
    check_edits(good, text,
                {
                    {"online_evidence", "platt", "field 'format'"},
                    {"\"version\": 1", "\"version\": 2", "field 'version' is 2, expected 1"},
                    {"\"block_size\": 1", "\"block_size\": 2", "field 'block_size' is 2, expected the "},
                    {"\"accepted\":", "\"agreed\":", "field 'positions[0].accepted' is missing"},
                    {"\"moments\": [", "\"moments\": [1.0, ", "field 'positions[0].moments'"},
                    {"\"observations\": ", "\"observations\": -",
                     "field 'positions[0]' is an object, expected sums that observations can have"},
                    {"\"squares\": [\n        ", "\"squares\": [\n        -", "field 'positions[0]'"},
                });
    CHECK(says(text(R"({"format": "sureleap.online_evidence", "version": 1, "block_size": 1, "positions": [
        {"squares": [1, 5, 1, 0, 0, 0], "moments": [0, 0, 0], "observations": 2, "accepted": 1}]})"),
               "expected sums that observations can have"));
    CHECK(says(error_text([] { (void)load_evidence("no such file.json"); }), "cannot be opened"));
    CHECK(text(replaced(good, "\"accepted\":", "\"accepted\": 0, \"accepted\":")) ==
          "f.json: field 'positions[0].accepted' occurs twice, expected each key once");
}

TEST_CASE("evidence that no rounds give is refused, and what is accepted gives maps that are maps") {
    auto const document = [](std::string const& squares, std::string const& moments, std::string const& counts) {
        return R"({"format": "sureleap.online_evidence", "version": 1, "block_size": 1, "positions": [
            {"squares": [)" +
               squares + R"(], "moments": [)" + moments + R"(], )" + counts + "}]}";
    };
    std::string const few = R"("observations": 2, "accepted": 1)";
    auto const text = [&](std::string const& squares, std::string const& moments, std::string const& counts) {
        return error_text([&] { (void)evidence_from_json(document(squares, moments, counts), "f.json"); });
    };
    CHECK(says(text("1e200, 1e200, 1e200, 0, 0, 0", "0, 0, 0", few),
               "f.json: field 'positions[0].squares[0]' is 1e+200, expected a number in [-1e12, 1e12]"));
    CHECK(says(text("1, 0, 1, 0, 0, 0", "0, -2e12, 0", few), "field 'positions[0].moments[1]' is -2000000000000.0"));
    CHECK(says(text("1, 0, 1, 0, 0, 0", "0, 0, 0", R"("observations": 1e13, "accepted": 1)"),
               "field 'positions[0].observations' is 10000000000000.0"));
    CHECK(says(text("1, 0, 1, 0, 0, 0", "0, 0, 0", R"("observations": 2, "accepted": 3)"), "field 'positions[0]'"));
    // Singular to the last digit, and as large as it may be: rounding must not make a map of NaN.
    for (auto const& [squares, moments] :
         {std::pair{"1e12, 1e12, 1e12, 1e12, 1e12, 1e12", "1e12, -1e12, 1e12"},
          std::pair{"1e12, 999999999999.9, 1e12, 0, 0, 1e-300", "-1e12, 1e12, 1e12"},
          std::pair{"999999999000, 999999999400, 999999999000, 0, 0, 0", "1e12, 1e12, 0"},
          std::pair{"0, 0, 0, 0, 0, 0", "1e12, 1e12, 1e12"}}) {
        for (auto const terms : {online_terms::temperature, online_terms::platt, online_terms::history}) {
            auto const evidence = evidence_from_json(document(squares, moments, few), "f.json");
            online_settings settings;
            settings.terms = terms;
            online_maps maps(1, settings);
            maps.restore(evidence);
            INFO(squares);
            for (double const c : {0.0, 0.1, 0.5, 1.0}) {
                double const calibrated = maps(0, c);
                REQUIRE(calibrated >= 0.0);
                REQUIRE(calibrated <= 1.0);
            }
        }
    }
}

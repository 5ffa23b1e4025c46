// SPDX-License-Identifier: MIT
//
// The text that collectors scrape, parsed back: every line, every label, histograms that add up; and what the metrics
// refuse at set-up.
#include "support/catch.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <sureleap/serving/metrics.hpp>
#include <sureleap/serving/metrics_text.hpp>

#include "support/error_text.hpp"

using namespace sureleap;

namespace {

using labels = std::map<std::string, std::string>;

struct sample {
    std::string name;
    labels own;
    double value = 0.0;
};
struct family {
    std::string type;
    std::string help;
    std::vector<sample> samples;
};

bool is_name(std::string_view s) {
    auto const letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; };
    if (s.empty() || !letter(s[0])) return false;
    return std::all_of(s.begin(), s.end(),
                       [&](char c) { return letter(c) || std::isdigit(static_cast<unsigned char>(c)); });
}

sample parse_sample(std::string const& line) {
    sample s;
    std::size_t at = line.find_first_of("{ ");
    REQUIRE(at != std::string::npos);
    s.name = line.substr(0, at);
    REQUIRE(is_name(s.name));
    if (line[at] == '{') {
        do {
            ++at;
            std::size_t const equals = line.find("=\"", at);
            REQUIRE(equals != std::string::npos);
            std::string const key = line.substr(at, equals - at);
            REQUIRE(is_name(key));
            REQUIRE(s.own.count(key) == 0);
            std::string& value = s.own[key];
            for (at = equals + 2; line.at(at) != '"'; ++at) {
                if (line[at] != '\\') {
                    value += line[at];
                    continue;
                }
                char const escaped = line.at(++at);
                REQUIRE((escaped == 'n' || escaped == '\\' || escaped == '"'));
                value += escaped == 'n' ? '\n' : escaped;
            }
            ++at;
        } while (line.at(at) == ',');
        REQUIRE(line.at(at) == '}');
        ++at;
    }
    REQUIRE(line.at(at) == ' ');
    std::string const number = line.substr(at + 1);
    if (number == "NaN") {
        s.value = std::numeric_limits<double>::quiet_NaN();
    } else if (number == "+Inf") {
        s.value = std::numeric_limits<double>::infinity();
    } else {
        std::size_t used = 0;
        s.value = std::stod(number, &used);
        REQUIRE(used == number.size());
    }
    return s;
}

/// Families by name. Demands what the format demands: HELP and TYPE first, once, samples of a family together.
std::map<std::string, family> parse(std::string const& text) {
    std::map<std::string, family> all;
    std::istringstream in{text};
    std::string name;
    REQUIRE(text.back() == '\n');
    for (std::string line; std::getline(in, line);) {
        if (line.rfind("# HELP ", 0) == 0) {
            std::size_t const end = line.find(' ', 7);
            name = line.substr(7, end - 7);
            REQUIRE(is_name(name));
            REQUIRE(all.count(name) == 0);
            all[name].help = line.substr(end + 1);
            std::string type;
            REQUIRE(std::getline(in, type));
            REQUIRE(type.rfind("# TYPE " + name + " ", 0) == 0);
            all[name].type = type.substr(8 + name.size());
            continue;
        }
        sample const s = parse_sample(line);
        family& f = all.at(name);
        std::string const suffix = s.name.substr(std::min(name.size(), s.name.size()));
        REQUIRE(s.name == name + suffix);
        if (f.type == "histogram") {
            REQUIRE((suffix == "_bucket" || suffix == "_sum" || suffix == "_count"));
        } else {
            REQUIRE((f.type == "counter" || f.type == "gauge"));
            REQUIRE(suffix.empty());
        }
        f.samples.push_back(s);
    }
    return all;
}

serving_counts some_counts() {
    serving_counts c = serving_metrics{2, {.bins = 2, .batch_bounds = {1, 2.5}}}.read();
    std::uint64_t n = 0;
    serving_counts::for_each_number([&]<class Number>(Number& x) { x = static_cast<Number>(++n) + Number(0.25); }, c);
    return c;
}

void check_histogram(family const& f, histogram_counts const& h) {
    CHECK(f.type == "histogram");
    REQUIRE(f.samples.size() == h.counts.size() + 2);
    double cumulative = 0.0;
    for (std::size_t i = 0; i < h.counts.size(); ++i) {
        sample const& s = f.samples[i];
        CHECK(s.name.ends_with("_bucket"));
        std::string const& le = s.own.at("le");
        if (i == h.bounds.size()) {
            CHECK(le == "+Inf");
        } else {
            CHECK(std::stod(le) == h.bounds[i]);
        }
        cumulative += static_cast<double>(h.counts[i]);
        CHECK(s.value == cumulative);
    }
    CHECK(f.samples[h.counts.size()].name.ends_with("_sum"));
    CHECK(f.samples[h.counts.size()].value == h.sum);
    CHECK(f.samples.back().name.ends_with("_count"));
    CHECK(f.samples.back().value == cumulative);
}

}  // namespace

TEST_CASE("metrics text: every number is there, parsed back") {
    serving_counts const c = some_counts();
    auto const all = parse(metrics_text(c));
    std::set<std::string> seen;
    auto const samples = [&](std::string const& name, std::string const& type, std::size_t n) {
        INFO(name);
        seen.insert("sureleap_" + name);
        family const& f = all.at("sureleap_" + name);
        CHECK(f.type == type);
        CHECK_FALSE(f.help.empty());
        REQUIRE(f.samples.size() == n);
        return f.samples;
    };
    auto const counter = [&](std::string const& name, auto value) {
        auto const s = samples(name, "counter", 1);
        CHECK(s[0].own.empty());
        CHECK(s[0].value == static_cast<double>(value));
        CHECK(name.ends_with("_total"));
    };
    counter("rounds_total", c.rounds);
    counter("undrafted_rounds_total", c.undrafted_rounds);
    counter("request_rounds_total", c.request_rounds);
    counter("gated_request_rounds_total", c.gated_request_rounds);
    counter("drafted_tokens_total", c.drafted);
    counter("verified_tokens_total", c.verified);
    counter("accepted_tokens_total", c.accepted);
    counter("emitted_tokens_total", c.emitted);
    counter("acceptable_tokens_total", c.acceptable);
    counter("step_observed_seconds_total", c.observed_seconds);
    counter("step_predicted_seconds_total", c.predicted_seconds);

    auto const failed = samples("failed_request_rounds_total", "counter", c.failures.size());
    for (std::size_t i = 0; i < failed.size(); ++i) {
        CHECK(failed[i].own == labels{{"status", to_string(serving_counts::failure_statuses[i])}});
        CHECK(failed[i].value == static_cast<double>(c.failures[i]));
    }
    auto const by_position = [&](std::string const& name, std::string const& type, auto value) {
        auto const s = samples(name, type, 2);
        for (std::size_t k = 0; k < 2; ++k) {
            CHECK(s[k].own == labels{{"position", std::to_string(k + 1)}});
            CHECK(s[k].value == static_cast<double>(value(k)));
        }
    };
    by_position("position_verified_total", "counter", [&](std::size_t k) { return c.positions[k].verified; });
    by_position("position_reached_total", "counter", [&](std::size_t k) { return c.positions[k].reached; });
    by_position("position_accepted_total", "counter", [&](std::size_t k) { return c.positions[k].accepted; });
    by_position("position_confidence_total", "counter", [&](std::size_t k) { return c.positions[k].confidence; });
    by_position("calibration_error_ratio", "gauge", [&](std::size_t k) { return c.calibration_error(k); });

    auto const histogram = [&](std::string const& name, histogram_counts const& h) {
        seen.insert("sureleap_" + name);
        check_histogram(all.at("sureleap_" + name), h);
    };
    histogram("verify_length_tokens", c.verify_length);
    histogram("batch_tokens", c.batch_tokens);
    histogram("step_seconds", c.step_seconds);
    histogram("step_observed_over_predicted_ratio", c.step_ratio);
    CHECK(seen.size() == all.size());
}

TEST_CASE("metrics text: labels, prefix, window, values that are no numbers") {
    serving_counts const c = some_counts();
    serving_counts const nothing = c.since(c);
    std::vector<metrics_label> const own{{"engine", "0"}, {"model", "a \"b\" \\ c\nd"}};
    auto const all = parse(metrics_text(c, {.prefix = "my_", .labels = own, .recent = &nothing}));
    labels const expected{{"engine", "0"}, {"model", "a \"b\" \\ c\nd"}};
    for (auto const& [name, f] : all) {
        INFO(name);
        CHECK(name.starts_with("my_"));
        for (sample const& s : f.samples) {
            for (auto const& [key, value] : expected) CHECK(s.own.at(key) == value);
        }
    }
    CHECK(all.at("my_rounds_total").samples[0].value == static_cast<double>(c.rounds));
    CHECK(all.at("my_step_seconds").samples.back().own == expected);
    for (sample const& s : all.at("my_calibration_error_ratio").samples) CHECK(std::isnan(s.value));  // nothing recent
}

TEST_CASE("metrics text: large counts and awkward numbers survive") {
    serving_counts c = some_counts();
    c.rounds = 9007199254740993u;  // no double
    c.acceptable = 0.1;
    c.predicted_seconds = std::numeric_limits<double>::infinity();
    std::string const text = metrics_text(c);
    CHECK(text.find("sureleap_rounds_total 9007199254740993\n") != std::string::npos);
    CHECK(text.find("sureleap_acceptable_tokens_total 0.1\n") != std::string::npos);
    CHECK(text.find("sureleap_step_predicted_seconds_total +Inf\n") != std::string::npos);
    // An output iterator of any kind.
    std::ostringstream out;
    write_metrics_text(std::ostreambuf_iterator<char>{out}, c);
    CHECK(out.str() == text);
}

TEST_CASE("serving metrics: what set-up refuses") {
    auto const refused = [](std::size_t gamma, serving_metrics_settings const& s) {
        return support::error_text([&] { serving_metrics{gamma, s}; });
    };
    CHECK(refused(0, {}) == "serving_metrics: block size is 0, expected at least 1");
    CHECK(refused(1, {.bins = 0}) == "serving_metrics: bins is 0, expected at least 1");
    CHECK(refused(1, {.batch_bounds = {}}) == "serving_metrics: batch_bounds is empty, expected at least one bound");
    CHECK(refused(1, {.second_bounds = {0.5, 0.5}}) ==
          "serving_metrics: second_bounds[1] is 0.5, expected finite numbers in ascending order");
    CHECK(refused(1, {.ratio_bounds = {std::numeric_limits<double>::infinity()}}) ==
          "serving_metrics: ratio_bounds[0] is inf, expected finite numbers in ascending order");
}

// SPDX-License-Identifier: MIT
//
// Traces and worlds from files: what they give, and what is said of those that are none.
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include <engine/text_file.hpp>
#include <serve/arrivals.hpp>
#include <serve/recorded.hpp>
#include <serve/worlds.hpp>

#include "support/catch.hpp"
#include "support/error_text.hpp"

namespace {

using namespace serve;
using support::error_text;
using support::says;

std::string trace_error(std::string const& lines) {
    return error_text([&] { static_cast<void>(parse_trace(lines, "t.csv")); });
}
std::string const header = "TIMESTAMP,ContextTokens,GeneratedTokens\n";

/// A file that is gone with the object.
struct temporary {
    std::filesystem::path path;
    explicit temporary(std::string const& name, std::string const& text)
        : path(std::filesystem::temp_directory_path() / ("sureleap_serve_" + name)) {
        engine::write_text(path, text);
    }
    ~temporary() { std::filesystem::remove(path); }
    temporary(temporary const&) = delete;
    temporary& operator=(temporary const&) = delete;
};

std::string const small_world_text = R"({
  "format": "sureleap-world-1", "name": "small", "source": "a test", "block": 3,
  "step": {"requests": {"at": [1, 11], "seconds": [0.0, 0.010]},
           "batch_tokens": {"at": [10, 20, 30], "seconds": [0.020, 0.030, 0.060]}, "pad_batch_to": 1},
  "draft": {"seconds": 0.002, "per_request": 0.001, "per_token": 0.0001},
  "mtp1": {"accepts": 0.8},
  "acceptance": {"request_sd": 0.5, "token_sd": 1.0, "domains": [{"name": "a", "weight": 2, "centre": [1, 1.5]}]}
})";

std::string world_error(std::string text, std::string const& from, std::string const& to) {
    text.replace(text.find(from), from.size(), to);
    temporary const file("bad.json", text);
    return error_text([&] { static_cast<void>(read_world(file.path)); });
}

}  // namespace

TEST_CASE("A trace begins at 0 and is sped up") {
    auto const all = parse_trace(header +
                                     "2023-11-16 23:59:59.5000000,374,44\r\n"
                                     "2023-11-17 00:00:01.7500000,9000,1\n",
                                 "t.csv", {.speed_up = 2});
    REQUIRE(all.size() == 2);
    CHECK(all[0].seconds == 0.0);
    CHECK(std::abs(all[1].seconds - 1.125) < 1e-6);
    CHECK(all[0].context == 374);
    CHECK(all[1].context == 4096);
    CHECK(all[0].tokens == 44);
    std::string many = header;
    for (int i = 10; i < 60; ++i) many += "2023-11-16 18:15:" + std::to_string(i) + ",1,1\n";
    auto const some = parse_trace(many, "t.csv", {.skip = 5, .most = 7});
    REQUIRE(some.size() == 7);
    CHECK(some[0].seconds == 0.0);
    CHECK(some[6].seconds == 6.0);
}

TEST_CASE("What is no trace is told by line and field") {
    CHECK(trace_error("a,b\n") ==
          "t.csv, line 1: the header is 'a,b', expected TIMESTAMP,ContextTokens,GeneratedTokens");
    CHECK(trace_error(header) ==
          "t.csv: it has no request, expected lines under TIMESTAMP,ContextTokens,GeneratedTokens");
    CHECK(trace_error(header + "2023-11-16 18:15:46,1\n") == "t.csv, line 2: it has 2 fields, expected 3");
    CHECK(trace_error(header + "2023-11-16 18:15:46,1,2,3\n") == "t.csv, line 2: it has 4 fields, expected 3");
    for (char const* const time : {"16.11.2023", "2023-13-16 18:15:46", "2023-11-16 25:15:46", "2023-11-16 18:15:46.",
                                   "2023-11-16 18:15:46,5", "2023-11-16T18:15:46", ""}) {
        INFO(time);
        CHECK(says(trace_error(header + time + (std::string(time).find(',') == std::string::npos ? ",1,1\n" : "\n")),
                   "line 2"));
    }
    CHECK(trace_error(header + "2023-11-16 18:15:46,0,5\n") ==
          "t.csv, line 2: ContextTokens is '0', expected a whole number from 1 to 10000000");
    CHECK(trace_error(header + "2023-11-16 18:15:46,5,-1\n") ==
          "t.csv, line 2: GeneratedTokens is '-1', expected a whole number from 1 to 10000000");
    CHECK(says(trace_error(header + "2023-11-16 18:15:46,5,1\n2023-11-16 18:15:45,5,1\n"),
               {"line 3", "no earlier time than that of the line before"}));
}

TEST_CASE("A world's file gives its costs") {
    temporary const file("good.json", small_world_text);
    world const w = read_world(file.path);
    CHECK(w.cost.name == "small");
    CHECK(w.block_size == 3u);
    REQUIRE(w.domains.size() == 1);
    CHECK(w.domains[0].centre == std::vector<double>{1, 1.5});
    CHECK(w.mtp1->accepts == 0.8);
    // 2 requests and 15 tokens, no drafts; the same with drafts; beyond the last points.
    CHECK(std::abs(w.cost.step_seconds({.requests = 2, .batch_tokens = 15}) - 0.026) < 1e-12);
    CHECK(std::abs(w.cost.step_seconds({.requests = 2, .batch_tokens = 15, .drafting = 2, .draft_tokens = 5}) -
                   (0.026 + 0.002 + 0.002 + 0.0005)) < 1e-12);
    CHECK(std::abs(w.cost.step_seconds({.requests = 21, .batch_tokens = 40}) - (0.020 + 0.090)) < 1e-12);
    CHECK(std::abs(w.cost.step_seconds({.requests = 1, .batch_tokens = 1}) - 0.020) < 1e-12);
}

TEST_CASE("What is no world is told by field") {
    CHECK(says(world_error(small_world_text, "\"sureleap-world-1\"", "\"x\""), "expected \"sureleap-world-1\""));
    CHECK(says(world_error(small_world_text, "[10, 20, 30]", "[10, 30, 20]"),
               "world small: batch_tokens point 2 is at 20, expected ascending numbers"));
    CHECK(says(world_error(small_world_text, "[0.020, 0.030, 0.060]", "[0.020, 0.030]"),
               "batch_tokens has 3 places and 2 times"));
    CHECK(says(world_error(small_world_text, "0.020, 0.030, 0.060", "0.020, 0.030, 0.010"), "the last slope falls"));
    CHECK(says(world_error(small_world_text, "0.020, 0.030, 0.060", "-0.020, 0.030, 0.060"), "expected more than 0"));
    CHECK(says(world_error(small_world_text, "\"accepts\": 0.8", "\"accepts\": \"0.8\""), "mtp1.accepts"));
    CHECK(says(error_text([] { static_cast<void>(find_world("stairs:1", nullptr)); }), "expected stairs:N"));
    CHECK(says(error_text([] { static_cast<void>(find_world("h20", nullptr)); }), "give --figures FILE"));
    CHECK(says(error_text([] { static_cast<void>(find_world("nowhere", nullptr)); }), "there is no such file"));
}

TEST_CASE("Stairs are as wide as they say") {
    cost_world const world = made_up_world(64);
    auto const at = [&](std::size_t b) { return world.step_seconds({.requests = 1, .batch_tokens = b}); };
    CHECK(at(1) == at(64));
    CHECK(at(65) == at(128));
    CHECK(at(65) > at(64));
    cost_world noisy = made_up_world();
    noisy.noise = 0.05;
    CHECK(noisy.step_seconds({.requests = 1, .batch_tokens = 40}) != at(40));
}

TEST_CASE("Recorded rounds are read line by line") {
    auto const rounds = parse_recorded(
        "{\"text\": 3, \"position\": 41, \"confidences\": [0.5, 1], \"accepted\": 1}\n"
        "\n"
        "{\"text\": 3, \"position\": 43, \"confidences\": [], \"accepted\": 0}\n",
        "r.jsonl");
    REQUIRE(rounds.size() == 1);
    CHECK(rounds[0].text == 3);
    CHECK(rounds[0].position == 41);
    CHECK(rounds[0].confidences == std::vector<double>{0.5, 1.0});
    CHECK(rounds[0].accepted == 1);
    auto const error = [](std::string const& text) {
        return error_text([&] { static_cast<void>(parse_recorded(text, "r.jsonl")); });
    };
    CHECK(says(error("{\"text\": 3}"), "r.jsonl, line 1: field 'position' is missing"));
    CHECK(says(error("\n{"), "r.jsonl, line 2: no valid JSON"));
    CHECK(says(error("{\"text\": 3, \"position\": 1, \"confidences\": [\"a\"], \"accepted\": 0}"),
               "field 'confidences[0]' is \"a\""));
}

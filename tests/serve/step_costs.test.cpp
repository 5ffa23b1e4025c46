// SPDX-License-Identifier: MIT
//
// Step times of other machines, from files and from worlds.
#include <filesystem>
#include <string>

#include <engine/text_file.hpp>
#include <serve/step_costs.hpp>

#include "support/catch.hpp"
#include "support/error_text.hpp"

namespace {

using serve::read_step_costs;
using serve::step_costs;
using support::error_text;
using support::says;

class step_times_file {
public:
    explicit step_times_file(std::string const& curves) { engine::write_text(path_, curves); }
    ~step_times_file() { std::filesystem::remove(path_); }
    step_times_file(step_times_file const&) = delete;
    step_times_file& operator=(step_times_file const&) = delete;

    [[nodiscard]] step_costs read(std::string const& name, double draft_share = 0.1) const {
        return read_step_costs(path_.string() + "#" + name, {}, draft_share);
    }

private:
    std::filesystem::path path_ = std::filesystem::temp_directory_path() / "sureleap_step_costs.json";
};

double seconds(step_costs const& costs, std::size_t rows, bool drafts) {
    return costs.seconds({.requests = costs.requests,
                          .batch_tokens = rows,
                          .drafting = drafts ? costs.requests : 0,
                          .draft_tokens = drafts ? rows - costs.requests : 0});
}

}  // namespace

TEST_CASE("Step times of a file begin with a step without drafts") {
    step_times_file const file(R"({"about": "a test", "three": {"rows": [3, 4, 6, 12], "seconds": [2, 3, 3.5, 5]},
                                   "stairs": {"rows": [1, 2, 3, 4], "passes": [1, 2, 3, 1]}})");
    step_costs const three = file.read("three");
    CHECK(three.requests == 3);
    CHECK(three.most_rows == 4);
    CHECK(three.plain_seconds() == 2.0);
    CHECK(seconds(three, 5, false) == 3.25);
    CHECK(seconds(three, 5, true) == Approx(3.45));

    step_costs const stairs = file.read("stairs", 0.0);
    CHECK(stairs.requests == 1);
    CHECK(stairs.most_rows == 4);
    CHECK(seconds(stairs, 3, true) == 3.0);
    CHECK(seconds(stairs, 4, true) == 1.0);
}

TEST_CASE("Step times of a world are its own, drafting too where it says so") {
    step_costs const smooth = read_step_costs("smooth@4", {}, 0.5);
    CHECK(smooth.requests == 4);
    CHECK(smooth.most_rows == 100);
    CHECK(smooth.plain_seconds() == Approx(0.0202));
    CHECK(seconds(smooth, 40, true) == Approx(0.022 + 0.001));
}

TEST_CASE("What has no step times is refused by name") {
    step_times_file const file(R"({"short": {"rows": [1, 2], "seconds": [1]}, "none": {"rows": [], "seconds": []},
                                   "twice": {"rows": [2, 2], "seconds": [1, 1]}})");
    CHECK(says(error_text([&] { static_cast<void>(file.read("short")); }), "short.seconds"));
    CHECK(says(error_text([&] { static_cast<void>(file.read("short")); }), "expected a time for each of 2 rows"));
    CHECK(says(error_text([&] { static_cast<void>(file.read("none")); }), "at least one"));
    CHECK(says(error_text([&] { static_cast<void>(file.read("twice")); }), "2 a second time"));
    CHECK(says(error_text([&] { static_cast<void>(file.read("absent")); }), "absent"));
    for (char const* const text : {"smooth", "smooth@", "smooth@0", "smooth@x", "smooth@3x"}) {
        CAPTURE(text);
        CHECK(says(error_text([&] { static_cast<void>(read_step_costs(text, {}, 0.1)); }),
                   "expected FILE#NAME, or WORLD@R"));
    }
    CHECK(says(error_text([] { static_cast<void>(read_step_costs("smooth@500", {}, 0.1)); }),
               "times of up to 400 rows, expected at least one for each of 500 requests"));
}

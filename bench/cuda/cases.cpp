// SPDX-License-Identifier: MIT
//
//     bench                        runs all cases
//     bench --filter REGEX         those whose name has a match
//     bench CASE...                these
//     bench --list [...]           prints names
//     bench --once [...]           calls each once, between cudaProfilerStart and cudaProfilerStop
//
// A case prints two lines of JSON: that it begins, and what was found.
#include "cases.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <regex>
#include <string_view>

namespace bench {
namespace {

struct entry {
    std::string family;
    void (*body)(state&);
    std::vector<std::string> names;
    numbers values;

    [[nodiscard]] std::string name() const {
        std::string text = family;
        for (std::size_t i = 0; i < names.size(); ++i) text += "/" + names[i] + ":" + std::to_string(values[i]);
        return text;
    }
};

std::vector<entry>& entries() {
    static std::vector<entry> all;
    return all;
}

bool calls_once = false;

std::string quoted(std::string const& text) {
    std::string out = "\"";
    for (char const c : text) {
        if (c == '"' || c == '\\') out += '\\';
        out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    }
    return out + '"';
}

std::string printed(double x) {
    char text[32];
    std::snprintf(text, sizeof text, "%.6g", x);
    return text;
}

void print(std::string const& line) {
    std::puts(line.c_str());
    std::fflush(stdout);
}

}  // namespace

std::uint32_t state::operator[](char const* name) const {
    auto const found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) give_up(name, "is not a number of this case");
    return static_cast<std::uint32_t>(values_[static_cast<std::size_t>(found - names_.begin())]);
}

std::string state::json(std::string const& name, std::string const& family) const {
    std::string line = "{\"name\": " + quoted(name) + ", \"status\": " + quoted(status_);
    if (!why_.empty()) line += ", \"why\": " + quoted(why_);
    line += ", \"family\": " + quoted(family) + ", \"args\": {";
    for (std::size_t i = 0; i < names_.size(); ++i) {
        line += (i > 0 ? ", " : "") + quoted(names_[i]) + ": " + std::to_string(values_[i]);
    }
    line += "}";
    if (!seconds_.empty() && !once()) {
        std::vector<double> sorted = seconds_;
        std::sort(sorted.begin(), sorted.end());
        double const middle = sorted[sorted.size() / 2];
        line += ", \"us\": " + printed(1e6 * middle);
        line += ", \"spread\": " + printed(middle > 0.0 ? (sorted.back() - sorted.front()) / middle : 0.0);
        line += ", \"repetitions\": " + std::to_string(sorted.size()) + ", \"figures\": {";
        for (std::size_t i = 0; i < figures_.size(); ++i) {
            line += (i > 0 ? ", " : "") + quoted(figures_[i].first) + ": " + printed(figures_[i].second);
        }
        line += "}";
    }
    return line + "}";
}

bool add(char const* family, void (*body)(state&), std::vector<std::string> names, std::vector<numbers> const& values) {
    for (numbers const& each : values) entries().push_back({family, body, names, each});
    return true;
}

bool once() {
    return calls_once;
}

void give_up(char const* what, char const* why) {
    std::fprintf(stderr, "bench: %s: %s\n", what, why);
    std::exit(1);
}

}  // namespace bench

int main(int count, char** arguments) {
    bool list = false;
    std::regex filter("");
    std::vector<std::string> wanted;
    for (int i = 1; i < count; ++i) {
        std::string_view const argument = arguments[i];
        if (argument == "--list") {
            list = true;
        } else if (argument == "--once") {
            bench::calls_once = true;
        } else if (argument == "--filter" && i + 1 < count) {
            filter = arguments[++i];
        } else if (argument.starts_with("--")) {
            bench::give_up(arguments[i], "is no option (--list, --once, --filter REGEX, or names of cases)");
        } else {
            wanted.emplace_back(argument);
        }
    }
    std::size_t found = 0;
    for (bench::entry const& each : bench::entries()) {
        std::string const name = each.name();
        bool const named = wanted.empty() || std::find(wanted.begin(), wanted.end(), name) != wanted.end();
        if (!named || !std::regex_search(name, filter)) continue;
        ++found;
        if (list) {
            bench::print(name);
            continue;
        }
        bench::print("{\"begins\": " + bench::quoted(name) + "}");
        bench::state state(each.names, each.values);
        each.body(state);
        bench::print(state.json(name, each.family));
    }
    if (found == 0) bench::give_up("no case", "has such a name");
    return 0;
}

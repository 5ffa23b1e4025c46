// SPDX-License-Identifier: MIT
#include "arrivals.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <system_error>

#include <engine/text_file.hpp>
#include <sureleap/core/error.hpp>

#include "keyed.hpp"

namespace serve {
namespace {

using sureleap::fail_with;

constexpr std::string_view header = "TIMESTAMP,ContextTokens,GeneratedTokens";

/// A line of a trace, and where it stands.
struct trace_line {
    std::string const& source;
    std::size_t number;

    [[noreturn]] void wrong(char const* field, std::string_view value, char const* expected) const {
        fail_with(source, ", line ", number, ": ", field, " is '", std::string(value.substr(0, 60)), "', expected ",
                  expected);
    }
    [[nodiscard]] std::size_t tokens(char const* field, std::string_view value) const {
        std::size_t n = 0;
        auto const [end, problem] = std::from_chars(value.data(), value.data() + value.size(), n);
        if (problem != std::errc{} || end != value.data() + value.size() || n == 0 || n > 10'000'000) {
            wrong(field, value, "a whole number from 1 to 10000000");
        }
        return n;
    }
    /// Seconds since 1970, as if all clocks stood at UTC.
    [[nodiscard]] double time(std::string_view value) const {
        constexpr char const* form = "a time as 2023-11-16 18:15:46.680";
        constexpr std::string_view shape = "dddd-dd-dd dd:dd:dd";
        bool fits = value.size() >= shape.size();
        for (std::size_t i = 0; fits && i < shape.size(); ++i) {
            fits = shape[i] == 'd' ? value[i] >= '0' && value[i] <= '9' : value[i] == shape[i];
        }
        if (!fits) wrong("TIMESTAMP", value, form);
        auto const part = [&](std::size_t at, std::size_t size) {
            int n = 0;
            for (char const c : value.substr(at, size)) n = 10 * n + (c - '0');
            return n;
        };
        std::chrono::year_month_day const date{std::chrono::year(part(0, 4)),
                                               std::chrono::month(static_cast<unsigned>(part(5, 2))),
                                               std::chrono::day(static_cast<unsigned>(part(8, 2)))};
        if (!date.ok() || part(11, 2) > 23 || part(14, 2) > 59 || part(17, 2) > 60) wrong("TIMESTAMP", value, form);
        double fraction = 0;
        if (value.size() > shape.size()) {
            auto const digits = value.substr(shape.size() + 1);
            bool const decimal = value[shape.size()] == '.' && !digits.empty() &&
                                 std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
            if (!decimal) wrong("TIMESTAMP", value, form);
            for (std::size_t i = digits.size(); i-- > 0;) fraction = (fraction + (digits[i] - '0')) / 10;
        }
        auto const days = std::chrono::sys_days(date).time_since_epoch().count();
        return static_cast<double>(days) * 86400.0 + part(11, 2) * 3600 + part(14, 2) * 60 + part(17, 2) + fraction;
    }
};

}  // namespace

std::vector<arrival> parse_trace(std::string_view text, std::string const& source, trace_settings const& settings) {
    if (!(settings.speed_up > 0) || !std::isfinite(settings.speed_up)) {
        fail_with(source, ": the speed-up is ", settings.speed_up, ", expected a number above 0");
    }
    std::vector<arrival> all;
    double first = 0;
    double last = 0;
    std::size_t seen = 0;
    for (std::size_t number = 1; !text.empty(); ++number) {
        std::size_t const end = std::min(text.find('\n'), text.size());
        std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (line.ends_with('\r')) line.remove_suffix(1);
        trace_line const at{source, number};
        if (number == 1) {
            if (line != header) at.wrong("the header", line, "TIMESTAMP,ContextTokens,GeneratedTokens");
            continue;
        }
        if (line.empty()) continue;
        std::array<std::string_view, 3> fields;
        std::size_t count = 0;
        for (std::string_view rest = line;; ++count) {
            std::size_t const comma = rest.find(',');
            if (count < 3) fields[count] = rest.substr(0, comma);
            if (comma == std::string_view::npos) break;
            rest.remove_prefix(comma + 1);
        }
        if (count != 2) fail_with(source, ", line ", number, ": it has ", count + 1, " fields, expected 3");
        double const time = at.time(fields[0]);
        if (seen > 0 && time < last) at.wrong("TIMESTAMP", fields[0], "no earlier time than that of the line before");
        last = time;
        arrival one{0, at.tokens("ContextTokens", fields[1]), at.tokens("GeneratedTokens", fields[2])};
        one.context = std::min(one.context, settings.longest_context);
        if (seen++ < settings.skip) continue;
        if (all.empty()) first = time;
        one.seconds = (time - first) / settings.speed_up;
        all.push_back(one);
        if (all.size() == settings.most) break;
    }
    if (all.empty()) fail_with(source, ": it has no request, expected lines under ", std::string(header));
    return all;
}

std::vector<arrival> read_trace(std::filesystem::path const& file, trace_settings const& settings) {
    return parse_trace(engine::read_text(file), file.string(), settings);
}

std::vector<arrival> poisson(double rate, std::size_t count, std::size_t context, std::size_t tokens,
                             std::uint64_t seed) {
    if (!(rate > 0) || !std::isfinite(rate)) fail_with("poisson: the rate is ", rate, ", expected a number above 0");
    std::vector<arrival> all;
    double now = 0;
    for (std::size_t i = 0; i < count; ++i) {
        double const u = static_cast<double>(mixed(seed, 2 * i) >> 11) * 0x1p-53;
        double const v = static_cast<double>(mixed(seed, 2 * i + 1) >> 11) * 0x1p-53;
        now -= std::log1p(-u) / rate;
        all.push_back({now, context, static_cast<std::size_t>(std::ceil(static_cast<double>(tokens) * (0.5 + v)))});
    }
    return all;
}

}  // namespace serve

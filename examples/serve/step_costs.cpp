// SPDX-License-Identifier: MIT
#include "step_costs.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include <engine/json_field.hpp>
#include <engine/text_file.hpp>
#include <sureleap/core/error.hpp>

#include "worlds.hpp"

namespace serve {
namespace {

using sureleap::capacity_point;
using sureleap::fail_with;

/// Rows of a world that nobody will ask about.
constexpr std::size_t many_rows = 4096;

step_costs made(std::string name, std::size_t requests, std::vector<capacity_point> points, double draft_seconds,
                double draft_per_request, double draft_per_token) {
    std::size_t const most = points.back().batch_tokens / requests;
    return {
        .name = std::move(name),
        .requests = requests,
        .most_rows = most,
        .cost = sureleap::of_batch(sureleap::capacity_table<>(std::move(points)),
                                   {.fixed = draft_seconds, .request = draft_per_request, .token = draft_per_token})};
}

step_costs of_file(std::string const& file, std::string const& name, double draft_share) {
    auto const document = engine::parse_json_object(engine::read_text(file), file);
    auto const curve = engine::json_field(document, file)[name];
    auto const rows = curve["rows"];
    auto const times = curve["passes"].present() ? curve["passes"] : curve["seconds"];
    if (rows.list_size() == 0 || rows.list_size() != times.list_size()) {
        times.wrong("a time for each of " + std::to_string(rows.list_size()) + " rows, at least one");
    }
    std::vector<capacity_point> points;
    for (std::size_t i = 0; i < rows.list_size(); ++i) {
        points.push_back({rows[i].size(1, many_rows), times[i].number()});
    }
    std::size_t const requests = points.front().batch_tokens;
    double const draft = draft_share * points.front().seconds;
    return made(name, requests, std::move(points), draft, 0.0, 0.0);
}

step_costs of_world(std::string const& name, std::size_t requests, std::filesystem::path const& figures,
                    double draft_share) {
    std::optional<published_figures> published;
    if (!figures.empty()) published.emplace(figures);
    cost_world const world = find_world(name, published ? &*published : nullptr).cost;
    std::size_t const rows = std::min(static_cast<std::size_t>(world.batch_tokens.at.back()), many_rows);
    if (rows < requests) {
        fail_with("world '", name, "' has times of up to ", rows, " rows, expected at least one for each of ", requests,
                  " requests");
    }
    std::vector<capacity_point> points;
    for (std::size_t b = requests; b <= rows; ++b) {
        points.push_back({b, world.step_seconds({.requests = requests, .batch_tokens = b})});
    }
    bool const says = world.draft_seconds > 0 || world.draft_per_request > 0 || world.draft_per_token > 0;
    double const draft = says ? world.draft_seconds : draft_share * points.front().seconds;
    return made(world.name, requests, std::move(points), draft, world.draft_per_request, world.draft_per_token);
}

}  // namespace

step_costs read_step_costs(std::string const& text, std::filesystem::path const& figures, double draft_share) {
    if (auto const at = text.rfind('#'); at != std::string::npos) {
        return of_file(text.substr(0, at), text.substr(at + 1), draft_share);
    }
    auto const at = text.rfind('@');
    std::size_t requests = 0;
    if (at != std::string::npos) {
        char const* const end = text.data() + text.size();
        auto const [stop, problem] = std::from_chars(text.data() + at + 1, end, requests);
        if (problem != std::errc{} || stop != end) requests = 0;
    }
    if (requests == 0) fail_with("--costs is '", text, "', expected FILE#NAME, or WORLD@R with R requests");
    return of_world(text.substr(0, at), requests, figures, draft_share);
}

}  // namespace serve

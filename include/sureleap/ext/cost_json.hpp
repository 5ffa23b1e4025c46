// SPDX-License-Identifier: MIT
//
// Cost tables as JSON, by means of nlohmann/json, with the fingerprint of what they were measured on.
//
//   save(cost_table{.prices = fit.cost.prices(), .cells = profile.samples(), .token_sizes = graphs,
//                   .measured_on = here, .measured_at = unix_now()}, "cost.json");
//   auto const offer = find_cost("cost.json", {.machine = here, .max_age = 30 * 86400});
//
// load_cost throws what find_cost reports. An engine that can serve without a table asks find_cost, and makes
// its schedule by the answer (schedule/any.hpp); one that cannot loads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sureleap/ext/json_document.hpp>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/cost/additive.hpp>
#include <sureleap/cost/sample.hpp>
#include <sureleap/fit/cost_table.hpp>

SURELEAP_BEGIN_NAMESPACE

namespace detail {
inline constexpr char const* cost_format = "sureleap.cost";
}

/// { "format": "sureleap.cost", "version": 1, "measured_at": 1790000000, "measured_on": {"device": "H200", ...},
///   "prices": {"fixed": 0.009, "request": 0, ...}, "token_sizes": [1, 2, 4], "request_sizes": [],
///   "cells": [ {"requests": 1, "batch_tokens": 8, "drafting": 1, "draft_tokens": 7, "context_tokens": 1024,
///               "unread_tokens": 0, "replays": 0, "seconds": 0.0093}, ... ] }
/// Of the prices unread_token and replay may be missing, and of cells unread_tokens and replays: they are 0 then.
[[nodiscard]] inline std::string to_json(cost_table const& table) {
    using ordered = nlohmann::ordered_json;
    ordered document{{"format", detail::cost_format}, {"version", 1}, {"measured_at", table.measured_at}};
    document["measured_on"] = ordered::object();
    for (auto const& [name, value] : table.measured_on) document["measured_on"][name] = value;
    auto const prices = in_order(table.prices);
    for (std::size_t i = 0; i < cost_terms; ++i) document["prices"][cost_term_names[i]] = prices[i];
    document["token_sizes"] = table.token_sizes;
    document["request_sizes"] = table.request_sizes;
    document["cells"] = ordered::array();
    for (cost_sample const& cell : table.cells) {
        document["cells"].push_back(ordered{{"requests", cell.load.requests},
                                            {"batch_tokens", cell.load.batch_tokens},
                                            {"drafting", cell.load.drafting},
                                            {"draft_tokens", cell.load.draft_tokens},
                                            {"context_tokens", cell.load.context_tokens},
                                            {"unread_tokens", cell.load.unread_tokens},
                                            {"replays", cell.load.replays},
                                            {"seconds", cell.seconds}});
    }
    return document.dump(2, ' ', false, ordered::error_handler_t::replace);
}

/// A table whatever it was measured on. Error if it is broken, with the field and what was expected there.
[[nodiscard]] inline cost_table cost_from_json(std::string const& text, std::string const& source = "cost JSON") {
    nlohmann::json const document = detail::parse_document(text, source, detail::cost_format, 1);
    detail::json_field const root(document, source, "");
    cost_table table;

    std::uint64_t const at = root["measured_at"].natural();
    if (at > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        root["measured_at"].wrong("seconds since the Unix epoch");
    }
    table.measured_at = static_cast<std::int64_t>(at);

    auto const on = root["measured_on"];
    if (!document["measured_on"].is_object()) on.wrong("an object");
    for (auto const& [name, value] : document["measured_on"].items()) {
        table.measured_on[name] = detail::json_field(value, source, "measured_on." + name).text();
    }

    std::array<double, cost_terms> prices{};
    for (std::size_t i = 0; i < cost_terms; ++i) {
        if (i < usual_cost_terms || root["prices"].has(cost_term_names[i]))
            prices[i] = root["prices"][cost_term_names[i]].number();
    }
    table.prices = prices_in_order(prices);
    detail::check_prices((source + ": field 'prices'").c_str(), table.prices);

    auto const sizes = [&](char const* name) {
        auto const list = root[name];
        std::vector<std::size_t> all;
        for (std::size_t i = 0; i < list.size(); ++i) all.push_back(list[i].natural());
        detail::check_graph_sizes(source + ": field '" + name + "'", all);
        return all;
    };
    table.token_sizes = sizes("token_sizes");
    table.request_sizes = sizes("request_sizes");

    auto const list = root["cells"];
    for (std::size_t i = 0; i < list.size(); ++i) {
        auto const cell = list[i];
        table.cells.push_back({{.requests = cell["requests"].natural(),
                                .batch_tokens = cell["batch_tokens"].natural(),
                                .drafting = cell["drafting"].natural(),
                                .draft_tokens = cell["draft_tokens"].natural(),
                                .context_tokens = cell["context_tokens"].natural(),
                                .unread_tokens = cell.has("unread_tokens") ? cell["unread_tokens"].natural() : 0,
                                .replays = cell.has("replays") ? cell["replays"].natural() : 0},
                               cell["seconds"].number()});
    }
    if (!table.cells.empty()) detail::check_samples(source + ": field 'cells'", table.cells);
    return table;
}

inline void save(cost_table const& table, std::string const& file) {
    detail::write_text(file, to_json(table));
}

/// Error if the file cannot be read, is broken, foreign or stale.
[[nodiscard]] inline cost_table load_cost(std::string const& file, cost_demands const& demands) {
    cost_table table = cost_from_json(detail::read_text(file), file);
    if (std::string const refusal = why_refused(table, demands, file); !refusal.empty()) fail_with(refusal);
    return table;
}

/// A table, or why there is none.
struct cost_offer {
    std::optional<cost_table> table{};
    std::string refusal{};  ///< what load_cost would have thrown
};

/// The table if it can be used. Throws nothing of its own. With -fno-exceptions a missing, foreign or stale table is
/// reported like this. A broken one ends the program with the text, as unusable data does everywhere.
[[nodiscard]] inline cost_offer find_cost(std::string const& file, cost_demands const& demands) {
    if (!std::ifstream(file, std::ios::binary)) return {std::nullopt, file + ": cannot be opened for reading"};
    auto const read = [&]() -> cost_offer {
        cost_table table = cost_from_json(detail::read_text(file), file);
        if (std::string refusal = why_refused(table, demands, file); !refusal.empty()) {
            return {std::nullopt, std::move(refusal)};
        }
        return {std::move(table), {}};
    };
#if SURELEAP_EXCEPTIONS
    try {
        return read();
    } catch (error const& broken) {
        return {std::nullopt, broken.what()};
    }
#else
    return read();
#endif
}

SURELEAP_END_NAMESPACE

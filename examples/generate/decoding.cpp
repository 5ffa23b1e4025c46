// SPDX-License-Identifier: MIT
//
// Requests through the engine's server, and what they generated.
#include "decoding.hpp"

#include <algorithm>
#include <deque>
#include <utility>
#include <variant>

#include <sureleap/serving/constraint.hpp>

namespace generate {
namespace {

/// What the last round was for its request r.
round_seen round_of(engine::server<float> const& server, std::size_t r) {
    auto const& round = server.last_round();
    auto const& verdict = round.verdicts[r];
    auto const drafted = server.last_block().tokens(r);
    round_seen seen{.drafted = {drafted.begin(), drafted.end()},
                    .confidences = {},
                    .verified = verdict.verified,
                    .accepted = verdict.accepted,
                    .emitted = {verdict.emitted.begin(), verdict.emitted.end()},
                    .parents = {verdict.parents.begin(), verdict.parents.end()},
                    .path = {verdict.path.begin(), verdict.path.end()}};
    for (std::size_t k = 0; k < drafted.size(); ++k) {
        auto const c = round.survivals.at(r, k);
        seen.confidences.push_back(
            verdict.parents.empty() ? static_cast<double>(c.confidence) / static_cast<double>(sureleap::certain)
                                    : static_cast<double>(c.survival) / static_cast<double>(round.requests[r].weight));
    }
    return seen;
}

}  // namespace

decoding decode(method const& how, job const& what, engine::target<float>& target, engine::thread_pool& pool,
                watcher const& watch) {
    engine::server<float> server(target, how.drafter, how.draft, how.schedule, how.rule, pool, {},
                                 what.regex != nullptr);
    if (how.cost) server.correct(*how.cost);
    return decode(server, what, watch);
}

decoding decode(engine::server<float>& server, job const& what, watcher const& watch) {
    decoding done{.outputs = std::vector<std::vector<token_id>>(what.copies), .rounds = {}, .report = {}, .times = {}};
    std::vector<sureleap::request_id> ids;
    std::deque<sureleap::constraint<engine::token_regex::matcher>> constraints;  // requests refer to theirs
    for (std::size_t copy = 0; copy < what.copies; ++copy) {
        auto settings = what.settings;
        settings.seed = what.seed + copy;
        if (what.regex != nullptr) settings.constraint = constraints.emplace_back(what.regex->begin());
        ids.push_back(server.submit({what.prompt.begin(), what.prompt.end()}, settings));
    }
    std::vector<std::size_t> prefilled(what.copies);
    while (server.step()) {
        std::size_t const before = done.rounds.size();
        for (std::size_t r = 0; r < server.events().size(); ++r) {
            auto const& event = server.events()[r];
            auto const copy = static_cast<std::size_t>(std::find(ids.begin(), ids.end(), event.id) - ids.begin());
            if (event.outcome != sureleap::status::ok) {
                sureleap::fail_with("decoding stopped at token ", done.outputs[copy].size(), " of copy ", copy + 1,
                                    ": ", sureleap::to_string(event.outcome));
            }
            done.outputs[copy].insert(done.outputs[copy].end(), event.tokens.begin(), event.tokens.end());
            if (copy == 0) done.rounds.push_back(round_of(server, r));
        }
        done.prefilled = 0;
        for (std::size_t copy = 0; copy < what.copies; ++copy) {
            // The server forgets a request that is done.
            prefilled[copy] = std::max(prefilled[copy], server.prefilled(ids[copy]));
            done.prefilled += prefilled[copy];
        }
        done.report = server.report();
        done.times = server.times();
        watch(done, std::span(std::as_const(done.rounds)).subspan(before));
    }
    done.prefilled = what.copies * (what.prompt.size() - 1);  // also of one that was done before it could be asked
    return done;
}

bool is_reproducible(sureleap::request_settings const& settings, sureleap::any_rule const& rule) {
    return settings.target_transform().greedy() || rule.traits().guarantee == sureleap::fidelity::pathwise;
}

std::optional<difference> first_difference(decoding const& a, decoding const& b) {
    for (std::size_t copy = 0; copy < a.outputs.size(); ++copy) {
        auto const& x = a.outputs[copy];
        auto const& y = b.outputs[copy];
        auto const parting = std::mismatch(x.begin(), x.end(), y.begin(), y.end());
        if (parting.first != x.end() || parting.second != y.end()) {
            return difference{copy, static_cast<std::size_t>(parting.first - x.begin())};
        }
    }
    return std::nullopt;
}

}  // namespace generate

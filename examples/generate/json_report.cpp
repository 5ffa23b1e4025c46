// SPDX-License-Identifier: MIT
#include "json_report.hpp"

#include <nlohmann/json.hpp>

#include <engine/kernels.hpp>
#include <engine/text_file.hpp>

namespace generate {
namespace {

using nlohmann::ordered_json;

ordered_json to_json(model_facts const& model) {
    return {{"name", model.name},
            {"description", model.description},
            {"file_bytes", model.file_bytes},
            {"weight_bytes", model.weight_bytes}};
}

ordered_json to_json(options const& o) {
    auto const& s = o.settings;
    ordered_json json{{"schedule", o.schedule},
                      {"rule", o.rule},
                      {"temperature", s.temperature},
                      {"top_k", s.top_k},
                      {"top_p", s.top_p},
                      {"min_p", s.min_p},
                      {"seed", o.seed},
                      {"copies", o.copies},
                      {"max_new_tokens", s.max_new_tokens},
                      {"ignore_eos", o.ignore_eos},
                      {"arithmetic", arithmetic_name(o.bf16)}};
    if (o.shortlist > 0) {
        json["shortlist"] = {{"best", o.shortlist - o.listed_successors()}, {"successors", o.listed_successors()}};
    }
    if (s.max_draft_tokens != sureleap::request_settings{}.max_draft_tokens) json["max_draft"] = s.max_draft_tokens;
    return json;
}

ordered_json to_json(decoding const& run) {
    auto const& r = run.report;
    auto const& t = run.times;
    ordered_json positions = ordered_json::array();
    for (std::size_t k = 0; k < r.block_size(); ++k) {
        positions.push_back({{"reached", r.reached(k)}, {"acceptance", r.conditional_acceptance(k)}});
    }
    return {
        {"tokens_per_second", run.tokens_per_second()},
        {"tau", r.tau()},
        {"rounds", r.rounds()},
        {"target_calls", r.target_calls()},
        {"drafted", r.drafted()},
        {"verified", r.verified()},
        {"accepted", r.accepted()},
        {"emitted", r.emitted()},
        {"positions", std::move(positions)},
        {"prefilled", run.prefilled},
        {"seconds",
         {{"prefill", t.prefill}, {"draft", t.draft}, {"head", t.head}, {"verify", t.verify}, {"accept", t.accept}}},
        {"outputs", run.outputs}};
}

ordered_json to_json(engine::measured_cost const& cost) {
    ordered_json points = ordered_json::array();
    for (auto const& p : cost.curve().points()) {
        points.push_back({{"batch_tokens", p.batch_tokens}, {"seconds", p.seconds}});
    }
    auto const& draft = cost.draft();
    return {{"steps", points}, {"draft", {{"fixed", draft.fixed}, {"request", draft.request}, {"token", draft.token}}}};
}

}  // namespace

void write_json(options const& chosen, models const& loaded, std::vector<token_id> const& prompt,
                findings const& found) {
    ordered_json json{{"target", to_json(loaded.target_facts)}, {"draft", nullptr}};
    if (chosen.speculates()) {
        json["draft"] = to_json(loaded.draft_facts);
        json["draft"]["block_size"] = loaded.block_size();
    }
    json["settings"] = to_json(chosen);
    json["machine"] = {
        {"ranks", found.ranks}, {"threads", found.threads}, {"instruction_set", engine::instruction_set()}};
    json["prompt"] = prompt;
    if (found.cost) json["profile"] = to_json(*found.cost);
    if (found.speculative) json["speculative"] = to_json(*found.speculative);
    if (found.plain) json["plain"] = to_json(*found.plain);
    if (auto const ratio = found.ratio()) json["ratio"] = *ratio;
    if (found.comparable) json["identical"] = !found.parting();
    if (found.floor.bytes_per_second > 0) json["read_bytes_per_second"] = found.floor.bytes_per_second;
    // Names of folders are whatever the file system takes, JSON is UTF-8.
    engine::write_text(chosen.json, json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n");
}

}  // namespace generate

// SPDX-License-Identifier: MIT
#include "session.hpp"

#include <algorithm>

namespace evaluate {

using nlohmann::ordered_json;

void progress::update(double share) {
    status_.update([&] {
        double const done = (static_cast<double>(part_ - 1) + share) / static_cast<double>(parts_);
        double const elapsed = std::chrono::duration<double>(clock::now() - start_).count();
        std::string text = name_ + ", " + std::to_string(part_) + " of " + std::to_string(parts_) + " (" + what_ +
                           "): " + fixed(100 * share, 0) + " %";
        // The first moments say little about the rest.
        if (done > 0.01) {
            auto const left = static_cast<std::size_t>(elapsed * (1 - done) / done + 0.5);
            text += left >= 60 ? ", " + std::to_string(left / 60) + " min " + std::to_string(left % 60) + " s left"
                               : ", " + std::to_string(left) + " s left";
        }
        return text;
    });
}

std::vector<domain_counts> session::measure(contestant& who, decoding_settings const& how, progress& shown,
                                            run_totals* totals) const {
    struct place {
        std::size_t domain;
        std::size_t prompt;
    };
    std::vector<domain_counts> counts;
    std::vector<place> places;
    std::vector<text> texts;
    for (std::size_t d = 0; d < prompts.domains.size(); ++d) {
        domain const& from = prompts.domains[d];
        counts.emplace_back(from.name, from.prompts.size(), who.block_size());
        for (std::size_t i = 0; i < from.prompts.size(); ++i) {
            places.push_back({d, i});
            texts.push_back({from.prompts[i], text_seed(chosen.seed, d, i)});
        }
    }
    run_totals const took = run_texts(
        who, how, texts, pool,
        [&](round_outcome const& round) {
            auto const [d, i] = places[round.text];
            counts[d].add(i, round);
        },
        [&](std::size_t done) { shown.update(static_cast<double>(done) / static_cast<double>(texts.size())); });
    if (totals != nullptr) *totals = took;
    return counts;
}

std::vector<std::string> session::with_domains(std::vector<std::string> columns) const {
    for (domain const& d : prompts.domains) columns.push_back(d.name);
    columns.push_back("mean");
    return columns;
}

ordered_json to_json(std::vector<domain_counts> const& domains) {
    ordered_json all = ordered_json::array();
    for (domain_counts const& d : domains) all.push_back(d.to_json());
    return all;
}

ordered_json to_json(engine::phase_times const& t) {
    return {{"prefill", t.prefill}, {"draft", t.draft}, {"head", t.head}, {"verify", t.verify}, {"accept", t.accept}};
}

ordered_json to_json(contestant const& who) {
    ordered_json json{{"name", who.name},
                      {"folder", who.models.draft_facts.name},
                      {"description", who.models.draft_facts.description},
                      {"weight_bytes", who.models.draft_facts.weight_bytes},
                      {"block_size", who.block_size()}};
    if (who.max_draft) json["max_draft"] = *who.max_draft;
    if (who.config) {
        json["layers"] = who.layers;
        json["head"] = engine::name_of(who.config->head);
        json["rank"] = who.config->markov_rank;
        json["confidence"] = who.config->confidence;
    }
    return json;
}

}  // namespace evaluate

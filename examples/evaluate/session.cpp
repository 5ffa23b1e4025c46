// SPDX-License-Identifier: MIT
#include "session.hpp"

#include <algorithm>

#include <generate/schedule.hpp>
#include <terminal.hpp>

namespace evaluate {

using nlohmann::ordered_json;

namespace {

/// What rounds are measured under.
generate::options measured_options(options const& chosen, contestant const& who) {
    generate::options how;
    how.settings.temperature = chosen.sampling.temperature;
    how.settings.top_k = chosen.sampling.top_k;
    how.settings.top_p = chosen.sampling.top_p;
    how.settings.min_p = chosen.sampling.min_p;
    how.settings.max_draft_tokens = who.block_size();
    return how;
}

}  // namespace

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

decoding_settings session::settings_for(draft_source const& source, contestant& who,
                                        std::function<generate::pass_times()> const& passes) const {
    decoding_settings how = settings();
    how.schedule = generate::make_schedule(source.schedule, who.models.drafter, [&] {
        return how.cost.emplace(
            generate::measure_cost(who.models, measured_options(chosen, who), pool, status, passes()));
    });
    status.clear();
    return how;
}

generate::pass_times session::passes_of(contestant& who) const {
    return generate::measure_passes(who.models, measured_options(chosen, who), pool, status);
}

std::string session::sampling_in_words() const {
    auto const& p = chosen.sampling;
    if (p.greedy()) return "greedy";
    std::string text = "temperature " + terminal::plain(p.temperature);
    if (p.top_k > 0) text += ", top-k " + std::to_string(p.top_k);
    if (p.top_p < 1.0) text += ", top-p " + terminal::plain(p.top_p);
    if (p.min_p > 0.0) text += ", min-p " + terminal::plain(p.min_p);
    return text;
}

text_list session::texts(std::size_t pass) const {
    text_list out;
    for (std::size_t d = 0; d < prompts.domains.size(); ++d) {
        auto const& from = prompts.domains[d].prompts;
        for (std::size_t i = 0; i < from.size(); ++i) {
            out.places.push_back({d, i});
            out.texts.push_back({from[i], text_seed(chosen.seed, d, i, pass)});
        }
    }
    return out;
}

text_list session::texts_of_passes(std::size_t least) const {
    text_list out = texts();
    std::size_t const size = std::max(out.texts.size(), least);
    for (std::size_t pass = 1; out.texts.size() < size; ++pass) {
        text_list const more = texts(pass);
        out.texts.insert(out.texts.end(), more.texts.begin(), more.texts.end());
        out.places.insert(out.places.end(), more.places.begin(), more.places.end());
    }
    out.texts.resize(size);
    out.places.resize(size);
    return out;
}

std::vector<domain_counts> session::measure(contestant& who, decoding_settings const& how, progress& shown,
                                            run_totals* totals) const {
    std::vector<domain_counts> counts;
    for (domain const& d : prompts.domains) counts.emplace_back(d.name, d.prompts.size(), who.block_size());
    text_list const all = texts();
    run_totals const took = run_texts(
        who, how, all.texts, pool,
        [&](round_outcome const& round) {
            auto const [d, i] = all.places[round.text];
            counts[d].add(i, round);
        },
        [&](std::size_t done) { shown.update(static_cast<double>(done) / static_cast<double>(all.texts.size())); });
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
    if (who.joined) json["joined"] = true;
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

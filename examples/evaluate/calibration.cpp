// SPDX-License-Identifier: MIT
//
// Do confidences say how often drafts are accepted? Before and after sequential temperature scaling, as in Figure 6 of
// the paper, and in the situations where a scaling is needed: scores that are too sure of themselves, a sampling
// temperature the head was not trained for, and a domain that was not fitted on. Beside the paper's fit stand those
// that could take its place: temperatures by log loss, and Platt scaling.
//
// Prompts with an even number are fitted on, those with an odd one reported on. What a confidence predicts is the
// acceptance of token rejection, so that is the rule here whatever --rule says.
#include <array>
#include <cmath>
#include <utility>

#include <engine/text_file.hpp>
#include <terminal.hpp>

#include "confidence_study.hpp"
#include "session.hpp"

namespace evaluate {
namespace {

using sureleap::fail_with;

/// [domain][half]; half 0 is for the fit.
using halves = std::vector<std::array<confidence_rounds, 2>>;

confidence_rounds all_of(halves const& rounds, std::size_t half) {
    confidence_rounds all(rounds.front()[half].block_size());
    for (auto const& domain : rounds) all.append(domain[half]);
    return all;
}

/// Passes over the prompts, with other seeds each time, until both halves have enough. `record`: rounds, a line each.
halves collect(session const& s, contestant& who, double temperature, progress& shown_so_far,
               std::string* record = nullptr) {
    halves out;
    for (domain const& d : s.prompts.domains) {
        if (d.prompts.size() < 2) {
            fail_with("calibration: the domain '", d.name, "' has one prompt, expected at least 2, one for each half");
        }
        out.push_back({confidence_rounds(who.block_size()), confidence_rounds(who.block_size())});
    }
    auto how = s.settings();
    how.sampling.temperature = temperature;
    how.rule = sureleap::token_rejection<>{};
    std::array<std::size_t, 2> sizes{};
    for (std::size_t pass = 0; std::min(sizes[0], sizes[1]) < s.chosen.rounds; ++pass) {
        text_list const all = s.texts(pass);
        auto const before = sizes;
        run_texts(who, how, all.texts, s.pool, [&](round_outcome const& round) {
            auto const [d, i] = all.places[round.text];
            out[d][i % 2].add(round.confidences, round.accepted, round.observed);
            if (record != nullptr) {
                *record += nlohmann::ordered_json{{"text", pass * all.texts.size() + round.text},
                                                  {"position", round.position},
                                                  {"confidences", round.confidences.first(round.observed)},
                                                  {"accepted", round.accepted}}
                               .dump() +
                           "\n";
            }
            ++sizes[i % 2];
            shown_so_far.update(std::min(
                1.0, static_cast<double>(std::min(sizes[0], sizes[1])) / static_cast<double>(s.chosen.rounds)));
        });
        if (sizes[0] == before[0] || sizes[1] == before[1]) {
            fail_with("calibration: the texts end before a block is verified; expected longer ones, see --ignore-eos");
        }
    }
    return out;
}

struct mended {
    sureleap::sequential_scaling calibration;
    confidence_study after;
};

/// All fits of some rounds, judged on others that they have not seen.
struct scenario {
    std::string name;
    std::size_t fitted_on;
    confidence_study before;
    std::vector<mended> by{};  ///< [mending]

    [[nodiscard]] mended const& paper() const { return by.front(); }
};

scenario judge(std::string name, confidence_rounds const& fitting, confidence_rounds const& report,
               std::uint64_t seed) {
    scenario out{std::move(name), fitting.size(), study(report, untouched(report.block_size()), seed)};
    for (mending const how : all_mendings) {
        auto found = fit(how, fitting);
        auto after = study(report, found, seed);
        out.by.push_back({std::move(found), std::move(after)});
    }
    return out;
}

nlohmann::ordered_json to_json(confidence_study const& s) {
    nlohmann::ordered_json positions = nlohmann::ordered_json::array();
    for (position_study const& p : s.positions) {
        nlohmann::ordered_json bins = nlohmann::ordered_json::array();
        for (auto const& b : p.bins) bins.push_back({b.count, b.sum_predictions, b.sum_labels});
        positions.push_back({{"count", p.count},
                             {"survival", p.survival},
                             {"prediction", p.prediction},
                             {"ece", p.ece},
                             {"floor", p.floor},
                             {"auc", p.auc},
                             {"conditional_auc", p.conditional_auc},
                             {"bins", std::move(bins)}});
    }
    return {{"rounds", s.rounds}, {"ece", s.ece}, {"floor", s.floor}, {"auc", s.auc}, {"positions", positions}};
}

nlohmann::ordered_json to_json(scenario const& s) {
    nlohmann::ordered_json fits = nlohmann::ordered_json::array();
    for (mending const how : all_mendings) {
        mended const& m = s.by[static_cast<std::size_t>(how)];
        nlohmann::ordered_json temperatures, offsets;
        for (auto const& position : m.calibration.positions()) {
            temperatures.push_back(position.temperature);
            offsets.push_back(position.offset);
        }
        fits.push_back(
            {{"by", name_of(how)}, {"temperatures", temperatures}, {"offsets", offsets}, {"after", to_json(m.after)}});
    }
    return {{"name", s.name}, {"fit_rounds", s.fitted_on}, {"before", to_json(s.before)}, {"fits", fits}};
}

table by_position(scenario const& s) {
    table t{.title = "Survival by position, " + s.name + ": " + counted(s.fitted_on, "round") + " fitted on, " +
                     counted(s.before.rounds, "round") + " reported on",
            .header = {"position", "survived", "T", "ECE before", "after", "floor", "AUC before", "after",
                       "AUC of c where reached"}};
    bool bounded = false;
    auto const temperature = [&](double x) {
        // Where hardly a round gets, or a score says nothing, the best temperature is the last one that was tried.
        bool const at_end = x < 1.001 * fit_settings.lowest || x > 0.999 * fit_settings.highest;
        bounded = bounded || at_end;
        return shown(x, 2) + (at_end ? "*" : "");
    };
    auto const& [calibration, study_after] = s.paper();
    for (std::size_t k = 0; k < s.before.positions.size(); ++k) {
        auto const& before = s.before.positions[k];
        auto const& after = study_after.positions[k];
        t.add({std::to_string(k + 1), shown(after.survival, 3), temperature(calibration.positions()[k].temperature),
               percent(before.ece, 2), percent(after.ece, 2), percent(after.floor, 2), shown(before.auc, 3),
               shown(after.auc, 3), shown(after.conditional_auc, 3)});
    }
    t.add({"mean", "", "", percent(s.before.ece, 2), percent(study_after.ece, 2), percent(study_after.floor, 2),
           shown(s.before.auc, 3), shown(study_after.auc, 3), ""});
    if (bounded) t.notes.push_back("*: the end of the range that temperatures are looked for in.");
    return t;
}

table summary(contestant const& who, std::vector<scenario> const& all, std::uint64_t seed) {
    table t{.title = "ECE of the survivals of " + who.name + ", mean of the positions; and what is left of its excess",
            .header = {"situation", "fitted on", "reported on", "before", "floor"},
            .notes = {"Floor: the ECE of a perfect estimator with the predictions as they come, mean of " +
                          std::to_string(floor_repeats) + " draws, seed " + std::to_string(seed) + ".",
                      "Left: what is above its own floor after scaling, of what was before."}};
    for (mending const how : all_mendings) t.header.insert(t.header.end(), {name_of(how), "left"});
    for (scenario const& s : all) {
        std::vector<std::string> row{s.name, grouped(s.fitted_on), grouped(s.before.rounds), percent(s.before.ece, 2),
                                     percent(s.before.floor, 2)};
        for (mended const& m : s.by) {
            row.push_back(percent(m.after.ece, 2));
            row.push_back(s.before.excess() > 0 ? fixed(m.after.excess() / s.before.excess(), 2) : "-");
        }
        t.add(std::move(row));
    }
    return t;
}

/// In the config.json of a drafter's folder.
void store(sureleap::sequential_scaling const& fitted, std::filesystem::path const& folder) {
    auto const file = folder / "config.json";
    auto json = nlohmann::ordered_json::parse(engine::read_text(file));
    auto& temperatures = json["confidence_temperatures"] = nlohmann::ordered_json::array();
    for (auto const& position : fitted.positions()) temperatures.push_back(position.temperature);
    engine::write_text(file, json.dump(2));
}

/// Known temperatures put on top of the scores, and what a fit finds of them.
struct recovery {
    std::vector<double> known;
    std::vector<double> found{};     ///< by the fit on scaled scores, over the same fit on the scores as they are
    std::vector<double> disjoint{};  ///< the scores as they are fitted on the other half
};

recovery recover(std::vector<double> const& known, mended const& scaled, mended const& plain,
                 sureleap::sequential_scaling const& other_half) {
    recovery out{.known = known};
    for (std::size_t k = 0; k < known.size(); ++k) {
        double const t = scaled.calibration.positions()[k].temperature;
        out.found.push_back(t / plain.calibration.positions()[k].temperature);
        out.disjoint.push_back(t / other_half.positions()[k].temperature);
    }
    return out;
}

table describe(mending how, recovery const& r) {
    table t{.title = std::string("Known temperatures, recovered by ") + name_of(how),
            .header = {"position", "known", "found", "off by", "found, other half", "off by"},
            .notes = {"Found: the temperature fitted on the overconfident scores, over the one fitted on the scores as",
                      "they are, of the same rounds; other half: of the rounds that are reported on."}};
    for (std::size_t k = 0; k < r.known.size(); ++k) {
        t.add({std::to_string(k + 1), shown(r.known[k], 2), shown(r.found[k], 3), percent(r.found[k] / r.known[k] - 1),
               shown(r.disjoint[k], 3), percent(r.disjoint[k] / r.known[k] - 1)});
    }
    return t;
}

}  // namespace

section run_calibration(session const& s) {
    contestant who = s.load(s.chosen.closely(), s.chosen.batch);
    if (!engine::traits_of(who.models.drafter).has_confidence) {
        fail_with("calibration: ", who.name, " has no confidences; choose another drafter with --of");
    }
    if (who.joined) {
        fail_with("calibration: ", who.name,
                  " is joined with lookup, whose confidences are learned by match length and go past a calibration; "
                  "choose the model alone with --of");
    }
    if (s.chosen.store && !std::filesystem::is_directory(s.chosen.closely().path)) {
        fail_with("--store: ", s.chosen.closely().path,
                  " is no folder, expected one with a config.json; see to_gguf.py");
    }
    // What is fitted is the head's own confidence.
    if (who.models.draft != nullptr) who.models.draft->set_confidence_temperatures({});
    std::uint64_t const seed = s.chosen.seed;
    progress shown_so_far(s.status, "calibration", 2);
    auto const at = [](double temperature) { return "temperature " + terminal::plain(temperature); };

    shown_so_far.begin_part(at(s.chosen.sampling.temperature));
    std::string record;
    halves const usual =
        collect(s, who, s.chosen.sampling.temperature, shown_so_far, s.chosen.record.empty() ? nullptr : &record);
    if (!s.chosen.record.empty()) engine::write_text(s.chosen.record, record);
    confidence_rounds const fitting = all_of(usual, 0);
    confidence_rounds const report = all_of(usual, 1);
    std::vector<scenario> all{judge(at(s.chosen.sampling.temperature), fitting, report, seed)};
    if (s.chosen.store) store(all.front().paper().calibration, s.chosen.closely().path);

    std::vector<double> known;
    for (std::size_t k = 0; k < who.block_size(); ++k) known.push_back(s.chosen.sharper[k % s.chosen.sharper.size()]);
    all.push_back(judge("overconfident scores", fitting.scaled(known), report.scaled(known), seed));

    shown_so_far.begin_part(at(s.chosen.cooler));
    halves const cool = collect(s, who, s.chosen.cooler, shown_so_far);
    all.push_back(judge(at(s.chosen.cooler), all_of(cool, 0), all_of(cool, 1), seed));

    // A domain nobody has fitted on has no half to spare: all of its rounds are reported on.
    if (usual.size() > 1) {
        for (std::size_t held_out = 0; held_out < usual.size(); ++held_out) {
            confidence_rounds others(who.block_size()), its_own(who.block_size());
            for (std::size_t d = 0; d < usual.size(); ++d) {
                for (auto const& half : usual[d]) (d == held_out ? its_own : others).append(half);
            }
            all.push_back(judge(s.prompts.domains[held_out].name + " held out", others, its_own, seed));
        }
    }

    section out{.name = "calibration", .tables = {summary(who, all, seed)}};
    for (std::size_t i = 0; i < 3; ++i) out.tables.push_back(by_position(all[i]));
    out.counts["drafter"] = to_json(who);
    out.counts["bins"] = reliability_bins;
    out.counts["floor_seed"] = seed;
    out.counts["bin_columns"] = {"count", "sum_predictions", "sum_outcomes"};
    for (scenario const& one : all) out.counts["scenarios"].push_back(to_json(one));
    for (mending const how : {mending::temperatures, mending::temperatures_log_loss}) {
        auto const i = static_cast<std::size_t>(how);
        recovery const found = recover(known, all[1].by[i], all[0].by[i], fit(how, report));
        out.tables.push_back(describe(how, found));
        out.counts["recovery"].push_back(
            {{"by", name_of(how)}, {"known", found.known}, {"found", found.found}, {"other_half", found.disjoint}});
    }
    return out;
}

}  // namespace evaluate

// SPDX-License-Identifier: MIT
//
// Tokens a second, one text at a time, beside plain decoding.
//
// Machines drift by more than drafters differ: clocks, caches and neighbours change within seconds. So every prompt is
// decoded by all methods before the next one, each time beginning with another method. Sums over the same prompts are
// compared. Times exclude prefill and loading.
#include <algorithm>
#include <utility>
#include <vector>

#include <engine/read_floor.hpp>
#include <generate/profile.hpp>
#include <generate/schedule.hpp>
#include <terminal.hpp>

#include "session.hpp"

namespace evaluate {
namespace {

/// The one in the middle, which a hiccup of the machine does not move.
double median(std::vector<double> values) {
    auto const middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

/// One method on one text.
struct timing {
    double seconds = 0;
    std::uint64_t tokens = 0;
    std::uint64_t steps = 0;
    engine::phase_times times;
};

struct runner {
    contestant who;
    std::string schedule_name;
    engine::any_schedule schedule;
    std::vector<std::vector<timing>> texts{};  ///< [domain][prompt]

    [[nodiscard]] bool plain() const { return who.name == plain_decoding().name; }

    [[nodiscard]] std::vector<statistic> tokens_per_second() const {
        std::vector<statistic> all;
        for (auto const& domain : texts) {
            std::vector<contribution> parts;
            for (timing const& t : domain) parts.push_back({static_cast<double>(t.tokens), t.seconds});
            all.push_back(ratio_of_sums(parts));
        }
        all.push_back(mean_over_domains(all));
        return all;
    }
    [[nodiscard]] timing sum() const {
        timing all;
        for (auto const& domain : texts) {
            for (timing const& t : domain) {
                all.seconds += t.seconds;
                all.tokens += t.tokens;
                all.steps += t.steps;
                all.times.draft += t.times.draft;
                all.times.head += t.times.head;
                all.times.verify += t.times.verify;
                all.times.accept += t.times.accept;
            }
        }
        return all;
    }
    /// What a step takes, of the text in the middle.
    [[nodiscard]] double median_step(double engine::phase_times::* only = nullptr) const {
        std::vector<double> steps;
        for (auto const& domain : texts) {
            for (timing const& t : domain) {
                if (t.steps == 0) continue;
                steps.push_back((only == nullptr ? t.seconds : t.times.*only) / static_cast<double>(t.steps));
            }
        }
        if (steps.empty()) sureleap::fail_with("speed: nothing was decoded");
        return median(std::move(steps));
    }
};

std::vector<runner> load_all(session const& s) {
    std::vector<draft_source> sources{plain_decoding()};
    sources.insert(sources.end(), s.chosen.drafts.begin(), s.chosen.drafts.end());
    std::vector<runner> all;
    for (draft_source const& source : sources) {
        contestant who = s.load(source, 1);
        auto const measure = [&] {
            generate::options how;
            how.settings.temperature = s.chosen.temperature;
            how.settings.max_draft_tokens = who.block_size();
            return generate::measure_cost(who.models, how, s.pool, s.status);
        };
        auto schedule = generate::make_schedule(source.schedule, who.models.drafter, measure);
        s.status.clear();
        all.push_back({std::move(who), source.schedule, std::move(schedule)});
    }
    return all;
}

timing decode(session const& s, runner& with, double temperature, text const& what) {
    auto how = s.settings();
    how.temperature = temperature;
    how.schedule = with.schedule;
    auto const totals = run_texts(with.who, how, std::span(&what, 1), s.pool, [](round_outcome const&) {});
    return {totals.seconds, totals.emitted, totals.target_calls, totals.times};
}

void decode_all(session const& s, std::vector<runner>& all, double temperature, progress& shown_so_far) {
    std::size_t prompts = 0, done = 0;
    for (domain const& d : s.prompts.domains) prompts += d.prompts.size();
    for (runner& r : all) {
        r.texts.clear();
        for (domain const& d : s.prompts.domains) r.texts.emplace_back(d.prompts.size());
        // The first text of a method finds nothing of it in the caches.
        static_cast<void>(decode(s, r, temperature, {s.prompts.domains[0].prompts[0], s.chosen.seed}));
    }
    for (std::size_t d = 0; d < s.prompts.domains.size(); ++d) {
        auto const& from = s.prompts.domains[d].prompts;
        for (std::size_t i = 0; i < from.size(); ++i) {
            text const what{from[i], text_seed(s.chosen.seed, d, i)};
            for (std::size_t turn = 0; turn < all.size(); ++turn) {
                runner& r = all[(i + turn) % all.size()];
                r.texts[d][i] = decode(s, r, temperature, what);
            }
            shown_so_far.update(static_cast<double>(++done) / static_cast<double>(prompts));
        }
    }
}

// ---- what is shown ---------------------------------------------------------------------------------------------

std::string at(double temperature) {
    return temperature < 1e-5 ? "greedy" : "temperature " + terminal::plain(temperature);
}

table by_domain(session const& s, std::vector<runner> const& all, double temperature) {
    table t{.title = "Tokens a second, " + at(temperature), .header = s.with_domains({"method"})};
    if (s.chosen.bf16) t.notes.push_back("In bf16 arithmetic, plain decoding too.");
    for (runner const& r : all) {
        std::vector<std::string> row{r.who.name};
        for (statistic const& x : r.tokens_per_second()) row.push_back(shown(x, x.value() < 100 ? 1 : 0));
        t.add(std::move(row));
    }
    return t;
}

/// Of text after text, the ratio in the middle: what is left of the sums' ratio where a neighbour took the machine away.
double median_ratio(runner const& fast, runner const& plain) {
    std::vector<double> ratios;
    for (std::size_t d = 0; d < fast.texts.size(); ++d) {
        for (std::size_t i = 0; i < fast.texts[d].size(); ++i) {
            timing const& a = fast.texts[d][i];
            timing const& b = plain.texts[d][i];
            ratios.push_back(static_cast<double>(a.tokens) / a.seconds * b.seconds / static_cast<double>(b.tokens));
        }
    }
    return median(std::move(ratios));
}

table over_plain(session const& s, std::vector<runner> const& all, double temperature) {
    auto header = s.with_domains({"method"});
    header.push_back("median of texts");
    table t{.title = "Times plain decoding, " + at(temperature), .header = std::move(header)};
    auto const plain = all.front().tokens_per_second();
    for (runner const& r : all) {
        if (r.plain()) continue;
        std::vector<std::string> row{r.who.name};
        auto const fast = r.tokens_per_second();
        for (std::size_t i = 0; i < fast.size(); ++i) row.push_back(shown(quotient(fast[i], plain[i]), 2));
        row.push_back(shown(median_ratio(r, all.front()), 2));
        t.add(std::move(row));
    }
    return t;
}

table by_phase(std::vector<runner> const& all, double temperature) {
    table t{.title = "A round in parts, " + at(temperature),
            .header = {"method", "block", "schedule", "tokens a round", "round", "draft", "sequential loop", "verify",
                       "schedule, accept"}};
    for (runner const& r : all) {
        timing const sum = r.sum();
        auto const steps = static_cast<double>(sum.steps);
        auto const part = [&](double seconds) {
            return seconds > 0 ? in_time(seconds / steps) + " " + percent(seconds / sum.times.decode()) : "-";
        };
        t.add({r.who.name, r.plain() ? "-" : r.who.block_in_words(), r.plain() ? "-" : r.schedule_name,
               fixed(static_cast<double>(sum.tokens) / steps, 2), in_time(sum.seconds / steps),
               r.plain() ? "-" : part(sum.times.draft), r.plain() ? "-" : part(sum.times.head), part(sum.times.verify),
               part(sum.times.accept)});
    }
    t.notes.push_back(
        "Tokens a round: first rounds, which are plain, included. Sequential loop: biases, confidences and");
    t.notes.push_back("draws; without a head the draws alone.");
    return t;
}

/// How near plain decoding comes to reading the weights, which is all it must do.
struct floor_share {
    std::size_t weight_bytes = 0;
    engine::read_floor floor;
    double plain = 0;   ///< bytes of weights a second, of a whole step
    double target = 0;  ///< of the target's pass in it
};

floor_share measure_floor(session const& s, runner const& plain) {
    std::size_t const bytes = plain.who.models.target_facts.weight_bytes;
    auto const rate = [&](double seconds) { return static_cast<double>(bytes) / seconds; };
    return {bytes, engine::measure_read_floor(s.pool, bytes), rate(plain.median_step()),
            rate(plain.median_step(&engine::phase_times::verify))};
}

table describe(floor_share const& f, double temperature) {
    table t{.title = "Weights read by plain decoding, " + at(temperature) + ": " + in_bytes(f.weight_bytes) + " a step",
            .header = {"", "GB/s", "of the floor"}};
    double const floor = f.floor.bytes_per_second;
    t.add({"reading a buffer of " + in_bytes(f.floor.bytes), rounded(1e-9 * floor), ""});
    t.add({"the target's pass", rounded(1e-9 * f.target), percent(f.target / floor, 0)});
    t.add({"the whole step", rounded(1e-9 * f.plain), percent(f.plain / floor, 0)});
    t.notes.push_back("Median over texts; the buffer: best of many passes by the same threads.");
    return t;
}

nlohmann::ordered_json to_json(session const& s, runner const& r) {
    nlohmann::ordered_json json{{"drafter", evaluate::to_json(r.who)},
                                {"schedule", r.schedule_name},
                                {"seconds", evaluate::to_json(r.sum().times)}};
    for (std::size_t d = 0; d < r.texts.size(); ++d) {
        nlohmann::ordered_json texts = nlohmann::ordered_json::array();
        for (timing const& t : r.texts[d]) texts.push_back({t.tokens, t.seconds, t.steps, t.times.head});
        json["domains"].push_back({{"domain", s.prompts.domains[d].name}, {"texts", std::move(texts)}});
    }
    return json;
}

}  // namespace

section run_speed(session const& s) {
    std::vector<runner> all = load_all(s);
    std::vector<double> temperatures{s.chosen.temperature};
    if (s.chosen.temperature > 1e-5) temperatures.push_back(0.0);
    section out{.name = "speed", .counts = {{"columns", {"tokens", "seconds", "steps", "head_seconds"}}}};
    progress shown_so_far(s.status, "speed", temperatures.size());
    for (double const temperature : temperatures) {
        shown_so_far.begin_part(at(temperature));
        decode_all(s, all, temperature, shown_so_far);
        floor_share const floor = measure_floor(s, all.front());
        out.tables.push_back(by_domain(s, all, temperature));
        out.tables.push_back(over_plain(s, all, temperature));
        out.tables.push_back(by_phase(all, temperature));
        out.tables.push_back(describe(floor, temperature));
        nlohmann::ordered_json run{{"temperature", temperature},
                                   {"floor",
                                    {{"bytes", floor.weight_bytes},
                                     {"read", floor.floor.bytes_per_second},
                                     {"plain_step", floor.plain},
                                     {"target_pass", floor.target}}}};
        for (runner const& r : all) run["methods"].push_back(to_json(s, r));
        out.counts["runs"].push_back(std::move(run));
    }
    return out;
}

}  // namespace evaluate

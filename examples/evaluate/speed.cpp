// SPDX-License-Identifier: MIT
//
// Tokens a second, one text at a time, beside plain decoding.
//
// Machines drift by more than drafters differ: clocks, caches and neighbours change within seconds. So every text is
// decoded by all methods before the next one, each time beginning with another method, and all of that several times;
// the run in the middle counts. Sums over the same texts are compared. Times exclude prefill and loading.
//
// A server stays up from text to text, and what its schedule and its drafter learn stays with it. With --fresh every
// text meets a server that has learned nothing.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <engine/read_floor.hpp>
#include <terminal.hpp>

#include "acceptance.hpp"
#include "outputs.hpp"
#include "session.hpp"
#include "timing.hpp"

namespace evaluate {
namespace {

/// Shorter texts have no say in which is the worst: their time cannot be told from chance.
constexpr std::size_t least_tokens = 100;

struct runner {
    contestant who;
    std::string schedule_name;
    decoding_settings how;
    engine::any_drafter<float> untaught;  ///< the drafter before its first text
    drafter_counts counts;
    bool stored = false;     ///< what it wrote in this run of the texts is there for the texts that follow
    std::size_t parted = 0;  ///< outputs that leave plain decoding's, where the target's rows depend on the batch
    std::unique_ptr<text_server> server{};
    std::vector<text_timings> runs{};
    text_timings texts{};  ///< the median run of each
};

runner load_runner(session const& s, draft_source const& source) {
    contestant who = s.load(source, 1);
    drafter_counts counts{who.name, {}};
    for (domain const& d : s.prompts.domains) {
        counts.domains.emplace_back(d.name, d.prompts.size(), who.models.block_size());
    }
    auto untaught = who.models.drafter;
    return {std::move(who), source.schedule, s.settings(), std::move(untaught), std::move(counts), source.stored};
}

/// Gives all their schedules. Those that go by costs have the same times of the target's pass: that of the longest
/// drafts.
void schedule_all(session const& s, std::span<draft_source const> sources, std::vector<runner>& all) {
    auto const longest = std::ranges::max_element(all, {}, [](runner const& r) { return r.who.block_size(); });
    std::optional<generate::pass_times> passes;
    auto const once = [&] {
        if (!passes) passes = s.passes_of(longest->who);
        return *passes;
    };
    for (std::size_t i = 0; i < all.size(); ++i) all[i].how = s.settings_for(sources[i], all[i].who, once);
}

/// The output. Time and counts go to the runner, if they are wanted.
std::vector<token_id> decode(session const& s, runner& with, text const& what, text_list::place at, timing* time) {
    if (!with.server || s.chosen.fresh) {
        replace(with.who.models.drafter, with.untaught);
        if (with.how.cost) with.how.cost->forget();
        with.server = std::make_unique<text_server>(with.who, with.how, s.pool);
    }
    auto const count = [&](round_outcome const& round) { with.counts.domains[at.domain].add(at.prompt, round); };
    auto done = (*with.server)(std::span(&what, 1), time != nullptr ? round_observer(count) : ignore_round);
    if (time != nullptr) *time = {done.all.seconds, done.all.emitted, done.target_calls, done.times};
    return std::move(done.outputs.front());
}

/// A text that is done, for the texts that follow.
void store(runner& of, std::span<token_id const> prompt, std::span<token_id const> output) {
    std::vector<token_id> whole(prompt.begin(), prompt.end());
    whole.insert(whole.end(), output.begin(), output.end());
    of.who.models.texts->add(0, whole);
}

/// Fails at the first token that is not plain decoding's, where it must be. The first runner is plain decoding.
void decode_all(session const& s, std::vector<runner>& all, bool compare) {
    text_list const list = s.texts();
    text_timings empty;
    for (domain const& d : s.prompts.domains) empty.emplace_back(d.prompts.size());
    // The first text of a method finds nothing of it in the caches.
    for (runner& r : all) static_cast<void>(decode(s, r, list.texts[0], list.places[0], nullptr));
    std::vector<std::vector<token_id>> expected(list.texts.size());
    progress shown_so_far(s.status, "speed", s.chosen.repeats);
    for (std::size_t run = 0; run < s.chosen.repeats; ++run) {
        shown_so_far.begin_part("runs");
        for (runner& r : all) {
            r.runs.push_back(empty);
            r.who.models.texts->forget(0);
        }
        for (std::size_t i = 0; i < list.texts.size(); ++i) {
            auto const at = list.places[i];
            std::vector<std::vector<token_id>> outputs(all.size());
            for (std::size_t turn = 0; turn < all.size(); ++turn) {
                std::size_t const m = (i + run + turn) % all.size();
                outputs[m] = decode(s, all[m], list.texts[i], at, &all[m].runs[run][at.domain][at.prompt]);
                if (all[m].stored) store(all[m], list.texts[i].prompt, outputs[m]);
            }
            if (run == 0) expected[i] = outputs.front();
            for (std::size_t m = 0; compare && m < all.size(); ++m) {
                if (all[m].who.models.target->rows_depend_on_batch()) {
                    if (parting(outputs[m], expected[i], s.chosen.tokens)) ++all[m].parted;
                    continue;
                }
                expect_same(all[m].who.name, std::span(&outputs[m], 1), std::span(&expected[i], 1), s.chosen.tokens,
                            [&](std::size_t) { return "speed: text " + s.name_of(at); });
            }
            shown_so_far.update(static_cast<double>(i + 1) / static_cast<double>(list.texts.size()));
        }
    }
    for (runner& r : all) r.texts = median_runs(r.runs);
}

// ---- figures ---------------------------------------------------------------------------------------------------

/// By domain.
std::vector<statistic> tokens_per_second(text_timings const& texts) {
    std::vector<statistic> all;
    for (auto const& domain : texts) {
        std::vector<contribution> parts;
        for (timing const& t : domain) parts.push_back({static_cast<double>(t.tokens), t.seconds});
        all.push_back(ratio_of_sums(parts));
    }
    return all;
}

/// By domain, and their mean.
std::vector<statistic> over_plain(text_timings const& fast, text_timings const& plain) {
    auto const over = tokens_per_second(fast);
    auto const under = tokens_per_second(plain);
    std::vector<statistic> all;
    for (std::size_t d = 0; d < over.size(); ++d) all.push_back(quotient(over[d], under[d]));
    all.push_back(mean_over_domains(all));
    return all;
}

/// The mean ratio of every run.
std::vector<double> by_run(runner const& fast, runner const& plain) {
    std::vector<double> all;
    for (std::size_t run = 0; run < fast.runs.size(); ++run) {
        all.push_back(over_plain(fast.runs[run], plain.runs[run]).back().value());
    }
    return all;
}

timing sum(text_timings const& texts) {
    timing all;
    for (auto const& domain : texts) {
        for (timing const& t : domain) {
            all.seconds += t.seconds;
            all.tokens += t.tokens;
            all.steps += t.steps;
            all.times = added(all.times, t.times);
        }
    }
    return all;
}

/// What a step takes, of the text in the middle.
double median_step(text_timings const& texts, double engine::phase_times::* only = nullptr) {
    std::vector<double> steps;
    for (auto const& domain : texts) {
        for (timing const& t : domain) {
            steps.push_back((only == nullptr ? t.seconds : t.times.*only) / static_cast<double>(t.steps));
        }
    }
    return median(std::move(steps));
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
    return {bytes, engine::measure_read_floor(s.pool, bytes), rate(median_step(plain.texts)),
            rate(median_step(plain.texts, &engine::phase_times::verify))};
}

// ---- what is shown ---------------------------------------------------------------------------------------------

table by_domain(session const& s, std::vector<runner> const& all) {
    table t{.title = "Tokens a second, " + s.sampling_in_words() + ", rule " + s.chosen.rule,
            .header = s.with_domains({"method"}),
            .notes = {"Of each text the median of " + counted(s.chosen.repeats, "run") +
                      "; prompts and loading left out."}};
    if (s.chosen.bf16) t.notes.push_back("In bf16 arithmetic, plain decoding too.");
    for (runner const& r : all) {
        auto figures = tokens_per_second(r.texts);
        figures.push_back(mean_over_domains(figures));
        std::vector<std::string> row{r.who.name};
        for (statistic const& x : figures) row.push_back(shown(x, x.value() < 100 ? 1 : 0));
        t.add(std::move(row));
    }
    return t;
}

table ratios(session const& s, std::vector<runner> const& all, bool compared) {
    auto header = s.with_domains({"method"});
    header.insert(header.end(), {"runs", "worst text", "which"});
    table t{
        .title = "Times plain decoding, " + s.sampling_in_words() + ", rule " + s.chosen.rule,
        .header = std::move(header),
        .notes = {"Mean: of the domains' ratios. Runs: the lowest and the highest mean of a single run. Worst text:",
                  "of those of " + grouped(least_tokens) + " tokens and more, the lowest ratio of their median runs."}};
    if (!compared) {
        t.notes.push_back("Outputs were not compared: with this rule they have plain decoding's law, not its tokens.");
    } else if (!all.front().who.models.target->rows_depend_on_batch()) {
        t.notes.push_back("All outputs of all runs are plain decoding's, token by token.");
    } else {
        std::string parted;
        for (runner const& r : all) parted += (parted.empty() ? "" : ", ") + r.who.name + " " + grouped(r.parted);
        t.notes.push_back(
            "Rows of this target depend on the batch. Outputs that leave plain decoding's first run: " + parted + ".");
    }
    runner const& plain = all.front();
    for (runner const& r : all) {
        if (&r == &plain) continue;
        std::vector<std::string> row{r.who.name};
        for (statistic const& x : over_plain(r.texts, plain.texts)) row.push_back(shown(x, 2));
        auto const runs = by_run(r, plain);
        auto const [low, high] = std::minmax_element(runs.begin(), runs.end());
        row.push_back(fixed(*low, 2) + " .. " + fixed(*high, 2));
        auto const slow = worst(text_ratios(r.texts, plain.texts, least_tokens));
        row.push_back(slow ? fixed(slow->ratio, 3) : "-");
        row.push_back(slow ? s.name_of({slow->domain, slow->text}) : "-");
        t.add(std::move(row));
    }
    return t;
}

table by_phase(std::vector<runner> const& all) {
    table t{
        .title = "A round in parts",
        .header = {"method", "block", "schedule", "rows", "round", "draft", "sequential loop", "verify",
                   "schedule, accept", "library's share"},
        .notes = {"Rows: verified in a round, the anchor's included. Sequential loop: biases, confidences and draws;",
                  "without a head the draws alone. The library's share: that, schedule and acceptance."}};
    for (runner const& r : all) {
        timing const total = sum(r.texts);
        auto const steps = static_cast<double>(total.steps);
        auto const part = [&](double seconds) {
            return seconds > 0 ? in_time(seconds / steps) + " " + percent(seconds / total.times.decode()) : "-";
        };
        auto const rows = with_mean(r.counts.domains, [](domain_counts const& d) { return d.verified_a_round(); });
        t.add({r.who.name, r.who.drafts() ? r.who.block_in_words() : "-", r.who.drafts() ? r.schedule_name : "-",
               shown(1 + rows.back().value(), 2), in_time(total.seconds / steps), part(total.times.draft),
               part(total.times.head), part(total.times.verify), part(total.times.accept),
               percent((total.times.head + total.times.accept) / total.times.decode())});
    }
    return t;
}

table describe(floor_share const& f) {
    table t{.title = "Weights read by plain decoding: " + in_bytes(f.weight_bytes) + " a step",
            .header = {"", "GB/s", "of the floor", "time over the floor's"}};
    double const floor = f.floor.bytes_per_second;
    t.add({"reading a buffer of " + in_bytes(f.floor.bytes), rounded(1e-9 * floor), "", ""});
    t.add({"the target's pass", rounded(1e-9 * f.target), percent(f.target / floor, 0), fixed(floor / f.target, 2)});
    t.add({"the whole step", rounded(1e-9 * f.plain), percent(f.plain / floor, 0), fixed(floor / f.plain, 2)});
    t.notes.push_back("Median over texts; the buffer: best of many passes by the same threads.");
    return t;
}

nlohmann::ordered_json to_json(session const& s, runner const& r, runner const& plain) {
    nlohmann::ordered_json json{{"drafter", evaluate::to_json(r.who)},
                                {"schedule", r.schedule_name},
                                {"seconds", evaluate::to_json(sum(r.texts).times)},
                                {"mean_over_plain_by_run", by_run(r, plain)},
                                {"counts", evaluate::to_json(r.counts.domains)}};
    if (auto const slow = worst(text_ratios(r.texts, plain.texts, least_tokens))) {
        json["worst_text"] = {{"text", s.name_of({slow->domain, slow->text})}, {"ratio", slow->ratio}};
    }
    for (std::size_t d = 0; d < r.texts.size(); ++d) {
        nlohmann::ordered_json texts = nlohmann::ordered_json::array();
        for (timing const& t : r.texts[d]) texts.push_back({t.tokens, t.seconds, t.steps, t.times.head});
        json["domains"].push_back({{"domain", s.prompts.domains[d].name}, {"texts", std::move(texts)}});
    }
    return json;
}

}  // namespace

section run_speed(session const& s) {
    std::vector<draft_source> sources{plain_decoding()};
    sources.insert(sources.end(), s.chosen.drafts.begin(), s.chosen.drafts.end());
    std::vector<runner> all;
    for (draft_source const& source : sources) all.push_back(load_runner(s, source));
    schedule_all(s, sources, all);
    bool const compare = is_reproducible(s.chosen.sampling, engine::make_rule(s.chosen.rule));
    decode_all(s, all, compare);
    floor_share const floor = measure_floor(s, all.front());

    section out{.name = "speed",
                .counts = {{"columns", {"tokens", "seconds", "steps", "head_seconds"}},
                           {"count_columns", domain_counts::columns()},
                           {"compared", compare},
                           {"floor",
                            {{"bytes", floor.weight_bytes},
                             {"read", floor.floor.bytes_per_second},
                             {"plain_step", floor.plain},
                             {"target_pass", floor.target}}}},
                .tables = {by_domain(s, all), ratios(s, all, compare)}};
    std::vector<drafter_counts> counts;
    for (runner const& r : all) {
        out.counts["methods"].push_back(to_json(s, r, all.front()));
        if (r.who.drafts()) counts.push_back(r.counts);
    }
    out.tables.push_back(tau_by_domain(s, counts));
    out.tables.push_back(mean_acceptance_by_position(counts));
    out.tables.push_back(by_phase(all));
    out.tables.push_back(describe(floor));
    return out;
}

}  // namespace evaluate

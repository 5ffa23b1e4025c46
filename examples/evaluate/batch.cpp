// SPDX-License-Identifier: MIT
//
// Tokens a second of several requests at once: a drafter with its schedule beside plain decoding and beside every fixed
// draft length, which is what a user without a schedule would try by hand.
//
// Only rounds in which all places decode are counted: a batch that runs empty at the end is another load. Where there
// are fewer prompts than three times the places, they are decoded again with other seeds.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "outputs.hpp"
#include "session.hpp"
#include "timing.hpp"

namespace evaluate {
namespace {

struct method {
    std::string name;
    std::unique_ptr<text_server> server;
    std::vector<double> tokens_per_second{};  ///< by run

    [[nodiscard]] double middle() const { return median(tokens_per_second); }
};

/// All methods of one load. Of one drafter: it is loaded twice, since the schedule must not profit from what a drafter
/// learns (with_lookup does) while others use it.
struct load {
    std::size_t at_once;
    contestant plain, fixed, scheduled;
    std::vector<method> methods{};  ///< plain, the fixed lengths, the schedule

    load(session const& s, std::size_t n)
        : at_once(n),
          plain(s.load(plain_decoding(), n)),
          fixed(s.load(s.chosen.closely(), n)),
          scheduled(s.load(s.chosen.closely(), n)) {
        auto how = s.settings();
        auto const add = [&](std::string name, contestant& who) {
            methods.push_back({std::move(name), std::make_unique<text_server>(who, how, s.pool)});
        };
        add("plain", plain);
        for (std::size_t length = 1; length <= fixed.block_size(); ++length) {
            how.max_draft = length;
            add(grouped(length), fixed);
        }
        how = s.settings_for(s.chosen.closely(), scheduled);
        add(s.chosen.closely().schedule, scheduled);
    }
    load(load const&) = delete;
    load& operator=(load const&) = delete;

    [[nodiscard]] method const& schedule() const { return methods.back(); }
    [[nodiscard]] method const& best_of_the_others() const {
        return *std::max_element(methods.begin(), methods.end() - 1,
                                 [](method const& a, method const& b) { return a.middle() < b.middle(); });
    }
};

/// `expected` grows with the loads: a text is the same in all of them.
void decode_all(session const& s, load& all, std::vector<std::vector<token_id>>& expected, bool compare,
                progress& shown_so_far) {
    text_list const list = s.texts_of_passes(3 * all.at_once);
    shown_so_far.begin_part(grouped(all.at_once) + " at once");
    std::size_t const passes = s.chosen.repeats * all.methods.size();
    for (std::size_t pass = 0; pass < passes; ++pass) {
        std::size_t const run = pass / all.methods.size();
        // The first pass of all is plain decoding's, which knows what the others must give.
        method& m = all.methods[(run + pass) % all.methods.size()];
        auto const done = (*m.server)(list.texts, ignore_round, [&](std::size_t texts) {
            shown_so_far.update(
                (static_cast<double>(pass) + static_cast<double>(texts) / static_cast<double>(list.texts.size())) /
                static_cast<double>(passes));
        });
        if (pass == 0) {
            for (std::size_t i = expected.size(); i < done.outputs.size(); ++i) expected.push_back(done.outputs[i]);
        }
        if (compare) {
            expect_same(m.name, done.outputs, expected, s.chosen.tokens, [&](std::size_t i) {
                return "batch, " + grouped(all.at_once) + " at once: text " + s.name_of(list.places[i]);
            });
        }
        if (done.full.emitted == 0) {
            sureleap::fail_with("batch: there was no round of ", all.at_once, " requests, expected longer texts");
        }
        m.tokens_per_second.push_back(static_cast<double>(done.full.emitted) / done.full.seconds);
    }
}

}  // namespace

section run_batch(session const& s) {
    bool const compare = is_reproducible(s.chosen.sampling, engine::make_rule(s.chosen.rule)) &&
                         !s.load(plain_decoding(), 1).models.target->rows_depend_on_batch();
    section out{.name = "batch", .counts = {{"compared", compare}, {"schedule", s.chosen.closely().schedule}}};
    table t{.title = "Tokens a second of " + s.chosen.of + " by requests at once, " + s.sampling_in_words() +
                     ", rule " + s.chosen.rule,
            .header = {}};
    t.notes = {"Plain decoding, fixed draft lengths, and the schedule; medians of " + counted(s.chosen.repeats, "run") +
                   ", rounds in which all places decode.",
               compare ? "All outputs are plain decoding's, token by token." : "Outputs were not compared."};
    std::vector<std::vector<token_id>> expected;
    progress shown_so_far(s.status, "batch", s.chosen.at_once.size());
    for (std::size_t const at_once : s.chosen.at_once) {
        load all(s, at_once);
        decode_all(s, all, expected, compare, shown_so_far);
        if (t.header.empty()) {
            t.header.push_back("at once");
            for (method const& m : all.methods) t.header.push_back(m.name);
            t.header.insert(t.header.end(), {"best of the others", "schedule over it", "over plain"});
        }
        method const& best = all.best_of_the_others();
        double const schedule = all.schedule().middle();
        std::vector<std::string> row{grouped(at_once)};
        nlohmann::ordered_json methods;
        for (method const& m : all.methods) {
            row.push_back(fixed(m.middle(), 0));
            methods.push_back({{"name", m.name}, {"tokens_per_second", m.tokens_per_second}});
        }
        row.insert(row.end(),
                   {best.name, fixed(schedule / best.middle(), 3), fixed(schedule / all.methods.front().middle(), 2)});
        t.add(std::move(row));
        out.counts["loads"].push_back({{"at_once", at_once}, {"methods", std::move(methods)}});
    }
    out.tables.push_back(std::move(t));
    return out;
}

}  // namespace evaluate

// SPDX-License-Identifier: MIT
//
// Are the tokens plain decoding's, under a rule that promises it? Every drafter decodes every text, alone and several
// at once. Each output is compared with plain decoding of that text alone.
#include <utility>

#include "outputs.hpp"
#include "session.hpp"

namespace evaluate {

section run_equality(session const& s) {
    if (!is_reproducible(s.chosen.sampling, engine::make_rule(s.chosen.rule))) {
        sureleap::fail_with("equality: rule ", s.chosen.rule,
                            " keeps plain decoding's law, not its tokens; expected --rule coupled or --temperature 0");
    }
    std::vector<draft_source> sources{plain_decoding()};
    sources.insert(sources.end(), s.chosen.drafts.begin(), s.chosen.drafts.end());
    text_list const list = s.texts();
    auto const decode = [&](draft_source const& source, std::size_t at_once, progress& shown_so_far) {
        contestant who = s.load(source, at_once);
        shown_so_far.begin_part(who.name + ", " + grouped(at_once) + " at once");
        auto const how = s.settings_for(source, who);
        return run_texts(who, how, list.texts, s.pool, ignore_round, [&](std::size_t done) {
            shown_so_far.update(static_cast<double>(done) / static_cast<double>(list.texts.size()));
        });
    };
    progress shown_so_far(s.status, "equality", 1 + sources.size() * s.chosen.at_once.size());
    auto const expected = decode(plain_decoding(), 1, shown_so_far).outputs;
    std::size_t tokens = 0;
    for (auto const& output : expected) tokens += std::min(output.size(), s.chosen.tokens);

    section out{.name = "equality", .counts = {{"texts", list.texts.size()}, {"tokens", tokens}}};
    table t{.title = "Outputs against plain decoding of one text at a time, " + s.sampling_in_words() + ", rule " +
                     s.chosen.rule,
            .header = {"method", "at once", "texts", "tokens", "that differ"}};
    for (draft_source const& source : sources) {
        for (std::size_t const at_once : s.chosen.at_once) {
            auto const done = decode(source, at_once, shown_so_far);
            expect_same(source.name, done.outputs, expected, s.chosen.tokens, [&](std::size_t i) {
                return "equality, " + grouped(at_once) + " at once: text " + s.name_of(list.places[i]);
            });
            t.add({source.name, grouped(at_once), grouped(list.texts.size()), grouped(tokens), "0"});
            out.counts["equal"].push_back({{"method", source.name}, {"at_once", at_once}});
        }
    }
    out.tables.push_back(std::move(t));
    return out;
}

}  // namespace evaluate

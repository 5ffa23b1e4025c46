// SPDX-License-Identifier: MIT
//
// How well the target predicts given texts: exp of the mean of -log p(token | those before), by domain. The prompts are
// the texts, and no drafter takes part.
//
// Weights of few bits, and activations rounded for them, make a model worse by an amount that no test of single numbers
// shows. Perplexity shows it, against another program with the same weights and the same tokens (compare_llama_cpp.py).
#include <cmath>
#include <utility>

#include "one_text.hpp"
#include "session.hpp"

namespace evaluate {

section run_perplexity(session const& s) {
    contestant who = s.load(plain_decoding(), 1);
    one_text text(*who.models.target);
    section out{.name = "perplexity"};
    table t{.title = "Perplexity of the prompts",
            .header = {"domain", "texts", "tokens", "nats a token", "perplexity"}};
    std::vector<contribution> all;
    auto const add_row = [&](std::string name, std::vector<contribution> const& texts) {
        double predicted = 0;
        for (contribution const& c : texts) predicted += c.under;
        double const mean = ratio_of_sums(texts).value();
        t.add({std::move(name), grouped(texts.size()), grouped(static_cast<std::size_t>(predicted)), shown(mean, 4),
               shown(std::exp(mean), 3)});
    };
    progress shown_so_far(s.status, "perplexity", s.prompts.domains.size());
    for (domain const& d : s.prompts.domains) {
        shown_so_far.begin_part(d.name);
        std::vector<contribution> texts;
        nlohmann::ordered_json counts = nlohmann::ordered_json::array();
        for (auto const& tokens : d.prompts) {
            if (tokens.size() < 2) sureleap::fail_with("perplexity: a text of '", d.name, "' has 1 token, expected 2");
            texts.push_back({nats_of(text, tokens), static_cast<double>(tokens.size() - 1)});
            counts.push_back({{"nats", texts.back().over}, {"tokens", tokens}});
            shown_so_far.update(static_cast<double>(texts.size()) / static_cast<double>(d.prompts.size()));
        }
        add_row(d.name, texts);
        all.insert(all.end(), texts.begin(), texts.end());
        out.counts["domains"].push_back({{"domain", d.name}, {"texts", std::move(counts)}});
    }
    if (s.prompts.domains.size() > 1) add_row("all", all);
    out.tables.push_back(std::move(t));
    return out;
}

}  // namespace evaluate

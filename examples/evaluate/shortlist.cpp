// SPDX-License-Identifier: MIT
//
// What tau loses if q is confined to a shortlist of M tokens: token rejection, whole blocks.
#include <algorithm>
#include <optional>
#include <utility>

#include <engine/dspark.hpp>
#include <generate/loading.hpp>

#include "session.hpp"

namespace evaluate {
namespace {

/// What q may choose from.
struct shortlist {
    std::size_t base = 0;        ///< tokens by base logits
    std::size_t successors = 0;  ///< tokens by the bias; may be the same ones
};

}  // namespace

using sureleap::fail_with;

section run_shortlist(session const& s) {
    contestant who = s.load(s.chosen.closely(), s.chosen.batch);
    bool const is_model = dynamic_cast<engine::dspark<float>*>(who.models.draft.get()) != nullptr;
    if (!is_model || who.joined || s.chosen.closely().zero_bias) {
        fail_with("shortlist: ", who.name, " is no DSpark or DFlash model alone; choose another drafter with --of");
    }
    std::size_t const V = who.models.target->vocabulary();
    std::vector<shortlist> lists{{V, 0}};
    for (std::size_t const m : s.chosen.shortlists) {
        if (m >= V) continue;
        lists.push_back({m, 0});
        bool const has_successors =
            who.config->head != engine::head_kind::none && who.config->head != engine::head_kind::domino;
        if (has_successors && m >= 4) lists.push_back({m - m / 4, m / 4});
        if (has_successors && m >= 2) lists.push_back({m - m / 2, m / 2});
    }

    section out{.name = "shortlist", .counts = {{"columns", domain_counts::columns()}}};
    out.counts["drafter"] = to_json(who);
    auto header = s.with_domains({"tokens drawn from"});
    header.push_back("of all, mean");
    table t{.title = "tau of " + who.name + " with q on a shortlist, token rejection",
            .header = std::move(header),
            .notes = {"a + b: the a best by base logits, and the b best successors of the token before, by its bias."}};
    progress shown_so_far(s.status, "shortlist", lists.size());
    std::optional<statistic> whole;
    for (shortlist const& list : lists) {
        std::string const name = list.base == V         ? "all " + grouped(V)
                                 : list.successors == 0 ? grouped(list.base)
                                                        : grouped(list.base) + " + " + grouped(list.successors);
        shown_so_far.begin_part(name);
        auto how = s.settings();
        how.rule = sureleap::token_rejection<>{};
        // A list of all tokens is none: that way the first row is the drafter as it is.
        if (list.base < V) generate::confine(who.models, list.base, list.successors, s.pool, s.status);
        auto const domains = s.measure(who, how, shown_so_far);
        auto const tau = with_mean(domains, [](auto const& d) { return d.tau(); });
        if (!whole) whole = tau.back();
        std::vector<std::string> row{name};
        for (statistic const& x : tau) row.push_back(shown(x, 2));
        row.push_back(shown(quotient(tau.back(), *whole), 3));
        t.add(std::move(row));
        out.counts["runs"].push_back(
            {{"base", list.base}, {"successors", list.successors}, {"domains", to_json(domains)}});
    }
    out.tables.push_back(std::move(t));
    return out;
}

}  // namespace evaluate

// SPDX-License-Identifier: MIT
//
// What tau loses if q is confined to a shortlist of M tokens.
//
// The server's drafters have the heads that files have, and this head is none of them. So there is a loop of our own
// here, the stages of a round in order (docs/integration.md): token rejection, whole blocks, a fixed group of texts at a
// time. With the whole vocabulary on the list it gives the counts of the tau experiment, rounds and all.
#include <algorithm>
#include <optional>
#include <utility>

#include <engine/dspark.hpp>

#include "session.hpp"
#include "shortlist_head.hpp"

namespace evaluate {
namespace {

using sureleap::detail::fail_with;
using drafter_type = sureleap::semi_autoregressive<engine::dspark<float>&, shortlist_head>;
using rule_type = sureleap::token_rejection<>;

class loop {
public:
    loop(contestant& who, shortlist sizes, decoding_settings const& how, engine::thread_pool& pool)
        : target_(*who.models.target),
          model_(dynamic_cast<engine::dspark<float>&>(*who.models.draft)),
          stop_tokens_(who.models.stop_tokens),
          pool_(pool),
          tokens_(how.tokens),
          settings_{.temperature = how.temperature,
                    .max_new_tokens = positions_for(how.tokens, model_.block_size()),
                    .stop_tokens = stop_tokens_},
          drafter_(model_, shortlist_head(engine::load_head<float>(model_.source()), sizes),
                   {.block_size = model_.block_size(),
                    .vocabulary = model_.config().vocabulary,
                    .hidden_size = model_.config().hidden_size}),
          memory_(drafter_, rule_type{}, {.max_requests = target_.limits().slots}) {
        sureleap::check_round<drafter_type, sureleap::fixed_schedule, rule_type>();
        first_settings_ = settings_;
        first_settings_.max_draft_tokens = 0;
    }

    /// As many texts as there are slots, or fewer. `on_round` as in run_texts, without confidences.
    void operator()(std::span<text const> texts, std::size_t first_index, round_observer const& on_round) {
        sequences_.clear();
        for (std::size_t slot = 0; slot < texts.size(); ++slot) {
            sequences_.push_back({texts[slot], {texts[slot].prompt.begin(), texts[slot].prompt.end()}});
            prefill(slot);
        }
        for (;;) {
            std::vector<sureleap::request_view> requests;
            for (std::size_t slot = 0; slot < sequences_.size(); ++slot) {
                if (sequences_[slot].running) requests.push_back(view(slot));
            }
            if (requests.empty()) return;
            auto const verdicts = round(requests);
            for (std::size_t r = 0; r < verdicts.size(); ++r) commit(r, verdicts[r], first_index, on_round);
        }
    }

private:
    struct sequence {
        text from;
        std::vector<token_id> tokens;
        bool running = true;

        [[nodiscard]] std::size_t generated() const { return tokens.size() - from.prompt.size(); }
    };

    void prefill(std::size_t slot) {
        auto const tokens = std::span<token_id const>(sequences_[slot].tokens);
        std::size_t const most = target_.limits().max_rows;
        for (std::size_t first = 0; first + 1 < tokens.size(); first += most) {
            std::size_t const count = std::min(most, tokens.size() - 1 - first);
            target_.prefill(slot, first, tokens.subspan(first, count));
            std::vector<engine::batch_row> rows;
            for (std::size_t i = 0; i < count; ++i) rows.push_back(row_of(slot, first + i));
            model_.observe(rows, target_.features().data, tokens.subspan(first + 1, count));
        }
    }

    [[nodiscard]] sureleap::request_view view(std::size_t slot) const {
        sequence const& s = sequences_[slot];
        return {.id = slot + 1,
                .slot = slot,
                .anchor = s.tokens.back(),
                .position = s.tokens.size() - 1,
                .context = s.tokens,
                .seed = s.from.seed,
                .remaining = settings_.max_new_tokens - s.generated(),
                .settings = s.generated() == 0 ? &first_settings_ : &settings_};
    }

    [[nodiscard]] std::span<sureleap::verdict const> round(std::span<sureleap::request_view const> requests) {
        engine::kernel_backend::lend const lent{pool_};
        memory_.block.begin(requests);
        auto const forward = drafter_.forward(requests);
        drafter_.draw(forward, rule_type::draft_rule{}, memory_.block, randomness_);
        auto const lengths =
            sureleap::admit(sureleap::fixed_schedule{}, memory_.block.table(), std::nullopt, memory_.frontier);
        sureleap::flatten(memory_.block, lengths, memory_.batch);
        auto const rows = target_.score(memory_.batch);
        auto const verdicts = sureleap::accept(rule_type{}, rows, sureleap::no_logits_hook{}, randomness_, memory_);
        observe(verdicts);
        return verdicts;
    }

    /// Emitted tokens put one row each behind them: the anchor's and those of accepted drafts.
    void observe(std::span<sureleap::verdict const> verdicts) {
        auto const features = target_.features();
        std::vector<engine::batch_row> rows;
        std::vector<float> kept;
        std::vector<token_id> next;
        for (std::size_t r = 0; r < verdicts.size(); ++r) {
            std::size_t const first = memory_.batch.first_row(r);
            for (std::size_t k = 0; k < verdicts[r].emitted.size(); ++k) {
                rows.push_back(row_of(verdicts[r].slot, memory_.batch.positions()[first + k]));
                auto const row = features.row(first + k);
                kept.insert(kept.end(), row.begin(), row.end());
                next.push_back(verdicts[r].emitted[k]);
            }
        }
        if (!rows.empty()) model_.observe(rows, kept.data(), next);
    }

    void commit(std::size_t r, sureleap::verdict const& v, std::size_t first_index, round_observer const& on_round) {
        sequence& s = sequences_[v.slot];
        if (v.outcome != sureleap::status::ok) {
            fail_with("text ", first_index + v.slot + 1, " stopped after ", s.generated(),
                      " tokens: ", sureleap::to_string(v.outcome));
        }
        if (s.generated() > 0) {
            on_round(outcome_of(first_index + v.slot, v, memory_.block.tokens(r).first(v.verified), stop_tokens_));
        }
        s.tokens.insert(s.tokens.end(), v.emitted.begin(), v.emitted.end());
        s.running = !v.stopped && s.generated() < tokens_;
    }

    [[nodiscard]] static engine::batch_row row_of(std::size_t slot, std::size_t position) {
        return {static_cast<std::uint32_t>(slot), static_cast<std::uint32_t>(position), 0};
    }

    engine::target<float>& target_;
    engine::dspark<float>& model_;
    std::span<token_id const> stop_tokens_;
    engine::thread_pool& pool_;
    std::size_t tokens_;
    sureleap::request_settings settings_;
    sureleap::request_settings first_settings_;
    drafter_type drafter_;
    sureleap::philox_randomness randomness_;
    sureleap::round_memory<float, float> memory_;
    std::vector<sequence> sequences_;
};

std::vector<domain_counts> measure(session const& s, contestant& who, shortlist sizes, progress& shown_so_far) {
    loop texts_through(who, sizes, s.settings(), s.pool);
    std::size_t all = 0, done = 0;
    for (domain const& d : s.prompts.domains) all += d.prompts.size();
    std::vector<domain_counts> counts;
    for (std::size_t d = 0; d < s.prompts.domains.size(); ++d) {
        domain const& from = s.prompts.domains[d];
        domain_counts& into = counts.emplace_back(from.name, from.prompts.size(), who.block_size());
        std::vector<text> texts;
        for (std::size_t i = 0; i < from.prompts.size(); ++i) {
            texts.push_back({from.prompts[i], text_seed(s.chosen.seed, d, i)});
        }
        for (std::size_t first = 0; first < texts.size(); first += s.chosen.batch) {
            std::size_t const count = std::min(s.chosen.batch, texts.size() - first);
            texts_through(std::span<text const>(texts).subspan(first, count), first,
                          [&](round_outcome const& round) { into.add(round.text, round); });
            done += count;
            shown_so_far.update(static_cast<double>(done) / static_cast<double>(all));
        }
    }
    return counts;
}

}  // namespace

section run_shortlist(session const& s) {
    contestant who = s.load(s.chosen.closely(), s.chosen.batch);
    if (dynamic_cast<engine::dspark<float>*>(who.models.draft.get()) == nullptr || s.chosen.closely().zero_bias) {
        fail_with("shortlist: ", who.name, " is no DSpark or DFlash folder; choose another drafter with --of");
    }
    std::size_t const V = who.models.target->vocabulary();
    std::vector<shortlist> lists{{V, 0}};
    for (std::size_t const m : s.chosen.shortlists) {
        if (m >= V) continue;
        lists.push_back({m, 0});
        bool const has_bias = who.config->head != engine::head_kind::none;
        if (has_bias && m >= 2) lists.push_back({m - m / 2, m / 2});
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
        auto const domains = measure(s, who, list, shown_so_far);
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

// SPDX-License-Identifier: MIT
//
// The accept stage of a round: each request's verdict, from the rule's decision about a chain or a tree.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/executor.hpp>
#include <sureleap/round/check.hpp>
#include <sureleap/round/log_probabilities.hpp>
#include <sureleap/round/memory.hpp>
#include <sureleap/round/stage_checks.hpp>
#include <sureleap/verify/verdict.hpp>
#include <sureleap/verify/verification.hpp>
#include <sureleap/verify/verify_batch.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace detail {

/// Emits token(0) .. token(accepted - 1) and `next`, up to the end of the text. law(k) is the target's law of token k,
/// and target_row(k) the row that it came with. Where it ends at a drafted token, what was grown after it counts as not
/// verified: nobody will know whether it was right.
template <class Token, class Law, class Row, class Round>
void emit(std::size_t r, token_id next, Token const& token, Law const& law, Row const& target_row, Round& round) {
    request_view const& request = round.batch.requests()[r];
    request_settings const& settings = *request.settings;
    verdict& out = round.verdicts[r];
    std::size_t const first = r * (round.block.block_size() + 1);
    std::size_t const most = settings.top_log_probabilities;
    auto const top = round.top_log_probabilities.subspan(first * round.parts.top_log_probabilities);
    std::size_t count = 0;
    while (count <= out.accepted && out.finished == finish_reason::none) {
        token_id const x = count < out.accepted ? token(count) : next;
        round.emitted[first + count] = x;
        if (settings.log_probabilities) {
            round.log_probabilities[first + count] =
                log_probabilities_of(settings, law(count), target_row(count), x, *round.block.shape().kernels,
                                     top.subspan(count * most, most), round.ranks[first + count]);
        }
        ++count;
        if (settings.stops_at(x)) {
            out.finished = finish_reason::stop_token;
        } else if (settings.text_end && request.emitted() + count >= settings.min_new_tokens &&
                   settings.text_end(request, round.emitted.subspan(first, count))) {
            out.finished = finish_reason::stop_text;
        } else if (count == request.remaining) {
            out.finished = finish_reason::max_new_tokens;
        }
    }
    out.emitted = round.emitted.subspan(first, count);
    if (settings.log_probabilities) {
        out.log_probabilities = round.log_probabilities.subspan(first, count);
        out.top_log_probabilities = top.first(count * most);
        if (settings.ranks) out.ranks = round.ranks.subspan(first, count);
    }
    if (count > out.accepted) return;
    out.accepted = count;
    if (!out.path.empty()) out.path = out.path.first(count);
    out.verified = out.row(count);
}

/// Where the rows of request r begin.
template <class T>
[[nodiscard]] std::size_t first_row(logits_rows<T> const& rows, verify_batch const& batch, std::size_t r) noexcept {
    if (!rows.first_rows.empty()) return rows.first_rows[r];
    return rows.per_request > 0 ? r * rows.per_request : batch.first_row(r);
}

/// The tree of request r, or its first nodes, for rules that judge trees; a chain is one.
template <class Round>
tree_scratch const& plant(std::size_t r, std::size_t worker, Round& round,
                          std::size_t most = static_cast<std::size_t>(-1)) noexcept {
    auto const drafted = round.batch.drafted(r).first(std::min(most, round.batch.length(r)));
    auto const parents = round.block.parents(r);
    draft_tree& tree = round.trees[worker].tree;
    tree.begin(round.batch.requests()[r].anchor);
    for (std::size_t k = 0; k < drafted.size(); ++k) {
        tree.append(parents.empty() ? static_cast<node_id>(k) : parents[k], drafted[k]);
    }
    return round.trees[worker];
}

/// What was decided about request r, emitted. False: it cannot be. view.target(n) is the law of row n; target_row(n) the
/// row as the target gave it.
template <class View, class Row, class Round>
[[nodiscard]] bool give_verdict(std::size_t r, decision const& d, View& view, Row const& target_row, Round& round) {
    auto const drafted = round.batch.drafted(r);
    if (!d.valid || d.row > drafted.size() || !round.parts.is_token(d.next)) return false;
    bool const trees = round.parts.rule_is.judges_trees;
    std::size_t accepted = d.row;
    std::span<node_id const> path{};
    if (trees) {
        draft_tree const& tree = view.tree();
        auto const node = static_cast<node_id>(d.row);
        path = tree.path(node, round.paths.subspan(r * round.block.block_size(), tree.depth(node)));
        accepted = path.size();
    }
    // The row behind k accepted tokens.
    auto const row_of = [&](std::size_t k) {
        return k == 0 || path.empty() ? k : static_cast<std::size_t>(path[k - 1]);
    };
    // A race needs no sum, but log probabilities do: a normaliser that is not the row's shows here at the latest.
    bool const reports = round.batch.requests()[r].settings->log_probabilities;
    for (std::size_t k = 0; reports && k <= accepted; ++k) {
        if (!view.target(row_of(k)).valid()) return false;
    }
    verdict& out = round.verdicts[r];
    out.accepted = accepted;
    if (trees) {
        out.parents = round.block.parents(r);
        if (!out.parents.empty()) out.path = path;
    }
    emit(
        r, d.next, [&](std::size_t k) { return drafted[row_of(k + 1) - 1]; },
        [&](std::size_t k) -> auto const& { return view.target(row_of(k)); },
        [&](std::size_t k) { return target_row(row_of(k)); }, round);
    return true;
}

/// The verdict on request r as long as nothing is decided. False: nothing is to be decided.
template <class Round>
[[nodiscard]] bool open_verdict(std::size_t r, pass_stamp const& pass, Round& round) noexcept {
    request_view const& request = round.batch.requests()[r];
    status const drafts = round.block.draft_outcome(r);
    verdict& out = round.verdicts[r];
    out = {.id = request.id,
           .slot = request.slot,
           .outcome = is_draft_failure(drafts) ? status::ok : drafts,
           .draft_outcome = drafts,
           .drafted = round.block.size(r),
           .verified = round.batch.length(r),
           .pass = pass.number()};
    if (round.at.ranks != status::ok) out.outcome = round.at.ranks;
    return out.outcome == status::ok;
}

/// The verdict on request r of the batch, with the scratch of a worker. It writes what is request r's alone.
template <class Rule, class T, class Q, class Hook, class Rng>
void judge(std::size_t r, Rule const& rule, logits_rows<T> const& rows, bool given, Hook const& hook, Rng& rng,
           std::size_t worker, round_state<T, Q, Hook>& round) {
    if (!open_verdict(r, rows.pass, round)) return;
    bool decided = given;
    if (given) {
        request_view const& request = round.batch.requests()[r];
        auto const laws = round.block.laws(r);
        std::size_t const first = first_row(rows, round.batch, r);
        auto const& memory = round.verifications[worker];
        using view_type = verification<T, Q, Hook>;
        view_type view = traits_of(rule).judges_trees
                             ? view_type{request, laws, rows, first, hook, memory, plant(r, worker, round)}
                             : view_type{request, round.batch.drafted(r), laws, rows, first, hook, memory};
        decision const d = decide(rule, view, rng);
        decided = give_verdict(r, d, view, [&](std::size_t n) { return rows.values.row(first + n); }, round);
    }
    if (!decided) round.verdicts[r].outcome = status::invalid_target;
}

/// Rows for the batch, of the vocabulary that the drafter speaks of.
template <class T>
void expect_shape(logits_rows<T> const& rows, verify_batch const& batch, std::size_t vocabulary) {
    std::size_t const requests = batch.requests().size();
    std::size_t batch_rows = batch.rows();
    if (!rows.first_rows.empty()) {
        if (rows.first_rows.size() != requests) {
            fail_with("accept: the target gave ", rows.first_rows.size(), " first rows, expected ", requests,
                      ", one for each request of the batch");
        }
        batch_rows = 0;
        for (std::size_t r = 0; r < requests; ++r) {
            std::size_t const own = batch.length(r) + 1;
            std::size_t const first = rows.first_rows[r];
            if (own > rows.values.rows || first > rows.values.rows - own) {
                fail_with("accept: the target gave ", rows.values.rows, " rows, and those of request ", r,
                          " begin at row ", first, ", expected ", own, " of them");
            }
            batch_rows = std::max(batch_rows, first + own);
        }
    }
    for (std::size_t r = 0; rows.per_request > 0 && rows.first_rows.empty() && r < requests; ++r) {
        std::size_t const own = batch.length(r) + 1;
        if (own > rows.per_request) {
            fail_with("accept: the target gave ", rows.per_request,
                      " rows for each request (per_request), expected at ", "least the ", own, " that request ", r,
                      " has in the batch");
        }
        // A quotient, as r * per_request could overflow and look small.
        if (own > rows.values.rows || r > (rows.values.rows - own) / rows.per_request) {
            fail_with("accept: the target gave ", rows.values.rows, " rows, ", rows.per_request,
                      " for each request (per_request), expected enough for the ", own, " of request ", r);
        }
        batch_rows = first_row(rows, batch, r) + own;
    }
    if (rows.values.rows < batch_rows || rows.values.cols != vocabulary) {
        fail_with("accept: the target gave ", rows.values.rows, " rows of ", rows.values.cols,
                  " logits, expected at least ", batch_rows, " rows, one for each token of the batch, of ", vocabulary,
                  " logits, the drafter's target_vocabulary()");
    }
    if (!rows.log_normalisers.empty() && rows.log_normalisers.size() < batch_rows) {
        fail_with("accept: the target gave ", rows.log_normalisers.size(), " normalisers, expected none or ",
                  batch_rows, ", one for each row");
    }
    auto const& sums = rows.block_sums;
    if (!sums.empty() && (sums.rows < batch_rows || sums.cols != row_blocks(vocabulary))) {
        fail_with("accept: the target gave ", sums.rows, " rows of ", sums.cols, " block sums, expected none or ",
                  batch_rows, " rows of ", row_blocks(vocabulary));
    }
}

/// That the round has come to its accept stage, with this rule.
template <class Rule, class Round>
void expect_accept(Rule const& rule, pass_stamp const& pass, Round& round) {
    expect_rule(round.parts, rule, "accept");
    expect_round(round.at.admitted, "accept: there is no batch; call admit, and score what it returns");
    expect_round(
        !round.at.drawn || round.rule == object_of(rule),
        "accept: this is another rule than the one that was drawn for, though of its type; give both stages the "
        "same object");
    expect_rows(pass, round.batch.requests(), "accept");
    expect_lent_drafts(round.at.lent_drafts, round.batch.requests(), "accept");
}

/// That no rank's slice of q is taken for a q that gives other tokens nothing.
template <class Q>
void expect_whole_laws(draft_block<Q> const& block, std::size_t requests) {
    for (std::size_t r = 0; r < requests; ++r) {
        auto const laws = block.laws(r);
        for (std::size_t k = 0; k < laws.size(); ++k) {
            vocabulary_view const& over = laws[k].over();
            if (!over.is_slice() || over.draft_size() == over.target_size()) continue;
            fail_with("accept: the q of draft ", k, " of request ", r, " is a slice of ", over.draft_size(),
                      " tokens, and rows of p have all ", over.target_size(),
                      "; expected rows of p in slices as well (row_shards::of), or a whole q");
        }
    }
}

/// The accept stage, of what fits.
template <class Rule, class T, class Q, class Hook, class Rng>
void accept_rows(Rule const& rule, logits_rows<T> const& rows, Hook const& hook, Rng& rng,
                 round_memory<T, Q, Hook>& memory) {
    auto& round = round_access::state(memory);
    expect_accept(rule, rows.pass, round);
    verify_batch const& batch = round.batch;
    std::size_t const vocabulary = round.parts.target_vocabulary;
    bool const given = rows.values.data != nullptr;
    if (given) expect_shape(rows, batch, vocabulary);
    std::size_t const requests = batch.requests().size();
    if (round.parts.rule_is.access == q_access::row) expect_whole_laws(round.block, requests);
    if constexpr (concurrent_randomness<Rng>) {
        executor_ref const& executor = round.block.shape().executor;
        // About half of the rows are touched, mostly by bounds, which take half as long as a sum.
        std::size_t const workers = executor.worth(batch.rows() * vocabulary / 4);
        share_out(executor, std::min(workers, round.verifications.size()), requests,
                  [&](std::size_t worker, std::size_t r) {
                      judge(r, rule, rows, given, hook, std::as_const(rng), worker, round);
                  });
    } else {
        for (std::size_t r = 0; r < requests; ++r) {
            judge(r, rule, rows, given, hook, rng, 0, round);
        }
    }
    round.at.judged = true;
    round.at.scored = rows.pass;
}

}  // namespace detail

SURELEAP_END_NAMESPACE

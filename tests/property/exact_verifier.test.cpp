// SPDX-License-Identifier: MIT
//
// The law of what a verifier emits, by enumeration: for every rule, each kind of q, with and without edits of the
// target's rows. Drafts come from outside with the probabilities of a q that the test computes by itself, and so is p,
// edits and all. What was emitted is continued by p up to gamma + 1 tokens; then the joint law is p's. Ten seconds.
#include <sureleap/verifier.hpp>

#include <sureleap/testing/enumerator.hpp>
#include <sureleap/verify/any.hpp>

#include "support/common.hpp"
#include "support/placed_logits.hpp"

using namespace sureleap;
using support::logit;

namespace {

constexpr std::size_t V = 3;
constexpr std::size_t block_size = 2;
using text = std::vector<token_id>;
using law_of_texts = std::map<text, double>;

std::vector<double> softmax(std::vector<double> row, double temperature) {
    double const largest = *std::ranges::max_element(row);
    double sum = 0.0;
    for (double& l : row)
        sum += l = temperature == 0.0 ? (l == largest ? 1.0 : 0.0) : std::exp((l - largest) / temperature);
    for (double& l : row) l /= sum;
    return row;
}

enum class kind { found, logits, probabilities, listed_logits, listed_probabilities };
struct edits_of_test {
    bool on = false;
    std::array<std::int32_t, V> counts{2, 0, 1};
    double repetition = 1.3;
    double frequency = 0.4;
    double presence = 0.25;
    std::int32_t prompt = 0b010;
    std::int32_t allowed(text const& prefix) const { return prefix.size() == 1 ? 0b011 : 0b111; }  // by row
};
struct world {
    kind q_is = kind::logits;
    edits_of_test edits{};
    double temperature = 0.8;
    double draft_temperature = 0.8;
    int top_k = 0;
    token_id stop = no_token;

    /// The target's law, written down anew.
    [[nodiscard]] std::vector<double> p(text const& prefix) const {
        std::vector<double> row(V);
        for (std::size_t v = 0; v < V; ++v) row[v] = logit(1, prefix, v);
        if (edits.on) {
            row[1] += 0.7;  // bias
            for (std::size_t v = 0; v < V; ++v) {
                auto const count = edits.counts[v] + std::ranges::count(prefix, static_cast<token_id>(v));
                if (count > 0 || (edits.prompt >> v & 1) != 0) {
                    row[v] = row[v] > 0.0 ? row[v] / edits.repetition : row[v] * edits.repetition;
                }
                row[v] -= edits.frequency * static_cast<double>(count) + (count > 0 ? edits.presence : 0.0);
                if ((edits.allowed(prefix) >> v & 1) == 0) row[v] = -INFINITY;
            }
        }
        if (top_k == 2) row[static_cast<std::size_t>(std::ranges::min_element(row) - row.begin())] = -INFINITY;
        return softmax(row, temperature);
    }
    /// What is handed over as q: logits as they are, of listed rows without the last token of the vocabulary.
    [[nodiscard]] std::vector<double> q_logits(text const& prefix) const {
        std::vector<double> row(V);
        for (std::size_t v = 0; v < V; ++v) row[v] = logit(2, prefix, v);
        if (q_is == kind::listed_logits || q_is == kind::listed_probabilities) row[V - 1] = -INFINITY;
        return row;
    }
    [[nodiscard]] std::vector<double> q(text const& prefix) const {
        bool const given = q_is == kind::probabilities || q_is == kind::listed_probabilities;
        return softmax(q_logits(prefix), given ? 1.0 : draft_temperature);
    }
    [[nodiscard]] bool ended(text const& t) const { return !t.empty() && t.back() == stop; }
};

/// Continues `t` by p up to gamma + 1 tokens, or the text's end.
void continue_plainly(world const& w, text t, double weight, law_of_texts& law) {
    if (t.size() == block_size + 1 || w.ended(t)) {
        law[t] += weight;
        return;
    }
    auto const p = w.p(t);
    t.push_back(0);
    for (std::size_t v = 0; v < V; ++v) {
        t.back() = static_cast<token_id>(v);
        if (p[v] > 0.0) continue_plainly(w, t, weight * p[v], law);
    }
}

/// One call's arrays for these drafts, in layouts that have gaps and other requests' numbers in between.
template <class Edits>
law_of_texts law_of(world const& w, any_rule const& rule, enumerator::noise noise) {
    law_of_texts law;
    bool const listed = w.q_is == kind::listed_logits || w.q_is == kind::listed_probabilities;
    bool const probabilities = w.q_is == kind::probabilities || w.q_is == kind::listed_probabilities;
    constexpr std::size_t slot = 2;
    std::size_t const width = listed ? 2 : V;

    for (std::size_t draft = 0; draft < V * V; ++draft) {
        text const x{static_cast<token_id>(draft / V), static_cast<token_id>(draft % V)};
        double const weight = w.q({})[draft / V] * w.q({x[0]})[draft % V];
        if (weight == 0.0) continue;
        std::vector<double> rows((1 + block_size + 1) * (V + 1), 99.0);
        std::vector<double> q_rows((slot + 1) * 11, 99.0);
        std::vector<std::int64_t> q_listed(q_rows.size(), 77);
        std::vector<std::int32_t> masks(1 + block_size + 1, 0);
        for (std::size_t k = 0; k <= block_size; ++k) {
            text const prefix(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(k));
            for (std::size_t v = 0; v < V; ++v) rows[(1 + k) * (V + 1) + v] = logit(1, prefix, v);
            masks[1 + k] = w.edits.allowed(prefix);
            if (k == block_size) continue;
            auto const q = probabilities ? w.q(prefix) : w.q_logits(prefix);
            for (std::size_t i = 0; i < width; ++i) {
                std::size_t const v = listed ? width - 1 - i : i;  // lists are in no order
                q_rows[slot * 11 + k * 5 + i] = q[v];
                q_listed[slot * 11 + k * 5 + i] = static_cast<std::int64_t>(v);
            }
        }
        std::array<std::int32_t, 2> const row_begin{1, 2 + block_size};
        std::array<std::int64_t, 5> const ids{5, 0, x[0], x[1], 6};
        std::array<std::int64_t, 1> const slots{slot};
        std::array<double, slot + 1> const temperature{9.0, 9.0, w.temperature};
        std::array<double, slot + 1> const draft_temperature{9.0, 9.0, w.draft_temperature};
        std::array<std::int32_t, slot + 1> const top_k{1, 1, w.top_k};
        std::array<std::int64_t, slot + 1> const seeds{1, 2, 3};
        std::array<std::int64_t, 4> const positions{0, 17, 18, 19};
        std::array<std::int64_t, 2 * (slot + 1)> const stops{0, 1, 0, 1, w.stop, -1};
        std::array<std::int32_t, (slot + 1) * 2> const bias_tokens{0, 0, 0, 0, 1, -1};
        std::array<float, (slot + 1) * 2> const bias{9.0f, 9.0f, 9.0f, 9.0f, 0.7f, 9.0f};
        std::array<double, (slot + 1) * 2> const bias_wide{9.0, 9.0, 9.0, 9.0, 0.7, 9.0};
        std::array<double, slot + 1> const repetition{2.0, 2.0, w.edits.repetition};
        std::array<double, slot + 1> const frequency{2.0, 2.0, w.edits.frequency};
        std::array<double, slot + 1> const presence{2.0, 2.0, w.edits.presence};
        std::array<std::int32_t, (slot + 1) * 4> counts{7, 7, 7, 7, 7, 7, 7, 7};
        std::ranges::copy(w.edits.counts, counts.begin() + slot * 4);
        std::array<std::int32_t, slot + 1> const prompt{7, 7, w.edits.prompt};
        static_cast<void>(bias);

        engine_arrays<double, double> call{.requests = 1,
                                           .target = {rows.data(), 1 + block_size + 1, V, V + 1},
                                           .row_begin = row_begin.data(),
                                           .drafts = ids.data(),
                                           .slots = slots.data(),
                                           .positions = positions.data(),
                                           .positions_of_rows = true,
                                           .settings = {.temperature = temperature.data(),
                                                        .top_k = top_k.data(),
                                                        .draft_temperature = draft_temperature.data(),
                                                        .seeds = seeds.data(),
                                                        .stop_tokens = stops.data(),
                                                        .stop_stride = 2}};
        if (w.q_is != kind::found) {
            call.q = {.rows = q_rows.data(), .slot_stride = 11, .row_stride = 5, .slots = slots.data()};
            if (listed) call.q.listed = q_listed.data();
        }
        if (w.edits.on) {
            call.edits = {.bitmask = masks.data(),
                          .bitmask_stride = 1,
                          .bias_tokens = bias_tokens.data(),
                          .bias = bias_wide.data(),
                          .bias_stride = 2,
                          .repetition = repetition.data(),
                          .frequency = frequency.data(),
                          .presence = presence.data(),
                          .counts = counts.data(),
                          .counts_stride = 4,
                          .prompt = prompt.data(),
                          .prompt_stride = 1};
        }
        enumerator walk{noise};
        verifier<double, any_rule, Edits, double, enumerator::source> verify{rule,
                                                                             {.drafts = {.block_size = block_size,
                                                                                         .vocabulary = V,
                                                                                         .probabilities = probabilities,
                                                                                         .listed = listed ? 2u : 0u},
                                                                              .stop_tokens = 2},
                                                                             walk.handle()};
        std::map<text, double> emitted;
        walk.for_each_path([&] {
            verdict const& v = verify(call)[0];
            REQUIRE(v.outcome == status::ok);
            REQUIRE(v.draft_outcome == status::ok);
            emitted[{v.emitted.begin(), v.emitted.end()}] += walk.weight();
        });
        for (auto const& [t, probability] : emitted) continue_plainly(w, t, weight * probability, law);
    }
    return law;
}

double farthest(law_of_texts const& a, law_of_texts const& b) {
    double worst = 0.0;
    for (auto const& [t, p] : a) {
        auto const at = b.find(t);
        worst = std::max(worst, std::abs(p - (at == b.end() ? 0.0 : at->second)));
    }
    return worst;
}

void check_exact(world const& w, any_rule const& rule) {
    law_of_texts plain;
    continue_plainly(w, {}, 1.0, plain);
    for (auto const noise : {enumerator::noise::fresh, enumerator::noise::keyed}) {
        auto const law = w.edits.on ? law_of<array_edits>(w, rule, noise) : law_of<no_logits_hook>(w, rule, noise);
        CHECK(farthest(plain, law) < 1e-12);
        CHECK(farthest(law, plain) < 1e-12);
    }
}

}  // namespace

TEST_CASE("a verifier has the target's law, of every q, with edits and without", "[exact][verifier]") {
    struct named {
        char const* name;
        any_rule rule;
    };
    for (named const& n :
         {named{"token_rejection", token_rejection<>{}}, named{"block_verification", block_verification<>{}},
          named{"target_match", target_match<>{}}, named{"keyed_coupling", keyed_coupling{}},
          named{"recursive_rejection of a chain", recursive_rejection<>{}}}) {
        for (kind const q_is :
             {kind::found, kind::logits, kind::probabilities, kind::listed_logits, kind::listed_probabilities}) {
            for (bool const edited : {false, true}) {
                world w{.q_is = q_is};
                w.edits.on = edited;
                INFO(n.name << ", q " << static_cast<int>(q_is) << (edited ? ", edited" : ""));
                check_exact(w, n.rule);
                w.draft_temperature = 1.7;
                w.top_k = 2;
                w.stop = 0;
                check_exact(w, n.rule);
            }
        }
    }
}

TEST_CASE("at temperature 0 a verifier emits the target's argmax, whatever was drafted", "[exact][verifier]") {
    for (any_rule const rule :
         {any_rule(token_rejection<>{}), any_rule(block_verification<>{}), any_rule(greedy_match{})}) {
        for (kind const q_is : {kind::found, kind::logits, kind::listed_logits}) {
            world w{.q_is = q_is, .temperature = 0.0};
            check_exact(w, rule);
            w.edits.on = true;
            check_exact(w, rule);
        }
    }
}

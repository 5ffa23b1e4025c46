// SPDX-License-Identifier: MIT
//
// Exact laws through the C header: the rounds of a request are enumerated, and the law of its first tokens is that of
// plain decoding, with both kinds of noise. Only the source of randomness is put in from C++; every call is one of the
// header's. A combination that the header lets through as lossy has to be seen as biased.
#define SURELEAP_C_IMPLEMENTATION
#include <sureleap/sureleap.h>

#include "support/catch.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include <sureleap/testing/enumerator.hpp>

using namespace sureleap;

namespace {

constexpr std::size_t V = 2;
constexpr std::size_t block_size = 2;
constexpr std::size_t horizon = 3;
/// Rounding of float by whichever table of passes the machine runs, as in tests/property/exact_tables.test.cpp.
constexpr double tolerance = 1e-7;
using text = std::vector<token_id>;
using law = std::map<text, double>;

/// Logits in quarters, exact as float: of the target (which = 0) and of the draft, after a token at a position.
float logit(int which, token_id last, std::size_t position, std::size_t v) {
    std::size_t const mixed =
        static_cast<std::size_t>(which) * 7 + static_cast<std::size_t>(last) * 5 + position * 3 + v * 11;
    return static_cast<float>(mixed * mixed % 13) * 0.25f - 1.0f;
}
/// Low or high by the token before, so that schedules depend on what was drafted.
double confidence(token_id last, std::size_t position) {
    return (static_cast<std::size_t>(last) + position) % 2 == 0 ? 0.25 : 0.875;
}

law plain_law() {
    law open{{{0}, 1.0}};
    for (std::size_t n = 0; n < horizon; ++n) {
        law next;
        for (auto const& [tokens, p] : open) {
            std::array<float, V> row{};
            for (std::size_t v = 0; v < V; ++v) row[v] = logit(0, tokens.back(), tokens.size() - 1, v);
            distribution<float> const d{{row, {}}, {}, {}};
            for (token_id v = 0; v < static_cast<token_id>(V); ++v) {
                text longer = tokens;
                longer.push_back(v);
                next[longer] += p * d.probability(v);
            }
        }
        open = next;
    }
    return open;
}

/// One request from its first token to the horizon, by calls of the header.
text decode(sureleap_round* round, sureleap_round_options const& o) {
    text tokens{0};
    while (tokens.size() < horizon + 1) {
        sureleap_request q;
        sureleap_request_init(&q);
        q.anchor = tokens.back();
        q.position = tokens.size() - 1;
        q.seed = 5;
        q.remaining = horizon + block_size + 1 - tokens.size();  // no shorter at the end
        std::size_t cap = 0;
        REQUIRE(sureleap_round_begin(round, &q, 1, &cap) == SURELEAP_OK);
        std::array<double, block_size> const at_anchor{confidence(q.anchor, q.position), confidence(1, q.position + 1)};
        if (o.schedule == SURELEAP_PLANNED) {
            REQUIRE(sureleap_round_plan(round, at_anchor.data(), block_size) == SURELEAP_OK);
        }
        std::array<std::array<float, V>, block_size> rows{};
        token_id last = q.anchor;
        for (std::size_t k = 0; k < cap && last != no_token; ++k) {
            for (std::size_t v = 0; v < V; ++v) rows[k][v] = logit(1, last, q.position + k, v);
            double const c = confidence(last, q.position + k);
            token_id const guess = static_cast<token_id>((static_cast<std::size_t>(last) + k + 1) % V);
            sureleap_drafts d{};
            d.positions = 1;
            d.confidences = &c;
            d.drawn = &last;
            if (o.q == SURELEAP_Q_ONE_HOT) {
                d.tokens = &guess;
            } else {
                d.rows = {rows[k].data(), 1, V, V, nullptr, nullptr, 0, 0};
            }
            REQUIRE(sureleap_round_draft(round, &d) == SURELEAP_OK);
        }
        sureleap_batch batch{};
        REQUIRE(sureleap_round_admit(round, &batch) == SURELEAP_OK);
        std::array<std::array<float, V>, block_size + 1> scored{};
        for (std::size_t i = 0; i < batch.rows; ++i) {
            for (std::size_t v = 0; v < V; ++v) scored[i][v] = logit(0, batch.tokens[i], batch.positions[i], v);
        }
        sureleap_rows const target{scored.data(), batch.rows, V, V, nullptr, nullptr, 0, 0};
        REQUIRE(sureleap_round_accept(round, &target) == SURELEAP_OK);
        sureleap_verdict verdict{};
        REQUIRE(sureleap_round_end(round, &verdict, 1) == SURELEAP_OK);
        REQUIRE(verdict.outcome == SURELEAP_REQUEST_OK);
        tokens.insert(tokens.end(), verdict.emitted, verdict.emitted + verdict.emitted_count);
    }
    tokens.resize(horizon + 1);
    return tokens;
}

law enumerated(enumerator::noise kind, sureleap_round_options const& o) {
    std::vector<std::byte> memory(c::round_bytes<enumerator::source>(o));
    law result;
    enumerator walk{kind};
    walk.for_each_path([&] {
        sureleap_round* const round = c::make_round(&o, memory.data(), memory.size(), walk.handle());
        text const tokens = decode(round, o);
        REQUIRE(sureleap_round_destroy(round) == SURELEAP_OK);
        result[tokens] += walk.weight();
    });
    return result;
}

double largest_difference(law const& a, law const& b) {
    double largest = 0.0;
    for (auto const& [tokens, p] : a) {
        auto const at = b.find(tokens);
        largest = std::max(largest, std::abs(p - (at == b.end() ? 0.0 : at->second)));
    }
    return largest;
}

/// A step with one token, and a cliff behind it: all or nothing pays, by every confidence of the block. Or, without the
/// cliff, a line, which Algorithm 1 does not stop at.
class priced {
public:
    explicit priced(bool cliff) : memory_(sureleap_cost_bytes()) {
        std::size_t const tokens[] = {1, 2, 3};
        double const seconds[] = {1.0, 2.24, 2.26};
        sureleap_cost_options o;
        sureleap_cost_options_init(&o);
        o.kind = cliff ? SURELEAP_COST_TABLE : SURELEAP_COST_ANALYTIC;
        o.batch_tokens = tokens;
        o.seconds = seconds;
        o.points = 3;
        o.rate = 1.0;
        o.overhead = 1.0;
        REQUIRE(sureleap_cost_create(&o, memory_.data(), memory_.size(), &cost, nullptr) == SURELEAP_OK);
    }
    ~priced() { static_cast<void>(sureleap_cost_destroy(cost)); }
    priced(priced const&) = delete;
    priced& operator=(priced const&) = delete;

    sureleap_cost* cost = nullptr;

private:
    std::vector<std::byte> memory_;
};

}  // namespace

TEST_CASE("Rounds through the C header have the law of plain decoding") {
    priced const line(false);
    priced const cliff(true);
    law const plain = plain_law();
    for (std::int32_t rule = SURELEAP_TOKEN_REJECTION; rule <= SURELEAP_KEYED_COUPLING; ++rule) {
        if (rule == SURELEAP_GREEDY_MATCH) continue;  // draws nothing
        for (std::int32_t schedule = SURELEAP_FIXED; schedule <= SURELEAP_RETROSPECTIVE; ++schedule) {
            for (std::int32_t const q : {SURELEAP_Q_DENSE, SURELEAP_Q_ONE_HOT}) {
                sureleap_round_options o;
                sureleap_round_options_init(&o);
                o.rule = rule;
                o.schedule = schedule;
                o.q = q;
                o.threshold = 0.5;
                o.cost = schedule == SURELEAP_GREEDY ? line.cost : cliff.cost;
                o.confidence = SURELEAP_CONFIDENCE_GIVEN;
                o.plans_at_anchor = 1;
                o.block_size = block_size;
                o.vocabulary = V;
                bool const samples = rule <= SURELEAP_BLOCK_VERIFICATION;
                bool const biased = schedule == SURELEAP_RETROSPECTIVE && samples && q == SURELEAP_Q_DENSE;
                o.allow_lossy = biased ? 1 : 0;
                INFO("rule " << rule << ", schedule " << schedule << ", q " << q);
                for (auto const noise : {enumerator::noise::fresh, enumerator::noise::keyed}) {
                    double const difference = largest_difference(plain, enumerated(noise, o));
                    if (biased) {
                        CHECK(difference > 1e-3);
                    } else {
                        CHECK(difference <= tolerance);
                    }
                }
            }
        }
    }
}

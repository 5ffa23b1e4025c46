// SPDX-License-Identifier: MIT
//
// Texts that end inside a block, by a stop token or by a string. Behind a stop token the target has no law, and a
// grammar that has ended masks everything, as plain decoding never asks. Some seconds.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <sureleap/serving/stop_texts.hpp>
#include <sureleap/sureleap.hpp>

#include "support/catch.hpp"
#include "support/with_trees.hpp"

using namespace sureleap;

namespace {

constexpr std::size_t V = 6;
constexpr std::size_t gamma_ = 4;
constexpr token_id stop = 5;
token_id const stops[] = {stop};

/// Each token is the stop token with probability 0.2, behind token 2 with 0.6; the others depend on the token before.
void fill_row(token_id last, double sharpness, std::span<float> row) {
    double sum = 0.0;
    for (std::size_t v = 0; v < V - 1; ++v) {
        double const w = std::exp(sharpness * std::cos(1.3 * static_cast<double>(last) + static_cast<double>(v)));
        row[v] = static_cast<float>(std::log(w));
        sum += w;
    }
    row[stop] = static_cast<float>(std::log((last == 2 ? 1.5 : 0.25) * sum));
}

/// NaN behind a stop token.
[[nodiscard]] auto make_target() {
    return model_of<float>(V, [](std::span<token_id const> context, std::span<float> row) {
        fill_row(context.back(), 1.5, row);
        if (context.back() == stop) std::fill(row.begin(), row.end(), std::numeric_limits<float>::quiet_NaN());
    });
}

/// Base logits as if each token were the likeliest, so a drafter goes on behind a stop token.
struct backbone_model {
    std::vector<float> rows{};
    [[nodiscard]] block_forward<float> forward(std::span<request_view const> requests) {
        rows.resize(requests.size() * gamma_ * V);
        for (std::size_t r = 0; r < requests.size(); ++r) {
            token_id last = requests[r].anchor;
            for (std::size_t k = 0; k < gamma_; ++k) {
                auto const row = std::span(rows).subspan((r * gamma_ + k) * V, V);
                fill_row(last, 1.0, row);
                last = static_cast<token_id>(std::max_element(row.begin(), row.end()) - row.begin());
            }
        }
        return {{}, {{rows.data(), requests.size() * gamma_, V}, {}, {}}};
    }
};

struct even_confidence {
    [[nodiscard]] double operator()(std::span<float const>, token_id, std::size_t) const { return 0.7; }
    [[nodiscard]] double at_anchor(std::span<float const>, token_id, std::size_t) const { return 0.7; }
};

/// A matcher that may not be asked once it has seen the stop token.
struct ended_grammar {
    std::size_t* asked_behind;
    void operator()(hook_context const& at, std::span<float> row) const {
        bool const ended = std::find(at.drafted.begin(), at.drafted.end(), stop) != at.drafted.end();
        *asked_behind += ended ? 1 : 0;
        if (ended) std::fill(row.begin(), row.end(), -std::numeric_limits<float>::infinity());
    }
};

drafter_options const shape{.block_size = gamma_, .vocabulary = V};

/// visit(name, make) for each kind of drafter that goes with the rule.
template <class Rule, class Visit>
void for_each_drafter(Visit&& visit) {
    auto const headless = [] { return parallel{backbone_model{}, even_confidence{}, shape}; };
    auto const model = [] {
        return autoregressive{model_of<float>(V, [](auto context, auto row) { fill_row(context.back(), 1.0, row); }),
                              top1_confidence{}, shape};
    };
    auto const found = [] { return lookup{{.block_size = gamma_, .target_vocabulary = V}}; };
    if constexpr (support::is_given_trees_v<Rule>) {
        auto const tree = [&] {
            return tree_drafter<decltype(headless())>{headless(), {.nodes = gamma_ + 3, .children = 2}};
        };
        visit("trees", tree);
        visit("trees beside lookup", [&] { return with_lookup{tree()}; });
    } else {
        visit("parallel", headless);
        visit("autoregressive", model);
        visit("parallel beside lookup", [&] { return with_lookup{headless()}; });
        if constexpr (!std::is_same_v<typename Rule::draft_rule, coupled_draft>) visit("lookup", found);
    }
}

struct served {
    std::vector<std::vector<token_id>> texts;
    std::uint64_t rounds = 0;
    std::size_t in_draft = 0;  // texts that ended at a drafted token
};

/// Texts of a decoder, four at a time. Every round ends, and nothing counts that is not emitted.
template <class Decoder>
[[nodiscard]] served serve(Decoder& dec, std::size_t texts, request_settings settings) {
    served result;
    settings.stop_tokens = stops;
    settings.max_new_tokens = 40;
    std::vector<request_id> ids;
    for (std::size_t i = 0; i < texts; ++i) {
        settings.seed = 1000 + i;
        // An earlier turn, which ended as well.
        std::vector<token_id> const prompt{
            1, 2, stop, static_cast<token_id>(i % 5), 3, 1, static_cast<token_id>(i % 5)};
        ids.push_back(dec.submit(prompt, settings));
        if (ids.size() % 4 != 0) continue;
        while (dec.step()) {
            for (verdict const& v : dec.round().verdicts) {
                REQUIRE(v.outcome == status::ok);
                REQUIRE(v.accepted <= v.emitted.size());
                REQUIRE(v.accepted <= v.verified);
                REQUIRE(v.ended_in_draft() == (v.accepted == v.emitted.size()));
                result.in_draft += v.ended_in_draft() ? 1u : 0u;
            }
        }
        for (request_id const id : std::span(ids).last(4)) {
            REQUIRE(dec.state(id) == request_state::finished);
            auto const text = dec.generated(id);
            REQUIRE(std::count(text.begin(), text.end(), stop) == (text.size() < 40 ? 1 : text.back() == stop));
            result.texts.emplace_back(text.begin(), text.end());
        }
    }
    CHECK(dec.report().accepted() <= dec.report().emitted());
    result.rounds = dec.report().rounds();
    return result;
}

template <class Rule>
void check(std::string const& rule_name, Rule const& rule, double temperature) {
    for_each_drafter<Rule>([&](std::string const& name, auto const& make) {
        INFO(rule_name << ", " << name << ", temperature " << temperature);
        std::size_t const texts = 400;
        std::size_t asked_behind = 0;
        auto const run = [&](auto const& hook, std::size_t most) {
            using hook_type = std::remove_cvref_t<decltype(hook)>;
            auto target = make_target();
            decoder<decltype(target)&, decltype(make()), fixed_schedule, Rule, hook_type> dec{
                target, make(), fixed_schedule{}, rule, {.max_requests = 4}, hook};
            return serve(dec, texts, {.temperature = temperature, .max_draft_tokens = most});
        };
        served const bare = run(no_logits_hook{}, gamma_);
        served const hooked = run(ended_grammar{&asked_behind}, gamma_);
        CHECK(asked_behind == 0);
        CHECK(hooked.texts == bare.texts);
        CHECK(bare.in_draft > 4);
        served const plain = run(no_logits_hook{}, 0);
        CHECK(plain.in_draft == 0);
        CHECK(bare.rounds < plain.rounds);
        if (Rule::guarantee == fidelity::pathwise || temperature == 0.0) CHECK(bare.texts == plain.texts);
    });
}

}  // namespace

TEST_CASE("stop tokens: a text that ends inside a block is plain decoding's", "[round][long]") {
    for (double const temperature : {0.0, 1.0}) {
        check("token_rejection", token_rejection<>{}, temperature);
        check("token_rejection<argmax_draft>", token_rejection<argmax_draft>{}, temperature);
        check("block_verification", block_verification<>{}, temperature);
        check("target_match, trees", support::with_trees<target_match<>>{}, temperature);
        check("keyed_coupling, trees", support::with_trees<keyed_coupling>{}, temperature);
    }
    check("greedy_match, trees", support::with_trees<greedy_match>{}, 0.0);
}

TEST_CASE("stop tokens: of a tree each branch ends at its own", "[round][trees][long]") {
    for (double const temperature : {0.0, 1.0}) {
        check("recursive_rejection", recursive_rejection<>{}, temperature);
        check("recursive_rejection<argmax_draft>", recursive_rejection<argmax_draft>{}, temperature);
        check("traversal_verification", traversal_verification<>{}, temperature);
        check("target_match", target_match<>{}, temperature);
        check("keyed_coupling", keyed_coupling{}, temperature);
    }
    check("greedy_match", greedy_match{}, 0.0);
}

TEST_CASE("stop tokens: rows behind a drafted one are not verified", "[round]") {
    // The text is 1 2 3 5(stop), and every model is sure of it.
    auto const following = [](token_id x) { return x < 3 ? x + 1 : stop; };
    auto target = model_of<float>(V, [&](auto context, auto row) {
        std::fill(row.begin(), row.end(), 0.0F);
        row[static_cast<std::size_t>(following(context.back()))] = 20.0F;
    });
    auto drafter = parallel{[&](std::span<request_view const> requests) -> block_forward<float> {
                                static std::vector<float> rows;
                                rows.assign(7 * V, 0.0F);
                                token_id x = requests[0].anchor;
                                for (std::size_t k = 0; k < 7; ++k) {
                                    x = following(x);
                                    rows[k * V + static_cast<std::size_t>(x)] = 20.0F;
                                }
                                return {{}, {{rows.data(), 7, V}, {}, {}}};
                            },
                            top1_confidence{}, drafter_options{.block_size = 7, .vocabulary = V}};
    decoder dec{target, drafter, fixed_schedule{}, block_verification<>{}};
    request_settings const settings{.seed = 1, .stop_tokens = stops, .log_probabilities = true};
    dec.submit(std::vector<token_id>{1}, settings);
    REQUIRE(dec.step());
    CHECK(dec.round().load.batch_tokens == 1 + 3);
    verdict const& v = dec.round().verdicts[0];
    CHECK(v.drafted == 3);
    CHECK(v.verified == 3);
    CHECK(v.accepted == 3);
    CHECK(v.emitted.size() == 3);
    CHECK(v.log_probabilities.size() == 3);
    CHECK(v.finished == finish_reason::stop_token);
    CHECK(dec.events()[0].finished == finish_reason::stop_token);
    CHECK_FALSE(dec.step());
}

namespace {

/// Tokens whose pieces run together: 0 "ab", 1 "a", 2 "c", 3 "bc", 4 "", 5 "ca".
std::string_view piece_of(token_id x) noexcept {
    static constexpr std::string_view pieces[] = {"ab", "a", "c", "bc", "", "ca"};
    return pieces[static_cast<std::size_t>(x)];
}
[[nodiscard]] std::string text_of(std::span<token_id const> tokens) {
    std::string text;
    for (token_id const x : tokens) text += piece_of(x);
    return text;
}

template <class Rule>
void check_strings(std::string const& rule_name, Rule const& rule) {
    stop_texts const ends{piece_of, {"abcab", "caca"}};
    for_each_drafter<Rule>([&](std::string const& name, auto const& make) {
        INFO(rule_name << ", " << name);
        std::size_t in_draft = 0;
        auto const run = [&](std::size_t most) {
            auto target = model_of<float>(
                V, [](std::span<token_id const> context, std::span<float> row) { fill_row(context.back(), 1.5, row); });
            decoder<decltype(target)&, decltype(make()), fixed_schedule, Rule> dec{
                target, make(), fixed_schedule{}, rule, {.max_requests = 1}};
            std::vector<std::vector<token_id>> texts;
            for (std::uint64_t seed = 0; seed < 400; ++seed) {
                // The prompt ends with what a string begins with.
                std::vector<token_id> const prompt{1, 2, 0, 2};
                request_settings const settings{.seed = seed,
                                                .max_new_tokens = 30,
                                                .text_end = ends,
                                                .max_draft_tokens = most,
                                                .log_probabilities = true};
                request_id const id = dec.submit(prompt, settings);
                finish_reason why = finish_reason::none;
                while (dec.step()) {
                    verdict const& v = dec.round().verdicts[0];
                    REQUIRE(v.outcome == status::ok);
                    REQUIRE(v.accepted <= v.emitted.size());
                    REQUIRE(v.log_probabilities.size() == v.emitted.size());
                    for (std::size_t k = 0; k < v.verified; ++k) {
                        if (v.ended_in_draft() && v.reached(k)) REQUIRE(v.depth(k) < v.accepted);
                    }
                    in_draft += v.ended_in_draft() ? 1u : 0u;
                    why = dec.events()[0].finished;
                }
                auto const tokens = dec.generated(id);
                std::string const text = text_of(tokens);
                std::string const before = text_of(tokens.first(tokens.size() - 1));
                auto const has_string = [](std::string const& t) {
                    return t.find("abcab") != std::string::npos || t.find("caca") != std::string::npos;
                };
                REQUIRE_FALSE(has_string(before));
                REQUIRE(has_string(text) == (why == finish_reason::stop_text));
                REQUIRE((why == finish_reason::stop_text || tokens.size() == 30));
                texts.emplace_back(tokens.begin(), tokens.end());
            }
            return texts;
        };
        auto const drafted = run(gamma_);
        CHECK(in_draft > 4);
        if (Rule::guarantee == fidelity::pathwise) CHECK(drafted == run(0));
    });
}

}  // namespace

TEST_CASE("stop texts: a text ends with the token that completes a string", "[round][long]") {
    check_strings("token_rejection", token_rejection<>{});
    check_strings("target_match", target_match<>{});
    check_strings("keyed_coupling, trees", support::with_trees<keyed_coupling>{});
    check_strings("recursive_rejection", recursive_rejection<>{});
    check_strings("keyed_coupling", keyed_coupling{});
}

TEST_CASE("stop texts: where a string ends in the last piece", "[round]") {
    stop_texts const ends{piece_of, {"abc", "bca"}};
    request_settings const settings{.max_new_tokens = 10};
    std::vector<token_id> const context{0, 1};
    auto const end = [&](std::size_t remaining, std::vector<token_id> const& emitted) {
        request_view const request{.context = context, .remaining = remaining, .settings = &settings};
        return ends.end_of(request, emitted);
    };
    CHECK(end(10, {0, 2}) == 1);             // ab c
    CHECK(end(10, {0, 5}) == 1);             // ab ca: the first that ends
    CHECK(end(10, {1, 3}) == 2);             // a bc
    CHECK(end(10, {3}) == std::nullopt);     // the prompt's a does not count
    CHECK(end(9, {3}) == 2);                 // an emitted one does
    CHECK(end(9, {3, 1}) == 1);              // bc a
    CHECK(end(10, {0, 4}) == std::nullopt);  // an empty piece completes nothing
    CHECK(end(10, {}) == std::nullopt);
    CHECK_THROWS_AS(stop_texts(piece_of, {"a", ""}), error);
}

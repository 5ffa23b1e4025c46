// SPDX-License-Identifier: MIT
//
// Two drafters as one: prompt lookup where the end of a request's context occurred before, another drafter elsewhere.
//
// They win on different text. A model drafts what it has learned; lookup drafts what stands in the context and costs
// nothing. Which of the two drafts a block is decided when it begins (beside_model.hpp).
//
// One schedule prices both. What lookup finds has a confidence as well: the share of such tokens that were accepted, by
// the length of the match. A match that went well is a longer one, so position k of a block that began with a match of
// n tokens is judged as one of n + k.
//
// Texts beside the context may be looked in as well: what a tenant's requests wrote before, a corpus. The longest match
// counts, the context's own among equals, then the newest. Other places vote on how sure its tokens are: behind two
// tokens 0.70 of those are accepted that all places agree on, 0.50 where there is one place, and 0.33 of the others
// (SmolLM2-135M-Instruct, answers of an agent).
//
// Rejected: what most places go on with, by count or by the length of their matches. It has up to 2 % fewer tokens a
// round than the newest of the longest matches has. A tree of what they go on with has up to 2 % more than that for as
// many rows, where its rules are those of trees.
//
// The first token that was found and not verified teaches too. It is compared with the token that the target drew in
// its place: they are equal as often as it would have been accepted. So where rows are dear and nothing is verified, a
// text that repeats itself is still noticed.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/workspace.hpp>
#include <sureleap/drafter/beside_model.hpp>
#include <sureleap/drafter/draft_block.hpp>
#include <sureleap/drafter/lookup.hpp>
#include <sureleap/drafter/ngram_index.hpp>
#include <sureleap/verify/verdict.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Of places that went on alike so far: there is one, all of them agree on a token, or others go on differently.
enum class agreement : std::uint8_t { one_place, all_places, some_places };

/// How often a token that lookup found is accepted, by the length of the match and by whether places agree. What it
/// learns acts from the next round on.
///
/// What a length is expected to have that nobody has observed rises evenly from matches of one token to the longest.
/// The defaults are near how found tokens fare by position on prompts of five kinds (docs/evaluation.md,
/// SmolLM2-135M-Instruct).
struct match_acceptance_settings {
    double assumed = 0.3;          ///< of a match of one token; in (0, 1)
    double assumed_longest = 0.8;  ///< of the longest; in (0, 1)
    double assumed_weight = 8;     ///< observations that they count as; above 0
    double memory = 4096;          ///< observations of a length fade by so many of it; >= 1
};

/// The share of found tokens that are accepted, as far as it is known. O(1) each.
class match_acceptance {
public:
    /// For matches of 1 .. longest tokens. Of longer ones as much is assumed. Each length up to `lengths` learns for
    /// itself, and longer ones count as the last.
    explicit match_acceptance(std::size_t longest, match_acceptance_settings const& settings = {},
                              std::size_t lengths = 0)
        : fade_(1.0 - 1.0 / settings.memory), lengths_(std::max(longest, lengths)) {
        auto const& s = settings;
        if (longest == 0) fail_with("match_acceptance: longest is 0, expected at least 1 token");
        if (!(s.assumed > 0.0 && s.assumed < 1.0)) {
            fail_with("match_acceptance_settings: assumed is ", s.assumed, ", expected a number in (0, 1)");
        }
        if (!(s.assumed_longest > 0.0 && s.assumed_longest < 1.0)) {
            fail_with("match_acceptance_settings: assumed_longest is ", s.assumed_longest,
                      ", expected a number in (0, 1)");
        }
        if (!(s.assumed_weight > 0.0 && s.assumed_weight < 1e9)) {
            fail_with("match_acceptance_settings: assumed_weight is ", s.assumed_weight, ", expected a number above 0");
        }
        if (!(s.memory >= 1.0)) fail_with("match_acceptance_settings: memory is ", s.memory, ", expected at least 1");
        for (std::size_t i = 0; i < lengths_.size(); ++i) {
            bool const is_longest = i + 1 >= longest;
            double const share = is_longest ? 1.0 : static_cast<double>(i) / static_cast<double>(longest - 1);
            double const assumed = s.assumed_weight * (s.assumed + share * (s.assumed_longest - s.assumed));
            for (counts& seen : lengths_[i]) seen.assumed = assumed;
        }
        assumed_weight_ = s.assumed_weight;
    }

    /// For a match of `length` >= 1 tokens. O(1).
    [[nodiscard]] double operator()(std::size_t length, agreement how = agreement::one_place) const noexcept {
        counts const& seen = lengths_[place(length)][static_cast<std::size_t>(how)];
        return (seen.assumed + seen.accepted) / (assumed_weight_ + seen.all);
    }
    /// The token after such a match was verified and reached, and accepted or not.
    void observe(std::size_t length, bool accepted, agreement how = agreement::one_place) noexcept {
        counts& seen = lengths_[place(length)][static_cast<std::size_t>(how)];
        seen.accepted = seen.accepted * fade_ + (accepted ? 1.0 : 0.0);
        seen.all = seen.all * fade_ + 1.0;
    }

private:
    struct counts {
        double assumed = 0.0;  // of assumed_weight_
        double accepted = 0.0;
        double all = 0.0;
    };
    [[nodiscard]] std::size_t place(std::size_t length) const noexcept { return std::min(length, lengths_.size()) - 1; }

    double assumed_weight_ = 0.0;
    double fade_;
    std::vector<std::array<counts, 3>> lengths_;  // by agreement
};

/// Texts that requests may draft from beside their own context: look(request, visit) calls visit(ngram_view) for each
/// that this request may see. Models: text_store (serving/). Promise: a view is good until visit returns.
template <class T>
concept draft_texts =
    requires(T const& texts, request_view const& request) { texts.look(request, [](ngram_view const&) {}); };
/// None.
struct no_texts {
    template <class Visit>
    void look(request_view const&, Visit const&) const noexcept {}
};

namespace detail {

/// What was found for a request: places with a match, of which one is followed.
struct found_text {
    struct place {
        std::size_t length = 0;  // of the match
        std::size_t count = 0;   // of tokens behind it, at least one
    };
    std::size_t most = 0;            // tokens behind a place
    std::vector<place> places{};     // in the order of preference among equals
    std::vector<token_id> behind{};  // [places, most]
    std::size_t length = 0;          // of the match that is followed; 0: none
    std::vector<token_id> followed{};
    std::vector<agreement> agreed{};  // of each of these

    [[nodiscard]] std::span<token_id const> tokens() const noexcept { return followed; }
    void begin(std::size_t tokens_behind) noexcept {
        most = tokens_behind;
        places.clear();
        behind.clear();
        length = 0;
        followed.clear();
        agreed.clear();
        places.reserve(1);  // the context's own, which is all without texts: then no round takes memory
        behind.reserve(most);
        followed.reserve(most);
        agreed.reserve(most);
    }
    /// next(k) is the k-th token behind a place, or none of the vocabulary where the text is at its end.
    template <class Next>
    void offer(std::size_t match, Next const& next, std::size_t vocabulary) {
        std::size_t const first = behind.size();
        for (std::size_t k = 0; k < most; ++k) {
            token_id const x = next(k);
            if (x < 0 || static_cast<std::size_t>(x) >= vocabulary) break;
            behind.push_back(x);
        }
        if (behind.size() == first) return;  // it says nothing of the next token
        places.push_back({match, behind.size() - first});
        behind.resize(first + most, no_token);
    }
    /// Follows the first of the longest matches.
    void choose() {
        auto const longest = std::max_element(places.begin(), places.end(),
                                              [](place const& a, place const& b) { return a.length < b.length; });
        if (longest == places.end()) return;
        length = longest->length;
        auto const tokens_of = [&](place const& p) {
            return std::span(behind).subspan(static_cast<std::size_t>(&p - places.data()) * most, p.count);
        };
        auto const chosen = tokens_of(*longest);
        followed.assign(chosen.begin(), chosen.end());
        for (std::size_t k = 0; k < followed.size(); ++k) {
            std::size_t alike = 0, agreeing = 0;
            for (place const& p : places) {
                auto const others = tokens_of(p);
                if (others.size() <= k ||
                    !std::equal(chosen.begin(), chosen.begin() + static_cast<std::ptrdiff_t>(k), others.begin())) {
                    continue;
                }
                ++alike;
                if (others[k] == chosen[k]) ++agreeing;
            }
            agreed.push_back(alike == 1          ? agreement::one_place
                             : agreeing == alike ? agreement::all_places
                                                 : agreement::some_places);
        }
    }
};

}  // namespace detail

/// When found tokens take the place of drafted ones, fixed at set-up.
struct with_lookup_options {
    /// Most tokens of a found block; 0: as many as the other drafter's.
    std::size_t block_size = 0;
    std::size_t longest = 5;   ///< as lookup_options
    std::size_t shortest = 2;  ///< shorter matches are left to the other drafter
    match_acceptance_settings acceptance{};
    ngram_search texts{};  ///< how texts beside the context are searched
};

/// Lookup for the requests whose context ends in a match, `Drafter` for the others (beside_model). Models drafter;
/// plans at the anchor if Drafter does. The other drafter is held by value, or by reference where an lvalue was given
/// to the deduction guide. Needs request_view::context and commit.
///
/// Texts: draft_texts, which must outlive it. Texts may be added at any time: a round that failed and is run again
/// drafts what it found before (round/attempts.hpp). With texts, rounds take memory, and whatever lock `look` takes.
template <class Drafter, class Texts = no_texts>
class with_lookup : public beside_model<with_lookup<Drafter, Texts>, Drafter, detail::found_text> {
    using base = beside_model<with_lookup<Drafter, Texts>, Drafter, detail::found_text>;
    static constexpr bool has_texts = !std::is_same_v<Texts, no_texts>;
    using given_texts = std::type_identity_t<Texts>;  // left to the deduction guides: options are no texts
    static_assert(
        draft_texts<Texts>,
        "with_lookup: the texts have no look(request, visit) that calls visit(ngram_view); give it a text_store, "
        "or a class of your own with that member");

public:
    using typename base::forward_type;
    using typename base::value_type;
    static constexpr char const* name = "with_lookup";

    /// What was found for a request, for commit. A round in which nobody drafts leaves the note of another one.
    struct note {
        std::uint64_t round = 0;
        std::size_t length = 0;
        std::size_t count = 0;  // of `followed`
    };
    struct memory_type : base::memory_type {
        memory_type() = default;
        memory_type(workspace& ws, draft_shape const& shape, with_lookup const& drafter) noexcept
            : base::memory_type(ws, shape, drafter),
              notes(ws.take<note>(shape.requests)),
              followed(ws.take<token_id>(shape.requests, shape.block_size)),
              agreed(ws.take<agreement>(shape.requests, shape.block_size)) {}

        std::span<note> notes{};
        carved_rows<token_id> followed{};  // of the matches, drafted or not
        carved_rows<agreement> agreed{};
    };

    explicit with_lookup(Drafter other, with_lookup_options const& options = {})
        requires(std::same_as<Texts, no_texts>)
        : with_lookup(std::forward<Drafter>(other), &nothing, options) {}
    with_lookup(Drafter other, given_texts const& texts, with_lookup_options const& options = {})
        requires(!std::same_as<Texts, no_texts>)
        : with_lookup(std::forward<Drafter>(other), &texts, options) {}
    with_lookup(Drafter, given_texts const&&, with_lookup_options const& = {})
        requires(!std::same_as<Texts, no_texts>)
    = delete;  // would dangle

    [[nodiscard]] match_acceptance const& acceptance() const noexcept { return acceptance_; }

    /// O(context * longest), and for each text O(candidates * longest).
    void find(request_view const& request, detail::found_text& found) {
        if constexpr (has_texts) {
            auto& [position, anchor, tenant, before] = found_before_[{request.id, request.slot}];
            auto const now = std::tuple(request.position, request.anchor, request.settings->tenant);
            if (std::tie(position, anchor, tenant) != now) {
                search(request, before);
                std::tie(position, anchor, tenant) = now;
            }
            found = before;
            if (found_before_.size() > most_found_before) found_before_.erase(found_before_.begin());
        } else {
            search(request, found);
        }
    }
    [[nodiscard]] double confidence(detail::found_text const& found, std::size_t k) const noexcept {
        return acceptance_(found.length + k, found.agreed[k]);
    }
    template <class DraftRule, class Rng>
    void draw(forward_type const& forward, DraftRule rule, draft_block<value_type>& block, memory_type const& memory,
              Rng& rng) {
        auto const& all = this->pass_of_round(forward, block).found;
        for (std::size_t r = 0; r < all.size(); ++r) {
            std::size_t const count = std::min(all[r].followed.size(), memory.followed.size);
            std::copy_n(all[r].followed.begin(), count, memory.followed[r].begin());
            std::copy_n(all[r].agreed.begin(), count, memory.agreed[r].begin());
            memory.notes[r] = {block.round(), all[r].length, count};
        }
        base::draw(forward, rule, block, memory, rng);
    }
    /// Learns from what was found for the block's requests.
    void commit(std::span<verdict const> verdicts, draft_block<value_type> const& block,
                memory_type const& memory) noexcept {
        for (std::size_t r = 0; r < std::min(verdicts.size(), block.requests().size()); ++r) {
            verdict const& v = verdicts[r];
            request_view const& request = block.requests()[r];
            note const& was = memory.notes[r];
            if (v.outcome == status::ok) found_before_.erase({request.id, request.slot});
            if (was.round != block.round() || was.length == 0 || v.outcome != status::ok) continue;
            auto const learn = [&](std::size_t k, bool accepted) {
                acceptance_.observe(was.length + k, accepted, memory.agreed[r][k]);
            };
            for (std::size_t k = 0; k < std::min(v.verified, was.count) && k <= v.accepted; ++k) {
                learn(k, k < v.accepted);
            }
            std::size_t const k = v.accepted;
            if (k == v.verified && k < v.emitted.size() && k < was.count) {
                learn(k, v.emitted[k] == memory.followed[r][k]);
            }
        }
        base::commit(verdicts, block, memory);
    }

private:
    static constexpr no_texts nothing{};

    with_lookup(Drafter&& other, Texts const* texts, with_lookup_options const& options)
        : base(std::forward<Drafter>(other), options.block_size),
          found_{{.block_size = this->most(),
                  .target_vocabulary = this->target_vocabulary(),
                  .longest = options.longest,
                  .shortest = options.shortest}},
          acceptance_(options.longest, options.acceptance, has_texts ? options.texts.longest : 0),
          texts_(texts),
          search_(options.texts) {
        if (search_.longest < ngram_view::orders.back() || search_.candidates == 0 ||
            search_.candidates > ngram_matches::most) {
            fail_with("with_lookup_options: texts are searched for matches of ", search_.longest, " tokens at ",
                      search_.candidates, " places, expected at least ", ngram_view::orders.back(), " and 1 .. ",
                      ngram_matches::most);
        }
    }

    /// What a request found whose round has not ended.
    struct found_in_round {
        std::uint64_t position = 0;
        token_id anchor = no_token;
        std::uint32_t tenant = 0;
        detail::found_text found{};
    };
    /// More requests than are decoded at once: the oldest may have left without a commit.
    static constexpr std::size_t most_found_before = 4096;

    void search(request_view const& request, detail::found_text& found) const {
        auto const context = request.context;
        found.begin(this->block_size());  // also of what is not drafted: it teaches
        if (request.found_cap(this->block_size()) == 0) return;
        if (lookup_match const own = found_.match(context); own.length > 0) {
            std::size_t length = own.length;
            auto const place = static_cast<std::size_t>(own.followed.data() - context.data());
            while (has_texts && length < std::min(search_.longest, place) &&
                   context[place - 1 - length] == context[context.size() - 1 - length]) {
                ++length;  // further than lookup looks, to be compared with what texts have
            }
            found.offer(
                length, [&](std::size_t k) { return k < own.followed.size() ? own.followed[k] : no_token; },
                this->target_vocabulary());
        }
        texts_->look(request, [&](ngram_view const& texts) {
            for (ngram_match const& match : texts.find(context, search_)) {
                found.offer(
                    match.length, [&](std::size_t k) { return texts[match.next + k]; }, this->target_vocabulary());
            }
        });
        found.choose();
    }

    lookup found_;
    match_acceptance acceptance_;
    Texts const* texts_;
    ngram_search search_;
    std::map<std::pair<request_id, std::size_t>, found_in_round> found_before_{};  // by id and slot
};

template <class D>
with_lookup(D&&, with_lookup_options const&) -> with_lookup<D>;
template <class D>
with_lookup(D&&) -> with_lookup<D>;
template <class D, class T>
with_lookup(D&&, T const&, with_lookup_options const&) -> with_lookup<D, T>;
template <class D, class T>
with_lookup(D&&, T const&) -> with_lookup<D, T>;

SURELEAP_END_NAMESPACE

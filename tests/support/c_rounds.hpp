// SPDX-License-Identifier: MIT
//
// The same random rounds through the C header and through the stages in C++, with parts that are types: tokens, batches
// and verdicts have to be equal. For one source file of a program: it holds the implementation.
#pragma once

#define SURELEAP_C_IMPLEMENTATION
#include <sureleap/sureleap.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <sureleap/serving.hpp>
#include <sureleap/sureleap.hpp>

#include "support/catch.hpp"

namespace c_rounds {

using namespace sureleap;

inline constexpr std::size_t most_requests = 4;
inline constexpr std::size_t block_size = 4;

/// A C object in memory of the test's.
class memory {
public:
    explicit memory(std::size_t bytes) : bytes_(bytes), data_(new std::byte[bytes]) {}
    [[nodiscard]] void* data() const { return data_.get(); }
    [[nodiscard]] std::size_t size() const { return bytes_; }

private:
    std::size_t bytes_;
    std::unique_ptr<std::byte[]> data_;
};

[[nodiscard]] inline std::size_t bytes_of(sureleap_round_options const& o) {
    sureleap_error error{};
    std::size_t bytes = 0;
    sureleap_result const result = sureleap_round_bytes(&o, &bytes, &error);
    INFO(error.text);
    REQUIRE(result == SURELEAP_OK);
    return bytes;
}

// ---- schedules and costs ---------------------------------------------------------------------------------------

using curve = padded_cost<batch_cost<capacity_table<staircase>>>;
[[nodiscard]] inline curve make_curve() {
    return curve{of_batch(capacity_table<staircase>({{4, 1.0}, {8, 1.4}, {16, 2.5}}), {.fixed = 0.05, .token = 0.01}),
                 {3, 6, 12, 24}};
}
/// The same through the header.
class c_curve {
public:
    c_curve() : memory_(sureleap_cost_bytes()) {
        std::size_t const tokens[] = {4, 8, 16};
        double const seconds[] = {1.0, 1.4, 2.5};
        std::size_t const padded[] = {3, 6, 12, 24};
        sureleap_cost_options o;
        sureleap_cost_options_init(&o);
        o.kind = SURELEAP_COST_STAIRCASE;
        o.prices.draft_fixed = 0.05;
        o.prices.draft_token = 0.01;
        o.batch_tokens = tokens;
        o.seconds = seconds;
        o.points = 3;
        o.token_sizes = padded;
        o.token_size_count = 4;
        REQUIRE(sureleap_cost_create(&o, memory_.data(), memory_.size(), &cost_, nullptr) == SURELEAP_OK);
    }
    ~c_curve() { CHECK(sureleap_cost_destroy(cost_) == SURELEAP_OK); }
    c_curve(c_curve const&) = delete;
    c_curve& operator=(c_curve const&) = delete;
    [[nodiscard]] sureleap_cost const* get() const { return cost_; }

private:
    memory memory_;
    sureleap_cost* cost_ = nullptr;
};

/// The schedules that see the frontier alone, as one type: half as much to compile.
class live {
public:
    explicit live(std::int32_t which) : which_(which) {}
    void admit(causal_frontier& frontier) const {
        switch (which_) {
            case SURELEAP_FIXED: return fixed_schedule{3}.admit(frontier);
            case SURELEAP_THRESHOLD: return threshold_schedule{0.5}.admit(frontier);
            case SURELEAP_SURVIVAL_THRESHOLD: return survival_threshold_schedule{0.4}.admit(frontier);
            default: return greedy_schedule<curve>{make_curve()}.admit(frontier);
        }
    }

private:
    std::int32_t which_;
};

// ---- drafters --------------------------------------------------------------------------------------------------

/// Reads c_k where a hidden state would be.
struct given_confidence {
    [[nodiscard]] double operator()(std::span<float const> hidden, token_id, std::size_t) const {
        return static_cast<double>(hidden[0]);
    }
    [[nodiscard]] double at_anchor(std::span<float const> hidden, token_id, std::size_t) const {
        return static_cast<double>(hidden[0]);
    }
};

/// A round's numbers, in format T: what a model would have returned.
template <class T>
struct numbers {
    std::size_t vocabulary = 0;
    std::vector<T> draft{};             // [R gamma, V]
    std::vector<T> hidden{};            // [R gamma] confidences
    std::vector<double> confidences{};  // the same
    std::vector<T> target{};            // [R (gamma + 1), V], by the rows of the batch
    std::vector<token_id> lists{};      // [R gamma, V] of which the first list_counts are used
    std::vector<std::size_t> list_counts{};
    std::vector<token_id> guesses{};  // [R gamma] tokens of a one-hot q
};

template <class T>
struct backbone_of {
    numbers<T> const* n;
    [[nodiscard]] block_forward<T> forward(std::span<request_view const> requests) const {
        std::size_t const rows = requests.size() * block_size;
        return {{n->hidden.data(), rows, 1}, {{n->draft.data(), rows, n->vocabulary}, {}, {}}};
    }
};

/// What is left of a drafter that has rows: drafts each position by its rows' numbers, where q runs over a list or is
/// one-hot.
template <class T, bool OneHot>
struct listing_drafter {
    using value_type = float;
    struct forward_type {};
    static constexpr bool is_deterministic = OneHot;
    static constexpr bool is_parallel = true;
    static constexpr bool has_confidence = true;
    static constexpr bool plans_at_anchor = false;

    numbers<T> const* n;

    [[nodiscard]] std::size_t block_size() const { return c_rounds::block_size; }
    [[nodiscard]] std::size_t vocabulary() const { return OneHot ? 0 : n->vocabulary; }
    [[nodiscard]] std::size_t target_vocabulary() const { return n->vocabulary; }
    [[nodiscard]] forward_type forward(std::span<request_view const>) const { return {}; }

    using memory_type = listed_rows<float>;
    template <class DraftRule, class Rng>
    void draw(forward_type, DraftRule rule, draft_block<float>& block, memory_type const& rows, Rng& rng) const {
        for (std::size_t r = 0; r < block.requests().size(); ++r) {
            for (std::size_t k = 0; k < block.requests()[r].draft_cap(block_size()) && block.size(r) == k; ++k) {
                std::size_t const i = r * block_size() + k;
                double const c = n->confidences[i];
                if constexpr (OneHot) {
                    block.draw(r, argmax_draft{}, distribution<float>::one_hot(n->vocabulary, n->guesses[i]), c, rng);
                } else {
                    auto const list = rows.next_list(block, r).first(n->list_counts[i]);
                    auto const row = rows.next(block, r).first(list.size());
                    for (std::size_t j = 0; j < list.size(); ++j) {
                        list[j] = n->lists[i * n->vocabulary + j];
                        row[j] = static_cast<float>(load(n->draft[i * n->vocabulary + j]));
                    }
                    auto const q = rows.law(block, r, row, {list, n->vocabulary});
                    block.draw(r, rule, q, q.is_without_row() ? 1.0 : c, rng);
                }
            }
        }
    }
};

// ---- rounds ----------------------------------------------------------------------------------------------------

/// Texts end at some tokens, each request's at others.
[[nodiscard]] inline bool ends_text(std::uint64_t id, token_id x) noexcept {
    return (id + static_cast<std::uint64_t>(x)) % 7 == 0;
}
[[nodiscard]] inline bool text_ends(request_view const& request, std::span<token_id const> emitted) noexcept {
    return ends_text(request.id, emitted.back());
}
/// The same as C asks it; counts in *of how often.
inline std::int32_t text_ends_in_c(void* of, std::uint64_t id, std::int32_t const* emitted, std::size_t count) {
    ++*static_cast<std::size_t*>(of);
    return ends_text(id, emitted[count - 1]) ? 1 : 0;
}

/// What may come behind some drafted tokens; sometimes it is token 4 alone. [words] a bit a token.
inline std::span<std::int32_t const> allowed(std::uint64_t id, std::span<token_id const> drafted) {
    static std::vector<std::int32_t> words(mask_words(2048));
    bool const forced = (id + drafted.size()) % 4 == 0;
    auto const turn = static_cast<std::size_t>(drafted.empty() ? token_id{0} : drafted.back());
    for (std::size_t w = 0; w < words.size(); ++w) {
        std::uint32_t bits = 0;
        for (std::size_t i = 0; i < 32; ++i) {
            std::size_t const v = 32 * w + i;
            if (forced ? v == 4 : (v + turn + id) % 3 != 0) bits |= 1u << i;
        }
        words[w] = static_cast<std::int32_t>(bits);
    }
    return words;
}
struct grammar_of {
    std::size_t vocabulary;
    [[nodiscard]] token_mask operator()(request_view const& request, std::span<token_id const> drafted) const noexcept {
        return token_mask{allowed(request.id, drafted).first(mask_words(vocabulary))};
    }
};
/// The same as C asks it.
inline std::int32_t const* allowed_in_c(void* of, std::uint64_t id, std::int32_t const* drafted, std::size_t count) {
    ++*static_cast<std::size_t*>(of);
    return allowed(id, {drafted, count}).data();
}

/// Requests that go on from round to round, and the numbers of a round.
template <class T>
class traffic {
public:
    traffic(std::uint64_t seed, std::size_t vocabulary, bool greedy) : dice_(seed), greedy_(greedy) {
        n_.vocabulary = vocabulary;
    }

    /// Requests of the next round in some order, each in its slot.
    void next_round(double broken) {
        requests_.clear();
        for (std::size_t slot = 0; slot < most_requests; ++slot) {
            if (!coin(0.75)) continue;
            sureleap_request q;
            sureleap_request_init(&q);
            q.id = 10 + slot;
            q.slot = slot;
            q.anchor = anchors_[slot];
            q.position = positions_[slot];
            q.seed = 1000 + slot;
            q.tenant = static_cast<std::uint32_t>(slot % 2);
            if (coin(0.2)) q.remaining = 1 + below(4);
            if (coin(0.2)) q.draft_limit = below(block_size + 1);
            q.target.temperature = greedy_ ? 0.0 : coin(0.2) ? 0.0 : coin(0.5) ? 1.0 : 0.7;
            if (coin(0.2)) q.target.top_k = static_cast<std::int32_t>(1 + below(5));
            if (coin(0.2)) q.target.top_p = 0.8;
            if (coin(0.1)) q.target.min_p = 0.05;
            if (coin(0.3)) q.draft = {coin(0.2) ? 0.0 : 1.3, coin(0.5) ? 3 : 0, 1.0, 0.0};
            if (coin(0.3)) q.priority = 4.0;
            if (coin(0.3)) {
                q.stop_tokens = &stop_;
                q.stop_token_count = 1;
            }
            if (coin(0.3)) {
                q.text_end = text_ends_in_c;
                q.text_end_of = &asked_;
            }
            if (coin(0.25)) {
                q.constraint = allowed_in_c;
                q.constraint_of = &asked_;
            }
            if (coin(0.25)) q.min_new_tokens = std::min<std::size_t>(q.remaining, below(4));
            q.log_probabilities = coin(0.5) ? 1 : 0;
            requests_.push_back(q);
        }
        std::shuffle(requests_.begin(), requests_.end(), dice_);

        std::size_t const rows = requests_.size() * block_size;
        std::size_t const vocabulary = n_.vocabulary;
        fill(n_.draft, rows * vocabulary, broken);
        fill(n_.target, requests_.size() * (block_size + 1) * vocabulary, broken);
        n_.hidden.assign(rows, T{});
        n_.confidences.assign(rows, 0.0);
        n_.lists.assign(rows * vocabulary, 0);
        n_.list_counts.assign(rows, 0);
        n_.guesses.assign(rows, 0);
        for (std::size_t i = 0; i < rows; ++i) {
            n_.confidences[i] = coin(broken) ? 1.5 : static_cast<double>(below(65)) / 64.0;  // exact in every format
            n_.hidden[i] = static_cast<T>(static_cast<float>(n_.confidences[i]));
            n_.guesses[i] = static_cast<token_id>(below(vocabulary));
            for (std::size_t v = 0; v < vocabulary; ++v) {
                if (coin(0.3)) n_.lists[i * vocabulary + n_.list_counts[i]++] = static_cast<token_id>(v);
            }
            if (n_.list_counts[i] == 0) n_.list_counts[i] = 1;
        }
    }
    /// The round is over: requests go on from what was emitted.
    void commit(std::span<verdict const> verdicts) {
        for (verdict const& v : verdicts) {
            if (v.emitted.empty()) continue;
            positions_[v.slot] += v.emitted.size();
            anchors_[v.slot] = v.emitted.back();
        }
    }

    [[nodiscard]] std::vector<sureleap_request> const& requests() const { return requests_; }
    [[nodiscard]] numbers<T> const& round() const { return n_; }
    [[nodiscard]] bool coin(double p) { return std::uniform_real_distribution<>()(dice_) < p; }
    [[nodiscard]] std::size_t below(std::size_t n) {
        return std::uniform_int_distribution<std::size_t>(0, n - 1)(dice_);
    }

private:
    void fill(std::vector<T>& out, std::size_t count, double broken) {
        std::normal_distribution<float> normal(0.0f, 1.5f);
        out.resize(count);
        for (T& x : out) x = static_cast<T>(normal(dice_));
        if (count > 0 && coin(broken)) out[below(count)] = static_cast<T>(std::numeric_limits<float>::quiet_NaN());
    }

    std::mt19937_64 dice_;
    bool greedy_;
    numbers<T> n_{};
    std::vector<sureleap_request> requests_{};
    std::uint64_t positions_[most_requests] = {};
    token_id anchors_[most_requests] = {};
    token_id stop_ = 2;
    std::size_t asked_ = 0;  // whether a text ends, or what may come
};

/// Requests of a round as C++ has them. Settings lie beside.
class cpp_requests {
public:
    explicit cpp_requests(std::size_t vocabulary) : grammar_{vocabulary} {}
    std::span<request_view const> of(std::vector<sureleap_request> const& from, bool probabilities) {
        views_.clear();
        settings_.assign(from.size(), {});
        for (std::size_t r = 0; r < from.size(); ++r) {
            sureleap_request const& q = from[r];
            request_settings& s = settings_[r];
            s.temperature = q.target.temperature;
            s.top_k = q.target.top_k;
            s.top_p = q.target.top_p;
            s.min_p = q.target.min_p;
            if (probabilities) {
                s.draft = transform{};
            } else if (q.draft.temperature >= 0.0) {
                s.draft = transform{q.draft.temperature, q.draft.top_k, q.draft.top_p, q.draft.min_p};
            }
            s.priority = q.priority;
            s.tenant = q.tenant;
            s.log_probabilities = q.log_probabilities != 0;
            s.stop_tokens = {q.stop_tokens, q.stop_token_count};
            if (q.text_end != nullptr) s.text_end = text_ends;
            if (q.constraint != nullptr) s.constraint = grammar_;
            s.max_new_tokens = q.remaining;
            s.min_new_tokens = q.min_new_tokens;
            views_.push_back({.id = q.id,
                              .slot = q.slot,
                              .anchor = q.anchor,
                              .position = q.position,
                              .seed = q.seed,
                              .remaining = q.remaining,
                              .settings = &s,
                              .draft_limit = q.draft_limit});
        }
        return views_;
    }

private:
    grammar_of grammar_;
    std::vector<request_view> views_{};
    std::vector<request_settings> settings_{};
};

/// How drafts reach the round.
enum class way { block, step_by_step, drawn_outside, lists, one_hot };

template <class T>
[[nodiscard]] constexpr std::int32_t format_of() {
    return std::is_same_v<T, float> ? SURELEAP_FLOAT : std::is_same_v<T, half> ? SURELEAP_HALF : SURELEAP_BF16;
}

/// The drafts of a round through the header.
template <class T>
void draft(sureleap_round* round, way how, traffic<T>& from, draft_block<float> const& drawn) {
    numbers<T> const& n = from.round();
    std::size_t const requests = from.requests().size();
    std::size_t const vocabulary = n.vocabulary;
    sureleap_drafts d{};
    d.positions = block_size;
    d.confidences = n.confidences.data();
    d.rows = {n.draft.data(), requests * block_size, vocabulary, vocabulary, nullptr, nullptr, 0, 0};
    std::vector<token_id> tokens(requests * block_size, no_token);
    std::vector<std::size_t> counts(requests);
    if (how == way::step_by_step) {
        for (std::size_t k = 0; k < block_size; ++k) {  // rows and confidences of position k, gamma apart
            std::vector<double> confidences;
            for (std::size_t r = 0; r < requests; ++r) confidences.push_back(n.confidences[r * block_size + k]);
            d.positions = 1;
            d.confidences = confidences.data();
            d.rows = {
                n.draft.data() + k * vocabulary, requests, vocabulary, block_size * vocabulary, nullptr, nullptr, 0, 0};
            REQUIRE(sureleap_round_draft(round, &d) == SURELEAP_OK);
        }
        return;
    }
    if (how == way::drawn_outside) {
        for (std::size_t r = 0; r < requests; ++r) {
            auto const chain = drawn.tokens(r);
            std::copy(chain.begin(), chain.end(), tokens.begin() + static_cast<std::ptrdiff_t>(r * block_size));
            // Behind a position that failed there is no token: the same failure is met there.
            counts[r] = std::min(chain.size() + (drawn.draft_outcome(r) == status::ok ? 0 : 1), block_size);
            if (counts[r] > chain.size()) tokens[r * block_size + chain.size()] = 0;
        }
        d.tokens = tokens.data();
        d.counts = counts.data();
    }
    if (how == way::lists) {
        d.list_tokens = n.lists.data();
        d.list_stride = vocabulary;
        d.list_counts = n.list_counts.data();
    }
    if (how == way::one_hot) {
        d.tokens = n.guesses.data();
        d.rows = {};
    }
    REQUIRE(sureleap_round_draft(round, &d) == SURELEAP_OK);
}

/// `rows`: of the request in the batch.
inline void expect_equal(sureleap_verdict const& c, verdict const& v, std::size_t rows) {
    REQUIRE(c.id == v.id);
    REQUIRE(c.slot == v.slot);
    REQUIRE(c.outcome == static_cast<std::int32_t>(v.outcome));
    REQUIRE(c.draft_outcome == static_cast<std::int32_t>(v.draft_outcome));
    REQUIRE(c.drafted == v.drafted);
    REQUIRE(c.verified == v.verified);
    REQUIRE(c.accepted == v.accepted);
    REQUIRE(std::vector<token_id>(c.emitted, c.emitted + c.emitted_count) ==
            std::vector<token_id>(v.emitted.begin(), v.emitted.end()));
    REQUIRE(c.finished == static_cast<std::int32_t>(v.finished));
    REQUIRE(c.rows_kept == v.emitted.size());
    REQUIRE(c.rows_kept + c.rows_rolled_back == rows);
    REQUIRE((c.log_probabilities != nullptr) == !v.log_probabilities.empty());
    for (std::size_t i = 0; i < v.log_probabilities.size(); ++i) {
        REQUIRE(c.log_probabilities[i] == v.log_probabilities[i]);
    }
}

/// So many random rounds, both ways. `o` has rule, draft rule, schedule; calibrations are lent to both.
template <class T, class Drafter, class Schedule, class Rule>
void compare(sureleap_round_options o, way how, Drafter drafter, Schedule schedule, Rule const& rule,
             calibration_ref calibration, sureleap_calibration* c_calibration, online_calibration* learns,
             traffic<T>& from, numbers<T>& n, std::size_t rounds) {
    round_memory<T, float> cpp{
        drafter, schedule, rule, {.max_requests = most_requests, .calibration = calibration, .constrained = true}};
    o.calibration = c_calibration;
    o.constrained = 1;
    memory const bytes(bytes_of(o));
    sureleap_round* c = nullptr;
    sureleap_error error{};
    REQUIRE(sureleap_round_create(&o, bytes.data(), bytes.size(), &c, &error) == SURELEAP_OK);

    cpp_requests views(n.vocabulary);
    philox_randomness rng;
    for (std::size_t i = 0; i < rounds; ++i) {
        from.next_round(0.02);
        n = from.round();
        std::vector<std::size_t> caps(from.requests().size());
        REQUIRE(sureleap_round_begin(c, from.requests().data(), from.requests().size(), caps.data()) == SURELEAP_OK);
        if (begin_round(schedule, views.of(from.requests(), false), cpp)) {
            auto const forward = drafter.forward(cpp.requests());
            plan(schedule, drafter, forward, cpp);
            draw(drafter, forward, rule, rng, cpp);
            if (o.schedule == SURELEAP_PLANNED) {
                REQUIRE(sureleap_round_plan(c, n.confidences.data(), block_size) == SURELEAP_OK);
            }
            draft(c, how, from, cpp.block());
        }
        verify_batch const& batch = admit(schedule, cpp);
        sureleap_batch c_batch{};
        REQUIRE(sureleap_round_admit(c, &c_batch) == SURELEAP_OK);
        REQUIRE(c_batch.rows == batch.rows());
        REQUIRE(c_batch.requests == batch.requests().size());
        for (std::size_t row = 0; row < batch.rows(); ++row) {
            REQUIRE(c_batch.tokens[row] == batch.tokens()[row]);
            REQUIRE(c_batch.positions[row] == batch.positions()[row]);
            REQUIRE(c_batch.markers[row] == batch.markers()[row]);
        }
        for (std::size_t r = 0; r < caps.size(); ++r) {
            REQUIRE(c_batch.offsets[r + 1] == batch.offsets()[r + 1]);
            REQUIRE(caps[r] == cpp.requests()[r].draft_cap(block_size));
        }

        logits_rows<T> const rows{{n.target.data(), batch.rows(), n.vocabulary}, {}, {}};
        accept(rule, rows, no_logits_hook{}, rng, cpp);
        sureleap_rows c_rows{n.target.data(), batch.rows(), n.vocabulary, n.vocabulary, nullptr, nullptr, 0, 0};
        std::vector<T> padded;
        if (from.coin(0.3)) {  // as engines lay them out that pad
            c_rows.per_request = block_size + 1;
            padded.assign(caps.size() * c_rows.per_request * n.vocabulary, T{});
            for (std::size_t r = 0; r < caps.size(); ++r) {
                auto const first = n.target.begin() + static_cast<std::ptrdiff_t>(batch.first_row(r) * n.vocabulary);
                std::copy_n(first, (batch.length(r) + 1) * n.vocabulary,
                            padded.begin() + static_cast<std::ptrdiff_t>(r * c_rows.per_request * n.vocabulary));
            }
            c_rows.data = padded.data();
            c_rows.rows = caps.size() * c_rows.per_request;
        }
        REQUIRE(sureleap_round_accept(c, &c_rows) == SURELEAP_OK);

        round_record const record = end_round(schedule, cpp);
        std::vector<sureleap_verdict> verdicts(caps.size());
        REQUIRE(sureleap_round_end(c, verdicts.data(), verdicts.size()) == SURELEAP_OK);
        for (std::size_t r = 0; r < caps.size(); ++r) {
            expect_equal(verdicts[r], record.verdicts[r], c_batch.offsets[r + 1] - c_batch.offsets[r]);
        }
        if (learns != nullptr) {
            learns->observe(record);
            REQUIRE(sureleap_calibration_observe(c_calibration, c) == SURELEAP_OK);
        }
        from.commit(record.verdicts);
        for (verdict const& v : record.verdicts) {
            if (v.outcome == status::ok) continue;  // a failed round is given up for another request
            cpp.join(v.slot);
            REQUIRE(sureleap_round_join(c, v.slot) == SURELEAP_OK);
        }
    }
    REQUIRE(sureleap_round_destroy(c) == SURELEAP_OK);
}

/// Every rule and draft rule: visit(rule, draft_rule, type of the rule).
template <class Visit>
void for_each_rule(Visit const& visit) {
    visit(SURELEAP_TOKEN_REJECTION, SURELEAP_DRAFT_CATEGORICAL, token_rejection<>{});
    visit(SURELEAP_TOKEN_REJECTION, SURELEAP_DRAFT_ARGMAX, token_rejection<argmax_draft>{});
    visit(SURELEAP_BLOCK_VERIFICATION, SURELEAP_DRAFT_CATEGORICAL, block_verification<>{});
    visit(SURELEAP_BLOCK_VERIFICATION, SURELEAP_DRAFT_ARGMAX, block_verification<argmax_draft>{});
    visit(SURELEAP_TARGET_MATCH, SURELEAP_DRAFT_CATEGORICAL, target_match<categorical_draft>{});
    visit(SURELEAP_TARGET_MATCH, SURELEAP_DRAFT_ARGMAX, target_match<>{});
    visit(SURELEAP_TARGET_MATCH, SURELEAP_DRAFT_COUPLED, target_match<coupled_draft>{});
    visit(SURELEAP_GREEDY_MATCH, SURELEAP_DRAFT_ARGMAX, greedy_match{});
    visit(SURELEAP_KEYED_COUPLING, SURELEAP_DRAFT_COUPLED, keyed_coupling{});
}

/// Every schedule, with its type.
template <class Visit>
void for_each_schedule(Visit const& visit) {
    for (std::int32_t const which :
         {SURELEAP_FIXED, SURELEAP_THRESHOLD, SURELEAP_SURVIVAL_THRESHOLD, SURELEAP_GREEDY}) {
        visit(which, 0, live{which});
    }
    visit(SURELEAP_TOP_K, 1, lagged_top_k<1>(make_curve(), 0.7));
    visit(SURELEAP_TOP_K, 2, lagged_top_k<2>(make_curve(), 0.7));
    visit(SURELEAP_PLANNED, 0, planned_schedule<curve>{make_curve()});
    visit(SURELEAP_RETROSPECTIVE, 0, retrospective_schedule<curve>{make_curve()});
}

}  // namespace c_rounds

// SPDX-License-Identifier: MIT
//
// A row's result does not depend on its batch, bit for bit: the promise of kernels.hpp, held by whole models.
//
// Plain decoding, one row at a time on one thread, writes down everything the models compute. The same sequences then
// run together in random pieces: prompts in chunks, verify batches of any requests in any order, with drafts that are
// rejected, observed and drafted for in groups, on several threads. Every number must come out with the same bits, and
// equal means memcmp: a tolerance would pass the one thing this is about.
#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <engine/causal_lm.hpp>
#include <engine/dspark.hpp>
#include <engine/eagle3.hpp>
#include <engine/kernels_table.hpp>

#include "support/dice.hpp"
#include "support/tiny_models.hpp"

namespace {

using sureleap::token_id;
using tiny::segment;
using sequences = std::vector<std::vector<token_id>>;

// Large enough that products and attention are shared out over threads, and no width is a multiple of a vector's.
tiny::shape const widths{
    .layers = 3, .hidden = 58, .intermediate = 137, .heads = 6, .kv_heads = 2, .head_dim = 14, .vocabulary = 301};
tiny::drafter_shape const drafter{.block_size = 3, .layers = 2};
constexpr std::size_t longest = 26;
engine::serving_limits const limits{.slots = 6, .context_length = longest + 8, .max_rows = 64};

template <class Real>
struct models {
    engine::thread_pool pool;
    engine::causal_lm<Real> target;
    engine::dspark<Real> dspark;
    engine::eagle3<Real> eagle3;

    models(engine::storage type, std::size_t threads)
        : pool(threads),
          target(engine::make_in_memory(tiny::target_config(widths), type, 1), tiny::feature_layers(widths), pool,
                 limits),
          dspark(engine::make_in_memory(tiny::dspark_config(widths, drafter), type, 2), target, pool, limits),
          eagle3(engine::make_in_memory(tiny::eagle3_config(widths, drafter), type, 3), target, pool, limits) {}
};

// What was computed: which kind, of which sequence, for which position, and the place inside a block.
enum kind : std::size_t { logits, features, block_hidden, block_logits, eagle_logits, kinds };
using place = std::array<std::size_t, 4>;
template <class Real>
using transcript = std::map<place, std::vector<Real>>;

template <class Real>
void note(transcript<Real>& to, place const& where, std::span<Real const> values) {
    to[where].assign(values.begin(), values.end());
}

// Some drafts for Eagle3 to go along; the same whoever asks.
std::vector<token_id> eagle_drafts(std::size_t sequence, std::size_t position) {
    return {static_cast<token_id>((7 * sequence + 3 * position) % widths.vocabulary),
            static_cast<token_id>((5 * sequence + 11 * position + 1) % widths.vocabulary)};
}

// Sequence s stands in slots[s]; these of them draft now, each behind as many observed positions as `seen` says.
template <class Real>
void draft(models<Real>& m, sequences const& all, std::vector<std::size_t> const& slots,
           std::vector<std::size_t> const& seen, std::vector<std::size_t> const& who, transcript<Real>& to) {
    std::vector<segment> anchors;
    std::vector<token_id> drafts;
    for (std::size_t const s : who) {
        anchors.push_back({slots[s], seen[s], {all[s][seen[s]]}});
        for (token_id const x : eagle_drafts(s, seen[s])) drafts.push_back(x);
    }
    tiny::flat_batch const batch(anchors);
    auto const block = m.dspark.forward(batch.requests());
    for (std::size_t i = 0; i < who.size(); ++i) {
        for (std::size_t k = 0; k < drafter.block_size; ++k) {
            std::size_t const row = i * drafter.block_size + k;
            note(to, {block_hidden, who[i], seen[who[i]], k}, block.hidden.row(row));
            note(to, {block_logits, who[i], seen[who[i]], k}, block.base_logits.values.row(row));
        }
    }
    for (std::size_t k = 0; k <= 2; ++k) {
        auto const rows = m.eagle3.forward(batch.requests(), {drafts.data(), 2, k});
        for (std::size_t i = 0; i < who.size(); ++i) {
            note(to, {eagle_logits, who[i], seen[who[i]], k}, rows.values.row(i));
        }
    }
}

// Plain decoding: one sequence after another, one row at a time, drafting at every position.
template <class Real>
transcript<Real> one_by_one(models<Real>& m, sequences const& all) {
    transcript<Real> out;
    std::vector<std::size_t> const slots(all.size(), 0);
    for (std::size_t s = 0; s < all.size(); ++s) {
        std::vector<std::size_t> seen(all.size());
        for (std::size_t t = 0; t < all[s].size(); ++t) {
            note(out, {logits, s, t, 0}, tiny::score_one(m.target, 0, t, all[s][t]));
            auto const row = m.target.features().row(0);
            note(out, {features, s, t, 0}, row);
            if (t + 1 == all[s].size()) break;
            std::vector<engine::batch_row> const where{{0, static_cast<std::uint32_t>(t), 0}};
            m.dspark.observe(where, row.data());
            m.eagle3.observe(where, row.data(), std::span(all[s]).subspan(t + 1, 1));
            ++seen[s];
            draft(m, all, slots, seen, {s}, out);
        }
    }
    return out;
}

// The same together: whatever a loop could do, in random order.
template <class Real>
transcript<Real> together(models<Real>& m, sequences const& all, support::dice& roll) {
    transcript<Real> out;
    std::size_t const n = all.size();
    auto const shuffled = [&](std::vector<std::size_t> v) {
        for (std::size_t i = v.size(); i > 1; --i) std::swap(v[i - 1], v[roll.below(i)]);
        return v;
    };
    std::vector<std::size_t> numbers(limits.slots);
    std::iota(numbers.begin(), numbers.end(), 0u);
    std::vector<std::size_t> const slots = shuffled(numbers);
    std::vector<std::size_t> done(n), seen(n);  // through the target, and observed
    // Some of the sequences for which `open` holds, at least one if there is any, in random order.
    auto const some = [&](auto const& open) {
        std::vector<std::size_t> who;
        for (std::size_t s = 0; s < n; ++s) {
            if (open(s)) who.push_back(s);
        }
        who = shuffled(who);
        if (!who.empty()) who.resize(1 + roll.below(who.size()));
        return who;
    };
    auto const unfinished = [&](std::size_t s) { return done[s] < all[s].size(); };
    auto const unobserved = [&](std::size_t s) { return seen[s] < std::min(done[s], all[s].size() - 1); };
    auto const keep_features = [&](std::size_t s, std::size_t t, std::size_t row) {
        note(out, {features, s, t, 0}, m.target.features().row(row));
    };
    while (!some(unfinished).empty() || !some(unobserved).empty()) {
        double const choice = roll.real();
        if (choice < 0.15) {  // a chunk of a prompt
            auto const who = some(unfinished);
            if (who.empty()) continue;
            std::size_t const s = who[0];
            std::size_t const count = 1 + roll.below(all[s].size() - done[s]);
            m.target.prefill(slots[s], done[s], std::span(all[s]).subspan(done[s], count));
            for (std::size_t i = 0; i < count; ++i) keep_features(s, done[s] + i, i);
            done[s] += count;
        } else if (choice < 0.5) {  // a verify batch: drafts that are right, then some that are not
            auto const who = some(unfinished);
            if (who.empty()) continue;
            std::vector<segment> segments;
            std::vector<std::size_t> right;
            for (std::size_t const s : who) {
                right.push_back(1 + roll.below(std::min<std::size_t>(all[s].size() - done[s], 5)));
                segment& part = segments.emplace_back(segment{slots[s], done[s], {}});
                for (std::size_t i = 0; i < right.back(); ++i) part.tokens.push_back(all[s][done[s] + i]);
                for (token_id const x : tiny::random_tokens(roll, roll.below(4), widths.vocabulary)) {
                    part.tokens.push_back(x);
                }
            }
            tiny::flat_batch const flat(segments);
            auto const rows = m.target.score(flat.batch());
            for (std::size_t i = 0; i < who.size(); ++i) {
                for (std::size_t k = 0; k < right[i]; ++k) {
                    std::size_t const row = flat.batch().first_row(i) + k;
                    note(out, {logits, who[i], done[who[i]] + k, 0}, rows.values.row(row));
                    keep_features(who[i], done[who[i]] + k, row);
                }
                done[who[i]] += right[i];
            }
        } else if (choice < 0.75) {  // drafters take in what is new
            std::vector<engine::batch_row> where;
            std::vector<Real> values;
            std::vector<token_id> next;
            for (std::size_t const s : some(unobserved)) {
                std::size_t const ready = std::min(done[s], all[s].size() - 1) - seen[s];
                for (std::size_t count = 1 + roll.below(std::min<std::size_t>(ready, 9)); count > 0;
                     --count, ++seen[s]) {
                    auto const& row = out.at({features, s, seen[s], 0});
                    where.push_back({static_cast<std::uint32_t>(slots[s]), static_cast<std::uint32_t>(seen[s]), 0});
                    values.insert(values.end(), row.begin(), row.end());
                    next.push_back(all[s][seen[s] + 1]);
                }
            }
            if (where.empty()) continue;
            m.dspark.observe(where, values.data());
            m.eagle3.observe(where, values.data(), next);
        } else {
            auto const who = some([&](std::size_t s) { return seen[s] > 0; });
            if (!who.empty()) draft(m, all, slots, seen, who, out);
        }
    }
    return out;
}

template <class Real>
void check_equal(transcript<Real> const& got, transcript<Real> const& expected) {
    std::array<std::size_t, kinds> compared{};
    for (auto const& [where, values] : got) {
        auto const found = expected.find(where);
        REQUIRE(found != expected.end());
        REQUIRE(values.size() == found->second.size());
        ++compared[where[0]];
        if (std::memcmp(values.data(), found->second.data(), values.size() * sizeof(Real)) == 0) continue;
        FAIL_CHECK("kind " << where[0] << " of sequence " << where[1] << " at position " << where[2] << ", row "
                           << where[3] << " of its block, differs from what one row alone gives");
    }
    for (std::size_t k = 0; k < kinds; ++k) {
        INFO("kind " << k);
        CHECK(compared[k] > 10);
    }
}

sequences random_sequences(support::dice& roll) {
    sequences all;
    for (std::size_t i = 0; i < 5; ++i)
        all.push_back(tiny::random_tokens(roll, 2 + roll.below(longest - 1), widths.vocabulary));
    all.front().resize(longest);
    return all;
}

// Every kernel set that this machine runs, one after another; the one in use before comes back.
class every_kernel_set {
public:
    template <class F>
    static void run(F const& f) {
        every_kernel_set const restore;
        std::size_t ran = 0;
        for (char const* const name : {"avx512", "avx2", "portable"}) {
            engine::kernel_set const* const set = engine::find_kernels(name);
            if (set == nullptr) continue;
            engine::use_kernels(*set);
            INFO("kernels: " << name);
            f();
            ++ran;
        }
        REQUIRE(ran > 0);
    }

private:
    every_kernel_set() : before_(engine::find_kernels(engine::instruction_set())) {}
    ~every_kernel_set() { engine::use_kernels(*before_); }
    every_kernel_set(every_kernel_set const&) = delete;
    every_kernel_set& operator=(every_kernel_set const&) = delete;

    engine::kernel_set const* before_;
};

}  // namespace

TEMPLATE_TEST_CASE("batching: no number depends on its batch, on chunks or on threads", "[engine]", float, double) {
    using Real = TestType;
    every_kernel_set::run([] {
        for (auto const type : {engine::storage::f32, engine::storage::bf16, engine::storage::f16}) {
            support::dice roll(11 + static_cast<std::uint64_t>(type));
            INFO(bytes_of(type) << " bytes a weight (" << (type == engine::storage::bf16 ? "bf16" : "IEEE")
                                << "), seed " << roll.seed());
            sequences const all = random_sequences(roll);
            models<Real> alone(type, 1);
            auto const expected = one_by_one(alone, all);
            for (std::size_t const threads : {1u, 2u, 3u}) {
                INFO(threads << " threads");
                models<Real> m(type, threads);
                check_equal(together(m, all, roll), expected);
            }
        }
    });
}

TEMPLATE_TEST_CASE("batching: a prompt may be cut anywhere", "[engine]", float, double) {
    using Real = TestType;
    every_kernel_set::run([] {
        support::dice roll(21);
        INFO("seed " << roll.seed());
        auto const prompt = tiny::random_tokens(roll, longest, widths.vocabulary);
        models<Real> alone(engine::storage::bf16, 1);
        for (std::size_t t = 0; t + 1 < longest; ++t) (void)tiny::score_one(alone.target, 0, t, prompt[t]);
        auto const last = tiny::score_one(alone.target, 0, longest - 1, prompt.back());
        std::vector<Real> const expected(last.begin(), last.end());
        models<Real> m(engine::storage::bf16, 2);
        for (std::size_t chunk = 1; chunk < longest; ++chunk) {
            INFO("chunks of " << chunk);
            std::size_t const slot = chunk % limits.slots;
            for (std::size_t t = 0; t + 1 < longest; t += chunk) {
                m.target.prefill(slot, t, std::span(prompt).subspan(t, std::min(chunk, longest - 1 - t)));
            }
            auto const got = tiny::score_one(m.target, slot, longest - 1, prompt.back());
            CHECK(std::memcmp(got.data(), expected.data(), expected.size() * sizeof(Real)) == 0);
        }
    });
}

TEMPLATE_TEST_CASE("batching: rejected drafts leave no trace", "[engine]", float, double) {
    using Real = TestType;
    every_kernel_set::run([] {
        support::dice roll(31);
        INFO("seed " << roll.seed());
        auto const tokens = tiny::random_tokens(roll, longest, widths.vocabulary);
        models<Real> clean(engine::storage::bf16, 1);
        models<Real> used(engine::storage::bf16, 1);
        std::size_t rejected = 0;
        for (std::size_t t = 0; t < longest; ++t) {
            auto const row = tiny::score_one(clean.target, 3, t, tokens[t]);
            std::vector<Real> const expected(row.begin(), row.end());
            segment with_drafts{3, t, tiny::random_tokens(roll, 1 + roll.below(8), widths.vocabulary)};
            with_drafts.tokens[0] = tokens[t];
            rejected += with_drafts.tokens.size() - 1;
            tiny::flat_batch const flat({with_drafts});
            auto const got = used.target.score(flat.batch()).values.row(0);
            INFO("position " << t);
            CHECK(std::memcmp(got.data(), expected.data(), expected.size() * sizeof(Real)) == 0);
        }
        REQUIRE(rejected > longest);
    });
}

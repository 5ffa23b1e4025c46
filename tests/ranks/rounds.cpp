// SPDX-License-Identifier: MIT
//
// Rounds over slices of the vocabulary, whose ranks are processes: mpirun -n 3 ranks.rounds <mode> [rounds]
//
//   random      random calls of all rules, storage types, kinds of q, edits and truncations, over random slices: what
//               one rank with whole rows emits
//   decodes     decoders whose target has slices, and those whose drafter has them too: what one rank emits
//   soak        the same with requests that join, leave and are cancelled at any time: nothing is lost
//   killed      rank 1 ends in the middle of a verification
//   drafting    rank 1 ends while the first drafts are drawn
//   stopped     rank 1 is stopped there for longer than others wait
//   nan         rank 1 has a NaN in a row: its request ends on all ranks, with nothing emitted, and others go on
//
// Where rank 1 is lost the others are told in time, with nothing emitted; rank 0 says so. Each of them then goes on alone
// from what was emitted, and has the texts of a run in which nobody was lost.
#include <mpi.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sureleap/decoder.hpp>
#include <sureleap/ext/mpi.hpp>
#include <sureleap/ranks/gather.hpp>
#include <sureleap/ranks/one_rank.hpp>
#include <sureleap/ranks/rank_consensus.hpp>
#include <sureleap/ranks/sharded_drafter.hpp>
#include <sureleap/ranks/sharded_rows.hpp>
#include <sureleap/schedule/agreed.hpp>
#include <sureleap/schedule/top_k.hpp>
#include <sureleap/verifier.hpp>
#include <sureleap/verify/any.hpp>

#include "ranks/processes.hpp"
#include "support/dice.hpp"
#include "support/engine_scene.hpp"
#include "support/sliced_calls.hpp"
#include "support/sliced_world.hpp"
#include "support/small_world.hpp"

using namespace sureleap;
using support::expect;
using namespace support;

namespace {

// ---- random calls ----------------------------------------------------------------------------------------------

template <class T, class Edits, class Laid, class Ranks>
sliced_outputs run(Laid const& whole, engine_shape const& shape, any_rule const& rule, vocabulary_slices const& slices,
                   Ranks& ranks) {
    std::size_t const R = whole.call.requests;
    sliced_outputs out(R, shape.block_size);
    row_shards<T, Ranks, float, Edits> shards{ranks, slices, {.max_requests = R, .block_size = shape.block_size}};
    verifier<T, any_rule, Edits> verify{rule, sliced_options(shape, R, slices, ranks.rank())};
    sliced_call<T> own{whole, shape, slices, ranks.rank()};
    own.call.out = out.arrays();
    static_cast<void>(verify(own.call, shards));
    return out;
}
template <class T, class Edits>
void check_call(mpi_ranks& ranks, std::uint64_t seed, any_rule const& rule, engine_shape const& shape) {
    dice roll(seed);
    std::vector<plain_request<T>> requests;
    for (std::size_t r = 1 + roll.below(4); r > 0; --r) requests.push_back(random_request<T>(roll, shape));
    laid_out<T, std::vector> const whole(roll, shape, requests);
    std::size_t const P = ranks.size();
    auto const slices = roll.chance(0.5) ? vocabulary_slices::even(shape.vocabulary, P, 8)
                                         : uneven_slices(roll, shape.vocabulary, P, 8);
    one_rank alone;
    bool const same = run<T, Edits>(whole, shape, rule, slices, ranks) ==
                      run<T, Edits>(whole, shape, rule, vocabulary_slices::even(shape.vocabulary, 1, 8), alone);
    expect(same, "other tokens than one rank emits, in call", seed);
}
template <class T>
void check_call(mpi_ranks& ranks, std::uint64_t seed, any_rule const& rule, engine_shape const& shape) {
    if (shape.edits) return check_call<T, array_edits>(ranks, seed, rule, shape);
    check_call<T, no_logits_hook>(ranks, seed, rule, shape);
}
void random_calls(mpi_ranks& ranks, std::size_t rounds) {
    any_rule const rules[]{token_rejection<>{}, block_verification<>{}, target_match<>{}, keyed_coupling{},
                           greedy_match{}};
    for (std::uint64_t seed = 0; seed < rounds * std::size(rules); ++seed) {
        engine_shape shape{.q = static_cast<q_kind>(seed / 5 % 5),
                           .edits = seed % 2 == 1,
                           .greedy = seed % 5 == 4,
                           .truncates = seed % 4 >= 2};
        if (seed % 7 == 0) shape.vocabulary = 200;
        any_rule const& rule = rules[seed % 5];
        if (seed % 3 == 0) check_call<float>(ranks, seed, rule, shape);
        if (seed % 3 == 1) check_call<bf16>(ranks, seed, rule, shape);
        if (seed % 3 == 2) check_call<half>(ranks, seed, rule, shape);
    }
}

// ---- decoders --------------------------------------------------------------------------------------------------

constexpr std::size_t places = 4;
small_world::world const a_world{12, 11, 3};

struct capacity {
    [[nodiscard]] double steps_per_second(std::size_t batch) const noexcept {
        return 1.0 / (1.0 + 0.01 * static_cast<double>((batch + 3) / 4 * 4));
    }
};
sliced_world<double> const own_models(12, a_world.vocabulary, a_world.block_size);

/// The drafter of a rank that has all columns, or its own.
struct whole_drafts {
    template <class Ranks>
    [[nodiscard]] auto operator()(Ranks&, vocabulary_slices const&) const {
        return small_world::semi_of(a_world);
    }
};
struct sliced_drafts {
    template <class Ranks>
    [[nodiscard]] auto operator()(Ranks& ranks, vocabulary_slices const& slices) const {
        auto const own = slices.tokens(ranks.rank());
        return sharded_drafter{
            semi_autoregressive{sliced_backbone<double>{&own_models, own}, own_models.gated(own), hidden_confidence{},
                                drafter_options{.block_size = a_world.block_size,
                                                .vocabulary = a_world.vocabulary,
                                                .hidden_size = own_models.hidden_size,
                                                .slice = own}},
            ranks, slices};
    }
};
/// of(decoder) with a decoder whose target has slices on these ranks.
template <class Rule, class Drafts = whole_drafts, class Ranks, class Of>
void with_decoder(Ranks& ranks, Of const& of) {
    auto const slices = vocabulary_slices::even(a_world.vocabulary, ranks.size(), 2);
    row_shards<double, Ranks> shards{ranks, slices, {.max_requests = places, .block_size = a_world.block_size}};
    auto whole = small_world::target_of(a_world);
    sliced_target<double, decltype(whole), Ranks> target{whole, &shards};
    decoder dec{target,
                Drafts{}(ranks, slices),
                agreed{top_k_schedule{capacity{}}, rank_consensus{ranks, {.max_requests = places}}},
                Rule{},
                {.max_requests = places}};
    of(dec);
}
struct texts {
    std::map<request_id, std::vector<token_id>> tokens;
    status ended = status::ok;

    [[nodiscard]] std::uint64_t number() const {
        std::uint64_t all = 0;
        for (auto const& [id, text] : tokens) {
            for (token_id const x : text) all = all * 31 + static_cast<std::uint64_t>(x) + 7 * id + 1;
        }
        return all;
    }
};
template <class Decoder>
void take_events(Decoder& dec, texts& all) {
    for (auto const& event : dec.events()) {
        if (event.outcome != status::ok) all.ended = event.outcome;
        auto& text = all.tokens[event.request];
        text.insert(text.end(), event.tokens.begin(), event.tokens.end());
    }
}
constexpr std::size_t length = 60;
/// Request r from what was emitted before; as request r + 1 of a new decoder, if all are submitted.
void submit(auto& dec, std::uint64_t r, std::span<token_id const> before = {}) {
    std::vector<token_id> prompt{static_cast<token_id>(r % a_world.vocabulary)};
    prompt.insert(prompt.end(), before.begin(), before.end());
    dec.submit(prompt,
               {.temperature = r % 3 == 2 ? 0.0 : 0.9, .seed = 100 + r, .max_new_tokens = length - before.size()});
}
void submit_some(auto& dec, std::size_t count) {
    for (std::uint64_t r = 0; r < count; ++r) submit(dec, r);
}
template <class Rule, class Drafts>
texts decode_alone(std::size_t count) {
    one_rank self;
    texts all;
    with_decoder<Rule, Drafts>(self, [&](auto& dec) {
        submit_some(dec, count);
        while (dec.step()) take_events(dec, all);
    });
    return all;
}
template <class Rule, class Drafts = whole_drafts>
void check_decoder(mpi_ranks& ranks) {
    texts together;
    with_decoder<Rule, Drafts>(ranks, [&](auto& dec) {
        submit_some(dec, 9);
        while (dec.step()) take_events(dec, together);
    });
    expect(together.tokens == decode_alone<Rule, Drafts>(9).tokens, "other texts than one rank decodes");
    std::size_t count = 0;
    for (auto const& [id, text] : together.tokens) count += text.size();
    expect(count == 9 * length, "tokens are missing", count);
}

/// Requests join, leave and are cancelled; nothing is lost, and all ranks have the same texts.
template <class Rule, class Drafts>
void soak(mpi_ranks& ranks, std::size_t rounds) {
    with_decoder<Rule, Drafts>(ranks, [&](auto& dec) {
        dice roll(17);
        texts all;
        std::map<request_id, std::size_t> wanted;
        std::size_t finished = 0, cancelled = 0;
        for (std::size_t t = 0; t < rounds; ++t) {
            if (wanted.size() < 12 && roll.chance(0.3)) {
                std::size_t const most = 1 + roll.below(40);
                auto const id = dec.submit(std::vector<token_id>{static_cast<token_id>(roll.below(a_world.vocabulary))},
                                           {.temperature = roll.chance(0.2) ? 0.0 : 0.8,
                                            .top_k = roll.chance(0.3) ? 5 : 0,
                                            .top_p = roll.chance(0.3) ? 0.9 : 1.0,
                                            .seed = roll.bits(),
                                            .draft = transform{.temperature = 1.0},
                                            .max_new_tokens = most});
                wanted[id] = most;
            }
            if (!wanted.empty() && roll.chance(0.02)) {
                auto const at = std::next(wanted.begin(), static_cast<std::ptrdiff_t>(roll.below(wanted.size())));
                dec.cancel(at->first);
                all.tokens.erase(at->first);
                wanted.erase(at);
                ++cancelled;
            }
            static_cast<void>(dec.step());
            take_events(dec, all);
            expect(all.ended == status::ok, "a round failed", t);
            for (auto it = wanted.begin(); it != wanted.end();) {
                if (all.tokens[it->first].size() < it->second) {
                    ++it;
                    continue;
                }
                expect(all.tokens[it->first].size() == it->second, "a request has tokens that nobody asked for", t);
                all.tokens.erase(it->first);
                it = wanted.erase(it);
                ++finished;
            }
            if (t % 100 != 0) continue;
            std::vector<std::uint64_t> numbers(ranks.size());
            expect(gather(ranks, all.number(), std::span(numbers)), "an exchange failed");
            for (std::uint64_t const n : numbers) expect(n == numbers[0], "ranks have other texts", t);
        }
        while (dec.step()) take_events(dec, all);
        for (auto const& [id, most] : wanted) expect(all.tokens[id].size() == most, "tokens were lost", id);
        if (ranks.rank() == 0) {
            std::printf("%zu rounds: %zu requests finished, %zu cancelled, nothing lost\n", rounds,
                        finished + wanted.size(), cancelled);
        }
    });
}

// ---- a rank that is lost ---------------------------------------------------------------------------------------

/// Does `fault` in its n-th exchange.
template <class Fault>
struct faulty_ranks {
    mpi_ranks& ranks;
    std::size_t left;
    Fault const& fault;

    [[nodiscard]] std::size_t rank() const noexcept { return ranks.rank(); }
    [[nodiscard]] std::size_t size() const noexcept { return ranks.size(); }
    [[nodiscard]] bool gather(std::span<std::byte const> own, std::span<std::byte> all) noexcept {
        if (left > 0 && --left == 0) fault();
        return ranks.gather(own, all);
    }
};
template <class Drafts, class Fault>
void loses_a_rank(mpi_ranks& ranks, std::size_t nth, Fault const& fault) {
    auto const at_fault = [&] {
        if (ranks.rank() == 1) fault();
    };
    faulty_ranks<decltype(at_fault)> some{ranks, nth, at_fault};
    texts all;
    std::chrono::steady_clock::time_point begun;
    std::size_t before = 0;
    with_decoder<keyed_coupling, Drafts>(some, [&](auto& dec) {
        submit_some(dec, 9);
        for (bool goes_on = true; goes_on && all.ended == status::ok;) {
            begun = std::chrono::steady_clock::now();
            before = all.number();
            goes_on = dec.step();
            take_events(dec, all);
        }
    });
    double const waited = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    expect(all.ended == status::ranks_lost, "the ranks were not told that one is lost");
    expect(all.number() == before, "tokens were emitted in the round that lost a rank");
    expect(ranks.rank() == 1 || waited < 20.0, "the ranks were told too late");
    one_rank self;
    with_decoder<keyed_coupling, Drafts>(self, [&](auto& dec) {
        std::map<request_id, request_id> of;  // request r has number r + 1, elsewhere another one
        for (std::uint64_t r = 0; r < 9; ++r) {
            auto const& emitted = all.tokens[r + 1];
            if (emitted.size() == length) continue;
            submit(dec, r, emitted);
            of[of.size() + 1] = r + 1;
        }
        while (dec.step()) {
            for (auto const& event : dec.events()) {
                auto& text = all.tokens[of[event.request]];
                text.insert(text.end(), event.tokens.begin(), event.tokens.end());
            }
        }
    });
    expect(all.tokens == decode_alone<keyed_coupling, Drafts>(9).tokens, "other texts than without a lost rank");
    support::end_without_rank_1(ranks);
}

// ---- a row that is none ----------------------------------------------------------------------------------------

/// In round 3 the second request's first logit of rank 1 is NaN, on that rank.
template <class Target>
struct spoilt_target {
    Target whole;
    std::size_t token;
    bool is_rank_1;
    std::size_t round = 0;
    std::vector<double> copy{};

    [[nodiscard]] auto score(verify_batch const& batch) {
        auto rows = whole.score(batch);
        if (++round != 3 || !is_rank_1) return rows;
        copy.assign(rows.values.data, rows.values.data + rows.values.rows * rows.values.cols);
        copy[batch.first_row(1) * rows.values.cols + token] = std::numeric_limits<double>::quiet_NaN();
        rows.values.data = copy.data();
        return rows;
    }
};
void has_a_bad_row(mpi_ranks& ranks) {
    auto const slices = vocabulary_slices::even(a_world.vocabulary, ranks.size(), 2);
    row_shards<double, mpi_ranks> shards{ranks, slices, {.max_requests = places, .block_size = a_world.block_size}};
    auto whole = small_world::target_of(a_world);
    using spoilt = spoilt_target<decltype(whole)>;
    sliced_target<double, spoilt, mpi_ranks> target{spoilt{whole, slices.first(1), ranks.rank() == 1}, &shards};
    decoder dec{target,
                small_world::semi_of(a_world),
                agreed{top_k_schedule{capacity{}}, rank_consensus{ranks, {.max_requests = places}}},
                keyed_coupling{},
                {.max_requests = places}};
    submit_some(dec, places);
    texts all;
    std::map<request_id, status> ended;
    while (dec.step()) {
        take_events(dec, all);
        for (auto const& event : dec.events()) {
            if (event.outcome == status::ok) continue;
            expect(event.tokens.empty(), "a request without a law emitted tokens");
            ended[event.request] = event.outcome;
        }
    }
    expect(ended.size() == 1 && ended.begin()->second == status::invalid_target, "another end than invalid_target");
    auto expected = decode_alone<keyed_coupling, whole_drafts>(places).tokens;
    auto& cut = expected[ended.begin()->first];
    cut.resize(all.tokens[ended.begin()->first].size());
    expect(!cut.empty() && all.tokens == expected, "other texts than those of requests that have laws");
}

}  // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    std::string_view const mode = argc > 1 ? argv[1] : "";
    std::size_t const rounds = argc > 2 ? std::stoul(argv[2]) : 100;
    {
        bool const loses = mode == "killed" || mode == "stopped" || mode == "drafting";
        mpi_ranks ranks{MPI_COMM_WORLD, {.most_bytes = 1 << 20, .seconds = loses ? 4.0 : 50.0}};
        if (mode == "random") {
            random_calls(ranks, rounds);
        } else if (mode == "decodes") {
            check_decoder<token_rejection<>>(ranks);
            check_decoder<block_verification<>>(ranks);
            check_decoder<target_match<>>(ranks);
            check_decoder<keyed_coupling>(ranks);
            check_decoder<token_rejection<>, sliced_drafts>(ranks);
            check_decoder<block_verification<>, sliced_drafts>(ranks);
            check_decoder<keyed_coupling, sliced_drafts>(ranks);
        } else if (mode == "soak") {
            soak<token_rejection<>, whole_drafts>(ranks, rounds / 2);
            soak<block_verification<>, sliced_drafts>(ranks, rounds - rounds / 2);
        } else if (mode == "killed") {
            loses_a_rank<whole_drafts>(ranks, 41, [] { _exit(0); });
        } else if (mode == "drafting") {  // behind the meeting and the limits
            loses_a_rank<sliced_drafts>(ranks, 4, [] { _exit(0); });
        } else if (mode == "nan") {
            has_a_bad_row(ranks);
        } else if (mode == "stopped") {
            loses_a_rank<whole_drafts>(ranks, 41, support::be_stopped);
        } else {
            std::fprintf(stderr, "ranks.rounds: unknown mode \"%s\"\n", argc > 1 ? argv[1] : "");
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
    }
    MPI_Finalize();
    return 0;
}

// SPDX-License-Identifier: MIT
//
// Random rounds that are judged twice: by the host's accept, which is the oracle, and on the device, from the same
// drafts, rows and keys. Tokens have to be equal. A request that comes out otherwise is a mistake unless the host
// itself says that one of its decisions lay within rounding: `narrowest` recomputes in double how far each number was
// from where it would have decided otherwise.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <sureleap/cuda/round/accept.cuh>
#include <sureleap/drafter/parallel.hpp>
#include <sureleap/round/stages.hpp>
#include <sureleap/verify/block.hpp>
#include <sureleap/verify/rejection.hpp>
#include <sureleap/verify/residual.hpp>

#include "cuda/support/captured.hpp"
#include "cuda/support/device_array.hpp"
#include "cuda/support/rows.hpp"
#include "cuda/support/seeds.hpp"
#include "support/catch.hpp"
#include "support/dice.hpp"
#include "support/given_lengths.hpp"

namespace support {

using namespace sureleap;
namespace device = sureleap::cuda;  // CUDA has a namespace cuda of its own

// ---- margins ---------------------------------------------------------------------------------------------------

template <class W>
inline constexpr bool is_residual_v = false;
template <class P, class Q>
inline constexpr bool is_residual_v<residual<P, Q>> = true;

/// philox_randomness that keeps, for every seed, how close the closest of its decisions was: the distance of a number
/// from where the outcome changes, as a probability.
struct narrowest {
    std::map<std::uint64_t, double>* margins;

    void note(draw_key const& key, double margin) const {
        auto const [at, is_new] = margins->try_emplace(key.seed, margin);
        if (!is_new) at->second = std::min(at->second, margin);
    }
    [[nodiscard]] bool bernoulli(draw_key const& key, double num, double den) const {
        note(key, std::abs(uniform(key) - num / den));
        return accepts(uniform(key), num, den);
    }
    template <class W>
    [[nodiscard]] token_id categorical(draw_key const& key, W const& w) const {
        // Weights of a residual are differences of probabilities, whose rounding does not shrink with their sum.
        double const unit = is_residual_v<W> ? 1.0 : w.total();
        double const threshold = uniform(key) * w.total();
        double cumulative = 0.0;
        token_id const y = inverse_cdf(w, uniform(key));
        for (token_id v = 0; v < static_cast<token_id>(w.size()); ++v) {
            double const weight = static_cast<double>(w[v]);
            if (!(weight > 0.0)) continue;
            if (v == y && cumulative > 0.0) note(key, std::abs(threshold - cumulative) / unit);
            cumulative += weight;
            if (v == y && cumulative < w.total()) note(key, std::abs(cumulative - threshold) / unit);
        }
        return y;
    }
    template <class W>
    [[nodiscard]] token_id gumbel_max(draw_key const& key, W const& w) const {
        double first = std::numeric_limits<double>::infinity();
        double second = first;
        token_id winner = no_token;
        for (token_id v = 0; v < static_cast<token_id>(w.size()); ++v) {
            double const weight = static_cast<double>(w[v]);
            if (!(weight > 0.0)) continue;
            double const time = exponential(key, static_cast<std::size_t>(v)) / weight;
            second = std::min(second, std::max(time, first));
            if (time < first) {
                first = time;
                winner = v;
            }
        }
        note(key, second / first - 1.0);
        return winner;
    }
};

/// Half an ulp of a float for exponents of up to 70, which the host's weights may have, twice for p and twice for q.
inline constexpr double rounding = 4 * 70 * 0x1p-24;

// ---- rounds ----------------------------------------------------------------------------------------------------

struct tally {
    std::size_t rounds = 0;
    std::size_t requests = 0;
    std::size_t tokens = 0;
    std::size_t accepted = 0;
    std::size_t refused = 0;
    std::size_t differing = 0;

    void check() const {
        INFO(rounds << " rounds, " << requests << " requests, " << tokens << " tokens, " << accepted << " accepted, "
                    << refused << " refused, " << differing << " differ");
        CHECK(tokens > 0);
        CHECK(differing * 1000 <= tokens);
    }
};

/// What a round is made of; what is unset is random.
struct round_wishes {
    std::size_t vocabulary = 1000;
    std::size_t requests = 3;
    std::size_t block_size = 4;
    std::optional<transform> target{};
    std::optional<bool> bad_rows{};    ///< rows without a distribution among them
    std::optional<bool> normalised{};  ///< rows come with their normalisers
    std::optional<double> distance{};  ///< of the draft's logits from the target's; 0: they are equal
    std::optional<double> level{};     ///< of all logits
    std::optional<row_shape> shape{};
    bool needs_passes = false;  ///< rejection, block verification: keys that settle little by proposals
    bool twice = false;         ///< the same memory once more, as a replayed graph would
};

/// The first token is rejected if q is above 1.002 p there, and no proposal is taken where p is less than 1.05 q.
inline bool calls_for_passes(token_rejection<> const&, request_view const& request, std::size_t) {
    if (uniform(block_key(request, 0, purpose::accept)) < 0.998) return false;
    draw_key test = block_key(request, 0, purpose::proposal_accept);
    std::uint32_t const index = test.index;
    for (std::uint32_t i = 0; i < residual_proposals; ++i) {
        test.index = index | i << 16;
        if (uniform(test) < 0.05) return false;
    }
    return true;
}
/// A block of `gamma` tokens is rejected if it survives with less than 0.998, and so are its prefixes, in turns and by
/// mass.
inline bool calls_for_passes(block_verification<> const&, request_view const& request, std::size_t gamma) {
    if (uniform(block_key(request, gamma - 1, purpose::accept)) < 0.998) return false;
    for (std::size_t k = gamma - 1; k > 0; --k) {
        draw_key test = block_key(request, k - 1, purpose::accept);
        std::uint32_t const index = test.index;
        for (std::uint32_t i = 0; i < judging_proposals; ++i) {
            test.index = index | 8 * i << 16;
            if (uniform(test) > 0.98) return false;
        }
        test.index = index | 1u << 16;
        if (uniform(test) < 0.6) return false;
    }
    return true;
}

inline transform random_transform(dice& roll, std::size_t vocabulary) {
    transform how{};
    double const temperatures[] = {1.0, 1.0, 0.0, 0.6, 1.3};
    how.temperature = temperatures[roll.below(5)];
    if (roll.chance(0.25)) how.top_k = 1 + static_cast<int>(roll.below(std::min<std::size_t>(vocabulary, 40)));
    if (roll.chance(0.25)) how.top_p = roll.between(0.05, 1.0);
    if (roll.chance(0.15)) how.min_p = roll.between(0.0, 0.3);
    return how;
}

template <class T>
void put(T* to, std::vector<T> const& values) {
    if (!values.empty()) {
        require_cuda(cudaMemcpy(to, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
    }
}
template <class T>
std::vector<T> get(T const* from, std::size_t count) {
    std::vector<T> values(count);
    require_cuda(cudaDeviceSynchronize());
    require_cuda(cudaMemcpy(values.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
}

/// The device's distribution of a recorded one.
inline device::distribution distribution_of(distribution<float> const& q, std::span<float const> row,
                                            transform const& how) {
    if (q.is_one_hot()) return device::distribution::one_hot(q.mode());
    device::distribution result{};
    auto const side = q.side(1.0);
    result.shift = side.shift;
    result.scale = side.scale;
    result.total = q.total();
    result.kind = device::distribution_kind::dense;
    if (how.truncates()) {
        std::vector<token_id> scratch(row.size());
        auto const mode = static_cast<token_id>(scalar_kernels<row_kernels>.get<float>().mode(row.data(), row.size()));
        auto const cut =
            sureleap::detail::truncate(row, how, mode, std::span(scratch), scalar_kernels<row_kernels>.get<float>())
                .last;
        result.least_logit = cut.logit;
        result.least_id = cut.id;
    }
    return result;
}

/// A drafter that fails one request, if there is one of that number.
template <class Drafter>
struct failing : Drafter {
    std::size_t request;

    template <class Forward, class DraftRule, class Rng>
    void draw(Forward const& forward, DraftRule rule, draft_block<float>& block,
              draft_memory_t<Drafter, float> const& memory, Rng& rng) {
        draw_block(static_cast<Drafter&>(*this), forward, rule, block, memory, rng);
        if (request < block.requests().size()) block.reject(request, status::invalid_draft);
    }
};

/// One random round, judged by both.
template <class Rule, class T>
void judge_twice(dice& roll, round_wishes const& wishes, tally& sum) {
    Rule const rule;
    std::size_t const vocabulary = wishes.vocabulary;
    std::size_t const requests = wishes.requests;
    std::size_t const gamma = wishes.block_size;
    bool const log_probabilities = roll.chance(0.5);
    bool const normalised = wishes.normalised.value_or(roll.chance(0.25));
    bool const with_sums = roll.chance(0.6);
    bool const bad_rows = wishes.bad_rows.value_or(roll.chance(0.2));

    // A draft that speaks every token but some, in another order, or the target's own vocabulary.
    std::optional<vocabulary_map> map;
    if (vocabulary > 4 && roll.chance(0.3)) {
        std::vector<token_id> to_target;
        for (std::size_t v = vocabulary; v-- > 0;) {
            if (!roll.chance(0.3) || to_target.empty()) to_target.push_back(static_cast<token_id>(v));
        }
        map.emplace(to_target, vocabulary);
    }
    std::size_t const drafts = map ? map->draft_size() : vocabulary;

    // ---- logits: of the target wherever it may be asked, of the draft near them
    std::vector<T> target_logits;
    std::vector<T> base(requests * gamma * drafts);
    for (std::size_t r = 0; r < requests; ++r) {
        double const distances[] = {0.0, 0.1, 0.5, 3.0};
        double const distance = wishes.distance.value_or(distances[roll.below(4)]);
        row_shape const shape = wishes.shape.value_or(row_shapes[roll.below(std::size(row_shapes))]);
        double const level = wishes.level.value_or(roll.chance(0.15) ? (roll.chance(0.5) ? 1e4 : -1e4) : 0.0);
        for (std::size_t k = 0; k <= gamma; ++k) {
            auto row = random_row<T>(roll, vocabulary, shape);
            for (T& l : row) l = T(static_cast<float>(static_cast<double>(load(l)) + level));
            target_logits.insert(target_logits.end(), row.begin(), row.end());
            if (k == gamma) continue;
            for (std::size_t d = 0; d < drafts; ++d) {
                auto const v = map ? static_cast<std::size_t>(map->to_target(static_cast<token_id>(d))) : d;
                double l = static_cast<double>(load(row[v]));
                if (distance > 0.0) l += distance * roll.bell();
                base[(r * gamma + k) * drafts + d] = T(static_cast<float>(l));
            }
            T* const own = base.data() + (r * gamma + k) * drafts;  // a distribution at least
            if (!(load(*std::max_element(own, own + drafts, [](T const& a, T const& b) { return load(a) < load(b); })) >
                  -std::numeric_limits<float>::infinity())) {
                own[roll.below(drafts)] = T(0.0f);
            }
        }
    }

    // ---- the host's round
    std::vector<token_id> stops;
    for (std::size_t i = 0; i < 3; ++i) stops.push_back(static_cast<token_id>(roll.below(vocabulary)));
    std::vector<request_settings> settings(requests);
    std::vector<request_view> views(requests);
    for (std::size_t r = 0; r < requests; ++r) {
        transform how = wishes.target.value_or(random_transform(roll, vocabulary));
        if constexpr (requires { Rule::greedy_only; }) how = {.temperature = 0.0};
        settings[r] = {.temperature = how.temperature, .top_k = how.top_k, .top_p = how.top_p, .min_p = how.min_p};
        if (wishes.distance == 0.0) {
            settings[r].draft = how;
        } else if (roll.chance(0.5)) {
            settings[r].draft = random_transform(roll, drafts);
        }
        settings[r].stop_tokens = std::span(stops).first(roll.below(4));
        settings[r].log_probabilities = log_probabilities;
        views[r] = {.id = r,
                    .slot = r,
                    .anchor = static_cast<token_id>(roll.below(vocabulary)),
                    .position = roll.below(1000),
                    .seed = roll.bits(),
                    .remaining = 1 + roll.below(2 * gamma + 2),
                    .settings = &settings[r]};
        if constexpr (requires { calls_for_passes(rule, views[r], gamma); }) {
            while (wishes.needs_passes && !calls_for_passes(rule, views[r], gamma)) ++views[r].seed;
            if (wishes.needs_passes) views[r].remaining = gamma + 1;
        }
    }
    auto const backbone = [&](std::span<request_view const>) {
        return block_forward<T>{{}, {{base.data(), requests * gamma, drafts}, {}}};
    };
    parallel own{backbone, {.block_size = gamma, .vocabulary = drafts, .map = map ? &*map : nullptr}};
    failing<decltype(own)> drafter{own, bad_rows && roll.chance(0.3) ? roll.below(requests) : requests};
    no_logits_hook const hook;
    philox_randomness rng;
    std::vector<std::uint32_t> lengths;
    given_lengths schedule{&lengths};
    round_memory<T, float> memory{
        drafter, schedule, rule, {.max_requests = requests, .kernels = &scalar_kernels<row_kernels>}};
    auto const draft = [&] {
        for (std::size_t r = 0; r < requests; ++r) memory.join(r);
        static_cast<void>(begin_round(schedule, std::span<request_view const>(views), memory));
        draw(drafter, drafter.forward(memory.requests()), rule, rng, memory);
    };
    draft();
    for (std::size_t r = 0; r < requests; ++r) {
        std::size_t const size = memory.block().size(r);
        lengths.push_back(
            static_cast<std::uint32_t>(wishes.needs_passes || roll.chance(0.6) ? size : roll.below(size + 1)));
    }
    std::vector<T> rows(admit(schedule, memory).rows() * vocabulary);
    for (std::size_t r = 0; r < requests; ++r) {
        std::copy_n(target_logits.begin() + static_cast<std::ptrdiff_t>(r * (gamma + 1) * vocabulary),
                    (lengths[r] + 1) * vocabulary,
                    rows.begin() + static_cast<std::ptrdiff_t>(memory.batch().first_row(r) * vocabulary));
    }
    if (bad_rows) {
        float const none = std::numeric_limits<float>::infinity();
        T* const row = rows.data() + roll.below(memory.batch().rows()) * vocabulary;
        switch (roll.below(4)) {
            case 0: row[roll.below(vocabulary)] = T(std::numeric_limits<float>::quiet_NaN()); break;
            case 1: row[roll.below(vocabulary)] = T(none); break;
            case 2: std::fill_n(row, vocabulary, T(-none)); break;
            default:
                std::fill_n(row, vocabulary, T(-none));
                row[roll.below(vocabulary)] = T(std::numeric_limits<float>::quiet_NaN());
        }
    }
    for (std::size_t r = 0; r < requests; ++r) {  // behind a stop token there is no distribution
        auto const chain = memory.batch().drafted(r);
        if (chain.empty() || !settings[r].stops_at(chain.back())) continue;
        std::size_t const behind = memory.batch().first_row(r) + chain.size();
        std::fill_n(rows.begin() + static_cast<std::ptrdiff_t>(behind * vocabulary), vocabulary,
                    T(std::numeric_limits<float>::quiet_NaN()));
    }
    std::size_t const blocks = row_blocks(vocabulary);
    std::vector<float> normalisers;
    std::vector<float> block_sums;
    if (normalised) {
        for (std::size_t i = 0; i < memory.batch().rows(); ++i) {
            auto const row = std::span(rows).subspan(i * vocabulary, vocabulary);
            double top = -std::numeric_limits<double>::infinity();
            for (T const& l : row) top = std::max(top, static_cast<double>(load(l)));
            double total = 0.0;
            for (T const& l : row) total += std::exp(static_cast<double>(load(l)) - top);
            normalisers.push_back(static_cast<float>(top + std::log(total)));
            for (std::size_t b = 0; b < blocks && with_sums; ++b) {
                double here = 0.0;
                for (std::size_t v = b * row_block; v < std::min((b + 1) * row_block, vocabulary); ++v) {
                    here += static_cast<double>(std::exp(load(row[v]) - normalisers.back()));
                }
                block_sums.push_back(static_cast<float>(here));
            }
        }
    }
    sureleap::logits_rows<T> host_rows{{rows.data(), memory.batch().rows(), vocabulary}, normalisers, {}};
    if (!block_sums.empty()) host_rows.block_sums = {block_sums.data(), memory.batch().rows(), blocks};
    struct outcome {
        status what;
        std::size_t accepted;
        std::vector<token_id> emitted;
        std::vector<double> log_probabilities;
        bool stopped;
    };
    std::vector<outcome> expected;
    accept(rule, host_rows, hook, rng, memory);
    for (verdict const& v : end_round(schedule, memory).verdicts) {
        expected.push_back({v.outcome,
                            v.accepted,
                            {v.emitted.begin(), v.emitted.end()},
                            {v.log_probabilities.begin(), v.log_probabilities.end()},
                            v.finished == finish_reason::stop_token});
    }

    // ---- the device's: with room for more requests, and a finished one first
    std::size_t const finished = roll.below(2);
    std::size_t const all = requests + finished;
    device::device_limits const limits{static_cast<std::uint32_t>(all + roll.below(3)),
                                       static_cast<std::uint32_t>(gamma), static_cast<std::uint32_t>(vocabulary), 3,
                                       log_probabilities};
    device::workspace sizer;
    static_cast<void>(device::carve(sizer, limits));
    static_cast<void>(device::carve_verification(sizer, limits));
    device_array<unsigned char> bytes(sizer.used());
    device::workspace ws{bytes.data(), bytes.bytes()};
    device::device_round const round = device::carve(ws, limits);
    device::verify_memory const verification = device::carve_verification(ws, limits);
    REQUIRE(round.ready());
    REQUIRE(verification.ready());

    std::size_t const batch_rows = memory.batch().rows() + finished;
    std::size_t const stride = vocabulary + (roll.chance(0.5) ? 8 - vocabulary % 8 : roll.below(3));
    std::vector<T> device_rows(batch_rows * stride, T(std::numeric_limits<float>::quiet_NaN()));
    for (std::size_t i = 0; i < memory.batch().rows(); ++i) {
        std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(i * vocabulary), vocabulary,
                    device_rows.begin() + static_cast<std::ptrdiff_t>((i + finished) * stride));
    }
    std::vector<std::uint64_t> positions(all, 1), seeds(all, 2);
    std::vector<transform> targets(all);
    std::vector<std::uint32_t> remaining(all, 0), sizes(all, 0), batch_lengths(all, 0);
    std::vector<token_id> stop_columns(all * 3, no_token), tokens(batch_rows, 0), drafted(all * gamma, 0);
    std::vector<device::distribution> distributions(all * gamma);
    std::vector<double> probabilities(all * gamma, 0.0);
    std::vector<status> statuses(all, status::ok);
    std::vector<std::int32_t> offsets{0};
    std::vector<T> device_base((all * gamma) * (drafts + 1));
    if (finished != 0) offsets.push_back(1);
    for (std::size_t r = 0; r < requests; ++r) {
        std::size_t const d = r + finished;
        positions[d] = views[r].position;
        seeds[d] = views[r].seed;
        targets[d] = settings[r].target_transform();
        remaining[d] = static_cast<std::uint32_t>(views[r].remaining);
        sizes[d] = static_cast<std::uint32_t>(memory.block().size(r));
        batch_lengths[d] = lengths[r];
        statuses[d] = memory.block().draft_outcome(r);
        std::copy(settings[r].stop_tokens.begin(), settings[r].stop_tokens.end(),
                  stop_columns.begin() + static_cast<std::ptrdiff_t>(d * 3));
        offsets.push_back(static_cast<std::int32_t>(memory.batch().first_row(r) + lengths[r] + 1 + finished));
        auto const recorded = memory.block().laws(r);
        for (std::size_t k = 0; k < memory.block().size(r); ++k) {
            std::vector<float> row;
            for (std::size_t i = 0; i < drafts; ++i) row.push_back(load(base[(r * gamma + k) * drafts + i]));
            distributions[d * gamma + k] = distribution_of(recorded[k], row, settings[r].draft_transform());
            drafted[d * gamma + k] = memory.block().tokens(r)[k];
            probabilities[d * gamma + k] = recorded[k].probability(memory.block().tokens(r)[k]);
        }
        for (std::size_t k = 0; k < gamma; ++k) {
            std::copy_n(base.begin() + static_cast<std::ptrdiff_t>((r * gamma + k) * drafts), drafts,
                        device_base.begin() + static_cast<std::ptrdiff_t>((d * gamma + k) * (drafts + 1)));
        }
    }
    std::copy(memory.batch().tokens().begin(), memory.batch().tokens().end(),
              tokens.begin() + static_cast<std::ptrdiff_t>(finished));
    put(round.requests.count, {static_cast<std::uint32_t>(all)});
    put(round.requests.positions, positions);
    put(round.requests.seeds, seeds);
    put(round.requests.targets, targets);
    put(round.requests.remaining, remaining);
    put(round.requests.stop_tokens, stop_columns);
    put(round.drafts.tokens, drafted);
    put(round.drafts.distributions, distributions);
    put(round.drafts.token_probabilities, probabilities);
    put(round.drafts.sizes, sizes);
    put(round.drafts.statuses, statuses);
    put(round.batch.lengths, batch_lengths);
    std::vector<std::uint32_t> markers;
    for (std::size_t r = 0; r + 1 < offsets.size(); ++r) {
        markers.insert(markers.end(), static_cast<std::size_t>(offsets[r + 1] - offsets[r]),
                       static_cast<std::uint32_t>(r));
    }
    offsets.resize(limits.requests + 1, offsets.back());
    put(round.batch.offsets, offsets);
    put(round.batch.markers, markers);
    put(round.batch.tokens, tokens);

    device_array<T> const row_memory{device_rows};
    device_array<T> const draft_memory{device_base};
    std::vector<float> device_normalisers(finished, 0.0f), device_sums(finished * blocks, 0.0f);
    device_normalisers.insert(device_normalisers.end(), normalisers.begin(), normalisers.end());
    device_sums.insert(device_sums.end(), block_sums.begin(), block_sums.end());
    device_array<float> const normaliser_memory{device_normalisers};
    device_array<float> const sum_memory{device_sums};
    std::vector<token_id> to_draft;
    for (std::size_t v = 0; v < vocabulary && map; ++v) to_draft.push_back(map->to_draft(static_cast<token_id>(v)));
    device_array<token_id> const map_memory{to_draft};
    device::logits_rows<T> const on_device{row_memory.data(), static_cast<std::uint32_t>(batch_rows), stride,
                                           normalised ? normaliser_memory.data() : nullptr,
                                           block_sums.empty() ? nullptr : sum_memory.data()};

    for (int turn = 0; turn < (wishes.twice ? 2 : 1); ++turn) {
        if constexpr (Rule::access == q_access::row && !Rule::draft_rule::is_deterministic) {
            device::dense_draft_rows<T> const q{draft_memory.data(), drafts + 1, static_cast<std::uint32_t>(gamma),
                                                static_cast<std::uint32_t>(vocabulary),
                                                map ? map_memory.data() : nullptr};
            support::in_graph(
                [&](cudaStream_t stream) { return device::accept<Rule>(on_device, q, verification, round, stream); });
        } else {
            support::in_graph([&](cudaStream_t stream) {
                return device::accept<Rule>(on_device, device::one_hot_draft_rows{}, verification, round, stream);
            });
        }
        auto const out_statuses = get(round.verdicts.statuses, all);
        auto const out_accepted = get(round.verdicts.accepted, all);
        auto const out_emitted = get(round.verdicts.emitted, all);
        auto const out_tokens = get(round.verdicts.tokens, all * (gamma + 1));
        auto const out_stopped = get(round.verdicts.stopped, all);
        std::vector<double> out_log;
        if (log_probabilities) out_log = get(round.verdicts.log_probabilities, all * (gamma + 1));

        if (finished != 0) {
            CHECK(out_statuses[0] == status::ok);
            CHECK(out_emitted[0] == 0);
            CHECK(out_accepted[0] == 0);
            CHECK(out_stopped[0] == 0);
        }
        std::map<std::uint64_t, double> margins;
        ++sum.rounds;
        for (std::size_t r = 0; r < requests; ++r) {
            std::size_t const d = r + finished;
            outcome const& e = expected[r];
            ++sum.requests;
            sum.tokens += e.emitted.size();
            sum.accepted += e.accepted;
            sum.refused += e.what != status::ok ? 1 : 0;
            INFO("request " << r << ", T " << settings[r].temperature << ", top_k " << settings[r].top_k << ", top_p "
                            << settings[r].top_p << ", min_p " << settings[r].min_p << ", l " << lengths[r]
                            << ", normalised " << normalised << ", log " << log_probabilities << ", map "
                            << (map.has_value()) << ", turn " << turn);
            REQUIRE(out_statuses[d] == e.what);
            REQUIRE(out_emitted[d] <= gamma + 1);
            auto const first = out_tokens.begin() + static_cast<std::ptrdiff_t>(d * (gamma + 1));
            std::vector<token_id> const emitted(first, first + out_emitted[d]);
            if (emitted != e.emitted || out_accepted[d] != e.accepted) {
                if (margins.empty()) {
                    narrowest const measured{&margins};
                    draft();  // the same round once more, judged by one that keeps what it sees
                    static_cast<void>(admit(schedule, memory));
                    accept(rule, host_rows, hook, measured, memory);
                }
                INFO("margin " << margins[views[r].seed] << ", accepted " << out_accepted[d] << " instead of "
                               << e.accepted << ", last " << (emitted.empty() ? no_token : emitted.back())
                               << " instead of " << (e.emitted.empty() ? no_token : e.emitted.back()));
                CHECK(margins[views[r].seed] < rounding);
                sum.differing += e.emitted.size();
                continue;
            }
            CHECK((out_stopped[d] != 0) == e.stopped);
            for (std::size_t k = 0; k < emitted.size() && log_probabilities; ++k) {
                double const wanted = e.log_probabilities[k];
                double const found = out_log[d * (gamma + 1) + k];
                INFO("log probability " << k << ": " << found << ", expected " << wanted);
                CHECK(std::abs(found - wanted) <= 1e-5 * std::max(1.0, std::abs(wanted)));
            }
        }
    }
}

/// Rounds of all sizes and formats.
template <class Rule, class T>
void judge_many(std::uint64_t seed, std::size_t rounds, tally& sum) {
    constexpr std::size_t sizes[] = {2, 5, 37, 1000, 1024, 1025, 4099, 8192};
    dice roll{seed};
    for (std::size_t i = 0; i < rounds_of(rounds); ++i) {
        std::size_t const vocabulary = sizes[roll.below(std::size(sizes))];
        std::size_t const most = vocabulary > 2000                      ? 3
                                 : vocabulary < 100 && roll.chance(0.3) ? 150
                                                                        : 6;  // or many warps
        round_wishes const wishes{.vocabulary = vocabulary,
                                  .requests = 1 + roll.below(most),
                                  .block_size = 1 + roll.below(vocabulary > 2000 ? 4 : 7),
                                  .twice = roll.chance(0.2)};
        INFO("seed " << seed << ", round " << i << ", V " << vocabulary << ", R " << wishes.requests << ", gamma "
                     << wishes.block_size);
        judge_twice<Rule, T>(roll, wishes, sum);
    }
}

}  // namespace support

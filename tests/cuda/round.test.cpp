// SPDX-License-Identifier: MIT
//
// Whole rounds: a decoder on the host beside an engine whose rounds stay on the device (chain, schedule, batch, acceptance,
// the step to the next round), with the same models, settings and seeds. Everything that is drafted, scheduled and emitted
// must be the same, round after round, while requests finish and the batch shrinks.

#include <sureleap/cuda/advance.cuh>
#include <sureleap/cuda/budget.cuh>
#include <sureleap/cuda/chain.cuh>
#include <sureleap/cuda/confidence.cuh>
#include <sureleap/cuda/flatten.cuh>
#include <sureleap/cuda/history.cuh>
#include <sureleap/cuda/schedule.cuh>
#include <sureleap/cuda/verify.cuh>

#include <sureleap/acceptance/block.hpp>
#include <sureleap/acceptance/coupled.hpp>
#include <sureleap/acceptance/rejection.hpp>
#include <sureleap/confidence/head.hpp>
#include <sureleap/decoder.hpp>
#include <sureleap/drafter/semi_autoregressive.hpp>
#include <sureleap/head/markov.hpp>
#include <sureleap/schedule/capacity.hpp>
#include <sureleap/schedule/greedy.hpp>
#include <sureleap/schedule/top_k.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "cuda/support/device_array.hpp"
#include "cuda/support/device_rounds.hpp"
#include "support/catch.hpp"
#include "support/dice.hpp"
#include "support/hash_models.hpp"

using namespace sureleap;
namespace device = sureleap::cuda;  // CUDA has a namespace cuda of its own
using support::dice;
using support::hashed;

namespace {

constexpr std::uint32_t vocabulary = 1100;  // two blocks of tokens, one of them ragged
constexpr std::uint32_t rank = 16;
constexpr std::uint32_t hidden_size = 8;
constexpr std::uint32_t block_size = 4;  // gamma, which is a function of C
constexpr std::uint32_t places = 6;

/// Logits are functions of a token and its position, so that an engine needs no cache to make them. The draft's base logits
/// cannot know the token before, and the head knows something of it.
struct models {
    std::vector<bf16> w1, w2, confidence;

    explicit models(dice& roll)
        : w1(support::random_values<bf16>(roll, std::size_t{vocabulary} * rank, 0.5)),
          w2(support::random_values<bf16>(roll, std::size_t{vocabulary} * rank, 0.5)),
          confidence(support::random_values<bf16>(roll, hidden_size + rank, 0.4)) {}

    void target_row(token_id last, std::uint64_t position, std::span<float> out) const {
        auto const* const from = w1.data() + static_cast<std::size_t>(last) * rank;
        for (std::uint32_t v = 0; v < vocabulary; ++v) {
            float logit = 3.0f * static_cast<float>(hashed(7, static_cast<std::uint32_t>(position + 1), v, 0, 0)) +
                          0.5f * static_cast<float>(hashed(8, static_cast<std::uint32_t>(last), v, 0, 0));
            for (std::uint32_t i = 0; i < rank; ++i) logit += load(from[i]) * load(w2[std::size_t{v} * rank + i]);
            out[v] = logit;
        }
    }
    void base_row(std::uint64_t position, std::span<bf16> out) const {
        for (std::uint32_t v = 0; v < vocabulary; ++v) {
            out[v] = bf16(3.0f * static_cast<float>(hashed(7, static_cast<std::uint32_t>(position + 1), v, 0, 0)));
        }
    }
    void hidden_row(token_id anchor, std::uint64_t position, std::span<bf16> out) const {
        for (std::uint32_t i = 0; i < hidden_size; ++i) {
            out[i] = bf16(2.0f * static_cast<float>(hashed(9, static_cast<std::uint32_t>(anchor),
                                                           static_cast<std::uint32_t>(position), i, 0)));
        }
    }
    /// Base logits and hidden states of a round, [R gamma] rows each.
    void forward(std::span<token_id const> anchors, std::span<std::uint64_t const> positions, std::vector<bf16>& base,
                 std::vector<bf16>& hidden) const {
        base.resize(anchors.size() * block_size * vocabulary);
        hidden.resize(anchors.size() * block_size * hidden_size);
        for (std::size_t r = 0; r < anchors.size(); ++r) {
            for (std::size_t k = 0; k < block_size; ++k) {
                std::size_t const row = r * block_size + k;
                base_row(positions[r] + k, std::span(base).subspan(row * vocabulary, vocabulary));
                hidden_row(anchors[r], positions[r] + k, std::span(hidden).subspan(row * hidden_size, hidden_size));
            }
        }
    }
};

/// The columns of requests as an engine would keep them to add and remove requests.
struct request_list {
    std::vector<token_id> anchors;
    std::vector<std::uint64_t> positions, seeds;
    std::vector<transform> targets, drafts;
    std::vector<std::uint32_t> remaining, draft_limits, slots;
    std::vector<fixed_probability> weights;
    std::vector<token_id> stop_tokens;

    [[nodiscard]] std::size_t size() const { return anchors.size(); }
    void upload(device::request_columns const& to) const {
        support::upload(to.count, static_cast<std::uint32_t>(size()));
        support::upload(to.anchors, anchors);
        support::upload(to.positions, positions);
        support::upload(to.seeds, seeds);
        support::upload(to.targets, targets);
        support::upload(to.drafts, drafts);
        support::upload(to.remaining, remaining);
        support::upload(to.draft_limits, draft_limits);
        support::upload(to.weights, weights);
        support::upload(to.slots, slots);
        support::upload(to.stop_tokens, stop_tokens);
    }
    /// What rounds change.
    void download(device::request_columns const& from) {
        anchors = support::download(from.anchors, size());
        positions = support::download(from.positions, size());
        remaining = support::download(from.remaining, size());
    }
    void remove_finished() {
        std::vector<std::uint32_t> const left = remaining;
        auto const keep = [&](auto& column) {
            std::size_t kept = 0;
            for (std::size_t r = 0; r < left.size(); ++r) {
                if (left[r] > 0) column[kept++] = column[r];
            }
            column.resize(kept);
        };
        keep(anchors), keep(positions), keep(seeds), keep(targets), keep(drafts), keep(remaining), keep(draft_limits);
        keep(slots), keep(weights), keep(stop_tokens);
    }
};

/// All that an engine keeps on the device.
struct engine_on_device {
    models const& own;
    device::round_limits limits{places, block_size, vocabulary, 1, true};
    device_array<bf16> w1, w2, confidence_weight, base, hidden;
    device_array<float> rows;
    device_array<unsigned char> memory;
    device::device_round round{};
    device::chain_memory chain{};
    device::verify_memory verification{};
    device::capacity_columns capacity{};
    device::survival_columns lagged{};
    device::history_columns history{};
    std::uint32_t* budget = nullptr;
    device::markov<bf16> head{};
    device::confidence_head<bf16> confidence{};

    template <class Curve>
    engine_on_device(models const& m, Curve const& curve, bool coupled, std::uint32_t lag, fixed_probability prior)
        : own(m),
          w1(m.w1),
          w2(m.w2),
          confidence_weight(m.confidence),
          base(std::size_t{places} * block_size * vocabulary),
          hidden(std::size_t{places} * block_size * hidden_size),
          rows(std::size_t{places} * (block_size + 1) * vocabulary) {
        head = {{w1.data(), vocabulary, rank}, {w2.data(), vocabulary, rank}};
        confidence = {.weight = confidence_weight.data(), .hidden_size = hidden_size, .bias = 0.8f, .w1 = head.w1};
        auto const shape = shape_of(head, coupled);
        auto const carve_all = [&](device::workspace& ws) {
            round = carve(ws, limits);
            chain = carve_chain(ws, limits, shape);
            verification = carve_verification(ws, limits);
            capacity = carve_capacity(ws, limits);
            lagged = carve_survivals(ws, limits);
            history = carve_history(ws, limits, lag, prior);
            confidence.take(ws, limits);
            budget = ws.take<std::uint32_t>(1);
        };
        device::workspace sizer;
        carve_all(sizer);
        memory = device_array<unsigned char>(sizer.used());
        device::workspace ws{memory.data(), memory.size()};
        carve_all(ws);
        REQUIRE(ws.fits());
        std::vector<double> steps(capacity.size);
        device::tabulate(curve, steps);
        support::upload(capacity.steps_per_second, steps);
        require_cuda(forget_all(history, nullptr));
    }

    /// One round of `requests`, who are on the device already. The models run where a kernel would.
    template <class Rule, bool plans>
    void step(request_list const& requests) {
        std::vector<bf16> base_rows, hidden_rows;
        own.forward(requests.anchors, requests.positions, base_rows, hidden_rows);
        support::upload(base.data(), base_rows);
        support::upload(hidden.data(), hidden_rows);
        device::forward_view<bf16> const forward{{base.data(), std::size_t{places} * block_size, vocabulary},
                                                 {hidden.data(), std::size_t{places} * block_size, hidden_size}};
        if constexpr (plans) {
            require_cuda(lagged_table(round, history, lagged, nullptr));
            require_cuda(best_budget(round, lagged, capacity, budget, nullptr));
        }
        require_cuda(device::draw_chain<typename Rule::draft_rule>(head, confidence, forward, chain, round, nullptr));
        if constexpr (plans) {
            require_cuda(schedule_top_k(round, budget, nullptr));
        } else {
            require_cuda(schedule_greedy(round, capacity, nullptr));
        }
        require_cuda(flatten(round, nullptr));

        auto const batch = static_cast<std::size_t>(support::download(round.batch.offsets, places + 1)[places]);
        auto const tokens = support::download(round.batch.tokens, batch);
        auto const positions = support::download(round.batch.positions, batch);
        std::vector<float> target(batch * vocabulary);
        for (std::size_t i = 0; i < batch; ++i) {
            own.target_row(tokens[i], positions[i], std::span(target).subspan(i * vocabulary, vocabulary));
        }
        support::upload(rows.data(), target);
        require_cuda(
            device::accept<Rule>(device::logits_rows<float>{rows.data(), places * (block_size + 1), vocabulary},
                                 draft_rows_of(head, forward, chain), verification, round, nullptr));
        require_cuda(remember(round, history, nullptr));
    }
};

/// The host's side: a target and a backbone of the same models.
struct host_engine {
    models const& own;
    std::vector<float> rows;
    std::vector<bf16> base, hidden;

    [[nodiscard]] logits_rows<float> score(verify_batch const& batch) {
        rows.resize(batch.rows() * vocabulary);
        for (std::size_t i = 0; i < batch.rows(); ++i) {
            own.target_row(batch.tokens()[i], batch.positions()[i],
                           std::span(rows).subspan(i * vocabulary, vocabulary));
        }
        return {{rows.data(), batch.rows(), vocabulary}, {}, {}};
    }
    [[nodiscard]] block_forward<bf16> forward(std::span<request_view const> requests) {
        std::vector<token_id> anchors;
        std::vector<std::uint64_t> positions;
        for (request_view const& r : requests) {
            anchors.push_back(r.anchor);
            positions.push_back(r.position);
        }
        own.forward(anchors, positions, base, hidden);
        return {{hidden.data(), requests.size() * block_size, hidden_size},
                {{base.data(), requests.size() * block_size, vocabulary}, {}, {}}};
    }
};

template <class Rule, bool plans>
void mirror(std::uint64_t seed) {
    CAPTURE(seed);
    dice roll(seed);
    models const own(roll);
    analytic_capacity const curve{1000.0, 9.0};
    auto const schedule = [&] {
        if constexpr (plans) {
            return top_k_schedule<analytic_capacity>{curve, 0.75};
        } else {
            return greedy_schedule{curve};
        }
    }();
    constexpr std::uint32_t lag = 2;
    fixed_probability prior = 0;
    REQUIRE(quantise(0.75, prior));

    host_engine host{own, {}, {}, {}};
    auto const target = [&](verify_batch const& batch) { return host.score(batch); };
    auto backbone = [&](std::span<request_view const> requests) { return host.forward(requests); };
    matrix_view<bf16> const w1{own.w1.data(), vocabulary, rank};
    matrix_view<bf16> const w2{own.w2.data(), vocabulary, rank};
    semi_autoregressive drafter{
        backbone,
        markov_head<bf16, float, scalar_backend>{w1, w2},
        sureleap::confidence_head<bf16, float>{{own.confidence.data(), 1, hidden_size + rank}, 0.8f, w1},
        {.block_size = block_size, .vocabulary = vocabulary, .hidden_size = hidden_size}};
    decoder dec{target, drafter, schedule, Rule{}, {.max_requests = places, .seed = 3, .kernels = &scalar_row_kernels}};
    engine_on_device there(own, curve, std::is_same_v<typename Rule::draft_rule, coupled_draft>, lag, prior);

    request_list requests;
    std::vector<std::vector<token_id>> stops;
    stops.reserve(places);
    for (std::uint32_t i = 0; i < places; ++i) {
        std::vector<token_id> const prompt(1 + i, static_cast<token_id>(17 * i));
        double const temperatures[] = {1.0, 0.7, 0.0, 1.3, 1.0, 0.9};
        request_settings settings{.temperature = temperatures[i], .seed = 40 + i, .max_new_tokens = 7 + 4 * i};
        settings.log_probabilities = true;
        if (i == 3) settings.top_k = 40;
        if (i == 4) settings.top_p = 0.9;
        if (i == 1) settings.max_draft_tokens = 2;
        stops.push_back({i % 2 == 0 ? static_cast<token_id>(roll.below(vocabulary)) : no_token});
        settings.stop_tokens = stops.back();
        static_cast<void>(dec.join(prompt, settings));
        requests.anchors.push_back(prompt.back());
        requests.positions.push_back(prompt.size() - 1);
        requests.seeds.push_back(*settings.seed);
        requests.targets.push_back(settings.target_transform());
        requests.drafts.push_back(settings.draft_transform());
        requests.remaining.push_back(static_cast<std::uint32_t>(settings.max_new_tokens));
        requests.draft_limits.push_back(i == 1 ? 2 : block_size);
        requests.slots.push_back(i);
        requests.weights.push_back(certain);
        requests.stop_tokens.push_back(stops.back()[0]);
    }

    std::size_t rounds = 0;
    for (; dec.step(); ++rounds) {
        CAPTURE(rounds);
        round_record const& record = dec.round();
        REQUIRE(record.size() == requests.size());
        requests.upload(there.round.requests);
        there.template step<Rule, plans>(requests);

        std::size_t const count = requests.size();
        auto const drafted = support::download(there.round.drafts.sizes, count);
        auto const survivals = support::download(there.round.drafts.survival, count * block_size);
        auto const lengths = support::download(there.round.batch.lengths, count);
        auto const statuses = support::download(there.round.verdicts.statuses, count);
        auto const accepted = support::download(there.round.verdicts.accepted, count);
        auto const emitted = support::download(there.round.verdicts.emitted, count);
        auto const tokens = support::download(there.round.verdicts.tokens, count * (block_size + 1));
        auto const stopped = support::download(there.round.verdicts.stopped, count);
        auto const logs = support::download(there.round.verdicts.log_probabilities, count * (block_size + 1));
        for (std::size_t r = 0; r < count; ++r) {
            CAPTURE(r);
            verdict const& v = record.verdicts[r];
            CHECK(statuses[r] == status::ok);
            CHECK(drafted[r] == v.drafted);
            for (std::size_t k = 0; k < v.drafted; ++k) {
                // Confidences are sums of floats in another order.
                auto const expected = static_cast<double>(record.survivals.at(r, k).survival);
                CHECK(static_cast<double>(survivals[r * block_size + k]) == Approx(expected).margin(64.0));
            }
            CHECK(lengths[r] == v.verified);
            CHECK(accepted[r] == v.accepted);
            REQUIRE(emitted[r] == v.emitted.size());
            for (std::size_t i = 0; i < v.emitted.size(); ++i) {
                REQUIRE(tokens[r * (block_size + 1) + i] == v.emitted[i]);
                CHECK(logs[r * (block_size + 1) + i] == Approx(v.log_probabilities[i]).margin(1e-5));
            }
            CHECK((stopped[r] != 0) == v.stopped);
        }
        require_cuda(advance(there.round, nullptr));
        requests.download(there.round.requests);
        requests.remove_finished();
    }
    CHECK(requests.size() == 0);
    CHECK(rounds > 5);
}

}  // namespace

TEST_CASE("Device rounds beside a decoder: token rejection, Algorithm 1") {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) mirror<token_rejection<>, false>(seed);
}

TEST_CASE("Device rounds beside a decoder: block verification, a lagged budget") {
    for (std::uint64_t seed = 11; seed <= 12; ++seed) mirror<block_verification<>, true>(seed);
}

TEST_CASE("Device rounds beside a decoder: keyed coupling") {
    mirror<keyed_coupling, false>(21);
}

TEST_CASE("Device rounds beside a decoder: drafts by argmax") {
    mirror<token_rejection<argmax_draft>, false>(31);
}

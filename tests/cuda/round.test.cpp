// SPDX-License-Identifier: MIT
//
// Whole rounds: a decoder on the host beside an engine whose rounds stay on the device, with the same models, settings
// and seeds. A round is budget, backbone, chain, schedule, batch, target, acceptance and the step to the next round. It
// is captured in a graph once, before there is a request, and replayed. Everything that is drafted, scheduled and
// emitted must be the same in every round. Meanwhile requests finish, others take their slots, and the batch grows and
// shrinks. Some are constrained, by masks that depend on the token before, or may not stop soon.
//
// And one graph replayed 10,000 times on a device (12 in the emulator, some seconds): what a request emits among others
// that join and leave is what it emits alone.

#include <sureleap/cuda/confidence/head.cuh>
#include <sureleap/cuda/drafter/chain.cuh>
#include <sureleap/cuda/round/accept.cuh>
#include <sureleap/cuda/round/advance.cuh>
#include <sureleap/cuda/sampling/row_mask.cuh>
#include <sureleap/cuda/schedule/budget.cuh>
#include <sureleap/cuda/schedule/history.cuh>
#include <sureleap/cuda/schedule/schedules.cuh>
#include <sureleap/cuda/verify/flatten.cuh>

#include <sureleap/confidence/head.hpp>
#include <sureleap/cost/capacity.hpp>
#include <sureleap/decoder.hpp>
#include <sureleap/drafter/semi_autoregressive.hpp>
#include <sureleap/head/markov.hpp>
#include <sureleap/schedule/greedy.hpp>
#include <sureleap/schedule/top_k.hpp>
#include <sureleap/verify/block.hpp>
#include <sureleap/verify/coupled.hpp>
#include <sureleap/verify/rejection.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <type_traits>
#include <vector>

#include "cuda/support/captured.hpp"
#include "cuda/support/device_array.hpp"
#include "cuda/support/device_rounds.hpp"
#include "cuda/support/round_on_device.hpp"
#include "cuda/support/seeds.hpp"
#include "support/catch.hpp"
#include "support/dice.hpp"

using namespace sureleap;
namespace device = sureleap::cuda;  // CUDA has a namespace cuda of its own
using support::dice;

namespace {

constexpr std::uint32_t vocabulary = 1100;  // two blocks of tokens, one of them ragged
constexpr std::uint32_t rank = 16;
constexpr std::uint32_t hidden_size = 8;
constexpr std::uint32_t block_size = 4;  // gamma, which is a function of C
constexpr std::uint32_t places = 6;
constexpr std::uint32_t ever = 10;  // requests that come, one after another

/// A logit is a term of its position plus a term of the token before. So an engine needs no cache, and a kernel makes
/// the same bits as the host. The draft's base logits cannot depend on the token before; its head adds that term, up to
/// rounding.
struct models {
    static constexpr std::uint32_t most_positions = 64;

    std::vector<bf16> w1, w2, confidence;
    std::vector<float> common;        ///< [most_positions, V]
    std::vector<float> own;           ///< [V, V] by the token before
    std::vector<bf16> hidden_states;  ///< [most_positions, hidden_size]

    explicit models(dice& roll)
        : w1(support::random_values<bf16>(roll, std::size_t{vocabulary} * rank, 0.5)),
          w2(support::random_values<bf16>(roll, std::size_t{vocabulary} * rank, 0.5)),
          confidence(support::random_values<bf16>(roll, hidden_size + rank, 0.4)),
          common(support::random_values<float>(roll, std::size_t{most_positions} * vocabulary, 1.7)),
          own(support::random_values<float>(roll, std::size_t{vocabulary} * vocabulary, 0.3)),
          hidden_states(support::random_values<bf16>(roll, std::size_t{most_positions} * hidden_size, 1.2)) {
        for (std::size_t last = 0; last < vocabulary; ++last) {
            for (std::size_t v = 0; v < vocabulary; ++v) {
                for (std::size_t i = 0; i < rank; ++i) {
                    own[last * vocabulary + v] += load(w1[last * rank + i]) * load(w2[v * rank + i]);
                }
            }
        }
    }
};

/// The same in device memory, and the models' passes over it.
struct model_tables {
    float const* common = nullptr;
    float const* own = nullptr;
    bf16 const* hidden_states = nullptr;
};

/// A block of threads for every row that a round could have.
__global__ void target_pass(model_tables tables, device::device_round round, float* rows) {
    std::uint32_t const row = blockIdx.x;
    if (row >= static_cast<std::uint32_t>(round.batch.offsets[round.limits.requests])) return;
    float const* const common = tables.common + (round.batch.positions[row] + 1) * vocabulary;
    float const* const own = tables.own + static_cast<std::size_t>(round.batch.tokens[row]) * vocabulary;
    for (std::uint32_t v = threadIdx.x; v < vocabulary; v += blockDim.x) {
        rows[std::size_t{row} * vocabulary + v] = common[v] + own[v];
    }
}

/// A block of threads for every position that could be drafted.
__global__ void backbone_pass(model_tables tables, device::device_round round, bf16* base, bf16* hidden) {
    std::uint32_t const r = blockIdx.x / block_size;
    if (r >= *round.requests.count) return;
    std::uint64_t const position = round.requests.positions[r] + blockIdx.x % block_size;
    float const* const common = tables.common + (position + 1) * vocabulary;
    for (std::uint32_t v = threadIdx.x; v < vocabulary; v += blockDim.x) {
        base[std::size_t{blockIdx.x} * vocabulary + v] = bf16(common[v]);
    }
    if (threadIdx.x < hidden_size) {
        hidden[std::size_t{blockIdx.x} * hidden_size + threadIdx.x] =
            tables.hidden_states[position * hidden_size + threadIdx.x];
    }
}

// ---- a grammar -----------------------------------------------------------------------------------------------------

constexpr std::size_t words_of_mask = mask_words(vocabulary);

/// Behind a token come 400 neighbours: groups of the row have none of them.
[[nodiscard]] SURELEAP_HOST_DEVICE constexpr bool may_follow(token_id last, std::uint32_t v) {
    return (v + 37 * static_cast<std::uint32_t>(last)) % vocabulary < 400;
}
[[nodiscard]] SURELEAP_HOST_DEVICE constexpr std::uint32_t word_behind(token_id last, std::uint32_t w) {
    std::uint32_t word = 0;
    for (std::uint32_t i = 0; i < 32; ++i) word |= static_cast<std::uint32_t>(may_follow(last, 32 * w + i)) << i;
    return word;
}
/// Who is constrained, told by its seed.
[[nodiscard]] SURELEAP_HOST_DEVICE constexpr bool is_constrained(std::uint64_t seed) {
    return seed % 3 == 0;
}

/// The host's, as a request's constraint.
struct grammar {
    std::vector<std::uint32_t> words = std::vector<std::uint32_t>(words_of_mask);

    [[nodiscard]] auto constraint() {
        return [this](request_view const& request, std::span<token_id const> drafted) noexcept {
            token_id const last = drafted.empty() ? request.anchor : drafted.back();
            for (std::uint32_t w = 0; w < words.size(); ++w) words[w] = word_behind(last, w);
            return token_mask{std::span<std::uint32_t const>(words)};
        };
    }
};
using constraint_type = decltype(std::declval<grammar&>().constraint());

/// And the engine's: masks of position k, and of the batch.
__global__ void fill_base_masks(device::device_round round, std::uint32_t k, std::uint32_t* words) {
    std::uint32_t const r = blockIdx.x;
    if (r >= *round.requests.count) return;
    std::size_t const row = std::size_t{r} * block_size + k;
    token_id const last = k == 0 ? round.requests.anchors[r] : round.drafts.tokens[row - 1];
    bool const constrained = is_constrained(round.requests.seeds[r]);
    for (std::uint32_t w = threadIdx.x; w < words_of_mask; w += blockDim.x) {
        words[row * words_of_mask + w] = constrained ? word_behind(last, w) : 0xffffffffu;
    }
}
__global__ void fill_target_masks(device::device_round round, std::uint32_t* words) {
    std::uint32_t const row = blockIdx.x;
    if (row >= static_cast<std::uint32_t>(round.batch.offsets[round.limits.requests])) return;
    bool const constrained = is_constrained(round.requests.seeds[round.batch.markers[row]]);
    for (std::uint32_t w = threadIdx.x; w < words_of_mask; w += blockDim.x) {
        words[row * words_of_mask + w] = constrained ? word_behind(round.batch.tokens[row], w) : 0xffffffffu;
    }
}

/// All that an engine keeps on the device: models, memory and the captured round.
struct engine_on_device {
    device::device_limits limits{places, block_size, vocabulary, 1, true};
    device_array<bf16> w1, w2, confidence_weight, hidden_states, base, hidden;
    device_array<float> common, own, rows;
    device_array<std::uint32_t> base_masks, target_masks;
    device_array<unsigned char> memory;
    device::device_round round{};
    device::chain_memory chain{};
    device::verify_memory verification{};
    device::capacity_table capacity{};
    device::survival_columns lagged{};
    device::history_memory history{};
    std::uint32_t* budget = nullptr;
    device::markov_head<bf16> head{};
    device::confidence_head<bf16> confidence{};

    template <class Curve>
    engine_on_device(models const& m, Curve const& curve, bool coupled, std::uint32_t lag, fixed_probability prior)
        : w1(m.w1),
          w2(m.w2),
          confidence_weight(m.confidence),
          hidden_states(m.hidden_states),
          base(std::size_t{places} * block_size * vocabulary),
          hidden(std::size_t{places} * block_size * hidden_size),
          common(m.common),
          own(m.own),
          rows(std::size_t{places} * (block_size + 1) * vocabulary),
          base_masks(std::size_t{places} * block_size * words_of_mask),
          target_masks(std::size_t{places} * (block_size + 1) * words_of_mask) {
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
        support::upload(round.requests.count, std::uint32_t{0});
        require_cuda(forget_all(history, nullptr));
    }

    /// One round of whoever is in it.
    template <class Rule, bool plans>
    [[nodiscard]] cudaError_t enqueue_round(cudaStream_t stream) {
        model_tables const tables{common.data(), own.data(), hidden_states.data()};
        device::forward_view<bf16> const forward{{base.data(), std::size_t{places} * block_size, vocabulary},
                                                 {hidden.data(), std::size_t{places} * block_size, hidden_size}};
        cudaError_t error = cudaSuccess;
        auto const then = [&](auto const& stage) {
            if (error == cudaSuccess) error = stage();
        };
        if constexpr (plans) {
            then([&] { return lagged_table(round, history, lagged, stream); });
            then([&] { return best_budget(round, lagged, capacity, budget, stream); });
        }
        then([&] {
            return device::launch(backbone_pass, places * block_size, 64, 0, stream, tables, round, base.data(),
                                  hidden.data());
        });
        then([&] {
            auto const mask_position = [&](std::uint32_t k) {
                cudaError_t const filled =
                    device::launch(fill_base_masks, places, 32, 0, stream, round, k, base_masks.data());
                if (filled != cudaSuccess) return filled;
                return mask_base_rows(device::mutable_rows<bf16>{base.data(), forward.base_logits.rows, vocabulary},
                                      {base_masks.data(), words_of_mask}, k, round, stream);
            };
            return device::draw_chain<typename Rule::draft_rule>(head, confidence, forward, chain, round, stream, {},
                                                                 mask_position);
        });
        then([&] {
            if constexpr (plans) {
                return device::admit(device::top_k_schedule{budget}, round, stream);
            } else {
                return device::admit(device::greedy_schedule{capacity}, round, stream);
            }
        });
        then([&] { return flatten(round, stream); });
        then([&] {
            return device::launch(target_pass, places * (block_size + 1), 64, 0, stream, tables, round, rows.data());
        });
        then([&] {
            return device::launch(fill_target_masks, places * (block_size + 1), 32, 0, stream, round,
                                  target_masks.data());
        });
        then([&] {
            return mask_target_rows(device::mutable_rows<float>{rows.data(), places * (block_size + 1), vocabulary},
                                    {target_masks.data(), words_of_mask}, round.batch, round, stream);
        });
        then([&] {
            return device::accept<Rule>(device::logits_rows<float>{rows.data(), places * (block_size + 1), vocabulary},
                                        draft_rows_of(head, forward, chain), verification, round, stream);
        });
        then([&] { return remember(round, history, stream); });
        then([&] { return advance(round, stream); });
        return error;
    }
};

/// The list of requests that the engine keeps, by slots as the decoder's: the slot that is free for longest is taken
/// first.
struct request_list {
    std::vector<device_request> running;
    std::vector<std::uint32_t> free = [] {
        std::vector<std::uint32_t> all(places);
        std::iota(all.begin(), all.end(), 0u);
        return all;
    }();

    [[nodiscard]] std::uint32_t take_slot() {
        std::uint32_t const slot = free.front();
        free.erase(free.begin());
        return slot;
    }
    void add(device_request const& request) {
        auto const behind = std::find_if(running.begin(), running.end(),
                                         [&](device_request const& each) { return each.slot > request.slot; });
        running.insert(behind, request);
    }
    /// Takes over what a round changed, and takes out who has finished. True if someone has.
    [[nodiscard]] bool update(device::request_columns const& from) {
        std::size_t const count = running.size();
        auto const anchors = support::download(from.anchors, count);
        auto const positions = support::download(from.positions, count);
        auto const remaining = support::download(from.remaining, count);
        auto const min_remaining = support::download(from.min_remaining, count);
        for (std::size_t r = 0; r < count; ++r) {
            running[r].min_remaining = min_remaining[r];
            running[r].anchor = anchors[r];
            running[r].position = positions[r];
            running[r].remaining = remaining[r];
            if (remaining[r] == 0) free.push_back(running[r].slot);
        }
        return std::erase_if(running, [](device_request const& each) { return each.remaining == 0; }) > 0;
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
            float const* const common = own.common.data() + (batch.positions()[i] + 1) * vocabulary;
            float const* const before = own.own.data() + static_cast<std::size_t>(batch.tokens()[i]) * vocabulary;
            for (std::size_t v = 0; v < vocabulary; ++v) rows[i * vocabulary + v] = common[v] + before[v];
        }
        return {{rows.data(), batch.rows(), vocabulary}, {}, {}};
    }
    [[nodiscard]] block_forward<bf16> forward(std::span<request_view const> requests) {
        base.resize(requests.size() * block_size * vocabulary);
        hidden.resize(requests.size() * block_size * hidden_size);
        for (std::size_t row = 0; row < requests.size() * block_size; ++row) {
            std::size_t const position = requests[row / block_size].position + row % block_size;
            float const* const common = own.common.data() + (position + 1) * vocabulary;
            for (std::size_t v = 0; v < vocabulary; ++v) base[row * vocabulary + v] = bf16(common[v]);
            std::copy_n(own.hidden_states.data() + position * hidden_size, hidden_size,
                        hidden.data() + row * hidden_size);
        }
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
    decoder dec{target,
                drafter,
                schedule,
                Rule{},
                {.max_requests = places, .seed = 3, .kernels = &scalar_kernels<row_kernels>, .constrained = true}};
    engine_on_device there(own, curve, std::is_same_v<typename Rule::draft_rule, coupled_draft>, lag, prior);

    support::captured const round_there(
        [&](cudaStream_t stream) { return there.template enqueue_round<Rule, plans>(stream); });

    request_list requests;
    std::vector<std::array<token_id, 1>> stops(ever);  // which settings refer to
    std::vector<grammar> grammars(ever);
    std::vector<constraint_type> constraints;
    for (grammar& each : grammars) constraints.push_back(each.constraint());
    std::uint32_t joined = 0;
    auto const join = [&] {
        std::uint32_t const i = joined++;
        std::vector<token_id> const prompt(1 + i, static_cast<token_id>(17 * i));
        double const temperatures[] = {1.0, 0.7, 0.0, 1.3, 1.0, 0.9};
        request_settings settings{
            .temperature = temperatures[i % 6], .seed = 40 + i, .max_new_tokens = 7 + 4 * (i % places)};
        settings.log_probabilities = true;
        if (i % 5 == 3) settings.top_k = 40;
        if (i % 5 == 4) settings.top_p = 0.9;
        if (i == 1) settings.max_draft_tokens = 2;
        stops[i] = {i % 2 == 0 ? static_cast<token_id>(roll.below(vocabulary)) : no_token};
        settings.stop_tokens = stops[i];
        if (is_constrained(*settings.seed)) settings.constraint = constraints[i];
        if (i % 4 == 2) settings.min_new_tokens = 5;
        static_cast<void>(dec.submit(prompt, settings));
        std::uint32_t const slot = requests.take_slot();
        require_cuda(device::join(there.history, slot, nullptr));
        requests.add({.anchor = prompt.back(),
                      .position = prompt.size() - 1,
                      .seed = *settings.seed,
                      .draft = settings.draft_transform(),
                      .remaining = static_cast<std::uint32_t>(settings.max_new_tokens),
                      .draft_limit = i == 1 ? 2 : block_size,
                      .target = settings.target_transform(),
                      .slot = slot,
                      .stop_token = stops[i][0],
                      .min_remaining = static_cast<std::uint32_t>(settings.min_new_tokens)});
    };
    while (joined < places - 2) join();

    std::size_t rounds = 0;
    std::size_t kept = 0;
    std::size_t refused = 0;
    for (bool changed = true;; ++rounds) {
        CAPTURE(rounds);
        if (rounds % 2 == 1 && joined < ever && requests.running.size() < places) {
            join();
            changed = true;
        }
        if (!dec.step()) break;
        round_record const& record = dec.round();
        REQUIRE(record.size() == requests.running.size());
        if (changed) write_requests(there.round, requests.running);
        round_there.replay();

        std::size_t const count = requests.running.size();
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
            REQUIRE(requests.running[r].slot == v.slot);
            CHECK(statuses[r] == status::ok);
            CHECK(drafted[r] == v.drafted);
            for (std::size_t k = 0; k < v.drafted; ++k) {
                // Confidences are sums of floats in another order.
                auto const expected = static_cast<double>(record.survivals.at(r, k).survival);
                CHECK(static_cast<double>(survivals[r * block_size + k]) == Approx(expected).margin(64.0));
            }
            CHECK(lengths[r] == v.verified);
            CHECK(accepted[r] == v.accepted);
            kept += v.accepted;
            refused += v.verified - v.accepted;
            REQUIRE(emitted[r] == v.emitted.size());
            for (std::size_t i = 0; i < v.emitted.size(); ++i) {
                REQUIRE(tokens[r * (block_size + 1) + i] == v.emitted[i]);
                CHECK(logs[r * (block_size + 1) + i] == Approx(v.log_probabilities[i]).margin(1e-5));
            }
            CHECK((stopped[r] != 0) == (v.finished == finish_reason::stop_token));
        }
        changed = requests.update(there.round.requests);
    }
    CHECK(requests.running.empty());
    CHECK(joined == ever);
    CHECK(rounds > 12);
    CHECK(kept > 5);
    CHECK(refused > 20);
}

#if defined(SURELEAP_CUDA_EMULATED)
constexpr std::size_t replays = 12;
constexpr std::size_t kinds = 2;
#else
constexpr std::size_t replays = 10'000;
constexpr std::size_t kinds = 12;
#endif

/// Requests that come again and again, each of a few kinds. `curve` must not make tokens depend on the batch: one that
/// admits every draft, or any for a rule whose tokens do not depend on lengths.
template <class Rule>
void replay_with_joins_and_leaves(std::uint64_t seed, analytic_capacity const& curve) {
    CAPTURE(seed);
    dice roll(seed);
    models const own(roll);
    fixed_probability prior = 0;
    REQUIRE(quantise(0.75, prior));
    engine_on_device there(own, curve, std::is_same_v<typename Rule::draft_rule, coupled_draft>, 2, prior);
    support::captured const round_there(
        [&](cudaStream_t stream) { return there.template enqueue_round<Rule, false>(stream); });

    request_list requests;
    std::array<std::size_t, places> kind_of{};               // by slot
    std::array<std::vector<token_id>, places> emitted_by{};  // by slot, since it joined
    auto const join = [&](std::size_t kind) {
        double const temperatures[] = {1.0, 0.7, 0.0, 1.3};
        transform const target{
            .temperature = temperatures[kind % 4], .top_k = kind % 5 == 3 ? 40 : 0, .top_p = kind % 5 == 4 ? 0.9 : 1.0};
        std::uint32_t const slot = requests.take_slot();
        require_cuda(device::join(there.history, slot, nullptr));
        requests.add({.anchor = static_cast<token_id>(17 * kind),
                      .position = kind,
                      .seed = 40 + kind,
                      .draft = {.temperature = target.temperature},
                      .remaining = static_cast<std::uint32_t>(7 + 4 * (kind % 6)),
                      .draft_limit = kind == 1 ? 2 : block_size,
                      .target = target,
                      .slot = slot});
        kind_of[slot] = kind;
        emitted_by[slot].clear();
    };
    bool changed = true;
    auto const replay = [&] {
        if (changed) write_requests(there.round, requests.running);
        round_there.replay();
        std::size_t const count = requests.running.size();
        auto const statuses = support::download(there.round.verdicts.statuses, count);
        auto const emitted = support::download(there.round.verdicts.emitted, count);
        auto const tokens = support::download(there.round.verdicts.tokens, count * (block_size + 1));
        for (std::size_t r = 0; r < count; ++r) {
            REQUIRE(statuses[r] == status::ok);
            REQUIRE(emitted[r] >= 1);
            auto const from = tokens.begin() + static_cast<std::ptrdiff_t>(r * (block_size + 1));
            auto& all = emitted_by[requests.running[r].slot];
            all.insert(all.end(), from, from + emitted[r]);
        }
        changed = requests.update(there.round.requests);
    };

    std::array<std::vector<token_id>, kinds> alone;
    for (std::size_t kind = 0; kind < kinds; ++kind) {
        join(kind);
        std::uint32_t const slot = requests.running.front().slot;
        for (changed = true; !requests.running.empty();) replay();
        alone[kind] = emitted_by[slot];
        REQUIRE(alone[kind].size() == 7 + 4 * (kind % 6));
    }

    std::size_t compared = 0;
    auto const compare = [&](std::uint32_t slot, bool finished) {
        auto const& expected = alone[kind_of[slot]];
        auto const& said = emitted_by[slot];
        CAPTURE(slot, kind_of[slot]);
        REQUIRE(said.size() <= expected.size());
        REQUIRE(std::equal(said.begin(), said.end(), expected.begin()));
        if (finished) REQUIRE(said.size() == expected.size());
        ++compared;
    };
    for (std::size_t i = 0; i < replays; ++i) {
        CAPTURE(i);
        while (requests.running.size() < places && roll.below(3) != 0) {
            join(roll.below(kinds));
            changed = true;
        }
        if (!requests.running.empty() && roll.below(8) == 0) {  // someone hangs up
            auto const who =
                requests.running.begin() + static_cast<std::ptrdiff_t>(roll.below(requests.running.size()));
            compare(who->slot, false);
            requests.free.push_back(who->slot);
            requests.running.erase(who);
            changed = true;
        }
        std::vector<device_request> const before = requests.running;
        replay();
        for (device_request const& each : before) {
            bool const runs = std::any_of(requests.running.begin(), requests.running.end(),
                                          [&](device_request const& other) { return other.slot == each.slot; });
            if (!runs) compare(each.slot, true);
        }
    }
    CHECK(compared >= replays / 8);
}

}  // namespace

TEST_CASE("Device rounds beside a decoder: token rejection, Algorithm 1") {
    for (std::uint64_t seed = 1; seed <= rounds_of(3); ++seed) mirror<token_rejection<>, false>(seed);
}

TEST_CASE("Device rounds beside a decoder: block verification, a lagged budget") {
    for (std::uint64_t seed = 11; seed < 11 + rounds_of(2); ++seed) mirror<block_verification<>, true>(seed);
}

TEST_CASE("Device rounds beside a decoder: keyed coupling") {
    mirror<keyed_coupling, false>(21);
}

TEST_CASE("Device rounds beside a decoder: drafts by argmax") {
    mirror<token_rejection<argmax_draft>, false>(31);
}

TEST_CASE("Replays while requests join and leave: token rejection", "[replays]") {
    replay_with_joins_and_leaves<token_rejection<>>(41, {1000.0, 1e11});  // a step takes as long for any batch
}

TEST_CASE("Replays while requests join and leave: keyed coupling, Algorithm 1", "[replays]") {
    replay_with_joins_and_leaves<keyed_coupling>(51, {1000.0, 9.0});
}

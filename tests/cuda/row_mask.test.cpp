// SPDX-License-Identifier: MIT
//
// Masks of rows against the host's row_mask, bit for bit: base logits of one position, rows of a batch of chains or of
// trees. What is not to be masked keeps its bits. Whole rounds with masks are in round.test.cpp. Under a second.

#include <sureleap/cuda/sampling/row_mask.cuh>
#include <sureleap/cuda/tree/columns.cuh>

#include <sureleap/sampling/row_mask.hpp>
#include <sureleap/sampling/vocabulary_map.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

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

/// Sizes around a word, around a block's tokens, and behind both.
std::uint32_t any_vocabulary(dice& roll) {
    std::uint32_t const sizes[] = {1, 31, 32, 33, 100, 8191, 8192, 8193, 9000};
    return sizes[roll.below(std::size(sizes))];
}

/// Words of masks in all kinds: of the vocabulary's length or shorter, with rows of ones and rows of nothing.
struct mask_rows {
    std::uint32_t row_words;
    std::vector<std::uint32_t> words;

    mask_rows(dice& roll, std::size_t rows, std::uint32_t vocabulary)
        : row_words(static_cast<std::uint32_t>(
              std::max<std::size_t>(1, mask_words(vocabulary) + roll.below(3) - roll.below(2)))),
          words(rows * row_words) {
        for (std::size_t i = 0; i < words.size(); ++i) {
            std::size_t const kind = (i / row_words) % 4;
            words[i] = kind == 0   ? 0xffffffffu
                       : kind == 1 ? static_cast<std::uint32_t>(roll.bits())
                       : kind == 2 ? (roll.chance(0.2) ? 1u << roll.below(32) : 0u)
                                   : static_cast<std::uint32_t>(roll.bits() & roll.bits());
        }
    }
    [[nodiscard]] token_mask row(std::size_t i) const {
        return token_mask{std::span<std::uint32_t const>(words).subspan(i * row_words, row_words)};
    }
};

template <class T>
std::vector<T> any_rows(dice& roll, std::size_t rows, std::size_t stride) {
    std::vector<T> values(rows * stride);
    for (T& x : values) x = T{static_cast<float>(roll.below(1000)) * 0.01f - 5.0f};
    return values;
}

template <class T>
bool same_bits(std::vector<T> const& a, std::vector<T> const& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

/// Requests with a stop token or none, some of which may not stop yet.
std::vector<device_request> any_requests(dice& roll, std::size_t count, std::uint32_t gamma, std::uint32_t vocabulary) {
    std::vector<device_request> requests(count);
    for (device_request& each : requests) {
        each.anchor = static_cast<token_id>(roll.below(vocabulary));
        each.position = (std::uint64_t{1} << 33) + roll.below(1000);
        each.draft_limit = static_cast<std::uint32_t>(roll.below(gamma + 2));
        if (roll.chance(0.7)) each.stop_token = static_cast<token_id>(roll.below(vocabulary));
        if (roll.chance(0.6)) each.min_remaining = static_cast<std::uint32_t>(roll.below(gamma + 2));
    }
    return requests;
}

/// The host's mask of a request's row, `behind` tokens after its anchor.
template <class T>
void apply_on_host(std::span<T> row, device_request const& request, std::size_t behind, token_mask allowed,
                   vocabulary_view map = {}) {
    row_mask mask{allowed, {}};
    if (behind < request.min_remaining) mask.barred = {&request.stop_token, 1};
    if (mask) mask.apply(row, map);
}

template <class T>
void mask_base(std::uint64_t seed) {
    CAPTURE(seed, sizeof(T));
    dice roll(seed);
    std::uint32_t const vocabulary = any_vocabulary(roll);
    bool const mapped = vocabulary > 1 && roll.chance(0.4);
    bool const constrained = roll.chance(0.8);
    auto const gamma = static_cast<std::uint32_t>(1 + roll.below(4));
    std::size_t const count = roll.below(5);
    device::device_limits const limits{static_cast<std::uint32_t>(count + 1), gamma, vocabulary, 1, false};

    // The draft's vocabulary: some of the target's tokens, in order.
    std::vector<token_id> to_target;
    for (std::uint32_t v = 0; v < vocabulary; ++v) {
        if (!mapped || v == 0 || roll.chance(0.6)) to_target.push_back(static_cast<token_id>(v));
    }
    vocabulary_map const map(to_target, vocabulary);
    std::size_t const columns = to_target.size();
    std::size_t const stride = columns + roll.below(3);
    std::size_t const rows = std::size_t{limits.requests} * gamma;
    std::vector<device_request> const requests = any_requests(roll, count, gamma, vocabulary);
    mask_rows const masks(roll, rows, vocabulary);
    std::vector<T> expected = any_rows<T>(roll, rows, stride);

    round_on_device round(limits);
    round.write(requests);
    device_array<T> base(expected);
    device_array<std::uint32_t> const words(masks.words);
    device_array<token_id> const to_target_there(to_target);
    auto const k = static_cast<std::uint32_t>(roll.below(gamma));
    require_cuda(device::mask_base_rows(
        device::mutable_rows<T>{base.data(), rows, static_cast<std::uint32_t>(columns), stride},
        constrained ? device::mask_columns{words.data(), masks.row_words} : device::mask_columns{}, k, round.get(),
        nullptr, mapped ? to_target_there.data() : nullptr));

    for (std::size_t r = 0; r < count; ++r) {
        std::size_t const row = r * gamma + k;
        if (k >= requests[r].draft_limit) continue;  // it does not draft there
        apply_on_host(std::span(expected).subspan(row * stride, columns), requests[r], k,
                      constrained ? masks.row(row) : token_mask{}, vocabulary_view{mapped ? &map : nullptr});
    }
    CHECK(same_bits(base.download(), expected));
}

template <class T>
void mask_target(std::uint64_t seed, bool trees) {
    CAPTURE(seed, sizeof(T), trees);
    dice roll(seed);
    std::uint32_t const vocabulary = any_vocabulary(roll);
    bool const constrained = roll.chance(0.8);
    auto const gamma = static_cast<std::uint32_t>(1 + roll.below(4));
    std::size_t const count = 1 + roll.below(4);
    device::device_limits const limits{static_cast<std::uint32_t>(count + 1), gamma, vocabulary, 1, false};
    std::uint32_t const nodes = 2 * gamma;
    std::size_t const most_rows = std::size_t{limits.requests} * (trees ? nodes + 1 : gamma + 1);
    std::size_t const stride = vocabulary + roll.below(3);
    std::vector<device_request> const requests = any_requests(roll, count, gamma, vocabulary);
    mask_rows const masks(roll, most_rows, vocabulary);
    std::vector<T> expected = any_rows<T>(roll, most_rows, stride);

    round_on_device round(limits);
    round.write(requests);
    support::carved<device::tree_columns> const tree(
        [&](device::workspace& ws) { return device::carve_trees(ws, limits, nodes); });
    device::batch_columns const& batch = trees ? tree.columns.batch : round.get().batch;

    // Rows of a request in any order of depth, as a tree's are.
    std::vector<std::int32_t> offsets{0};
    std::vector<std::uint64_t> positions;
    std::vector<std::uint32_t> markers;
    for (std::size_t r = 0; r < count; ++r) {
        std::size_t const rows = 1 + roll.below(trees ? nodes + 1 : gamma + 1);
        for (std::size_t i = 0; i < rows; ++i) {
            positions.push_back(requests[r].position + (trees && i > 0 ? 1 + roll.below(gamma) : i));
            markers.push_back(static_cast<std::uint32_t>(r));
        }
        offsets.push_back(static_cast<std::int32_t>(positions.size()));
    }
    offsets.resize(limits.requests + 1, offsets.back());
    support::upload(batch.offsets, offsets);
    support::upload(batch.positions, positions);
    support::upload(batch.markers, markers);

    device_array<T> rows(expected);
    device_array<std::uint32_t> const words(masks.words);
    require_cuda(device::mask_target_rows(
        device::mutable_rows<T>{rows.data(), most_rows, vocabulary, stride},
        constrained ? device::mask_columns{words.data(), masks.row_words} : device::mask_columns{}, batch, round.get(),
        nullptr));

    for (std::size_t i = 0; i < positions.size(); ++i) {
        device_request const& request = requests[markers[i]];
        apply_on_host(std::span(expected).subspan(i * stride, vocabulary), request, positions[i] - request.position,
                      constrained ? masks.row(i) : token_mask{});
    }
    CHECK(same_bits(rows.download(), expected));
}

}  // namespace

TEST_CASE("Masks: base logits of a position are the host's") {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        mask_base<float>(seed);
        mask_base<bf16>(100 + seed);
        mask_base<half>(200 + seed);
    }
}

TEST_CASE("Masks: rows of a batch are the host's") {
    for (std::uint64_t seed = 1; seed <= 30; ++seed) {
        mask_target<float>(300 + seed, false);
        mask_target<bf16>(400 + seed, true);
        mask_target<half>(500 + seed, seed % 2 == 0);
    }
}

TEST_CASE("Masks: what does not fit is refused") {
    device::device_limits const limits{2, 3, 40, 1, false};
    round_on_device const round(limits);
    device_array<float> logits(8 * 40);
    device_array<std::uint32_t> words(8 * 2);
    device_array<token_id> names(50);
    device::mask_columns const masks{words.data(), 2};
    support::upload(round.get().requests.count, 0u);
    auto const base = [&](device::mutable_rows<float> const& rows, device::mask_columns const& of, std::uint32_t k,
                          token_id const* to_target = nullptr) {
        return device::mask_base_rows(rows, of, k, round.get(), nullptr, to_target);
    };
    CHECK(base({logits.data(), 6, 40}, masks, 2) == cudaSuccess);
    CHECK(base({logits.data(), 6, 40}, {}, 0) == cudaSuccess);
    CHECK(base({logits.data(), 6, 20}, masks, 2, names.data()) == cudaSuccess);
    CHECK(base({nullptr, 6, 40}, masks, 2) == cudaErrorInvalidValue);
    CHECK(base({logits.data(), 5, 40}, masks, 2) == cudaErrorInvalidValue);
    CHECK(base({logits.data(), 6, 39}, masks, 2) == cudaErrorInvalidValue);
    CHECK(base({logits.data(), 6, 41}, masks, 2, names.data()) == cudaErrorInvalidValue);
    CHECK(base({logits.data(), 6, 40, 39}, masks, 2) == cudaErrorInvalidValue);
    CHECK(base({logits.data(), 6, 40}, masks, 3) == cudaErrorInvalidValue);
    CHECK(base({logits.data(), 6, 40}, {words.data(), 0}, 2) == cudaErrorInvalidValue);
    CHECK(base({logits.data(), 6, 40}, {nullptr, 2}, 2) == cudaErrorInvalidValue);

    auto const target = [&](device::mutable_rows<float> const& rows, device::batch_columns const& batch) {
        return device::mask_target_rows(rows, masks, batch, round.get(), nullptr);
    };
    support::upload(round.get().batch.offsets, std::vector<std::int32_t>(limits.requests + 1, 0));
    CHECK(target({logits.data(), 8, 40}, round.get().batch) == cudaSuccess);
    CHECK(target({logits.data(), 8, 39}, round.get().batch) == cudaErrorInvalidValue);
    CHECK(target({logits.data(), 0, 40}, round.get().batch) == cudaErrorInvalidValue);
    CHECK(target({logits.data(), 8, 40}, {}) == cudaErrorInvalidValue);
    CHECK(device::mask_target_rows(device::mutable_rows<float>{logits.data(), 8, 40}, masks, round.get().batch,
                                   device::device_round{}, nullptr) == cudaErrorInvalidValue);
    require_cuda(cudaDeviceSynchronize());
}

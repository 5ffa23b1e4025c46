// SPDX-License-Identifier: MIT
//
// The best tokens of rows on the device: what sorting finds, for rows of every kind, size and alignment.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <sureleap/cuda/head/top_tokens.cuh>

#include "cuda/support/captured.hpp"
#include "cuda/support/device_array.hpp"
#include "cuda/support/round_on_device.hpp"
#include "support/dice.hpp"

using namespace sureleap;
namespace device = sureleap::cuda;  // CUDA has a namespace cuda of its own

namespace {

using tokens = std::vector<token_id>;
constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();

/// By (logit descending, id ascending), NaN left out; ascending again.
template <class T>
tokens best_by_sorting(T const* row, std::size_t size, std::size_t best) {
    tokens ids;
    auto const logit = [&](token_id v) { return load(row[static_cast<std::size_t>(v)]); };
    for (std::size_t v = 0; v < size; ++v) {
        if (load(row[v]) == load(row[v])) ids.push_back(static_cast<token_id>(v));
    }
    std::sort(ids.begin(), ids.end(),
              [&](token_id a, token_id b) { return logit(a) > logit(b) || (logit(a) == logit(b) && a < b); });
    ids.resize(std::min(best, ids.size()));
    std::sort(ids.begin(), ids.end());
    return ids;
}

/// The kinds of rows that a choice by threshold may get wrong.
constexpr std::uint32_t shapes = 12;
float shaped(std::uint32_t shape, std::size_t v, std::size_t size, std::size_t line, support::dice& roll) {
    auto const at = static_cast<float>(v), n = static_cast<float>(size);
    auto const real = [&] { return static_cast<float>(roll.real()); };
    switch (shape) {
        case 0: return static_cast<float>(roll.bell());
        case 1: return static_cast<float>(roll.below(4));        // heavy ties
        case 2: return 1.0f;                                     // nothing but ties
        case 3: return at;                                       // every later token is better
        case 4: return n - at;                                   // none is
        case 5: return v % line < 16 ? 10.0f + real() : real();  // the sample is all there is
        case 6: return v % line < 16 ? -10.0f : real();          // the sample knows nothing
        case 7: return roll.chance(0.7) ? -inf : static_cast<float>(roll.bell());
        case 8: return roll.chance(0.3) ? nan_value : static_cast<float>(roll.below(6));
        case 9: return roll.chance(0.5) ? nan_value : -inf;
        case 10: return roll.chance(0.5) ? 0.0f : -0.0f;  // one number
        default: return v % 128 == 0 ? -nan_value : roll.chance(0.001) ? inf : static_cast<float>(roll.bell());
    }
}

}  // namespace

TEMPLATE_TEST_CASE("cuda::best_tokens: what sorting finds", "[emulated]", float, bf16, half) {
    using T = TestType;
    support::dice roll(7101);
    INFO("seed " << roll.seed());
    struct sizes {
        std::uint32_t vocabulary;
        std::vector<std::uint32_t> bests;
    };
    for (auto const& [size, bests] : {sizes{1, {1, 4}}, sizes{37, {1, 5, 36, 37, 50}}, sizes{1030, {7, 1024, 1029}},
                                      sizes{4096, {64}}, sizes{6001, {1, 40, 700, 6000, 6001}}, sizes{20011, {256}}}) {
        for (std::uint32_t const best : bests) {
            constexpr std::uint32_t gamma = 4;
            constexpr std::uint32_t requests = shapes / gamma;
            std::size_t const stride = size + roll.below(20);  // rows begin anywhere
            auto const plan = device::detail::best_tokens_plan::of(std::min(best, size), size);
            std::size_t const line = plan.samples == 0 ? 128 : size / (plan.samples / plan.line);
            std::vector<T> rows(requests * gamma * stride);
            for (std::uint32_t i = 0; i < shapes; ++i) {
                for (std::size_t v = 0; v < size; ++v) rows[i * stride + v] = T(shaped(i, v, size, line, roll));
            }
            round_on_device round({requests + 1, gamma, size});
            std::vector<device_request> asked(requests);
            if (roll.chance(0.5)) asked[1].draft_limit = 2;
            round.write(asked);

            rows.resize((requests + 1) * gamma * stride);
            device_array<T> const logits(rows);
            std::uint32_t const capacity = std::min(best, size) + static_cast<std::uint32_t>(roll.below(3));
            std::size_t const lists = (requests + 1) * gamma;
            device_array<token_id> ids(lists * capacity);
            device_array<std::uint32_t> counts(lists);
            std::uint32_t const untouched = counts.download().front();
            matrix_view<T> const view{logits.data(), lists, size, stride};
            support::in_graph([&](cudaStream_t stream) {
                return device::best_tokens(view, best, round.get(), {ids.data(), counts.data(), capacity}, stream);
            });

            auto const got = ids.download();
            auto const found = counts.download();
            for (std::uint32_t i = 0; i < lists; ++i) {
                INFO("V " << size << ", best " << best << ", shape " << i << ", stride " << stride);
                if (i >= shapes || i % gamma >= asked[i / gamma].draft_limit) {
                    REQUIRE(found[i] == untouched);
                    continue;
                }
                REQUIRE(found[i] <= capacity);
                auto const first = got.begin() + static_cast<std::ptrdiff_t>(i * capacity);
                REQUIRE(tokens(first, first + found[i]) == best_by_sorting(rows.data() + i * stride, size, best));
            }
        }
    }
}

TEST_CASE("cuda::best_tokens: what does not fit is refused", "[emulated]") {
    round_on_device const round({1, 2, 50});
    std::vector<float> const rows(100);
    device_array<float> const logits(rows);
    device_array<token_id> ids(2 * 8);
    device_array<std::uint32_t> counts(2);
    device::token_lists const lists{ids.data(), counts.data(), 8};
    matrix_view<float> const view{logits.data(), 2, 50};
    auto const refused = [&](matrix_view<float> const& m, std::uint32_t best, device::device_round const& in,
                             device::token_lists const& out) {
        return device::best_tokens(m, best, in, out, nullptr) == cudaErrorInvalidValue;
    };
    CHECK(refused(view, 0, round.get(), lists));
    CHECK(refused(view, 9, round.get(), lists));
    CHECK(refused({logits.data(), 1, 50}, 8, round.get(), lists));
    CHECK(refused({logits.data(), 2, 50, 49}, 8, round.get(), lists));
    CHECK(refused({nullptr, 2, 50}, 8, round.get(), lists));
    CHECK(refused(view, 8, {}, lists));
    CHECK(refused(view, 8, round.get(), {nullptr, counts.data(), 8}));
    CHECK(refused(view, 8, round.get(), {ids.data(), nullptr, 8}));
}

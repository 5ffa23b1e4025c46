// SPDX-License-Identifier: MIT
//
// The promises of views, records and policies about their layout. They are copied as bytes where a workspace or a
// device holds them. Empty ones take no memory. They are not copyable where a copy would point into another object's
// memory.
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <sureleap/sureleap.hpp>

using namespace sureleap;

namespace layout_test {

template <class... T>
constexpr bool plain = (... && (std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>));

// Storage formats are two bytes, whatever the compiler; tokens are what every kernel takes.
static_assert(sizeof(bf16) == 2 && sizeof(half) == 2 && plain<bf16, half>);
static_assert(std::is_same_v<token_id, std::int32_t> && no_token < 0);
static_assert(std::is_same_v<compute_t<bf16>, float> && std::is_same_v<compute_t<half>, float>);
static_assert(std::is_same_v<compute_t<float>, float> && std::is_same_v<compute_t<double>, double>);
static_assert(is_storage_v<float> && is_storage_v<double> && is_storage_v<bf16> && is_storage_v<half>);
static_assert(!is_storage_v<int> && !is_storage_v<long double> && !is_storage_v<float const>);
// No conversion between them happens silently.
static_assert(!std::is_convertible_v<float, bf16> && !std::is_convertible_v<bf16, float>);
static_assert(!std::is_convertible_v<float, half> && !std::is_convertible_v<half, float>);
static_assert(!std::is_convertible_v<bf16, half> && !std::is_convertible_v<half, bf16>);

// Views and records.
static_assert(plain<matrix_view<float>, matrix_view<bf16>, logits_row<half>, logits_rows<bf16>>);
static_assert(plain<probability_row<float>, probability_row<double>>);
static_assert(plain<block_forward<bf16>, request_view, transform, request_settings, draw_key>);
static_assert(plain<distribution<float>, distribution<double>, distribution<bf16>, distribution<half>>);
static_assert(plain<candidate, survival_table, draft_table, frontier_memory, planning_memory>);
static_assert(plain<verdict, decision, expected_step, verify_batch, draft_block<float>, draft_block<double>>);
static_assert(plain<planning_table<from_anchor>, planning_table<from_rounds<2>>>);

// A row of logits and a row of probabilities cannot be mixed up.
static_assert(!std::is_convertible_v<logits_row<float>, probability_row<float>>);
static_assert(!std::is_convertible_v<probability_row<float>, logits_row<float>>);
template <class Row>
constexpr bool gives_a_law = std::is_constructible_v<distribution<float>, Row, transform, std::span<token_id>>;
static_assert(gives_a_law<logits_row<float>> && !gives_a_law<probability_row<float>>);

// Policies without state cost nothing.
template <class... T>
constexpr bool empty = (... && std::is_empty_v<T>);
static_assert(empty<philox_randomness, no_logits_hook, no_head<float>, scalar_backend>);
static_assert(empty<top1_confidence, no_confidence>);
static_assert(empty<token_rejection<>, block_verification<>, target_match<>, greedy_match, keyed_coupling>);

// What runs in a round does not throw.
struct curve {
    double steps_per_second(std::size_t) const noexcept { return 1.0; }
};
static_assert(noexcept(std::declval<fixed_schedule const&>().admit(std::declval<causal_frontier&>())));
static_assert(noexcept(std::declval<threshold_schedule const&>().admit(std::declval<causal_frontier&>())));
static_assert(noexcept(std::declval<survival_threshold_schedule const&>().admit(std::declval<causal_frontier&>())));
static_assert(noexcept(std::declval<greedy_schedule<curve> const&>().admit(std::declval<causal_frontier&>())));
static_assert(noexcept(
    std::declval<planned_schedule<curve> const&>().budget(std::declval<planning_table<from_anchor> const&>())));
static_assert(noexcept(
    std::declval<top_k_schedule<curve> const&>().budget(std::declval<planning_table<from_rounds<2>> const&>())));
static_assert(noexcept(std::declval<round_report&>().record(std::span<verdict const>{})));

// A decoder holds views of itself.
constexpr auto scores = [](verify_batch const&) { return logits_rows<float>{}; };
using small_decoder = decoder<decltype(scores), lookup, fixed_schedule, keyed_coupling>;
static_assert(!std::is_copy_constructible_v<small_decoder> && !std::is_copy_assignable_v<small_decoder>);
static_assert(!std::is_move_constructible_v<small_decoder> && !std::is_move_assignable_v<small_decoder>);

// What a decoder was made of can be read back.
static_assert(std::is_same_v<small_decoder::schedule_type, fixed_schedule>);
static_assert(std::is_same_v<small_decoder::rule_type, keyed_coupling>);
static_assert(std::is_same_v<small_decoder::hook_type, no_logits_hook>);
static_assert(std::is_same_v<small_decoder::randomness_type, philox_randomness>);
static_assert(std::is_same_v<small_decoder::target_value, float>);
static_assert(std::is_same_v<small_decoder::draft_value, float>);

// Round memory holds views of its own buffer: a copy would write into the original.
static_assert(!std::is_copy_constructible_v<round_memory<float, float>>);
static_assert(!std::is_copy_assignable_v<round_memory<float, float>>);

}  // namespace layout_test

// SPDX-License-Identifier: MIT
//
// What rounds over rows of float take, whatever the target, the drafter and the schedule are. It is no header of its
// own: round/stages.hpp includes it as declarations where SURELEAP_COMPILED is 1, and compiled/rounds.cpp as
// definitions, with SURELEAP_DETAIL_TEMPLATE as `extern template` or `template`.
SURELEAP_BEGIN_NAMESPACE

SURELEAP_DETAIL_TEMPLATE class detail::weighted_row<float>;
SURELEAP_DETAIL_TEMPLATE class detail::summed_row<float>;
SURELEAP_DETAIL_TEMPLATE class distribution<float>;
SURELEAP_DETAIL_TEMPLATE class draft_block<float>;
SURELEAP_DETAIL_TEMPLATE class tree_growth<float>;
SURELEAP_DETAIL_TEMPLATE class target_laws<float, no_logits_hook>;
SURELEAP_DETAIL_TEMPLATE struct verification_memory<float, no_logits_hook>;
SURELEAP_DETAIL_TEMPLATE struct detail::round_state<float, float, no_logits_hook>;
SURELEAP_DETAIL_TEMPLATE class round_memory<float, float>;
SURELEAP_DETAIL_TEMPLATE detail::kept_tokens<float> detail::truncate<float>(std::span<float const>, transform const&,
                                                                            token_id, std::span<token_id>,
                                                                            row_functions<float> const&);
SURELEAP_DETAIL_TEMPLATE std::span<request_view> detail::take_requests(
    std::span<request_view const>, void const*, detail::round_state<float, float, no_logits_hook>&);
SURELEAP_DETAIL_TEMPLATE bool detail::empty_block(std::span<request_view>, fixed_probability,
                                                  detail::round_state<float, float, no_logits_hook>&);
SURELEAP_DETAIL_TEMPLATE void detail::admit_lengths(std::span<std::uint32_t const>, draft_table const&,
                                                    std::span<request_view const>,
                                                    detail::round_state<float, float, no_logits_hook>&);

SURELEAP_END_NAMESPACE
#undef SURELEAP_DETAIL_TEMPLATE

// SPDX-License-Identifier: MIT
//
// Corrections and the accept stage of the commonest rules, over rows of float. sureleap.hpp includes it as stages.hpp
// includes compiled.inl.
#define SURELEAP_DETAIL_ACCEPT(...)                                                                                 \
    SURELEAP_DETAIL_TEMPLATE void detail::accept_rows<__VA_ARGS__>(__VA_ARGS__ const&, logits_rows<float> const&,   \
                                                                   no_logits_hook const&, philox_randomness const&, \
                                                                   round_memory<float, float>&);                    \
    SURELEAP_DETAIL_TEMPLATE void detail::accept_rows<__VA_ARGS__>(__VA_ARGS__ const&, logits_rows<float> const&,   \
                                                                   no_logits_hook const&, philox_randomness&,       \
                                                                   round_memory<float, float>&)

SURELEAP_BEGIN_NAMESPACE

SURELEAP_DETAIL_TEMPLATE class residual<distribution<float>, distribution<float>>;
SURELEAP_DETAIL_ACCEPT(token_rejection<>);
SURELEAP_DETAIL_ACCEPT(block_verification<>);
SURELEAP_DETAIL_ACCEPT(target_match<>);
SURELEAP_DETAIL_ACCEPT(greedy_match);
SURELEAP_DETAIL_ACCEPT(keyed_coupling);

SURELEAP_END_NAMESPACE
#undef SURELEAP_DETAIL_ACCEPT
#undef SURELEAP_DETAIL_TEMPLATE

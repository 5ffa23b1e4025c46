// SPDX-License-Identifier: MIT
//
// All that a round is made of, and the decoder that runs it. Depends on the standard library alone. Doors of their own:
// serving.hpp (what learns and decides under load), training.hpp (losses and fits), cuda.cuh (device code). Glue to
// other libraries (ext/) and tools for tests (testing/) are included by name.
#pragma once

#include <sureleap/core/abi_tag.hpp>
#include <sureleap/core/calibration_ref.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/executor.hpp>
#include <sureleap/core/function_ref.hpp>
#include <sureleap/core/guarantee.hpp>
#include <sureleap/core/pass.hpp>
#include <sureleap/core/token_mask.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/core/workspace.hpp>

#include <sureleap/sampling/distribution.hpp>
#include <sureleap/sampling/draw_key.hpp>
#include <sureleap/sampling/gumbel_max.hpp>
#include <sureleap/sampling/interval.hpp>
#include <sureleap/sampling/quantile.hpp>
#include <sureleap/sampling/random.hpp>
#include <sureleap/sampling/row_mask.hpp>
#include <sureleap/sampling/shared_tokens.hpp>
#include <sureleap/sampling/slice_records.hpp>
#include <sureleap/sampling/summed_row.hpp>
#include <sureleap/sampling/truncation.hpp>
#include <sureleap/sampling/undrawn.hpp>
#include <sureleap/sampling/vocabulary_map.hpp>
#include <sureleap/sampling/weighted_row.hpp>

#include <sureleap/concepts.hpp>
#include <sureleap/traits.hpp>

#include <sureleap/head/domino.hpp>
#include <sureleap/head/gated.hpp>
#include <sureleap/head/int8.hpp>
#include <sureleap/head/linear.hpp>
#include <sureleap/head/markov.hpp>
#include <sureleap/head/none.hpp>
#include <sureleap/head/output.hpp>
#include <sureleap/head/rnn.hpp>
#include <sureleap/head/shortlist.hpp>

#include <sureleap/confidence/calibration.hpp>
#include <sureleap/confidence/estimate.hpp>
#include <sureleap/confidence/head.hpp>

#include <sureleap/cost/additive.hpp>
#include <sureleap/cost/capacity.hpp>
#include <sureleap/cost/cell.hpp>
#include <sureleap/cost/padded.hpp>
#include <sureleap/cost/sample.hpp>
#include <sureleap/cost/views.hpp>

#include <sureleap/schedule/adapter.hpp>
#include <sureleap/schedule/agreed.hpp>
#include <sureleap/schedule/any.hpp>
#include <sureleap/schedule/budget.hpp>
#include <sureleap/schedule/bulk_admission.hpp>
#include <sureleap/schedule/frontier.hpp>
#include <sureleap/schedule/greedy.hpp>
#include <sureleap/schedule/hysteresis.hpp>
#include <sureleap/schedule/planned.hpp>
#include <sureleap/schedule/planning.hpp>
#include <sureleap/schedule/simple.hpp>
#include <sureleap/schedule/survival.hpp>
#include <sureleap/schedule/throughput.hpp>
#include <sureleap/schedule/top_k.hpp>

#include <sureleap/verify/any.hpp>
#include <sureleap/verify/array_edits.hpp>
#include <sureleap/verify/block.hpp>
#include <sureleap/verify/bounded.hpp>
#include <sureleap/verify/bounded_remaining.hpp>
#include <sureleap/verify/coupled.hpp>
#include <sureleap/verify/draft_tree.hpp>
#include <sureleap/verify/engine_arrays.hpp>
#include <sureleap/verify/match.hpp>
#include <sureleap/verify/recursive.hpp>
#include <sureleap/verify/rejection.hpp>
#include <sureleap/verify/remaining.hpp>
#include <sureleap/verify/residual.hpp>
#include <sureleap/verify/target_laws.hpp>
#include <sureleap/verify/traversal.hpp>
#include <sureleap/verify/verdict.hpp>
#include <sureleap/verify/verification.hpp>
#include <sureleap/verify/verify_batch.hpp>

#include <sureleap/drafter/autoregressive.hpp>
#include <sureleap/drafter/base_rows.hpp>
#include <sureleap/drafter/beside_model.hpp>
#include <sureleap/drafter/context_model.hpp>
#include <sureleap/drafter/draft_block.hpp>
#include <sureleap/drafter/draft_memory.hpp>
#include <sureleap/drafter/given.hpp>
#include <sureleap/drafter/grow.hpp>
#include <sureleap/drafter/listed_rows.hpp>
#include <sureleap/drafter/lookup.hpp>
#include <sureleap/drafter/ngram_index.hpp>
#include <sureleap/drafter/no_drafter.hpp>
#include <sureleap/drafter/options.hpp>
#include <sureleap/drafter/parallel.hpp>
#include <sureleap/drafter/retokenised_drafts.hpp>
#include <sureleap/drafter/semi_autoregressive.hpp>
#include <sureleap/drafter/shared_token_model.hpp>
#include <sureleap/drafter/sibling_worth.hpp>
#include <sureleap/drafter/told_requests.hpp>
#include <sureleap/drafter/tree_drafter.hpp>
#include <sureleap/drafter/with_forced.hpp>
#include <sureleap/drafter/with_lookup.hpp>

#include <sureleap/round/attempts.hpp>
#include <sureleap/round/check.hpp>
#include <sureleap/round/judge.hpp>
#include <sureleap/round/log_probabilities.hpp>
#include <sureleap/round/memory.hpp>
#include <sureleap/round/record.hpp>
#include <sureleap/round/report.hpp>
#include <sureleap/round/request_place.hpp>
#include <sureleap/round/runner.hpp>
#include <sureleap/round/stage_checks.hpp>
#include <sureleap/round/stages.hpp>

#include <sureleap/decoder.hpp>
#include <sureleap/verifier.hpp>

#if SURELEAP_COMPILED
#define SURELEAP_DETAIL_TEMPLATE extern template
#include <sureleap/round/compiled_rules.inl>
#endif

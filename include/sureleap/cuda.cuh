// SPDX-License-Identifier: MIT
//
// Everything for the device. A unit that needs one stage includes its headers alone: each takes nvcc some seconds.
#pragma once

#include <sureleap/cuda/core/barrier.cuh>
#include <sureleap/cuda/core/block_scan.cuh>
#include <sureleap/cuda/core/block_sort.cuh>
#include <sureleap/cuda/core/cold.cuh>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/distribution.cuh>
#include <sureleap/cuda/core/linear.cuh>
#include <sureleap/cuda/core/mma.cuh>
#include <sureleap/cuda/core/persisting_cache.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/storage.cuh>
#include <sureleap/cuda/core/survivals.cuh>
#include <sureleap/cuda/core/warp.cuh>
#include <sureleap/cuda/core/wgmma.cuh>
#include <sureleap/cuda/core/workspace.cuh>

#include <sureleap/cuda/sampling/draw.cuh>
#include <sureleap/cuda/sampling/edited_row.cuh>
#include <sureleap/cuda/sampling/gumbel_max.cuh>
#include <sureleap/cuda/sampling/gumbel_max_row.cuh>
#include <sureleap/cuda/sampling/listed_tokens.cuh>
#include <sureleap/cuda/sampling/ordered_row.cuh>
#include <sureleap/cuda/sampling/row.cuh>
#include <sureleap/cuda/sampling/row_mask.cuh>
#include <sureleap/cuda/sampling/slice_records.cuh>
#include <sureleap/cuda/sampling/truncate.cuh>

#include <sureleap/cuda/head/gated.cuh>
#include <sureleap/cuda/head/hidden_terms.cuh>
#include <sureleap/cuda/head/markov.cuh>
#include <sureleap/cuda/head/product.cuh>
#include <sureleap/cuda/head/product_step.cuh>
#include <sureleap/cuda/head/product_tile.cuh>
#include <sureleap/cuda/head/recomputed_rows.cuh>
#include <sureleap/cuda/head/rnn.cuh>
#include <sureleap/cuda/head/row_draw.cuh>
#include <sureleap/cuda/head/top_tokens.cuh>

#include <sureleap/cuda/confidence/head.cuh>
#include <sureleap/cuda/confidence/policy.cuh>
#include <sureleap/cuda/confidence/top1.cuh>

#include <sureleap/cuda/cost/capacity.cuh>

#include <sureleap/cuda/schedule/admission.cuh>
#include <sureleap/cuda/schedule/budget.cuh>
#include <sureleap/cuda/schedule/candidates.cuh>
#include <sureleap/cuda/schedule/history.cuh>
#include <sureleap/cuda/schedule/lengths.cuh>
#include <sureleap/cuda/schedule/schedules.cuh>

#include <sureleap/cuda/drafter/chain.cuh>
#include <sureleap/cuda/drafter/chain_memory.cuh>
#include <sureleap/cuda/drafter/list_distribution.cuh>
#include <sureleap/cuda/drafter/shortlist.cuh>
#include <sureleap/cuda/drafter/shortlist_memory.cuh>

#include <sureleap/cuda/verify/draft_rows.cuh>
#include <sureleap/cuda/verify/engine_rows.cuh>
#include <sureleap/cuda/verify/flatten.cuh>
#include <sureleap/cuda/verify/judge.cuh>
#include <sureleap/cuda/verify/memory.cuh>
#include <sureleap/cuda/verify/padded.cuh>
#include <sureleap/cuda/verify/queue.cuh>
#include <sureleap/cuda/verify/residual.cuh>
#include <sureleap/cuda/verify/rules.cuh>
#include <sureleap/cuda/verify/take_arrays.cuh>
#include <sureleap/cuda/verify/target_draws.cuh>
#include <sureleap/cuda/verify/target_rows.cuh>
#include <sureleap/cuda/verify/token_report.cuh>
#include <sureleap/cuda/verify/verification.cuh>
#include <sureleap/cuda/verify/verifier_memory.cuh>
#include <sureleap/cuda/verify/weigh.cuh>
#include <sureleap/cuda/verify/weigh_drafts.cuh>
#include <sureleap/cuda/verify/work.cuh>

#include <sureleap/cuda/tree/columns.cuh>
#include <sureleap/cuda/tree/flatten.cuh>
#include <sureleap/cuda/tree/grow.cuh>
#include <sureleap/cuda/tree/grow_memory.cuh>
#include <sureleap/cuda/tree/growing_tree.cuh>
#include <sureleap/cuda/tree/masks.cuh>
#include <sureleap/cuda/tree/memory.cuh>
#include <sureleap/cuda/tree/rules.cuh>

#include <sureleap/cuda/round/accept.cuh>
#include <sureleap/cuda/round/advance.cuh>
#include <sureleap/cuda/round/verifier.cuh>

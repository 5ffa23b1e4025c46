// SPDX-License-Identifier: MIT
//
// Everything of the library that needs the standard library only. Glue to other libraries (ext/) and tools for tests
// (testing/) are included by name.
#pragma once

#include <sureleap/config.hpp>
#include <sureleap/error.hpp>
#include <sureleap/executor.hpp>
#include <sureleap/march.hpp>
#include <sureleap/types.hpp>
#include <sureleap/workspace.hpp>

#include <sureleap/calibration_ref.hpp>
#include <sureleap/concepts.hpp>
#include <sureleap/draw_key.hpp>
#include <sureleap/guarantee.hpp>
#include <sureleap/kernel/avx2.hpp>
#include <sureleap/kernel/avx512.hpp>
#include <sureleap/kernel/cpu.hpp>
#include <sureleap/kernel/head.hpp>
#include <sureleap/kernel/head_avx2.hpp>
#include <sureleap/kernel/head_avx512.hpp>
#include <sureleap/kernel/head_native.hpp>
#include <sureleap/kernel/head_neon.hpp>
#include <sureleap/kernel/native.hpp>
#include <sureleap/kernel/neon.hpp>
#include <sureleap/kernel/philox.hpp>
#include <sureleap/kernel/philox_native.hpp>
#include <sureleap/kernel/row.hpp>
#include <sureleap/kernel/sample.hpp>
#include <sureleap/kernel/sample_avx2.hpp>
#include <sureleap/kernel/sample_avx512.hpp>
#include <sureleap/kernel/sample_native.hpp>
#include <sureleap/kernel/sample_neon.hpp>
#include <sureleap/kernel/survivals.hpp>
#include <sureleap/kernel/survivals_native.hpp>
#include <sureleap/quantile.hpp>
#include <sureleap/race.hpp>
#include <sureleap/random.hpp>
#include <sureleap/truncation.hpp>
#include <sureleap/verdict.hpp>

#include <sureleap/distribution.hpp>
#include <sureleap/int8.hpp>
#include <sureleap/linear.hpp>
#include <sureleap/vocabulary.hpp>

#include <sureleap/acceptance/block.hpp>
#include <sureleap/acceptance/bounded.hpp>
#include <sureleap/acceptance/coupled.hpp>
#include <sureleap/acceptance/match.hpp>
#include <sureleap/acceptance/rejection.hpp>
#include <sureleap/acceptance/residual.hpp>
#include <sureleap/acceptance/verification.hpp>
#include <sureleap/confidence/calibration.hpp>
#include <sureleap/confidence/calibration_columns.hpp>
#include <sureleap/confidence/calibration_data.hpp>
#include <sureleap/confidence/calibration_reference.hpp>
#include <sureleap/confidence/drift.hpp>
#include <sureleap/confidence/estimate.hpp>
#include <sureleap/confidence/head.hpp>
#include <sureleap/confidence/metrics.hpp>
#include <sureleap/confidence/online_fit.hpp>
#include <sureleap/confidence/online_maps.hpp>
#include <sureleap/confidence/platt_fit.hpp>
#include <sureleap/confidence/temperature_fit.hpp>
#include <sureleap/confidence/temperature_search.hpp>
#include <sureleap/head/gated.hpp>
#include <sureleap/head/markov.hpp>
#include <sureleap/head/none.hpp>
#include <sureleap/head/output.hpp>
#include <sureleap/head/rnn.hpp>
#include <sureleap/head/shortlist.hpp>
#include <sureleap/schedule/budget.hpp>
#include <sureleap/schedule/bulk_walk.hpp>
#include <sureleap/schedule/capacity.hpp>
#include <sureleap/schedule/fixed.hpp>
#include <sureleap/schedule/frontier.hpp>
#include <sureleap/schedule/greedy.hpp>
#include <sureleap/schedule/planned.hpp>
#include <sureleap/schedule/planning.hpp>
#include <sureleap/schedule/priced_round.hpp>
#include <sureleap/schedule/retrospective.hpp>
#include <sureleap/schedule/survival.hpp>
#include <sureleap/schedule/threshold.hpp>
#include <sureleap/schedule/throughput.hpp>
#include <sureleap/schedule/top_k.hpp>
#include <sureleap/training/anchors.hpp>
#include <sureleap/training/confidence_logit.hpp>
#include <sureleap/training/gated_code.hpp>
#include <sureleap/training/loss_report.hpp>
#include <sureleap/training/losses.hpp>
#include <sureleap/training/markov_code.hpp>
#include <sureleap/training/packing.hpp>
#include <sureleap/training/rnn_code.hpp>
#include <sureleap/training/rows.hpp>
#include <sureleap/training/supervision.hpp>

#include <sureleap/context_model.hpp>
#include <sureleap/draft_block.hpp>
#include <sureleap/drafter/autoregressive.hpp>
#include <sureleap/drafter/lookup.hpp>
#include <sureleap/drafter/options.hpp>
#include <sureleap/drafter/parallel.hpp>
#include <sureleap/drafter/semi_autoregressive.hpp>
#include <sureleap/verify_batch.hpp>

#include <sureleap/decoder.hpp>
#include <sureleap/report.hpp>
#include <sureleap/request_place.hpp>
#include <sureleap/round.hpp>
#include <sureleap/round_check.hpp>
#include <sureleap/round_record.hpp>
#include <sureleap/round_runner.hpp>

#include <sureleap/serving/batch_decoder.hpp>
#include <sureleap/serving/online_calibration.hpp>

// SPDX-License-Identifier: MIT
//
// What a server adds to rounds: schedules that never lose to plain decoding, speed targets, costs and confidences that
// are learned while serving, counters and their text for Prometheus. Depends on the standard library alone.
#pragma once

#include <sureleap/serving/constraint.hpp>
#include <sureleap/serving/draft_arrears.hpp>
#include <sureleap/serving/draft_evidence.hpp>
#include <sureleap/serving/drift.hpp>
#include <sureleap/serving/metrics.hpp>
#include <sureleap/serving/metrics_text.hpp>
#include <sureleap/serving/never_lose.hpp>
#include <sureleap/serving/never_lose_tuning.hpp>
#include <sureleap/serving/online_calibration.hpp>
#include <sureleap/serving/online_fit.hpp>
#include <sureleap/serving/online_maps.hpp>
#include <sureleap/serving/probe_schedule.hpp>
#include <sureleap/serving/recent_acceptance.hpp>
#include <sureleap/serving/refined_cost.hpp>
#include <sureleap/serving/request_gate.hpp>
#include <sureleap/serving/speed_targets.hpp>
#include <sureleap/serving/stop_texts.hpp>
#include <sureleap/serving/text_store.hpp>
#include <sureleap/serving/throughput_forecast.hpp>

// SPDX-License-Identifier: MIT
//
// What comes before serving. To train a drafter: anchors, supervision, losses and the derivatives of the heads
// (training/). To set up rounds: fits of calibrations to recorded confidences, profiles of steps and fits of their
// costs (fit/).
#pragma once

#include <sureleap/fit/calibration_data.hpp>
#include <sureleap/fit/confidence_metrics.hpp>
#include <sureleap/fit/cost_fit.hpp>
#include <sureleap/fit/cost_table.hpp>
#include <sureleap/fit/least_squares.hpp>
#include <sureleap/fit/platt_fit.hpp>
#include <sureleap/fit/profile.hpp>
#include <sureleap/fit/sequential_fit.hpp>
#include <sureleap/fit/temperature_fit.hpp>
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

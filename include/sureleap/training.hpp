// SPDX-License-Identifier: MIT
//
// What training a drafter takes of the library: anchors, supervision, losses and the derivatives of the heads.
#pragma once

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

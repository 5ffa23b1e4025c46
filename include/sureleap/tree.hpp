// SPDX-License-Identifier: MIT
//
// Draft trees: several drafted tokens a position, how they grow, and acceptance rules that keep the target's law. Rounds,
// schedules and decoders draft chains; an engine that verifies trees calls these parts itself (docs/trees.md).
#pragma once

#include <sureleap/tree/draft_tree.hpp>
#include <sureleap/tree/grow.hpp>
#include <sureleap/tree/match.hpp>
#include <sureleap/tree/rejection.hpp>
#include <sureleap/tree/remaining.hpp>
#include <sureleap/tree/traversal.hpp>
#include <sureleap/tree/verification.hpp>

// SPDX-License-Identifier: MIT
//
// ranks.mpi as another version of the library would be: its ranks are refused (mode `version`).
#include <sureleap/core/config.hpp>

#undef SURELEAP_VERSION_PATCH
#define SURELEAP_VERSION_PATCH 999

#include "mpi.cpp"  // NOLINT: the same program

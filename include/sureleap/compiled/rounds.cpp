// SPDX-License-Identifier: MIT
//
// What rounds over rows of float take, for programs that define SURELEAP_COMPILED (detail/kernel/native.hpp).
#include <sureleap/sureleap.hpp>

#define SURELEAP_DETAIL_TEMPLATE template
#include <sureleap/round/compiled.inl>
#define SURELEAP_DETAIL_TEMPLATE template
#include <sureleap/round/compiled_rules.inl>

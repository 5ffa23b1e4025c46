// SPDX-License-Identifier: MIT
//
// Rules that follow the target's token judge chains and trees. Tests that draft by the rule try both: a rule as it is
// is given chains, and `with_trees<Rule>` trees.
#pragma once

#include <sureleap/core/guarantee.hpp>
#include <sureleap/traits.hpp>

namespace support {

template <class Rule>
struct with_trees : Rule {
    static constexpr bool is_given_trees = true;
};

template <class Rule>
inline constexpr bool is_given_trees_v =
    sureleap::traits_of<Rule>().judges_trees &&
    (Rule::access == sureleap::q_access::row || requires { requires Rule::is_given_trees; });

}  // namespace support

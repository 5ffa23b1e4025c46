// SPDX-License-Identifier: MIT
//
// Small parts for the cases: a target, a draft model with and without confidence, a parallel draft, one of
// trees, a capacity curve.
#pragma once

#include <cstddef>
#include <span>

#include <sureleap/confidence/estimate.hpp>
#include <sureleap/decoder.hpp>
#include <sureleap/drafter/autoregressive.hpp>
#include <sureleap/drafter/context_model.hpp>
#include <sureleap/drafter/parallel.hpp>
#include <sureleap/drafter/tree_drafter.hpp>
#include <sureleap/drafter/with_lookup.hpp>
#include <sureleap/schedule/greedy.hpp>
#include <sureleap/schedule/planned.hpp>
#include <sureleap/schedule/simple.hpp>
#include <sureleap/schedule/top_k.hpp>
#include <sureleap/verify/block.hpp>
#include <sureleap/verify/coupled.hpp>
#include <sureleap/verify/match.hpp>
#include <sureleap/verify/recursive.hpp>
#include <sureleap/verify/rejection.hpp>
#include <sureleap/verify/traversal.hpp>

namespace parts {

using namespace sureleap;

struct curve {
    double steps_per_second(std::size_t batch_tokens) const noexcept { return 1.0 / (8.0 + double(batch_tokens)); }
};

inline auto make_target() {
    return model_of<float>(4, [](std::span<token_id const>, std::span<float>) {});
}
inline auto make_unsure_drafter() {
    return autoregressive{make_target(), {.block_size = 2, .vocabulary = 4}};
}
inline auto make_drafter() {
    return autoregressive{make_target(), top1_confidence{}, {.block_size = 2, .vocabulary = 4}};
}

struct backbone_model {
    block_forward<float> forward(std::span<request_view const>) { return {}; }
};
template <class Confidence>
auto make_parallel(Confidence confidence) {
    return parallel{backbone_model{}, confidence, {.block_size = 2, .vocabulary = 4}};
}

struct half_sure {
    double operator()(std::span<float const>, token_id, std::size_t) const noexcept { return 0.5; }
};
inline auto make_trees() {
    return tree_drafter{make_parallel(half_sure{}), {.nodes = 4}};
}

}  // namespace parts

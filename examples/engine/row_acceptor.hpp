// SPDX-License-Identifier: MIT
//
// The accept stage over rows that lie in slices on several ranks (sureleap/ranks/sharded_rows.hpp), compiled once for
// every rule: whoever has whole rows should not compile it.
#pragma once

#include <cstddef>
#include <memory>

#include <sureleap/ranks/vocabulary_slices.hpp>
#include <sureleap/round/memory.hpp>
#include <sureleap/sampling/random.hpp>
#include <sureleap/verify/any.hpp>

#include "ranks.hpp"
#include "thread_pool.hpp"

namespace engine {

/// Accepts rows of a rank's own columns. All ranks call it for the same rounds, and come to the same verdicts.
template <class Real>
class row_acceptor {
public:
    /// Of rounds of at most so many requests with so many drafts. The ranks and the pool must outlive it. Constrained:
    /// as round_limits says. Throws if an exchange cannot hold such a round.
    row_acceptor(any_ranks& ranks, sureleap::vocabulary_slices const& slices, std::size_t max_requests,
                 std::size_t block_size, bool constrained, thread_pool& pool);
    ~row_acceptor();

    void operator()(sureleap::any_rule const& rule, sureleap::logits_rows<Real> const& own_columns,
                    sureleap::philox_randomness& rng, sureleap::round_memory<Real, Real>& memory);

private:
    struct shards;
    std::unique_ptr<shards> shards_;
};

extern template class row_acceptor<float>;
extern template class row_acceptor<double>;

}  // namespace engine

// SPDX-License-Identifier: MIT
#include "row_acceptor.hpp"

#include <sureleap/core/error.hpp>
#include <sureleap/ranks/sharded_rows.hpp>
#include <sureleap/round/stages.hpp>

namespace engine {

template <class Real>
struct row_acceptor<Real>::shards : sureleap::row_shards<Real, any_ranks> {
    using sureleap::row_shards<Real, any_ranks>::row_shards;
};

template <class Real>
row_acceptor<Real>::row_acceptor(any_ranks& ranks, sureleap::vocabulary_slices const& slices, std::size_t max_requests,
                                 std::size_t block_size, bool constrained, thread_pool& pool) {
    sureleap::row_shards_options options;
    options.max_requests = max_requests;
    options.block_size = block_size;
    options.constrained = constrained;
    options.executor = pool;
    std::size_t const needed = shards::most_bytes(slices, options);
    if (needed > ranks.most_bytes()) {
        sureleap::fail_with("row_acceptor: an exchange of the ranks holds ", ranks.most_bytes(), " bytes, expected ",
                            needed, " for ", max_requests, " requests with ", block_size, " drafts each");
    }
    shards_ = std::make_unique<shards>(ranks, slices, options);
}

template <class Real>
row_acceptor<Real>::~row_acceptor() = default;

template <class Real>
void row_acceptor<Real>::operator()(sureleap::any_rule const& rule, sureleap::logits_rows<Real> const& own_columns,
                                    sureleap::philox_randomness& rng, sureleap::round_memory<Real, Real>& memory) {
    sureleap::accept(rule, shards_->of(own_columns), sureleap::no_logits_hook{}, rng, memory);
}

template class row_acceptor<float>;
template class row_acceptor<double>;

}  // namespace engine

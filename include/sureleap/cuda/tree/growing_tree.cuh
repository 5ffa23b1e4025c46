// SPDX-License-Identifier: MIT
//
// The tree of one request while it grows, best place first, by a block of threads (grow.cuh). In: the task of a launch
// and a request. Out: its tree, distributions and lists.
//
// A place is the next child of a node. So a node has one place at most, and the search for the largest value looks at
// one number for each. A distribution is made when the first child of its node is drawn. Younger siblings are drawn
// from the same logits, in which those of their elders are -inf while the draw lasts.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/confidence/policy.cuh>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/distribution.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/warp.cuh>
#include <sureleap/cuda/drafter/list_distribution.cuh>
#include <sureleap/cuda/drafter/shortlist.cuh>
#include <sureleap/cuda/head/top_tokens.cuh>
#include <sureleap/cuda/sampling/draw.cuh>
#include <sureleap/cuda/sampling/gumbel_max_row.cuh>
#include <sureleap/cuda/tree/columns.cuh>
#include <sureleap/cuda/tree/grow_memory.cuh>
#include <sureleap/detail/kernel/rows.hpp>
#include <sureleap/sampling/draw_key.hpp>
#include <sureleap/schedule/survival.hpp>
#include <sureleap/verify/remaining.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {
namespace detail {

static_assert(shortlist_threads > tree_columns::most_nodes, "grow_trees: a thread looks after each node");

/// The nodes of a tree, and the place of each one's next child.
struct growing_nodes {
    static constexpr std::uint32_t most = tree_columns::most_nodes + 1;

    double values[most];            ///< that the child will be accepted; negative: there is no place
    double missed[most];            ///< that the node is reached, and this child is rejected as well
    double confidences[most];       ///< behind the node
    token_id tokens[most];          ///< of the node
    std::uint32_t parents[most];    ///< of the node
    std::uint32_t listed_at[most];  ///< where the node's token stands in its parent's list
    std::uint32_t depths[most];
    std::uint32_t ranks[most];  ///< of the next child
};
/// Behind it is what head and confidence ask for.
struct growth_shared {
    growing_nodes nodes;
    shortlist_shared list;
};
static_assert(sizeof(growth_shared) == sizeof(growing_nodes) + sizeof(shortlist_shared));

template <class Head, class U, class Confidence>
struct growth_task {
    shortlist_head<Head> head;
    Confidence confidence;
    matrix_view<U> base;
    growth_memory memory;
    tree_columns trees;
    growth_options options;
    sibling_ratios assumed;
    device_round round;
};

/// One request whose tree grows. All members are BLOCK collectives with the same results in all threads.
template <class DraftRule, class Head, class U, class Confidence>
class growing_tree {
public:
    __device__ growing_tree(growth_task<Head, U, Confidence> const& task, growth_shared& s, std::uint32_t r)
        : task_(task), s_(s.nodes), list_(s.list), r_(r) {
        request_columns const& requests = task.round.requests;
        how_ = requests.drafts[r];
        // Siblings are the likeliest tokens where the rule chooses them, or races that are decided by the weights
        // alone. Then a distribution of temperature 0 is that of temperature 1, as list_distribution has it.
        chosen_ = DraftRule::is_deterministic || (DraftRule::noise_returns && how_.greedy());
        nodes_ = task.round.chain_cap(r) > 0 ? requests.draft_cap(r, task.trees.nodes) : 0;
        survival_ = requests.weights[r];
        // The floor is a price, which begins with the request's weight. What grows knows probabilities. record() draws
        // the line.
        if (task.options.floor != nullptr) {
            floor_ = *task.options.floor;
            least_value_ = static_cast<double>(floor_) / static_cast<double>(survival_) * (1.0 - 1e-6);
        }
    }

    __device__ void grow() {
        status outcome = status::ok;
        if (nodes_ > 0) {
            token_id const anchor = task_.round.requests.anchors[r_];
            if (threadIdx.x == 0) {
                s_.tokens[0] = anchor;
                s_.parents[0] = no_place;
                s_.depths[0] = 0;
            }
            offer(0, 0, anchor, 0, 1.0);
            while (outcome == status::ok && take()) {
                if (!draw()) outcome = status::invalid_draft;
                if (unsure_) outcome = status::invalid_confidence;
            }
        }
        if (threadIdx.x == 0) {
            task_.trees.counts[r_] = recorded_;
            task_.trees.statuses[r_] = outcome;
        }
    }

private:
    /// The place that was taken.
    struct place {
        std::uint32_t node;
        std::uint32_t rank;
        std::uint32_t depth;  // of the node
        token_id token;
        double value;
        double missed;
    };

    [[nodiscard]] __device__ std::size_t row(std::uint32_t n) const { return std::size_t{r_} * task_.memory.nodes + n; }
    [[nodiscard]] __device__ double ratio(std::uint32_t rank) const {
        return task_.options.siblings == nullptr ? task_.assumed(rank) : (*task_.options.siblings)(rank);
    }

    /// The next child of node n is of that rank; the node is reached, and its children so far are rejected, with
    /// probability `reached`.
    __device__ void offer(std::uint32_t n, std::uint32_t depth, token_id token, std::uint32_t rank, double reached) {
        double value = -1.0;
        double missed = 0.0;
        // A request's cap bounds nodes, and so how deep they are.
        if (depth < task_.round.limits.block_size &&
            rank < (depth < task_.options.straight ? 1 : task_.options.children)) {
            double const c = rank == 0 ? ask(n, depth, token) : s_.confidences[n];
            double const worth = c * ratio(rank);
            double const a = unsure_ ? 0.0 : worth < 1.0 ? worth : 1.0;
            value = reached * a;
            missed = reached * (1.0 - a);
        }
        if (threadIdx.x == 0) {
            s_.values[n] = value;
            s_.missed[n] = missed;
            s_.ranks[n] = rank;
        }
    }
    /// The confidence behind node n.
    [[nodiscard]] __device__ double ask(std::uint32_t n, std::uint32_t depth, token_id token) {
        // Values are known before q is: a confidence that reads it says that it is none.
        constexpr position_statistics unknown{__builtin_nan("")};
        double const c = task_.confidence(r_, depth, token, unknown, list_.rest());
        if (fixed_probability unused = 0; !quantise(c, unused)) unsure_ = true;
        if (threadIdx.x == 0) {
            s_.confidences[n] = c;
            task_.memory.confidences[row(n)] = c;
        }
        return c;
    }
    /// Takes the place of the largest value, the elder node's among equals. False: the tree is complete. Every warp
    /// looks for itself, which costs no barrier.
    [[nodiscard]] __device__ bool take() {
        __syncthreads();  // what thread 0 wrote
        if (rows_ > nodes_) return false;
        double best = -1.0;
        std::uint32_t at = no_place;
        for (std::uint32_t n = lane_index(); n < rows_; n += warp_size) {
            if (!(s_.values[n] > best)) continue;
            best = s_.values[n];
            at = n;
        }
        first_largest_of_lanes(best, at);
        if (at == no_place || !(best >= least_value_)) return false;
        now_ = {at, s_.ranks[at], s_.depths[at], s_.tokens[at], best, s_.missed[at]};
        __syncthreads();  // all have looked
        if (threadIdx.x == 0) s_.values[at] = -1.0;
        return true;
    }

    /// Draws the child that was taken, if the distribution of its parent has a further token. False if there is no
    /// distribution.
    [[nodiscard]] __device__ bool draw() {
        token_lists const& lists = task_.memory.lists;
        std::size_t const at = row(now_.node);
        token_id* const ids = lists.tokens + at * lists.capacity;
        float* const logits = task_.memory.logits + at * lists.capacity;
        distribution& kept = task_.trees.distributions[task_.trees.cell(r_, now_.node)];
        draw_key const own = block_key(task_.round.requests, r_, rows_, purpose::draft);
        draw_key const noise = noise_key(task_.round.requests, r_, now_.depth);
        std::uint32_t found = no_place;
        if (now_.rank == 0) {
            std::uint32_t const count = make_list(ids, logits);
            if (threadIdx.x == 0) lists.counts[at] = count;
            list_distribution const all{logits, count, how_, list_};
            distribution q = all.get();
            if (!q.valid()) return false;
            found = draw_place<DraftRule>(all, chosen_ || how_.greedy(), ids, logits, count, own, noise, list_);
            if (!chosen_ && how_.greedy()) q = distribution::one_hot(ids[found]);
            if (threadIdx.x == 0) kept = q;
        } else {
            found = draw_younger(kept, ids, logits, lists.counts[at], own, noise);
            if (found == no_place) return true;  // every token that q has is there
        }
        add(ids[found], found);
        return true;
    }
    /// The list behind the node that was taken, and its logits. Returns its length.
    [[nodiscard]] __device__ std::uint32_t make_list(token_id* ids, float* logits) {
        growth_memory const& memory = task_.memory;
        std::size_t const position = std::size_t{r_} * task_.round.limits.block_size + now_.depth;
        auto const list = [&](shortlist_head<Head> const& head) {
            return list_behind(head, task_.base.data + position * task_.base.stride, r_, now_.depth, now_.token,
                               memory.best.tokens + position * memory.best.capacity, memory.best.counts[position],
                               memory.fresh + std::size_t{r_} * memory.shape.lists.successors, ids, logits, list_);
        };
        if constexpr (recurrent_head<Head>) {
            // The state behind the parent, where the head looks for that of request r. At the anchor it begins anew.
            std::uint32_t const size = memory.shape.state_size;
            float* const here = memory.states + row(now_.node) * size;
            if (now_.node != 0) {
                float const* const above = memory.states + row(s_.parents[now_.node]) * size;
                for (std::uint32_t i = threadIdx.x; i < size; i += blockDim.x) here[i] = above[i];
            }
            shortlist_head<Head> behind = task_.head;
            behind.head.states = here - std::size_t{r_} * size;
            return list(behind);
        } else {
            return list(task_.head);
        }
    }
    /// A further token of the distribution q: where it stands in the list, or no_place if every token that q has is
    /// there. What is left of q is added up without the elder children, as by the host's undrawn.
    [[nodiscard]] __device__ std::uint32_t draw_younger(distribution const& q, token_id const* ids, float* logits,
                                                        std::uint32_t count, draw_key own, draw_key const& noise) {
        if (q.is_one_hot()) return no_place;
        double const left =
            without_elders(logits, [&] { return list_distribution{logits, count, q, list_}.get().total; });
        if (!(left > 0.0)) return no_place;
        bool const drawn = !chosen_ && !DraftRule::noise_returns;
        if (drawn && task_.round.limits.vocabulary > row_block) {  // as draw_undrawn
            list_distribution const all{logits, count, q, list_};
            std::uint32_t const index = own.index;
            for (std::uint32_t i = 0; i + 1 < undrawn_proposals; ++i) {
                std::uint32_t const found = all.quantile(uniform(own) * q.total, list_);
                if (!is_child(found)) return found;
                own.index = index | (i + 1) << 16;
                __syncthreads();  // all have seen what was found
            }
        }
        return without_elders(logits, [&] {
            if constexpr (DraftRule::noise_returns) {
                if (!chosen_) {
                    std::uint32_t const found = gumbel_max_list(ids, logits, count, q, noise, list_.gumbel);
                    if (found != no_place) return found;
                }
            }
            list_distribution const rest{logits, count, q, list_};
            return chosen_ ? rest.heaviest(list_) : rest.quantile(uniform(own) * rest.get().total, list_);
        });
    }
    /// What f() says while the logits of the elder children are -inf in the list of the node that was taken.
    template <class F>
    [[nodiscard]] __device__ auto without_elders(float* logits, F const& f) {
        std::uint32_t const m = threadIdx.x;
        bool const elder = m > now_.node && m < rows_ && s_.parents[m] == now_.node;
        float const logit = elder ? logits[s_.listed_at[m]] : 0.0f;
        if (elder) logits[s_.listed_at[m]] = -infinity;
        __syncthreads();
        auto const result = f();
        if (elder) logits[s_.listed_at[m]] = logit;
        __syncthreads();
        return result;
    }
    /// The node has a child with that token of its list.
    [[nodiscard]] __device__ bool is_child(std::uint32_t found) const {
        bool is = false;
        for (std::uint32_t m = now_.node + 1 + lane_index(); m < rows_; m += warp_size) {
            is |= s_.parents[m] == now_.node && s_.listed_at[m] == found;
        }
        return __any_sync(all_lanes, is) != 0;
    }

    __device__ void add(token_id token, std::uint32_t found) {
        std::uint32_t const child = rows_++;
        if (threadIdx.x == 0) {
            task_.trees.tokens[task_.trees.cell(r_, child)] = token;
            task_.trees.parents[task_.trees.cell(r_, child)] = static_cast<std::int32_t>(now_.node);
            s_.tokens[child] = token;
            s_.parents[child] = now_.node;
            s_.listed_at[child] = found;
            s_.depths[child] = now_.depth + 1;
        }
        record();
        if (rows_ > nodes_) return;
        offer(now_.node, now_.depth, now_.token, now_.rank + 1, now_.missed);
        if (!task_.round.stops_at(r_, token)) offer(child, now_.depth + 1, token, 0, now_.value);
    }
    /// The survival of the new node, and the node itself unless the floor ends the tree (draft_block::take_tree).
    __device__ void record() {
        if (recorded_ + 2 < rows_) return;  // the floor has ended it before
        double const reach = now_.value < before_ ? now_.value : before_;
        fixed_probability c = 0;
        if (!quantise(reach > 0.0 ? reach / before_ : 0.0, c)) return;
        fixed_probability const survival = extend_survival(survival_, c);
        if (survival < floor_) return;
        before_ = reach;
        survival_ = survival;
        if (threadIdx.x == 0) task_.memory.survival[row(recorded_)] = survival;
        ++recorded_;
    }

    growth_task<Head, U, Confidence> const& task_;
    growing_nodes& s_;
    shortlist_shared& list_;
    std::uint32_t r_;
    transform how_{};
    bool chosen_ = false;      // children are the likeliest tokens
    std::uint32_t nodes_ = 0;  // drafted at most
    double least_value_ = 0.0;
    fixed_probability floor_ = 0;
    std::uint32_t rows_ = 1;  // nodes so far, the anchor's included
    std::uint32_t recorded_ = 0;
    fixed_probability survival_ = 0;  // of the last node recorded
    double before_ = 1.0;             // its reach, which falls
    bool unsure_ = false;             // a confidence was no probability
    place now_{};
};

}  // namespace detail
}  // namespace cuda
SURELEAP_END_NAMESPACE

// SPDX-License-Identifier: MIT
//
// The distribution over a list of logits, by a block of threads. In: logits in device memory and a transform. Out:
// their distribution, the place of the largest, and the place that a draw finds.
//
// Each thread owns a run of consecutive logits and sums their weights in order. So cumulative sums follow the list,
// and a draw finds its thread first and then its token. A few looks at the list, O(M / 256) a thread for M logits.
//
// Where a token was drawn already, its logit can be made -inf, and the rest of the distribution is drawn from by the
// distribution that was made before.
#pragma once

#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/distribution.cuh>
#include <sureleap/cuda/core/linear.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/warp.cuh>
#include <sureleap/cuda/head/markov.cuh>
#include <sureleap/cuda/sampling/draw.cuh>
#include <sureleap/cuda/sampling/gumbel_max_row.cuh>
#include <sureleap/cuda/sampling/truncate.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {
namespace detail {

inline constexpr std::uint32_t shortlist_threads = 256;
inline constexpr std::uint32_t shortlist_warps = shortlist_threads / warp_size;

/// Of a block that drafts from lists. Behind it is what head and confidence ask for.
struct shortlist_shared {
    static constexpr std::uint32_t near =
        1024;  ///< ids of a list that are searched here; longer lists stay where they are
    token_id best[near];
    token_id fresh[near];
    double sums[shortlist_warps];
    gumbel_shared gumbel;
    float largest[shortlist_warps];
    std::uint32_t counts[shortlist_warps];
    std::uint32_t first;  // thread or place that was found
    std::uint32_t last;
    truncate_shared truncation;
    alignas(16) float z[most_rank];

    [[nodiscard]] __device__ float* rest() { return reinterpret_cast<float*>(this + 1); }
};
static_assert(sizeof(shortlist_shared) % 16 == 0);

/// A distribution over a list of logits: each thread has so many of them in order.
class list_distribution {
public:
    /// BLOCK collective: largest logit and total under `how`.
    __device__ list_distribution(float const* logits, std::uint32_t count, transform const& how, shortlist_shared& s)
        : logits_(logits) {
        share_out(count);
        float largest = -infinity;
        for (std::uint32_t i = first_; i < end_; ++i) {
            largest = logits[i] < infinity ? fmaxf(largest, logits[i]) : infinity;  // NaN is no more of a logit
            if (!(largest < infinity)) break;
        }
        largest = largest_of_lanes(largest);
        if (lane_index() == 0) s.largest[warp_index()] = largest;
        __syncthreads();
        for (std::uint32_t w = 0; w < shortlist_warps; ++w) largest = fmaxf(largest, s.largest[w]);
        if (!(largest > -infinity && largest < infinity)) return;

        q_.kind = distribution_kind::dense;
        q_.shift = largest;
        q_.scale = how.greedy() ? 1.0f : static_cast<float>(1.0 / how.temperature);  // 1: for the peak
        if (how.truncates() && !how.greedy()) {
            row_statistics statistics{};
            statistics.top = largest;
            cutoff const least = truncate(logits, count, how, statistics, s.truncation);
            q_.least_logit = least.logit;
            q_.least_id = least.id;
        }
        sum_up(s);
    }
    /// BLOCK collective: what is left of the distribution `q` of these logits, some of which became -inf since. The
    /// total is that of what is left.
    __device__ list_distribution(float const* logits, std::uint32_t count, distribution const& q, shortlist_shared& s)
        : logits_(logits), q_(q) {
        share_out(count);
        sum_up(s);
    }
    [[nodiscard]] __device__ distribution const& get() const { return q_; }

    /// BLOCK collective: the place of the first largest logit.
    [[nodiscard]] __device__ std::uint32_t mode(shortlist_shared& s) const {
        if (threadIdx.x == 0) s.first = 0xffffffffu;
        __syncthreads();
        for (std::uint32_t i = end_; i-- > first_;) {
            if (logits_[i] == q_.shift) atomicMin(&s.first, i);
        }
        __syncthreads();
        return s.first;
    }
    /// BLOCK collective: the first place of the largest weight; no_place if there is no weight.
    [[nodiscard]] __device__ std::uint32_t heaviest(shortlist_shared& s) const {
        float own = 0.0f;
        std::uint32_t place = no_place;
        for (std::uint32_t i = first_; i < end_; ++i) {
            float const w = q_.weight(logits_[i], static_cast<token_id>(i));
            if (!(w > own)) continue;
            own = w;
            place = i;
        }
        float most = largest_of_lanes(own);
        if (lane_index() == 0) s.largest[warp_index()] = most;
        if (threadIdx.x == 0) s.first = no_place;
        __syncthreads();
        for (std::uint32_t w = 0; w < shortlist_warps; ++w) most = fmaxf(most, s.largest[w]);
        if (place != no_place && own == most) atomicMin(&s.first, place);
        __syncthreads();
        return s.first;
    }
    /// BLOCK collective: the first place whose cumulative weight exceeds `threshold`; the last one with weight if
    /// rounding runs past the end.
    [[nodiscard]] __device__ std::uint32_t quantile(double threshold, shortlist_shared& s) const {
        if (threadIdx.x == 0) {
            s.first = 0xffffffffu;
            s.last = 0;
        }
        __syncthreads();
        if (own_ > 0.0 && before_ + own_ > threshold) atomicMin(&s.first, threadIdx.x);
        if (own_ > 0.0) atomicMax(&s.last, threadIdx.x);
        __syncthreads();
        std::uint32_t const finder = s.first != 0xffffffffu ? s.first : s.last;
        __syncthreads();
        if (threadIdx.x == finder) {
            double cumulative = before_;
            for (std::uint32_t i = first_; i < end_ && !(cumulative > threshold); ++i) {
                double const w = weight(i);
                if (!(w > 0.0)) continue;
                cumulative += w;
                s.first = i;
            }
        }
        __syncthreads();
        return s.first;
    }

private:
    [[nodiscard]] __device__ double weight(std::uint32_t i) const {
        return static_cast<double>(q_.weight(logits_[i], static_cast<token_id>(i)));
    }
    __device__ void share_out(std::uint32_t count) {
        std::uint32_t const each = (count + shortlist_threads - 1) / shortlist_threads;
        first_ = threadIdx.x * each < count ? threadIdx.x * each : count;
        end_ = first_ + each < count ? first_ + each : count;
    }
    __device__ void sum_up(shortlist_shared& s) {
        own_ = 0.0;
        for (std::uint32_t i = first_; i < end_; ++i) own_ += weight(i);
        double const upto = sum_up_to_lane(own_);
        if (lane_index() == warp_size - 1) s.sums[warp_index()] = upto;
        before_ = __shfl_up_sync(all_lanes, upto, 1);
        if (lane_index() == 0) before_ = 0.0;
        __syncthreads();
        double before = 0.0;
        q_.total = 0.0;
        for (std::uint32_t w = 0; w < shortlist_warps; ++w) {
            if (w == warp_index()) before = q_.total;
            q_.total += s.sums[w];
        }
        before_ += before;
    }

    float const* logits_;
    std::uint32_t first_;
    std::uint32_t end_;
    double own_ = 0.0;     // weight of this thread's logits
    double before_ = 0.0;  // and of those before
    distribution q_{};
};

}  // namespace detail
}  // namespace cuda
SURELEAP_END_NAMESPACE

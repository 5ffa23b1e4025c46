// SPDX-License-Identifier: MIT
//
// A draw of a token from a row of draft logits, by a block of 256 threads. Of the row only statistics of groups of 128
// tokens are in memory (product_step.cuh). The draw is the host's inverse CDF, first over groups, then within one.
// Every thread adds up the weights of a few groups in order, and a scan makes the cumulative sums of the threads. The
// thread that the number falls into finds the group. The 128 logits of that group are computed again, and a warp
// searches them in ascending order. All sums over groups are in double and in a fixed order, so the same row gives the
// same token in any batch.
//
// The sum of a group is a float, and off by rounding from the weights that are computed again. So a number in a group
// is taken as a part of that sum, and looked up as that part of the weights' own: the rounding changes the
// probabilities of all tokens of the group by the same factor, within 2^-20 of 1. As on the host, no token of weight
// zero is ever drawn.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/distribution.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/warp.cuh>
#include <sureleap/cuda/head/product.cuh>
#include <sureleap/cuda/head/recomputed_rows.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {
namespace detail {

inline constexpr std::uint32_t draw_threads = 256;
inline constexpr std::uint32_t draw_warps = draw_threads / warp_size;
inline constexpr std::uint32_t nobody = 0xffffffffu;

/// What a block keeps while it draws; behind it is what head and confidence ask for.
struct draw_shared {
    double cumulative[draw_threads];
    double sums[draw_warps];
    double part;
    float largest[draw_warps];
    float logits[group_size];
    float z[most_rank];
    std::uint32_t first[draw_warps];
    std::uint32_t last[draw_warps];
    std::uint32_t group;
    token_id token;

    [[nodiscard]] __device__ float* rest() { return reinterpret_cast<float*>(this + 1); }
    /// The same memory as something else.
    template <class T>
    [[nodiscard]] __device__ T& rest_as() {
        return *reinterpret_cast<T*>(this + 1);
    }
};
static_assert(sizeof(draw_shared) % 16 == 0);

/// The groups of a row, so many for each thread in order.
class row_summary {
public:
    __device__ row_summary(group_statistics* groups, std::uint32_t count, float scale)
        : groups_(groups), count_(count), scale_(scale) {
        std::uint32_t const each = (count + draw_threads - 1) / draw_threads;
        first_ = threadIdx.x * each < count ? threadIdx.x * each : count;
        end_ = first_ + each < count ? first_ + each : count;
    }

    /// BLOCK collective: the largest logit and the cumulative sums of the threads' weights, relative to it.
    __device__ void sum_up(draw_shared& s) {
        float largest = -infinity;
        for (std::uint32_t g = first_; g < end_; ++g) largest = fmaxf(largest, groups_[g].largest);
        largest = largest_of_lanes(largest);
        if (lane_index() == 0) s.largest[warp_index()] = largest;
        __syncthreads();
        largest_ = s.largest[0];
        for (std::uint32_t w = 1; w < draw_warps; ++w) largest_ = fmaxf(largest_, s.largest[w]);

        own_ = 0.0;
        for (std::uint32_t g = first_; g < end_; ++g) own_ += weight(g);
        double const sum = sum_up_to_lane(own_);
        if (lane_index() == warp_size - 1) s.sums[warp_index()] = sum;
        __syncthreads();
        double before = 0.0;
        for (std::uint32_t w = 0; w < warp_index(); ++w) before += s.sums[w];
        s.cumulative[threadIdx.x] = before + sum;
        __syncthreads();
        total_ = s.cumulative[draw_threads - 1];
    }
    /// BLOCK collective: leaves in the statistics only what `kept` keeps of the row, by its logits.
    __device__ void keep(float const* logits, std::uint32_t vocabulary, distribution kept) const {
        for (std::uint32_t g = warp_index(); g < count_; g += draw_warps) {
            kept.shift = groups_[g].largest;
            float sum = 0.0f;
            if (kept.shift >= kept.least_logit) {
                for (std::uint32_t j = lane_index(); j < group_size; j += warp_size) {
                    std::uint32_t const token = g * group_size + j;
                    if (token < vocabulary) sum += kept.weight(logits[token], static_cast<token_id>(token));
                }
                sum = sum_over_lanes(sum);
            }
            if (lane_index() == 0) groups_[g].sum = sum;
        }
    }
    [[nodiscard]] __device__ float largest() const { return largest_; }
    [[nodiscard]] __device__ double total() const { return total_; }
    /// Every logit is a number below +inf, and one is finite.
    [[nodiscard]] __device__ bool valid() const {
        return largest_ > -infinity && largest_ < infinity && total_ < static_cast<double>(infinity);
    }

    /// BLOCK collective: the first group with the largest logit, into s.group.
    __device__ void find_mode(draw_shared& s) const {
        std::uint32_t here = nobody;
        for (std::uint32_t g = end_; g-- > first_;) {
            if (groups_[g].largest == largest_) here = g;
        }
        if (threadIdx.x == find(s, here != nobody, false)) s.group = here;
        __syncthreads();
    }
    /// BLOCK collective. Sets s.group to the group in which the cumulative weight exceeds `threshold`, and s.part to
    /// the part of the group's weight at which it does. If rounding runs past the end, the group is the last one with
    /// weight.
    __device__ void find_group(draw_shared& s, double threshold) const {
        if (threadIdx.x == find(s, own_ > 0.0 && s.cumulative[threadIdx.x] > threshold, own_ > 0.0)) {
            double before = threadIdx.x == 0 ? 0.0 : s.cumulative[threadIdx.x - 1];
            for (std::uint32_t g = first_; g < end_; ++g) {
                double const here = weight(g);
                if (!(here > 0.0)) continue;
                s.group = g;
                s.part = (threshold - before) / here;
                before += here;
                if (before > threshold) break;
            }
        }
        __syncthreads();
    }

private:
    // Groups whose weight is negligible beside the largest logit's count as 0, so that the group found has a token with
    // weight.
    [[nodiscard]] __device__ double weight(std::uint32_t g) const {
        double const w =
            static_cast<double>(groups_[g].sum) * static_cast<double>(expf((groups_[g].largest - largest_) * scale_));
        return w < 0x1p-100 ? 0.0 : w;
    }
    // BLOCK collective: the first thread that is `wanted`, or else the last one that is `acceptable`.
    [[nodiscard]] static __device__ std::uint32_t find(draw_shared& s, bool wanted, bool acceptable) {
        unsigned const those = __ballot_sync(all_lanes, wanted);
        unsigned const others = __ballot_sync(all_lanes, acceptable);
        if (lane_index() == 0) {
            s.first[warp_index()] =
                those == 0 ? nobody : threadIdx.x + static_cast<unsigned>(__ffs(static_cast<int>(those))) - 1;
            s.last[warp_index()] =
                others == 0 ? nobody : threadIdx.x + 31 - static_cast<unsigned>(__clz(static_cast<int>(others)));
        }
        __syncthreads();
        std::uint32_t first = nobody;
        std::uint32_t last = nobody;
        for (std::uint32_t w = draw_warps; w-- > 0;) {
            if (s.first[w] != nobody) first = s.first[w];
            if (last == nobody) last = s.last[w];
        }
        return first != nobody ? first : last;
    }

    group_statistics* groups_;
    std::uint32_t count_;
    float scale_;
    std::uint32_t first_;
    std::uint32_t end_;
    float largest_ = 0.0f;
    double own_ = 0.0;
    double total_ = 0.0;
};

/// BLOCK collective: the logits of s.group, computed again, -inf behind the vocabulary.
template <class Rows>
__device__ void recompute_group(Rows const& rows, std::uint32_t r, std::uint32_t k, draw_shared& s) {
    constexpr std::uint32_t together = 4;
    auto const vocabulary = static_cast<std::uint32_t>(rows.w2.rows);
    typename Rows::code_type const z{rows.codes, r, k};
    for (std::uint32_t at = warp_index() * together; at < group_size; at += draw_warps * together) {
        std::uint32_t tokens[together];
#pragma unroll
        for (std::uint32_t t = 0; t < together; ++t) {
            std::uint32_t const token = s.group * group_size + at + t;
            tokens[t] = token < vocabulary ? token : vocabulary - 1;
        }
        float logits[together];
        rows.logits(z, r, k, tokens, logits);
#pragma unroll
        for (std::uint32_t t = 0; t < together; ++t) {
            if (lane_index() == t) {
                s.logits[at + t] = s.group * group_size + at + t < vocabulary ? logits[t] : -infinity;
            }
        }
    }
    __syncthreads();
}

inline constexpr std::uint32_t tokens_of_lane = group_size / warp_size;

/// WARP collective: the first of the largest logits of s.group, as a place in the group, in every lane.
[[nodiscard]] __device__ __forceinline__ std::uint32_t first_largest(draw_shared const& s) {
    std::uint32_t place = lane_index() * tokens_of_lane;
    float best = s.logits[place];
    for (std::uint32_t j = 1; j < tokens_of_lane; ++j) {
        std::uint32_t const other = lane_index() * tokens_of_lane + j;
        if (s.logits[other] > best) {
            best = s.logits[other];
            place = other;
        }
    }
    first_largest_of_lanes(best, place);
    return place;
}

/// WARP collective: the first place in s.group whose cumulative weight exceeds the part s.part of the group's, in every
/// lane. If rounding runs past the end, it is the last place with weight. `nobody` if none has weight: all that a
/// cutoff kept there lay within rounding of it.
[[nodiscard]] __device__ __forceinline__ std::uint32_t find_drawn(draw_shared const& s, distribution const& q) {
    double weights[tokens_of_lane];
    double own = 0.0;
#pragma unroll
    for (std::uint32_t j = 0; j < tokens_of_lane; ++j) {
        std::uint32_t const place = lane_index() * tokens_of_lane + j;
        weights[j] =
            static_cast<double>(q.weight(s.logits[place], static_cast<token_id>(s.group * group_size + place)));
        own += weights[j];
    }
    double const sum = sum_up_to_lane(own);
    double const threshold = s.part * __shfl_sync(all_lanes, sum, warp_size - 1);
    unsigned const beyond = __ballot_sync(all_lanes, own > 0.0 && sum > threshold);
    unsigned const some = __ballot_sync(all_lanes, own > 0.0);
    if (some == 0) return nobody;
    int const lane = beyond != 0 ? __ffs(static_cast<int>(beyond)) - 1 : 31 - __clz(static_cast<int>(some));
    double before = sum - own;
    std::uint32_t place = 0;
    for (std::uint32_t j = 0; j < tokens_of_lane; ++j) {
        if (!(weights[j] > 0.0)) continue;
        place = lane_index() * tokens_of_lane + j;
        before += weights[j];
        if (before > threshold) break;
    }
    return __shfl_sync(all_lanes, place, lane);
}

}  // namespace detail
}  // namespace cuda
SURELEAP_END_NAMESPACE

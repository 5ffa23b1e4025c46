// SPDX-License-Identifier: MIT
//
// Gumbel-max draws (sampling/gumbel_max.hpp) on the device. The same key gives the same exponentials E_v as on the
// host, and so the same winner. Token v arrives at E_v / exp(logit scale), and the first to arrive wins. Times are kept
// as logarithms in double. So warps that look at different blocks of a row need no common reference, as the host's
// weights do. A time differs from the host's by the rounding of the host's float weight alone.
//
// A draw costs one comparison per logit. The smallest exponential of a group of 128 tokens bounds those of all its
// tokens from below. With the best time so far this gives the group a threshold in logits, and only tokens above it get
// an exponential of their own. These are some hundred of a row if the best time is the winner's from the start. So a
// warp starts with the times of likely winners. These are the drafted token and the tokens that have the smallest
// exponentials of their groups.
//
// One call of Philox in each lane makes the smallest exponentials of 64 groups, which are 8 blocks of the row. That
// costs a warp as much as looking at three or four blocks. So a warp should have several consecutive blocks.
//
// Floats only rule tokens out, with a slack far beyond their rounding; the winner is decided in double. So skipping
// never changes the winner.
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/distribution.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/warp.cuh>
#include <sureleap/cuda/sampling/row.cuh>
#include <sureleap/sampling/draw_key.hpp>
#include <sureleap/sampling/gumbel_max.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// Who came first among some tokens. Of several parts of a row, `first_of` tells who came first of all.
struct gumbel_winner {
    double log_time = __builtin_inf();  ///< log(E_v / exp(logit scale))
    token_id token = no_token;          ///< none if no token was kept
    std::uint32_t invalid = 0;          ///< 1: a logit was NaN or +inf, and nobody won
};

/// The earlier of two, the lower id of two at the same time.
[[nodiscard]] __device__ __forceinline__ gumbel_winner first_of(gumbel_winner const& a, gumbel_winner const& b) {
    bool const is_b = b.log_time < a.log_time || (b.log_time == a.log_time && b.token < a.token);
    gumbel_winner first = is_b ? b : a;
    first.invalid = a.invalid | b.invalid;
    return first;
}

/// Who came first of `count` results. A WARP collective; the result is that of all lanes.
[[nodiscard]] __device__ inline gumbel_winner first_of(gumbel_winner const* results, std::uint32_t count) {
    gumbel_winner first{};
    for (std::uint32_t i = lane_index(); i < count; i += warp_size) first = first_of(first, results[i]);
    for (int distance = warp_size / 2; distance > 0; distance /= 2) {
        gumbel_winner other{};
        other.log_time = __shfl_xor_sync(all_lanes, first.log_time, distance);
        other.token = __shfl_xor_sync(all_lanes, first.token, distance);
        other.invalid = __shfl_xor_sync(all_lanes, first.invalid, distance);
        first = first_of(first, other);
    }
    return first;
}

/// The race of a warp: a place in registers that meets tokens, in any order, and more than once if need be. Everything
/// but the winner is a WARP collective. Let several warps meet all tokens of a row between them. The first of their
/// winners is that of gumbel_max, with the weights of a dense distribution. Only times that are equal within the
/// rounding of the host's weights may be decided otherwise. A warp has no winner if it was told of a time that none of
/// its tokens beats.
class warp_gumbel_max {
public:
    /// With weights and truncation of `how`; its shift and total play no part.
    __device__ warp_gumbel_max(draw_key const& key, distribution const& how)
        : key_(key),
          scale_(how.scale),
          unit_(0.693147181f / how.scale),
          least_logit_(how.least_logit),
          least_id_(how.least_id),
          floor_(just_below(how.least_logit)) {}

    /// Some token of the row, the same in all lanes, and its logit: no later time is of interest. It is not met by
    /// this.
    __device__ void expect(token_id v, float logit) {
        // The smallest exponential of the group in even lanes, what the token has above it in odd ones.
        bool const odd = lane_index() % 2 != 0;
        auto const at = static_cast<std::uint32_t>(v);
        draw_key key = key_;
        if (odd) key.use = purpose::excess;
        key_bits const bits{key, odd ? at / 2 : at / (2 * group)};
        bool const second = (odd ? at : at / group) % 2 != 0;
        float const mine = no_less(second ? bits.word[2] : bits.word[0]);
        float const smallest = __shfl_sync(all_lanes, mine, 0) / static_cast<float>(group);
        float const excess = __shfl_sync(all_lanes, mine, 1);
        std::uint32_t const place = __shfl_sync(all_lanes, second ? bits.word[3] : bits.word[1], 0) % group;
        if (!keeps(v, logit)) return;
        static_cast<void>(beat(logit, __log2f(place == at % group ? smallest : smallest + excess)));
    }

    /// A token of each lane, or no_token, and its logit. Ids are those that name the exponentials: the target's. Takes
    /// two calls of Philox, where visit_block takes one for the few that may win.
    __device__ void visit(token_id v, float logit) {
        auto const at = static_cast<std::uint32_t>(v);
        key_bits const bits{key_, at / (2 * group)};
        bool const second = at / group % 2 != 0;
        visit_with(v, logit, second ? bits.word[2] : bits.word[0], second ? bits.word[3] : bits.word[1]);
    }

    /// Gets ready for `block` of `row`; call it before visit_block. Every 8 blocks it makes noise; the first time,
    /// those who have the smallest exponential of a group of these 8 blocks are expected: 64 tokens with as good a
    /// chance together as all 8,192.
    template <class Row>
    __device__ void prepare_block(Row row, std::uint32_t size, std::uint32_t block) {
        std::uint32_t const noise = block / blocks_of_noise;
        if (noise == noise_) return;
        bool const first = noise_ == no_noise;
        noise_ = noise;
        std::uint32_t const lane = noise * warp_size + lane_index();
        key_bits const bits{key_, lane};
#pragma unroll
        for (unsigned i = 0; i < 4; ++i) words_[i] = bits.word[i];
        bool leaves = true;  // the time to beat as it is
        if (first) {
            float logits[2];
            float logs[2];
#pragma unroll
            for (unsigned h = 0; h < 2; ++h) {
                std::uint32_t const v = (2 * lane + h) * group + words_[2 * h + 1] % group;
                float const logit = v < size ? load(row[v]) : -infinity;
                bool const kept = keeps(static_cast<token_id>(v), logit);
                logits[h] = kept ? logit : 0.0f;
                logs[h] = kept ? __log2f(no_less(words_[2 * h]) / static_cast<float>(group)) : infinity;
            }
            float const rate = scale_ * log2_of_e;
            bool const second = logs[1] - logs[0] < (logits[1] - logits[0]) * rate;
            float const log = second ? logs[1] : logs[0];
            float const logit = second ? logits[1] : logits[0];
            float const time = log - logit * rate;
            float const earliest = reduce_over_lanes(time, [](float a, float b) { return fminf(a, b); });
            int const ahead = first_lane(time == earliest);
            int const source = ahead < 0 ? 0 : ahead;
            leaves = !beat(__shfl_sync(all_lanes, logit, source), __shfl_sync(all_lanes, log, source));
        }
        if (leaves) find_least();
    }

    /// The tokens of a block of `row`, whose ids are their places in it. Looks into `row` again for those that may win.
    template <class Row>
    __device__ void visit_block(Row row, std::uint32_t block, lanes_of<Row> const& in) {
        using lanes = lanes_of<Row>;
        std::uint32_t some = in_time(block, in);
        while (__any_sync(all_lanes, some != 0)) {
            unsigned place = 0;
            token_id v = no_token;
            float logit = -infinity;
            if (some != 0) {
                auto const j = static_cast<unsigned>(__ffs(static_cast<int>(some))) - 1;
                place = lanes::place(j / lanes::together, j % lanes::together);
                some &= some - 1;
                v = static_cast<token_id>(block * block_tokens + place);
                logit = load(row[v]);
            }
            auto const source = static_cast<int>(block % blocks_of_noise * 4 + place / (2 * group));
            std::uint32_t words[4];
#pragma unroll
            for (unsigned i = 0; i < 4; ++i) words[i] = __shfl_sync(all_lanes, words_[i], source);
            bool const second = place / group % 2 != 0;
            visit_with(v, logit, second ? words[2] : words[0], second ? words[3] : words[1]);
        }
    }

    /// The same in all lanes.
    [[nodiscard]] __device__ gumbel_winner winner() const {
        gumbel_winner result = first_;
        result.invalid = __any_sync(all_lanes, invalid_) != 0;
        return result;
    }

private:
    static constexpr std::uint32_t group = static_cast<std::uint32_t>(row_group);
    static constexpr std::uint32_t blocks_of_noise = 8;
    static constexpr std::uint32_t no_noise = 0xffffffffu;

    /// The largest float below x; -inf itself.
    [[nodiscard]] static __device__ float just_below(float x) {
        auto const bits = sureleap::detail::bits_as<std::uint32_t>(x);
        if (!(x > -infinity)) return x;
        if (x == 0.0f) return -FLT_TRUE_MIN;
        return sureleap::detail::bits_as<float>(x > 0.0f ? bits - 1 : bits + 1);
    }

    [[nodiscard]] __device__ bool keeps(token_id v, float logit) const {
        return logit > -infinity && logit < infinity &&
               (logit > least_logit_ || (logit == least_logit_ && v <= least_id_));
    }
    /// exponential_bits::value() of these bits or more, by less than a thousandth; infinite where float cannot tell.
    [[nodiscard]] static __device__ float no_less(std::uint32_t high) {
        float const u = (static_cast<float>(high) + 1.0f) * 0x1p-32f;
        return u < 0.99f ? -log1pf(-u) : infinity;
    }
    /// A token of this logit with an exponential of this logarithm is in the race: is that the time to beat?
    [[nodiscard]] __device__ bool beat(float logit, float log2_e) {
        if (!(log2_e - leader_log2_ < (logit - leader_logit_) * scale_ * log2_of_e)) return false;
        leader_logit_ = logit;
        leader_log2_ = log2_e;
        find_least();
        return true;
    }
    /// What a logit has to exceed for its token to be in time: the leader's, as much less as its exponential is larger
    /// than the smallest of the group.
    __device__ void find_least() {
#pragma unroll
        for (unsigned h = 0; h < 2; ++h) {
            float const smaller = __log2f(smallest(h == 0 ? words_[0] : words_[2])) - leader_log2_;
            float least = leader_logit_ + smaller * unit_;
            least -= slack * unit_ + 1e-6f * (fabsf(least) + fabsf(leader_logit_) + fabsf(smaller * unit_));
            if (!(least > floor_)) least = floor_;          // nor if it is no number: then all are looked at
            least_[h] = least < FLT_MAX ? least : FLT_MAX;  // what is larger is no logit
        }
    }
    /// Not above group_noise::smallest() but for rounding, nor much below where that matters.
    [[nodiscard]] static __device__ float smallest(std::uint32_t high) {
        return static_cast<float>(high) * (0x1p-32f / static_cast<float>(group));
    }

    /// The lane's logits that may belong to a token in time, as bits.
    template <class Lanes>
    [[nodiscard]] __device__ std::uint32_t in_time(std::uint32_t block, Lanes const& in) const {
        float least[8];
#pragma unroll
        for (unsigned g = 0; g < 8; ++g) {
            least[g] = __shfl_sync(all_lanes, least_[g % 2], static_cast<int>(block % blocks_of_noise * 4 + g / 2));
        }
        // One comparison a logit, as long as there is nobody.
        bool any = in.others() != 0;
        for_each(in, [&](unsigned, float logit, float limit) { any |= !(logit <= limit); }, least);
        if (!any) return 0;
        std::uint32_t some = in.others();
        for_each(in, [&](unsigned j, float logit, float limit) { some |= !(logit <= limit) ? 1u << j : 0u; }, least);
        return some;
    }
    /// f(number of the lane's logit, the logit, what stands in `groups` for its group). No array has an index that is
    /// found out at run time.
    template <class Lanes, class F>
    static __device__ __forceinline__ void for_each(Lanes const& in, F const& f, float const (&groups)[8]) {
        constexpr unsigned together = Lanes::together;
#pragma unroll
        for (unsigned i = 0; i < Lanes::vectors; ++i) {
            // Vectors of a warp are one group of floats or two of what is half as wide.
            float of_group = groups[i * together / 4];
            if (together == 8 && lane_index() >= warp_size / 2) of_group = groups[i * together / 4 + together / 8];
#pragma unroll
            for (unsigned e = 0; e < together; ++e) f(i * together + e, in.plain(i, e), of_group);
        }
    }
    /// With the words of its group.
    __device__ void visit_with(token_id v, float logit, std::uint32_t high, std::uint32_t low) {
        if (v != no_token && !(logit < infinity)) invalid_ = true;
        double e = 0.0;
        double log_time = __builtin_inf();
        if (v != no_token && keeps(v, logit)) {
            sureleap::detail::group_noise const noise{high, low};
            auto const at = static_cast<std::size_t>(v);
            if (noise.is_of(at)) {
                e = noise.smallest();
            } else {
                auto const excess = noise.excess(key_, at);
                float const bound = smallest(high) + static_cast<float>(excess.bound());
                float const ahead = (logit - leader_logit_) * scale_ * log2_of_e;
                if (!(__log2f(bound) - leader_log2_ > ahead + slack + 1e-6f * fabsf(ahead))) {
                    e = noise.smallest() + excess.value();
                }
            }
            if (e > 0.0) log_time = log(e) - static_cast<double>(logit) * static_cast<double>(scale_);
        }
        if (__any_sync(all_lanes, log_time < first_.log_time)) lead(v, logit, e, log_time);
    }
    /// The first of the lanes' tokens is ahead of all so far.
    __device__ void lead(token_id v, float logit, double e, double log_time) {
        double const least = reduce_over_lanes(log_time, [](double a, double b) { return b < a ? b : a; });
        int const lane = first_lane(log_time == least);
        first_.log_time = least;
        first_.token = __shfl_sync(all_lanes, v, lane);
        static_cast<void>(
            beat(__shfl_sync(all_lanes, logit, lane), __log2f(static_cast<float>(__shfl_sync(all_lanes, e, lane)))));
    }

    static constexpr float slack = 2e-3f;  // in powers of two
    static constexpr float log2_of_e = 1.44269504f;

    draw_key key_;
    float scale_;
    float unit_;  // of a power of two, in logits
    float least_logit_;
    token_id least_id_;
    float floor_;  // what a token that is kept exceeds

    gumbel_winner first_{};  // the same in all lanes
    // The time to beat, that of a token met or expected: its logit, and no less than the logarithm of its exponential.
    float leader_logit_ = 0.0f;
    float leader_log2_ = infinity;
    bool invalid_ = false;  // this lane met a logit that is none

    std::uint32_t noise_ = no_noise;           // of which blocks words_ are: their index / 8
    std::uint32_t words_[4] = {};              // lane i's: bits of the blocks' groups 2 i and 2 i + 1
    float least_[2] = {-infinity, -infinity};  // thresholds of these groups
};

}  // namespace cuda
SURELEAP_END_NAMESPACE

// SPDX-License-Identifier: MIT
//
// The races of race.hpp on the device: with the same key the same exponentials, and so the same winner. Token v arrives at
// E_v / exp(logit scale); times are kept as logarithms in double, so they need no reference. The host takes weights relative
// to some logit of the row; blocks that are looked at by different warps would have to agree on one, or carry theirs along,
// and a weight that is far below its reference would be 0. The logarithm differs from the host's time by the rounding of its
// float weight alone.
//
// A race costs one comparison per logit, and no exponential. The smallest exponential of a group of 128 bounds those of all
// its tokens from below, so against the best time so far a group has a threshold in logits, and only tokens above it get an
// exponential of their own: some hundred of all of a row if the best time is the winner's from the start, and as many of
// every doubling of what the warp has seen if it starts with nothing. So let a likely winner be met first: the drafted token.
//
// One call of Philox in each lane makes the smallest exponentials of 64 groups, which are 8 blocks of the row, so a warp
// should go through blocks that follow each other.
//
// Everything in float only screens, with a slack far beyond its rounding; who wins is decided in double. What a warp has met
// or skipped changes the work of another, never the winner.
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>

#include <sureleap/config.hpp>
#include <sureleap/cuda/device.cuh>
#include <sureleap/cuda/law.cuh>
#include <sureleap/draw_key.hpp>
#include <sureleap/race.hpp>
#include <sureleap/types.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// Who came first among some tokens. Of several parts of a row, `first_of` tells who came first of all.
struct race_result {
    double log_time = __builtin_inf();  ///< log(E_v / exp(logit scale))
    token_id token = no_token;          ///< none if no token was kept
    std::uint32_t invalid = 0;          ///< 1: a logit was NaN or +inf, and nobody won
};

/// The earlier of two, the lower id of two at the same time.
[[nodiscard]] __device__ __forceinline__ race_result first_of(race_result const& a, race_result const& b) {
    bool const is_b = b.log_time < a.log_time || (b.log_time == a.log_time && b.token < a.token);
    race_result first = is_b ? b : a;
    first.invalid = a.invalid | b.invalid;
    return first;
}

/// Who came first of `count` results. A WARP collective; the result is that of all lanes.
[[nodiscard]] __device__ inline race_result first_of(race_result const* results, std::uint32_t count) {
    race_result first{};
    for (std::uint32_t i = lane_index(); i < count; i += warp_size) first = first_of(first, results[i]);
    for (int distance = warp_size / 2; distance > 0; distance /= 2) {
        race_result other{};
        other.log_time = __shfl_xor_sync(all_lanes, first.log_time, distance);
        other.token = __shfl_xor_sync(all_lanes, first.token, distance);
        other.invalid = __shfl_xor_sync(all_lanes, first.invalid, distance);
        first = first_of(first, other);
    }
    return first;
}

/// A warp's part of 1,024 logits of a row: 32 in each lane, -inf beyond the end. Neighbouring lanes hold neighbouring 16 bytes.
template <class T>
struct race_block {
    static constexpr unsigned count = 32;
    static constexpr unsigned chunk = 16 / sizeof(T);
    static_assert(sizeof(T) == 2 || sizeof(T) == 4, "race_block: rows are float, half or bf16");

    float logits[count];

    /// Where in the block logits[j] stands.
    [[nodiscard]] static __device__ __forceinline__ unsigned place(unsigned j) {
        return (j / chunk * warp_size + lane_index()) * chunk + j % chunk;
    }
    /// Of a number for each group of the block, that of logits[j]. No index of an array is found out at run time.
    [[nodiscard]] static __device__ __forceinline__ float of_group(float const (&groups)[8], unsigned j) {
        if constexpr (chunk == 4) return groups[j / chunk];
        return lane_index() < warp_size / 2 ? groups[j / chunk * 2] : groups[j / chunk * 2 + 1];
    }

    __device__ __forceinline__ race_block(T const* row, std::uint32_t size, std::uint32_t block) {
        std::uint32_t const first = block * static_cast<std::uint32_t>(row_block);
        T const* const here = row + first;
        if (size - first >= row_block && reinterpret_cast<std::uintptr_t>(here) % 16 == 0) {
            auto const* const from = reinterpret_cast<uint4 const*>(here) + lane_index();
            uint4 words[count / chunk];
#pragma unroll
            for (unsigned i = 0; i < count / chunk; ++i) words[i] = __ldg(from + i * warp_size);
#pragma unroll
            for (unsigned i = 0; i < count / chunk; ++i) {
                std::uint32_t const word[4] = {words[i].x, words[i].y, words[i].z, words[i].w};
#pragma unroll
                for (unsigned k = 0; k < 4; ++k) unpack(word[k], logits + i * chunk + k * (chunk / 4));
            }
        } else {
#pragma unroll
            for (unsigned j = 0; j < count; ++j) {
                logits[j] = place(j) < size - first ? load(here[place(j)]) : -infinity;
            }
        }
    }

private:
    static __device__ __forceinline__ void unpack(std::uint32_t word, float* out) {
        if constexpr (chunk == 4) {
            out[0] = sureleap::detail::bits_as<float>(word);
        } else {
            out[0] = load(sureleap::detail::bits_as<T>(static_cast<std::uint16_t>(word)));
            out[1] = load(sureleap::detail::bits_as<T>(static_cast<std::uint16_t>(word >> 16)));
        }
    }
};

/// The race of a warp: a place in registers that meets tokens, in any order, and more than once if need be. Everything but
/// the winner is a WARP collective. The winner is that of race_winner among the tokens met, with the weights of a dense
/// law, up to times that are equal within the rounding of the host's weights.
class race {
public:
    /// With weights and truncation of `how`; its shift and total play no part.
    __device__ race(draw_key const& key, law const& how)
        : key_(key),
          scale_(how.scale),
          least_logit_(how.least_logit),
          least_id_(how.least_id),
          floor_(just_below(how.least_logit)) {}

    /// A token of each lane, or no_token, and its logit. Ids are those that name the exponentials: the target's. Takes two
    /// calls of Philox, where meet_block takes one for the few that may win.
    __device__ void meet(token_id v, float logit) {
        auto const at = static_cast<std::uint32_t>(v);
        key_bits const bits{key_, at / (2 * group)};
        bool const second = at / group % 2 != 0;
        meet_with(v, logit, second ? bits.word[2] : bits.word[0], second ? bits.word[3] : bits.word[1]);
    }

    /// Gets ready for `block` of `row`; call it before meet_block, and best before the block is read: what it needs in
    /// registers is another's then. Every 8 blocks it makes noise, and as long as nobody is ahead, whoever has the smallest
    /// exponential of a group of these 8 blocks is met: 64 tokens that have as good a chance together as all 8,192.
    template <class T>
    __device__ void approach(T const* row, std::uint32_t size, std::uint32_t block) {
        std::uint32_t const noise = block / blocks_of_noise;
        if (noise == noise_) return;
        noise_ = noise;
        std::uint32_t const lane = noise * warp_size + lane_index();
        key_bits const bits{key_, lane};
#pragma unroll
        for (unsigned i = 0; i < 4; ++i) words_[i] = bits.word[i];
        find_least();
        if (first_.token != no_token) return;
        for (unsigned h = 0; h < 2; ++h) {
            std::uint32_t const low = h == 0 ? words_[1] : words_[3];
            std::uint32_t const v = (2 * lane + h) * group + low % group;
            bool const there = v < size;
            meet_with(there ? static_cast<token_id>(v) : no_token, there ? load(row[v]) : -infinity,
                      h == 0 ? words_[0] : words_[2], low);
        }
    }

    /// The tokens of a block of `row`, whose ids are their places in it. Looks into `row` again for those that may win.
    template <class T>
    __device__ void meet_block(T const* row, std::uint32_t block, race_block<T> const& in) {
        std::uint32_t some = in_time(block, in);
        while (__any_sync(all_lanes, some != 0)) {
            unsigned place = 0;
            token_id v = no_token;
            float logit = -infinity;
            if (some != 0) {
                place = race_block<T>::place(static_cast<unsigned>(__ffs(static_cast<int>(some))) - 1);
                some &= some - 1;
                v = static_cast<token_id>(block * static_cast<std::uint32_t>(row_block) + place);
                logit = load(row[v]);
            }
            auto const source = static_cast<int>(block % blocks_of_noise * 4 + place / (2 * group));
            std::uint32_t words[4];
#pragma unroll
            for (unsigned i = 0; i < 4; ++i) words[i] = __shfl_sync(all_lanes, words_[i], source);
            bool const second = place / group % 2 != 0;
            meet_with(v, logit, second ? words[2] : words[0], second ? words[3] : words[1]);
        }
    }

    /// The same in all lanes.
    [[nodiscard]] __device__ race_result winner() const {
        race_result result = first_;
        result.invalid = __any_sync(all_lanes, invalid_) != 0;
        return result;
    }

private:
    static constexpr std::uint32_t group = static_cast<std::uint32_t>(row_group);
    static constexpr std::uint32_t blocks_of_noise = 8;

    /// The largest float below x; -inf itself.
    [[nodiscard]] static __device__ float just_below(float x) {
        auto const bits = sureleap::detail::bits_as<std::uint32_t>(x);
        if (!(x > -infinity)) return x;
        if (x == 0.0f) return -FLT_TRUE_MIN;
        return sureleap::detail::bits_as<float>(x > 0.0f ? bits - 1 : bits + 1);
    }

    /// What a logit has to exceed for its token to be in time: the leader's, as much less as its exponential is larger than
    /// the smallest of the group.
    __device__ void find_least() {
        float const unit = 0.693147181f / scale_;  // of a power of two, in logits
#pragma unroll
        for (unsigned h = 0; h < 2; ++h) {
            float const smaller = log2f(smallest(h == 0 ? words_[0] : words_[2])) - leader_log2_;
            float least = leader_logit_ + smaller * unit;
            least -= slack * unit + 1e-6f * (fabsf(least) + fabsf(leader_logit_) + fabsf(smaller * unit));
            if (!(least > floor_)) least = floor_;          // nor if it is no number: then all are looked at
            least_[h] = least < FLT_MAX ? least : FLT_MAX;  // what is larger is no logit
        }
    }
    /// Not above group_noise::smallest() but for rounding, nor much below where that matters.
    [[nodiscard]] static __device__ float smallest(std::uint32_t high) {
        return static_cast<float>(high) * (0x1p-32f / static_cast<float>(group));
    }

    /// The lane's logits that may belong to a token in time, as bits.
    template <class T>
    [[nodiscard]] __device__ std::uint32_t in_time(std::uint32_t block, race_block<T> const& in) const {
        float least[8];
#pragma unroll
        for (unsigned g = 0; g < 8; ++g) {
            least[g] = __shfl_sync(all_lanes, least_[g % 2], static_cast<int>(block % blocks_of_noise * 4 + g / 2));
        }
        bool any = false;
#pragma unroll
        for (unsigned j = 0; j < race_block<T>::count; ++j) any |= !(in.logits[j] <= race_block<T>::of_group(least, j));
        if (!any) return 0;
        std::uint32_t some = 0;
#pragma unroll
        for (unsigned j = 0; j < race_block<T>::count; ++j) {
            some |= !(in.logits[j] <= race_block<T>::of_group(least, j)) ? 1u << j : 0u;
        }
        return some;
    }
    /// With the words of its group.
    __device__ void meet_with(token_id v, float logit, std::uint32_t high, std::uint32_t low) {
        bool const listed = v != no_token;
        if (listed && !(logit < infinity)) invalid_ = true;
        bool const kept = logit > least_logit_ || (logit == least_logit_ && v <= least_id_);
        double e = 0.0;
        double log_time = __builtin_inf();
        if (listed && kept && logit > -infinity && logit < infinity) {
            sureleap::detail::group_noise const noise{high, low};
            auto const at = static_cast<std::size_t>(v);
            if (noise.is_of(at)) {
                e = noise.smallest();
            } else {
                auto const excess = noise.excess(key_, at);
                float const bound = smallest(high) + static_cast<float>(excess.bound());
                float const ahead = (logit - leader_logit_) * scale_ * 1.44269504f;
                if (!(log2f(bound) - leader_log2_ > ahead + slack + 1e-6f * fabsf(ahead))) {
                    e = noise.smallest() + excess.value();
                }
            }
            if (e > 0.0) log_time = log(e) - static_cast<double>(logit) * static_cast<double>(scale_);
        }
        if (__any_sync(all_lanes, log_time < first_.log_time)) lead(v, logit, e, log_time);
    }
    /// The first of the lanes' tokens is ahead of all so far.
    __device__ void lead(token_id v, float logit, double e, double log_time) {
        double least = log_time;
        for (int distance = warp_size / 2; distance > 0; distance /= 2) {
            double const other = __shfl_xor_sync(all_lanes, least, distance);
            least = other < least ? other : least;
        }
        int const lane = __ffs(static_cast<int>(__ballot_sync(all_lanes, log_time == least))) - 1;
        first_.log_time = least;
        first_.token = __shfl_sync(all_lanes, v, lane);
        leader_logit_ = __shfl_sync(all_lanes, logit, lane);
        leader_log2_ = log2f(static_cast<float>(__shfl_sync(all_lanes, e, lane)));
        find_least();
    }

    static constexpr float slack = 1e-3f;  // in powers of two

    draw_key key_;
    float scale_;
    float least_logit_;
    token_id least_id_;
    float floor_;  // what a token that is kept exceeds

    race_result first_{};           // the same in all lanes
    float leader_logit_ = 0.0f;     // its logit
    float leader_log2_ = infinity;  // the logarithm of its exponential
    bool invalid_ = false;          // this lane met a logit that is none

    std::uint32_t noise_ = 0xffffffffu;        // of which blocks words_ are: their index / 8
    std::uint32_t words_[4] = {};              // lane i's: bits of the blocks' groups 2 i and 2 i + 1
    float least_[2] = {-infinity, -infinity};  // thresholds of these groups
};

/// What race_row keeps in shared memory.
struct race_shared {
    race_result of_warps[32];
};

/// The winner among the tokens of a whole row under a dense law, truncated or not. A BLOCK collective; every thread gets the
/// result. One pass over the row, and `likely` (a token or no_token) makes it cheaper if it does well.
template <class T>
[[nodiscard]] __device__ race_result race_row(T const* row, std::uint32_t size, law const& how, draw_key const& key,
                                              token_id likely, race_shared& shared) {
    unsigned const warps = blockDim.x / warp_size;
    std::uint32_t const blocks =
        (size + static_cast<std::uint32_t>(row_block) - 1) / static_cast<std::uint32_t>(row_block);
    std::uint32_t const share = (blocks + warps - 1) / warps;
    std::uint32_t const first = warp_index() * share;
    race mine{key, how};
    if (likely != no_token) mine.meet(likely, load(row[likely]));
    for (std::uint32_t b = first; b < first + share && b < blocks; ++b) {
        mine.approach(row, size, b);
        mine.meet_block(row, b, race_block<T>{row, size, b});
    }
    race_result const result = mine.winner();
    __syncthreads();  // whoever still reads the last row's
    if (lane_index() == 0) shared.of_warps[warp_index()] = result;
    __syncthreads();
    return first_of(shared.of_warps, warps);
}

}  // namespace cuda
SURELEAP_END_NAMESPACE

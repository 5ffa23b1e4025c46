// SPDX-License-Identifier: MIT
//
// Top-k, top-p and min-p of a row as one cutoff, the last token kept, found by a block of threads. truncation.hpp finds
// the same on the host. Each token has a key of its own that sorts as tokens do (logit descending, id ascending). A
// filter is then a search for a key: that at which the number of tokens before it, or their mass, reaches a target.
//
// A search first lists the tokens above some logit, sorts that list and looks there. The blocks' maxima tell which one:
// at least k tokens reach the k-th largest of them, and hardly more, because most blocks have one or none of the best.
// In nine rows of ten that is all there is to do, and most of the row is skipped. A list that became too long is
// narrowed by histograms over ten bits of the key at a time. That ends however flat the row is, and however many tokens
// are tied.
//
// Masses are integers: weights, which are at most 1, in units of 2^-44 or so. A sum of integers does not depend on
// their order. So threads may add as they come, and a histogram agrees with a list to the last bit. The host sums
// weights in double in the order of tokens. Both are within 2^-40 of the sum of the same weights. Besides, their
// weights differ by as much as expf does.
//
// Rejected: sorting the row (ten passes); a threshold on the weight, refined until the count is right (as many passes, and
// ties are still open); pops from a heap as on the host (one thread's work).
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/sampling/row.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// The last token kept, in the order of truncation.hpp; detail::cutoff of the host.
struct cutoff {
    float logit = -infinity;
    token_id id = 0x7fffffff;
};

/// What the caller may know of a row already; it saves passes.
struct row_statistics {
    float top = 0.0f;                      ///< its largest logit; this one is a must
    double total = 0.0;                    ///< the sum of exp((logit - top) / temperature) over the row, or 0
    block_weight const* blocks = nullptr;  ///< of its blocks of 1,024, of which only `largest` is read, or null
};

/// Scratch of one search, 22 KiB.
struct truncate_shared {
    static constexpr unsigned capacity = 1024;  ///< of the list; also bins of a histogram
    static constexpr unsigned parts = 256;      ///< of the row: part i has blocks i, i + 256 ...

    unsigned long long keys[capacity];
    unsigned long long masses[capacity];
    unsigned counts[capacity];
    float largest[parts];
    double sums[32];
    unsigned long long last[32];
    unsigned listed;
    float bound;
};

namespace detail {

/// The tokens of a row as keys that are sorted as the tokens are. Logits that are equal have equal keys but for the id: -0
/// counts as 0.
class token_order {
public:
    // An assignment, because the host's half of nvcc reads initialisers and does not know __clz.
    explicit __device__ token_order(std::uint32_t size) {
        id_bits_ = size > 1 ? 32 - static_cast<unsigned>(__clz(static_cast<int>(size - 1))) : 0;
    }

    [[nodiscard]] __device__ unsigned id_bits() const { return id_bits_; }
    [[nodiscard]] __device__ unsigned long long key(float logit, std::uint32_t id) const {
        auto const bits = sureleap::detail::bits_as<std::uint32_t>(logit + 0.0f);
        std::uint32_t const descending = (bits & 0x80000000u) != 0 ? bits : ~bits & 0x7fffffffu;
        return static_cast<unsigned long long>(descending) << id_bits_ | id;
    }
    [[nodiscard]] __device__ float logit(unsigned long long key) const {
        auto const descending = static_cast<std::uint32_t>(key >> id_bits_);
        return sureleap::detail::bits_as<float>((descending & 0x80000000u) != 0 ? descending
                                                                                : ~descending & 0x7fffffffu);
    }
    [[nodiscard]] __device__ std::uint32_t id(unsigned long long key) const {
        return static_cast<std::uint32_t>(key & ((1ull << id_bits_) - 1));
    }

private:
    unsigned id_bits_ = 0;
};

/// The filters of one row. All members are BLOCK collectives unless they are marked otherwise.
template <class T>
class row_filters {
public:
    using key_type = unsigned long long;
    enum class measure : unsigned { count, mass };

    __device__ row_filters(T const* row, std::uint32_t size, float scale, row_statistics const& statistics,
                           truncate_shared& s)
        : row_(row),
          size_(size),
          scale_(scale),
          statistics_(statistics),
          s_(s),
          order_(size),
          unit_(static_cast<float>(1ull << (62 - order_.id_bits()))),
          first_(order_.key(statistics.top, 0)),
          end_(order_.key(-FLT_MAX, size - 1) + 1),
          parts_(count_blocks(size) < truncate_shared::parts ? count_blocks(size) : truncate_shared::parts) {
        find_largest();
    }

    /// Top-k (amount: how many) or top-p (amount: the share of the mass).
    __device__ void keep(measure what, double amount) {
        if (what == measure::count) {
            keep_until_reached(
                what, amount,
                amount < truncate_shared::parts ? static_cast<unsigned>(amount) : truncate_shared::parts + 1);
        } else {
            keep_until_reached(what, amount * mass_left(), (parts_ + 1) / 2);
        }
    }

    /// The mode's weight is 1. A weight decides, and tokens of equal weight are kept together.
    __device__ void keep_weight(double least) {
        if (!all_left_ && heavy(order_.logit(end_ - 1), least)) return;
        key_type last = first_;
        if (complete_) {
            for (unsigned i = threadIdx.x; i < listed_; i += blockDim.x) {
                if (s_.keys[i] > last && heavy(order_.logit(s_.keys[i]), least)) last = s_.keys[i];
            }
        } else {
            // exp is not monotone to the last bit; a bound that is far below the last bit, to skip blocks by
            float const low = statistics_.top + (logf(static_cast<float>(least)) - 1e-3f) / scale_;
            key_type const bound = low > -FLT_MAX ? order_.key(low - 1e-5f * fabsf(low), size_ - 1) + 1 : end_;
            visit(first_, bound < end_ ? bound : end_, [&](key_type key, float logit) {
                if (key > last && heavy(logit, least)) last = key;
            });
        }
        end_ = largest_of(last) + 1;
        all_left_ = false;
    }

    /// Of the mode, if no filter took anything away.
    [[nodiscard]] __device__ cutoff last_kept() const {
        return {order_.logit(end_ - 1), static_cast<token_id>(order_.id(end_ - 1))};
    }

private:
    struct reached {
        unsigned index;   ///< of the first that reaches the target, or how many there are
        key_type before;  ///< the sum of those before it
    };

    [[nodiscard]] __device__ float weight(float logit) const { return expf((logit - statistics_.top) * scale_); }
    [[nodiscard]] __device__ bool heavy(float logit, double least) const {
        return static_cast<double>(weight(logit)) >= least;
    }
    [[nodiscard]] __device__ key_type mass_of(key_type key) const {
        return static_cast<key_type>(weight(order_.logit(key)) * unit_);
    }

    /// The largest logits of parts of the row, and how much of it they are worth: blocks that have nothing are skipped.
    __device__ void find_largest() {
        std::uint32_t const blocks = count_blocks(size_);
        unsigned const warps = blockDim.x / warp_size;
        for (unsigned i = threadIdx.x; i < parts_; i += blockDim.x) {
            float largest = -infinity;
            if (statistics_.blocks != nullptr) {
                for (std::uint32_t b = i; b < blocks; b += truncate_shared::parts) {
                    largest = fmaxf(largest, statistics_.blocks[b].largest);
                }
            }
            s_.largest[i] = largest;
        }
        __syncthreads();
        if (statistics_.blocks != nullptr) return;
        // Every part is one warp's.
        for (std::uint32_t b = warp_index(); b < blocks; b += warps) {
            row_lanes<T> logits;
            read_block(row_, size_, b, logits);
            float largest = -infinity;
#pragma unroll
            for (unsigned i = 0; i < row_lanes<T>::vectors; ++i) {
#pragma unroll
                for (unsigned e = 0; e < row_lanes<T>::together; ++e) largest = fmaxf(largest, logits(i, e));
            }
            largest = warp_max(largest);
            float& of_part = s_.largest[b % truncate_shared::parts];
            if (lane_index() == 0) of_part = fmaxf(of_part, largest);
        }
        __syncthreads();
    }
    /// The nth largest of these: as many tokens are at least as large.
    [[nodiscard]] __device__ float nth_largest(std::uint32_t n) {
        if (n > parts_) return -infinity;
        for (unsigned i = threadIdx.x; i < parts_; i += blockDim.x) {
            float const mine = s_.largest[i];
            unsigned larger = 0;
            for (unsigned j = 0; j < parts_; ++j) {
                larger += s_.largest[j] > mine || (s_.largest[j] == mine && j < i) ? 1u : 0u;
            }
            if (larger == n - 1) s_.bound = mine;
        }
        __syncthreads();
        return s_.bound;
    }

    /// f(key, logit) of every token in [begin, stop), by one thread each.
    template <class F>
    __device__ void visit(key_type begin, key_type stop, F const& f) const {
        float const low = order_.logit(stop - 1);
        std::uint32_t const blocks = count_blocks(size_);
        for (std::uint32_t b = warp_index(); b < blocks; b += blockDim.x / warp_size) {
            if (!(s_.largest[b % truncate_shared::parts] >= low)) continue;
            row_lanes<T> logits;
            read_block(row_, size_, b, logits);
            // Eight tokens at a time, from the front: f is long, and 32 copies of it would not stay in the cache.
            constexpr unsigned vectors = row_lanes<T>::vectors;
            constexpr unsigned some = 8 / row_lanes<T>::together;
#pragma unroll 1
            for (unsigned first = 0; first < vectors; first += some) {
#pragma unroll
                for (unsigned i = 0; i < some; ++i) {
#pragma unroll
                    for (unsigned e = 0; e < row_lanes<T>::together; ++e) {
                        float const logit = logits(i, e);
                        if (!(logit >= low)) continue;  // -inf too: `low` is a number
                        key_type const key = order_.key(logit, b * block_tokens + row_lanes<T>::place(first + i, e));
                        if (key >= begin && key < stop) f(key, logit);
                    }
                }
#pragma unroll
                for (unsigned i = 0; i + some < vectors; ++i) logits.raw[i] = logits.raw[i + some];
            }
        }
    }

    /// Lists the tokens in [begin, stop), sorted; returns how many there are, and if that is more than fit, there is no list.
    [[nodiscard]] __device__ unsigned list(key_type begin, key_type stop) {
        __syncthreads();  // no mutant: between two lists something has a barrier, by chance
        if (threadIdx.x == 0) s_.listed = 0;
        __syncthreads();
        visit(begin, stop, [this](key_type key, float) {
            unsigned const place = atomicAdd(&s_.listed, 1u);
            if (place < truncate_shared::capacity) s_.keys[place] = key;
        });
        __syncthreads();
        unsigned const count = s_.listed;
        if (count <= truncate_shared::capacity) sort(count);
        return count;
    }
    /// A bitonic network over the next power of two.
    __device__ void sort(unsigned count) {
        unsigned padded = 2;
        while (padded < count) padded *= 2;
        for (unsigned i = count + threadIdx.x; i < padded; i += blockDim.x) s_.keys[i] = ~key_type{0};
        for (unsigned run = 2; run <= padded; run *= 2) {
            for (unsigned distance = run / 2; distance > 0; distance /= 2) {
                __syncthreads();
                for (unsigned pair = threadIdx.x; pair < padded / 2; pair += blockDim.x) {
                    unsigned const low = pair / distance * 2 * distance + pair % distance;
                    key_type const a = s_.keys[low];
                    key_type const b = s_.keys[low + distance];
                    if ((a > b) != ((low & run) != 0)) {
                        s_.keys[low] = b;
                        s_.keys[low + distance] = a;
                    }
                }
            }
        }
        __syncthreads();
    }
    /// Bins of 2^shift keys from `begin` on.
    __device__ void count_bins(measure what, key_type begin, key_type stop, unsigned shift) {
        __syncthreads();
        for (unsigned i = threadIdx.x; i < truncate_shared::capacity; i += blockDim.x) {
            s_.counts[i] = 0;
            s_.masses[i] = 0;
        }
        __syncthreads();
        visit(begin, stop, [&](key_type key, float logit) {
            auto const bin = static_cast<unsigned>((key - begin) >> shift);
            atomicAdd(&s_.counts[bin], 1u);
            if (what == measure::mass) atomicAdd(&s_.masses[bin], static_cast<key_type>(weight(logit) * unit_));
        });
        __syncthreads();
    }

    /// A WARP collective: where `before` + of(0) + of(1) ... reaches the target.
    template <class Of>
    [[nodiscard]] __device__ reached reach(unsigned count, key_type before, double target, Of const& of) const {
        for (unsigned first = 0; first < count; first += warp_size) {
            unsigned const i = first + lane_index();
            key_type const mine = i < count ? of(i) : 0;
            key_type upto = before + mine;
            for (unsigned distance = 1; distance < warp_size; distance *= 2) {
                key_type const other = __shfl_up_sync(all_lanes, upto, distance);
                if (lane_index() >= distance) upto += other - before;
            }
            unsigned const there = __ballot_sync(all_lanes, i < count && static_cast<double>(upto) >= target);
            if (there != 0) {
                int const lane = __ffs(static_cast<int>(there)) - 1;
                return {first + static_cast<unsigned>(lane), __shfl_sync(all_lanes, upto - mine, lane)};
            }
            before = __shfl_sync(all_lanes, upto, warp_size - 1);
        }
        return {count, before};
    }

    /// Ends what is left with the first token at which the measure of what is kept reaches the target; keeps all of it if
    /// none does. `parts` of the row, which have the largest logits, are believed to be enough.
    __device__ void keep_until_reached(measure what, double target, std::uint32_t parts) {
        auto const of_list = [&](unsigned i) { return what == measure::count ? key_type{1} : mass_of(s_.keys[i]); };
        if (complete_) {
            reached const at = reach(listed_, 0, target, of_list);
            if (at.index < listed_) listed_ = at.index + 1;
            end_ = s_.keys[listed_ - 1] + 1;
            return;
        }
        key_type begin = first_;
        key_type stop = end_;
        bool fits = size_ <= truncate_shared::capacity;
        if (!fits) {
            float const bound = nth_largest(parts);
            key_type const above = order_.key(bound, size_ - 1) + 1;
            fits = bound > -infinity;
            if (fits && above < stop) stop = above;
        }
        key_type before = 0;
        key_type last = first_;
        for (;;) {
            if (fits) {
                unsigned const count = list(begin, stop);
                fits = count <= truncate_shared::capacity;
                if (fits) {
                    reached const at = reach(count, before, target, of_list);
                    bool const found = at.index < count;
                    if (count > 0) last = s_.keys[found ? at.index : count - 1];
                    if (found || stop == end_) {
                        complete_ = begin == first_;
                        listed_ = found ? at.index + 1 : count;
                        break;
                    }
                    before = at.before;
                    begin = stop;
                    stop = end_;
                }
            }
            // Too many, or less than the target: a bin of them, the first that reaches it or the last one.
            unsigned shift = 0;
            while ((stop - 1 - begin) >> shift >= truncate_shared::capacity) ++shift;
            count_bins(what, begin, stop, shift);
            auto const of_bin = [&](unsigned i) {
                return what == measure::count ? key_type{s_.counts[i]} : s_.masses[i];
            };
            reached at = reach(truncate_shared::capacity, before, target, of_bin);
            before = at.before;
            if (at.index == truncate_shared::capacity) {
                if (stop != end_) {
                    begin = stop;
                    stop = end_;
                    continue;
                }
                while (at.index > 0 && s_.counts[at.index - 1] == 0) --at.index;
                if (at.index == 0) break;  // nothing is behind the last list
                before -= of_bin(--at.index);
            }
            fits = s_.counts[at.index] <= truncate_shared::capacity;
            begin += static_cast<key_type>(at.index) << shift;
            key_type const next = begin + (key_type{1} << shift);
            if (next < stop) stop = next;
            end_ = stop;
        }
        end_ = last + 1;
        all_left_ = false;
    }

    /// In units.
    [[nodiscard]] __device__ double mass_left() {
        auto const of_list = [this](unsigned i) { return mass_of(s_.keys[i]); };
        if (complete_) return static_cast<double>(reach(listed_, 0, __builtin_inf(), of_list).before);
        auto const units = static_cast<double>(unit_);
        return (all_left_ && statistics_.total > 0.0 ? statistics_.total : sum_left()) * units;
    }
    [[nodiscard]] __device__ double sum_left() {
        double sum = 0.0;
        visit(first_, end_, [&](key_type, float logit) { sum += static_cast<double>(weight(logit)); });
        sum = warp_sum(sum);
        __syncthreads();  // no mutant: between two sums something has a barrier, by chance
        if (lane_index() == 0) s_.sums[warp_index()] = sum;
        __syncthreads();
        sum = 0.0;
        for (unsigned w = 0; w < blockDim.x / warp_size; ++w) sum += s_.sums[w];
        return sum;
    }
    [[nodiscard]] __device__ key_type largest_of(key_type mine) {
        for (int mask = warp_size / 2; mask > 0; mask /= 2) {
            key_type const other = __shfl_xor_sync(all_lanes, mine, mask);
            if (other > mine) mine = other;
        }
        __syncthreads();  // no mutant: nobody asks twice in a row
        if (lane_index() == 0) s_.last[warp_index()] = mine;
        __syncthreads();
        for (unsigned w = 0; w < blockDim.x / warp_size; ++w) {
            if (s_.last[w] > mine) mine = s_.last[w];
        }
        return mine;
    }

    T const* row_;
    std::uint32_t size_;
    float scale_;
    row_statistics statistics_;
    truncate_shared& s_;
    token_order order_;
    float unit_;  ///< of masses
    // What is left lies in [first_, end_). It is all that counts of the row until a filter ended it, and then the token
    // before end_ is the last one kept.
    key_type first_;
    key_type end_;
    unsigned parts_;
    bool all_left_ = true;
    bool complete_ = false;  ///< the list holds all that is left
    unsigned listed_ = 0;
};

}  // namespace detail

/// What top-k, top-p and min-p of `how` keep of a row that has a law: the last token kept. A BLOCK collective of 32 to
/// 1024 threads, a power of two; every thread gets the result. `how` truncates and is not greedy; no logit is NaN or
/// +inf, and statistics.top is finite. The result is detail::truncate's, up to weights at the boundary of top-p or
/// min-p that differ by rounding. Passes over the row: one for its largest logits, unless the statistics tell them; one
/// for the total, if top-p comes first and they do not tell it; then mostly one over a part of it.
template <class T>
[[nodiscard]] __device__ __noinline__ cutoff truncate(T const* row, std::uint32_t size, transform const& how,
                                                      row_statistics const& statistics, truncate_shared& shared) {
    detail::row_filters<T> filters(row, size, static_cast<float>(1.0 / how.temperature), statistics, shared);
    using measure = typename detail::row_filters<T>::measure;
#pragma unroll 1
    for (unsigned i = 0; i < 2; ++i) {  // one copy of the search is large enough
        bool const first = i == 0;
        if (!(first ? how.top_k > 0 : how.top_p < 1.0)) continue;
        filters.keep(first ? measure::count : measure::mass, first ? static_cast<double>(how.top_k) : how.top_p);
    }
    if (how.min_p > 0.0) filters.keep_weight(how.min_p);
    return filters.last_kept();
}

}  // namespace cuda
SURELEAP_END_NAMESPACE

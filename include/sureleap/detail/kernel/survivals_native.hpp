// SPDX-License-Identifier: MIT
//
// The passes of survivals.hpp with AVX2, whatever the program is compiled for, and the choice between them and the
// reference at run time. There is no AVX-512 version. It was only 5 to 10 % faster: a pass mostly waits for memory, and
// a row of eight fills an AVX2 register.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <sureleap/core/config.hpp>
#include <sureleap/detail/kernel/cpu.hpp>
#include <sureleap/detail/kernel/survivals.hpp>

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

#define SURELEAP_KERNEL __attribute__((target("avx2,bmi,popcnt"))) inline
// Passes keep their sums in registers only if everything they call is part of them.
#define SURELEAP_INLINE SURELEAP_KERNEL __attribute__((always_inline))

SURELEAP_BEGIN_NAMESPACE

namespace detail::avx2 {

/// The lanes that are set in each of 256 bit patterns, in order. (pext would do without, and is slow on older machines.)
inline constexpr auto chosen_lanes = [] {
    std::array<std::array<std::uint8_t, 8>, 256> all{};
    for (std::size_t bits = 0; bits < 256; ++bits) {
        std::size_t count = 0;
        for (std::uint8_t lane = 0; lane < 8; ++lane) {
            if ((bits >> lane & 1u) != 0) all[bits][count++] = lane;
        }
    }
    return all;
}();

struct survivals {
    static constexpr std::size_t width = 8;
    using vec = __m256i;
    using where = __m256i;  // lanes of ones

    SURELEAP_INLINE static where everywhere() { return _mm256_set1_epi32(-1); }
    SURELEAP_INLINE static vec load(std::uint32_t const* from) {
        return _mm256_loadu_si256(reinterpret_cast<__m256i const*>(from));
    }
    SURELEAP_INLINE static vec load(std::uint32_t const* from, where w) {
        return _mm256_maskload_epi32(reinterpret_cast<int const*>(from), w);
    }
    SURELEAP_INLINE static vec fill(std::uint32_t x) { return _mm256_set1_epi32(static_cast<int>(x)); }
    SURELEAP_INLINE static std::uint64_t total(vec sum) {
        __m256i const low = _mm256_cvtepu32_epi64(_mm256_castsi256_si128(sum));
        __m256i const high = _mm256_cvtepu32_epi64(_mm256_extracti128_si256(sum, 1));
        __m256i const both = _mm256_add_epi64(low, high);
        __m128i const two = _mm_add_epi64(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
        return static_cast<std::uint64_t>(_mm_cvtsi128_si64(_mm_add_epi64(two, _mm_unpackhi_epi64(two, two))));
    }
    /// Lanes 0 .. n-1.
    SURELEAP_INLINE static where first(vec n) {
        return _mm256_cmpgt_epi32(n, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    }
    /// Thresholds are kept as t - 1, for a comparison that there is: signed, so that 0 - 1 is below everything. What is in
    /// use is far below 2^31.
    SURELEAP_INLINE static vec below(std::uint32_t t) { return fill(t - 1u); }
    SURELEAP_INLINE static where at_least(where w, vec a, vec t) {
        return _mm256_and_si256(_mm256_cmpgt_epi32(a, t), w);
    }
    SURELEAP_INLINE static where minus(where a, where b) { return _mm256_andnot_si256(b, a); }
    SURELEAP_INLINE static vec add_where(vec sum, where w, vec a) {
        return _mm256_add_epi32(sum, _mm256_and_si256(w, a));
    }
    SURELEAP_INLINE static std::uint32_t bits(where w) {
        return static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(w)));
    }
    /// Those lanes, one after another; writes `width` numbers.
    SURELEAP_INLINE static void pack(std::uint32_t* to, std::uint32_t chosen, vec a) {
        __m128i const lanes = _mm_loadl_epi64(reinterpret_cast<__m128i const*>(chosen_lanes[chosen].data()));
        __m256i const packed = _mm256_permutevar8x32_epi32(a, _mm256_cvtepu8_epi32(lanes));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), packed);
    }

    /// Registers whose lanes may be added up in 32 bits: 255 times 2^24 fits.
    static constexpr std::size_t together = 255;

    SURELEAP_INLINE static std::size_t size_of(survival_rows const& rows, std::size_t r) {
        return rows.sizes == nullptr ? rows.stride : std::size_t{rows.sizes[r]};
    }
    /// Rows from the first on of which one register holds all, and may be read beyond the row's end.
    SURELEAP_INLINE static std::size_t short_rows(survival_rows const& rows) {
        std::size_t const numbers = rows.rows * rows.stride;
        if (rows.stride > width || rows.stride == 0 || numbers < width) return 0;
        return (numbers - width) / rows.stride + 1;
    }
    template <class Pass>
    SURELEAP_INLINE static void take(std::uint32_t const* a, std::size_t size, Pass& pass) {
        std::size_t i = 0;
        SURELEAP_DETAIL_UNROLL(4)
        for (; i + width <= size; i += width) pass.take(load(a + i), everywhere());
        if (i == size) return;
        where const some = first(fill(static_cast<std::uint32_t>(size - i)));
        pass.take(load(a + i, some), some);
    }

    /// Hands every entry in use to `pass`, a register at a time.
    template <class Pass>
    SURELEAP_INLINE static void scan(survival_rows const& rows, Pass& pass) {
        if (rows.sizes == nullptr && rows.every == 1) {
            std::size_t const numbers = rows.rows * rows.stride;
            for (std::size_t i = 0; i < numbers; i += together * width) {
                take(rows.values + i, numbers - i < together * width ? numbers - i : together * width, pass);
                pass.settle();
            }
            return;
        }
        std::size_t r = 0;
        for (std::size_t const safe = short_rows(rows); r < safe;) {
            std::uint32_t const* a = rows.values + r * rows.stride;
            for (std::size_t left = together; left > 0 && r < safe; --left) {
                pass.take(load(a), first(fill(static_cast<std::uint32_t>(size_of(rows, r)))));
                r += rows.every;
                a += rows.every * rows.stride;
            }
            pass.settle();
        }
        for (; r < rows.rows; r += rows.every) {
            std::uint32_t const* a = rows.values + r * rows.stride;
            std::size_t size = size_of(rows, r);
            for (; size > together * width; size -= together * width, a += together * width) {
                take(a, together * width, pass);
                pass.settle();
            }
            take(a, size, pass);
            pass.settle();
        }
    }

    /// Counts and sums in lanes, and in 64 bits before they overflow.
    struct tally {
        survival_tally all{};
        vec count = fill(0);
        vec sum = fill(0);

        SURELEAP_INLINE void add(where w, vec a) {
            count = _mm256_sub_epi32(count, w);  // chosen lanes are -1
            sum = add_where(sum, w, a);
        }
        SURELEAP_INLINE void settle() {
            all.count += total(count);
            all.sum += total(sum);
            count = sum = fill(0);
        }
    };

    struct count_pass {
        vec t;
        tally found{};
        SURELEAP_INLINE void take(vec a, where w) { found.add(at_least(w, a, t), a); }
        SURELEAP_INLINE void settle() { found.settle(); }
    };
    SURELEAP_KERNEL static survival_tally at_least(survival_rows const& rows, std::uint32_t t) {
        count_pass pass{below(t)};
        scan(rows, pass);
        return pass.found.all;
    }

    struct pick_pass {
        vec low, high;
        std::uint32_t* out;
        std::size_t room;
        tally above{};
        std::size_t count = 0;  // of those inside, and their sum
        std::uint64_t sum = 0;
        vec lanes = fill(0);
        SURELEAP_INLINE void take(vec a, where w) {
            where const from_low = at_least(w, a, low);
            where const over = at_least(from_low, a, high);
            where const inside = minus(from_low, over);
            above.add(over, a);
            lanes = add_where(lanes, inside, a);
            std::uint32_t const chosen = bits(inside);
            if (count < room) pack(out + count, chosen, a);
            count += static_cast<std::size_t>(_mm_popcnt_u32(chosen));
        }
        SURELEAP_INLINE void settle() {
            above.settle();
            sum += total(lanes);
            lanes = fill(0);
        }
    };
    SURELEAP_KERNEL static survival_tally between(survival_rows const& rows, std::uint32_t low, std::uint32_t high,
                                                  std::uint32_t* out, std::size_t room, survival_tally& above) {
        pick_pass pass{below(low), below(high), out, room};
        scan(rows, pass);
        above = pass.above.all;
        return {pass.count, pass.sum};
    }

    /// Rows do not rise: a row's length ends at the first lane that is below t, at the latest at its end.
    SURELEAP_KERNEL static std::size_t lengths(survival_rows const& rows, std::uint32_t t, std::uint32_t* out) {
        vec const threshold = below(t);
        std::size_t sum = 0;
        std::size_t r = 0;
        std::uint32_t const* a = rows.values;
        for (std::size_t const safe = short_rows(rows); r < safe; ++r, a += rows.stride) {
            std::size_t const length = until_below(load(a), everywhere(), threshold);
            std::size_t const size = size_of(rows, r);
            out[r] = static_cast<std::uint32_t>(length < size ? length : size);
            sum += out[r];
        }
        for (; r < rows.rows; ++r, a += rows.stride) {
            std::size_t const size = size_of(rows, r);
            std::size_t length = 0;
            for (std::size_t i = 0; i < size && length == i; i += width) {
                where const some = first(fill(static_cast<std::uint32_t>(size - i < width ? size - i : width)));
                length += until_below(load(a + i, some), some, threshold);
            }
            out[r] = static_cast<std::uint32_t>(length);
            sum += length;
        }
        return sum;
    }
    SURELEAP_INLINE static std::size_t until_below(vec a, where w, vec t) {
        return static_cast<std::size_t>(_tzcnt_u64(~std::uint64_t{bits(at_least(w, a, t))}));
    }
};

}  // namespace detail::avx2
SURELEAP_END_NAMESPACE

#undef SURELEAP_INLINE
#undef SURELEAP_KERNEL

#endif

SURELEAP_BEGIN_NAMESPACE

#if defined(__x86_64__) && defined(__GNUC__)
inline constexpr survival_kernels avx2_survival_kernels{
    "avx2", detail::avx2::survivals::at_least, detail::avx2::survivals::between, detail::avx2::survivals::lengths};
#endif

/// Best first, the reference last; a view of static memory. Everything in it runs here.
[[nodiscard]] inline std::span<survival_kernels const* const> available_survival_kernels() noexcept {
    static kernel_list<survival_kernels> const found{
#if defined(__x86_64__) && defined(__GNUC__)
        {&avx2_survival_kernels, cpu().avx2},
#endif
        {&scalar_survival_kernels, true},
    };
    return found.tables();
}

/// The best of them.
[[nodiscard]] inline survival_kernels const& native_survival_kernels() noexcept {
    return *available_survival_kernels().front();
}

SURELEAP_END_NAMESPACE

// SPDX-License-Identifier: MIT
//
// The passes of row.hpp in vectors, written once and compiled for one instruction set after another: no header of its
// own, but the part of avx2.hpp and avx512.hpp that they share. Who includes it has opened a namespace, defined
// SURELEAP_KERNEL, the attributes that make a function use those instructions whatever the program is compiled for, and
// a class `isa`:
//
//     width                          floats in a register
//     vec, sums                      a register of floats; sums in double of as many lanes
//     load(T const*)                 of float, bf16, half
//     fill, plus, max                max(a, b) is b where one of them is NaN
//     multiply_add, subtract_product a b + c; a - b c, rounded once
//     exp2(vec)                      0 below the smallest float, not finite beyond the largest, for NaN and for +inf
//     add(sums&, vec), total(sums)
//     flags, raise(flags&, vec)      raised where a lane is NaN or +inf; any(flags)
//     largest(vec)                   of the lanes
//     words, philox(...)             a register of 32-bit numbers; one word of Philox for `width` lanes in each of four
//     low_halves, high_halves        of words, as floats; bits_of(vec): the patterns of floats, as numbers
//     less(a, b)                     a bit for every lane where a < b
//
// A template on `isa` in an ordinary header would be nicer to read and does not work: a function without the attribute
// cannot inline one that has it, and a template cannot take its attribute from an argument.

template <class T>
struct rows {
    using vec = typename isa::vec;
    using sums = typename isa::sums;
    using flags = typename isa::flags;
    using words = typename isa::words;
    static constexpr std::size_t width = isa::width;
    /// Registers whose weights are added up in float before they go to the sums in double.
    static constexpr std::size_t together = 8;
    static constexpr std::size_t step = together * width;
    static_assert(row_block % step == 0);

    /// exp((l - shift) * scale) = 2^(l * factor + offset). Rounding the offset scales all weights of a row alike.
    struct exponent {
        vec factor;
        vec offset;
    };
    SURELEAP_KERNEL static exponent make(float shift, float scale) {
        double const factor = static_cast<double>(scale) * 1.4426950408889634;
        return {isa::fill(static_cast<float>(factor)),
                isa::fill(static_cast<float>(-factor * static_cast<double>(shift)))};
    }
    SURELEAP_KERNEL static vec weigh(vec l, exponent const& e) {
        return isa::exp2(isa::multiply_add(l, e.factor, e.offset));
    }

    /// The last logits of a row, -inf behind them: what is behind a row may be another one, or nothing.
    template <class U, std::size_t Count = step>
    struct tail {
        U values[Count];
        SURELEAP_KERNEL tail(U const* row, std::size_t size) {
            for (std::size_t i = 0; i < Count; ++i) {
                values[i] = i < size ? row[i] : static_cast<U>(-std::numeric_limits<float>::infinity());
            }
        }
    };

    SURELEAP_KERNEL static void weights(T const* row, std::size_t size, float shift, float scale, float* out) {
        exponent const e = make(shift, scale);
        std::size_t i = 0;
        for (; i + width <= size; i += width) isa::store(out + i, weigh(isa::load(row + i), e));
        if (i == size) return;
        tail<T, width> const last(row + i, size - i);
        float some[width];
        isa::store(some, weigh(isa::load(last.values), e));
        for (std::size_t k = 0; i + k < size; ++k) out[i + k] = some[k];
    }

    SURELEAP_KERNEL static vec sum_of(vec const (&w)[together]) {
        return isa::plus(isa::plus(isa::plus(w[0], w[1]), isa::plus(w[2], w[3])),
                         isa::plus(isa::plus(w[4], w[5]), isa::plus(w[6], w[7])));
    }
    /// The weights of `step` logits.
    SURELEAP_KERNEL static void add(T const* row, exponent const& e, sums& acc) {
        vec w[together];
#pragma GCC unroll 8
        for (std::size_t k = 0; k < together; ++k) w[k] = weigh(isa::load(row + k * width), e);
        isa::add(acc, sum_of(w));
    }

    SURELEAP_KERNEL static double sum(T const* row, std::size_t size, float shift, float scale, double* out) {
        exponent const e = make(shift, scale);
        double total = 0.0;
        for (std::size_t first = 0; first < size; first += row_block) {
            std::size_t const end = first + row_block < size ? first + row_block : size;
            sums acc = isa::zero();
            std::size_t i = first;
            for (; i + step <= end; i += step) add(row + i, e, acc);
            if (i < end) {
                tail<T> const last(row + i, end - i);
                add(last.values, e, acc);
            }
            double const here = isa::total(acc);
            if (out != nullptr) out[first / row_block] = here;
            total += here;
        }
        return total;
    }

    /// One pass looks for the block, and only that one is looked through.
    SURELEAP_KERNEL static std::size_t mode(T const* row, std::size_t size) {
        float best = -std::numeric_limits<float>::infinity();
        std::size_t block = size;
        flags unfit{};
        for (std::size_t first = 0; first < size; first += row_block) {
            std::size_t const end = first + row_block < size ? first + row_block : size;
            vec largest[2] = {isa::fill(-std::numeric_limits<float>::infinity()),
                              isa::fill(-std::numeric_limits<float>::infinity())};
            std::size_t i = first;
            for (; i + 2 * width <= end; i += 2 * width) {
                for (std::size_t k = 0; k < 2; ++k) {
                    vec const l = isa::load(row + i + k * width);
                    isa::raise(unfit, l);
                    largest[k] = isa::max(l, largest[k]);
                }
            }
            if (i < end) {
                tail<T, 2 * width> const last(row + i, end - i);
                for (std::size_t k = 0; k < 2; ++k) {
                    vec const l = isa::load(last.values + k * width);
                    isa::raise(unfit, l);
                    largest[k] = isa::max(l, largest[k]);
                }
            }
            float const here = isa::largest(isa::max(largest[0], largest[1]));
            if (here > best) {
                best = here;
                block = first;
            }
        }
        if (isa::any(unfit) || block == size) return size;
        while (static_cast<float>(row[block]) != best) ++block;
        return block;
    }

    /// In units of p's weights, max(w_p - ratio w_q, 0): exactly 0 where both sides are the same.
    SURELEAP_KERNEL static void add(T const* p, exponent const& of_p, float const* q, exponent const& of_q, vec ratio,
                                    sums& acc) {
        vec left[together];
#pragma GCC unroll 8
        for (std::size_t k = 0; k < together; ++k) {
            vec const wp = weigh(isa::load(p + k * width), of_p);
            vec const wq = weigh(isa::load(q + k * width), of_q);
            left[k] = isa::max(isa::subtract_product(wp, ratio, wq), isa::fill(0.0f));
        }
        isa::add(acc, sum_of(left));
    }

    SURELEAP_KERNEL static double residual(T const* p, row_side<float> const& of_p, float const* q,
                                           row_side<float> const& of_q, std::size_t size, double* out) {
        exponent const ep = make(of_p.shift, of_p.scale);
        exponent const eq = make(of_q.shift, of_q.scale);
        vec const ratio = isa::fill(static_cast<float>(of_q.factor / of_p.factor));
        double total = 0.0;
        for (std::size_t first = 0; first < size; first += row_block) {
            std::size_t const end = first + row_block < size ? first + row_block : size;
            sums acc = isa::zero();
            std::size_t i = first;
            for (; i + step <= end; i += step) add(p + i, ep, q + i, eq, ratio, acc);
            if (i < end) {
                tail<T> const last_p(p + i, end - i);
                tail<float> const last_q(q + i, end - i);
                add(last_p.values, ep, last_q.values, eq, ratio, acc);
            }
            double const here = isa::total(acc) * of_p.factor;
            if (out != nullptr) out[first / row_block] = here;
            total += here;
        }
        return total;
    }

    /// In powers of two, where u < best w is log u < log best + log w: no exponential. The bits of a float are a piecewise
    /// linear logarithm that is never above the real one, and what is rounded is far less than `slack`.
    SURELEAP_KERNEL static std::size_t contenders(T const* row, std::size_t size, float shift, float scale,
                                                  race_noise const& noise, std::uint32_t first, double best,
                                                  std::uint32_t* out) {
        constexpr float slack = 0.02f;
        exponent e = make(shift, scale);
        e.offset = isa::plus(e.offset, isa::fill(static_cast<float>(__builtin_log2(best)) + slack));
        vec const unit = isa::fill(0x1p-23f);
        vec const below = isa::fill(-127.0f - 16.0f);
        std::size_t count = 0;
        for (std::size_t i = 0; i < size; i += race_group) {
            T const* from = row + i;
            T last[race_group];
            if (i + race_group > size) {  // as in `tail`, which would be made for every group
                for (std::size_t k = 0; k < race_group; ++k) {
                    last[k] = i + k < size ? row[i + k] : static_cast<T>(-std::numeric_limits<float>::infinity());
                }
                from = last;
            }
            auto const lane = static_cast<std::uint32_t>((first + i) / race_group * 16);
            for (std::size_t part = 0; part < 16; part += width) {
                words w[4];
                isa::philox(noise.seed, lane + static_cast<std::uint32_t>(part), noise.counter[0], noise.counter[1],
                            noise.counter[2], w);
#pragma GCC unroll 8
                for (std::size_t j = 0; j < 8; ++j) {
                    vec const u = j % 2 == 0 ? isa::low_halves(w[j / 2]) : isa::high_halves(w[j / 2]);
                    vec const log_u = isa::multiply_add(isa::bits_of(u), unit, below);
                    std::size_t const at = 16 * j + part;
                    std::uint32_t mask = isa::less(log_u, isa::multiply_add(isa::load(from + at), e.factor, e.offset));
                    for (; mask != 0; mask &= mask - 1) {
                        std::size_t const v = i + at + static_cast<std::size_t>(__builtin_ctz(mask));
                        if (v < size) out[count++] = first + static_cast<std::uint32_t>(v);
                    }
                }
            }
        }
        return count;
    }

    static constexpr row_functions<T> table{weights, sum, mode, residual, contenders};
};

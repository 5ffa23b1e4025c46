// SPDX-License-Identifier: MIT
//
// The passes of rows.hpp in vectors, written once and compiled for one instruction set after another. It is no header
// of its own, but the part that avx2.hpp, avx512.hpp and neon.hpp share. Before they include it, they open a namespace
// and define SURELEAP_KERNEL and a class `isa`. SURELEAP_KERNEL is the attributes that make a function use those
// instructions, whatever the program is compiled for. The class has:
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
//     words, no_words, either(a, b)  a register of 32-bit numbers; zeros; a | b
//     rounded(vec), pattern(words)   to whole numbers, negative where they are NaN or too large; the floats of these bits
//     any_negative(words)
//     exceeds(a, b)                  a bit for every lane where a > b or one of them is NaN
//
// A template on `isa` in an ordinary header would be easier to read, but does not work: a function without the
// attribute cannot inline one that has it, and a template cannot take its attribute from an argument.

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
        float some[width];
        if (size == 1) {  // what most are asked for; a tail would take several times as long
            isa::store(some, weigh(isa::fill(static_cast<float>(*row)), e));
            *out = some[0];
            return;
        }
        std::size_t i = 0;
        for (; i + width <= size; i += width) isa::store(out + i, weigh(isa::load(row + i), e));
        if (i == size) return;
        tail<T, width> const last(row + i, size - i);
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
        SURELEAP_DETAIL_UNROLL(8)
        for (std::size_t k = 0; k < together; ++k) w[k] = weigh(isa::load(row + k * width), e);
        isa::add(acc, sum_of(w));
    }

    /// Of a row that is one block, every register in double.
    SURELEAP_KERNEL static double sum_one(T const* row, std::size_t size, exponent const& e) {
        sums acc = isa::zero();
        std::size_t i = 0;
        for (; i + width <= size; i += width) isa::add(acc, weigh(isa::load(row + i), e));
        if (i < size) {
            tail<T, width> const last(row + i, size - i);
            isa::add(acc, weigh(isa::load(last.values), e));
        }
        return isa::total(acc);
    }

    SURELEAP_KERNEL static double sum(T const* row, std::size_t size, float shift, float scale, double* out) {
        exponent const e = make(shift, scale);
        double total = 0.0;
        if (size <= row_block) {
            total = sum_one(row, size, e);
            if (out != nullptr) *out = total;
            return total;
        }
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
        SURELEAP_DETAIL_UNROLL(8)
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

    /// 2^x <= (1 + f) 2^n for x = n + f, 0 <= f < 1, with a quotient of at most 1.0615. The right side is the number (x
    /// + 127) 2^23 with its bits read as a float (Schraudolph, "A fast, compact approximation of the exponential
    /// function", 1999). One multiply-add and a conversion, where a polynomial would take as long as the sum.
    struct chord {
        vec factor;
        vec offset;
        vec least;  // 2^-126, the number below which the bits of a float say something else
        bool fits;
    };
    /// x is rounded here to a multiple of 2^-16, and otherwise than in a weight. The offset is raised by more than
    /// that, and `loosest_bound` has room for both.
    SURELEAP_KERNEL static chord make_chord(float shift, float scale) {
        constexpr double one = 0x1p23;
        auto const factor = static_cast<float>(static_cast<double>(scale) * 1.4426950408889634);
        auto const offset =
            static_cast<float>(-static_cast<double>(scale) * 1.4426950408889634 * static_cast<double>(shift));
        double const raised = static_cast<double>(offset) + 127.0 + 0x1p-11;
        return {isa::fill(static_cast<float>(static_cast<double>(factor) * one)),
                isa::fill(static_cast<float>(raised * one)), isa::fill(0x1p23f), __builtin_fabsf(offset) < 1024.0f};
    }
    SURELEAP_KERNEL static vec over(vec l, chord const& c, words& signs) {
        auto const bits = isa::rounded(isa::max(c.least, isa::multiply_add(l, c.factor, c.offset)));
        signs = isa::either(signs, bits);
        return isa::pattern(bits);
    }
    /// Whole blocks, `apart` logits from one to the next. Two far apart come from memory faster than one, or than two
    /// neighbours.
    template <std::size_t Streams>
    SURELEAP_KERNEL static void bound_blocks(T const* row, std::size_t apart, chord const& c, words& signs,
                                             double* out) {
        constexpr std::size_t each = together / Streams;
        vec acc[together];
        SURELEAP_DETAIL_UNROLL(8)
        for (std::size_t k = 0; k < together; ++k) acc[k] = isa::fill(0.0f);
        for (std::size_t i = 0; i < row_block; i += each * width) {
            SURELEAP_DETAIL_UNROLL(8)
            for (std::size_t k = 0; k < together; ++k) {
                vec const l = isa::load(row + k % Streams * apart + i + k / Streams * width);
                acc[k] = isa::plus(acc[k], over(l, c, signs));
            }
        }
        SURELEAP_DETAIL_UNROLL(2)
        for (std::size_t s = 0; s < Streams; ++s) {
            vec sum = acc[s];
            SURELEAP_DETAIL_UNROLL(8)
            for (std::size_t k = s + Streams; k < together; k += Streams) sum = isa::plus(sum, acc[k]);
            sums whole = isa::zero();
            isa::add(whole, sum);
            out[s * (apart / row_block)] = isa::total(whole);
        }
    }

    SURELEAP_KERNEL static double bound(T const* row, std::size_t size, float shift, float scale, double* bounds) {
        chord const c = make_chord(shift, scale);
        if (!c.fits) return std::numeric_limits<double>::infinity();
        auto signs = isa::no_words();  // conversion gives a negative number for NaN, +inf and what is too large
        std::size_t const half = size / row_block / 2 * row_block;
        for (std::size_t i = 0; i < half; i += row_block) {
            bound_blocks<2>(row + i, half, c, signs, bounds + i / row_block);
        }
        std::size_t first = 2 * half;
        if (first + row_block <= size) {
            bound_blocks<1>(row + first, row_block, c, signs, bounds + first / row_block);
            first += row_block;
        }
        if (first < size) {
            vec sum = isa::fill(0.0f);
            std::size_t i = first;
            for (; i + width <= size; i += width) sum = isa::plus(sum, over(isa::load(row + i), c, signs));
            if (i < size) {
                tail<T, width> const last(row + i, size - i);
                sum = isa::plus(sum, over(isa::load(last.values), c, signs));
            }
            sums whole = isa::zero();
            isa::add(whole, sum);
            bounds[first / row_block] = isa::total(whole);
        }
        if (isa::any_negative(signs)) return std::numeric_limits<double>::infinity();
        double total = 0.0;
        for (std::size_t b = 0; b * row_block < size; ++b) total += bounds[b];
        return total;
    }

    SURELEAP_KERNEL static std::size_t list(std::size_t first, std::uint32_t mask, std::uint32_t* out) {
        std::size_t count = 0;
        for (; mask != 0; mask &= mask - 1) {
            out[count++] = static_cast<std::uint32_t>(first) + static_cast<std::uint32_t>(__builtin_ctz(mask));
        }
        return count;
    }
    /// In powers of two, log w > log least: no exponential. The bits of a number are a piecewise linear logarithm that
    /// is never above the real one. Rounding is far less than `slack`.
    SURELEAP_KERNEL static std::size_t above(T const* row, std::size_t size, float shift, float scale,
                                             double const* least, std::uint32_t* out) {
        constexpr double slack = 0.001;
        exponent const e = make(shift, scale);
        std::size_t count = 0;
        for (std::size_t first = 0; first < size; first += row_group) {
            std::size_t const end = first + row_group < size ? first + row_group : size;
            auto const bits = __builtin_bit_cast(std::int64_t, least[first / row_group]);
            vec const limit = isa::fill(static_cast<float>(static_cast<double>(bits) * 0x1p-52 - (1023.0 + slack)));
            std::size_t i = first;
            for (; i + width <= end; i += width) {
                count += list(i, isa::exceeds(isa::multiply_add(isa::load(row + i), e.factor, e.offset), limit),
                              out + count);
            }
            if (i < end) {
                tail<T, width> const last(row + i, end - i);
                count += list(i, isa::exceeds(isa::multiply_add(isa::load(last.values), e.factor, e.offset), limit),
                              out + count);
            }
        }
        return count;
    }

    /// The weights of `step` logits into out, and their sum.
    SURELEAP_KERNEL static double weigh_step(T const* row, exponent const& e, float* out) {
        vec w[together];
        SURELEAP_DETAIL_UNROLL(8)
        for (std::size_t k = 0; k < together; ++k) {
            w[k] = weigh(isa::load(row + k * width), e);
            isa::store(out + k * width, w[k]);
        }
        sums acc = isa::zero();
        isa::add(acc, sum_of(w));
        return isa::total(acc);
    }
    /// By steps, then by registers, then by lanes: one by one, additions would wait for each other. Without branches on
    /// where the token is, which cannot be predicted, all of a block would have to be read, and that takes longer.
    ///
    /// Steps are added up in float, which is off by less than `unsure` of the sum. Where that leaves open which token
    /// it is (once in a thousand times at most, unless the row is long), sums in double say so.
    SURELEAP_KERNEL static std::size_t reach(T const* row, std::size_t size, float shift, float scale,
                                             double threshold) {
        constexpr double unsure = sum_rounding<float>;
        exponent const e = make(shift, scale);
        float some[step];
        double sum = 0.0;
        for (std::size_t i = 0; i < size; i += step) {
            double const here = i + step <= size ? weigh_step(row + i, e, some)
                                                 : weigh_step(tail<T>(row + i, size - i).values, e, some);
            if (!(sum + here > threshold)) {
                sum += here;
                continue;
            }
            double const margin = unsure * sum;
            for (std::size_t k = 0; k < step; k += width) {
                sums acc = isa::zero();
                isa::add(acc, isa::load(some + k));
                double const next = sum + isa::total(acc);
                if (next > threshold) {
                    for (std::size_t lane = k; lane < k + width; ++lane) {
                        double const before = sum;
                        sum += static_cast<double>(some[lane]);
                        if (!(sum > threshold)) continue;
                        if (before + margin <= threshold && sum - margin > threshold) return i + lane;
                        return reach_exactly(row, size, e, threshold);
                    }
                }
                sum = next;
            }
            return reach_exactly(row, size, e, threshold);
        }
        if (sum + unsure * sum <= threshold) return size;
        return reach_exactly(row, size, e, threshold);
    }
    [[gnu::cold, gnu::noinline]] SURELEAP_KERNEL static std::size_t reach_exactly(T const* row, std::size_t size,
                                                                                  exponent const& e, double threshold) {
        float some[step];
        double sum = 0.0;
        for (std::size_t i = 0; i < size; i += step) {
            if (i + step <= size) {
                static_cast<void>(weigh_step(row + i, e, some));
            } else {
                static_cast<void>(weigh_step(tail<T>(row + i, size - i).values, e, some));
            }
            sums acc = isa::zero();
            for (std::size_t k = 0; k < step; k += width) isa::add(acc, isa::load(some + k));
            double const next = sum + isa::total(acc);
            if (next > threshold) {
                for (std::size_t lane = 0; lane < step; ++lane) {
                    if (!(some[lane] > 0.0f)) continue;
                    sum += static_cast<double>(some[lane]);
                    if (sum > threshold) return i + lane;
                }
            }
            sum = next;
        }
        return size;
    }

    static constexpr row_functions<T> table{weights, sum, mode, residual, bound, above, reach};
};

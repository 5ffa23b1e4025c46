// SPDX-License-Identifier: MIT
//
// The passes of sample.hpp in vectors, written once and compiled for one instruction set after another, as rows.inl is,
// which says why it is no template. Who includes it has opened a namespace, defined SURELEAP_KERNEL and a class `isa`:
//
//     width                          doubles in a register, a `vec`; `a + b` and the like work on it; as many 32-bit
//                                    integers are an `ints`
//     load, store, fill              unaligned
//     load_first(from, n)            the first n or all, zeros behind them; store_first(to, x, n): no others
//     transpose(vec[width])          rows to columns
//     min, max                       of numbers; max(a, b) is b where a is NaN
//     multiply_add(a, b, c)          a b + c, rounded once
//     round, whole                   to the nearest integer; to the next towards 0
//     eighth_power(n)                2^(j/8) with j the three lowest bits of n's pattern
//     shift_exponent(p, n)           p with the bits above them added to its exponent
//     split(x, e)                    x = m 2^e, m in [1/sqrt 2, sqrt 2): m returned, e a vec
//     labels(survived, position)     1.0 where survived > position, else 0.0
//     choose(flags, a, b)            a where flags is not 0
//     integers(vec), put(int32*, ints)   the integer parts; stores them
//     differ(ints, ints)             a bit for every lane where they do; unordered(vec): where it is NaN
//     pairs(lows, highs, out)        whole numbers below 2^32 as halves of a word, low and high of every lane
//     total(vec)                     the sum of the lanes
//
// All instruction sets do the same operations on every sample, so survivals are the same to the last bit.

struct samples {
    using vec = isa::vec;
    using ints = isa::ints;
    static constexpr std::size_t width = isa::width;

    /// The last samples of a column, zeros behind them.
    struct tail {
        double prefix[width] = {};
        double logits[width] = {};
        std::uint32_t survived[width] = {};
    };

    /// sigmoid(z / T + b) = 1 / (1 + 2^t) with t = z * factor + shift. From 1024 on 2^t is infinite, and at 1024 so is what
    /// shift_exponent makes of a 1; far below 0 nothing of it is left.
    struct exponent {
        vec factor;
        vec shift;
    };
    SURELEAP_KERNEL static exponent make(double temperature, double offset) {
        constexpr double log2e = 1.4426950408889634;
        return {isa::fill(-log2e / temperature), isa::fill(-log2e * offset)};
    }
    /// 2^t = 2^(n/8) 2^f with n/8 the nearest multiple of 1/8, which adding 1.5 * 2^49 leaves in the lowest bits, as n. The
    /// lowest three of them choose from a table, the others are an exponent; 2^f by a polynomial of degree 6 that
    /// interpolates it with a relative error of 2.0e-15, of which a sigmoid sees a quarter, and is exact at 0.
    SURELEAP_KERNEL static vec sigmoid(vec z, exponent const& e) {
        vec const large = isa::fill(0x1.8p49);
        vec const t =
            isa::max(isa::min(isa::multiply_add(z, e.factor, e.shift), isa::fill(1024.0)), isa::fill(-1000.0));
        vec const n = t + large;
        vec const f = t - (n - large);
        vec p = isa::fill(0.00015404304911360817);
        p = isa::multiply_add(p, f, isa::fill(0.001333445206627039));
        p = isa::multiply_add(p, f, isa::fill(0.009618129096280655));
        p = isa::multiply_add(p, f, isa::fill(0.05550410853384901));
        p = isa::multiply_add(p, f, isa::fill(0.24022650695910316));
        p = isa::multiply_add(p, f, isa::fill(0.6931471805599737));
        vec const step = isa::eighth_power(n);
        vec const one = isa::fill(1.0);
        return one / (one + isa::shift_exponent(isa::multiply_add(step * f, p, step), n));
    }

    SURELEAP_KERNEL static bool transpose(double const* const* rows, std::size_t const* lengths, std::size_t size,
                                          double* const* columns) {
        std::uint32_t wrong = 0;
        for (std::size_t first = 0; first < size; first += width) {
            for (std::size_t k = 0; k < lengths[first]; k += width) {
                vec x[width];
                SURELEAP_DETAIL_UNROLL(8)
                for (std::size_t i = 0; i < width; ++i) {
                    std::size_t const at = first + i < size ? first + i : first;
                    std::size_t const length = first + i < size && lengths[at] > k ? lengths[at] - k : 0;
                    x[i] = isa::load_first(length > 0 ? rows[at] + k : rows[at], length);
                    wrong |= isa::unordered(x[i]);
                }
                isa::transpose(x);
                std::size_t filled = size - first;
                SURELEAP_DETAIL_UNROLL(8)
                for (std::size_t c = 0; c < width; ++c) {
                    if (k + c >= lengths[first]) break;
                    if (filled > width) filled = width;
                    while (lengths[first + filled - 1] <= k + c) --filled;
                    isa::store_first(columns[k + c] + first, x[c], filled);
                }
            }
        }
        return wrong == 0;
    }

    SURELEAP_KERNEL static double survive(double const* prefix, double const* logits, std::size_t size,
                                          double temperature, double offset, double* out) {
        exponent const e = make(temperature, offset);
        vec total = isa::fill(0.0);
        std::size_t i = 0;
        for (; i + width <= size; i += width) {
            vec const a = isa::load(prefix + i) * sigmoid(isa::load(logits + i), e);
            isa::store(out + i, a);
            total = total + a;
        }
        if (i < size) {
            tail last;
            for (std::size_t k = 0; i + k < size; ++k) last.prefix[k] = prefix[i + k], last.logits[k] = logits[i + k];
            vec const a = isa::load(last.prefix) * sigmoid(isa::load(last.logits), e);
            isa::store(last.prefix, a);
            for (std::size_t k = 0; i + k < size; ++k) out[i + k] = last.prefix[k];
            total = total + a;
        }
        return isa::total(total);
    }

    /// Places are found in vectors; additions go to memory one by one, each lane to a copy of its own.
    SURELEAP_KERNEL static std::size_t gaps(double const* survivals, sample_labels labels, std::size_t size,
                                            std::size_t bins, double margin, double* sums, std::uint32_t* near) {
        vec const count = isa::fill(static_cast<double>(bins));
        vec const last_bin = isa::fill(static_cast<double>(bins) - 1.0);
        vec const below = isa::fill(-margin);
        vec const above = isa::fill(margin);
        alignas(64) std::int32_t bin[sample_block];
        alignas(64) double gap[sample_block];
        std::size_t found = 0;
        tail last;
        for (std::size_t first = 0; first < size; first += width) {
            double const* from = survivals + first;
            std::uint32_t const* survived = labels.survived + first;
            if (size - first < width) {
                for (std::size_t k = 0; first + k < size; ++k) last.prefix[k] = from[k], last.survived[k] = survived[k];
                from = last.prefix, survived = last.survived;
            }
            vec const a = isa::load(from);
            ints const low = isa::integers(isa::multiply_add(a, count, below));
            ints const high = isa::integers(isa::min(isa::multiply_add(a, count, above), last_bin));
            isa::put(bin + first, low);
            isa::store(gap + first, a - isa::labels(survived, labels.position));
            for (std::uint32_t close = isa::differ(low, high); close != 0; close &= close - 1) {
                std::size_t const at = first + static_cast<std::uint32_t>(__builtin_ctz(close));
                near[found++] = static_cast<std::uint32_t>(at);
                gap[at] = 0.0;
            }
        }
        double* copies[width];
        for (std::size_t k = 0; k < width; ++k) copies[k] = sums + k * bins;
        for (std::size_t first = 0; first < size; first += width) {
            SURELEAP_DETAIL_UNROLL(8)
            for (std::size_t k = 0; k < width; ++k) {
                copies[k][static_cast<std::uint32_t>(bin[first + k])] += gap[first + k];
            }
        }
        return found;
    }

    SURELEAP_KERNEL static void spread(double const* prefix, double const* logits, std::size_t size, double lowest,
                                       double highest, std::size_t cells, std::uint64_t* pairs) {
        auto const count = static_cast<double>(cells);
        vec const scale = isa::fill(count / (highest - lowest));
        vec const from = isa::fill(lowest);
        vec const end = isa::fill(count);
        vec const last_cell = isa::fill(count - 1.0);
        vec const units = isa::fill(1.0 / spread_unit);
        tail last;
        while (size > 0) {
            alignas(64) std::int32_t index[sample_block];
            alignas(64) std::uint64_t parts[sample_block];
            std::size_t const block = size < sample_block ? size : sample_block;
            for (std::size_t first = 0; first < block; first += width) {
                double const* weights = prefix + first;
                double const* places = logits + first;
                if (block - first < width) {
                    for (std::size_t k = 0; first + k < block; ++k) {
                        last.prefix[k] = weights[k], last.logits[k] = places[k];
                    }
                    weights = last.prefix, places = last.logits;
                }
                vec const place = isa::max(isa::min((isa::load(places) - from) * scale, end), isa::fill(0.0));
                vec const cell = isa::whole(isa::min(place, last_cell));
                vec const weight = isa::load(weights) * units;
                vec const upper = isa::round(weight * (place - cell));
                isa::put(index + first, isa::integers(cell));
                isa::pairs(isa::round(weight) - upper, upper, parts + first);
            }
            SURELEAP_DETAIL_UNROLL(8)
            for (std::size_t i = 0; i < block; ++i) pairs[static_cast<std::uint32_t>(index[i])] += parts[i];
            prefix += block, logits += block, size -= block;
        }
    }

    /// log x = e log 2 + 2 (s + s^3 q(s^2)), s = (m - 1) / (m + 1), with q of degree 6 and a relative error of 5e-18.
    SURELEAP_KERNEL static vec log(vec x) {
        vec e;
        vec const m = isa::split(x, e);
        vec const one = isa::fill(1.0);
        vec const s = (m - one) / (m + one);
        vec const u = s * s;
        vec q = isa::fill(0.14616585424888623);
        q = isa::multiply_add(q, u, isa::fill(0.15331710618210773));
        q = isa::multiply_add(q, u, isa::fill(0.18182889455674947));
        q = isa::multiply_add(q, u, isa::fill(0.22222211130259878));
        q = isa::multiply_add(q, u, isa::fill(0.2857142862600327));
        q = isa::multiply_add(q, u, isa::fill(0.39999999999899444));
        q = isa::multiply_add(q, u, isa::fill(0.666666666666667));
        return isa::multiply_add(e, isa::fill(0.6931471805599453), isa::multiply_add(s * u, q, s + s));
    }

    /// What stands behind the last sample is a 0 that was to be 0, and costs nothing.
    SURELEAP_KERNEL static double log_losses(double const* survivals, sample_labels labels, std::size_t size,
                                             double floor, double* least) {
        vec const low = isa::fill(floor);
        vec const high = isa::fill(1.0 - floor);
        vec const one = isa::fill(1.0);
        vec total = isa::fill(0.0);
        vec smallest = one;
        tail last;
        for (std::size_t first = 0; first < size; first += width) {
            double const* from = survivals + first;
            std::uint32_t const* survived = labels.survived + first;
            if (size - first < width) {
                for (std::size_t k = 0; first + k < size; ++k) last.prefix[k] = from[k], last.survived[k] = survived[k];
                from = last.prefix, survived = last.survived;
            }
            vec const a = isa::load(from);
            vec const label = isa::labels(survived, labels.position);
            vec const x = isa::choose(label, isa::max(a, low), one - isa::min(a, high));
            smallest = isa::min(smallest, x);
            total = total - log(x);
        }
        alignas(64) double lanes[width];
        isa::store(lanes, smallest);
        for (double const x : lanes) *least = x < *least ? x : *least;
        return isa::total(total);
    }
};

// SPDX-License-Identifier: MIT
//
// The passes of survivals.hpp in vectors, a part of avx2.hpp. rows.inl says why it is no ordinary template. Before it
// is included, a namespace is open, and SURELEAP_KERNEL, SURELEAP_INLINE (the same, and always inline) and a class
// `isa` are defined. Passes keep their sums in registers only if everything they call is part of them. The class has:
//
//     width                        32-bit numbers in a register
//     vec, where                   a register of them; lanes of ones
//     load(from), load(from, w)    all lanes; those of w, zeros elsewhere
//     fill, total(vec)             the sum of all lanes in 64 bits
//     everywhere, first(n)         all lanes; lanes 0 .. n - 1
//     below(t), at_least(w, a, t)  a threshold; lanes of w where a is at least the threshold
//     minus(a, b)                  lanes of a and not of b
//     add_where(sum, w, a)         adds lanes of w
//     count_where(count, w)        adds 1 in lanes of w
//     bits(w), ones(bits), zeros_below(bits)    a bit for a lane; how many are set; how many are not before the first
//     pack(to, bits, a)            those lanes, one after another; writes `width` numbers

struct survivals {
    using vec = isa::vec;
    using where = isa::where;
    static constexpr std::size_t width = isa::width;

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
        for (; i + width <= size; i += width) pass.take(isa::load(a + i), isa::everywhere());
        if (i == size) return;
        where const some = isa::first(isa::fill(static_cast<std::uint32_t>(size - i)));
        pass.take(isa::load(a + i, some), some);
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
                pass.take(isa::load(a), isa::first(isa::fill(static_cast<std::uint32_t>(size_of(rows, r)))));
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
        vec count = isa::fill(0);
        vec sum = isa::fill(0);

        SURELEAP_INLINE void add(where w, vec a) {
            count = isa::count_where(count, w);
            sum = isa::add_where(sum, w, a);
        }
        SURELEAP_INLINE void settle() {
            all.count += isa::total(count);
            all.sum += isa::total(sum);
            count = sum = isa::fill(0);
        }
    };

    struct count_pass {
        vec t;
        tally found{};
        SURELEAP_INLINE void take(vec a, where w) { found.add(isa::at_least(w, a, t), a); }
        SURELEAP_INLINE void settle() { found.settle(); }
    };
    SURELEAP_KERNEL static survival_tally at_least(survival_rows const& rows, std::uint32_t t) {
        count_pass pass{isa::below(t)};
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
        vec lanes = isa::fill(0);
        SURELEAP_INLINE void take(vec a, where w) {
            where const from_low = isa::at_least(w, a, low);
            where const over = isa::at_least(from_low, a, high);
            where const inside = isa::minus(from_low, over);
            above.add(over, a);
            lanes = isa::add_where(lanes, inside, a);
            std::uint32_t const chosen = isa::bits(inside);
            if (count < room) isa::pack(out + count, chosen, a);
            count += isa::ones(chosen);
        }
        SURELEAP_INLINE void settle() {
            above.settle();
            sum += isa::total(lanes);
            lanes = isa::fill(0);
        }
    };
    SURELEAP_KERNEL static survival_tally between(survival_rows const& rows, std::uint32_t low, std::uint32_t high,
                                                  std::uint32_t* out, std::size_t room, survival_tally& above) {
        pick_pass pass{isa::below(low), isa::below(high), out, room};
        scan(rows, pass);
        above = pass.above.all;
        return {pass.count, pass.sum};
    }

    /// Rows do not rise: a row's length ends at the first lane that is below t, at the latest at its end.
    SURELEAP_KERNEL static std::size_t lengths(survival_rows const& rows, std::uint32_t t, std::uint32_t* out) {
        vec const threshold = isa::below(t);
        std::size_t sum = 0;
        std::size_t r = 0;
        std::uint32_t const* a = rows.values;
        for (std::size_t const safe = short_rows(rows); r < safe; ++r, a += rows.stride) {
            std::size_t const length = until_below(isa::load(a), isa::everywhere(), threshold);
            std::size_t const size = size_of(rows, r);
            out[r] = static_cast<std::uint32_t>(length < size ? length : size);
            sum += out[r];
        }
        for (; r < rows.rows; ++r, a += rows.stride) {
            std::size_t const size = size_of(rows, r);
            std::size_t length = 0;
            for (std::size_t i = 0; i < size && length == i; i += width) {
                where const some =
                    isa::first(isa::fill(static_cast<std::uint32_t>(size - i < width ? size - i : width)));
                length += until_below(isa::load(a + i, some), some, threshold);
            }
            out[r] = static_cast<std::uint32_t>(length);
            sum += length;
        }
        return sum;
    }
    SURELEAP_INLINE static std::size_t until_below(vec a, where w, vec t) {
        return isa::zeros_below(~std::uint64_t{isa::bits(isa::at_least(w, a, t))});
    }
};

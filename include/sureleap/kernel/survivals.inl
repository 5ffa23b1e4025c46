// SPDX-License-Identifier: MIT
//
// The passes of survivals.hpp in vectors, written once and compiled for one instruction set after another: no header of
// its own, but the part that the two of survivals_x86.hpp share. Who includes it has opened a namespace, defined
// SURELEAP_KERNEL, SURELEAP_INLINE for what has to vanish in its caller, and a class `survival_isa`:
//
//     width, vec                     32-bit numbers in a register
//     where, all()                   a choice of lanes
//     load(from), load(from, where)  the latter reads no other lane
//     fill(x), total(vec)            the sum of all lanes, in 64 bits
//     first(vec n)                   lanes 0 .. n-1
//     at_least(where, a, t)          those lanes of a choice where a >= t; numbers are below 2^31
//     minus(where, where)            of choices
//     add(sum, where, a)             only there
//     bits(where)                    a bit a lane
//     pack(to, where, bits, a)       those lanes, one after another; writes `width` numbers

struct survivals {
    using isa = survival_isa;
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
        for (; i + width <= size; i += width) pass.take(isa::load(a + i), isa::all());
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
            count = isa::add(count, w, isa::fill(1));
            sum = isa::add(sum, w, a);
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
        count_pass pass{isa::fill(t)};
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
            lanes = isa::add(lanes, inside, a);
            std::uint32_t const bits = isa::bits(inside);
            if (count < room) isa::pack(out + count, inside, bits, a);
            count += static_cast<std::size_t>(_mm_popcnt_u32(bits));
        }
        SURELEAP_INLINE void settle() {
            above.settle();
            sum += isa::total(lanes);
            lanes = isa::fill(0);
        }
    };
    SURELEAP_KERNEL static survival_tally between(survival_rows const& rows, std::uint32_t low, std::uint32_t high,
                                                  std::uint32_t* out, std::size_t room, survival_tally& above) {
        pick_pass pass{isa::fill(low), isa::fill(high), out, room};
        scan(rows, pass);
        above = pass.above.all;
        return {pass.count, pass.sum};
    }

    /// Rows do not rise: a row's length ends at the first lane that is below t, at the latest at its end.
    SURELEAP_KERNEL static std::size_t lengths(survival_rows const& rows, std::uint32_t t, std::uint32_t* out) {
        vec const threshold = isa::fill(t);
        std::size_t total = 0;
        std::size_t r = 0;
        std::uint32_t const* a = rows.values;
        for (std::size_t const safe = short_rows(rows); r < safe; ++r, a += rows.stride) {
            std::size_t const length = until_below(isa::load(a), isa::all(), threshold);
            std::size_t const size = size_of(rows, r);
            out[r] = static_cast<std::uint32_t>(length < size ? length : size);
            total += out[r];
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
            total += length;
        }
        return total;
    }
    SURELEAP_INLINE static std::size_t until_below(vec a, where w, vec t) {
        return static_cast<std::size_t>(_tzcnt_u64(~std::uint64_t{isa::bits(isa::at_least(w, a, t))}));
    }
};

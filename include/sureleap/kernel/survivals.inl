// SPDX-License-Identifier: MIT
//
// The passes of survivals.hpp in vectors, written once and compiled for one instruction set after another: no header of
// its own, but the part that the two of survivals_x86.hpp share. Who includes it has opened a namespace, defined
// SURELEAP_KERNEL and a class `survival_isa` (see there).

struct survivals {
    using isa = survival_isa;
    using vec = isa::vec;
    static constexpr std::size_t width = isa::width;

    /// Sums a lane in 32 bits, and empties them before 2^24 times the registers added can overflow.
    struct tally {
        std::uint64_t sum = 0;
        std::size_t count = 0;
        vec lanes = isa::fill(0);
        unsigned room = 255;

        SURELEAP_KERNEL void add(vec a, std::uint32_t where) {
            count += static_cast<std::size_t>(_mm_popcnt_u32(where));
            lanes = isa::add_where(lanes, where, a);
            if (--room == 0) empty();
        }
        SURELEAP_KERNEL void empty() {
            sum += isa::total(lanes);
            lanes = isa::fill(0);
            room = 255;
        }
        SURELEAP_KERNEL survival_tally total() {
            empty();
            return {count, sum};
        }
    };

    /// A bit for every lane in use.
    SURELEAP_KERNEL static std::uint32_t used(std::size_t lanes) {
        return static_cast<std::uint32_t>(_bzhi_u32((1u << width) - 1u, static_cast<unsigned>(lanes)));
    }

    /// Hands every entry in use to `pass`, a register at a time.
    template <class Pass>
    SURELEAP_KERNEL static void scan(survival_rows const& rows, Pass& pass) {
        if (rows.sizes == nullptr && rows.every == 1) {
            run(rows.values, rows.rows * rows.stride, pass);
            return;
        }
        for (std::size_t r = 0; r < rows.rows; r += rows.every) {
            std::size_t const size = rows.sizes == nullptr ? rows.stride : std::size_t{rows.sizes[r]};
            run(rows.values + r * rows.stride, size, pass);
        }
    }
    template <class Pass>
    SURELEAP_KERNEL static void run(std::uint32_t const* a, std::size_t size, Pass& pass) {
        std::size_t i = 0;
        for (; i + width <= size; i += width) pass.take(isa::load(a + i), used(width));
        if (i < size) pass.take(isa::load(a + i, size - i), used(size - i));
    }

    struct count_pass {
        vec t;
        tally all{};
        SURELEAP_KERNEL void take(vec a, std::uint32_t lanes) { all.add(a, isa::at_least(a, t) & lanes); }
    };
    SURELEAP_KERNEL static survival_tally at_least(survival_rows const& rows, std::uint32_t t) {
        count_pass pass{isa::fill(t)};
        scan(rows, pass);
        return pass.all.total();
    }

    struct pick_pass {
        vec low, high;
        std::uint32_t* out;
        std::size_t room;
        tally inside{};
        tally above{};
        SURELEAP_KERNEL void take(vec a, std::uint32_t lanes) {
            std::uint32_t const over = isa::at_least(a, high) & lanes;
            std::uint32_t const in = isa::at_least(a, low) & lanes & ~over;
            if (inside.count < room) isa::pack(out + inside.count, in, a);
            above.add(a, over);
            inside.add(a, in);
        }
    };
    SURELEAP_KERNEL static survival_tally between(survival_rows const& rows, std::uint32_t low, std::uint32_t high,
                                                  std::uint32_t* out, std::size_t room, survival_tally& above) {
        pick_pass pass{isa::fill(low), isa::fill(high), out, room};
        scan(rows, pass);
        above = pass.above.total();
        return pass.inside.total();
    }

    SURELEAP_KERNEL static std::size_t lengths(survival_rows const& rows, std::uint32_t t, std::uint32_t* out) {
        vec const threshold = isa::fill(t);
        std::size_t total = 0;
        for (std::size_t r = 0; r < rows.rows; ++r) {
            std::uint32_t const* const a = rows.values + r * rows.stride;
            std::size_t const size = rows.sizes == nullptr ? rows.stride : std::size_t{rows.sizes[r]};
            std::size_t length = 0;
            for (std::size_t i = 0; i < size; i += width) {
                std::size_t const lanes = size - i < width ? size - i : width;
                std::uint32_t const where = isa::at_least(isa::load(a + i, lanes), threshold) & used(lanes);
                length += static_cast<std::size_t>(_mm_popcnt_u32(where));
                if (length < i + width) break;
            }
            out[r] = static_cast<std::uint32_t>(length);
            total += length;
        }
        return total;
    }
};

// SPDX-License-Identifier: MIT
//
// The passes of sample.hpp in float, as samples.inl has those in double. Who includes it has defined, besides, a class
// `narrow_isa`:
//
//     width                          floats in a register, a `vec`; as many 32-bit integers are an `ints`
//     load, store, fill, min, max, multiply_add, integers, put, differ    as in `isa`
//     from_doubles(double const*)    `width` of them, rounded
//     shift_exponent(p, n)           p with n's pattern added to its exponent, as an integer
//     nearest(x)                     the nearest integers
//     labelled(x, survived, position, one)   x less `one` where survived > position
//
// What is given up is written down at screen_error.

struct screens {
    using vec = narrow_isa::vec;
    using ints = narrow_isa::ints;
    static constexpr std::size_t width = narrow_isa::width;

    struct tail {
        float prefix[width] = {};
        float logits[width] = {};
        std::uint32_t survived[width] = {};
    };

    SURELEAP_KERNEL static void narrow(double const* values, std::size_t size, float* out) {
        std::size_t i = 0;
        for (; i + width <= size; i += width) narrow_isa::store(out + i, narrow_isa::from_doubles(values + i));
        for (; i < size; ++i) out[i] = static_cast<float>(values[i]);
    }

    /// sigmoid(z / T) = 1 / (1 + 2^t) with t = z * factor; 2^t = 2^n 2^f, n the nearest integer, which adding 1.5 * 2^23 leaves
    /// in the lowest bits, and 2^f a polynomial of degree 5 with a relative error of 1.6e-7. Beyond 100 nothing of the
    /// sigmoid is left, below -100 nothing is missing.
    SURELEAP_KERNEL static vec sigmoid(vec z, vec factor) {
        vec const large = narrow_isa::fill(0x1.8p23f);
        vec const t = narrow_isa::max(narrow_isa::min(z * factor, narrow_isa::fill(100.0f)), narrow_isa::fill(-100.0f));
        vec const n = t + large;
        vec const f = t - (n - large);
        vec p = narrow_isa::fill(0.00133908633f);
        p = narrow_isa::multiply_add(p, f, narrow_isa::fill(0.00967603177f));
        p = narrow_isa::multiply_add(p, f, narrow_isa::fill(0.0555035695f));
        p = narrow_isa::multiply_add(p, f, narrow_isa::fill(0.240221068f));
        p = narrow_isa::multiply_add(p, f, narrow_isa::fill(0.693147182f));
        vec const one = narrow_isa::fill(1.0f);
        return one / (one + narrow_isa::shift_exponent(narrow_isa::multiply_add(p, f, one), n));
    }

    SURELEAP_KERNEL static std::size_t screen(float const* prefix, float const* logits, sample_labels labels,
                                              std::size_t size, double temperature, std::size_t bins, double margin,
                                              std::int64_t* sums, std::uint32_t* near) {
        constexpr double log2e = 1.4426950408889634;
        vec const factor = narrow_isa::fill(static_cast<float>(-log2e / temperature));
        vec const count = narrow_isa::fill(static_cast<float>(bins));
        vec const last_bin = narrow_isa::fill(static_cast<float>(bins) - 1.0f);
        vec const below = narrow_isa::fill(static_cast<float>(-margin));
        vec const above = narrow_isa::fill(static_cast<float>(margin));
        constexpr auto one = static_cast<std::int32_t>(1.0 / screen_unit);
        alignas(64) std::int32_t bin[sample_block];
        alignas(64) std::int32_t gap[sample_block];
        std::size_t found = 0;
        tail last;
        for (std::size_t first = 0; first < size; first += width) {
            float const* weights = prefix + first;
            float const* places = logits + first;
            std::uint32_t const* survived = labels.survived + first;
            if (size - first < width) {
                for (std::size_t k = 0; first + k < size; ++k) {
                    last.prefix[k] = weights[k], last.logits[k] = places[k], last.survived[k] = survived[k];
                }
                weights = last.prefix, places = last.logits, survived = last.survived;
            }
            vec const a = narrow_isa::load(weights) * sigmoid(narrow_isa::load(places), factor);
            ints const low = narrow_isa::integers(narrow_isa::multiply_add(a, count, below));
            ints const high =
                narrow_isa::integers(narrow_isa::min(narrow_isa::multiply_add(a, count, above), last_bin));
            narrow_isa::put(bin + first, low);
            ints const whole = narrow_isa::nearest(a * narrow_isa::fill(static_cast<float>(one)));
            narrow_isa::put(gap + first, narrow_isa::labelled(whole, survived, labels.position, one));
            for (std::uint32_t close = narrow_isa::differ(low, high); close != 0; close &= close - 1) {
                std::size_t const at = first + static_cast<std::uint32_t>(__builtin_ctz(close));
                near[found++] = static_cast<std::uint32_t>(at);
                gap[at] = 0;
            }
        }
        // Beyond a last vector nothing was put down.
        constexpr std::size_t used = width < bin_copies ? width : bin_copies;
        std::int64_t* copies[used];
        for (std::size_t k = 0; k < used; ++k) copies[k] = sums + k * bins;
        for (std::size_t first = 0; first < size; first += used) {
            SURELEAP_DETAIL_UNROLL(8)
            for (std::size_t k = 0; k < used; ++k) {
                copies[k][static_cast<std::uint32_t>(bin[first + k])] += gap[first + k];
            }
        }
        return found;
    }

    static constexpr sample_kernels table(char const* name) {
        return {name,   samples::transpose, samples::survive,   samples::gaps, narrow,
                screen, samples::spread,    samples::log_losses};
    }
};

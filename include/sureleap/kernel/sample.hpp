// SPDX-License-Identifier: MIT
//
// What is computed of whole columns of calibration samples, as a table of functions in the manner of row.hpp: the
// reference here, vector code in sample_avx2.hpp, _avx512 and _neon, and the choice in sample_native.hpp. A fit goes over
// its samples some ten times a position, a naive one a hundred times. Most of that only tells temperatures apart that are
// far from each other in what they are worth, for which floats will do: twice as many in a register, half the memory. So
// there are passes in double, `survive` and `gaps`, and one in float, `screen`.
//
// A sample of position k is the survival of its prefix, in [0, 1], the logit at k, which may be infinite but not NaN, and
// how many positions it survived altogether: its label at k is 1 iff that is more than k.
//
// All tables keep these promises, and the fits rest on them:
//   - a sigmoid is off by at most `sigmoid_error` in absolute terms, which is what survivals, their sums and the edges of
//     bins depend on; relative to itself a tiny one may be off by more;
//   - sigmoid(0) is 1/2, and no result lies outside [0, 1];
//   - a survival in float is off by at most `screen_error` from that of the doubles its arguments were rounded from;
//   - a logarithm of log_losses is off by at most 2^-50 of the larger of 1 and itself;
//   - sums are those of their terms up to rounding, in an order of the table's own.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <sureleap/config.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Most that a sigmoid of a table may be off by.
inline constexpr double sigmoid_error = 0x1p-50;

/// Most that a survival of `screen` may be off by. Roundings to float are 2^-24 of their result at most: prefix, sum, quotient
/// and product come to four of them; logit, factor and their product are rounded, and x sigmoid'(x) < 0.224, which is one
/// altogether; 2^x is off by less than 5 of them, of which the sigmoid sees a quarter. That is less than 7, of 8.
inline constexpr double screen_error = 0x1p-21;

/// Temperatures that `screen` takes are between this and its inverse, so that nothing but a logit is beyond floats.
inline constexpr double least_screen_temperature = 0x1p-60;

/// Most bins that `screen` numbers: with more of them too many samples are close to an edge.
inline constexpr std::size_t most_screen_bins = 2048;

/// What a gap of `screen` is counted in.
inline constexpr double screen_unit = 0x1p-24;

/// What a weight of `spread` is counted in, and most samples of a call, so that sums stay within 32 bits.
inline constexpr double spread_unit = 0x1p-15;
inline constexpr std::size_t most_spread_samples = std::size_t{1} << 16;

/// Most samples of a call of `gaps` and `screen`, which find all places first, in memory of their own, and then add. Adding in
/// between takes a quarter longer: it waits for places that were stored as vectors and are loaded one by one.
inline constexpr std::size_t sample_block = 1024;

/// Copies of every bin that `gaps` and `screen` add to, so that one addition need not wait for the one before.
inline constexpr std::size_t bin_copies = 8;

/// Most bins that vector code numbers.
inline constexpr std::size_t most_vector_bins = std::size_t{1} << 30;

/// Labels of a column of samples at one position.
struct sample_labels {
    std::uint32_t const* survived;  ///< positions that each sample survived
    std::uint32_t position;         ///< label i is 1 iff survived[i] > position

    [[nodiscard]] double operator[](std::size_t i) const noexcept { return survived[i] > position ? 1.0 : 0.0; }
};

/// Passes over `size` samples.
struct sample_kernels {
    char const* name;

    /// Rows of any lengths, none longer than the one before, to columns: columns[k][i] = rows[i][k]. Returns whether nothing
    /// of it is NaN.
    bool (*transpose)(double const* const* rows, std::size_t const* lengths, std::size_t size, double* const* columns);
    /// out[i] = prefix[i] * sigmoid(logits[i] / temperature + offset); returns their sum. `out` may be `prefix`.
    double (*survive)(double const* prefix, double const* logits, std::size_t size, double temperature, double offset,
                      double* out);
    /// Adds survival - label to the sum of the survival's bin (probability_bin), in one of the copies that stand one after
    /// another in sums [bin_copies * bins]. At most sample_block samples. Those within `margin` < 1 of an edge between bins, in units of a bin, are not
    /// added: their indices go into near [size], and how many there are is returned.
    std::size_t (*gaps)(double const* survivals, sample_labels labels, std::size_t size, std::size_t bins,
                        double margin, double* sums, std::uint32_t* near);
    /// out[i] = values[i], rounded.
    void (*narrow)(double const* values, std::size_t size, float* out);
    /// `survive` and `gaps` in one, in float, without an offset; sums count in units of screen_unit, to which gaps are rounded.
    std::size_t (*screen)(float const* prefix, float const* logits, sample_labels labels, std::size_t size,
                          double temperature, std::size_t bins, double margin, std::int64_t* sums, std::uint32_t* near);
    /// Splits every prefix between the two nodes next to its logit, by linear interpolation. Nodes stand evenly from
    /// `lowest` to `highest`, finite, and logits beyond count as there. What the two ends of every cell get is added to
    /// pairs [cells], the lower end's in the lower half of a word, in units of spread_unit: weights are rounded to them, and so
    /// is the upper end's part. At most most_spread_samples.
    void (*spread)(double const* prefix, double const* logits, std::size_t size, double lowest, double highest,
                   std::size_t cells, std::uint64_t* pairs);
    /// The sum of -log(x), where x is max(a, floor) if the label is 1 and 1 - min(a, 1 - floor) if it is 0. Lowers `least`
    /// to the least x.
    double (*log_losses)(double const* survivals, sample_labels labels, std::size_t size, double floor, double* least);
};

// ---- the reference ---------------------------------------------------------------------------------------------

namespace detail {

/// 2^(j/8).
inline constexpr double eighth_powers[8] = {1.0,
                                            1.0905077326652577,
                                            1.189207115002721,
                                            1.2968395546510096,
                                            1.4142135623730951,
                                            1.5422108254079407,
                                            1.681792830507429,
                                            1.8340080864093424};

struct scalar_samples {
    static bool transpose(double const* const* rows, std::size_t const* lengths, std::size_t size,
                          double* const* columns) {
        bool numbers = true;
        for (std::size_t i = 0; i < size; ++i) {
            for (std::size_t k = 0; k < lengths[i]; ++k) {
                columns[k][i] = rows[i][k];
                numbers &= !std::isnan(rows[i][k]);
            }
        }
        return numbers;
    }

    static double survive(double const* prefix, double const* logits, std::size_t size, double temperature,
                          double offset, double* out) {
        double total = 0.0;
        for (std::size_t i = 0; i < size; ++i) {
            out[i] = prefix[i] * (1.0 / (1.0 + std::exp(-(logits[i] / temperature + offset))));
            total += out[i];
        }
        return total;
    }

    static std::size_t gaps(double const* survivals, sample_labels labels, std::size_t size, std::size_t bins,
                            double margin, double* sums, std::uint32_t* near) {
        auto const count = static_cast<double>(bins);
        std::size_t found = 0;
        for (std::size_t i = 0; i < size; ++i) {
            double const place = survivals[i] * count;
            auto const bin = static_cast<std::size_t>(std::max(place - margin, 0.0));
            if (bin != static_cast<std::size_t>(std::min(place + margin, count - 1.0))) {
                near[found++] = static_cast<std::uint32_t>(i);
            } else {
                sums[bin] += survivals[i] - labels[i];
            }
        }
        return found;
    }

    static void narrow(double const* values, std::size_t size, float* out) {
        std::transform(values, values + size, out, [](double x) { return static_cast<float>(x); });
    }

    static std::size_t screen(float const* prefix, float const* logits, sample_labels labels, std::size_t size,
                              double temperature, std::size_t bins, double margin, std::int64_t* sums,
                              std::uint32_t* near) {
        auto const count = static_cast<float>(bins);
        auto const closest = static_cast<float>(margin);
        auto const factor = static_cast<float>(-1.0 / temperature);
        std::size_t found = 0;
        for (std::size_t i = 0; i < size; ++i) {
            float const a = prefix[i] * (1.0f / (1.0f + std::exp(logits[i] * factor)));
            float const place = a * count;
            auto const bin = static_cast<std::size_t>(std::max(place - closest, 0.0f));
            if (bin != static_cast<std::size_t>(std::min(place + closest, count - 1.0f))) {
                near[found++] = static_cast<std::uint32_t>(i);
            } else {
                sums[bin] += std::llrint((static_cast<double>(a) - labels[i]) / screen_unit);
            }
        }
        return found;
    }

    static void spread(double const* prefix, double const* logits, std::size_t size, double lowest, double highest,
                       std::size_t cells, std::uint64_t* pairs) {
        auto const count = static_cast<double>(cells);
        double const scale = count / (highest - lowest);
        for (std::size_t i = 0; i < size; ++i) {
            double const place = std::clamp((logits[i] - lowest) * scale, 0.0, count);
            double const cell = std::floor(std::min(place, count - 1.0));
            double const weight = prefix[i] / spread_unit;
            auto const upper = static_cast<std::uint64_t>(std::llrint(weight * (place - cell)));
            auto const both = static_cast<std::uint64_t>(std::llrint(weight));
            pairs[static_cast<std::size_t>(cell)] += (both - upper) + (upper << 32);
        }
    }

    static double log_losses(double const* survivals, sample_labels labels, std::size_t size, double floor,
                             double* least) {
        double total = 0.0;
        for (std::size_t i = 0; i < size; ++i) {
            double const a = survivals[i];
            double const x = labels[i] != 0.0 ? std::max(a, floor) : 1.0 - std::min(a, 1.0 - floor);
            *least = std::min(*least, x);
            total -= std::log(x);
        }
        return total;
    }
};

}  // namespace detail

/// The reference, on every machine.
inline constexpr sample_kernels scalar_sample_kernels{"scalar",
                                                      detail::scalar_samples::transpose,
                                                      detail::scalar_samples::survive,
                                                      detail::scalar_samples::gaps,
                                                      detail::scalar_samples::narrow,
                                                      detail::scalar_samples::screen,
                                                      detail::scalar_samples::spread,
                                                      detail::scalar_samples::log_losses};

SURELEAP_END_NAMESPACE

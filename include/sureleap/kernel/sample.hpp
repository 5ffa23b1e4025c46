// SPDX-License-Identifier: MIT
//
// What is computed of whole columns of calibration samples, as a table of functions in the manner of row.hpp: the
// reference here, vector code in sample_avx2.hpp and sample_avx512.hpp, and the choice in sample_native.hpp. A fit goes over
// its samples some ten times a position, a naive one a hundred times.
//
// A sample of position k is the survival of its prefix, in [0, 1], the logit at k, which may be infinite but not NaN, and
// how many positions it survived altogether: its label at k is 1 iff that is more than k.
//
// All tables keep these promises, and the fits rest on them:
//   - a sigmoid is off by at most `sigmoid_error` in absolute terms, which is what survivals, their sums and the edges of
//     bins depend on; relative to itself a tiny one may be off by more;
//   - sigmoid(0) is 1/2, and no result lies outside [0, 1];
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

/// Copies of every bin that `gaps` adds to, so that one addition need not wait for the one before.
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

    /// Whether none of `values` is NaN.
    bool (*numbers)(double const* values, std::size_t size);
    /// out[i] = prefix[i] * sigmoid(logits[i] / temperature + offset); returns their sum. `out` may be `prefix`.
    double (*survive)(double const* prefix, double const* logits, std::size_t size, double temperature, double offset,
                      double* out);
    /// Adds survival - label to the sum of the survival's bin (probability_bin), in one of the copies that stand one after
    /// another in sums [bin_copies * bins]. Samples within `margin` of an edge between bins, in units of a bin, are not
    /// added: their indices go into near [size], and how many there are is returned.
    std::size_t (*gaps)(double const* survivals, sample_labels labels, std::size_t size, std::size_t bins,
                        double margin, double* sums, std::uint32_t* near);
    /// Splits every prefix between the two nodes next to its logit, by linear interpolation. Nodes stand evenly from
    /// `lowest` to `highest`, finite, and logits beyond count as there; what the two ends of every cell get is added to
    /// pairs [cells].
    void (*spread)(double const* prefix, double const* logits, std::size_t size, double lowest, double highest,
                   std::size_t cells, double (*pairs)[2]);
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
    static bool numbers(double const* values, std::size_t size) {
        return std::none_of(values, values + size, [](double x) { return std::isnan(x); });
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
            double const edge = std::min(std::max(std::nearbyint(place), 1.0), count - 1.0);
            if (std::fabs(place - edge) <= margin) {
                near[found++] = static_cast<std::uint32_t>(i);
            } else {
                sums[static_cast<std::size_t>(std::min(place, count - 1.0))] += survivals[i] - labels[i];
            }
        }
        return found;
    }

    static void spread(double const* prefix, double const* logits, std::size_t size, double lowest, double highest,
                       std::size_t cells, double (*pairs)[2]) {
        auto const count = static_cast<double>(cells);
        double const scale = count / (highest - lowest);
        for (std::size_t i = 0; i < size; ++i) {
            double const place = std::clamp((logits[i] - lowest) * scale, 0.0, count);
            double const cell = std::floor(std::min(place, count - 1.0));
            double const upper = prefix[i] * (place - cell);
            double(&pair)[2] = pairs[static_cast<std::size_t>(cell)];
            pair[0] += prefix[i] - upper;
            pair[1] += upper;
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
                                                      detail::scalar_samples::numbers,
                                                      detail::scalar_samples::survive,
                                                      detail::scalar_samples::gaps,
                                                      detail::scalar_samples::spread,
                                                      detail::scalar_samples::log_losses};

SURELEAP_END_NAMESPACE

// SPDX-License-Identifier: MIT
//
// Where a truncation ends, if no rank has the whole row. Tokens are in the order (logit descending, id ascending). The
// cut is the last of the first k, or of the first whose mass reaches a part of all. Ranks find its logit digit by
// digit: each exchange tells how many tokens, with what mass, have each of the 256 next digits. Masses are whole
// numbers, so that sums are the same in any order.
//
// A row of floats takes four exchanges, of bf16 two, of doubles eight. Short lists of each rank's best tokens mostly
// hold the cut, and then there is no search (cuts.hpp).
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace detail {

/// A weight, 1 of the most probable token, in units of 2^-40. The sum of any row fits.
[[nodiscard]] inline std::uint64_t whole_mass(double weight) noexcept {
    return static_cast<std::uint64_t>(weight * 0x1p40 + 0.5);
}

/// The mass that a top-p keeps at least.
[[nodiscard]] inline std::uint64_t part_of(double top_p, double mass) noexcept {
    double const part = std::ceil(top_p * mass);
    return part > 1.0 ? static_cast<std::uint64_t>(part) : 1;
}

/// Logits as integers that ascend with them.
template <class Real>
struct ordered_key {
    using type = std::conditional_t<std::is_same_v<Real, double>, std::uint64_t, std::uint32_t>;
    static constexpr int bits = std::numeric_limits<type>::digits;

    [[nodiscard]] static type of(Real logit) noexcept {
        auto const x = std::bit_cast<type>(logit + Real(0));  // of -0 and 0 one
        return (x >> (bits - 1)) != 0 ? static_cast<type>(~x) : static_cast<type>(x | type{1} << (bits - 1));
    }
    [[nodiscard]] static Real logit(type key) noexcept {
        bool const negative = (key >> (bits - 1)) == 0;
        return std::bit_cast<Real>(negative ? static_cast<type>(~key)
                                            : static_cast<type>(key & ~(type{1} << (bits - 1))));
    }
};

/// The least logit whose weight beside `top` is at least min_p: where min-p cuts.
template <class Real>
[[nodiscard]] Real least_logit(double min_p, Real top, Real scale) noexcept {
    using key = ordered_key<Real>;
    auto const keeps = [&](typename key::type k) {
        double const below = static_cast<double>(key::logit(k)) - static_cast<double>(top);
        return std::exp(below * static_cast<double>(scale)) >= min_p;
    };
    typename key::type high = key::of(top);  // whose weight is 1
    typename key::type low = key::of(std::numeric_limits<Real>::lowest());
    while (low < high) {
        auto const middle = static_cast<typename key::type>(low + (high - low) / 2);
        if (keeps(middle)) {
            high = middle;
        } else {
            low = static_cast<typename key::type>(middle + 1);
        }
    }
    return key::logit(high);
}

/// Tokens with one digit.
struct cut_bin {
    std::uint64_t count = 0;
    std::uint64_t mass = 0;
};
inline constexpr std::size_t cut_bins = 256;

/// The search in one row: how much is to be kept, and the leading digits of the last token's logit.
template <class Real>
class cut_search {
    using key = ordered_key<Real>;
    using key_type = typename key::type;
    static constexpr int digit = std::countr_zero(cut_bins);

public:
    cut_search() = default;
    /// For the first `count` tokens.
    [[nodiscard]] static cut_search of_count(std::uint64_t count) noexcept { return cut_search{count, true}; }
    /// For the first ones that have so much mass together.
    [[nodiscard]] static cut_search of_mass(std::uint64_t mass) noexcept { return cut_search{mass, false}; }

    /// For the first ones that have the part top_p of the mass of all.
    [[nodiscard]] static cut_search of_part(double top_p) noexcept {
        cut_search search{0, false};
        search.part_ = top_p;
        return search;
    }

    /// The logit may be the last one's.
    [[nodiscard]] bool is_open(Real logit) const noexcept {
        return left_ == key::bits || key::of(logit) >> left_ == prefix_;
    }
    [[nodiscard]] std::size_t bin(Real logit) const noexcept {
        return static_cast<std::size_t>(key::of(logit) >> (left_ - digit)) % cut_bins;
    }
    /// What all ranks counted. `zeros`: last bits that are 0 in every number of the row's format. True if the logit is
    /// known now. Where there is less than what is to be kept, it is the least of all.
    [[nodiscard]] bool go_on(std::span<cut_bin const> bins, int zeros) noexcept {
        if (part_ > 0.0) {  // these are all tokens
            std::uint64_t mass = 0;
            for (cut_bin const& bin : bins) mass += bin.mass;
            wanted_ = part_of(std::exchange(part_, 0.0), static_cast<double>(mass));
        }
        std::size_t last = cut_bins;
        for (std::size_t i = cut_bins; i-- > 0;) {
            if (bins[i].count == 0) continue;
            if (last < cut_bins) pass(bins[last]);
            last = i;
            if (kept_ + amount(bins[i]) >= wanted_) break;
        }
        here_ = last < cut_bins ? bins[last] : cut_bin{};
        left_ -= digit;
        prefix_ = static_cast<key_type>(prefix_ << digit | static_cast<key_type>(last % cut_bins));
        if (left_ > zeros && here_.count > 0) return false;
        bool const negative = (prefix_ >> (key::bits - 1 - left_)) == 0;  // whose last bits are inverted
        auto const end = static_cast<key_type>((key_type{1} << left_) - 1);
        prefix_ = static_cast<key_type>(prefix_ << left_ | (negative ? end : key_type{0}));
        return true;
    }
    [[nodiscard]] Real logit() const noexcept { return key::logit(prefix_); }
    /// How many tokens with the logit are kept, one at least.
    [[nodiscard]] std::uint64_t equals() const noexcept {
        if (here_.count == 0) return 0;
        std::uint64_t const each = by_count_ ? 1 : here_.mass / here_.count;
        std::uint64_t const missing = wanted_ > kept_ ? wanted_ - kept_ : 0;
        std::uint64_t const some = each == 0 ? here_.count : (missing + each - 1) / each;
        return some < 1 ? 1 : some > here_.count ? here_.count : some;
    }
    /// The mass of all that is kept.
    [[nodiscard]] std::uint64_t mass() const noexcept {
        return mass_ + (here_.count == 0 ? 0 : here_.mass / here_.count * equals());
    }

private:
    cut_search(std::uint64_t wanted, bool by_count) noexcept : wanted_(wanted), by_count_(by_count) {}
    [[nodiscard]] std::uint64_t amount(cut_bin const& bin) const noexcept { return by_count_ ? bin.count : bin.mass; }
    void pass(cut_bin const& bin) noexcept {
        kept_ += amount(bin);
        mass_ += bin.mass;
    }

    std::uint64_t wanted_ = 0;
    bool by_count_ = true;
    double part_ = 0.0;       // of the mass, before that is known
    std::uint64_t kept_ = 0;  // of what is wanted, by tokens with larger digits
    std::uint64_t mass_ = 0;
    key_type prefix_ = 0;
    int left_ = key::bits;
    cut_bin here_{};
};

}  // namespace detail
SURELEAP_END_NAMESPACE

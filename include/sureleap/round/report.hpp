// SPDX-License-Identifier: MIT
//
// What speculation was worth: counts of rounds and tokens, acceptance by position.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <sureleap/core/config.hpp>
#include <sureleap/verify/verdict.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Accumulates verdicts. Allocates at construction only. Rounds are counted per request: a step with R requests is one
/// target call and R rounds. Positions from block_size() on are counted in totals alone: by position it says 0 of them.
class round_report {
public:
    round_report() = default;
    explicit round_report(std::size_t block_size)
        : verified_at_(block_size), reached_at_(block_size), accepted_at_(block_size) {}

    void record(std::span<verdict const> verdicts) noexcept {
        ++target_calls_;
        for (verdict const& v : verdicts) {
            if (v.outcome != status::ok) {
                ++failures_;
                continue;
            }
            ++rounds_;
            drafted_ += v.drafted;
            verified_ += v.verified;
            accepted_ += v.accepted;
            emitted_ += v.emitted.size();
            for (std::size_t k = 0; k < v.verified && k < verified_at_.size(); ++k) {
                ++verified_at_[k];
                if (v.reached(k)) ++reached_at_[k];
                if (v.kept(k)) ++accepted_at_[k];
            }
        }
    }

    [[nodiscard]] std::uint64_t target_calls() const noexcept { return target_calls_; }
    [[nodiscard]] std::uint64_t rounds() const noexcept { return rounds_; }
    [[nodiscard]] std::uint64_t failures() const noexcept { return failures_; }
    [[nodiscard]] std::uint64_t drafted() const noexcept { return drafted_; }
    [[nodiscard]] std::uint64_t verified() const noexcept { return verified_; }
    [[nodiscard]] std::uint64_t accepted() const noexcept { return accepted_; }
    [[nodiscard]] std::uint64_t emitted() const noexcept { return emitted_; }
    [[nodiscard]] std::size_t block_size() const noexcept { return verified_at_.size(); }

    /// Accepted length: emitted tokens a round, the bonus or correction included (paper, footnote 4).
    [[nodiscard]] double tau() const noexcept { return ratio(emitted_, rounds_); }
    [[nodiscard]] double tokens_per_target_call() const noexcept { return ratio(emitted_, target_calls_); }
    // Of trees, position k is the token that was grown k-th:

    /// P(x_{k+1} accepted | verified, and everything before it accepted): Figure 2 of the paper. 0 if never reached. In
    /// a tree, given that its parent was accepted and its elder siblings were not.
    [[nodiscard]] double conditional_acceptance(std::size_t k) const noexcept {
        return ratio(at(accepted_at_, k), at(reached_at_, k));
    }
    /// P(x_{k+1} accepted | verified): the prefix survival.
    [[nodiscard]] double survival(std::size_t k) const noexcept {
        return ratio(at(accepted_at_, k), at(verified_at_, k));
    }
    /// Rounds that reached position k: the weight of conditional_acceptance(k).
    [[nodiscard]] std::uint64_t reached(std::size_t k) const noexcept { return at(reached_at_, k); }

private:
    [[nodiscard]] static std::uint64_t at(std::vector<std::uint64_t> const& counts, std::size_t k) noexcept {
        return k < counts.size() ? counts[k] : 0;
    }
    [[nodiscard]] static double ratio(std::uint64_t part, std::uint64_t whole) noexcept {
        return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
    }

    std::uint64_t target_calls_ = 0;
    std::uint64_t rounds_ = 0;
    std::uint64_t failures_ = 0;
    std::uint64_t drafted_ = 0;
    std::uint64_t verified_ = 0;
    std::uint64_t accepted_ = 0;
    std::uint64_t emitted_ = 0;
    std::vector<std::uint64_t> verified_at_;
    std::vector<std::uint64_t> reached_at_;
    std::vector<std::uint64_t> accepted_at_;
};

SURELEAP_END_NAMESPACE

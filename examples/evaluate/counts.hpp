// SPDX-License-Identifier: MIT
//
// What rounds add up to, text by text and position by position.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "ratios.hpp"
#include "rounds.hpp"

namespace evaluate {

struct text_counts {
    std::uint64_t rounds = 0;
    std::uint64_t emitted = 0;
    std::uint64_t drafted = 0;
    std::uint64_t verified = 0;
    std::uint64_t accepted = 0;
    std::vector<std::uint64_t> reached{};      ///< [gamma] rounds in which all drafts before a position were accepted
    std::vector<std::uint64_t> accepted_at{};  ///< [gamma] and the one at the position, too
};

/// A drafter on the texts of a domain.
class domain_counts {
public:
    domain_counts(std::string name, std::size_t texts, std::size_t block_size)
        : name_(std::move(name)), block_size_(block_size), texts_(texts) {
        for (text_counts& t : texts_) {
            t.reached.resize(block_size);
            t.accepted_at.resize(block_size);
        }
    }

    void add(std::size_t text, round_outcome const& round) {
        text_counts& t = texts_[text];
        ++t.rounds;
        t.emitted += round.emitted;
        t.drafted += round.drafted;
        t.verified += round.verified;
        t.accepted += round.accepted;
        for (std::size_t k = 0; k < round.observed && k <= round.accepted; ++k) {
            ++t.reached[k];
            if (k < round.accepted) ++t.accepted_at[k];
        }
    }

    [[nodiscard]] std::string const& name() const noexcept { return name_; }
    [[nodiscard]] std::size_t block_size() const noexcept { return block_size_; }
    [[nodiscard]] std::vector<text_counts> const& texts() const noexcept { return texts_; }

    /// Tokens a round, the target's own included.
    [[nodiscard]] statistic tau() const { return ratio(&text_counts::emitted, &text_counts::rounds); }
    [[nodiscard]] statistic verified_a_round() const { return ratio(&text_counts::verified, &text_counts::rounds); }
    /// Of verified drafts, how many were kept.
    [[nodiscard]] statistic kept() const { return ratio(&text_counts::accepted, &text_counts::verified); }
    /// P(draft k + 1 is accepted | all before it were).
    [[nodiscard]] statistic conditional_acceptance(std::size_t k) const {
        std::vector<contribution> all;
        for (text_counts const& t : texts_) {
            all.push_back({static_cast<double>(t.accepted_at[k]), static_cast<double>(t.reached[k])});
        }
        return ratio_of_sums(all);
    }

    [[nodiscard]] nlohmann::ordered_json to_json() const {
        nlohmann::ordered_json json{{"domain", name_}, {"tau", tau().value()}};
        if (double const margin = tau().margin(); !std::isnan(margin)) json["tau_margin"] = margin;
        for (text_counts const& t : texts_) {
            json["texts"].push_back({t.rounds, t.emitted, t.drafted, t.verified, t.accepted});
            json["reached"].push_back(t.reached);
            json["accepted"].push_back(t.accepted_at);
        }
        return json;
    }
    /// What the numbers of a text in to_json are.
    [[nodiscard]] static nlohmann::ordered_json columns() {
        return {"rounds", "emitted", "drafted", "verified", "accepted"};
    }

private:
    using count = std::uint64_t text_counts::*;

    [[nodiscard]] statistic ratio(count over, count under) const {
        std::vector<contribution> all;
        for (text_counts const& t : texts_) {
            all.push_back({static_cast<double>(t.*over), static_cast<double>(t.*under)});
        }
        return ratio_of_sums(all);
    }

    std::string name_;
    std::size_t block_size_;
    std::vector<text_counts> texts_;
};

/// The same figure of every domain, and last their mean.
template <class F>
[[nodiscard]] std::vector<statistic> with_mean(std::vector<domain_counts> const& domains, F const& figure) {
    std::vector<statistic> all;
    for (domain_counts const& d : domains) all.push_back(figure(d));
    all.push_back(mean_over_domains(all));
    return all;
}

}  // namespace evaluate

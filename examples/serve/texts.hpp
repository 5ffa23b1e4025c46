// SPDX-License-Identifier: MIT
//
// What will be written, and how hard it is to draft: the part of a simulation that no policy can change.
//
// A text is a number. Its token at an absolute position, drafted at depth k of a block, is accepted with probability
//
//     logit c = centre_k + z + e        z ~ N(0, request_sd^2) of the text, e ~ N(0, token_sd^2) of the position
//
// where z and e are functions of (seed, text, position).
//
// Who sees how much of the variation: a share of it is in the hidden states, and known at the anchor; a larger share is
// known once the tokens before are drawn; the rest nobody knows, it is what makes a confidence head err. Estimates of
// the latter two kinds are calibrated, means of c over what is not known, unless `sharpness` and `bias` spoil them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace serve {

/// One position as the target and the drafter see it.
struct position_facts {
    double logit = 0;   ///< of the probability that the draft is accepted
    double live = 0;    ///< confidence once the tokens before it are drawn
    double anchor = 0;  ///< confidence before any is
    double draft = 0;   ///< logit of the draft's own probability of its favourite token
};

/// Where acceptance comes from.
class text_source {
public:
    text_source() = default;
    text_source(text_source const&) = delete;
    text_source& operator=(text_source const&) = delete;
    virtual ~text_source() = default;

    /// Depths 0 .. out.size()-1 of a block of `text` whose anchor stands at `position`.
    virtual void look(std::uint64_t text, std::uint64_t position, std::span<position_facts> out) const noexcept = 0;
    /// A number in [0, 1) of the text, spread evenly over consecutive texts, to choose its length by.
    [[nodiscard]] virtual double evenness(std::uint64_t text) const noexcept = 0;
    [[nodiscard]] virtual std::size_t block_size() const noexcept = 0;
};

/// Texts of one kind.
struct domain_settings {
    std::string name = "texts";
    std::vector<double> centre;  ///< centre_k by depth; the last one goes on
    double request_sd = 0.5;     ///< of logits, between texts
    double token_sd = 1.2;       ///< and between positions of a text
    double anchor_share = 0.5;   ///< of both variances together, known at the anchor; the text's part always is
    double live_share = 1.0;     ///< the same once the tokens before are drawn; at least anchor_share
    double sharpness = 1.0;      ///< reported confidences: logits times this
    double bias = 0.0;           ///< plus this
    double draft_noise = 1.0;    ///< sd of the draft's own logit around what is known live
};

/// From text `first` on, texts are of these domains in these proportions.
struct mix {
    std::uint64_t first = 0;
    std::vector<double> weights;  ///< [domains], not negative, at least one positive
};

/// E sigma(x + s N) for a standard normal N, by table; s = 0 is the logistic function itself.
class logistic_mean {
public:
    explicit logistic_mean(double sd);
    [[nodiscard]] double operator()(double x) const noexcept;

private:
    static constexpr double reach = 24.0;
    static constexpr double per_unit = 64.0;
    double sd_;
    std::vector<double> table_;  ///< at -reach .. reach; empty if sd is 0
};

/// centre_k such that blocks verified in full show the given acceptance rates by depth, each given that all before it
/// were accepted: hard texts take more rounds, survivors of a block are of easier texts, and both shift a rate away
/// from the mean of its logit. Throws if a rate is not in (0, 1).
[[nodiscard]] std::vector<double> centre_of(std::span<double const> acceptance, double request_sd, double token_sd);

/// Texts by formula.
class drawn_texts final : public text_source {
public:
    /// Throws sureleap::error for settings out of range, or if a mix is not over these domains.
    drawn_texts(std::vector<domain_settings> domains, std::vector<mix> mixes, std::size_t block_size,
                std::uint64_t seed);

    void look(std::uint64_t text, std::uint64_t position, std::span<position_facts> out) const noexcept override;
    [[nodiscard]] double evenness(std::uint64_t text) const noexcept override;
    [[nodiscard]] std::size_t block_size() const noexcept override { return block_size_; }
    /// Of which domain a text is.
    [[nodiscard]] std::size_t domain_of(std::uint64_t text) const noexcept;

private:
    struct domain {
        domain_settings settings;
        double request = 0;  // sd of z,
        double hidden = 0;   // of what of e is known at the anchor,
        double drafted = 0;  // of what is known live besides,
        double unknown = 0;  // and of the rest
        logistic_mean live{0};
        logistic_mean anchor{0};
    };
    struct text {
        domain const* of = nullptr;
        double request = 0;  // z
        std::uint64_t key = 0;
    };
    [[nodiscard]] text find(std::uint64_t index) const noexcept;

    std::vector<domain> domains_;
    std::vector<mix> mixes_;  // weights cumulated to 1
    std::size_t block_size_;
    std::uint64_t seed_;
};

/// A round of the reference engine: what was said of a block that was verified in full, and what became of it.
struct recorded_round {
    std::uint64_t text = 0;
    std::uint64_t position = 0;       ///< of the anchor
    std::vector<double> confidences;  ///< [drafted]
    std::size_t accepted = 0;
};

/// Texts as they were recorded: draft k of a block is accepted if it was in the round recorded at or next before its
/// anchor. Confidences at the anchor are the mean of their depth among rounds whose first confidence, which uses no
/// drafted token, was of the same tenth.
class recorded_texts final : public text_source {
public:
    /// Throws if there is no round, or if one has a confidence outside [0, 1] or accepted more than it drafted.
    recorded_texts(std::vector<recorded_round> rounds, std::size_t block_size, std::uint64_t seed);

    void look(std::uint64_t text, std::uint64_t position, std::span<position_facts> out) const noexcept override;
    [[nodiscard]] double evenness(std::uint64_t text) const noexcept override;
    [[nodiscard]] std::size_t block_size() const noexcept override { return block_size_; }

private:
    static constexpr std::size_t tenths = 10;

    std::vector<recorded_round> rounds_;      // by text, then by position
    std::vector<std::size_t> first_of_text_;  // into rounds_; one more than there are texts
    std::vector<double> tenth_ends_;          // [tenths - 1] of first confidences
    std::vector<double> anchor_means_;        // [tenths, gamma]
    std::size_t block_size_;
    std::uint64_t seed_;
};

}  // namespace serve

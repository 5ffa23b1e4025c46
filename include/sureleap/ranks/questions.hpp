// SPDX-License-Identifier: MIT
//
// What a request's decision waits for. A rule runs as it does alone, on every rank. Where it needs a number of other
// ranks it asks, and if nobody knows the answer yet, its outcome is void. Then the ranks exchange what was asked, of
// all requests at once, and the rule runs again from its beginning. Its draws are named by keys, so that it comes to
// the same questions, and further.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/core/workspace.hpp>
#include <sureleap/sampling/draw_key.hpp>
#include <sureleap/verify/draft_tree.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace detail {

/// One of them, and its answer.
struct rank_question {
    enum class kind : std::uint8_t {
        laws,    ///< the sums of all rows that a sum makes a law of, and the logits of the drafted tokens there
        best,    ///< the best tokens of each rank, of all rows that are truncated
        cut,     ///< `row` is the step: the next digits of where rows are cut that these do not tell
        kept,    ///< sums of what these rows keep
        modes,   ///< the first largest logit of every row of p
        drafts,  ///< the logits of the drafted tokens in p
        races,   ///< the winner of every row's race
        masses,  ///< of what is left behind row `row`, by parts; `of_q`: of q without rejected children
        token,   ///< drawn from p behind `row`, or from what is left there: of its part, by whom holds it
        logit,   ///< of `token` in row `row` of p
    };
    kind what = kind::laws;
    bool answered = false;
    bool of_q = false;
    bool of_rest = false;  ///< token: of what is left and not of p
    std::uint32_t row = 0;
    std::uint32_t part = 0;
    token_id token = no_token;
    double number = 0.0;  ///< the logit, or the sum of all masses
    double a = 1.0;       ///< left_in_slice, in probabilities
    double b = 0.0;
    double within = 0.0;  ///< where in the part; NaN: a draw of its own tells
    double mass = 0.0;    ///< that the part was said to have
    draw_key key{};
    std::span<rejected_child const> rejected{};
    std::span<double> masses{};  ///< [parts]

    [[nodiscard]] bool is_same(rank_question const& other) const noexcept {
        return what == other.what && of_q == other.of_q && of_rest == other.of_rest && row == other.row &&
               part == other.part && a == other.a && b == other.b && key == other.key &&
               rejected.size() == other.rejected.size() && (what != kind::logit || token == other.token);
    }
};

/// What a request has asked in this round.
class rank_questions {
public:
    rank_questions() = default;
    /// Room for the questions of any rule about so many drafted tokens, whose rows have so many parts.
    rank_questions(workspace& ws, std::size_t block_size, std::size_t parts) noexcept
        : all_(ws.take<rank_question>(6 * (block_size + 1) + most_steps)),
          masses_(ws.take<double>(2 * (block_size + 1), parts)),
          // Two questions behind each of the children of one node, and two to draw behind all of them.
          rejected_(ws.take<rejected_child>((block_size + 3) * block_size)) {}

    void begin() noexcept {
        step_ = 0;
        searches_ = false;
        count_ = 0;
        masses_taken_ = 0;
        rejected_taken_ = 0;
        run();
    }
    /// The rule begins to run.
    void run() noexcept { waits_ = is_void_ = false; }
    /// The rule asked what is not known, so that its outcome is none.
    [[nodiscard]] bool waits() const noexcept { return waits_; }
    /// It does not know what it would ask next: nothing more is asked until it runs again.
    void stop() noexcept { waits_ = is_void_ = true; }
    [[nodiscard]] bool is_stopped() const noexcept { return is_void_; }

    /// Cuts of rows are looked for, and how many exchanges that took.
    void search(bool goes_on) noexcept {
        searches_ = goes_on;
        ++step_;
    }
    [[nodiscard]] bool searches() const noexcept { return searches_; }
    [[nodiscard]] std::uint32_t step() const noexcept { return step_; }

    /// The answered question, or null if it waits.
    [[nodiscard]] rank_question const* ask(rank_question const& wanted) noexcept {
        if (is_void_) return nullptr;
        for (rank_question const& q : asked()) {
            if (!q.is_same(wanted)) continue;
            if (q.answered) return &q;
            waits_ = true;
            return nullptr;
        }
        waits_ = true;
        SURELEAP_EXPECTS(count_ < all_.size());
        rank_question& q = all_[count_++] = wanted;
        q.rejected = keep(wanted.rejected);
        if (q.what == rank_question::kind::masses) {
            SURELEAP_EXPECTS((masses_taken_ + 1) * masses_.size <= masses_.all.size());
            q.masses = masses_[masses_taken_++];
        }
        return nullptr;
    }
    [[nodiscard]] std::span<rank_question> asked() const noexcept { return all_.first(count_); }

private:
    static constexpr std::size_t most_steps = 20;  // of two searches in a row of doubles, and what is asked once

    [[nodiscard]] std::span<rejected_child const> keep(std::span<rejected_child const> children) noexcept {
        SURELEAP_EXPECTS(rejected_taken_ + children.size() <= rejected_.size());
        auto const place = rejected_.subspan(rejected_taken_, children.size());
        rejected_taken_ += children.size();
        for (std::size_t i = 0; i < children.size(); ++i) place[i] = children[i];
        return place;
    }

    std::span<rank_question> all_{};
    std::size_t count_ = 0;
    carved_rows<double> masses_{};
    std::size_t masses_taken_ = 0;
    std::span<rejected_child> rejected_{};
    std::size_t rejected_taken_ = 0;
    std::uint32_t step_ = 0;
    bool searches_ = false;
    bool waits_ = false;
    bool is_void_ = false;
};

}  // namespace detail
SURELEAP_END_NAMESPACE

// SPDX-License-Identifier: MIT
//
// Requests as a model of another vocabulary is told them: the text of a context in its own tokens. A text grows, and a
// token of it may change with what comes behind it: " th" and "e" are " the" to the model. So the last tokens are made
// again, back to a place where the tokenizer still says what it said before. The model finds that its context differs
// there, as it does behind drafts that were not accepted, and reads on from there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/sampling/shared_tokens.hpp>

SURELEAP_BEGIN_NAMESPACE

/// The text of a context in another tokenizer's tokens, kept from round to round.
///
/// If the tokenizer merges pairs by rank (byte-pair encoding), the tokens are those that it makes of the whole text.
/// Tokens a_1..a_i of one text and a_i, b.. of another one, which goes on behind a_i, are then the tokens of both
/// together: a merge over the border would have been made in the second text too. Of other tokenizers the text is the
/// same, and only the last tokens may be others.
class retokenised_text {
public:
    /// `begin`: tokens in front of every text.
    explicit retokenised_text(std::vector<token_id> begin = {})
        : tokens_(std::move(begin)), ends_(tokens_.size(), 0), begin_(tokens_.size()) {}

    /// Valid until the next call. O(context) to see what has changed; of that, and of few tokens before it, the text
    /// is encoded. Where `to` changed a text, it is encoded from there on.
    template <text_tokenizer From, text_tokenizer To>
    [[nodiscard]] std::span<token_id const> follow(std::span<token_id const> context, From const& from, To const& to) {
        std::size_t const same = known(context);
        if (same == of_.size() && same == context.size()) return tokens_;
        of_.resize(same);
        ends_of_.resize(same);
        text_.resize(same == 0 ? 0 : ends_of_.back());
        while (tokens_.size() > begin_ && ends_.back() > text_.size()) {
            tokens_.pop_back();
            ends_.pop_back();
        }
        for (token_id const x : context.subspan(same)) {
            text_ += from.text_of(x);
            of_.push_back(x);
            ends_of_.push_back(text_.size());
        }
        for (std::size_t back = 1;; back *= 2) {
            std::size_t const first = tokens_.size() - std::min(back, tokens_.size() - begin_);
            std::size_t const at = first == 0 ? 0 : ends_[first - 1];
            std::vector<token_id> const made = to.encode(std::string_view(text_).substr(at));
            bool const agrees = first < tokens_.size() && !made.empty() && made.front() == tokens_[first];
            if (!agrees && first > begin_) continue;
            tokens_.resize(first);
            ends_.resize(first);
            append(made, at, to);
            return tokens_;
        }
    }

    /// The last of these.
    [[nodiscard]] std::span<token_id const> tokens() const noexcept { return tokens_; }
    /// Tokens that a context has in common with the one before.
    [[nodiscard]] std::size_t known(std::span<token_id const> context) const noexcept {
        auto const end = std::mismatch(of_.begin(), of_.end(), context.begin(), context.end()).first;
        return static_cast<std::size_t>(end - of_.begin());
    }

private:
    static constexpr std::size_t unknown = std::numeric_limits<std::size_t>::max();  // beyond every end

    template <class To>
    void append(std::vector<token_id> const& made, std::size_t at, To const& to) {
        bool is_text = true;
        for (token_id const x : made) {
            std::string_view const piece = to.text_of(x);
            is_text = is_text && text_.compare(at, piece.size(), piece) == 0;
            at += is_text ? piece.size() : 0;
            tokens_.push_back(x);
            ends_.push_back(is_text ? at : unknown);
        }
    }

    std::vector<token_id> of_;          // the context
    std::vector<std::size_t> ends_of_;  // of its tokens, in the text
    std::string text_;
    std::vector<token_id> tokens_;
    std::vector<std::size_t> ends_;  // of these
    std::size_t begin_;
};

/// The texts of an engine's requests, by slot, and the requests as the draft's model sees them.
template <class Draft, class Target>
class told_requests {
public:
    told_requests(Draft draft, Target target, std::vector<token_id> begin)
        : draft_(std::move(draft)), target_(std::move(target)), begin_(std::move(begin)) {
        detail::expect_text_tokenizer<Draft>();
        detail::expect_text_tokenizer<Target>();
    }

    [[nodiscard]] Draft const& draft() const noexcept { return draft_; }
    [[nodiscard]] Target const& target() const noexcept { return target_; }

    /// The same requests, with contexts, anchors and positions in the draft's tokens; where there is no text yet, token
    /// 0 stands for it. One that drafts nothing has what it was told last. Needs request_view::context. Valid until the
    /// next call.
    [[nodiscard]] std::span<request_view const> tell(std::span<request_view const> requests) {
        static constexpr token_id nothing[] = {0};
        told_.assign(requests.begin(), requests.end());
        for (request_view& request : told_) {
            while (texts_.size() <= request.slot) texts_.emplace_back(begin_);
            retokenised_text& text = texts_[request.slot];
            bool const drafts = request.draft_cap(std::numeric_limits<std::size_t>::max()) > 0;
            request.context = drafts ? text.follow(request.context, target_, draft_) : text.tokens();
            if (request.context.empty()) request.context = nothing;
            request.anchor = request.context.back();
            request.position = request.context.size() - 1;
        }
        return told_;
    }

    /// Committed tokens before the anchor that were not told, in the target's tokens.
    [[nodiscard]] std::uint64_t unread(request_view const& request) const noexcept {
        std::uint64_t const told = request.slot < texts_.size() ? texts_[request.slot].known(request.context) : 0;
        return request.position - std::min(request.position, told);
    }

private:
    Draft draft_;
    Target target_;
    std::vector<token_id> begin_;
    std::vector<retokenised_text> texts_;
    std::vector<request_view> told_;
};

SURELEAP_END_NAMESPACE

// SPDX-License-Identifier: MIT
//
// Stages of a llama.cpp chain as an edit of rows: of every row the law that llama.cpp's own code makes of it, after the
// tokens that the stages have accepted, drafted ones among them. Users include sampler.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <llama.h>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace detail {

struct free_llama_sampler {
    void operator()(llama_sampler* stage) const noexcept { llama_sampler_free(stage); }
};
using owned_llama_sampler = std::unique_ptr<llama_sampler, free_llama_sampler>;

[[nodiscard]] inline std::string_view name_of(llama_sampler const* stage) noexcept {
    if (stage->iface == nullptr || stage->iface->name == nullptr) return "a stage without a name";
    return llama_sampler_name(stage);
}

/// Stages in their order, and all that they remember of accepted tokens.
class llama_stages {
public:
    llama_stages() = default;

    /// A copy of the stage, as it stands. Precondition: it can be cloned.
    void add(llama_sampler const* sampler) {
        stages_.push_back({owned_llama_sampler{llama_sampler_clone(sampler)}, name_of(sampler) == "grammar"});
        remembers_ = remembers_ || sampler->iface->accept != nullptr;
    }
    [[nodiscard]] llama_stages clone() const {
        llama_stages result;
        for (stage const& s : stages_) result.add(s.sampler.get());
        result.standing_ = standing_;
        return result;
    }

    [[nodiscard]] bool empty() const noexcept { return stages_.empty(); }
    /// Whether what they do depends on accepted tokens.
    [[nodiscard]] bool remembers() const noexcept { return remembers_; }

    /// What begins a text is no part of what a grammar describes.
    void accept_prompt(std::span<token_id const> prompt) {
        for (token_id const x : prompt) accept(x, false);
    }
    /// The next token of the text. llama.cpp aborts if a grammar is given a token that it forbids, so it is asked
    /// before.
    void accept(token_id x) noexcept { accept(x, true); }
    /// The last tokens were committed. Whatever they were drawn from, it was not what these stages leave, if one was
    /// cut.
    void require_sound() noexcept {
        if (standing_ == standing::cut) standing_ = standing::lost;
    }

    /// Edits the row of the next token; what the stages cut is -inf. `candidates` is scratch.
    void edit(std::span<float> row, std::vector<llama_token_data>& candidates) noexcept {
        if (standing_ == standing::lost) {
            std::fill(row.begin(), row.end(), std::numeric_limits<float>::quiet_NaN());
            return;
        }
        if (standing_ == standing::cut) return;
        constexpr float infinity = std::numeric_limits<float>::infinity();
        candidates.resize(row.size());
        bool is_law = false;  // samplers would not notice
        for (std::size_t v = 0; v < row.size(); ++v) {
            if (!(row[v] < infinity)) return;
            is_law = is_law || row[v] > -infinity;
            candidates[v] = {static_cast<llama_token>(v), row[v], 0.0F};
        }
        if (!is_law) return;
        llama_token_data_array array{candidates.data(), candidates.size(), -1, false};
        for (stage const& s : stages_) llama_sampler_apply(s.sampler.get(), &array);
        std::span<llama_token_data const> left{array.data, array.size};
        if (array.selected >= 0) left = left.subspan(static_cast<std::size_t>(array.selected), 1);
        std::fill(row.begin(), row.end(), -infinity);
        for (llama_token_data const& c : left) row[static_cast<std::size_t>(c.id)] = c.logit;
    }

private:
    struct stage {
        owned_llama_sampler sampler;
        bool is_grammar = false;
    };
    enum class standing {
        sound,
        cut,   ///< behind a token of probability 0, so no rule gets as far as the next row
        lost,  ///< a stage failed
    };

    void accept(token_id x, bool with_grammars) noexcept {
        if (standing_ != standing::sound) return;
        for (stage const& s : stages_) {
            if (!s.is_grammar || !with_grammars) continue;
            llama_token_data one{x, 0.0F, 0.0F};
            llama_token_data_array array{&one, 1, -1, false};
            llama_sampler_apply(s.sampler.get(), &array);
            if (array.size == 0 || array.data[0].logit == -std::numeric_limits<float>::infinity()) {
                standing_ = standing::cut;
                return;
            }
        }
        for (stage const& s : stages_) {
            if (s.is_grammar && !with_grammars) continue;
            if (!accepts(s.sampler.get(), x)) standing_ = standing::lost;
        }
    }
    /// A lazy grammar throws if what triggers it does not begin a text of the grammar.
    [[nodiscard]] static bool accepts(llama_sampler* sampler, token_id x) noexcept {
#if SURELEAP_EXCEPTIONS
        try {
            llama_sampler_accept(sampler, x);
        } catch (...) {
            return false;
        }
#else
        llama_sampler_accept(sampler, x);
#endif
        return true;
    }

    std::vector<stage> stages_;
    standing standing_ = standing::sound;
    bool remembers_ = false;
};

/// The stages of one request through its rounds: after the committed tokens, and after a drafted prefix.
class llama_request_stages {
public:
    llama_request_stages(llama_stages committed, std::span<token_id const> prompt)
        : committed_(std::move(committed)), accepted_(prompt.size()), text_(prompt.begin(), prompt.end()) {}

    [[nodiscard]] bool empty() const noexcept { return committed_.empty(); }
    /// Whether this is the request that joined. Its seed stays, its position does not fall, and its text goes on from
    /// the prompt and from what was seen of it; without a context only the first two say. O(context).
    [[nodiscard]] bool are_of(request_view const& request) noexcept {
        if (seed_ && (request.seed != *seed_ || request.position < position_)) return false;
        auto const context = request.context;
        if (!context.empty()) {
            if (!begins(context, text_)) return false;
            text_.insert(text_.end(), context.begin() + static_cast<std::ptrdiff_t>(text_.size()), context.end());
        }
        seed_ = request.seed;
        position_ = request.position;
        return true;
    }

    /// Edits a row as a function of the committed tokens and `at.drafted`, whatever was asked before. Rows of a round
    /// in their order cost a clone of the stages in all, and none if nothing was drafted.
    void edit(hook_context const& at, std::span<float> row) noexcept {
        if (!committed_.remembers()) return committed_.edit(row, candidates_);
        auto const context = at.request.context;
        if (context.size() < accepted_) {  // models that keep their own, or another text
            std::fill(row.begin(), row.end(), std::numeric_limits<float>::quiet_NaN());
            return;
        }
        commit(context.subspan(accepted_));
        (at.drafted.empty() ? committed_ : behind(at.drafted)).edit(row, candidates_);
    }

private:
    void commit(std::span<token_id const> emitted) noexcept {
        if (emitted.empty()) return;
        accepted_ += emitted.size();
        if (begins(emitted, prefix_)) {  // what was drafted was accepted so far
            if (!prefix_.empty()) committed_ = std::move(ahead_);
            emitted = emitted.subspan(prefix_.size());
        }
        prefix_.clear();
        for (token_id const x : emitted) committed_.accept(x);
        committed_.require_sound();
    }
    [[nodiscard]] llama_stages& behind(std::span<token_id const> drafted) noexcept {
        if (prefix_.empty() || !begins(drafted, prefix_)) {
            ahead_ = committed_.clone();
            prefix_.clear();
        }
        for (token_id const x : drafted.subspan(prefix_.size())) {
            ahead_.accept(x);
            prefix_.push_back(x);
        }
        return ahead_;
    }
    [[nodiscard]] static bool begins(std::span<token_id const> text, std::span<token_id const> prefix) noexcept {
        return prefix.size() <= text.size() && std::equal(prefix.begin(), prefix.end(), text.begin());
    }

    llama_stages committed_;
    std::size_t accepted_;                 // tokens of the context that committed_ has behind it, the prompt's too
    std::vector<token_id> text_;           // the context, as far as it was seen
    std::optional<std::uint64_t> seed_{};  // since the first round
    std::uint64_t position_ = 0;
    llama_stages ahead_;  // committed_ and prefix_ after it, if that is not empty
    std::vector<token_id> prefix_;
    std::vector<llama_token_data> candidates_;
};

}  // namespace detail
SURELEAP_END_NAMESPACE

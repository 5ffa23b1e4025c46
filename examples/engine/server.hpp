// SPDX-License-Identifier: MIT
//
// The engine's loop: requests wait, are prefilled in chunks, decode together and leave, each with its own settings.
//
// It calls the library's stages itself instead of using sureleap::decoder, as engines do whose loop has more to do than
// speculate. docs/engine.md walks through a round.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <sureleap/sureleap.hpp>

#include "draft_model.hpp"
#include "heads.hpp"
#include "parts.hpp"
#include "phase_times.hpp"
#include "row_acceptor.hpp"
#include "sequence.hpp"
#include "target.hpp"
#include "thread_pool.hpp"

namespace engine {

/// What happened to one request in the last step. Views are valid until the next step.
struct server_event {
    request_id id = 0;
    std::span<token_id const> tokens{};
    sureleap::status outcome = sureleap::status::ok;  ///< anything else ends the request
    bool finished = false;                            ///< its last event
};

/// Real: numbers of models and rounds. Rng: sureleap::randomness.
template <class Real, class Rng = sureleap::philox_randomness>
class server {
    using memory_type = sureleap::round_memory<Real, Real>;
    static constexpr bool takes_slices = std::is_same_v<Rng, sureleap::philox_randomness>;

public:
    /// The models must outlive the server, and are its own: nobody else's requests are in their slots. A drafter of
    /// trees gets the rule that does for trees what `rule` does for chains. `observer` is the model inside the drafter,
    /// if it feeds on features; it has the target's limits. A drafter that needs no features has none. `constrained`:
    /// requests may have a constraint or min_new_tokens.
    server(target<Real>& served, any_drafter<Real>& drafter, draft_model<Real>* observer,
           sureleap::any_schedule schedule, sureleap::any_rule const& rule, thread_pool& pool, Rng rng = {},
           bool constrained = false)
        : target_(served),
          drafter_(drafter),
          observer_(observer),
          schedule_(std::move(schedule)),
          rule_(traits_of(drafter).drafts_trees ? rule.for_trees() : rule),
          rng_(std::move(rng)),
          calibration_(calibration_of(observer, block_size())),
          clock_(served.ranks(), now),
          memory_(make_memory(
              {.max_requests = served.limits().slots,
               .executor = pool,
               .calibration = calibration_ ? sureleap::calibration_ref(*calibration_) : sureleap::calibration_ref(),
               .clock = clock_,
               .constrained = constrained})),
          constrained_(constrained),
          report_(block_size()),
          slots_(served.limits().slots),
          held_(slots_.size()),
          views_(slots_.size()),
          events_(slots_.size()) {
        if (served.ranks() != nullptr) {
            if (!takes_slices) sureleap::fail_with("server: ranks draw by philox_randomness, expected no other");
            acceptor_.emplace(*served.ranks(), served.slices(), slots_.size(), block_size(), constrained, pool);
        }
        std::size_t const rows = slots_.size() * (block_size() + 1);
        if (rows > target_.limits().max_rows) {
            sureleap::fail_with(
                "server: a verify batch may have ", rows, " rows (", slots_.size(),
                " slots x (gamma + 1)), expected at most the target's max_rows = ", target_.limits().max_rows);
        }
    }

    /// Queues a request. Throws if the prompt or the settings cannot be served.
    request_id submit(std::vector<token_id> prompt, request_settings const& settings) {
        sureleap::check_settings(settings, rule_.traits());
        if (settings.masks_rows() && !constrained_) {
            sureleap::fail_with(
                "server: the request has a constraint or min_new_tokens, expected a server that was made ",
                "with constrained = true");
        }
        if (prompt.empty()) sureleap::fail_with("server: the prompt is empty, expected at least one token");
        for (std::size_t i = 0; i < prompt.size(); ++i) {
            if (prompt[i] < 0 || static_cast<std::size_t>(prompt[i]) >= target_.vocabulary()) {
                sureleap::fail_with("server: prompt token ", i, " is ", prompt[i], ", expected 0 .. ",
                                    target_.vocabulary() - 1);
            }
        }
        std::size_t const context = target_.limits().context_length;
        if (prompt.size() > context || settings.max_new_tokens > context - prompt.size()) {
            sureleap::fail_with("server: a prompt of ", prompt.size(),
                                " tokens and max_new_tokens = ", settings.max_new_tokens, " do not fit a context of ",
                                context, " positions; shorten one of them or serve with a longer context");
        }
        waiting_.emplace_back(++last_id_, std::move(prompt), settings);
        return last_id_;
    }

    /// Ends a request wherever it is. Unknown ids, finished ones among them, are ignored. One whose round failed while
    /// it drafted takes part once more, because the others' lengths depend on it, and is not heard of.
    void leave(request_id id) {
        std::erase_if(waiting_, [&](sequence const& s) { return s.id() == id; });
        for (auto& slot : slots_) {
            if (!slot || slot->id() != id) continue;
            if (std::ranges::any_of(repeated(), [&](request_view const& v) { return v.id == id; })) {
                slot->leave();
            } else {
                slot.reset();
            }
        }
        auto const again = repeated();
        if (!std::ranges::all_of(again, [&](request_view const& v) { return slots_[v.slot]->leaves(); })) return;
        for (request_view const& v : again) {  // nobody is left to run that round again
            memory_.join(v.slot);
            slots_[v.slot].reset();
        }
    }

    /// From now on a prompt that begins like what was last in its slot is prefilled only where it goes on, as in a
    /// conversation. Nobody else may use the models between the requests.
    void keep_prompts() noexcept { keeps_prompts_ = true; }

    /// From the coming round on at most so many draft tokens a round for this request; 0: none. Unknown ids are
    /// ignored.
    void limit_drafts(request_id id, std::size_t most) noexcept {
        for (sequence& s : waiting_) {
            if (s.id() == id) s.limit_drafts(most);
        }
        for (auto& slot : slots_) {
            if (slot && slot->id() == id) slot->limit_drafts(most);
        }
    }

    /// From now on `cost`, which may be that of the schedule, is corrected by what every round took.
    void correct(learned_cost cost) noexcept { cost_ = std::move(cost); }

    /// One chunk of one prompt, if any waits, and one round of all requests that decode. False if there was nothing to
    /// do. If a model throws, nothing was committed: step again. A round that failed while it drafted comes first then,
    /// as it was.
    bool step() {
        event_count_ = 0;
        bool prefilled = false;
        if (!memory_.undecided()) {
            admit_waiting();
            prefilled = prefill_chunk();
            count_ = 0;
            for (std::size_t i = 0; i < slots_.size(); ++i) {
                if (slots_[i] && slots_[i]->decodes()) views_[count_++] = view(i);
            }
        }
        if (count_ == 0) return prefilled;
        round({views_.data(), count_});
        return true;
    }

    [[nodiscard]] std::span<server_event const> events() const noexcept { return {events_.data(), event_count_}; }
    [[nodiscard]] sureleap::round_report const& report() const noexcept { return report_; }
    [[nodiscard]] phase_times const& times() const noexcept { return times_; }
    /// The last round and its blocks, for whoever measures more than the report does. Settings of requests that ended
    /// in it are gone.
    [[nodiscard]] sureleap::round_record const& last_round() const noexcept { return last_; }
    [[nodiscard]] sureleap::draft_block<Real> const& last_block() const noexcept { return memory_.block(); }
    [[nodiscard]] std::size_t block_size() const {
        return std::visit([](auto const& d) { return d.block_size(); }, drafter_);
    }
    /// Prompt tokens of a request that have been through the models, for a progress display; 0 if it waits or is
    /// unknown.
    [[nodiscard]] std::size_t prefilled(request_id id) const noexcept {
        for (auto const& slot : slots_) {
            if (slot && slot->id() == id) return slot->prefilled();
        }
        return 0;
    }

private:
    [[nodiscard]] static double now() noexcept {
        return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    }

    // What the model's file has. Blocks may be longer than the model's, by found tokens, which no calibration sees.
    [[nodiscard]] static std::optional<sureleap::sequential_scaling> calibration_of(draft_model<Real> const* model,
                                                                                    std::size_t block_size) {
        if (model == nullptr || model->confidence_temperatures().empty()) return std::nullopt;
        auto const known = model->confidence_temperatures();
        std::vector<double> temperatures(std::max(block_size, known.size()), 1.0);
        std::ranges::copy(known, temperatures.begin());
        return sureleap::sequential_temperature_scaling(temperatures);
    }

    void admit_waiting() {
        for (std::size_t i = 0; i < slots_.size() && !waiting_.empty(); ++i) {
            if (slots_[i]) continue;
            observe_kept();  // some of it may be of the slot's last sequence
            sequence& s = slots_[i].emplace(std::move(waiting_.front()));
            s.settle();
            waiting_.pop_front();
            memory_.join(i);
            if (keeps_prompts_) s.was_prefilled(known_tokens(i));
            held_[i].clear();
        }
    }
    // How much of a prompt the caches of its slot have from the request before. An observer's row of a token was made
    // with the next one.
    [[nodiscard]] std::size_t known_tokens(std::size_t slot) const noexcept {
        auto const& held = held_[slot];
        auto const prompt = slots_[slot]->tokens();
        auto const end = std::mismatch(held.begin(), held.end(), prompt.begin(), prompt.end()).first;
        auto const same = static_cast<std::size_t>(end - held.begin());
        return std::min(observer_ != nullptr && same > 0 ? same - 1 : same, slots_[slot]->left_to_prefill());
    }

    bool prefill_chunk() {
        std::size_t chosen = slots_.size();
        for (std::size_t i = 0; i < slots_.size(); ++i) {
            if (!slots_[i] || slots_[i]->decodes()) continue;
            if (chosen == slots_.size() || slots_[i]->id() < slots_[chosen]->id()) chosen = i;
        }
        if (chosen == slots_.size()) return false;
        stopwatch const watch{times_.prefill};
        sequence& s = *slots_[chosen];
        std::size_t const first = s.prefilled();
        std::size_t const count = std::min(target_.limits().max_rows, s.left_to_prefill());
        target_.prefill(chosen, first, s.tokens().subspan(first, count));
        if (observer_ != nullptr) {
            observe_kept();
            for (std::size_t i = 0; i < count; ++i) append_row(chosen, first + i);
            observer_->observe(rows_, target_.features().data, s.tokens().subspan(first + 1, count));
            rows_.clear();
        }
        s.was_prefilled(count);
        return true;
    }

    [[nodiscard]] request_view view(std::size_t slot) const {
        sequence const& s = *slots_[slot];
        // A drafter that feeds on features was trained with anchors that the target had just chosen. The last token of
        // a prompt is none, so the first round is a plain step.
        bool const plain = observer_ != nullptr && s.generated() == 0;
        request_view request = s.view(slot, plain);
        request.unread =
            std::visit([&](auto const& drafter) { return sureleap::draft_unread(drafter, request); }, drafter_);
        return request;
    }

    // Every drafter and every rule meet their rows in these. They stand below the class: whoever relies on server.cpp
    // must not compile them again, as bodies inside a class would be.
    [[nodiscard]] memory_type make_memory(sureleap::round_limits const& limits);
    void round(std::span<request_view const> requests);
    template <class D>
    void draft(D& drafter);

    void accept_rows(sureleap::logits_rows<Real> const& rows) {
        if constexpr (takes_slices) {
            if (acceptor_) return (*acceptor_)(rule_, rows, rng_, memory_);
        }
        sureleap::accept(rule_, rows, sureleap::no_logits_hook{}, rng_, memory_);
    }

    // The requests of a round that failed while it drafted; none if there was no such.
    [[nodiscard]] std::span<request_view const> repeated() const noexcept {
        return {views_.data(), memory_.undecided() ? count_ : 0};
    }
    // Nothing before this has changed a request, and nothing in it may fail: the round is over.
    void commit(std::span<sureleap::verdict const> verdicts) noexcept {
        target_.commit(verdicts);
        if (observer_ != nullptr) {
            stopwatch const watch{times_.draft};
            keep_emitted(verdicts);
        }
        stopwatch const watch{times_.accept};
        std::visit([&](auto& drafter) { sureleap::commit_to(drafter, verdicts, memory_); }, drafter_);
        report_.record(verdicts);
        for (auto const& v : verdicts) {
            sequence& s = *slots_[v.slot];
            if (s.leaves()) {
                slots_[v.slot].reset();
                continue;
            }
            s.append(v.emitted);
            bool const finished = v.outcome != sureleap::status::ok || v.finished != sureleap::finish_reason::none;
            events_[event_count_++] = {v.id, v.emitted, v.outcome, finished};
            if (!finished) continue;
            if (keeps_prompts_)
                held_[v.slot].assign(s.tokens().begin(), s.tokens().end() - 1);  // the last was no anchor
            slots_[v.slot].reset();
        }
    }
    // Every emitted token made one row of the batch past: the anchor's and those of the accepted drafts, while the
    // token emitted last is the next anchor. The drafter's model is told of them when somebody drafts next: many at
    // once cost little more than one, and while nobody drafts they cost nothing.
    void keep_emitted(std::span<sureleap::verdict const> verdicts) {
        auto const features = target_.features();
        for (std::size_t r = 0; r < verdicts.size(); ++r) {
            std::size_t const first = memory_.batch().first_row(r);
            for (std::size_t k = 0; k < verdicts[r].emitted.size(); ++k) {
                std::size_t const at = first + verdicts[r].row(k);
                append_row(verdicts[r].slot, memory_.batch().positions()[at]);
                auto const row = features.row(at);
                kept_features_.insert(kept_features_.end(), row.begin(), row.end());
                next_tokens_.push_back(verdicts[r].emitted[k]);
            }
        }
    }
    void observe_kept() {
        if (!rows_.empty()) observer_->observe(rows_, kept_features_.data(), next_tokens_);
        rows_.clear();
        kept_features_.clear();
        next_tokens_.clear();
    }
    void append_row(std::size_t slot, std::size_t position) {
        rows_.push_back({static_cast<std::uint32_t>(slot), static_cast<std::uint32_t>(position), 0});
    }

    target<Real>& target_;
    any_drafter<Real>& drafter_;
    draft_model<Real>* observer_;
    sureleap::any_schedule schedule_;
    std::optional<learned_cost> cost_;
    sureleap::any_rule rule_;
    Rng rng_;
    std::optional<sureleap::sequential_scaling> const calibration_;  // lent to memory_
    rank_clock const clock_;                                         // as well
    memory_type memory_;
    std::optional<row_acceptor<Real>> acceptor_;  // of a target that ranks compute
    bool constrained_;
    sureleap::round_record last_;
    sureleap::round_report report_;
    phase_times times_;
    std::deque<sequence> waiting_;
    std::vector<std::optional<sequence>> slots_;
    std::vector<std::vector<token_id>> held_;  // by slot: what its caches know of a request that has finished
    bool keeps_prompts_ = false;
    std::vector<request_view> views_;
    std::size_t count_ = 0;  // of the last round
    std::vector<server_event> events_;
    std::size_t event_count_ = 0;
    request_id last_id_ = 0;
    std::vector<batch_row> rows_;
    std::vector<Real> kept_features_;
    std::vector<token_id> next_tokens_;
};

template <class Real, class Rng>
auto server<Real, Rng>::make_memory(sureleap::round_limits const& limits) -> memory_type {
    return std::visit([&](auto const& drafter) -> memory_type { return {drafter, schedule_, rule_, limits}; },
                      drafter_);
}

template <class Real, class Rng>
void server<Real, Rng>::round(std::span<request_view const> requests) {
    bool const anybody_drafts = [&] {
        stopwatch const watch{times_.accept};
        return sureleap::begin_round(schedule_, requests, memory_);
    }();
    if (anybody_drafts) std::visit([&](auto& drafter) { draft(drafter); }, drafter_);
    auto const& batch = [&]() -> sureleap::verify_batch const& {
        stopwatch const watch{times_.accept};
        return sureleap::admit(schedule_, memory_);
    }();
    auto const rows = [&] {
        stopwatch const watch{times_.verify};
        return target_.score(batch);
    }();
    // A pass, so it may fail, and belongs before the commit.
    if (rows_.size() + target_.features().rows > target_.limits().max_rows) observe_kept();
    {
        stopwatch const watch{times_.accept};
        accept_rows(rows);
        last_ = sureleap::end_round(schedule_, memory_);
    }
    if (cost_) cost_->observe(last_);
    commit(last_.verdicts);
}

template <class Real, class Rng>
template <class D>
void server<Real, Rng>::draft(D& drafter) {
    auto const forward = [&] {
        stopwatch const watch{times_.draft};
        if (memory_.block().load().drafting > 0) observe_kept();  // else nobody asks the model
        return drafter.forward(memory_.requests());
    }();
    {
        stopwatch const watch{times_.accept};
        sureleap::plan(schedule_, drafter, forward, memory_);
    }
    stopwatch const watch{D::is_parallel ? times_.head : times_.draft};
    sureleap::draw(drafter, forward, rule_, rng_, memory_);
}

/// Every drafter and rule in float: compiled once, in server.cpp.
extern template class server<float>;

}  // namespace engine

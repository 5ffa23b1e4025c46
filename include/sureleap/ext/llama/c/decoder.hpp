// SPDX-License-Identifier: MIT
//
// The object behind sureleap_llama: the library's decoder over the adapters of ext/llama.hpp, one type for each kind of
// drafts. Rule and schedule are chosen at run time, as in rounds.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <sureleap/ext/llama/c/decoder.h>
#include <sureleap/c/cost.hpp>
#include <sureleap/c/handle.hpp>
#include <sureleap/c/parts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/decoder.hpp>
#include <sureleap/ext/llama/c/sources.hpp>
#include <sureleap/ext/llama/sampler.hpp>
#include <sureleap/ext/llama/target.hpp>
#include <sureleap/ext/llama/vocabulary.hpp>
#include <sureleap/schedule/any.hpp>
#include <sureleap/serving/never_lose.hpp>
#include <sureleap/traits.hpp>
#include <sureleap/verify/any.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace c {

/// Everything that can be said of options before anything is made of them.
inline void check_options(sureleap_llama_options const* options) {
    char const* const who = "sureleap_llama";
    expect_options(who, options);
    sureleap_llama_options const& o = *options;
    expect_given(who, "target", o.target);
    expect_choice(who, "lookup", o.lookup, 1);
    expect_choice(who, "rule", o.rule, SURELEAP_KEYED_COUPLING);
    expect_choice(who, "schedule", o.schedule, SURELEAP_RETROSPECTIVE);
    expect_choice(who, "never_lose", o.never_lose, 1);
    expect_size(who, "max_requests", o.max_requests, 1, 65536);
    expect_size(who, "block_size", o.block_size, 1, 1024);
    if (o.schedule == SURELEAP_TOP_K) expect_size(who, "lag", o.lag, 1, 2);
    if (o.draft != nullptr && o.dspark != nullptr) {
        fail_with(who, ": draft and dspark are both given, expected one of them: a request has one drafter");
    }
    if (o.draft == o.target) fail_with(who, ": draft is the target's context, expected one of its own, or null");
    expect_size(who, "tree_nodes", o.tree_nodes, 0, o.dspark == nullptr ? 0 : 1024);
    if (o.cost != nullptr && !handle<sureleap_cost>::lives(o.cost)) {
        fail_as(SURELEAP_INVALID_HANDLE, who, ": cost was destroyed, expected one that lives, or null");
    }
    if (o.dspark != nullptr && !handle<sureleap_llama_dspark>::lives(o.dspark)) {
        fail_as(SURELEAP_INVALID_HANDLE, who, ": dspark was destroyed, expected one that lives, or null");
    }
}

/// The chain of one request on its rows; those of others stay as they are.
struct llama_chains {
    llama_samplers samplers{};
    std::set<request_id> joined{};

    struct hook {
        llama_chains const* of;

        [[nodiscard]] bool touches(request_view const& request) const noexcept {
            return of->joined.contains(request.id) && of->samplers.hook().touches(request);
        }
        void operator()(hook_context const& at, std::span<float> row) const noexcept { of->samplers.hook()(at, row); }
    };

    void join(request_id id, llama_sampling const& sampling, std::span<token_id const> prompt) {
        samplers.join(id, sampling, prompt);
        joined.insert(id);
    }
    void leave(request_id id) noexcept {
        joined.erase(id);
        samplers.leave(id);
    }
};

/// A decoder behind its handle.
class llama_decoding {
public:
    llama_decoding(llama_decoding const&) = delete;
    llama_decoding& operator=(llama_decoding const&) = delete;
    virtual ~llama_decoding() = default;

    [[nodiscard]] request_id submit(sureleap_llama_request const& q) {
        char const* const who = "sureleap_llama_submit";
        if (q.prompt_count > 0) expect_given(who, "prompt", q.prompt);
        if (q.stop_token_count > 0) expect_given(who, "stop_tokens", q.stop_tokens);
        expect_size(who, "prompt_count", q.prompt_count, 1, std::size_t{1} << 31);
        expect_size(who, "stop_token_count", q.stop_token_count, 0, std::size_t{1} << 20);
        std::span<token_id const> const prompt{q.prompt, q.prompt_count};
        llama_sampling sampling;
        request_settings& s = sampling.settings;
        if (q.sampler != nullptr) {
            sampling = read_llama_chain(q.sampler, {.sees_prompt = q.sampler_sees_prompt != 0});
            sureleap_transform const& t = q.target;
            if (t.temperature != 1.0 || t.top_k != 0 || t.top_p != 1.0 || t.min_p != 0.0) {
                fail_with(who, ": there is a sampler, and target has temperature ", t.temperature, ", top_k ", t.top_k,
                          ", top_p ", t.top_p, " and min_p ", t.min_p,
                          ", expected 1, 0, 1 and 0: the chain says how tokens are sampled");
            }
        } else {
            s.temperature = q.target.temperature;
            s.top_k = q.target.top_k;
            s.top_p = q.target.top_p;
            s.min_p = q.target.min_p;
        }
        if (!(q.draft.temperature < 0.0)) {
            s.draft = transform{q.draft.temperature, q.draft.top_k, q.draft.top_p, q.draft.min_p};
        }
        if (q.seed != 0) s.seed = q.seed;
        s.max_new_tokens = q.max_new_tokens;
        s.max_draft_tokens = drafts_ ? q.max_draft_tokens : 0;
        s.priority = q.priority;
        s.log_probabilities = q.log_probabilities != 0;
        std::vector<token_id> stops(q.stop_tokens, q.stop_tokens + q.stop_token_count);
        if (q.stops_at_end != 0) stops.insert(stops.end(), ends_.begin(), ends_.end());
        s.stop_tokens = stops;  // which the decoder copies
        request_id const id = submit_to(prompt, s);
        if (sampling.needs_hook()) {
#if SURELEAP_EXCEPTIONS
            try {
                chains_.join(id, sampling, prompt);
            } catch (...) {
                cancel_in(id);
                throw;
            }
#else
            chains_.join(id, sampling, prompt);
#endif
        }
        return id;
    }
    void cancel(request_id id) {
        left_.reserve(left_.size() + 1);
        cancel_in(id);
        left_.push_back(id);  // a round that failed may be run with it once more
    }
    virtual void pause(request_id id) = 0;
    virtual void resume(request_id id) = 0;

    [[nodiscard]] std::span<sureleap_llama_event const> step() {
        if (cost_ != nullptr && !handle<sureleap_cost>::lives(cost_)) {
            fail_as(SURELEAP_INVALID_HANDLE,
                    "sureleap_llama_step: the cost that was lent is destroyed, expected it to outlive the decoder");
        }
        if (dspark_ != nullptr && !handle<sureleap_llama_dspark>::lives(dspark_)) {
            fail_as(SURELEAP_INVALID_HANDLE,
                    "sureleap_llama_step: the DSpark file is destroyed, expected it to outlive the decoder");
        }
        auto const events = step_in();
        for (request_id const id : left_) chains_.leave(id);
        left_.clear();
        events_.clear();
        for (request_event const& e : events) {
            events_.push_back({.id = e.request,
                               .tokens = e.tokens.data(),
                               .count = e.tokens.size(),
                               .log_probabilities = e.log_probabilities.empty() ? nullptr : e.log_probabilities.data(),
                               .outcome = static_cast<std::int32_t>(e.outcome),
                               .finished = static_cast<std::int32_t>(e.finished)});
            if (e.finished != finish_reason::none) chains_.leave(e.request);
        }
        return events_;
    }
    virtual void report(sureleap_llama_report& out) const = 0;

protected:
    explicit llama_decoding(sureleap_llama_options const& o)
        : cost_(o.cost),
          dspark_(o.dspark),
          drafts_(o.lookup != 0 || o.draft != nullptr || o.dspark != nullptr),
          ends_(llama_end_tokens(llama_model_get_vocab(llama_get_model(o.target)))) {
        events_.reserve(o.max_requests);
    }

    virtual request_id submit_to(std::span<token_id const> prompt, request_settings const& settings) = 0;
    virtual void cancel_in(request_id id) = 0;
    virtual std::span<request_event const> step_in() = 0;

    llama_chains chains_{};

private:
    sureleap_cost const* cost_;
    sureleap_llama_dspark const* dspark_;
    bool drafts_;
    std::vector<token_id> ends_;
    std::vector<request_id> left_{};  // since the last step
    std::vector<sureleap_llama_event> events_{};
};

/// Source: who drafts (sources.hpp).
template <class Source>
class llama_decoding_of final : public llama_decoding {
    using drafter_type = std::remove_reference_t<decltype(std::declval<Source&>().drafter())>;
    using decoder_type = decoder<llama_target&, drafter_type&, any_schedule, any_rule, llama_chains::hook>;

public:
    explicit llama_decoding_of(sureleap_llama_options const& o)
        : llama_decoding(o),
          source_(o),
          target_(o.target, source_.drafter(),
                  {.max_requests = o.max_requests, .first_sequence = o.first_sequence, .features = source_.features()}),
          decoder_(target_, source_.drafter(), schedule(o), rule(o),
                   decoder_options{.max_requests = o.max_requests,
                                   .max_tokens = target_.max_tokens(),
                                   .seed = o.seed != 0 ? std::optional(o.seed) : std::nullopt},
                   llama_chains::hook{&chains_}) {}

    void pause(request_id id) override { decoder_.pause(id); }
    void resume(request_id id) override { decoder_.resume(id); }
    void report(sureleap_llama_report& out) const override {
        round_report const& r = decoder_.report();
        request_counts const counts = decoder_.counts();
        out = {r.target_calls(), r.rounds(),       r.drafted(),    r.verified(),  r.accepted(),
               r.emitted(),      target_.passes(), counts.waiting, counts.placed, to_string(target_.outcome())};
    }

private:
    request_id submit_to(std::span<token_id const> prompt, request_settings const& settings) override {
        return decoder_.submit(prompt, settings);
    }
    void cancel_in(request_id id) override { decoder_.cancel(id); }
    std::span<request_event const> step_in() override {
        static_cast<void>(decoder_.step());
        return decoder_.events();
    }

    [[nodiscard]] static sureleap_round_options parts(sureleap_llama_options const& o) noexcept {
        sureleap_round_options parts{};
        parts.rule = o.rule;
        parts.schedule = o.schedule;
        parts.fixed_length = o.fixed_length;
        parts.threshold = o.threshold;
        parts.prior = o.prior;
        parts.lag = o.lag;
        return parts;
    }
    [[nodiscard]] any_rule rule(sureleap_llama_options const& o) const {
        any_rule const chosen = rule_of(parts(o));
        return o.tree_nodes > 0 ? chosen.for_trees() : chosen;
    }
    /// Refuses what would not keep the target's law before time is spent on measuring.
    [[nodiscard]] any_schedule schedule(sureleap_llama_options const& o) {
        sureleap_round_options of = parts(o);
        of.cost = o.cost;
        auto const traits = with_schedule(of, [](auto const& make) { return traits_of<decltype(make())>(); });
        misfit const found = misfit_of(traits_of(source_.drafter()), traits, rule(o).traits());
        if (found != misfit::none) fail_as(SURELEAP_NOT_LOSSLESS, to_string(found));
        bool const weighs = o.never_lose != 0 || o.schedule >= SURELEAP_GREEDY;
        if (weighs && of.cost == nullptr) of.cost = &timed_.emplace(timed(o));
        return with_schedule(of, [&](auto const& make) -> any_schedule {
            if (o.never_lose != 0) return never_lose{make(), cost_ref<any_cost>{of.cost->model}};
            return make();
        });
    }
    /// Times passes of the batches that rounds have, and of drafting.
    [[nodiscard]] sureleap_cost_options timed(sureleap_llama_options const& o) {
        std::size_t const most = std::min(o.max_requests * (source_.drafter().block_size() + 1), target_.max_tokens());
        sizes_.clear();
        for (std::size_t rows = 1; rows < most; rows += std::max<std::size_t>(1, rows / 4)) sizes_.push_back(rows);
        sizes_.push_back(most);
        auto const curve = profile([&](std::size_t rows) { target_.dry_run(rows); }, sizes_, timing);
        seconds_.clear();
        for (capacity_point const& p : curve.points()) seconds_.push_back(p.seconds);
        draft_prices const draft = source_.prices(o);
        sureleap_cost_options cost{};
        cost.kind = SURELEAP_COST_TABLE;
        cost.prices.draft_fixed = draft.fixed;
        cost.prices.drafting_request = draft.request;
        cost.prices.draft_token = draft.token;
        cost.prices.unread_token = draft.unread;
        cost.batch_tokens = sizes_.data();
        cost.seconds = seconds_.data();
        cost.points = sizes_.size();
        return cost;
    }

    Source source_;
    llama_target target_;
    std::vector<std::size_t> sizes_{};
    std::vector<double> seconds_{};
    std::optional<sureleap_cost> timed_{};
    decoder_type decoder_;
};

/// Throws where options or contexts will not do.
[[nodiscard]] inline std::unique_ptr<llama_decoding> make_llama_decoding(sureleap_llama_options const* options) {
    check_options(options);
    sureleap_llama_options const& o = *options;
    auto const made = [&]<class Source>(std::type_identity<Source>) -> std::unique_ptr<llama_decoding> {
        return std::make_unique<llama_decoding_of<Source>>(o);
    };
    auto const looking = [&](auto looks) {
        if (o.draft != nullptr) return made(std::type_identity<model_source<looks>>{});
        if (o.tree_nodes > 0) return made(std::type_identity<dspark_source<looks, true>>{});
        return made(std::type_identity<dspark_source<looks, false>>{});
    };
    if (o.draft == nullptr && o.dspark == nullptr) return made(std::type_identity<lookup_source>{});
    return o.lookup != 0 ? looking(std::true_type{}) : looking(std::false_type{});
}

}  // namespace c
SURELEAP_END_NAMESPACE

struct sureleap_llama {
    static constexpr std::uint64_t kind = 0x5355'5245'4c6c'616du;

    explicit sureleap_llama(sureleap_llama_options const* o) : does(sureleap::c::make_llama_decoding(o)) {}

    sureleap::c::handle<sureleap_llama> head{};
    std::unique_ptr<sureleap::c::llama_decoding> does;
};

// SPDX-License-Identifier: MIT
//
// The C entry points are the C++ adapter: the same events, round after round, whatever drafts, schedules, joins,
// leaves, fails and is sampled how. And what they refuse. 10,000 rounds in some twenty seconds, since each is computed
// twice; quickly a tenth of them.
#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sureleap/sureleap_llama.h>
#include <sureleap/ext/llama.hpp>
#include <sureleap/serving.hpp>
#include <sureleap/sureleap.hpp>

#include "llama/support/chains.hpp"
#include "llama/support/plain_text.hpp"
#include "llama/support/tiny_dspark.hpp"
#include "llama/support/tiny_models.hpp"
#include "llama/support/trees.hpp"
#include "support/scratch_folder.hpp"

using namespace sureleap;
using namespace support;

namespace {

constexpr std::uint32_t vocabulary = 40;
constexpr std::size_t most_requests = 3;
constexpr std::size_t gamma_most = 4;
constexpr std::size_t nodes = 6;

struct abort_after {
    long left = -1;  // negative: never

    static bool ask(void* self) {
        auto& left = static_cast<abort_after*>(self)->left;
        return left >= 0 && left-- == 0;
    }
};

/// Contexts of one side.
struct contexts {
    abort_after aborter{};
    tiny_context target{};
    tiny_context draft{};
};
/// `attach(params)` lends hidden states.
template <class Attach>
void make_contexts(contexts& c, tiny_model const& model, tiny_model const& small, Attach const& attach) {
    llama_context_params params = exact(tree_context_params());
    params.n_ctx = 512;
    params.abort_callback = &abort_after::ask;
    params.abort_callback_data = &c.aborter;
    attach(params);
    c.target = make_context(model, params);
    c.draft = make_context(small, exact(tiny_context_params()));
}

// ---- both sides ------------------------------------------------------------------------------------------------

struct event {
    request_id id = 0;
    std::vector<token_id> tokens{};
    std::vector<double> log_probabilities{};
    std::int32_t outcome = 0;
    std::int32_t finished = 0;

    [[nodiscard]] bool operator==(event const&) const = default;
};
struct counts {
    std::vector<std::uint64_t> numbers{};
    std::string pass{};

    [[nodiscard]] bool operator==(counts const&) const = default;
};

struct side {
    side() = default;
    side(side const&) = delete;
    side& operator=(side const&) = delete;
    virtual ~side() = default;
    /// 0: it was refused.
    virtual request_id submit(sureleap_llama_request const& q) = 0;
    virtual std::vector<event> step() = 0;
    virtual bool pause(request_id id) = 0;
    virtual bool resume(request_id id) = 0;
    virtual bool cancel(request_id id) = 0;
    [[nodiscard]] virtual counts report() = 0;
};

class c_side final : public side {
public:
    static std::unique_ptr<c_side> make(sureleap_llama_options const& options) {
        auto made = std::make_unique<c_side>();
        sureleap_error error{};
        auto const result =
            sureleap_llama_create(&options, made->memory_.data(), made->memory_.size(), &made->decoder_, &error);
        if (result == SURELEAP_OK) return made;
        INFO(error.text);
        REQUIRE(result == SURELEAP_NOT_LOSSLESS);
        return nullptr;
    }
    ~c_side() override {
        if (decoder_ != nullptr) CHECK(sureleap_llama_destroy(decoder_) == SURELEAP_OK);
    }
    request_id submit(sureleap_llama_request const& q) override {
        request_id id = 0;
        return sureleap_llama_submit(decoder_, &q, &id) == SURELEAP_OK ? id : 0;
    }
    std::vector<event> step() override {
        sureleap_llama_event const* events = nullptr;
        std::size_t count = 0;
        REQUIRE(sureleap_llama_step(decoder_, &events, &count) == SURELEAP_OK);
        std::vector<event> all;
        for (sureleap_llama_event const& e : std::span(events, count)) {
            all.push_back({e.id, {e.tokens, e.tokens + e.count}, {}, e.outcome, e.finished});
            if (e.log_probabilities != nullptr) {
                all.back().log_probabilities.assign(e.log_probabilities, e.log_probabilities + e.count);
            }
        }
        return all;
    }
    bool pause(request_id id) override { return sureleap_llama_pause(decoder_, id) == SURELEAP_OK; }
    bool resume(request_id id) override { return sureleap_llama_resume(decoder_, id) == SURELEAP_OK; }
    bool cancel(request_id id) override { return sureleap_llama_cancel(decoder_, id) == SURELEAP_OK; }
    counts report() override {
        sureleap_llama_report r{};
        REQUIRE(sureleap_llama_report_of(decoder_, &r) == SURELEAP_OK);
        return {{r.steps, r.rounds, r.drafted, r.verified, r.accepted, r.emitted, r.passes, r.waiting, r.placed},
                r.pass};
    }

private:
    std::vector<std::byte> memory_ = std::vector<std::byte>(sureleap_llama_bytes());
    sureleap_llama* decoder_ = nullptr;
};

/// As a C++ program of docs/llama_cpp.md has it.
template <class Drafter>
class cpp_side final : public side {
public:
    cpp_side(Drafter& drafter, llama_features* features, any_schedule schedule, any_rule const& rule,
             sureleap_llama_options const& o)
        : target_(o.target, drafter,
                  {.max_requests = o.max_requests, .first_sequence = o.first_sequence, .features = features}),
          decoder_(target_, drafter, std::move(schedule), rule,
                   decoder_options{.max_requests = o.max_requests, .max_tokens = target_.max_tokens(), .seed = o.seed},
                   samplers_.hook()),
          ends_(llama_end_tokens(llama_model_get_vocab(llama_get_model(o.target)))) {}

    request_id submit(sureleap_llama_request const& q) override {
        std::span const prompt(q.prompt, q.prompt_count);
        llama_sampling sampling;
        if (q.sampler != nullptr) {
            sampling = read_llama_chain(q.sampler, {.sees_prompt = q.sampler_sees_prompt != 0});
        } else {
            sampling.settings = {.temperature = q.target.temperature,
                                 .top_k = q.target.top_k,
                                 .top_p = q.target.top_p,
                                 .min_p = q.target.min_p};
        }
        auto& s = sampling.settings;
        if (q.draft.temperature >= 0.0) s.draft = transform{q.draft.temperature};
        if (q.seed != 0) s.seed = q.seed;
        s.max_new_tokens = q.max_new_tokens;
        s.max_draft_tokens = q.max_draft_tokens;
        s.priority = q.priority;
        s.log_probabilities = q.log_probabilities != 0;
        std::vector<token_id> stops(q.stop_tokens, q.stop_tokens + q.stop_token_count);
        if (q.stops_at_end != 0) stops.insert(stops.end(), ends_.begin(), ends_.end());
        s.stop_tokens = stops;
        try {
            request_id const id = decoder_.submit(prompt, s);
            samplers_.join(id, sampling, prompt);
            return id;
        } catch (error const&) {
            return 0;
        }
    }
    std::vector<event> step() override {
        decoder_.step();
        std::vector<event> all;
        for (request_event const& e : decoder_.events()) {
            all.push_back({e.request,
                           {e.tokens.begin(), e.tokens.end()},
                           {e.log_probabilities.begin(), e.log_probabilities.end()},
                           static_cast<std::int32_t>(e.outcome),
                           static_cast<std::int32_t>(e.finished)});
        }
        return all;
    }
    bool pause(request_id id) override {
        return knows(id, [&] { decoder_.pause(id); });
    }
    bool resume(request_id id) override {
        return knows(id, [&] { decoder_.resume(id); });
    }
    bool cancel(request_id id) override {
        return knows(id, [&] { decoder_.cancel(id); });
    }
    counts report() override {
        auto const& r = decoder_.report();
        auto const c = decoder_.counts();
        return {{r.target_calls(), r.rounds(), r.drafted(), r.verified(), r.accepted(), r.emitted(), target_.passes(),
                 c.waiting, c.placed},
                to_string(target_.outcome())};
    }

private:
    template <class Call>
    bool knows(request_id id, Call const& call) {
        if (!decoder_.knows(id)) return false;
        call();
        return true;
    }

    llama_target target_;
    llama_samplers samplers_{};
    decoder<llama_target&, Drafter&, any_schedule, any_rule, llama_logits_hook> decoder_;
    std::vector<token_id> ends_;
};

// ---- what they are made of -------------------------------------------------------------------------------------

enum class kind { none, looks, model, model_looks, dspark, trees_look };

[[nodiscard]] any_rule rule_of(sureleap_llama_options const& o) {
    any_rule const rule = [&]() -> any_rule {
        switch (o.rule) {
            case SURELEAP_BLOCK_VERIFICATION: return block_verification<>{};
            case SURELEAP_TARGET_MATCH: return target_match<>{};
            case SURELEAP_GREEDY_MATCH: return greedy_match{};
            case SURELEAP_KEYED_COUPLING: return keyed_coupling{};
            default: return token_rejection<>{};
        }
    }();
    return o.tree_nodes > 0 ? rule.for_trees() : rule;
}
template <class Cost>
[[nodiscard]] any_schedule schedule_of(sureleap_llama_options const& o, Cost const& cost) {
    auto const made = [&](auto schedule) -> any_schedule {
        if (o.never_lose != 0) return never_lose{std::move(schedule), cost};
        return schedule;
    };
    switch (o.schedule) {
        case SURELEAP_THRESHOLD: return made(threshold_schedule{o.threshold});
        case SURELEAP_SURVIVAL_THRESHOLD: return made(survival_threshold_schedule{o.threshold});
        case SURELEAP_GREEDY: return made(greedy_schedule{cost});
        case SURELEAP_TOP_K: return made(top_k_schedule<Cost>{cost, o.prior});
        case SURELEAP_PLANNED: return made(planned_schedule{cost});
        case SURELEAP_RETROSPECTIVE: return made(retrospective_schedule{cost});
        default: return made(fixed_schedule{o.fixed_length});
    }
}

/// Prices under which it depends on the load whether drafts pay.
class prices {
public:
    prices() : memory_(sureleap_cost_bytes()), cpp_(of_batch(capacity_table<>(points()), {.token = 0.01})) {
        std::vector<std::size_t> tokens;
        std::vector<double> seconds;
        for (capacity_point const& p : points()) {
            tokens.push_back(p.batch_tokens);
            seconds.push_back(p.seconds);
        }
        sureleap_cost_options o;
        sureleap_cost_options_init(&o);
        o.kind = SURELEAP_COST_TABLE;
        o.batch_tokens = tokens.data();
        o.seconds = seconds.data();
        o.points = tokens.size();
        o.prices.draft_token = 0.01;
        REQUIRE(sureleap_cost_create(&o, memory_.data(), memory_.size(), &c_, nullptr) == SURELEAP_OK);
    }
    prices(prices const&) = delete;
    prices& operator=(prices const&) = delete;
    ~prices() { static_cast<void>(sureleap_cost_destroy(c_)); }

    [[nodiscard]] sureleap_cost* c() const noexcept { return c_; }
    [[nodiscard]] auto cpp() const noexcept { return cost_ref{cpp_}; }

private:
    [[nodiscard]] static std::vector<capacity_point> points() { return {{1, 1.0}, {4, 1.1}, {8, 1.6}, {21, 3.0}}; }

    std::vector<std::byte> memory_;
    sureleap_cost* c_ = nullptr;
    batch_cost<capacity_table<>> cpp_;
};

/// Made once: models, a DSpark file for each side, contexts, prices.
class world {
public:
    world() : folder_("llama_c_entry"), memory_(sureleap_llama_dspark_bytes()) {
        tiny_options const shape{.layers = 2, .tokens = vocabulary, .sharpness = 1.0F};
        tiny_model const model = make_tiny(tiny_arch::llama, 7, shape);
        tiny_options near = shape;
        near.layers = 1;
        near.disturbance = 0.2F;
        tiny_model const small = make_tiny(tiny_arch::llama, 7, near);
        auto const file = (folder_ / "drafter.gguf").string();
        write_dspark(file, 8, {.tokens = vocabulary, .target_layers = {1}});
        cpp_dspark_.emplace(file);
        REQUIRE(sureleap_llama_dspark_create(file.c_str(), memory_.data(), memory_.size(), &c_dspark_, nullptr) ==
                SURELEAP_OK);
        make_contexts(cpp, model, small, [&](llama_context_params& params) { cpp_dspark_->attach(params); });
        make_contexts(c, model, small, [&](llama_context_params& params) {
            REQUIRE(sureleap_llama_dspark_attach(c_dspark_, &params) == SURELEAP_OK);
        });
    }
    ~world() {
        c.target.reset();
        CHECK(sureleap_llama_dspark_destroy(c_dspark_) == SURELEAP_OK);
    }
    world(world const&) = delete;
    world& operator=(world const&) = delete;

    [[nodiscard]] std::unique_ptr<side> by_c(kind of, sureleap_llama_options o, bool priced = true) {
        clear(c);
        o.target = c.target.get();
        if (of == kind::model || of == kind::model_looks) o.draft = c.draft.get();
        if (of == kind::dspark || of == kind::trees_look) o.dspark = c_dspark_;
        if (priced) o.cost = cost_.c();
        return c_side::make(o);
    }
    /// Null where the parts do not go together.
    [[nodiscard]] std::unique_ptr<side> by_cpp(kind of, sureleap_llama_options o) {
        clear(cpp);
        o.target = cpp.target.get();
        auto const made = [&]<class Drafter>(std::optional<Drafter>& drafter, llama_features* features,
                                             Drafter&& now) -> std::unique_ptr<side> {
            drafter.reset();
            drafter.emplace(std::move(now));
            auto schedule = schedule_of(o, cost_.cpp());
            auto const rule = rule_of(o);
            if (misfit_of(traits_of(*drafter), schedule.traits(), rule.traits()) != misfit::none) return nullptr;
            return std::make_unique<cpp_side<Drafter>>(*drafter, features, std::move(schedule), rule, o);
        };
        auto const model = [&] {
            draft_.emplace(cpp.draft.get(), llama_model_get_vocab(llama_get_model(o.target)),
                           llama_draft_options{.max_requests = o.max_requests, .block_size = o.block_size});
            return model_chains{*draft_, top1_confidence{}, draft_->options()};
        };
        auto const dspark = [&] {
            cpp_dspark_->serve(o.target, {.max_requests = o.max_requests, .block_size = o.block_size});
            return dspark_chains{*cpp_dspark_, cpp_dspark_->head(), cpp_dspark_->confidence(), cpp_dspark_->options()};
        };
        switch (of) {
            case kind::model: return made(model_, nullptr, model());
            case kind::model_looks: return made(model_looks_, nullptr, with_lookup<model_chains>(model()));
            case kind::dspark: return made(dspark_, &cpp_dspark_->features(), dspark());
            case kind::trees_look:
                return made(trees_look_, &cpp_dspark_->features(),
                            with_lookup<trees>(trees(dspark(), {.nodes = o.tree_nodes})));
            default:
                return made(
                    lookup_, nullptr,
                    lookup({.block_size = of == kind::none ? 1 : o.block_size, .target_vocabulary = vocabulary}));
        }
    }

    contexts c{};
    contexts cpp{};

private:
    using model_chains = autoregressive<llama_draft&, top1_confidence>;
    using dspark_chains =
        semi_autoregressive<llama_dspark&, llama_dspark::head_type const&, llama_dspark::confidence_type const&>;
    using trees = tree_drafter<dspark_chains>;

    static void clear(contexts const& of) {
        llama_memory_clear(llama_get_memory(of.target.get()), true);
        llama_memory_clear(llama_get_memory(of.draft.get()), true);
    }

    scratch_folder folder_;
    std::vector<std::byte> memory_;
    sureleap_llama_dspark* c_dspark_ = nullptr;
    std::optional<llama_dspark> cpp_dspark_{};
    prices cost_{};
    std::optional<lookup> lookup_{};
    std::optional<llama_draft> draft_{};
    std::optional<model_chains> model_{};
    std::optional<with_lookup<model_chains>> model_looks_{};
    std::optional<dspark_chains> dspark_{};
    std::optional<with_lookup<trees>> trees_look_{};
};

[[nodiscard]] owned_sampler chain_of(std::uint32_t seed) {
    switch (seed % 3) {
        case 0:
            return make_chain({llama_sampler_init_penalties(vocabulary, 6, 1.3F, 0.2F, 0.1F),
                               llama_sampler_init_top_k(9), llama_sampler_init_dist(seed)});
        case 1: return make_chain({llama_sampler_init_temp(0.9F), llama_sampler_init_dist(seed)});
        default:
            return make_chain(
                {llama_sampler_init_penalties(vocabulary, 64, 1.0F, 0.7F, 0.0F), llama_sampler_init_greedy()});
    }
}

/// What was met.
struct tally {
    std::size_t rounds = 0, accepted = 0, rejected = 0, failed = 0, finished = 0, refused = 0, chained = 0;
};

void run_both(world& w, kind of, sureleap_llama_options const& o, std::mt19937& random, std::size_t rounds,
              tally& seen) {
    auto const c = w.by_c(of, o);
    auto const cpp = w.by_cpp(of, o);
    REQUIRE((c == nullptr) == (cpp == nullptr));
    if (c == nullptr) {
        ++seen.refused;
        return;
    }
    std::vector<request_id> known;
    auto const submit = [&] {
        sureleap_llama_request q;
        sureleap_llama_request_init(&q);
        std::vector<token_id> prompt;
        std::size_t const size = 1 + random() % 12;
        for (std::size_t t = 0; t < size; ++t) {
            prompt.push_back(static_cast<token_id>(3 + (random() % 4 == 0 ? random() % 30 : t % 3)));
        }
        q.prompt = prompt.data();
        q.prompt_count = prompt.size();
        owned_sampler const chain = random() % 4 == 0 ? chain_of(static_cast<std::uint32_t>(random())) : nullptr;
        q.sampler = chain.get();
        q.sampler_sees_prompt = random() % 2;
        if (chain == nullptr) {
            q.target.temperature = o.rule == SURELEAP_GREEDY_MATCH || random() % 4 == 0 ? 0.0 : 0.9;
            if (random() % 3 == 0) q.target.top_p = 0.9;
            if (random() % 3 == 0) q.target.top_k = 12;
        } else {
            ++seen.chained;
        }
        if (random() % 3 == 0) q.draft.temperature = 0.7;
        q.seed = random() % 3 == 0 ? 0 : random();
        q.max_new_tokens = 1 + random() % 40;
        token_id const stop = static_cast<token_id>(random() % vocabulary);
        q.stop_tokens = &stop;
        q.stop_token_count = random() % 2;
        q.stops_at_end = random() % 2;
        if (random() % 5 == 0) q.max_draft_tokens = random() % 3;
        if (of == kind::none) q.max_draft_tokens = 0;  // what the C side does by itself
        q.priority = random() % 2 == 0 ? 1.0 : 2.5;
        q.log_probabilities = random() % 2;
        request_id const id = c->submit(q);
        REQUIRE(id == cpp->submit(q));
        if (id != 0) known.push_back(id);
    };
    for (std::size_t run = 0; run < rounds; ++run, ++seen.rounds) {
        while (known.size() < o.max_requests + random() % 2) submit();
        request_id const some = known[random() % known.size()];
        if (random() % 20 == 0) REQUIRE(c->pause(some) == cpp->pause(some));
        if (random() % 40 == 0) {
            REQUIRE(c->cancel(some) == cpp->cancel(some));
            std::erase(known, some);
        }
        if (random() % 8 == 0) {
            for (request_id const id : known) REQUIRE(c->resume(id) == cpp->resume(id));
        }
        w.c.aborter.left = w.cpp.aborter.left = random() % 12 == 0 ? static_cast<long>(random() % 100) : -1;
        auto const events = c->step();
        REQUIRE(events == cpp->step());
        REQUIRE(c->report() == cpp->report());
        w.c.aborter.left = w.cpp.aborter.left = -1;
        for (event const& e : events) {
            if (e.outcome != SURELEAP_REQUEST_OK) {
                ++seen.failed;
                REQUIRE(c->resume(e.id) == cpp->resume(e.id));
            }
            if (e.finished != SURELEAP_FINISHED_NONE) {
                ++seen.finished;
                std::erase(known, e.id);
            }
        }
    }
    auto const numbers = c->report().numbers;
    seen.accepted += numbers[4];
    seen.rejected += numbers[3] - numbers[4];
}

}  // namespace

TEST_CASE("the C entry points of llama.cpp do what the C++ adapter does, round after round") {
    std::uint32_t const seed = std::random_device{}();
    INFO("seed " << seed);
    std::mt19937 random(seed);
    world w;
    std::size_t const rounds = SURELEAP_TEST_QUICK ? 1000 : 10000;
    tally all;
    std::vector<tally> of_kind(6);
    for (std::size_t turn = 0; all.rounds < rounds; ++turn) {
        auto const of = static_cast<kind>(turn % 6);
        sureleap_llama_options o;
        sureleap_llama_options_init(&o);
        o.lookup = of == kind::looks || of == kind::model_looks || of == kind::trees_look;
        o.rule = static_cast<std::int32_t>(random() % 5);
        o.schedule = random() % 3 == 0 ? SURELEAP_FIXED : static_cast<std::int32_t>(random() % 7);
        o.never_lose = random() % 2;
        o.max_requests = 1 + random() % most_requests;
        o.block_size = 1 + random() % gamma_most;
        if (of == kind::trees_look) o.tree_nodes = 1 + random() % nodes;
        o.fixed_length = random() % 6;
        o.threshold = 0.05;
        o.prior = 0.6;
        o.seed = 1 + random();
        INFO("kind " << static_cast<int>(of) << ", rule " << o.rule << ", schedule " << o.schedule << ", never_lose "
                     << o.never_lose << ", requests " << o.max_requests << ", gamma " << o.block_size << ", nodes "
                     << o.tree_nodes);
        tally& seen = of_kind[static_cast<std::size_t>(of)];
        std::size_t const before = seen.rounds;
        run_both(w, of, o, random, 30, seen);
        all.rounds += seen.rounds - before;
    }
    for (tally const& t : of_kind) {
        CHECK(t.rounds > 0);
        all.accepted += t.accepted;
        all.rejected += t.rejected;
        all.failed += t.failed;
        all.finished += t.finished;
        all.refused += t.refused;
        all.chained += t.chained;
    }
    CHECK(of_kind[0].accepted + of_kind[0].rejected == 0);
    for (std::size_t k = 1; k < of_kind.size() && !SURELEAP_TEST_QUICK; ++k) CHECK(of_kind[k].accepted > 0);
    CHECK(all.accepted > rounds / 50);
    CHECK(all.rejected > rounds / 50);
    CHECK(all.failed > rounds / 100);
    CHECK(all.finished > rounds / 50);
    CHECK(all.refused > 0);
    CHECK(all.chained > rounds / 100);
}

TEST_CASE("the C entry points time passes where they are given no cost, and give the text of plain decoding") {
    world w;
    for (std::int32_t const lookup : {0, 1}) {
        for (std::size_t const nodes_now : {std::size_t{0}, nodes}) {
            sureleap_llama_options o;
            sureleap_llama_options_init(&o);
            std::vector<std::vector<event>> found;
            for (kind const of : {kind::none, kind::model, nodes_now > 0 ? kind::trees_look : kind::dspark}) {
                bool const nobody = of == kind::none;
                o.lookup = nobody ? 0 : lookup;
                o.tree_nodes = of == kind::trees_look ? nodes_now : 0;
                auto const decoder = w.by_c(of, o, false);
                REQUIRE(decoder != nullptr);
                sureleap_llama_request q;
                sureleap_llama_request_init(&q);
                token_id const prompt[] = {3, 4, 5, 3, 4, 5, 3};
                q.prompt = prompt;
                q.prompt_count = 7;
                q.seed = 11;
                q.max_new_tokens = 60;
                q.stops_at_end = 0;
                REQUIRE(decoder->submit(q) == 1);
                event whole;
                for (auto events = decoder->step(); !events.empty(); events = decoder->step()) {
                    whole.tokens.insert(whole.tokens.end(), events[0].tokens.begin(), events[0].tokens.end());
                }
                CHECK(whole.tokens.size() == 60);
                found.push_back({whole});
            }
            CHECK(found[1] == found[0]);
            CHECK(found[2] == found[0]);
        }
    }
}

TEST_CASE("the C entry points of llama.cpp refuse what will not do, and say why") {
    world w;
    std::vector<std::byte> memory(sureleap_llama_bytes());
    sureleap_llama_options good;
    sureleap_llama_options_init(&good);
    good.target = w.c.target.get();
    good.never_lose = 0;
    auto const refusal = [&](auto change, sureleap_result expected = SURELEAP_INVALID_ARGUMENT) {
        sureleap_llama_options o = good;
        change(o);
        sureleap_llama* made = nullptr;
        sureleap_error error{};
        CHECK(sureleap_llama_create(&o, memory.data(), memory.size(), &made, &error) == expected);
        CHECK(made == nullptr);
        return std::string(error.text);
    };
    CHECK(refusal([](auto& o) { o.struct_size = 8; }).find("struct_size is 8") != std::string::npos);
    CHECK(refusal([](auto& o) { o.target = nullptr; }) == "sureleap_llama: target is null, expected a pointer");
    CHECK(refusal([](auto& o) { o.rule = 5; }) == "sureleap_llama: rule is 5, expected 0 .. 4");
    CHECK(refusal([](auto& o) { o.max_requests = 999; }).find("n_seq_max = 128") != std::string::npos);
    CHECK(refusal([](auto& o) { o.tree_nodes = 4; }) == "sureleap_llama: tree_nodes is 4, expected 0 .. 0");
    CHECK(refusal([](auto& o) { o.draft = o.target; }).find("draft is the target's context") != std::string::npos);
    CHECK(refusal([](auto& o) { o.schedule = SURELEAP_GREEDY; }, SURELEAP_NOT_LOSSLESS).find("confidence") !=
          std::string::npos);
    // A second model whose context has one sequence.
    tiny_model const small = make_tiny(tiny_arch::llama, 7, {.layers = 1, .tokens = vocabulary});
    llama_context_params params = tiny_context_params();
    params.n_seq_max = 1;
    tiny_context const narrow = make_context(small, params);
    CHECK(refusal([&](auto& o) {
              o.draft = narrow.get();
              o.max_requests = 2;
          }).find("llama_draft: the sequences 0 .. 1 are needed") != std::string::npos);
    // A DSpark file whose hidden states come from another context.
    scratch_folder const folder("llama_c_entry_refused");
    auto const file = (folder / "drafter.gguf").string();
    write_dspark(file, 8, {.tokens = vocabulary});
    std::vector<std::byte> dspark_memory(sureleap_llama_dspark_bytes());
    sureleap_llama_dspark* dspark = nullptr;
    sureleap_error error{};
    REQUIRE(sureleap_llama_dspark_create(file.c_str(), dspark_memory.data(), dspark_memory.size(), &dspark, &error) ==
            SURELEAP_OK);
    CHECK(refusal([&](auto& o) { o.dspark = dspark; }).find("made without llama_features::attach") !=
          std::string::npos);
    CHECK(refusal([&](auto& o) {
              o.dspark = dspark;
              o.draft = narrow.get();
          }).find("draft and dspark are both given") != std::string::npos);
    CHECK(sureleap_llama_dspark_destroy(dspark) == SURELEAP_OK);
    CHECK(refusal([&](auto& o) { o.dspark = dspark; }, SURELEAP_INVALID_HANDLE).find("dspark was destroyed") !=
          std::string::npos);
    write_dspark(file, 8, {.tokens = 50});
    REQUIRE(sureleap_llama_dspark_create(file.c_str(), dspark_memory.data(), dspark_memory.size(), &dspark, &error) ==
            SURELEAP_OK);
    CHECK(refusal([&](auto& o) { o.dspark = dspark; }).find("the file was made for another target") !=
          std::string::npos);
    CHECK(sureleap_llama_dspark_destroy(dspark) == SURELEAP_OK);
    CHECK(sureleap_llama_dspark_create("nowhere.gguf", dspark_memory.data(), dspark_memory.size(), &dspark, &error) ==
          SURELEAP_INVALID_ARGUMENT);
    CHECK(std::string(error.text) == "nowhere.gguf: cannot be read, expected a GGUF file");

    // A decoder that lives, and a cost that no longer does.
    std::vector<std::byte> cost_memory(sureleap_cost_bytes());
    sureleap_cost_options prices_of;
    sureleap_cost_options_init(&prices_of);
    prices_of.prices.fixed = 1.0;
    sureleap_cost* cost = nullptr;
    REQUIRE(sureleap_cost_create(&prices_of, cost_memory.data(), cost_memory.size(), &cost, &error) == SURELEAP_OK);
    good.cost = cost;
    good.never_lose = 1;
    sureleap_llama* decoder = nullptr;
    REQUIRE(sureleap_llama_create(&good, memory.data(), memory.size(), &decoder, &error) == SURELEAP_OK);
    token_id const prompt[] = {3, 4, 999};
    sureleap_llama_request q;
    sureleap_llama_request_init(&q);
    q.prompt = prompt;
    q.prompt_count = 3;
    std::uint64_t id = 0;
    auto const text_of = [&](auto change) {
        sureleap_llama_request other = q;
        change(other);
        CHECK(sureleap_llama_submit(decoder, &other, &id) == SURELEAP_INVALID_ARGUMENT);
        return std::string(sureleap_llama_error(decoder));
    };
    CHECK(text_of([](auto&) {}) == "decoder: prompt token 2 is 999, expected 0 .. 39");
    q.prompt_count = 2;
    CHECK(text_of([](auto& r) { r.max_new_tokens = 600; }).find("may grow to 602 tokens") != std::string::npos);
    CHECK(text_of([](auto& r) { r.target.top_p = 0.0; }).find("top_p is 0") != std::string::npos);
    owned_sampler const random = make_chain({llama_sampler_init_xtc(0.5F, 0.1F, 1, 3), llama_sampler_init_dist(5)});
    owned_sampler const chain = make_chain({llama_sampler_init_top_k(5), llama_sampler_init_dist(5)});
    CHECK(text_of([&](auto& r) { r.sampler = random.get(); }).find("is \"xtc\"") != std::string::npos);
    CHECK(text_of([&](auto& r) {
              r.sampler = chain.get();
              r.target.temperature = 0.5;
          }).find("the chain says how tokens are sampled") != std::string::npos);
    CHECK(sureleap_llama_cancel(decoder, 77) == SURELEAP_INVALID_ARGUMENT);
    CHECK(sureleap_llama_submit(decoder, &q, &id) == SURELEAP_OK);
    sureleap_llama_event const* events = nullptr;
    std::size_t count = 0;
    CHECK(sureleap_llama_step(decoder, &events, &count) == SURELEAP_OK);
    CHECK(count == 1);
    CHECK(sureleap_cost_destroy(cost) == SURELEAP_OK);
    CHECK(sureleap_llama_step(decoder, &events, &count) == SURELEAP_INVALID_HANDLE);
    CHECK(sureleap_llama_destroy(decoder) == SURELEAP_OK);
    CHECK(sureleap_llama_destroy(decoder) == SURELEAP_INVALID_HANDLE);
    CHECK(sureleap_llama_step(decoder, &events, &count) == SURELEAP_INVALID_HANDLE);
    CHECK(std::string(sureleap_llama_error(nullptr)).find("no object of this kind") != std::string::npos);
}

// SPDX-License-Identifier: MIT
//
// The engine owns the loop and calls the stages of a round itself, as an engine does that has its own batching and
// cache. docs/integration.md walks through this file.
//
// The toy engine keeps a state per cached token (a "KV cache"). It prefills the cache when a request joins, extends it
// when the target scores a batch, and rolls it back when drafts are rejected. The draft is DSpark in miniature: a
// parallel backbone that reads the target's state, and a Markov head. The decoder serves the same requests; the tokens
// must be equal.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <sureleap/sureleap.hpp>

using namespace sureleap;

namespace {

constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyz .";
constexpr std::size_t V = letters.size();
constexpr std::size_t rank = 6;    // of the embeddings
constexpr std::size_t gamma = 5;   // drafted tokens a round, at most
constexpr std::size_t places = 3;  // requests served at a time
constexpr float decay = 0.6f;      // of the past in the target's state

using state = std::array<float, rank>;

// Embeddings w1 [V, rank] and output weights w2 [V, rank]. The first column makes vowels and consonants take turns.
struct toy_weights {
    std::vector<float> w1 = std::vector<float>(V * rank);
    std::vector<float> w2 = std::vector<float>(V * rank);

    toy_weights() {
        for (std::size_t v = 0; v < V; ++v) {
            bool const vowel = std::string_view("aeiou").find(letters[v]) != std::string_view::npos;
            for (std::size_t j = 0; j < rank; ++j) {
                auto const angle = static_cast<float>((v + 1) * (3 * j + 2));
                w1[v * rank + j] = j == 0 ? (vowel ? 1.0f : -1.0f) : std::cos(angle);
                w2[v * rank + j] = j == 0 ? (vowel ? -1.5f : 1.5f) : std::sin(1.7f * angle);
            }
        }
    }
    [[nodiscard]] matrix_view<float> embeddings() const { return {w1.data(), V, rank}; }
    [[nodiscard]] matrix_view<float> outputs() const { return {w2.data(), V, rank}; }
};

// ---- the engine's models ---------------------------------------------------------------------------------------

// s(t) = decay * s(t-1) + w1[x_t]; logits of the token after x_t: w2 s(t). One state is cached per token.
class toy_target {
public:
    toy_target(toy_weights const& weights, std::size_t capacity)
        : weights_(weights), caches_(places), logits_(places * (gamma + 1) * V) {
        for (cache& c : caches_) c.states.reserve(capacity);
    }

    // A request takes a place: everything but its last prompt token, the first anchor, goes through the model.
    void prefill(std::size_t slot, request_id id, std::span<token_id const> prompt) {
        caches_[slot].owner = id;
        caches_[slot].states.clear();
        for (token_id const x : prompt.first(prompt.size() - 1)) append(slot, x);
        caches_[slot].committed = prompt.size() - 1;
    }
    // Engines prefill when they admit a request. The decoder has no such moment: there the first call does it.
    void prefill_if_new(request_view const& request) {
        if (caches_[request.slot].owner != request.id) prefill(request.slot, request.id, request.context);
    }

    // One row per token of the batch. The cache of a request grows by its anchor and its drafts.
    [[nodiscard]] logits_rows<float> score(verify_batch const& batch) {
        for (request_view const& request : batch.requests()) prefill_if_new(request);
        for (std::size_t i = 0; i < batch.rows(); ++i) {
            request_view const& request = batch.requests()[batch.markers()[i]];
            append(request.slot, batch.tokens()[i]);
            scalar_backend::gemv(weights_.outputs(), std::span<float const>(caches_[request.slot].states.back()),
                                 std::span<float>(logits_).subspan(i * V, V));
        }
        return {{logits_.data(), batch.rows(), V}, {}};
    }

    // The last call of a round. Of the 1 + l states that were added, the anchor's and those of emitted drafts stay;
    // the token emitted last is the next anchor and has no state yet. So: one more state per emitted token.
    void commit(std::span<verdict const> verdicts) noexcept {
        for (verdict const& v : verdicts) {
            cache& c = caches_[v.slot];
            c.committed += v.emitted.size();
            c.states.resize(c.committed);
        }
    }

    // The state before the anchor: what a drafter may know of the target.
    [[nodiscard]] state past(std::size_t slot) const {
        auto const& states = caches_[slot].states;
        return states.empty() ? state{} : states.back();
    }

private:
    struct cache {
        request_id owner = 0;
        std::size_t committed = 0;
        std::vector<state> states;
    };

    void append(std::size_t slot, token_id x) {
        state s = past(slot);
        auto const e = weights_.embeddings().row(static_cast<std::size_t>(x));
        for (std::size_t j = 0; j < rank; ++j) s[j] = decay * s[j] + e[j];
        caches_[slot].states.push_back(s);
    }

    toy_weights const& weights_;
    std::vector<cache> caches_;
    std::vector<float> logits_;
};

// h_k: what is left of the committed past when x_k is drawn. U_k = w2 h_k. What x_{k-1} adds is the Markov head's
// part; the drafts between are missing, which is where this draft errs.
class toy_backbone {
public:
    toy_backbone(toy_weights const& weights, toy_target& target)
        : weights_(weights), target_(target), hidden_(places * gamma * rank), logits_(places * gamma * V) {}

    [[nodiscard]] block_forward<float> forward(std::span<request_view const> requests) {
        for (std::size_t r = 0; r < requests.size(); ++r) {
            target_.prefill_if_new(requests[r]);
            state h = target_.past(requests[r].slot);
            for (std::size_t k = 0; k < gamma; ++k) {
                auto const anchor = weights_.embeddings().row(static_cast<std::size_t>(requests[r].anchor));
                for (std::size_t j = 0; j < rank; ++j) h[j] = decay * (k == 1 ? h[j] + anchor[j] : h[j]);
                std::size_t const row = r * gamma + k;
                std::copy(h.begin(), h.end(), std::span<float>(hidden_).subspan(row * rank, rank).begin());
                scalar_backend::gemv(weights_.outputs(), std::span<float const>(h),
                                     std::span<float>(logits_).subspan(row * V, V));
            }
        }
        std::size_t const rows = requests.size() * gamma;
        return {{hidden_.data(), rows, rank}, {{logits_.data(), rows, V}, {}}};
    }

private:
    toy_weights const& weights_;
    toy_target& target_;
    std::vector<float> hidden_;
    std::vector<float> logits_;
};

auto make_drafter(toy_weights const& weights, toy_target& target) {
    return semi_autoregressive{toy_backbone{weights, target},
                               markov_head{weights.embeddings(), weights.outputs()},
                               top1_confidence{},
                               {.block_size = gamma, .vocabulary = V, .hidden_size = rank}};
}

auto make_schedule() {
    return top_k_schedule{analytic_capacity{8000.0, 64.0}};
}

using rule = block_verification<>;

// ---- the engine ------------------------------------------------------------------------------------------------

struct job {
    std::vector<token_id> prompt;
    request_settings settings;
};

// A request while it is served. Its place in the batch may change from round to round; its slot may not.
struct sequence {
    std::size_t job = 0;
    std::vector<token_id> tokens;  // prompt and output
    bool running = false;
};

std::vector<std::vector<token_id>> serve_with_engine(toy_weights const& weights, std::span<job const> jobs) {
    toy_target target{weights, 256};
    auto drafter = make_drafter(weights, target);
    auto schedule = make_schedule();
    philox_randomness rng;

    // All memory of the rounds of these parts, which keep the target's law together, or it does not compile. Nothing
    // below this line allocates on behalf of the library.
    round_memory<float, float> memory{drafter, schedule, rule{}, {.max_requests = places}};

    std::vector<sequence> slots(places);
    std::vector<request_view> views(places);
    std::vector<std::vector<token_id>> outputs(jobs.size());
    std::size_t waiting = 0;
    for (;;) {
        // Continuous batching is the engine's own: who waits takes a free place.
        for (std::size_t slot = 0; slot < places && waiting < jobs.size(); ++slot) {
            if (slots[slot].running) continue;
            check_settings(jobs[waiting].settings,
                           traits_of<rule>());  // throws with what is wrong and what is expected
            slots[slot] = {waiting, jobs[waiting].prompt, true};
            target.prefill(slot, waiting + 1, jobs[waiting].prompt);
            memory.join(slot);
            ++waiting;
        }
        std::size_t count = 0;
        for (std::size_t slot = 0; slot < places; ++slot) {
            sequence const& s = slots[slot];
            if (!s.running) continue;
            job const& j = jobs[s.job];
            views[count++] = {.id = s.job + 1,
                              .slot = slot,
                              .anchor = s.tokens.back(),
                              .position = s.tokens.size() - 1,
                              .context = {},  // these models keep their own
                              .seed = *j.settings.seed,
                              .remaining = j.settings.max_new_tokens - (s.tokens.size() - j.prompt.size()),
                              .settings = &j.settings};
        }
        if (count == 0) return outputs;
        std::span<request_view const> const requests{views.data(), count};

        // One round.
        if (begin_round(schedule, requests, memory)) {
            auto const forward = drafter.forward(memory.requests());
            plan(schedule, drafter, forward, memory);
            draw(drafter, forward, rule{}, rng, memory);
        }
        verify_batch const& batch = admit(schedule, memory);
        auto const rows = target.score(batch);
        accept(rule{}, rows, no_logits_hook{}, rng, memory);
        round_record const round = end_round(schedule, memory, target);

        // Nothing before end_round has changed a request, and it changed the target's cache alone.
        for (verdict const& v : round.verdicts) {
            sequence& s = slots[v.slot];
            if (v.outcome != status::ok) {
                std::printf("request %zu ends early: %s\n", s.job, to_string(v.outcome));
                s.running = false;
                continue;
            }
            s.tokens.insert(s.tokens.end(), v.emitted.begin(), v.emitted.end());
            outputs[s.job].insert(outputs[s.job].end(), v.emitted.begin(), v.emitted.end());
            s.running = v.finished == finish_reason::none;
        }
    }
}

// ---- the same with the decoder ---------------------------------------------------------------------------------

std::vector<std::vector<token_id>> serve_with_decoder(toy_weights const& weights, std::span<job const> jobs) {
    toy_target target{weights, 256};
    decoder dec{target, make_drafter(weights, target), make_schedule(), rule{}, {.max_requests = places}};
    std::vector<std::vector<token_id>> outputs(jobs.size());
    for (job const& j : jobs) dec.submit(j.prompt, j.settings);  // ids count from 1; who finds no place waits
    while (dec.step()) {
        for (request_event const& event : dec.events()) {
            auto& output = outputs[event.request - 1];
            output.insert(output.end(), event.tokens.begin(), event.tokens.end());
        }
    }
    std::printf("%.2f letters per request and step, %.2f per call of the target\n", dec.report().tau(),
                dec.report().tokens_per_target_call());
    return outputs;
}

}  // namespace

int main() {
    std::vector<token_id> const stop{27};
    std::vector<job> const jobs{
        {{11, 4}, {.temperature = 0.6, .seed = 1, .max_new_tokens = 60}},
        {{19, 14}, {.temperature = 0.0, .seed = 2, .max_new_tokens = 20}},
        {{12, 8}, {.temperature = 0.8, .top_p = 0.9, .seed = 3, .max_new_tokens = 60, .stop_tokens = stop}},
        {{18, 0, 13}, {.temperature = 0.5, .top_k = 8, .seed = 4, .max_new_tokens = 40, .max_draft_tokens = 3}},
        {{13, 14}, {.temperature = 1.0, .seed = 5, .max_new_tokens = 30}},
    };
    toy_weights const weights;
    auto const by_decoder = serve_with_decoder(weights, jobs);
    auto const by_engine = serve_with_engine(weights, jobs);
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        std::printf("%zu: ", i);
        for (token_id const x : by_engine[i]) std::putchar(letters[static_cast<std::size_t>(x)]);
        std::putchar('\n');
    }
    bool const equal = by_decoder == by_engine;
    std::printf("engine and decoder give %s tokens\n", equal ? "the same" : "DIFFERENT");
    return equal ? 0 : 1;
}

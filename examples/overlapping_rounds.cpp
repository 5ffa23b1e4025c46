// SPDX-License-Identifier: MIT
//
// Double buffering. The requests are two micro-batches: while the target verifies a round of one, the next round of the
// other is drafted. Each micro-batch has a round_memory of its own; target, drafter, schedule and rule are shared. The
// texts are those that come out when nothing overlaps.
//
// A model that computes every pass into the same memory must not be asked again too early. Whoever does is told by the
// next stage, and this program shows it.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <future>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <sureleap/sureleap.hpp>

using namespace sureleap;

namespace {

constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyz ";
constexpr std::size_t V = letters.size();
constexpr std::size_t gamma = 4;     // drafted tokens a round, at most
constexpr std::size_t requests = 3;  // of a micro-batch
constexpr std::size_t new_tokens = 48;

// What a letter likes to be followed by. The draft knows less of it than the target.
void fill_logits(std::span<token_id const> context, double sharpness, std::span<float> logits) {
    auto const last = static_cast<std::uint64_t>(context.back());
    auto const before = static_cast<std::uint64_t>(context[context.size() / 2]);
    for (std::size_t v = 0; v < logits.size(); ++v) {
        std::uint64_t const mixed = ((last * 31 + v) * 0x9e3779b97f4a7c15u) ^ (before * 0xc2b2ae3d27d4eb4fu);
        logits[v] = static_cast<float>(sharpness * static_cast<double>(mixed % 997) / 997.0);
    }
}

// A target as engines have one: every pass overwrites the rows of the pass before. It says of which pass they are, so
// that nobody reads the rows of another batch.
class slow_target {
public:
    [[nodiscard]] logits_rows<float> score(verify_batch const& batch) {
        pass_stamp const pass = passes_.begin(fingerprint_of(batch.requests()));  // before anything is overwritten
        rows_.resize(batch.rows() * V);
        std::vector<token_id> text;
        for (std::size_t i = 0; i < batch.rows(); ++i) {
            std::size_t const r = batch.markers()[i];
            auto const context = batch.requests()[r].context;
            auto const drafted = batch.drafted(r).first(i - batch.first_row(r));
            text.assign(context.begin(), context.end());
            text.insert(text.end(), drafted.begin(), drafted.end());
            fill_logits(text, 9.0, std::span(rows_).subspan(i * V, V));
        }
        return {.values = {rows_.data(), batch.rows(), V}, .pass = pass};
    }

private:
    pass_counter passes_;  // one for each buffer: two of both, and two passes may overlap
    std::vector<float> rows_;
};

auto make_drafter() {
    auto model = model_of<float>(V, [](auto context, auto logits) { fill_logits(context.last(1), 7.0, logits); });
    return with_lookup{autoregressive{std::move(model), {.block_size = gamma, .vocabulary = V}}};
}

using drafter_type = decltype(make_drafter());
using rule = block_verification<>;

// Some requests whose rounds are run together.
class micro_batch {
public:
    micro_batch(drafter_type& drafter, fixed_schedule& schedule, request_id first)
        : drafter_(drafter), schedule_(schedule), memory_(drafter, schedule, rule{}, {.max_requests = requests}) {
        for (std::size_t i = 0; i < requests; ++i) {
            ids_[i] = first + i;
            texts_[i] = {static_cast<token_id>(ids_[i] % V), static_cast<token_id>(7 * ids_[i] % V)};
        }
    }
    // Begins a round and drafts it.
    void draft() {
        std::vector<request_view> views;
        for (std::size_t i = 0; i < requests; ++i) {
            std::size_t const generated = texts_[i].size() - 2;
            if (generated == new_tokens) continue;
            views.push_back({.id = ids_[i],
                             .slot = i,
                             .anchor = texts_[i].back(),
                             .position = texts_[i].size() - 1,
                             .context = texts_[i],
                             .seed = ids_[i],
                             .remaining = new_tokens - generated,
                             .settings = &settings_});
        }
        running_ = !views.empty();
        if (!begin_round(schedule_, views, memory_)) return;
        auto const forward = drafter_.forward(memory_.requests());
        plan(schedule_, drafter_, forward, memory_);
        draw(drafter_, forward, rule{}, rng_, memory_);
    }
    // What the target has to score.
    [[nodiscard]] verify_batch const& batch() { return admit(schedule_, memory_); }
    // Ends the round by its rows.
    void end(slow_target& target, logits_rows<float> const& rows) {
        accept(rule{}, rows, no_logits_hook{}, rng_, memory_);
        for (verdict const& v : end_round(schedule_, memory_, target, drafter_).verdicts) {
            texts_[v.slot].insert(texts_[v.slot].end(), v.emitted.begin(), v.emitted.end());
        }
    }
    [[nodiscard]] bool running() const { return running_; }
    [[nodiscard]] auto const& texts() const { return texts_; }

private:
    drafter_type& drafter_;
    fixed_schedule& schedule_;
    philox_randomness rng_;
    round_memory<float, float> memory_;
    request_settings settings_{.temperature = 0.8};
    std::array<request_id, requests> ids_{};
    std::array<std::vector<token_id>, requests> texts_;
    bool running_ = true;
};

// The engine's parts, and two micro-batches.
struct engine {
    slow_target target;
    drafter_type drafter = make_drafter();
    fixed_schedule schedule;
    micro_batch first{drafter, schedule, 1};
    micro_batch second{drafter, schedule, 1 + requests};
};

void serve_overlapping(engine& e) {
    micro_batch* now = &e.first;
    micro_batch* next = &e.second;
    now->draft();
    while (now->running() || next->running()) {
        // The pass runs elsewhere, on a device or as here on a thread.
        auto rows = std::async(std::launch::async, [&, &batch = now->batch()] { return e.target.score(batch); });
        next->draft();
        now->end(e.target, rows.get());
        std::swap(now, next);
    }
}

void serve_in_turn(engine& e) {
    while (e.first.running() || e.second.running()) {
        for (micro_batch* const one : {&e.first, &e.second}) {
            one->draft();
            one->end(e.target, e.target.score(one->batch()));
        }
    }
}

// The next pass of the target, before the verdicts on the last one: the first batch would be judged by the second one's
// rows.
bool too_early(engine& e) {
    e.first.draft();
    e.second.draft();
    auto const rows = e.target.score(e.first.batch());
    auto const others = e.target.score(e.second.batch());
    try {
        e.first.end(e.target, rows);
        return false;
    } catch (error const& refused) {
        std::printf("refused: %s\n", refused.what());
    }
    e.second.end(e.target, others);
    e.first.end(e.target, e.target.score(e.first.batch()));  // the same round, scored again
    return true;
}

}  // namespace

int main() {
    engine overlapping, in_turn, hasty;
    serve_overlapping(overlapping);
    serve_in_turn(in_turn);
    bool const refused = too_early(hasty);
    serve_in_turn(hasty);
    for (std::vector<token_id> const& text : overlapping.first.texts()) {
        for (token_id const x : text) std::putchar(letters[static_cast<std::size_t>(x)]);
        std::putchar('\n');
    }
    auto const same = [&](engine const& other) {
        return overlapping.first.texts() == other.first.texts() && overlapping.second.texts() == other.second.texts();
    };
    bool const equal = same(in_turn) && same(hasty);
    std::printf("rounds that overlap and rounds in turn give %s texts\n", equal ? "the same" : "DIFFERENT");
    return equal && refused ? 0 : 1;
}

// SPDX-License-Identifier: MIT
//
// Any calls of sureleap_llama.h in any order, over tiny models, with wrong sizes, null pointers, NaN, contexts that
// will not do, chains that are refused, passes that are aborted and handles of objects that are gone. Each has to end
// in a result, and decoders have to go on working. Under sanitizers a call that reads or writes what it should not is a
// crash.
//
//     llama.fuzz_calls [calls, by default 20,000] [seed]
#include <sureleap/sureleap_llama.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <llama.h>

#include "llama/support/tiny_dspark.hpp"
#include "llama/support/tiny_models.hpp"
#include "support/scratch_folder.hpp"

namespace support {
std::string llama_log() {
    return "its log is off";
}
}  // namespace support

namespace {

using namespace support;

constexpr std::uint32_t V = 24;
constexpr std::size_t places = 2;  // decoders, each with contexts of its own

struct abort_after {
    long left = -1;
    static bool ask(void* self) {
        auto& left = static_cast<abort_after*>(self)->left;
        return left >= 0 && left-- == 0;
    }
};

class caller {
public:
    explicit caller(std::uint64_t seed) : dice_(seed), folder_("llama_fuzz_calls") {
        file_ = (folder_ / "drafter.gguf").string();
        write_dspark(file_, 8, {.tokens = V, .target_layers = {1}});
        write_dspark(folder_ / "none.gguf", 8, {.tokens = V, .target_layers = {1}, .without = "conf_proj.weight"});
        wrong_files_ = {(folder_ / "none.gguf").string(), (folder_ / "nowhere.gguf").string(), __FILE__};
        tiny_options const shape{.layers = 2, .tokens = V, .sharpness = 1.0F};
        tiny_options near = shape;
        near.disturbance = 0.3F;
        tiny_model const model = make_tiny(tiny_arch::llama, 7, shape);
        tiny_model const small = make_tiny(tiny_arch::llama, 7, near);
        tiny_model const other = make_tiny(tiny_arch::llama, 9, {.layers = 1, .tokens = 30});
        for (place& p : places_) {
            p.dspark_memory.resize(sureleap_llama_dspark_bytes());
            p.spare_memory.resize(sureleap_llama_dspark_bytes());
            p.memory.resize(sureleap_llama_bytes() + 64);
            p.cost_memory.resize(sureleap_cost_bytes());
            count(sureleap_llama_dspark_create(file_.c_str(), p.dspark_memory.data(), p.dspark_memory.size(), &p.dspark,
                                               nullptr));
            llama_context_params params = tiny_context_params();
            params.n_ctx = 256;
            params.n_seq_max = 64;
            params.abort_callback = &abort_after::ask;
            params.abort_callback_data = &p.aborter;
            count(sureleap_llama_dspark_attach(p.dspark, &params));
            p.targets.push_back(make_context(model, params));
            params.cb_eval = nullptr;
            p.targets.push_back(make_context(model, params));
            params.kv_unified = false;
            params.n_seq_max = 2;
            p.targets.push_back(make_context(model, params));
            p.drafts.push_back(make_context(small));
            p.drafts.push_back(make_context(other));
            params = tiny_context_params();
            params.n_seq_max = 1;
            p.drafts.push_back(make_context(small, params));
        }
        chains_.push_back(chain_of({llama_sampler_init_temp(0.9F), llama_sampler_init_dist(5)}));
        chains_.push_back(chain_of({llama_sampler_init_penalties(V, 8, 1.2F, 0.1F, 0.1F), llama_sampler_init_dist(5)}));
        chains_.push_back(chain_of({llama_sampler_init_top_k(5), llama_sampler_init_greedy()}));
        chains_.push_back(chain_of({llama_sampler_init_temp(0.9F)}));
        chains_.push_back(chain_of({llama_sampler_init_xtc(0.5F, 0.1F, 1, 3), llama_sampler_init_dist(5)}));
        for (std::size_t i = 0; i < tokens_.size(); ++i) tokens_[i] = static_cast<std::int32_t>(3 + i % 4);
    }
    ~caller() {
        for (place& p : places_) {
            static_cast<void>(sureleap_llama_destroy(p.decoder));
            static_cast<void>(sureleap_llama_dspark_destroy(p.spare));
            static_cast<void>(sureleap_cost_destroy(p.cost));
            p.targets.clear();
            static_cast<void>(sureleap_llama_dspark_destroy(p.dspark));
        }
    }
    caller(caller const&) = delete;
    caller& operator=(caller const&) = delete;

    /// One call, more often than not one that goes well.
    void call() {
        now_ = &places_[below(places)];
        sureleap_llama* const d = coin(0.95) ? now_->decoder : any_decoder();
        std::size_t const what = below(1000);
        if (now_->decoder == nullptr ? what < 300 : what < 8) return create();
        if (what < 330) return step(d);
        if (what < 430) return submit(d);
        if (what < 570) return count(sureleap_llama_pause(d, any_id()));
        if (what < 720) return count(sureleap_llama_resume(d, any_id()));
        if (what < 800) return count(sureleap_llama_cancel(d, any_id()));
        if (what < 900) {
            sureleap_llama_report report{};
            count(sureleap_llama_report_of(d, maybe(&report)));
            return;
        }
        if (what < 980) {
            strange_ =
                strange_ || sureleap_llama_error(d) == nullptr || sureleap_llama_dspark_error(now_->spare) == nullptr;
            return;
        }
        if (what < 985) return dspark();
        if (what < 990) return cost();
        if (what < 993) {
            count(sureleap_llama_destroy(d));
            if (d == now_->decoder && coin(0.5)) now_->decoder = nullptr;  // or it is called once more
            return;
        }
        llama_context_params params = llama_context_default_params();
        count(sureleap_llama_dspark_attach(coin(0.5) ? now_->spare : nullptr, maybe(&params)));
    }

    [[nodiscard]] std::uint64_t refused() const { return refused_; }
    [[nodiscard]] std::uint64_t made() const { return made_; }
    [[nodiscard]] std::uint64_t tokens() const { return emitted_; }
    [[nodiscard]] std::uint64_t failed() const { return failed_; }
    /// What no call may ever say.
    [[nodiscard]] bool strange() const { return strange_; }

private:
    struct free_sampler {
        void operator()(llama_sampler* sampler) const noexcept { llama_sampler_free(sampler); }
    };
    using chain = std::unique_ptr<llama_sampler, free_sampler>;
    struct place {
        abort_after aborter{};
        std::vector<std::byte> memory{}, dspark_memory{}, spare_memory{}, cost_memory{};
        sureleap_llama_dspark* dspark = nullptr;  // of the first target
        sureleap_llama_dspark* spare = nullptr;
        sureleap_cost* cost = nullptr;
        std::vector<tiny_context> targets{}, drafts{};
        sureleap_llama* decoder = nullptr;
        std::uint64_t last_id = 0;
    };

    [[nodiscard]] static chain chain_of(std::initializer_list<llama_sampler*> stages) {
        chain made{llama_sampler_chain_init(llama_sampler_chain_default_params())};
        for (llama_sampler* const s : stages) llama_sampler_chain_add(made.get(), s);
        return made;
    }
    [[nodiscard]] bool coin(double p) { return std::uniform_real_distribution<>()(dice_) < p; }
    [[nodiscard]] std::size_t below(std::size_t n) {
        return std::uniform_int_distribution<std::size_t>(0, n - 1)(dice_);
    }
    /// A good size, or one that is not.
    [[nodiscard]] std::size_t size(std::size_t good) {
        if (!coin(0.02)) return good;
        constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
        std::array<std::size_t, 7> const bad{0, good + 1, good / 2, most, most / 2, most / 8, std::size_t{1} << 40};
        return bad[below(bad.size())];
    }
    [[nodiscard]] std::int32_t choice(std::int32_t count) {
        if (coin(0.01)) return static_cast<std::int32_t>(dice_());
        return static_cast<std::int32_t>(below(static_cast<std::size_t>(count)));
    }
    [[nodiscard]] double number(double good) {
        if (!coin(0.02)) return good;
        constexpr double infinity = std::numeric_limits<double>::infinity();
        std::array<double, 6> const bad{
            std::numeric_limits<double>::quiet_NaN(), infinity, -infinity, -1.0, 0.0, 1e300};
        return bad[below(bad.size())];
    }
    template <class T>
    [[nodiscard]] T* maybe(T* pointer) {
        return coin(0.01) ? nullptr : pointer;
    }
    [[nodiscard]] sureleap_llama* any_decoder() {
        // Null, a place that nothing was made in, an object of another kind, or a decoder.
        switch (below(4)) {
            case 0: return nullptr;
            case 1: return reinterpret_cast<sureleap_llama*>(empty_.data());
            case 2: return reinterpret_cast<sureleap_llama*>(places_[0].dspark);
            default: return places_[below(places)].decoder;
        }
    }
    [[nodiscard]] std::uint64_t any_id() { return coin(0.1) ? dice_() : now_->last_id - below(6); }

    void count(sureleap_result result) {
        if (result != SURELEAP_OK) ++refused_;
        strange_ = strange_ || result < SURELEAP_OK || result > SURELEAP_NOT_LOSSLESS;
        last_ok_ = result == SURELEAP_OK;
    }

    void create() {
        place& p = *now_;
        sureleap_llama_options o;
        sureleap_llama_options_init(maybe(&o));
        sureleap_llama_options_init(&o);
        o.struct_size = size(o.struct_size);
        // The context of hidden states, one without, one with a cache for each sequence; or none.
        o.target = coin(0.02) ? nullptr : p.targets[coin(0.8) ? 0 : below(p.targets.size())].get();
        if (coin(0.3)) o.draft = coin(0.02) ? o.target : p.drafts[coin(0.7) ? 0 : below(p.drafts.size())].get();
        if (o.draft == nullptr || coin(0.05)) {
            if (coin(0.6)) o.dspark = coin(0.9) ? p.dspark : p.spare;
        }
        o.lookup = choice(2);
        o.rule = choice(5);
        o.schedule = coin(0.5) ? 0 : choice(7);
        o.never_lose = choice(2);
        o.max_requests = size(1 + below(3));
        o.block_size = size(1 + below(4));
        o.tree_nodes = o.dspark != nullptr && coin(0.5) ? size(1 + below(5)) : coin(0.02) ? 3 : 0;
        o.fixed_length = size(3);
        o.threshold = number(0.1);
        o.prior = number(0.8);
        o.lag = size(2);
        o.cost = coin(0.95) ? p.cost : nullptr;
        o.seed = dice_();
        if (coin(0.05)) o.first_sequence = choice(9);
        if (coin(0.05)) o.draft_first_sequence = choice(9);
        static_cast<void>(sureleap_llama_destroy(p.decoder));
        p.decoder = nullptr;
        p.aborter.left = -1;
        for (tiny_context const& c : p.targets) llama_memory_clear(llama_get_memory(c.get()), true);
        for (tiny_context const& c : p.drafts) llama_memory_clear(llama_get_memory(c.get()), true);
        sureleap_error error{};
        std::size_t const bytes = coin(0.97) ? sureleap_llama_bytes() : below(sureleap_llama_bytes());
        count(sureleap_llama_create(maybe(&o), maybe(p.memory.data() + below(64)), bytes, maybe(&p.decoder),
                                    maybe(&error)));
        made_ += last_ok_ ? 1 : 0;
        p.last_id = 0;
    }
    void submit(sureleap_llama* d) {
        sureleap_llama_request q;
        sureleap_llama_request_init(maybe(&q));
        sureleap_llama_request_init(&q);
        if (coin(0.02)) tokens_[below(tokens_.size())] = static_cast<std::int32_t>(coin(0.7) ? below(V) : dice_());
        if (coin(0.05)) tokens_.assign(tokens_.size(), 4);
        q.prompt = maybe(tokens_.data());
        q.prompt_count = coin(0.02) ? below(2) : 1 + below(tokens_.size());
        if (coin(0.3)) q.sampler = chains_[coin(0.8) ? below(3) : below(chains_.size())].get();
        q.sampler_sees_prompt = choice(2);
        if (q.sampler == nullptr || coin(0.05)) {
            q.target.temperature = number(coin(0.3) ? 0.0 : 0.9);
            q.target.top_k = coin(0.7) ? 0 : choice(9);
            q.target.top_p = number(0.9);
            q.target.min_p = number(0.0);
        }
        if (coin(0.3)) q.draft = {number(0.7), choice(5), number(1.0), number(0.0)};
        q.seed = coin(0.5) ? 0 : dice_();
        q.max_new_tokens = size(1 + below(12));
        q.stop_tokens = coin(0.8) ? tokens_.data() : nullptr;
        q.stop_token_count = coin(0.8) ? 0 : below(3);
        q.stops_at_end = choice(2);
        q.max_draft_tokens = size(coin(0.8) ? 9 : 1);
        q.priority = number(1.0);
        q.log_probabilities = choice(2);
        std::uint64_t id = 0;
        count(sureleap_llama_submit(d, maybe(&q), maybe(&id)));
        if (id != 0 && d == now_->decoder) now_->last_id = id;
    }
    void step(sureleap_llama* d) {
        now_->aborter.left = coin(0.05) ? static_cast<long>(below(80)) : -1;
        sureleap_llama_event const* events = nullptr;
        std::size_t n = 0;
        count(sureleap_llama_step(d, maybe(&events), maybe(&n)));
        now_->aborter.left = -1;
        for (std::size_t i = 0; last_ok_ && i < n; ++i) {
            sureleap_llama_event const& e = events[i];
            emitted_ += e.count;
            failed_ += e.outcome == SURELEAP_REQUEST_OK ? 0 : 1;
            for (std::size_t t = 0; t < e.count; ++t) {
                strange_ = strange_ || e.tokens[t] < 0 || e.tokens[t] >= static_cast<std::int32_t>(V);
                if (e.log_probabilities != nullptr) strange_ = strange_ || !(e.log_probabilities[t] <= 1e-9);
            }
            if (e.outcome != SURELEAP_REQUEST_OK) count(sureleap_llama_resume(d, e.id));
        }
    }
    void dspark() {
        place& p = *now_;
        static_cast<void>(sureleap_llama_dspark_destroy(p.spare));
        sureleap_error error{};
        std::size_t const bytes = coin(0.9) ? p.spare_memory.size() : below(99);
        count(sureleap_llama_dspark_create(coin(0.5) ? file_.c_str() : maybe(wrong_files_[below(3)].c_str()),
                                           maybe(p.spare_memory.data()), bytes, maybe(&p.spare), maybe(&error)));
    }
    void cost() {
        place& p = *now_;
        static_cast<void>(sureleap_cost_destroy(p.cost));
        sureleap_cost_options o;
        sureleap_cost_options_init(&o);
        o.prices.fixed = 1.0;
        o.prices.batch_token = 0.1;
        o.prices.draft_token = number(0.01);
        count(sureleap_cost_create(&o, p.cost_memory.data(), p.cost_memory.size(), &p.cost, nullptr));
    }

    std::mt19937_64 dice_;
    scratch_folder folder_;
    std::string file_{};
    std::vector<std::string> wrong_files_{};
    std::array<place, places> places_{};
    place* now_ = nullptr;
    std::vector<chain> chains_{};
    std::vector<std::int32_t> tokens_ = std::vector<std::int32_t>(12);
    alignas(64) std::array<std::byte, 4096> empty_{};
    std::uint64_t refused_ = 0, made_ = 0, emitted_ = 0, failed_ = 0;
    bool last_ok_ = false;
    bool strange_ = false;
};

}  // namespace

int main(int count, char** arguments) {
    std::uint64_t const calls = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 20'000;
    std::uint64_t const seed = count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 1;
    llama_log_set([](ggml_log_level, char const*, void*) {}, nullptr);
    caller c(seed);
    for (std::uint64_t i = 0; i < calls && !c.strange(); ++i) c.call();
    std::printf("seed %llu: %llu calls, %llu refused, %llu decoders, %llu tokens, %llu requests of failed rounds\n",
                static_cast<unsigned long long>(seed), static_cast<unsigned long long>(calls),
                static_cast<unsigned long long>(c.refused()), static_cast<unsigned long long>(c.made()),
                static_cast<unsigned long long>(c.tokens()), static_cast<unsigned long long>(c.failed()));
    // All of it must be met, or nothing was tried.
    bool const mixed =
        c.refused() > calls / 100 && c.made() > calls / 1000 && c.tokens() > calls / 100 && c.failed() > 0;
    return !c.strange() && mixed ? 0 : 1;
}

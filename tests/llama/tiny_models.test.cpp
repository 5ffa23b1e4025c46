// SPDX-License-Identifier: MIT
//
// What llama.cpp does with each kind of model, on tiny ones: what can be removed from a sequence, which batches are
// refused, how a batch is cut into passes, and whether a row depends on what else is in its batch. These facts are
// llama.cpp's, of version 0.5.0; the adapter in sureleap/ext/llama rests on them, and with another version this test
// tells what changed. Two seconds.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <llama.h>

#include "llama/support/batches.hpp"
#include "llama/support/tiny_models.hpp"
#include "support/catch.hpp"
#include "support/dice.hpp"
#include "support/scratch_folder.hpp"

namespace {

using namespace support;

std::vector<llama_token> random_tokens(std::size_t count, std::uint64_t seed) {
    dice roll(seed);
    std::vector<llama_token> tokens;
    for (std::size_t i = 0; i < count; ++i) tokens.push_back(static_cast<llama_token>(3 + roll.below(280)));
    return tokens;
}

std::vector<float> law_of(std::vector<float> logits) {
    float const largest = *std::ranges::max_element(logits);
    float sum = 0;
    for (float& x : logits) sum += x = std::exp(x - largest);
    for (float& x : logits) x /= sum;
    return logits;
}

llama_pos last_of(tiny_context const& context, llama_seq_id sequence = 0) {
    return llama_memory_seq_pos_max(llama_get_memory(context.get()), sequence);
}

bool remove_from(tiny_context const& context, llama_pos first, llama_seq_id sequence = 0) {
    return llama_memory_seq_rm(llama_get_memory(context.get()), sequence, first, -1);
}

double largest_difference(std::vector<float> const& a, std::vector<float> const& b) {
    REQUIRE(a.size() == b.size());
    double largest = 0;
    for (std::size_t i = 0; i < a.size(); ++i)
        largest = std::max(largest, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    return largest;
}

/// A context that has read the tokens.
tiny_context after(tiny_model const& model, std::span<llama_token const> tokens,
                   llama_context_params params = tiny_context_params()) {
    tiny_context context = make_context(model, params);
    REQUIRE(token_batch().add(tokens, 0).decode(context) == 0);
    return context;
}

/// Continues both with one token: the context, and one that has read `tokens` and nothing else.
double difference_if_continued(tiny_context const& context, tiny_model const& model,
                               std::span<llama_token const> tokens) {
    auto const next = static_cast<llama_pos>(tokens.size());
    tiny_context const fresh = after(model, tokens);
    REQUIRE(token_batch().add(9, next).decode(context) == 0);
    REQUIRE(token_batch().add(9, next).decode(fresh) == 0);
    return largest_difference(logits_of(context, 0), logits_of(fresh, 0));
}

/// That the context is where one is that has read `tokens` and nothing else.
void check_continues(tiny_context const& context, tiny_model const& model, std::span<llama_token const> tokens,
                     double tolerance) {
    CHECK(last_of(context) == static_cast<llama_pos>(tokens.size()) - 1);
    CHECK(difference_if_continued(context, model, tokens) <= tolerance);
}

/// The recurrent part of sequence 0; of a KV cache everything.
class checkpoint {
public:
    explicit checkpoint(tiny_context const& context)
        : bytes_(llama_state_seq_get_size_ext(context.get(), 0, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY)) {
        REQUIRE(llama_state_seq_get_data_ext(context.get(), bytes_.data(), bytes_.size(), 0,
                                             LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY) == bytes_.size());
    }
    [[nodiscard]] bool restore(tiny_context const& context) const {
        return llama_state_seq_set_data_ext(context.get(), bytes_.data(), bytes_.size(), 0,
                                            LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY) == bytes_.size();
    }

private:
    std::vector<std::uint8_t> bytes_;
};

// ---- the models
// ------------------------------------------------------------------------------------------------------

TEST_CASE("tiny models: laws are those of the seed, depend on their context and are neither flat nor sharp",
          "[llama]") {
    auto const tokens = random_tokens(24, 3);
    for (tiny_arch const arch : every_tiny_arch) {
        INFO(name_of(arch));
        tiny_model const model = make_tiny(arch, 7);
        tiny_context const first = after(model, tokens);
        tiny_context const same = after(make_tiny(arch, 7), tokens);
        tiny_context const other = after(make_tiny(arch, 8), tokens);
        CHECK(logits_of(first, 23) == logits_of(same, 23));
        CHECK(logits_of(first, 23) != logits_of(other, 23));

        for (std::int32_t i = 0; i < 24; ++i) {
            auto const law = law_of(logits_of(first, i));
            double entropy = 0;
            for (float const p : law) entropy -= p > 0 ? static_cast<double>(p) * std::log(static_cast<double>(p)) : 0;
            CHECK((entropy > 2.0 && entropy < 5.2));  // of a flat one: 5.66
            CHECK(*std::ranges::max_element(law) < 0.7F);
        }
        auto changed = tokens;
        changed[20] = tokens[20] == 5 ? 6 : 5;
        auto const a = law_of(logits_of(first, 23));
        auto const b = law_of(logits_of(after(model, changed), 23));
        float distance = 0;
        for (std::size_t i = 0; i < a.size(); ++i) distance += std::abs(a[i] - b[i]) / 2;
        CHECK(distance > 0.01F);
    }
}

TEST_CASE("tiny models: texts become tokens and tokens texts", "[llama]") {
    tiny_model const model = make_tiny(tiny_arch::llama, 1);
    auto const* const vocabulary = llama_model_get_vocab(model.get());
    CHECK(llama_vocab_n_tokens(vocabulary) == 288);
    CHECK(llama_vocab_is_eog(vocabulary, 2));
    std::string const text = "abc: \xC3\xA4\n";
    std::vector<llama_token> tokens(32);
    auto const count = llama_tokenize(vocabulary, text.data(), static_cast<std::int32_t>(text.size()), tokens.data(),
                                      32, false, false);
    REQUIRE(count > 0);
    tokens.resize(static_cast<std::size_t>(count));
    std::string back;
    for (llama_token const token : tokens) {
        char piece[16];
        back.append(piece, static_cast<std::size_t>(llama_token_to_piece(vocabulary, token, piece, 16, 0, true)));
    }
    CHECK(back == " " + text);

    CHECK(llama_vocab_n_tokens(llama_model_get_vocab(make_tiny(tiny_arch::qwen3, 1, {.tokens = 64}).get())) == 64);
}

// ---- what can be removed
// ---------------------------------------------------------------------------------------------

TEST_CASE("llama.cpp: from a KV cache any tail can be removed", "[llama]") {
    auto const tokens = random_tokens(20, 4);
    for (tiny_arch const arch : {tiny_arch::llama, tiny_arch::qwen3}) {
        INFO(name_of(arch));
        tiny_model const model = make_tiny(arch, 7);
        tiny_context const context = after(model, tokens);
        CHECK(remove_from(context, 17));
        CHECK(remove_from(context, 12));  // as often as one likes
        CHECK(remove_from(context, 12));  // and what is not there
        CHECK(last_of(context) == 11);
        check_continues(context, model, std::span(tokens).first(12), 0.0);
    }
}

TEST_CASE("llama.cpp: from recurrent memory no tail can be removed, but a whole sequence", "[llama]") {
    auto const tokens = random_tokens(20, 4);
    for (tiny_arch const arch : {tiny_arch::lfm2, tiny_arch::jamba, tiny_arch::mamba}) {
        INFO(name_of(arch));
        auto params = tiny_context_params();
        params.n_rs_seq = arch == tiny_arch::lfm2 ? 0 : 4;
        tiny_context const context = after(make_tiny(arch, 7), tokens, params);
        CHECK(llama_n_rs_seq(context.get()) == 0);  // asked for in vain where the architecture has no window
        CHECK_FALSE(remove_from(context, 19));
        CHECK(last_of(context) == 19);  // nothing changed
        CHECK(remove_from(context, 20));
        CHECK(token_batch().add(tokens[0], 20).decode(context) == 0);
        CHECK(remove_from(context, 0));
        CHECK(last_of(context) == -1);
    }
}

TEST_CASE("llama.cpp: a rollback window serves once between two decodes, and reaches into the last one", "[llama]") {
    auto const tokens = random_tokens(24, 4);
    auto params = tiny_context_params();
    params.n_rs_seq = 4;
    tiny_model const model = make_tiny(tiny_arch::lfm2, 7);
    {
        tiny_context const context = after(model, std::span(tokens).first(20), params);
        CHECK(llama_n_rs_seq(context.get()) == 4);
        CHECK_FALSE(remove_from(context, 15));  // five
        CHECK(remove_from(context, 16));
        CHECK(last_of(context) == 15);
        CHECK_FALSE(remove_from(context, 15));  // not once more
        CHECK(last_of(context) == 15);
        check_continues(context, model, std::span(tokens).first(16), 0.0);
    }
    // A state is kept for each token of the last decode of its sequence but the first. Rolled back further, the window
    // lies: the answer is true, and the state another one.
    for (llama_pos const dropped : {1, 2, 3, 4}) {
        INFO(dropped << " of 4 tokens");
        tiny_context const context = after(model, std::span(tokens).first(12), params);
        REQUIRE(token_batch().add(std::span(tokens).subspan(12, 4), 12).decode(context) == 0);
        REQUIRE(token_batch().add(std::span(tokens).first(8), 0, 1).decode(context) == 0);  // another's does not count
        CHECK(remove_from(context, 16 - dropped));
        auto const left = std::span(tokens).first(static_cast<std::size_t>(16 - dropped));
        if (dropped < 4) {
            check_continues(context, model, left, 1e-4);
        } else {
            CHECK(difference_if_continued(context, model, left) > 0.1);
        }
    }
}

TEST_CASE("llama.cpp: a checkpoint of the recurrent part brings back a shorter sequence, to the bit", "[llama]") {
    auto const tokens = random_tokens(24, 4);
    for (tiny_arch const arch : every_tiny_arch) {
        INFO(name_of(arch));
        tiny_model const model = make_tiny(arch, 7);
        tiny_context const context = after(model, std::span(tokens).first(12));
        checkpoint const saved(context);
        REQUIRE(token_batch().add(std::span(tokens).subspan(12, 6), 12).decode(context) == 0);
        CHECK(saved.restore(context));
        CHECK(remove_from(context, 12));  // of the attention; of the recurrent part nothing is there
        CHECK(last_of(context) == 11);
        check_continues(context, model, std::span(tokens).first(12), 0.0);
    }
}

// ---- batches
// ---------------------------------------------------------------------------------------------------------

TEST_CASE("llama.cpp: a batch that does not continue its sequences is refused and changes nothing", "[llama]") {
    auto const tokens = random_tokens(4, 5);
    for (tiny_arch const arch : every_tiny_arch) {
        INFO(name_of(arch));
        tiny_context const context = after(make_tiny(arch, 7), tokens);
        CHECK(token_batch().add(9, 5).decode(context) == -1);            // a hole
        CHECK(token_batch().add(9, 3).decode(context) == -1);            // there already
        CHECK(token_batch().add(9, 4).add(9, 6).decode(context) == -1);  // a hole within
        CHECK(token_batch().add(9, 5).add(9, 4).decode(context) == -1);  // backwards
        CHECK(token_batch().add(288, 4).decode(context) == -1);          // no such token
        CHECK(token_batch().add(-1, 4).decode(context) == -1);
        CHECK(token_batch().add(9, 0, 16).decode(context) == -1);  // no such sequence
        CHECK(last_of(context) == 3);
        CHECK(token_batch().add(9, 4).decode(context) == 0);
        CHECK(llama_get_logits_ith(context.get(), 0) != nullptr);
        CHECK(token_batch().add(9, 5, 0, false).add(9, 6).decode(context) == 0);
        CHECK(llama_get_logits_ith(context.get(), 0) == nullptr);  // not asked for
    }
}

TEST_CASE("llama.cpp: a full KV cache is code 1 and changes nothing", "[llama]") {
    auto const tokens = random_tokens(64, 5);
    auto params = tiny_context_params();
    params.n_ctx = 256;
    for (tiny_arch const arch : {tiny_arch::llama, tiny_arch::qwen3, tiny_arch::lfm2, tiny_arch::jamba}) {
        INFO(name_of(arch));
        tiny_context const context = make_context(make_tiny(arch, 7), params);
        for (llama_pos first = 0; first < 192; first += 64)
            REQUIRE(token_batch().add(tokens, first).decode(context) == 0);
        REQUIRE(token_batch().add(std::span(tokens).first(62), 0, 1).decode(context) == 0);
        CHECK(token_batch().add(std::span(tokens).first(3), 192).decode(context) == 1);
        CHECK(last_of(context) == 191);
        CHECK(token_batch().add(std::span(tokens).first(2), 192).decode(context) == 0);  // one that fits
        CHECK(token_batch().add(9, 194).decode(context) == 1);
        CHECK(remove_from(context, 0, 1));
        CHECK(token_batch().add(9, 194).decode(context) == 0);
    }
}

TEST_CASE("llama.cpp: an abort leaves a KV cache as it was, and recurrent memory spoilt", "[llama]") {
    auto const tokens = random_tokens(18, 5);
    for (tiny_arch const arch : every_tiny_arch) {
        INFO(name_of(arch));
        bool aborts = false;
        auto params = tiny_context_params();
        params.abort_callback = [](void* flag) { return *static_cast<bool*>(flag); };
        params.abort_callback_data = &aborts;
        tiny_model const model = make_tiny(arch, 7);
        tiny_context const context = after(model, std::span(tokens).first(10), params);
        checkpoint const saved(context);
        token_batch batch;
        batch.add(std::span(tokens).subspan(10), 10);
        aborts = true;
        CHECK(batch.decode(context) == 2);
        aborts = false;
        if (arch == tiny_arch::llama || arch == tiny_arch::qwen3) {
            CHECK(last_of(context) == 9);
        } else {
            CHECK(last_of(context) == 17);          // it claims what was never computed
            CHECK_FALSE(remove_from(context, 10));  // and does not let go of it
            CHECK(saved.restore(context));          // but for a checkpoint
            CHECK(remove_from(context, 10));
        }
        check_continues(context, model, std::span(tokens).first(10), 0.0);
    }
}

TEST_CASE("llama.cpp: sequences share tokens of a unified cache, and an abort takes them from one alone", "[llama]") {
    auto const tokens = random_tokens(13, 8);
    auto const prompt = std::span(tokens).first(10);
    bool aborts = false;
    auto params = tiny_context_params();
    params.abort_callback = [](void* flag) { return *static_cast<bool*>(flag); };
    params.abort_callback_data = &aborts;
    for (tiny_arch const arch : {tiny_arch::llama, tiny_arch::qwen3}) {
        INFO(name_of(arch));
        tiny_model const model = make_tiny(arch, 7);
        tiny_context const context = after(model, prompt, params);
        llama_memory_t const memory = llama_get_memory(context.get());
        auto const branches = [&] {
            return token_batch().add(tokens[10], 10, {0, 1}).add(tokens[11], 11, 0).add(tokens[12], 11, 1);
        };
        CHECK(branches().decode(context) == -1);  // sequence 1 has no prompt
        llama_memory_seq_cp(memory, 0, 1, -1, -1);
        aborts = true;
        CHECK(branches().decode(context) == 2);
        aborts = false;
        // The token that both had is still in one of them.
        CHECK(std::minmax({last_of(context, 0), last_of(context, 1)}) == std::pair<llama_pos, llama_pos>(9, 10));
        CHECK(branches().decode(context) == -1);
        for (llama_seq_id const sequence : {0, 1}) CHECK(remove_from(context, 10, sequence));

        REQUIRE(branches().decode(context) == 0);
        std::vector<llama_token> path(tokens.begin(), tokens.begin() + 11);
        path.push_back(tokens[12]);
        CHECK(logits_of(context, 2) == logits_of(after(model, path), 11));
        llama_memory_seq_rm(memory, 1, -1, -1);
        check_continues(context, model, std::span(tokens).first(12), 0.0);

        auto apart = tiny_context_params();
        apart.kv_unified = false;
        CHECK(token_batch().add(tokens[0], 0, {0, 1}).decode(make_context(model, apart)) != 0);
    }
}

TEST_CASE("llama.cpp: how a batch is cut into passes", "[llama]") {
    using widths = std::vector<std::pair<llama_seq_id, std::size_t>>;  // sequence, tokens
    using passes = std::vector<std::int64_t>;                          // rows
    widths const ragged = {{0, 8}, {1, 3}, {2, 3}}, equal = {{0, 4}, {1, 4}, {2, 4}}, apart = {{0, 4}, {2, 4}, {5, 4}};
    auto const tokens = random_tokens(18, 6);
    auto const count = [&](tiny_arch arch, bool unified, widths const& of) {
        passes found;
        auto params = tiny_context_params();
        params.kv_unified = unified;
        params.cb_eval = [](ggml_tensor* node, bool asks, void* to) {
            bool const is_output = std::strcmp(node->name, "result_output") == 0;
            if (is_output && !asks) static_cast<passes*>(to)->push_back(node->ne[1]);
            return is_output || !asks;
        };
        params.cb_eval_user_data = &found;
        tiny_context const context = make_context(make_tiny(arch, 7), params);
        token_batch batch;
        for (auto const& [sequence, width] : of) {
            REQUIRE(token_batch().add(std::span(tokens).first(10), 0, sequence).decode(context) == 0);
            batch.add(std::span(tokens).first(width), 10, sequence);
        }
        found.clear();
        REQUIRE(batch.decode(context) == 0);
        return found;
    };
    for (tiny_arch const arch : {tiny_arch::llama, tiny_arch::qwen3}) {
        INFO(name_of(arch));
        CHECK(count(arch, true, ragged) == passes{14});
        CHECK(count(arch, true, apart) == passes{12});
    }
    // Recurrent memory takes as many tokens of each sequence in a pass: as many passes as there are different widths.
    for (tiny_arch const arch : {tiny_arch::lfm2, tiny_arch::jamba}) {
        INFO(name_of(arch));
        CHECK(count(arch, true, ragged) == passes{9, 5});
        CHECK(count(arch, true, equal) == passes{12});
        CHECK(count(arch, true, apart) == passes{12});
    }
    CHECK(count(tiny_arch::mamba, true, ragged) == passes{9, 5});
    CHECK(count(tiny_arch::mamba, true, equal) == passes{12});
    // Beyond that, sequences whose numbers follow each other: everywhere where the cache is not unified.
    CHECK(count(tiny_arch::mamba, true, apart) == passes{4, 4, 4});
    for (tiny_arch const arch : every_tiny_arch) {
        INFO(name_of(arch));
        CHECK(count(arch, false, ragged) == passes{9, 5});
        CHECK(count(arch, false, equal) == passes{12});
        CHECK(count(arch, false, apart) == passes{4, 4, 4});
    }
}

// ---- a row and its batch
// ------------------------------------------------------------------------------------------------

/// The largest difference that a row's logits have from those that it has alone, in batches of 2, 4 and 8 rows: of its
/// own sequence, or one each of others.
struct batch_differences {
    double own = 0;
    double others = 0;
};

batch_differences differences_in_batches(tiny_model const& model) {
    auto const tokens = random_tokens(28, 9);
    auto const prompt = std::span(tokens).first(20), next = std::span(tokens).subspan(20);
    std::vector<std::vector<float>> alone;
    tiny_context const one = after(model, prompt);
    for (std::size_t i = 0; i < next.size(); ++i) {
        REQUIRE(token_batch().add(next[i], 20 + static_cast<llama_pos>(i)).decode(one) == 0);
        alone.push_back(logits_of(one, 0));
    }
    batch_differences found;
    for (std::int32_t const width : {2, 4, 8}) {
        tiny_context const own = after(model, prompt);
        REQUIRE(token_batch().add(next.first(static_cast<std::size_t>(width)), 20).decode(own) == 0);
        tiny_context const others = make_context(model);
        token_batch batch;
        for (llama_seq_id sequence = 0; sequence < width; ++sequence) {
            REQUIRE(token_batch().add(prompt, 0, sequence).decode(others) == 0);
            batch.add(next[0], 20, sequence);
        }
        REQUIRE(batch.decode(others) == 0);
        for (std::int32_t i = 0; i < width; ++i) {
            found.own = std::max(found.own, largest_difference(logits_of(own, i), alone[static_cast<std::size_t>(i)]));
            found.others = std::max(found.others, largest_difference(logits_of(others, i), alone[0]));
        }
    }
    return found;
}

TEST_CASE("llama.cpp: whether a row depends on its batch", "[llama]") {
    scratch_folder const folder("tiny_models");
    bool const plain = ggml_cpu_has_llamafile() == 0;
    for (tiny_arch const arch : every_tiny_arch) {
        tiny_model const model = make_tiny(arch, 7);
        llama_model_save_to_file(model.get(), (folder / "f32.gguf").c_str());
        for (llama_ftype const format : {LLAMA_FTYPE_ALL_F32, LLAMA_FTYPE_MOSTLY_F16, LLAMA_FTYPE_MOSTLY_BF16,
                                         LLAMA_FTYPE_MOSTLY_Q8_0, LLAMA_FTYPE_MOSTLY_Q4_0, LLAMA_FTYPE_MOSTLY_Q4_1}) {
            INFO(name_of(arch) << " in " << llama_ftype_name(format));
            auto how = llama_model_quantize_default_params();
            how.ftype = format;
            how.nthread = 1;
            REQUIRE(llama_model_quantize((folder / "f32.gguf").c_str(), (folder / "format.gguf").c_str(), &how) == 0);
            tiny_model const rounded(
                llama_model_load_from_file((folder / "format.gguf").c_str(), llama_model_default_params()),
                llama_model_free);
            REQUIRE(rounded != nullptr);
            auto const [own, others] = differences_in_batches(rounded);
            std::printf("%s in %s: own rows %.1e, others' %.1e\n", name_of(arch), llama_ftype_name(format), own,
                        others);
            // Products of several rows by llamafile's kernels sum in another order than those of one: 0.05 is what BF16
            // makes of that. With the plain ones a row is the same to the bit, in every format.
            CHECK(own <= (plain ? 0.0 : 0.05));
            CHECK(others <= (plain ? 0.0 : 0.05));
        }
    }
}

}  // namespace

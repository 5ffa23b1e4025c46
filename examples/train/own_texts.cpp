// SPDX-License-Identifier: MIT
#include "own_texts.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include <engine/chat.hpp>
#include <engine/json_field.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/workspace.hpp>
#include <sureleap/sampling/distribution.hpp>
#include <sureleap/sampling/random.hpp>
#include <sureleap/verify/verify_batch.hpp>

#include "gemm.hpp"
#include "run.hpp"

namespace train {
namespace {

using sureleap::fail_with;
using clock = std::chrono::steady_clock;

/// A text that is being written.
struct unfinished {
    recorded_text text;
    std::size_t most = 0;  ///< tokens it may have
};

/// Draws the next token of a row and tells the likeliest ones. One for each row that is drawn at a time.
class drawing {
public:
    struct result {
        token_id token = sureleap::no_token;
        std::array<token_id, best_of_law> best_tokens{};
        std::array<float, best_of_law> best_shares{};
    };

    void operator()(std::span<float const> logits, sureleap::transform const& how, sureleap::draw_key const& key) {
        float const top = eigen_array(logits).maxCoeff();
        // To order a whole vocabulary for a top-p would take as long as the target. Tokens that are left out here have
        // less of the law together than a float can tell from nothing.
        double const reach = how.truncates() ? 25.0 * how.temperature : std::numeric_limits<double>::infinity();
        collect(logits, std::isfinite(reach) ? top - static_cast<float>(reach) : lowest(logits));
        out_.token = sureleap::no_token;
        if (candidates_.empty()) return;  // none of the logits is a number
        sureleap::vocabulary_view const view{candidates_, logits.size()};
        sureleap::distribution<float> const law =
            std::isfinite(reach) ? sureleap::distribution<float>({values_, {}, {}}, how, order(), view)
                                 : sureleap::distribution<float>({logits, {}, {}}, how, {});
        if (!law.valid()) return;
        out_.token = sureleap::philox_randomness{}.categorical(key, law);
        best(law);
    }
    [[nodiscard]] result const& got() const noexcept { return out_; }

private:
    static constexpr std::size_t chunk = 64;

    /// The tokens with at least this logit, ascending.
    void collect(std::span<float const> logits, float least) {
        candidates_.clear();
        values_.clear();
        for (std::size_t first = 0; first < logits.size(); first += chunk) {
            auto const some = logits.subspan(first, std::min(chunk, logits.size() - first));
            if (!(eigen_array(some).maxCoeff() >= least)) continue;
            for (std::size_t i = 0; i < some.size(); ++i) {
                if (!(some[i] >= least)) continue;
                candidates_.push_back(static_cast<token_id>(first + i));
                values_.push_back(some[i]);
            }
        }
    }

    /// A logit that some more tokens than are recorded reach: of as many chunks the least maximum.
    float lowest(std::span<float const> logits) {
        maxima_.clear();
        for (std::size_t first = 0; first < logits.size(); first += chunk) {
            maxima_.push_back(eigen_array(logits.subspan(first, std::min(chunk, logits.size() - first))).maxCoeff());
        }
        if (maxima_.size() <= best_of_law) return -std::numeric_limits<float>::max();
        auto const nth = maxima_.begin() + (best_of_law - 1);
        std::ranges::nth_element(maxima_, nth, std::greater<>{});
        return *nth;
    }

    std::span<token_id> order() {
        order_.resize(candidates_.size());
        return order_;
    }

    void best(sureleap::distribution<float> const& law) {
        sorted_.resize(candidates_.size());
        std::iota(sorted_.begin(), sorted_.end(), std::size_t{0});
        std::size_t const count = std::min(best_of_law, sorted_.size());
        std::ranges::partial_sort(sorted_, sorted_.begin() + static_cast<std::ptrdiff_t>(count),
                                  [&](std::size_t a, std::size_t b) {
                                      return values_[a] > values_[b] || (values_[a] == values_[b] && a < b);
                                  });
        for (std::size_t i = 0; i < best_of_law; ++i) {
            out_.best_tokens[i] = i < count ? candidates_[sorted_[i]] : 0;
            out_.best_shares[i] = i < count ? static_cast<float>(law.probability(candidates_[sorted_[i]])) : 0.0f;
        }
    }

    std::vector<token_id> candidates_;
    std::vector<float> values_;
    std::vector<float> maxima_;
    std::vector<token_id> order_;
    std::vector<std::size_t> sorted_;
    result out_;
};

/// The pass of the target in which every text has a row.
class row_batch {
public:
    explicit row_batch(std::size_t most) {
        sureleap::workspace sizer;
        static_cast<void>(sureleap::verify_batch(sizer, most, 1));
        memory_.resize(sizer.used());
        sureleap::workspace carver{memory_};
        batch_ = sureleap::verify_batch(carver, most, 1);
    }
    row_batch(row_batch const&) = delete;
    row_batch& operator=(row_batch const&) = delete;

    void clear() { requests_.clear(); }
    void add(std::size_t slot, std::vector<token_id> const& tokens) {
        requests_.push_back({.id = slot + 1,
                             .slot = slot,
                             .anchor = tokens.back(),
                             .position = tokens.size() - 1,
                             .remaining = 1,
                             .settings = &settings_});
    }
    [[nodiscard]] std::size_t size() const noexcept { return requests_.size(); }
    [[nodiscard]] std::size_t slot(std::size_t row) const noexcept { return requests_[row].slot; }
    [[nodiscard]] sureleap::verify_batch const& batch() {
        batch_.begin(requests_);
        for (std::size_t i = 0; i < requests_.size(); ++i) batch_.append({});
        return batch_;
    }

private:
    sureleap::request_settings settings_;
    std::vector<sureleap::request_view> requests_;
    std::vector<std::byte> memory_;
    sureleap::verify_batch batch_;
};

/// A number beyond the largest of F16 would become infinite, and an infinite feature has no gradient.
void append(std::vector<sureleap::half>& to, std::span<float const> row) {
    constexpr float largest = 65504.0f;
    for (float const x : row) to.emplace_back(std::clamp(x, -largest, largest));
}

class progress {
public:
    progress(std::size_t all, std::size_t seconds) : all_(all), seconds_(seconds) {}

    void operator()(std::size_t texts, std::size_t tokens) {
        if (clock::now() < next_) return;
        next_ = clock::now() + seconds_;
        double const spent = std::chrono::duration<double>(clock::now() - start_).count();
        double const left =
            spent / static_cast<double>(std::max<std::size_t>(texts, 1)) * static_cast<double>(all_ - texts);
        std::printf("%zu of %zu texts, %zu tokens written, %.0f tokens/s, about %.0f s left\n", texts, all_, tokens,
                    static_cast<double>(tokens) / spent, left);
        std::fflush(stdout);
    }

private:
    std::size_t all_;
    std::chrono::seconds seconds_;
    clock::time_point start_ = clock::now();
    clock::time_point next_ = start_ + seconds_;
};

engine::chat_role role_of(engine::json_field const& role) {
    if (role.text() == "system") return engine::chat_role::system;
    if (role.text() == "user") return engine::chat_role::user;
    if (role.text() == "assistant") return engine::chat_role::assistant;
    role.wrong("system, user or assistant");
}

}  // namespace

std::vector<std::size_t> shuffled_prompts(std::size_t prompts, std::uint64_t seed) {
    std::vector<std::uint64_t> draws(prompts);
    for (std::size_t i = 0; i < prompts; ++i) {
        auto const bits =
            sureleap::philox4x32({static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i >> 32), 0, 3}, seed);
        draws[i] = (std::uint64_t{bits[0]} << 32) | bits[1];
    }
    std::vector<std::size_t> order(prompts);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::sort(order,
                      [&](std::size_t i, std::size_t j) { return std::pair(draws[i], i) < std::pair(draws[j], j); });
    return order;
}

bool write_own_texts(engine::target<float>& target, documents const& prompts, own_texts_settings const& settings,
                     engine::thread_pool& pool, std::function<bool(std::size_t)> const& done,
                     std::function<void(recorded_text)> const& finished) {
    auto const& limits = target.limits();
    if (settings.longest > limits.context_length + 1) {
        fail_with("own texts: texts of up to ", settings.longest,
                  " tokens were asked for, expected at most the context of ", limits.context_length, " and one");
    }
    auto const order = shuffled_prompts(prompts.size(), settings.seed);
    std::size_t const wanted = prompts.size() == 0 ? 0 : settings.texts == 0 ? prompts.size() : settings.texts;
    std::vector<std::size_t> numbers;  // of the texts that are left to write
    for (std::size_t n = 0; n < wanted; ++n) {
        std::size_t const prompt = prompts[order[n % order.size()]].prompt;
        if (prompt > 0 && prompt + 2 <= settings.longest && !done(n)) numbers.push_back(n);
    }

    std::vector<std::optional<unfinished>> slots(limits.slots);
    std::vector<drawing> drawings(limits.slots);
    row_batch rows(limits.slots);
    progress report(numbers.size(), settings.seconds_between_reports);
    std::size_t begun = 0;
    std::size_t ended = 0;
    std::size_t written = 0;
    auto const begin = [&](std::size_t slot) {
        std::size_t const number = numbers[begun++];
        auto const document = prompts[order[number % order.size()]];
        unfinished& u = slots[slot].emplace();
        u.text.number = number;
        u.text.domain = document.domain;
        u.text.prompt = document.prompt;
        u.text.tokens.assign(document.tokens.begin(),
                             document.tokens.begin() + static_cast<std::ptrdiff_t>(document.prompt));
        u.most = std::min(settings.longest, document.prompt + settings.max_new_tokens);
        std::size_t const before_anchor = document.prompt - 1;
        for (std::size_t first = 0; first < before_anchor;) {
            std::size_t const count = std::min(limits.max_rows, before_anchor - first);
            target.prefill(slot, first, document.tokens.subspan(first, count));
            for (std::size_t i = 0; i < count; ++i) append(u.text.features, target.features().row(i));
            first += count;
        }
    };

    while (ended < numbers.size() && !interrupted()) {
        rows.clear();
        for (std::size_t slot = 0; slot < slots.size(); ++slot) {
            if (!slots[slot] && begun < numbers.size()) begin(slot);
            if (slots[slot]) rows.add(slot, slots[slot]->text.tokens);
        }
        auto const logits = target.score(rows.batch());
        pool.run(rows.size(), [&](std::size_t i) {
            recorded_text const& text = slots[rows.slot(i)]->text;
            drawings[i](logits.values.row(i), settings.sampling,
                        {settings.seed + text.number, text.tokens.size() - 1, 0, sureleap::purpose::bonus});
        });
        for (std::size_t i = 0; i < rows.size(); ++i) {
            auto& slot = slots[rows.slot(i)];
            recorded_text& text = slot->text;
            auto const& drawn = drawings[i].got();
            if (drawn.token == sureleap::no_token) {
                fail_with("own texts: the target's logits after token ", text.tokens.size() - 1, " of text ",
                          text.number, " make no law, expected finite numbers");
            }
            append(text.features, target.features().row(i));
            text.tokens.push_back(drawn.token);
            text.best_tokens.insert(text.best_tokens.end(), drawn.best_tokens.begin(), drawn.best_tokens.end());
            text.best_shares.insert(text.best_shares.end(), drawn.best_shares.begin(), drawn.best_shares.end());
            ++written;
            bool const stops = std::ranges::find(settings.stop_tokens, drawn.token) != settings.stop_tokens.end();
            if (!stops && text.tokens.size() < slot->most) continue;
            finished(std::move(text));
            slot.reset();
            ++ended;
        }
        report(ended, written);
    }
    return ended == numbers.size();
}

documents read_prompts(std::filesystem::path const& file, engine::tokenizer const& tokens,
                       engine::chat_template const& format, std::map<std::string, std::size_t> const& repeats) {
    std::ifstream in(file);
    if (!in) fail_with(file.string(), ": cannot be opened");
    documents all;
    std::string line;
    for (std::size_t number = 1; std::getline(in, line); ++number) {
        if (line.empty()) continue;
        std::string const where = file.string() + ":" + std::to_string(number);
        auto const document = engine::parse_json_object(line, where);
        engine::json_field const root(document, where);
        std::string const& domain = root["domain"].text();
        std::vector<token_id> prompt;
        if (auto const messages = root["messages"]; messages.present()) {
            std::vector<engine::chat_turn> turns;
            messages.each(
                [&](engine::json_field const& m) { turns.push_back({role_of(m["role"]), m["content"].text()}); });
            if (turns.empty() || turns.back().role != engine::chat_role::user) {
                messages.wrong("turns of which the user has the last");
            }
            prompt = engine::chat_prompt(tokens, turns, format);
        } else {
            prompt = tokens.encode(root["prompt"].text());
        }
        auto const repeat = repeats.find(domain);
        for (std::size_t i = 0; i < (repeat == repeats.end() ? 1 : repeat->second); ++i) {
            all.add(prompt, prompt.size(), domain);
        }
    }
    return all;
}

}  // namespace train

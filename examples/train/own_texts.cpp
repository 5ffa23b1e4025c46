// SPDX-License-Identifier: MIT
#include "own_texts.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <utility>
#include <variant>

#include <engine/causal_lm.hpp>
#include <engine/checkpoint.hpp>
#include <engine/server.hpp>
#include <sureleap/core/error.hpp>

namespace train {

documents write_own_texts(std::filesystem::path const& folder, documents const& prompts,
                          own_texts_settings const& settings, engine::thread_pool& pool) {
    engine::checkpoint from(folder);
    auto const stop_tokens = from.config().stop_tokens;
    engine::causal_lm<float> target(std::move(from), {}, pool,
                                    {settings.at_once, settings.longest, std::max<std::size_t>(settings.at_once, 256)});
    engine::any_drafter<float> nothing = engine::no_drafter<float>(target.vocabulary());
    engine::server<float> server(target, nothing, nullptr, sureleap::fixed_schedule{}, sureleap::token_rejection<>{},
                                 pool);

    std::vector<std::vector<token_id>> texts(prompts.size());
    std::map<sureleap::request_id, std::size_t> documents_of;
    std::size_t waiting = 0;
    std::size_t const wanted = settings.texts == 0 ? prompts.size() : std::min(settings.texts, prompts.size());
    for (std::size_t n = 0; n < wanted; ++n) {
        std::size_t const i = n * prompts.size() / wanted;
        auto const prompt = prompts[i].tokens.first(prompts[i].prompt);
        if (prompt.empty() || prompt.size() + 2 > settings.longest) continue;
        sureleap::request_settings request{.temperature = settings.temperature,
                                           .seed = settings.seed + i,
                                           .max_new_tokens = settings.longest - prompt.size(),
                                           .stop_tokens = stop_tokens};
        texts[i].assign(prompt.begin(), prompt.end());
        documents_of[server.submit(texts[i], request)] = i;
        ++waiting;
    }

    using clock = std::chrono::steady_clock;
    auto const start = clock::now();
    auto next = start + std::chrono::seconds(settings.seconds_between_reports);
    std::size_t written = 0;
    std::size_t const all = waiting;
    while (server.step()) {
        for (auto const& event : server.events()) {
            std::size_t const i = documents_of.at(event.id);
            if (event.outcome != sureleap::status::ok) {
                sureleap::fail_with("text ", i, " ended at token ", texts[i].size(), ": ",
                                    sureleap::to_string(event.outcome));
            }
            texts[i].insert(texts[i].end(), event.tokens.begin(), event.tokens.end());
            written += event.tokens.size();
            waiting -= event.finished ? 1 : 0;
        }
        if (clock::now() < next) continue;
        next = clock::now() + std::chrono::seconds(settings.seconds_between_reports);
        double const spent = std::chrono::duration<double>(clock::now() - start).count();
        double const left =
            spent / static_cast<double>(std::max<std::size_t>(all - waiting, 1)) * static_cast<double>(waiting);
        std::printf("%zu of %zu texts, %zu tokens, %.0f tokens/s, about %.0f s left\n", all - waiting, all, written,
                    static_cast<double>(written) / spent, left);
        std::fflush(stdout);
    }

    documents out;
    for (std::size_t i = 0; i < texts.size(); ++i) {
        if (texts[i].size() > prompts[i].prompt) out.add(texts[i], prompts[i].prompt, prompts[i].domain);
    }
    return out;
}

}  // namespace train

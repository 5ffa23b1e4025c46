// SPDX-License-Identifier: MIT
#include "draft_vocabulary.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include <sureleap/core/error.hpp>
#include <sureleap/ext/safetensors.hpp>
#include <sureleap/ext/safetensors_writer.hpp>

namespace train {
namespace {

using sureleap::fail_with;

constexpr std::size_t one_held_back_in = 20;

/// f(token, share) for everything that is known of how often text i has which token.
template <class F>
void for_each_share(recorded_texts const& recorded, std::size_t i, F const& f) {
    auto const text = recorded.texts()[i];
    for (std::size_t t = text.prompt; t < text.tokens.size(); ++t) {
        auto const law = recorded.law_of(i, t);
        bool known = false;
        for (std::size_t j = 0; j < law.tokens.size() && law.shares[j] > 0.0f; ++j) {
            f(law.tokens[j], static_cast<double>(law.shares[j]));
            known = known || law.tokens[j] == text.tokens[t];
        }
        if (!known) f(text.tokens[t], 1.0);
    }
}

}  // namespace

chosen_vocabulary choose_vocabulary(recorded_texts const& recorded, std::size_t vocabulary, std::size_t size) {
    std::vector<double> counts(vocabulary);
    for (std::size_t i = 0; i < recorded.texts().size(); ++i) {
        if (i % one_held_back_in == 0) continue;
        for_each_share(recorded, i, [&](token_id token, double share) {
            if (token >= 0 && static_cast<std::size_t>(token) < vocabulary)
                counts[static_cast<std::size_t>(token)] += share;
        });
    }
    std::vector<token_id> order(vocabulary);
    std::iota(order.begin(), order.end(), token_id{0});
    auto const count = [&](token_id v) { return counts[static_cast<std::size_t>(v)]; };
    std::ranges::sort(order,
                      [&](token_id a, token_id b) { return count(a) > count(b) || (count(a) == count(b) && a < b); });
    if (size == 0 || size > vocabulary || count(order[size - 1]) == 0.0) {
        auto const found = std::ranges::count_if(counts, [](double c) { return c > 0.0; });
        fail_with("draft vocabulary: ", size, " tokens were asked for, expected 1 .. ", found,
                  ", the different ones of the texts");
    }
    chosen_vocabulary out;
    out.tokens.assign(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(size));
    std::ranges::sort(out.tokens);
    std::vector<bool> chosen(vocabulary);
    for (token_id const v : out.tokens) chosen[static_cast<std::size_t>(v)] = true;
    std::size_t covered = 0;
    for (std::size_t i = 0; i < recorded.texts().size(); i += one_held_back_in) {
        auto const text = recorded.texts()[i];
        for (token_id const v : text.tokens.subspan(text.prompt)) {
            if (chosen[static_cast<std::size_t>(v)]) ++covered;
        }
        out.held_back += text.tokens.size() - text.prompt;
    }
    out.coverage = static_cast<double>(covered) / static_cast<double>(out.held_back);
    return out;
}

void write_vocabulary(std::filesystem::path const& file, std::span<token_id const> tokens) {
    sureleap::safetensors::writer out(file, {{"d2t", sureleap::safetensors::dtype::i32, {tokens.size()}}});
    out.append(std::as_bytes(tokens));
    out.finish();
}

std::vector<token_id> read_vocabulary(std::filesystem::path const& file, std::size_t vocabulary) {
    auto const in = sureleap::safetensors::file::map(file);
    auto const& shape = in.at("d2t").shape;
    auto const tokens = in.values<token_id>("d2t", {shape.empty() ? 0 : shape[0]});
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        token_id const least = i == 0 ? 0 : tokens[i - 1] + 1;
        if (tokens[i] >= least && static_cast<std::size_t>(tokens[i]) < vocabulary) continue;
        fail_with(in.name(), ": tensor 'd2t' has ", tokens[i], " at ", i, ", expected rising tokens, here ", least,
                  " .. ", vocabulary - 1);
    }
    if (tokens.empty()) fail_with(in.name(), ": tensor 'd2t' is empty, expected at least one token");
    return {tokens.begin(), tokens.end()};
}

}  // namespace train

// SPDX-License-Identifier: MIT
#include "recorded_texts.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <utility>

#include <sureleap/core/error.hpp>
#include <sureleap/ext/safetensors_writer.hpp>

namespace train {
namespace {

using sureleap::fail_with;
using sureleap::safetensors::dtype;
using sureleap::safetensors::file;
namespace fs = std::filesystem;

fs::path shard_name(fs::path const& folder, std::size_t number) {
    char name[32];
    std::snprintf(name, sizeof name, "%05zu.safetensors", number);
    return folder / name;
}

std::string in_words(std::vector<int> const& layers) {
    std::string text;
    for (int const layer : layers) text += (text.empty() ? "" : ",") + std::to_string(layer);
    return text;
}

std::string metadata(file const& from, std::string const& key) {
    auto const found = from.metadata().find(key);
    if (found == from.metadata().end()) {
        fail_with(from.name(), ": no '", key, "' in its metadata, expected a shard that `train texts` wrote");
    }
    return found->second;
}

std::vector<int> layers_of(file const& from) {
    std::vector<int> layers;
    std::string const text = metadata(from, "feature_layers");
    for (std::size_t first = 0; first < text.size();) {
        std::size_t const end = std::min(text.find(',', first), text.size());
        layers.push_back(std::atoi(text.substr(first, end - first).c_str()));
        first = end + 1;
    }
    return layers;
}

std::size_t extent(file const& from, char const* name, std::size_t dimension, std::size_t dimensions) {
    auto const& shape = from.at(name).shape;
    if (shape.size() != dimensions) {
        fail_with(from.name(), ": tensor '", name, "' has ", shape.size(), " dimensions, expected ", dimensions);
    }
    return shape[dimension];
}

}  // namespace

// ---- writing -------------------------------------------------------------------------------------------------------

recorder::recorder(fs::path folder, recording_settings settings)
    : folder_(std::move(folder)), settings_(std::move(settings)) {
    fs::create_directories(folder_);
    for (; fs::exists(shard_name(folder_, shards_)); ++shards_) {
        auto const in = file::map(shard_name(folder_, shards_));
        std::string const layers = in_words(settings_.feature_layers);
        for (auto const& [key, expected] :
             {std::pair<char const*, std::string const&>{"written_by", settings_.written_by},
              std::pair<char const*, std::string const&>{"feature_layers", layers}}) {
            if (std::string const is = metadata(in, key); is != expected) {
                fail_with(in.name(),
                          ": belongs to another recording; choose another folder, or go on with its settings\n",
                          "  recorded: ", is, "\n  expected: ", expected);
            }
        }
        for (std::int64_t const n : in.values<std::int64_t>("numbers", {extent(in, "numbers", 0, 1)})) {
            written_.insert(static_cast<std::size_t>(n));
        }
    }
}

void recorder::add(recorded_text text) {
    std::size_t const rows = text.tokens.size() - 1;
    std::size_t const laws = text.tokens.size() - text.prompt;
    if (text.features.size() != rows * settings_.width || text.best_tokens.size() != laws * best_of_law ||
        text.best_shares.size() != text.best_tokens.size()) {
        fail_with("recorder: text ", text.number, " of ", text.tokens.size(), " tokens has ", text.features.size(),
                  " features and ", text.best_tokens.size(), " and ", text.best_shares.size(),
                  " likeliest tokens and shares, expected ", rows * settings_.width, " and ", laws * best_of_law);
    }
    tokens_ += text.tokens.size();
    texts_.push_back(std::move(text));
    if (tokens_ >= settings_.shard_tokens) flush();
}

void recorder::flush() {
    if (texts_.empty()) return;
    std::vector<std::int64_t> begins{0};
    std::vector<std::int64_t> prompts;
    std::vector<std::int64_t> domains;
    std::vector<std::int64_t> numbers;
    std::map<std::string, std::int64_t> known;
    std::size_t laws = 0;
    for (recorded_text const& t : texts_) {
        begins.push_back(begins.back() + static_cast<std::int64_t>(t.tokens.size()));
        prompts.push_back(static_cast<std::int64_t>(t.prompt));
        domains.push_back(known.emplace(t.domain, static_cast<std::int64_t>(known.size())).first->second);
        numbers.push_back(static_cast<std::int64_t>(t.number));
        laws += t.tokens.size() - t.prompt;
    }
    sureleap::safetensors::metadata_map about{{"feature_layers", in_words(settings_.feature_layers)},
                                              {"written_by", settings_.written_by}};
    for (auto const& [domain, index] : known) about["domain " + std::to_string(index)] = domain;
    std::size_t const n = texts_.size();
    sureleap::safetensors::writer out(shard_name(folder_, shards_),
                                      {{"begins", dtype::i64, {n + 1}},
                                       {"prompts", dtype::i64, {n}},
                                       {"domains", dtype::i64, {n}},
                                       {"numbers", dtype::i64, {n}},
                                       {"tokens", dtype::i32, {tokens_}},
                                       {"best_tokens", dtype::i32, {laws, best_of_law}},
                                       {"best_shares", dtype::f32, {laws, best_of_law}},
                                       {"features", dtype::f16, {tokens_ - n, settings_.width}}},
                                      about);
    for (auto const* integers : {&begins, &prompts, &domains, &numbers}) {
        out.append(std::as_bytes(std::span(std::as_const(*integers))));
    }
    for (recorded_text const& t : texts_) out.append(std::as_bytes(std::span(t.tokens)));
    for (recorded_text const& t : texts_) out.append(std::as_bytes(std::span(t.best_tokens)));
    for (recorded_text const& t : texts_) out.append(std::as_bytes(std::span(t.best_shares)));
    for (recorded_text const& t : texts_) out.append(std::as_bytes(std::span(t.features)));
    out.finish();
    for (recorded_text const& t : texts_) written_.insert(t.number);
    texts_.clear();
    tokens_ = 0;
    ++shards_;
}

// ---- reading -------------------------------------------------------------------------------------------------------

/// The tensors of a shard, of which all shapes agree.
struct recorded_texts::shard {
    explicit shard(file const& from, std::size_t vocabulary)
        : begins(from.values<std::int64_t>("begins", {extent(from, "begins", 0, 1)})),
          prompts(from.values<std::int64_t>("prompts", {extent(from, "prompts", 0, 1)})),
          domains(from.values<std::int64_t>("domains", {prompts.size()})),
          numbers(from.values<std::int64_t>("numbers", {prompts.size()})),
          tokens(from.values<token_id>("tokens", {extent(from, "tokens", 0, 1)})),
          width(extent(from, "features", 1, 2)) {
        std::size_t const n = prompts.size();
        if (n == 0 || begins.size() != n + 1 || begins.front() != 0 ||
            begins.back() != static_cast<std::int64_t>(tokens.size())) {
            fail_with(from.name(), ": ", n, " texts with ", begins.size(), " begins over ", tokens.size(),
                      " tokens do not fit each other");
        }
        std::size_t laws = 0;
        for (std::size_t i = 0; i < n; ++i) {
            std::int64_t const size = begins[i + 1] - begins[i];
            if (prompts[i] < 1 || prompts[i] >= size || numbers[i] < 0 || domains[i] < 0) {
                fail_with(from.name(), ": text ", i, " has ", size, " tokens, a prompt of ", prompts[i], ", domain ",
                          domains[i], " and number ", numbers[i],
                          ", expected a prompt within the text and no negative number");
            }
            laws += static_cast<std::size_t>(size - prompts[i]);
        }
        for (std::size_t i = 0; i < tokens.size(); ++i) {
            if (tokens[i] >= 0 && static_cast<std::size_t>(tokens[i]) < vocabulary) continue;
            fail_with(from.name(), ": tokens[", i, "] is ", tokens[i], ", expected a token below ", vocabulary);
        }
        features = from.values<sureleap::half>("features", {tokens.size() - n, width});
        best_tokens = from.values<token_id>("best_tokens", {laws, best_of_law});
        best_shares = from.values<float>("best_shares", {laws, best_of_law});
        for (std::size_t i = 0; i < best_shares.size(); ++i) {
            if (best_shares[i] >= 0.0f && best_shares[i] <= 1.0f) continue;
            fail_with(from.name(), ": best_shares[", i / best_of_law, ", ", i % best_of_law, "] is ", best_shares[i],
                      ", expected a probability");
        }
    }

    std::span<std::int64_t const> begins;
    std::span<std::int64_t const> prompts;
    std::span<std::int64_t const> domains;
    std::span<std::int64_t const> numbers;
    std::span<token_id const> tokens;
    std::size_t width;
    std::span<sureleap::half const> features;
    std::span<token_id const> best_tokens;
    std::span<float const> best_shares;
};

recorded_texts::recorded_texts(std::span<fs::path const> folders, std::size_t vocabulary) {
    for (fs::path const& folder : folders) add(folder, vocabulary);
}

void recorded_texts::add(fs::path const& folder, std::size_t vocabulary) {
    struct found {
        std::span<token_id const> tokens;
        std::size_t prompt;
        std::string domain;
        place where;
    };
    std::map<std::int64_t, found> by_number;
    for (std::size_t s = 0; fs::exists(shard_name(folder, s)); ++s) {
        bool const is_first = files_.empty();
        file const& from = files_.emplace_back(file::map(shard_name(folder, s)));
        shard const in(from, vocabulary);
        auto layers = layers_of(from);
        if (is_first) {
            feature_layers_ = std::move(layers);
            width_ = in.width;
        } else if (layers != feature_layers_ || in.width != width_) {
            fail_with(from.name(), ": has ", in.width, " features of layers ", in_words(layers), ", expected ", width_,
                      " of layers ", in_words(feature_layers_), " as in the first shard");
        }
        std::size_t laws = 0;
        for (std::size_t i = 0; i < in.prompts.size(); ++i) {
            auto const begin = static_cast<std::size_t>(in.begins[i]);
            auto const size = static_cast<std::size_t>(in.begins[i + 1]) - begin;
            auto const prompt = static_cast<std::size_t>(in.prompts[i]);
            place const where{in.features.data() + (begin - i) * width_, in.best_tokens.data() + laws * best_of_law,
                              in.best_shares.data() + laws * best_of_law};
            auto const [at, is_new] =
                by_number.try_emplace(in.numbers[i], in.tokens.subspan(begin, size), prompt,
                                      metadata(from, "domain " + std::to_string(in.domains[i])), where);
            if (!is_new) fail_with(from.name(), ": text ", in.numbers[i], " is in an earlier shard as well");
            laws += size - prompt;
        }
    }
    if (by_number.empty()) {
        fail_with(folder.string(), ": has no 00000.safetensors, expected a recording that `train texts` wrote");
    }
    for (auto const& [number, text] : by_number) {
        texts_.add(text.tokens, text.prompt, text.domain);
        places_.push_back(text.where);
    }
}

sureleap::matrix_view<sureleap::half> recorded_texts::features(std::size_t text) const noexcept {
    return {places_[text].features, texts_[text].tokens.size() - 1, width_};
}

recorded_texts::law recorded_texts::law_of(std::size_t text, std::size_t t) const noexcept {
    std::size_t const first = (t - texts_[text].prompt) * best_of_law;
    return {{places_[text].best_tokens + first, best_of_law}, {places_[text].best_shares + first, best_of_law}};
}

}  // namespace train

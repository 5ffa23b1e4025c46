// SPDX-License-Identifier: MIT
#include "documents.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <numeric>
#include <utility>

#include <nlohmann/json.hpp>

#include <sureleap/core/error.hpp>
#include <sureleap/ext/safetensors.hpp>
#include <sureleap/ext/safetensors_writer.hpp>
#include <sureleap/sampling/random.hpp>

#include "checksum.hpp"

namespace train {
namespace {

using sureleap::fail_with;

std::string string_field(nlohmann::json const& line, char const* name, std::string const& where) {
    auto const found = line.find(name);
    if (found == line.end() || !found->is_string()) {
        fail_with(where, ": '", name, "' is missing or no string, expected {\"domain\", \"prompt\", \"completion\"}");
    }
    return found->get<std::string>();
}

// The numbers of a one-dimensional I64 tensor.
std::vector<std::int64_t> integers(sureleap::safetensors::file const& from, std::string const& name) {
    auto const& t = from.at(name);
    if (t.type != sureleap::safetensors::dtype::i64 || t.shape.size() != 1) {
        fail_with(from.name(), ": tensor '", name, "' is not I64 [n], expected documents written by `train generate`");
    }
    std::vector<std::int64_t> out(t.shape[0]);
    std::memcpy(out.data(), t.bytes.data(), out.size() * sizeof(std::int64_t));
    return out;
}

}  // namespace

std::vector<corpus_line> read_corpus(std::filesystem::path const& file) {
    std::ifstream in(file);
    if (!in) fail_with(file.string(), ": cannot be opened");
    std::vector<corpus_line> lines;
    std::string text;
    for (std::size_t number = 1; std::getline(in, text); ++number) {
        if (text.empty()) continue;
        std::string const where = file.string() + ":" + std::to_string(number);
        auto const json = nlohmann::json::parse(text, nullptr, false);
        if (!json.is_object()) fail_with(where, ": no JSON object, expected one a line");
        lines.push_back({string_field(json, "domain", where), string_field(json, "prompt", where),
                         string_field(json, "completion", where)});
    }
    return lines;
}

std::uint64_t documents::checksum() const noexcept {
    std::uint64_t sum = train::checksum(std::as_bytes(std::span(tokens_)));
    for (entry const& e : entries_) {
        std::uint64_t const place[] = {e.begin, e.size, e.prompt};
        sum = train::checksum(std::as_bytes(std::span(place)), sum);
    }
    return sum;
}

std::size_t documents::tokens_of(std::string const& domain) const {
    std::size_t sum = 0;
    for (entry const& e : entries_) sum += domains_[e.domain] == domain ? e.size : 0;
    return sum;
}

void documents::add(std::span<token_id const> tokens, std::size_t prompt, std::string const& domain) {
    auto found = std::ranges::find(domains_, domain);
    if (found == domains_.end()) found = domains_.insert(found, domain);
    entries_.push_back(
        {tokens_.size(), tokens.size(), prompt, static_cast<std::size_t>(std::distance(domains_.begin(), found))});
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
}

documents documents::read(std::filesystem::path const& file, engine::tokenizer const& tokens, token_id end,
                          std::size_t longest, std::map<std::string, std::size_t> const& repeats) {
    documents all;
    for (corpus_line const& line : read_corpus(file)) {
        auto text = tokens.encode(line.prompt);
        std::size_t const prompt = text.size();
        auto const completion = tokens.encode(line.completion);
        text.insert(text.end(), completion.begin(), completion.end());
        text.push_back(end);
        auto const repeat = repeats.find(line.domain);
        std::size_t const times = repeat == repeats.end() ? 1 : repeat->second;
        for (std::size_t i = 0; i < times; ++i) {
            for (std::size_t first = 0; first < text.size(); first += longest) {
                std::size_t const count = std::min(longest, text.size() - first);
                if (count < 2) continue;  // nothing to predict
                all.add(std::span(text).subspan(first, count), prompt > first ? std::min(prompt - first, count) : 0,
                        line.domain);
            }
        }
    }
    return all;
}

documents documents::load(std::filesystem::path const& file, std::size_t longest, std::size_t vocabulary) {
    auto const in = sureleap::safetensors::file::map(file);
    auto const tokens = integers(in, "tokens");
    auto const begins = integers(in, "begins");
    auto const prompts = integers(in, "prompts");
    auto const domains = integers(in, "domains");
    std::vector<std::string> names;
    for (std::size_t i = 0;; ++i) {
        auto const found = in.metadata().find("domain " + std::to_string(i));
        if (found == in.metadata().end()) break;
        names.push_back(found->second);
    }
    if (begins.size() != prompts.size() + 1 || prompts.size() != domains.size() || begins.front() != 0 ||
        begins.back() != static_cast<std::int64_t>(tokens.size())) {
        fail_with(file.string(), ": ", begins.size(), " begins, ", prompts.size(), " prompts and ", domains.size(),
                  " domains over ", tokens.size(), " tokens do not fit each other");
    }
    std::vector<token_id> ids;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        if (tokens[i] < 0 || static_cast<std::size_t>(tokens[i]) >= vocabulary) {
            fail_with(file.string(), ": tokens[", i, "] is ", tokens[i], ", expected a token below ", vocabulary);
        }
        ids.push_back(static_cast<token_id>(tokens[i]));
    }
    documents all;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
        std::int64_t const size = begins[i + 1] - begins[i];
        if (size < 2 || static_cast<std::size_t>(size) > longest || prompts[i] < 0 || prompts[i] > size ||
            domains[i] < 0 || static_cast<std::size_t>(domains[i]) >= names.size()) {
            fail_with(file.string(), ": document ", i, " has ", size, " tokens, a prompt of ", prompts[i],
                      " and domain ", domains[i], ", expected 2 .. ", longest, " tokens, a prompt within and one of ",
                      names.size(), " domains");
        }
        all.add(std::span(ids).subspan(static_cast<std::size_t>(begins[i]), static_cast<std::size_t>(size)),
                static_cast<std::size_t>(prompts[i]), names[static_cast<std::size_t>(domains[i])]);
    }
    return all;
}

void documents::save(std::filesystem::path const& file) const {
    std::vector<std::int64_t> const tokens(tokens_.begin(), tokens_.end());
    std::vector<std::int64_t> begins{0};
    std::vector<std::int64_t> prompts;
    std::vector<std::int64_t> domains;
    for (entry const& e : entries_) {
        begins.push_back(static_cast<std::int64_t>(e.begin + e.size));
        prompts.push_back(static_cast<std::int64_t>(e.prompt));
        domains.push_back(static_cast<std::int64_t>(e.domain));
    }
    sureleap::safetensors::metadata_map names;
    for (std::size_t i = 0; i < domains_.size(); ++i) names["domain " + std::to_string(i)] = domains_[i];
    using sureleap::safetensors::dtype;
    sureleap::safetensors::writer out(file,
                                      {{"tokens", dtype::i64, {tokens.size()}},
                                       {"begins", dtype::i64, {begins.size()}},
                                       {"prompts", dtype::i64, {prompts.size()}},
                                       {"domains", dtype::i64, {domains.size()}}},
                                      names);
    for (std::span<std::int64_t const> const numbers :
         {std::span(tokens), std::span(std::as_const(begins)), std::span(std::as_const(prompts)),
          std::span(std::as_const(domains))}) {
        out.append(std::as_bytes(numbers));
    }
    out.finish();
}

batch_plan::batch_plan(documents const& all, std::size_t tokens, std::uint64_t seed)
    : all_(all), tokens_(tokens), seed_(seed) {
    if (all.size() == 0) sureleap::fail_with("batch_plan: there is no document, expected at least one");
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (all[i].tokens.size() <= tokens) continue;
        fail_with("batch_plan: document ", i, " has ", all[i].tokens.size(), " tokens, expected at most the ", tokens,
                  " of a batch");
    }
    shuffle();
}

batch_plan::batch batch_plan::at(std::size_t step) {
    if (step < first_step_) {
        epoch_ = 0;
        first_step_ = 0;
        shuffle();
    }
    while (step - first_step_ >= begins_.size() - 1) {
        first_step_ += begins_.size() - 1;
        ++epoch_;
        shuffle();
    }
    std::size_t const i = step - first_step_;
    return {epoch_, std::span(order_).subspan(begins_[i], begins_[i + 1] - begins_[i])};
}

// The order of an epoch: sorted by a draw of its own for every document.
void batch_plan::shuffle() {
    std::vector<std::uint64_t> draws(all_.size());
    for (std::size_t i = 0; i < draws.size(); ++i) {
        auto const bits = sureleap::philox4x32(
            {static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i >> 32), static_cast<std::uint32_t>(epoch_), 1},
            seed_);
        draws[i] = (std::uint64_t{bits[0]} << 32) | bits[1];
    }
    order_.resize(all_.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::ranges::sort(order_,
                      [&](std::size_t i, std::size_t j) { return std::pair(draws[i], i) < std::pair(draws[j], j); });
    begins_.assign(1, 0);
    std::size_t sum = 0;
    for (std::size_t i = 0; i < order_.size(); ++i) {
        std::size_t const size = all_[order_[i]].tokens.size();
        if (sum + size > tokens_) {
            begins_.push_back(i);
            sum = 0;
        }
        sum += size;
    }
    begins_.push_back(order_.size());
}

}  // namespace train

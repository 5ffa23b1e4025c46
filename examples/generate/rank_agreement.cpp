// SPDX-License-Identifier: MIT
#include "rank_agreement.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include <engine/kernels.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/ranks/rank_consensus.hpp>

namespace generate {
namespace {

/// FNV-1a, 64 bits.
class digest {
public:
    void put(std::span<std::byte const> bytes) noexcept {
        for (std::byte const b : bytes) value_ = (value_ ^ static_cast<std::uint64_t>(b)) * 0x100000001b3u;
    }
    void put(std::string_view text) noexcept {
        put(std::as_bytes(std::span(text)));
        put(text.size());
    }
    template <class Number>
        requires std::is_arithmetic_v<Number>
    void put(Number x) noexcept {
        put(std::as_bytes(std::span(&x, 1)));
    }
    [[nodiscard]] std::uint64_t value() const noexcept { return value_; }

private:
    std::uint64_t value_ = 0xcbf29ce484222325u;
};

}  // namespace

std::uint64_t fingerprint_of(mapped_files const& files) {
    constexpr std::size_t step = std::size_t{1} << 16;
    constexpr std::size_t line = 64;
    digest all;
    for (auto const& part : files.parts) {
        all.put(part.size());
        for (std::size_t at = 0; at < part.size(); at += step) {
            all.put(part.subspan(at, std::min(line, part.size() - at)));
        }
    }
    return all.value();
}

void expect_agreement(engine::any_ranks& ranks, options const& chosen, prompt const& asked, models const& loaded) {
    auto const& s = chosen.settings;
    digest all;
    all.put(loaded.fingerprint);
    all.put(std::as_bytes(std::span(asked.tokens)));
    for (std::string_view const name :
         {std::string_view(chosen.rule), std::string_view(chosen.schedule), std::string_view(chosen.regex),
          std::string_view(engine::instruction_set()), std::string_view(engine::packed_instruction_set())}) {
        all.put(name);
    }
    for (std::string const& stop : chosen.stops) all.put(std::string_view(stop));
    loaded.texts->look(s.tenant, [&](sureleap::ngram_view const& texts) { all.put(std::as_bytes(texts.words())); });
    for (double const number : {s.temperature, s.top_p, s.min_p}) all.put(number);
    for (std::uint64_t const number :
         {std::uint64_t(s.top_k), std::uint64_t(s.max_new_tokens), std::uint64_t(s.max_draft_tokens), chosen.seed,
          std::uint64_t(chosen.copies), std::uint64_t(chosen.prefill_chunk), std::uint64_t(loaded.block_size()),
          std::uint64_t(chosen.tree), std::uint64_t(chosen.shortlist), std::uint64_t(chosen.listed_successors()),
          std::uint64_t(chosen.joined), std::uint64_t(chosen.plain), std::uint64_t(chosen.bf16),
          std::uint64_t(chosen.ignore_eos)}) {
        all.put(number);
    }
    try {
        static_cast<void>(sureleap::rank_consensus{ranks, {.fingerprint = all.value()}});
    } catch (sureleap::error const& problem) {
        sureleap::fail_with(problem.what(),
                            "; ranks of generate have the same models, prompt, flags and instruction set");
    }
}

}  // namespace generate

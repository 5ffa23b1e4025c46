// SPDX-License-Identifier: MIT
//
// A pattern of a tokenizer.json, matched by PCRE2.
//
// The file is data somebody else wrote, so a pattern gets a bounded number of steps and bounded memory. It is compiled
// for PCRE2's interpreter and not to machine code: cutting words is a small part of the work, merging bytes the larger.
#pragma once

#ifndef PCRE2_CODE_UNIT_WIDTH
#define PCRE2_CODE_UNIT_WIDTH 8
#endif

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pcre2.h>

#include <sureleap/core/error.hpp>

#include "pattern_translator.hpp"
#include "utf8.hpp"

namespace engine::text {

/// A part of a text, by bytes, and whether the pattern matched there.
struct match_range {
    std::size_t begin;
    std::size_t end;
    bool matched;
};

class pattern {
public:
    enum class syntax : std::uint8_t { regular_expression, literal };

    /// `where` names the pattern in errors: "tokenizer.json: field 'pre_tokenizer.pattern.Regex'". The text is UTF-8.
    pattern(std::string where, std::string_view text, syntax kind) : where_(std::move(where)) {
        bool const literal = kind == syntax::literal;
        std::string translated(text);
        if (!literal) {
            pattern_translator translator(text);
            translated = translator.translate();
            if (!translator.refused().empty()) {
                sureleap::fail_with(where_, ": the pattern has '", to_utf8(translator.refused()),
                                    "', which Oniguruma and PCRE2 do not read alike or which is not supported");
            }
        }
        std::unique_ptr<pcre2_compile_context, release> const context(allocated(pcre2_compile_context_create(nullptr)));
        pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
        int error = 0;
        PCRE2_SIZE offset = 0;
        code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                  PCRE2_UTF | (literal ? PCRE2_LITERAL : PCRE2_UCP), &error, &offset, context.get()));
        if (!code_) {
            sureleap::fail_with(where_, ": PCRE2 does not take the pattern, at byte ", offset, " of '",
                                to_utf8(std::string_view(translated).substr(0, 200)), "': ", message(error));
        }
    }

    /// All of a valid UTF-8 text, in order: matches, and what lies between them. As with Oniguruma's iterator, an
    /// empty match counts unless it touches the match before it; at the beginning it would cut nothing off. Matches
    /// see the text, nothing around it.
    [[nodiscard]] std::vector<match_range> find(std::string_view text) const {
        std::unique_ptr<pcre2_match_data, release> const data(allocated(pcre2_match_data_create(1, nullptr)));
        std::unique_ptr<pcre2_match_context, release> const limits(limits_for(text.size()));
        std::vector<match_range> ranges;
        std::size_t covered = 0;  // end of the last match
        for (std::size_t from = 0; from <= text.size();) {
            // The text was checked; to have it checked again for every match would be quadratic.
            int const found = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                                          PCRE2_NO_UTF_CHECK, data.get(), limits.get());
            if (found == PCRE2_ERROR_NOMATCH) break;
            if (found < 0) {
                sureleap::fail_with(where_, ": no answer from the pattern for a text of ", text.size(),
                                    " bytes: ", message(found));
            }
            PCRE2_SIZE const* const bounds = pcre2_get_ovector_pointer(data.get());
            auto const [begin, end] = std::pair{bounds[0], bounds[1]};
            if (begin == end && begin == covered) {
                from = begin == text.size() ? begin + 1 : begin + starts_with(text.substr(begin)).bytes;
                continue;
            }
            if (covered < begin) ranges.push_back({covered, begin, false});
            ranges.push_back({begin, end, true});
            from = covered = end;
        }
        if (covered < text.size()) ranges.push_back({covered, text.size(), false});
        return ranges;
    }

private:
    struct release {
        void operator()(pcre2_code* p) const noexcept { pcre2_code_free(p); }
        void operator()(pcre2_compile_context* p) const noexcept { pcre2_compile_context_free(p); }
        void operator()(pcre2_match_context* p) const noexcept { pcre2_match_context_free(p); }
        void operator()(pcre2_match_data* p) const noexcept { pcre2_match_data_free(p); }
    };

    /// A pattern from a file must not run for ever. Those of real models need a step or two for every byte, so the
    /// bounds are linear in the text, with room.
    [[nodiscard]] static pcre2_match_context* limits_for(std::size_t bytes) {
        auto const steps = [&](std::size_t fixed, std::size_t for_byte) {
            std::size_t const most = std::numeric_limits<std::uint32_t>::max();
            return bytes < most / (2 * for_byte) ? static_cast<std::uint32_t>(fixed + for_byte * bytes)
                                                 : static_cast<std::uint32_t>(most);
        };
        pcre2_match_context* const context = allocated(pcre2_match_context_create(nullptr));
        pcre2_set_match_limit(context, steps(10'000, 16));
        pcre2_set_depth_limit(context, steps(1'000, 4));
        pcre2_set_heap_limit(context, 256 * 1024);  // KiB
        return context;
    }

    template <class T>
    [[nodiscard]] static T* allocated(T* made) {
        return made != nullptr ? made : throw std::bad_alloc();
    }

    [[nodiscard]] static std::string message(int error) {
        std::array<PCRE2_UCHAR, 256> text{};
        pcre2_get_error_message(error, text.data(), text.size());
        return reinterpret_cast<char const*>(text.data());
    }

    std::string where_;
    std::unique_ptr<pcre2_code, release> code_;
};

}  // namespace engine::text

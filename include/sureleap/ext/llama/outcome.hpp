// SPDX-License-Identifier: MIT
//
// What became of a pass of llama.cpp: its return codes, and what keeps a pass from being begun.
#pragma once

#include <cstdint>

#include <sureleap/core/config.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Anything but ok leaves every sequence with the tokens that it had. The same round can be run again.
enum class llama_outcome : std::uint8_t {
    ok,
    no_slot,         ///< code 1: the cache has no room, not even after requests that take no part gave up theirs
    aborted,         ///< code 2: the abort callback said so
    invalid,         ///< code -1: llama.cpp refuses the batch, and its log says why
    failed,          ///< below -1: memory or computation failed
    context_full,    ///< a sequence would be longer than llama_n_ctx_seq
    no_context,      ///< tokens are missing in the cache, and request_view::context does not have them
    too_many_paths,  ///< a draft tree has more paths than its request has sequences
};

[[nodiscard]] constexpr llama_outcome outcome_of_code(int code) noexcept {
    switch (code) {
        case 0: return llama_outcome::ok;
        case 1: return llama_outcome::no_slot;
        case 2: return llama_outcome::aborted;
        case -1: return llama_outcome::invalid;
        default: return llama_outcome::failed;
    }
}

[[nodiscard]] constexpr char const* to_string(llama_outcome outcome) noexcept {
    switch (outcome) {
        case llama_outcome::ok: return "ok";
        case llama_outcome::no_slot: return "no room in the cache";
        case llama_outcome::aborted: return "aborted by the callback";
        case llama_outcome::invalid: return "refused by llama.cpp as an invalid batch";
        case llama_outcome::failed: return "memory or computation failed";
        case llama_outcome::context_full: return "longer than the context of a sequence";
        case llama_outcome::no_context: return "tokens are missing in the cache and in the request's context";
        case llama_outcome::too_many_paths: return "a draft tree has more paths than its request has sequences";
    }
    return "unknown outcome";
}

SURELEAP_END_NAMESPACE

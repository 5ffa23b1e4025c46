// SPDX-License-Identifier: MIT
//
// The cases of the golden file "verify": logits, drafted tokens and uniforms of the reference evaluation loop, and what
// it made of them. Sizes, cases and numbers come from the file; only names, and the stop tokens, are fixed by its
// layout.
//
// The reference drafts on behind a stop token. Where that is accepted, it draws a next token as well, which nobody
// sees. Here a chain ends at its first stop token (`drafted`).
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <sureleap/core/types.hpp>

#include "support/catch.hpp"
#include "support/safetensors.hpp"

namespace golden {

using sureleap::no_token;
using sureleap::token_id;

inline constexpr std::array<token_id, 2> stop_tokens{3, 11};

[[nodiscard]] inline bool is_stop(token_id x) {
    return std::find(stop_tokens.begin(), stop_tokens.end(), x) != stop_tokens.end();
}

struct verify_case {
    std::string name;
    double temperature = 0;
    std::size_t n = 0, vocabulary = 0;
    std::vector<double> draft, target;  // [n, V], [n + 1, V]
    std::vector<std::int32_t> ids, committed, prefix_mask;
    std::vector<double> u_accept;
    double u_sample = 0;
    std::size_t accepted = 0, effective = 0;
    std::size_t drafted = 0;  // tokens up to the first stop token, or n
    bool terminated = false;
    token_id next = no_token;
};

[[nodiscard]] inline std::vector<verify_case> verify_cases() {
    file const file("verify");
    std::vector<verify_case> cases;
    std::string const key = ".verify_ids";
    for (std::string const& entry : file.names()) {
        if (!entry.ends_with(key)) continue;
        std::string const name = entry.substr(0, entry.size() - key.size());
        auto const f64 = [&](char const* which) { return file.f64(name + "." + which); };
        auto const i32 = [&](char const* which) { return file.i32(name + "." + which); };
        verify_case c;
        c.name = name;
        c.temperature = f64("T")[0];
        auto const target = f64("target_logits");
        c.n = target.dim(1) - 1;
        c.vocabulary = target.dim(2);
        c.target = target.values;
        c.draft = f64("draft_logits").values;
        c.ids = i32("verify_ids").values;
        c.committed = i32("committed").values;
        c.prefix_mask = i32("prefix_mask").values;
        c.u_accept = f64("u_accept").values;
        c.u_sample = f64("u_sample")[0];
        c.accepted = static_cast<std::size_t>(i32("accepted")[0]);
        c.effective = static_cast<std::size_t>(i32("effective_len")[0]);
        c.terminated = i32("terminated")[0] != 0;
        c.next = i32("next_token")[0];
        REQUIRE(c.ids.size() == c.n + 1);
        while (c.drafted < c.n && (c.drafted == 0 || !is_stop(c.ids[c.drafted]))) ++c.drafted;
        REQUIRE(c.draft.size() == c.n * c.vocabulary);
        REQUIRE(c.u_accept.size() == c.n);
        cases.push_back(std::move(c));
    }
    return cases;
}

[[nodiscard]] inline std::vector<double> softmax(std::span<double const> logits, double temperature) {
    std::vector<double> p(logits.begin(), logits.end());
    auto const largest = std::max_element(logits.begin(), logits.end());
    if (temperature < 1e-5) {
        std::fill(p.begin(), p.end(), 0.0);
        p[static_cast<std::size_t>(largest - logits.begin())] = 1.0;
        return p;
    }
    double sum = 0.0;
    for (double& x : p) sum += x = std::exp((x - *largest) / temperature);
    for (double& x : p) x /= sum;
    return p;
}

}  // namespace golden

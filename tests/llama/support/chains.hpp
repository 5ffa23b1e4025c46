// SPDX-License-Identifier: MIT
//
// Chains of llama.cpp's samplers for tests, and the two laws that are compared: what llama.cpp's own code makes of a
// row, and what the library makes of it with the settings and the hook that were read from the chain.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <llama.h>

#include <sureleap/ext/llama/sampler.hpp>
#include <sureleap/sampling/distribution.hpp>

namespace support {

using sureleap::token_id;

struct free_sampler {
    void operator()(llama_sampler* sampler) const noexcept { llama_sampler_free(sampler); }
};
using owned_sampler = std::unique_ptr<llama_sampler, free_sampler>;

/// Takes the stages.
[[nodiscard]] inline owned_sampler make_chain(std::initializer_list<llama_sampler*> stages) {
    owned_sampler chain{llama_sampler_chain_init(llama_sampler_chain_default_params())};
    for (llama_sampler* const stage : stages) llama_sampler_chain_add(chain.get(), stage);
    return chain;
}
[[nodiscard]] inline owned_sampler clone_of(owned_sampler const& chain) {
    return owned_sampler{llama_sampler_clone(chain.get())};
}
/// The names of its stages, for messages.
[[nodiscard]] inline std::string names_of(llama_sampler* chain) {
    std::string text;
    for (int i = 0; i < llama_sampler_chain_n(chain); ++i) {
        text.append(i == 0 ? "" : " ").append(llama_sampler_name(llama_sampler_chain_get(chain, i)));
    }
    return text;
}

/// Probabilities of all tokens; empty if there is no law.
using law = std::vector<double>;

/// All stages, applied by llama.cpp: the probabilities that dist leaves behind, or what greedy selects. If dist fails,
/// because a stage cut the first of sorted candidates, it is the softmax of what is left.
[[nodiscard]] inline law law_by_llama(llama_sampler* chain, std::span<float const> row) {
    std::vector<llama_token_data> data;
    for (float const l : row) data.push_back({static_cast<llama_token>(data.size()), l, 0.0F});
    llama_token_data_array array{data.data(), data.size(), -1, false};
    llama_sampler* const draws = llama_sampler_chain_get(chain, llama_sampler_chain_n(chain) - 1);
    for (int i = 0; i + 1 < llama_sampler_chain_n(chain); ++i) {
        llama_sampler_apply(llama_sampler_chain_get(chain, i), &array);
    }
    std::span<llama_token_data const> const left{array.data, array.size};
    float top = -std::numeric_limits<float>::infinity();
    for (llama_token_data const& c : left) {
        if (std::isnan(c.logit)) return {};
        top = std::max(top, c.logit);
    }
    if (!std::isfinite(top)) return {};
    llama_sampler_apply(draws, &array);
    law p(row.size(), 0.0);
    if (std::string(llama_sampler_name(draws)) == "greedy") {
        p[static_cast<std::size_t>(array.data[array.selected].id)] = 1.0;
        return p;
    }
    bool const drawn = std::all_of(left.begin(), left.end(), [](auto const& c) { return std::isfinite(c.p); });
    double sum = 0.0;
    for (llama_token_data const& c : left) {
        double const weight = drawn ? static_cast<double>(c.p) : std::exp(static_cast<double>(c.logit - top));
        p[static_cast<std::size_t>(c.id)] = weight;
        sum += weight;
    }
    for (double& x : p) x /= sum;
    return p;
}

/// What verification makes of a row: a copy, the hook, the transform.
template <class Hook>
[[nodiscard]] law law_by_library(Hook const& hook, sureleap::request_view const& request,
                                 std::span<token_id const> drafted, std::span<float const> row) {
    std::vector<float> copy(row.begin(), row.end());
    if (hook.touches(request)) hook(sureleap::hook_context{request, drafted}, copy);
    std::vector<token_id> order(row.size());
    sureleap::distribution<float> const made{{copy, {}, {}}, request.settings->target_transform(), order};
    if (!made.valid()) return {};
    law p(row.size());
    for (std::size_t v = 0; v < row.size(); ++v) p[v] = made.probability(static_cast<token_id>(v));
    return p;
}

/// How far two laws are apart.
struct distance {
    double largest = 0.0;   ///< |p - q| of a token
    double relative = 0.0;  ///< |p - q| / p of a token that both have
    std::size_t edge = 0;   ///< tokens that one has and the other has not
};
[[nodiscard]] inline distance between(law const& p, law const& q) {
    distance d;
    if (p.size() != q.size()) return {1.0, 1.0, std::max(p.size(), q.size())};
    for (std::size_t v = 0; v < p.size(); ++v) {
        d.largest = std::max(d.largest, std::abs(p[v] - q[v]));
        // Below, a float has no weight of a token, or few of its digits: it is in nobody's way.
        bool const is_tiny = std::max(p[v], q[v]) < 1e-35;
        if (p[v] > 0.0 && q[v] > 0.0 && !is_tiny) d.relative = std::max(d.relative, std::abs(p[v] - q[v]) / p[v]);
        if ((p[v] > 0.0) != (q[v] > 0.0) && !is_tiny) ++d.edge;
    }
    return d;
}

}  // namespace support

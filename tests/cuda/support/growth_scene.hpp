// SPDX-License-Identifier: MIT
//
// Trees that are grown twice: by the host's tree_drafter, which is the oracle, and on the device. They have to be
// equal, node for node, as long as their tokens are; where tokens part, the device's has to be within rounding of the
// draw.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include <sureleap/cuda/drafter/shortlist.cuh>
#include <sureleap/cuda/tree/columns.cuh>
#include <sureleap/cuda/tree/grow.cuh>
#include <sureleap/drafter/sibling_worth.hpp>
#include <sureleap/drafter/tree_drafter.hpp>
#include <sureleap/head/shortlist.hpp>
#include <sureleap/verify/remaining.hpp>
#include <sureleap/verify/verdict.hpp>

#include "cuda/support/device_array.hpp"
#include "cuda/support/device_rounds.hpp"
#include "cuda/support/head_world.hpp"
#include "cuda/support/round_on_device.hpp"
#include "cuda/support/tree_scene.hpp"
#include "support/catch.hpp"
#include "support/dice.hpp"

namespace growth_scene {

using namespace head_world;

/// A confidence that both sides know to the last bit. It is in eighths, so values of places are often equal.
struct told_confidence {
    std::uint32_t salt = 0;
    bool broken = false;  ///< it is NaN behind some tokens

    [[nodiscard]] SURELEAP_HOST_DEVICE double of(token_id previous, std::uint32_t k) const {
        std::uint32_t h = static_cast<std::uint32_t>(previous) * 2654435761u + k * 40503u + salt;
        h = (h ^ h >> 15) * 2246822519u;
        h ^= h >> 13;
        if (broken && h % 7 == 0) return __builtin_nan("");
        return static_cast<double>(h >> 16 & 7) / 8.0 + 0.125;
    }
    /// The host's.
    [[nodiscard]] double operator()(std::span<float const>, token_id previous, std::size_t k) const {
        return of(previous, static_cast<std::uint32_t>(k));
    }
    /// The device's.
    [[nodiscard]] bool valid() const noexcept { return true; }
    [[nodiscard]] std::uint32_t shared_size() const noexcept { return 0; }
    template <class U>
    [[nodiscard]] cudaError_t prepare(gpu::forward_view<U> const&, gpu::device_round const&,
                                      cudaStream_t) const noexcept {
        return cudaSuccess;
    }
    __device__ double operator()(std::uint32_t, std::uint32_t k, token_id previous, gpu::position_statistics const&,
                                 float*) const {
        return of(previous, k);
    }
};

/// Sizes of a round.
struct setting {
    sizes of;
    std::uint32_t best = 8;
    std::uint32_t successors = 0;
    std::uint32_t gamma = 4;
    std::uint32_t nodes = 12;
    std::uint32_t children = 4;
    std::uint32_t straight = 0;
    std::size_t count = 5;  ///< of limits.requests - 1
};

/// The trees of the device.
struct device_trees {
    std::uint32_t nodes;
    std::vector<std::uint32_t> counts;
    std::vector<token_id> tokens;
    std::vector<std::int32_t> parents;
    std::vector<gpu::distribution> distributions;
    std::vector<status> statuses;
    std::vector<fixed_probability> survival;
    std::vector<double> confidences;
    std::vector<token_id> lists;
    std::vector<std::uint32_t> lengths;
    std::vector<float> logits;
    std::size_t capacity;

    device_trees(gpu::tree_columns const& trees, gpu::growth_memory const& memory, std::size_t count)
        : nodes(trees.nodes), capacity(memory.lists.capacity) {
        auto const read = [](auto const* from, std::size_t n) { return support::download(from, n); };
        std::size_t const cells = count * trees.width();
        std::size_t const rows = count * nodes;
        counts = read(trees.counts, count);
        tokens = read(trees.tokens, cells);
        parents = read(trees.parents, cells);
        distributions = read(trees.distributions, cells);
        statuses = read(trees.statuses, count);
        survival = read(memory.survival, rows);
        confidences = read(memory.confidences, rows);
        lists = read(memory.lists.tokens, rows * capacity);
        lengths = read(memory.lists.counts, rows);
        logits = read(memory.logits, rows * capacity);
    }
    [[nodiscard]] std::size_t cell(std::size_t r, std::size_t n) const { return r * (nodes + 1) + n; }
    [[nodiscard]] std::size_t row(std::size_t r, std::size_t n) const { return r * nodes + n; }
};

struct growth_tally {
    std::size_t nodes = 0;
    std::size_t differ = 0;   ///< trees that part
    std::size_t younger = 0;  ///< nodes that are not first children
    std::size_t deep = 0;     ///< nodes behind others
    std::size_t early = 0;    ///< trees smaller than they might be
    std::size_t no_draft = 0, no_confidence = 0;
    double confidence = 0.0;   ///< largest difference
    double probability = 0.0;  ///< largest relative difference of a distribution
};

/// The distribution behind node n of the device is q, over the same list.
inline void compare_distribution(device_trees const& device, std::size_t r, std::size_t n, distribution<float> const& q,
                                 growth_tally& seen) {
    gpu::distribution const& own = device.distributions[device.cell(r, n)];
    REQUIRE(own.is_one_hot() == q.is_one_hot());
    if (q.is_one_hot()) {
        REQUIRE(own.mode == q.mode());
        return;
    }
    auto const listed = q.support();
    std::size_t const at = device.row(r, n);
    REQUIRE(device.lengths[at] == listed.size());
    for (std::size_t i = 0; i < listed.size(); ++i) {
        REQUIRE(device.lists[at * device.capacity + i] == listed[i]);
        double const p = q.probability(listed[i]);
        double const found =
            static_cast<double>(own.weight(device.logits[at * device.capacity + i], static_cast<token_id>(i))) /
            own.total;
        REQUIRE(std::abs(found - p) <= 2e-5 * (p + 1e-9));
        seen.probability = std::max(seen.probability, std::abs(found - p) / (p + 1e-9));
    }
}

/// Compares trees node by node. `exact`: confidences are the same bits, so shapes may part behind tokens only. Returns
/// whether all are equal.
template <class DraftRule>
bool compare(draft_block<float> const& host, device_trees const& device, std::span<request_view const> views,
             bool exact, growth_tally& seen) {
    bool all = true;
    for (std::size_t r = 0; r < views.size(); ++r) {
        INFO("request " << r << ", T " << views[r].settings->draft_transform().temperature << ", cap "
                        << views[r].draft_cap(device.nodes) << ", host " << host.size(r) << " nodes, device "
                        << device.counts[r]);
        REQUIRE(device.counts[r] <= device.nodes);
        std::size_t const size = std::min<std::size_t>(host.size(r), device.counts[r]);
        auto const parents = host.parents(r);
        bool parted = false;
        for (std::size_t n = 1; n <= size && !parted; ++n) {
            INFO("node " << n);
            auto const parent = static_cast<std::size_t>(host.parents(r)[n - 1]);
            std::size_t const i = r * host.block_size() + n - 1;
            double const survival = static_cast<double>(host.table().survivals.survival[i]);
            double const found = static_cast<double>(device.survival[device.row(r, n - 1)]);
            if (exact) REQUIRE(found == survival);
            REQUIRE(std::abs(found - survival) <= 1e-5 * static_cast<double>(views[r].weight) + 2.0);
            ++seen.nodes;
            if (device.parents[device.cell(r, n)] != static_cast<std::int32_t>(parent)) {
                parted = true;
                REQUIRE_FALSE(exact);
                break;
            }
            bool const eldest = std::find(parents.begin(), parents.end(), parents[n - 1]) ==
                                parents.begin() + static_cast<std::ptrdiff_t>(n - 1);
            auto const& q = host.laws(r)[n - 1];
            if (eldest) compare_distribution(device, r, parent, q, seen);
            seen.younger += eldest ? 0u : 1u;
            seen.deep += parent != 0 ? 1u : 0u;
            token_id const x = device.tokens[device.cell(r, n)];
            if (x == host.tokens(r)[n - 1]) continue;
            parted = true;
            REQUIRE_FALSE(q.is_one_hot());
            std::vector<token_id> elders;
            for (std::size_t m = 1; m < n; ++m) {
                if (host.parents(r)[m - 1] == static_cast<node_id>(parent)) elders.push_back(host.tokens(r)[m - 1]);
            }
            REQUIRE(std::find(elders.begin(), elders.end(), x) == elders.end());
            if (std::is_same_v<DraftRule, categorical_draft> && (eldest || q.size() <= row_block)) {
                undrawn const left{q, elders};
                REQUIRE(misses(left, uniform(block_key(views[r], n, purpose::draft)), x) <= 2e-5);
            }
        }
        seen.differ += parted ? 1u : 0u;
        all = all && !parted;
        if (parted) continue;
        REQUIRE(device.counts[r] == host.size(r));
        REQUIRE(device.statuses[r] == host.draft_outcome(r));
        seen.no_draft += host.draft_outcome(r) == status::invalid_draft ? 1u : 0u;
        seen.no_confidence += host.draft_outcome(r) == status::invalid_confidence ? 1u : 0u;
        seen.early += host.size(r) < views[r].draft_cap(device.nodes) ? 1u : 0u;
    }
    return all;
}

/// Verdicts about the trees of `host` by chance, from which a drafter learns what siblings are worth: other ratios for
/// each rank.
template <class Drafter>
void teach(support::dice& roll, Drafter& drafter, head_world::host_drafts const& drafted) {
    draft_block<float> const& host = drafted.block;
    std::size_t const count = host.requests().size();
    std::vector<verdict> verdicts(count);
    std::vector<std::vector<std::int32_t>> paths(count);
    for (std::size_t r = 0; r < count; ++r) {
        tree_scene::host_tree made(host.block_size());
        draft_tree& tree = made.tree;
        tree.begin(host.requests()[r].anchor);
        for (std::size_t n = 0; n < host.size(r); ++n) tree.append(host.parents(r)[n], host.tokens(r)[n]);
        for (node_id n = tree.size() > 0 ? tree.first_child(anchor_node) : no_node;
             n != no_node && static_cast<std::size_t>(n) <= host.size(r);) {
            bool const kept = roll.chance(0.5);
            if (kept) paths[r].push_back(n);
            n = kept ? tree.first_child(n) : tree.next_sibling(n);
        }
        verdicts[r] = {.id = host.requests()[r].id,
                       .outcome = host.draft_outcome(r),
                       .drafted = host.size(r),
                       .verified = host.size(r),
                       .accepted = paths[r].size(),
                       .parents = host.parents(r),
                       .path = paths[r]};
    }
    drafted.memory->commit(drafter, verdicts);
}

}  // namespace growth_scene

// SPDX-License-Identifier: MIT
//
// Rounds of trees that are judged twice: by a rule of the host, which is the oracle, and on the device. Paths and
// tokens have to be equal. A request that comes out otherwise is a mistake unless the host itself says that one of its
// decisions lay within rounding (narrowest).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <vector>

#include <sureleap/cuda/round/advance.cuh>
#include <sureleap/cuda/tree/flatten.cuh>
#include <sureleap/cuda/tree/memory.cuh>

#include "cuda/support/captured.hpp"
#include "cuda/support/tree_scene.hpp"
#include "cuda/support/verify_round.hpp"
#include "support/catch.hpp"
#include "support/dice.hpp"

namespace tree_scene {

struct tree_tally {
    std::size_t requests = 0;
    std::size_t accepted = 0;
    std::size_t refused = 0;
    std::size_t stopped = 0;
    std::size_t younger = 0;  ///< accepted nodes that are not first children
    std::size_t differing = 0;
};

/// What rounds of a test look like.
struct round_kinds {
    std::span<std::size_t const> vocabularies;
    double all_present = 0.5;  ///< how often all requests of the limits are there
    std::size_t nodes = 20;    ///< most, of every fifth round `many_nodes`; of long rows 8
    std::size_t many_nodes = 80;
};

/// judge(roll, sizes) for random sizes of rounds.
template <class Judge>
void judge_random_rounds(std::uint64_t seed, std::size_t rounds, round_kinds const& kinds, Judge const& judge) {
    dice roll{seed};
    for (std::size_t i = 0; i < rounds; ++i) {
        sizes shape;
        shape.vocabulary = kinds.vocabularies[roll.below(kinds.vocabularies.size())];
        bool const long_rows = shape.vocabulary > 1000;
        shape.most = long_rows ? 1 + roll.below(3) : 1 + roll.below(9);
        shape.present = roll.chance(kinds.all_present) ? shape.most : roll.below(shape.most + 1);
        shape.nodes = long_rows ? 1 + roll.below(8) : 1 + roll.below(roll.chance(0.2) ? kinds.many_nodes : kinds.nodes);
        shape.block_size = 1 + roll.below(roll.chance(0.2) ? 31 : 6);
        shape.stop_tokens = roll.below(3);
        shape.log_probabilities = roll.chance(0.4);
        INFO("seed " << seed << ", round " << i << ", V " << shape.vocabulary << ", R " << shape.present << " of "
                     << shape.most << ", N " << shape.nodes << ", gamma " << shape.block_size);
        judge(roll, shape);
    }
}

/// Random settings, with some of `stops`, which outlive the round.
inline void choose_settings(dice& roll, scene& made, std::vector<token_id>& stops, bool greedy) {
    for (std::size_t i = 0; i < made.shape.stop_tokens; ++i) {
        stops.push_back(static_cast<token_id>(roll.below(made.shape.vocabulary)));
    }
    for (request_settings& s : made.settings) {
        transform how = support::random_transform(roll, made.shape.vocabulary);
        if (greedy) how = {.temperature = 0.0};
        s.temperature = how.temperature;
        s.top_k = how.top_k;
        s.top_p = how.top_p;
        s.min_p = how.min_p;
        if (roll.chance(0.3)) s.stop_tokens = std::span(stops).first(roll.below(stops.size() + 1));
    }
}

/// Rows of all requests as the batch has them, with a stride that may be unaligned.
template <class T>
[[nodiscard]] std::vector<T> batch_of(std::vector<std::vector<T>> const& rows, std::size_t vocabulary,
                                      std::size_t stride) {
    std::vector<T> all;
    for (auto const& tree : rows) {
        for (std::size_t first = 0; first < tree.size(); first += vocabulary) {
            auto const from = tree.begin() + static_cast<std::ptrdiff_t>(first);
            all.insert(all.end(), from, from + static_cast<std::ptrdiff_t>(vocabulary));
            all.insert(all.end(), stride - vocabulary, T(std::numeric_limits<float>::quiet_NaN()));
        }
    }
    return all;
}

/// What a producer may give with its rows, as of their own values.
template <class T>
struct given_sums {
    std::vector<float> normalisers;
    std::vector<float> block_sums;

    void add(std::span<T const> row) {
        double top = -std::numeric_limits<double>::infinity();
        for (T const& l : row) top = std::max(top, static_cast<double>(load(l)));
        double total = 0.0;
        for (T const& l : row) total += std::exp(static_cast<double>(load(l)) - top);
        normalisers.push_back(static_cast<float>(top + std::log(total)));
        for (std::size_t first = 0; first < row.size(); first += row_block) {
            double here = 0.0;
            for (T const& l : row.subspan(first, std::min(row_block, row.size() - first))) {
                here += static_cast<double>(std::exp(load(l) - normalisers.back()));
            }
            block_sums.push_back(static_cast<float>(here));
        }
    }
};

/// Judges a round whose trees are grown. `rows`: of each tree, [nodes + 1, V]. judge(rows, memory, stream) is the
/// device's rule, decide(r, rng) the host's.
template <class T, class Judge, class Decide>
void judge_twice(dice& roll, scene& made, std::vector<std::vector<T>> const& rows, double tolerance, tree_tally& sum,
                 Judge const& judge, Decide const& decide) {
    using namespace support;
    namespace device = sureleap::cuda;
    sizes const& shape = made.shape;
    std::size_t const finished = roll.chance(0.3) && !made.views.empty() ? roll.below(made.views.size()) : shape.most;
    if (finished < shape.most) made.views[finished].remaining = 0;
    made.upload();
    device::device_round const& round = made.round.columns;
    device::tree_columns const& trees = made.trees.columns;
    std::vector<token_id> stop_columns(shape.present * shape.stop_tokens, no_token);
    for (std::size_t r = 0; r < shape.present; ++r) {
        auto const own = made.settings[r].stop_tokens;
        std::copy(own.begin(), own.end(), stop_columns.begin() + static_cast<std::ptrdiff_t>(r * shape.stop_tokens));
    }
    upload(round.requests.stop_tokens, stop_columns);

    std::size_t const stride = shape.vocabulary + (roll.chance(0.5) ? 8 - shape.vocabulary % 8 : roll.below(3));
    std::vector<T> const batch = batch_of(rows, shape.vocabulary, stride);
    device_array<T> const row_memory(batch);
    device_array<T> const nothing(8);  // a round without requests has rows too
    given_sums<T> given;
    for (auto const& tree : rows) {
        for (std::size_t first = 0; first < tree.size(); first += shape.vocabulary) {
            given.add(std::span(tree).subspan(first, shape.vocabulary));
        }
    }
    device_array<float> const normalisers(given.normalisers);
    device_array<float> const block_sums(given.block_sums);
    bool const normalised = roll.chance(0.3);
    device::logits_rows<T> const on_device{
        batch.empty() ? nothing.data() : row_memory.data(), static_cast<std::uint32_t>(made.rows()), stride,
        normalised ? normalisers.data() : nullptr, normalised && roll.chance(0.6) ? block_sums.data() : nullptr};
    carved<device::verify_memory> const memory([&](device::workspace& ws) {
        return device::carve_tree_verification(ws, made.limits, static_cast<std::uint32_t>(shape.nodes));
    });
    captured const work([&](cudaStream_t stream) {
        cudaError_t const error = device::flatten_trees(round, trees, stream);
        if (error != cudaSuccess) return error;
        return judge(on_device, memory.columns, stream);
    });
    for (int turn = 0; turn < 2; ++turn) {
        work.replay();
        auto const statuses = download(round.verdicts.statuses, shape.present);
        auto const accepted = download(round.verdicts.accepted, shape.present);
        auto const emitted = download(round.verdicts.emitted, shape.present);
        auto const stopped = download(round.verdicts.stopped, shape.present);
        auto const tokens = download(round.verdicts.tokens, shape.present * (shape.block_size + 1));
        auto const paths = download(trees.paths, shape.present * shape.block_size);
        std::vector<double> log_probabilities;
        if (shape.log_probabilities) {
            log_probabilities = download(round.verdicts.log_probabilities, shape.present * (shape.block_size + 1));
        }
        for (std::size_t r = 0; r < shape.present; ++r) {
            INFO("request " << r << ", " << made.host[r].tree.size() << " nodes, T " << made.settings[r].temperature
                            << ", turn " << turn);
            ++sum.requests;
            if (r == finished) {
                CHECK(statuses[r] == status::ok);
                CHECK(emitted[r] == 0);
                continue;
            }
            draft_tree const& tree = made.host[r].tree;
            philox_randomness rng;
            decision const expected = decide(r, rng);
            CHECK((statuses[r] == status::ok) == expected.valid);
            if (!expected.valid) {
                ++sum.refused;
                CHECK(statuses[r] == status::invalid_target);
                CHECK(emitted[r] == 0);
                continue;
            }
            std::vector<node_id> path = made.host[r].path_to(static_cast<node_id>(expected.row));
            REQUIRE(accepted[r] <= shape.block_size);
            std::vector<node_id> const found(
                paths.begin() + static_cast<std::ptrdiff_t>(r * shape.block_size),
                paths.begin() + static_cast<std::ptrdiff_t>(r * shape.block_size + accepted[r]));
            std::vector<token_id> text;
            for (node_id const n : path) text.push_back(tree.token(n));
            text.push_back(expected.next);
            auto const& own = made.settings[r].stop_tokens;
            auto const stop = std::find_first_of(text.begin(), text.end(), own.begin(), own.end());
            bool const stops_here = stop != text.end();
            if (stops_here) text.erase(stop + 1, text.end());
            if (path.size() > text.size()) path.resize(text.size());
            auto const first = tokens.begin() + static_cast<std::ptrdiff_t>(r * (shape.block_size + 1));
            std::vector<token_id> const said(first, first + emitted[r]);
            if (found != path || said != text) {
                std::map<std::uint64_t, double> margins;
                narrowest measured{&margins};
                static_cast<void>(decide(r, measured));
                INFO("margin " << margins[made.views[r].seed] << ", accepted " << accepted[r] << " instead of "
                               << path.size());
                CHECK(margins.contains(made.views[r].seed));
                CHECK(margins[made.views[r].seed] < tolerance);
                ++sum.differing;
                continue;
            }
            CHECK((stopped[r] != 0) == stops_here);
            sum.stopped += stops_here ? 1 : 0;
            sum.accepted += path.size();
            node_id parent = anchor_node;
            for (std::size_t j = 0; j <= path.size() && j < text.size(); ++j) {
                if (shape.log_probabilities && made.settings[r].temperature == 1.0 && made.settings[r].top_k == 0 &&
                    made.settings[r].top_p == 1.0 && made.settings[r].min_p == 0.0) {
                    auto const row = std::span(rows[r]).subspan(static_cast<std::size_t>(parent) * shape.vocabulary,
                                                                shape.vocabulary);
                    double top = -std::numeric_limits<double>::infinity();
                    for (T const& l : row) top = std::max(top, static_cast<double>(load(l)));
                    double total = 0.0;
                    for (T const& l : row) total += std::exp(static_cast<double>(load(l)) - top);
                    double const wanted =
                        static_cast<double>(load(row[static_cast<std::size_t>(text[j])])) - top - std::log(total);
                    double const logged = log_probabilities[r * (shape.block_size + 1) + j];
                    CHECK(std::abs(logged - wanted) <= 1e-5 * std::max(1.0, std::abs(wanted)));
                }
                if (j == path.size()) break;
                sum.younger += tree.first_child(parent) != path[j] ? 1u : 0u;
                parent = path[j];
            }
        }
    }
    // The next round begins behind what was emitted.
    auto const emitted = download(round.verdicts.emitted, shape.present);
    auto const tokens = download(round.verdicts.tokens, shape.present * (shape.block_size + 1));
    require_cuda(device::advance(round, nullptr));
    auto const anchors = download(round.requests.anchors, shape.present);
    auto const positions = download(round.requests.positions, shape.present);
    for (std::size_t r = 0; r < shape.present; ++r) {
        CHECK(positions[r] == made.views[r].position + emitted[r]);
        CHECK(anchors[r] ==
              (emitted[r] == 0 ? made.views[r].anchor : tokens[r * (shape.block_size + 1) + emitted[r] - 1]));
    }
}

}  // namespace tree_scene

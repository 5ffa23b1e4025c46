// SPDX-License-Identifier: MIT
//
// The device's batch of trees says what the host's trees say, and so do the masks of attention kernels.

#include <sureleap/cuda/tree/flatten.cuh>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/support/captured.hpp"
#include "cuda/support/device_rounds.hpp"
#include "cuda/support/seeds.hpp"
#include "cuda/support/tree_scene.hpp"
#include "support/catch.hpp"
#include "support/dice.hpp"

using namespace sureleap;
namespace device = sureleap::cuda;  // CUDA has a namespace cuda of its own
using support::dice;

namespace {

[[nodiscard]] tree_scene::sizes random_sizes(dice& roll) {
    tree_scene::sizes shape;
    shape.most = roll.chance(0.15) ? 33 + roll.below(60) : 1 + roll.below(12);
    shape.present = roll.chance(0.3) ? shape.most : roll.below(shape.most + 1);
    constexpr std::size_t most_nodes[] = {1, 3, 8, 31, 32, 63, 64, 65, 100, 255};
    shape.nodes = most_nodes[roll.below(shape.most > 12 ? 5 : std::size(most_nodes))];
    shape.block_size = roll.chance(0.2) ? 31 : 1 + roll.below(8);
    return shape;
}

[[nodiscard]] bool attends(draft_tree const& tree, node_id n, node_id m) {
    while (n != no_node && n != m) n = tree.parent(n);
    return n == m;
}

/// Columns and batch against the host's trees.
void check_batch(tree_scene::scene const& made) {
    device::tree_columns const& trees = made.trees.columns;
    std::size_t const most = made.shape.most;
    std::size_t const width = made.shape.nodes + 1;
    std::size_t const rows = made.rows();
    auto const offsets = support::download(trees.batch.offsets, most + 1);
    auto const tokens = support::download(trees.batch.tokens, rows);
    auto const positions = support::download(trees.batch.positions, rows);
    auto const markers = support::download(trees.batch.markers, rows);
    auto const parent_rows = support::download(trees.parent_rows, rows);
    auto const ancestors = support::download(trees.ancestors, rows * trees.mask_words());
    auto const depths = support::download(trees.depths, most * width);
    auto const children = support::download(trees.first_children, most * width);
    auto const siblings = support::download(trees.next_siblings, most * width);
    auto const statuses = support::download(trees.statuses, made.host.size());
    std::size_t row = 0;
    for (std::size_t r = 0; r < most; ++r) {
        REQUIRE(static_cast<std::size_t>(offsets[r]) == row);
        std::size_t const first = row;
        std::size_t const own = made.rows_of(r);
        if (own > 0) REQUIRE(statuses[r] == status::ok);
        std::size_t const words = own > 0 ? made.host[r].tree.mask_words() : 0;
        std::vector<std::uint64_t> masks(own * words);
        if (own > 0) made.host[r].tree.ancestors(masks);
        for (std::size_t n = 0; n < width; ++n) {
            INFO("request " << r << ", node " << n);
            std::size_t const cell = r * width + n;
            if (n >= own) {
                REQUIRE(depths[cell] == 0);
                REQUIRE(children[cell] == no_node);
                REQUIRE(siblings[cell] == no_node);
                continue;
            }
            draft_tree const& tree = made.host[r].tree;
            auto const id = static_cast<node_id>(n);
            REQUIRE(tokens[row] == tree.token(id));
            REQUIRE(positions[row] == made.views[r].position + tree.depth(id));
            REQUIRE(markers[row] == r);
            node_id const parent = tree.parent(id);
            REQUIRE(parent_rows[row] == (parent == no_node ? no_node : static_cast<node_id>(first) + parent));
            REQUIRE(depths[cell] == tree.depth(id));
            REQUIRE(children[cell] == tree.first_child(id));
            REQUIRE(siblings[cell] == tree.next_sibling(id));
            for (std::size_t w = 0; w < trees.mask_words(); ++w) {
                REQUIRE(ancestors[row * trees.mask_words() + w] == (w < words ? masks[n * words + w] : 0));
            }
            ++row;
        }
    }
    REQUIRE(static_cast<std::size_t>(offsets[most]) == row);
}

/// Masks in FlashInfer's layout, as its kernels read them.
void check_packed(tree_scene::scene const& made, device::tree_masks const& masks,
                  std::vector<std::uint8_t> const& bytes) {
    auto const indptr = support::download(masks.packed_indptr, made.shape.most + 1);
    std::size_t begin = 0;
    for (std::size_t r = 0; r < made.shape.most; ++r) {
        INFO("request " << r);
        REQUIRE(static_cast<std::size_t>(indptr[r]) == begin);
        if (made.rows_of(r) == 0) continue;
        draft_tree const& tree = made.host[r].tree;
        std::size_t const context = masks.context ? made.views[r].position : 0;
        std::size_t const keys = context + tree.size();
        for (std::size_t i = 0; i < tree.size(); ++i) {
            for (std::size_t j = 0; j < keys; ++j) {
                bool const expected =
                    j < context || attends(tree, static_cast<node_id>(i), static_cast<node_id>(j - context));
                std::size_t const bit = i * keys + j;
                if (begin + bit / 8 >= masks.packed_room) continue;
                bool const found = (bytes[begin + bit / 8] >> bit % 8 & 1) != 0;
                if (found != expected) FAIL("row " << i << ", key " << j << " of " << keys);
            }
        }
        std::size_t const bits = tree.size() * keys;
        begin += (bits + 7) / 8;
        // Bits behind the last are 0, as those that FlashInfer packs.
        if (bits % 8 != 0 && begin <= masks.packed_room) REQUIRE(bytes[begin - 1] >> bits % 8 == 0);
    }
    REQUIRE(static_cast<std::size_t>(indptr[made.shape.most]) == begin);
}

}  // namespace

TEST_CASE("Trees: random rounds") {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        dice roll(seed);
        emulator::seed(seed);
        tree_scene::sizes const shape = random_sizes(roll);
        INFO("seed " << seed << ", R " << shape.present << " of " << shape.most << ", N " << shape.nodes << ", gamma "
                     << shape.block_size);
        tree_scene::scene made(roll, shape);
        made.grow(roll, 1000);
        made.upload();
        support::in_graph(
            [&](cudaStream_t stream) { return device::flatten_trees(made.round.columns, made.trees.columns, stream); });
        check_batch(made);
    }
}

TEST_CASE("Trees: masks of attention kernels") {
    for (std::uint64_t seed = 1; seed <= 24; ++seed) {
        dice roll(seed);
        emulator::seed(seed);
        tree_scene::sizes shape = random_sizes(roll);
        shape.most = std::min<std::size_t>(shape.most, 40);
        shape.present = std::min(shape.present, shape.most);
        INFO("seed " << seed << ", R " << shape.present << " of " << shape.most << ", N " << shape.nodes << ", gamma "
                     << shape.block_size);
        tree_scene::scene made(roll, shape);
        made.grow(roll, 1000);
        made.upload();
        auto const nodes = static_cast<std::uint32_t>(shape.nodes);
        bool const context = roll.chance(0.6);
        support::carved<device::tree_masks> carved(
            [&](device::workspace& ws) { return device::carve_tree_masks(ws, made.limits, nodes, context ? 500 : 0); });
        device::tree_masks masks = carved.columns;
        CHECK(masks.context == context);
        if (roll.chance(0.2)) masks.packed_room = 1 + roll.below(40);  // too little
        support::upload(masks.packed, std::vector<std::uint8_t>(carved.columns.packed_room, 0xa5));
        support::in_graph([&](cudaStream_t stream) {
            return device::flatten_trees(made.round.columns, made.trees.columns, {}, masks, stream);
        });
        check_batch(made);
        auto const bytes = support::download(masks.packed, carved.columns.packed_room);
        check_packed(made, masks, bytes);
        auto const indptr = support::download(masks.packed_indptr, shape.most + 1);
        for (std::size_t b = std::min<std::size_t>(static_cast<std::size_t>(indptr.back()), masks.packed_room);
             b < bytes.size(); ++b) {
            REQUIRE(bytes[b] == 0xa5);
        }
        std::size_t const width = shape.nodes + 1;
        auto const allowed = support::download(masks.allowed, made.rows() * width);
        std::size_t row = 0;
        for (std::size_t r = 0; r < shape.present; ++r) {
            draft_tree const& tree = made.host[r].tree;
            for (std::size_t n = 0; n < tree.size(); ++n, ++row) {
                for (std::size_t m = 0; m < width; ++m) {
                    bool const expected =
                        m < tree.size() && attends(tree, static_cast<node_id>(n), static_cast<node_id>(m));
                    if (allowed[row * width + m] != (expected ? 1 : 0)) FAIL("row " << row << ", node " << m);
                }
            }
        }
    }
}

TEST_CASE("Trees: layouts of attention kernels and captured sizes") {
    for (std::uint64_t seed = 1; seed <= 16; ++seed) {
        dice roll(seed);
        emulator::seed(seed);
        tree_scene::sizes const shape = random_sizes(roll);
        INFO("seed " << seed << ", R " << shape.present << " of " << shape.most << ", N " << shape.nodes);
        tree_scene::scene made(roll, shape);
        made.grow(roll, 1000);
        made.upload();
        auto const nodes = static_cast<std::uint32_t>(shape.nodes);
        std::uint32_t const page = 16;
        support::carved<device::attention_layout> const layout(
            [&](device::workspace& ws) { return device::carve_tree_attention(ws, made.limits, nodes, page); });
        std::size_t const room = shape.most * (shape.nodes + 1);
        device_array<std::uint32_t> const sizes({static_cast<std::uint32_t>(room)});
        device_array<std::uint32_t> chosen(3);
        support::in_graph([&](cudaStream_t stream) {
            return device::flatten_trees(made.round.columns, made.trees.columns,
                                         {layout.columns, {sizes.data(), 1, 7, chosen.data()}}, {}, stream);
        });
        check_batch(made);
        auto const kv_indptr = support::download(layout.columns.kv_indptr, shape.most + 1);
        auto const pages = support::download(layout.columns.page_indptr, shape.most + 1);
        auto const positions = support::download(layout.columns.positions, room);
        auto const tokens = support::download(made.trees.columns.batch.tokens, room);
        auto const markers = support::download(made.trees.columns.batch.markers, room);
        std::size_t keys = 0;
        std::size_t page_sum = 0;
        std::size_t row = 0;
        for (std::size_t r = 0; r < shape.most; ++r) {
            CHECK(static_cast<std::size_t>(kv_indptr[r]) == keys);
            CHECK(static_cast<std::size_t>(pages[r]) == page_sum);
            if (made.rows_of(r) == 0) continue;
            std::size_t const own = made.views[r].position + made.rows_of(r);
            keys += own;
            page_sum += (own + page - 1) / page;
            for (std::size_t n = 0; n < made.rows_of(r); ++n, ++row) {
                std::size_t const depth = made.host[r].tree.depth(static_cast<node_id>(n));
                REQUIRE(static_cast<std::size_t>(positions[row]) == made.views[r].position + depth);
            }
        }
        CHECK(static_cast<std::size_t>(kv_indptr[shape.most]) == keys);
        CHECK(chosen.download() ==
              std::vector<std::uint32_t>{static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(room), 0});
        for (; row < room; ++row) {
            REQUIRE(tokens[row] == 7);
            REQUIRE(positions[row] == 0);
            REQUIRE(markers[row] == shape.most);
        }
    }
}

TEST_CASE("Trees: what is no tree has rows and says so") {
    dice roll(5);
    tree_scene::sizes const shape{.most = 5, .present = 4, .nodes = 6, .block_size = 2};
    tree_scene::scene made(roll, shape);
    for (auto& h : made.host) {
        for (token_id x = 1; x <= 3; ++x) h.tree.append(anchor_node, x);
    }
    made.upload();
    std::vector<std::int32_t> parents(4 * 7, 0);
    parents[0 * 7 + 2] = 2;   // itself
    parents[1 * 7 + 1] = 3;   // one of its descendants, perhaps
    parents[2 * 7 + 3] = -1;  // nobody
    parents[3 * 7 + 2] = 1;
    parents[3 * 7 + 3] = 2;  // too deep for the round
    support::upload(made.trees.columns.parents, parents);
    require_cuda(device::flatten_trees(made.round.columns, made.trees.columns, nullptr));
    CHECK(support::download(made.trees.columns.statuses, 4) == std::vector<status>(4, status::invalid_tree));
    // Children of the anchor: rows that a target can score.
    auto const depths = support::download(made.trees.columns.depths, 4 * 7);
    auto const offsets = support::download(made.trees.columns.batch.offsets, 6);
    CHECK(offsets == std::vector<std::int32_t>{0, 4, 8, 12, 16, 16});
    for (std::size_t i = 0; i < depths.size(); ++i) CHECK(depths[i] == (i % 7 > 0 && i % 7 < 4 ? 1 : 0));

    // A failed draft is a tree as well; who is refused already keeps the reason.
    support::upload(made.trees.columns.statuses, std::vector<status>{status::invalid_confidence, status::invalid_draft,
                                                                     status::wrong_draft_rule, status::ok});
    require_cuda(device::flatten_trees(made.round.columns, made.trees.columns, nullptr));
    CHECK(support::download(made.trees.columns.statuses, 4) ==
          std::vector<status>{status::invalid_tree, status::invalid_tree, status::wrong_draft_rule,
                              status::invalid_tree});
}

TEST_CASE("Trees: what does not fit is refused") {
    dice roll(6);
    tree_scene::scene const made(roll, {.most = 2, .present = 1, .nodes = 3});
    auto const refused = [](cudaError_t error) { return error == cudaErrorInvalidValue; };
    device::device_round const& round = made.round.columns;
    device::tree_columns const& trees = made.trees.columns;
    CHECK(refused(device::flatten_trees({}, trees, nullptr)));
    CHECK(refused(device::flatten_trees(round, {}, nullptr)));
    device_array<std::uint8_t> bytes(8);
    device::tree_masks masks{};
    masks.packed = bytes.data();
    CHECK(refused(device::flatten_trees(round, trees, {}, masks, nullptr)));
    device::workspace sizer;
    CHECK(!device::carve_trees(sizer, made.limits, 3).ready());
    device_array<unsigned char> memory(1 << 20);
    device::workspace ws{memory.data(), memory.size()};
    CHECK(!device::carve_trees(ws, made.limits, 0).ready());
    CHECK(!device::carve_trees(ws, made.limits, 256).ready());
    CHECK(device::carve_trees(ws, made.limits, 255).ready());
}

// SPDX-License-Identifier: MIT
//
// Any bytes as config.json, or as the index of a sharded checkpoint. They must give a sureleap::error of readable
// length that names the source, or a result within the limits of config.hpp. What is accepted must also survive being
// written and read again.
//
//   clang++ -std=c++20 -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -Iinclude -Iexamples \
//       tests/fuzz/config.fuzz.cpp -o config_fuzz \
//       examples/engine/{config,drafter_config,checkpoint,synthetic,layout,random_weights,text_file}.cpp
//   ./config_fuzz -max_len=4096 <new corpus> tests/fuzz/corpus/config

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <sureleap/core/error.hpp>

#include <engine/config.hpp>
#include <engine/synthetic.hpp>

namespace {

void expect(bool holds) {
    if (!holds) __builtin_trap();
}

bool within(std::size_t value, std::size_t low, std::size_t high) {
    return value >= low && value <= high;
}

void check(engine::transformer_config const& c) {
    using namespace engine;
    expect(within(c.vocabulary, 1, limits::vocabulary));
    expect(within(c.hidden_size, 1, limits::hidden_size));
    expect(within(c.intermediate_size, 1, limits::intermediate_size));
    expect(within(c.layers, 1, limits::layers));
    expect(within(c.heads, 1, limits::heads));
    expect(within(c.kv_heads, 1, c.heads) && c.heads % c.kv_heads == 0);
    expect(within(c.head_dim, 2, limits::head_dim) && c.head_dim % 2 == 0);
    expect(within(c.max_positions, 1, limits::max_positions));
    expect(c.rope_theta >= 1.0 && c.rope_theta <= limits::rope_theta);
    expect(c.rms_norm_eps > 0.0 && c.rms_norm_eps <= 1.0);
    expect(c.rope_divisors.empty() || c.rope_divisors.size() == c.head_dim / 2);
}

void check(engine::draft_config const& c, engine::model_config const& model) {
    using namespace engine;
    bool const dspark = model.kind == architecture::dspark;
    expect(dspark || model.transformer.layers == 1);
    expect(within(c.block_size, 1, limits::block_size));
    expect(within(c.num_target_layers, 0, limits::layers));
    expect(within(c.block_rows() - c.block_size, 0, dspark ? 1 : 0));
    expect(within(c.target_layer_ids.size(), 1, limits::layers));
    int previous = -2;
    for (int const id : c.target_layer_ids) {
        expect(id > previous);
        previous = id;
    }
    expect(previous + 1 < static_cast<int>(c.num_target_layers > 0 ? c.num_target_layers : limits::layers));
    expect(dspark ? c.mask_token >= 0 && static_cast<std::size_t>(c.mask_token) < model.transformer.vocabulary
                  : c.mask_token == sureleap::no_token);
    expect(c.markov_rank <= limits::markov_rank);
    expect((c.markov_rank == 0) == (c.head == head_kind::none));
    expect(!c.confidence_with_markov || (c.confidence && c.markov_rank > 0));
    expect(dspark || (c.head == head_kind::none && !c.confidence));
}

void check(engine::model_config const& c) {
    check(c.transformer);
    expect(c.draft.has_value() == (!is_target(c.kind)));
    if (c.draft) check(*c.draft, c);
    sureleap::token_id previous = -1;
    for (sureleap::token_id const token : c.stop_tokens) {
        expect(token > previous && static_cast<std::size_t>(token) < c.transformer.vocabulary);
        previous = token;
    }
    // Folders are written as DeepSpec does: they state the target's depth, and have norms of queries and keys.
    bool const is_written = !c.draft || (c.transformer.query_key_norms &&
                                         (c.kind == engine::architecture::eagle3 || c.draft->num_target_layers > 0));
    if (!is_written) return;
    engine::model_config stated = c;
    stated.transformer.rope_divisors.clear();  // no part of it
    expect(engine::parse_config(engine::config_json(stated), "again") == stated);
}

void check(engine::shard_index const& index) {
    expect(!index.empty());
    for (auto const& [tensor, file] : index) {
        expect(!file.empty() && file != "." && file != ".." && file.find_first_of("/\\") == file.npos);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    std::string_view const text(reinterpret_cast<char const*>(data), size);
    try {
        if (text.find("weight_map") != text.npos) {
            check(engine::parse_shard_index(text, "input"));
        } else {
            check(engine::parse_config(text, "input"));
        }
    } catch (sureleap::error const& e) {
        std::string_view const message = e.what();
        expect(message.starts_with("input: ") && message.size() < 400 + size);
    }
    return 0;
}

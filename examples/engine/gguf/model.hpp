// SPDX-License-Identifier: MIT
//
// A GGUF file as a model: its metadata as a configuration, its tensors under the names of a Hugging Face folder.
//
// Two things differ from a folder. Weights of 2 to 8 bits come in blocks; they are packed for the kernels while they
// are loaded (quantised.hpp). And a file of the architecture `llama` has the rows of its query and key matrices in
// another order, since ggml rotates neighbours where everybody else rotates halves; they are put back.
//
// A drafter's file is of the architecture `dflash`, in the layout of llama.cpp (conversion/qwen.py, models/dflash.cpp).
// With the tensors of a Markov head it is DSpark. Layers are counted there by their input, one more than in folders.
#pragma once

#include <filesystem>
#include <memory>

#include "../checkpoint.hpp"
#include "file.hpp"

namespace engine::gguf {

/// Of the architectures llama and qwen3, and of drafters (dflash), strictly read as config.hpp has it: a key that
/// changes the arithmetic is understood or refused. Throws sureleap::error, naming file and key. Stop tokens are the
/// tokenizer's affair (tokenizer.hpp) and stay empty.
[[nodiscard]] model_config read_config(file const& from);

/// The model of a file under its configuration, or another. The file lives as long as the checkpoint or what was made
/// of it.
///
/// A drafter's W1 and confidence weights become F32: their rows are read one by one. Of other tensors F32, F16 and BF16
/// stay where they lie. Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0 are packed as they are. Q4_K and Q5_K have scales in two parts,
/// whose product is rounded to F16. Q6_K becomes 8 bits with a scale for 32 weights. Tensors of other types are refused
/// by name.
[[nodiscard]] checkpoint load(std::shared_ptr<file const> from, model_config config);

}  // namespace engine::gguf

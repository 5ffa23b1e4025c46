// SPDX-License-Identifier: MIT
//
// sureleap inside llama.cpp: targets, drafts, features and samplers over contexts of the user's, for any program that
// links libllama. Needs llama.h and libllama alone. docs/llama_cpp.md walks through it.
#pragma once

#include <sureleap/ext/llama/context.hpp>
#include <sureleap/ext/llama/draft.hpp>
#include <sureleap/ext/llama/dspark.hpp>
#include <sureleap/ext/llama/features.hpp>
#include <sureleap/ext/llama/outcome.hpp>
#include <sureleap/ext/llama/sampler.hpp>
#include <sureleap/ext/llama/sequences.hpp>
#include <sureleap/ext/llama/target.hpp>
#include <sureleap/ext/llama/vocabulary.hpp>

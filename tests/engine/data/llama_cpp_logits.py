#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# Makes llama_cpp_logits.safetensors and coder_logits.safetensors, which real_model.test.cpp compares the engine with:
# logits of SmolLM2-135M-Instruct and of Qwen2.5-Coder-0.5B-Instruct as llama.cpp computes them.
#
#   pip install llama-cpp-python safetensors
#   tests/engine/data/llama_cpp_logits.py "$(examples/models/fetch.sh)"
#   tests/engine/data/llama_cpp_logits.py "$(examples/models/fetch.sh coder)" --out coder_logits.safetensors
#
# A text is read, then continued by 32 tokens, greedily. Of the text and its continuation the file has
#
#   <text>.tokens           [n]         ids; the last 32 are the continuation
#   <text>.log_sum_exp      [n]         of the logits behind every token
#   <text>.top_ids          [last, 16]  the likeliest tokens behind the last 56, in falling order
#   <text>.top_logits       [last, 16]  their logits
#   <text>.f32.log_sum_exp  [n]         the same of the same weights stored as F32,
#   <text>.f32.top_logits   [last, 16]  for the same ids
#
# llama.cpp rounds activations to 8 bits where it multiplies with weights of 4 and 8 bits, and nowhere else. So the F32
# weights give the logits without that error, and their distance from the others says how large it is.
import argparse
import ctypes
import pathlib
import tempfile

import llama_cpp
import llama_cpp.llama_cpp as interface
import numpy
from safetensors.numpy import save_file

CONTINUATION = 32
LAST = 56
TOP = 16

SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


def chat(question, answer):
    return f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n{answer}"


TEXTS = {
    "math": chat(
        "A baker sells 14 loaves in the morning and 9 in the afternoon, at 3 dollars each. How much does he earn in a "
        "week of 6 days?",
        "In a day the baker sells 14 + 9 = 23 loaves.",
    ),
    "algebra": chat("Solve 3x + 7 = 25 for x. Show every step.", ""),
    "code": chat(
        "Write a Python function that returns the longest word of a sentence.",
        "```python\ndef longest_word(sentence):\n    words = sentence.split()\n",
    ),
    "explanation": chat("Explain what a binary search does, and why it is fast.", ""),
    "source": (
        "#include <stdio.h>\n\nint sum(const int *values, int n) {\n    int total = 0;\n"
        "    for (int i = 0; i < n; i++) {\n        total += values[i];\n    }\n    return total;\n}\n\n"
        "int main(void) {\n    int values[] = {1, 2, 3, 4};\n"
    ),
    "prose": (
        "The lighthouse had been dark for eleven years when the new keeper came up the path with a lamp in one hand and "
        "a cat in the other. Nobody in the village had asked for a keeper, and the letter that she carried was signed "
        "by a minister who had died in the spring. She read it to them all the same, on the steps of the church,"
    ),
}


def without_repacking(defaults=interface.llama_model_default_params):
    """The weights as they lie in the file, so that no kernel counts that only some machines have."""
    parameters = defaults()
    parameters.use_extra_bufts = False
    return parameters


interface.llama_model_default_params = without_repacking  # Llama() has no argument for it


class model:
    """A GGUF file, read a text at a time. Keys and values are kept in F32, so that only the weights round."""

    def __init__(self, file):
        self.llama = llama_cpp.Llama(
            str(file), n_ctx=512, logits_all=True, type_k=llama_cpp.GGML_TYPE_F32, type_v=llama_cpp.GGML_TYPE_F32,
            flash_attn=False, verbose=False,
        )  # fmt: skip

    def tokens(self, text):
        return self.llama.tokenize(text.encode(), add_bos=False, special=True)

    def read(self, tokens):
        """The logits behind every token."""
        self.llama.reset()
        self.llama.eval(tokens)
        return self.llama.scores[: len(tokens)].astype(numpy.float64)

    def continued(self, tokens):
        self.llama.reset()
        self.llama.eval(tokens)
        for _ in range(CONTINUATION):
            tokens = tokens + [int(self.llama.scores[len(tokens) - 1].argmax())]
            self.llama.eval(tokens[-1:])
        return tokens


def log_sum_exp(logits):
    largest = logits.max(axis=1)
    return largest + numpy.log(numpy.exp(logits - largest[:, None]).sum(axis=1))


def write_f32(source, target):
    how = llama_cpp.llama_model_quantize_default_params()
    how.ftype = llama_cpp.LLAMA_FTYPE_ALL_F32
    how.allow_requantize = True
    if llama_cpp.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(how)) != 0:
        raise RuntimeError(f"{source}: llama.cpp cannot write it as F32")


def main():
    flags = argparse.ArgumentParser(description="Logits of llama.cpp, for tests/engine/real_model.test.cpp")
    flags.add_argument("model", type=pathlib.Path, help="a GGUF file")
    flags.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).with_suffix(".safetensors"))
    chosen = flags.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        unpacked = pathlib.Path(folder) / "f32.gguf"
        write_f32(chosen.model, unpacked)
        packed, f32 = model(chosen.model), model(unpacked)

    arrays = {}
    for name, text in TEXTS.items():
        tokens = packed.continued(packed.tokens(text))
        logits, exact = packed.read(tokens), f32.read(tokens)
        top = numpy.argsort(-logits[-LAST:], axis=1, kind="stable")[:, :TOP]
        arrays |= {
            f"{name}.tokens": numpy.array(tokens, numpy.int32),
            f"{name}.log_sum_exp": log_sum_exp(logits).astype(numpy.float32),
            f"{name}.top_ids": top.astype(numpy.int32),
            f"{name}.top_logits": numpy.take_along_axis(logits[-LAST:], top, axis=1).astype(numpy.float32),
            f"{name}.f32.log_sum_exp": log_sum_exp(exact).astype(numpy.float32),
            f"{name}.f32.top_logits": numpy.take_along_axis(exact[-LAST:], top, axis=1).astype(numpy.float32),
        }
        print(f"{name}: {len(tokens)} tokens; ...{packed.llama.detokenize(tokens[-CONTINUATION:], special=True)!r}")
    save_file(arrays, chosen.out, {"about": f"llama-cpp-python {llama_cpp.__version__}, {chosen.model.name}"})


if __name__ == "__main__":
    main()

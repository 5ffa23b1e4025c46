#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes a DSpark or DFlash drafter, a folder that `train draft` made, as a GGUF file in llama.cpp's layout.

    pip install gguf
    to_gguf.py dspark --out dspark.gguf                     matrices in 8 bits
    to_gguf.py dspark --out dspark.gguf --type Q4_1         in 5 bits, those of the layers alone

The architecture is `dflash`, with the tensors of a Markov head DSpark (llama.cpp: conversion/qwen.py and
src/models/dflash.cpp). Embedding, LM head and tokenizer are left to the target. Its layers are named by their input
there: one more than in the folder.
"""
import argparse
import json
import pathlib

import gguf
import numpy

OF_LAYERS = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
OTHERS = {
    "fc.weight": "fc.weight",
    "hidden_norm.weight": "enc.output_norm.weight",
    "norm.weight": "output_norm.weight",
    "embed_tokens.weight": "token_embd.weight",
    "lm_head.weight": "output.weight",
    "markov_head.markov_w1.weight": "markov_w1.weight",
    "markov_head.markov_w2.weight": "markov_w2.weight",
    "confidence_head.proj.weight": "conf_proj.weight",
    "confidence_head.proj.bias": "conf_proj.bias",
    "d2t": "d2t",
}


def gguf_name(name: str) -> str:
    if not name.startswith("layers."):
        return OTHERS[name]
    _, layer, rest = name.split(".", 2)
    return f"blk.{layer}.{OF_LAYERS[rest.removesuffix('.weight')]}.weight"


def tensors(file: pathlib.Path):
    """Names and arrays of a safetensors file. numpy has no BF16, so it is widened here."""
    data = file.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    types = {"F32": numpy.float32, "F16": numpy.float16, "F64": numpy.float64, "I32": numpy.int32, "I64": numpy.int64}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        if entry["dtype"] == "BF16":
            values = (numpy.frombuffer(data[begin:end], numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32)
        else:
            values = numpy.frombuffer(data[begin:end], types[entry["dtype"]])
        yield name, values.reshape(entry["shape"])


def write(folder: pathlib.Path, out: pathlib.Path, layer_type: gguf.GGMLQuantizationType) -> None:
    config = json.loads((folder / "config.json").read_text())
    if config.get("markov_head_type", "vanilla") != "vanilla":
        raise SystemExit(f"{folder}: the head is {config['markov_head_type']}, expected vanilla: GGUF has no other")
    w = gguf.GGUFWriter(out, "dflash")
    w.add_context_length(config["max_position_embeddings"])
    w.add_vocab_size(config["vocab_size"])
    w.add_embedding_length(config["hidden_size"])
    w.add_block_count(config["num_hidden_layers"])
    w.add_feed_forward_length(config["intermediate_size"])
    w.add_head_count(config["num_attention_heads"])
    w.add_head_count_kv(config["num_key_value_heads"])
    w.add_key_length(config["head_dim"])
    w.add_value_length(config["head_dim"])
    w.add_layer_norm_rms_eps(config["rms_norm_eps"])
    w.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    w.add_uint32("dflash.block_size", config["block_size"])
    w.add_array("dflash.target_layers", [layer + 1 for layer in config["target_layer_ids"]])
    w.add_bool("dflash.sample_from_anchor", True)
    w.add_bool("dflash.has_confidence_head", config["enable_confidence_head"])
    if temperatures := config.get("confidence_temperatures"):  # no key of llama.cpp's, which skips it
        w.add_array("dflash.confidence_temperatures", [float(t) for t in temperatures])
    w.add_uint32("tokenizer.ggml.mask_token_id", config["mask_token_id"])
    for name, values in tensors(folder / "model.safetensors"):
        own = gguf_name(name)
        if own == "d2t":
            w.add_tensor(own, values.astype(numpy.int64))
            continue
        values = values.astype(numpy.float32)
        if values.ndim == 1 or own.startswith("conf_proj"):
            w.add_tensor(own, values)
            continue
        kind = layer_type if own.startswith("blk.") else gguf.GGMLQuantizationType.Q8_0
        w.add_tensor(own, gguf.quants.quantize(values, kind), raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--type", default="Q8_0", choices=["F32", "F16", "Q8_0", "Q5_0", "Q4_1", "Q4_0"],
                        help="of the layers' matrices; all others are Q8_0")
    chosen = parser.parse_args()
    write(chosen.folder, chosen.out, gguf.GGMLQuantizationType[chosen.type])
    print(f"{chosen.out}: {chosen.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()

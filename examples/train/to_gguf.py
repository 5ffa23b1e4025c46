#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes a DSpark or DFlash drafter, a folder that `train draft` made, as a GGUF file in llama.cpp's layout.

    pip install gguf
    to_gguf.py dspark --out dspark.gguf                             matrices in 8 bits
    to_gguf.py dspark --out dspark.gguf --type Q4_1                 in 5 bits, those of the layers alone
    to_gguf.py dspark --out dspark.gguf --target target.gguf        a file for llama.cpp as well
    to_gguf.py dspark.gguf --out both.gguf --target target.gguf     the same, from a file without

The architecture is `dflash`, with the tensors of a Markov head DSpark (llama.cpp: conversion/qwen.py and
src/models/dflash.cpp). Embedding and LM head are left to the target. Its layers are named by their input there: one more
than in the folder. from_gguf.py is the way back.

llama.cpp needs two things that the example engine takes from the target: a tokenizer, and where some tokens alone are drafted
(d2t), their rows of the LM head. --target copies both. Rows that are copied are rounded as the engine would round them.
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
# A folder says how many layers its target has. No key of llama.cpp's, which skips it.
TARGET_LAYERS = "dflash.target_block_count"
MASK_TOKEN = "tokenizer.ggml.mask_token_id"


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


def in_16_steps(values: numpy.ndarray) -> numpy.ndarray:
    """Q4_1, as examples/engine/quantised.cpp rounds: with the scale and the minimum that are stored."""
    blocks = values.astype(numpy.float32).reshape(-1, 32)
    least, largest = blocks.min(1, keepdims=True), blocks.max(1, keepdims=True)
    stored = numpy.concatenate([(largest - least) / numpy.float32(15), least], 1).astype(numpy.float16)
    scale, minimum = (column[:, None] for column in stored.astype(numpy.float32).T)
    steps = numpy.divide(blocks - minimum, scale, out=numpy.zeros_like(blocks), where=scale > 0)
    steps = numpy.rint(steps).clip(0, 15).astype(numpy.uint8)
    packed = numpy.concatenate([stored.view(numpy.uint8), steps[:, :16] | steps[:, 16:] << 4], 1)
    return packed.reshape(*values.shape[:-1], -1)


def quantised(values: numpy.ndarray, kind: gguf.GGMLQuantizationType) -> numpy.ndarray:
    return in_16_steps(values) if kind == gguf.GGMLQuantizationType.Q4_1 else gguf.quants.quantize(values, kind)


def copy_keys(w: gguf.GGUFWriter, source: gguf.GGUFReader, wanted) -> None:
    for key, field in source.fields.items():
        if wanted(key):
            inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            w.add_key_value(key, field.contents(), field.types[0], sub_type=inner)


def copy_tokenizer(w: gguf.GGUFWriter, target: gguf.GGUFReader) -> None:
    copy_keys(w, target, lambda key: key.startswith("tokenizer.ggml.") and key != MASK_TOKEN)


def head_rows(target: gguf.GGUFReader, tokens: numpy.ndarray) -> numpy.ndarray:
    """Those of the target's LM head, which may be its embedding."""
    found = {tensor.name: tensor for tensor in target.tensors}
    head = found.get("output.weight") or found["token_embd.weight"]
    return gguf.quants.dequantize(head.data[tokens], head.tensor_type)


def finish(w: gguf.GGUFWriter) -> None:
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def write(folder: pathlib.Path, out: pathlib.Path, types: dict[str, gguf.GGMLQuantizationType],
          target: gguf.GGUFReader | None) -> None:
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
    w.add_uint32(TARGET_LAYERS, config["num_target_layers"])
    w.add_bool("dflash.sample_from_anchor", True)
    w.add_bool("dflash.has_confidence_head", config["enable_confidence_head"])
    if temperatures := config.get("confidence_temperatures"):  # no key of llama.cpp's, which skips it
        w.add_array("dflash.confidence_temperatures", [float(t) for t in temperatures])
    w.add_uint32(MASK_TOKEN, config["mask_token_id"])
    of_folder = {gguf_name(name): values for name, values in tensors(folder / "model.safetensors")}
    if target is not None:
        copy_tokenizer(w, target)
        if "d2t" in of_folder and "output.weight" not in of_folder:
            of_folder["output.weight"] = head_rows(target, of_folder["d2t"])
    for own, values in of_folder.items():
        if own == "d2t":
            w.add_tensor(own, values.astype(numpy.int64))
            continue
        values = values.astype(numpy.float32)
        if values.ndim == 1 or own.startswith("conf_proj"):
            w.add_tensor(own, values)
            continue
        kind = types["layers" if own.startswith("blk.") else "head" if own == "output.weight" else "others"]
        w.add_tensor(own, quantised(values, kind), raw_dtype=kind)
    finish(w)


def write_again(file: pathlib.Path, out: pathlib.Path, of_head: gguf.GGMLQuantizationType, target: gguf.GGUFReader) -> None:
    """A file as it is, with what llama.cpp needs beside it."""
    source = gguf.GGUFReader(file)
    w = gguf.GGUFWriter(out, "dflash")
    copy_keys(w, source, lambda key: key.startswith("dflash.") or key == MASK_TOKEN)
    copy_tokenizer(w, target)
    own = {tensor.name: tensor for tensor in source.tensors}
    for tensor in source.tensors:
        w.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    if "d2t" in own and "output.weight" not in own:
        w.add_tensor("output.weight", quantised(head_rows(target, own["d2t"].data), of_head), raw_dtype=of_head)
    finish(w)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("drafter", type=pathlib.Path, help="a folder, or a file that --target is to complete")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    types = ["F32", "F16", "BF16", "Q8_0", "Q5_0", "Q4_1", "Q4_0"]
    parser.add_argument("--type", default="Q8_0", choices=types, help="of the layers' matrices")
    parser.add_argument("--type-head", default="Q4_1", choices=types, help="of an LM head")
    parser.add_argument("--type-others", default="Q8_0", choices=types, help="of all other matrices")
    parser.add_argument("--target", type=pathlib.Path, metavar="TARGET.gguf", help="copies of it what llama.cpp needs")
    chosen = parser.parse_args()
    types = {"layers": chosen.type, "head": chosen.type_head, "others": chosen.type_others}
    types = {part: gguf.GGMLQuantizationType[name] for part, name in types.items()}
    target = chosen.target and gguf.GGUFReader(chosen.target)
    if chosen.drafter.is_dir():
        write(chosen.drafter, chosen.out, types, target)
    elif target is None:
        raise SystemExit(f"{chosen.drafter} is a file already, expected a folder, or --target")
    else:
        write_again(chosen.drafter, chosen.out, types["head"], target)
    print(f"{chosen.out}: {chosen.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()

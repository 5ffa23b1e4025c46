#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes a DSpark or DFlash drafter, a GGUF file in llama.cpp's layout, as a folder: the way back of to_gguf.py.

    pip install gguf
    from_gguf.py dspark.gguf --out dspark                                numbers in 32 bits: those of the file
    from_gguf.py dspark.gguf --out dspark --type BF16                    rounded once more, half as large
    from_gguf.py theirs.gguf --out dspark --target-layers 30             of a file that does not say how many the target has

The folder has config.json and model.safetensors. Layers of the target are named there by their output: one less than in
the file. Quantised weights become the numbers that they stand for. `d2t` stays the target's ids.
"""
import argparse
import json
import pathlib
import struct

import gguf
import numpy

from to_gguf import OF_LAYERS, OTHERS, TARGET_LAYERS

FOLDER_NAMES = {own: name for name, own in OTHERS.items()}
FOLDER_NAMES_OF_LAYERS = {own: name for name, own in OF_LAYERS.items()}


def folder_name(own: str) -> str | None:
    """None for a tensor that drafters do not have."""
    if not own.startswith("blk."):
        return FOLDER_NAMES.get(own)
    _, layer, rest = own.split(".", 2)
    name = FOLDER_NAMES_OF_LAYERS.get(rest.removesuffix(".weight"))
    return name and f"layers.{layer}.{name}.weight"


class Metadata:
    def __init__(self, reader: gguf.GGUFReader, file: pathlib.Path):
        self.reader, self.file = reader, file

    def __call__(self, key: str, otherwise=None):
        """The value of a key; an error if there is none and nothing to take instead."""
        field = self.reader.fields.get(key)
        if field is None and otherwise is None:
            raise SystemExit(f"{self.file}: there is no key {key}, expected one")
        value = otherwise if field is None else field.contents()
        if isinstance(value, list):
            return [shortest(v) for v in value]
        return shortest(value)


def shortest(value):
    """A number of 32 bits as it would be written: 1e-06 and not 9.999999974752427e-07."""
    return float(str(numpy.float32(value))) if isinstance(value, float) else value


def config_of(key: Metadata, shapes: dict[str, list[int]], target_layers: int | None) -> dict:
    if (kind := key("general.architecture")) != "dflash":
        raise SystemExit(f"{key.file}: the architecture is {kind}, expected dflash")
    if not key("dflash.sample_from_anchor", False):
        raise SystemExit(f"{key.file}: blocks begin behind a bonus token, expected dflash.sample_from_anchor")
    for variant in ("attention.sliding_window", "logit_scale", "final_logit_softcapping", "embedding_scale"):
        if f"dflash.{variant}" in key.reader.fields:
            raise SystemExit(f"{key.file}: there is a key dflash.{variant}, expected none: folders do not know it")
    if target_layers is None:
        if TARGET_LAYERS not in key.reader.fields:
            raise SystemExit(f"{key.file}: it does not say how many layers the target has; --target-layers tells it")
        target_layers = key(TARGET_LAYERS)
    hidden, heads, layers = (key(f"dflash.{name}") for name in ("embedding_length", "attention.head_count", "block_count"))
    w1 = shapes.get("markov_w1.weight")
    vocabulary = key("dflash.vocab_size", w1[0] if w1 else None)
    config = {
        "architectures": ["Qwen3DSparkModel"],
        "model_type": "qwen3",
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "intermediate_size": key("dflash.feed_forward_length"),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": key("dflash.attention.head_count_kv"),
        "head_dim": key("dflash.attention.key_length", hidden // heads),
        "max_position_embeddings": key("dflash.context_length"),
        "rope_parameters": {"rope_theta": key("dflash.rope.freq_base", 10000.0), "rope_type": "default"},
        "layer_types": ["full_attention"] * layers,
        "rms_norm_eps": key("dflash.attention.layer_norm_rms_epsilon"),
        "hidden_act": "silu",
        "attention_bias": False,
        "use_sliding_window": False,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "target_layer_ids": [layer - 1 for layer in key("dflash.target_layers")],
        "num_target_layers": target_layers,
    }
    if "d2t" in shapes:
        config["draft_vocab_size"] = shapes["d2t"][0]
    rank = w1[1] if w1 else 0
    config |= {
        "block_size": key("dflash.block_size"),
        "mask_token_id": key("tokenizer.ggml.mask_token_id"),
        "num_anchors": 512,  # of training only, but the reference code insists on it
        "markov_rank": rank,
    }
    if w1:
        config["markov_head_type"] = "vanilla"
    confidence = shapes.get("conf_proj.weight")
    config["enable_confidence_head"] = confidence is not None
    if confidence:
        config["confidence_head_with_markov"] = rank > 0 and confidence[-1] == hidden + rank
    if "dflash.confidence_temperatures" in key.reader.fields:
        config["confidence_temperatures"] = key("dflash.confidence_temperatures")
    return config


def bf16(values: numpy.ndarray) -> numpy.ndarray:
    """To the nearest, ties to even."""
    bits = numpy.ascontiguousarray(values, numpy.float32).view(numpy.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(numpy.uint16)


def write_tensors(file: pathlib.Path, tensors: list[tuple[str, str, numpy.ndarray]]) -> None:
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, kind, values in tensors:
        header[name] = {"dtype": kind, "shape": list(values.shape), "data_offsets": [end, end + values.nbytes]}
        end += values.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with file.open("wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for _, _, values in tensors:
            out.write(values.tobytes())


def write(file: pathlib.Path, folder: pathlib.Path, kind: str, target_layers: int | None) -> None:
    reader = gguf.GGUFReader(file)
    shapes = {t.name: [int(n) for n in reversed(t.shape)] for t in reader.tensors}
    config = config_of(Metadata(reader, file), shapes, target_layers)
    tensors = []
    for tensor in reader.tensors:
        if (name := folder_name(tensor.name)) is None:
            raise SystemExit(f"{file}: there is a tensor {tensor.name}, expected those of a drafter")
        if name == "d2t":
            tensors.append((name, "I32", tensor.data.astype(numpy.int32)))
            continue
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(shapes[tensor.name])
        if name == "confidence_head.proj.weight":
            values = values.reshape(1, -1)
        tensors.append((name, kind, bf16(values) if kind == "BF16" else values.astype(numpy.float32)))
    if config["enable_confidence_head"] and "conf_proj.bias" not in shapes:
        tensors.append(("confidence_head.proj.bias", kind, numpy.zeros(1, numpy.uint16 if kind == "BF16" else numpy.float32)))
    # d2t first, as its entries are the widest.
    tensors.sort(key=lambda tensor: (tensor[0] != "d2t", tensor[0]))
    folder.mkdir(parents=True, exist_ok=True)
    write_tensors(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="the folder")
    parser.add_argument("--type", default="F32", choices=["F32", "BF16"], help="of all numbers in the folder")
    parser.add_argument("--target-layers", type=int, help="how many the target has, where the file does not say so")
    chosen = parser.parse_args()
    write(chosen.file, chosen.out, chosen.type, chosen.target_layers)
    print(f"{chosen.out}: {(chosen.out / 'model.safetensors').stat().st_size:,} bytes")


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: MIT
"""What a drafter of train_torch.py takes from its target, what it begins as, and the folder that it becomes: the twin
of target_weights, initial, draft_vocabulary and folder.
"""
import contextlib
import json
import math
import os
import pathlib

import numpy
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from torch_model import Drafter
from torch_texts import NO_TOKEN, philox

# ---- targets ---------------------------------------------------------------------------------------------------------


class Tensors:
    """Those of a folder, which has one file or several."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        files = [safe_open(file, "pt") for file in sorted(folder.glob("model*.safetensors"))]
        self.files = {name: file for file in files for name in file.keys()}

    def __contains__(self, name: str) -> bool:
        return name in self.files

    def __getitem__(self, name: str) -> torch.Tensor:
        if name not in self.files:
            raise SystemExit(f"{self.folder}: has no tensor {name}, expected one")
        return self.files[name].get_tensor(name)


class FolderTarget:
    def __init__(self, folder: pathlib.Path):
        self.path, self.tensors = folder, Tensors(folder)
        self.config = json.loads((folder / "config.json").read_text())
        known = [[f"{name}ForCausalLM"] for name in ("Qwen3", "Qwen2", "Llama")]
        if (found := self.config["architectures"]) not in known:
            raise SystemExit(f"{folder}: architectures are {found}, expected one of {known}")
        rotary = self.config.get("rope_parameters") or self.config.get("rope_scaling") or {}
        if (kind := rotary.get("rope_type", rotary.get("type", "default"))) != "default":
            raise SystemExit(f"{folder}: rope_type is {kind}, expected default: a drafter's positions are not scaled")
        self.config["rope_theta"] = float(self.config.get("rope_theta") or rotary["rope_theta"])
        self.config.setdefault("head_dim", self.config["hidden_size"] // self.config["num_attention_heads"])
        generation = folder / "generation_config.json"
        if generation.exists() and "eos_token_id" in (more := json.loads(generation.read_text())):
            self.config["eos_token_id"] = more["eos_token_id"]

    def token(self, text: str) -> int | None:
        tokenizer = json.loads((self.path / "tokenizer.json").read_text())
        added = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
        return added.get(text, tokenizer["model"]["vocab"].get(text))


class GgufTensors:
    """Those of a GGUF file under the names of a folder, as the engine of examples/engine has them."""

    def __init__(self, file: pathlib.Path, reader, config: dict):
        import gguf
        from to_gguf import OF_LAYERS
        self.path, self.config, self.gguf = file, config, gguf
        names = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
                 "output.weight": "lm_head.weight"}
        for layer in range(config["num_hidden_layers"]):
            names |= {f"blk.{layer}.{own}.weight": f"model.layers.{layer}.{name}.weight"
                      for name, own in OF_LAYERS.items()}
        self.stored = {names[tensor.name]: tensor for tensor in reader.tensors if tensor.name in names}

    def __contains__(self, name: str) -> bool:
        return name in self.stored

    def __getitem__(self, name: str) -> torch.Tensor:
        if name not in self.stored:
            raise SystemExit(f"{self.path}: has no tensor {name}, expected one")
        stored = self.stored[name]
        try:
            values = self.gguf.quants.dequantize(stored.data, stored.tensor_type).astype(numpy.float32)
        except NotImplementedError as error:
            raise SystemExit(f"{self.path}: tensor {stored.name} is {stored.tensor_type.name}, expected a type that "
                             "the package gguf reads") from error
        values = values.reshape([int(extent) for extent in reversed(stored.shape)])
        if stored.tensor_type.name in ("Q5_1", "Q5_K", "Q6_K"):
            values = in_8_bits(values)
        if self.config["interleaved"] and name.endswith(("q_proj.weight", "k_proj.weight")):
            # Pairs that are rotated together are neighbours in such a file, and half a head apart in a folder.
            pairs = values.reshape(-1, self.config["head_dim"] // 2, 2, values.shape[1])
            values = pairs.swapaxes(1, 2).reshape(values.shape)
        return torch.from_numpy(numpy.array(values))


def in_8_bits(values: numpy.ndarray) -> numpy.ndarray:
    """As the engine holds what has more than 4 bits and is no multiple of one scale: rounded again, 32 to a scale."""
    runs = values.reshape(-1, 32)
    scale = (numpy.abs(runs).max(1, keepdims=True) / numpy.float32(127)).astype(numpy.float16).astype(numpy.float32)
    steps = numpy.divide(runs, scale, out=numpy.zeros_like(runs), where=scale > 0)
    return (numpy.rint(steps).clip(-127, 127) * scale).reshape(values.shape)


class GgufTarget:
    """What ends a text is left out, as from_gguf.py leaves it out: engines ask the target."""

    def __init__(self, file: pathlib.Path):
        self.path = file
        try:
            import gguf
        except ImportError as error:
            raise SystemExit(f"{file}: to read it takes the package gguf: pip install gguf") from error
        reader = gguf.GGUFReader(file)

        def key(name: str, otherwise=None):
            field = reader.fields.get(name)
            if field is None and otherwise is None:
                raise SystemExit(f"{file}: there is no key {name}, expected one")
            return otherwise if field is None else field.contents()

        kind = key("general.architecture")
        if kind not in ("llama", "qwen2", "qwen3"):
            raise SystemExit(f"{file}: the architecture is {kind}, expected llama, qwen2 or qwen3")
        names = {tensor.name: tensor for tensor in reader.tensors}
        if "rope_freqs.weight" in names:
            raise SystemExit(f"{file}: there is rope_freqs.weight, expected none: a drafter's positions are not scaled")
        hidden, heads = key(f"{kind}.embedding_length"), key(f"{kind}.attention.head_count")
        self.tokens = key("tokenizer.ggml.tokens")
        self.config = {
            "interleaved": kind == "llama",
            "vocab_size": int(names["token_embd.weight"].shape[1]),
            "hidden_size": hidden,
            "intermediate_size": key(f"{kind}.feed_forward_length"),
            "num_hidden_layers": key(f"{kind}.block_count"),
            "num_attention_heads": heads,
            "num_key_value_heads": key(f"{kind}.attention.head_count_kv", heads),
            "head_dim": key(f"{kind}.attention.key_length", hidden // heads),
            "max_position_embeddings": key(f"{kind}.context_length"),
            "rope_theta": key(f"{kind}.rope.freq_base", 10000.0),
            "rms_norm_eps": key(f"{kind}.attention.layer_norm_rms_epsilon"),
            "attention_bias": kind == "qwen2",
            "tie_word_embeddings": "output.weight" not in names,
        }
        self.tensors = GgufTensors(file, reader, self.config)

    def token(self, text: str) -> int | None:
        return self.tokens.index(text) if text in self.tokens else None


def target_of(path: pathlib.Path) -> FolderTarget | GgufTarget:
    return FolderTarget(path) if path.is_dir() else GgufTarget(path)


def frozen_tables(target: FolderTarget | GgufTarget, drafted: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Embeddings, and the rows of the LM head that are drafted."""
    embeddings = target.tensors["model.embed_tokens.weight"].float()
    head = embeddings if target.config["tie_word_embeddings"] else target.tensors["lm_head.weight"].float()
    return embeddings, head[drafted] if drafted else head


# ---- what is drafted -------------------------------------------------------------------------------------------------


def rising_tokens(file: pathlib.Path, tokens: torch.Tensor, vocabulary: int) -> list[int]:
    ids = tokens.tolist()
    if not ids or any(a >= b for a, b in zip(ids, ids[1:])) or ids[0] < 0 or ids[-1] >= vocabulary:
        raise SystemExit(f"{file}: tensor d2t has {len(ids)} tokens, expected some of 0 .. {vocabulary - 1}, rising")
    return ids


def read_vocabulary(file: pathlib.Path, vocabulary: int) -> list[int]:
    with safe_open(file, "pt") as stored:
        return rising_tokens(file, stored.get_tensor("d2t"), vocabulary)


def drafter_numbers(drafted: list[int], vocabulary: int) -> numpy.ndarray:
    """The drafter's number of every token of the target."""
    if not drafted:
        return numpy.arange(vocabulary)
    numbers = numpy.full(vocabulary, NO_TOKEN, numpy.int64)
    numbers[drafted] = numpy.arange(len(drafted))
    return numbers


# ---- where training starts -------------------------------------------------------------------------------------------


def normal(name: str, count: int, seed: int) -> numpy.ndarray:
    """Normally distributed numbers, functions of the seed, the tensor's name and their index."""
    key = 2166136261  # FNV-1a
    for byte in name.encode():
        key = (key ^ byte) * 16777619 & 0xFFFFFFFF
    out = numpy.empty(count)
    for first in range(0, count, 1 << 16):
        last = min(first + (1 << 16), count)
        a, b, _, _ = philox((numpy.arange(first, last), key, 0, 2), seed)
        u, v = (a + 0.5) * 2.0**-32, (b + 0.5) * 2.0**-32
        out[first:last] = numpy.sqrt(-2.0 * numpy.log(u)) * numpy.cos(2.0 * math.pi * v)
    return out


@torch.no_grad()
def initialise(drafter: Drafter, seed: int) -> None:
    """A confidence head and W2 begin at zero: q begins as the backbone's, and a head adds what helps."""
    for name, values in drafter.named_parameters():
        if any(part in name for part in ("confidence_head", "markov_w2", ".bias")):
            values.zero_()
        elif values.ndim == 1:
            values.fill_(1)
        else:
            writes = "o_proj" in name or "down_proj" in name
            deviation = 0.02 / math.sqrt(2.0 * drafter.config["num_hidden_layers"]) if writes else 0.02
            values.copy_(torch.from_numpy(deviation * normal(name, values.numel(), seed)).view_as(values))


def copy_into(values: torch.Tensor, stored: torch.Tensor, name: str) -> None:
    if stored.shape != values.shape:
        raise SystemExit(f"tensor {name} to start from is {list(stored.shape)}, expected {list(values.shape)}")
    values.copy_(stored)


@torch.no_grad()
def start_from_layers(drafter: Drafter, target: FolderTarget | GgufTarget, first: int) -> None:
    """The drafter's layers begin as the target's layers first, first + 1, ... and its final norm as the target's. The
    context begins as what the target's layer `first` reads of that past: the feature nearest below, with that layer's
    norm."""
    layers, last = target.config["num_hidden_layers"], first + drafter.config["num_hidden_layers"] - 1
    if first < 0 or last >= layers:
        raise SystemExit(f"--start-layer is {first}: the drafter's last layer would be layer {last} of the target, "
                         f"expected one of 0 .. {layers - 1}")
    sources = {"norm.weight": "model.norm.weight", "hidden_norm.weight": f"model.layers.{first}.input_layernorm.weight"}
    for name, values in drafter.named_parameters():
        if name.startswith("layers."):
            _, layer, rest = name.split(".", 2)
            sources[name] = f"model.layers.{first + int(layer)}.{rest}"
        if name.endswith(("q_norm.weight", "k_norm.weight")) and sources[name] not in target.tensors:
            continue  # Llama has none
        if name in sources:
            copy_into(values, target.tensors[sources[name]], sources[name])
    feature_layers = drafter.config["target_layer_ids"]
    nearest = max(sum(layer < first for layer in feature_layers) - 1, 0)
    drafter.fc.weight[:, nearest * len(drafter.fc.weight) :][:, : len(drafter.fc.weight)].diagonal().add_(1)


@torch.no_grad()
def start_from_drafter(drafter: Drafter, folder: pathlib.Path, drafted: list[int]) -> None:
    """The drafter begins as an earlier one. A layer that the earlier one lacks adds nothing to the residual stream at
    first."""
    config, stored = json.loads((folder / "config.json").read_text()), Tensors(folder)
    tokens: list[int] = []
    if "d2t" in stored:
        ids = stored["d2t"]
        offsets = torch.arange(len(ids)) if ids.dtype == torch.int64 else 0  # as other trainers write them
        tokens = rising_tokens(folder, ids + offsets, config["vocab_size"])
    if tokens != drafted:
        raise SystemExit(f"{folder}: drafts {len(tokens) or config['vocab_size']} tokens that are not those of "
                         f"--vocabulary ({len(drafted) or drafter.config['vocab_size']}), expected the same")
    for name, values in drafter.named_parameters():
        if not name.startswith("layers.") or int(name.split(".")[1]) < config["num_hidden_layers"]:
            copy_into(values, stored[name], name)
        elif name.endswith(("o_proj.weight", "down_proj.weight")):
            values.zero_()


# ---- folders ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def replacing(file: pathlib.Path):
    """A name to write to, which becomes the file when it is whole: a program may be killed meanwhile."""
    part = file.with_name(file.name + ".part")
    yield part
    os.replace(part, file)


def write_drafter(folder: pathlib.Path, drafter: Drafter, drafted: list[int]) -> None:
    """config.json, and model.safetensors in BF16."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: values.detach().to("cpu", torch.bfloat16) for name, values in drafter.named_parameters()}
    if drafted:
        tensors["d2t"] = torch.tensor(drafted, dtype=torch.int32)
    with replacing(folder / "model.safetensors") as file:
        save_file(tensors, file, metadata={"format": "pt"})
    with replacing(folder / "config.json") as file:
        file.write_text(json.dumps(drafter.config, indent=2) + "\n")

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Records on a GPU what a drafter learns from: features and laws of texts that a target wrote elsewhere.

    train texts --target target.gguf --corpus prompts.jsonl --temperature 0.7 --top-p 0.9 --out own.safetensors
    record_torch.py --target target.gguf --texts own.safetensors --features 8,17,26 --temperature 0.7 --top-p 0.9 \\
        --out recorded

Tokens travel easily: they take 8 bytes each, where a recording takes 3.5 KB. What is written is the folder that `train
texts --out recorded` writes, but for rounding: products are in 32 bits here, while the engine rounds what it multiplies
with 4 bits. --temperature, --top-p and --top-k are those that the texts were written with. Texts without a prompt, or
of a prompt alone, are left out.

Needs torch, numpy and safetensors, and for a GGUF target gguf.
"""
import argparse
import pathlib

import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from torch_model import Attention, Layer, RmsNorm, angles_of, rotated
from torch_texts import BEST_OF_LAW
from torch_weights import frozen_tables, replacing, target_of

LARGEST_HALF = 65504.0  # a number beyond would become infinite, and an infinite feature has no gradient
LEAST_TEMPERATURE = 1e-5  # below it the likeliest token has all of the law
ROWS_AT_ONCE = 4096  # of logits


class CausalAttention(Attention):
    def forward(self, y: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
        q, k = (rotated(norm(self.split(project(y))), cosines, sines).transpose(1, 2)
                for norm, project in ((self.q_norm, self.q_proj), (self.k_norm, self.k_proj)))
        v = self.split(self.v_proj(y)).transpose(1, 2)
        k, v = (x.repeat_interleave(self.heads // self.kv_heads, 1) for x in (k, v))
        return self.o_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Target(nn.Module):
    """With the weights of a target of torch_weights.py."""

    def __init__(self, of):
        super().__init__()
        config = of.config
        if config.get("attention_bias") or "model.layers.0.self_attn.q_proj.bias" in of.tensors:
            raise SystemExit(f"{of.path}: its attention has biases, expected none: `train texts` records such a target")
        self.layers = nn.ModuleList(Layer(config, CausalAttention) for _ in range(config["num_hidden_layers"]))
        self.norm = RmsNorm(config["hidden_size"], config["rms_norm_eps"])
        if "model.layers.0.self_attn.q_norm.weight" not in of.tensors:  # Llama
            for layer in self.layers:
                layer.self_attn.q_norm = layer.self_attn.k_norm = nn.Identity()
        self.load_state_dict({name: of.tensors[f"model.{name}"].float() for name in self.state_dict()})
        embeddings, lm_head = frozen_tables(of, [])
        self.register_buffer("embeddings", embeddings, persistent=False)
        self.register_buffer("lm_head", lm_head, persistent=False)
        self.theta, self.head_dim = config["rope_theta"], config["head_dim"]

    def forward(self, tokens: torch.Tensor, feature_layers: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Features [texts, tokens, width] and final hidden states. Layer -1 is the embedding."""
        angles = [of_all[:, None].to(tokens.device) for of_all in angles_of(self.theta, self.head_dim, tokens.shape[1])]
        x, features = F.embedding(tokens, self.embeddings), []
        for layer in range(-1, len(self.layers)):
            x = x if layer < 0 else self.layers[layer](x, *angles)
            if layer in feature_layers:
                features.append(x)
        return torch.cat(features, -1), self.norm(x)


def best_of_laws(logits: torch.Tensor, how: argparse.Namespace) -> tuple[torch.Tensor, torch.Tensor]:
    """The likeliest tokens of the laws of rows, falling, and their probabilities: temperature, then top-k, then top-p,
    each on what the one before left."""
    count = min(BEST_OF_LAW, logits.shape[1])
    best_logits, tokens = logits.topk(count)
    if how.temperature < LEAST_TEMPERATURE:
        shares = torch.zeros_like(best_logits)
        shares[:, 0] = 1
    elif how.top_k == 0 and how.top_p >= 1:
        shares = (best_logits / how.temperature - (logits / how.temperature).logsumexp(1, keepdim=True)).exp()
    else:
        falling = torch.softmax(logits.sort(descending=True).values / how.temperature, 1, dtype=torch.float64)
        if how.top_k > 0:
            falling[:, how.top_k :] = 0
        falling /= falling.sum(1, keepdim=True)
        falling[falling.cumsum(1) - falling >= how.top_p] = 0
        shares = (falling / falling.sum(1, keepdim=True))[:, :count]
    missing = (0, BEST_OF_LAW - count)
    return F.pad(tokens, missing).int(), F.pad(shares, missing).float()


def read_texts(file: pathlib.Path) -> tuple[list[tuple], list[str]]:
    """Number, tokens, prompt and domain of every text, and the names of domains."""
    with safe_open(file, "pt") as stored:
        about = stored.metadata() or {}
        names = ["begins", "domains", "prompts", "tokens"]
        if (found := sorted(stored.keys())) != names:
            raise SystemExit(f"{file}: has tensors {found}, expected {names} as `train texts` writes them")
        begins, domains, prompts, tokens = (stored.get_tensor(name) for name in names)
    texts = [(number, tokens[begin:end], prompt, domain) for number, (begin, end, prompt, domain) in
             enumerate(zip(begins[:-1].tolist(), begins[1:].tolist(), prompts.tolist(), domains.tolist()))]
    return texts, [about[f"domain {i}"] for i in range(sum(name.startswith("domain ") for name in about))]


def record(target: Target, texts: list[tuple], chosen: argparse.Namespace) -> list[dict[str, torch.Tensor]]:
    """What a shard has of each of some texts. They are padded behind their ends, which nothing before can see."""
    rows = nn.utils.rnn.pad_sequence([tokens[:-1] for _, tokens, _, _ in texts], batch_first=True).to(chosen.device)
    features, hidden = target(rows, chosen.features)
    features = features.clamp(-LARGEST_HALF, LARGEST_HALF).half().cpu()
    written = [hidden[i, prompt - 1 : len(tokens) - 1] for i, (_, tokens, prompt, _) in enumerate(texts)]
    laws = [best_of_laws(F.linear(part, target.lm_head), chosen) for part in torch.cat(written).split(ROWS_AT_ONCE)]
    sizes = [len(of_text) for of_text in written]
    best_tokens, best_shares = (torch.cat(parts).cpu().split(sizes) for parts in zip(*laws))
    return [{"tokens": tokens.int(), "features": features[i, : len(tokens) - 1], "best_tokens": best_tokens[i],
             "best_shares": best_shares[i]} for i, (_, tokens, _, _) in enumerate(texts)]


def write_shard(file: pathlib.Path, texts: list[tuple], recorded: list[dict[str, torch.Tensor]], about: dict) -> None:
    numbers, tokens, prompts, domains = zip(*texts)
    tensors = {name: torch.cat([of_text[name] for of_text in recorded]) for name in recorded[0]}
    tensors["begins"] = torch.tensor([0] + [len(of_text) for of_text in tokens]).cumsum(0)
    for name, integers in (("numbers", numbers), ("prompts", prompts), ("domains", domains)):
        tensors[name] = torch.tensor(integers)
    with replacing(file) as part:
        save_file(tensors, part, metadata=about)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add, path = parser.add_argument, pathlib.Path
    add("--target", type=path, required=True, help="folder of the target, or a GGUF file")
    add("--texts", type=path, required=True, help="tokens that `train texts --out FILE.safetensors` wrote")
    add("--out", type=path, required=True, help="folder of the recording, which must have none")
    add("--features", type=lambda text: [int(layer) for layer in text.split(",")], required=True,
        help="layers of the target to record, rising; -1 is the embedding")
    add("--temperature", type=float, default=1.0, help="of sampling (default: %(default)s)")
    add("--top-p", type=float, default=1.0, help="likewise (default: %(default)s)")
    add("--top-k", type=int, default=0, help="likewise; 0: all (default: %(default)s)")
    add("--at-once", type=int, default=32, help="texts in a pass (default: %(default)s)")
    add("--shard-tokens", type=int, default=100_000, help="tokens of a shard (default: %(default)s)")
    add("--device", help="cpu, cuda, cuda:1; default: cuda where there is one")
    chosen = parser.parse_args(arguments)
    chosen.device = torch.device(chosen.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    of = target_of(chosen.target)
    layers = of.config["num_hidden_layers"]
    if chosen.features != sorted(set(chosen.features)) or chosen.features[0] < -1 or chosen.features[-1] > layers - 2:
        raise SystemExit(f"--features are {chosen.features}, expected rising layers of -1 .. {layers - 2}")
    if (chosen.out / "00000.safetensors").exists():
        raise SystemExit(f"{chosen.out}: has a recording, expected a folder without one")
    texts, domains = read_texts(chosen.texts)
    about = {f"domain {i}": name for i, name in enumerate(domains)} | {
        "feature_layers": ",".join(map(str, chosen.features)),
        "written_by": f"record_torch.py of {chosen.texts.name}, temperature {chosen.temperature:g} top-p "
                      f"{chosen.top_p:g} top-k {chosen.top_k}"}
    texts = [text for text in texts if 0 < text[2] < len(text[1])]
    texts.sort(key=lambda text: len(text[1]))  # little padding
    target = Target(of).to(chosen.device)
    chosen.out.mkdir(parents=True, exist_ok=True)
    shards, done, of_shard = 0, [], []
    with torch.inference_mode():
        for first in range(0, len(texts), chosen.at_once):
            some = texts[first : first + chosen.at_once]
            of_shard += record(target, some, chosen)
            done += some
            if sum(len(text[1]) for text in done) >= chosen.shard_tokens or first + len(some) == len(texts):
                write_shard(chosen.out / f"{shards:05}.safetensors", done, of_shard, about)
                print(f"{first + len(some)} of {len(texts)} texts", flush=True)
                shards, done, of_shard = shards + 1, [], []


if __name__ == "__main__":
    main()

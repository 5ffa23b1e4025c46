#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains a DSpark drafter on recorded texts with PyTorch, where there is a GPU: the twin of `train draft --recorded`.

    train_torch.py --target target.gguf --recorded recorded --validation unseen --vocabulary vocabulary.safetensors \\
        --start-layer 29 --mask-token '<reponame>' --block-size 6 --rank 128 --steps 20000 --learning-rate 1e-3 \\
        --seconds 300 --out dspark

Needs torch, numpy and safetensors, and for a GGUF target gguf. Flags that `train draft` has as well mean the same. A
step sees the same texts and anchors, and what is written is the same folder but for rounding. Other kinds of drafters
and other heads are left to `train draft`.

--seconds ends the training in time, and the learning rate falls until then. Ctrl-C and SIGTERM end it after the step at
hand. Either way the weights are written. There is no state to go on from: --start-from begins anew with them.
"""
import argparse
import math
import os
import pathlib
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import torch

from torch_model import Drafter, LossSettings, losses
from torch_texts import BatchPlan, BlockShape, RecordedTexts, make_batch
from torch_weights import (drafter_numbers, frozen_tables, initialise, read_vocabulary, start_from_drafter,
                           start_from_layers, target_of, write_drafter)

LOG_SECONDS = 15


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add, path = parser.add_argument, pathlib.Path
    add("--target", type=path, required=True, help="folder of the target, with tokenizer.json, or a GGUF file")
    add("--recorded", type=path, required=True, nargs="+", action="extend",
        help="folders that `train texts` wrote, or one")
    add("--validation", type=path, help="another one, not trained on: its tau is told meanwhile")
    add("--validate-steps", type=int, default=500,
        help="so often it is told, and the model written as it is; 0: at the end (default: %(default)s)")
    add("--vocabulary", type=path, help="draft only these tokens, which `train vocabulary` chose")
    add("--start-layer", type=int, help="start from this layer of the target and those behind it")
    add("--start-from", type=path, help="start from an earlier drafter, a folder; it may have fewer layers")
    add("--mask-token", default="<|mask|>", help="a token that stands for those to be drafted (default: %(default)s)")
    add("--bf16", action="store_true",
        help="products in BF16, but for those that make logits; without it a GPU multiplies in TF32")
    add("--decay", type=float, default=4.0,
        help="position k counts exp(-k / decay); 0: all the same (default: %(default)s)")
    add("--kind", default="dspark", help="dspark alone")
    add("--head", default="vanilla", help="vanilla (Markov) alone")
    add("--rank", type=int, default=64, help="of the Markov head (default: %(default)s)")
    add("--no-confidence", action="store_true", help="without a confidence head")
    add("--block-size", type=int, default=7, help="tokens drafted at once (default: %(default)s)")
    add("--layers", type=int, default=1, help="layers of the drafter (default: %(default)s)")
    add("--intermediate", type=int, help="of its MLPs; default: the target's")
    add("--losses", choices=["ce", "tv"], default="tv",
        help="ce: cross entropy alone; tv: 0.1 ce + 0.9 total variation (default: %(default)s)")
    add("--anchors", type=float, default=0.125, help="blocks per token of a text (default: %(default)s)")
    add("--out", type=path, required=True, help="folder to write the drafter to")
    add("--steps", type=int, required=True, help="optimizer steps")
    add("--batch-tokens", type=int, default=8192, help="tokens of a step (default: %(default)s)")
    add("--learning-rate", type=float, default=3e-3, help="the highest (default: %(default)s)")
    add("--warm-up", type=int, default=100, help="steps until it is reached (default: %(default)s)")
    add("--weight-decay", type=float, default=0.1, help="of matrices (default: %(default)s)")
    add("--clip", type=float, default=1.0, help="largest norm of the gradients (default: %(default)s)")
    add("--seed", type=int, default=1, help="of first weights, order and anchors (default: %(default)s)")
    add("--threads", type=int, help="of a CPU")
    add("--device", help="cpu, cuda, cuda:1; default: cuda where there is one")
    add("--seconds", type=float, help="end after so long, loading and validation included")
    return parser


def check(chosen: argparse.Namespace) -> None:
    for name, expected in (("kind", "dspark"), ("head", "vanilla")):
        if (found := getattr(chosen, name)) != expected:
            raise SystemExit(f"--{name} is {found}, expected {expected}: `train draft` trains the others")
    for name in ("steps", "rank", "block_size", "layers", "batch_tokens"):
        if (found := getattr(chosen, name)) < 1:
            raise SystemExit(f"--{name.replace('_', '-')} is {found}, expected at least 1")
    if not 0 < chosen.anchors <= 1:
        raise SystemExit(f"--anchors is {chosen.anchors}, expected a number in (0, 1]")


def drafter_config(chosen: argparse.Namespace, target, feature_layers: list[int], drafted: int) -> dict:
    """As `train draft` writes it."""
    of_target = target.config
    if (mask := target.token(chosen.mask_token)) is None:
        raise SystemExit(f"{chosen.target}: has no token {chosen.mask_token}, expected one: --mask-token names it")
    config = {"architectures": ["Qwen3DSparkModel"], "model_type": "qwen3"}
    config |= {name: of_target[name] for name in ("vocab_size", "hidden_size")}
    config["intermediate_size"] = chosen.intermediate or of_target["intermediate_size"]
    config["num_hidden_layers"] = chosen.layers
    config |= {name: of_target[name] for name in ("num_attention_heads", "num_key_value_heads", "head_dim",
                                                  "max_position_embeddings")}
    config |= {
        "rope_parameters": {"rope_theta": of_target["rope_theta"], "rope_type": "default"},
        "layer_types": ["full_attention"] * chosen.layers,
        "rms_norm_eps": of_target["rms_norm_eps"],
        "hidden_act": "silu",
        "attention_bias": False,
        "use_sliding_window": False,
        "sliding_window": None,
        "tie_word_embeddings": False,
    }
    if "eos_token_id" in of_target:
        config["eos_token_id"] = of_target["eos_token_id"]
    config |= {"target_layer_ids": feature_layers, "num_target_layers": of_target["num_hidden_layers"]}
    if drafted:
        config["draft_vocab_size"] = drafted
    config |= {
        "block_size": chosen.block_size,
        "mask_token_id": mask,
        "num_anchors": 512,  # of training only, but the reference code insists on it
        "markov_rank": chosen.rank,
        "markov_head_type": "vanilla",
        "enable_confidence_head": not chosen.no_confidence,
    }
    if not chosen.no_confidence:
        config["confidence_head_with_markov"] = True
    return config


class Training:
    """Everything that a step needs. AdamW spares norms and biases weight decay."""

    def __init__(self, chosen: argparse.Namespace):
        self.chosen, self.start = chosen, time.monotonic()
        self.device = torch.device(chosen.device or ("cuda" if torch.cuda.is_available() else "cpu"))
        target = target_of(chosen.target)
        vocabulary = target.config["vocab_size"]
        self.recorded = RecordedTexts(chosen.recorded, vocabulary, self.device)
        self.unseen = RecordedTexts([chosen.validation], vocabulary, self.device) if chosen.validation else None
        self.drafted = read_vocabulary(chosen.vocabulary, vocabulary) if chosen.vocabulary else []
        self.config = drafter_config(chosen, target, self.recorded.feature_layers, len(self.drafted))
        self.check_texts()
        self.drafter = Drafter(self.config, *frozen_tables(target, self.drafted))
        initialise(self.drafter, chosen.seed)
        if chosen.start_layer is not None:
            start_from_layers(self.drafter, target, chosen.start_layer)
        if chosen.start_from:
            start_from_drafter(self.drafter, chosen.start_from, self.drafted)
        self.drafter.to(self.device)
        cross_entropy, total_variation = {"ce": (1.0, 0.0), "tv": (0.1, 0.9)}[chosen.losses]
        self.settings = LossSettings(cross_entropy, total_variation, decay=chosen.decay)
        to_draft = drafter_numbers(self.drafted, vocabulary)
        self.shape = BlockShape(chosen.block_size, chosen.anchors, chosen.seed, to_draft)
        self.plan = BatchPlan(self.recorded.sizes.tolist(), chosen.batch_tokens, chosen.seed)
        self.parameters = list(self.drafter.parameters())
        self.optimizer = torch.optim.AdamW(
            [{"params": [p for p in self.parameters if p.ndim > 1], "weight_decay": chosen.weight_decay},
             {"params": [p for p in self.parameters if p.ndim == 1], "weight_decay": 0.0}],
            lr=chosen.learning_rate, betas=(0.9, 0.95), eps=1e-8)

    def check_texts(self) -> None:
        width = len(self.config["target_layer_ids"]) * self.config["hidden_size"]
        for texts, folder in ((self.recorded, self.chosen.recorded[0]), (self.unseen, self.chosen.validation)):
            if texts is None:
                continue
            if texts.feature_layers != self.config["target_layer_ids"] or texts.width != width:
                raise SystemExit(f"{folder}: has {texts.width} features of layers {texts.feature_layers}, expected "
                                 f"{width} of layers {self.config['target_layer_ids']}, which the drafter reads")
            longest, positions = texts.sizes.max(), self.config["max_position_embeddings"]
            if longest > positions:
                raise SystemExit(f"{folder}: has a text of {longest} tokens, expected at most {positions}, the "
                                 "positions of the target")

    def batch_at(self, step: int):
        epoch, members = self.plan.at(step)
        visits = [epoch * len(self.recorded) + i for i in members]
        return make_batch(self.recorded, members, visits, self.shape, self.device)

    def losses(self, batch):
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.chosen.bf16):
            return losses(self.drafter, batch, self.settings)

    def gradients(self, batch) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        """The step's report and the norm of the gradients, which are in the parameters."""
        self.optimizer.zero_grad(set_to_none=True)
        loss, report = self.losses(batch)
        loss.backward()
        # In double: the squares of millions of floats lose 1e-4 of their sum.
        norms = [torch.linalg.vector_norm(p.grad, dtype=torch.float64) for p in self.parameters]
        return report, torch.linalg.vector_norm(torch.stack(norms))

    def learning_rate(self, step: int) -> float:
        chosen = self.chosen
        if step < chosen.warm_up:
            return chosen.learning_rate * (step + 1) / chosen.warm_up
        done = min(1.0, (step + 1 - chosen.warm_up) / (max(chosen.steps, chosen.warm_up + 1) - chosen.warm_up))
        if chosen.seconds:
            done = max(done, min(1.0, self.spent() / chosen.seconds))
        return chosen.learning_rate * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * done)))

    def step(self, step: int, batch) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        report, norm = self.gradients(batch)
        factor = (self.chosen.clip / norm).clamp(max=1.0)
        for p in self.parameters:
            p.grad.mul_(factor)
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate(step)
        self.optimizer.step()
        return report, norm

    def spent(self) -> float:
        return time.monotonic() - self.start

    @torch.no_grad()
    def validate(self) -> str:
        """Tau of every domain: the mean, over anchors that are the same in every call, of the tokens that a round is
        expected to emit."""
        words = []
        for domain in dict.fromkeys(self.unseen.domains):
            members = [i for i, of_text in enumerate(self.unseen.domains) if of_text == domain]
            tau, blocks = 0.0, 0
            sizes = self.unseen.sizes[members].tolist()
            for part in BatchPlan(sizes, max(*sizes, self.chosen.batch_tokens), 0).batches:
                texts = [members[i] for i in part]
                if batch := make_batch(self.unseen, texts, texts, self.shape, self.device):
                    tau += self.losses(batch)[1]["tau"].item()
                    blocks += batch.blocks
            words.append(f"{domain} {tau / max(blocks, 1):.3f} ({blocks})")
        return "  ".join(words)

    def visit(self, step: int) -> None:
        write_drafter(self.chosen.out, self.drafter, self.drafted)
        if self.unseen:
            print(f"step {step}, tau of unseen texts (anchors): {self.validate()}", flush=True)


def in_words(report: dict[str, torch.Tensor], blocks: int) -> str:
    numbers = {name: value.item() for name, value in report.items()}
    mean = {name: value / numbers["weight"] for name, value in numbers.items()}
    words = (f"loss {numbers['loss']:.4f}  ce {mean['cross_entropy']:.3f}  tv {0.5 * mean['distance']:.3f}  "
             f"tau {numbers['tau'] / blocks:.3f}")
    if "confidence" in mean:
        words += f"  confidence {mean['confidence']:.3f} (off by {mean['confidence_error']:.3f})"
    return words


def run(training: Training) -> str:
    """What ended it: nothing, --seconds, or the name of a signal."""
    chosen, stop = training.chosen, []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: stop.append(signal.Signals(number).name))
    begun, logged, anchors, written, longest_visit = training.spent(), 0.0, 0, 0, 2.0
    # The next batch is made while this one is computed with.
    with ThreadPoolExecutor(1) as ahead:
        coming = ahead.submit(training.batch_at, 0)
        for step in range(chosen.steps):
            batch, done = coming.result(), step + 1
            coming = ahead.submit(training.batch_at, done)
            if batch is None:
                continue
            report, norm = training.step(step, batch)
            anchors += batch.blocks
            if chosen.seconds and training.spent() + longest_visit > chosen.seconds:
                stop.append("--seconds")
            if stop or done in (1, chosen.steps) or training.spent() - logged > LOG_SECONDS:
                if not math.isfinite(size := norm.item()):
                    raise SystemExit(f"the norm of the gradients of step {step} is {size}, expected a finite number; "
                                     "lower the learning rate")
                logged = training.spent()
                left = (logged - begun) / done * (chosen.steps - done)
                left = min(left, chosen.seconds - logged) if chosen.seconds else left
                speed = anchors / (logged - begun)
                print(f"step {done}/{chosen.steps}  {in_words(report, batch.blocks)}  norm {size:.2f}  rate "
                      f"{training.learning_rate(step):.2g}  {speed:.0f} anchors/s  {left:.0f} s left", flush=True)
            if stop or (chosen.validate_steps and done % chosen.validate_steps == 0):
                before, written = training.spent(), done
                training.visit(done)
                longest_visit = max(longest_visit, 1.5 * (training.spent() - before))
            if stop:
                print(f"ended after step {done} by {stop[0]}: {chosen.out} has the weights")
                return stop[0]
    if written < chosen.steps:
        training.visit(chosen.steps)
    return ""


def main() -> None:
    chosen = options().parse_args()
    check(chosen)
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
    # Equal sums on a GPU take both.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    training = Training(chosen)
    if training.device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    texts, parameters = training.recorded, sum(p.numel() for p in training.parameters)
    print(f"{len(texts)} texts, {len(texts.tokens)} tokens, on {training.device}: {parameters} parameters, drafts "
          f"{len(training.drafter.lm_head)} of {training.config['vocab_size']} tokens", flush=True)
    sys.exit(130 if run(training).startswith("SIG") else 0)


if __name__ == "__main__":
    main()

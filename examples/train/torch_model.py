# SPDX-License-Identifier: MIT
"""A DSpark drafter with a Markov head and its losses, for train_torch.py: the twin of draft_model, layer, attention,
draft_head and recorded_loss. Gradients are torch's own.

Parameters have the names of the released files.
"""
import dataclasses

import torch
import torch.nn.functional as F
from torch import nn

from torch_texts import Batch, NO_TOKEN

LOSS_EPSILON = 1e-6


class RmsNorm(nn.Module):
    def __init__(self, size: int, epsilon: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.epsilon = epsilon

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.to(self.weight.dtype)
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.epsilon) * self.weight


def linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


def angles_of(theta: float, head_dim: int, positions: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines [positions, head_dim / 2]. In double until they are rounded: a float product of position and
    frequency is off by 1e-3 at position 40,000."""
    frequencies = theta ** (-2.0 * torch.arange(head_dim // 2, dtype=torch.float64) / head_dim)
    angles = torch.arange(positions, dtype=torch.float64)[:, None] * frequencies
    return angles.cos().float(), angles.sin().float()


def rotated(x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat([a * cosines - b * sines, b * cosines + a * sines], -1)


@dataclasses.dataclass
class Places:
    """Where rows stand and what they see, the same in all layers."""

    context_angles: tuple[torch.Tensor, torch.Tensor]  # cosines and sines [context, 1, head_dim / 2]
    block_angles: tuple[torch.Tensor, torch.Tensor]  # [texts, blocks, gamma, 1, head_dim / 2]
    sees: torch.Tensor  # [texts, blocks, context]


class Attention(nn.Module):
    """Of block rows, over the context before their anchor and over their own block whole."""

    def __init__(self, config: dict):
        super().__init__()
        hidden, self.size = config["hidden_size"], config["head_dim"]
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.q_proj = linear(hidden, self.heads * self.size)
        self.k_proj = linear(hidden, self.kv_heads * self.size)
        self.v_proj = linear(hidden, self.kv_heads * self.size)
        self.o_proj = linear(self.heads * self.size, hidden)
        self.q_norm = RmsNorm(self.size, config["rms_norm_eps"])
        self.k_norm = RmsNorm(self.size, config["rms_norm_eps"])

    def split(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (-1, self.size))

    def forward(self, y: torch.Tensor, context: torch.Tensor, places: Places) -> torch.Tensor:
        # s text, b block, i and j rows of a block, l context, k key-value head, g query head of its group, d numbers
        q = rotated(self.q_norm(self.split(self.q_proj(y))), *places.block_angles).unflatten(3, (self.kv_heads, -1))
        own_k = rotated(self.k_norm(self.split(self.k_proj(y))), *places.block_angles)
        own_v = self.split(self.v_proj(y))
        context_k = rotated(self.k_norm(self.split(self.k_proj(context))), *places.context_angles)
        context_v = self.split(self.v_proj(context))
        left = torch.einsum("sbikgd,slkd->skgbil", q, context_k)
        left = left.masked_fill(~places.sees[:, None, None, :, None, :], -torch.inf)
        right = torch.einsum("sbikgd,sbjkd->skgbij", q, own_k)
        p = torch.softmax(torch.cat([left, right], -1) * self.size**-0.5, -1)
        left, right = p.to(own_v.dtype).split([left.shape[-1], right.shape[-1]], -1)
        out = torch.einsum("skgbil,slkd->sbikgd", left, context_v) + torch.einsum("skgbij,sbjkd->sbikgd", right, own_v)
        return self.o_proj(out.flatten(3))


class Mlp(nn.Module):
    def __init__(self, config: dict):
        super().__init__()
        hidden, inner = config["hidden_size"], config["intermediate_size"]
        self.gate_proj, self.up_proj = linear(hidden, inner), linear(hidden, inner)
        self.down_proj = linear(inner, hidden)

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu(self.gate_proj(z)) * self.up_proj(z))


class Layer(nn.Module):
    def __init__(self, config: dict, attention=Attention):
        super().__init__()
        self.self_attn, self.mlp = attention(config), Mlp(config)
        self.input_layernorm = RmsNorm(config["hidden_size"], config["rms_norm_eps"])
        self.post_attention_layernorm = RmsNorm(config["hidden_size"], config["rms_norm_eps"])

    def forward(self, x: torch.Tensor, *attended) -> torch.Tensor:
        """attended: what the attention takes beside the rows."""
        x = x + self.self_attn(self.input_layernorm(x), *attended)
        return x + self.mlp(self.post_attention_layernorm(x))


class MarkovHead(nn.Module):
    def __init__(self, config: dict, drafted: int):
        super().__init__()
        self.markov_w1 = nn.Embedding(config["vocab_size"], config["markov_rank"])
        self.markov_w2 = linear(config["markov_rank"], drafted)


class ConfidenceHead(nn.Module):
    def __init__(self, config: dict):
        super().__init__()
        self.proj = nn.Linear(config["hidden_size"] + config["markov_rank"], 1)


class Drafter(nn.Module):
    """config is what config.json says. The tables are the target's and stay as they are: embeddings
    [vocabulary, hidden], lm_head [drafted tokens, hidden]."""

    def __init__(self, config: dict, embeddings: torch.Tensor, lm_head: torch.Tensor):
        super().__init__()
        self.config = config
        hidden, epsilon = config["hidden_size"], config["rms_norm_eps"]
        self.markov_head = MarkovHead(config, len(lm_head))
        self.confidence_head = ConfidenceHead(config) if config["enable_confidence_head"] else None
        self.fc = linear(len(config["target_layer_ids"]) * hidden, hidden)
        self.hidden_norm = RmsNorm(hidden, epsilon)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config["num_hidden_layers"]))
        self.norm = RmsNorm(hidden, epsilon)
        self.register_buffer("embeddings", embeddings, persistent=False)
        self.register_buffer("lm_head", lm_head, persistent=False)
        cosines, sines = angles_of(config["rope_parameters"]["rope_theta"], config["head_dim"],
                                   config["max_position_embeddings"] + config["block_size"])
        self.register_buffer("cosines", cosines, persistent=False)
        self.register_buffer("sines", sines, persistent=False)

    def forward(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """h and the Markov head's embedding of every block row: [texts, blocks, gamma, hidden] and [..., rank]."""
        length, gamma = batch.features.shape[1], self.config["block_size"]
        context = self.hidden_norm(self.fc(batch.features.to(self.fc.weight.dtype)))
        of_blocks = batch.anchors[..., None] + torch.arange(gamma, device=batch.anchors.device)
        places = Places(
            context_angles=(self.cosines[:length, None], self.sines[:length, None]),
            block_angles=(self.cosines[of_blocks][..., None, :], self.sines[of_blocks][..., None, :]),
            sees=torch.arange(length, device=batch.anchors.device) < batch.anchors[..., None])
        inputs = torch.full_like(batch.previous, self.config["mask_token_id"])
        inputs[..., 0] = batch.previous[..., 0]
        x = F.embedding(inputs, self.embeddings)
        for layer in self.layers:
            x = layer(x, context, places)
        return self.norm(x), self.markov_head.markov_w1(batch.previous)


@dataclasses.dataclass(frozen=True)
class LossSettings:
    cross_entropy: float = 0.1
    total_variation: float = 0.9
    confidence: float = 1.0
    decay: float = 4.0  # position k counts exp(-k / decay); 0: all the same

    def weights(self, position: torch.Tensor) -> torch.Tensor:
        k = position.to(torch.float64)
        return torch.exp(-k / self.decay) if self.decay > 0 else torch.ones_like(k)


def losses(drafter: Drafter, batch: Batch, settings: LossSettings) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The loss of a step; for its report the loss, weighted sums and their `weight`, and `tau` as a sum over blocks.

    S are the known tokens of a law, p their probabilities, q those of the draft. No draft wins what p lacks of 1:
        L1 = sum over S |q - p| + (1 - sum over S q) + (1 - sum over S p)      c* = 1 - L1 / 2
    """
    hidden, embeddings = (rows.flatten(0, 2)[batch.supervised] for rows in drafter(batch))
    # Not in BF16: a logit of 20 would be off by 1/16.
    with torch.autocast(hidden.device.type, enabled=False):
        logits = F.linear(hidden, drafter.lm_head) + drafter.markov_head.markov_w2(embeddings)
        confidence = None
        if drafter.confidence_head is not None:
            confidence = drafter.confidence_head.proj(torch.cat([hidden, embeddings], -1)).squeeze(-1)
    labelled = batch.labels != NO_TOKEN
    wanted = torch.cat([batch.labels.clamp(min=0)[:, None], batch.law_tokens], 1)
    log_q = logits.gather(1, wanted) - logits.logsumexp(1, keepdim=True)
    cross_entropy = torch.where(labelled, -log_q[:, 0], 0)
    p = batch.law_shares.to(logits.dtype)
    q = torch.where(p > 0, log_q[:, 1:].exp(), 0)
    distance = (q - p).abs().sum(1) + (1 - q.sum(1)) + (1 - p.sum(1))
    acceptance = (1 - 0.5 * distance.detach()).clamp(0, 1)
    weights = settings.weights(batch.position).to(logits.dtype)
    loss = settings.cross_entropy * cross_entropy + settings.total_variation * distance
    sums = {"cross_entropy": cross_entropy, "distance": distance, "weight": torch.ones_like(weights)}
    if confidence is not None:
        sums["confidence"] = F.binary_cross_entropy_with_logits(confidence, acceptance, reduction="none")
        sums["confidence_error"] = (confidence.sigmoid() - acceptance).abs()
        loss = loss + settings.confidence * sums["confidence"]
    loss = (weights * loss).sum() / (weights.sum() + LOSS_EPSILON)
    report = {name: (weights * values.detach()).sum() for name, values in sums.items()}
    survival = torch.zeros(batch.previous.numel(), dtype=acceptance.dtype, device=acceptance.device)
    survival[batch.supervised] = acceptance
    report["tau"] = survival.view(-1, batch.previous.shape[-1]).cumprod(1).sum() + batch.blocks
    return loss, report | {"loss": loss.detach()}

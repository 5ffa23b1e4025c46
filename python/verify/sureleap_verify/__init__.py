# SPDX-License-Identifier: MIT
"""Verification of speculative decoding by sureleap, over NumPy and DLPack arrays in memory of the host.

    result = verify(target_logits, drafts, q=draft_logits, seeds=seeds, positions=positions)
    for r, count in enumerate(result.counts):
        texts[r] += list(result.tokens[r, :count])
"""
import dataclasses
import importlib.metadata
import typing

import numpy as np

from . import _core

__all__ = ["Verification", "verify"]
__version__ = importlib.metadata.version("sureleap-verify")


@dataclasses.dataclass(frozen=True)
class Verification:
    """What became of R requests with at most gamma drafts each."""
    tokens: np.ndarray  # [R, gamma + 1] int32: accepted drafts, then the target's own token; -1 behind them
    counts: np.ndarray  # [R] how many there are; 0 where the status says that nothing could be decided
    accepted: np.ndarray  # [R] how many of them are drafts
    path: typing.Optional[np.ndarray]  # [R, gamma] of trees: which drafts, numbered from 1; -1 behind them
    status: typing.List[str]  # "ok", or what was wrong with a request's rows or ended its drafts before their time
    log_probabilities: typing.Optional[np.ndarray]  # [R, gamma + 1] log p of the tokens; NaN behind them


def _fail(name, index, value, expected):
    at = f"[{', '.join(map(str, index))}]" if index else ""
    raise ValueError(f"verify: {name}{at} is {value}, expected {expected}")


def _numbers(name, values, shape, dtype, expected, good):
    """The values as an array of this shape and type. good(a): of each, whether it is what is expected."""
    a = np.asarray(values)
    if np.issubdtype(dtype, np.integer):
        if a.dtype.kind not in "iu" and isinstance(values, (list, tuple)):  # no type has both -1 and 2^64 - 1
            a = np.array(values, object)
        right = a.dtype.kind in "iu" or (a.dtype.kind == "O" and all(isinstance(x, (int, np.integer)) for x in a.flat))
        kind = "integers"
    else:
        right, kind = a.dtype.kind in "iuf", "numbers"
    if not right and a.size > 0:
        raise ValueError(f"verify: {name} holds {type(a.flat[0]).__name__}, expected {kind}")
    if a.shape != shape:
        raise ValueError(f"verify: {name} has shape {list(a.shape)}, expected {list(shape)}")
    bad = np.argwhere(~good(a).astype(bool)) if a.size > 0 else ()
    if len(bad) > 0:
        _fail(name, bad[0].tolist(), a[tuple(bad[0])], expected)
    return np.ascontiguousarray(a, dtype)


def verify(target_logits, drafts, *, q=None, q_values="logits", rule="block_verification", temperature=1.0, top_k=0, top_p=1.0,
           min_p=0.0, seeds, positions, lengths=None, bitmask=None, parents=None, log_probabilities=False):
    """Which drafts are kept, and which token follows them. The emitted tokens have the target's law, whatever was drafted.

    Nothing here can check two conditions of that. Drafts were drawn from the q that comes with them. And whether a draft is
    verified, or a node of a tree is there, was decided before its token was known. Rules that match need neither; without q the
    second is met by any chain or tree.

    target_logits      float32, float16 or bfloat16 (or its bits as uint16), with any strides between rows, read where they are:
                       [rows, V], of each request a row for its anchor and one for each draft; or padded, [R, gamma + 1, V]. Row n
                       is behind the n-th draft
    drafts             [R, gamma] int32, -1 behind the last one of a request
    q                  [R, gamma, V] float32: what each draft was drawn from, of siblings the eldest's row. None: drafts were found
                       or chosen, not drawn, or the rule matches
    q_values           "logits", of which the temperature makes q, or "probabilities", which are q
    rule               "token_rejection", "block_verification", "target_match", "greedy_match", "keyed_coupling", and for trees
                       "recursive_rejection", "traversal_verification" or one that matches
    temperature, top_k, top_p, min_p    of the target's law: a number, or one for each request. top_k below 1 keeps all
    seeds, positions   [R] name the random draws: each request's own seed, and the position of its anchor in its text
    lengths            [R] how many drafts of each are verified; None: all
    bitmask            int32 words as xgrammar's, a row of (V + 31) // 32 for each row of target_logits. It masks p alone: q is
                       what drafts were drawn from, so logits that were masked before come with -inf
    parents            [R, gamma] of trees: 0 for the anchor, n for the n-th draft, which stands before its children
    log_probabilities  report log p of each token

    Raises ValueError where an argument is wrong. What is wrong with the numbers in a row is its request's status.
    """
    if isinstance(target_logits, np.ndarray) and target_logits.dtype.name == "bfloat16":
        target_logits = target_logits.view(np.uint16)  # of ml_dtypes, which neither the buffer protocol nor DLPack knows
    drafts = np.asarray(drafts)
    if drafts.ndim != 2:
        raise ValueError(f"verify: drafts has shape {list(drafts.shape)}, expected [R, gamma]")
    requests, gamma = drafts.shape
    least = np.iinfo(np.int32)
    drafts = _numbers("drafts", drafts, drafts.shape, np.int32, "a token, or -1 behind the last one",
                      lambda a: (a >= -1) & (a <= least.max))
    drafted = np.where((drafts < 0).any(axis=1), (drafts < 0).argmax(axis=1), gamma) if gamma else np.zeros(requests, int)
    behind = np.argwhere((np.arange(gamma) >= drafted[:, None]) & (drafts >= 0))
    if len(behind) > 0:
        _fail("drafts", behind[0].tolist(), drafts[tuple(behind[0])], "-1 behind a -1")
    lengths = drafted if lengths is None else lengths
    lengths = _numbers("lengths", lengths, (requests,), np.int64, "0 .. the request's drafts",
                       lambda a: (a >= 0) & (a <= drafted))
    if q_values not in ("logits", "probabilities"):
        _fail("q_values", (), q_values, "logits or probabilities")
    if parents is not None:
        here = np.arange(gamma) < lengths[:, None]
        parents = _numbers("parents", parents, (requests, gamma), np.int32, "0, or the number of a draft before",
                           lambda a: ~here | ((a >= 0) & (a <= np.arange(gamma))))
        for r in range(requests):
            seen = set()
            for n in range(lengths[r]):
                if (child := (parents[r, n], drafts[r, n])) in seen:
                    _fail("drafts", (r, n), drafts[r, n], "another token than an elder child of the same parent")
                seen.add(child)

    def of_each(name, values, dtype, expected, good):
        a = np.asarray(values)
        return _numbers(name, np.broadcast_to(a, (requests,)) if a.ndim == 0 else a, (requests,), dtype, expected, good)

    anything = lambda a: np.ones(a.shape, bool)
    natural = "0 .. 2^64 - 1", lambda a: (a >= 0) & (a <= 2**64 - 1)
    tokens = np.full((requests, gamma + 1), -1, np.int32)
    counts, accepted = np.zeros(requests, np.int64), np.zeros(requests, np.int64)
    path = None if parents is None else np.full((requests, gamma), -1, np.int32)
    logs = np.full((requests, gamma + 1), np.nan) if log_probabilities else None
    status = _core.verify(
        target_logits, q, q_values == "probabilities", bitmask, rule, drafts, parents, lengths,
        of_each("temperature", temperature, np.float64, "a number", anything),
        of_each("top_k", top_k, np.int32, "an integer of 32 bits", lambda a: (a >= least.min) & (a <= least.max)),
        of_each("top_p", top_p, np.float64, "a number", anything), of_each("min_p", min_p, np.float64, "a number", anything),
        _numbers("seeds", seeds, (requests,), np.uint64, *natural),
        _numbers("positions", positions, (requests,), np.uint64, *natural), tokens, counts, accepted, path, logs)
    return Verification(tokens, counts, accepted, path, status, logs)

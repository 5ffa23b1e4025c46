# SPDX-License-Identifier: MIT
"""Acceptance rules in NumPy, as the papers write them: what the cases of verify are compared with.

A rule asks `draw` for its decisions. `Paths` walks every outcome, so the law of a rule is known exactly. `Philox` answers as the
library does, so the rule decides about one request what the library decides.
"""
import math

import numpy as np

PURPOSES = {"accept": 2, "residual": 3, "bonus": 4, "noise": 5, "excess": 6}


class Paths:
    """Walks every sequence of outcomes; weight is the probability of the present one (testing/enumerator.hpp)."""

    def each(self, run):
        self._path = []
        while True:
            self._depth, self.weight = 0, 1.0
            run()
            while self._path and not self._advance():
                self._path.pop()
            if not self._path:
                return

    def bernoulli(self, use, index, probability):
        return self._choose([probability, 1.0 - probability]) == 0

    def categorical(self, use, index, weights):
        return self._choose(list(np.asarray(weights) / np.sum(weights)))

    def _choose(self, probabilities):
        if self._depth == len(self._path):
            self._path.append([probabilities, next(i for i, w in enumerate(probabilities) if w > 0.0)])
        outcomes, taken = self._path[self._depth]
        self._depth += 1
        self.weight *= outcomes[taken]
        return taken

    def _advance(self):
        outcomes, taken = self._path[-1]
        further = [i for i in range(taken + 1, len(outcomes)) if outcomes[i] > 0.0]
        if further:
            self._path[-1][1] = further[0]
        return bool(further)


class Philox:
    """The draws of one request. margin: how close a decision has come to another one, in units of its uniform number."""

    def __init__(self, seed, position):
        self.seed, self.position, self.margin = seed, position, 1.0

    def words(self, use, index, position, lane=0):
        c = [lane, index << 8 | PURPOSES[use], position & 0xFFFFFFFF, position >> 32]
        k0, k1 = self.seed & 0xFFFFFFFF, self.seed >> 32
        for _ in range(10):
            a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
            c = [b >> 32 ^ c[1] ^ k0, b & 0xFFFFFFFF, a >> 32 ^ c[3] ^ k1, a & 0xFFFFFFFF]
            k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
        return c

    def uniform(self, use, index):
        noise = use == "noise"  # by the absolute position of the token
        high, low = self.words(use, 0 if noise else index, self.position + 1 + index if noise else self.position)[:2]
        return (high << 32 | low) / 2**64

    def bernoulli(self, use, index, probability):
        u = self.uniform(use, index)
        self.margin = min(self.margin, abs(u - probability))
        return u < probability

    def categorical(self, use, index, weights):
        u, ends = self.uniform(use, index), np.cumsum(weights) / np.sum(weights)
        if ends[-1] > 0:
            self.margin = min(self.margin, np.abs(u - ends[:-1]).min())
        return int(np.searchsorted(ends, u, side="right"))

    def race(self, index, weights):
        """argmin of e_v / w_v, over exponentials as sampling/gumbel_max.hpp makes them; at most 128 tokens."""
        def exponential(high, low):
            return -math.log1p(-(((high << 32 | low) >> 12) + 0.5) / 2**52)

        position = self.position + 1 + index
        high, low = self.words("noise", 0, position)[:2]
        smallest = exponential(high, low) / 128
        times = []
        for v, weight in enumerate(weights):
            half = self.words("excess", 0, position, v // 2)[2 * (v % 2):][:2]
            own = smallest if v == low % 128 else smallest + exponential(*half)
            times.append(own / weight if weight > 0 else math.inf)
        best, second = sorted(times)[:2]
        self.margin = min(self.margin, (second - best) / second)
        return times.index(best)


# Rules. p(n) and q(n) are the laws behind node n: after n tokens of a chain, or behind the n-th draft of a tree. Without q drafts
# were found: each has probability 1. A rule returns the accepted nodes and the token behind them.


def one_hot(p, x):
    return np.eye(len(p))[x]


def law_of_drafts(p, q, tokens):
    """q of a chain behind node n."""
    return q if q is not None else lambda n: one_hot(p(n), tokens[n])


def token_rejection(p, q, tokens, draw):
    q = law_of_drafts(p, q, tokens)
    for k, x in enumerate(tokens):
        if not draw.bernoulli("accept", k, min(1.0, p(k)[x] / q(k)[x])):
            return list(range(1, k + 1)), draw.categorical("residual", k, np.maximum(p(k) - q(k), 0))
    return list(range(1, len(tokens) + 1)), draw.categorical("bonus", len(tokens), p(len(tokens)))


def block_verification(p, q, tokens, draw):
    q = law_of_drafts(p, q, tokens)
    survives = [1.0]
    for k, x in enumerate(tokens):
        survives.append(min(1.0, survives[-1] * p(k)[x] / q(k)[x]))
    for i in range(len(tokens), 0, -1):
        if i == len(tokens):
            if draw.bernoulli("accept", i - 1, survives[i]):
                return list(range(1, i + 1)), draw.categorical("bonus", i, p(i))
            continue
        left = np.maximum(survives[i] * p(i) - q(i), 0)
        if survives[i] == 1.0 or draw.bernoulli("accept", i - 1, left.sum() / (left.sum() + 1 - survives[i])):
            return list(range(1, i + 1)), draw.categorical("residual", i, left)
    return [], draw.categorical("residual", 0, np.maximum(p(0) - q(0), 0))


def matching(choose):
    """target_match, greedy_match, keyed_coupling: the target's own token first."""
    def rule(p, q, tokens, draw, parents=None):
        parents = parents if parents is not None else list(range(len(tokens)))
        path, n = [], 0
        while True:
            y = choose(draw, len(path), p(n))
            child = [i + 1 for i, x in enumerate(tokens) if parents[i] == n and x == y]
            if not child:
                return path, y
            n = child[0]
            path.append(n)
    return rule


target_match = matching(lambda draw, depth, p: draw.categorical("noise", depth, p))
greedy_match = matching(lambda draw, depth, p: int(np.argmax(p)))
keyed_coupling = matching(lambda draw, depth, p: draw.race(depth, p))


def without(q, x):
    left = q.copy()
    left[x] = 0.0
    return left / left.sum() if left.sum() > 0 else left


def recursive_rejection(p, q, tokens, draw, parents):
    path, n = [], 0
    while True:
        children = [i + 1 for i, parent in enumerate(parents) if parent == n]
        if not children:
            return path, draw.categorical("bonus", n, p(n))
        p_left, kept = p(n), None
        q_left = q(n) if q is not None else None
        for c in children:
            x = tokens[c - 1]
            q_left = q_left if q is not None else one_hot(p_left, x)
            if draw.bernoulli("accept", c, min(1.0, p_left[x] / q_left[x])):
                kept = c
                break
            p_left = np.maximum(p_left - q_left, 0)
            p_left, q_left = p_left / p_left.sum(), without(q_left, x)
        if kept is None:
            return path, draw.categorical("residual", n, p_left)
        n = kept
        path.append(n)


def traversal_verification(p, q, tokens, draw, parents):
    def judge(n, survives, path):
        children = [i + 1 for i, parent in enumerate(parents) if parent == n]
        p_left, rejected = p(n), False
        q_left = q(n) if children and q is not None else None
        for c in children:
            x = tokens[c - 1]
            q_left = q_left if q is not None else one_hot(p_left, x)
            below = min(1.0, survives * p_left[x] / q_left[x])
            if below > 0.0 and (ended := judge(c, below, path + [c])):
                return ended
            left = np.maximum(survives * p_left - q_left, 0)
            if left.sum() > 0.0:
                p_left, survives = left / left.sum(), left.sum() / (left.sum() + 1.0 - survives)
            else:
                survives = 0.0
            q_left, rejected = without(q_left, x), True
        if n > 0 and not draw.bernoulli("accept", n, survives):  # the anchor's is 1, but for rounding
            return None
        return path, draw.categorical("residual" if rejected else "bonus", n, p_left)

    return judge(0, 1.0, [])

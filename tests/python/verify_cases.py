# SPDX-License-Identifier: MIT
"""The cases of python.verify, run by verify_test.py in an environment that has sureleap_verify and NumPy.

Laws are exact. A rule in NumPy has the target's law by enumeration of all its draws, to 1e-12; and verify decides as that rule
does, for thousands of requests with given seeds. Cases of decodes are after what tests of vLLM's and FlashInfer's rejection
sampling check.
"""
import ctypes
import itertools
import mmap
import pathlib
import resource
import unittest

import ml_dtypes
import numpy as np

import sureleap_verify
import verify_reference as reference
from sureleap_verify import verify

V = 3
PATHWISE = ("target_match", "greedy_match", "keyed_coupling")


def softmax(logits, temperature=1.0):
    e = np.exp((np.asarray(logits, np.float64) - np.max(logits)) / temperature)
    return e / e.sum()


class Model:
    """A logits row for each prefix. Some tokens have probability 0."""

    def __init__(self, seed, spread, excluded=()):
        self.random, self.spread, self.rows, self.excluded = np.random.default_rng(seed), spread, {}, excluded

    def logits(self, prefix):
        if prefix not in self.rows:
            row = self.random.normal(0, self.spread, V).astype(np.float32)
            if prefix in self.excluded:
                row[1] = -np.inf
            self.rows[prefix] = row
        return self.rows[prefix]

    def law(self, prefix):
        return softmax(self.logits(prefix))


def path_to(n, parents, tokens):
    return path_to(parents[n - 1], parents, tokens) + (tokens[n - 1],) if n else ()


def drawn(q, parents, draw):
    """Tokens of a chain or tree: q behind the parent, without what elder children have."""
    tokens = []
    for i, n in enumerate(parents):
        left = q.law(path_to(n, parents, tokens))
        for elder in (tokens[j] for j in range(i) if parents[j] == n):
            left = reference.without(left, elder)
        tokens.append(draw(i, left))
    return tokens


CHAIN, TREE, BUSH = [0, 1], [0, 0, 1, 1, 2], [0, 0, 1, 2, 3]
CHAIN_RULES = {"token_rejection": reference.token_rejection, "block_verification": reference.block_verification}
TREE_RULES = {"recursive_rejection": reference.recursive_rejection, "traversal_verification": reference.traversal_verification}
MATCHING = {name: getattr(reference, name) for name in PATHWISE}


class Law(unittest.TestCase):
    def setUp(self):
        self.p, self.q = Model(1, 1.2, excluded=[(2,)]), Model(2, 1.0, excluded=[(0,)])

    def law_of(self, rule, parents, depth, q):
        """Of the first `depth` tokens: the emitted ones, and the target's own behind them."""
        law, paths = {}, reference.Paths()

        def run():
            tokens = drawn(self.q, parents, lambda i, left: paths.categorical("draft", i, left))
            laws = [lambda n, m=m: m.law(path_to(n, parents, tokens)) for m in (self.p, self.q)]
            path, last = rule(laws[0], laws[1] if q else None, tokens, paths)
            text = tuple(tokens[n - 1] for n in path) + (last,)
            while len(text) < depth:
                text += (paths.categorical("own", 0, self.p.law(text)),)
            law[text] = law.get(text, 0.0) + paths.weight

        paths.each(run)
        return law

    def expect_target_law(self, rule, parents, q):
        depth = max(len(path_to(n + 1, parents, [0] * len(parents))) for n in range(len(parents))) + 1
        law = self.law_of(rule, parents, depth, q)
        for text in itertools.product(range(V), repeat=depth):
            expected = np.prod([self.p.law(text[:k])[text[k]] for k in range(depth)])
            self.assertAlmostEqual(law.get(text, 0.0), expected, delta=1e-12, msg=str(text))

    def decide_alike(self, name, rule, parents, q, requests=1500, temperature=1.0):
        """verify decides as `rule` does, about drafts of q and each with a seed of its own."""
        random = np.random.default_rng(7)
        is_tree = parents != list(range(len(parents)))
        drafts = np.array([drawn(self.q, parents, lambda i, left: random.choice(V, p=left)) for _ in range(requests)])
        gamma = len(parents)
        eldest = [parents.index(n) if n in parents else None for n in parents]
        p_rows = np.array([[self.p.logits(path_to(n, parents, d)) for n in range(gamma + 1)] for d in drafts.tolist()])
        q_rows = np.full((requests, gamma, V), np.nan, np.float32)  # of younger children: nobody reads them
        for r, d in enumerate(drafts.tolist()):
            for i in {e for e in eldest if e is not None}:
                q_rows[r, i] = self.q.logits(path_to(parents[i], parents, d))
        seeds = random.integers(0, 2**63, requests).astype(np.uint64) * 2
        positions = random.integers(0, 2**40, requests)
        result = verify(p_rows, drafts, q=q_rows if q else None, rule=name, temperature=temperature, seeds=seeds,
                        positions=positions, parents=np.tile(parents, (requests, 1)) if is_tree else None)
        close = 0
        for r, d in enumerate(drafts.tolist()):
            draw = reference.Philox(int(seeds[r]), int(positions[r]))
            laws = [lambda n, m=m: m.law(path_to(n, parents, d)) for m in (self.p, self.q)]
            more = {"parents": parents} if is_tree else {}
            path, last = rule(laws[0], laws[1] if q else None, d, draw, **more)
            if draw.margin < 1e-5:
                close += 1
                continue
            text = [d[n - 1] for n in path] + [last]
            self.assertEqual(result.tokens[r].tolist(), text + [-1] * (gamma + 1 - len(text)), f"request {r}: drafts {d}")
            self.assertEqual((result.counts[r], result.accepted[r], result.status[r]), (len(text), len(path), "ok"))
            if is_tree:
                self.assertEqual(result.path[r].tolist(), path + [-1] * (gamma - len(path)))
        self.assertLess(close, requests / 100)
        self.assertTrue(0 < result.accepted.sum() < gamma * requests)
        return result

    def test_chains_that_are_judged_by_q(self):
        for (name, rule), q in itertools.product(CHAIN_RULES.items(), (True, False)):
            with self.subTest(name, q=q):
                self.expect_target_law(rule, CHAIN, q)
                self.decide_alike(name, rule, CHAIN, q)

    def test_trees_that_are_judged_by_q(self):
        for (name, rule), tree, q in itertools.product(TREE_RULES.items(), (TREE, BUSH), (True, False)):
            with self.subTest(name, tree=tree, q=q):
                self.expect_target_law(lambda p, q, tokens, draw: rule(p, q, tokens, draw, tree), tree, q)
                self.decide_alike(name, rule, tree, q)

    def test_chains_and_trees_that_match(self):
        for (name, rule), shape, q in itertools.product(MATCHING.items(), (CHAIN, TREE), (False, True)):
            with self.subTest(name, shape=shape, q=q):
                self.decide_alike(name, rule, shape, q, requests=500, temperature=0 if name == "greedy_match" else 1)

    def test_a_match_does_not_depend_on_drafts(self):
        # One request, whatever its drafts are: where a token is at a position behind a text, it is the same one.
        for name in PATHWISE:
            seen = {}
            drafts = np.array(list(itertools.product(range(V), repeat=2)))
            rows = np.array([[self.p.logits(tuple(d[:n])) for n in range(3)] for d in drafts.tolist()])
            result = verify(rows, drafts, rule=name, temperature=0 if name == "greedy_match" else 1,
                            seeds=[42] * len(drafts), positions=[9] * len(drafts))
            for text, count in zip(result.tokens.tolist(), result.counts):
                for k in range(count):
                    self.assertEqual(seen.setdefault(tuple(text[:k]), text[k]), text[k], name)
            self.assertEqual(result.accepted.max(), 2, name)


# ---- rows ------------------------------------------------------------------------------------------------------------


class Exported:
    """An array that has DLPack alone, by its parts."""
    FLOAT, BFLOAT, CPU, CUDA = 2, 4, 1, 2

    class Tensor(ctypes.Structure):
        _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                    ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                    ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                    ("byte_offset", ctypes.c_uint64), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]

    def __init__(self, array, code, device=CPU):
        axes = ctypes.c_int64 * array.ndim
        self.array, self.shape, self.strides = array, axes(*array.shape), axes(*(s // array.itemsize for s in array.strides))
        self.tensor = self.Tensor(array.ctypes.data, device, 0, array.ndim, code, 8 * array.itemsize, 1, self.shape, self.strides, 0,
                                  None, None)

    def __dlpack_device__(self):
        return self.tensor.device, 0

    def __dlpack__(self, **_):
        capsule = ctypes.pythonapi.PyCapsule_New
        capsule.restype, capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return capsule(ctypes.addressof(self.tensor), b"dltensor", None)


def scene(requests=64, gamma=3, vocabulary=50, seed=3):
    random = np.random.default_rng(seed)
    logits = random.normal(0, 2, (requests, gamma + 1, vocabulary)).astype(np.float32)
    q = (logits[:, :gamma] + random.normal(0, 0.7, (requests, gamma, vocabulary))).astype(np.float32)
    drafts = np.argmax(q + random.gumbel(size=q.shape), axis=2).astype(np.int32)
    return logits, drafts, dict(q=q, seeds=random.integers(0, 2**62, requests), positions=random.integers(0, 1000, requests))


class Rows(unittest.TestCase):
    def same(self, a, b):
        for name in ("tokens", "counts", "accepted", "status"):
            self.assertEqual(list(map(str, getattr(a, name))), list(map(str, getattr(b, name))), name)

    def test_padded_packed_and_strided_rows_agree(self):
        logits, drafts, more = scene()
        lengths = np.arange(64) % 4
        expected = verify(logits, drafts, lengths=lengths, **more)
        packed = np.concatenate([logits[r, :n + 1] for r, n in enumerate(lengths)])
        wide = np.full((len(packed), 80), np.nan, np.float32)
        wide[:, 7:57] = packed
        by_position = np.ascontiguousarray(logits.transpose(1, 0, 2))
        cut = np.where(np.arange(3) < lengths[:, None], drafts, -1)
        for rows in (packed, wide[:, 7:57], by_position.transpose(1, 0, 2), np.repeat(logits, 2, axis=0)[::2]):
            self.same(verify(rows, drafts, lengths=lengths, **more), expected)
        self.same(verify(packed, cut, **more), expected)
        self.assertTrue((expected.accepted <= lengths).all() and expected.accepted.sum() > 20)

    def test_read_only_rows(self):
        logits, drafts, more = scene()
        expected = verify(logits, drafts, **more)
        logits.flags.writeable = more["q"].flags.writeable = False
        self.same(verify(logits, drafts, **more), expected)
        level = np.broadcast_to(np.float32(0), (64, 4, 50))  # one number stands for all... of a row it must not
        with self.assertRaisesRegex(ValueError, "target_logits has stride 0 along its last axis, expected 1"):
            verify(level, drafts, **more)
        one_row = np.broadcast_to(logits[0, 0], (64, 4, 50))
        self.same(verify(one_row, drafts, **more), verify(one_row.copy(), drafts, **more))

    def test_formats(self):
        logits, drafts, more = scene()
        bits = logits.view(np.uint32)
        halves = logits.astype(np.float16)
        bf16s = (bits >> 16).astype(np.uint16)
        for rows, same in ((Exported(logits, Exported.FLOAT), logits), (halves, halves.astype(np.float32)),
                           (Exported(halves, Exported.FLOAT), halves.astype(np.float32)),
                           (Exported(bf16s, Exported.BFLOAT), (bits >> 16 << 16).view(np.float32)),
                           (bf16s, (bits >> 16 << 16).view(np.float32)),
                           (bf16s.view(ml_dtypes.bfloat16), (bits >> 16 << 16).view(np.float32))):
            got, expected = (verify(a, drafts, log_probabilities=True, **more) for a in (rows, same))
            self.same(got, expected)
            np.testing.assert_allclose(got.log_probabilities, expected.log_probabilities, rtol=1e-5, equal_nan=True)

    def test_rows_are_not_copied(self):
        # 64 GiB of addresses, of which a page or two have memory of their own, and no room for a copy.
        requests, gamma, vocabulary = 1024, 4095, 4096
        memory = mmap.mmap(-1, requests * (gamma + 1) * vocabulary * 4,
                           flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000))
        logits = np.frombuffer(memory, np.float32).reshape(requests, gamma + 1, vocabulary)
        logits[7, 0, 5], logits[7, 1, 6], logits[1023, 0, 4095] = 100, 100, 100
        drafts = np.full((requests, gamma), -1, np.int32)
        drafts[7, 0] = 5
        limits = resource.getrlimit(resource.RLIMIT_AS)
        in_use = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (in_use + 2**29, limits[1]))
        try:
            for rows in (logits, Exported(logits, Exported.FLOAT)):
                result = verify(rows, drafts, rule="token_rejection", seeds=np.arange(requests), positions=np.zeros(requests, int))
                self.assertEqual((result.tokens[7, :3].tolist(), result.tokens[1023, 0]), ([5, 6, -1], 4095))
                self.assertGreater(len(set(result.tokens[:, 0].tolist())), 500)
            with self.assertRaises(MemoryError):
                logits.copy()
        finally:
            resource.setrlimit(resource.RLIMIT_AS, limits)

    def test_q_as_probabilities(self):
        logits, drafts, more = scene()
        q = np.exp(more["q"] - more["q"].max(axis=2, keepdims=True))  # up to a factor
        expected = verify(logits, drafts, **more)
        self.same(verify(logits, drafts, **{**more, "q": q, "q_values": "probabilities"}), expected)
        # No temperature changes them; of logits it makes another q.
        half = {**more, "temperature": 0.5}
        warm = verify(logits, drafts, **{**half, "q": q, "q_values": "probabilities"})
        self.same(warm, verify(logits, drafts, **{**half, "q": more["q"] * 0.5}))
        self.assertNotEqual(warm.tokens.tolist(), verify(logits, drafts, **half).tokens.tolist())

    def test_what_is_wrong_with_a_row_is_a_status(self):
        logits, drafts, more = scene(requests=4)
        logits[1, 0, 3] = np.nan
        more["q"][2, 1, 4] = np.inf
        more["q"][3, 0, drafts[3, 0]] = -np.inf  # nobody draws that
        result = verify(logits, drafts, log_probabilities=True, **more)
        self.assertEqual(result.status, ["ok", "invalid target logits, or a normaliser or block sums that are not theirs",
                                         "invalid draft logits", "invalid draft logits"])
        self.assertEqual((result.counts[1], result.tokens[1].tolist()), (0, [-1] * 4))
        self.assertTrue(result.accepted[2] <= 1 and result.counts[2] == result.accepted[2] + 1)
        self.assertEqual((result.accepted[3], result.counts[3]), (0, 1))
        self.assertEqual(np.isnan(result.log_probabilities).tolist(), (result.tokens < 0).tolist())


# ---- what may be emitted ---------------------------------------------------------------------------------------------


def nucleus(logits, temperature, top_k, top_p, min_p):
    """The law in the order that sampling/distribution.hpp names."""
    order = np.lexsort((np.arange(len(logits)), -logits))
    p = softmax(logits, temperature)[order]
    keep = np.ones(len(p), bool)
    if top_k > 0:
        keep[top_k:] = False
    p = np.where(keep, p, 0) / p[keep].sum()
    keep &= np.cumsum(p) - p < top_p
    p = np.where(keep, p, 0) / p[keep].sum()
    keep &= p >= min_p * p[0]
    law = np.zeros(len(p))
    law[order] = np.where(keep, p, 0) / p[keep].sum()
    return law


class Emitted(unittest.TestCase):
    def test_truncated_laws(self):
        logits, drafts, more = scene(requests=400)
        for how in (dict(top_k=3), dict(top_p=0.6), dict(min_p=0.3), dict(temperature=1.7, top_k=20, top_p=0.8, min_p=0.05)):
            for rule in ("token_rejection", "block_verification", "target_match", "keyed_coupling"):
                how = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, **how}
                result = verify(logits, drafts, rule=rule, log_probabilities=True, **how, **more)
                few = 0
                for r, k in zip(*np.nonzero(result.tokens >= 0)):
                    law = nucleus(logits[r, k], **how)
                    few += (law > 0).sum() < 25
                    self.assertGreater(law[result.tokens[r, k]], 0, f"{rule} {how}: token {k} of request {r}")
                    self.assertAlmostEqual(result.log_probabilities[r, k], np.log(law[result.tokens[r, k]]), delta=1e-5)
                self.assertGreater(few, 300)

    def test_a_bitmask_is_rows_without_those_tokens(self):
        logits, drafts, more = scene(requests=300)
        random = np.random.default_rng(5)
        allowed = random.random((300, 4, 50)) < 0.5
        allowed[:, :, 0] = True
        allowed[0, 0] = np.arange(50) == 17
        padded = np.zeros((300, 4, 64), bool)
        padded[:, :, :50] = allowed
        bits = np.packbits(padded, axis=2, bitorder="little").view(np.int32)
        self.assertEqual(bits.shape, (300, 4, 2))
        masked = np.where(allowed, logits, -np.inf).astype(np.float32)
        for rule in ("token_rejection", "block_verification", "target_match", "keyed_coupling", "recursive_rejection"):
            got = verify(logits, drafts, rule=rule, bitmask=bits, **more)
            expected = verify(masked, drafts, rule=rule, **more)
            self.assertEqual(got.tokens.tolist(), expected.tokens.tolist(), rule)
            self.assertEqual(got.tokens[0, 0], 17)
            for r, k in zip(*np.nonzero(got.tokens >= 0)):
                self.assertTrue(allowed[r, k, got.tokens[r, k]], f"{rule}: token {k} of request {r}")
            packed = verify(logits.reshape(-1, 50), drafts, rule=rule, bitmask=bits.reshape(-1, 2), **more)
            self.assertEqual(packed.tokens.tolist(), got.tokens.tolist(), rule)
        bits[5, 0] = 0
        self.assertIn("invalid target", verify(logits, drafts, bitmask=bits, **more).status[5])
        free = verify(logits, drafts, **more).tokens
        self.assertFalse(all(allowed[r, k, free[r, k]] for r, k in zip(*np.nonzero(free >= 0))))

    def test_a_bitmask_of_a_tree_is_by_its_nodes(self):
        # Both children of the anchor are allowed, and behind each its own token alone.
        logits = np.zeros((200, 4, 40), np.float32)
        drafts, parents = np.tile([3, 8, 30], (200, 1)), np.tile([0, 0, 2], (200, 1))
        allowed = np.zeros((200, 4, 64), bool)
        for node, tokens in enumerate(([3, 8], [20], [30, 31], [25])):
            allowed[:, node, tokens] = True
        bits = np.packbits(allowed, axis=2, bitorder="little").view(np.int32)
        seeds = np.arange(200)
        for rule in ("target_match", "keyed_coupling", "recursive_rejection", "traversal_verification"):
            result = verify(logits, drafts, rule=rule, bitmask=bits, parents=parents, seeds=seeds, positions=seeds)
            texts = set(map(tuple, result.tokens.tolist()))
            self.assertEqual(texts, {(3, 20, -1, -1), (8, 30, 25, -1), (8, 31, -1, -1)}, rule)
            self.assertEqual(set(map(tuple, result.path.tolist())), {(1, -1, -1), (2, 3, -1), (2, -1, -1)}, rule)


# ---- decodes, after tests of vLLM and FlashInfer ---------------------------------------------------------------------


def sure_of(tokens, vocabulary=30):
    """Rows of a target that says these tokens."""
    rows = np.full(np.shape(tokens) + (vocabulary,), -100, np.float32)
    np.put_along_axis(rows, np.asarray(tokens)[..., None], 100, axis=-1)
    return rows


class Decodes(unittest.TestCase):
    def texts(self, target, drafts, **more):
        result = verify(target, np.array(drafts, ndmin=2), **{"seeds": np.arange(len(drafts)), "positions": np.arange(len(drafts)),
                                                              **more})
        return [tokens[:count].tolist() for tokens, count in zip(result.tokens, result.counts)]

    def test_greedy(self):
        for rule, temperature in (("greedy_match", 0), ("token_rejection", 0), ("block_verification", 0), ("target_match", 1)):
            how = dict(rule=rule, temperature=temperature)
            for case, target, drafts, expected in (
                    ("perfect match", [1, 2, 3, 4], [[1, 2, 3]], [[1, 2, 3, 4]]),
                    ("early mismatch", [1, 5, 3, 4], [[1, 2, 3]], [[1, 5]]),
                    ("first mismatch", [9, 2, 3, 4], [[1, 2, 3]], [[9]]),
                    ("several sequences", [1, 2, 5, 3, 4], [[1, 2], [3, -1]], [[1, 2, 5], [3, 4]]),
                    ("a single token", [1, 2], [[1]], [[1, 2]]),
                    ("an empty sequence", [7], [[]], [[7]]),
                    ("empty among others", [7, 1, 2], [[-1], [1]], [[7], [1, 2]]),
                    ("several mismatches", [1, 2, 7, 6, 4, 8, 6, 9, 3, 9, 1, 4], [[1, 2, 3], [4, 5, 6], [9, 8, 7]],
                     [[1, 2, 7], [4, 8], [3]])):
                with self.subTest(case, **how):
                    self.assertEqual(self.texts(sure_of(target), drafts, **how), expected)

    def test_no_requests(self):
        result = verify(np.zeros((0, 5), np.float32), np.zeros((0, 3), int), seeds=[], positions=[])
        self.assertEqual((result.tokens.shape, result.status), ((0, 4), []))

    def test_all_drafts_are_accepted_where_q_is_p(self):
        logits, _, more = scene(requests=500)
        random = np.random.default_rng(1)
        drafts = np.argmax(logits[:, :3] + random.gumbel(size=logits[:, :3].shape), axis=2)
        for rule, temperature in itertools.product(("token_rejection", "block_verification", "recursive_rejection"), (1.0, 0.0)):
            chosen = drafts if temperature else np.argmax(logits[:, :3], axis=2)
            result = verify(logits, chosen, rule=rule, temperature=temperature, **{**more, "q": logits[:, :3]})
            self.assertEqual(result.accepted.tolist(), [3] * 500, rule)
            self.assertEqual(result.tokens[:, :3].tolist(), chosen.tolist(), rule)

    def test_what_is_emitted_begins_with_drafts(self):
        logits, drafts, more = scene(requests=500)
        for rule in ("token_rejection", "block_verification", "target_match", "keyed_coupling"):
            result = verify(logits, drafts, rule=rule, **more)
            place = np.arange(4)
            self.assertEqual(result.counts.tolist(), (result.accepted + 1).tolist(), rule)
            self.assertEqual((result.tokens >= 0).tolist(), (place < result.counts[:, None]).tolist(), rule)
            kept = place[:3] < result.accepted[:, None]
            self.assertEqual(result.tokens[:, :3][kept].tolist(), drafts[kept].tolist(), rule)
            self.assertEqual(sorted(set(result.accepted.tolist())), [0, 1, 2, 3], rule)

    def test_seeds(self):
        logits, drafts, more = scene()
        first = verify(logits, drafts, **more)
        self.assertEqual(verify(logits, drafts, **more).tokens.tolist(), first.tokens.tolist())
        order = np.random.default_rng(2).permutation(64)[:20]
        some = verify(logits[order], drafts[order], **{name: values[order] for name, values in more.items()})
        self.assertEqual(some.tokens.tolist(), first.tokens[order].tolist())
        for name in ("seeds", "positions"):
            other = verify(logits, drafts, **{**more, name: more[name] + 1})
            self.assertNotEqual(other.tokens.tolist(), first.tokens.tolist(), name)

    def test_greedy_and_random_requests_together(self):
        logits, drafts, more = scene()
        temperature = np.where(np.arange(64) % 2, 0.0, 0.8)
        top_k = np.where(np.arange(64) % 4, -1, 5)
        more["q_values"], more["q"] = "probabilities", np.apply_along_axis(softmax, 2, more["q"]).astype(np.float32)
        both = verify(logits, drafts, temperature=temperature, top_k=top_k, **more)
        best = np.argmax(logits, axis=2)
        for r in range(64):
            one = {**more, "q": more["q"][r:r + 1], "seeds": [more["seeds"][r]], "positions": [more["positions"][r]]}
            alone = verify(logits[r:r + 1], drafts[r:r + 1], temperature=temperature[r], top_k=top_k[r], **one)
            self.assertEqual(alone.tokens.tolist(), both.tokens[r:r + 1].tolist())
            if temperature[r] == 0:
                self.assertEqual(both.tokens[r, :both.counts[r]].tolist(), best[r, :both.counts[r]].tolist())
        self.assertFalse((both.tokens[::2, 0] == best[::2, 0]).all())


# ---- mistakes --------------------------------------------------------------------------------------------------------


class Mistakes(unittest.TestCase):
    def test_texts(self):
        logits, drafts, more = scene(requests=3)
        # A short chain, and gaps.
        gap = drafts.copy()
        gap[1, 1] = -1
        misaligned = np.frombuffer(bytearray(logits.nbytes + 1), np.uint8)[1:].view(np.float32).reshape(logits.shape)
        for change, text in (
                (dict(rule="best"), r"verify: rule is best, expected token_rejection, block_verification, "),
                (dict(drafts=drafts + 50), r"verify: drafts\[0, 0\] is \d+, expected a token of the target, 0 .. 49, or -1"),
                (dict(drafts=drafts - 60), r"verify: drafts\[0, 0\] is -\d+, expected a token, or -1 behind the last one"),
                (dict(drafts=drafts[0]), r"verify: drafts has shape \[3\], expected \[R, gamma\]"),
                (dict(drafts=drafts * 0.5), r"verify: drafts holds float64, expected integers"),
                (dict(drafts=gap), r"verify: drafts\[1, 2\] is \d+, expected -1 behind a -1"),
                (dict(lengths=[3, 4, 0]), r"verify: lengths\[1\] is 4, expected 0 .. the request's drafts"),
                (dict(seeds=[1, -2, 2**64 - 1]), r"verify: seeds\[1\] is -2, expected 0 .. 2\^64 - 1"),
                (dict(seeds=[1, 2, 2**64]), r"verify: seeds\[2\] is 18446744073709551616, expected 0 .. 2\^64 - 1"),
                (dict(seeds=7), r"verify: seeds has shape \[\], expected \[3\]"),
                (dict(positions=[1, 2]), r"verify: positions has shape \[2\], expected \[3\]"),
                (dict(temperature=[1, 1, -1]), r"verify: request 2: request_settings: temperature is -1, expected a finite number"),
                (dict(top_p=0), r"verify: request 0: request_settings: top_p is 0, expected a number in \(0, 1\]"),
                (dict(min_p=2), r"verify: request 0: request_settings: min_p is 2, expected a number in \[0, 1\]"),
                (dict(top_p=0.0), r"verify: request 0: request_settings: top_p is 0, expected a number in \(0, 1\]"),
                (dict(top_k=0.5), r"verify: top_k holds float64, expected integers"),
                (dict(rule="greedy_match"), r"verify: request 0: .* temperature is 1, expected 0: this acceptance rule decodes greedily"),
                (dict(q_values="odds"), r"verify: q_values is odds, expected logits or probabilities"),
                (dict(q=more["q"].astype(np.float16)), r"verify: q holds no float32, expected that"),
                (dict(q=more["q"][:, :2]), r"verify: q has rows \[3, 2\], expected \[R, rows of each\] = \[3, 3\]"),
                (dict(q=more["q"][0]), r"verify: q has 2 axes, expected \[R, gamma, V\]"),
                (dict(q=more["q"][:, :, :49]), r"verify: q has rows of 49 numbers, expected 50 as target_logits"),
                (dict(target_logits=logits.astype(np.float64)), r"verify: target_logits holds no logits, expected float32, float16"),
                (dict(target_logits=logits[:, :3]), r"verify: target_logits has rows \[3, 3\], expected \[R, rows of each\] = \[3, 4\]"),
                (dict(target_logits=logits.reshape(-1, 50)[1:]), r"verify: target_logits has 11 rows, expected 12: of each request"),
                (dict(target_logits=logits[:, :, ::2]), r"verify: target_logits has stride 2 along its last axis, expected 1"),
                (dict(target_logits=logits[::-1]), r"verify: target_logits has stride -200 along axis 0, expected >= 0"),
                (dict(target_logits=logits[0, 0]), r"verify: target_logits has 1 axes, expected \[rows, columns\] or"),
                (dict(target_logits=misaligned), r"verify: target_logits lies at an address that is no multiple of 4"),
                (dict(target_logits=Exported(logits, Exported.FLOAT, Exported.CUDA)),
                 r"verify: target_logits lies on a device of type 2, expected memory of the host"),
                (dict(bitmask=np.zeros((3, 4, 2), np.int64)), r"verify: bitmask holds no int32 words"),
                (dict(bitmask=np.zeros((3, 4, 3), np.int32)), r"verify: bitmask has rows of 3 words, expected 2: a bit for each of the 50"),
                (dict(bitmask=np.zeros((11, 2), np.int32)), r"verify: bitmask has 11 rows, expected 12"),
                (dict(parents=np.tile([0, 1, 3], (3, 1)), rule="target_match"), r"verify: parents\[0, 2\] is 3, expected 0, or the number"),
                (dict(parents=np.zeros((3, 3), int), drafts=np.full((3, 3), 4), rule="target_match"),
                 r"verify: drafts\[0, 1\] is 4, expected another token than an elder child"),
                (dict(parents=np.tile([0, 0, 1], (3, 1))), r"sureleap: the drafter drafts trees, and this acceptance rule judges chains")):
            arguments = {"target_logits": logits, "drafts": drafts, **more, **change}
            with self.subTest(list(change)), self.assertRaisesRegex(ValueError, text):
                verify(arguments.pop("target_logits"), arguments.pop("drafts"), **arguments)
        with self.assertRaisesRegex(TypeError, r"verify: target_logits is a list, expected an array of numbers"):
            verify(logits.tolist(), drafts, **more)
        self.assertEqual(verify(logits, drafts, **more).status, ["ok"] * 3)  # as it was

    def test_version(self):
        self.assertRegex(sureleap_verify.__version__, r"^\d+\.\d+\.\d+$")


unittest.main()

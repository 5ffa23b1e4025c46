#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Verification beside that of vLLM and FlashInfer, in one process: the same tensors, graphs and clock.

    run.py --list        names of the cases
    run.py [CASE...]     lines of JSON, as bench/cuda/cases.hpp says

    peers/ours/dense, one_hot            distributions of q recorded by whoever drafted, or one-hot
    peers/vllm/dense, one_hot            its rejection_sample, which makes statistics of q's rows too
    peers/flashinfer/logits, given       softmax of p and q and its chain kernel; the chain alone on given probabilities
    accepted    draft tokens of a request that were kept, on average: about as many with dense distributions of q as with one-hot
                ones, each among themselves, or they do not do the same work

Needs PyTorch with Triton, and beside this file what fetch.py brought: libpeers.so and vllm/.
"""

import argparse
import ctypes
import functools
import json
import pathlib
import statistics
import sys
import types

HERE = pathlib.Path(__file__).resolve().parent
GAMMA, VOCABULARY, SAMPLES, LEAST_CALLS = 7, 151936, 21, 8
BATCHES = (32, 128)
KINDS = ("ours/dense", "ours/one_hot", "vllm/dense", "vllm/one_hot", "flashinfer/logits", "flashinfer/given")
CASES = {f"peers/{kind}/R:{requests}": (kind, requests) for requests in BATCHES for kind in KINDS}


class Memory:
    """Device memory of another library, for torch.as_tensor."""

    def __init__(self, pointer, shape, kind):
        self.__cuda_array_interface__ = {"data": (pointer, False), "shape": shape, "typestr": kind, "version": 2}


def load_library():
    library = ctypes.CDLL(str(HERE / "libpeers.so"))
    pointer, number = ctypes.c_void_p, ctypes.c_uint32
    library.peers_batch.argtypes = [number, number, number, ctypes.c_float, ctypes.c_uint64]
    for name in ("peers_batch", "peers_target", "peers_draft", "peers_tokens"):
        getattr(library, name).restype = pointer
    for name in ("peers_end", "peers_target", "peers_draft", "peers_tokens"):
        getattr(library, name).argtypes = [pointer]
    library.peers_accept.argtypes = [pointer, ctypes.c_int, pointer]
    library.peers_accepted.argtypes = [pointer, ctypes.c_int, pointer]
    library.peers_read.argtypes = [pointer, ctypes.c_int, pointer]
    library.peers_softmax.argtypes = [pointer, pointer, number, number, pointer, ctypes.c_size_t, pointer]
    library.peers_chain.argtypes = [*[pointer] * 6, number, number, number, pointer]
    return library


@functools.cache
def load_vllm():
    """Its rejection_sample, from two files of its wheel, with stand-ins for what they import and this does not run."""
    import triton
    import triton.language as tl
    from triton.language.extra import libdevice

    def module(name, **holds):
        made = types.ModuleType(name)
        made.__dict__.update(holds)
        sys.modules[name] = made

    sys.path.insert(0, str(HERE))
    for name in ("vllm", "vllm.v1", "vllm.v1.spec_decode", "vllm.v1.worker", "vllm.v1.worker.gpu",
                 "vllm.v1.worker.gpu.sample", "vllm.v1.worker.gpu.spec_decode"):
        module(name, __path__=[str(HERE / name.replace(".", "/"))])
    module("vllm.triton_utils", tl=tl, tldevice=libdevice, triton=triton)
    module("vllm.v1.spec_decode.fly", compute_fly_entropy=None)
    module("vllm.v1.worker.gpu.sample.watermark", philox_gumbel_block_argmax=triton.jit(not_watermarked))
    from vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils import rejection_sample
    return rejection_sample


def not_watermarked(value):
    return value


def checked(error):
    if error != 0:
        raise RuntimeError(f"CUDA error {error}")


class Batch:
    """A batch in memory, and one call of each kind on it."""

    def __init__(self, torch, library, requests, seed):
        self.torch, self.library, self.requests = torch, library, requests
        self.made = library.peers_batch(requests, GAMMA, VOCABULARY, 0.45, seed)
        rows = requests * (GAMMA + 1)
        def tensor(pointer, shape, kind):
            return torch.as_tensor(Memory(pointer, shape, kind), device="cuda")
        self.target = tensor(library.peers_target(self.made), (rows, VOCABULARY), "<i2").view(torch.bfloat16)
        self.draft = tensor(library.peers_draft(self.made), (requests, GAMMA, VOCABULARY), "<i2").view(torch.bfloat16)
        self.tokens = tensor(library.peers_tokens(self.made), (requests, GAMMA), "<i4")
        self.accepted = {}

    def __del__(self):
        self.library.peers_end(self.made)

    def stream(self):
        return self.torch.cuda.current_stream().cuda_stream

    def read(self, residency):
        checked(self.library.peers_read(self.made, residency, self.stream()))

    def ours(self, one_hot):
        def call():
            checked(self.library.peers_accept(self.made, one_hot, self.stream()))

        def kept():
            found = (ctypes.c_uint32 * self.requests)()
            checked(self.library.peers_accepted(self.made, one_hot, found))
            return sum(found)
        return call, kept

    def vllm(self, one_hot):
        rejection_sample = load_vllm()
        torch, of = self.torch, {"device": "cuda", "dtype": torch.int32}
        each = torch.arange(self.requests, **of)
        anchors = torch.zeros(self.requests, 1, **of)
        arguments = [self.target, None if one_hot else self.draft, torch.cat([anchors, self.tokens], 1).flatten(),
                     torch.arange(self.requests + 1, **of) * (GAMMA + 1),
                     torch.arange(self.requests * (GAMMA + 1), device="cuda", dtype=torch.int64), each,
                     each.repeat_interleave(GAMMA + 1), torch.arange(GAMMA + 1, **of).repeat(self.requests),
                     torch.ones(self.requests, device="cuda"),
                     torch.arange(self.requests, device="cuda", dtype=torch.int64) + 11, GAMMA]
        out = {}

        def call():
            out["sampled"], out["count"] = rejection_sample(*arguments)
        return call, lambda: int(out["count"].sum()) - self.requests

    def flashinfer(self, given):
        torch = self.torch
        rows = self.requests * (GAMMA + 1)
        room = torch.empty(16 << 20, dtype=torch.uint8, device="cuda")
        p, q = (torch.empty(size, VOCABULARY, device="cuda") for size in (rows, self.requests * GAMMA))
        out = torch.empty(self.requests, GAMMA + 1, device="cuda", dtype=torch.int32)
        accepted, emitted = (torch.zeros(self.requests, device="cuda", dtype=torch.int32) for _ in range(2))

        def softmax(logits, to):
            wide = logits.float()
            checked(self.library.peers_softmax(wide.data_ptr(), to.data_ptr(), to.shape[0], VOCABULARY, room.data_ptr(),
                                               room.numel(), self.stream()))

        def chain():
            accepted.zero_()
            emitted.zero_()
            checked(self.library.peers_chain(q.data_ptr(), self.tokens.data_ptr(), p.data_ptr(), out.data_ptr(),
                                             accepted.data_ptr(), emitted.data_ptr(), self.requests, GAMMA, VOCABULARY,
                                             self.stream()))

        def both():
            softmax(self.target, p)
            softmax(self.draft.view(-1, VOCABULARY), q)
            chain()
        if given:
            both()
        return chain if given else both, lambda: int(emitted.sum())


class Clock:
    """Times of graphs between events in a stream that is busy, less an empty graph (bench/cuda/measure.cuh)."""

    def __init__(self, torch):
        self.torch = torch
        nothing = torch.zeros(1, device="cuda")
        self.empty = statistics.median(self.seconds([self.graph([lambda: nothing.add_(1)])])[0])

    def graph(self, calls):
        for call in calls[:1] * 3:  # compiles, loads, and finds its memory
            call()
        self.torch.cuda.synchronize()
        made = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(made):
            for call in calls:
                call()
        return made

    def sample(self, graph):
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        for cycles in (400_000 << i for i in range(10)):
            self.torch.cuda._sleep(cycles)
            begin.record()
            graph.replay()
            end.record()
            was_busy = not begin.query()
            end.synchronize()
            if was_busy:
                return 1e-3 * begin.elapsed_time(end)
        raise RuntimeError("the host takes more than 100 ms to enqueue a graph")

    def seconds(self, graphs):
        """Of each graph, samples that alternate with those of the others."""
        for graph in graphs:
            graph.replay()
        return list(zip(*[[self.sample(graph) for graph in graphs] for _ in range(SAMPLES)]))


def say(**line):
    print(json.dumps(line), flush=True)


def measure(torch, library, requests, kinds):
    """A line for each kind, all of them replayed in turns."""
    bytes_read = requests * (GAMMA + 1) * VOCABULARY * 2
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    batches = [Batch(torch, library, requests, 31 + i) for i in range(max(1, -(-4 * cache // bytes_read)))]
    turns = -(-LEAST_CALLS // len(batches))
    count = turns * len(batches)
    clock = Clock(torch)
    make = {"ours/dense": lambda b: b.ours(0), "ours/one_hot": lambda b: b.ours(1),
            "vllm/dense": lambda b: b.vllm(False), "vllm/one_hot": lambda b: b.vllm(True),
            "flashinfer/logits": lambda b: b.flashinfer(False), "flashinfer/given": lambda b: b.flashinfer(True)}
    captured = {}
    for kind in kinds:
        name = f"peers/{kind}/R:{requests}"
        say(begins=name)
        try:
            pairs = [make[kind](b) for b in batches]
            captured[kind] = clock.graph([call for call, _ in pairs] * turns), [kept for _, kept in pairs]
        except Exception as problem:  # whatever another library's kernels stumble over is theirs alone
            say(name=name, status="failed", why=repr(problem)[-300:])
    reads = [clock.graph([lambda b=b: b.read(residency) for b in batches] * turns) for residency in (2, 4, 8)]
    graphs = [graph for graph, _ in captured.values()]
    samples = [[(one - clock.empty) / count for one in each] for each in clock.seconds([*graphs, *reads])]
    read = min(statistics.median(each) for each in samples[len(graphs):])
    for (kind, (_, totals)), each in zip(captured.items(), samples):
        middle = statistics.median(each)
        accepted = sum(kept() for kept in totals) / (requests * len(batches))
        say(name=f"peers/{kind}/R:{requests}", status="ok", family=f"peers/{kind}", args={"R": requests},
            us=1e6 * middle, spread=(max(each) - min(each)) / middle, repetitions=len(each),
            figures={"of_read": read / middle, "accepted": accepted})


def main():
    parser = argparse.ArgumentParser(description="Verification beside other libraries.")
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--list", action="store_true")
    how = parser.parse_args()
    if how.list:
        return print("\n".join(CASES))
    import torch
    library = load_library()
    wanted = [CASES[name] for name in how.cases or CASES]
    for requests in BATCHES:
        kinds = [kind for kind, of in wanted if of == requests]
        if kinds:
            measure(torch, library, requests, kinds)


if __name__ == "__main__":
    main()

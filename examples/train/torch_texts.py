# SPDX-License-Identifier: MIT
"""Recorded texts as train_torch.py reads them, and what a step sees of them: the twin of recorded_texts, recorded_task,
documents and sureleap/training/anchors.hpp.

Order and anchors are functions of the seed and are the same in C++, so both programs take the same steps.
"""
import dataclasses
import pathlib

import numpy
import torch
from safetensors import SafetensorError, safe_open

BEST_OF_LAW = 16  # tokens of a law that are recorded
NO_TOKEN = -1


def philox(counter: tuple, seed: int) -> list[numpy.ndarray]:
    """Philox4x32-10: four words of 32 bits for counters of four words, which are arrays or numbers."""
    low = numpy.uint64(0xFFFFFFFF)
    words = list(numpy.broadcast_arrays(*(numpy.asarray(word, numpy.uint64) for word in counter)))
    keys = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        first, second = words[0] * numpy.uint64(0xD2511F53), words[2] * numpy.uint64(0xCD9E8D57)
        shift, (key0, key1) = numpy.uint64(32), map(numpy.uint64, keys)
        words = [second >> shift ^ words[1] ^ key0, second & low, first >> shift ^ words[3] ^ key1, first & low]
        keys = [(keys[0] + 0x9E3779B9) & 0xFFFFFFFF, (keys[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return words


def starts_of(sizes: numpy.ndarray) -> numpy.ndarray:
    """Where each begins that lies behind the others."""
    return numpy.cumsum(sizes) - sizes


def philox_64(counter: tuple, seed: int) -> numpy.ndarray:
    """The first two words as one number."""
    high, low, _, _ = philox(counter, seed)
    return high << numpy.uint64(32) | low


# ---- recordings ------------------------------------------------------------------------------------------------------


class RecordedTexts:
    """Recordings of `train texts` or record_torch.py, folder by folder in order of the texts' numbers. A GPU gets the
    features whole if they leave it half of its memory. Else they stay in the files, which are mapped."""

    def __init__(self, folders: list[pathlib.Path], vocabulary: int, device: torch.device):
        self.feature_layers: list[int] = []
        self.width = 0
        shards = [self.shards_of(folder) for folder in folders]
        bytes_of_shards = sum(shard.stat().st_size for files in shards for shard in files)
        fits = device.type == "cuda" and bytes_of_shards < torch.cuda.mem_get_info(device)[0] / 2
        texts: list[tuple] = []
        for files in shards:
            by_number: dict[int, tuple] = {}
            for file in files:
                for number, text in self.read(file, vocabulary, device if fits else torch.device("cpu")):
                    if number in by_number:
                        raise SystemExit(f"{file}: text {number} is in an earlier shard as well, expected it once")
                    by_number[number] = text
            texts += [by_number[number] for number in sorted(by_number)]
        # features [tokens - 1, width] of each text
        tokens, prompts, self.domains, self.features, best_tokens, best_shares = zip(*texts)
        self.sizes, self.prompts = numpy.array([len(of_text) for of_text in tokens]), numpy.array(prompts)
        self.tokens = numpy.concatenate(tokens).astype(numpy.int64)
        self.best_tokens, self.best_shares = numpy.concatenate(best_tokens), numpy.concatenate(best_shares)
        self.first_tokens = starts_of(self.sizes)
        self.first_laws = starts_of(self.sizes - self.prompts)

    def __len__(self) -> int:
        return len(self.sizes)

    @staticmethod
    def shards_of(folder: pathlib.Path) -> list[pathlib.Path]:
        files: list[pathlib.Path] = []
        while (file := folder / f"{len(files):05}.safetensors").exists():
            files.append(file)
        if not files:
            raise SystemExit(f"{folder}: has no 00000.safetensors, expected a recording that `train texts` wrote")
        return files

    def read(self, file: pathlib.Path, vocabulary: int, device: torch.device):
        """Numbers and texts of a shard."""
        try:
            with safe_open(file, "pt") as shard:
                about = shard.metadata() or {}
                names = ("begins", "prompts", "domains", "numbers", "tokens", "best_tokens", "best_shares")
                begins, prompts, domains, numbers, tokens, best_tokens, best_shares = (
                    shard.get_tensor(name).numpy() for name in names)
                features = shard.get_tensor("features")
            layers = [int(layer) for layer in about["feature_layers"].split(",")]
        except (SafetensorError, KeyError) as error:
            raise SystemExit(f"{file}: {error}, expected a shard that `train texts` wrote") from error
        if not self.width:
            self.feature_layers, self.width = layers, features.shape[1]
        elif (layers, features.shape[1]) != (self.feature_layers, self.width):
            raise SystemExit(f"{file}: has {features.shape[1]} features of layers {layers}, expected {self.width} of "
                             f"layers {self.feature_layers} as in the first shard")
        written = begins[1:] - begins[:-1] - prompts
        laws = (int(written.sum()), BEST_OF_LAW)
        if (begins[-1] != len(tokens) or len(features) != len(tokens) - len(prompts) or min(prompts) < 1
                or min(written) < 1 or best_tokens.shape != laws or best_shares.shape != laws):
            raise SystemExit(f"{file}: {len(prompts)} texts, {len(tokens)} tokens, features {list(features.shape)} and "
                             f"laws {list(best_tokens.shape)} do not fit each other")
        for name, found in (("tokens", tokens), ("best_tokens", best_tokens[best_shares > 0])):
            if found.min(initial=0) < 0 or found.max(initial=0) >= vocabulary:
                raise SystemExit(f"{file}: {name} are {found.min()} .. {found.max()}, expected tokens of the target, "
                                 f"below {vocabulary}")
        if not ((best_shares >= 0) & (best_shares <= 1)).all():
            raise SystemExit(f"{file}: best_shares are {best_shares.min()} .. {best_shares.max()}, expected "
                             "probabilities")
        features, first = features.to(device), 0
        for i, (begin, end, prompt) in enumerate(zip(begins[:-1], begins[1:], prompts)):
            of_text = slice(first, first := first + int(written[i]))
            yield int(numbers[i]), (tokens[begin:end], int(prompt), about[f"domain {domains[i]}"],
                                    features[begin - i : end - i - 1], best_tokens[of_text], best_shares[of_text])


class BatchPlan:
    """Which texts a step sees: every epoch all of them, in an order of its own."""

    def __init__(self, sizes: list[int], tokens: int, seed: int):
        if max(sizes) > tokens:
            raise SystemExit(f"--batch-tokens is {tokens}, expected at least {max(sizes)}, the longest text")
        self.sizes, self.tokens, self.seed = sizes, tokens, seed
        self.epoch, self.first_step = 0, 0
        self.batches = self.shuffled()

    def shuffled(self) -> list[list[int]]:
        draws = philox_64((numpy.arange(len(self.sizes)), 0, self.epoch, 1), self.seed)
        batches, room = [[]], self.tokens
        for i in map(int, numpy.argsort(draws, kind="stable")):
            if self.sizes[i] > room:
                batches.append([])
                room = self.tokens
            batches[-1].append(i)
            room -= self.sizes[i]
        return batches

    def at(self, step: int) -> tuple[int, list[int]]:
        """Epoch and texts of a step. Steps are asked for in order."""
        while step - self.first_step >= len(self.batches):
            self.first_step += len(self.batches)
            self.epoch += 1
            self.batches = self.shuffled()
        return self.epoch, self.batches[step - self.first_step]


# ---- batches ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class BlockShape:
    size: int  # gamma
    per_token: float  # blocks of a text, per token that the drafter has to learn
    seed: int
    to_draft: numpy.ndarray  # the drafter's number of every token; NO_TOKEN: it is not drafted


def blocks_of_texts(recorded: RecordedTexts, members: numpy.ndarray, visits: numpy.ndarray, shape: BlockShape) -> tuple:
    """Of every block its text, as an index into members, its anchor, and how many of its positions count: as far as the
    text goes, and none behind a token that is not drafted. Ordered by text and anchor."""
    prompts, sizes = recorded.prompts[members], recorded.sizes[members]
    candidates = sizes - 1 - prompts
    text = numpy.repeat(numpy.arange(len(members)), candidates)
    rank = numpy.arange(len(text)) - starts_of(candidates)[text]
    draws = philox_64((prompts[text] + rank, 0, visits[text] & 0xFFFFFFFF, visits[text] >> 32), shape.seed)
    order = numpy.lexsort((draws >> numpy.uint64(11), text))
    wanted = numpy.ceil(shape.per_token * (sizes - prompts))
    chosen = numpy.sort(order[rank < wanted[text]])
    text, anchors = text[chosen], (prompts[text] + rank)[chosen]
    last = sizes[text] - 1
    labels = numpy.minimum(anchors[:, None] + 1 + numpy.arange(shape.size), last[:, None])
    left_out = shape.to_draft[recorded.tokens[recorded.first_tokens[members[text], None] + labels]] == NO_TOKEN
    first_left_out = numpy.where(left_out.any(1), left_out.argmax(1) + 1, shape.size)
    return text, anchors, numpy.minimum(first_left_out, numpy.minimum(shape.size, last - anchors))


@dataclasses.dataclass
class Batch:
    """Blocks of some texts, which are padded to the longest, and so are the blocks of a text. What has a loss is listed
    apart: a row for each supervised position."""

    features: torch.Tensor  # [texts, context tokens, width]
    anchors: torch.Tensor  # [texts, blocks]; a block's context are the tokens before it
    previous: torch.Tensor  # [texts, blocks, gamma]: the token at anchor + k
    supervised: torch.Tensor  # [rows]: which block row it is, of all block rows in order
    position: torch.Tensor  # [rows]: k
    labels: torch.Tensor  # [rows], as the drafter numbers them, or NO_TOKEN
    law_tokens: torch.Tensor  # [rows, BEST_OF_LAW], likewise; those of no share are 0
    law_shares: torch.Tensor  # [rows, BEST_OF_LAW]
    blocks: int  # without padding


def make_batch(recorded: RecordedTexts, members: list[int], visits: list[int], shape: BlockShape,
               device: torch.device) -> Batch | None:
    """None where the texts have no block."""
    members, visits = numpy.array(members), numpy.array(visits)
    text, block_anchors, positions = blocks_of_texts(recorded, members, visits, shape)
    if not len(text):
        return None
    blocks = numpy.bincount(text, minlength=len(members))
    most, context, k = int(blocks.max()), int(block_anchors.max()), numpy.arange(shape.size)
    features = torch.zeros(len(members), context, recorded.width, dtype=torch.float16, device=device)
    for into, i in zip(features, members):
        of_text = recorded.features[i][:context]
        into[: len(of_text)] = of_text
    place = text * most + numpy.arange(len(text)) - starts_of(blocks)[text]
    anchors = numpy.zeros(len(members) * most, numpy.int64)
    anchors[place] = block_anchors
    previous = numpy.zeros((len(anchors), shape.size), numpy.int64)
    first_tokens, last = recorded.first_tokens[members[text]], recorded.sizes[members[text]] - 1
    previous[place] = recorded.tokens[first_tokens[:, None] + numpy.minimum(block_anchors[:, None] + k, last[:, None])]
    block, position = numpy.nonzero(k < positions[:, None])
    predicted = block_anchors[block] + 1 + position
    law = (recorded.first_laws - recorded.prompts)[members[text[block]]] + predicted
    law_shares = recorded.best_shares[law]
    law_tokens = shape.to_draft[numpy.where(law_shares > 0, recorded.best_tokens[law], 0)]
    known = (law_shares > 0) & (law_tokens != NO_TOKEN)
    labels = shape.to_draft[recorded.tokens[first_tokens[block] + predicted]]
    arrays = (anchors.reshape(len(members), most), previous.reshape(len(members), most, shape.size),
              place[block] * shape.size + position, position, labels, numpy.where(known, law_tokens, 0),
              numpy.where(known, law_shares, 0))
    return Batch(features, *(torch.from_numpy(array).to(device) for array in arrays), blocks=len(text))

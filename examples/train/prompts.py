#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes prompts for a drafter of an instruction-tuned target: to train on, to validate with, and to judge by.

    prompts.py --out prompts --gsm8k gsm8k_train.jsonl --humaneval humaneval.jsonl --mt-bench mt_bench.jsonl \\
        --spec-bench spec_bench_question.jsonl --taskmaster taskmaster4_dialogs.jsonl \\
        --shakespeare tiny_shakespeare.txt --python-source /usr/lib/python3.11 --documentation docs/ \\
        --wordnet /usr/share/wordnet

writes train.jsonl, validation.jsonl and judge.jsonl. A line is {"domain": ..., "messages": [{"role": "user", "content":
...}, ...]}; a conversation may have earlier turns, and the target's answer is what comes next.

A drafter learns from what the target answers, and is good at what it has seen. So the prompts are many and of many
kinds: exercises, functions to write, read and mend, passages to sum up and to continue, and instructions from templates
(prompt_templates.py). The judge has 40 of each of five domains: GSM8K's last questions, HumanEval, MT-Bench, dialogues
and texts that are held back.

What judges is kept out of training three times: its units are held back (prompt_sources.py), benchmarks are only read
for the judge, and a prompt is left out if it shares half of its word sequences with a held-back exercise, a benchmark's
prompt or a judge's. Train and validation share no unit: a page, a dialogue, a file of functions is in one of them.

Lines are in the order of hashes, so that any beginning of a file is a fair sample of it. --seed decides what becomes of
a unit in train and validation; the judge is the same for all seeds.
"""

import argparse
import json
import re
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Iterable, Iterator

import prompt_sources as sources
import prompt_templates as templates
from corpus import files, mostly_ascii
from prompt_sources import Prompt, hash_of, random_of, share

LONGEST = 3200  # characters: some 800 tokens


def held_and_free(options: argparse.Namespace) -> Iterator[Prompt]:
    """What has held-back units."""
    seed = options.seed
    yield from sources.gsm8k(options.gsm8k, seed)
    yield from sources.humaneval(options.humaneval)
    yield from sources.mt_bench(options.mt_bench)
    yield from sources.taskmaster(options.taskmaster, seed)
    yield from sources.shakespeare(options.shakespeare, seed)
    for path in files(options.documentation, {".html", ".txt", ".rst"}, options.leave_out):
        try:
            yield from sources.documentation(path, seed)
        except UnicodeDecodeError:
            print(f"left out, not UTF-8: {path}")


def free(options: argparse.Namespace) -> Iterator[Prompt]:
    seed = options.seed
    yield from sources.spec_bench(options.spec_bench, seed)
    for path in files(options.python_source, {".py"}, options.leave_out):
        try:
            yield from sources.python_functions(path, seed)
        except UnicodeDecodeError:
            print(f"left out, not UTF-8: {path}")
    sources.add_nouns(options.wordnet)
    yield from sources.definitions(options.wordnet, seed, 1800)
    yield from sources.sentences(options.wordnet, seed, 3000)
    yield from sources.templated("chat", templates.CHAT, seed, each=50)
    yield from sources.templated("code", templates.CODE, seed, each=100)
    yield from sources.templated("code", templates.CODE_QUESTIONS, seed, each=50)
    yield from sources.templated("math", templates.MATH, seed, each=48, manners=0.1)
    yield from sources.templated("dialogue", templates.SERVICE, seed, each=90)


class Likeness:
    """Says whether a text nearly equals one of those that it knows: both share half of the shorter one's sequences."""

    WORDS = 5

    def __init__(self, texts: Iterable[str]) -> None:
        self._sizes: list[int] = []
        self._where: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for i, text in enumerate(texts):
            found = self._sequences(text)
            self._sizes.append(len(found))
            for sequence in found:
                self._where[sequence].append(i)

    def __contains__(self, text: str) -> bool:
        found = self._sequences(text)
        shared: dict[int, int] = defaultdict(int)
        for sequence in found:
            for i in self._where.get(sequence, ()):
                shared[i] += 1
        return any(2 * count >= min(self._sizes[i], len(found)) for i, count in shared.items())

    def _sequences(self, text: str) -> set[tuple[str, ...]]:
        words = re.findall(r"\w+", text.lower())
        return {tuple(words[i : i + self.WORDS]) for i in range(max(1, len(words) - self.WORDS + 1))}


def judge_of(prompts: list[Prompt], each: int) -> list[Prompt]:
    """Of every domain as many as said, one of a dialogue or of a page; half of the prose is plays."""
    chosen = []
    for domain in ("math", "code", "chat", "dialogue", "prose"):
        of_domain = sorted((p for p in prompts if p.domain == domain), key=lambda p: hash_of(p.text))
        here = list({p.text if is_play(p) else p.unit: p for p in of_domain}.values())
        if len(here) < each:
            raise SystemExit(f"prompts.py: {domain}: {len(here)} held-back prompts, expected {each} for the judge")
        if domain == "prose":
            plays = [p for p in here if is_play(p)]
            pages = [p for p in here if not is_play(p)]
            here = plays[: max(each // 2, each - len(pages))] + pages[: max(each - each // 2, each - len(plays))]
        chosen += here[:each]
    return chosen


def is_play(prompt: Prompt) -> bool:
    return bool(re.search(r"^[A-Z][A-Za-z ]+:$", prompt.asked.partition("\n\n")[2], re.MULTILINE))


def split(prompts: Iterable[Prompt], judging: list[Prompt], options: argparse.Namespace) -> dict[str, list[Prompt]]:
    like = Likeness(prompt.asked for prompt in judging)
    sides: dict[str, list[Prompt]] = {"train": [], "validation": []}
    written: set[str] = set()
    left_out = 0
    for prompt in prompts:
        if prompt.text in written or len(prompt.text) > LONGEST or not mostly_ascii(prompt.asked):
            continue
        if prompt.asked in like:
            left_out += 1
            continue
        written.add(prompt.text)
        in_validation = share(f"validation {options.seed} {prompt.unit}") < options.validation_share
        sides["validation" if in_validation else "train"].append(prompt)
    print(f"left out, like what judges: {left_out}")
    for side in sides.values():
        side.sort(key=lambda prompt: hash_of(prompt.text))
    return sides


def write(path: Path, prompts: list[Prompt]) -> None:
    with path.open("w", encoding="utf-8") as out:
        for prompt in prompts:
            out.write(json.dumps({"domain": prompt.domain, "messages": prompt.messages}, ensure_ascii=False) + "\n")


def report(sides: dict[str, list[Prompt]]) -> None:
    print(f"{'':10}{'domain':>12}{'prompts':>9}{'turns':>7}{'mean':>7}{'median':>8}{'longest':>9}")
    for side, prompts in sides.items():
        for domain in sorted({prompt.domain for prompt in prompts}):
            here = [prompt for prompt in prompts if prompt.domain == domain]
            sizes = sorted(len(prompt.text) for prompt in here)
            turns = sum(len(prompt.messages) for prompt in here) / len(here)
            print(f"{side:10}{domain:>12}{len(here):>9,}{turns:>7.2f}{sum(sizes) // len(sizes):>7,}"
                  f"{sizes[len(sizes) // 2]:>8,}{sizes[-1]:>9,}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Makes train.jsonl, validation.jsonl and judge.jsonl.")
    benchmark = "JSON lines with a list 'turns': only for the judge"
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--gsm8k", type=Path, required=True, help="JSON lines with question and answer")
    parser.add_argument("--humaneval", type=Path, required=True, help=benchmark)
    parser.add_argument("--mt-bench", type=Path, required=True, help=benchmark)
    parser.add_argument("--spec-bench", type=Path, required=True, help="JSON lines with 'category' and a list 'turns'")
    parser.add_argument("--taskmaster", type=Path, required=True, help="JSON lines with a list 'dialog'")
    parser.add_argument("--shakespeare", type=Path, required=True, help="speeches with blank lines between")
    parser.add_argument("--python-source", type=Path, nargs="+", required=True, help="files or folders of .py")
    parser.add_argument("--documentation", type=Path, nargs="+", required=True, help="... of .html, .txt or .rst")
    parser.add_argument("--wordnet", type=Path, required=True, help="folder with data.*, index.noun and cntlist.rev")
    parser.add_argument("--leave-out", nargs="+", default=[], metavar="PATTERN", help="paths not to read: '*/test/*'")
    parser.add_argument("--judge", type=int, default=40, help="prompts a domain in judge.jsonl (default %(default)s)")
    parser.add_argument("--validation-share", type=float, default=0.02, help="of the units (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="default %(default)s")
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    warnings.simplefilter("ignore", SyntaxWarning)  # about escapes in other people's files
    first = list(held_and_free(options))
    held = [prompt for prompt in first if prompt.held_back]
    judge = judge_of(held, options.judge)
    # Not the other held-back dialogues and texts: what is like them is not what judges.
    judging = judge + [prompt for prompt in held if prompt.domain in ("math", "code", "chat")]
    rest = [prompt for prompt in first if not prompt.held_back]
    sides = split([*rest, *free(options)], judging, options)
    options.out.mkdir(parents=True, exist_ok=True)
    sides["judge"] = judge
    for side, prompts in sides.items():
        write(options.out / f"{side}.jsonl", prompts)
    report(sides)


if __name__ == "__main__":
    main()

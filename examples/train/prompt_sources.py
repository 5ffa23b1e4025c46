# SPDX-License-Identifier: MIT
"""What prompts are made of: each reader takes a file, or templates, and yields prompts and what they come from.

A prompt's unit is what it was made of: a question, a dialogue, a page, a function, or the prompt itself where it is a
filled template. A held-back unit gives no prompt to train on: a judge may use it. Which units that are does not depend
on the seed, so that two sets of prompts for training can be judged by the same ones.
"""

import ast
import hashlib
import random
import re
import textwrap
from pathlib import Path
from typing import Iterator, NamedTuple

import corpus_sources
import prompt_templates as templates
from prompt_words import LISTS, fill, lines


class Prompt(NamedTuple):
    domain: str
    messages: list[dict[str, str]]
    unit: str
    held_back: bool = False

    @property
    def asked(self) -> str:
        """What the user says; the assistant's turns are often the same sentences."""
        return "\n".join(message["content"] for message in self.messages if message["role"] == "user")

    @property
    def text(self) -> str:
        return "\n".join(f"{message['role']}: {message['content']}" for message in self.messages)


def conversation(*turns: str) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[i % 2], "content": turn.strip()} for i, turn in enumerate(turns)]


def hash_of(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def share(text: str) -> float:
    """A number from 0 to 1 that only the text decides."""
    return hash_of(text) / 2**64


def random_of(seed: int, unit: str) -> random.Random:
    """Every unit has its own, so that a source more or less changes nothing of the others."""
    return random.Random(hash_of(f"{seed} {unit}"))


# ---- records: exercises, benchmarks, dialogues ----------------------------------------------------------------------


def gsm8k(path: Path, seed: int, held_back: int = 200) -> Iterator[Prompt]:
    records = list(corpus_sources.json_lines(path))
    follow_ups = lines(templates.FOLLOW_UPS["math"])
    for i, record in enumerate(records):
        question, rng = record["question"], random_of(seed, record["question"])
        if i >= len(records) - held_back:
            yield Prompt("math", conversation(question), question, held_back=True)
            continue
        manners = ["{}\nShow your work.", "Solve this step by step.\n\n{}", "Question: {}\nAnswer:"]
        manner = rng.choice(["{}"] * 4 + manners)
        yield Prompt("math", conversation(manner.format(question)), question)
        if rng.random() < 0.12:
            answer = re.sub(r"<<[^>]*>>", "", record["answer"]).replace("#### ", "The answer is ") + "."
            yield Prompt("math", conversation(question, answer, fill(rng.choice(follow_ups), rng)), question)


def humaneval(path: Path) -> Iterator[Prompt]:
    for record in corpus_sources.json_lines(path):
        code = re.search(r"```python\n(.*?)```", record["turns"][0], re.DOTALL)
        if not code:
            raise SystemExit(f"prompts.py: {path}: a turn without a block of Python: {record['turns'][0][:60]!r}")
        text = f"Complete this function:\n```python\n{code[1].strip()}\n```"
        yield Prompt("code", conversation(text), text, held_back=True)


def mt_bench(path: Path) -> Iterator[Prompt]:
    for record in corpus_sources.json_lines(path):
        yield Prompt("chat", conversation(record["turns"][0]), record["turns"][0], held_back=True)


def beginning(text: str, most: int, least: int = 0) -> str:
    """The text up to the last end of a sentence before `most` characters; where there is none, up to a space."""
    if len(text) <= most:
        return text
    ends = [match.end() for match in re.finditer(r"[.!?][\"')\u201d]?(?=\s)", text[:most])]
    return text[: ends[-1] if ends and ends[-1] > least else text.rfind(" ", 0, most)].strip()


SPEC_BENCH = {"translation": "translation", "summarization": "summary", "qa": "question", "rag": "question"}


def spec_bench(path: Path, seed: int, longest: int = 3000) -> Iterator[Prompt]:
    """Without its exercises and without MT-Bench: those judge. A passage is also cut for other tasks."""
    for record in corpus_sources.json_lines(path):
        domain = SPEC_BENCH.get(record["category"])
        if not domain:
            continue
        text = record["turns"][0].strip()
        rng = random_of(seed, text)
        if len(text) <= longest:
            yield Prompt(domain, conversation(text), text)
        passage = text.removeprefix("Summarize:").strip()
        if record["category"] in ("summarization", "rag"):
            for kind in ("summary", "summary", "prose", "prose", "question", "question"):
                yield about(kind, beginning(passage, rng.randint(400, 1400), 200), text, rng)
        if record["category"] == "summarization" and len(text) > longest:
            yield Prompt(domain, conversation("Summarize: " + beginning(passage, rng.randint(1800, longest))), text)


def about(kind: str, passage: str, unit: str, rng: random.Random) -> Prompt:
    template = rng.choice(lines(templates.PASSAGES[kind]))
    return Prompt(kind, conversation(fill(template, rng, text=passage)), unit)


def taskmaster(path: Path, seed: int, held_back: float = 0.1) -> Iterator[Prompt]:
    """The dialogue so far, up to one of the user's turns. Many begin alike, so the beginning is the unit."""
    for record in corpus_sources.json_lines(path):
        turns = [re.sub(r"^\w+:", "", turn).strip() for turn in record["dialog"]]
        unit = " ".join(re.findall(r"\w+", turns[0].lower()))
        held = share(unit) < held_back
        rng = random_of(0 if held else seed, "\n".join(turns))
        last = rng.randrange(0, len(turns) - 1, 2)
        yield Prompt("dialogue", conversation(*turns[: last + 1]), unit, held)
        if not held and last > 0 and rng.random() < 0.5:
            yield Prompt("dialogue", conversation(turns[0]), unit)


# ---- prose ----------------------------------------------------------------------------------------------------------


def begun(text: str, rng: random.Random) -> str:
    """A third to two thirds of a text that is to be continued, up to the end of a sentence or of a word."""
    size = rng.randint(len(text) // 3, 2 * len(text) // 3)
    return beginning(text, size, size // 2) if rng.random() < 0.5 else text[: text.rfind(" ", 0, size)].strip()


def held_back_prose(text: str, unit: str) -> Prompt:
    part = begun(text, random_of(0, text))
    return Prompt("prose", conversation("Continue this text:\n\n" + part), unit, held_back=True)


def connected(text: str) -> bool:
    """Paragraphs that are sentences: no reference of names with a line on each, no history of versions."""
    paragraphs = [paragraph for paragraph in text.split("\n\n") if paragraph.strip()]
    too_short = sum(len(paragraph) < 60 for paragraph in paragraphs)
    history = re.search(r" (in|since) version ", text)
    return len(text) >= 130 * len(paragraphs) and too_short <= 1 and not history


def shakespeare(path: Path, seed: int, held_back: float = 0.1) -> Iterator[Prompt]:
    scenes = list(corpus_sources.shakespeare(path))
    for i, scene in enumerate(scenes):
        held = i >= (1 - held_back) * len(scenes)
        for document in scene.documents:
            if held:
                yield held_back_prose(document.text, scene.text)
                continue
            rng = random_of(seed, document.text)
            for template in rng.sample(lines(templates.PLAY), 2):
                goes_on = template.startswith(("Continue", "Write the next"))
                size = rng.randint(300, 1400)
                part = begun(document.text, rng) if goes_on else beginning(document.text.strip(), size, 150)
                yield Prompt("prose", conversation(fill(template, rng, text=part)), scene.text)


def documentation(path: Path, seed: int, held_back: float = 0.04) -> Iterator[Prompt]:
    for page in corpus_sources.documentation(path):
        held = share(page.text) < held_back
        for document in page.documents:
            text = document.text.strip()
            if not connected(text):
                continue
            if held:
                yield held_back_prose(text, page.text)
                continue
            rng = random_of(seed, text)
            kind = rng.choice(["summary", "prose", "question"])
            yield about(kind, beginning(text, rng.randint(250, 1300), 150), page.text, rng)


# ---- code -----------------------------------------------------------------------------------------------------------

Function = ast.FunctionDef | ast.AsyncFunctionDef

# A bug each: what is replaced, and by what.
BUGS = ((" < ", " <= "), (" <= ", " < "), (" > ", " >= "), (" + ", " - "), (" - ", " + "), (" and ", " or "),
        (" or ", " and "), (" == ", " != "), (" is not ", " is "), (" not in ", " in "), ("if not ", "if "),
        (" + 1", ""), (" - 1", ""), ("[1:]", "[:1]"), ("[0]", "[1]"), ("True", "False"), (" += ", " -= "),
        ("return ", ""), ("break", "continue"), ("min(", "max("))  # fmt: skip


def python_functions(path: Path, seed: int, longest: int = 1100) -> Iterator[Prompt]:
    """Functions and methods that fit, at the left margin; one or two prompts each."""
    text = path.read_text(encoding="utf-8")
    try:
        module = ast.parse(text)
    except SyntaxError:
        return
    source = text.splitlines(keepends=True)
    for node in ast.walk(module):
        if not isinstance(node, Function) or not 3 <= node.end_lineno - node.lineno <= 40:
            continue
        if node.name.startswith("__"):  # what those do goes without saying
            continue
        begin = min([node.lineno] + [decorator.lineno for decorator in node.decorator_list]) - 1
        code = textwrap.dedent("".join(source[begin : node.end_lineno])).rstrip()
        if len(code) <= longest:
            yield from of_function(node, code, text, random_of(seed, code))


def of_function(node: Function, code: str, unit: str, rng: random.Random) -> Iterator[Prompt]:
    docstring = ast.get_docstring(node) or ""
    words = {"code": code, "name": node.name, "arguments": ast.unparse(node.args), "docstring": docstring}
    words["proglang"] = rng.choice([other for other in LISTS["proglang"] if other != "Python"])

    def prompt(kind: str) -> Prompt:
        template = rng.choice(lines(templates.FUNCTIONS[kind]))
        return Prompt("code", conversation(fill(template, rng, **words)), unit)

    bare = without_docstring(node, code)
    if len(docstring) >= 30 and bare:
        words["head"] = code[: len(code) - len(bare)].rstrip()
        yield prompt("described")
        if rng.random() < 0.08:
            question = fill(lines(templates.FUNCTIONS["described"])[1], rng, **words)
            follow_up = fill(rng.choice(lines(templates.FUNCTIONS["next"])), rng)
            yield Prompt("code", conversation(question, f"```python\n{code}\n```", follow_up), unit)
    if rng.random() < 0.75:
        yield prompt("read")
    bugs = [(old, new) for old, new in BUGS if old in bare]
    if bugs and rng.random() < 0.3:
        old, new = rng.choice(bugs)
        places = [match.start() for match in re.finditer(re.escape(old), bare)]
        place = rng.choice(places)
        words["code"] = code[: len(code) - len(bare)] + bare[:place] + new + bare[place + len(old) :]
        yield prompt("broken")


def without_docstring(node: Function, code: str) -> str:
    """The lines of the body behind the docstring; the whole body where there is none."""
    first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
    if ast.get_docstring(node) and len(node.body) == 1:
        return ""
    return "".join(code.splitlines(keepends=True)[first.lineno - node.end_lineno - 1 :])


# ---- words ----------------------------------------------------------------------------------------------------------

# WordNet numbers its files by subject. Taken are nouns that texts which WordNet counted have at least this often.
SUBJECTS = {"idea": {4, 7, 9, 11, 12, 19, 22, 26}, "thing": {6}}
SEEN = 3
UNSUITABLE = set("""sex rape incest intercourse prostitution whore slut bastard bitch suicide nazi lynching genocide
masturbation pornography orgasm brothel nigger negro cripple slave slavery murder impotence virginity""".split())


def wordnet_nouns(folder: Path) -> dict[str, tuple[int, int, str]]:
    """For every noun the subject of its first sense, how often that was seen, and its definition."""
    seen = {}
    for line in (folder / "cntlist.rev").read_text(encoding="utf-8").splitlines():
        key, sense, count = line.split()
        lemma, _, kind = key.partition("%")
        if kind.startswith("1:") and sense == "1":
            seen[lemma] = int(count)
    senses = {}
    for line in (folder / "data.noun").read_text(encoding="utf-8").splitlines():
        if not line.startswith(" "):  # as the licence at the beginning does
            senses[line[:8]] = (int(line.split()[1]), line.partition("| ")[2].strip())
    nouns = {}
    for line in (folder / "index.noun").read_text(encoding="utf-8").splitlines():
        fields = line.split()
        if not line.startswith(" ") and re.fullmatch(r"[a-z][a-z_-]{2,}", fields[0]):
            subject, definition = senses[fields[-int(fields[2])]]
            if not UNSUITABLE & set(re.findall(r"\w+", fields[0] + " " + definition)):
                nouns[fields[0].replace("_", " ")] = (subject, seen.get(fields[0], 0), definition)
    return nouns


def add_nouns(folder: Path) -> None:
    """Gives the lists "idea" and "thing" to templates."""
    for noun, (subject, count, _) in wordnet_nouns(folder).items():
        for name, subjects in SUBJECTS.items():
            if subject in subjects and count >= SEEN and " " not in noun:
                LISTS.setdefault(name, []).append(noun)


DEFINE = lines("""
What does "{}" mean?
Define {}.
What is the meaning of the word {}?
what is {}
Explain the word "{}" and use it in a sentence.
""")


def definitions(folder: Path, seed: int, count: int) -> Iterator[Prompt]:
    """A word is asked for, and in half of them the dictionary has answered and the user goes on."""
    nouns = wordnet_nouns(folder)
    known = [noun for noun, (_, seen, _) in nouns.items() if seen] + list(nouns)[::40]
    for noun in sorted(set(known), key=lambda noun: hash_of(f"{seed} {noun}"))[:count]:
        rng = random_of(seed, noun)
        turns = [rng.choice(DEFINE).format(noun)]
        if rng.random() < 0.5:
            meaning = nouns[noun][2].partition('; "')[0]
            follow_up = fill(rng.choice(lines(templates.FOLLOW_UPS["chat"])), rng)
            turns += [f'"{noun.capitalize()}" means: {meaning}.', follow_up]
        yield Prompt("question", conversation(*turns), noun)


SUBJECT = re.compile(r"(I|you|he|she|we|they|it|his|her|my|our|their|the|there|this) ", re.IGNORECASE)


def sentences(folder: Path, seed: int, count: int) -> Iterator[Prompt]:
    """Tasks on WordNet's examples, where one is a sentence."""
    found = set()
    for part in ("noun", "verb", "adj", "adv"):
        for line in (folder / f"data.{part}").read_text(encoding="utf-8").splitlines():
            for example in re.findall(r'"([^"]+)"', line.partition("| ")[2]):
                unsuitable = UNSUITABLE & set(re.findall(r"\w+", example.lower()))
                if SUBJECT.match(example) and example.count(" ") >= 5 and not unsuitable:
                    example = example[0].upper() + example[1:].strip()
                    found.add(example if example[-1] in ".!?" else example + ".")
    for sentence in sorted(found, key=lambda sentence: hash_of(f"{seed} {sentence}"))[:count]:
        rng = random_of(seed, sentence)
        domain = rng.choice(["translation", "chat"])
        template = rng.choice(lines(templates.SENTENCES[domain]))
        yield Prompt(domain, conversation(fill(template, rng, text=sentence)), sentence)


# ---- templates ------------------------------------------------------------------------------------------------------

MANNERS = lines(r"""
{text} Please keep it short.
{text} Answer in fewer than {n 3-15}0 words.
{text} Answer in one paragraph.
{text} Use bullet points.
{text} Think step by step.
{text} Give an example.
{text}\n\nUse simple words.
{text}\n\nFormat the answer with headings.
Please help me. {text}
Hello! {text}
{text} Thank you!
I have a question. {text}
""")

GREETINGS = ("Hi", "Hello", "Good ")


def templated(domain: str, source: str, seed: int, each: int, manners: float = 0.2) -> Iterator[Prompt]:
    """Every template as often as said. Some are asked for in a certain manner, some as people type in a hurry."""
    for template in lines(source):
        for i in range(each):
            rng = random_of(seed, f"{template} {i}")
            text = fill(template, rng)
            if domain == "dialogue":
                turns = [turn.partition(": ")[2] for turn in text.splitlines()]
                yield Prompt(domain, conversation(*turns), text)
                continue
            text = text[0].upper() + text[1:]
            if rng.random() < manners and not text.startswith(GREETINGS):
                text = fill(rng.choice(MANNERS), rng, text=text)
            elif rng.random() < 0.05:
                text = text.lower().rstrip(".?")
            yield Prompt(domain, conversation(text), text)

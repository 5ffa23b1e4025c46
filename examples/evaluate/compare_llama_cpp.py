#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The example engine beside llama.cpp, in one run on one machine.

    compare_llama_cpp.py speed --target MODEL.gguf --programs FOLDER [--prompts FILE]
    compare_llama_cpp.py perplexity --target MODEL.gguf --programs FOLDER [FILE ...]

FOLDER has our programs generate and evaluate; compare_llama_cpp.sh builds them, and installs what this needs: llama-cpp-python.
With --inside they are llama and llama_bench: the same programs, whose target llama.cpp computes.
Tables are Markdown, on stdout.

How the two are made comparable:

  - llama.cpp makes the token ids, and both programs work on them. Both read the same weights, and both round activations
    to 8 bits where they multiply with them.
  - Both have so many threads, for one row and for several: llama.cpp knows n_threads and n_threads_batch.
  - Decoding is greedy, at most --tokens tokens or to the model's end of a text. Loading and the prompt are not in the times.
  - A prompt is decoded by all methods before the next one, so that a slow minute of the machine falls on all.
  - llama.cpp's plain decoding is a loop around llama_decode, which does nothing else than to look for the largest logit.
    Its prompt lookup is the one of llama-cpp-python, whose Llama.generate is timed without it as well.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import llama_cpp
import llama_cpp.llama_cpp as interface
import numpy
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What the chat template of SmolLM2-135M-Instruct adds where a conversation has no turn of the system.
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


# ---- llama.cpp -----------------------------------------------------------------------------------------------------


def runs(file):
    """Whether llama.cpp as it was built decodes the file: in a process of its own, since it may be killed."""
    probe = "import sys, llama_cpp; l = llama_cpp.Llama(sys.argv[1], n_ctx=64, verbose=False); l.eval([1, 2]); l.eval([3])"
    return subprocess.run([sys.executable, "-c", probe, str(file)], check=False, capture_output=True).returncode == 0


def leave_out_repacking(defaults=interface.llama_model_default_params):
    """Weights as they lie in the file. Llama() has no argument for it, so its defaults are changed."""

    def parameters():
        chosen = defaults()
        chosen.use_extra_bufts = False
        return chosen

    interface.llama_model_default_params = parameters


def prepare(file):
    """What is to be said about llama.cpp's build. There are machines on which its AMX kernels crash (as in
    ggml-org/llama.cpp, issue 20824); without repacked weights it does not take them."""
    about = f"llama-cpp-python {llama_cpp.__version__}."
    if runs(file):
        return about
    leave_out_repacking()
    return about + " Its kernels for repacked weights (AMX) crash on this machine and are left out."


def load(chosen, context, threads, **more):
    return llama_cpp.Llama(
        str(chosen.target),
        n_ctx=context,
        n_threads=threads,
        n_threads_batch=threads,
        flash_attn=chosen.flash_attention,
        verbose=False,
        **more,
    )


class model:
    """llama.cpp's C interface as far as decoding one text needs it."""

    def __init__(self, chosen, context, threads):
        self.llama = load(chosen, context, threads, n_batch=context)
        self.context = self.llama.ctx
        self.memory = llama_cpp.llama_get_memory(self.context)
        self.vocabulary = llama_cpp.llama_model_get_vocab(self.llama.model)
        self.batch = llama_cpp.llama_batch_init(context, 0, 1)

    def tokens(self, text, special=False):
        return self.llama.tokenize(text.encode(), add_bos=False, special=special)

    def ends(self, token):
        return llama_cpp.llama_vocab_is_eog(self.vocabulary, token)

    def decode(self, first, tokens, all_rows=False):
        """A pass over tokens at positions first, first + 1, ...; what stood there is dropped. Logits of the last row."""
        llama_cpp.llama_memory_seq_rm(self.memory, 0, first, -1)
        self.batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            self.batch.token[i] = token
            self.batch.pos[i] = first + i
            self.batch.n_seq_id[i] = 1
            self.batch.seq_id[i][0] = 0
            self.batch.logits[i] = all_rows or i + 1 == len(tokens)
        if llama_cpp.llama_decode(self.context, self.batch) != 0:
            raise RuntimeError(f"llama_decode: {len(tokens)} tokens at position {first} failed")
        llama_cpp.llama_synchronize(self.context)

    def logits(self, rows=1):
        pointer = llama_cpp.llama_get_logits(self.context)
        return numpy.ctypeslib.as_array(pointer, shape=(rows, llama_cpp.llama_vocab_n_tokens(self.vocabulary)))

    def greedy(self, prompt, most):
        """Tokens, the seconds they took, and passes."""
        self.decode(0, prompt[:-1])
        tokens, last = [], prompt[-1]
        start = time.perf_counter()
        while len(tokens) < most:
            self.decode(len(prompt) - 1 + len(tokens), [last])
            last = int(self.logits()[0].argmax())
            tokens.append(last)
            if self.ends(last):
                break
        return tokens, time.perf_counter() - start, len(tokens)

    def pass_seconds(self, prompt, sizes, turns=41):
        """Medians, by rows, of passes behind a prompt."""
        self.decode(0, prompt)
        seconds = {rows: [] for rows in sizes}
        for _ in range(turns):
            for rows in sizes:
                start = time.perf_counter()
                self.decode(len(prompt), [prompt[-1]] * rows, all_rows=True)
                seconds[rows].append(time.perf_counter() - start)
        return {rows: statistics.median(of) for rows, of in seconds.items()}

    def nats(self, tokens):
        """Sum of -log p of all tokens but the first."""
        self.decode(0, tokens[:-1], all_rows=True)
        logits = self.logits(len(tokens) - 1).astype(numpy.float64)
        largest = logits.max(axis=1)
        mass = largest + numpy.log(numpy.exp(logits - largest[:, None]).sum(axis=1))
        return float((mass - logits[numpy.arange(len(tokens) - 1), tokens[1:]]).sum())


class counted_lookup(LlamaPromptLookupDecoding):
    """It is asked once before every pass behind the prompt's."""

    passes = 0

    def __call__(self, *arguments, **named):
        self.passes += 1
        return super().__call__(*arguments, **named)


class generator:
    """Llama.generate, with prompt lookup or without."""

    def __init__(self, chosen, threads, drafted):
        self.lookup = counted_lookup(num_pred_tokens=drafted) if drafted > 0 else None
        self.llama = load(chosen, chosen.context, threads, draft_model=self.lookup)

    def greedy(self, prompt, most, ends):
        """Tokens, seconds and passes. The first token comes with the prompt's pass, so it is not among them."""
        self.llama.reset()
        tokens = []
        if self.lookup:
            self.lookup.passes = 0
        for token in self.llama.generate(prompt, temp=0.0, top_k=1, repeat_penalty=1.0):
            if not tokens:
                start = time.perf_counter()
            tokens.append(token)
            if len(tokens) > most or ends(token):
                break
        seconds = time.perf_counter() - start
        return tokens[1:], seconds, self.lookup.passes if self.lookup else len(tokens) - 1


# ---- our programs --------------------------------------------------------------------------------------------------


def run_program(command, folder):
    """What it writes with --json."""
    report = pathlib.Path(folder) / "report.json"
    done = subprocess.run([*map(str, command), "--json", str(report)], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed: {done.stderr.strip()}")
    return json.loads(report.read_text())


def decoding_of(run):
    """Tokens, seconds and passes of one of generate's runs."""
    seconds = sum(s for phase, s in run["seconds"].items() if phase != "prefill")
    return run["outputs"][0], seconds, run["target_calls"]


def evaluate(chosen, experiment, texts, folder, *flags):
    file = pathlib.Path(folder) / "texts.jsonl"
    file.write_text("".join(json.dumps({"domain": d, "tokens": t}) + "\n" for d, t in texts))
    program = chosen.programs / ("llama_bench" if chosen.inside else "evaluate")
    command = [program, experiment, "--target", chosen.target, "--prompts", file, "--texts", len(texts), *flags]
    return run_program(command, folder)[experiment]


# ---- texts ---------------------------------------------------------------------------------------------------------


def chat_prompt(messages):
    turns = list(messages)
    if turns[0]["role"] != "system":
        turns.insert(0, {"role": "system", "content": SYSTEM})
    text = "".join(f"<|im_start|>{t['role']}\n{t['content']}<|im_end|>\n" for t in turns)
    return text + "<|im_start|>assistant\n"


def json_lines(file):
    return [json.loads(line) for line in file.read_text().splitlines() if line.strip()]


def plain_text(line):
    if "messages" in line:
        return "\n\n".join(m["content"] for m in line["messages"])
    for name in ("prompt", "question", "text"):
        if name in line:
            return line[name]
    return line["turns"][0]


def read_prompts(chosen, tokens):
    """(domain, ids) of chat prompts, the domains in turn, so that the first ones are some of each."""
    by_domain = {}
    for line in json_lines(chosen.prompts):
        messages = line.get("messages") or [{"role": "user", "content": plain_text(line)}]
        by_domain.setdefault(line.get("domain", "all"), []).append(tokens(chat_prompt(messages), True))
    longest = max(map(len, by_domain.values()))
    mixed = [(d, of[i]) for i in range(longest) for d, of in by_domain.items() if i < len(of)]
    mixed = [(d, ids) for d, ids in mixed if len(ids) + chosen.tokens + 16 <= chosen.context]
    return mixed[: chosen.texts]


def read_texts(chosen, tokens):
    """(file, ids): the lines of JSON files; of others, pieces. Of all of them --texts, evenly spaced."""
    texts = []
    for file in chosen.files:
        if file.suffix == ".jsonl":
            pieces = [tokens(plain_text(line))[: chosen.piece] for line in json_lines(file)]
        else:
            ids = tokens(file.read_text())
            pieces = [ids[i : i + chosen.piece] for i in range(0, len(ids), chosen.piece)]
        texts += [(file.stem, ids) for ids in pieces if len(ids) >= min(32, chosen.piece)]
    count = min(chosen.texts, len(texts))
    return [texts[i * len(texts) // count] for i in range(count)]


# ---- tables --------------------------------------------------------------------------------------------------------


def show_status(text):
    if sys.stderr.isatty():
        print(f"\r{text:<60}", end="" if text else "\r", file=sys.stderr, flush=True)


def in_threads(count):
    return "1 thread" if count == 1 else f"{count} threads"


def print_table(title, header, rows, note):
    print(f"\n{title}\n")
    print("| " + " | ".join(header) + " |")
    print("|---|" + "--:|" * (len(header) - 1))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print("\n" + note, flush=True)


class tally:
    """Tokens, seconds and passes of a method, over prompts."""

    def __init__(self):
        self.tokens = self.passes = 0
        self.seconds = 0.0

    def add(self, runs):
        """Runs of one prompt, of which the one in the middle counts."""
        tokens, seconds, passes = sorted(runs, key=lambda run: run[1])[len(runs) // 2]
        self.tokens += len(tokens)
        self.seconds += seconds
        self.passes += passes

    def rate(self):
        return self.tokens / self.seconds


def methods_of(chosen, threads, reference, folder):
    """Functions from a prompt to what was measured of it: {name: (tokens, seconds, passes)}."""

    program = chosen.programs / ("llama" if chosen.inside else "generate")

    def ours(drafter, *flags):
        def run(prompt):
            command = [program, "--target", chosen.target, "--draft", drafter, *flags]
            command += ["--tokens", ",".join(map(str, prompt)), "--max-new-tokens", chosen.tokens]
            command += ["--temperature", 0, "--rule", "match", "--threads", threads, "--context", chosen.context]
            report = run_program(command, folder)
            return decoding_of(report["plain"]), decoding_of(report["speculative"])

        return run

    lookup = ours("lookup", "--block-size", chosen.block)

    def with_lookup(prompt):
        plain, speculative = lookup(prompt)
        return {"ours, plain": plain, f"ours, lookup of {chosen.block}": speculative}

    def theirs(drafted):
        name = f"llama-cpp-python, lookup of {drafted}" if drafted else "llama-cpp-python, Llama.generate"
        generate = generator(chosen, threads, drafted)
        return lambda prompt: {name: generate.greedy(prompt, chosen.tokens, reference.ends)}

    methods = [with_lookup]
    if chosen.draft:
        joined = ours(chosen.draft, "--join-lookup")
        methods.append(lambda prompt: {"ours, drafter and lookup": joined(prompt)[1]})
    methods.append(lambda prompt: {"llama.cpp, plain": reference.greedy(prompt, chosen.tokens)})
    return methods + [theirs(drafted) for drafted in (0, 3, 10)]


def compare_decoding(chosen, threads, reference, prompts, folder):
    methods = methods_of(chosen, threads, reference, folder)
    sums, equal, shared = {}, 0, []
    for number, (_, prompt) in enumerate(prompts):
        show_status(f"{threads} thread(s), prompt {number + 1} of {len(prompts)}")
        runs = {}
        for _ in range(chosen.repeats):
            for method in methods:
                for name, run in method(prompt).items():
                    runs.setdefault(name, []).append(run)
        for name, of in runs.items():
            sums.setdefault(name, tally()).add(of)
        ours, theirs = runs["ours, plain"][0][0], runs["llama.cpp, plain"][0][0]
        equal += ours == theirs
        shared.append(next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs))))
    show_status("")
    plain = sums["ours, plain"].rate()
    print_table(
        f"Greedy decoding, {in_threads(threads)}, {len(prompts)} prompts, at most {chosen.tokens} tokens each",
        ["", "tokens a second", "of ours, plain", "tokens a pass"],
        [[name, f"{t.rate():.1f}", f"{t.rate() / plain:.2f}", f"{t.tokens / t.passes:.2f}"] for name, t in sums.items()],
        f"Of {chosen.repeats} runs of a prompt the median; then all tokens over all seconds. The two plain decodings wrote "
        f"the same text for {equal} of {len(prompts)} prompts; in the median the first {statistics.median(shared):.0f} "
        "tokens are the same.",
    )


def compare_passes(chosen, threads, reference, prompts, folder):
    behind = [token for _, prompt in prompts for token in prompt][:100]
    found = evaluate(chosen, "passes", [("context", behind)], folder, "--threads", threads, "--context", chosen.context)
    ours = {p["rows"]: p["seconds"] for p in found["passes"]}
    theirs = reference.pass_seconds(behind, list(ours), found["turns"])
    rows = [
        [str(n), f"{1e3 * ours[n]:.2f}", f"{ours[n] / ours[1]:.2f}", f"{1e3 * theirs[n]:.2f}",
         f"{theirs[n] / theirs[1]:.2f}", f"{theirs[n] / ours[n]:.1f}"]
        for n in ours
    ]  # fmt: skip
    print_table(
        f"A pass behind {len(behind)} tokens, {in_threads(threads)}, milliseconds",
        ["rows", "ours", "of one row", "llama.cpp", "of one row", "llama.cpp's over ours"],
        rows,
        f"Medians of {found['turns']}.",
    )


# ---- commands ------------------------------------------------------------------------------------------------------


def speed(chosen):
    about = prepare(chosen.target)
    with tempfile.TemporaryDirectory() as folder:
        for threads in chosen.threads:
            reference = model(chosen, chosen.context, threads)
            prompts = read_prompts(chosen, reference.tokens)
            if not prompts:
                raise RuntimeError(f"{chosen.prompts}: no prompt fits --context {chosen.context}, expected some")
            compare_decoding(chosen, threads, reference, prompts, folder)
            compare_passes(chosen, threads, reference, prompts, folder)
    print("\n" + about)


def perplexity(chosen):
    about = prepare(chosen.target)
    reference = model(chosen, max(512, chosen.piece), max(chosen.threads))
    texts = read_texts(chosen, reference.tokens)
    with tempfile.TemporaryDirectory() as folder:
        found = evaluate(chosen, "perplexity", texts, folder, "--threads", max(chosen.threads))
    rows, all_ours, all_theirs = [], [], []

    def row(name, ours, theirs):
        tokens = sum(n for _, n in ours)
        a, b = sum(x for x, _ in ours) / tokens, sum(theirs) / tokens
        # The texts are a sample: how far would the mean difference be off with others?
        parts = numpy.array([(x - y) - (a - b) * n for (x, n), y in zip(ours, theirs)])
        margin = 1.96 * float(numpy.sqrt((parts**2).sum())) / tokens
        difference = f"{100 * (numpy.exp(a - b) - 1):+.3f}" + (f" ±{100 * margin:.3f}" if len(ours) > 1 else "") + " %"
        rows.append([name, str(len(ours)), f"{tokens:,}", f"{numpy.exp(a):.4f}", f"{numpy.exp(b):.4f}", difference])

    for domain in found["domains"]:
        ours = [(text["nats"], len(text["tokens"]) - 1) for text in domain["texts"]]
        theirs = [reference.nats(text["tokens"]) for text in domain["texts"]]
        row(domain["domain"], ours, theirs)
        all_ours += ours
        all_theirs += theirs
    if len(rows) > 1:
        row("all", all_ours, all_theirs)
    print_table(
        "Perplexity",
        ["", "texts", "tokens", "ours", "llama.cpp", "difference"],
        rows,
        f"{about} ±: half of a 95 % interval over texts.",
    )


def parse_flags():
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = flags.add_subparsers(dest="command", required=True)
    for name, run, about in (
        ("speed", speed, "Tokens a second, and what a pass costs by its rows"),
        ("perplexity", perplexity, "Of texts, ours beside llama.cpp's"),
    ):
        command = commands.add_parser(name, description=about, help=about)
        command.set_defaults(run=run)
        command.add_argument("--target", type=pathlib.Path, required=True, help="a GGUF file")
        command.add_argument("--programs", type=pathlib.Path, required=True, help="the folder of generate and evaluate")
        command.add_argument("--inside", action="store_true", help="ours is our speculation in llama.cpp, not our engine")
        command.add_argument("--threads", type=int, nargs="+", default=[2, 1], help="default: 2, then 1")
        command.add_argument("--flash-attention", action="store_true", help="for llama.cpp; off as in llama-cpp-python")
        if run is speed:
            default = ROOT / "examples/evaluate/prompts.jsonl"
            command.add_argument("--prompts", type=pathlib.Path, default=default, help="JSON lines, as for evaluate")
            command.add_argument("--texts", type=int, default=20, help="prompts, some of each domain")
            command.add_argument("--tokens", type=int, default=128, help="of an answer, at most")
            command.add_argument("--context", type=int, default=1024)
            command.add_argument("--repeats", type=int, default=3, help="runs of a prompt; the median counts")
            command.add_argument("--block", type=int, default=4, help="tokens that our lookup drafts")
            command.add_argument("--draft", help="folder of a drafter, which is joined with lookup")
        else:
            documents = sorted((ROOT / "docs").glob("*.md"))
            command.add_argument("files", type=pathlib.Path, nargs="*", default=documents,
                                 help="JSON lines, or texts, which are cut into pieces; default: docs/*.md")  # fmt: skip
            command.add_argument("--texts", type=int, default=100)
            command.add_argument("--piece", type=int, default=256, help="tokens of a text, at most")
    return flags.parse_args()


def main():
    chosen = parse_flags()
    try:
        chosen.run(chosen)
    except (OSError, RuntimeError) as problem:
        sys.exit(f"compare_llama_cpp.py: {problem}")


if __name__ == "__main__":
    main()

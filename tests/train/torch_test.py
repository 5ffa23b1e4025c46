# SPDX-License-Identifier: MIT
"""train_torch.py against `train draft`: the same texts and flags give the same gradients and weights.

The C++ program leaves AdamW's first moment in training_state.safetensors. After one step that is a tenth of the clipped
gradient. So every number of every gradient is compared, and after some steps every weight. Where SURELEAP_SMOLLM2_GGUF
names that model, and there is the package gguf, its tensors are compared the same way.

Exit status 77 (skipped) where torch or safetensors cannot be imported. Half a minute.
"""
import argparse
import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
CHECKOUT = HERE.parent.parent
SCRIPTS = CHECKOUT / "examples" / "train"
MODELS = CHECKOUT / "examples" / "models"
SKIPPED = 77

try:
    import torch
    from safetensors import safe_open
except ImportError as error:
    print(f"train.torch is skipped: {error}; {sys.executable} -m pip install torch numpy safetensors")
    sys.exit(SKIPPED)

sys.path.insert(0, str(SCRIPTS))
import record_torch  # noqa: E402
import train_torch  # noqa: E402

PROMPTS = {"prose": ["It was a dark and stormy night, and", "The king said to his daughter that"],
           "code": ["def add(a, b):\n", "import os\n\nclass Reader:\n    def"],
           "math": ["Natalia sold 48 clips in April. How many", "A farmer has 12 cows and 5 goats."],
           "chat": ["Hello, I would like to book a table", "I want to order a pizza with"]}
TARGET = ["--target", MODELS / "target"]
# From an earlier drafter of all tokens, from the target's layers for some tokens, by cross entropy alone.
CASES = {
    "start_from": ["--start-from", MODELS / "dspark"],
    "start_layer": ["--start-layer", 3, "--layers", 2, "--vocabulary", "vocabulary.safetensors", "--block-size", 5,
                    "--rank", 16, "--decay", 2, "--seed", 7, "--weight-decay", 0.3],
    "cross_entropy": ["--losses", "ce", "--no-confidence", "--decay", 0, "--start-from", MODELS / "dspark"],
}
STEPS = 8
# Of a tensor: the norm of the difference, over its norm. Seen were 3e-6 and 5e-5: 32 bits, summed in another order.
GRADIENTS = 2e-5
WEIGHTS = 4e-4  # of what the steps changed; AdamW makes much of gradients that are next to nothing


class Runs:
    def __init__(self, train: pathlib.Path, scratch: pathlib.Path):
        self.train, self.scratch = train, scratch
        lines = [{"domain": domain, "prompt": text, "completion": ""}
                 for domain, texts in PROMPTS.items() for text in texts]
        (scratch / "prompts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        for folder, texts, seed in (("recorded", 24, 1), ("unseen", 8, 9)):
            self.cpp("texts", *TARGET, "--corpus", "prompts.jsonl", "--texts", texts, "--longest", 120, "--seed", seed,
                     "--temperature", 0.8, "--top-p", 0.95, "--out", folder)
        self.cpp("vocabulary", "--recorded", "recorded", "--tokens", 300, "--out", "vocabulary.safetensors")

    def cpp(self, command: str, *arguments) -> str:
        return output([self.train, command, *arguments])

    def compare(self, name: str, arguments: list, steps: int = STEPS, but_for: tuple = ()) -> str:
        """In words, how far the two are apart. Weights are compared after several steps. config.json is the same
        `but_for` what that names."""
        first = last = self.cpp("draft", *arguments, "--steps", 1, "--out", f"{name}_1")
        if steps > 1:
            last = self.cpp("draft", *arguments, "--steps", steps, "--out", f"{name}_{steps}")
        training = torch_training(*arguments, "--steps", steps, "--out", f"{name}_torch")
        begun = {key: values.detach().clone() for key, values in training.drafter.named_parameters()}
        said = []
        for step in range(steps):
            batch = training.batch_at(step)
            report, norm = training.step(step, batch)
            said.append(f"{train_torch.in_words(report, batch.blocks)}  norm {norm.item():.2f}")
            if step == 0:  # they are clipped in place
                clipped = {key: values.grad.clone() for key, values in training.drafter.named_parameters()}
        now = {key: values.detach() for key, values in training.drafter.named_parameters()}
        for ours, theirs in ((said[0], losses_of(first)[0]), (said[-1], losses_of(last)[-1])):
            same_numbers(ours, theirs)
        moments = state(self.scratch / f"{name}_1", now, "first")
        gradients = {key: values / 0.1 for key, values in moments.items()}
        words = f"{said[0]}; {worst(clipped, gradients, GRADIENTS, 'gradients')}"
        if steps > 1:
            weights = state(self.scratch / f"{name}_{steps}", now, "values")
            moved = [{key: values[key] - begun[key] for key in now} for values in (now, weights)]
            words += f"; {worst(*moved, WEIGHTS, f'weights after {steps} steps')}"
        train_torch.write_drafter(training.chosen.out, training.drafter, training.drafted)
        same_folder(training.chosen.out, self.scratch / f"{name}_{steps}", but_for)
        return words


def output(command: list, expected: int = 0) -> str:
    done = subprocess.run(list(map(str, command)), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == expected, f"{' '.join(map(str, command))}: {done.returncode}, {done.stdout}"
    return done.stdout


def draft(case: str) -> list:
    return [*TARGET, "--recorded", "recorded", "--validation", "unseen", "--threads", 1, "--batch-tokens", 600,
            "--anchors", 0.25, "--learning-rate", 1e-3, "--warm-up", 4, *CASES[case]]


def torch_training(*arguments) -> train_torch.Training:
    chosen = train_torch.options().parse_args(["--device", "cpu", *map(str, arguments)])
    train_torch.check(chosen)
    return train_torch.Training(chosen)


def state(folder: pathlib.Path, drafter: dict[str, torch.Tensor], numbers: str) -> dict[str, torch.Tensor]:
    """The weights (`values`) or first moments (`first`) of a C++ run: one array in the order of model.safetensors."""
    with safe_open(folder / "training_state.safetensors", "pt") as stored:
        flat = stored.get_tensor(numbers)
    header = (folder / "model.safetensors").read_bytes()
    header = json.loads(header[8 : 8 + int.from_bytes(header[:8], "little")])
    names = [name for name in header if name not in ("__metadata__", "d2t")]
    names.sort(key=lambda name: header[name]["data_offsets"])
    shapes = {name: values.shape for name, values in drafter.items()}
    assert sorted(names) == sorted(shapes), f"tensors of {folder} are {sorted(names)}, expected {sorted(shapes)}"
    parts = flat.split([shapes[name].numel() for name in names])
    return {name: part.view(shapes[name]) for name, part in zip(names, parts)}


def worst(found: dict, expected: dict, most: float, what: str) -> str:
    """The largest relative difference of a tensor, in words."""
    off = {name: ((found[name] - expected[name]).norm() / expected[name].norm().clamp(min=1e-30)).item()
           for name in expected}
    name = max(off, key=off.get)
    assert off[name] <= most, f"{what} of {name} are off by {off[name]:.2g}, expected at most {most:g}"
    return f"{what} off by {off[name]:.1e} at most ({name})"


def losses_of(said: str) -> list[str]:
    """What progress lines say of losses and norms."""
    return re.findall(r"step \d+/\d+  (.*?)  rate", said)


def same_numbers(ours: str, theirs: str) -> None:
    """But for the last digit, which rounding decides."""
    pattern = re.compile(r"\d+\.(\d+)")
    for a, b in zip(pattern.finditer(ours), pattern.finditer(theirs)):
        assert abs(float(a[0]) - float(b[0])) < 1.5 * 10.0 ** -len(a[1]), f"PyTorch says {ours}, C++ {theirs}"
    assert pattern.sub("", ours) == pattern.sub("", theirs), f"PyTorch says {ours}, C++ {theirs}"


def same_folder(ours: pathlib.Path, theirs: pathlib.Path, but_for: tuple = ()) -> None:
    found, expected = (json.loads((folder / "config.json").read_text()) for folder in (ours, theirs))
    expected = {name: value for name, value in expected.items() if name not in but_for}
    assert list(found.items()) == list(expected.items()), f"config.json is {found}, expected {expected}"
    with safe_open(ours / "model.safetensors", "pt") as ours, safe_open(theirs / "model.safetensors", "pt") as theirs:
        assert sorted(ours.keys()) == sorted(theirs.keys()), f"tensors are {ours.keys()}, expected {theirs.keys()}"
        for name in ours.keys():
            a, b = ours.get_tensor(name), theirs.get_tensor(name)
            found, expected = (a.dtype, a.shape), (b.dtype, b.shape)
            assert found == expected, f"{name} is {found}, expected {expected}"


def refused(arguments: list, expected: str) -> None:
    try:
        torch_training(*arguments, "--steps", 1, "--out", "refused")
    except SystemExit as error:
        assert expected in str(error), f"expected \"{expected}\", got: {error}"
    else:
        raise AssertionError(f"{arguments} are taken, expected \"{expected}\"")


def test_program(runs: Runs) -> None:
    """From the command line: what C++ goes on from, an end by time and one by a signal, and refusals."""
    arguments = draft("start_layer")
    program = [sys.executable, SCRIPTS / "train_torch.py", "--device", "cpu", *arguments]
    said = output([*program, "--steps", 3, "--out", "program"])
    cpp = runs.cpp("draft", *arguments, "--steps", 3, "--out", "program_cpp")
    tau = [re.findall(r"tau of unseen texts.*", text) for text in (said, cpp)]
    assert len(tau[0]) == len(tau[1]) == 1, f"PyTorch says {tau[0]}, C++ {tau[1]}"
    same_numbers(tau[0][0], tau[1][0])
    runs.cpp("draft", *arguments, "--start-from", "program", "--steps", 1, "--out", "again")
    said = output([*program, "--steps", 100000, "--seconds", 6, "--out", "in_time"])
    assert "by --seconds: in_time has the weights" in said, said
    same_folder(runs.scratch / "in_time", runs.scratch / "program_cpp")
    running = subprocess.Popen(list(map(str, [*program, "--steps", 100000, "--out", "interrupted"])), text=True,
                               stdout=subprocess.PIPE)
    while not running.stdout.readline().startswith("step 1/"):
        assert running.poll() is None, f"train_torch.py ended by itself: {running.returncode}"
    running.send_signal(signal.SIGTERM)
    said, _ = running.communicate()
    assert running.returncode == 130 and "by SIGTERM" in said, f"{running.returncode}: {said}"
    same_folder(runs.scratch / "interrupted", runs.scratch / "program_cpp")
    refused([*arguments, "--head", "rnn"], "--head is rnn, expected vanilla")
    refused([*arguments, "--kind", "eagle3"], "--kind is eagle3, expected dspark")
    refused([*arguments, "--start-layer", 4], "would be layer 5 of the target")
    refused([*draft("start_from"), "--rank", 8], "markov_w1.weight to start from is [2048, 64], expected [2048, 8]")
    refused([*arguments, "--mask-token", "<none>"], "has no token <none>, expected one")
    refused([*arguments, "--start-from", MODELS / "dspark"], "tokens that are not those of --vocabulary (300)")
    refused([*arguments, "--batch-tokens", 20], "--batch-tokens is 20, expected at least")


def test_record(runs: Runs) -> str:
    """record_torch.py: of the tokens alone, what `train texts` recorded as it wrote them."""
    said = []
    for sampling in (["--temperature", 0.8, "--top-p", 0.95], ["--temperature", 1, "--top-k", 5]):
        texts = [*TARGET, "--corpus", "prompts.jsonl", "--longest", 60, *sampling]
        shutil.rmtree("theirs", ignore_errors=True)
        shutil.rmtree("ours", ignore_errors=True)
        runs.cpp("texts", *texts, "--features", "-1,1,3", "--out", "theirs")
        runs.cpp("texts", *texts, "--out", "own.safetensors")
        arguments = [*TARGET, "--texts", "own.safetensors", "--features=-1,1,3", *sampling, "--device", "cpu",
                     "--shard-tokens", 200, "--out", "ours"]
        record_torch.main(list(map(str, arguments)))
        ours, theirs = (train_torch.RecordedTexts([pathlib.Path(folder)], 2048, torch.device("cpu"))
                        for folder in ("ours", "theirs"))
        for name in ("tokens", "sizes", "prompts", "feature_layers", "domains"):
            found, expected = getattr(ours, name), getattr(theirs, name)
            assert list(map(str, found)) == list(map(str, expected)), f"{name} are {found}, expected {expected}"
        features = [torch.cat(recorded.features).float() for recorded in (ours, theirs)]
        off = ((features[0] - features[1]).norm() / features[1].norm()).item()
        shares = abs(ours.best_shares - theirs.best_shares).max()
        others = ((ours.best_tokens != theirs.best_tokens) & (theirs.best_shares > 0)).mean()  # equals may be swapped
        assert off < 2e-4 and shares < 1e-4 and others < 1e-2, (
            f"features are off by {off:.2g}, shares by {shares:.2g}, and {others:.2g} of the tokens are others")
        said.append(f"features off by {off:.1e}, shares by {shares:.1e}")
    return "; ".join(said)


def test_gguf(runs: Runs, model: str) -> str:
    """A GGUF file of Llama's architecture, whose queries and keys lie in another order."""
    (runs.scratch / "questions.jsonl").write_text(json.dumps(
        {"domain": "chat", "messages": [{"role": "user", "content": "Tell me about Rome."}]}) + "\n")
    target = ["--target", model]
    runs.cpp("texts", *target, "--corpus", "questions.jsonl", "--texts", 3, "--max-new-tokens", 40, "--out", "answers")
    arguments = [*target, "--recorded", "answers", "--mask-token", "<reponame>", "--start-layer", 29, "--block-size", 4,
                 "--rank", 8, "--batch-tokens", 400]
    return runs.compare("gguf", arguments, steps=1, but_for=("eos_token_id",))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--train", type=pathlib.Path, required=True, help="the C++ program")
    parser.add_argument("--scratch", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    train, scratch = arguments.train.resolve(), arguments.scratch.resolve()
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    os.chdir(scratch)
    torch.set_num_threads(1)  # other tests run beside this one, and threads that wait for each other burn time
    runs = Runs(train, scratch)
    for case in CASES:
        print(f"{case}: {runs.compare(case, draft(case))}", flush=True)
    print(f"test_record: {test_record(runs)}", flush=True)
    test_program(runs)
    print("test_program: passed", flush=True)
    model = os.environ.get("SURELEAP_SMOLLM2_GGUF")
    if model and importlib.util.find_spec("gguf"):
        print(f"test_gguf: {test_gguf(runs, model)}")
    else:
        print("test_gguf is skipped: it takes the package gguf, and SURELEAP_SMOLLM2_GGUF")


main()

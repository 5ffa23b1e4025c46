# SPDX-License-Identifier: MIT
"""A drafter as a folder and as a GGUF file: to_gguf.py and from_gguf.py, there and back.

The package gguf comes from PyPI into a virtual environment in the build folder. Exit status 77 (skipped) where that cannot be
had. Ten seconds, and as many to fetch the package the first time.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import venv

HERE = pathlib.Path(__file__).resolve().parent
CHECKOUT = HERE.parent.parent
SCRIPTS = CHECKOUT / "examples" / "train"
MODELS = CHECKOUT / "examples" / "models"
GGUF = "gguf~=0.19"
SKIPPED = 77


def environment(folder: pathlib.Path) -> pathlib.Path:
    """The interpreter that has the package, installed first where it is missing."""
    python = folder / "bin" / "python3"
    if subprocess.run([python, "-c", "import gguf"], stderr=subprocess.DEVNULL).returncode if python.exists() else True:
        shutil.rmtree(folder, ignore_errors=True)
        try:
            venv.create(folder, with_pip=True)
            subprocess.run([folder / "bin" / "pip", "install", "--quiet", "--retries=1", GGUF], check=True)
        except subprocess.CalledProcessError as error:
            shutil.rmtree(folder, ignore_errors=True)
            print(f"train.gguf is skipped: {GGUF} could not be installed into a virtual environment: {error}")
            sys.exit(SKIPPED)
    return python


def script(name: str, *arguments, refused: str = "") -> None:
    """Runs it; with `refused` it has to fail and say so."""
    done = subprocess.run([sys.executable, SCRIPTS / name, *map(str, arguments)], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    if refused:
        assert done.returncode != 0 and refused in done.stdout, f"expected \"{refused}\", got: {done.stdout}"
    else:
        assert done.returncode == 0, f"{name} {' '.join(map(str, arguments))}: {done.stdout}"


def safetensors(folder: pathlib.Path) -> dict[str, tuple]:
    data = (folder / "model.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    assert size % 8 == 0, size
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    spans = sorted(entry["data_offsets"] for entry in header.values())
    assert [begin for begin, _ in spans] == [0, *(end for _, end in spans[:-1])], "tensors lie one behind the other"
    assert 8 + size + spans[-1][1] == len(data), len(data)
    return {name: (entry["dtype"], entry["shape"], data[8 + size :][slice(*entry["data_offsets"])])
            for name, entry in header.items()}


def config(folder: pathlib.Path) -> dict:
    return json.loads((folder / "config.json").read_text())


def gguf_tensors(reader) -> dict[str, tuple]:
    return {t.name: (t.tensor_type.name, t.shape.tolist(), t.data.tobytes()) for t in reader.tensors}


def gguf_keys(reader) -> dict:
    return {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}


def equal(found: dict, expected: dict, what: str) -> None:
    for key in found.keys() | expected.keys():
        assert found.get(key) == expected.get(key), (
            f"{what}: {key} is {str(found.get(key))[:200]}, expected {str(expected.get(key))[:200]}")


def test_folder(scratch: pathlib.Path) -> None:
    """A folder of BF16, through a file of BF16: the same tensors, the same configuration but for what ends a text."""
    folder, file, back = MODELS / "dspark", scratch / "dspark.gguf", scratch / "dspark"
    script("to_gguf.py", folder, "--out", file, "--type", "BF16", "--type-others", "BF16")
    script("from_gguf.py", file, "--out", back, "--type", "BF16")
    equal(safetensors(back), safetensors(folder), "tensors of examples/models/dspark")
    expected = config(folder)
    assert expected.pop("eos_token_id") == 2046
    equal(config(back), expected, "config.json of examples/models/dspark")


def test_file(scratch: pathlib.Path) -> None:
    """The shipped file, through a folder of F32: weights quantised again are the same bits, and so is every key."""
    import gguf
    file, folder, back = MODELS / "smollm2-dspark.gguf", scratch / "smollm2", scratch / "smollm2.gguf"
    script("from_gguf.py", file, "--out", folder, "--target-layers", 30)
    assert safetensors(folder)["d2t"][:2] == ("I32", [16384])
    found = config(folder)
    assert found["target_layer_ids"] == [8, 17, 26] and found["num_target_layers"] == 30, found
    assert found["rms_norm_eps"] == 1e-05 and len(found["confidence_temperatures"]) == found["block_size"] == 6, found
    script("to_gguf.py", folder, "--out", back, "--type", "Q4_1")
    original, again = gguf.GGUFReader(file), gguf.GGUFReader(back)
    equal(gguf_tensors(again), gguf_tensors(original), "tensors of smollm2-dspark.gguf")
    equal(gguf_keys(again), {**gguf_keys(original), "dflash.target_block_count": 30}, "keys of smollm2-dspark.gguf")


def test_target(scratch: pathlib.Path) -> None:
    """What llama.cpp needs of the target, by either way: the tokenizer, and rows of the LM head, here the embedding."""
    import gguf
    import numpy
    file, both, folder, same = (scratch / name for name in ("target.gguf", "both.gguf", "with_head", "same.gguf"))
    rows = numpy.random.default_rng(1).standard_normal((49152, 576), numpy.float32)
    w = gguf.GGUFWriter(file, "llama")
    w.add_tokenizer_model("gpt2")
    w.add_token_list(["a", "b", "a b"])
    w.add_mask_token_id(1)
    w.add_chat_template("not needed")
    w.add_tensor("token_embd.weight", gguf.quants.quantize(rows, gguf.GGMLQuantizationType.Q8_0),
                 raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()

    original = MODELS / "smollm2-dspark.gguf"
    script("to_gguf.py", original, "--out", both, "--target", file)
    found, before = gguf.GGUFReader(both), gguf.GGUFReader(original)
    tokenizer = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a", "b", "a b"]}
    equal(gguf_keys(found), {**gguf_keys(before), **tokenizer}, "keys of the file for both")
    tensors = gguf_tensors(found)
    kind, shape, head = tensors.pop("output.weight")
    equal(tensors, gguf_tensors(before), "tensors of the file for both")
    assert (kind, shape) == ("Q4_1", [576, 16384]), (kind, shape)
    tokens = next(t.data for t in before.tensors if t.name == "d2t")
    head = gguf.quants.dequantize(numpy.frombuffer(head, numpy.uint8), gguf.GGMLQuantizationType.Q4_1)
    wrong = numpy.abs(head.reshape(16384, -1) - rows[tokens]).max()
    assert 0 < wrong < 0.3, f"rows of the LM head are off by {wrong}"  # half a step of 16, of 32 normal numbers

    script("from_gguf.py", both, "--out", folder, "--target-layers", 30)
    assert safetensors(folder)["lm_head.weight"][1] == [16384, 576]
    script("to_gguf.py", folder, "--out", same, "--type", "Q4_1", "--target", file)
    equal(gguf_tensors(gguf.GGUFReader(same)), gguf_tensors(found), "tensors of a folder with an LM head")


def test_refusals(scratch: pathlib.Path) -> None:
    import gguf

    def file(architecture: str, **keys) -> pathlib.Path:
        path = scratch / "refused.gguf"
        w = gguf.GGUFWriter(path, architecture)
        if architecture == "dflash":
            keys = {"sample_from_anchor": True} | keys
        for key, value in keys.items():
            (w.add_bool if isinstance(value, bool) else w.add_uint32)(f"dflash.{key}", value)
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()
        return path

    out = scratch / "refused"
    script("from_gguf.py", file("llama"), "--out", out, refused="the architecture is llama, expected dflash")
    script("from_gguf.py", file("dflash", sample_from_anchor=False), "--out", out, refused="behind a bonus token")
    script("from_gguf.py", file("dflash", embedding_scale=2), "--out", out, refused="there is a key dflash.embedding_scale")
    script("from_gguf.py", file("dflash"), "--out", out, refused="--target-layers tells it")
    script("from_gguf.py", file("dflash"), "--out", out, "--target-layers", 4, refused="no key dflash.embedding_length")
    script("to_gguf.py", file("dflash"), "--out", out, refused="is a file already")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--environment", type=pathlib.Path, help="made where it is missing; none: this interpreter's")
    parser.add_argument("--scratch", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    if arguments.environment:
        python = environment(arguments.environment)
        sys.exit(subprocess.run([python, __file__, "--scratch", arguments.scratch]).returncode)
    shutil.rmtree(arguments.scratch, ignore_errors=True)
    arguments.scratch.mkdir(parents=True)
    for test in (test_folder, test_file, test_target, test_refusals):
        test(arguments.scratch)
        print(f"{test.__name__}: passed")


main()

# SPDX-License-Identifier: MIT
"""What travels to a GPU (visit.py): programs for one kind of device, with everything linked in but libc and the driver.

    tests            all of tests/cuda/*.test.cpp in one program; each keeps what it defines in an unnamed namespace
    <device program> those of tests/cuda/device; nccl where NCCL is installed, whose library does not travel
    bench            bench/cuda
    golden/          the files that tests read
    peers/           with --peers: bench/cuda/peers, and what it fetches
    plan.json        names of tests and cases, so that what does not run is missed

Compiled one at a time, which takes an hour the first time, and afterwards what changed (ninja).
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/cuda/peers"))
import fetch  # noqa: E402

PEERS = ROOT / "build/cuda/peers"  # what is fetched
OBJECTS = pathlib.Path("build/cuda/visit")  # relative to ROOT, as all paths of ninja
MOST_BYTES = 24 << 20

RULES = """
rule cuda
  command = nice $nvcc -x cu -std=c++20 $optimise $arch $common $flags -MD -MF $out.d -c $in -o $out
  depfile = $out.d
  deps = gcc
rule host
  command = nice g++ -std=c++20 -O2 -Wall -Wextra $flags -MD -MF $out.d -c $in -o $out
  depfile = $out.d
  deps = gcc
rule program
  command = g++ -o $out $in -s -static-libstdc++ -static-libgcc -L$cuda/lib64 $flags -lcudart_static -ldl -lrt -lpthread
"""
# Theirs with the flags that they use, and warnings that are theirs.
PEER_SOURCES = {"ours": {"optimise": "-O3", "flags": "-Xcompiler=-fPIC"},
                "flashinfer": {"optimise": "-O3", "common": "-Xfatbin=-compress-all -w", "flags":
                               "-Xcompiler=-fPIC -use_fast_math --expt-relaxed-constexpr -Ibuild/cuda/peers/include"}}


def find_nvcc():
    found = os.environ.get("NVCC") or shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    return found if shutil.which(found) else None


def has_header(name, *flags):
    return subprocess.run(["g++", "-std=c++20", *flags, "-x", "c++", "-fsyntax-only", "-"],
                          input=f"#include <{name}>\n", text=True, capture_output=True, check=False).returncode == 0


def toolkit_of(nvcc):
    return pathlib.Path(nvcc).resolve().parents[1]


def catch_main():
    """How Catch2's main comes in: its library of version 3, or compiled for 2.13, where it is a header."""
    if has_header("catch2/catch_test_macros.hpp"):
        return "-lCatch2Main -lCatch2", []
    if not has_header("catch2/catch.hpp"):
        return None
    source = ROOT / OBJECTS / "catch_main.cpp"
    source.parent.mkdir(parents=True, exist_ok=True)
    if not source.exists():
        source.write_text("#define CATCH_CONFIG_MAIN\n#include <catch2/catch.hpp>\n")
    return "", [f"{OBJECTS}/catch_main.cpp"]


def sources(nvcc):
    """By program: CUDA sources, with how they are compiled."""
    def found(pattern):
        return sorted(str(path.relative_to(ROOT)) for path in ROOT.glob(pattern))
    tests = [path for path in found("tests/cuda/*.test.cpp") if "/emulator_" not in path]  # the emulator's own
    programs = {"tests": (tests, "-O2", "-Itests -DSURELEAP_TEST_QUICK=0"),
                "bench": (found("bench/cuda/*.cu"), "-O3", "")}
    for path in found("tests/cuda/device/*.cu"):
        if path.endswith("/nccl.cu") and not has_header("nccl.h", f"-I{toolkit_of(nvcc)}/include"):
            continue
        programs[pathlib.Path(path).stem] = ([path], "-O2", "-Itests")
    return programs


def write_ninja(nvcc, arch, catch, peers):
    library, catch_sources = catch
    libraries = {"tests": library, "nccl": "-lnccl"}
    number = arch.removeprefix("sm_")
    lines = [f"builddir = {OBJECTS}", f"nvcc = {nvcc}", f"cuda = {toolkit_of(nvcc)}",
             f"arch = -gencode arch=compute_{number},code=sm_{number}",
             "common = -Xfatbin=-compress-all -Werror all-warnings -Iinclude", RULES]

    def compiled(source, rule, variables, program, objects):
        objects.append(f"{OBJECTS}/{program}/{pathlib.Path(source).name.split('.')[0]}.o")
        lines.extend([f"build {objects[-1]}: {rule} {source}", *[f"  {k} = {v}" for k, v in variables.items()]])

    for program, (cuda_sources, optimise, flags) in sources(nvcc).items():
        objects = []
        for source in cuda_sources:
            compiled(source, "cuda", {"optimise": optimise, "flags": flags}, program, objects)
        for source in {"tests": catch_sources, "bench": ["bench/cuda/cases.cpp"]}.get(program, []):
            compiled(source, "host", {}, program, objects)
        lines += [f"build {OBJECTS}/package/{program}: program {' '.join(objects)}",
                  f"  flags = {libraries.get(program, '')}"]
    if peers:
        objects = []
        for source, variables in PEER_SOURCES.items():
            compiled(f"bench/cuda/peers/{source}.cu", "cuda", variables, "peers", objects)
        lines += [f"build {OBJECTS}/package/peers/libpeers.so: program {' '.join(objects)}",
                  "  flags = -shared -Wl,--exclude-libs,ALL"]
    file = ROOT / OBJECTS / "build.ninja"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines) + "\n")
    return file


def listed(*command):
    """What a program lists, a name a line. Catch2 2.13 ends with the number of names."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, cwd=ROOT)
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


def tests_of(program, expression):
    names = listed(program, expression, "--list-test-names-only")  # 2.13
    return names or listed(program, expression, "--list-tests", "--verbosity", "quiet")  # 3


def first_line(*command):
    return next(iter(listed(*command)), "")


def pack(package, archive, most=MOST_BYTES):
    """Bytes of the archive; RuntimeError where they are more than may travel."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    unfinished = archive.with_suffix(".part")
    with tarfile.open(unfinished, "w:xz", preset=9) as to:
        for path in sorted(package.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                to.add(path, path.relative_to(package))
    size = unfinished.stat().st_size
    if size > most:
        raise RuntimeError(f"{unfinished} has {size / 2**20:.1f} MiB, of which {most / 2**20:.0f} may travel")
    unfinished.replace(archive)
    return size


def build(archive, arch, peers):
    nvcc, catch = find_nvcc(), catch_main()
    if nvcc is None or catch is None or shutil.which("ninja") is None:
        missing = "nvcc 13" if nvcc is None else "Catch2" if catch is None else "ninja"
        print(f"visit.sh build: {missing} is not installed (NVCC names a compiler)", file=sys.stderr)
        return 2
    if peers:
        fetch.fetch(PEERS)
    ninja = write_ninja(nvcc, arch, catch, peers)
    if subprocess.run(["ninja", "-C", ROOT, "-f", ninja, "-j1"], check=False).returncode != 0:
        return 1
    package = ROOT / OBJECTS / "package"
    shutil.rmtree(package / "golden", ignore_errors=True)
    (package / "golden").mkdir()
    for path in (ROOT / "tests/golden").glob("*.safetensors"):
        shutil.copy(path, package / "golden")
    if peers:
        shutil.copy(ROOT / "bench/cuda/peers/run.py", package / "peers")
        shutil.copytree(PEERS / "vllm", package / "peers/vllm", dirs_exist_ok=True)
    else:
        shutil.rmtree(package / "peers", ignore_errors=True)
    commit = first_line("git", "rev-parse", "--short=10", "HEAD")
    if listed("git", "status", "--porcelain", "--untracked-files=no"):
        commit += " with changes"
    tests, programs = package / "tests", sources(nvcc)
    plan = {"commit": commit,
            "compiler": {"compiler": listed(nvcc, "--version")[-1], "flags": f"{programs['bench'][1]} -arch={arch}"},
            "device": [name for name in programs if name not in ("tests", "bench")],
            "files": [pathlib.Path(path).name.split(".")[0] for path in programs["tests"][0]],
            "tests": tests_of(tests, "~[replays]"), "replays": tests_of(tests, "[replays]"),
            "cases": listed(package / "bench", "--list"),
            "peers": listed(sys.executable, package / "peers/run.py", "--list") if peers else []}
    (package / "plan.json").write_text(json.dumps(plan, indent=1) + "\n")
    try:
        size = pack(package, archive)
    except RuntimeError as problem:
        print(f"visit.sh build: {problem}", file=sys.stderr)
        return 1
    for program in programs:
        print(f"{program:14} {(package / program).stat().st_size / 2**20:6.1f} MiB")
    print(f"{len(plan['tests'])} tests, {len(plan['cases'])} cases; {archive}: {size / 2**20:.1f} MiB")
    return 0

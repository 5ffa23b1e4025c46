# SPDX-License-Identifier: MIT
"""What run.py compares with, from the Python package index: FlashInfer's headers, two files of vLLM. None of it is kept
in this repository."""

import pathlib
import subprocess
import sys
import zipfile

FLASHINFER, VLLM = "flashinfer-python==0.7.2.post1", "vllm==0.33.0"
HEADERS = "flashinfer/data/include/"
MODULES = ("vllm/v1/worker/gpu/spec_decode/rejection_sampler_utils.py", "vllm/v1/worker/gpu/sample/gumbel.py")
# Wheels for the machine that is visited, whatever Python is here.
PLATFORM = ["--only-binary=:all:", "--python-version", "3.12", "--implementation", "cp",
            *[f"--platform=manylinux_2_{minor}_x86_64" for minor in (17, 28, 31, 34, 35)]]


def wheel(requirement, folder):
    """The file, downloaded once (400 MB both)."""
    pattern = requirement.split("==")[0].replace("-", "_") + "-*.whl"
    if not list(folder.glob(pattern)):
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *PLATFORM, "--dest", folder,
                        requirement], check=True)
    return next(folder.glob(pattern))


def fetch(folder):
    """folder/include with FlashInfer's headers, folder/vllm."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "include/flashinfer/sampling.cuh").exists():
        with zipfile.ZipFile(wheel(FLASHINFER, folder)) as archive:
            for name in archive.namelist():
                if name.startswith(HEADERS) and not name.endswith("/"):
                    to = folder / "include" / name.removeprefix(HEADERS)
                    to.parent.mkdir(parents=True, exist_ok=True)
                    to.write_bytes(archive.read(name))
    if not all((folder / name).exists() for name in MODULES):
        with zipfile.ZipFile(wheel(VLLM, folder)) as archive:
            for name in MODULES:
                archive.extract(name, folder)


if __name__ == "__main__":
    fetch(pathlib.Path(sys.argv[1]))

# SPDX-License-Identifier: MIT
"""What a measurement was made on and with: figures mean nothing without."""

import datetime
import pathlib
import platform
import re
import subprocess


def first_line(command, **how):
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, **how)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.splitlines()[0].strip() if done.stdout.strip() else ""


def cpu():
    """Model name with family and number, since virtual machines hide the name."""
    found = {}
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            key, colon, value = line.partition(":")
            if colon:
                found.setdefault(key.strip(), value.strip())
    except OSError:
        pass
    name = found.get("model name") or platform.processor() or platform.machine()
    if "cpu family" in found:
        name += f" (family {found['cpu family']}, model {found['model']})"
    flags = found.get("flags", found.get("Features", "")).split()
    known = [f for f in ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "asimd", "sve") if f in flags]
    return name + (", " + " ".join(known) if known else "")


def caches():
    sizes = {}
    for index in sorted(pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            kind = {"Data": "d", "Instruction": "i"}.get((index / "type").read_text().strip(), "")
            level = (index / "level").read_text().strip()
            kib = int((index / "size").read_text().strip().rstrip("K"))
        except (OSError, ValueError):
            continue
        sizes[f"L{level}{kind}"] = f"{kib // 1024} MiB" if kib >= 1024 else f"{kib} KiB"
    return ", ".join(f"{name} {size}" for name, size in sizes.items())


def gpu():
    """The first GPU and its driver, if one answers."""
    return first_line(["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"])


def from_cache(build, key):
    """An entry of CMakeCache.txt, "" in a folder that CMake does not know."""
    if not (build / "CMakeCache.txt").exists():
        return ""
    found = re.search(rf"^{key}:[A-Z]+=(.*)$", (build / "CMakeCache.txt").read_text(), re.MULTILINE)
    return found.group(1) if found else ""


def describe(build, repository):
    compiler = from_cache(build, "CMAKE_CXX_COMPILER")
    kind = from_cache(build, "CMAKE_BUILD_TYPE").upper()
    flags = " ".join(f for f in (from_cache(build, "CMAKE_CXX_FLAGS"), from_cache(build, f"CMAKE_CXX_FLAGS_{kind}")) if f)
    compiled = first_line([compiler, "--version"]) or compiler
    if (build / "compiler.txt").exists():  # of a script that calls the compiler itself (cuda/run.sh)
        compiled, flags = (build / "compiler.txt").read_text().splitlines()
    commit = first_line(["git", "rev-parse", "--short=10", "HEAD"], cwd=repository)
    if commit and first_line(["git", "status", "--porcelain", "--untracked-files=no"], cwd=repository):
        commit += " with changes"
    return {
        "cpu": cpu(),
        "cores": len([p for p in pathlib.Path("/sys/devices/system/cpu").glob("cpu[0-9]*")]) or None,
        "caches": caches(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "gpu": gpu(),
        "compiler": compiled,
        "flags": flags,
        "users_flags": "-O3 -march=native",  # rivals.cpp, in CMakeLists.txt
        "commit": commit,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    }

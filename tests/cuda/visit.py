#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A visit to a GPU in one command.

    visit.sh build                       builds for sm_90a, everything linked in, and packs build/visit/visit.tar.xz
    visit.sh run [STAGE ...]             runs what it packed, on the machine with the GPU, in at most 9.5 minutes
    visit.sh sanitize [CASE_REGEX]       the tests under compute-sanitizer, then these benchmarks, in at most 3 minutes

What travels is the repository and that archive. Results go to --out (or $OUT, or build/visit/out): results.jsonl has a
line for each as it comes, log.txt what failed said, summary.md what is printed at the end. A result is ok, failed,
timed out or NOT RUN. The exit status is 0 if all that was planned is ok, 1 if something is not, 2 if there is nothing
to run, 3 if no GPU answers.
"""

import argparse
import concurrent.futures
import glob
import json
import os
import pathlib
import re
import select
import signal
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import machine  # noqa: E402
import table  # noqa: E402
import visit_build  # noqa: E402

ARCHIVE = ROOT / "build/visit/visit.tar.xz"
AT_ONCE = 8  # tests, which wait for the host most of the time
LISTED = 40  # of those that are not ok, in the summary

# Second of the visit by which a stage must be over; what comes earlier leaves its time to those behind it.
RUN = {"selftest": 30, "tests": 140, "ceilings": 180, "verification": 270, "peers": 370, "round": 430, "profiles": 510,
       "replays": 555}
SANITIZE = {"memcheck": 45, "racecheck": 90, "synccheck": 120, "initcheck": 150, "open": 175}
CASES = {"ceilings": "^ceiling/", "verification": "^(weigh|verify|engine)/", "round": "^(round|chain|schedule)/"}
PROFILED = {"verify": "verify/rejection/bf16/V:151936/R:128/gamma:7/noise:45/ragged:0",
            "truncated": "verify/truncated/bf16/V:151936/R:128/gamma:7/noise:45/ragged:0",
            "product": "chain/product/V:151936/R:128/gamma:7",
            "round": "round/shortlist/V:151936/R:128/gamma:7/noise:45"}


class Report:
    """Results, on disk as they come. A disk that is full loses the file and not the visit: all of it is printed too."""

    def __init__(self, out):
        self.out = out
        self.results = []
        self.broken = ""
        out.mkdir(parents=True, exist_ok=True)

    def add(self, stage, name, status, why="", **more):
        line = {"stage": stage, "name": name, "status": status, **({"why": why} if why else {}), **more}
        self.results.append(line)
        us = f"  {more['us']:.1f} us" if "us" in more else ""
        print(f"{status:9} {stage}: {name}{us}{'  (' + why + ')' if why else ''}", flush=True)
        self.append("results.jsonl", json.dumps(line) + "\n")

    def log(self, name, text):
        self.append("log.txt", f"== {name}\n{text.rstrip()}\n")

    def append(self, file, text):
        try:
            with open(self.out / file, "a", encoding="utf-8") as to:
                to.write(text)
        except OSError as problem:
            if not self.broken:
                print(f"cannot write {self.out / file}: {problem}", flush=True)
            self.broken = f"{file}: {problem}"

    def names(self, stage):
        return {line["name"] for line in self.results if line["stage"] == stage}


def end(process):
    """Ends it and what it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def died(code):
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"


class Visit:
    def __init__(self, how, report, package, plan):
        self.how, self.report, self.package, self.plan = how, report, package, plan
        self.begin = time.monotonic()
        self.until = 0.0
        libraries = [*glob.glob(f"{sysconfig.get_paths()['purelib']}/nvidia/*/lib"), "/usr/local/cuda/lib64",
                     os.environ.get("LD_LIBRARY_PATH", "")]
        self.environment = {**os.environ, "SURELEAP_GOLDEN_DIR": str(package / "golden"),
                            "LD_LIBRARY_PATH": ":".join(filter(None, libraries))}

    def left(self):
        return self.until - (time.monotonic() - self.begin)

    def start(self, command, **how):
        return subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                env=self.environment, start_new_session=True, **how)

    def run(self, stage, name, command, limit):
        """One program, one result. True if it is ok."""
        limit = min(limit, self.left())
        if limit <= 0:
            return self.add(stage, name, "NOT RUN", "no time was left")
        began = time.monotonic()
        try:
            process = self.start(command, stderr=subprocess.STDOUT)
        except OSError as problem:
            return self.add(stage, name, "NOT RUN", f"{pathlib.Path(command[0]).name}: {problem.strerror}")
        try:
            output, _ = process.communicate(timeout=limit)
            status = "ok" if process.returncode == 0 else "failed"
            why = "" if status == "ok" else died(process.returncode)
            if process.returncode == 127:  # the loader's: a library is not there
                status, why = "NOT RUN", output.decode(errors="replace").strip()[-200:]
        except subprocess.TimeoutExpired:
            end(process)
            output, _ = process.communicate()
            status, why = "timed out", f"after {limit:.0f} s"
        if status != "ok":
            self.report.log(f"{stage}: {name}, {status} ({why})", output.decode(errors="replace")[-6000:])
        return self.add(stage, name, status, why, seconds=round(time.monotonic() - began, 2))

    def add(self, stage, name, status, why="", **more):
        self.report.add(stage, name, status, why, **more)
        return status == "ok"

    def run_cases(self, stage, command, names, limit):
        """A program that says in lines of JSON which case begins and what was found. If it hangs, one is lost."""
        open_names = list(names)
        while open_names:
            if self.left() <= 0:
                for name in open_names:
                    self.add(stage, name, "NOT RUN", "no time was left")
                return
            with tempfile.TemporaryFile() as problems:
                try:
                    process = self.start([*command, *open_names], stderr=problems)
                except OSError as problem:
                    for name in open_names:
                        self.add(stage, name, "NOT RUN", f"{pathlib.Path(command[0]).name}: {problem.strerror}")
                    return
                current, lost = open_names[0], None
                try:
                    for line in lines_of(process, lambda: min(limit, self.left())):
                        said = json.loads(line)
                        if "begins" in said:
                            current = said["begins"]
                        elif said["name"] in open_names:
                            open_names.remove(said["name"])
                            self.report.add(stage, said.pop("name"), said.pop("status"), said.pop("why", ""), **said)
                    if process.wait() != 0 or open_names:
                        lost = "failed", died(process.returncode)
                except TimeoutError as problem:
                    lost = "timed out", str(problem)
                except (ValueError, KeyError) as problem:
                    lost = "failed", f"said what is no result: {problem!r}"
                end(process)
                process.stdout.close()
                problems.seek(0)
                text = problems.read().decode(errors="replace")[-2000:]
            if lost and open_names:
                current = current if current in open_names else open_names[0]
                open_names.remove(current)
                self.report.log(f"{stage}: {current}, {lost[0]} ({lost[1]})", text)
                self.add(stage, current, *lost)

    # ---- stages ----------------------------------------------------------------------------------------------------

    def find_gpu(self):
        about = machine.gpu()
        self.add("environment", "GPU", "ok" if about else "failed", "" if about else "no GPU answers (nvidia-smi)",
                 gpu=about, cpu=machine.cpu(), cores=os.cpu_count(), python=sys.version.split()[0],
                 libc=" ".join(os.confstr("CS_GNU_LIBC_VERSION").split()), commit=self.plan["commit"])
        return bool(about)

    def selftest(self):
        for name in self.planned("selftest"):
            self.run("selftest", name, [self.package / name], self.how.limit)

    def catch(self, stage, at_once):
        def one(name):
            # What Catch2 takes for more than a name.
            exact = re.sub(r"([\\,\[*])", r"\\\1", name)
            self.run(stage, name, [self.package / "tests", exact, "--warn", "NoTests"], self.how.limit)
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            list(pool.map(one, self.planned(stage)))

    def cases(self, stage, names):
        self.run_cases(stage, [self.package / "bench"], names, self.how.limit)

    def profiles(self):
        for name, case in PROFILED.items():
            command = ["ncu", "--profile-from-start", "off", "--clock-control", "none", "--set", "full",
                       "--force-overwrite", "--export", self.report.out / f"profile_{name}"]
            self.run("profiles", name, [*command, self.package / "bench", "--once", case], self.how.limit)

    def peers(self):
        if not self.plan.get("peers"):
            return self.add("peers", "peers", "NOT RUN", "visit.sh build --peers packs them")
        return self.run_cases("peers", [sys.executable, self.package / "peers/run.py"], self.plan["peers"],
                              self.how.limit)

    def sanitize(self, tool):
        def one(name):
            command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", "--report-api-errors", "no",
                       "--launch-count", "60", self.package / "tests", "--filenames-as-tags"]
            self.run(tool, name, [*command, f"[#{name}.test]~[replays]", "--warn", "NoTests"], min(30, self.how.limit))
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(one, self.planned(tool)))

    def planned(self, stage):
        """Names of all results that a stage is to have."""
        if stage in CASES:
            return [name for name in self.plan["cases"] if re.search(CASES[stage], name)]
        if stage == "open":
            return [name for name in self.plan["cases"] if self.how.filter and re.search(self.how.filter, name)]
        if stage in SANITIZE:
            return self.plan["files"]
        return {"selftest": self.plan["device"], "tests": self.plan["tests"], "replays": self.plan["replays"],
                "profiles": list(PROFILED), "peers": self.plan.get("peers") or ["peers"]}[stage]

    def run_stage(self, stage):
        if stage == "selftest":
            self.selftest()
        elif stage in ("tests", "replays"):
            self.catch(stage, AT_ONCE)
        elif stage in CASES or stage == "open":
            self.cases(stage, self.planned(stage))
        elif stage == "profiles":
            self.profiles()
        elif stage == "peers":
            self.peers()
        else:
            self.sanitize(stage)

    def run_all(self, stages, seconds):
        """Every stage, each until its second. True if a GPU answers."""
        there = self.find_gpu()
        for stage, until in stages.items():
            self.until = min(until, seconds)
            if there:
                self.run_stage(stage)
            for name in self.planned(stage):
                if name not in self.report.names(stage):
                    self.add(stage, name, "NOT RUN", "its program did not come to it" if there else "no GPU answers")
        return there


def lines_of(process, limit):
    """Lines of its output; TimeoutError if the next takes longer than limit() seconds."""
    text = b""
    while True:
        seconds = max(limit(), 0.0)
        if not select.select([process.stdout], [], [], seconds)[0]:
            raise TimeoutError(f"after {seconds:.0f} s")
        more = os.read(process.stdout.fileno(), 1 << 16)
        if not more:
            return
        *whole, text = (text + more).split(b"\n")
        yield from whole


def summarise(report, stages, plan):
    """What was measured, what is not ok, and last, since logs are cut at their front, a line for each stage."""
    lines = []
    cases = table.cases_of(report.results)
    if cases:
        about = {**machine.describe(ROOT / "build/visit", ROOT), **plan["compiler"], "commit": plan["commit"]}
        rules = table.load_rules(ROOT / "bench/cuda/bars.json")
        lines += ["```", table.render({"machine": about, "complete": False, "cases": cases}, rules), "```", ""]
    short = [line for line in report.results if line["status"] != "ok"]
    lines += [f"- {line['status']}: {line['stage']}: {line['name']} ({line.get('why', '')})" for line in short[:LISTED]]
    if len(short) > LISTED:
        lines.append(f"- and {len(short) - LISTED} more in results.jsonl")
    if report.broken:
        lines.append(f"- files are incomplete: {report.broken}")
    statuses = ("ok", "failed", "timed out", "NOT RUN")
    lines += ["", f"| stage | {' | '.join(statuses)} |", "|---|---|---|---|---|"]
    for stage in ["environment", *stages]:
        of = [line["status"] for line in report.results if line["stage"] == stage]
        lines.append(f"| {stage} | {' | '.join(str(of.count(status)) for status in statuses)} |")
    print("\n" + "\n".join(lines), flush=True)
    report.append("summary.md", "\n".join(lines) + "\n")


def open_package(path, folder):
    """The folder with the programs: `path` itself, or where it is unpacked."""
    if path.is_dir():
        return path
    with tarfile.open(path) as archive:
        archive.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return pathlib.Path(folder)


def go(how):
    stages = RUN if how.command == "run" else SANITIZE
    stages = {stage: until for stage, until in stages.items() if not how.stages or stage in how.stages}
    out = pathlib.Path(how.out or os.environ.get("OUT") or ROOT / "build/visit/out")
    with tempfile.TemporaryDirectory(prefix="sureleap_visit.", ignore_cleanup_errors=True) as folder:
        try:
            report = Report(out)
            package = open_package(how.package, folder)
            plan = json.loads((package / "plan.json").read_text())
        except (OSError, ValueError, tarfile.TarError) as problem:
            print(f"visit: nothing to run: {problem}\nvisit.sh build makes the package where nvcc is", file=sys.stderr)
            return 2
        visit = Visit(how, report, package, plan)
        there = visit.run_all(stages, how.seconds)
        summarise(report, stages, plan)
        if not there:
            return 3
        return 0 if all(line["status"] == "ok" for line in report.results) and not report.broken else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="build and pack what travels")
    build.add_argument("--arch", default="sm_90a", help="the device it is for")
    build.add_argument("--peers", action="store_true", help="with vLLM's and FlashInfer's kernels, which are fetched")
    for command, seconds in (("run", 570), ("sanitize", 180)):
        there = commands.add_parser(command)
        there.add_argument("--out", help="folder for results; $OUT by default, or build/visit/out")
        there.add_argument("--package", type=pathlib.Path, default=ARCHIVE, help="the archive, or a folder like it")
        there.add_argument("--seconds", type=float, default=seconds, help="after which nothing is begun any more")
        there.add_argument("--limit", type=float, default=60.0, help="seconds of a program, or of a case")
        if command == "run":
            there.add_argument("stages", nargs="*", metavar="STAGE", help=", ".join(RUN) + "; all by default")
        else:
            there.add_argument("filter", nargs="?", default="", metavar="CASE_REGEX", help="benchmarks to run then")
    how = parser.parse_args()
    if how.command == "build":
        return visit_build.build(ARCHIVE, how.arch, how.peers)
    how.stages = getattr(how, "stages", [])
    unknown = [stage for stage in how.stages if stage not in RUN]
    if unknown:
        parser.error(f"there is no stage {', '.join(unknown)}; there are {', '.join(RUN)}")
    return go(how)


if __name__ == "__main__":
    sys.exit(main())

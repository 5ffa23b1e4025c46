#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A visit rehearsed with programs that stand in for tests, benchmarks, drivers and tools: what fails, hangs, or is
missing has its status, costs nothing else its result, and shows in the exit status. Some ten seconds."""

import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import visit  # noqa: E402
import visit_build  # noqa: E402

TESTS = """#!/bin/sh
case "$*" in
*fails*) echo "3 == 4"; exit 42 ;;
*hangs*) sleep 60 ;;
*dies*) kill -SEGV $$ ;;
esac
echo "All tests passed"
"""
BENCH = """#!/usr/bin/env python3
import json, os, sys, time
for name in sys.argv[1:]:
    if name.startswith("--"): continue
    print(json.dumps({"begins": name}), flush=True)
    if "dies" in name: sys.exit("CUDA: an illegal memory access was encountered")
    if "hangs" in name: time.sleep(60)
    if "mumbles" in name: print("no line of JSON", flush=True)
    status = "NOT RUN" if "lacks" in name else "ok"
    print(json.dumps({"name": name, "status": status, "family": name.split(":")[0].rsplit("/", 1)[0], "args": {"R": 1},
                      "us": 12.5, "spread": 0.1, "repetitions": 21, "figures": {"of_read": 0.9}}), flush=True)
"""
CASES = ["ceiling/read/KB:1", "weigh/bf16/R:1", "verify/rejection/bf16/R:1", "round/markov/R:1", "schedule/greedy/R:1"]


class Rehearsal(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = pathlib.Path(place.name)
        self.package, self.out, self.tools = (self.place / name for name in ("package", "out", "tools"))
        self.plan = {"commit": "abc", "compiler": {}, "device": ["leaf"], "files": ["chain"],
                     "tests": ["a test, with a comma"], "replays": ["many"], "cases": CASES,
                     "peers": ["peers/other"]}
        self.write(self.package / "tests", TESTS)
        self.write(self.package / "leaf", "#!/bin/sh\n")
        self.write(self.package / "bench", BENCH)
        self.write(self.package / "peers/run.py", BENCH)
        for tool in ("ncu", "compute-sanitizer"):
            self.write(self.tools / tool, "#!/bin/sh\n")
        self.write(self.tools / "nvidia-smi", "#!/bin/sh\necho 'NVIDIA H200, 143771 MiB, 580.1'\n")

    @staticmethod
    def write(path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def visit(self, *arguments, command="run", package=None, limit=30, **how):
        (self.package / "plan.json").write_text(json.dumps(self.plan))
        done = subprocess.run([HERE / "visit.sh", command, "--out", self.out, "--package", package or self.package,
                               "--limit", str(limit), *arguments], capture_output=True, text=True, check=False,
                              env={**os.environ, "PATH": f"{self.tools}:{os.environ['PATH']}"}, **how)
        self.said = done.stdout + done.stderr
        return done.returncode

    def results(self):
        lines = [json.loads(line) for line in (self.out / "results.jsonl").read_text().splitlines()]
        return {(line["stage"], line["name"]): line for line in lines}

    def statuses(self):
        return {name: line["status"] for (_, name), line in self.results().items()}

    def test_all_is_well(self):
        self.assertEqual(self.visit(), 0, self.said)
        results = self.results()
        self.assertEqual({line["status"] for line in results.values()}, {"ok"})
        self.assertEqual({stage for stage, _ in results}, {"environment", *visit.RUN})
        self.assertEqual(results["environment", "GPU"]["gpu"], "NVIDIA H200, 143771 MiB, 580.1")
        summary = (self.out / "summary.md").read_text()
        self.assertIn("| tests | 1 | 0 | 0 | 0 |", summary)
        self.assertIn("verify/rejection/bf16", summary)
        self.assertIn("of read", summary)

    def test_sanitizers_and_open_cases(self):
        self.assertEqual(self.visit("verify", command="sanitize"), 0, self.said)
        self.assertEqual(set(self.results()), {("environment", "GPU"), ("open", "verify/rejection/bf16/R:1"),
                                               *((tool, "chain") for tool in list(visit.SANITIZE)[:-1])})

    def test_the_archive_is_unpacked(self):
        (self.package / "plan.json").write_text(json.dumps(self.plan))
        archive = self.place / "visit.tar.xz"
        visit_build.pack(self.package, archive)
        self.assertEqual(self.visit(package=archive), 0, self.said)
        with self.assertRaisesRegex(RuntimeError, "may travel"):
            visit_build.pack(self.package, archive, most=100)

    def test_tests_that_fail_hang_and_die(self):
        self.plan["tests"] = ["one fails", "one hangs", "one dies", "one is fine"]
        self.assertEqual(self.visit(limit=2), 1)
        results = self.results()
        self.assertEqual([results["tests", name]["status"] for name in self.plan["tests"]],
                         ["failed", "timed out", "failed", "ok"])
        self.assertEqual(results["tests", "one fails"]["why"], "exit status 42")
        self.assertEqual(results["tests", "one dies"]["why"], "signal SIGSEGV")
        self.assertIn("3 == 4", (self.out / "log.txt").read_text())
        self.assertEqual(results["round", "round/markov/R:1"]["status"], "ok")  # the visit went on

    def test_cases_that_die_hang_mumble_and_lack_something(self):
        self.plan["cases"] = ["verify/dies/R:1", "verify/hangs/R:1", "verify/fine/R:1", "verify/mumbles/R:1",
                              "verify/lacks/R:1", "verify/last/R:1"]
        self.assertEqual(self.visit("verification", limit=2), 1)
        self.assertEqual([self.results()["verification", name]["status"] for name in self.plan["cases"]],
                         ["failed", "timed out", "ok", "failed", "NOT RUN", "ok"])
        self.assertIn("illegal memory access", (self.out / "log.txt").read_text())

    def test_no_gpu(self):
        self.write(self.tools / "nvidia-smi", "#!/bin/sh\nexit 9\n")
        self.assertEqual(self.visit(), 3)
        statuses = self.statuses()
        self.assertEqual(statuses.pop("GPU"), "failed")
        self.assertEqual(set(statuses.values()), {"NOT RUN"})
        self.assertTrue({"leaf", *CASES} <= set(statuses))

    def test_a_missing_program_tool_and_peer(self):
        (self.package / "bench").unlink()
        (self.tools / "ncu").unlink()
        del self.plan["peers"]
        self.assertEqual(self.visit(), 1)
        results = self.results()
        self.assertEqual(results["tests", "a test, with a comma"]["status"], "ok")
        self.assertEqual(results["ceilings", CASES[0]]["why"], "bench: No such file or directory")
        for stage, name in (("profiles", "verify"), ("peers", "peers"), ("round", "round/markov/R:1")):
            self.assertEqual(results[stage, name]["status"], "NOT RUN")

    def test_a_missing_library(self):
        self.write(self.package / "leaf", "#!/bin/sh\necho 'libnccl.so.2: cannot open shared object file'\nexit 127\n")
        self.assertEqual(self.visit(), 1)
        result = self.results()["selftest", "leaf"]
        self.assertEqual((result["status"], result["why"]),
                         ("NOT RUN", "libnccl.so.2: cannot open shared object file"))

    def test_no_package(self):
        self.assertEqual(self.visit(package=self.place / "nothing.tar.xz"), 2)
        self.assertIn("visit.sh build", self.said)

    def test_the_time_is_up(self):
        self.assertEqual(self.visit("--seconds", "0"), 1)
        statuses = self.statuses()
        self.assertEqual(statuses.pop("GPU"), "ok")
        self.assertEqual(set(statuses.values()), {"NOT RUN"})

    def test_a_disk_that_is_full(self):
        self.out.mkdir()
        (self.out / "results.jsonl").symlink_to("/dev/full")
        self.assertEqual(self.visit(), 1)
        self.assertIn("No space left on device", self.said)
        self.assertIn("ok        round: round/markov/R:1  12.5 us", self.said)  # printed, if not written
        self.assertIn("files are incomplete", (self.out / "summary.md").read_text())

    def test_no_room_to_unpack(self):
        self.write(self.package / "large", "x" * 100_000)
        archive = self.place / "visit.tar.xz"
        (self.package / "plan.json").write_text("{}")
        visit_build.pack(self.package, archive)
        small = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))  # noqa: E731
        self.assertEqual(self.visit(package=archive, preexec_fn=small), 2)
        self.assertIn("File too large", self.said)

    def test_run_sh_fails_without_catch2(self):
        for tool, script in (("nvcc", "exit 0"), ("g++", "exit 1")):
            self.write(self.tools / tool, f"#!/bin/sh\n{script}\n")
        done = subprocess.run([HERE / "run.sh", "--no-sanitizer"], capture_output=True, text=True, check=False,
                              env={**os.environ, "PATH": f"{self.tools}:{os.environ['PATH']}", "NVCC": "nvcc"})
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("Catch2 is not installed", done.stderr)


if __name__ == "__main__":
    unittest.main()

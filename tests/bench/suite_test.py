#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The benchmarks' driver and its table: names, medians, rules, and a width that a terminal has."""

import pathlib
import sys
import unittest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

import compare  # noqa: E402
import suite  # noqa: E402
import table  # noqa: E402


def run(name, time, unit="us", **counters):
    return {"name": name, "run_name": name, "run_type": "iteration", "repetitions": 3, "threads": 1, "iterations": 7,
            "real_time": time, "cpu_time": 99.0, "time_unit": unit, **counters}


def case(family, us, figures=None, repetitions=1, spread=0.0, **args):
    return {"program": family.split("/")[0], "name": family, "family": family, "args": args, "us": us, "spread": spread,
            "repetitions": repetitions, "figures": figures or {}}


MACHINE = {"cpu": "a processor", "cores": 2, "caches": "L1d 32 KiB", "system": "Linux", "compiler": "g++ 12",
           "flags": "-O2", "users_flags": "-O3", "commit": "abc", "date": "today"}


class Comparison(unittest.TestCase):
    def test_slower_takes_a_median_and_nearly_all_pairs(self):
        self.assertEqual(compare.judge([1.06, 1.07, 1.08, 1.06, 1.09, 1.07, 0.99], 1.05), "slower")  # one pair in seven
        self.assertEqual(compare.judge([1.06, 1.07, 1.08, 1.06, 1.09, 0.98, 0.99], 1.05), "")
        self.assertEqual(compare.judge([1.04] * 7, 1.05), "")
        self.assertEqual(compare.judge([0.9] * 7, 1.05), "faster")
        self.assertEqual(compare.judge([1.1, 1.1, 0.99], 1.05), "")  # of fewer than seven, all

    def test_table_names_the_slower(self):
        lines, found = compare.render({"a/b/V:7/manual_time": [(10.0, 12.0)] * 7, "a/c": [(10.0, 10.0)] * 7}, 1.05)
        self.assertEqual(found, ["a/b/V:7/manual_time"])
        self.assertRegex(lines[1], r"^a/b V=7 +10.0 us +12.0 us +1.200  \(1.200 .. 1.200\)  slower$")
        self.assertRegex(lines[2], r"1.000  \(1.000 .. 1.000\)$")


class Names(unittest.TestCase):
    def test_parts(self):
        self.assertEqual(suite.parse_name("verify/block/V:32000/noise:45/manual_time"),
                         ("verify/block", {"V": 32000, "noise": 45}))
        self.assertEqual(suite.parse_name("head/shortlist/512/V:7/iterations:5/real_time"),
                         ("head/shortlist/512", {"V": 7}))

    def test_smallest_case_of_every_benchmark(self):
        names = ["a/x/V:10/R:3", "a/x/V:5/R:3", "a/y/V:10", "b/list/512/V:9", "b/list/64/V:9", "b/list/64/V:99"]
        self.assertEqual(set(suite.smallest(names)), {"a/x/V:5/R:3", "a/y/V:10", "b/list/64/V:9"})

    def test_quick_cases_are_those_with_a_rule_or_the_smallest(self):
        rules = [{"of": "a/x", "where": {"V": 10}, "figure": "us", "bar": 1, "goal": 1},
                 {"of": "a/x", "where": {"V": 99}, "figure": "us", "bar": 1, "goal": 1, "quick": False},
                 {"of": "b/z", "where": {"V": 9}, "figure": "time", "over": "b/base", "bar": 1, "goal": 1}]
        names = ["a/x/V:5", "a/x/V:10", "a/x/V:99", "a/y/V:5", "a/y/V:10", "b/z/V:9", "b/base/V:9", "b/base/V:99"]
        self.assertEqual(set(suite.asked_for(names, rules)), {"a/x/V:10", "a/y/V:5", "b/z/V:9", "b/base/V:9"})

    def test_programs_in_the_order_of_the_rules(self):
        rules = [{"of": "verify/block"}, {"of": "head/x"}]
        self.assertEqual(suite.in_order(["engine_kernels", "head", "verify", "a"], rules),
                         ["verify", "head", "a", "engine_kernels"])


class Merging(unittest.TestCase):
    def test_medians_and_spread(self):
        report = {"benchmarks": [run("s/w/V:3", 10, "ms", vs_read=1.5), run("s/w/V:3", 30, "ms", vs_read=1.1),
                                 run("s/w/V:3", 20, "ms", vs_read=1.2),
                                 {**run("s/w/V:3", 5), "run_type": "aggregate"}]}
        merged, = suite.merge("s", ["s/w/V:3"], report)
        self.assertEqual((merged["us"], merged["spread"], merged["repetitions"]), (20000.0, 1.0, 3))
        self.assertEqual((merged["family"], merged["args"]), ("s/w", {"V": 3}))
        self.assertEqual(merged["figures"], {"vs_read": 1.2})

    def test_a_counter_of_the_time_comes_before_the_mean_and_names_keep_their_order(self):
        report = {"benchmarks": [run("s/ms", 50, "s", ms=3.0), run("s/us", 50, us=40.0)]}
        merged = suite.merge("s", ["s/us", "s/ms"], report)
        self.assertEqual([m["us"] for m in merged], [40.0, 3000.0])
        self.assertEqual([m["figures"] for m in merged], [{}, {}])

    def test_a_benchmark_that_failed_is_an_error(self):
        report = {"benchmarks": [{**run("s/w", 1), "error_occurred": True, "error_message": "no model"}]}
        with self.assertRaisesRegex(RuntimeError, "no model"):
            suite.merge("s", ["s/w"], report)


class Rules(unittest.TestCase):
    def test_a_rule_is_about_its_cases_alone(self):
        rule = {"of": "verify/block", "where": {"V": 9}, "figure": "vs_read", "bar": 2, "goal": 1}
        figures = {"vs_read": 1.5}
        for about, expected in ((case("verify/block", 1, figures, V=9), 1.5),
                                (case("verify/block/poor", 1, figures, V=9, noise=2), 1.5),
                                (case("verify/blocks", 1, figures, V=9), None),
                                (case("verify/block", 1, figures, V=8), None),
                                (case("verify/block", 1, figures), None),
                                (case("verify/block", 1, V=9), None)):
            self.assertEqual(table.value(rule, about, [about]), expected)

    def test_times(self):
        about = case("a/b", 2500.0)
        self.assertEqual(table.value({"of": "a", "figure": "us"}, about, []), 2500.0)
        self.assertEqual(table.value({"of": "a", "figure": "ms"}, about, []), 2.5)

    def test_times_beside_another_benchmark_of_equal_arguments(self):
        slow = case("a/slow", 80.0, {"rows": 2.0}, V=9, noise=1)
        cases = [case("a/fast", 77.0, {"rows": 5.0}, V=9, noise=2), case("a/fast", 10.0, {"rows": 5.0}, V=9, noise=1)]
        over = {"of": "a/slow", "figure": "time", "over": "a/fast"}
        self.assertEqual(table.value(over, slow, cases), 8.0)
        self.assertEqual(table.value({**over, "per": "rows"}, slow, cases), 20.0)
        under = {"of": "a/fast", "figure": "time", "under": "a/slow", "requests": 4}
        self.assertEqual(table.value(under, cases[1], [slow]), 32.0)
        self.assertIsNone(table.value(over, slow, [slow]))

    def test_verdicts(self):
        less = {"bar": 2.0, "goal": 1.0}
        self.assertEqual([table.judge(less, x) for x in (0.9, 1.0, 1.1, 2.0, 2.1)],
                         ["goal", "goal", "met", "met", "short"])
        more = {"bar": 5.0, "goal": 9.0, "more": True}
        self.assertEqual([table.judge(more, x) for x in (4.9, 5.0, 9.0)], ["short", "met", "goal"])

    def test_the_rules_that_ship(self):
        rules = table.load_rules(BENCH / "bars.json")
        self.assertTrue(rules)
        for rule in rules:
            self.assertLessEqual(rule.keys(), {"of", "where", "figure", "over", "under", "per", "requests", "called",
                                               "bar", "goal", "more", "quick"}, rule)
            self.assertEqual(rule["figure"] == "time", "over" in rule or "under" in rule, rule)
            # A goal asks for more than a bar, in the direction of the rule.
            self.assertEqual(table.judge(rule, rule["goal"]), "goal", rule)
            self.assertEqual(table.judge(rule, rule["bar"]), "met", rule)


class Text(unittest.TestCase):
    def test_numbers(self):
        for x, text in ((0.0123, "0.0123"), (1.306, "1.31"), (53.04, "53.0"), (152.6, "153"), (15000, "15,000"),
                        (0, "0"), (float("nan"), "-"), (None, "-")):
            self.assertEqual(table.number(x), text)
        for us, text in ((0.3, "300 ns"), (91.24, "91.2 us"), (2520.0, "2.52 ms"), (2.5e6, "2.50 s")):
            self.assertEqual(table.in_time(us), text)

    def test_the_table(self):
        rules = [{"of": "verify/block", "where": {"V": 9}, "figure": "vs_read", "bar": 1.3, "goal": 1.1},
                 {"of": "verify/block", "where": {"V": 9}, "figure": "vs_scalar", "bar": 7, "goal": 60, "more": True},
                 {"of": "head/markov", "figure": "us", "bar": 1, "goal": 0.5}]
        cases = [case("verify/block", 91.0, {"vs_read": 1.05, "vs_scalar": 53.0, "GB/s": 40.0}, 3, 0.021, V=9),
                 case("verify/block", 30.0, {"vs_read": 1.45}, 3, 0.5, V=8)]
        lines = table.render({"machine": MACHINE, "complete": True, "cases": cases}, rules).splitlines()
        measured, *asked = (line for line in lines if "V=9" in line)
        self.assertRegex(measured, r"91\.0 us +2 % +1\.05 +53\.0 +40\.0 GB/s$")
        self.assertRegex(asked[0], r"^verify/block V=9 +x read +1\.05 +<= 1\.3 +<= 1\.1 +goal$")
        self.assertRegex(asked[1], r"^verify/block V=9 +scalar +53\.0 +>= 7 +>= 60 +met$")
        self.assertRegex(next(line for line in lines if "V=8" in line), r"30\.0 us +50 % +1\.45$")
        self.assertNotIn("Eigen ", lines[5])  # nobody measured it
        self.assertIn("asked 2: 1 reach the goal, 1 the bar, 0 fall short", lines)
        self.assertIn("not measured: head/markov", lines)
        part = table.render({"machine": MACHINE, "complete": False, "cases": cases}, rules)
        self.assertNotIn("not measured", part)

    def test_a_benchmark_stands_in_one_place(self):
        cases = [case("a/x", 1, V=8), case("a/y", 1, V=8), case("a/x", 1, V=9), case("a/y", 1, V=9)]
        lines = table.render({"machine": MACHINE, "complete": False, "cases": cases}, []).splitlines()
        self.assertEqual([line.split()[0] for line in lines if line.startswith(("a/", "  V"))],
                         ["a/x", "V=8", "V=9", "a/y", "V=8", "V=9"])
        self.assertFalse([line for line in lines if line.startswith("asked ")])

    def test_the_table_fits_a_terminal(self):
        figures = {"vs_read": 1.234, "vs_scalar": 123.4, "vs_eigen": 12.34, "vs_heap": 3.1, "GB/s": 40.0, "rows": 4.44,
                   "us_request": 1234.5, "head_us": 123456.0}
        rules = [{"of": "verify/given", "figure": key, "bar": 1.25, "goal": 1.15} for key in ("vs_read", "us", "vs_eigen")]
        cases = [case("verify/given_normaliser", 123456.0, figures, 5, 0.123, V=151936, noise=200, batch=32)]
        for line in table.render({"machine": MACHINE, "complete": True, "cases": cases}, rules).splitlines():
            self.assertLessEqual(len(line), table.COLUMNS, line)


if __name__ == "__main__":
    unittest.main()

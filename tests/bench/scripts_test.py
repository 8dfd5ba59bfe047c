"""Runs the scripts of this folder that need no other engine and no root.

The traces and models are made by the test. It compares the scripts' output with that of the
program. offload_plots.py is skipped if matplotlib is not installed. compare.py needs
llama-cpp-python and is not tested.
"""

import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

BENCH = pathlib.Path("tests/bench").absolute()
TIDEPOOL = pathlib.Path(os.environ["TIDEPOOL_BINARY"]).absolute()
MAKE_TRACES = pathlib.Path(os.environ["MAKE_TRACES"]).absolute()
MAKE_SYNTHETIC = pathlib.Path(os.environ["MAKE_SYNTHETIC"]).absolute()


def run(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=600)


def names(folder):
    return {path.name.removesuffix(".jsonl.zst") for path in folder.iterdir()}


class ScriptTest(unittest.TestCase):

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def subfolder(self, name):
        (self.folder / name).mkdir()
        return self.folder / name

    def run_well(self, *command):
        result = run(*command)
        self.assertEqual(result.returncode, 0, f"{command}\n{result.stdout}{result.stderr}")
        return result.stdout

    def run_script(self, script, *arguments):
        return self.run_well(sys.executable, BENCH / script, *arguments)

    def make_traces(self, use, seed, name=None):
        folder = self.subfolder(name or f"{use}{seed}")
        self.run_well(MAKE_TRACES, folder, use, seed)
        return folder


class TracesTest(ScriptTest):

    def replay(self, trace, policies, *flags):
        """{policy: [hit rate of each share]}"""
        report = json.loads(self.run_well(TIDEPOOL, "replay", "--trace", trace, "--slots", "25%,50%", "--policy",
                                          policies, "--json", *flags))
        return {policy: [result["hit_rate"] for result in report["results"] if result["policy"] == policy]
                for policy in policies.split(",")}

    def test_traces_follow_from_use_and_seed(self):
        design, held_out = self.make_traces("design", 5), self.make_traces("held-out", 5)
        self.assertIn("few", names(design))
        self.assertIn("mixtral", names(held_out))
        self.assertFalse(names(design) & names(held_out))
        self.assertEqual(names(self.make_traces("models", 5)), {"qwen3-30b-a3b"})
        again, other = self.make_traces("design", 5, "again"), self.make_traces("design", 6)
        for name in names(design):
            trace = f"{name}.jsonl.zst"
            self.assertEqual((again / trace).read_bytes(), (design / trace).read_bytes())
            self.assertNotEqual((other / trace).read_bytes(), (design / trace).read_bytes())
        refused = run(MAKE_TRACES, self.folder, "design,held-out", 5)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("neither design nor held-out", refused.stderr)

    def test_the_table_has_the_counts_of_replay(self):
        trace = self.make_traces("design", 5) / "few.jsonl.zst"
        chosen = self.subfolder("chosen")
        shutil.copy(trace, chosen)
        out = self.run_script("replay_table.py", "--tidepool", TIDEPOOL, "--traces", chosen, "--shares", "25,50",
                              "--json", self.folder / "rows.json")
        rows = json.loads((self.folder / "rows.json").read_text())
        self.assertEqual([(row["trace"], row["share"]) for row in rows], [("few", 25), ("few", 50)])
        counted = self.replay(trace, "adaptive,lru,belady")
        every_step = self.replay(trace, "tide", "--refresh-interval", "1")["tide"]
        ratios, optimum = [], []
        for i, row in enumerate(rows):
            for policy, rates in counted.items():
                self.assertEqual(row[policy], rates[i])
            best = self.replay(trace, "tide", "--refresh-interval", row["interval"])["tide"]
            self.assertEqual(row["tide"], best[i])
            self.assertGreaterEqual(row["tide"], every_step[i])
            self.assertLess(row["adaptive"], row["belady"])
            ratios.append(row["adaptive"] / max(row["lru"], row["tide"]))
            optimum.append(row["adaptive"] / row["belady"])
            self.assertIn(f"| few | {row['share']:g} % | {row['lru']:.3f} | {row['tide']:.3f} ({row['interval']}) | "
                          f"{row['adaptive']:.3f} | {row['belady']:.3f} | {ratios[-1]:.3f} |", out)
        self.assertIn(f"mean {sum(ratios) / 2:.4f}, least {min(ratios):.4f}; against belady: mean {sum(optimum) / 2:.4f}",
                      out.splitlines()[-1])

    @unittest.skipUnless(importlib.util.find_spec("matplotlib") and shutil.which("zstd"), "no matplotlib, or no zstd")
    def test_hits_are_drawn(self):
        picture = self.folder / "hits.svg"
        self.run_script("offload_plots.py", "hits", "--tidepool", TIDEPOOL, "--traces", self.make_traces("design", 5),
                        "--names", "few,cycle", "--out", picture)
        text = picture.read_text()
        for word in ("few", "cycle", "adaptive", "belady", "hit rate"):
            self.assertIn(word, text)


class ModelTest(ScriptTest):

    def setUp(self):
        super().setUp()
        self.model = self.folder / "model.gguf"
        self.run_well(MAKE_SYNTHETIC, "--moe", "tiny-moe", "--type", "Q4_K", "--out", self.model)

    def compare_bits(self, tidepool):
        return run(sys.executable, BENCH / "offload_bits.py", self.model, "--tokens", 40, "--vocabulary", 290,
                   "--memory", "80%,45%", "--tidepool", tidepool, "--scratch", self.folder)

    def test_bits_are_the_same_under_two_budgets(self):
        result = self.compare_bits(TIDEPOOL)
        self.assertEqual(result.returncode, 0, result.stderr)
        said = re.search(r"80% and 45%: (\d+) files of every layer .* same to the last bit", result.stdout)
        # Three layers with two parts each, the embedding, the norm and the logits.
        self.assertGreaterEqual(int(said[1]), 3 * 2 + 2, result.stdout)

    def test_a_bit_that_differs_is_named(self):
        liar = self.folder / "liar"
        liar.write_text(f"""#!{sys.executable}
import pathlib, subprocess, sys
subprocess.run(["{TIDEPOOL}", *sys.argv[1:]], check=True)
if "lru" in sys.argv:
    part = sorted(pathlib.Path(sys.argv[sys.argv.index("--dump") + 1]).iterdir())[1]
    data = bytearray(part.read_bytes())
    data[-1] ^= 1
    part.write_bytes(data)
    print("changed " + part.name)
""")
        liar.chmod(0o755)
        result = self.compare_bits(liar)
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        changed = re.search(r"changed (\S+)", result.stdout)[1]
        self.assertIn(f"{changed} differs between 80% and 45%", result.stderr)

    def bench(self, *arguments):
        return json.loads(self.run_script("offload_bench.py", self.model, "--tidepool", TIDEPOOL, "--threads", 1,
                                          "--generate", 6, "--json", *arguments))

    def test_decoding_under_a_budget_is_measured_once(self):
        self.run_well(TIDEPOOL, "pack", "--model", self.model)
        try:
            os.close(os.open(f"{self.model}.tidepack", os.O_RDONLY | os.O_DIRECT))
        except OSError:
            self.skipTest("the scratch folder's file system has no O_DIRECT")
        flags = ("--no-peer", "--limit", 0, "--expert-memory", "60%", "--policy", "adaptive,lru", "--readers", "threads",
                 "--prompt", "24", "--probe-seconds", 0.1, "--rounds", 2, "--data", self.folder / "data.jsonl")
        report = self.bench(*flags)
        kept = report["measurements"]
        decoded = [record for record in kept if record["test"] == "decode"]
        self.assertEqual(sorted((record["round"], record["side"]) for record in decoded),
                         [(n, side) for n in (0, 1) for side in ("adaptive, threads", "lru, threads")])
        self.assertEqual([record["round"] for record in kept if record["test"] == "pp24"], [0, 1])
        for record in decoded:
            self.assertGreater(record["tokens_per_s"], 0)
            self.assertGreater(record["missed_bytes_per_token"], 0)
            self.assertTrue(0 < record["hit_rate"] < 1, record)
        # The number of misses does not depend on times.
        rates = {(record["side"], record["hit_rate"]) for record in decoded}
        self.assertEqual(len(rates), 2, rates)
        low, median, high = report["summary"]["threads: adaptive over lru"]["quartiles"]
        self.assertTrue(0 < low <= median <= high)
        self.assertEqual(self.bench(*flags)["measurements"], kept)

    def test_tiers_that_read_nothing_are_measured(self):
        report = self.bench("--resident", "--rounds", 1)
        self.assertEqual({record["side"] for record in report["measurements"]}, {"100%", "auto"})
        self.assertEqual(list(report["summary"]), ["tg6: with tiers over without"])


if __name__ == "__main__":
    unittest.main()

"""Runs the commands of docs/gpu.md that need neither a GPU nor CUDA's compiler, and checks the rest."""

import json
import os
import pathlib
import re
import shlex
import subprocess
import tempfile
import unittest

RUNFILES = pathlib.Path.cwd()
PAGE = RUNFILES / "docs" / "gpu.md"
TIDEPOOL = RUNFILES / "service" / "tidepool"
MAKE_TRACES = RUNFILES / "tests" / "bench" / "make_traces"
COSTS = RUNFILES / "docs" / "gpu_costs_h200.json"
MODEL = RUNFILES / "tests" / "golden" / "tiny" / "llama_f32.gguf"


def commands():
    for block in re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        yield from (shlex.split(line) for line in block.splitlines() if line.strip())


def run(*words, **options):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=120, **options)


class GpuPageTest(unittest.TestCase):

    def test_every_command_is_known(self):
        known = {"tools/setup": "--cuda", "bazel build": "--config=cuda", "bazel run": "//tests/bench:make_traces",
                 "tidepool serve": "cuda", "tidepool inspect": "cuda", "tidepool replay": "docs/gpu_costs_h200.json",
                 "tools/gpu_check": "--pack"}
        named = {}
        for words in commands():
            named[words[0] if "/" in words[0] else " ".join(words[:2])] = words
        self.assertEqual(set(named), set(known))
        for name, words in named.items():
            self.assertIn(known[name], words)

    def test_the_tables_have_the_predictions_of_replay(self):
        with tempfile.TemporaryDirectory() as folder:
            lines = [[word.replace("/tmp", folder) for word in words] for words in commands()]
            made = next(words for words in lines if "//tests/bench:make_traces" in words)
            result = run(MAKE_TRACES, *made[made.index("--") + 1:])
            self.assertEqual(result.returncode, 0, result.stderr)
            replay = next(words[1:] for words in lines if words[:2] == ["tidepool", "replay"])
            self.check_policies(replay)
            self.check_assumptions(pathlib.Path(folder), replay)

    def replay(self, *words):
        result = run(TIDEPOOL, *words, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)["results"]

    def check_policies(self, command):
        rows = re.findall(r"^\| (\w+) \| (\d+) % \| ([\d.]+) \| ([\d.]+) \| (\d+) % \| (\d+) % \|", PAGE.read_text(),
                          re.MULTILINE)
        results = {(result["policy"], round(100 * result["slots_total"] / (48 * 128))): result
                   for result in self.replay(*command)}
        self.assertEqual({(policy, int(slots)) for policy, slots, *_ in rows}, set(results))
        self.assertEqual(len(rows), 16)
        for policy, slots, hit_rate, speed, on_cpu, copied in rows:
            with self.subTest(policy=policy, slots=slots):
                result = results[policy, int(slots)]
                misses = max(1, result["misses"])
                self.assertAlmostEqual(result["hit_rate"], float(hit_rate), delta=0.01)
                self.assertAlmostEqual(result["tokens_per_s"] / float(speed), 1, delta=0.03)
                self.assertAlmostEqual(100 * result["computed_on_cpu"] / misses, int(on_cpu), delta=3)
                self.assertAlmostEqual(100 * result["copied"] / misses, int(copied), delta=3)

    def check_assumptions(self, folder, command):
        changed = folder / "costs.json"
        trace = command[command.index("--trace") + 1]
        rows = re.findall(r"^\| ([\d.]+e9) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", PAGE.read_text(), re.MULTILINE)
        self.assertEqual([row[0] for row in rows], ["12.5e9", "25e9", "50e9"])
        for bandwidth, *speeds in rows:
            for cpu_expert_us, speed in zip((20, 40, 80), speeds):
                changed.write_text(json.dumps({**json.loads(COSTS.read_text()), "copy_bytes_per_s": float(bandwidth),
                                               "cpu_expert_us": cpu_expert_us}))
                with self.subTest(copy_bytes_per_s=bandwidth, cpu_expert_us=cpu_expert_us):
                    result, = self.replay("replay", "--trace", trace, "--device-costs", changed, "--slots", "50%",
                                          "--policy", "adaptive")
                    self.assertAlmostEqual(result["tokens_per_s"] / float(speed), 1, delta=0.03)

    def test_the_costs_are_those_of_the_page(self):
        costs = json.loads(COSTS.read_text())
        del costs["about"]
        named = dict(re.findall(r"^\| `(\w+)` \| ([\d.e]+) \|", PAGE.read_text(), re.MULTILINE))
        self.assertEqual({name: float(value) for name, value in named.items()}, costs)

    def test_setup_knows_the_flag(self):
        self.assertIn("--cuda", run(RUNFILES / "tools" / "setup", "--help").stdout)

    def test_a_program_without_gpu_code_says_so(self):
        result = run(TIDEPOOL, "logits", "--model", MODEL, "--tokens", "1,2", "--device", "cuda", "--out", os.devnull)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("build it with --config=cuda", result.stderr)

    def test_gpu_check_needs_a_gpu(self):
        script = RUNFILES / "tools" / "gpu_check"
        for words in commands():
            if words[0] == "tools/gpu_check":
                self.assertIn(words[1], run(script, "--help").stdout)
        result = run("/usr/bin/python3", script, "--steps", "ops", env={"PATH": "/nowhere"})
        self.assertEqual(result.returncode, 77, result.stderr)
        self.assertIn("no NVIDIA GPU", result.stderr)

    def test_gpu_check_names_unknown_steps(self):
        result = run(RUNFILES / "tools" / "gpu_check", "--steps", "opps")
        self.assertEqual(result.returncode, 2)
        self.assertIn("opps", result.stderr)


if __name__ == "__main__":
    unittest.main()

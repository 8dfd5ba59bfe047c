"""Runs the commands of docs/policy.md, on one of the traces that they make.

bazel is replaced by the programs that it would run; policy_bench runs for a moment only. policy_plot.py needs
matplotlib, and is left out without it.
"""

import importlib.util
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

RUNFILES = pathlib.Path.cwd()
PAGE = RUNFILES / "docs" / "policy.md"
TIDEPOOL = RUNFILES / "service" / "tidepool"
PROGRAMS = {"//tests/bench:make_traces": [RUNFILES / "tests" / "bench" / "make_traces"],
            "//tests/bench:policy_bench": [RUNFILES / "tests" / "bench" / "policy_bench", "--benchmark_min_time=0.01"]}
KEPT_TRACE = "few.jsonl.zst"


class PolicyPageTest(unittest.TestCase):

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.page = PAGE.read_text()

    def run_line(self, line):
        words = shlex.split(line.replace("/tmp/", f"{self.folder}/").replace(".cache/bazel-bin/service/tidepool",
                                                                              str(TIDEPOOL)))
        if words[:2] == ["bazel", "run"]:
            words = PROGRAMS[words[3]] + words[5:]
        elif words[0] == "python3":
            words[0] = sys.executable
        result = subprocess.run([str(word) for word in words], cwd=RUNFILES, capture_output=True, text=True, timeout=600)
        self.assertEqual(result.returncode, 0, f"{line}\n{result.stdout}{result.stderr}")
        return result.stdout

    def test_every_command_runs(self):
        block = re.search(r"^```sh\n(.*?)^```$", self.page, re.MULTILINE | re.DOTALL)[1]
        outputs = {}
        for line in block.splitlines():
            if "policy_plot.py" in line and not importlib.util.find_spec("matplotlib"):
                continue
            outputs[line] = self.run_line(line)
            if "make_traces" in line:
                for trace in (self.folder / "traces").iterdir():
                    if trace.name != KEPT_TRACE:
                        trace.unlink()
        self.assertEqual([name for name in ("make_traces", "replay_table", "policy_bench")
                          if not any(name in line for line in outputs)], [])
        table = next(output for line, output in outputs.items() if "replay_table" in line)
        self.assertIn("adaptive against the better of lru and tide: mean ", table)

    def test_the_picture_exists(self):
        for picture in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", self.page):
            self.assertTrue(os.path.exists(PAGE.parent / picture), picture)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

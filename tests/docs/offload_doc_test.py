"""Runs every command of docs/offload.md, unchanged, against a server of a small model.

The test changes only what a reader of the page would change: the port, the names of the binaries,
and the folder.
"""

import os
import pathlib
import re
import select
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

RUNFILES = pathlib.Path.cwd()
PAGE = RUNFILES / "docs" / "offload.md"
TIDEPOOL = RUNFILES / "service" / "tidepool"
MODEL = RUNFILES / "tests" / "golden" / "tiny" / "serving_qwen3moe_f16.gguf"
GRPCURL = os.environ["TIDEPOOL_GRPCURL"]
ADDRESS = "127.0.0.1:50051"


def commands(text):
    for block in re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line.strip():
                yield line


class OffloadPageTest(unittest.TestCase):

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        model = self.folder / "model.gguf"
        shutil.copy(MODEL, model)
        trace = self.folder / "trace.jsonl.zst"
        made = self.run_words([str(TIDEPOOL), "bench", "--model", str(model), "-p", "20", "-n", "20",
                               "-r", "1", "--expert-memory", "75%", "--trace-experts", str(trace)])
        self.assertEqual(made.returncode, 0, made.stderr)
        self.server = subprocess.Popen(
            [str(TIDEPOOL), "serve", "--model", str(model), "--store", ":memory:",
             "--listen", "127.0.0.1:0", "--expert-memory", "75%"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.addCleanup(self.server.stdout.close)
        self.addCleanup(self.server.wait)
        self.addCleanup(self.server.terminate)
        self.address = self.read_address()

    def read_address(self):
        deadline, seen = time.monotonic() + 120, b""
        while time.monotonic() < deadline:
            if not select.select([self.server.stdout], [], [], 1)[0]:
                continue
            chunk = os.read(self.server.stdout.fileno(), 65536)
            seen += chunk
            found = re.search(rb"127\.0\.0\.1:([1-9]\d*)\b.*\n", seen)
            if found:
                return f"127.0.0.1:{found.group(1).decode()}"
            if not chunk:
                break
        raise AssertionError(f"serve printed no address: {seen.decode(errors='replace')}")

    def run_words(self, words):
        return subprocess.run(words, cwd=self.folder, capture_output=True, text=True, timeout=120)

    def test_every_command_runs(self):
        programs = {"tidepool": str(TIDEPOOL), "grpcurl": GRPCURL}
        ran = []
        for line in commands(PAGE.read_text()):
            words = shlex.split(line)
            if words[0] in ("python", "python3"):  # measurements
                continue
            self.assertIn(words[0], programs, f"unknown command: {line}")
            words = [programs[words[0]]] + [word.replace(ADDRESS, self.address) for word in words[1:]]
            result = self.run_words(words)
            self.assertEqual(result.returncode, 0, f"{line}\n{result.stdout}{result.stderr}")
            ran.append(line)
        for named in ("tidepool stats", "tidepool offload", "tidepool replay", "tidepool inspect", "Admin/SetOffload",
                      "Admin/GetPlacement", "Admin/WatchStats", "Admin/RefreshExperts"):
            self.assertTrue(any(named in line for line in ran), named)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

"""Runs every command of README.md, as it stands there, against a server of the real model.

Only what a reader would change is changed: the port (a free one), the names of the binaries, and
scratch paths. A command that this test does not know fails it, so README cannot grow untested ones.
tools/demo and tools/test are run by tools/test itself, outside Bazel.
"""

import json
import os
import pathlib
import re
import select
import shlex
import subprocess
import sys
import tempfile
import time
import unittest

RUNFILES = pathlib.Path.cwd()
README = RUNFILES / "README.md"
TIDEPOOL = RUNFILES / "service" / "tidepool"
MAKE_SYNTHETIC = RUNFILES / "tools" / "synthetic" / "make_synthetic"
MAKE_DEMO_MOE = RUNFILES / "tools" / "demo_moe" / "make.py"
MODEL = pathlib.Path(os.environ["TIDEPOOL_TEST_MODEL"]).resolve()
PYTHON = os.environ["TIDEPOOL_PYTHON"]
GRPCURL = os.environ["TIDEPOOL_GRPCURL"]
ADDRESS = "127.0.0.1:50051"
MODEL_IN_README = ".cache/models/SmolLM2-135M-Instruct.Q4_1.gguf"
# Where tools/demo and tools/setup leave the programs that this test takes from its environment.
PATH_IN_README = "PATH=$PWD/.cache/bazel-bin/service:$PWD/.cache/venv/bin:$PATH"
RUN_BY_TOOLS_TEST = {"tools/demo", "tools/test"}
VOLATILE = {"request_id", "queue_seconds", "prefill_seconds", "decode_seconds"}


def code_blocks(text):
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def without_volatile(value):
    if isinstance(value, dict):
        return {key: without_volatile(item) for key, item in value.items() if key not in VOLATILE}
    return value


def json_stream(text):
    decoder, position, values = json.JSONDecoder(), 0, []
    while position < len(text.rstrip()):
        value, position = decoder.raw_decode(text, position)
        values.append(without_volatile(value))
        while position < len(text) and text[position].isspace():
            position += 1
    return values


class ReadmeTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.blocks = code_blocks(README.read_text())
        cls.work = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.work.name)
        serve = [line for language, body in cls.blocks if language == "sh"
                 for line in body.splitlines() if line.startswith("tidepool serve")]
        assert len(serve) == 1, "README starts one server"
        command = cls.localise(serve[0]) + [
            "--listen", "127.0.0.1:0", "--store", str(cls.folder / "sessions.db")]
        cls.server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        cls.address = cls.read_address()

    @classmethod
    def tearDownClass(cls):
        cls.server.terminate()
        code = cls.server.wait(timeout=60)
        cls.server.stdout.close()
        cls.work.cleanup()
        assert code == 0, f"serve ended with {code} on SIGTERM"

    @classmethod
    def read_address(cls):
        deadline, seen = time.monotonic() + 120, b""
        while time.monotonic() < deadline:
            if not select.select([cls.server.stdout], [], [], 1)[0]:
                continue
            chunk = os.read(cls.server.stdout.fileno(), 65536)
            seen += chunk
            found = re.search(rb"127\.0\.0\.1:([1-9]\d*)", seen)
            if found:
                return found.group().decode()
            if not chunk:
                break
        raise AssertionError(f"serve printed no address: {seen.decode(errors='replace')}")

    @classmethod
    def localise(cls, line):
        words = shlex.split(line, comments=True)
        programs = {"tidepool": [str(TIDEPOOL)], "grpcurl": [GRPCURL], "python": [PYTHON],
                    "tools/make_synthetic": [str(MAKE_SYNTHETIC)],
                    "tools/make_demo_moe": [PYTHON, str(MAKE_DEMO_MOE), "--model", str(MODEL)]}
        replaced = list(programs[words[0]])
        for word in words[1:]:
            word = word.replace("/tmp/", f"{cls.folder}/").replace(MODEL_IN_README, str(MODEL))
            if hasattr(cls, "address"):
                word = word.replace(ADDRESS, cls.address)
            if word.startswith(("-Iproto", "proto/")):
                word = word.replace("proto", str(RUNFILES / "proto"), 1)
            if word.startswith("tests/golden/"):
                word = str(RUNFILES / word)
            replaced.append(word)
        return replaced

    def run_line(self, line):
        # In a scratch folder: generated stubs go beside the client, not into the checkout.
        return subprocess.run(self.localise(line), cwd=self.folder, capture_output=True, text=True,
                              timeout=300)

    def test_every_command_runs(self):
        ran = 0
        for index, (language, body) in enumerate(self.blocks):
            if language == "sh":
                for line in body.splitlines():
                    command = shlex.split(line, comments=True)
                    if not command or command[0] in RUN_BY_TOOLS_TEST or command[:2] == ["tidepool", "serve"]:
                        continue
                    if command[0] == "export":
                        self.assertEqual(command[1:], [PATH_IN_README])
                        continue
                    self.assertIn(command[0], ("tidepool", "grpcurl", "python", "tools/make_demo_moe",
                                               "tools/make_synthetic"), f"unknown command: {line}")
                    if command[1:2] == ["tests/bench/compare.py"]:
                        continue  # a benchmark against an engine that plain tests do not install
                    result = self.run_line(line)
                    self.assertEqual(result.returncode, 0, f"{line}\n{result.stdout}{result.stderr}")
                    ran += 1
                    following = self.blocks[index + 1:index + 2]
                    if command[0] == "grpcurl" and following and following[0][0] == "json":
                        self.assertEqual(json_stream(result.stdout), json_stream(following[0][1]), line)
            elif language == "python":
                client = self.folder / "client.py"
                client.write_text(body.replace(ADDRESS, self.address))
                result = subprocess.run([PYTHON, str(client)], cwd=self.folder, capture_output=True,
                                        text=True, timeout=300)
                self.assertEqual(result.returncode, 0, result.stderr)
                counts = re.findall(r"\[(\d+) of (\d+) prompt tokens were cached\]", result.stdout)
                self.assertEqual(len(counts), 2, result.stdout)
                self.assertGreater(int(counts[1][0]), 0, "the second turn found no KV")
                ran += 1
        self.assertGreaterEqual(ran, 6)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

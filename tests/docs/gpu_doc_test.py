"""Runs the commands of docs/gpu.md that need neither a GPU nor CUDA's compiler, and checks the rest."""

import os
import pathlib
import re
import shlex
import subprocess
import unittest

RUNFILES = pathlib.Path.cwd()
PAGE = RUNFILES / "docs" / "gpu.md"
TIDEPOOL = RUNFILES / "service" / "tidepool"
MODEL = RUNFILES / "tests" / "golden" / "tiny" / "llama_f32.gguf"


def commands():
    for block in re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        yield from (shlex.split(line) for line in block.splitlines() if line.strip())


def run(*words, **options):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=120, **options)


class GpuPageTest(unittest.TestCase):

    def test_every_command_is_known(self):
        known = {"tools/setup": "--cuda", "bazel": "--config=cuda", "tidepool": "cuda", "tools/gpu_check": "--pack"}
        found = {words[0] for words in commands()}
        self.assertEqual(found, set(known))
        for words in commands():
            self.assertIn(known[words[0]], words)

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

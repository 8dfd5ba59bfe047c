"""Runs every command of docs/models.md on a small mixture of experts that transformers saved."""

import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest

RUNFILES = pathlib.Path.cwd()
PAGE = RUNFILES / "docs" / "models.md"
TIDEPOOL = RUNFILES / "service" / "tidepool"
GOLDEN = RUNFILES / "tests" / "golden" / "hf"


def commands(text):
    for block in re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield from (line for line in block.splitlines() if line.strip())


class ModelsPageTest(unittest.TestCase):

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        shutil.copytree(GOLDEN / "qwen3_moe_bf16", self.folder / "MODEL_DIR")

    def run_words(self, *words):
        return subprocess.run([str(TIDEPOOL), *map(str, words)], cwd=self.folder, capture_output=True,
                              text=True, timeout=120)

    def test_every_command_runs(self):
        outputs = []
        for line in commands(PAGE.read_text()):
            words = shlex.split(line)
            self.assertEqual(words[0], "tidepool", line)
            result = self.run_words(*words[1:])
            self.assertEqual(result.returncode, 0, f"{line}\n{result.stderr}")
            self.assertTrue(result.stdout, line)
            outputs.append((line, result.stdout))
        self.assertGreaterEqual(len(outputs), 6)
        texts = {line: text for line, text in outputs}
        quantised = next(text for line, text in texts.items() if "--quantize-to" in line)
        written = next(text for line, text in texts.items() if "--model model-q8_0.gguf" in line)
        self.assertEqual(quantised, written)

    def test_inspect_describes_every_directory(self):
        models = [path for path in GOLDEN.iterdir() if path.is_dir()]
        self.assertTrue(models)
        for path in models:
            result = self.run_words("inspect", "--model", path)
            self.assertEqual(result.returncode, 0, result.stderr)


if __name__ == "__main__":
    unittest.main()

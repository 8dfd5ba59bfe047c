"""Runs every command and program of docs/http.md, as it stands there, against the real model."""

import os
import pathlib
import re
import shlex
import sys
import subprocess
import unittest

RUNFILES = pathlib.Path.cwd()
sys.path.insert(0, str(RUNFILES / "tests" / "integration"))

import harness  # noqa: E402

ADDRESS = "127.0.0.1:8080"


def code_blocks():
    text = (RUNFILES / "docs" / "http.md").read_text()
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


class HttpDocsTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.server = harness.serve(model=harness.smollm2(), threads=2)
        cls.environment = harness.clean_environment()

    @classmethod
    def tearDownClass(cls):
        cls.server.kill()

    def run_here(self, command):
        command = [word.replace(ADDRESS, self.server.http_address) for word in command]
        result = subprocess.run(command, capture_output=True, text=True, timeout=300,
                                env=self.environment)
        self.assertEqual(result.returncode, 0, f"{command}\n{result.stdout}{result.stderr}")
        return result.stdout

    def test_commands(self):
        said = []
        for language, body in code_blocks():
            if language != "sh":
                continue
            for line in body.splitlines():
                command = shlex.split(line)
                self.assertEqual(command[0], "curl", line)
                said.append(self.run_here(command))
        self.assertEqual(len(said), 5)
        self.assertIn('"object":"list"', said[0])
        self.assertIn('"object":"text_completion"', said[1])
        self.assertTrue(said[2].startswith("data: ") and said[2].endswith("data: [DONE]\n\n"))
        self.assertIn("tidepool:generation_tokens_total", said[3])
        self.assertEqual(said[4], "ready\n")

    def test_python(self):
        programs = [body for language, body in code_blocks() if language == "python"]
        self.assertEqual(len(programs), 1)
        said = self.run_here([os.environ["TIDEPOOL_PYTHON"], "-c", programs[0]])
        self.assertIn("completion_tokens=", said)
        self.assertGreaterEqual(len(said.splitlines()), 3)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

"""Runs every command and program of docs/tools.md, unchanged, against the real model."""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import unittest

RUNFILES = pathlib.Path.cwd()
sys.path.insert(0, str(RUNFILES / "tests" / "integration"))

import harness  # noqa: E402

HTTP, GRPC = "127.0.0.1:8080", "127.0.0.1:50051"


def code_blocks(language):
    text = (RUNFILES / "docs" / "tools.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


class ToolsDocTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.server = harness.serve(model=harness.smollm2(), threads=2)

    @classmethod
    def tearDownClass(cls):
        cls.server.kill()

    def run_here(self, words):
        words = [word.replace(HTTP, self.server.http_address).replace(GRPC, self.server.address)
                 for word in words]
        result = subprocess.run(words, capture_output=True, text=True, timeout=300,
                                env=harness.clean_environment(NO_PROXY="*"))
        self.assertEqual(result.returncode, 0, f"{words}\n{result.stdout}{result.stderr}")
        return result.stdout

    def test_commands(self):
        said = []
        for block in code_blocks("sh"):
            for line in block.splitlines():
                words = shlex.split(line)
                self.assertIn(words[0], ("curl", "grpcurl"), line)
                if words[0] == "grpcurl":
                    words[0] = os.environ["TIDEPOOL_GRPCURL"]
                said.append(json.loads(self.run_here(words)))
        # SmolLM2 may call the tool or answer. Either way, its text arrives.
        message = said[0]["choices"][0]["message"]
        self.assertTrue(message["content"] or message["tool_calls"], said[0])
        completion = said[1]["completions"][0]
        self.assertTrue(completion.get("content") or completion.get("toolCalls"), said[1])

    def test_programs(self):
        for program in code_blocks("python"):
            program = program.replace(HTTP, self.server.http_address)
            self.run_here([os.environ["TIDEPOOL_PYTHON"], "-c", program])


if __name__ == "__main__":
    unittest.main()

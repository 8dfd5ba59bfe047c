"""Runs every command and program of docs/structured_output.md and docs/tools.md, unchanged, against
the real model."""

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
MODEL = "SmolLM2-135M-Instruct.Q4_1"


def code_blocks(page, language):
    text = (RUNFILES / "docs" / page).read_text()
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [block for name, block in blocks if name == language]


class StructuredDocsTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.server = harness.serve("--alias", MODEL, model=harness.smollm2(), threads=2)
        cls.addClassCleanup(cls.server.kill)

    def run_here(self, words):
        words = [word.replace(HTTP, self.server.http_address).replace(GRPC, self.server.address)
                 for word in words]
        result = subprocess.run(words, capture_output=True, text=True, timeout=300,
                                env=harness.clean_environment(NO_PROXY="*"))
        self.assertEqual(result.returncode, 0, f"{words}\n{result.stdout}{result.stderr}")
        return result.stdout

    def run_commands(self, page, programs):
        said = []
        for block in code_blocks(page, "sh"):
            for line in block.splitlines():
                words = shlex.split(line)
                if words[0] == "grpcurl":
                    words[0] = os.environ["TIDEPOOL_GRPCURL"]
                elif words[0] == "tidepool":
                    words[0] = str(harness.BINARY)
                else:
                    self.assertEqual(words[0], "curl", line)
                said.append(self.run_here(words))
        self.assertEqual(len(said), programs)
        return said

    def run_programs(self, page):
        said = []
        for program in code_blocks(page, "python"):
            python = os.environ["TIDEPOOL_INSTRUCTOR_PYTHON" if "import instructor" in program else
                                "TIDEPOOL_PYTHON"]
            said.append(self.run_here([python, "-c", program.replace(HTTP, self.server.http_address)]))
        return said

    def test_commands_of_structured_output(self):
        city, sky, year, grammar = self.run_commands("structured_output.md", programs=4)
        city = json.loads(json.loads(city)["choices"][0]["message"]["content"])
        self.assertGreaterEqual(city["population"], 0)
        self.assertIn(json.loads(sky)["choices"][0]["message"]["content"], ["yes", "no"])
        self.assertRegex(json.loads(year)["completions"][0]["text"], "^(19|20)[0-9]{2}$")
        [printed] = code_blocks("structured_output.md", "")
        self.assertEqual(grammar.splitlines()[1:], printed.splitlines()[1:])

    def test_programs_of_structured_output(self):
        parsed, langchain, instructor = self.run_programs("structured_output.md")
        for said in (parsed, langchain, instructor):
            last = said.splitlines()[-1]
            self.assertRegex(last, r"^name='.*' population=\d+ capital=(True|False)$")
        self.assertGreater(len(parsed.splitlines()), 3)  # of a stream, too

    def test_commands_of_tools(self):
        said = [json.loads(text) for text in self.run_commands("tools.md", programs=2)]
        # SmolLM2 may call the tool or answer. Either way, its text arrives.
        message = said[0]["choices"][0]["message"]
        self.assertTrue(message["content"] or message["tool_calls"], said[0])
        completion = said[1]["completions"][0]
        self.assertTrue(completion.get("content") or completion.get("toolCalls"), said[1])

    def test_programs_of_tools(self):
        _, parsed, langchain = self.run_programs("tools.md")
        self.assertRegex(parsed, r"^city='.*' days=[1-7]\n")
        self.assertRegex(langchain, r"\[\{'name': 'get_weather', 'args': \{'city': .*, 'days': [1-7]\}")


if __name__ == "__main__":
    unittest.main()

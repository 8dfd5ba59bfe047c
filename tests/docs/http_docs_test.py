"""Runs every command and program of docs/http.md, unchanged, against the real model."""

import json
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
        cls.environment = harness.clean_environment(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1",
                                                    NO_PROXY="*")
        client = harness.Client(cls.server)
        cls.model = client.inference.ListModels(
            harness.inference_pb.ListModelsRequest(), timeout=30).models[0].name
        client.close()

    @classmethod
    def tearDownClass(cls):
        cls.server.kill()

    def run_here(self, command):
        command = [word.replace(ADDRESS, self.server.http_address)
                   .replace("model=NAME", f"model={self.model}") for word in command]
        if command[0] == "lm_eval":
            command[:1] = [sys.executable, "-m", "lm_eval"]
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
                self.assertIn(command[0], ("curl", "lm_eval"), line)
                said.append(self.run_here(command))
        self.assertEqual(len(said), 14)
        self.assertIn('"object":"list"', said[0])
        self.assertIn('"object":"text_completion"', said[1])
        self.assertTrue(said[2].startswith("data: ") and said[2].endswith("data: [DONE]\n\n"))
        self.assertIn("tidepool:generation_tokens_total", said[3])
        self.assertEqual(said[4], "ready\n")
        self.assertIn('{"version":"', said[5])
        self.assertIn("/v1/chat/completions", json.loads(said[6])["paths"])
        self.assertIn("tidepool_choice", said[7])
        self.assertIn('"token_logprobs":[null,', said[8])
        self.assertIn('"token_strs":["The",', said[9])
        self.assertEqual(said[10], '{"prompt":"The sky is"}')
        self.assertIn("Hello<|im_end|>", said[11])
        self.assertIn("id: 8f/done\ndata: [DONE]\n\n", said[12])
        first_id = said[13].splitlines()[0]
        self.assertTrue(first_id.startswith("id: ") and int(first_id[4:].rstrip("f")) > 3, said[13])

    def test_python(self):
        programs = [body for language, body in code_blocks() if language == "python"]
        self.assertEqual(len(programs), 1)
        said = self.run_here([os.environ["TIDEPOOL_PYTHON"], "-c", programs[0]])
        self.assertIn("completion_tokens=", said)
        self.assertGreaterEqual(len(said.splitlines()), 3)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

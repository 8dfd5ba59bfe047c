"""Runs every command of docs/sessions.md, unchanged, in its order.

Only ports, the model's name and scratch paths are changed. Commands that open the store itself come
after those that use the server. The server is stopped before them.
"""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path.cwd() / "tests" / "integration"))

import harness

PAGE = pathlib.Path.cwd() / "docs" / "sessions.md"
ADDRESS = "127.0.0.1:50051"


class SessionsPageTest(unittest.TestCase):

    def localise(self, line):
        words = [word.replace("/tmp/", f"{self.folder}/").replace("model.gguf", str(harness.LLAMA))
                 for word in shlex.split(line)]
        programs = {"tidepool": str(harness.BINARY), "grpcurl": os.environ["TIDEPOOL_GRPCURL"]}
        self.assertIn(words[0], programs, f"unknown command: {line}")
        if self.server is not None:
            words = [word.replace(ADDRESS, self.server.address) for word in words]
        return [programs[words[0]]] + words[1:]

    def test_every_command_runs(self):
        self.folder, self.server = harness.scratch_folder(), None
        results = {}
        for block in re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL):
            for line in block.splitlines():
                words = self.localise(line)
                if words[1] == "serve":
                    if self.server is not None:
                        self.assertEqual(self.server.stop(), 0)
                    self.server = harness.Server(*words[1:])
                    continue
                if words[1] == "sessions" and self.server is not None:
                    self.assertEqual(self.server.stop(), 0)
                    self.server = None
                result = subprocess.run(words, capture_output=True, text=True, timeout=120,
                                        env=harness.clean_environment())
                self.assertEqual(result.returncode, 0, f"{line}\n{result.stdout}{result.stderr}")
                results[line] = result.stdout
        self.assertEqual(len(results), 15)
        shown = next(text for line, text in results.items() if " stats " in line)
        self.assertRegex(shown, r"KV disk .* of 1[.0]* GiB")
        last = json.loads(list(results.values())[-1])
        self.assertEqual((last["sessions"], last["faults"]), (2, 0))
        self.assertGreater(last["tokens"], 48)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

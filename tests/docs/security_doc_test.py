"""Runs every command of docs/security.md, unchanged, in its order and in one folder.

Only the model's name and ports are changed. Servers use free ports. Each server is stopped before
the next one of its kind starts.
"""

import os
import pathlib
import re
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path.cwd() / "tests" / "integration"))

import harness  # noqa: E402

PAGE = pathlib.Path.cwd() / "docs" / "security.md"
GRPC, HTTP, WORKER = "127.0.0.1:50051", "127.0.0.1:8080", "127.0.0.1:50061"
PROBES = ("--probe-listen", "127.0.0.1:0")  # the harness asks there whether a server is ready


class SecurityPageTest(unittest.TestCase):

    def setUp(self):
        self.folder = harness.scratch_folder()
        self.server, self.worker = None, None

    def localise(self, line):
        line = line.replace("model.gguf", str(harness.LLAMA))
        if self.worker is not None:
            line = line.replace(WORKER, self.worker.address)
        if self.server is not None:
            line = line.replace(GRPC, self.server.address)
            line = line.replace(HTTP, self.server.http_address)
        return line

    def start(self, line):
        """serve, front or worker."""
        words = line.split()[1:]
        # Replace file names by their paths in the scratch folder.
        words = [str(self.folder / word) if (self.folder / word).exists() else word
                 for word in words]
        if "--listen" in words:
            at = words.index("--listen")
            del words[at:at + 2]
        if words[0] == "worker":
            self.worker = harness.Server(*words, *PROBES)
        else:
            if self.server is not None:
                self.assertEqual(self.server.stop(), 0)
            self.server = harness.Server(*words, *PROBES, "--store", ":memory:")

    def run_line(self, line):
        environment = harness.clean_environment()
        programs = self.folder / "bin"
        if not programs.exists():
            programs.mkdir()
            (programs / "tidepool").symlink_to(harness.BINARY)
            (programs / "grpcurl").symlink_to(os.environ["TIDEPOOL_GRPCURL"])
        environment["PATH"] = f"{programs}:{environment['PATH']}"
        result = subprocess.run(["sh", "-c", line], cwd=self.folder, capture_output=True, text=True,
                                timeout=120, env=environment)
        self.assertEqual(result.returncode, 0, f"{line}\n{result.stdout}{result.stderr}")
        return result.stdout

    def run_python(self, program):
        # The stubs of README.md, which the harness has generated too.
        stubs = pathlib.Path(harness.inference_pb.__file__).parents[2]
        result = subprocess.run([os.environ["TIDEPOOL_PYTHON"], "-c", program], cwd=self.folder,
                                capture_output=True, text=True, timeout=120,
                                env=harness.clean_environment(PYTHONPATH=str(stubs)))
        self.assertEqual(result.returncode, 0, f"{program}\n{result.stdout}{result.stderr}")
        return result.stdout.strip("\n")

    def test_every_command_runs(self):
        said, answers = [], []
        for language, block in re.findall(r"^```(sh|python)\n(.*?)^```$", PAGE.read_text(),
                                          re.MULTILINE | re.DOTALL):
            if language == "python":
                answers.append(self.run_python(self.localise(block)))
                continue
            for line in block.splitlines():
                line = self.localise(line)
                if re.match(r"tidepool (serve|front|worker) ", line):
                    self.start(line)
                else:
                    said.append(self.run_line(line))
        self.assertEqual(len(said), 13)
        self.assertIn("Access-Control-Allow-Origin: https://chat.example\n", said[12])
        self.assertIn('"object":"list"', said[12])
        # Two programs use plain text, and two use TLS. All send the same request.
        self.assertEqual(len(answers), 4)
        self.assertEqual(len(set(answers)), 1, answers)
        self.assertTrue(answers[0])
        self.assertIn('"object":"list"', said[5])
        self.assertIn('"object":"list"', said[9])
        lines = (self.folder / "tokens").read_text().splitlines()
        self.assertEqual([line.split()[:2] for line in lines],
                         [["alice", "user"], ["ops", "admin"], ["front-1", "front"]])
        sums = self.run_line('printf %s "$(cat alice.token)" | sha256sum')
        self.assertEqual(sums.split()[0], lines[0].split()[2])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

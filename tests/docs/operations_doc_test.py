"""Runs every command of docs/operations.md, unchanged, in its order and in one folder.

Only the model's name, the ports, and the target of a signal are changed. Each server is stopped
before the next one starts. Its stderr is written to the file that the page names.
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

import harness  # noqa: E402

PAGE = pathlib.Path.cwd() / "docs" / "operations.md"
# A model with recurrent states.
HYBRID = harness.RUNFILES / "tests" / "golden" / "hf" / "lfm2"
GRPC, HTTP = "127.0.0.1:50051", "127.0.0.1:8080"


class OperationsPageTest(unittest.TestCase):

    def setUp(self):
        self.folder = harness.scratch_folder()
        programs = self.folder / "bin"
        programs.mkdir()
        (programs / "tidepool").symlink_to(harness.BINARY)
        (programs / "grpcurl").symlink_to(os.environ["TIDEPOOL_GRPCURL"])
        self.path = f"{programs}:{os.environ['PATH']}"
        self.server, self.log = None, None

    def start(self, line):
        if self.server is not None:
            self.assertEqual(self.server.stop(), 0)
        line, _, log = line.partition(" 2> ")
        self.log = self.folder / log if log else None
        words = [str(self.folder / word) if (self.folder / word).is_file() else word
                 for word in shlex.split(line)[1:]]
        self.server = harness.Server(*words, "--store", ":memory:")
        self.addCleanup(self.server.kill)

    def run_line(self, line):
        line = line.replace(GRPC, self.server.address)
        line = line.replace(HTTP, self.server.http_address)
        line = line.replace("$(pidof tidepool)", str(self.server.pid))

        def run():
            if self.log is not None:
                self.log.write_text(self.server.stderr)
            return subprocess.run(["sh", "-c", line], cwd=self.folder, capture_output=True,
                                  text=True, timeout=120,
                                  env=harness.clean_environment(PATH=self.path))
        result = run()
        if line.startswith("grep "):  # the log comes a moment after the answer
            result = harness.wait_until(lambda: (found := run()).returncode == 0 and found,
                                        lambda: f"{line}: {self.server.stderr}")
        self.assertEqual(result.returncode, 0, f"{line}\n{result.stdout}{result.stderr}")
        return result.stdout

    def test_every_command_runs(self):
        said = {}
        for block in re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL):
            for line in block.splitlines():
                here = line.replace("model.gguf", str(harness.LLAMA))
                if line.startswith("tidepool serve "):
                    self.start(here)
                else:
                    said[line] = self.run_line(here)
        self.assertEqual(len(said), 14)
        answers = list(said.values())
        self.assertEqual(answers[:2], ["ok\n", "ready\n"])
        self.assertEqual(json.loads(answers[2])["status"], "SERVING")
        ended = json.loads(said["grep '\"message\":\"request ended\"' tidepool.log"])
        self.assertEqual((ended["code"], ended["output_tokens"]), ("OK", 4))
        for line in said["grep 4bf92f3577b34da6a3ce929d0e0e4736 tidepool.log"].splitlines():
            self.assertEqual(json.loads(line)["parent_span_id"], "00f067aa0ba902b7")
        harness.wait_until(lambda: "log-level, max-queued changed" in self.server.stderr,
                           lambda: self.server.stderr)

    def test_metrics_that_the_page_names_are_there(self):
        server = harness.serve("--expert-memory", "75%", "--kv-disk", "1MiB",
                               "--cache-dir", self.folder, model=harness.MOE)
        self.addCleanup(server.kill)
        client = harness.Client(server)
        self.addCleanup(client.close)
        client.generate(text="a", max_tokens=2)
        self.server = server
        self.run_line(f"curl -s http://{HTTP}/health")  # a response for the metrics
        page = self.run_line(f"curl -s http://{HTTP}/metrics")
        self.server = harness.serve(model=HYBRID)
        self.addCleanup(self.server.kill)
        page += self.run_line(f"curl -s http://{HTTP}/metrics")
        for name in set(re.findall(r"`(tidepool:\w+)", PAGE.read_text())):
            self.assertRegex(page, rf"(?m)^{name}(_bucket)?(\{{| )", name)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

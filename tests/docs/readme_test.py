"""Runs every command of README.md, unchanged, against a server of the real model.

The test changes only what a reader of the page would change: ports (free ones), the names of the
binaries, and scratch paths. If README has a command that this test does not know, the test fails.
So every command is tested. tools/test itself runs tools/demo and tools/test, outside Bazel.
"""

import contextlib
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import unittest

RUNFILES = pathlib.Path.cwd()
sys.path.insert(0, str(RUNFILES / "tests" / "integration"))

import harness  # noqa: E402

README = RUNFILES / "README.md"
MAKE_SYNTHETIC = RUNFILES / "tools" / "synthetic" / "make_synthetic"
MAKE_DEMO_MOE = RUNFILES / "tools" / "demo_moe" / "make.py"
MODEL = harness.smollm2()
PYTHON = os.environ["TIDEPOOL_PYTHON"]
GRPCURL = os.environ["TIDEPOOL_GRPCURL"]
PROGRAMS = {"tidepool": [str(harness.BINARY)], "grpcurl": [GRPCURL], "python": [PYTHON],
            "curl": ["curl", "--fail-with-body"],
            "tools/make_synthetic": [str(MAKE_SYNTHETIC)],
            "tools/make_demo_moe": [PYTHON, str(MAKE_DEMO_MOE), "--model", str(MODEL)]}
GRPC_ADDRESS = "127.0.0.1:50051"
HTTP_ADDRESS = "127.0.0.1:8080"
MODEL_IN_README = ".cache/models/SmolLM2-135M-Instruct.Q4_1.gguf"
# Where tools/demo and tools/setup leave the programs that this test takes from its environment.
PATH_IN_README = "PATH=$PWD/.cache/bazel-bin/service:$PWD/.cache/venv/bin:$PATH"
RUN_BY_TOOLS_TEST = {"tools/demo", "tools/test"}
KILL_HEADING = "Kill a worker"
VOLATILE = {"request_id", "queue_seconds", "prefill_seconds", "decode_seconds"}


def code_blocks(text):
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def cut_out(text, heading):
    """Returns the section under `heading`, and the text without it."""
    found = re.search(rf"^## {re.escape(heading)}\n.*?(?=^## )", text, re.MULTILINE | re.DOTALL)
    return found.group(), text[:found.start()] + text[found.end():]


def anchor(heading):
    """Returns the anchor that GitHub generates for a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


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


def joined(messages):
    """Returns `messages` with the tokens of a stream merged, because a busy machine sends several
    at once."""
    if not all("token_ids" in message for message in messages):
        return messages
    whole = {}
    for message in messages:
        tokens = {"text": whole.get("text", "") + message.get("text", ""),
                  "token_ids": whole.get("token_ids", []) + message["token_ids"]}
        whole |= {key: value for key, value in message.items() if key != "position"} | tokens
    return [whole]


class Terminal:
    """A shell in `folder` that receives lines as a reader would type them; `said` is the output of
    the shell and its programs. The shell and its programs end with the object, however the test
    ends."""

    def __init__(self, folder):
        programs = folder / "bin"
        programs.mkdir()
        (programs / "tidepool").symlink_to(harness.BINARY)
        self._log = folder / "terminal.log"
        with self._log.open("wb") as log:
            self._shell = subprocess.Popen(
                ["sh"], cwd=folder, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT,
                env=harness.clean_environment(PATH=f"{programs}:{os.environ['PATH']}"),
                start_new_session=True)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.stdin.close()
        self._shell.wait()

    @property
    def said(self):
        return self._log.read_text(errors="replace")

    def enter(self, lines):
        self._shell.stdin.write(lines.encode())
        self._shell.stdin.flush()

    def wait_for(self, condition, what, timeout=120):
        harness.wait_until(condition, lambda: f"{what}: {self.said}", timeout)

    def wait_end(self):
        """Waits until all lines have run and all programs have ended. Returns the shell's exit
        code."""
        self.enter("wait\n")
        self._shell.stdin.close()
        self.wait_for(lambda: self._shell.poll() is not None, "the shell ends", 700)


class ReadmeTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.text = README.read_text()
        cls.kill_section, rest = cut_out(cls.text, KILL_HEADING)
        cls.blocks = code_blocks(rest)
        cls.folder = harness.scratch_folder()
        cls.environment = harness.clean_environment()
        serve = [line for language, body in cls.blocks if language == "sh"
                 for line in body.splitlines() if line.startswith("tidepool serve")]
        assert len(serve) == 1, "README starts one server"
        arguments = shlex.split(serve[0].replace(MODEL_IN_README, str(MODEL)))[1:]
        cls.server = harness.Server(*arguments, "--http", "127.0.0.1:0",
                                    "--store", cls.folder / "sessions.db")

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        assert code == 0, f"serve ended with {code} on SIGTERM"

    @classmethod
    def with_addresses(cls, text):
        return text.replace(GRPC_ADDRESS, cls.server.address).replace(
            HTTP_ADDRESS, cls.server.http_address)

    @classmethod
    def with_paths(cls, text):
        return text.replace("/tmp/", f"{cls.folder}/").replace(MODEL_IN_README, str(MODEL))

    @classmethod
    def localise(cls, words):
        replaced = list(PROGRAMS[words[0]])
        for word in words[1:]:
            word = cls.with_addresses(cls.with_paths(word))
            if word.startswith(("-Iproto", "proto/")):
                word = word.replace("proto", str(RUNFILES / "proto"), 1)
            if word.startswith("tests/golden/"):
                word = str(RUNFILES / word)
            replaced.append(word)
        return replaced

    def run_here(self, command, source):
        """Returns the output of the command. The command runs in a scratch folder, so that it
        generates no stubs in the checkout."""
        result = subprocess.run(command, cwd=self.folder, stdin=subprocess.DEVNULL, text=True,
                                capture_output=True, timeout=300, env=self.environment)
        self.assertEqual(result.returncode, 0, f"{source}\n{result.stdout}{result.stderr}")
        return result.stdout

    def run_python(self, body):
        client = self.folder / "client.py"
        client.write_text(self.with_addresses(body))
        return self.run_here([PYTHON, str(client)], body)

    def run_line(self, line, following):
        """Returns true if `line` is a command that this test runs. `following` is the next
        block."""
        command = shlex.split(line, comments=True)
        if not command or command[0] in RUN_BY_TOOLS_TEST or command[:2] == ["tidepool", "serve"]:
            return False
        if command[0] == "export":
            self.assertEqual(command[1:], [PATH_IN_README])
            return False
        self.assertIn(command[0], PROGRAMS, f"unknown command: {line}")
        if command[1:2] == ["tests/bench/compare.py"]:
            # A benchmark against an engine that plain tests do not install. commands_test.py checks its flags.
            return False
        printed = self.run_here(self.localise(command), line)
        if command[0] == "grpcurl" and following and following[0] == "json":
            self.assertEqual(joined(json_stream(printed)), joined(json_stream(following[1])), line)
        if command[0] == "curl":
            self.curl_said = json.loads(printed)["choices"][0]["message"]["content"]
            self.assertGreater(len(self.curl_said), 40)
        if command[:3] == ["tidepool", "bench", "--server"]:
            self.assertRegex(printed, r"requests +\d+ sent, .*; refused 0, broken 0,")
        return True

    def check_python(self, body):
        printed = self.run_python(body)
        if "from openai" in body:
            self.assertEqual(printed, self.curl_said)  # its request was the same
            return
        counts = re.findall(r"\[(\d+) of (\d+) prompt tokens were cached\]", printed)
        self.assertEqual(len(counts), 2, printed)
        self.assertGreater(int(counts[1][0]), 0, "the second turn found no KV")

    def test_every_command_runs(self):
        ran, programs = 0, 0
        for index, (language, body) in enumerate(self.blocks):
            following = self.blocks[index + 1] if index + 1 < len(self.blocks) else None
            if language == "sh":
                ran += sum(self.run_line(line, following) for line in body.splitlines())
            elif language == "python":
                self.check_python(body)
                programs += 1
        self.assertGreaterEqual(ran, 16)
        self.assertEqual(programs, 2)

    def test_inline_commands_of_grpcurl_run(self):
        commands = re.findall(r"`(grpcurl [^`\n]+ list)`", self.text)
        self.assertEqual(len(commands), 1)
        words = self.localise(shlex.split(commands[0]))
        services = self.run_here(words, commands[0]).split()
        self.assertLessEqual({"grpc.health.v1.Health", "tidepool.v1.Inference", "tidepool.v1.Sessions"}, set(services))
        # The page says: `describe` instead of `list` shows their methods.
        self.assertIn("rpc Generate ", self.run_here(words[:-1] + ["describe"], commands[0]))

    def test_a_killed_worker_changes_nothing(self):
        section = self.with_paths(self.kill_section)
        first, second, front = (f"127.0.0.1:{harness.free_port()}" for _ in range(3))
        for port, address in (("50061", first), ("50062", second), ("50071", front)):
            self.assertIn(f"127.0.0.1:{port}", section)
            section = section.replace(f"127.0.0.1:{port}", address)
        languages, blocks = zip(*code_blocks(section))
        self.assertEqual(languages, ("sh",) * 4)
        start, ask, kill, compare = blocks
        self.assertEqual(kill, "kill -9 $first\n")
        story = self.folder / "story.txt"
        with Terminal(self.folder) as terminal:
            terminal.enter(start)
            terminal.wait_for(lambda: f"({first}) serves" in terminal.said, "the first worker")
            terminal.enter(ask)
            terminal.wait_for(lambda: story.exists() and story.stat().st_size > 100, "text comes")
            terminal.wait_for(lambda: f"({second}) serves" in terminal.said, "the second worker")
            terminal.enter(kill)
            terminal.wait_for(lambda: f"({first}) is lost" in terminal.said, "the first one's end")
            terminal.enter(compare)
            terminal.wait_end()
            said = terminal.said
        # The worker was killed during the stream, and another attempt generated the rest.
        self.assertRegex(said, r"request ended .* attempts=2 .* output_tokens=2000 .* code=OK")
        self.assertIn("the same to the last byte\n", said)

    def test_links_within_the_page_lead_somewhere(self):
        headings = {anchor(heading)
                    for heading in re.findall(r"^#+ (.*)$", self.text, re.MULTILINE)}
        links = re.findall(r"\]\(#([^)]*)\)", self.text)
        self.assertGreaterEqual(len(links), 1)
        for link in links:
            self.assertIn(link, headings)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

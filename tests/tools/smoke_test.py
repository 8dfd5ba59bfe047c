"""tools/smoke against real servers: every check passes with the real model, and failures are reported."""

import os
import pathlib
import re
import subprocess
import sys
import unittest

RUNFILES = pathlib.Path.cwd()
sys.path.insert(0, str(RUNFILES / "tests" / "integration"))

import harness  # noqa: E402
from certificates import Certificates, pair_flags  # noqa: E402
from tokens import Tokens  # noqa: E402

LINE = re.compile(r"^(ok  |skip|FAIL)  (\S+(?: up)?) +\d+\.\d\d s  (.+)$")
OVER_GRPC = ["health", "list", "describe", "models", "tokenize", "generate", "complete", "session",
             "INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "FAILED_PRECONDITION", "ABORTED",
             "RESOURCE_EXHAUSTED", "UNIMPLEMENTED", "stats"]
OVER_HTTP = ["/healthz", "/readyz", "/v1/models", "/metrics"]


def smoke(*arguments, grpcurl=os.environ["TIDEPOOL_GRPCURL"]):
    return subprocess.run([sys.executable, str(RUNFILES / "tools" / "smoke"), *arguments,
                           "--grpcurl", grpcurl], capture_output=True, text=True, timeout=240,
                          env=harness.clean_environment())


def table(result):
    """Returns {check: (outcome, what was seen)}. The last line is not part of the table."""
    rows = {}
    for line in result.stdout.splitlines()[:-1]:
        found = LINE.match(line)
        assert found, f"{line!r} is not a row\n{result.stdout}{result.stderr}"
        rows[found[2]] = (found[1].strip(), found[3])
    return rows


class SmokeTest(unittest.TestCase):

    def test_the_real_model(self):
        server = harness.serve(model=harness.smollm2(), threads=2)
        self.addCleanup(server.kill)
        result = smoke(server.address, "--http", f"http://{server.http_address}/")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        rows = table(result)
        self.assertEqual(list(rows), OVER_GRPC + OVER_HTTP)
        self.assertEqual({outcome for outcome, _ in rows.values()}, {"ok"}, result.stdout)
        self.assertRegex(rows["session"][1],
                         r"two turns; [1-9]\d* of \d+ prompt tokens were cached")
        self.assertIn("max_tokens", rows["INVALID_ARGUMENT"][1])
        self.assertIn("33554432", rows["RESOURCE_EXHAUSTED"][1])
        self.assertIn("adapter", rows["UNIMPLEMENTED"][1])
        self.assertIn("1 of 1 workers", rows["stats"][1])
        self.assertEqual(rows["/readyz"][1], "ready")
        self.assertRegex(result.stdout.splitlines()[-1],
                         rf"^{server.address}: 20 passed, 0 failed, 0 skipped in [\d.]+ s$")
        left = harness.Client(server).sessions.ListSessions(
            harness.sessions_pb.ListSessionsRequest(), timeout=30)
        self.assertEqual(len(left.sessions), 0)

    def test_tokens_and_tls(self):
        ours, tokens = Certificates(), Tokens()
        tokens.new("ops", "admin")
        tokens.new("alice")
        pair = ours.issue("server", "127.0.0.1")
        server = harness.serve("--auth-token-file", tokens.path, "--tls-client-ca", ours.ca,
                               *pair_flags("tls", pair), "--probe-listen", "127.0.0.1:0")
        self.addCleanup(server.kill)
        asked = (server.address, "--http", f"https://{server.http_address}", "--tls-ca", ours.ca,
                 *pair_flags("tls", ours.issue("client", "client.example")))
        for principal, stats in (("ops", "ok"), ("alice", "skip")):
            result = smoke(*asked, "--token-file", tokens.file_of(principal))
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
            rows = table(result)
            self.assertEqual(rows["UNAUTHENTICATED"][0], "ok")
            self.assertEqual(rows["stats"][0], stats)
        self.assertEqual(smoke(*asked).returncode, 1)
        self.assertEqual(smoke(server.address, "--tls-key", pair[1]).returncode, 2)

    def test_a_front_without_workers_fails(self):
        front = harness.Server("front", "--worker", f"127.0.0.1:{harness.free_port()}", "--store",
                               ":memory:", awaited="liveness")
        self.addCleanup(front.kill)
        result = smoke(front.address, "--http", f"http://{front.http_address}", "--timeout", "3")
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        rows = table(result)
        self.assertEqual(rows["health"], ("FAIL", '"" is NOT_SERVING'))
        self.assertEqual(rows["/healthz"], ("ok", "ok"))
        self.assertEqual(rows["/readyz"][0], "FAIL")
        self.assertIn("503", rows["/readyz"][1])
        for check in ("models", "generate", "complete", "session", "stats"):
            self.assertEqual(rows[check][0], "FAIL", check)
        for check in ("list", "describe", "NOT_FOUND"):
            self.assertEqual(rows[check][0], "ok", check)
        self.assertRegex(result.stdout, r", [1-9]\d* failed, 0 skipped in [\d.]+ s\n$")

    def test_a_model_that_is_not_served_fails(self):
        server = harness.serve()
        self.addCleanup(server.kill)
        result = smoke(server.address, "--model", "no-such-model")
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        outcome, seen = table(result)["models"]
        self.assertEqual(outcome, "FAIL")
        self.assertIn("no-such-model is not served; served: ", seen)

    def test_a_closed_port_fails_in_one_line(self):
        address = f"127.0.0.1:{harness.free_port()}"
        result = smoke(address)
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertEqual(result.stderr, f"smoke: cannot connect to {address}: Connection refused; "
                                        "is the server running?\n")

    def test_wrong_command_lines(self):
        for words, said in (((), "HOST:PORT"), (("localhost",), "(got localhost)"),
                            (("h:70000",), "(got h:70000)"),
                            (("h:1", "--http", "h:2"), "(got h:2)"),
                            (("h:1", "--timeout", "0"), "(got 0.0)"),
                            (("h:1", "--nosuch"), "--nosuch")):
            result = smoke(*words)
            self.assertEqual(result.returncode, 2, words)
            self.assertIn(said, result.stderr, words)
        result = smoke("127.0.0.1:1", grpcurl="/nowhere/grpcurl")
        self.assertEqual(result.returncode, 2)
        self.assertIn("run tools/setup", result.stderr)
        self.assertEqual(len(result.stderr.splitlines()), 1)

    def test_help(self):
        result = smoke("--help")
        self.assertEqual(result.returncode, 0)
        for flag in ("HOST:PORT", "--http URL", "--model NAME", "--timeout SECONDS", "Exit codes:"):
            self.assertIn(flag, result.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)

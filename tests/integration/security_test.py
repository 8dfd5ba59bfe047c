"""Tokens of an operator and of clients: access, rotation, and the contents of logs."""

import os
import subprocess
import unittest

import openai

import harness
from command_test_case import CommandTest
from harness import Client, failure, wait_until
from tokens import Tokens, client_as, code_of

SECRET = "the heron stole the vicar's barometer"


def open_openai(server, token):
    return openai.OpenAI(base_url=f"http://{server.http_address}/v1", api_key=token,
                         max_retries=0, timeout=120,
                         http_client=openai.DefaultHttpxClient(trust_env=False))


class TokensTest(CommandTest):

    @classmethod
    def setUpClass(cls):
        cls.tokens = Tokens()
        cls.alice = cls.tokens.new("alice")
        cls.ops = cls.tokens.new("ops", "admin")
        cls.old = cls.tokens.new("expired", "user", "--expires", "2020-01-01")
        cls.server = harness.serve("--auth-token-file", cls.tokens.path, "--log-level", "debug")

    def test_each_token_over_grpc(self):
        for token, asks, steers in (("wrong", "UNAUTHENTICATED", "UNAUTHENTICATED"),
                                    (self.old, "UNAUTHENTICATED", "UNAUTHENTICATED"),
                                    (self.alice, "OK", "PERMISSION_DENIED"),
                                    (self.ops, "OK", "OK")):
            client = client_as(self.server, token)
            self.assertEqual(code_of(lambda: client.stream(text="Low", max_tokens=2)), asks)
            self.assertEqual(code_of(client.stats), steers)
            client.close()
        code, said = failure(lambda: Client(self.server).stream(text="Low", max_tokens=2))
        self.assertEqual(code, "UNAUTHENTICATED")
        self.assertIn("Bearer TOKEN", said)

    def test_each_token_over_http(self):
        answer = open_openai(self.server, self.alice).completions.create(
            model=open_openai(self.server, self.alice).models.list().data[0].id, prompt="Low",
            max_tokens=2)
        self.assertEqual(answer.usage.completion_tokens, 2)
        for token in ("wrong", self.old):
            with self.assertRaises(openai.AuthenticationError) as refused:
                open_openai(self.server, token).models.list()
            self.assertEqual(refused.exception.code, "invalid_api_key")
            self.assertNotIn(token, refused.exception.message)

    def test_commands_show_a_token(self):
        asked = ("generate", "--server", self.server.address, "--prompt", "Low", "--max-tokens", "2")
        well = self.run_json(*asked, "--token-file", self.tokens.file_of("alice"))
        self.assertEqual(well["usage"]["completion_tokens"], 2)
        self.refuse(*asked, named="set --token-file FILE", code=1)
        stats = ("stats", "--once", "--server", self.server.address, "--token-file")
        self.run_well(*stats, self.tokens.file_of("ops"))
        self.refuse(*stats, self.tokens.file_of("alice"), named=("alice", "admin"))
        self.refuse(*stats, self.tokens.folder / "none", named="none")

    def test_schemas_and_health_are_open(self):
        listed = subprocess.run([os.environ["TIDEPOOL_GRPCURL"], "-plaintext", self.server.address,
                                 "list"], capture_output=True, text=True, timeout=60,
                                env=harness.clean_environment())
        self.assertIn("tidepool.v1.Inference", listed.stdout, listed.stderr)
        self.assertTrue(harness.health(self.server.address))

    def test_prompts_and_tokens_stay_out_of_the_log(self):
        client = client_as(self.server, self.alice)
        client.generate(text=SECRET, max_tokens=4)
        client.create_session("private")
        client.generate(text=SECRET, session="private", max_tokens=4)
        failure(lambda: client.stream(text=SECRET, max_tokens=0))
        client.close()
        told = self.server.stdout + self.server.stderr
        for word in ("heron", "vicar", "barometer", self.alice):
            self.assertNotIn(word, told)


class RotationTest(CommandTest):

    def test_a_token_file_is_read_again(self):
        tokens = Tokens()
        old = tokens.new("alice")
        server = harness.serve("--auth-token-file", tokens.path)

        def code_with(token):
            return code_of(lambda: client_as(server, token).stream(text="Low", max_tokens=1))

        self.assertEqual(code_with(old), "OK")
        new = tokens.new("alice")
        wait_until(lambda: code_with(new) == "OK", "the new token is taken")
        self.assertEqual(code_with(old), "OK", "both hold until the old one's line goes")
        tokens.write("alice user\n")
        wait_until(lambda: "stays in use" in server.stderr, "the damaged file is reported")
        self.assertEqual(code_with(new), "OK")
        tokens.write("")
        wait_until(lambda: "has no tokens" in server.stderr, "nor does an empty one")
        self.assertEqual(code_with(new), "OK")
        tokens.new("bob")
        tokens.revoke("alice")
        wait_until(lambda: code_with(new) == "UNAUTHENTICATED", "the token is revoked")
        self.assertEqual(server.stop(), 0)


class FrontAndWorkerTest(CommandTest):

    def test_a_worker_takes_fronts_alone(self):
        tokens = Tokens()
        alice, ops = tokens.new("alice"), tokens.new("ops", "admin")
        tokens.new("front-1", "front")
        worker = harness.worker("--auth-token-file", tokens.path)
        front = harness.front([worker], "--auth-token-file", tokens.path, "--worker-token-file",
                              tokens.file_of("front-1"))
        client = client_as(front, alice)
        self.assertEqual(len(client.generate(text="Low tide", max_tokens=3).ids), 3)
        self.assertEqual(len(client_as(front, ops).stats().workers), 1)
        self.assertEqual(code_of(client_as(worker, ops).stats), "OK")
        self.assertEqual(code_of(client_as(worker, alice).stats), "PERMISSION_DENIED")

    def test_a_front_without_a_token_says_why_no_worker_answers(self):
        tokens = Tokens()
        tokens.new("front-1", "front")
        worker = harness.worker("--auth-token-file", tokens.path)
        front = harness.front([worker], awaited="liveness")
        wait_until(lambda: "a token is missing" in front.stderr, lambda: front.stderr)


class CommandLineTest(CommandTest):

    def test_new_tokens(self):
        made = self.run_well("token", "new", "--principal", "alice", "--rate", "60",
                             "--max-priority", "10")
        self.assertRegex(made.stdout, r"^alice user [0-9a-f]{64} rate=60 max_priority=10\n$")
        self.assertRegex(made.stderr, r"tp-[\w-]{43}\n$")
        self.refuse("token", "new", "--principal", "alice", "--max-priority", "101",
                    named="--max-priority")
        file = harness.scratch_folder() / "alice.token"
        made = self.run_well("token", "new", "--principal", "alice", "--token-file", file)
        self.assertEqual(made.stderr, "")
        self.assertRegex(file.read_text(), r"^tp-[\w-]{43}\n$")
        self.assertEqual(file.stat().st_mode & 0o777, 0o600)
        self.refuse("token", "new", "--principal", "alice", "--token-file", file, named=str(file),
                    code=1)

    def test_a_bad_token_file_ends_the_start(self):
        tokens = Tokens()
        tokens.write("alice user tp-a-token-and-no-hash\n")
        result = harness.run_tidepool("serve", "--model", harness.LLAMA, "--store", ":memory:",
                                      "--auth-token-file", tokens.path)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn(f"{tokens.path}: line 1: ", result.stderr)
        self.assertNotIn("tp-a-token", result.stderr)


if __name__ == "__main__":
    unittest.main()

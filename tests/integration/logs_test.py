"""A server's log: one line of JSON per request, with the same trace in front and worker."""

import http.client
import json
import re
import unittest

import harness
from harness import Client, wait_until
from tokens import Tokens, client_as

SECRET = "Tell nobody that"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"


def lines_of(process, message):
    """Returns the complete lines of the server's log with this message, as objects."""
    whole = process.stderr.rpartition("\n")[0]
    objects = [json.loads(line) for line in whole.splitlines()]
    return [line for line in objects if line["message"] == message]


def line_of(process, message, request_id):
    return wait_until(lambda: [line for line in lines_of(process, message)
                               if line["request_id"] == request_id],
                      lambda: f"a line of {request_id}: {process.stderr}")[0]


class LogsTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        tokens = Tokens()
        alice = tokens.new("alice")
        tokens.new("front-1", "front")
        cls.worker = harness.worker("--log-format", "json", "--name", "left", "--auth-token-file",
                                    tokens.path)
        cls.front = harness.front([cls.worker], "--log-format", "json", "--auth-token-file",
                                  tokens.path, "--worker-token-file", tokens.file_of("front-1"))
        cls.token = alice
        cls.client = client_as(cls.front, alice)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        for process in (cls.front, cls.worker):
            process.kill()

    def generate(self, request_id, metadata=(), **fields):
        request = harness.make_request(**fields)
        request.request_id = request_id
        return list(self.client.inference.Generate(request, timeout=60, metadata=metadata))

    def post(self, headers, **fields):
        """Returns the response of /v1/completions, and its x-request-id."""
        connection = http.client.HTTPConnection(self.front.http_address, timeout=60)
        connection.request("POST", "/v1/completions", json.dumps(fields), {
            "Content-Type": "application/json", "Authorization": f"Bearer {self.token}", **headers})
        answer = connection.getresponse()
        said = json.loads(answer.read())
        connection.close()
        self.assertEqual(answer.status, 200, said)
        return said, answer.getheader("x-request-id")

    def test_a_request_is_followed_from_the_front_to_its_worker(self):
        usage = self.generate("follow-me", text=SECRET, max_tokens=5)[-1].usage
        told = line_of(self.front, "request ended", "follow-me")
        for name, value in {"level": "info", "principal": "alice", "worker": "left", "code": "OK",
                            "finish": "length", "prompt_tokens": usage.prompt_tokens,
                            "cached_tokens": usage.cached_tokens, "output_tokens": 5}.items():
            self.assertEqual(told[name], value, name)
        self.assertGreater(told["time_to_first_token_seconds"], 0)
        self.assertGreaterEqual(told["duration_seconds"], told["time_to_first_token_seconds"])
        self.assertRegex(told["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d$")
        run = line_of(self.worker, "run ended", "follow-me")
        for name in ("principal", "model", "prompt_tokens", "cached_tokens", "output_tokens",
                     "code", "trace_id"):
            self.assertEqual(run[name], told[name], name)
        self.assertEqual((run["attempt"], run["parent_span_id"]), (0, told["span_id"]))
        self.assertNotEqual(run["span_id"], told["span_id"])

    def test_a_refused_request_has_its_line(self):
        code, _ = harness.failure(lambda: self.generate("no-good", text=SECRET, top_p=7))
        self.assertEqual(code, "INVALID_ARGUMENT")
        told = line_of(self.front, "request ended", "no-good")
        self.assertEqual((told["code"], told["principal"]), ("INVALID_ARGUMENT", "alice"))

    def test_a_client_that_leaves_has_its_line(self):
        stream = self.client.wide_stream(text=SECRET, max_tokens=4000)
        first = next(stream)
        stream.cancel()
        told = line_of(self.front, "request ended", first.request_id)
        self.assertEqual(told["code"], "CANCELLED")
        self.assertGreaterEqual(told["output_tokens"], 1)
        self.assertEqual(line_of(self.worker, "run ended", first.request_id)["code"], "CANCELLED")

    def test_a_trace_goes_through_from_grpc(self):
        self.generate("traced", text="a", max_tokens=1, metadata=(
            ("traceparent", f"00-{TRACE}-{SPAN}-01"), ("tracestate", "vendor=x")))
        told = line_of(self.front, "request ended", "traced")
        self.assertEqual((told["trace_id"], told["parent_span_id"]), (TRACE, SPAN))
        run = line_of(self.worker, "run ended", "traced")
        self.assertEqual((run["trace_id"], run["parent_span_id"]), (TRACE, told["span_id"]))

    def test_a_trace_that_is_none_is_replaced(self):
        for number, wrong in enumerate((f"00-{TRACE.upper()}-{SPAN}-01", f"00-{'0' * 32}-{SPAN}-01",
                                        f"ff-{TRACE}-{SPAN}-01", "x")):
            name = f"untraced-{number}"
            self.generate(name, text="a", max_tokens=1, metadata=(("traceparent", wrong),))
            told = line_of(self.front, "request ended", name)
            self.assertRegex(told["trace_id"], "^[0-9a-f]{32}$")
            self.assertNotIn(told["trace_id"], (TRACE, "0" * 32))
            self.assertNotIn("parent_span_id", told)

    def test_http_requests_are_called_as_their_clients_know_them(self):
        _, request_id = self.post({"traceparent": f"00-{TRACE}-{SPAN}-00"}, prompt=SECRET,
                                  max_tokens=2)
        told = line_of(self.front, "request ended", request_id)
        self.assertEqual((told["trace_id"], told["parent_span_id"]), (TRACE, SPAN))
        line_of(self.worker, "run ended", request_id)
        _, request_id = self.post({}, prompt=SECRET, max_tokens=2, n=2)
        traces = {line_of(self.front, "request ended", f"{request_id}-{choice}")["trace_id"]
                  for choice in (0, 1)}
        self.assertEqual(len(traces), 1)

    def test_prompts_and_tokens_are_not_logged(self):
        self.generate("silent", text=SECRET, max_tokens=3)
        self.post({}, prompt=SECRET, max_tokens=3)
        line_of(self.worker, "run ended", "silent")
        for process in (self.front, self.worker):
            self.assertNotIn(SECRET, process.stderr)
            self.assertNotIn(self.token, process.stderr)


class FlagsTest(unittest.TestCase):

    def start(self, *arguments):
        server = harness.serve(*arguments)
        self.addCleanup(server.kill)
        client = Client(server)
        self.addCleanup(client.close)
        return server, client

    def test_prompts_are_logged_on_request(self):
        server, client = self.start("--log-prompts", "--log-format", "json")
        client.generate(text=SECRET, max_tokens=1)
        told = wait_until(lambda: lines_of(server, "request ended"), lambda: server.stderr)
        self.assertEqual([line["prompt"] for line in told], [SECRET])

    def test_text_is_for_people_and_one_line_per_request(self):
        server, client = self.start()
        client.generate(text=SECRET, max_tokens=3)
        client.create_session("mine")
        client.generate(text="a", max_tokens=3, session="mine")
        ended = wait_until(lambda: len(found := re.findall(r".* info request ended .*\n",
                                                           server.stderr)) == 2 and found,
                           lambda: server.stderr)
        self.assertRegex(ended[0], r"^\d{4}-\d\d-\d\dT\S+ info request ended request_id=gen-\w+ "
                                   r"model=\".+\" worker=\S+ prompt_tokens=\d+ cached_tokens=\d+ "
                                   r"output_tokens=3 .* code=OK trace_id=\w{32} span_id=\w{16}\n$")
        self.assertIn(" session_id=mine ", ended[1])
        # The worker in the same process must not log the same line.
        self.assertNotIn("run ended", server.stderr)

    def test_levels_hold(self):
        server, client = self.start("--log-level", "warn")
        client.generate(text="a", max_tokens=1)
        self.assertEqual(server.stop(), 0)
        self.assertNotIn("request ended", server.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)

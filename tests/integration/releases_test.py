"""A front works with workers of the previous release, and a worker with fronts of the previous
release. The older process does not know the newest fields, and does not send them."""

import re
import sys
import unittest

import harness

sys.path.insert(0, str(harness.RUNFILES / "tests" / "proto"))

import wire  # noqa: E402
from harness import Client, Received, admin_pb, make_request, wait_until  # noqa: E402
from wire_proxy import WireProxy, keep_fields  # noqa: E402

PROMPT = "The harbour"

# The fields that a front and a worker of the first release need for a response. All other fields of
# worker.proto are about rates, load, caches, usage, traces or names, or have a default.
FIRST = """
message tidepool.worker.v1.PrepareRequest
  1 tidepool.v1.GenerateRequest request
  2 tidepool.worker.v1.SessionLog session
message tidepool.worker.v1.SessionLog
  1 repeated int32 token_ids
message tidepool.worker.v1.PrepareResponse
  1 repeated int32 token_ids
  2 int64 session_tokens_kept
  3 tidepool.v1.Sampling sampling
  4 tidepool.v1.Stopping stopping
  5 string model_digest
message tidepool.worker.v1.RunRequest
  1 tidepool.worker.v1.Start start
  2 int64 credit
message tidepool.worker.v1.Start
  1 tidepool.worker.v1.PrepareResponse prepared
  2 int64 prompt_length
  3 repeated int32 output_token_ids
  4 int32 attempt
  7 int64 credit
message tidepool.worker.v1.RunResponse
  1 int32 attempt
  2 int64 position
  3 repeated int32 token_ids
  4 string text
  6 tidepool.v1.FinishReason finish_reason
message tidepool.worker.v1.WatchRequest
message tidepool.worker.v1.WatchResponse
  1 string worker_id
  11 tidepool.v1.Model model
message tidepool.v1.Model
  1 string name
  3 string digest
  4 int64 context_length
message tidepool.v1.GenerateRequest
  2 string text
  5 string session_id
  9 tidepool.v1.Sampling sampling
  10 tidepool.v1.Stopping stopping
message tidepool.v1.Sampling
  1 float temperature
  2 int32 top_k
  3 float top_p
  4 float min_p
  6 uint64 seed
  7 float repetition_penalty
message tidepool.v1.Stopping
  1 int64 max_tokens
"""


def released():
    return keep_fields(wire.field_numbers(wire.from_text(wire.RELEASED.read_text())))


def first():
    return keep_fields(wire.field_numbers(wire.from_text(FIRST)))


class ReleasesTest(unittest.TestCase):

    def started(self, process):
        self.addCleanup(process.kill)
        return process

    def proxy(self, worker, change, **more):
        proxy = WireProxy(worker.address, change, **more)
        self.addCleanup(proxy.close)
        return proxy

    def front(self, *workers):
        front = self.started(harness.front(workers))
        client = Client(front)
        self.addCleanup(client.close)
        return front, client

    def worker(self, name):
        return self.started(harness.worker("--name", name))

    def front_of_both(self, *workers):
        """Starts a front. Waits until both workers have reported to it."""
        front, client = self.front(*workers)
        wait_until(lambda: {one.worker_id for one in client.stats().workers} == {"old", "new"},
                   lambda: front.stderr)
        return front, client

    @staticmethod
    def begin(client, count):
        """Begins streams, and waits until each has a token. Returns them, and what they have received."""
        streams = [client.wide_stream(text=f"{PROMPT} {number}", max_tokens=2000)
                   for number in range(count)]
        answers = [Received() for _ in streams]
        for stream, answer in zip(streams, answers):
            harness.take_tokens(stream, answer, 1)
        return streams, answers

    def check_end(self, streams, answers):
        for number, (stream, answer) in enumerate(zip(streams, answers)):
            for message in stream:
                answer.take(message)
            self.assertEqual(answer.ids,
                             self.truth(text=f"{PROMPT} {number}", max_tokens=2000).ids)

    def truth(self, **fields):
        """Returns the response of a front and a worker of the same release."""
        if not hasattr(self, "same"):
            self.same = self.front(self.worker("same"))[1]
        return self.same.generate(**fields)


class ReleaseBeforeTest(ReleasesTest):
    """The front or the worker knows only the fields in released_wire.txt."""

    def test_everything_works(self):
        proxy = self.proxy(self.worker("a"), released())
        _, client = self.front(proxy)
        answer = client.generate(text=PROMPT, max_tokens=40, seed=7, temperature=1.0)
        self.assertEqual(answer.ids,
                         self.truth(text=PROMPT, max_tokens=40, seed=7, temperature=1.0).ids)
        client.create_session("s")
        client.generate(text=PROMPT, session="s", max_tokens=80)
        self.assertGreater(client.generate(text=" is", session="s", max_tokens=8)
                           .usage.cached_tokens, 0)
        stats = client.worker_stats()
        self.assertEqual((stats.worker_id, stats.requests_finished_total), ("a", 3))
        text = harness.inference_pb.TokenizeRequest(text=PROMPT)
        ids = client.inference.Tokenize(text).token_ids
        self.assertEqual(client.inference.Detokenize(
            harness.inference_pb.DetokenizeRequest(token_ids=ids)).text, PROMPT)
        self.assertGreaterEqual(proxy.seen, {f"/tidepool.worker.v1.Worker/{one}" for one in
                                             ("Prepare", "Run", "Watch", "Tokenize",
                                              "Detokenize")})

    def test_a_drain_moves_streams_to_the_other_release(self):
        old, new = self.worker("old"), self.worker("new")
        front, client = self.front_of_both(self.proxy(old, released()), new)
        streams, answers = self.begin(client, 4)
        client.admin.Drain(admin_pb.DrainRequest(worker_id="old"))
        # A stream whose client does not read cannot end before its worker.
        self.assertEqual(old.wait(60), 0, old.stderr)
        self.check_end(streams, answers)
        stats = client.stats().front
        self.assertGreater(stats.migrations_total, 0)
        self.assertEqual(stats.failovers_total, 0, front.stderr)


class FirstReleaseTest(ReleasesTest):
    """The front or the worker knows only the fields that a response needs, and has no Admin."""

    def test_answers_are_the_same(self):
        proxy = self.proxy(self.worker("old"), first(), unknown=("tidepool.v1.Admin",))
        front, client = self.front(proxy)
        request = make_request(text=PROMPT, max_tokens=40, seed=7, temperature=1.0)
        ids, last = [], None
        for last in client.inference.Generate(request, timeout=60):
            self.assertEqual(last.position, len(ids))
            ids += last.token_ids
        self.assertEqual(ids, self.truth(text=PROMPT, max_tokens=40, seed=7, temperature=1.0).ids)
        self.assertEqual(last.finish_reason, harness.inference_pb.LENGTH)
        self.assertFalse(last.HasField("usage"), "a front makes no figures up")
        # Two turns of a session: they work without the worker's report about its caches.
        client.create_session("s")
        for number, text in enumerate((PROMPT, " is")):
            for _ in client.inference.Generate(make_request(text=text, session="s", max_tokens=8)):
                pass
            self.assertEqual(client.get_session("s").turn_count, number + 1)
        (stats,) = client.stats().workers
        self.assertEqual((stats.worker_id, stats.status_code), ("old", 12), "UNIMPLEMENTED")
        self.assertNotIn("is lost", front.stderr)

    def test_it_is_picked_beside_others_and_its_streams_move(self):
        old, new = self.worker("old"), self.worker("new")
        proxy = self.proxy(old, first(), unknown=("tidepool.v1.Admin",))
        front, client = self.front_of_both(proxy, new)
        # The old worker reports no rate, load or cache: both workers still get requests.
        streams, answers = self.begin(client, 8)
        for worker in (old, new):
            self.assertGreater(Client(worker).worker_stats().sequences_running, 0)
        old.kill()
        self.check_end(streams, answers)
        self.assertGreater(client.stats().front.failovers_total, 0, front.stderr)

    def test_a_run_without_a_trace_starts_a_new_one(self):
        worker = self.started(harness.worker("--log-format", "json"))
        _, client = self.front(self.proxy(worker, first()))
        traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        for _ in client.inference.Generate(make_request(text=PROMPT, max_tokens=2),
                                           metadata=[("traceparent", traceparent)]):
            pass
        line = wait_until(lambda: re.search(r".*\brun ended\b.*", worker.stderr),
                          lambda: worker.stderr)[0]
        self.assertRegex(line, r'"trace_id":"[0-9a-f]{32}"')
        self.assertNotIn("4bf92f3577b34da6a3ce929d0e0e4736", line)


if __name__ == "__main__":
    unittest.main(verbosity=2)

"""A worker's API for fronts, called by grpcio and grpcurl: every RPC of tidepool.worker.v1, and
health."""

import json
import os
import queue
import signal
import subprocess
import unittest

import grpc

import harness
from harness import inference_pb, worker_pb

GRPCURL = os.environ["TIDEPOOL_GRPCURL"]
SERVICE = "tidepool.worker.v1.Worker"
TEXT = "The tide comes in"
TOKENS = 40


def start_of(prepared, credit, made=(), attempt=0):
    return worker_pb.RunRequest(start=worker_pb.Start(
        prepared=prepared, prompt_length=len(prepared.token_ids), output_token_ids=made,
        attempt=attempt, credit=credit))


class Run:
    """One Run call. The test decides when its requests are sent."""

    def __init__(self, stub, *requests):
        self._requests = queue.SimpleQueue()
        for request in requests:
            self.send(request)
        self._stream = stub.Run(iter(self._requests.get, None), timeout=120)
        self.begin, self.ids, self.text, self.last = None, [], "", None

    def send(self, request):
        self._requests.put(request)

    def end_requests(self):
        self._requests.put(None)

    def read(self, tokens=None):
        """Reads until `tokens` tokens have arrived, or until the end."""
        while tokens is None or len(self.ids) < tokens:
            message = next(self._stream, None)
            if message is None:
                break
            if self.begin is None:
                self.begin = message.position
            assert message.position == self.begin + len(self.ids), message
            self.ids += message.token_ids
            self.text += message.text
            self.last = message
        return self

    def code(self):
        return self._stream.code()


class WorkerServiceTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.worker = harness.worker("--name", "w7")
        cls.addClassCleanup(cls.worker.kill)
        cls.channel = harness.open_channel(cls.worker.address)
        cls.addClassCleanup(cls.channel.close)
        cls.stub = harness.worker_grpc.WorkerStub(cls.channel)

    def prepare(self, text=TEXT, **fields):
        request = harness.make_request(text=text, max_tokens=TOKENS, temperature=1.0, **fields)
        return self.stub.Prepare(worker_pb.PrepareRequest(request=request), timeout=30)

    def whole(self, prepared):
        run = Run(self.stub, start_of(prepared, TOKENS))
        run.end_requests()
        return run.read()

    def test_prepare_fills_in_the_defaults_of_the_client(self):
        first, second = self.prepare(), self.prepare()
        self.assertEqual(first.token_ids, second.token_ids)
        tokenized = self.stub.Tokenize(inference_pb.TokenizeRequest(text=TEXT), timeout=30)
        count = len(tokenized.token_ids)
        self.assertGreater(count, 1)
        self.assertEqual(first.token_ids[-count:], tokenized.token_ids)
        again = self.stub.Detokenize(
            inference_pb.DetokenizeRequest(token_ids=tokenized.token_ids), timeout=30)
        self.assertEqual(again.text.strip(), TEXT)
        self.assertEqual(first.stopping.max_tokens, TOKENS)
        self.assertNotEqual(first.sampling.seed, second.sampling.seed)
        self.assertTrue(first.model_digest and first.numerics_id)
        code, message = harness.failure(lambda: self.prepare(top_p=7.0))
        self.assertEqual(code, "INVALID_ARGUMENT")
        self.assertIn("top_p", message)

    def test_run_makes_as_much_as_it_has_credit_for(self):
        prepared = self.prepare(seed=5)
        whole = self.whole(prepared)
        self.assertEqual(len(whole.ids), TOKENS)
        self.assertEqual(inference_pb.FinishReason.Name(whole.last.finish_reason), "LENGTH")
        self.assertEqual(whole.last.usage.completion_tokens, TOKENS)

        run = Run(self.stub, start_of(prepared, credit=10)).read(tokens=10)
        self.assertEqual(run.ids, whole.ids[:10])
        run.send(worker_pb.RunRequest(credit=TOKENS))
        run.end_requests()
        run.read()
        self.assertEqual((run.ids, run.text), (whole.ids, whole.text))
        self.assertEqual(run.code(), grpc.StatusCode.OK)

        # Resume the generation as the front does after a failure of another worker.
        rest = Run(self.stub, start_of(prepared, TOKENS, made=whole.ids[:15], attempt=1))
        rest.end_requests()
        rest.read()
        self.assertEqual((rest.begin, rest.ids), (15, whole.ids[15:]))
        self.assertTrue(whole.text.endswith(rest.text) and rest.text)
        self.assertEqual(rest.last.attempt, 1)

    def test_run_is_cancelled(self):
        run = Run(self.stub, start_of(self.prepare(), credit=3)).read(tokens=3)
        run.send(worker_pb.RunRequest(cancel=worker_pb.Cancel()))
        run.end_requests()
        with self.assertRaises(grpc.RpcError) as ended:
            run.read()
        self.assertEqual(ended.exception.code(), grpc.StatusCode.CANCELLED)

    def test_run_refuses_wrong_requests(self):
        other = self.prepare()
        other.model_digest = "another"
        for requests, code in (([worker_pb.RunRequest(credit=1)], "INVALID_ARGUMENT"),
                               ([], "INVALID_ARGUMENT"),
                               ([start_of(other, 1)], "FAILED_PRECONDITION")):
            with self.subTest(requests=requests):
                self.assertEqual(harness.failure(lambda: self.stub.Run(iter(requests), timeout=30))[0],
                                 code)

    def test_watch_reports_a_worker_repeatedly(self):
        watch = self.stub.Watch(worker_pb.WatchRequest(), timeout=120)
        first = next(watch)
        self.assertEqual((first.worker_id, first.state), ("w7", worker_pb.SERVING))
        prepared = self.prepare()
        self.assertEqual(first.model.digest, prepared.model_digest)
        self.assertEqual(first.model.numerics_id, prepared.numerics_id)
        self.assertGreater(first.kv_blocks_total, 0)
        run = Run(self.stub, start_of(prepared, credit=1)).read(tokens=1)
        self.assertEqual(harness.wait_until(lambda: next(watch).sequences_running, "it runs"), 1)
        run.send(worker_pb.RunRequest(credit=TOKENS))
        run.end_requests()
        run.read()
        after = next(state for state in watch if state.sequences_running == 0)
        self.assertGreater(after.progress, first.progress)
        watch.cancel()

    def test_health_is_watched_until_the_worker_leaves(self):
        leaving = harness.worker()
        self.addCleanup(leaving.kill)
        with harness.open_channel(leaving.address) as channel:
            watch = channel.unary_stream("/grpc.health.v1.Health/Watch")
            states = {name: watch(bytes([0x0a, len(name)]) + name.encode(), timeout=60)
                      for name in ("readiness", SERVICE)}
            for name, state in states.items():
                self.assertEqual(next(state), b"\x08\x01", name)  # SERVING
            leaving.signal(signal.SIGTERM)
            for name, state in states.items():
                self.assertEqual(next(state), b"\x08\x02", name)  # NOT_SERVING
        self.assertEqual(leaving.wait(), 0)

    def grpcurl(self, method, request):
        result = subprocess.run(
            [GRPCURL, "-plaintext", "-max-time", "60", "-d", "@", self.worker.address,
             f"{SERVICE}/{method}"],
            input=request, capture_output=True, text=True, timeout=90,
            env=harness.clean_environment())
        self.assertEqual(result.returncode, 0, f"{method}: {result.stdout}{result.stderr}")
        return result.stdout

    def test_grpcurl_prepares_and_runs(self):
        prepared = json.loads(self.grpcurl("Prepare", json.dumps(
            {"request": {"text": TEXT, "stopping": {"max_tokens": 3}, "sampling": {"seed": 5}}})))
        start = {"prepared": prepared, "prompt_length": len(prepared["token_ids"]), "credit": 3}
        answer = self.grpcurl("Run", json.dumps({"start": start}))
        self.assertIn('"finish_reason": "LENGTH"', answer)
        self.assertIn('"completion_tokens": "3"', answer)


if __name__ == "__main__":
    unittest.main(verbosity=2)

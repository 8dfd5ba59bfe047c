"""The disk becomes full while a server runs: nothing that a client received is lost, and when there
is space again, everything continues.

When the disk becomes full, the streams are blocked, because their clients have not read everything.
So each stream must write more to the store when its client reads.
"""

import resource
import unittest

import grpc

import harness
from harness import Client, Received

STREAMS = 4
TOKENS = 900
# Maximum size of any file that the server writes. The store's log is already longer, so writes
# fail.
FULL = 4 << 10


class FullDiskTest(unittest.TestCase):

    def setUp(self):
        self.store = harness.scratch_folder() / "sessions.db"
        self.server = harness.serve(store=self.store)
        self.addCleanup(self.server.kill)
        self.client = Client(self.server)
        self.addCleanup(self.client.close)
        # Streams that are not read do not block this client.
        self.watcher = Client(self.server)
        self.addCleanup(self.watcher.close)

    def limit_files(self, size=None):
        """Sets the limit of file sizes. None: the usual limit of the machine."""
        _, hard = resource.prlimit(self.server.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self.server.pid, resource.RLIMIT_FSIZE,
                         (hard if size is None else size, hard))

    def stream(self, name, number, received, logprobs=False):
        request = harness.make_request(session=name, text=f"The tide of day {number}",
                                       max_tokens=TOKENS, temperature=1.0, seed=number)
        request.request_id, request.resume_after = f"turn-of-{name}", len(received.ids)
        if logprobs:  # makes messages long
            request.logprobs, request.top_logprobs = True, 20
        return self.client.inference.Generate(request, timeout=120)

    def finish(self, stream, received):
        for message in stream:
            received.take(message)
        return received

    def output_in_log(self, name):
        session = self.watcher.get_session(name)
        return list(session.token_ids)[session.turns[-1].output_start:]

    def check_full(self, call):
        with self.assertRaises(grpc.RpcError) as raised:
            call()
        self.assertEqual(raised.exception.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
        self.assertIn("has reached its size limit", raised.exception.details())

    def test_streams_end_complete_and_sessions_continue(self):
        wanted, received, streams = [], [], []
        for number in range(STREAMS):
            for name in (f"calm-{number}", f"s-{number}"):
                self.client.create_session(name)
            wanted.append(self.finish(self.stream(f"calm-{number}", number, Received()),
                                      Received()))
            received.append(Received())
        for number in range(STREAMS):
            streams.append(self.stream(f"s-{number}", number, received[number], logprobs=True))
        for stream, part in zip(streams, received):
            harness.take_tokens(stream, part, 3)
        harness.wait_until(lambda: harness.stall_of(self.watcher), "the streams stop")
        for number in range(STREAMS):
            self.assertLess(len(self.output_in_log(f"s-{number}")), TOKENS)

        self.limit_files(FULL)
        for stream, part in zip(streams, received):
            self.check_full(lambda: self.finish(stream, part))
            self.assertLess(len(part.ids), TOKENS)
        # All received tokens are in the store. New requests are refused, but sessions can still be
        # read.
        for number, part in enumerate(received):
            log = self.output_in_log(f"s-{number}")
            self.assertEqual(log[:len(part.ids)], part.ids)
        self.check_full(lambda: self.client.create_session("new"))
        self.check_full(lambda: self.client.generate(session="calm-0", text="x", max_tokens=3))
        self.assertTrue(harness.health(self.server.address, "liveness"))
        self.client.generate(text="No session, no disk", max_tokens=3)

        self.limit_files()
        for number, part in enumerate(received):
            self.finish(self.stream(f"s-{number}", number, part), part)
            self.assertEqual(part.ids, wanted[number].ids)
            self.assertEqual(part.text, wanted[number].text)
            self.assertEqual(self.output_in_log(f"s-{number}"), part.ids)
        self.client.create_session("new")
        self.assertEqual(self.server.stop(), 0, self.server.stderr)
        verified = harness.run_tidepool("sessions", "verify", "--store", self.store)
        self.assertEqual(verified.returncode, 0, verified.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)

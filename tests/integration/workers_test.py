"""A front and two workers as separate processes; workers are killed and restarted."""

import contextlib
import signal
import time
import unittest

import grpc

import harness
from harness import Client, Received, failure

SAMPLING = {"temperature": 1.0, "seed": 12}


class TwoWorkers(unittest.TestCase):
    """A front with two workers named left and right."""

    WORKER_FLAGS = ()

    def setUp(self):
        self.workers = [harness.worker("--name", name, *self.WORKER_FLAGS)
                        for name in ("left", "right")]
        self.front = harness.front(self.workers)
        for process in self.workers + [self.front]:
            self.addCleanup(process.kill)
        self.client = Client(self.front)
        self.addCleanup(self.client.close)
        harness.wait_until(lambda: all(one.status_code == 0 for one in self.client.stats().workers),
                           "both workers answer")

    def process_named(self, name):
        return self.workers[("left", "right").index(name)]


class TwoWorkersTest(TwoWorkers):

    @classmethod
    def setUpClass(cls):
        # The response of one process without faults.
        cls.reference_server = harness.serve()
        cls.addClassCleanup(cls.reference_server.kill)
        cls.reference = Client(cls.reference_server)

    def stats_by_name(self):
        return {one.worker_id: one for one in self.client.stats().workers}

    @contextlib.contextmanager
    def who_works(self):
        """Yields a list that will contain the names of the workers that finished requests."""
        before, names = self.stats_by_name(), []
        yield names
        def finished():
            return [name for name, stats in self.stats_by_name().items()
                    if stats.requests_finished_total > before[name].requests_finished_total]
        names += harness.wait_until(finished, "a worker finished a request")

    def test_stats_are_repeated_per_worker(self):
        stats = self.client.stats()
        self.assertEqual(sorted(one.worker_id for one in stats.workers), ["left", "right"])
        self.assertEqual(sorted(one.address for one in stats.workers),
                         sorted(worker.address for worker in self.workers))
        one = self.client.admin.GetStats(harness.admin_pb.GetStatsRequest(worker_id="right"))
        self.assertEqual([worker.worker_id for worker in one.workers], ["right"])
        code, _ = failure(lambda: self.client.admin.GetStats(
            harness.admin_pb.GetStatsRequest(worker_id="middle")))
        self.assertEqual(code, "NOT_FOUND")
        direct = Client(self.process_named("left"))
        self.addCleanup(direct.close)
        self.assertEqual(direct.worker_stats().worker_id, "left")
        self.assertFalse(direct.stats().HasField("front"))

    def test_turns_find_their_kv_on_one_worker(self):
        homes = {}
        for session in (f"home-{number}" for number in range(4)):
            self.client.create_session(session)
            log = 0
            for turn in range(3):
                with self.who_works() as names:
                    answer = self.client.generate(
                        session=session, text=f"Turn {turn} of {session}.", max_tokens=50)
                self.assertEqual(names, [homes.setdefault(session, names[0])])
                block = self.stats_by_name()[names[0]].kv_block_tokens
                if turn > 0:
                    self.assertGreaterEqual(answer.usage.cached_tokens, (log - 1) // block * block)
                log = answer.usage.prompt_tokens + len(answer.ids)

    def test_parallel_work_uses_both(self):
        before = self.stats_by_name()
        # No stream ends before all have begun, because the clients do not read the long messages
        # until then.
        streams = [self.client.wide_stream(text=f"Stream {number}", max_tokens=2500)
                   for number in range(8)]
        heads = [Received() for _ in streams]
        for stream, received in zip(streams, heads):
            harness.take_tokens(stream, received, 1)
        for stream, received in zip(streams, heads):
            for message in stream:
                received.take(message)
            self.assertEqual(len(received.answer().ids), 2500)
        for name, stats in self.stats_by_name().items():
            self.assertGreater(stats.requests_finished_total,
                               before[name].requests_finished_total, name)

    def turn(self, client, text, max_tokens=60):
        return client.generate(session="s", text=text, max_tokens=max_tokens, **SAMPLING)

    def test_a_worker_dies_between_turns(self):
        expected = []
        for client in (self.reference, self.client):
            client.create_session("s")
        self.addCleanup(self.reference.delete_session, "s")
        texts = ["The first turn.", " The second.", " The third."]
        for text in texts:
            expected.append(self.turn(self.reference, text))
        with self.who_works() as names:
            self.assertEqual(self.turn(self.client, texts[0]).ids, expected[0].ids)
        self.process_named(names[0]).kill()
        for text, reference in zip(texts[1:], expected[1:]):
            with self.who_works() as others:
                answer = self.turn(self.client, text)
            self.assertEqual(answer.ids, reference.ids)
            self.assertEqual(answer.text, reference.text)
            self.assertNotEqual(others, names)
        dead = self.stats_by_status(names[0])
        self.assertNotEqual(dead.status_code, 0)
        self.assertTrue(dead.status_message)

    def stats_by_status(self, name):
        address = self.process_named(name).address
        return next(one for one in self.client.stats().workers if one.address == address)

    def test_a_worker_that_hangs_is_avoided(self):
        self.client.create_session("s")
        with self.who_works() as names:
            self.turn(self.client, "Before the frost.")
        frozen = self.process_named(names[0])
        frozen.signal(signal.SIGSTOP)
        harness.wait_until(lambda: self.stats_by_status(names[0]).status_code != 0,
                           "the front notices that a worker is silent")
        before = self.client.get_session("s").token_count
        self.turn(self.client, " In the frost.")
        self.assertGreater(self.client.get_session("s").token_count, before)
        frozen.signal(signal.SIGCONT)
        harness.wait_until(lambda: self.stats_by_status(names[0]).status_code == 0,
                           "the front hears of the worker again")
        self.turn(self.client, " After it.")
        self.assertEqual(self.client.get_session("s").turn_count, 3)

    def test_a_worker_dies_in_the_middle_of_a_stream(self):
        for client in (self.reference, self.client):
            client.create_session("s")
        self.addCleanup(self.reference.delete_session, "s")
        self.turn(self.reference, "Where it begins.")
        expected = self.turn(self.reference, " And it goes on", 2500)
        self.turn(self.client, "Where it begins.")
        stream = self.client.wide_stream(session="s", text=" And it goes on", max_tokens=2500,
                                         **SAMPLING)
        received = Received()
        harness.take_tokens(stream, received, 40)
        names = [name for name, stats in self.stats_by_name().items() if stats.sequences_running]
        self.assertEqual(len(names), 1)
        self.process_named(names[0]).signal(signal.SIGKILL)
        for message in stream:
            received.take(message)
        answer = received.answer()
        self.assertEqual(self.client.stats().front.failovers_total, 1)
        self.assertEqual(answer.ids, expected.ids)
        self.assertEqual(answer.text, expected.text)
        self.assertEqual(answer.finish, "LENGTH")
        self.assertFalse(answer.usage.numerics_changed)
        session = self.client.get_session("s")
        self.assertEqual(list(session.token_ids), list(self.reference.get_session("s").token_ids))

    def test_a_stream_leaves_a_worker_that_hangs(self):
        expected = self.reference.generate(text="A frost", max_tokens=2500, **SAMPLING)
        stream = self.client.wide_stream(text="A frost", max_tokens=2500, **SAMPLING)
        received = Received()
        harness.take_tokens(stream, received, 40)
        name, = [name for name, stats in self.stats_by_name().items() if stats.sequences_running]
        self.process_named(name).signal(signal.SIGSTOP)
        for message in stream:
            received.take(message)
        self.assertEqual(received.answer().ids, expected.ids)
        self.assertEqual(received.answer().text, expected.text)
        self.process_named(name).signal(signal.SIGCONT)
        harness.wait_until(lambda: self.stats_by_name()[name].requests_cancelled_total == 1,
                           "what was left there is cancelled")

    def test_all_workers_die_and_one_comes_back(self):
        request = {"text": "Is anybody there?", "max_tokens": 20}
        expected = self.reference.generate(**request)
        self.assertEqual(self.client.generate(**request).ids, expected.ids)
        for process in self.workers:
            process.kill()
        code, message = failure(lambda: self.client.stream(timeout=2, **request))
        self.assertIn(code, ("UNAVAILABLE", "DEADLINE_EXCEEDED"), message)
        waiting = self.client.stream(**request)
        again = harness.worker("--name", "left", listen=self.workers[0].address)
        self.addCleanup(again.kill)
        received = Received()
        for message in waiting:
            received.take(message)
        self.assertEqual(received.answer().ids, expected.ids)

    def test_a_front_survives_a_worker_that_stops(self):
        """SIGTERM of a worker loses no stream."""
        expected = self.reference.generate(text="Drain", max_tokens=1500, **SAMPLING)
        streams = [self.client.stream(text="Drain", max_tokens=1500, **SAMPLING) for _ in range(4)]
        heads = [Received() for _ in streams]
        for stream, received in zip(streams, heads):
            harness.take_tokens(stream, received, 1)
        self.workers[0].signal(signal.SIGTERM)
        for stream, received in zip(streams, heads):
            for message in stream:
                received.take(message)
            self.assertEqual(received.answer().ids, expected.ids)
        self.assertEqual(self.workers[0].wait(), 0)


class DrainTest(TwoWorkers):
    """The drain time of these workers ends before their streams do, because the clients do not read
    until then."""

    STREAMS = 4
    GRACE = 0.5
    WORKER_FLAGS = ("--drain-grace", f"{GRACE}s", "--drain-timeout", "300ms")

    def request(self, number):
        return {"text": f"Drain {number}", "max_tokens": 2500, **SAMPLING}

    def test_its_streams_continue_elsewhere_and_nothing_failed(self):
        expected = [self.client.generate(**self.request(number)) for number in range(self.STREAMS)]
        streams = [self.client.wide_stream(**self.request(number))
                   for number in range(self.STREAMS)]
        heads = [Received() for _ in streams]
        for stream, received in zip(streams, heads):
            harness.take_tokens(stream, received, 1)
        busy = {one.worker_id: one.sequences_running for one in self.client.stats().workers}
        name = max(busy, key=busy.get)
        leaving = self.process_named(name)
        self.assertGreater(busy[name], 0)
        asked = time.monotonic()
        leaving.signal(signal.SIGTERM)
        harness.wait_until(lambda: not harness.health(leaving.address, "readiness"),
                           "it is not ready any more")
        self.assertEqual(leaving.wait(), 0, leaving.stderr)
        # The worker must not end before the grace time is over.
        self.assertGreaterEqual(time.monotonic() - asked, self.GRACE)
        for stream, received, undisturbed in zip(streams, heads, expected):
            for message in stream:
                received.take(message)
            answer = received.answer()
            self.assertEqual(answer.ids, undisturbed.ids)
            self.assertEqual(answer.text, undisturbed.text)
        front = self.client.stats().front
        self.assertGreater(front.migrations_total, 0)
        self.assertEqual(front.failovers_total, 0)

    def test_admin_drains_as_sigterm_does(self):
        ask = harness.admin_pb.DrainRequest
        code, message = failure(lambda: self.client.admin.Drain(ask(worker_id="middle")))
        self.assertEqual(code, "NOT_FOUND", message)
        answer = self.client.admin.Drain(ask(worker_id="left"), timeout=60)
        self.assertEqual([(one.worker_id, one.status_code) for one in answer.workers],
                         [("left", 0)])
        self.assertEqual(self.workers[0].wait(), 0, self.workers[0].stderr)
        self.assertEqual(len(self.client.generate(text="Still served", max_tokens=8).ids), 8)


class OrderOfStartTest(unittest.TestCase):

    def test_a_front_waits_for_its_worker(self):
        first = harness.worker("--name", "late")
        address = first.address
        first.kill()
        front = harness.front([first], awaited="liveness")
        self.addCleanup(front.kill)
        self.assertFalse(harness.health(front.address, "readiness"))
        client = Client(front)
        self.addCleanup(client.close)
        stats = client.stats().workers
        self.assertEqual(len(stats), 1)
        self.assertEqual(stats[0].status_code, grpc.StatusCode.UNAVAILABLE.value[0])
        stream = client.stream(text="Patience", max_tokens=8)
        late = harness.worker("--name", "late", listen=address)
        self.addCleanup(late.kill)
        received = Received()
        for message in stream:
            received.take(message)
        self.assertEqual(len(received.answer().ids), 8)
        self.assertTrue(harness.health(front.address, "readiness"))

    def test_a_worker_serves_no_clients(self):
        worker = harness.worker()
        self.addCleanup(worker.kill)
        client = Client(worker)
        self.addCleanup(client.close)
        code, _ = failure(lambda: client.stream(text="Hello", max_tokens=1))
        self.assertEqual(code, "UNIMPLEMENTED")
        self.assertTrue(harness.health(worker.address, "tidepool.worker.v1.Worker"))


if __name__ == "__main__":
    unittest.main(verbosity=2)

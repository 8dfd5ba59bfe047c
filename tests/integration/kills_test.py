"""kill -9 of workers close together: no stream is lost, and a prompt that crashes workers is found.

    kills_test.py [ROUNDS [STORM_SECONDS]]

A front has three workers with a random model, or with the real one if TIDEPOOL_TEST_MODEL names it.
Clients do not reconnect: each stream must survive the kills, with the tokens and the text of a
process without faults. The seed is printed, and may be given as TIDEPOOL_TEST_SEED.
"""

import os
import random
import sys
import threading
import time
import unittest

import grpc

import harness
from harness import Client, Received, failure
from tokens import Tokens, client_as
from wire_proxy import WireProxy

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 20
STORM_SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 30.0
REAL = "TIDEPOOL_TEST_MODEL" in os.environ
MODEL = harness.smollm2() if REAL else harness.LLAMA
SEED = int(os.environ.get("TIDEPOOL_TEST_SEED", time.time_ns() % 1_000_000))
WORKERS = 3
STREAMS = 10  # streams in each round
STORM_STREAMS = 12
# Clients read the random model's responses so slowly that these last longer than the kills.
TOKENS = 60 if REAL else 1500
TIMEOUT = 600


def request(number):
    return {"text": f"Stream {number} went out with the tide", "max_tokens": TOKENS,
            "temperature": 1.0, "seed": number}


class Reader(threading.Thread):
    """Reads a message every `pace` seconds until `hurry` is set, then reads fast. Closes its client."""

    def __init__(self, client, number, pace, hurry):
        super().__init__(daemon=True)
        self.client, self.number, self.pace, self.hurry = client, number, pace, hurry
        self.received, self.error = Received(), None
        self.start()

    def run(self):
        try:
            for message in self.client.wide_stream(timeout=TIMEOUT, **request(self.number)):
                self.received.take(message)
                self.hurry.wait(self.pace)
        except Exception as error:  # pylint: disable=broad-except
            self.error = error
        finally:
            self.client.close()


class WorkersTestCase(unittest.TestCase):
    """Workers of a front, which are killed and restarted."""

    @classmethod
    def setUpClass(cls):
        print(f"TIDEPOOL_TEST_SEED={SEED}", flush=True)
        server = harness.serve("--context", "2048", model=MODEL, threads=2)
        client = Client(server)
        cls.undisturbed = [client.generate(timeout=TIMEOUT, **request(number))
                           for number in range(STORM_STREAMS)]
        client.close()
        server.kill()

    def setUp(self):
        self.dice = random.Random(SEED)
        self.workers = [self.start_worker(f"w{index}") for index in range(WORKERS)]
        self.starters, self.kills = [], 0
        self.front = self.client = None
        self.addCleanup(self.close)

    def close(self):
        for starter in self.starters:
            starter.join()
        self.client.close()
        for process in [self.front] + self.workers:
            process.kill()

    @staticmethod
    def start_worker(name, listen="127.0.0.1:0"):
        return harness.worker("--name", name, "--context", "2048", model=MODEL, listen=listen)

    def wait_whole(self):
        harness.wait_until(lambda: all(one.status_code == 0 and one.worker_id
                                       for one in self.client.stats().workers),
                           "all workers answer", 120)

    def kill(self, index):
        """Kills a worker. The next process starts at once, on a thread of its own."""
        self.workers[index].kill()
        self.kills += 1
        address = self.workers[index].address

        def restart():
            self.workers[index] = self.start_worker(f"w{index}", address)
        self.starters.append(threading.Thread(target=restart))
        self.starters[-1].start()

    def wait_restarted(self):
        for starter in self.starters:
            starter.join()
        self.starters = []
        self.wait_whole()

    def new_client(self):
        return Client(self.front)

    def begin(self, count, pace):
        """Begins streams and waits until all of them have begun. Returns them, and an event that makes
        their clients read fast."""
        hurry = threading.Event()
        self.addCleanup(hurry.set)
        readers = [Reader(self.new_client(), number, pace, hurry) for number in range(count)]
        harness.wait_until(lambda: all(one.error or one.received.ids for one in readers),
                           "every stream has begun", 120)
        return readers, hurry

    def check(self, readers, what):
        for reader in readers:
            reader.join(TIMEOUT)
            self.assertFalse(reader.is_alive(), f"{what}: stream {reader.number} hangs")
            self.assertIsNone(reader.error, f"{what}: stream {reader.number}: {reader.error}")
            answer, undisturbed = reader.received.answer(), self.undisturbed[reader.number]
            self.assertEqual(answer.ids, undisturbed.ids, what)
            self.assertEqual(answer.text, undisturbed.text, what)


class KillsTest(WorkersTestCase):

    def setUp(self):
        super().setUp()
        self.front = harness.front(self.workers)
        self.client = Client(self.front)
        self.wait_whole()

    def test_two_kills_up_to_two_seconds_apart(self):
        moved = 0
        for number in range(ROUNDS):
            # The first rounds use the extremes.
            gap = (0.0, 2.0)[number] if number < 2 else self.dice.uniform(0.0, 2.0)
            readers, hurry = self.begin(STREAMS, pace=0.02)
            first, second = self.dice.sample(range(WORKERS), 2)
            before = self.client.stats().front.failovers_total
            self.kill(first)
            hurry.wait(gap)
            self.kill(second)
            self.wait_restarted()
            hurry.set()
            self.check(readers, f"round {number}, {gap:.2f} s apart")
            moved += self.client.stats().front.failovers_total - before
        stats = self.client.stats().front
        print(f"{ROUNDS * STREAMS} streams, {self.kills} kills, {moved} moves", flush=True)
        self.assertGreater(moved, ROUNDS)
        self.assertEqual(stats.poisoned_prompts_refused_total, 0)

    def test_a_kill_every_half_second(self):
        readers, hurry = self.begin(STORM_STREAMS, pace=STORM_SECONDS / 40)
        end = time.monotonic() + STORM_SECONDS
        while time.monotonic() < end:
            running = [index for index in range(WORKERS) if self.workers[index].running()]
            if running:
                self.kill(self.dice.choice(running))
            hurry.wait(0.5)
        self.wait_restarted()
        hurry.set()
        self.check(readers, f"{self.kills} kills")
        stats = self.client.stats().front
        print(f"{self.kills} kills, {stats.failovers_total} moves", flush=True)
        self.assertGreater(self.kills, STORM_SECONDS / 3)
        # No prompt is refused afterwards.
        for number in range(STORM_STREAMS):
            self.assertEqual(self.client.generate(timeout=TIMEOUT, **request(number)).ids,
                             self.undisturbed[number].ids)
        self.assertEqual(stats.poisoned_prompts_refused_total, 0)


class PoisonousWorker(WireProxy):
    """A proxy of a worker. When the worker has computed or prepared a poisonous prompt, the proxy
    calls `kill`, and the worker's last output is lost. So the front sees a prompt that crashes
    workers."""

    def __init__(self, address, poisons, kill):
        super().__init__(address, lambda message: None)
        self._poisons, self._kill = poisons, kill

    def forward(self, path, requests, context):
        first = []

        def noted():
            for data in requests:
                if not first:
                    first.append(self._types[path][0].FromString(data))
                yield data
        made = 0
        for data in super().forward(path, noted(), context):
            answer = self._types[path][1].FromString(data)
            made += len(getattr(answer, "token_ids", ())) if path.endswith("/Run") else 0
            if self._poisons.kills(first[0], made):
                self._kill()
                context.abort(grpc.StatusCode.UNAVAILABLE, "killed")
            yield data


class Poisons:
    """The prompt that crashes workers. A text crashes them during Prepare; token ids crash them
    after a number of output tokens. None: no prompt crashes them."""

    def __init__(self):
        self.text, self.ids, self.place = None, None, 0

    def kills(self, request, made):
        kind = request.DESCRIPTOR.name
        if kind == "PrepareRequest" and self.text is not None:
            return request.request.text == self.text
        if kind == "RunRequest" and self.ids is not None and made > 0:
            start = request.start
            return (list(start.prepared.token_ids) == self.ids
                    and len(start.output_token_ids) + made > self.place)
        return False


class PoisonTest(WorkersTestCase):
    """One prompt crashes every worker that computes it, while other streams run."""

    def setUp(self):
        super().setUp()
        self.poisons = Poisons()
        self.ways = [PoisonousWorker(worker.address, self.poisons,
                                     lambda index=index: self.kill(index))
                     for index, worker in enumerate(self.workers)]
        tokens = Tokens()
        self.made = {name: tokens.new(name, role) for name, role in
                     (("mallory", "user"), ("alice", "user"), ("root", "admin"))}
        self.front = harness.front(self.ways, "--auth-token-file", tokens.path)
        self.client = client_as(self.front, self.made["root"])
        self.mallory = client_as(self.front, self.made["mallory"])
        self.wait_whole()

    def close(self):
        self.mallory.close()
        super().close()
        for way in self.ways:
            way.close()

    def new_client(self):
        return client_as(self.front, self.made["alice"])

    def poison_is_found(self, **poisoned):
        """Checks that the prompt kills three workers, that it is then refused to its sender only,
        and that no other stream is lost."""
        readers, hurry = self.begin(6, pace=0.2)
        code, message = failure(lambda: self.mallory.stream(timeout=TIMEOUT, **poisoned))
        self.assertEqual(code, "INTERNAL", message)
        self.assertIn("3 workers crashed while they computed this prompt", message)
        self.assertEqual(self.kills, WORKERS)
        self.wait_restarted()
        code, message = failure(lambda: self.mallory.stream(**poisoned))
        self.assertEqual(code, "INTERNAL", message)
        self.assertIn("is refused to its sender for another", message)
        self.poisons.ids = self.poisons.text = None  # from now on, no prompt crashes workers
        self.assertEqual(len(self.generate_as_alice(**poisoned).ids), poisoned["max_tokens"])
        self.assertEqual(failure(lambda: self.mallory.stream(**poisoned))[0], "INTERNAL")
        hurry.set()
        self.check(readers, "beside the poison")
        self.assertEqual(self.kills, WORKERS)

    def generate_as_alice(self, **fields):
        alice = self.new_client()
        self.addCleanup(alice.close)
        return alice.generate(**fields)

    def test_in_the_prompt(self):
        self.poisons.ids = list(range(3, 40))
        self.poison_is_found(ids=self.poisons.ids, max_tokens=16)

    def test_in_the_middle_of_the_response(self):
        self.poisons.ids, self.poisons.place = list(range(3, 40)), 5
        self.poison_is_found(ids=self.poisons.ids, max_tokens=40)

    def test_in_the_preparation(self):
        self.poisons.text = "The tide brought poison"
        self.poison_is_found(text=self.poisons.text, max_tokens=16)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)

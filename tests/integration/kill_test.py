"""kill -9 of `serve` again and again, in the middle of many sessions at once.

    kill_test.py [KILLS]

Ten sessions stream at the same time. The server is killed at a random point, and restarts with the
same store file. Then every token that a client received is at its place in the session, and nothing
in the store is damaged. The seed of the points is printed, and may be given as TIDEPOOL_TEST_SEED.
"""

import json
import os
import random
import signal
import sys
import threading
import time
import unittest

import grpc

import harness
from harness import Client, Received

KILLS = int(sys.argv.pop(1)) if len(sys.argv) > 1 else 8
SESSIONS = 10
SEED = int(os.environ.get("TIDEPOOL_TEST_SEED", time.time_ns() % 1_000_000))


class Conversation:
    """One session, and what its client knows about its log."""

    def __init__(self, name, chat):
        self.name, self.chat = name, chat
        self.log = []  # the log when it was last read
        self.running = None  # what the client has received of the turn since then

    def talk(self, client, until):
        """Runs turns one after the other, until the server has ended or `until` is set."""
        turn = 0
        while not until.is_set():
            turn += 1
            try:
                self.take_turn(client, turn)
            except grpc.RpcError as error:
                # A full session is truncated to its beginning; any other error means that the
                # server has ended.
                if error.code() != grpc.StatusCode.FAILED_PRECONDITION:
                    return
                self.running = None
                try:
                    client.truncate_session(self.name, 0)
                except grpc.RpcError:
                    return
                self.log = []

    def take_turn(self, client, turn):
        text = f"Turn {turn} of {self.name}."
        fields = {"chat": [("user", text)]} if self.chat else {"text": text}
        self.running = Received()
        for message in client.stream(session=self.name, max_tokens=40, temperature=1.0, seed=turn,
                                     **fields):
            self.running.take(message)
        self.check(client.get_session(self.name))

    def check(self, session):
        """Checks a session whose turn has ended: it contains all tokens that were read or received
        before."""
        ids = list(session.token_ids)
        received, self.running = self.running, None
        if received is not None and received.ids:
            last = session.turns[-1]
            output = ids[last.output_start:last.end]
            assert output[:len(received.ids)] == received.ids, (
                f"{self.name}: received {received.ids}, logged {output}")
            if self.chat:
                assert last.messages[-1].content.startswith(received.text), self.name
            assert ids[:last.start] == self.log[:last.start], self.name
        self.log = ids


class KillTest(unittest.TestCase):

    def start(self):
        server = harness.serve("--context", "2048", store=self.store)
        self.addCleanup(server.kill)
        return server, Client(server)

    def test_nothing_that_was_received_is_lost(self):
        random_points = random.Random(SEED)
        print(f"TIDEPOOL_TEST_SEED={SEED}, {KILLS} kills", flush=True)
        self.store = harness.scratch_folder() / "sessions.db"
        server, client = self.start()
        conversations = [Conversation(f"s{number}", number % 2 == 0) for number in range(SESSIONS)]
        for conversation in conversations:
            client.create_session(conversation.name)
        hit = 0
        for _ in range(KILLS):
            stop = threading.Event()
            failed = []

            def talk(one):
                try:
                    one.talk(client, stop)
                except AssertionError as error:
                    failed.append(error)

            threads = [threading.Thread(target=talk, args=(one,)) for one in conversations]
            before = client.stats().front.requests_total
            for thread in threads:
                thread.start()
            # The time of the kill depends on the work that was done, not on the clock.
            wanted = before + random_points.randint(SESSIONS, 5 * SESSIONS)
            harness.wait_until(lambda: client.stats().front.requests_total >= wanted,
                               "work is done", timeout=120)
            for _ in range(random_points.randint(0, 30)):
                client.stats()
            server.signal(signal.SIGKILL)
            stop.set()
            for thread in threads:
                thread.join(60)
            server.wait()
            client.close()
            self.assertEqual(failed, [])
            hit += sum(one.running is not None and bool(one.running.ids) for one in conversations)
            verified = harness.run_tidepool("sessions", "verify", "--store", self.store, "--json")
            self.assertEqual(verified.returncode, 0, verified.stdout + verified.stderr)
            self.assertEqual(json.loads(verified.stdout)["sessions"], SESSIONS)
            server, client = self.start()
            for one in conversations:
                session = client.get_session(one.name)
                self.assertFalse(session.busy)
                one.check(session)
        print(f"{hit} streams were interrupted", flush=True)
        self.assertGreater(hit, KILLS)
        self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)

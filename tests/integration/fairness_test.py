"""Short requests are not delayed much by a long prompt, or by streams of another principal that
hold all slots."""

import random
import threading
import unittest

import harness
from tokens import Tokens, client_as

LONG_PROMPT = 4000
PLACES = 4
STREAMS = PLACES + 2
TOKENS = 1500


def ids(seed, count):
    return random.Random(seed).choices(range(3, 250), k=count)


class BesideALongPromptTest(unittest.TestCase):

    def setUp(self):
        self.server = harness.serve("--max-concurrent-prefills", "2")
        self.client = harness.Client(self.server)
        self.attempts = 0

    def tearDown(self):
        self.client.close()
        self.server.kill()

    def overtakes(self):
        """Returns whether a request for one token ends before a long prompt that arrived earlier."""
        self.attempts += 1
        prompt = ids(self.attempts, LONG_PROMPT)
        finished = self.client.wait_idle().requests_finished_total
        answers = []
        reader = threading.Thread(target=lambda: answers.append(
            self.client.generate(ids=prompt, max_tokens=1)))
        reader.start()
        harness.wait_until(lambda: self.client.worker_stats().sequences_running or answers,
                           "the long prompt runs")
        self.client.generate(ids=ids(-self.attempts, 3), max_tokens=1)
        before_the_long_one = self.client.worker_stats().requests_finished_total == finished + 1
        reader.join()
        # Now the prefix of the prompt is cached. So its rows are divided into other steps, but the
        # tokens must be the same.
        self.assertEqual(self.client.generate(ids=prompt, max_tokens=1).ids, answers[0].ids)
        return before_the_long_one

    def test_a_short_request_does_not_wait_for_the_long_prompt(self):
        harness.wait_met(self.overtakes, "the short request ended first", attempts=20)


class BesideAnotherPrincipalTest(unittest.TestCase):

    def setUp(self):
        self.tokens = Tokens()
        alice, bob, root = (self.tokens.new("alice"), self.tokens.new("bob"),
                            self.tokens.new("root", "admin"))
        self.server = harness.serve("--max-sequences", PLACES, "--auth-token-file",
                                    self.tokens.path)
        self.alice, self.bob, self.root = (client_as(self.server, token)
                                           for token in (alice, bob, root))

    def tearDown(self):
        for client in (self.alice, self.bob, self.root):
            client.close()
        self.server.kill()

    def test_a_principal_that_waits_gets_a_place(self):
        answers = [None] * STREAMS

        def read(i):
            answers[i] = self.alice.generate(ids=ids(i, 40), max_tokens=TOKENS, temperature=1,
                                             seed=i)

        readers = [threading.Thread(target=read, args=(i,)) for i in range(STREAMS)]
        for reader in readers:
            reader.start()

        def all_wait():
            stats = self.root.worker_stats()
            return stats.sequences_running == PLACES and stats.sequences_waiting == 2
        harness.wait_until(all_wait, "alice holds all places")
        self.assertEqual(len(self.bob.generate(ids=ids(99, 9), max_tokens=4).ids), 4)
        stats = self.root.worker_stats()
        self.assertEqual(stats.requests_finished_total, 1, "an answer of alice's ended first")
        self.assertGreaterEqual(stats.preemptions_total, 1)
        for reader in readers:
            reader.join()
        # The preempted streams gave the same tokens.
        for i, answer in enumerate(answers):
            read(i)
            self.assertEqual(len(answer.ids), TOKENS)
            self.assertEqual(answers[i].ids, answer.ids, i)


if __name__ == "__main__":
    unittest.main()

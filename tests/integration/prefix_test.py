"""A system prompt that many sessions share is computed once."""

import concurrent.futures
import random
import unittest

import harness
from harness import Client

SESSIONS = 50
# The first session computes at least this number of times as many tokens as any other session.
LESS_WORK = 5
WORDS = "the tide boat net harbour lamp rope gull salt fog bell stone wind oar sail".split()


def system_prompt(client, tokens):
    """Returns a text that has at least this number of tokens."""
    draw = random.Random(11)
    text = ""
    while True:
        text += " ".join(draw.choices(WORDS, k=50)) + ". "
        request = harness.inference_pb.TokenizeRequest(text=text)
        if len(client.inference.Tokenize(request).token_ids) >= tokens:
            return text


class PrefixTest(unittest.TestCase):

    def converse(self, client, system, number):
        name = f"session-{number}"
        client.create_session(name)
        return client.generate(session=name, max_tokens=8,
                               chat=[("system", system), ("user", f"Question {number:02}?")])

    def check_computed_once(self, answers, stats, shared):
        block = stats.kv_block_tokens
        own = max(answer.usage.prompt_tokens for answer in answers) - shared
        # All sessions except one found every whole block of the shared prompt.
        found = sorted(answer.usage.cached_tokens for answer in answers)
        self.assertEqual(found[0], 0)
        self.assertGreater(found[1], shared - block)
        *others, first = sorted(answer.usage.prompt_tokens - answer.usage.cached_tokens
                                for answer in answers)
        self.assertLess(others[-1], own + 2 * block)
        # The number of computed tokens determines the time to first token, which
        # tests/bench/prefix_bench.py measures.
        self.assertGreater(first, LESS_WORK * others[-1])
        self.assertEqual(stats.cached_prompt_tokens_total,
                         sum(answer.usage.cached_tokens for answer in answers))
        self.assertEqual(stats.prompt_tokens_total,
                         sum(answer.usage.prompt_tokens for answer in answers))

    def test_fifty_sessions(self):
        for at_once in (1, SESSIONS):
            with self.subTest(at_once=at_once):
                server = harness.serve(threads=2)
                self.addCleanup(server.kill)
                client = Client(server)
                self.addCleanup(client.close)
                system = system_prompt(client, 1000)
                with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
                    answers = list(pool.map(lambda number: self.converse(client, system, number),
                                            range(SESSIONS)))
                shared = len(client.inference.Tokenize(
                    harness.inference_pb.TokenizeRequest(text=system)).token_ids)
                self.check_computed_once(answers, client.wait_idle(), shared)


if __name__ == "__main__":
    unittest.main(verbosity=2)

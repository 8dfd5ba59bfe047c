"""Concurrent streams return the same tokens as each stream alone."""

import concurrent.futures
import random
import unittest

import harness
from harness import Client

STREAMS = 32
WORDS = "the tide boat net harbour lamp rope gull salt fog bell stone wind oar sail".split()


def make_requests(longest):
    """Returns requests of various lengths, greedy and seeded, some with a shared prefix. `longest` is the
    maximum number of words in a prompt."""
    draw = random.Random(5)
    shared = " ".join(draw.choices(WORDS, k=40))
    requests = []
    for number in range(STREAMS):
        fields = {"max_tokens": draw.choice((5, 17, 40, 90, 150))}
        words = " ".join(draw.choices(WORDS, k=draw.choice((1, 3, 12, 40, longest))))
        if number % 4 == 3:
            fields["chat"] = [("user", words)]
        else:
            fields["text"] = f"{shared} {words}" if number % 4 == 2 else f"{words} {number}"
        if number % 2:
            fields.update(temperature=draw.choice((0.7, 1.0, 1.5)), seed=draw.randrange(1 << 40))
        if number % 8 == 5:
            fields.update(top_k=20, top_p=0.9, repetition_penalty=1.2, presence_penalty=0.3)
        requests.append(fields)
    return requests


class StreamsTest(unittest.TestCase):

    def serve(self, model, *arguments, **more):
        server = harness.serve(*arguments, model=model, **more)
        self.addCleanup(server.kill)
        client = Client(server)
        self.addCleanup(client.close)
        return client

    def check_together_equals_alone(self, model, *arguments, longest=150):
        requests = make_requests(longest)
        alone_client = self.serve(model, *arguments)
        alone = [alone_client.generate(**fields) for fields in requests]
        self.assertGreater(len({tuple(answer.ids) for answer in alone}), STREAMS // 2)

        client = self.serve(model, *arguments, threads=2)
        with concurrent.futures.ThreadPoolExecutor(STREAMS) as pool:
            together = list(pool.map(lambda fields: client.generate(**fields), requests))
        for number, (one, other) in enumerate(zip(alone, together)):
            self.assertEqual(one.ids, other.ids, f"stream {number}: {requests[number]}")
            self.assertEqual(one.text, other.text)
            self.assertEqual(one.finish, other.finish)
            self.assertEqual(one.usage.prompt_tokens, other.usage.prompt_tokens)
        stats = client.wait_idle()
        self.assertEqual(stats.generated_tokens_total, sum(len(answer.ids) for answer in alone))
        self.assertLess(stats.steps_total, stats.generated_tokens_total, "nothing was batched")
        self.assertEqual(stats.kv_blocks_free, stats.kv_blocks_total)

    def test_dense(self):
        self.check_together_equals_alone(harness.LLAMA)

    def test_experts(self):
        self.check_together_equals_alone(harness.MOE)

    def test_quantised_and_exact(self):
        self.check_together_equals_alone(harness.TINY / "qwen2_q8_0.gguf", "--exact", longest=40)

    def test_with_too_little_kv_memory_for_all(self):
        """Streams wait or are preempted, and still return the same tokens."""
        requests = [{"text": f"{'kelp ' * 20}{number}", "max_tokens": 120, "temperature": 1.0,
                     "seed": number} for number in range(16)]
        roomy = self.serve(harness.LLAMA)
        tight = self.serve(harness.LLAMA, "--context", "512", "--kv-memory", "512KiB")
        total = tight.worker_stats().kv_blocks_total * tight.worker_stats().kv_block_tokens
        self.assertLess(total, 16 * 160, "the memory holds all streams at once")
        alone = [roomy.generate(**fields) for fields in requests]
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            together = list(pool.map(lambda fields: tight.generate(**fields), requests))
        self.assertEqual([answer.ids for answer in alone], [answer.ids for answer in together])
        stats = tight.wait_idle()
        self.assertEqual(stats.kv_blocks_free, stats.kv_blocks_total)


if __name__ == "__main__":
    unittest.main(verbosity=2)

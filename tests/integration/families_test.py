"""Models with sliding windows and with MLA: whatever happens to a session's KV, the results stay
bit-identical."""

import json
import shutil
import signal
import unittest

import bits
import harness
from bits import Bits
from harness import Client

HF = harness.TINY.parent / "hf"
# Name -> sliding window in tokens. A window of gemma3 contains parts of four blocks.
MODELS = {"gemma3_text": 70, "gpt_oss_bf16": 33, "deepseek_v3": None}
SHARED_TOKENS = 1000
# KV memory that is too small for the shared tokens and all other tokens of one iteration in
# share().
TIGHT = {"gemma3_text": "640KiB", "gpt_oss_bf16": "320KiB"}


def write_model(name, context=4096):
    """A copy of the golden model with a longer context and its window from MODELS. It has no
    tokenizer and serves token ids."""
    folder = harness.scratch_folder() / name
    shutil.copytree(HF / name, folder)
    config = json.loads((folder / "config.json").read_text())
    config["max_position_embeddings"] = context
    if MODELS[name]:
        config["sliding_window"] = MODELS[name]
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def ids(count, seed):
    return [(i * i + i // 7 * 5 + seed * 13) % 57 for i in range(count)]


class FamiliesTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.models = {name: write_model(name) for name in MODELS}

    def client(self, server):
        self.addCleanup(server.kill)
        client = Client(server)
        self.addCleanup(client.close)
        return client

    def undisturbed(self, name, *arguments):
        return bits.undisturbed(self.models[name], *arguments)

    def expect_same(self, received, expected):
        self.assertEqual(len(received.bits), len(expected))
        self.assertEqual(received.bits, expected)

    def test_forked_and_truncated_sessions(self):
        for name in MODELS:
            with self.subTest(name):
                self.fork_and_truncate(name)

    def fork_and_truncate(self, name):
        client = self.client(harness.serve(model=self.models[name]))
        client.create_session("s")
        first = Bits().read(client, ids(100, 1), 60, session="s")
        log = ids(100, 1) + first.ids
        for position in (31, 33, 64, 71, 100, 130, 159):
            client.fork_session("s", f"at-{position}", position)
            fork = Bits().read(client, [3, 56, 0], 30, session=f"at-{position}")
            self.expect_same(fork, self.undisturbed(name, log[:position] + [3, 56, 0], 30))
            self.assertEqual(fork.cached, position // 32 * 32)
        for position in (140, 97, 65, 32):
            client.truncate_session("s", position)
            again = Bits().read(client, [5, 6], 30, session="s")
            self.expect_same(again, self.undisturbed(name, log[:position] + [5, 6], 30))
            self.assertEqual(again.cached, position // 32 * 32)
            log = log[:position] + [5, 6] + again.ids

    def test_a_worker_dies_in_the_middle_of_a_response(self):
        for name in MODELS:
            with self.subTest(name):
                self.fail_over(name)

    def fail_over(self, name):
        expected = self.undisturbed(name, ids(100, 1), 2500)
        workers = {one: harness.worker("--name", one, model=self.models[name])
                   for one in ("left", "right")}
        for worker in workers.values():
            self.addCleanup(worker.kill)
        client = self.client(harness.front(list(workers.values())))
        received = Bits()
        stream = received.stream(client, ids(100, 1), 2500)
        harness.take_tokens(stream, received, 300)
        busy, = [one.worker_id for one in client.stats().workers if one.sequences_running]
        workers[busy].signal(signal.SIGKILL)
        for message in stream:
            received.take(message)
        self.assertEqual(client.stats().front.failovers_total, 1)
        self.expect_same(received, expected)

    def test_kv_on_disk_outlives_the_process(self):
        for name in MODELS:
            with self.subTest(name):
                self.restart(name)

    def restart(self, name):
        flags = ("--kv-disk", "64MiB", "--cache-dir", harness.scratch_folder())
        server = harness.serve(*flags, model=self.models[name])
        first = Bits().read(self.client(server), ids(300, 1), 100)
        self.assertEqual(first.cached, 0)
        self.assertEqual(server.stop(), 0)
        client = self.client(harness.serve(*flags, model=self.models[name]))
        again = Bits().read(client, ids(300, 1), 100)
        self.expect_same(again, first.bits)
        self.assertEqual(again.cached, 288)
        turn = ids(300, 1) + first.ids + [1]
        following = Bits().read(client, turn, 40)
        self.expect_same(following, self.undisturbed(name, turn, 40))
        self.assertEqual(following.cached, 384)

    def test_a_shared_system_prompt_is_computed_once(self):
        """20 sessions begin with the same tokens. While each of them runs, other requests need
        several times the KV memory."""
        for name in TIGHT:
            with self.subTest(name):
                self.share(name)

    def share(self, name):
        client = self.client(harness.serve("--kv-memory", TIGHT[name], model=self.models[name]))
        roomy = self.client(harness.serve(model=self.models[name]))
        shared = ids(SHARED_TOKENS, 1)
        running = None
        for number in range(20):
            client.create_session(f"s{number}")
            session = Bits()
            prompt = shared + ids(20 + 7 * number, number)
            stream = session.stream(client, prompt, 1000, session=f"s{number}")
            harness.take_tokens(stream, session, 1)
            if running is not None:
                self.end_session(*running, roomy)
            running = number, stream, session, prompt
            # A session ends only after the next one has begun, so there is always a session that
            # uses the shared tokens.
            for other in range(3):
                seed = 1000 + 10 * number + other
                Bits().read(client, [seed % 57, seed // 57] + ids(500, seed), 100)
        self.end_session(*running, roomy)

    def end_session(self, number, stream, session, prompt, roomy):
        for message in stream:
            session.take(message)
        least = 0 if number == 0 else SHARED_TOKENS // 32 * 32
        self.assertGreaterEqual(session.cached, least, f"session {number}")
        if number % 9 == 1:
            self.expect_same(session, Bits().read(roomy, prompt, 1000).bits)


class LongContextTest(unittest.TestCase):

    def test_a_context_far_past_the_window(self):
        """One of seven layers has no window. If none of the seven had a window, their KV would need
        42 MiB."""
        model = write_model("gemma3_text", context=131072)
        shown = harness.run_tidepool("inspect", "--json", "--model", model).stdout
        self.assertEqual(json.loads(shown)["memory"]["kv_bytes_per_token"]["f16"], 48)
        server = harness.serve("--context", "131072", "--kv-memory", "7MiB", model=model)
        self.addCleanup(server.kill)
        client = Client(server)
        self.addCleanup(client.close)
        client.create_session("long")
        long = Bits().read(client, ids(6000, 1), 20, session="long")
        self.assertEqual(long.answer().usage.prompt_tokens, 6000)
        turn = Bits().read(client, [1, 2, 3], 5, session="long")
        self.assertEqual(turn.cached, 6019 // 32 * 32)


if __name__ == "__main__":
    unittest.main(verbosity=2)

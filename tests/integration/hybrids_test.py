"""Hybrids, whose gated delta nets have a recurrent state. Whatever happens to a session, the
results stay bit-identical, and a stored state is used again."""

import json
import signal
import threading
import unittest

import bits
import harness
import hybrid_model
from bits import Bits
from harness import Client
from hybrid_model import Sizes

MODELS = {"dense": Sizes(), "experts": Sizes(experts=6)}
BLOCK = 32
PROMPT_END = 8  # a prompt's checkpoint is at least this number of tokens before its end
# A model with states of 2.5 MiB, and less KV memory than 64 of its sequences need.
LARGE = Sizes(layers=8, state=128, v_heads=6)
LARGE_MEMORY = 192 << 20


def ids(count, seed):
    return [(i * i + i // 7 * 5 + seed * 13) % 57 for i in range(count)]


class HybridsTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        folder = harness.scratch_folder()
        cls.models = {name: hybrid_model.write(folder / f"{name}.gguf", sizes)
                      for name, sizes in MODELS.items()}

    def client(self, server):
        self.addCleanup(server.kill)
        client = Client(server)
        self.addCleanup(client.close)
        return client

    def expect_same(self, received, model, *arguments):
        expected = bits.undisturbed(model, *arguments)
        self.assertEqual(len(received.bits), len(expected))
        self.assertEqual(received.bits, expected)

    def for_each_model(self, check):
        for name, model in self.models.items():
            with self.subTest(name):
                check(model)

    def test_forked_and_truncated_sessions(self):
        self.for_each_model(self.fork_and_truncate)

    def fork_and_truncate(self, model):
        client = self.client(harness.serve(model=model))
        client.create_session("s")
        first = Bits().read(client, ids(100, 1), 60, session="s")
        log = ids(100, 1) + first.ids
        # The positions are inside and at the ends of the prompt's blocks; before, at and after the
        # checkpoint near the prompt's end; inside of the response; and before, at and after its
        # last checkpoint.
        for position in (5, 31, 32, 33, 63, 64, 65, 91, 92, 95, 96, 97, 99, 100, 101, 127, 128, 129,
                         159, 160):
            client.fork_session("s", f"at-{position}", position)
            fork = Bits().read(client, [3, 56, 0], 30, session=f"at-{position}")
            self.expect_same(fork, model, log[:position] + [3, 56, 0], 30)
            if position >= 64:
                self.assertGreaterEqual(fork.cached, (100 - PROMPT_END) // BLOCK * BLOCK)
        for position in (140, 129, 128, 127, 97, 96, 65, 64, 32):
            client.truncate_session("s", position)
            again = Bits().read(client, [5, 6], 30, session="s")
            self.expect_same(again, model, log[:position] + [5, 6], 30)
            log = log[:position] + [5, 6] + again.ids

    def test_a_second_turn_computes_64_tokens_again_at_most(self):
        self.for_each_model(self.converse)

    def converse(self, model):
        """Six turns. The process is replaced after every second one."""
        flags = ("--kv-disk", "64MiB", "--cache-dir", harness.scratch_folder(),
                 "--kv-memory", "2MiB", "--context", "2048")
        store = harness.scratch_folder() / "store.db"
        roomy = self.client(harness.serve(model=model))
        server, log = None, []
        for turn in range(6):
            if turn % 2 == 0:
                server = harness.serve(*flags, model=model, store=store)
                client = self.client(server)
            if turn == 0:
                client.create_session("s")
            said = ids(120 + 31 * turn, turn)
            answer = Bits().read(client, said, 60 + 17 * turn, session="s")
            self.assertGreaterEqual(answer.cached, len(log) - 64, f"turn {turn}")
            log += said
            self.assertEqual(answer.bits, Bits().read(roomy, log, 60 + 17 * turn).bits)
            log += answer.ids
            if turn % 2 == 1:
                self.assertEqual(server.stop(), 0)

    def two_workers(self, model):
        flags = ("--drain-grace", "100ms", "--drain-timeout", "300ms")
        workers = {one: harness.worker("--name", one, *flags, model=model)
                   for one in ("left", "right")}
        for worker in workers.values():
            self.addCleanup(worker.kill)
        return workers, self.client(harness.front(list(workers.values())))

    def test_a_worker_ends_in_the_middle_of_a_response(self):
        for end in (signal.SIGKILL, signal.SIGTERM):
            with self.subTest(end.name):
                self.for_each_model(lambda model, end=end: self.move(model, end))

    def move(self, model, end):
        """Checks that a response and the next turn move to the other worker."""
        workers, client = self.two_workers(model)
        client.create_session("s")
        received = Bits()
        stream = received.stream(client, ids(100, 1), 2500, session="s")
        harness.take_tokens(stream, received, 300)
        busy, = [one.worker_id for one in client.stats().workers if one.sequences_running]
        workers[busy].signal(end)
        workers[busy].wait()  # the unread response cannot end before its worker does
        for message in stream:
            received.take(message)
        stats = client.stats().front
        self.assertEqual(stats.failovers_total + stats.migrations_total, 1)
        self.expect_same(received, model, ids(100, 1), 2500)
        log = ids(100, 1) + received.ids
        turn = Bits().read(client, [1, 2, 3], 40, session="s")
        self.expect_same(turn, model, log + [1, 2, 3], 40)
        self.assertGreaterEqual(turn.cached, len(log) - 64)

    def test_50_sessions_compute_a_shared_prompt_once(self):
        self.for_each_model(self.share)
        # If experts are read from disk, a forward pass has up to 2,048 rows of a prompt.
        with self.subTest("experts on disk"):
            self.share(self.models["experts"], "--expert-memory", "1300KiB")

    def share(self, model, *flags):
        client = self.client(harness.serve(*flags, model=model))
        for number in range(50):
            client.create_session(f"s{number}")
        streams, prompts = [], [ids(1000, 1) + [number, *ids(200, number)] for number in range(50)]
        received = [Bits() for _ in prompts]
        for number, prompt in enumerate(prompts):
            streams.append(received[number].stream(client, prompt, 5, session=f"s{number}"))
        for session, stream in zip(received, streams):
            for message in stream:
                session.take(message)
        # The first session computes the 1,000 shared tokens. Each other session computes 8 of them.
        self.assertEqual(sum(session.cached for session in received), 49 * 992)
        for number in (0, 1, 25, 49):
            self.expect_same(received[number], model, prompts[number], 5)

    def test_a_checkpoint_costs_one_state(self):
        self.for_each_model(self.measure)

    def measure(self, model):
        shown = json.loads(harness.run_tidepool("inspect", "--json", "--model", model).stdout)
        memory = 4 << 20
        client = self.client(harness.serve("--kv-memory", "4MiB", model=model))
        for prompt, outputs in ((20, 20), (100, 60), (333, 40)):
            before = client.wait_idle()
            Bits().read(client, ids(prompt, prompt), outputs)
            after = client.wait_idle()
            state = after.kv_state_bytes
            self.assertEqual(state, shown["memory"]["state_bytes"])
            self.assertEqual(3 * state, shown["memory"]["state_bytes_per_sequence"])
            block = memory // after.kv_blocks_total
            self.assertEqual(state % block, 0)
            # The last output token has no KV. All layers with attention have their KV in one block.
            tokens = (prompt + outputs - 1) // BLOCK
            checkpoints = after.kv_checkpoints - before.kv_checkpoints
            self.assertGreaterEqual(checkpoints, 1)
            self.assertEqual(after.kv_blocks_cached - before.kv_blocks_cached,
                             tokens + checkpoints * state // block)

    def test_64_sequences_stay_inside_of_the_kv_memory(self):
        model = hybrid_model.write(harness.scratch_folder() / "large.gguf", LARGE)
        server = harness.serve("--kv-memory", f"{LARGE_MEMORY >> 20}MiB", "--max-sequences", "64",
                               model=model, threads=2)
        client = self.client(server)
        Bits().read(client, ids(600, 99), 5)  # allocates what does not belong to the KV
        state = client.wait_idle().kv_state_bytes
        self.assertGreater(64 * 3 * state, 2 * LARGE_MEMORY)
        before = harness.resident_bytes(server)
        prompts = [ids(150 + number, number) for number in range(64)]
        received = [Bits() for _ in prompts]
        readers = [threading.Thread(target=one.read, args=(client, prompt, 60))
                   for one, prompt in zip(received, prompts)]
        for reader in readers:
            reader.start()
        sizes = []

        def ended():
            sizes.append(harness.resident_bytes(server))
            return not any(reader.is_alive() for reader in readers)
        harness.wait_until(ended, "all sequences end", 300)
        growth = max(sizes) - before
        print(f"64 sequences took {growth >> 20} MiB of {LARGE_MEMORY >> 20} MiB; a state has "
              f"{state / (1 << 20):.2f} MiB")
        slack = 256 << 20 if harness.SANITIZED else 24 << 20  # for streams and stacks
        self.assertLessEqual(growth, LARGE_MEMORY + slack)
        for session in received:
            self.assertEqual(len(session.answer().ids), 60)
        for number in (0, 33, 63):
            self.expect_same(received[number], model, prompts[number], 60)


if __name__ == "__main__":
    unittest.main(verbosity=2)

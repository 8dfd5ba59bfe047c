"""A server's model is ten times its --expert-memory. The server's peak memory is at most
--expert-memory, the other weights, the KV cache and 200 MiB. This is also true for the first start,
which writes the pack."""

import pathlib
import re
import threading

import harness
import synthetic_model
from command_test_case import CommandTest
from memory_test import peak_bytes

MIB = 1 << 20
EXPERT_MEMORY, KV = 32 * MIB, 24 * MIB
OVERHEAD = 200 * MIB
PROMPTS = [list(range(3, 3 + length)) for length in (500, 1, 40, 200)]
# This prompt causes the longest forward pass, which needs the most workspace.
LONGEST = [3 + place % 501 for place in range(2048)]
CONTEXT = 2560
FLAGS = ("--kv-memory", "24MiB", "--expert-memory", "32MiB", "--context", str(CONTEXT))


def peak_of(process):
    """Returns the peak resident memory (VmHWM) of a running process."""
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE).group(1)) * 1024


class OffloadMemoryTest(CommandTest):

    @classmethod
    def setUpClass(cls):
        cls.folder = harness.scratch_folder()
        cls.model = synthetic_model.make(cls.folder / "model.gguf", *synthetic_model.LARGE)
        synthetic_model.set_context(cls.model, CONTEXT)

    def setUp(self):
        memory = self.run_json("inspect", "--model", self.model)["memory"]
        self.assertGreater(memory["expert_bytes"], 10 * EXPERT_MEMORY)
        self.dense = memory["weight_bytes"] - memory["expert_bytes"]
        self.limit = self.dense + KV + EXPERT_MEMORY + OVERHEAD
        self.cache = harness.scratch_folder()
        self.flags = (*FLAGS, "--cache-dir", self.cache)

    def check(self, what, peak):
        print(f"{what}: peak {peak / MIB:.1f} MiB, limit {self.limit / MIB:.1f} MiB")
        self.assertLessEqual(peak, self.limit, what)
        # All slots were in use: a smaller peak would mean that nothing was offloaded.
        self.assertGreater(peak, self.dense + EXPERT_MEMORY * 0.9, what)

    def packs(self):
        return len(list(self.cache.iterdir()))

    def test_a_server_s_first_and_second_start(self):
        answers = []
        for start in ("first start, which packs", "second start"):
            server = harness.serve(*self.flags, model=self.model, threads=2)
            self.addCleanup(server.kill)
            self.assertEqual(self.packs(), 1)
            client = harness.Client(server)
            self.addCleanup(client.close)
            longest = client.generate(ids=LONGEST, max_tokens=24).ids
            # One pass for the prompt, and one for each token after the first.
            self.assertEqual(client.worker_stats().steps_total, len(longest))
            got = [None] * len(PROMPTS)

            def generate(i, client=client, got=got):
                got[i] = client.generate(ids=PROMPTS[i], max_tokens=24).ids

            threads = [threading.Thread(target=generate, args=(i,)) for i in range(len(PROMPTS))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            offload = client.worker_stats().offload
            self.assertLessEqual(offload.capacity_bytes, EXPERT_MEMORY)
            self.assertGreater(offload.total.misses, offload.slots)
            self.check(start, peak_of(server))
            self.assertEqual(server.stop(), 0)
            answers.append([longest, *got])
        self.assertEqual(answers[0], answers[1])
        self.assertTrue(all(len(ids) == 24 for ids in answers[0]))

    def test_commands(self):
        self.check("generate, which packs", peak_bytes(
            "generate", "-m", self.model, "--tokens", ",".join(map(str, LONGEST)), "-n", "8",
            "--temperature", "0", "-t", "2", *self.flags))
        self.assertEqual(self.packs(), 1)
        pack = peak_bytes("pack", "-m", self.model, "--cache-dir", self.cache, "--force", "-t", "2")
        print(f"pack: peak {pack / MIB:.1f} MiB")
        self.assertLessEqual(pack, self.dense + OVERHEAD)


if __name__ == "__main__":
    import unittest
    unittest.main()

"""A mixture of experts much larger than its memory, in a cgroup whose limit the kernel enforces.

Needs root and a memory cgroup that can have children; otherwise the tests are skipped with a
message. The model has random weights of about 350 MB, and is generated for the test.
"""

import shlex
import unittest

import harness
import synthetic_model
from command_test_case import CommandTest
from memory_group import MemoryGroup

MIB = 1 << 20
OVERHEAD = 200 * MIB


class CgroupTest(CommandTest):

    def setUp(self):
        self.own_binary = harness.BINARY
        self.addCleanup(setattr, harness, "BINARY", self.own_binary)
        self.model = harness.scratch_folder() / "model.gguf"

    def make_model(self):
        """Creates the model. Returns the number of bytes of its dense weights and of its experts."""
        synthetic_model.make(self.model, *synthetic_model.LARGE)
        memory = self.run_json("inspect", "--model", self.model)["memory"]
        return memory["weight_bytes"] - memory["expert_bytes"], memory["expert_bytes"]

    def join(self, limit):
        """Makes the harness start every program in a group with this limit."""
        try:
            group = MemoryGroup(limit)
        except OSError as error:
            self.skipTest(str(error))
        self.addCleanup(group.remove)
        script = harness.scratch_folder() / "tidepool"
        command = shlex.join([*group.prefix(), str(self.own_binary)])
        script.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        script.chmod(0o755)
        harness.BINARY = script
        return group

    def test_budget_and_200_mib_are_enough_from_the_first_start_on(self):
        expert_memory, kv = 32, 16  # MiB
        dense_bytes, expert_bytes = self.make_model()
        synthetic_model.set_context(self.model, 2560)
        self.assertGreater(expert_bytes, 10 * expert_memory * MIB)
        group = self.join(int((dense_bytes + (expert_memory + kv) * MIB + OVERHEAD) * 1.1))
        for state in ("packs", "has its pack"):
            result = harness.run_tidepool(
                "generate", "--model", self.model, "--tokens",
                ",".join(str(3 + place % 501) for place in range(2048)), "--max-tokens", "8",
                "--context", "2560", "--temperature", "0", "--kv-memory", f"{kv}MiB",
                "--expert-memory", f"{expert_memory}MiB")
            self.assertEqual(result.returncode, 0, f"{state}: {result.stderr}")
        self.assertEqual(group.kills(), 0)

    def test_a_server_finds_its_budget_in_half_the_model_s_size(self):
        self.make_model()
        group = self.join(self.model.stat().st_size // 2)
        memory = self.run_json("inspect", "--model", self.model)["memory"]
        planned = memory["experts_in_memory"]
        self.assertLess(planned, memory["experts"])
        self.assertLess(memory["kv_bytes"], self.model.stat().st_size // 8 + 1)
        server = harness.serve(model=self.model)
        try:
            client = harness.Client(server)
            answer = client.generate(ids=list(range(300)), max_tokens=16)
            self.assertEqual(len(answer.ids), 16)
            offload = client.worker_stats().offload
            self.assertLess(offload.slots, offload.experts)
            # The free memory changes between the two measurements.
            self.assertAlmostEqual(offload.slots / planned, 1, delta=0.15)
            self.assertIn(f"experts   {offload.slots} of {offload.experts} in ", server.stdout)
            client.close()
        finally:
            self.assertEqual(server.stop(), 0)
        self.assertEqual(group.kills(), 0)


if __name__ == "__main__":
    unittest.main()

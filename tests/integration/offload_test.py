"""Experts under a memory budget, from the command line and served."""

import os
import pathlib
import shutil
import unittest

import grpc
import harness
from command_test_case import CommandTest
from harness import run_tidepool

# Of the 16 experts of two layers 4 and 7 slots, and all: eight records are for what passes through.
BUDGETS = ("75%", "94%", "1GiB")


class OffloadTest(CommandTest):

    def setUp(self):
        self.folder = harness.scratch_folder()
        self.model = self.folder / "moe.gguf"
        shutil.copy(harness.MOE, self.model)
        self.pack = pathlib.Path(f"{self.model}.tidepack")

    def answer(self, *flags):
        return self.run_json("generate", "--model", self.model, "--prompt", "The tide",
                             "--max-tokens", "12", "--temperature", "0", *flags)

    def test_budgets_change_no_token(self):
        whole = self.answer()
        self.assertFalse(self.pack.exists())
        self.assertEqual(whole["usage"]["expert_misses"], 0)
        needs = whole["usage"]["expert_hits"]
        for budget in BUDGETS:
            for policy in ("adaptive", "tide", "lru", "static"):
                answer = self.answer("--expert-memory", budget, "--offload-policy", policy)
                self.assertEqual(answer["token_ids"], whole["token_ids"], (budget, policy))
                usage = answer["usage"]
                self.assertEqual(usage["expert_hits"] + usage["expert_misses"], needs)
        self.assertTrue(self.pack.exists())

    def test_a_run_s_counters_are_its_replay_s(self):
        trace = self.folder / "trace.jsonl"
        for policy in ("adaptive", "tide", "lru"):
            report = self.run_json("bench", "--model", self.model, "-p", "20", "-n", "20", "-r", "2",
                                   "--expert-memory", "75%", "--offload-policy", policy,
                                   "--refresh-interval", "3", "--trace-experts", trace)
            offload = report["offload"]
            replayed = self.run_json("replay", "--trace", trace, "--slots", offload["slots"],
                                     "--policy", policy, "--refresh-interval", "3")
            for name in ("hits", "misses", "promotions"):
                self.assertEqual(replayed["results"][0][name], offload["total"][name], (policy, name))

    def test_pack_beforehand_and_elsewhere(self):
        first = self.run_json("pack", "--model", self.model)
        self.assertEqual(first["out"], str(self.pack))
        self.assertTrue(first["written"])
        self.assertFalse(self.run_json("pack", "--model", self.model)["written"])
        self.assertTrue(self.run_json("pack", "--model", self.model, "--force")["written"])
        cache = self.folder / "cache"
        cache.mkdir()
        other = self.run_json("pack", "--model", self.model, "--cache-dir", cache)
        self.assertEqual(pathlib.Path(other["out"]).parent, cache)
        self.assertEqual(sorted(os.listdir(self.folder)), ["cache", "moe.gguf", "moe.gguf.tidepack"])

    def test_refusals(self):
        self.refuse("pack", "--model", harness.LLAMA, named="has no experts")
        run = ("generate", "--model", self.model, "--prompt", "a", "--max-tokens", "1")
        self.refuse(*run, "--expert-memory", "1KiB",
                    named=("--expert-memory", "8 staging records and the 3 experts"))
        for flag, value in (("--expert-memory", "half"), ("--expert-memory", "101%"),
                            ("--expert-memory", "5"), ("--offload-policy", "fifo"),
                            ("--prefetch", "maybe"), ("--expert-reader", "mmap"),
                            ("--refresh-interval", "0"), ("--reserve-memory", "some")):
            self.refuse(*run, flag, value, named=flag)
        self.refuse(*run, "--expert-memory", "75%", "--cache-dir", "/nowhere", named="/nowhere/")
        self.refuse(*run, "--trace-experts", "/nowhere/trace", named="/nowhere/trace")

    def test_a_damaged_record_ends_what_needs_it(self):
        self.run_well("pack", "--model", self.model)
        data = bytearray(self.pack.read_bytes())
        header, records = 4096, 16
        record = (len(data) - header) // records
        for expert in range(8):  # of the second layer
            data[header + (8 + expert) * record + 7] ^= 1
        self.pack.write_bytes(data)
        result = run_tidepool("generate", "--model", self.model, "--prompt", "The tide",
                              "--max-tokens", "4", "--expert-memory", "75%")
        self.assertNotEqual(result.returncode, 0)
        self.assertRegex(result.stderr, r"moe\.gguf\.tidepack: layer 1, expert \d is damaged")

    def test_a_server_outlives_its_pack_s_damage(self):
        server = harness.serve("--expert-memory", "75%", "--offload-policy", "lru", model=self.model)
        try:
            client = harness.Client(server)
            ask = {"text": "The tide", "max_tokens": 8, "temperature": 0}
            whole = client.generate(**ask)
            data = self.pack.read_bytes()
            for damage in ("cut", "changed"):
                with open(self.pack, "r+b") as pack:
                    if damage == "cut":
                        pack.truncate(4096)
                    else:
                        pack.seek(4096)
                        pack.write(bytes(byte ^ 1 for byte in data[4096:]))
                with self.assertRaises(grpc.RpcError) as raised:
                    client.generate(**ask)
                self.assertEqual(raised.exception.code(), grpc.StatusCode.DATA_LOSS, damage)
                self.assertIn("moe.gguf.tidepack: layer ", raised.exception.details())
                self.assertGreater(client.worker_stats().offload.total.failed_reads, 0)
                with open(self.pack, "r+b") as pack:  # the file that the server has open
                    pack.write(data)
                self.assertEqual(client.generate(**ask).ids, whole.ids)
            client.close()
        finally:
            server.stop()

    def test_a_trace_that_cannot_be_written_is_no_success(self):
        result = run_tidepool("bench", "--model", self.model, "-p", "4", "-n", "4", "-r", "1",
                              "--trace-experts", "/dev/full")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("cannot write the trace /dev/full", result.stderr)

    def test_a_server_shows_its_tiers(self):
        server = harness.serve("--expert-memory", "75%", "--offload-policy", "lru", model=self.model)
        try:
            client = harness.Client(server)
            for _ in range(3):
                client.generate(text="The tide", max_tokens=8)
            client.close()
            stats = self.run_json("stats", "--server", server.address, "--once")
            worker = stats["workers"][0]
            offload = worker["offload"]
            self.assertEqual(offload["policy"], "lru")
            self.assertEqual((offload["slots"], offload["experts"], offload["staging_records"]),
                             (4, 16, 8))
            total = offload["total"]
            self.assertEqual(total["hits"], worker["expert_hits_total"])
            self.assertEqual(total["misses"], worker["expert_misses_total"])
            self.assertEqual(total["misses"], total["promotions"] + total["pass_throughs"])
            self.assertGreater(total["demand_bytes"], 0)
            text = self.run_well("stats", "--server", server.address, "--once").stdout
            self.assertIn("slots       4 of 16 experts", text)
        finally:
            server.stop()


if __name__ == "__main__":
    unittest.main()

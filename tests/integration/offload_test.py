"""Offloaded experts, from the command line and in a server."""

import os
import pathlib
import pty
import shutil
import subprocess
import unittest

import harness
from command_test_case import CommandTest
from harness import run_tidepool

# The model has 16 experts in two layers. These budgets have slots for 4, 7 and all 16 of them, and
# memory for eight staging records.
BUDGETS = ("75%", "94%", "1GiB")


def names_in(value, path=""):
    """Returns the paths of all members of an object, including those of nested objects and lists."""
    if isinstance(value, dict):
        return {name for key, inner in value.items()
                for name in {path + key} | names_in(inner, f"{path}{key}.")}
    if isinstance(value, list):
        return set().union(*(names_in(inner, path) for inner in value))
    return set()


def stderr_on_a_terminal(*arguments):
    """Runs a command on a terminal. The command must succeed. Returns its stderr."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([str(harness.BINARY), *map(str, arguments)],
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs,
                               env=harness.clean_environment())
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 65536):
            shown += chunk
    except OSError:  # the program has closed its end
        pass
    os.close(ours)
    assert process.wait(timeout=60) == 0, shown
    return shown.decode()


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

    def test_a_damaged_record_is_made_again(self):
        whole = self.answer()["token_ids"]
        self.run_well("pack", "--model", self.model)
        data = bytearray(self.pack.read_bytes())
        header, records = 4096, 16
        record = (len(data) - header) // records
        for expert in range(8):  # of the second layer
            data[header + (8 + expert) * record + 7] ^= 1
        self.pack.write_bytes(data)
        self.assertEqual(self.answer("--expert-memory", "75%")["token_ids"], whole)
        result = self.run_well("pack", "--model", self.model)
        self.assertIn("already exists", result.stdout)

    def test_a_server_outlives_its_pack_s_damage(self):
        self.run_well("pack", "--model", self.model)
        data = self.pack.read_bytes()
        # The kinds of damage: all records are missing; the last block of the last record is
        # missing; some sectors of this block are missing; the file ends inside a sector; one byte
        # is changed.
        damages = (len(data) - 4096, 4096, 512 * 3, 777, "changed")
        for reader in ("uring", "threads"):
            server = harness.serve("--expert-memory", "75%", "--offload-policy", "lru",
                                   "--expert-reader", reader, model=self.model)
            self.addCleanup(server.kill)
            client = harness.Client(server)
            self.addCleanup(client.close)
            for number, damage in enumerate(damages):
                with self.subTest(reader=reader, damage=damage):
                    self.check_damage(client, data, damage, number)
            self.assertEqual(server.stop(), 0)

    def check_damage(self, client, data, damage, number):
        """A request with a damaged pack gets its tokens, from records that are rebuilt.
       `damage`: how many bytes of its end are missing, or "changed"."""
        # Enough tokens to need every expert, and different ones each time, so that none is in the
        # prefix cache.
        ids = [(1 + number) * place * 37 % 250 for place in range(1, 200)]
        whole = self.run_json("generate", "--model", self.model, "--tokens",
                              ",".join(map(str, ids)), "--max-tokens", "8", "--temperature",
                              "0")["token_ids"]
        ask = {"ids": ids, "max_tokens": 8, "temperature": 0}
        rebuilt = client.worker_stats().offload.total.rebuilt_records
        with open(self.pack, "r+b") as pack:  # the file that the server has open
            if damage == "changed":
                pack.seek(4096)
                pack.write(bytes(byte ^ 1 for byte in data[4096:]))
            else:
                pack.truncate(len(data) - damage)
        self.assertEqual(client.generate(**ask).ids, whole)
        offload = client.worker_stats().offload
        self.assertGreater(offload.total.rebuilt_records, rebuilt)
        self.assertEqual((offload.lost_records, offload.total.failed_record_writes), (0, 0))
        with open(self.pack, "r+b") as pack:
            pack.write(data)
        self.assertEqual(client.generate(**ask).ids, whole)

    def test_packing_shows_how_far_it_is(self):
        what = f"packing the experts of {self.model}"
        packed = [100 * records // 16 for records in range(1, 17)]
        for command in (("pack",), ("generate", "--prompt", "The tide", "--max-tokens", "1",
                                    "--expert-memory", "75%")):
            command += ("--model", self.model)
            told = self.run_well(*command).stderr.splitlines()
            self.assertEqual([line for line in told if "packing" in line],
                             [f"tidepool: {what}, once",
                              *(f"tidepool: {what}: {tenth} %" for tenth in range(10, 101, 10))])
            self.assertNotIn("packing", self.run_well(*command).stderr)
            self.pack.unlink()
            shown = stderr_on_a_terminal(*command)
            # One line that is rewritten repeatedly and erased at the end.
            line = "".join(f"\r\033[K{what}: {percent} %" for percent in packed)
            self.assertEqual(shown[:len(line)], line)
            self.assertTrue(shown[len(line):].startswith("\r\033[K"), shown)
            self.assertNotIn("packing", shown[len(line):])
            self.pack.unlink()

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
            # The report of bench has the same names, and three more.
            bench = self.run_json("bench", "--model", self.model, "-p", "4", "-n", "4", "-r", "2",
                                  "--expert-memory", "75%", "--offload-policy", "lru")
            own = {"expert_hits_total", "expert_misses_total", "weight_bytes"}
            names = names_in(bench["offload"])
            self.assertEqual(names - own, names_in(offload))
            self.assertLessEqual(own, names)
            for name in ("record_bytes", "slots", "experts", "capacity_bytes", "reader", "policy"):
                self.assertEqual(bench["offload"][name], offload[name], name)
            *_, last = bench["results"]
            self.assertEqual(last["offload"], bench["offload"]["window"])
            self.assertGreater(bench["offload"]["window_seconds"], 0)
            self.assertGreater(bench["offload"]["total"]["hits"], last["offload"]["hits"])
            text = self.run_well("stats", "--server", server.address, "--once").stdout
            self.assertIn("slots       4 of 16 experts", text)
        finally:
            server.stop()


if __name__ == "__main__":
    unittest.main()

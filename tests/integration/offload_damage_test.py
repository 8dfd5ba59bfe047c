"""Damaged experts are rebuilt from the model file. If that is damaged too, requests that need such
an expert fail and name it, other requests get their usual response, and the server is not ready."""

import json
import os
import pathlib
import threading
import urllib.error
import urllib.request

import gguf_bytes
import harness
import synthetic_model
from command_test_case import CommandTest
from harness import admin_pb, failure

# The model has many experts, and uses one per token, so that two responses have few experts in common.
# Its vocabulary is large and slow to compute, so that one response still runs while the other request
# arrives and fails.
EXPERTS = 256
SIZES = ("--layers", "2", "--hidden", "256", "--width", "64", "--experts", EXPERTS, "--top-k", "1",
         "--vocabulary", "65536", "--type", "Q8_0")
LONG, SHORT = 500, 4  # output tokens
PROMPTS = [[number, 2 * number + 1] for number in range(10, 90)]
# On a busy machine, the long response may end before the short request arrives. So the test sends
# the two requests again until MEETINGS long responses continued after the failure, at most ROUNDS
# times. Every response and every error must be the expected one.
MEETINGS, ROUNDS = 3, 100


class Run:
    """A prompt, its result without damage, and the (layer, expert) pairs that it needs."""

    def __init__(self, test, prompt, max_tokens):
        self.prompt, self.max_tokens = prompt, max_tokens
        trace = test.folder / "trace.jsonl"
        answer = test.run_json("generate", "--model", test.model, "--tokens",
                               ",".join(map(str, prompt)), "--max-tokens", max_tokens,
                               "--temperature", "0", "--trace-experts", trace)
        self.ids = answer["token_ids"]
        _, *lines = map(json.loads, trace.read_text().splitlines())
        self.needs = {(line["layer"], expert) for line in lines for token in line["ids"]
                      for expert in token}


class DamageTest(CommandTest):

    def setUp(self):
        self.folder = harness.scratch_folder()
        self.model = pathlib.Path(synthetic_model.make(self.folder / "model.gguf", *SIZES))
        made = self.run_json("pack", "--model", self.model)
        self.pack, self.record = pathlib.Path(made["out"]), made["record_bytes"]
        self.layers = made["layers"]

    def start(self):
        self.server = harness.serve("--expert-memory", "10%", model=self.model)
        self.addCleanup(self.server.kill)
        self.client = harness.Client(self.server)
        self.addCleanup(self.client.close)

    def flip(self, path, place):
        """Flips one bit. A second call flips it back."""
        with open(path, "r+b") as file:  # the server has this file open
            file.seek(place)
            (byte,) = file.read(1)
            file.seek(place)
            file.write(bytes([byte ^ 4]))
            file.flush()
            os.fsync(file.fileno())

    def change_record(self, layer, expert):
        """Flips a bit in the middle of a record of the pack."""
        header = self.pack.stat().st_size - self.layers * EXPERTS * self.record
        self.flip(self.pack, header + (layer * EXPERTS + expert) * self.record + self.record // 2)

    def change_model(self, layer, expert):
        """Flips a bit of a weight of this expert in the model file, from which its record is
        rebuilt."""
        content = self.model.read_bytes()
        (data,) = [tensor.data for tensor in gguf_bytes.read(content).tensors
                   if tensor.name == f"blk.{layer}.ffn_up_exps.weight"]
        size = len(data) // EXPERTS
        place = content.index(data[expert * size:(expert + 1) * size]) + size // 2
        self.flip(self.model, place)

    def ready(self):
        """Returns the response of /readyz."""
        try:
            with urllib.request.urlopen(f"http://{self.server.http_address}/readyz",
                                        timeout=60) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    def await_ready(self, status):
        harness.wait_until(lambda: self.ready() == status, lambda: self.server.stderr)

    def offload(self):
        return self.client.worker_stats().offload

    def resident(self):
        (worker,) = self.client.admin.GetPlacement(admin_pb.GetPlacementRequest(),
                                                   timeout=60).workers
        return {(layer.layer, expert) for layer in worker.layers
                for expert in layer.resident_experts}

    def find(self):
        """Returns a long run, a short run, and an expert that is not in memory and that only the short
        run needs."""
        resident = self.resident()
        long = Run(self, [3, 4], LONG)
        self.assertEqual(len(long.ids), LONG)
        for prompt in PROMPTS:
            short = Run(self, prompt, SHORT)
            alone = short.needs - long.needs - resident
            if alone and len(short.ids) == SHORT:
                return long, short, sorted(alone)[0]
        raise AssertionError("no prompt needs an expert of its own")

    def ask(self, run):
        return {"ids": run.prompt, "max_tokens": run.max_tokens, "temperature": 0}

    def run_both(self, long, short):
        """Returns the tokens of the long response, the failure of the short one, and whether the
        long one continued after this failure."""
        received, stream = harness.Received(), self.client.stream(**self.ask(long))
        received.take(next(stream))

        def read():
            for message in stream:
                received.take(message)

        reader = threading.Thread(target=read)
        reader.start()
        failed = failure(lambda: self.client.generate(**self.ask(short)))
        beside = len(received.ids) < LONG
        reader.join()
        return received.ids, failed, beside

    def check_both(self, long, short, damaged):
        layer, expert = damaged
        rounds = beside = 0
        while beside < MEETINGS and rounds < ROUNDS:
            rounds += 1
            ids, (code, message), in_between = self.run_both(long, short)
            self.assertEqual(ids, long.ids)
            self.assertEqual(code, "DATA_LOSS")
            self.assertIn(f"{self.pack.name}: layer {layer}, expert {expert} is damaged", message)
            beside += in_between
        print(f"{beside} of {rounds} answers failed while the other one continued")
        self.assertEqual(beside, MEETINGS)
        self.assertGreaterEqual(self.client.worker_stats().offload.total.failed_reads, rounds)

    def check_all(self, *runs):
        for run in runs:
            self.assertEqual(self.client.generate(**self.ask(run)).ids, run.ids)

    def test_damage_under_a_running_server_is_made_good(self):
        self.start()
        long, short, damaged = self.find()
        sound = self.pack.read_bytes()
        self.change_record(*damaged)
        self.check_all(short, long)
        self.assertGreater(self.offload().total.rebuilt_records, 0)
        self.assertEqual(self.offload().lost_records, 0)
        self.assertEqual(self.ready(), 200)
        harness.wait_until(lambda: self.pack.read_bytes() == sound, lambda: self.server.stderr)
        self.assertEqual(self.server.stop(), 0)
        (line,) = [line for line in self.server.stderr.splitlines() if "rebuilt" in line]
        self.assertIn(str(self.pack), line)

    def test_damage_before_the_start_is_made_good(self):
        self.start()
        long, short, damaged = self.find()
        self.assertEqual(self.server.stop(), 0)
        sound = self.pack.read_bytes()
        self.change_record(*damaged)
        self.start()
        self.check_all(short, long)
        self.assertEqual(self.offload().total.rebuilt_records, 1)
        harness.wait_until(lambda: self.pack.read_bytes() == sound, lambda: self.server.stderr)

    def test_a_damaged_header_is_made_good(self):
        self.start()
        long, short, _ = self.find()
        self.assertEqual(self.server.stop(), 0)
        sound = self.pack.read_bytes()
        self.flip(self.pack, 100)
        self.start()
        self.assertIn(f"cannot use the pack {self.pack}: the checksum of its header does not "
                      f"match; writing it again from {self.model}", self.server.stderr)
        self.check_all(short, long)
        self.assertEqual(self.pack.read_bytes(), sound)

    def test_a_lost_record_makes_the_server_not_ready(self):
        self.start()
        long, short, damaged = self.find()
        self.assertEqual(self.ready(), 200)
        self.change_model(*damaged)
        self.change_record(*damaged)
        self.check_both(long, short, damaged)
        self.assertEqual(self.offload().lost_records, 1)
        self.await_ready(503)
        with urllib.request.urlopen(f"http://{self.server.http_address}/metrics",
                                    timeout=60) as page:
            self.assertRegex(page.read().decode(), r"tidepool:expert_lost_records\{[^}]*\} 1\n")
        # The model file is repaired, so all requests succeed again.
        self.change_model(*damaged)
        self.check_all(short, long)
        self.await_ready(200)
        self.assertEqual(self.offload().lost_records, 0)
        self.assertEqual(self.server.stop(), 0)
        lost = [line for line in self.server.stderr.splitlines() if "is not ready" in line]
        self.assertEqual(len(lost), 1, self.server.stderr)


if __name__ == "__main__":
    import unittest
    unittest.main()

"""One damaged expert: who needs it is told so by its name, who does not gets what it would have."""

import json
import os
import pathlib
import threading

import harness
import synthetic_model
from command_test_case import CommandTest
from harness import admin_pb, failure

# Many experts of which a token takes one, so that two answers have few in common; and a vocabulary
# that takes time, so that one goes on while the other comes and fails.
EXPERTS = 256
SIZES = ("--layers", "2", "--hidden", "256", "--width", "64", "--experts", EXPERTS, "--top-k", "1",
         "--vocabulary", "65536", "--type", "Q8_0")
LONG, SHORT = 500, 4  # output tokens
PROMPTS = [[number, 2 * number + 1] for number in range(10, 90)]
# On a busy machine an answer may be over before the other one's request arrives: pairs are asked
# until so many met, and no pair may be wrong.
MEETINGS, ROUNDS = 3, 100


class Run:
    """What a prompt gives where nothing is damaged, and the (layer, expert) pairs it needs."""

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
        self.model = synthetic_model.make(self.folder / "model.gguf", *SIZES)
        made = self.run_json("pack", "--model", self.model)
        self.pack, self.record = pathlib.Path(made["out"]), made["record_bytes"]
        self.layers = made["layers"]

    def start(self):
        self.server = harness.serve("--expert-memory", "10%", model=self.model)
        self.addCleanup(self.server.kill)
        self.client = harness.Client(self.server)
        self.addCleanup(self.client.close)

    def change_record(self, layer, expert):
        """Turns one bit in the middle of it; once more turns it back."""
        header = self.pack.stat().st_size - self.layers * EXPERTS * self.record
        place = header + (layer * EXPERTS + expert) * self.record + self.record // 2
        with open(self.pack, "r+b") as pack:  # the file that the server has open
            pack.seek(place)
            (byte,) = pack.read(1)
            pack.seek(place)
            pack.write(bytes([byte ^ 4]))
            pack.flush()
            os.fsync(pack.fileno())

    def resident(self):
        (worker,) = self.client.admin.GetPlacement(admin_pb.GetPlacementRequest(),
                                                   timeout=60).workers
        return {(layer.layer, expert) for layer in worker.layers
                for expert in layer.resident_experts}

    def find(self):
        """A long run, a short one, and what the short one alone needs and is not in memory."""
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
        """The long answer's tokens, the short one's failure, and whether the long one had begun
        before that and went on after it."""
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
        print(f"{beside} of {rounds} answers failed while the other one went on")
        self.assertEqual(beside, MEETINGS)
        self.assertGreaterEqual(self.client.worker_stats().offload.total.failed_reads, rounds)

    def test_damage_under_a_running_server(self):
        self.start()
        long, short, damaged = self.find()
        self.change_record(*damaged)
        self.check_both(long, short, damaged)
        self.change_record(*damaged)
        for run in (short, long):
            self.assertEqual(self.client.generate(**self.ask(run)).ids, run.ids)
        self.assertEqual(self.server.stop(), 0)

    def test_damage_before_the_start(self):
        self.start()
        long, short, damaged = self.find()
        self.assertEqual(self.server.stop(), 0)
        self.change_record(*damaged)
        self.start()
        self.check_both(long, short, damaged)


if __name__ == "__main__":
    import unittest
    unittest.main()

"""Operators inspect and change a server's experts while it serves."""

import fcntl
import json
import os
import pty
import random
import shutil
import struct
import subprocess
import termios
import threading
import unittest

import grpc
import harness
from command_test_case import CommandTest
from harness import admin_pb, failure

POLICIES = ("adaptive", "tide", "lru", "static")
# The model has two layers of 8 experts, 3 for each token. Eight records are staging.
EXPERTS, LEAST = 16, 11


def offloaded_model():
    model = harness.scratch_folder() / "moe.gguf"
    shutil.copy(harness.MOE, model)
    return model


class AdminTest(CommandTest):

    @classmethod
    def setUpClass(cls):
        cls.model = offloaded_model()
        cls.server = harness.serve("--expert-memory", "75%", model=cls.model)
        cls.addClassCleanup(cls.server.kill)
        cls.client = harness.Client(cls.server)
        cls.addClassCleanup(cls.client.close)
        cls.record = cls.settings().record_bytes

    @classmethod
    def set_offload(cls, **fields):
        return cls.client.admin.SetOffload(admin_pb.SetOffloadRequest(**fields), timeout=60)

    @classmethod
    def settings(cls, **fields):
        workers = cls.set_offload(**fields).workers
        assert len(workers) == 1 and workers[0].status_code == 0, workers
        return workers[0].settings

    def placement(self):
        workers = self.client.admin.GetPlacement(admin_pb.GetPlacementRequest(), timeout=60).workers
        self.assertEqual(len(workers), 1)
        self.assertEqual(workers[0].status_code, 0, workers[0].status_message)
        return workers[0]

    def test_changes_under_load_change_no_token(self):
        prompts = ["The tide", "A harbour at night " * 4, "41 boats", "x"]
        resident = harness.serve(model=self.model)
        self.addCleanup(resident.kill)
        client = harness.Client(resident)
        self.addCleanup(client.close)
        expected = [client.generate(text=prompt, max_tokens=60).ids for prompt in prompts]
        answers = [None] * len(prompts)
        self.client.generate(text="x", max_tokens=1)  # the policy static needs counts of uses

        def generate(i):
            answers[i] = self.client.generate(text=prompts[i], max_tokens=60).ids

        for seed in range(3):
            draw = random.Random(seed)
            threads = [threading.Thread(target=generate, args=(i,)) for i in range(len(prompts))]
            for thread in threads:
                thread.start()
            changes = 0
            while changes < 10 or any(thread.is_alive() for thread in threads):
                policy, records = draw.choice(POLICIES), draw.randint(LEAST, EXPERTS + 8)
                settings = self.settings(policy=policy, refresh_interval=draw.randint(1, 5),
                                         expert_memory_bytes=records * self.record,
                                         prefetch=draw.random() < 0.5)
                self.assertEqual((settings.policy, settings.slots), (policy, records - 8))
                self.assertEqual(self.client.worker_stats().offload.slots, records - 8)
                placed = self.placement()
                self.assertLessEqual(sum(len(layer.resident_experts) for layer in placed.layers),
                                     records - 8)
                changes += 1
            for thread in threads:
                thread.join()
            self.assertEqual(answers, expected)

    def test_unset_fields_stay(self):
        self.settings(policy="tide", refresh_interval=6, expert_memory_share=0.75, prefetch=False)
        settings = self.settings()
        self.assertEqual((settings.policy, settings.refresh_interval, settings.prefetch),
                         ("tide", 6, False))
        self.assertEqual((settings.slots, settings.experts, settings.staging_records),
                         (4, EXPERTS, 8))
        self.assertEqual(settings.expert_memory_bytes, 12 * self.record)
        self.assertEqual(self.settings(prefetch=True).policy, "tide")
        offload = self.client.worker_stats().offload
        self.assertEqual((offload.policy, offload.refresh_interval, offload.prefetch),
                         ("tide", 6, True))
        self.assertEqual(offload.capacity_bytes, 12 * self.record)
        # A value above the memory of all experts is lowered to it.
        self.assertEqual(self.settings(expert_memory_bytes=1 << 33).slots, EXPERTS)
        refreshed = self.client.admin.RefreshExperts(admin_pb.RefreshExpertsRequest(), timeout=60)
        self.assertEqual(refreshed.workers[0].settings.policy, "tide")

    def test_refusals_name_worker_field_value_and_range(self):
        before = self.settings()
        worker = self.client.worker_stats().worker_id
        cases = [
            ({"policy": "fifo"}, "policy: unknown offload policy \"fifo\""),
            ({"refresh_interval": 0}, "refresh_interval is 0; accepted: 1 or more"),
            ({"expert_memory_bytes": LEAST * self.record - 1},
             f"expert_memory_bytes is {LEAST * self.record - 1}; accepted: {LEAST * self.record} "
             "bytes or more"),
            ({"expert_memory_bytes": -1}, "expert_memory_bytes is -1"),
            ({"expert_memory_share": 1.5}, "expert_memory_share is 1.5; accepted: above 0 and at most 1"),
            ({"expert_memory_share": 0.5, "expert_memory_bytes": 1 << 30}, "set one of them"),
        ]
        for fields, named in cases:
            code, message = failure(lambda fields=fields: self.set_offload(prefetch=False, **fields))
            self.assertEqual(code, "INVALID_ARGUMENT", fields)
            self.assertIn(f"worker '{worker}': ", message)
            self.assertIn(named, message)
        self.assertEqual(self.settings(), before)
        for call, request in ((self.client.admin.SetOffload, admin_pb.SetOffloadRequest),
                              (self.client.admin.RefreshExperts, admin_pb.RefreshExpertsRequest),
                              (self.client.admin.GetPlacement, admin_pb.GetPlacementRequest),
                              (self.client.admin.WatchStats, admin_pb.WatchStatsRequest)):
            code, message = failure(lambda: call(request(worker_id="nobody"), timeout=30))
            self.assertEqual(code, "NOT_FOUND")
            self.assertIn("'nobody'", message)

    def test_costs_add_up(self):
        total = self.client.wait_idle()
        answers = [self.client.generate(text="The tide" * n, max_tokens=9 + n) for n in (1, 2, 5)]
        streams = [self.client.stream(text=f"{n} boats", max_tokens=20) for n in range(6)]
        for stream in streams:
            received = harness.Received()
            for message in stream:
                received.take(message)
            answers.append(received.answer())
        after = self.client.wait_idle()
        usages = [answer.usage for answer in answers]
        for name, before, now in (
                ("expert_hits", total.expert_hits_total, after.expert_hits_total),
                ("expert_misses", total.expert_misses_total, after.expert_misses_total),
                ("expert_demand_bytes", total.offload.total.demand_bytes,
                 after.offload.total.demand_bytes)):
            self.assertEqual(sum(getattr(usage, name) for usage in usages), now - before, name)
        self.assertAlmostEqual(sum(usage.expert_stall_seconds for usage in usages),
                               after.offload.total.stall_seconds - total.offload.total.stall_seconds,
                               places=6)
        for counters in (after.offload.total, after.offload.window):
            self.assertEqual([layer.layer for layer in counters.layers], [0, 1])
            for name in ("hits", "misses", "promotions", "pass_throughs"):
                self.assertEqual(sum(getattr(layer, name) for layer in counters.layers),
                                 getattr(counters, name))
        placed = self.placement()
        self.assertEqual(sum(sum(layer.uses_total) for layer in placed.layers),
                         after.expert_hits_total + after.expert_misses_total)
        self.assertGreater(sum(sum(layer.uses_window) for layer in placed.layers), 0)

    def watch(self, timeout=60, **fields):
        return self.client.admin.WatchStats(admin_pb.WatchStatsRequest(**fields), timeout=timeout)

    def test_watching(self):
        before = self.client.worker_stats().generated_tokens_total
        readings = self.watch(interval_seconds=0.1)
        first = next(readings)
        self.assertEqual(first.workers[0].status_code, 0)
        self.assertTrue(first.HasField("front"))
        self.client.generate(text="The tide", max_tokens=8)
        seen = next(reading for reading in readings
                    if reading.workers[0].generated_tokens_total == before + 8)
        self.assertEqual(seen.workers[0].offload.experts, EXPERTS)
        readings.cancel()
        self.assertEqual(len(list(self.watch(interval_seconds=0.1, count=3))), 3)
        for fields, named in (({"interval_seconds": 0.01}, "interval_seconds is 0.01"),
                              ({"interval_seconds": 1e9}, "accepted: 0.1 to 3600"),
                              ({"count": 0}, "count is 0")):
            code, message = failure(lambda fields=fields: self.watch(**fields))
            self.assertEqual(code, "INVALID_ARGUMENT")
            self.assertIn(named, message)

    def test_the_command(self):
        at = ("offload", "--server", self.server.address)
        worker = self.client.worker_stats().worker_id
        answer = self.run_json(*at, "--offload-policy", "tide", "--refresh-interval", "3",
                               "--expert-memory", "75%", "--prefetch", "off")
        settings = answer["workers"][0]["settings"]
        self.assertEqual((settings["policy"], settings["refresh_interval"], settings["prefetch"],
                          settings["slots"]), ("tide", 3, False, 4))
        self.assertEqual(answer["workers"][0]["worker_id"], worker)
        shown = self.run_well(*at, "--worker-id", worker).stdout
        self.assertIn("policy      tide, refreshed every 3 steps", shown)
        self.assertIn("slots for 4 of 16 experts, and 8 staging records", shown)
        self.assertIn("prefetch    off", shown)
        self.assertIn("tide", self.run_well(*at, "--refresh").stdout)
        self.refuse(*at, "--expert-memory", "1KiB", named=("expert_memory_bytes is 1024", worker))
        self.refuse(*at, "--worker-id", "nobody", named="'nobody'")
        self.refuse(*at, "--expert-memory", "auto", named="--expert-memory")
        self.refuse(*at, "--refresh", "--prefetch", "on", named="--refresh")
        self.refuse("offload", "--server", "127.0.0.1:1", code=1, named="no server answers")
        self.refuse("offload", "--server", self.server.http_address, code=1,
                    named="serves HTTP, not gRPC")

    def test_the_live_picture(self):
        self.client.generate(text="The tide", max_tokens=12)
        at = ("stats", "--server", self.server.address)
        text = self.run_well(*at, "--once").stdout
        self.assertRegex(text, r"hit rate    [0-9.]+ % since the start, [0-9.]+ % in the last \d+ s")
        self.assertIn("on demand", text)
        self.assertIn("# in memory", text)
        self.assertRegex(text, r"(?m)^  0       [-+*# .:!]{8}")
        self.assertRegex(text, r"(?m)^  1       [-+*# .:!]{8}")
        self.assertNotIn("\033", text)
        self.assertIn("workers", self.run_json(*at, "--once"))

    def terminal(self, columns, rows, **environment):
        """Returns what `stats` prints on a terminal of this size."""
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        process = subprocess.Popen(
            [str(harness.BINARY), "stats", "--server", self.server.address, "--once"],
            stdout=theirs, env=harness.clean_environment(**environment))
        os.close(theirs)
        drawn = b""
        while True:
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not chunk:
                break
            drawn += chunk
        self.assertEqual(process.wait(timeout=60), 0)
        return drawn.decode()

    def test_terminals(self):
        self.client.generate(text="The tide", max_tokens=12)
        coloured = self.terminal(100, 50, TERM="xterm")
        self.assertIn("\033[", coloured)
        self.assertIn("# in memory", coloured)
        for environment in ({"TERM": "xterm", "NO_COLOR": "1"}, {"TERM": "dumb"}):
            plain = self.terminal(100, 50, **environment)
            self.assertNotIn("\033", plain)
            self.assertIn("# in memory", plain)
        self.assertNotIn("in memory,", self.terminal(20, 50, TERM="xterm"))
        self.assertNotIn("in memory,", self.terminal(100, 8, TERM="xterm"))


class OtherModelsTest(CommandTest):

    def test_models_without_offloaded_experts(self):
        for model in (harness.LLAMA, harness.MOE):
            server = harness.serve(model=model)
            self.addCleanup(server.kill)
            client = harness.Client(server)
            self.addCleanup(client.close)
            code, message = failure(lambda: client.admin.SetOffload(
                admin_pb.SetOffloadRequest(policy="lru"), timeout=30))
            self.assertEqual(code, "FAILED_PRECONDITION")
            self.assertIn("--expert-memory", message)
            workers = client.admin.GetPlacement(admin_pb.GetPlacementRequest(), timeout=30).workers
            self.assertEqual(workers[0].status_code, grpc.StatusCode.FAILED_PRECONDITION.value[0])
            self.refuse("offload", "--server", server.address, code=1, named="not offloaded")

    def test_static_without_a_profile_takes_the_counts(self):
        server = harness.serve("--expert-memory", "75%", model=offloaded_model())
        self.addCleanup(server.kill)
        client = harness.Client(server)
        self.addCleanup(client.close)
        request = admin_pb.SetOffloadRequest(policy="static")
        code, message = failure(lambda: client.admin.SetOffload(request, timeout=30))
        self.assertEqual(code, "FAILED_PRECONDITION")
        self.assertIn("--profile", message)
        client.generate(text="The tide", max_tokens=8)
        client.admin.SetOffload(request, timeout=30)
        self.assertEqual(client.worker_stats().offload.policy, "static")

    def test_a_profile_from_the_start(self):
        model = offloaded_model()
        trace = model.parent / "trace.jsonl"
        run = ("bench", "--model", model, "-p", "40", "-n", "0", "-r", "1", "--expert-memory", "75%")
        self.run_json(*run, "--trace-experts", trace)
        unguided = self.run_well(*run, "--offload-policy", "static")
        self.assertIn("--profile to a file that --trace-experts wrote", unguided.stderr)
        guided = self.run_well(*run, "--offload-policy", "static", "--profile", trace, "--json")
        self.assertNotIn("--profile", guided.stderr)
        offload = json.loads(guided.stdout)["offload"]
        replayed = self.run_json("replay", "--trace", trace, "--profile", trace, "--policy",
                                 "static", "--slots", offload["slots"])["results"][0]
        self.assertEqual(offload["total"]["hits"], replayed["hits"])
        self.refuse(*run, "--profile", "/nowhere/trace", named="/nowhere/trace")
        lines = trace.read_text().splitlines()
        other = json.loads(lines[0])
        other["experts"] += 1
        trace.write_text("\n".join([json.dumps(other)] + lines[1:]) + "\n")
        self.refuse(*run, "--profile", trace,
                    named=("2 layers of 9 experts", "expected 2 of 8"))


class WorkersTest(unittest.TestCase):

    def test_workers_that_do_not_answer_are_listed(self):
        model = offloaded_model()
        a = harness.worker("--name", "a", "--expert-memory", "75%", model=model)
        b = harness.worker("--name", "b", "--expert-memory", "75%", model=model)
        front = harness.front([a, b])
        for process in (a, b, front):
            self.addCleanup(process.kill)
        client = harness.Client(front)
        self.addCleanup(client.close)
        harness.wait_until(
            lambda: all(worker.status_code == 0 and worker.worker_id
                        for worker in client.stats().workers), "both workers are known")

        def change(policy, **fields):
            return client.admin.SetOffload(
                admin_pb.SetOffloadRequest(policy=policy, **fields), timeout=30)

        self.assertEqual([(worker.worker_id, worker.settings.policy)
                          for worker in change("lru").workers], [("a", "lru"), ("b", "lru")])
        self.assertEqual([worker.worker_id for worker in change("tide", worker_id="b").workers],
                         ["b"])
        self.assertEqual([worker.offload.policy for worker in client.stats().workers],
                         ["lru", "tide"])
        # A worker can be called directly, too.
        direct = harness.Client(a)
        self.addCleanup(direct.close)
        answer = direct.admin.SetOffload(admin_pb.SetOffloadRequest(prefetch=False), timeout=30)
        self.assertFalse(answer.workers[0].settings.prefetch)
        watched = direct.admin.WatchStats(admin_pb.WatchStatsRequest(count=1), timeout=30)
        self.assertEqual([reading.workers[0].worker_id for reading in watched], ["a"])

        a.kill()
        workers = change("adaptive").workers
        self.assertEqual([worker.status_code for worker in workers],
                         [grpc.StatusCode.UNAVAILABLE.value[0], 0])
        self.assertEqual(workers[0].worker_id, "a")
        self.assertFalse(workers[0].HasField("settings"))
        code, message = failure(lambda: change("lru", worker_id="a"))
        self.assertEqual(code, "UNAVAILABLE")
        self.assertIn("worker 'a': ", message)
        b.kill()
        self.assertEqual(failure(lambda: change("lru"))[0], "UNAVAILABLE")

    def test_a_watch_does_not_hold_the_server_up(self):
        server = harness.serve("--drain-timeout", "60s")
        self.addCleanup(server.kill)
        client = harness.Client(server)
        self.addCleanup(client.close)
        readings = client.admin.WatchStats(admin_pb.WatchStatsRequest(interval_seconds=30),
                                           timeout=120)
        next(readings)
        server.signal(15)
        self.assertEqual(failure(lambda: list(readings))[0], "UNAVAILABLE")
        self.assertEqual(server.wait(timeout=30), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)

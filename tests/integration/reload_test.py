"""SIGHUP: which keys of the --config file a running server applies, and which not."""

import signal
import unittest

import harness
from harness import Client, Received, failure, wait_until


class ReloadTest(unittest.TestCase):

    def setUp(self):
        self.file = harness.scratch_folder() / "tidepool.toml"

    def write(self, **values):
        """Writes the keys, with - in place of _. The file is written atomically."""
        lines = [f"{key.replace('_', '-')} = {value!r}\n" for key, value in values.items()]
        part = self.file.with_name("part")
        part.write_text("".join(lines))
        part.rename(self.file)

    def start(self, command, *arguments):
        server = harness.Server(command, "--config", self.file, *arguments)
        self.addCleanup(server.kill)
        client = Client(server)
        self.addCleanup(client.close)
        return server, client

    def serve(self, *arguments):
        return self.start("serve", "--model", harness.LLAMA, "--store", ":memory:", "--threads",
                          "1", *arguments)

    def worker(self, name):
        process = harness.worker("--name", name)
        self.addCleanup(process.kill)
        return process

    def reread(self, server, *expected):
        """Sends SIGHUP. Returns the log lines that follow. They must contain `expected` in this
        order."""
        before = len(self.said(server))
        server.signal(signal.SIGHUP)
        lines = wait_until(lambda: len(found := self.said(server)[before:]) >= len(expected)
                           and found, lambda: f"an answer to SIGHUP: {server.stderr}")
        self.assertEqual(len(lines), len(expected), lines)
        for line, part in zip(lines, expected):
            self.assertIn(part, line)
        return lines

    @staticmethod
    def said(server):
        return [line for line in server.stderr.rpartition("\n")[0].splitlines()
                if " SIGHUP: " in line]

    def test_reloadable_keys_change_and_others_are_named(self):
        self.write(log_level="info", kv_memory="64MiB")
        server, client = self.serve()
        self.write(log_level="debug", log_prompts="true", kv_memory="32MiB", max_sessions="5")
        self.reread(server, "; log-level, log-prompts changed",
                    " warning SIGHUP: kv-memory, max-sessions cannot change")
        client.generate(text="a question", max_tokens=1)
        wait_until(lambda: 'prompt="a question"' in server.stderr, lambda: server.stderr)
        self.assertIn(" debug run ", server.stderr)
        # The second time, applied changes are no longer reported, and the others still are.
        self.reread(server, "nothing changed", "kv-memory, max-sessions cannot change")

    def test_a_file_that_is_wrong_changes_nothing(self):
        self.write(log_level="info")
        server, client = self.serve()
        for text, part in (("log-level = 'debug'\nlog-level\n", f"{self.file}: line 2"),
                           ("log-level = 'loud'\n", "loud"),
                           ("log-level = 'debug'\nmax-quued = 3\n", "max-queued"),
                           ("tls-cert = 'x.pem'\n", "--tls-key")):
            self.file.write_text(text)
            self.reread(server, part)
        self.file.unlink()
        (line,) = self.reread(server, str(self.file))
        self.assertIn(" error SIGHUP: ", line)
        self.assertTrue(line.endswith("; configuration unchanged"), line)
        client.generate(text="a", max_tokens=1)
        wait_until(lambda: "request ended" in server.stderr, lambda: server.stderr)
        self.assertNotIn(" debug ", server.stderr)

    def test_the_queue_grows(self):
        self.write(max_queued="0")
        server, client = self.serve("--max-sequences", "1", "--exact")
        stream = client.wide_stream(text="a", max_tokens=4000)
        received = Received()
        harness.take_tokens(stream, received, 1)
        self.assertEqual(failure(lambda: client.generate(text="b", max_tokens=1))[0],
                         "RESOURCE_EXHAUSTED")
        self.write(max_queued="4")
        self.reread(server, "max-queued changed")
        tries = []

        def one_waits():
            # The front learns from its worker's next state that the queue has room.
            if not tries or tries[-1].done():
                tries.append(client.stream(text="b", max_tokens=2, timeout=60))
            return client.worker_stats().sequences_waiting == 1
        wait_until(one_waits, "it waits")
        stream.cancel()
        self.assertEqual(sum(len(message.token_ids) for message in tries[-1]), 2)

    def test_workers_come_and_go(self):
        left, right = self.worker("left"), self.worker("right")
        self.write(worker=[left.address])
        front, client = self.start("front", "--store", ":memory:")
        stream = client.wide_stream(text="a", max_tokens=4000)
        received = Received()
        harness.take_tokens(stream, received, 1)
        self.write(worker=[right.address])
        self.reread(front, "worker changed")

        self.assertEqual(client.stats().workers[0].sequences_running, 1)

        def busy_at_right():
            client.generate(text="b", max_tokens=1)
            return [one for one in client.stats().workers
                    if one.worker_id == "right" and one.requests_finished_total >= 1]
        wait_until(busy_at_right, "new work goes to the new worker")
        # The streams of the removed worker finish on that worker.
        for message in stream:
            received.take(message)
        self.assertEqual(len(received.answer().ids), 4000)
        wait_until(lambda: [one.worker_id for one in client.stats().workers] == ["right"],
                   "the other one is forgotten")
        self.assertTrue(left.running())

    def test_a_name_that_is_wrong_can_be_put_right(self):
        process = self.worker("left")
        self.write(workers="no-such-name.invalid:1")
        front = harness.Server("front", "--config", self.file, "--store", ":memory:",
                               awaited="liveness")
        self.addCleanup(front.kill)
        wait_until(lambda: "cannot look up no-such-name.invalid" in front.stderr,
                   lambda: front.stderr)
        self.assertFalse(harness.health(front.address, "readiness"))
        port = process.address.rpartition(":")[2]
        self.write(workers=f"dns:///127.0.0.1:{port}")
        self.reread(front, "workers changed")
        wait_until(lambda: harness.health(front.address, "readiness"), lambda: front.stderr)
        client = Client(front)
        self.addCleanup(client.close)
        self.assertEqual(len(client.generate(text="a", max_tokens=3).ids), 3)

    def test_without_a_file_it_means_that_the_terminal_is_gone(self):
        server = harness.serve()
        self.addCleanup(server.kill)
        server.signal(signal.SIGHUP)
        self.assertEqual(server.wait(), 0)
        self.assertIn("stopped", server.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)

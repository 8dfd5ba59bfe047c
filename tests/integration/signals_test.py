"""SIGTERM while work is running, two servers with one port or store, and restarts.

The real model in its slow exact mode makes streams last while the test acts.
"""

import signal
import socket
import unittest

import grpc

import harness
from harness import Client, Received, failure


TOKENS = 2500
AT_ONCE = 25  # seconds; less than the 30 s of --drain-timeout


def serve_slowly(*arguments, **more):
    return harness.serve("--exact", *arguments, model=harness.smollm2(), **more)


def plain_line(test, text, *named):
    """Returns the only line of `text`. It must contain each of `named`."""
    lines = text.splitlines()
    test.assertEqual(len(lines), 1, text)
    for name in named:
        test.assertIn(str(name), lines[0])


class DrainTest(unittest.TestCase):

    def start(self, *arguments, **more):
        return self.started(serve_slowly(*arguments, **more))

    def started(self, server):
        self.addCleanup(server.kill)
        client = Client(server)
        self.addCleanup(client.close)
        return server, client

    def begin(self, client, max_tokens):
        received = Received()
        stream = client.stream(text="The sky is", max_tokens=max_tokens)
        harness.take_tokens(stream, received, 1)
        return stream, received

    def test_running_streams_finish_and_new_ones_are_refused(self):
        store = harness.scratch_folder() / "sessions.db"
        server, client = self.started(harness.serve("--drain-timeout", "5m", store=store))
        # The stream's messages are long, so it cannot end before it is read.
        received = Received()
        stream = client.wide_stream(text="The sky is", max_tokens=TOKENS)
        harness.take_tokens(stream, received, 1)
        server.signal(signal.SIGTERM)
        harness.wait_until(lambda: self.refuses(client), "new requests are refused")
        self.assertTrue(server.running(), "the stream was not waited for")
        self.assertFalse(harness.health(server.address, "readiness"))
        for message in stream:
            received.take(message)
        answer = received.answer()
        self.assertEqual((len(answer.ids), answer.finish), (TOKENS, "LENGTH"))
        self.assertEqual(server.wait(), 0)
        again, client = self.started(harness.serve(store=store))
        self.assertEqual(client.generate(text="The sky is", max_tokens=TOKENS).ids, answer.ids)
        self.assertEqual(again.stop(), 0)

    def refuses(self, client):
        code, _ = self.outcome(client)
        self.assertIn(code, ("OK", "UNAVAILABLE"))
        return code == "UNAVAILABLE"

    def outcome(self, client):
        try:
            client.generate(text="b", max_tokens=1)
            return "OK", ""
        except grpc.RpcError as error:
            return error.code().name, error.details()

    def test_the_drain_timeout_ends_streams_that_do_not_end(self):
        server, client = self.start("--drain-timeout", "500ms")
        stream, received = self.begin(client, 2000)
        server.signal(signal.SIGTERM)
        code, message = failure(lambda: stream)
        self.assertEqual((code, message),
                         ("UNAVAILABLE", "the server is shutting down; retry at another server"))
        self.assertEqual(server.wait(), 0)

    def test_a_second_signal_cuts_the_drain_short(self):
        server, client = self.start("--drain-timeout", "10m")
        stream, received = self.begin(client, 2000)
        server.signal(signal.SIGINT)
        harness.wait_until(lambda: self.refuses(client), "new requests are refused")
        server.signal(signal.SIGINT)
        self.assertEqual(server.wait(), 0)
        self.assertEqual(failure(lambda: stream)[0], "UNAVAILABLE")


class LoadingTest(unittest.TestCase):
    """Signals to a process that is loading its model."""

    def interrupt(self, number, is_loaded, *arguments):
        """Sends the signal to a process that loads its model. Returns its exit code."""
        for _ in range(20):
            process = harness.Process(*arguments, "--exact", "-t", "1", "--model",
                                      harness.smollm2())
            self.addCleanup(process.kill)
            harness.wait_until(lambda: not process.running() or self.has_mapped_the_model(process),
                               "the model file is mapped")
            process.signal(number)
            code = process.wait()
            if not is_loaded(process):
                self.assertEqual(process.stderr.count("error"), 0, process.stderr)
                return code
        self.fail("every load was over before the signal came")

    @staticmethod
    def has_mapped_the_model(process):
        try:
            with open(f"/proc/{process.pid}/maps") as maps:
                return any(line.rstrip("\n").endswith(harness.smollm2().resolve().name) for line in maps)
        except OSError:
            return False

    def test_a_server_ends_well_and_leaves_no_store(self):
        folder = harness.scratch_folder()
        code = self.interrupt(signal.SIGTERM, lambda process: process.stdout, "serve", "--store",
                              folder / "new.db", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
        self.assertEqual(code, 0)
        self.assertEqual(list(folder.iterdir()), [])

    def test_a_chat_ends_as_if_by_the_signal(self):
        code = self.interrupt(signal.SIGINT, lambda process: "> " in process.stderr, "chat")
        self.assertEqual(code, 128 + signal.SIGINT)


class EveryRoleTest(unittest.TestCase):

    def test_each_ends_with_zero_at_once_when_idle(self):
        worker = harness.worker()
        front = harness.front([worker])
        alone = harness.serve()
        for process in (front, worker, alone):
            self.addCleanup(process.kill)
        for process in (front, worker, alone):
            process.signal(signal.SIGTERM)
            self.assertEqual(process.wait(AT_ONCE), 0, process.stderr)

    def test_idle_clients_do_not_hold_the_end_up(self):
        server = harness.serve()
        self.addCleanup(server.kill)
        client = Client(server)
        self.addCleanup(client.close)
        client.generate(text="a", max_tokens=1)
        watch = client.channel.unary_stream("/grpc.health.v1.Health/Watch")(b"")
        self.assertEqual(next(watch), b"\x08\x01")
        server.signal(signal.SIGTERM)
        self.assertEqual(server.wait(AT_ONCE), 0, server.stderr)

    def test_a_store_of_a_running_server_is_refused(self):
        store = harness.scratch_folder() / "sessions.db"
        server = harness.serve(store=store)
        self.addCleanup(server.kill)
        second = harness.run_tidepool("serve", "--model", harness.LLAMA, "--store", store,
                                      "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
        self.assertEqual(second.returncode, 1)
        plain_line(self, second.stderr, store)
        Client(server).create_session("still-served")
        self.assertEqual(server.stop(), 0)
        again = harness.serve(store=store)
        self.addCleanup(again.kill)
        self.assertEqual(Client(again).get_session("still-served").turn_count, 0)

    def test_a_port_in_use_is_one_line(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            self.refuse_start(address)
        server = harness.serve()
        self.addCleanup(server.kill)
        self.refuse_start(server.address)
        self.assertTrue(harness.health(server.address))

    def test_a_port_in_use_comes_with_the_flag_that_named_it(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            for flag in ("--listen", "--http", "--admin-listen", "--probe-listen"):
                free = [] if flag == "--listen" else ["--listen", "127.0.0.1:0"]
                free += [] if flag == "--http" else ["--http", "off"]
                result = harness.run_tidepool("serve", "--model", harness.LLAMA, "--store",
                                              ":memory:", *free, flag, address)
                self.assertEqual(result.returncode, 1, flag)
                plain_line(self, result.stderr, address, f" {flag}")

    def refuse_start(self, address):
        for arguments in (["serve", "--model", harness.LLAMA, "--store", ":memory:"],
                          ["worker", "--model", harness.LLAMA],
                          ["front", "--worker", "127.0.0.1:1", "--store", ":memory:"]):
            result = harness.run_tidepool(*arguments, "--listen", address)
            self.assertEqual(result.returncode, 1, arguments)
            plain_line(self, result.stderr, address)
            self.assertEqual(result.stdout, "")


if __name__ == "__main__":
    unittest.main(verbosity=2)
